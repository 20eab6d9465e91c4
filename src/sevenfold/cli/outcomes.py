"""What a command that was typed after a slash comes to, as values; the chat does what they say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

import msgspec

How: TypeAlias = Literal["command", "declined", "interrupted"]


class Said(msgspec.Struct, frozen=True):
    """An answer, and the chat goes on."""

    text: str
    how: How = "command"
    """`declined`: what was asked for did not happen, and why has been said already."""
    draft: str = ""
    """What then stands in the line, to be edited and sent again."""


class Leave(msgspec.Struct, frozen=True):
    """The chat is over."""


class Open(msgspec.Struct, frozen=True):
    """Go on with another session: this one, or a new one."""

    resume: str | None = None


class Doing(msgspec.Struct, frozen=True):
    """It takes a while: show that, and let it be stopped."""

    what: str
    work: Callable[[], Awaitable[Said]]


class Offer(msgspec.Struct, frozen=True):
    """There is a choice, and each is a command of its own. Where nobody can be asked it is only told."""

    text: str
    question: str
    choices: dict[str, str]
    """The line to be run, by what is answered."""


Next: TypeAlias = Said | Leave | Open | Doing | Offer
