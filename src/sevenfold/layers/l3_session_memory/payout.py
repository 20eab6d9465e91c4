"""The notes stand in for the older part of the conversation when the window is full: no model is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from sevenfold.boundary import Boundary, asked_within, last_typed
from sevenfold.cutting import allowed, applied, around, fixed_tokens, tokens_of
from sevenfold.errors import StorageFailure
from sevenfold.events import Emit, Notice, Progress
from sevenfold.fidelity import kept
from sevenfold.layers.agreement import Agreement, NotAgreed
from sevenfold.layers.l3_session_memory.notebook import Notebook
from sevenfold.layers.l3_session_memory.notes import Limits
from sevenfold.layers.l3_session_memory.quoting import Quoted, gone_with, quoted
from sevenfold.layers.l3_session_memory.settings import NotesSettings
from sevenfold.layers.l3_session_memory.tail import Keep, cut_at
from sevenfold.layers.standing import RESTORED, Back, Standing
from sevenfold.messages import Message, user
from sevenfold.protocols import Capabilities, Fit, Handback
from sevenfold.request import Request
from sevenfold.restore import Cut
from sevenfold.tokens import Pressure, scaled
from sevenfold.transcript import Replace, View

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
