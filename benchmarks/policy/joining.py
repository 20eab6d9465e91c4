"""Long sessions made of several recorded ones, for windows larger than any recording had.

None of the recorded sessions ran in a window of a million tokens. So several are put behind each other as
one conversation, without their compactions. What such a session would have cost is simulated: nothing of
it was ever paid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from sevenfold.core.messages import Message
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Entry, Reply
from sevenfold.replay.costs import USUAL, estimate_message

FIXED: Final = 30_000
"""Tokens of system prompt and tools, which no file shows."""
PAUSE: Final = 600.0
"""Seconds between two of the sessions."""
ENOUGH: Final = 600_000
"""Tokens after which a long session ends."""


def joined(sessions: Sequence[Sequence[Entry]]) -> Iterator[list[Entry]]:
    """As many long sessions as these make; what is left over at the end is dropped."""
    long: list[Entry] = []
    tokens, now = 0, 0.0
    for entries in sessions:
        began, then = (entries[0].at if entries else 0.0), now
        for entry in entries:
            said = _said(entry)
            if said is None:
                continue
            tokens += round(estimate_message(said) * USUAL)
            now = then + entry.at - began
            long.append(_placed(entry, len(long), now, first=not _replied(long), tokens=tokens))
        now += PAUSE
        if tokens >= ENOUGH:
            yield long
            long, tokens, now = [], 0, 0.0


def _said(entry: Entry) -> Message | None:
    if isinstance(entry.what, Reply):
        return entry.what.message
    return entry.what if isinstance(entry.what, Message) else None


def _replied(entries: Sequence[Entry]) -> bool:
    return any(isinstance(entry.what, Reply) for entry in entries[:50])


def _placed(entry: Entry, id: int, at: float, *, first: bool, tokens: int) -> Entry:
    """Only the first reply says how much was sent: it shows what stands before the messages."""
    what = entry.what
    if isinstance(what, Reply):
        used = Usage(input=FIXED + tokens) if first else Usage()
        what = replace(what, usage=replace(used, output=what.usage.output))
    return replace(entry, id=id, at=at, what=what)
