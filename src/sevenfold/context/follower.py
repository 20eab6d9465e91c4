"""Follows a caller through its conversation: the log comes to say what the caller says, and no more.

What the caller changed becomes an edit in the log, with its reason in the ledger; what stands before it
stays byte for byte.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from sevenfold.context.formats import WireFormat, to_plain_json
from sevenfold.context.history import (
    ADOPTED,
    BY,
    CallerGroup,
    GroupCache,
    LoggedGroup,
    LoggedHistory,
    copy_tool_ids,
    group_messages,
    rename_tool_ids,
)
from sevenfold.core.messages import Message, ToolResult
from sevenfold.core.transcript import Id, Mark, Replace, Reply, Transcript, Undo, What

Kind: TypeAlias = Literal["keep", "out", "swap", "undo"]


class ListStep(msgspec.Struct, frozen=True):
    """A change of `count` items of the old list, the first of them at `old`."""

    kind: Kind
    old: int
    new: int  # The place in the new list
    count: int = 1


def compare_lists(
    old: Sequence[str],
    new: Sequence[str],
    answers: Callable[[int], bool],
    swappable: Callable[[int, int], bool],
) -> list[ListStep]:
    """Steps through the whole old list; what the new one has beyond the last step is new.

    keep: it is still there. out: it was taken out. swap: another stands in its place and the next is as
    it was. undo: nothing simpler can be said, and from here on everything is learned anew. An item of the
    old list that `answers` the one before it is only kept together with that one.
    """
    places: dict[str, list[int]] = {}
    for at, item in enumerate(old):
        if not answers(at):
            places.setdefault(item, []).append(at)
    steps: list[ListStep] = []
    i = j = 0
    while i < len(old):
        if old[i : i + 1] == new[j : j + 1] and (not answers(i) or _kept(steps, i - 1)):
            steps.append(ListStep("keep", i, j))
            i, j = i + 1, j + 1
        elif j < len(new) and (later := _after(places.get(new[j], ()), i)) is not None:
            steps.append(ListStep("out", i, j, later - i))
            i = later
        elif old[i + 1 : i + 2] == new[j + 1 : j + 2] != [] and swappable(i, j):
            steps.append(ListStep("swap", i, j))
            i, j = i + 1, j + 1
        else:
            steps.append(ListStep("undo", i, j, len(old) - i))
            break
    return steps


def _kept(steps: Sequence[ListStep], at: int) -> bool:
    """True if the item at this place was kept; the place before the first item counts as kept."""
    return steps[-1].kind == "keep" and steps[-1].old == at if steps else at < 0


def _after(places: Sequence[int], at: int) -> int | None:
    """The first of these places behind `at`."""
    next_one = bisect_right(places, at)
    return places[next_one] if next_one < len(places) else None


class AnsweredHistory(msgspec.Struct, frozen=True):
    """The caller's messages up to and including a response, to go on from."""

    id: str
    messages: list[Any]

    @classmethod
    def of(
        cls, given: Sequence[Any], reply: Reply, response: Any, form: WireFormat
    ) -> AnsweredHistory | None:
        """None if the response has no id."""
        id = reply.diagnostics.get("message_id")
        if not id:
            return None
        if isinstance(response, Reply):
            return cls(id, [*given, *form.encode_message(reply.message)])
        return cls(id, [*given, *form.read_reply_messages(to_plain_json(response, "the response"))])


TakenIn: TypeAlias = Callable[[tuple[ToolResult, ...]], tuple[ToolResult, ...]]
OnChange: TypeAlias = Callable[[int, tuple[What, ...]], object]  # With the number of the changed message


class MessageChanges(msgspec.Struct, frozen=True):
    """The caller's messages that are unchanged, and the rest."""

    same: int
    rest: list[CallerGroup]
    number: int  # Of the first message of the rest, in the caller's list


class MessageFollower:
    """Follows one conversation. `taken_in` decides how new results are shown."""

    def __init__(
        self, transcript: Transcript, form: WireFormat, taken_in: TakenIn, changed: OnChange
    ) -> None:
        self._log, self._form = transcript, form
        self._taken_in, self._changed = taken_in, changed
        self.history = LoggedHistory()
        self.history.read(transcript.entries)
        self.known = GroupCache(len(self.history.groups))

    def hear(self, said: list[Any], first: int) -> MessageChanges:
        """Read what is new. A `Mistake` is raised before anything has changed."""
        self.catch_up()
        same = self.known.same(said, self._form, first)
        start = self.known.start(same)
        if same == len(self.history.groups) and start == len(said):
            return MessageChanges(same, [], first + start)
        if same and self.known[same - 1].uses:  # its answers belong to what is read now
            same -= 1
            start = self.known.start(same)
        return MessageChanges(same, group_messages(said[start:], self._form, first + start), first + start)

    def follow(self, news: MessageChanges) -> None:
        """Write down what the caller changed, then what it said."""
        done = self._mend(news) if news.same < len(self.history.groups) else 0
        rest = news.rest[done:]
        if self.history.awaited is not None and not (rest and rest[0].by == "model"):
            self._add(Undo(frozenset({self.history.awaited})))  # the caller did without that reply
        for heard in rest:
            self._learn(heard)

    def record(self, reply: Reply) -> None:
        """The model's reply, until the caller sends back its own copy of it."""
        if self.history.awaited is not None:
            self._add(Undo(frozenset({self.history.awaited})))
        if not reply.message.says_something:
            return
        message = rename_tool_ids(reply.message, self._free_ids(u.id for u in reply.message.tool_uses), ())
        self._add(msgspec.structs.replace(reply, message=message), by="model")

    def catch_up(self) -> None:
        """Take note of what the layers have written."""
        self.history.read(self._log.entries)

    def _add(self, *whats: What, by: str = BY, source: str = "") -> None:
        self._log.add(*whats, by=by, source=source)
        self.catch_up()

    def _mend(self, news: MessageChanges) -> int:
        """Go through what the log has from here on; returns how many of the new ones are dealt with."""
        groups = self.history.groups[news.same :]
        steps = compare_lists(
            [group.fingerprint for group in groups],
            [heard.fingerprint for heard in news.rest],
            lambda i: bool(groups[i].shown.results),
            lambda i, j: _can_swap(groups[i], news.rest[j]),
        )
        at, done = news.same, 0
        try:
            for step in steps:
                at, done = self._take(step, at, news)
                if done < 0:
                    return step.new
            return done
        finally:  # also when the disk refused half-way: what was written is known
            self.known.reindex()

    def _take(self, step: ListStep, at: int, news: MessageChanges) -> tuple[int, int]:
        """Apply a step at this group; returns the next group and how many are dealt with, -1: the end."""
        if step.kind == "keep":
            heard = news.rest[step.new]
            heard.message = copy_tool_ids(heard.message, self.history.groups[at].shown) or heard.message
            self.known.set(at, heard)
            return at + 1, step.new + 1
        number = news.number + sum(len(heard.seen) for heard in news.rest[: step.new])
        last = at + step.count - 1
        groups, view = self.history.groups, self._log.view
        # A group that is not in the view stands behind a summary.
        if step.kind == "undo" or any(view.where(g.id) is None for g in groups[at : last + 1]):
            self._change(number, Undo(self.history.from_here(at)))
            self.known.remove(at, len(self.known))
            return at, -1
        if step.kind == "out":
            self._change(number, Replace(groups[at].id, groups[last].id, ()))
            self.known.remove(at, last + 1)
            return at, step.new
        heard = news.rest[step.new]
        edit = Replace(groups[at].id, groups[at].id, (heard.message,))
        self._change(number, edit, by=heard.by, source=heard.fingerprint)
        self.known.set(at, heard)
        return at + 1, step.new + 1

    def _change(self, number: int, what: What, by: str = BY, source: str = "") -> None:
        self._add(what, by=by, source=source)
        self._changed(number, (what,))

    def _learn(self, heard: CallerGroup) -> None:
        if heard.by == "model" and self.history.awaited is not None:
            self._adopt(self.history.awaited, heard)
        else:
            heard.message = self._with_ids_of_the_view(heard)
            before = self.history.shown_before(heard.fingerprint)
            again = copy_tool_ids(before, heard.message) if before else None
            shown = again or self._first_shown(heard.message)
            self._add(shown, by=heard.by, source=heard.fingerprint)
        self.known.append(heard)

    def _adopt(self, id: Id, heard: CallerGroup) -> None:
        """The caller's own copy of a reply is what will be sent, so it is what the view shows."""
        ours = self.history.get_message(id)
        theirs = copy_tool_ids(heard.message, ours) if ours else None
        heard.message = theirs or self._with_ids_of_the_view(heard)
        if ours == heard.message or self._log.view.where(id) is None:
            self._add(Mark(ADOPTED, id), source=heard.fingerprint)
        else:
            self._add(Replace(id, id, (heard.message,)), by="model", source=heard.fingerprint)

    def _first_shown(self, message: Message) -> Message:
        if not message.results:
            return message
        results = iter(self._taken_in(message.results))
        return Message(
            message.role, tuple(next(results) if isinstance(b, ToolResult) else b for b in message.content)
        )

    def _with_ids_of_the_view(self, heard: CallerGroup) -> Message:
        """Ids that no other call in the view has: some callers give every call the same."""
        message = heard.message
        if not message.tool_uses and not message.results:
            return message
        names = self._open_calls() if message.results else {}
        open_ids = [names[result.tool_use_id] for result in message.results]
        # Answers beyond the number of calls go to the last call.
        results = [ids.pop(0) if len(ids) > 1 else ids[0] for ids in open_ids]
        return rename_tool_ids(message, self._free_ids(heard.uses), results)

    def _open_calls(self) -> dict[str, list[str]]:
        """The ids in the view of the calls that are to be answered, by the ids the caller gave."""
        last = self.known[len(self.known) - 1]
        names: dict[str, list[str]] = {}
        for given, use in zip(last.uses, last.message.tool_uses, strict=True):
            names.setdefault(given, []).append(use.id)
        return names

    def _free_ids(self, uses: Iterable[str]) -> list[str]:
        ids: list[str] = []
        for use in uses:
            ids.append(self.history.free_id(use, ids))
        return ids


def _can_swap(group: LoggedGroup, heard: CallerGroup) -> bool:
    """True if one may replace the other as it is: neither calls or answers tools."""
    old = group.shown
    return old.role == heard.message.role and heard.is_plain and not old.tool_uses and not old.results
