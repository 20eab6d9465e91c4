"""The records of a Claude Code session put together: replies whole, results behind what asked for them.

One reply of the model is several records, one for each block, with the same message id and the usage
repeated; results of parallel tools hang on different ones of them. Here a reply is one thing said and
the results of its tools are one after it, whatever the order of the lines.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from sevenfold.messages import Block, Message, ToolResult, ToolUse
from sevenfold.storage.claude_records import (
    SYNTHETIC,
    Notes,
    Record,
    clearing_of,
    compaction_of,
    facts_of,
    message_of,
    notes_of,
    usage_of,
)
from sevenfold.storage.recorded import Clearing, Compaction, Said, ToolFacts
from sevenfold.tokens import Usage
from sevenfold.transcript import Problem, Reply


@dataclass(slots=True, eq=False)
class _Node:
    """Something said, while its records are still being put together."""

    uuid: str
    follows: str | None
    """The uuid of the record before, as the file has it."""
    line: int
    last_line: int
    at: float
    record: Record
    blocks: list[Block] = field(default_factory=list)
    role: str = "user"
    event: Compaction | Clearing | None = None
    usages: list[Usage] = field(default_factory=list)
    stop: str = ""


class Chain:
    """One tree of records: the main conversation, or those of sub-agents."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        self.order: list[_Node] = []
        self.nodes: dict[str, _Node] = {}
        """By the uuid of every record that is a part of them."""
        self.through: dict[str, str | None] = {}
        """Records that say nothing, and what they follow: the chain goes on through them."""
        self.replies: dict[str, _Node] = {}
        self.uses: dict[str, list[_Node]] = {}
        self.answers: dict[str, _Node] = {}
        self.pending: list[tuple[int, Record, Message, Notes]] = []
        self.facts: dict[str, ToolFacts] = {}
        self.continues = ""
        """What the first thing follows, when that is not in the file."""

    def take(self, line: int, record: Record) -> bool:
        """Take in a record; False when it is one that no model ever saw."""
        uuid = record.uuid or ""
        try:
            if record.type == "assistant":
                self._reply(line, record, message_of(record, "assistant"))
            elif record.type == "user" and record.isCompactSummary:
                self._summary(line, record, message_of(record, "user"))
            elif record.type == "user":
                self._from_user(line, record, message_of(record, "user"))
            elif record.subtype == "compact_boundary":
                self._node(line, record).event = compaction_of(record)
            elif record.subtype == "microcompact_boundary":
                self._node(line, record).event = clearing_of(record)
            else:
                self.through[uuid] = record.parentUuid or record.logicalParentUuid
                return False
        except ValueError:
            self.through[uuid] = record.parentUuid  # what follows it must still be found
            raise
        finally:
            record.forget()
        return True

    def _node(self, line: int, record: Record) -> _Node:
        uuid = record.uuid or ""
        node = _Node(uuid, record.parentUuid, line, line, record.at, record)
        self.nodes[uuid] = node
        self.order.append(node)
        return node

    def _reply(self, line: int, record: Record, message: Message) -> None:
        id = (record.message.id if record.message else None) or record.uuid or ""
        node = self.replies.get(id)
        if node is None:
            node = self.replies[id] = self._node(line, record)
            node.role = "assistant"
        self.nodes[record.uuid or ""] = node
        node.last_line, node.at = line, record.at or node.at
        node.usages.append(usage_of(record))
        node.stop = (record.message.stop_reason if record.message else None) or node.stop
        for block in message.content:
            if isinstance(block, ToolResult):
                self.problems.append(Problem(line, "a tool result in a reply: it was dropped"))
            elif block not in node.blocks:
                node.blocks.append(block)
                if isinstance(block, ToolUse):
                    self.uses.setdefault(block.id, []).append(node)

    def _summary(self, line: int, record: Record, message: Message) -> None:
        before = self.nodes.get(record.parentUuid or "")
        if before and isinstance(before.event, Compaction) and before.event.summary is None:
            self.nodes[record.uuid or ""] = before
        else:  # its boundary was lost
            before = self._node(line, record)
            before.event = Compaction()
        before.event = replace(before.event, summary=message)
        before.last_line = line

    def _from_user(self, line: int, record: Record, message: Message) -> None:
        if message.tool_uses:
            self.problems.append(Problem(line, "a tool use that no model made: it was dropped"))
            kept = tuple(b for b in message.content if not isinstance(b, ToolUse))
            message = Message("user", kept)
        if message.results:
            # Its use may come later in the file.
            self.pending.append((line, record, message, notes_of(record)))
            self.through[record.uuid or ""] = record.parentUuid
        else:
            self._node(line, record).blocks.extend(message.content)

    # --- when all records are in ----------------------------------------------------------------------

    def finish(self, elsewhere: frozenset[str]) -> tuple[Said, ...]:
        """Everything said, in the order of the file; `elsewhere` are uuids of other chains."""
        for line, record, message, notes in self.pending:
            self._results(line, record, message, notes)
        self.pending.clear()
        self.order.sort(key=lambda node: node.line)
        return tuple(
            _said(node, self._parent(i, node, elsewhere)) for i, node in enumerate(self.order)
        )

    def _results(self, line: int, record: Record, message: Message, notes: Notes) -> None:
        """Put results right behind the reply that asked for them."""
        answer: _Node | None = None
        for result in message.results:
            id = result.tool_use_id
            asked = self._asked(result, record, line)
            if asked is None:
                self.problems.append(Problem(line, f"no tool use {id}: its result was dropped"))
                continue
            answer = self._answer(asked, line, record)
            if any(isinstance(b, ToolResult) and b.tool_use_id == id for b in answer.blocks):
                self.problems.append(
                    Problem(line, f"a second result of tool use {id}: it was dropped")
                )
                continue
            answer.blocks.append(result)
            tool = next(b.name for b in asked.blocks if isinstance(b, ToolUse) and b.id == id)
            self.facts[id] = facts_of(result, tool, notes, line)
        rest = [block for block in message.content if not isinstance(block, ToolResult)]
        if answer is None and rest:
            answer = self._node(line, record)
        if answer is not None:
            answer.blocks.extend(rest)
            answer.last_line = max(answer.last_line, line)
            self.nodes[record.uuid or ""] = answer

    def _asked(self, result: ToolResult, record: Record, line: int) -> _Node | None:
        """The reply with this tool use: the one the record names, else the nearest before it."""
        asking = self.uses.get(result.tool_use_id, [])
        for uuid in (record.sourceToolAssistantUUID, record.parentUuid):
            if (named := self.nodes.get(uuid or "")) in asking:
                return named
        earlier = [node for node in asking if node.line < line]
        return (earlier or asking)[-1] if asking else None

    def _answer(self, asked: _Node, line: int, record: Record) -> _Node:
        if (answer := self.answers.get(asked.uuid)) is None:
            answer = self.answers[asked.uuid] = self._node(max(line, asked.line), record)
            answer.follows = asked.uuid
        return answer

    def _parent(self, i: int, node: _Node, elsewhere: frozenset[str]) -> str | None:
        compacted = isinstance(node.event, Compaction)
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
            self.problems.append(
                Problem(node.line, f"{follows}, which it follows, is not before it: taken in order")
            )
        return self.order[i - 1].uuid

    def _resolve(self, uuid: str | None, node: _Node) -> tuple[_Node | None, str | None]:
        """What a uuid stands for, past records that say nothing; else the uuid that is missing."""
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


def _said(node: _Node, parent: str | None) -> Said:
    record = node.record
    if node.event is not None:
        return Said(node.uuid, parent, node.line, node.at, node.event)
    message = Message("assistant" if node.role == "assistant" else "user", tuple(node.blocks))
    model = (record.message.model if record.message else None) or ""
    if node.role == "user" or model == SYNTHETIC or record.isApiErrorMessage:
        return Said(
            node.uuid,
            parent,
            node.line,
            node.at,
            message,
            meta=bool(record.isMeta),
            made_up=node.role == "assistant",
            failed=bool(record.isApiErrorMessage),
        )
    usage = node.usages[-1]
    reply = Reply(message, usage, node.stop or _stop_of(message), model=model)
    counted = bool(node.stop) or len({u.output for u in node.usages}) > 1
    return Said(
        node.uuid,
        parent,
        node.line,
        node.at,
        reply,
        request_id=record.requestId or "",
        model=model,
        counted=counted,
    )


def _stop_of(message: Message) -> str:
    return "tool_use" if message.tool_uses else "end_turn"
