"""Reads JSON of other tools, damaged or cut off anywhere, and says what is wrong with it.

It repairs single wrong fields and impossible times (clocks that went back), and `RecordedThread` puts a
conversation together: replies whole, results behind the calls.
"""

from __future__ import annotations

import datetime
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from sevenfold.core.messages import Block, Json, Message, ToolResult, ToolUse
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Problem, Reply
from sevenfold.recordings.recorded_session import (
    RecordedChange,
    RecordedCompaction,
    RecordedEvent,
    RecordedSession,
    ToolNote,
)
from sevenfold.storage.files import make_storage_failure
from sevenfold.storage.jsonl import BOM, open_source

LARGEST_DOCUMENT: Final = 512 << 20
"""A file that is one JSON document is read whole, so there is a limit; lines have none together."""
_CHUNK: Final = 1 << 20
_HALVES: Final = re.compile("[\ud800-\udfff]")
_BETWEEN: Final = re.compile(r"[\s,]*")
_TOKENS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.S)
MOST_NESTED: Final = 200  # Levels; what is nested deeper is left out where it cannot be taken apart
_MILLISECONDS: Final = 1e11
"""A number of seconds as large as this would be after the year 5000, so it counts milliseconds."""


def decode_lenient(data: bytes, lost: list[str] | None = None) -> Any:
    """The value of a piece of JSON, half characters repaired; `ValueError` with the reason if it is none.

    With `lost`, single values that cannot be are nothing, and what they were is added to it.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    except RecursionError:
        if lost is None:
            raise ValueError("nested too deeply") from None
        lost.append(f"what is nested over {MOST_NESTED} deep")
        data = drop_deep_nesting(data)
    none = None if lost is None else (lambda name: lost.append(name))
    try:
        return msgspec.json.decode(repair_halves(data, none))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError((str(error) or "not JSON").splitlines()[0]) from None


def repair_halves(data: bytes, parse_constant: Callable[[str], Any] | None = None) -> str:
    """The same JSON with U+FFFD for half characters."""
    found = json.loads(data.decode("utf-8", "replace"), parse_constant=parse_constant)
    return _HALVES.sub("\ufffd", json.dumps(found, ensure_ascii=False))


def drop_deep_nesting(data: bytes | bytearray) -> bytes:
    """The same JSON with nothing in place of what is nested too deeply to be taken apart."""
    parts, kept, start, depth = list[bytes](), 0, 0, 0
    for token in _TOKENS.finditer(data):
        match token[0]:
            case b"{" | b"[":
                depth += 1
                if depth == MOST_NESTED + 1:
                    start = token.start()
            case b"}" | b"]":
                if depth == MOST_NESTED + 1:
                    parts += [bytes(data[kept:start]), b"null"]
                    kept = token.end()
                depth -= 1
    return b"".join((*parts, bytes(data[kept:])))


def parse_object(line: bytes, lost: list[str] | None = None) -> Json:
    """The object on a line; `ValueError` when it is something else. `lost` as for `decode_lenient`."""
    found = decode_lenient(line, lost)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - it is the file that is wrong
    return found


def read_document(source: Path | bytes, problems: list[Problem]) -> bytearray:
    """A whole file, unpacked; what is damaged is left out and said. It is large: do not copy it."""
    held = bytearray()
    for part in _parts(source, problems):
        held += part
        if len(held) > LARGEST_DOCUMENT:
            raise ValueError(f"a JSON document of over {LARGEST_DOCUMENT:,} bytes")
    if held.startswith(BOM):
        del held[: len(BOM)]
    return held


def read_beginning(source: Path | bytes, limit: int = 1 << 16) -> bytes:
    """The first bytes of a file, unpacked, as far as they are whole."""
    held = bytearray()
    for part in _parts(source, [], 1 << 12):
        held += part
        if len(held) >= limit:
            break
    return bytes(held[:limit])


def _parts(source: Path | bytes, problems: list[Problem], size: int = _CHUNK) -> Iterator[bytes]:
    try:
        with open_source(source) as file:
            while part := file.read1(size):
                yield part
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        problems.append(Problem(1, f"the compressed file is damaged: {error}"))
    except OSError as error:
        name = source if isinstance(source, Path) else "the data"
        raise make_storage_failure(error, name, "read") from error


class _MessageHolder(msgspec.Struct):
    messages: list[msgspec.Raw]


def iterate_items(data: bytearray, start: int, problems: list[Problem]) -> Iterator[Any]:
    """The items of a list, or of the `messages` of an object; `start` is where the list begins.

    They come one by one, as far as they can be read.
    """
    try:
        if start:
            raws = msgspec.json.decode(data, type=_MessageHolder).messages
        else:
            raws = msgspec.json.decode(data, type=list[msgspec.Raw])
    except RecursionError:
        problems.append(Problem(1, describe_left_out(f"what is nested over {MOST_NESTED} deep")))
        yield from _salvaged(bytearray(drop_deep_nesting(data[start:])), problems)
        return
    except (msgspec.DecodeError, UnicodeDecodeError):
        yield from _salvaged(data[start:], problems)
        return
    for raw in raws:
        yield decode_lenient(bytes(raw))


def describe_left_out(field: str) -> str:
    return f"{field} is not what it should be: it is left out, the rest of the line is kept"


def _salvaged(data: bytearray, problems: list[Problem]) -> Iterator[Any]:
    """The items before the place where a list is torn or ends."""
    text = data.decode("utf-8", "replace")
    lost: list[str] = []
    scan = json.JSONDecoder(parse_constant=lost.append).raw_decode
    at = text.index("[") + 1
    while match := _BETWEEN.match(text, at):  # always: it may be empty
        at = match.end()
        if text.startswith("]", at):
            return
        try:
            item, at = scan(text, at)
            item = decode_lenient(json.dumps(item).encode("utf-8"))
        except (ValueError, RecursionError):
            problems.append(Problem(text.count("\n", 0, at) + 1, "the list cannot be read from here on"))
            return
        if lost:
            problems.append(Problem(text.count("\n", 0, at) + 1, describe_left_out(lost[0])))
            lost.clear()
        yield item


def parse_time(value: object) -> float:
    """A time in seconds, of an ISO text or a number of seconds or milliseconds; 0 when there is none."""
    if isinstance(value, bool):
        return 0.0
    try:
        if isinstance(value, int | float):
            return value / 1000 if abs(value) >= _MILLISECONDS else float(value)
        if not isinstance(value, str):
            return 0.0
        at = datetime.datetime.fromisoformat(value)
        return (at if at.tzinfo else at.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def describe_unreadable(times: int) -> str:
    return f"{_times(times)} cannot be read: each counts as the one before it"


def get_text(value: object) -> str:
    """A string, or nothing when it is none."""
    return value if isinstance(value, str) else ""


MOST_TOKENS: Final = 100_000_000
"""Of one request: more than any window has, and far below where sums stop being exact."""
MOST_FIELDS: Final = 10  # Dropped of one record; one with more that is wrong is something else
NEEDED: Final = frozenset({"type", "uuid", "message", "id", "what"})  # Without these a record says nothing
_AT: Final = re.compile(r" - at `\$\.([\w.]+)`")


def repair_line(line: bytes, decode: Callable[[bytes], object]) -> tuple[bytes, list[str]]:
    """The line without what is wrong in it, and what that was; `ValueError` when that does not help."""
    dropped: list[str] = []
    while True:
        try:
            decode(line)
        except ValueError as error:
            field, lost = _wrong(str(error)), list[str]()
            if len(dropped) >= MOST_FIELDS:
                raise
            record = parse_object(line, lost)
            if not lost and (field is None or not _drop(record, field)):
                raise
            message = record.get("message") if lost else None
            usage = message.get("usage") if isinstance(message, dict) else None
            if isinstance(usage, dict) and None in usage.values():
                del record["message"]["usage"]  # one count that was no number: it goes as a whole
            line = msgspec.json.encode(record)
            dropped += lost[:1] if lost or field is None else [".".join(field)]
        else:
            return line, dropped


def drop_impossible_usage(recorded: RecordedSession) -> RecordedSession:
    """The session without usage that cannot be: what it says of a request is not known then."""
    problems, entries = list(recorded.problems), list[RecordedEvent]()
    for said in recorded.entries:
        if isinstance(said.what, Reply) and not _is_possible(said.what.usage):
            problems.append(Problem(said.line, "its usage cannot be: it is left out"))
            said = replace(said, what=replace(said.what, usage=Usage()))
        entries.append(said)
    if len(problems) == len(recorded.problems):
        return recorded
    problems.sort(key=lambda problem: problem.line)
    return replace(recorded, entries=tuple(entries), problems=tuple(problems))


def _is_possible(usage: Usage) -> bool:
    return all(0 <= count <= MOST_TOKENS for count in msgspec.structs.astuple(usage))


def _wrong(why: str) -> list[str] | None:
    """The way to the field that a decoder complains of. Usage with one wrong count goes as a whole."""
    found = _AT.search(why)
    if found is None:
        return None
    field = found[1].split(".")
    if "usage" in field:
        field = field[: field.index("usage") + 1]
    return None if len(field) == 1 and field[0] in NEEDED else field


def _drop(record: Json, field: list[str]) -> bool:
    inner: Any = record
    for name in field[:-1]:
        inner = inner.get(name) if isinstance(inner, dict) else None
    return isinstance(inner, dict) and inner.pop(field[-1], None) is not None


FIRST, LAST = 1_420_070_400.0, 4_102_444_800.0
"""The years 2015 to 2100: no session is older, and none can be younger."""
FARTHEST: Final = 400 * 86_400.0  # A time so far from the middle of its session is a mistake
ALWAYS: Final = frozenset({"claude-code"})
"""Formats that date everything; readers of others say themselves which times they could not read."""
JITTER: Final = 3_600.0
"""A message typed while the model works has the time of typing: this much earlier is no mistake."""


def make_times_monotonic(recorded: RecordedSession) -> RecordedSession:
    """The session with times that only go forward; what had to be changed is among its problems."""
    known = [said.at for said in recorded.entries if FIRST <= said.at <= LAST]
    if not known:
        return _without_times(recorded)
    middle = median(known)
    good = [at for at in known if abs(at - middle) <= FARTHEST]
    first = next(at for at in known if at in set(good))
    wrong, back, unread = list[int](), list[int](), list[int]()
    told, entries = {problem.line for problem in recorded.problems}, list[RecordedEvent]()
    before: dict[str, float] = {}
    """The time of each thing said, so that branches are not held against each other."""
    for said in recorded.entries:
        earlier = before.get(said.parent or "", first)
        at = said.at
        if not (FIRST <= at <= LAST and abs(at - middle) <= FARTHEST):
            if at:
                wrong.append(said.line)
            elif said.line not in told:
                unread.append(said.line)
            at = earlier
        elif at < earlier - JITTER:
            back.append(said.line)
        before[said.uuid] = at = max(at, earlier)
        entries.append(said if at == said.at else replace(said, at=at))
    problems = [
        Problem(lines[0], f"{_times(len(lines))} {what}: each counts as the one before it")
        for lines, what in ((wrong, "cannot be"), (back, "before what came earlier"))
        if lines
    ]
    if unread and recorded.format in ALWAYS:
        problems.append(Problem(unread[0], describe_unreadable(len(unread))))
    problems = sorted((*recorded.problems, *problems), key=lambda problem: problem.line)
    return replace(recorded, entries=tuple(entries), problems=tuple(problems))


def _without_times(recorded: RecordedSession) -> RecordedSession:
    """The session with all times 0, so that no idle time is counted."""
    wrong = [said.line for said in recorded.entries if said.at]
    if not wrong:
        return recorded
    problem = Problem(wrong[0], f"{_times(len(wrong))} cannot be: no idle time is counted")
    entries = tuple(replace(said, at=0.0) for said in recorded.entries)
    return replace(recorded, entries=entries, problems=(*recorded.problems, problem))


def _times(number: int) -> str:
    return "1 time" if number == 1 else f"{number:,} times"


@dataclass(slots=True)
class _ThreadNode:
    uuid: str
    line: int
    at: float
    blocks: list[Block] = field(default_factory=list)
    reply: bool = False
    model: str = ""
    usage: Usage = field(default_factory=Usage)
    meta: bool = False
    event: RecordedChange | None = None
    answer: list[Block] = field(default_factory=list)
    """The results of the tools that this asked for, and what stands beside them."""
    answered: tuple[int, float] = (0, 0.0)  # Line and time of the last of them


class RecordedThread:
    """Takes in what was said, in order; `make_session` gives the whole."""

    def __init__(self, format: str) -> None:
        self.format = format
        self.problems: list[Problem] = []
        self.skipped: Counter[str] = Counter()
        self.model = ""  # Of the replies from here on, where they do not say it themselves
        self._nodes: list[_ThreadNode] = []
        self._uses: dict[str, tuple[_ThreadNode, ToolUse]] = {}
        """The newest use of an id, as the file has it."""
        self._taken: set[str] = set()
        self._facts: dict[str, ToolNote] = {}
        self._open: _ThreadNode | None = None
        self._unread: list[int] = []  # Lines with an unreadable time

    # --- what happens -------------------------------------------------------------------------------------

    def add_message(
        self, blocks: list[Block], line: int, at: float, *, meta: bool = False, uuid: str = ""
    ) -> str:
        """Something that was put before the model; the id under which it can be found again."""
        if not blocks:
            return ""
        self._open = None
        node = self._add(line, at, uuid)
        node.blocks, node.meta = blocks, meta
        return node.uuid

    def add_block(self, block: Block, line: int, at: float, *, model: str = "", uuid: str = "") -> None:
        """A block of the reply that is being written; the first one begins it."""
        node = self._open
        if node is None:
            node = self._open = self._add(line, at, uuid)
            node.reply, node.model = True, model or self.model
        node.at = max(node.at, at)
        if isinstance(block, ToolUse):
            block = self._use(node, block)
        node.blocks.append(block)

    def add_usage(self, usage: Usage) -> None:
        """Add the usage of the last reply, which is complete now."""
        last = next((node for node in reversed(self._nodes) if node.reply), None)
        if last is not None and not last.usage.total:
            last.usage = usage
        self._open = None

    def end_reply(self) -> None:
        self._open = None

    def add_result(self, result: ToolResult, line: int, at: float) -> None:
        """Add the result of a tool."""
        asked = self._uses.get(result.tool_use_id)
        if asked is None:
            named = result.tool_use_id or "with this id"
            self.add_problem(line, f"no tool use {named}: its result was dropped")
            return
        node, use = asked
        if use.id in self._facts:
            self.add_problem(line, f"a second result of tool use {result.tool_use_id}: it was dropped")
            return
        if node is self._open:
            self._open = None
        node.answer.append(replace(result, tool_use_id=use.id))
        node.answered = line, max(node.answered[1], at)
        self._facts[use.id] = ToolNote(use.name, line, is_error=result.is_error)

    def add_beside(self, blocks: list[Block], use_id: str) -> None:
        """Add what was said in the same message as this result."""
        asked = self._uses.get(use_id)
        if asked is not None:
            asked[0].answer.extend(blocks)

    def add_change(self, event: RecordedChange, line: int, at: float, uuid: str = "") -> None:
        self._open = None
        self._add(line, at, uuid).event = event

    def add_asked(self, model: str, usage: Usage | None) -> None:
        """Add the model that wrote the last summary, and the usage of asking it."""
        usage = usage if usage is not None and _is_possible(usage) else None
        for node in reversed(self._nodes[-2:]):
            event = node.event
            if isinstance(event, RecordedCompaction) and event.summary and event.summary.content:
                node.event = replace(event, model=model, usage=usage)
                return

    def add_restored(self, message: Message) -> bool:
        """Add a message that the compaction before it gave back; False if there is none."""
        for node in reversed(self._nodes[-2:]):
            if not isinstance(node.event, RecordedCompaction) or node.event.summary is None:
                return False
            if node.event.summary.content:  # else it is the second part of the one before
                node.event = replace(node.event, restored=(*node.event.restored, message))
                return True
        return False

    def resolve_id(self, use_id: str) -> str:
        """The id that a tool use has here."""
        return self._uses[use_id][1].id if use_id in self._uses else use_id

    def read_time(self, value: object, line: int) -> float:
        """A time of the file; 0 when there is none, or none that can be read."""
        at = parse_time(value)
        if not at and value not in (None, "", 0):
            self._unread.append(line)
        return at

    def add_problem(self, line: int, why: str) -> None:
        self.problems.append(Problem(line, why))

    # --- how it is kept -----------------------------------------------------------------------------------

    def _add(self, line: int, at: float, uuid: str) -> _ThreadNode:
        node = _ThreadNode(uuid or f"{len(self._nodes)}", line, at)
        self._nodes.append(node)
        return node

    def _use(self, node: _ThreadNode, use: ToolUse) -> ToolUse:
        id, n = use.id or f"use-{len(self._taken)}", 1
        while id in self._taken:
            n += 1
            id = f"{use.id or 'use'}~{n}"
        self._taken.add(id)
        own = use if id == use.id else replace(use, id=id)
        self._uses[use.id] = node, own
        return own

    def make_session(
        self,
        *,
        session: str = "",
        version: str = "",
        folder: str = "",
        branch: str = "",
        windows: tuple[int, ...] = (),
    ) -> RecordedSession:
        """The session as a value."""
        entries = self._entries()
        if self._unread:
            self.add_problem(self._unread[0], describe_unreadable(len(self._unread)))
        return RecordedSession(
            self.format,
            session=session,
            version=version,
            folder=folder,
            git_branch=branch,
            windows=windows,
            entries=tuple(entries),
            tip=entries[-1].uuid if entries else "",
            results=self._facts,
            skipped=dict(self.skipped),
            problems=tuple(sorted(self.problems, key=lambda problem: problem.line)),
        )

    def _entries(self) -> list[RecordedEvent]:
        out: list[RecordedEvent] = []
        for node in self._nodes:
            parent = out[-1].uuid if out else None
            out.append(_said(node, parent))
            if node.answer:
                results = [b for b in node.answer if isinstance(b, ToolResult)]
                rest = [b for b in node.answer if not isinstance(b, ToolResult)]
                line, at = node.answered
                message = Message("user", (*results, *rest))
                out.append(RecordedEvent(f"{node.uuid}+", node.uuid, line, max(at, node.at), message))
        return out


def _said(node: _ThreadNode, parent: str | None) -> RecordedEvent:
    message = Message("assistant" if node.reply else "user", tuple(node.blocks))
    event = RecordedEvent(node.uuid, parent, node.line, node.at, node.event or message)
    if node.event is not None:
        return event
    if not node.reply:
        return replace(event, meta=node.meta)
    stop = "tool_use" if message.tool_uses else "end_turn"
    return replace(event, what=Reply(message, node.usage, stop, model=node.model), model=node.model)
