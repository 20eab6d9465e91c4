"""The words of ended sessions that wait for an extraction, and how many of them one run takes up.

`storage/waiting_notes.py` says which sessions those are. Several short ones go into one request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, reduce
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.core.messages import Message, make_context_message, user
from sevenfold.core.tokens import estimate_tokens
from sevenfold.core.transcript import Entry, Id, PlacedMessage, Reply, View
from sevenfold.layers.l5_durable_memory.provenance import SourceMessages, find_replaced_user_words, is_typed
from sevenfold.layers.l5_durable_memory.recall import extract_typed_text
from sevenfold.layers.shared.side_work import make_lean_messages
from sevenfold.memory.guard.user_words import NOTHING_SAID, SpokenWords
from sevenfold.memory.guard.wall import WriteSources

MOST_TEXTS: Final = 20  # Texts of the user in one run: what it saves of them has to fit into its replies
_ANOTHER: Final = "Another conversation with the same person begins here."


class EarlierWords(msgspec.Struct, frozen=True):
    """Words of an ended session that wait, as many as are looked at in one run."""

    session: str
    view: View
    entries: Sequence[Entry]
    replaced: tuple[tuple[Id, Message], ...]  # Words for which a summary stands in the view
    placed: tuple[PlacedMessage, ...]
    last: Id  # The last entry that counts as looked at after the run
    all: bool = True  # True: nothing of the session waits after it
    since: Id = -1  # The last entry that was looked at before

    @property
    def texts(self) -> list[str]:
        """The texts that the user typed."""
        typed = [one.message for one in self.placed if is_typed(one)]
        return [extract_typed_text(message) for message in [m for _, m in self.replaced] + typed]

    @property
    def requests(self) -> int:
        """The replies among them."""
        return sum(isinstance(entry.what, Reply) for entry in self.entries)

    @property
    def messages(self) -> tuple[Message, ...]:
        """What a request of its own shows of them."""
        times = {entry.id: entry.at for entry in self.entries}
        words = (user(extract_typed_text(message)) for _, message in self.replaced)
        return (*words, *make_lean_messages(self.placed, self.view, times))

    @property
    def tokens(self) -> int:
        return sum(estimate_tokens(message.text) for message in self.messages)


def find_earlier_words(
    session: str,
    view: View,
    entries: Sequence[Entry],
    last: Id,
    wrote_memory: Callable[[PlacedMessage, View], bool],
    covers: Callable[[Id], bool],
) -> EarlierWords:
    """The words after this entry that are covered, without turns in which the agent saved something."""
    place = view.where(last)
    since = 0 if place is None else place + 1
    kept: list[PlacedMessage] = []
    for turn in _split_turns([view[at] for at in range(since, len(view)) if covers(view[at].id)]):
        if not any(wrote_memory(one, view) for one in turn):
            kept += turn
    end = view[-1].id if len(view) else -1
    gone = tuple(one for one in find_replaced_user_words(entries, view, last) if covers(one[0]))
    return EarlierWords(session, view, tuple(entries), gone, tuple(kept), end, since=last)


def _split_turns(placed: Sequence[PlacedMessage]) -> Iterator[list[PlacedMessage]]:
    turn: list[PlacedMessage] = []
    for one in placed:
        if turn and is_typed(one):
            yield turn
            turn = []
        turn.append(one)
    if turn:
        yield turn


def split_batches(words: Sequence[EarlierWords], room: int) -> Iterator[list[EarlierWords]]:
    """As many words for each run as there is room for, in tokens; a session too long is split."""
    batch, used, texts = list[EarlierWords](), 0, 0
    for part in (part for one in words for part in _split_words(one, room)):
        size, count = part.tokens, len(part.texts)
        if batch and (used + size > room or texts + count > MOST_TEXTS):
            yield batch
            batch, used, texts = [], 0, 0
        batch.append(part)
        used, texts = used + size, texts + count
    if batch:
        yield batch


def _split_words(one: EarlierWords, room: int) -> list[EarlierWords]:
    """The words turn by turn where there is no room for all of them."""
    if one.tokens <= room and len(one.texts) <= MOST_TEXTS:
        return [one]
    parts: list[EarlierWords] = []
    if one.replaced:
        parts.append(replace(one, placed=(), last=one.replaced[-1][0], all=False))
    turns = _split_turns(one.placed)
    parts += (replace(one, replaced=(), placed=tuple(t), last=t[-1].id, all=False) for t in turns)
    return [*parts[:-1], replace(parts[-1], last=one.last, all=True)]


def join_messages(batch: Sequence[EarlierWords]) -> tuple[Message, ...]:
    """The messages of several sessions, with a line between two of them."""
    found: list[Message] = []
    for one in batch:
        found += [make_context_message(_ANOTHER)] if found else []
        found += one.messages
    return tuple(found)


class EarlierSources(SourceMessages):
    """The messages of several ended sessions, by who is behind them."""

    def __init__(self, batch: Sequence[EarlierWords], now: float) -> None:
        words = {one.session: one for one in batch}
        self._parts = {id: SourceMessages(one.view, one.entries, now) for id, one in words.items()}
        self.said = [replace(said, session=id) for id, part in self._parts.items() for said in part.said]

    @cached_property
    def _write_sources(self) -> WriteSources:
        found = [part.collect() for part in self._parts.values()]
        spoken = reduce(SpokenWords.join_with, (one.spoken for one in found), NOTHING_SAID)
        others = tuple(other for one in found for other in one.others)
        return WriteSources(spoken, others, quoted=True)

    @cached_property
    def _elsewhere(self) -> str:
        return "\n".join(part._elsewhere for part in self._parts.values())

    @cached_property
    def _instructed(self) -> list[set[str]]:
        return [line for part in self._parts.values() for line in part._instructed]
