"""What a sentence is to be remembered as: the kinds of things that are worth keeping."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

import msgspec

from sevenfold.memory.topic import Type

Kind: TypeAlias = Literal[
    "remember", "feedback", "correction", "confirmation", "pointer", "deadline", "decision",
    "preference", "habit", "role", "constraint", "state", "detail", "plan", "event", "fact",
]  # fmt: skip
TYPE_OF: Final[dict[Kind, Type]] = {
    "remember": "project",
    "feedback": "feedback",
    "correction": "feedback",
    "confirmation": "feedback",
    "pointer": "reference",
    "deadline": "project",
    "decision": "project",
    "preference": "user",
    "habit": "user",
    "role": "user",
    "constraint": "user",
    "state": "user",
    "detail": "project",
    "plan": "project",
    "event": "project",
    "fact": "project",
}


class Cue(msgspec.Struct, frozen=True):
    """The words by which a kind is known."""

    kind: Kind
    pattern: re.Pattern[str]
    unless: re.Pattern[str] | None = None
    alone: bool = False
    """Only where nobody works on files: there, `let's use a list` is about the task."""


class Learned(msgspec.Struct, frozen=True):
    """One thing to remember."""

    kind: Kind
    type: Type
    text: str
    """What is remembered, as a statement that anyone can read."""
    quote: str
    """The words it rests on, as they were typed."""
    day: str
    """On which it was said; empty when the conversation does not tell."""
    number: int
    """Of the message."""
    why: str = ""
    forgets: bool = False
    """Whether this is to be forgotten instead."""
