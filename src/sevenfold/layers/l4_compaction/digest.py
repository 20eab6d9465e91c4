"""The last rung of the ladder: a digest of the older part, made by rule, which always can be made.

It needs no model, no network and no luck, so that "cannot compact, too long" is never the end. Nothing
leaves the view before a replacement exists that is valid and smaller. What the user said last stays a
message of its own, the newest rounds stay word for word where they fit, and everything else that the
user said stands in the digest word for word before anything else does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.boundary import Boundary, Record, asked_within, collected, last_typed
from sevenfold.cutting import (
    aim,
    allowed,
    applied,
    around,
    fixed_tokens,
    may_begin,
    padded,
    thinking_loop,
    tokens_of,
)
from sevenfold.events import Emit, Notice
from sevenfold.facts import Facts
from sevenfold.fidelity import kept
from sevenfold.layers.l4_compaction.stretch import unread
from sevenfold.layers.l4_compaction.wording import Form, digest_text
from sevenfold.layers.standing import Back, Stands
from sevenfold.messages import Message, user
from sevenfold.protocols import Capabilities, Fit, Handback
from sevenfold.quotes import Cutting
from sevenfold.request import Request
from sevenfold.tokens import TEXT_RATE, Pressure, Size, scaled
from sevenfold.transcript import Id, Replace, View

BY: Final = "Digest"
NAME: Final = "digest"
BREAKS: Final = "the older part of the conversation was replaced by a digest"
TAILS: Final = (0.40, 0.20)
"""Shares of the room that the newest messages may keep, the gentler one first."""
NEWEST: Final = 0.75
"""The most that the newest round may take and still stay word for word."""
FILLED: Final = 0.75
"""How much of the room a digest and its tail take, so that work can go on for a while."""
FACTS: Final = 10_000
"""Tokens, in a large window, that may tell what was done."""


class Plan(msgspec.Struct, frozen=True):
    """Where the kept tail begins, tokens for the digest, and how the user's words may be cut."""

    cut: int
    apart: int | None
    """Where the last message of the user is, if it is before the tail: it stays."""
    room: int
    cutting: Cutting


class Draft(msgspec.Struct, frozen=True):
    """A digest that could be: what it replaces, and what the view would be like."""

    edits: tuple[Replace, ...]
    message: Message
    facts: Facts
    after: View
    kept_from: Id
    """Where what is kept begins; -1 when nothing is."""
    tokens: int


class Digest:
    """Replaces the older part of the view when it is too long and nothing else has helped."""

    def __init__(
        self,
        emit: Emit,
        expect: Callable[[str], object],
        where: Callable[[], Path | None],
        able: Callable[[], Capabilities],
        *,
        auto: bool = True,
        reactive: bool = True,
    ) -> None:
        self._emit, self._expect, self._where, self._able = emit, expect, where, able
        self._auto, self._reactive = auto, reactive

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Handback]:
        full = pressure.tokens > pressure.thresholds.auto_compact
        due = self._reactive if pressure.refused else self._auto and full
        if not due:
            return ()
        began, before = perf_counter(), tokens_of(request, pressure)
        draft = self.draft(request, pressure)
        if draft is None:
            return ()
        boundary = Boundary(
            by=NAME,
            trigger="refused" if pressure.refused else "auto",
            tokens_before=before,
            tokens_after=draft.tokens,
            last=draft.edits[-1].last,
            kept_from=draft.kept_from,
            fidelity=kept(request.view, draft.after),
        )
        self._expect(BREAKS)
        self._emit(said(boundary))
        self._emit(boundary.event(perf_counter() - began))
        return Record(draft.facts).mark(draft.message), *draft.edits, boundary.mark

    def draft(
        self, request: Request, pressure: Pressure, stands: Stands | None = None
    ) -> Draft | None:
        """The first that reaches the aim; if none does, the smallest that still helps, if any does.

        `stands`: which messages come back after every compaction, and count therefore.
        """
        before = tokens_of(request, pressure)
        most, block = aim(before, pressure), pressure.thresholds.block
        smallest: Draft | None = None
        for draft in self._drafts(request, pressure, most - fixed_tokens(request, before), stands):
            if draft.tokens <= most and draft.tokens < before:
                return draft
            if smallest is None or draft.tokens < smallest.tokens:
                smallest = draft
        if smallest is None or smallest.tokens >= before:
            return None
        if pressure.refused:  # what we count is wrong anyway: worth one more request
            return smallest
        # Between the two limits the request can be sent as it is: what would be shortened at every
        # step and stay too long is better left alone until it must be.
        return smallest if smallest.tokens <= block < before else None

    def _drafts(
        self, request: Request, pressure: Pressure, room: int, stands: Stands | None
    ) -> Iterator[Draft]:
        view = request.view
        taken: dict[int, Facts] = {}
        back = Back(view, stands, room)
        for plan in _plans(view, room - back.all):
            if plan.cut not in taken:
                gone = (view[at] for at in range(plan.cut) if at != plan.apart)
                taken[plan.cut] = collected(gone, view.marks)
            facts = taken[plan.cut]
            text = self._text(view, plan, facts, pressure.window)
            if text is None:
                continue
            message = user(text)
            edits = around(view, 0, plan.cut, plan.apart, message)
            after = applied(view, edits, BY)
            if edits and allowed(view, after, self._able()):
                tokens = tokens_of(replace(request, view=after), pressure) + back.between(
                    0, plan.cut
                )
                kept_from = view[plan.cut].id if plan.cut < len(view) else -1
                yield Draft(edits, message, facts, after, kept_from, tokens)

    def _text(self, view: View, plan: Plan, facts: Facts, window: int) -> str | None:
        byte = TEXT_RATE * view.calibration.factors[0]  # tokens of a byte of text
        path = self._where()
        tail = plan.cut < len(view)
        form = Form(
            room=int(plan.room / byte),
            facts=int(scaled(FACTS, window) / byte),
            path=str(path) if path else "",
            tail=tail,
            apart=plan.apart is not None,
            last_whole=plan.apart is None and asked_within(view, plan.cut),
            cutting=plan.cutting,
            newest=() if tail else unread(view),
        )
        return digest_text(facts, form)


def said(boundary: Boundary) -> Notice:
    """What the user is told: this is not what a model would have made of it."""
    return Notice(
        "the window was full: the older part of the conversation is now a digest made without a model, "
        f"{boundary.tokens_before:,} tokens before and about {boundary.tokens_after:,} after; the "
        "transcript still has all of it"
    )


# --- where to cut -------------------------------------------------------------------------------------


def _plans(view: View, room: int) -> Iterator[Plan]:
    """The gentlest first: a long tail, a short one, the newest round, none.

    Long messages of the user are cut before the newest round goes; before short ones do, it goes.
    """
    last = last_typed(view)
    own = 0 if last is None else view.calibration.tokens(view[last].size)

    def plan(cut: int, tail: int, filled: float, cutting: Cutting) -> Plan:
        apart = last if last is not None and last < cut else None
        left = room if apart is None else room - own
        return Plan(cut, apart, int(left * filled) - tail, cutting)

    tails = _tails(view, int(room * NEWEST))
    fits = [[t for t in tails if plan(*t, share, "none").room >= 0][:1] for share in TAILS]
    some = [(*tail, FILLED) for found in fits for tail in found]
    some += [(*tail, (1 + NEWEST) / 2) for tail in tails[-1:]]
    none = [(len(view), 0, FILLED)] if len(view) else []
    order: tuple[tuple[list[tuple[int, int, float]], Cutting], ...] = (
        (some, "none"),
        (some, "long"),
        (none, "none"),
        (none, "long"),
        (some, "all"),
        (none, "all"),
    )
    for cuts, cutting in order:
        for cut, tail, filled in dict.fromkeys(cuts):
            yield plan(cut, tail, filled, cutting)


def _tails(view: View, most: int) -> list[tuple[int, int]]:
    """Where a tail of at most so many tokens may begin, and its padded size, the longest tail first."""
    found: list[tuple[int, int]] = []
    loop, size = thinking_loop(view), Size()
    for at in range(len(view) - 1, 0, -1):
        size += view[at].size
        tokens = padded(view, size)
        if tokens > most:
            break
        if may_begin(view, at, loop):
            found.append((at, tokens))
    return found[::-1]


_check: type[Fit] = Digest
