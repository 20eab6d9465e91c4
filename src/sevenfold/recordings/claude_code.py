"""Reads the session files of Claude Code (`.jsonl`, also gzipped), and never gives up on one.

Each line is a record that names its parent, so that a file is a tree; the end of the last branch is
where the user was. A line that cannot be understood is a problem to report, by its number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from sevenfold.core.messages import (
    Block,
    Json,
    Message,
    Opaque,
    Role,
    Text,
    ToolResult,
    ToolUse,
    parse_message,
)
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Problem, Reply
from sevenfold.recordings.reader import parse_time, repair_halves
from sevenfold.recordings.recorded_session import (
    RecordedApiError,
    RecordedClearing,
    RecordedCompaction,
    RecordedEvent,
    RecordedSession,
    SessionReader,
    ToolNote,
)
from sevenfold.storage.jsonl import iterate_lines

SYNTHETIC: Final = "<synthetic>"
USUAL_WINDOW: Final = 200_000
LEAST_FULL: Final = 150_000  # Tokens from which the tool compacts by itself in the usual window
CLEARED: Final = "[Old tool result content cleared]"
_PERSISTED: Final = re.compile(r"<persisted-output>.{0,200}?saved to:[ \t]*([^\n]+)", re.DOTALL)


class _CacheWrites(msgspec.Struct):
    ephemeral_1h_input_tokens: int | None = None


class _ClaudeCodeUsage(msgspec.Struct):
    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation: _CacheWrites | None = None


class _ClaudeCodeMessage(msgspec.Struct):
    content: msgspec.Raw = msgspec.Raw(b"null")
    id: str | None = None
    model: str | None = None
    usage: _ClaudeCodeUsage | None = None
    stop_reason: str | None = None


class _PreservedSegment(msgspec.Struct):
    headUuid: str | None = None


class _ClaudeCodeBoundary(msgspec.Struct):
    trigger: str | None = None
    preTokens: int | None = None
    tokensSaved: int | None = None
    compactedToolIds: list[str] = []
    preservedSegment: _PreservedSegment | None = None


class ClaudeCodeRecord(msgspec.Struct):
    """The fields of a line that mean something to us, by their names in the file."""

    type: str = ""
    subtype: str | None = None
    uuid: str | None = None
    parentUuid: str | None = None
    logicalParentUuid: str | None = None
    timestamp: str | None = None
    sessionId: str | None = None
    version: str | None = None
    cwd: str | None = None
    gitBranch: str | None = None
    agentId: str | None = None
    isSidechain: bool | None = None
    isMeta: bool | None = None
    origin: Json | None = None
    isCompactSummary: bool | None = None
    isApiErrorMessage: bool | None = None
    requestId: str | None = None
    message: _ClaudeCodeMessage | None = None
    sourceToolAssistantUUID: str | None = None
    toolUseResult: msgspec.Raw = msgspec.Raw(b"")
    compactMetadata: _ClaudeCodeBoundary | None = None
    microcompactMetadata: _ClaudeCodeBoundary | None = None
    summary: str | None = None
    customTitle: str | None = None
    aiTitle: str | None = None
    leafUuid: str | None = None
    error: Any = None
    retryAttempt: float | None = None

    def forget(self) -> None:
        """Let go of the line that the raw fields would keep in memory."""
        self.toolUseResult = msgspec.Raw(b"")
        if self.message:
            self.message.content = msgspec.Raw(b"null")

    @property
    def kind(self) -> str:
        return f"{self.type}/{self.subtype}" if self.type == "system" else self.type

    @property
    def at(self) -> float:
        return parse_time(self.timestamp)


_decode = msgspec.json.Decoder(ClaudeCodeRecord).decode


def decode_record(line: bytes) -> ClaudeCodeRecord:
    """The record of a line; `ValueError` with the reason when it is none."""
    if not line.isascii():  # what is kept raw in a record is not looked at by the decoder
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            line = line.decode("utf-8", "replace").encode("utf-8")
    try:
        return _decode(line)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    except RecursionError:
        raise ValueError("nested too deeply") from None
    try:  # perhaps only a half character is in the way
        return _decode(repair_halves(line))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ValueError(str(error)) from None


class _AnyObject(msgspec.Struct):
    """Any object."""


_decode_blocks = msgspec.json.Decoder(list[msgspec.Raw]).decode


def read_message(record: ClaudeCodeRecord, role: Role) -> Message:
    """The message of a record; `ValueError` if it has no shape that a message can have."""
    content = bytes(record.message.content) if record.message else b"null"
    try:
        if content[:1] == b"[":
            message = parse_message(role, _decode_blocks(content))
            if any(type(block) is Opaque and not block.raw.startswith("{") for block in message.content):
                msgspec.json.decode(content, type=list[_AnyObject])  # its error says what is there
            return message
        said = msgspec.json.decode(content, type=str | None)
    except msgspec.DecodeError as error:
        raise ValueError(f"the message cannot be read: {error}") from None
    return Message(role, (Text(said),) if said else ())


def read_usage(record: ClaudeCodeRecord) -> Usage:
    found = record.message.usage if record.message else None
    if found is None:
        return Usage()
    hour = found.cache_creation.ephemeral_1h_input_tokens if found.cache_creation else 0
    return Usage(
        input=found.input_tokens or 0,
        cache_write=found.cache_creation_input_tokens or 0,
        cache_read=found.cache_read_input_tokens or 0,
        output=found.output_tokens or 0,
        cache_write_1h=hour or 0,
    )


def read_compaction(record: ClaudeCodeRecord) -> RecordedCompaction:
    facts = record.compactMetadata or _ClaudeCodeBoundary()
    kept = facts.preservedSegment.headUuid if facts.preservedSegment else None
    return RecordedCompaction(facts.trigger or "", facts.preTokens or 0, None, kept or "")


def read_clearing(record: ClaudeCodeRecord) -> RecordedClearing:
    facts = record.microcompactMetadata or _ClaudeCodeBoundary()
    before, saved = facts.preTokens or 0, facts.tokensSaved or 0
    return RecordedClearing(tuple(facts.compactedToolIds), facts.trigger or "", before, saved)


def read_api_error(record: ClaudeCodeRecord, line: int) -> RecordedApiError:
    found = record.error.get("status") if isinstance(record.error, dict) else None
    status, attempt = found if isinstance(found, int) else 0, int(record.retryAttempt or 0)
    return RecordedApiError(line, record.at, status, _innermost(record.error), attempt)


def _innermost(error: object, depth: int = 5) -> str:
    """Errors come wrapped in errors; the innermost one says what happened."""
    if not isinstance(error, dict):
        return error if isinstance(error, str) else ""
    inner = _innermost(error.get("error"), depth - 1) if depth else ""
    return inner or str(error.get("message") or error.get("code") or "")


class _FileNote(msgspec.Struct):
    filePath: str | None = None


class ToolNotes(msgspec.Struct):
    """The tool's own notes beside a result."""

    filePath: str | None = None
    file: _FileNote | None = None
    interrupted: bool | None = None
    agentId: str | None = None
    totalTokens: int | None = None
    persistedOutputPath: str | None = None


_decode_notes = msgspec.json.Decoder(ToolNotes).decode


def read_tool_note(result: ToolResult, tool: str, notes: ToolNotes, line: int) -> ToolNote:
    """The facts about a tool result, from itself and from the notes beside it."""
    text = result.text
    pointer = _PERSISTED.match(text)
    return ToolNote(
        tool,
        line,
        is_error=result.is_error,
        interrupted=bool(notes.interrupted),
        path=notes.filePath or (notes.file.filePath if notes.file else "") or "",
        persisted=notes.persistedOutputPath or (pointer[1].strip() if pointer else ""),
        cleared=text == CLEARED,
        agent=notes.agentId or "",
        agent_tokens=notes.totalTokens or 0,
    )


def read_tool_notes(record: ClaudeCodeRecord) -> ToolNotes:
    """They are an object, a text or a list of blocks, as the tool pleased; only objects say more."""
    raw = bytes(record.toolUseResult)
    if raw[:1] != b"{":
        return ToolNotes()
    try:
        return _decode_notes(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ToolNotes()


@dataclass(slots=True, eq=False)
class _SpokenNode:
    """Something said, while its records are still being put together."""

    uuid: str
    follows: str | None  # The uuid of the record before, as the file has it
    line: int
    last_line: int
    at: float
    record: ClaudeCodeRecord
    blocks: list[Block] = field(default_factory=list)
    role: str = "user"
    event: RecordedCompaction | RecordedClearing | None = None
    usages: list[Usage] = field(default_factory=list)
    stop: str = ""


class RecordChain:
    """One tree of records: the main conversation, or those of sub-agents."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        self.order: list[_SpokenNode] = []
        self.nodes: dict[str, _SpokenNode] = {}  # By the uuid of every record that is a part of them
        self.through: dict[str, str | None] = {}
        """Records that say nothing, and what they follow: the chain goes on through them."""
        self.replies: dict[str, _SpokenNode] = {}
        self.uses: dict[str, list[_SpokenNode]] = {}
        self.answers: dict[str, _SpokenNode] = {}
        self.pending: list[tuple[int, ClaudeCodeRecord, Message, ToolNotes]] = []
        self.facts: dict[str, ToolNote] = {}
        self.continues = ""  # What the first thing follows, when that is not in the file

    def take(self, line: int, record: ClaudeCodeRecord) -> bool:
        """Take in a record; False when it is one that no model ever saw."""
        uuid = record.uuid or ""
        try:
            if record.type == "assistant":
                self._reply(line, record, read_message(record, "assistant"))
            elif record.type == "user" and record.isCompactSummary:
                self._summary(line, record, read_message(record, "user"))
            elif record.type == "user":
                self._from_user(line, record, read_message(record, "user"))
            elif record.subtype == "compact_boundary":
                self._node(line, record).event = read_compaction(record)
            elif record.subtype == "microcompact_boundary":
                self._node(line, record).event = read_clearing(record)
            else:
                self.through[uuid] = record.parentUuid or record.logicalParentUuid
                return False
        except ValueError:
            self.through[uuid] = record.parentUuid  # what follows it must still be found
            raise
        finally:
            record.forget()
        return True

    def _node(self, line: int, record: ClaudeCodeRecord) -> _SpokenNode:
        uuid = record.uuid or ""
        node = _SpokenNode(uuid, record.parentUuid, line, line, record.at, record)
        self.nodes[uuid] = node
        self.order.append(node)
        return node

    def _reply(self, line: int, record: ClaudeCodeRecord, message: Message) -> None:
        id = (record.message.id if record.message else None) or record.uuid or ""
        node = self.replies.get(id)
        if node is None:
            node = self.replies[id] = self._node(line, record)
            node.role = "assistant"
        else:
            node.last_line, node.at = line, record.at or node.at
        self.nodes[record.uuid or ""] = node
        node.usages.append(read_usage(record))
        node.stop = (record.message.stop_reason if record.message else None) or node.stop
        for block in message.content:
            if isinstance(block, ToolResult):
                self.problems.append(Problem(line, "a tool result in a reply: it was dropped"))
            elif block not in node.blocks:
                node.blocks.append(block)
                if isinstance(block, ToolUse):
                    self.uses.setdefault(block.id, []).append(node)

    def _summary(self, line: int, record: ClaudeCodeRecord, message: Message) -> None:
        before = self._find_boundary(record.parentUuid)
        if before is not None:
            self.nodes[record.uuid or ""] = before
        else:  # its boundary was lost
            before = self._node(line, record)
            before.event = RecordedCompaction()
        assert isinstance(before.event, RecordedCompaction)
        before.event = replace(before.event, summary=message)
        before.last_line = line

    def _find_boundary(self, parent: str | None) -> _SpokenNode | None:
        """The boundary that a summary belongs to: attachments and other records may stand between them."""
        named, _ = self._resolve(parent, None)
        last = next((node for node in reversed(self.order) if node.event or node.role == "assistant"), None)
        for node in (named, last):
            if node and isinstance(node.event, RecordedCompaction) and node.event.summary is None:
                return node
        return None

    def _from_user(self, line: int, record: ClaudeCodeRecord, message: Message) -> None:
        if message.tool_uses:
            self.problems.append(Problem(line, "a tool use that no model made: it was dropped"))
            message = Message("user", tuple(b for b in message.content if not isinstance(b, ToolUse)))
        if message.results:
            # Its use may come later in the file.
            self.pending.append((line, record, message, read_tool_notes(record)))
            self.through[record.uuid or ""] = record.parentUuid
        else:
            self._node(line, record).blocks.extend(message.content)

    # --- when all records are in ----------------------------------------------------------------------

    def finish(self, elsewhere: frozenset[str]) -> tuple[RecordedEvent, ...]:
        """Everything said, in the order of the file; `elsewhere` are uuids of other chains."""
        for line, record, message, notes in self.pending:
            self._results(line, record, message, notes)
        self.pending.clear()
        self.order.sort(key=lambda node: node.line)
        return tuple(_said(node, self._parent(i, node, elsewhere)) for i, node in enumerate(self.order))

    def _results(self, line: int, record: ClaudeCodeRecord, message: Message, notes: ToolNotes) -> None:
        """Put results right behind the reply that asked for them."""
        answer: _SpokenNode | None = None
        for result in message.results:
            id = result.tool_use_id
            asked = self._asked(result, record, line)
            if asked is None:
                self.problems.append(Problem(line, f"no tool use {id}: its result was dropped"))
                continue
            if (answer := self.answers.get(asked.uuid)) is None:
                answer = self.answers[asked.uuid] = self._node(max(line, asked.line), record)
                answer.follows = asked.uuid
            if any(isinstance(b, ToolResult) and b.tool_use_id == id for b in answer.blocks):
                self.problems.append(Problem(line, f"a second result of tool use {id}: it was dropped"))
                continue
            answer.blocks.append(result)
            tool = next(b.name for b in asked.blocks if isinstance(b, ToolUse) and b.id == id)
            self.facts[id] = read_tool_note(result, tool, notes, line)
        rest = [block for block in message.content if not isinstance(block, ToolResult)]
        if answer is None and rest:
            answer = self._node(line, record)
        if answer is not None:
            answer.blocks.extend(rest)
            answer.last_line = max(answer.last_line, line)
            self.nodes[record.uuid or ""] = answer

    def _asked(self, result: ToolResult, record: ClaudeCodeRecord, line: int) -> _SpokenNode | None:
        """The reply with this tool use: the one the record names, else the nearest before it."""
        asking = self.uses.get(result.tool_use_id, [])
        for uuid in (record.sourceToolAssistantUUID, record.parentUuid):
            if (named := self.nodes.get(uuid or "")) in asking:
                return named
        earlier = [node for node in asking if node.line < line]
        return (earlier or asking)[-1] if asking else None

    def _parent(self, i: int, node: _SpokenNode, elsewhere: frozenset[str]) -> str | None:
        compacted = isinstance(node.event, RecordedCompaction)
        follows = node.follows or (node.record.logicalParentUuid if compacted else None)
        found, missing = self._resolve(follows, node)
        if found is not None and found.line <= node.line:
            return found.uuid
        if found is None and not compacted and (missing is None or missing in elsewhere):
            return None
        if i == 0:
            self.continues = missing or ""
            return None
        if not compacted:  # there the line before is what is meant anyway
            why = f"{follows}, which it follows, is not before it: taken in order"
            self.problems.append(Problem(node.line, why))
        return self.order[i - 1].uuid

    def _resolve(self, uuid: str | None, node: _SpokenNode | None) -> tuple[_SpokenNode | None, str | None]:
        """The record a uuid leads to, past records without a message; else the missing uuid."""
        passed = set[str]()
        while uuid is not None:
            if (found := self.nodes.get(uuid)) and found is not node:
                return found, None
            if uuid not in self.through or uuid in passed:
                return None, uuid
            passed.add(uuid)
            uuid = self.through[uuid]
        return None, None

    def tip(self) -> str:
        if not self.order:
            return ""
        last = max(self.order, key=lambda node: node.last_line)
        return self.answers.get(last.uuid, last).uuid


def _said(node: _SpokenNode, parent: str | None) -> RecordedEvent:
    record = node.record
    message = Message("assistant" if node.role == "assistant" else "user", tuple(node.blocks))
    event = RecordedEvent(node.uuid, parent, node.line, node.at, node.event or message)
    if node.event is not None:
        return event
    model, failed = (record.message.model if record.message else None) or "", bool(record.isApiErrorMessage)
    if node.role == "user" or model == SYNTHETIC or failed:
        meta = bool(record.isMeta) or (record.origin or {}).get("kind") not in (None, "human")
        return replace(event, meta=meta, made_up=node.role == "assistant", failed=failed)
    stop = node.stop or ("tool_use" if message.tool_uses else "end_turn")
    reply = Reply(message, node.usages[-1], stop, model=model)
    counted = bool(node.stop) or len({usage.output for usage in node.usages}) > 1
    return replace(event, what=reply, request_id=record.requestId or "", model=model, counted=counted)


FORMAT: Final = "claude-code"
Mend: TypeAlias = Callable[[bytes], tuple[bytes, list[str]]]
"""Takes a line that cannot be read: gives one that can, and says what it left out; else `ValueError`."""
_KINDS: Final = frozenset(
    ["user", "assistant", "system", "summary", "progress", "file-history-snapshot", "attachment"]
)


class ClaudeCodeReader:
    """The `SessionReader` of this format."""

    format = FORMAT

    def recognises(self, head: bytes) -> bool:
        for line in head.split(b"\n")[:20]:
            try:
                record = decode_record(line)
            except ValueError:
                continue
            if record.type in _KINDS and (record.sessionId or record.leafUuid or record.uuid):
                return True
        return False

    def read(self, source: Path | bytes) -> RecordedSession:
        return read_session(source)


_fits: type[SessionReader] = ClaudeCodeReader


def read_session(source: Path | bytes, mend: Mend | None = None) -> RecordedSession:
    """A recorded session; what could not be understood is in its `problems`, by line."""
    reading = _ClaudeCodeParse(mend)
    for number, line in iterate_lines(source, reading.problems):
        try:
            reading.take(number, reading.record(number, line))
        except ValueError as error:
            reading.problems.append(Problem(number, str(error)))
    return reading.make_session()


class _ClaudeCodeParse:
    """All records of one file, taken in one by one."""

    def __init__(self, mend: Mend | None = None) -> None:
        self.mend = mend
        self.problems: list[Problem] = []
        self.skipped: Counter[str] = Counter()
        self.api_errors: list[RecordedApiError] = []
        self.titles: dict[str, str] = {}
        self.chosen_title = ""
        self.first = ClaudeCodeRecord()
        self.main, self.sides = RecordChain(self.problems), dict[str, RecordChain]()
        self.seen: set[str] = set()

    def record(self, number: int, line: bytes) -> ClaudeCodeRecord:
        try:
            return decode_record(line)
        except ValueError:
            if self.mend is None:
                raise
            line, told = self.mend(line)
            self.problems += [Problem(number, why) for why in told]
            return decode_record(line)

    def take(self, line: int, record: ClaudeCodeRecord) -> None:
        if record.customTitle or record.aiTitle:
            self.chosen_title = record.customTitle or record.aiTitle or ""
        if record.type == "summary" and record.summary:
            self.titles[record.leafUuid or ""] = record.summary
        if record.uuid is None:
            self.skipped[record.kind or "unknown"] += 1
            return
        if record.uuid in self.seen:
            self.skipped["repeated"] += 1
            return
        self.seen.add(record.uuid)
        if not self.first.uuid:
            self.first = record
        chain = self.main
        if record.isSidechain:
            chain = self.sides.setdefault(record.agentId or "", RecordChain(self.problems))
        if not chain.take(line, record):
            self.skipped[record.kind] += 1
        if record.subtype == "api_error":
            self.api_errors.append(read_api_error(record, line))

    def make_session(self) -> RecordedSession:
        main, agent = self.main, ""
        entries = main.finish(frozenset())
        others = frozenset(self.seen) if entries else frozenset[str]()
        sides = _by_conversation({id: chain.finish(others) for id, chain in self.sides.items()})
        if not entries and len(sides) == 1:  # the file of one sub-agent
            [(agent, entries)], sides = sides.items(), {}
            main = next(chain for chain in self.sides.values() if chain.order)
        # The last title; one given to a leaf of this file goes before those of other sessions.
        here = [title for leaf, title in self.titles.items() if leaf in self.seen]
        titles = here or list(self.titles.values()) or [""]
        return RecordedSession(
            FORMAT,
            session=self.first.sessionId or "",
            version=self.first.version or "",
            folder=self.first.cwd or "",
            git_branch=self.first.gitBranch or "",
            title=self.chosen_title or titles[-1],
            windows=_find_shown_window(entries),
            agent=agent,
            continues=main.continues,
            entries=entries,
            tip=main.tip(),
            sidechains=sides,
            results={**main.facts, **{k: v for c in self.sides.values() for k, v in c.facts.items()}},
            api_errors=tuple(self.api_errors),
            skipped=dict(self.skipped),
            problems=tuple(sorted(self.problems, key=lambda p: p.line)),
        )


def _find_shown_window(entries: Iterable[RecordedEvent]) -> tuple[int, ...]:
    """The usual window if compactions by the tool itself show it; a session with a larger one has none."""
    by_itself = [
        said.what.tokens_before
        for said in entries
        if isinstance(said.what, RecordedCompaction) and said.what.trigger == "auto"
    ]
    return (USUAL_WINDOW,) if any(LEAST_FULL <= tokens <= USUAL_WINDOW for tokens in by_itself) else ()


def _by_conversation(sides: dict[str, tuple[RecordedEvent, ...]]) -> dict[str, tuple[RecordedEvent, ...]]:
    """Sub-agents by id; where the file gives none, by the first thing said."""
    out = {agent: said for agent, said in sides.items() if agent and said}
    roots: dict[str, str] = {}
    for said in sides.get("", ()):
        root = roots[said.uuid] = roots.get(said.parent or "", said.uuid)
        out[root] = (*out.get(root, ()), said)
    return out
