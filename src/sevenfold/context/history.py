"""The caller's messages as the log has them: which there are, how each is shown, which were given up.

It is read from the entries alone, so a resumed conversation knows the same. The caller's edits in the log:

    Message, with a source       the caller said something new
    Mark "context.adopted"       the caller's own copy of the reply that was recorded
    Replace, with a source       the caller's copy differs, or it changed a message in its place
    Replace by "context"         the caller took these out
    Undo                         the caller changed what stands here: from here on it is learned anew
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from sevenfold.context.formats import (
    SpokenMessage,
    WireFormat,
    WrittenMessages,
    copy_value,
    encode_canonical,
    fingerprint_messages,
    strip_cache_marks,
    to_plain_json,
)
from sevenfold.core.errors import Mistake
from sevenfold.core.messages import THOUGHTS, Block, Json, Message, ToolResult, ToolUse
from sevenfold.core.request import collect_pins
from sevenfold.core.transcript import Entry, Id, Mark, Replace, Reply, Results, Undo, Unthink, View
from sevenfold.models.jsontext import repair_characters

BY: Final = "context"
ADOPTED: Final = "context.adopted"


@dataclass(slots=True)
class LoggedGroup:
    """Messages of the caller that are one message of the view."""

    fingerprint: str
    id: Id  # The entry by which the view has it
    place: Id  # The first entry that stood in its place
    shown: Message  # As the view shows it, or would if no summary stood in its place


class LoggedHistory:
    """Reads the log as it grows."""

    def __init__(self) -> None:
        self.groups: list[LoggedGroup] = []
        self.awaited: Id | None = None  # The recorded reply that the caller has not sent back yet
        self._read = 0
        self._said: dict[Id, Message] = {}
        self._spans: dict[Id, tuple[Id, Id]] = {}
        self._departed: dict[str, list[Message]] = {}
        self._holders: dict[str, LoggedGroup] = {}
        self._uses: dict[str, int] = {}

    def read(self, entries: Sequence[Entry]) -> None:
        """Take in the entries that have come since the last time."""
        for entry in entries[self._read :]:
            self._take(entry)
        self._read = len(entries)

    def _take(self, entry: Entry) -> None:
        match entry.what:
            case Message() as message:
                self._said[entry.id] = message
                if entry.source:
                    self._arrive(LoggedGroup(entry.source, entry.id, entry.id, message))
            case Reply(message):
                self._said[entry.id] = message
                self._count(message, 1)
                self.awaited = entry.id
            case Mark(name, int(id)) if name == ADOPTED and id in self._said:
                self._adopt(LoggedGroup(entry.source, id, id, self._said[id]))
            case Replace() as edit:
                self._replace(entry, edit)
            case Results(shown):
                for use, text in shown.items():
                    if (group := self._holders.get(use)) is not None:
                        group.shown = _mapped(group.shown, use, text)
            case Unthink(first, last):
                self._unthink(self._span(first)[0], None if last is None else self._span(last)[1])
            case Undo(ids):
                self._undo(ids)

    def _replace(self, entry: Entry, edit: Replace) -> None:
        low, high = self._span(edit.first)[0], self._span(edit.last)[1]
        self._spans[entry.id] = low, high
        if entry.source and edit.by:
            new = LoggedGroup(entry.source, entry.id, low, edit.by[0])
            at = next((i for i, g in enumerate(self.groups) if g.id == edit.first), None)
            if edit.first == self.awaited:
                self._adopt(new)
            elif at is not None:
                self._depart([self.groups[at]])
                self._arrive(new, at)
        elif entry.by == BY:
            self._depart([g for g in self.groups if low <= g.place <= high])

    def _span(self, id: Id) -> tuple[Id, Id]:
        return self._spans.get(id, (id, id))

    def _arrive(self, group: LoggedGroup, at: int | None = None) -> None:
        if known := self._departed.get(group.fingerprint):
            known.pop(0)
        self.groups.insert(len(self.groups) if at is None else at, group)
        self._count(group.shown, 1)
        for result in group.shown.results:
            self._holders[result.tool_use_id] = group

    def _adopt(self, group: LoggedGroup) -> None:
        if self.awaited is not None and self.awaited in self._said:
            self._count(self._said[self.awaited], -1)
        self.awaited = None
        self._arrive(group)

    def _depart(self, groups: Sequence[LoggedGroup]) -> None:
        leaving = {id(group) for group in groups}
        self.groups = [g for g in self.groups if id(g) not in leaving]
        for group in reversed(groups):
            self._departed.setdefault(group.fingerprint, []).insert(0, group.shown)
            self._count(group.shown, -1)
            for result in group.shown.results:
                if self._holders.get(result.tool_use_id) is group:
                    del self._holders[result.tool_use_id]

    def _undo(self, ids: Iterable[Id]) -> None:
        gone = frozenset(ids)
        if self.awaited is not None and self.awaited in gone:
            self._count(self._said[self.awaited], -1)
            self.awaited = None
        for undone in gone:
            self._said.pop(undone, None)
            self._spans.pop(undone, None)
        self._depart([g for g in self.groups if g.id in gone])

    def _count(self, message: Message, by: int) -> None:
        for use in message.tool_uses:
            left = self._uses.get(use.id, 0) + by
            if left:
                self._uses[use.id] = left
            else:
                self._uses.pop(use.id, None)

    def _unthink(self, first: Id, last: Id | None) -> None:
        for group in self.groups:
            within = group.place >= first and (last is None or group.place <= last)
            if within and any(isinstance(b, THOUGHTS) for b in group.shown.content):
                kept = (b for b in group.shown.content if not isinstance(b, THOUGHTS))
                group.shown = Message(group.shown.role, tuple(kept))

    def shown_before(self, fingerprint: str) -> Message | None:
        """The message as it was shown before it departed; None if it never was here, or still is."""
        known = self._departed.get(fingerprint)
        return known[0] if known else None

    def get_message(self, id: Id) -> Message | None:
        return self._said.get(id)

    def free_id(self, use: str, taken: Iterable[str] = ()) -> str:
        """This id for a tool call, or one like it, if another call has it: some callers count from 0."""
        id, n = use, 1
        while id in self._uses or id in taken:
            n += 1
            id = f"{use}~{n}"
        return id

    def from_here(self, at: int) -> frozenset[Id]:
        """All entries that an undo from this group on names."""
        place = self.groups[at].place
        said = {id for id in self._said if id >= place}
        return frozenset(said | {id for id, (_, high) in self._spans.items() if high >= place})


def _mapped(message: Message, use: str, text: str) -> Message:
    def shown(block: Block) -> Block:
        ours = isinstance(block, ToolResult) and block.tool_use_id == use
        return replace(block, content=text) if ours else block

    return Message(message.role, tuple(map(shown, message.content)))


@dataclass(slots=True)
class CallerGroup:
    """Messages of the caller that are one message of the view, usually just one."""

    fingerprint: str
    message: Message  # As the caller said it; the ids of tool calls are those of the view
    by: str
    uses: tuple[str, ...]  # The ids of tool calls that the caller gave
    sizes: tuple[int, ...]  # The number of blocks of each message
    seen: list[Any]  # The messages as they looked, to compare with
    own: list[Json] | None  # The messages to send instead, if they cannot be sent as the caller has them

    @property
    def is_plain(self) -> bool:
        """True if no tool is called or answered in it."""
        return not any(isinstance(b, ToolUse | ToolResult) for b in self.message.content)


@dataclass(slots=True)
class CallerMessage:
    """One message of the caller, read."""

    where: str
    seen: Any  # The message as it looked
    own: Json | None  # The message to send instead, if it cannot be sent as given
    canonical: bytes
    spoken: SpokenMessage

    @property
    def calls(self) -> list[ToolUse]:
        return [b for b in self.spoken.blocks if isinstance(b, ToolUse)]

    @property
    def answers(self) -> list[ToolResult]:
        return [b for b in self.spoken.blocks if isinstance(b, ToolResult)]


def read_message(given: Any, form: WireFormat, where: str) -> CallerMessage:
    """A message as it was given, as it is sent, and as we understand it."""
    try:
        told = to_plain_json(given, where)
        if not isinstance(told, dict):
            raise Mistake(f"{where} is a {type(given).__name__}: give each message as an object")
        try:
            return _told(where, given, told, form)
        except UnicodeEncodeError:  # halves of characters: no provider takes them, nor does our log
            return _told(where, given, repair_characters(told), form)
    except RecursionError:
        raise Mistake(f"{where} is nested too deeply, or holds itself") from None


def _told(where: str, given: Any, message: Json, form: WireFormat) -> CallerMessage:
    normal = strip_cache_marks(message)
    sent = normal if form.is_messages_api else message
    # What we keep must not change when the caller changes what it gave us.
    kept = copy_value(normal)
    seen = kept if normal is given else copy_value(given)
    own = None if sent is given else kept if sent is normal else copy_value(sent)
    return CallerMessage(where, seen, own, encode_canonical(normal), form.decode_message(kept, where))


def match_changed_group(
    messages: Sequence[Any], heard: CallerGroup, form: WireFormat, first: int
) -> CallerGroup | None:
    """The same messages, only marked or built otherwise, as they look now; None when they changed."""
    now = _closed([read_message(given, form, f"messages[{n}]") for n, given in enumerate(messages, first)])
    if now.fingerprint != heard.fingerprint:
        return None
    now.message, now.uses = heard.message, heard.uses
    return now


def group_messages(messages: Sequence[Any], form: WireFormat, first: int) -> list[CallerGroup]:
    """Read messages, of which the first has the number `first`."""
    rounds = _ToolRounds(form.has_reply_items)
    for number, given in enumerate(messages, first):
        rounds.take(read_message(given, form, f"messages[{number}]"))
    return rounds.end()


class _ToolRounds:
    """Calls of tools and their answers, as they come."""

    def __init__(self, has_reply_items: bool) -> None:
        self._has_reply_items = has_reply_items
        self._done: list[CallerGroup] = []
        self._group: list[CallerMessage] = []
        self._open: dict[str, int] = {}  # Answers that each call of the last reply still needs
        self._wanted = 0
        self._calls: dict[str, str] = {}

    def take(self, told: CallerMessage) -> None:
        """Add a message to the group that is open, or close that and begin another."""
        role = told.spoken.role
        if self._group and self._group[0].spoken.role != role:
            self._close()
        self._group.append(told)
        for use in told.calls if role == "assistant" else ():
            self._open[use.id] = self._open.get(use.id, 0) + 1
            self._wanted += 1
            self._calls[use.id] = f"{told.where} makes the tool call {use.id!r} of {use.name!r}"
        if role != "assistant":
            self._answer(told)
        if not self._wanted and not (self._has_reply_items and role == "assistant"):
            self._close()

    def _answer(self, told: CallerMessage) -> None:
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

    def end(self) -> list[CallerGroup]:
        if self._wanted:
            raise self._unanswered()
        if self._group:
            self._close()
        return self._done


def _closed(group: list[CallerMessage]) -> CallerGroup:
    message = Message(group[0].spoken.role, tuple(block for told in group for block in told.spoken.blocks))
    own: list[Json] | None = None
    if any(told.own is not None for told in group):
        own = [told.seen if told.own is None else told.own for told in group]
    return CallerGroup(
        fingerprint_messages(told.canonical for told in group),
        message,
        "tools" if message.results else group[-1].spoken.by,
        tuple(use.id for use in message.tool_uses),
        tuple(len(told.spoken.blocks) for told in group),
        [told.seen for told in group],
        own,
    )


def rename_tool_ids(message: Message, uses: Iterable[str], results: Iterable[str]) -> Message:
    """The message with these ids for its tool calls and its answers, in order."""
    use_ids, result_ids = iter(uses), iter(results)

    def named(block: Block) -> Block:
        if isinstance(block, ToolUse):
            return replace(block, id=next(use_ids))
        if isinstance(block, ToolResult):
            return replace(block, tool_use_id=next(result_ids))
        return block

    return Message(message.role, tuple(named(block) for block in message.content))


def copy_tool_ids(message: Message, other: Message) -> Message | None:
    """The message with the ids of another one that stands for it; None if their calls do not match."""
    uses, results = other.tool_uses, other.results
    if (len(uses), len(results)) != (len(message.tool_uses), len(message.results)):
        return None
    if not uses and not results:
        return message
    return rename_tool_ids(message, (u.id for u in uses), (r.tool_use_id for r in results))


NEWEST: Final = 32  # Messages at the end that are compared at every request
IN_TURN: Final = 64  # ... and so many of the older ones, others at each request


class InPlaceCheck:
    """Finds what changed inside objects that are the same as last time.

    Comparing everything takes time that grows with the conversation, and callers seldom do this to old
    messages. So the newest are compared each time and the older ones in turn, until a change is found
    there: from then on everything is.
    """

    def __init__(self) -> None:
        self._next = 0
        self._in_turn = True

    def is_equal(self, now: list[Any], then: list[Any], length: int) -> bool:
        """True if no difference is found between so many copies made `then`, and the same objects `now`."""
        newest = length - NEWEST
        if not self._in_turn or newest <= IN_TURN:
            return now[:length] == then[:length]
        first = self._next if self._next < newest else 0
        self._next = end = min(first + IN_TURN, newest)
        if now[first:end] != then[first:end]:
            self._in_turn = False
        return self._in_turn and now[newest:length] == then[newest:length]


class GroupCache:
    """One `CallerGroup` for each group of the history; None where only the log knows it so far."""

    def __init__(self, length: int = 0) -> None:
        self.heard: list[CallerGroup | None] = [None] * length
        self._known = 0  # So many groups at the beginning can be compared
        self._flat: list[Any] = []
        self._given: list[Any] = []  # The caller's objects that were equal to `_flat`, from the beginning
        self._check = InPlaceCheck()
        self._starts: list[int] = []
        self.special: set[int] = set()  # Groups that are not sent as the objects the caller has
        self.version = 0  # Counts the times that known groups were changed, not only appended to

    def __len__(self) -> int:
        return len(self.heard)

    def __getitem__(self, at: int) -> CallerGroup:
        heard = self.heard[at]
        assert heard is not None, "asked for what was not heard in this process"
        return heard

    def start(self, at: int) -> int:
        """The begin of this group in the caller's list."""
        return self._starts[at] if at < len(self._starts) else len(self._flat)

    def same(self, messages: list[Any], form: WireFormat, first: int) -> int:
        """The number of unchanged groups at the beginning; the first message is number `first`."""
        if self._is_as_known(messages):
            return self._known
        for at in range(self._known):
            start, end = self._starts[at], self.start(at + 1)
            now = messages[start:end]
            if now == self._flat[start:end]:
                continue
            if len(now) != end - start:
                return at
            looks = match_changed_group(now, self[at], form, first + start)
            if looks is None:
                return at
            self.heard[at] = looks
            self.version += 1
            self._flat[start:end] = looks.seen
            (self.special.discard if looks.own is None else self.special.add)(at)
        return self._known

    def _is_as_known(self, messages: list[Any]) -> bool:
        """True if nothing has changed in the known messages, which others may follow."""
        given, known, old = self._given, len(self._flat), len(self._given)
        given += messages[old:]
        # Lists compare the same objects without a look at them, however long they are.
        if old and known <= len(messages) and given == messages:
            equal = self._check.is_equal(messages, self._flat, old)
            equal = equal and messages[old:known] == self._flat[old:]
        else:
            given = messages.copy()
            equal = messages[:known] == self._flat
        del given[known:]
        self._given = given if equal else []
        return equal

    def append(self, heard: CallerGroup) -> None:
        """The newest group of the history."""
        self.heard.append(heard)
        self._index(len(self.heard) - 1)

    def set(self, at: int, heard: CallerGroup) -> None:
        """Replace a group; `reindex` after the last one."""
        self.heard[at] = heard

    def remove(self, first: int, last: int) -> None:
        """Remove the groups from `first` up to before `last`; `reindex` after the last call."""
        del self.heard[first:last]

    def reindex(self) -> None:
        self._known, self._flat, self._starts, self.special = 0, [], [], set()
        self._given = []
        self.version += 1
        for at, heard in enumerate(self.heard):
            if heard is None:
                break
            self._index(at)

    def _index(self, at: int) -> None:
        heard = self[at]
        self._starts.append(len(self._flat))
        self._flat.extend(heard.seen)
        self._known = at + 1
        if heard.own is not None:
            self.special.add(at)


class RequestWriter:
    """Writes requests of one conversation; what it found out about the view it keeps for the next one."""

    def __init__(self, form: WireFormat) -> None:
        self._form = form
        self._buffer: object = None
        self._length = 0
        self._in_order = True  # The view is the caller's messages, with nothing between them
        self._altered: set[int] = set()
        self._last = _RewrittenMessages()

    def write(
        self, view: View, groups: Sequence[LoggedGroup], known: GroupCache, said: list[Any]
    ) -> WrittenMessages:
        """`said` is what the caller has now, group for group what is known."""
        self._look(view, groups, known)
        if not self._in_order or len(view) != len(groups) or view.pins:
            return self._piece_by_piece(view, groups, known, said)
        last = self._last
        if not last.stands(view.buffer, known.version):
            last = self._last = _RewrittenMessages(view.buffer, known.version)
        for at in range(last.groups, len(groups)):
            if at in self._altered or at in known.special:
                start, end = known.start(at), known.start(at + 1)
                new = self._as_shown(known[at], view[at].message, said[start:end])
                if len(new) != end - start:
                    self._last = _RewrittenMessages()
                    return self._piece_by_piece(view, groups, known, said)
                last.add(start, new)
        last.groups = len(groups)
        return WrittenMessages(last.put_into(said), _GroupEnds(known, len(groups)))

    def _look(self, view: View, groups: Sequence[LoggedGroup], known: GroupCache) -> None:
        """Find what of the view is not as the caller said it. Only what is new is looked at."""
        if view.buffer is not self._buffer or len(view) < self._length:
            self._buffer, self._length = view.buffer, 0
            self._in_order, self._altered = True, set()
        for at in range(self._length, len(view)):
            placed = view[at]
            if at >= len(groups) or groups[at].id != placed.id:
                self._in_order = False
                break
            if not _unchanged(known[at], placed.message):
                self._altered.add(at)
        self._length = len(view)

    def _piece_by_piece(
        self, view: View, groups: Sequence[LoggedGroup], known: GroupCache, said: list[Any]
    ) -> WrittenMessages:
        where = {group.id: at for at, group in enumerate(groups)}
        pins = collect_pins(view)
        out: list[Any] = []
        ends: list[int] = []
        for placed in view:
            at = where.get(placed.id)
            if at is None:
                out += self._form.encode_message(placed.message)
            else:
                own = said[known.start(at) : known.start(at + 1)]
                out += self._as_shown(known[at], placed.message, own)
            ends.append(len(out))
            for payload in pins.get(placed.id, ()):
                out.append({"role": "user", "content": [msgspec.json.decode(payload)]})
        return WrittenMessages(out, ends)

    def _as_shown(self, heard: CallerGroup, shown: Message, said: list[Any]) -> list[Any]:
        messages = said if heard.own is None else copy_value(heard.own)
        if _unchanged(heard, shown):
            return messages
        pairs = _matched(heard.message.content, shown.content)
        if pairs is None:
            return self._form.encode_message(shown)
        out: list[Json] = []
        first = 0
        for message, size in zip(messages, heard.sizes, strict=True):
            before, after = heard.message.content[first : first + size], pairs[first : first + size]
            first += size
            if all(new is old for old, new in zip(before, after, strict=True)):
                out.append(message)
            elif (new := self._form.rewrite_message(message, before, after)) is not None:
                out.append(new)
        return out


class _RewrittenMessages:
    """The messages of the last request that are not the caller's own objects, for the next one."""

    def __init__(self, buffer: object = None, version: int = -1) -> None:
        self._buffer, self._version = buffer, version
        self.groups = 0  # So many groups at the beginning are dealt with
        self._places: list[int] = []  # Their places in the caller's list
        self._messages: list[Any] = []
        self._copies: list[Any] = []  # The same as they were: the caller may change what it was given
        self._check = InPlaceCheck()

    def stands(self, buffer: object, version: int) -> bool:
        """True if they would be written the same now."""
        known = self._buffer is buffer and self._version == version
        return known and self._check.is_equal(self._messages, self._copies, len(self._copies))

    def add(self, first: int, messages: list[Any]) -> None:
        self._places += range(first, first + len(messages))
        self._messages += messages
        self._copies += copy_value(messages)

    def put_into(self, said: list[Any]) -> list[Any]:
        """A list of what the caller has, with these in their places."""
        out = said.copy()
        for at, message in zip(self._places, self._messages, strict=True):
            out[at] = message
        return out


class _GroupEnds(Sequence[int]):
    """The end of each group in the caller's list, looked up when asked."""

    def __init__(self, known: GroupCache, length: int) -> None:
        self._known, self._length = known, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, at: Any) -> Any:
        return self._known.start(at + 1)


def _unchanged(heard: CallerGroup, shown: Message) -> bool:
    """True if the view shows what the caller said; equal messages become one object, for speed."""
    if shown is not heard.message and shown != heard.message:
        return False
    heard.message = shown
    return True


def _matched(before: Sequence[Block], after: Sequence[Block]) -> list[Block | None] | None:
    """The block shown for each block, None for dropped thinking; None if the messages do not match."""
    out: list[Block | None] = []
    rest = iter(after)
    new = next(rest, None)
    for old in before:
        if new is not None and _stands_for(new, old):
            out.append(old if new == old else new)
            new = next(rest, None)
        elif isinstance(old, THOUGHTS):
            out.append(None)
        else:
            return None
    return out if new is None else None


def _stands_for(new: Block, old: Block) -> bool:
    if isinstance(new, ToolResult) and isinstance(old, ToolResult):
        return new.tool_use_id == old.tool_use_id
    return new == old
