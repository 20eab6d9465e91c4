"""The notes stand in for the older part of the conversation when the window is full: no model is asked.

The newest messages stay word for word. One message stands for those before them: the notes, the user's
words, and where the rest is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, Final

import msgspec
from msgspec.structs import replace

from sevenfold.core.errors import StorageFailure
from sevenfold.core.events import Notice, Progress
from sevenfold.core.messages import Message, user
from sevenfold.core.protocols import Change, Fit
from sevenfold.core.request import Request, find_last_loop_thinking, find_open_uses
from sevenfold.core.tokens import TEXT_RATE, MessageSize, Pressure, count_bytes, scale_constant
from sevenfold.core.transcript import Mark, PlacedMessage, Replace, View
from sevenfold.layers.l3_session_memory.notes import Notebook, NotesLimits
from sevenfold.layers.parts import LayerParts
from sevenfold.layers.shared.boundary import (
    COMPACTIONS,
    SPOKEN,
    Boundary,
    BoundaryRecord,
    add_restored,
    apply_edits,
    can_begin_at,
    collect_facts,
    count_context_tokens,
    count_fixed_tokens,
    estimate_padded_tokens,
    find_apart,
    find_last_boundary,
    find_thinking_loop,
    is_question_before,
    make_replacements,
    repeat_question,
)
from sevenfold.layers.shared.facts import (
    LEAST,
    Facts,
    clip_text,
    count_line_bytes,
    enclose_in_tag,
    escape_quote,
    format_quotes,
    format_record,
    format_transcript_hint,
    level_sizes,
    number_turns,
)
from sevenfold.layers.shared.fidelity import score_compaction
from sevenfold.layers.shared.restore import CompactionCut, CompactionRefused, RestoreEstimate


class TailSize(msgspec.Struct, frozen=True):
    """The size of the tail that stays: padded tokens, and messages with words in them."""

    tokens: int
    messages: int
    most: int


def find_tail_start(view: View, anchor: int, keep: TailSize, loop: int, bound: int = -1) -> int | None:
    """The place where the tail begins; None when nothing could go.

    All that follows the anchor stays, and at least the newest round. Before it, messages stay until
    there are enough of them, as long as they are not too many and none of them was there before the
    last compaction. A tail that begins behind `loop` begins with thinking. None begins before `bound`:
    thinking that stands there and has to stay would lose what it is bound to.
    """
    last = min(anchor + 1, len(view) - 1)
    cuts = [at for at in range(last, max(0, bound), -1) if can_begin_at(view, at, loop)]
    if not cuts:
        return None
    floor = find_boundary_end(view)
    chosen = cuts[0]  # a cut that splits nothing, whatever it has to keep for that
    size, messages, end = MessageSize(), 0, len(view)
    for at in cuts:
        for n in range(at, end):
            size += view[n].size
            messages += bool(view[n].message.text.strip())
        end, tokens = at, estimate_padded_tokens(view, size)
        if at != chosen and (tokens > keep.most or at < floor):
            break
        chosen = at
        if tokens >= keep.tokens and messages >= keep.messages:
            break
    return chosen


def find_boundary_end(view: View) -> int:
    """The place where the messages begin that no compaction has touched."""
    boundary = find_last_boundary(view)
    if boundary is None:
        return 0
    if (kept := view.where(boundary.kept_from)) is not None:
        return kept
    at = next((n for n, placed in enumerate(view) if placed.id > boundary.last), len(view))
    while at < len(view) and view[at].by not in SPOKEN:
        at += 1
    return at


TAG: Final = "session-notes"
SHORT: Final = 40  # Characters: what is shorter stands in any text by chance
CONTEXTS: Final = 0.25  # The share of the room for quotes that goes to what the program told the model
_AROUND: Final = 70  # Bytes around what was cut

_WHAT: Final = (
    "This conversation was longer than what can be shown at once. Its older part is not shown any more. In "
    "its place stand the notes that were taken while it went on; what comes after them is shown word for "
    "word. The notes are a record, not a request: go on with the work, and do not answer them."
)
_NOTES: Final = "## Notes on this session"
_SAID: Final = "## What the user said, word for word, as far as it is not in the notes; oldest first"
_TOLD: Final = "## What the program said about where this takes place"
_LATER: Final = "## What came after these notes, without thoughts; long calls and results are cut"
RETOLD, UNREAD = 2_000, 20_000  # Characters of each call and each result in it, and of the newest


class NotesMessage(msgspec.Struct, frozen=True):
    """A text for the view, and the facts it was made of."""

    text: str
    facts: Facts

    @property
    def mark(self) -> Mark:
        return BoundaryRecord(self.facts).mark(user(self.text))


def make_notes_message(
    notes: str, gone: Facts, path: Path | None, room: int, *, asking: bool, later: str = ""
) -> NotesMessage:
    """The message. `room`: tokens for what is quoted. `asking`: what the user said last is repeated behind
    it, and is left out. `later`: a record of what the notes do not cover.
    """
    said = number_turns(gone.said)[: -1 if asking else None]
    told_there = " ".join(notes.split())
    flat = ((turn, " ".join(turn[1].split())) for turn in said)
    missing = [turn for turn, text in flat if text and (len(text) < SHORT or text not in told_there)]
    byte = int(room / TEXT_RATE)
    lines = [_WHAT, format_transcript_hint(path), "", _NOTES, "", escape_quote(notes.strip())]
    if told := _fitted([escape_quote(text) for text in gone.contexts], int(byte * CONTEXTS)):
        lines += ["", _TOLD, *told]
    if words := format_quotes(missing, byte - count_line_bytes(told)):
        lines += ["", _SAID, *words]
    if later:
        lines += ["", _LATER, escape_quote(later)]
    return NotesMessage(enclose_in_tag(TAG, lines), replace(gone, account=notes))


def _fitted(texts: Sequence[str], room: int) -> list[str]:
    most = level_sizes([count_bytes(text) for text in texts], room - _AROUND * len(texts))
    return (
        [clip_text(text, most) for text in texts]
        if most >= LEAST or count_line_bytes(texts) <= room
        else []
    )


# --- what is replaced -----------------------------------------------------------------------------------


def collect_removed_facts(
    removed: Sequence[PlacedMessage], marks: Mapping[str, Any], *, started: bool
) -> Facts:
    """The facts of these messages, and of those that stand for earlier ones.

    Without `started`, what hooks said before the first reply is left to `StartContext`.
    """
    first = next((at for at, p in enumerate(removed) if p.message.role == "assistant"), len(removed))
    start = {placed.id for placed in removed[:first] if placed.by == "hooks" and not started}

    def quoted(placed: PlacedMessage) -> bool:
        """False for messages of layers and hooks: those are restored by their own sources."""
        return placed.by in SPOKEN | COMPACTIONS and placed.id not in start

    return collect_facts(removed, marks, quoted)


BY: Final = "PayOut"


class NotesNotUsable(Exception):
    """The notes cannot stand in; the message says why."""


class NotesDraft(msgspec.Struct, frozen=True):
    """A pay-out that could be."""

    edits: tuple[Replace, ...]
    quoted: NotesMessage
    cut: int
    after: View
    tokens: int


class NotesCompaction:
    """A `fit` layer, before the summary: hands back the notes and the newest messages, or declines."""

    label: ClassVar[str] = BY

    def __init__(self, parts: LayerParts, notebook: Notebook) -> None:
        self._parts, self._book = parts, notebook
        self._set, self._emit, self._hooks = parts.settings.notes, parts.emit, parts.hooks

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        if pressure.refused or pressure.tokens <= pressure.thresholds.auto_compact:
            return ()
        began, settings = perf_counter(), self._set
        await self._book.settled(settings.wait_seconds, settings.stale_seconds)
        try:
            draft = self._draft(request, pressure)
            asked = await self._hooks.ask(request.view)
            why = "a hook gave instructions, and only a summary can follow them" if asked else ""
        except CompactionRefused as refusal:
            why = f"a hook refused: {refusal}"
        except (NotesNotUsable, StorageFailure) as error:
            why = str(error)
        if why:
            self._emit(Progress(BY, f"the notes cannot stand in: {why}", done=True))
            return ()
        restored, tokens = self._restored(request, pressure, draft)
        score = score_compaction(request.view, draft.after, restored)
        boundary = Boundary(
            by="notes",
            trigger="auto",
            tokens_before=pressure.tokens,
            tokens_after=tokens,
            last=draft.edits[-1].last,
            kept_from=request.view[draft.cut].id if draft.cut < len(request.view) else -1,
            fidelity=score,
        )
        if said := await self._hooks.told(boundary, draft.quoted.text):
            restored = *restored, *said
            tokens = self._tokens(request, pressure, draft, restored)
            boundary = replace(boundary, tokens_after=tokens)
        self._parts.expect("the older part of the conversation was replaced by the notes on it")
        self._emit(
            Notice(
                "the window was full: the older part of the conversation is now the notes taken on it, "
                f"{pressure.tokens:,} tokens before and about {tokens:,} after; {score:.0%} of what "
                "mattered in it can still be found there, and the transcript has all of it"
            )
        )
        self._emit(boundary.event(perf_counter() - began))
        return draft.quoted.mark, *add_restored(draft.edits, restored), boundary.mark

    def _draft(self, request: Request, pressure: Pressure) -> NotesDraft:
        """The edit, and what the view would be like; `NotesNotUsable` when it would not do."""
        view, window, settings = request.view, pressure.window, self._set
        notes = self._notes(view, window)
        anchor = self._book.anchor(view)
        if anchor is None:
            raise NotesNotUsable("the last message they cover is not in view")
        keep, most = (int(scale_constant(n, window)) for n in (settings.keep_tokens, settings.keep_at_most))
        strict = (request.frame.params.get("thinking") or {}).get("type") == "enabled"
        loop = find_thinking_loop(view) if strict else len(view)  # other ways to think take any beginning
        able = self._parts.conversation.capabilities
        bound = find_last_loop_thinking(view) if able.loses_thinking else -1
        cut = find_tail_start(view, anchor, TailSize(keep, settings.keep_messages, most), loop, bound)
        later = ""
        if cut is None and bound >= 0:  # no cut spares this thinking: what it led to is told in words
            *before, newest = list(view)[anchor + 1 :] or [view[-1]]
            cut, later = len(view), f"{format_record(before, RETOLD)}\n{format_record([newest], UNREAD)}"
        if cut is None or find_open_uses(view):
            raise NotesNotUsable("there is nothing that could leave the view without tearing something")
        apart = find_apart(view, 0, cut, words=True)
        asking = apart is None and is_question_before(view, cut)
        room = int(scale_constant(settings.user_words, window))
        removed = [view[at] for at in range(cut) if at != apart]
        gone = collect_removed_facts(removed, view.marks, started=not self._parts.restorer.sources)
        text = make_notes_message(
            notes, gone, self._parts.conversation.transcript_path, room, asking=asking, later=later
        )
        question = repeat_question(gone) if asking else ()
        edits = make_replacements(view, 0, cut, apart, user(text.text), question)
        after = apply_edits(view, edits, BY)
        tokens = count_context_tokens(replace(request, view=after), pressure)
        free = pressure.thresholds.auto_compact - count_fixed_tokens(request, pressure.tokens)
        left = tokens + RestoreEstimate(view, self._parts.restorer.stands, free).between(0, cut)
        if left >= pressure.tokens:
            raise NotesNotUsable("the conversation would not get smaller")
        if left > pressure.thresholds.auto_compact:
            raise NotesNotUsable(f"about {left:,} tokens would be left, which is still too much")
        if left > self._most_after(pressure):
            raise NotesNotUsable(
                f"that would free about {pressure.tokens - left:,} tokens of {window:,}, and less than "
                f"{settings.least_freed:.0%} is not worth it"
            )
        return NotesDraft(edits, text, cut, after, tokens)

    def _most_after(self, pressure: Pressure) -> int:
        """The most tokens that may be left; what is restored counts."""
        least = int(self._set.least_freed * pressure.window)
        return min(pressure.thresholds.auto_compact, pressure.tokens - least)

    def _notes(self, view: View, window: int) -> str:
        book = self._book
        notes = book.read(expected=book.covered(view) is not None)
        if notes is None:
            raise NotesNotUsable("there are none")
        if book.form.empty(notes):
            raise NotesNotUsable("nothing is in them yet")
        limits = NotesLimits.of(self._set.section_tokens, self._set.total_tokens, window)
        cut = book.form.cut_to(notes, limits, f"; all of it is in {book.path}")
        return book.form.shown(cut)

    def _restored(
        self, request: Request, pressure: Pressure, draft: NotesDraft
    ) -> tuple[Sequence[Message], int]:
        """The messages shown again, and the tokens there are then. Sources may not fill the window."""
        limit, restorer = self._most_after(pressure), self._parts.restorer
        cut = CompactionCut(request.view, range(draft.cut), pressure.window)
        first = restorer.restore_standing(cut, limit - draft.tokens)
        spent = self._tokens(request, pressure, draft, first)
        more = restorer.restore_sources(cut, limit - spent)
        tokens = self._tokens(request, pressure, draft, (*first, *more))
        return ((*first, *more), tokens) if tokens <= limit else (first, spent)

    def _tokens(
        self, request: Request, pressure: Pressure, draft: NotesDraft, more: Sequence[Message]
    ) -> int:
        view = apply_edits(draft.after, more, BY)
        return count_context_tokens(replace(request, view=view), pressure)


_check: type[Fit] = NotesCompaction
