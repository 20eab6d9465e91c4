"""The notes stand in for the older part of the conversation when the window is full: no model is asked.

Which messages stay word for word when the notes stand in for those before them. The message that
stands for the older part: the notes, what the user said, where the rest is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from sevenfold.errors import StorageFailure
from sevenfold.events import Emit, Notice, Progress
from sevenfold.layers.l3_session_memory.notes import Limits, Notebook
from sevenfold.layers.settings import NotesSettings
from sevenfold.layers.shared.boundary import (
    COMPACTIONS,
    SPOKEN,
    Boundary,
    Record,
    allowed,
    applied,
    around,
    asked_within,
    collected,
    fixed_tokens,
    last_boundary,
    last_typed,
    may_begin,
    padded,
    thinking_loop,
    tokens_of,
)
from sevenfold.layers.shared.facts import (
    LEAST,
    Facts,
    clipped,
    enclosed,
    level,
    numbered,
    quotes,
    room_of,
    unquoting,
    where_it_is,
)
from sevenfold.layers.shared.fidelity import kept
from sevenfold.layers.shared.restore import RESTORED, Agreement, Back, Cut, NotAgreed, Standing
from sevenfold.messages import Message, user
from sevenfold.protocols import Capabilities, Fit, Handback
from sevenfold.request import Request
from sevenfold.tokens import TEXT_RATE, Pressure, Size, byte_length, scaled
from sevenfold.transcript import Mark, Placed, Replace, View


class Keep(msgspec.Struct, frozen=True):
    """How much is to stay: tokens as they are padded, and messages with words in them."""

    tokens: int
    messages: int
    most: int


def cut_at(view: View, anchor: int, keep: Keep) -> int | None:
    """Where the tail begins; None when nothing could go.

    All that follows the anchor stays, and at least the newest round. Before it, messages stay until
    there are enough of them, as long as they are not too many and none of them was there before the
    last compaction.
    """
    loop, last = thinking_loop(view), min(anchor + 1, len(view) - 1)
    cuts = [at for at in range(last, 0, -1) if may_begin(view, at, loop)]
    if not cuts:
        return None
    floor = after_boundary(view)
    chosen = cuts[0]  # a cut that splits nothing, whatever it has to keep for that
    for at, size, messages in _growing(view, cuts):
        if at != chosen and (size > keep.most or at < floor):
            break
        chosen = at
        if size >= keep.tokens and messages >= keep.messages:
            break
    return chosen


def _growing(view: View, cuts: list[int]) -> Iterator[tuple[int, int, int]]:
    """Each cut with the padded tokens and the messages with words behind it."""
    size, messages, end = Size(), 0, len(view)
    for at in cuts:
        for n in range(at, end):
            size += view[n].size
            messages += bool(view[n].message.text.strip())
        end = at
        yield at, padded(view, size), messages


def after_boundary(view: View) -> int:
    """Where the messages begin that no compaction has touched."""
    boundary = last_boundary(view)
    if boundary is None:
        return 0
    if (kept := view.where(boundary.kept_from)) is not None:
        return kept
    at = next((n for n, placed in enumerate(view) if placed.id > boundary.last), len(view))
    while at < len(view) and view[at].by not in SPOKEN:
        at += 1
    return at


TAG: Final = "session-notes"
SHORT: Final = 40
"""Characters: what is shorter stands in any text by chance."""
CONTEXTS: Final = 0.25
"""The share of the room for quotes that goes to what the program told the model."""
_AROUND: Final = 70
"""Bytes around what was cut."""

_WHAT: Final = (
    "This conversation was longer than what can be shown at once. Its older part is not shown any more. In "
    "its place stand the notes that were taken while it went on; what comes after them is shown word for "
    "word. The notes are a record, not a request: go on with the work, and do not answer them."
)
_NOTES: Final = "## Notes on this session"
_SAID: Final = (
    "## What the user said, word for word, as far as it is not in the notes; oldest first"
)
_TOLD: Final = "## What the program said about where this takes place"


class Quoted(msgspec.Struct, frozen=True):
    """A text for the view, and the facts it was made of."""

    text: str
    facts: Facts

    @property
    def mark(self) -> Mark:
        return Record(self.facts).mark(user(self.text))


def quoted(notes: str, gone: Facts, path: Path | None, room: int, *, asking: bool) -> Quoted:
    """The message. `room`: tokens for what is quoted. `asking`: what the user said last is what is being
    worked on, and stands nowhere else.
    """
    said = numbered(gone.said)
    told_there = " ".join(notes.split())
    missing = [(n, text) for n, text in said if not _in(text, told_there)]
    if asking and said and missing[-1:] != said[-1:]:
        missing.append(said[-1])
    byte = int(room / TEXT_RATE)
    lines = [_WHAT, where_it_is(path), "", _NOTES, "", unquoting(notes.strip())]
    if told := _fitted([unquoting(text) for text in gone.contexts], int(byte * CONTEXTS)):
        lines += ["", _TOLD, *told]
    if words := quotes(missing, byte - room_of(told), last_whole=asking):
        lines += ["", _SAID, *words]
    return Quoted(enclosed(TAG, lines), replace(gone, account=notes))


def _in(said: str, notes: str) -> bool:
    """Whether it is in the notes, which stand on one line."""
    flat = " ".join(said.split())
    return not flat or (len(flat) >= SHORT and flat in notes)


def _fitted(texts: Sequence[str], room: int) -> list[str]:
    most = level([byte_length(text) for text in texts], room - _AROUND * len(texts))
    return (
        [clipped(text, most) for text in texts] if most >= LEAST or room_of(texts) <= room else []
    )


# --- what is replaced -----------------------------------------------------------------------------------


def gone_with(removed: Sequence[Placed], marks: Mapping[str, Any], *, started: bool) -> Facts:
    """What was said in these messages, and in those that stand for earlier ones.

    Without `started`, what hooks said before the first reply is left to whoever restores it.
    """
    first = next(
        (at for at, p in enumerate(removed) if p.message.role == "assistant"), len(removed)
    )
    start = {placed.id for placed in removed[:first] if placed.by == "hooks" and not started}

    def quoted(placed: Placed) -> bool:
        """What others put beside the conversation is theirs to put there again."""
        return placed.by in SPOKEN | COMPACTIONS and placed.id not in start

    return collected(removed, marks, quoted)


BY: Final = "PayOut"
Restore: TypeAlias = Callable[[View, int, int], Sequence[Message]]
"""Given the view before, where the kept messages begin and tokens of room: what is shown again."""


class Declined(Exception):
    """The notes cannot stand in; the message says why."""


class Draft(msgspec.Struct, frozen=True):
    """A pay-out that could be."""

    edits: tuple[Replace, ...]
    quoted: Quoted
    cut: int
    after: View
    tokens: int


class PayOut:
    """A `fit` layer, before the summary: hands back the notes and the newest messages, or declines."""

    label: ClassVar[str] = BY

    def __init__(
        self,
        notebook: Notebook,
        emit: Emit,
        expect: Callable[[str], object],
        where: Callable[[], Path | None],
        able: Callable[[], Capabilities],
        settings: NotesSettings | None = None,
        restore: Restore | None = None,
        agreement: Agreement | None = None,
        standing: Standing | None = None,
    ) -> None:
        """`agreement`: the user's hooks, which are asked before and told afterwards.

        `standing`: what comes back in any case, before what `restore` gives.
        """
        self._standing = standing
        self._hooks = agreement or Agreement(emit)
        self._book, self._emit, self._expect = notebook, emit, expect
        self._where, self._able, self._restore = where, able, restore
        self._set = settings or NotesSettings()

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Handback]:
        if pressure.refused or pressure.tokens <= pressure.thresholds.auto_compact:
            return ()
        began, settings = perf_counter(), self._set
        await self._book.settled(settings.wait_seconds, settings.stale_seconds)
        try:
            draft = self._draft(request, pressure)
            await self._agreed(request.view)
        except (Declined, StorageFailure) as why:
            self._emit(Progress(BY, f"the notes cannot stand in: {why}", done=True))
            return ()
        restored, tokens = self._restored(request, pressure, draft)
        score = kept(request.view, draft.after, restored)
        boundary = Boundary(
            by="notes",
            trigger="auto",
            tokens_before=pressure.tokens,
            tokens_after=tokens,
            last=draft.edits[-1].last,
            kept_from=request.view[draft.cut].id,
            fidelity=score,
        )
        if said := await self._hooks.told(boundary, draft.quoted.text):
            restored = *restored, *said
            tokens = self._tokens(request, pressure, draft, restored)
            boundary = replace(boundary, tokens_after=tokens)
        self._expect("the older part of the conversation was replaced by the notes on it")
        self._emit(
            Notice(
                "the window was full: the older part of the conversation is now the notes taken on it, "
                f"{pressure.tokens:,} tokens before and about {tokens:,} after; {score:.0%} of what "
                "mattered in it can still be found there, and the transcript has all of it"
            )
        )
        self._emit(boundary.event(perf_counter() - began))
        return draft.quoted.mark, *draft.edits, boundary.mark, *restored

    async def _agreed(self, view: View) -> None:
        """`Declined` when a hook refuses, or wants what only a model can do."""
        try:
            instructions = await self._hooks.ask(view)
        except NotAgreed as why:
            raise Declined(f"a hook refused: {why}") from why
        if instructions:
            raise Declined("a hook gave instructions, and only a summary can follow them")

    def _draft(self, request: Request, pressure: Pressure) -> Draft:
        """The edit, and what the view would be like; `Declined` when it would not do."""
        view, window = request.view, pressure.window
        notes = self._notes(view, window)
        anchor = self._book.anchor(view)
        if anchor is None:
            raise Declined("the last message they cover is not in view")
        cut = cut_at(view, anchor, self._keep(window))
        if cut is None:
            raise Declined("there is nothing that could leave the view without tearing something")
        last = last_typed(view)
        apart = last if last is not None and last < cut else None
        asking = apart is None and asked_within(view, cut)
        room = int(scaled(self._set.user_words, window))
        removed = [view[at] for at in range(cut) if at != apart]
        gone = gone_with(removed, view.marks, started=self._restore is None)
        text = quoted(notes, gone, self._where(), room, asking=asking)
        edits = around(view, 0, cut, apart, user(text.text))
        after = applied(view, edits, BY)
        if not allowed(view, after, self._able()):
            raise Declined("the model still needs thinking that is bound to what stands before it")
        tokens = tokens_of(replace(request, view=after), pressure)
        left = tokens + self._back(request, pressure, cut)
        if left >= pressure.tokens:
            raise Declined("the conversation would not get smaller")
        if left > pressure.thresholds.auto_compact:
            raise Declined(f"about {left:,} tokens would be left, which is still too much")
        return Draft(edits, text, cut, after, tokens)

    def _back(self, request: Request, pressure: Pressure, cut: int) -> int:
        """Tokens of what leaves the view and has to come back."""
        room = pressure.thresholds.auto_compact - fixed_tokens(request, pressure.tokens)
        stands = self._standing.stands if self._standing else None
        return Back(request.view, stands, room).between(0, cut)

    def _notes(self, view: View, window: int) -> str:
        book = self._book
        notes = book.read(expected=book.covered(view) is not None)
        if notes is None:
            raise Declined("there are none")
        if book.form.empty(notes):
            raise Declined("nothing is in them yet")
        limits = Limits.of(self._set.section_tokens, self._set.total_tokens, window)
        cut = book.form.cut_to(notes, limits, f"; all of it is in {book.path}")
        return book.form.shown(cut)

    def _keep(self, window: int) -> Keep:
        tokens, most = (
            int(scaled(constant, window))
            for constant in (self._set.keep_tokens, self._set.keep_at_most)
        )
        return Keep(tokens, self._set.keep_messages, most)

    def _restored(
        self, request: Request, pressure: Pressure, draft: Draft
    ) -> tuple[Sequence[Message], int]:
        """What is shown again, and the tokens there are then; of what need not be, nothing too much."""
        limit, cut = pressure.thresholds.auto_compact, draft.cut
        first: Sequence[Message] = ()
        if self._standing is not None:
            here = Cut(request.view, range(cut), pressure.window)
            first = self._standing.again(here, max(0, limit - draft.tokens))
        spent = self._tokens(request, pressure, draft, first)
        if self._restore is None:
            return first, spent
        more = self._restore(request.view, cut, max(0, int((limit - spent) * RESTORED)))
        tokens = self._tokens(request, pressure, draft, (*first, *more))
        return ((*first, *more), tokens) if tokens <= limit else (first, spent)

    def _tokens(
        self, request: Request, pressure: Pressure, draft: Draft, more: Sequence[Message]
    ) -> int:
        view = applied(draft.after, more, BY)
        return tokens_of(replace(request, view=view), pressure)


_check: type[Fit] = PayOut
