"""The switches of a session: asked of OpenFeature when it opens and before each turn, a value in between.

A switch works at once, also in a session that is resumed or going on. Only those that decide what every
request begins with stay as they were when the session began: moved in the middle, they would break the
prompt cache.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from sevenfold.core.events import Emit, Failed, Notice
from sevenfold.settings.layers import Switches

if TYPE_CHECKING:
    from openfeature.client import OpenFeatureClient
    from openfeature.flag_evaluation import FlagEvaluationDetails

DOMAIN: Final = "sevenfold"
"""The OpenFeature domain whose provider is asked."""
LATCHED: Final = ("micro_api", "server_compact")
"""They put parameters into the frame of all requests, so they hold for a whole session."""


class Flags(Switches, frozen=True):
    """Every layer and mechanism, on or off."""

    def all_as_begun(self, session: Any) -> Flags:
        """Every switch as it was when the session began, as far as its record can be read."""
        begun = session.get("flags") if isinstance(session, dict) else None
        stored = begun if isinstance(begun, dict) else {}
        known = {n: v for n, v in stored.items() if n in self.__struct_fields__ and v in (True, False)}
        return replace(self, **known)

    def as_begun(self, session: Any, emit: Emit | None = None) -> Flags:
        """As they are now, but for those that the beginning of every request of a session depends on."""
        begun = self.all_as_begun(session)
        kept = {name: getattr(begun, name) for name in LATCHED}
        held = replace(self, **kept)
        changed = [name for name in kept if getattr(held, name) != getattr(self, name)]
        if changed and emit is not None:
            told = ", ".join(f"{n} {'on' if getattr(held, n) else 'off'}" for n in changed)
            emit(Notice(f"as this session began, and until it ends: {told}; a new one has it as set"))
        return held

    def by_now(self, session: Any) -> Flags:
        """The provider's word of this moment. One that has broken meanwhile changes nothing."""
        begun = session if isinstance(session, dict) else {"flags": msgspec.to_builtins(self)}
        return self.latch(self).as_begun(begun)

    @classmethod
    def latch(
        cls,
        settings: Switches | Mapping[str, bool] | None = None,
        client: OpenFeatureClient | None = None,
        emit: Emit | None = None,
    ) -> Flags:
        """The flags of one session: from the provider, else the settings, else the defaults.

        A provider that breaks changes nothing, and an event says so.
        """
        known: dict[str, bool] = msgspec.to_builtins(settings or Switches())
        flags = cls(**{name: known[name] for name in cls.__struct_fields__ if name in known})
        if client is None and "openfeature" not in sys.modules:
            return flags  # no provider can have been set, and importing it takes time
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
    """The error of a provider; an unknown flag is none."""
    from openfeature.exception import ErrorCode

    if details.error_code in (None, ErrorCode.FLAG_NOT_FOUND):
        return ""
    return f"{details.error_code}: {details.error_message or 'no reason given'}"
