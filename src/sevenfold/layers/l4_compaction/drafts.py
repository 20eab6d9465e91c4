"""A replacement before it is written: from the model's summary, or from the digest."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.boundary import Record
from sevenfold.cache.breakpoints import frontier_at
from sevenfold.layers.l4_compaction import digest
from sevenfold.layers.l4_compaction.asking import NoSummary, Written
from sevenfold.layers.l4_compaction.planning import Plan
from sevenfold.layers.l4_compaction.summary import (
    Form,
    account_text,
    summary_text,
    unread_text,
)
from sevenfold.messages import user
from sevenfold.protocols import Capabilities
from sevenfold.quotes import LONG
from sevenfold.tokens import TEXT_RATE, Usage, scaled
from sevenfold.transcript import Mark, Replace, View

UNREAD: Final = 5_000
"""Tokens, in a large window, that may quote the newest results where they cannot be kept."""


class Draft(msgspec.Struct, frozen=True):
    """A replacement that is valid and smaller than what it replaces."""

    by: str
    edits: tuple[Replace, ...]
    text: str
    after: View
    """What the view will be."""
    marks: tuple[Mark, ...]
    usage: Usage = Usage()
    """Of all that was asked of a model for it, also of what came to nothing."""

    def gone(self, view: View) -> list[int]:
        """The places of what leaves the view."""
        return [at for at, placed in enumerate(view) if self.after.where(placed.id) is None]


def from_summary(plan: Plan, written: Written, path: str, able: Capabilities) -> Draft:
    """With the user's words as they are, or the long ones cut; `NoSummary` when it is not smaller."""
    view, answer = plan.view, written.answer
    facts = replace(plan.facts, account=account_text(answer))
    tail = plan.cut < len(view)
    room = int(scaled(UNREAD, plan.pressure.window) / TEXT_RATE)
    form = Form(
        path,
        middle=plan.first > 0,
        tail=tail,
        newest="" if tail else unread_text(view, room),
        last_whole=plan.asked_within,
    )
    said = [one.text for one in facts.said]
    for longest in (0, LONG):
        text = summary_text(answer, said, replace(form, longest=longest))
        edits = plan.edits(text)
        after = plan.after(edits)
        if plan.helped_by(after, able):
            known = Record(facts).mark(user(text))
            # What stands before is still in the cache, and only a mark near it finds it.
            cached = (frontier_at(view, plan.first, plan.first),) if plan.first else ()
            return Draft("summary", edits, text, after, (known, *cached), written.usage)
    raise NoSummary("the summary would not be smaller than what it replaces", written.usage)


def from_digest(made: digest.Draft, used: Usage) -> Draft:
    """`used`: what asking for a summary used, which this one takes the place of."""
    known = Record(made.facts).mark(made.message)
    return Draft(digest.NAME, made.edits, made.message.text, made.after, (known,), used)
