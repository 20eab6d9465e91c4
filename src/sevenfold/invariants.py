"""What must hold of every view; one small function per rule."""

from __future__ import annotations

from collections.abc import Sequence

from sevenfold.messages import THOUGHTS
from sevenfold.transcript import (
    Edit,
    Id,
    Pin,
    Replace,
    Results,
    Transcript,
    Undo,
    Unthink,
    View,
    What,
)


def paired(view: View) -> bool:
    """Every tool use is answered in the next message, and nothing else is."""
    open_uses: set[str] = set()
    for placed in view:
        answered = {r.tool_use_id for r in placed.message.results}
        if open_uses != answered:
            return False
        open_uses = {u.id for u in placed.message.tool_uses}
    return not open_uses


def open_uses(view: View) -> tuple[str, ...]:
    """The tool uses of the last message, which nothing has answered yet."""
    return tuple(u.id for u in view[-1].message.tool_uses) if len(view) else ()


def completed(
    handed: Sequence[What], log: Transcript, binds_thinking: bool
) -> tuple[What, ...] | None:
    """What is to be written for what a layer hands back; None when it may not be written.

    It must refer to what is there and split no pair. An edit before thinking that is bound to its
    prefix takes that thinking along, unless a tool loop still needs it.
    """
    view = log.view
    if not all(applies(what, view) for what in handed):
        return None
    edits = tuple(what for what in handed if isinstance(what, Edit))
    moves = any(isinstance(edit, Replace | Undo) for edit in edits)
    if not edits or not (moves or binds_thinking):
        return tuple(handed)  # what is shown in place of a result splits no pair
    after = log.preview(*edits)
    if moves and paired(view) and not paired(after):
        return None
    first = unbound(view, after) if binds_thinking else None
    if first is None:
        return tuple(handed)
    if breaks_open_loop(after, first):
        return None
    # Thinking goes first: a crash in the middle of the write leaves none on a prefix that has changed.
    return (Unthink(first), *handed) if view.where(first) is not None else (*handed, Unthink(first))


def applies(what: What, view: View) -> bool:
    """Whether what it refers to is still in the view."""
    match what:
        case Results(shown):
            return all(view.result_at(use) is not None for use in shown)
        case Pin(after):
            return view.where(after) is not None
        case Replace(first, last):
            a, b = view.where(first), view.where(last)
            return a is not None and b is not None and a <= b
        case _:
            return True


def unbound(before: View, after: View) -> Id | None:
    """The first message from which thinking is no longer bound to the prefix it was made on."""
    same = 0
    for a, b in zip(before, after, strict=False):
        if a is not b and a != b:
            break
        same += 1
    if same == len(before):
        return None
    for i in range(same, len(after)):
        if any(isinstance(b, THOUGHTS) for b in after[i].message.content):
            return after[i].id
    return None


def open_loop(view: View) -> int:
    """Where the tool loop that is still going on begins; the end of the view when there is none."""
    at, in_loop = len(view), False
    while at > 0 and view[at - 1].by != "user":
        at -= 1
        message = view[at].message
        if message.role == "assistant" and not in_loop and not message.tool_uses:
            return len(view)
        in_loop = in_loop or message.role == "assistant"
    return at if in_loop else len(view)


def in_open_loop(view: View) -> bool:
    """Whether the model has called tools and not answered the user yet."""
    for at in range(len(view) - 1, -1, -1):
        if view[at].by == "user" or view[at].message.role == "assistant":
            return bool(view[at].message.tool_uses)
    return False


def breaks_open_loop(after: View, first: Id) -> bool:
    """Whether dropping thinking from `first` on would reach into a tool loop still going on."""
    start = open_loop(after)
    return any(
        isinstance(b, THOUGHTS)
        for i in range(max(start, after.where(first) or 0), len(after))
        for b in after[i].message.content
    )


def safe_cut(view: View, at: int) -> bool:
    """Whether the view may be cut before position `at` without splitting a use from its result."""
    return at <= 0 or at >= len(view) or not view[at].message.results
