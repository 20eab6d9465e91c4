"""What the guard says about a text: what was found, where, and what is to become of it.

None of these values ever holds the text itself: a secret must not travel on in a message that warns of
it, and an order to the agent must not reach the agent in the explanation of why it was held back.
"""

from __future__ import annotations

import shlex
from typing import Final, Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["secret", "instruction", "size"]
Action: TypeAlias = Literal["pass", "refuse", "quarantine"]


class Found(msgspec.Struct, frozen=True):
    """One thing that should not be in a memory."""

    kind: Kind
    what: str
    """In words: "GitHub token", "tells the agent to drop its instructions"."""
    where: str
    """"line 3"."""
    why: str
    """What gave it away; of a secret at most the first four characters, and those only where every
    token of that kind begins with them."""


class Verdict(msgspec.Struct, frozen=True):
    """What is to become of a text, and why, in a sentence or two."""

    action: Action
    findings: tuple[Found, ...] = ()
    explanation: str = ""

    @property
    def passed(self) -> bool:
        return self.action == "pass"


PASSED: Final = Verdict("pass")


def quarantine_command(what: str = "", agent: str = "") -> str:
    """How the user gets at what is held back from the project's memory, or from that of an agent."""
    whose = f"--agent {shlex.quote(agent)}" if agent else ""
    return " ".join(filter(None, ("sevenfold memory quarantine", what, whose)))


def line(text: str, position: int) -> str:
    """Where a position is, as people count."""
    return f"line {text.count(chr(10), 0, position) + 1}"
