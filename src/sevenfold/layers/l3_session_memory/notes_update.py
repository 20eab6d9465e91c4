"""Keeps the notes on a session: a fork edits them now and then, as the conversation grows.

It costs one small reply on a cached prefix, off the user's path. Its only tool is Edit, on a copy of the
file; an update that fails or breaks the form leaves the notes, and how far they go, as they were.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import ClassVar, Final

import anyio

from sevenfold.cache.prefix import cut_to_cached
from sevenfold.core.errors import SevenfoldError
from sevenfold.core.events import Failed, Progress, Repaired
from sevenfold.core.messages import Json, ToolResult, ToolUse, strip_half_characters, user, write_directive
from sevenfold.core.protocols import BackgroundStep, ToolFailed, Tools
from sevenfold.core.request import Frame, Request, find_open_uses
from sevenfold.core.tokens import MessageSize, estimate_tokens, scale_constant
from sevenfold.core.transcript import Id, Mark, View
from sevenfold.layers.l3_session_memory.notes import (
    Notebook,
    NotesCoverage,
    NotesFormError,
    NotesLimits,
    normalise_text,
)
from sevenfold.layers.parts import LayerParts
from sevenfold.layers.shared.boundary import BOUNDARY, SPOKEN
from sevenfold.layers.shared.facts import TYPED
from sevenfold.layers.shared.side_work import SideQuestion, make_lean_messages
from sevenfold.tools.file_tools import EDIT_SCHEMA, explain_not_found, find_occurrences, replace_spans
from sevenfold.tools.toolbox import clean_arguments, find_argument_problem

EDIT: Final = "Edit"
_SCHEMA: Final[Json] = EDIT_SCHEMA["input_schema"]
LARGEST: Final = 1 << 20  # Characters to which a copy may grow on the way


class NotesEdits:
    """Applies the calls of a fork to `text`; the file itself is not touched."""

    def __init__(self, path: Path, text: str) -> None:
        self._path, self.text = path, text
        self.made = self.failed = self.denied = 0

    def safe(self, use: ToolUse) -> bool:
        return False  # one after the other, in the order asked

    async def call(self, use: ToolUse) -> ToolResult:
        if why := self._not_allowed(use):
            self.denied += 1
            return ToolResult(use.id, f"not allowed here: {why}", is_error=True)
        try:
            self.text = self._edited(clean_arguments(use.input))
        except ToolFailed as error:
            self.failed += 1
            return ToolResult(use.id, str(error), is_error=True)
        self.made += 1
        return ToolResult(use.id, "Noted.")

    def _not_allowed(self, use: ToolUse) -> str:
        if use.name != EDIT:
            return f"only {EDIT} of {self._path} is, as this is about the notes alone"
        asked = use.input.get("file_path")
        if isinstance(asked, str) and os.path.normpath(asked) != os.path.normpath(self._path):
            return f"{asked} is another file than the notes, {self._path}"
        return ""

    def _edited(self, args: Json) -> str:
        if wrong := find_argument_problem(_SCHEMA, args):
            raise ToolFailed(wrong)
        old, new = (args[name].replace("\r\n", "\n") for name in ("old_string", "new_string"))
        if not old or old == new:
            raise ToolFailed("old_string is empty, or the same as new_string; nothing would change")
        spans = _places(self.text, old)
        if not spans:
            raise ToolFailed(f"the notes do not contain old_string{explain_not_found(self.text, old, new)}")
        if len(spans) > 1 and not args.get("replace_all", False):
            raise ToolFailed(f"old_string occurs {len(spans)} times in the notes; add lines around it")
        if len(self.text) + len(spans) * len(new) > LARGEST:
            raise ToolFailed("the notes would be far too large")
        return replace_spans(self.text, spans, new)


def _places(text: str, old: str) -> list[tuple[int, int]]:
    if "\r" in text:  # else all lines end alike, and a plain search is enough
        return find_occurrences(text, old)
    spans, at = list[tuple[int, int]](), text.find(old)
    while at >= 0:
        spans.append((at, at + len(old)))
        at = text.find(old, at + len(old))
    return spans


def has_edit_tool(frame: Frame) -> bool:
    """True if the conversation offers Edit as we know it; its list of tools cannot be changed."""
    for tool in frame.tools:
        if tool.get("name") == EDIT and isinstance(schema := tool.get("input_schema"), dict):
            fields = schema.get("properties")
            return not isinstance(fields, dict) or set(_SCHEMA["required"]) <= set(fields)
    return False


_check_edits: type[Tools] = NotesEdits


BY: Final = "NotesKeeping"
KIND: Final = "notes"
FAILURES: Final = 3  # So many in a row, and nothing is tried until the next compaction or resume
ASKED, ANSWER = 900, 800  # Tokens of the instruction without the notes, and of an update, about
FAR_TOO_LARGE: Final = 2  # Notes may be over their limit for a while; by so many times they may not
_OPENED_BY: Final = SPOKEN - {*TYPED, "model", "tools", "turn"}
"""Authors of what a session opens with: it stands in every request, like the system prompt."""


def can_take_notes(parts: LayerParts, model: str) -> bool:
    """True where tokens are free. Where they cost money the user has to ask, and a pay-out be possible."""
    return parts.prices.is_free(model) or (parts.settings.notes.priced and parts.switches.payout)


def count_conversation_tokens(view: View) -> int:
    """Tokens behind the fixed prefix: without system, tools, and what the session opens with."""
    at, opening = 0, MessageSize()
    while at < len(view) and view[at].by in _OPENED_BY:
        opening += view[at].size
        at += 1
    return view.calibration.tokens(view.size - opening)


def find_last_answered(view: View) -> Id:
    """The last message, or the one before a reply whose calls are open: a caller may rest just then."""
    at = len(view) - 1
    if find_open_uses(view):
        while at >= 0 and view[at].message.role == "assistant":
            at -= 1
    return view[at].id if at >= 0 else -1


class _BadNotesUpdate(Exception):
    """An update was not good enough; the message says why."""


class NotesUpdater:
    """The `replied` moment: brings the notes up to date when enough has happened."""

    label: ClassVar[str] = BY

    def __init__(self, parts: LayerParts, notebook: Notebook) -> None:
        self._parts, self._book, self._side = parts, notebook, parts.get_side_work()
        self._set, self._emit = parts.settings.notes, parts.emit
        self._low: int | None = None  # The smallest the conversation has been since the last update
        self._seen: Id | None = None
        self._calls = 0
        self._failures, self._refused_for = 0, ""
        self._boundary: object = None
        self._generation = 0

    async def __call__(self, request: Request) -> Sequence[Mark]:
        if request.source != "main" or not len(request.view):
            return ()
        whole, request = request, cut_to_cached(request)
        tokens = count_conversation_tokens(request.view)
        self._look_at_what_is_new(request.view, tokens)  # always, or growth is counted from the wrong place
        if self._book.busy or not can_take_notes(self._parts, request.frame.model):
            return ()
        if not self._due(request.view, tokens):
            return ()
        if self._measure_room(request) < scale_constant(ANSWER, self._parts.window):
            return ()
        before = self._low, self._calls
        self._low, self._calls = tokens, 0
        self._failures += 1  # until it has worked: whatever breaks, it does not go on for ever
        with self._book.updating():
            try:
                marks = await self._updated(whole, request, tokens)
            except anyio.get_cancelled_exc_class():  # the user is waiting for the model, or it is the end
                (self._low, self._calls), self._failures = before, self._failures - 1
                raise
            except (_BadNotesUpdate, SevenfoldError) as why:
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
        if self._failures >= FAILURES:
            return False
        window = self._parts.window
        if self._low is None:  # nothing was noted yet
            return tokens >= scale_constant(self._set.first_at, window)
        if tokens - self._low < scale_constant(self._set.grown_by, window):
            return False
        return self._calls >= self._set.tool_calls or not _calling(view)

    def _look_at_what_is_new(self, view: View, tokens: int) -> None:
        """Cost grows with what came since the last look."""
        covered = self._book.covered(view)
        if (boundary := view.marks.get(BOUNDARY)) is not self._boundary:
            self._boundary, self._failures = boundary, 0
        if self._seen is None and covered:  # resumed
            self._seen, self._low = covered.last, covered.tokens
        if self._low is not None:
            self._low = min(self._low, tokens)  # what a compaction takes away is not growth undone
        self._calls += sum(len(placed.message.tool_uses) for placed in view.since(self._seen))
        self._seen = view[-1].id

    # --- what -------------------------------------------------------------------------------------------

    async def _updated(self, whole: Request, cached: Request, tokens: int) -> tuple[Mark, ...]:
        """One update. A lean request needs no cached prefix, so it covers the `whole` view."""
        book, generation = self._book, self._generation
        self._emit(Progress(BY, "bringing the notes on this session up to date"))
        had = book.covered(cached.view)
        before = book.read(expected=had is not None)
        notes = before if before is not None else book.form.template
        limits = self.limits
        side = self._side.choose(cached, self._question(whole.view, had, notes))
        view = whole.view if side.by_small else cached.view
        edits = has_edit_tool(side.request.frame)
        tools = NotesEdits(book.path, notes)
        asked = book.wording.asking(notes, book.path, limits, edits=edits, last=self._refused_for)
        directive = user(write_directive(KIND, f"n-{view[-1].id}", asked))
        most = 2 * limits.total if side.by_small else min(2 * limits.total, self._measure_room(cached))
        said = await side(directive, tools=tools, max_tokens=most)
        after = tools.text if edits else book.wording.told(notes, said.reply.message.text)
        after = strip_half_characters(normalise_text(after)).strip("\n") + "\n"
        if generation != self._generation:
            raise _BadNotesUpdate("the conversation went back meanwhile")
        self._check(notes, after, limits, tools)
        covered = NotesCoverage(tokens, estimate_tokens(after), view[-1].id, find_last_answered(view))
        book.write(after, before, covered)
        if left := tools.failed + tools.denied:
            self._emit(Repaired(BY, f"{left} of the calls could not be carried out"))
        more = f", {tools.failed} did not fit" if tools.failed else ""
        how = f"{tools.made} edits{more}" if edits else "in words"
        told = f"the notes on this session are up to date ({how}; about {covered.size:,} tokens)"
        self._emit(Progress(BY, told, done=True))
        return covered.mark, *book.title(after, view)

    def _question(self, view: View, had: NotesCoverage | None, notes: str) -> SideQuestion:
        new = make_lean_messages(view.since(had.last if had else None), view)
        asked = ASKED + estimate_tokens(notes)
        return SideQuestion(KIND, new, tools=(EDIT,), asked=asked, output=ANSWER)

    def _measure_room(self, request: Request) -> int:
        """The tokens that a fork of this request may answer with."""
        return self._parts.window - request.tokens - ASKED - self.limits.total

    @property
    def limits(self) -> NotesLimits:
        return NotesLimits.of(self._set.section_tokens, self._set.total_tokens, self._parts.window)

    def _check(self, before: str, after: str, limits: NotesLimits, tools: NotesEdits) -> None:
        if after.strip() == before.strip():
            tried = tools.failed + tools.denied
            raise _BadNotesUpdate(
                f"none of its {tried} calls could be carried out" if tried else "it changed nothing"
            )
        if "\0" in after:
            raise _BadNotesUpdate("it put bytes into the notes that are not text")
        try:
            self._book.form.bodies(after)
        except NotesFormError as why:
            raise _BadNotesUpdate(str(why)) from why
        most = max(
            FAR_TOO_LARGE * limits.total + estimate_tokens(self._book.form.template),
            estimate_tokens(before),
        )
        if (size := estimate_tokens(after)) > most:
            raise _BadNotesUpdate(
                f"the notes would hold {size:,} tokens, and {limits.total:,} is the limit"
            )

    def _failed(self, why: str) -> None:
        self._refused_for = why
        stopped = "; not tried again before the next compaction" if self._failures >= FAILURES else ""
        self._emit(Failed(BY, f"the notes were left as they were: {why}{stopped}"))


def _calling(view: View) -> bool:
    """True if the last thing the model did was to call tools."""
    replies = (placed.message for placed in reversed(view) if placed.message.role == "assistant")
    return any(reply.tool_uses for reply in islice(replies, 1))


_check: type[BackgroundStep] = NotesUpdater
