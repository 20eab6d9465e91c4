"""The switches of a session: asked of OpenFeature once, then a value that does not change.

What goes into a request depends on some of them, so a session keeps what it started with: a switch
that moved in the middle would break the prompt cache.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from sevenfold.events import Emit, Failed
from sevenfold.settings import Switches

if TYPE_CHECKING:
    from openfeature.client import OpenFeatureClient
    from openfeature.flag_evaluation import FlagEvaluationDetails

DOMAIN: Final = "sevenfold"
"""The OpenFeature domain whose provider is asked."""


class Flags(Switches, frozen=True):
    """Every layer and mechanism, on or off."""

    def as_begun(self, session: Any) -> Flags:
        """What a session began with holds for all of it, as far as its record can be read."""
        begun = session.get("flags") if isinstance(session, dict) else None
        stored = begun if isinstance(begun, dict) else {}
        known = {
            n: v for n, v in stored.items() if n in self.__struct_fields__ and v in (True, False)
        }
        return replace(self, **known)

    @classmethod
    def latch(
        cls,
        settings: Switches | Mapping[str, bool] | None = None,
        client: OpenFeatureClient | None = None,
        emit: Emit | None = None,
    ) -> Flags:
        """What holds for one session: the provider's word, else the settings, else the defaults.

        A provider that breaks changes nothing, and an event says so.
        """
        known: dict[str, bool] = msgspec.to_builtins(settings or Switches())
        flags = cls(**{name: known[name] for name in cls.__struct_fields__ if name in known})
        if client is None and "openfeature" not in sys.modules:
            return flags  # nobody can have set a provider, and importing it takes time
        if client is None:
            from openfeature import api

            client = api.get_client(DOMAIN)
        details = [client.get_boolean_details(n, getattr(flags, n)) for n in cls.__struct_fields__]
        broken = [answer for answer in details if _broken(answer)]
        if broken and emit is not None:
            names = ", ".join(answer.flag_key for answer in broken)
            emit(Failed("flags", f"{_broken(broken[0])}; as the settings have them: {names}"))
        return cls(**{answer.flag_key: answer.value for answer in details})


def _broken(details: FlagEvaluationDetails[Any]) -> str:
    """What went wrong; that a provider does not know a flag is no fault."""
    from openfeature.exception import ErrorCode

    if details.error_code in (None, ErrorCode.FLAG_NOT_FOUND):
        return ""
    return f"{details.error_code}: {details.error_message or 'no reason given'}"
