"""How many tokens each entry of a recorded session really was, worked out from the usage it recorded.

What a request sent more than the one before is what was added between them. That difference is shared out
over what was added, by the estimate. What stands before the first message and is not in the file (system
prompt, tools, inherited history) is one number, worked out from the first request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from sevenfold.messages import THOUGHTS, Message
from sevenfold.tokens import FRAME, Size, measure
from sevenfold.transcript import Entry, Id, Replace, Reply

LEAST, MOST = 0.4, 4.0
"""A difference that makes a token of more or less than this is something else: a cleared result, a hook."""
USUAL: Final = 1.25
"""Real tokens for an estimated one, where nothing better is known."""
SHRANK: Final = 0.97
"""A request smaller than this part of the one before has lost something."""
LARGEST_FIXED: Final = 45_000
"""No system prompt with its tools was larger in the sessions looked at: more is inherited history."""


@dataclass
class Counted:
    """A rate for each entry: real tokens for one estimated token."""

    unseen: int = 0
    known: int = 0
    """How much of it the first request read from the cache: others had sent it before."""
    resets: dict[Id, int] = field(default_factory=dict)
    """What is unseen from a compaction on: inherited history goes with it."""
    rates: dict[Id, float] = field(default_factory=dict)
    usual: float = USUAL
    shrank: dict[Id, int] = field(default_factory=dict)
    """Replies to which so much less was sent than before: the recording itself had cleared something."""

    def rate(self, id: Id) -> float:
        return self.rates.get(id, self.usual)

    @property
    def inherited(self) -> int:
        """What stood before the first message and was conversation: a session that went on from another."""
        return self.unseen - self.fixed

    @property
    def fixed(self) -> int:
        """System prompt and tools, and no history: what a compaction cannot take away.

        A recorded compaction shows an upper limit. Without one, a session that began with more than any
        system prompt takes is taken to have inherited the rest.
        """
        known = list(self.resets.values()) or [LARGEST_FIXED]
        return min(self.unseen, *known)


def estimated(message: Message) -> int:
    return weigh(measure(message))


def weigh(size: Size) -> int:
    return size.tokens() + size.frames * FRAME


def thinks(message: Message) -> bool:
    return any(isinstance(block, THOUGHTS) for block in message.content)


def without_thinking(message: Message) -> Message:
    if not thinks(message):
        return message
    return Message(message.role, tuple(b for b in message.content if not isinstance(b, THOUGHTS)))


def counted(entries: Sequence[Entry]) -> Counted:
    """Rates from the differences between requests; entries without one get the session's usual rate."""
    known, added, before = Counted(), dict[Id, int](), None
    compacted: Id | None = None
    for entry in entries:
        message = entry.what.message if isinstance(entry.what, Reply) else entry.what
        if isinstance(entry.what, Reply) and (prompt := entry.what.usage.prompt):
            unseen = max(0, prompt - round(sum(added.values()) * USUAL))
            if before is None:
                known.unseen, known.known = unseen, entry.what.usage.cache_read
            elif compacted is not None:
                known.resets[compacted] = unseen
            else:
                _share_out(known, prompt - before, added)
                if prompt < SHRANK * before:
                    known.shrank[entry.id] = before - prompt
            added, before, compacted = {}, prompt, None
        if isinstance(entry.what, Replace):
            compacted = entry.id
            added = {entry.id: sum(estimated(m) for m in entry.what.by)}
        elif isinstance(message, Message):
            added[entry.id] = estimated(message)
    if known.rates:
        known.usual = median(known.rates.values())
    return known


def _share_out(known: Counted, tokens: int, added: dict[Id, int]) -> None:
    whole = sum(added.values())
    if whole and LEAST <= tokens / whole <= MOST:
        known.rates.update(dict.fromkeys(added, tokens / whole))
