"""Decides what becomes of a text that is to be written into memory, and says why.

Secrets and texts that are too large are refused. A text that tries to steer the agent goes to quarantine,
where the user can look at it and let it through. The user's own words are trusted further than a page from
the web: the thresholds by source stand in `signals.toml`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sevenfold.memory.guard.found import PASSED, Found, Verdict, quarantine_command
from sevenfold.memory.guard.instructions import find_instructions
from sevenfold.memory.guard.secrets import find_secrets

LARGEST: Final = 250_000
"""Bytes a memory may have; nobody reads a longer one, and searching it would take long."""
RELEASED: Final = "released"
"""The source of a text that the user let out of quarantine: only secrets and size are looked at."""
_NAMED: Final = 3
"""Findings that an explanation names; the others are counted."""


class Guard:
    """Looks at every text before it is written. Has no state: threads may share one."""

    def __init__(self, *, largest: int = LARGEST, agent: str = "") -> None:
        """`agent`: whose memory it guards, where that is not the project's."""
        self._largest, self._agent = largest, agent

    def check(self, text: str | bytes, *, source: str = "") -> Verdict:
        """`source` says where the words come from: "user", "agent", "web:https://…", "tool", "team", …"""
        size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "replace"))
        if size > self._largest:
            return self._too_large(size)
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        if secrets := find_secrets(text):
            return Verdict("refuse", tuple(secrets), _about_secrets(secrets))
        if orders := find_instructions(text, source):
            return Verdict("quarantine", tuple(orders), _about_orders(orders, self._agent))
        return PASSED

    def _too_large(self, size: int) -> Verdict:
        found = Found("size", "too large", "the whole text", f"{size:,} bytes of {self._largest:,}")
        return Verdict(
            "refuse",
            (found,),
            f"refused: it has {size:,} bytes and a memory may have {self._largest:,}; "
            "split it, or save where it is kept instead",
        )


def _about_secrets(found: Sequence[Found]) -> str:
    first = found[0]
    more = f", and {len(found) - 1} more like it" if len(found) > 1 else ""
    return (
        f"refused: {first.where} looks like {_article(first.what)}{more}; "
        "save where it is kept instead of the secret itself"
    )


def _about_orders(found: Sequence[Found], agent: str) -> str:
    signs = list(dict.fromkeys(f"{one.where} {one.what}" for one in found))
    more = f", and {len(signs) - _NAMED} more" if len(signs) > _NAMED else ""
    return (
        f"quarantined: {'; '.join(signs[:_NAMED])}{more}. Nothing was saved; if it is meant, "
        f"the user can release it with '{quarantine_command(agent=agent)}'"
    )


def _article(what: str) -> str:
    if what.startswith("credentials"):
        return what
    an = what[:1].lower() in "aeio" or what.startswith(("SSH", "npm"))
    return f"{'an' if an else 'a'} {what}"
