"""Keeps the notes on a session: a fork edits them now and then, as the conversation grows.

It costs one small reply on a prefix that is in the provider's cache, off the user's path. Nothing is
written that is not of the form, and a failed update leaves the notes, and how far they go, as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from sevenfold.boundary import BOUNDARY
from sevenfold.cache.breakpoints import as_cached
from sevenfold.cache.prices import Prices
from sevenfold.errors import SevenfoldError
from sevenfold.events import Emit, Failed, Progress
from sevenfold.invariants import open_uses
from sevenfold.layers.l3_session_memory.edits import NotesEdits, can_edit
from sevenfold.layers.l3_session_memory.notebook import Covered, Notebook
from sevenfold.layers.l3_session_memory.notes import Limits, Misshapen, normal
from sevenfold.layers.l3_session_memory.settings import NotesSettings
from sevenfold.messages import user, whole_characters
from sevenfold.models.directives import write_directive
from sevenfold.protocols import After, Capabilities, Forker
from sevenfold.request import Request
from sevenfold.tokens import estimate, scaled
from sevenfold.transcript import Id, Mark, View

BY: Final = "NotesKeeping"
KIND: Final = "notes"
FAILURES: Final = 3
"""So many in a row, and nothing is tried until the next compaction or resume."""
FAR_TOO_LARGE: Final = 2
"""Notes may be over their limit for a while; by so many times they may not."""


class _NotTaken(Exception):
    """An update was not good enough; the message says why."""


class NotesKeeping:
    """The `replied` moment: brings the notes up to date when enough has happened."""

    def __init__(
        self,
        notebook: Notebook,
        fork: Forker,
        able: Callable[[], Capabilities],
        emit: Emit,
        settings: NotesSettings | None = None,
        prices: Prices | None = None,
    ) -> None:
        self._prices = prices
        self._book, self._fork, self._able, self._emit = notebook, fork, able, emit
        self._set = settings or NotesSettings()
        self._low: int | None = None
        """The smallest the context has been since the last update."""
        self._seen: Id | None = None
        self._calls = 0
        self._failures, self._refused_for = 0, ""
        self._boundary: object = None
        self._generation = 0

    async def __call__(self, request: Request) -> Sequence[Mark]:
        if request.source != "main" or not len(request.view) or self._book.busy:
            return ()
        if self._book.covered(request.view) is not None and not self._pays(request):
            return ()
        request = replace(request, view=as_cached(request.view))
        tokens = _tokens(request)
        if not self._due(request.view, tokens):
            return ()
        self._low, self._calls = tokens, 0
        self._failures += 1  # until it has worked: whatever breaks, it does not go on for ever
        with self._book.updating():
            try:
                marks = await self._updated(request, tokens)
            except (_NotTaken, SevenfoldError) as why:
                self._failed(str(why))
                return ()
        self._failures, self._refused_for = 0, ""
        return marks

    def undo_from(self, first: Id, view: View) -> None:
        """The conversation goes back to before this entry: notes that go further are begun anew."""
        covered = self._book.covered(view)
        if not self._book.busy and (covered is None or covered.last < first):
            return
        self._generation += 1  # an update on its way is not taken
        self._low = self._seen = None
        self._calls = 0
        self._book.begin_anew()

    # --- when -------------------------------------------------------------------------------------------

    def _due(self, view: View, tokens: int) -> bool:
        covered = self._book.covered(view)
        self._look_at_what_is_new(view, covered, tokens)
        if self._failures >= FAILURES:
            return False
        window = self._able().window
        if self._low is None:  # nothing was noted yet
            return tokens >= scaled(self._set.first_at, window)
        step = max(scaled(self._set.grown_by, window), self._set.grown_share * self._low)
        if tokens - self._low < step:
            return False
        return self._calls >= self._set.tool_calls or not _calling(view)

    def _pays(self, request: Request) -> bool:
        """Every update reads the context once: where that costs, more than the first has to be worth it."""
        price = self._prices.of(request.frame.model) if self._prices else None
        if price is None or not price.input:
            return True
        return _tokens(request) >= scaled(self._set.pays_from, self._able().window)

    def _look_at_what_is_new(self, view: View, covered: Covered | None, tokens: int) -> None:
        """Cost grows with what came since the last look."""
        if (boundary := view.marks.get(BOUNDARY)) is not self._boundary:
            self._boundary, self._failures = boundary, 0
        if self._seen is None and covered:  # resumed
            self._seen, self._low = covered.last, covered.tokens
        if self._low is not None:
            self._low = min(self._low, tokens)  # what a compaction takes away is not growth undone
        self._calls += sum(len(placed.message.tool_uses) for placed in view.since(self._seen))
        self._seen = view[-1].id

    # --- what -------------------------------------------------------------------------------------------

    async def _updated(self, request: Request, tokens: int) -> tuple[Mark, ...]:
        book, view, generation = self._book, request.view, self._generation
        self._emit(Progress(BY, "bringing the notes on this session up to date"))
        had = book.covered(view)
        before = book.read(expected=had is not None)
        notes = before if before is not None else book.form.template
        limits = self.limits
        edits = can_edit(request.frame)
        tools = NotesEdits(book.path, notes)
        asked = book.wording.asking(notes, book.path, limits, edits=edits, last=self._refused_for)
        directive = user(write_directive(KIND, f"n-{view[-1].id}", asked))
        said = await self._fork(
            request, directive, kind=KIND, tools=tools, max_tokens=2 * limits.total
        )
        after = tools.text if edits else book.wording.told(notes, said.reply.message.text)
        after = whole_characters(normal(after)).strip("\n") + "\n"
        if generation != self._generation:
            raise _NotTaken("the conversation went back meanwhile")
        self._check(notes, after, limits, tools)
        anchor = view[-1].id if not open_uses(view) else had.anchor if had else -1
        covered = Covered(tokens, estimate(after), view[-1].id, anchor)
        book.write(after, before, covered)
        more = f", {tools.failed} did not fit" if tools.failed else ""
        how = f"{tools.made} edits{more}" if edits else "in words"
        told = f"the notes on this session are up to date ({how}; about {covered.size:,} tokens)"
        self._emit(Progress(BY, told, done=True))
        return covered.mark, *book.title(after, view)

    @property
    def limits(self) -> Limits:
        return Limits.of(self._set.section_tokens, self._set.total_tokens, self._able().window)

    def _check(self, before: str, after: str, limits: Limits, tools: NotesEdits) -> None:
        if after.strip() == before.strip():
            tried = tools.failed + tools.denied
            raise _NotTaken(
                f"none of its {tried} calls could be carried out" if tried else "it changed nothing"
            )
        if "\0" in after:
            raise _NotTaken("it put bytes into the notes that are not text")
        try:
            self._book.form.bodies(after)
        except Misshapen as why:
            raise _NotTaken(str(why)) from why
        most = max(
            FAR_TOO_LARGE * limits.total + estimate(self._book.form.template), estimate(before)
        )
        if (size := estimate(after)) > most:
            raise _NotTaken(
                f"the notes would hold {size:,} tokens, and {limits.total:,} is the limit"
            )

    def _failed(self, why: str) -> None:
        self._refused_for = why
        stopped = (
            "; not tried again before the next compaction" if self._failures >= FAILURES else ""
        )
        self._emit(Failed(BY, f"the notes were left as they were: {why}{stopped}"))


def _tokens(request: Request) -> int:
    """How full the context is."""
    view = request.view
    return view.tokens + (request.frame.tokens if view.reported is None else 0)


def _calling(view: View) -> bool:
    """Whether the last thing the model did was to call tools."""
    for at in range(len(view) - 1, -1, -1):
        if view[at].message.role == "assistant":
            return bool(view[at].message.tool_uses)
    return False


_check: type[After] = NotesKeeping
