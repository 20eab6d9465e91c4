"""The caller's messages as the view will have them: those that answer one reply together are one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from sevenfold.errors import Mistake
from sevenfold.foreign.formats import Format, Spoken
from sevenfold.foreign.plain import canonical, fingerprint, mended, plain, snapshot, unmarked
from sevenfold.messages import Block, Json, Message, ToolResult, ToolUse


@dataclass(slots=True)
class Heard:
    """Messages of the caller that are one message of the view, usually just one."""

    fingerprint: str
    message: Message
    """As the caller said it; the ids of tool calls are those of the view."""
    by: str
    uses: tuple[str, ...]
    """The ids of tool calls that the caller gave."""
    sizes: tuple[int, ...]
    """How many blocks each of the messages has."""
    seen: list[Any]
    """What they looked like, to compare with."""
    own: list[Json] | None
    """What is sent in their place, where they cannot be sent as the caller has them."""

    @property
    def is_plain(self) -> bool:
        """Whether no tool is called or answered in it."""
        return not any(isinstance(b, ToolUse | ToolResult) for b in self.message.content)


@dataclass(slots=True)
class Told:
    """One message of the caller, read."""

    where: str
    seen: Any
    """How it looked."""
    own: Json | None
    """What goes out for it, where that cannot be what was given."""
    canonical: bytes
    spoken: Spoken

    @property
    def calls(self) -> list[ToolUse]:
        return [b for b in self.spoken.blocks if isinstance(b, ToolUse)]

    @property
    def answers(self) -> list[ToolResult]:
        return [b for b in self.spoken.blocks if isinstance(b, ToolResult)]


def read(given: Any, form: Format, where: str) -> Told:
    """A message as it was given, as it is sent, and as we understand it."""
    try:
        told = plain(given, where)
        if not isinstance(told, dict):
            raise Mistake(f"{where} is a {type(given).__name__}: give each message as an object")
        try:
            return _told(where, given, told, form)
        except UnicodeEncodeError:  # halves of characters: no provider takes them, nor does our log
            return _told(where, given, mended(told), form)
    except RecursionError:
        raise Mistake(f"{where} is nested too deeply, or holds itself") from None


def _told(where: str, given: Any, message: Json, form: Format) -> Told:
    normal = unmarked(message)
    sent = normal if form.is_messages_api else message
    # What we keep must not change when the caller changes what it gave us.
    kept = snapshot(normal)
    seen = kept if normal is given else snapshot(given)
    own = None if sent is given else kept if sent is normal else snapshot(sent)
    return Told(where, seen, own, canonical(normal), form.spoken(kept, where))


def looks_now(messages: Sequence[Any], heard: Heard, form: Format, first: int) -> Heard | None:
    """The same messages, only marked or built otherwise, as they look now; None when they changed."""
    told = [read(given, form, f"messages[{n}]") for n, given in enumerate(messages, first)]
    now = _closed(told)
    if now.fingerprint != heard.fingerprint:
        return None
    now.message, now.uses = heard.message, heard.uses
    return now


def grouped(messages: Sequence[Any], form: Format, first: int) -> list[Heard]:
    """Read messages, of which the first has the number `first`."""
    rounds = _Rounds()
    for number, given in enumerate(messages, first):
        rounds.take(read(given, form, f"messages[{number}]"))
    return rounds.end()


class _Rounds:
    """Calls of tools and their answers, as they come."""

    def __init__(self) -> None:
        self._done: list[Heard] = []
        self._group: list[Told] = []
        self._open: dict[str, int] = {}
        """How many answers each call of the last reply still wants."""
        self._wanted = 0
        self._calls: dict[str, str] = {}

    def take(self, told: Told) -> None:
        """Add a message to the group that is open, or close that and begin another."""
        role = told.spoken.role
        if self._group and self._group[0].spoken.role != role:
            self._close()
        self._group.append(told)
        if role == "assistant":
            self._call(told)
        else:
            self._answer(told)
        if not self._wanted:
            self._close()

    def _call(self, told: Told) -> None:
        for use in told.calls:
            self._open[use.id] = self._open.get(use.id, 0) + 1
            self._wanted += 1
            self._calls[use.id] = f"{told.where} makes the tool call {use.id!r} of {use.name!r}"

    def _answer(self, told: Told) -> None:
        for result in told.answers:
            left = self._open.get(result.tool_use_id)
            if left is None:
                raise Mistake(
                    f"{told.where} answers the tool call {result.tool_use_id!r}, which the reply before "
                    "it does not make: keep call and answer both, or drop both"
                )
            self._open[result.tool_use_id] = max(0, left - 1)
            self._wanted -= left > 0

    def _close(self) -> None:
        if self._group[0].spoken.role != "assistant":
            if self._wanted:
                raise self._unanswered()
            self._open.clear()
        self._done.append(_closed(self._group))
        self._group = []

    def _unanswered(self) -> Mistake:
        use = next(use for use, left in self._open.items() if left)
        return Mistake(
            f"{self._calls[use]} and no message after it answers: add its result, or leave the call out"
        )

    def end(self) -> list[Heard]:
        if self._wanted:
            raise self._unanswered()
        return self._done


def _closed(group: list[Told]) -> Heard:
    blocks = tuple(block for told in group for block in told.spoken.blocks)
    message = Message(group[0].spoken.role, blocks)
    return Heard(
        fingerprint(told.canonical for told in group),
        message,
        "tools" if message.results else group[-1].spoken.by,
        tuple(use.id for use in message.tool_uses),
        tuple(len(told.spoken.blocks) for told in group),
        [told.seen for told in group],
        _own(group),
    )


def _own(group: list[Told]) -> list[Json] | None:
    if all(told.own is None for told in group):
        return None
    return [told.seen if told.own is None else told.own for told in group]


# --- ids --------------------------------------------------------------------------------------------------


def renamed(message: Message, uses: Iterable[str], results: Iterable[str]) -> Message:
    """The message with these ids for its tool calls and its answers, in order."""
    use_ids, result_ids = iter(uses), iter(results)

    def named(block: Block) -> Block:
        if isinstance(block, ToolUse):
            return replace(block, id=next(use_ids))
        if isinstance(block, ToolResult):
            return replace(block, tool_use_id=next(result_ids))
        return block

    return Message(message.role, tuple(named(block) for block in message.content))


def like(message: Message, other: Message) -> Message | None:
    """The message with the ids of another one that stands for it; None if their calls do not match."""
    uses, results = other.tool_uses, other.results
    if (len(uses), len(results)) != (len(message.tool_uses), len(message.results)):
        return None
    if not uses and not results:
        return message
    return renamed(message, (u.id for u in uses), (r.tool_use_id for r in results))
