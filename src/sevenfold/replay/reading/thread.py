"""A conversation that a file tells in order, put together: replies whole, results behind what asked.

Formats that tell one thing after the other hand it to a `Thread`. Tool-use ids are made unique, since
some writers use them again, and every result is put right behind the reply that asked for it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec.structs import replace

from sevenfold.messages import Block, Message, ToolResult, ToolUse
from sevenfold.replay.reading.parsing import moment, unreadable
from sevenfold.storage.recorded import Clearing, Compaction, Recorded, Said, ToolFacts
from sevenfold.tokens import Usage
from sevenfold.transcript import Problem, Reply

Event: TypeAlias = Compaction | Clearing


@dataclass(slots=True)
class _Node:
    uuid: str
    line: int
    at: float
    blocks: list[Block] = field(default_factory=list)
    reply: bool = False
    model: str = ""
    usage: Usage = field(default_factory=Usage)
    meta: bool = False
    event: Event | None = None
    stop: str = ""
    answer: list[Block] = field(default_factory=list)
    """The results of the tools that this asked for, and what stands beside them."""
    answered: tuple[int, float] = (0, 0.0)
    """Line and time of the last of them."""


class Thread:
    """Takes in what was said, in order; `recorded` is what came of it."""

    def __init__(self, format: str) -> None:
        self.format = format
        self.problems: list[Problem] = []
        self.skipped: Counter[str] = Counter()
        self.model = ""
        """Of the replies from here on, where they do not say it themselves."""
        self._nodes: list[_Node] = []
        self._uses: dict[str, tuple[_Node, ToolUse]] = {}
        """The newest use of an id, as the file has it."""
        self._taken: set[str] = set()
        self._facts: dict[str, ToolFacts] = {}
        self._open: _Node | None = None
        self._unread: list[int] = []
        """Lines with a time that nobody can read."""

    # --- what happens -------------------------------------------------------------------------------------

    def said(
        self, blocks: list[Block], line: int, at: float, *, meta: bool = False, uuid: str = ""
    ) -> str:
        """Something that was put before the model; the id under which it can be found again."""
        if not blocks:
            return ""
        self._open = None
        node = self._add(line, at, uuid)
        node.blocks, node.meta = blocks, meta
        return node.uuid

    def wrote(self, block: Block, line: int, at: float, *, model: str = "", uuid: str = "") -> None:
        """A block of the reply that is being written; the first one begins it."""
        node = self._open
        if node is None:
            node = self._open = self._add(line, at, uuid)
            node.reply, node.model = True, model or self.model
        node.at = max(node.at, at)
        if isinstance(block, ToolUse):
            block = self._use(node, block)
        node.blocks.append(block)

    def charged(self, usage: Usage) -> None:
        """What the reply cost that was written last; it is complete now."""
        last = next((node for node in reversed(self._nodes) if node.reply), None)
        if last is not None and not last.usage.total:
            last.usage = usage
        self._open = None

    def stopped(self, why: str) -> None:
        if self._open is not None:
            self._open.stop = why
        self._open = None

    def result(self, result: ToolResult, line: int, at: float) -> None:
        """What a tool gave back."""
        asked = self._uses.get(result.tool_use_id)
        if asked is None:
            why = f"no tool use {result.tool_use_id or 'with this id'}: its result was dropped"
            self.problems.append(Problem(line, why))
            return
        node, use = asked
        if use.id in self._facts:
            why = f"a second result of tool use {result.tool_use_id}: it was dropped"
            self.problems.append(Problem(line, why))
            return
        if node is self._open:
            self._open = None
        node.answer.append(replace(result, tool_use_id=use.id))
        node.answered = line, max(node.answered[1], at)
        self._facts[use.id] = ToolFacts(use.name, line, is_error=result.is_error)

    def beside(self, blocks: list[Block], use_id: str) -> None:
        """What was said in the same message as this result."""
        asked = self._uses.get(use_id)
        if asked is not None:
            asked[0].answer.extend(blocks)

    def happened(self, event: Event, line: int, at: float, uuid: str = "") -> None:
        self._open = None
        self._add(line, at, uuid).event = event

    def known(self, use_id: str) -> str:
        """The id that a tool use has here."""
        return self._uses[use_id][1].id if use_id in self._uses else use_id

    def moment(self, value: object, line: int) -> float:
        """A time of the file; 0 when there is none, or none that can be read."""
        at = moment(value)
        if not at and value not in (None, "", 0):
            self._unread.append(line)
        return at

    def wrong(self, line: int, why: str) -> None:
        self.problems.append(Problem(line, why))

    @property
    def empty(self) -> bool:
        return not self._nodes

    # --- how it is kept -----------------------------------------------------------------------------------

    def _add(self, line: int, at: float, uuid: str) -> _Node:
        node = _Node(uuid or f"{len(self._nodes)}", line, at)
        self._nodes.append(node)
        return node

    def _use(self, node: _Node, use: ToolUse) -> ToolUse:
        id, n = use.id or f"use-{len(self._taken)}", 1
        while id in self._taken:
            n += 1
            id = f"{use.id or 'use'}~{n}"
        self._taken.add(id)
        own = use if id == use.id else replace(use, id=id)
        self._uses[use.id] = node, own
        return own

    def recorded(
        self, *, session: str = "", version: str = "", folder: str = "", branch: str = ""
    ) -> Recorded:
        """The session as a value."""
        entries = self._entries()
        if self._unread:
            self.wrong(self._unread[0], unreadable(len(self._unread)))
        return Recorded(
            self.format,
            session=session,
            version=version,
            folder=folder,
            git_branch=branch,
            entries=tuple(entries),
            tip=entries[-1].uuid if entries else "",
            results=self._facts,
            skipped=dict(self.skipped),
            problems=tuple(sorted(self.problems, key=lambda problem: problem.line)),
        )

    def _entries(self) -> list[Said]:
        out: list[Said] = []
        for node in self._nodes:
            parent = out[-1].uuid if out else None
            out.append(_said(node, parent))
            if node.answer:
                results = [b for b in node.answer if isinstance(b, ToolResult)]
                rest = [b for b in node.answer if not isinstance(b, ToolResult)]
                line, at = node.answered
                message = Message("user", (*results, *rest))
                out.append(Said(f"{node.uuid}+", node.uuid, line, max(at, node.at), message))
        return out


def _said(node: _Node, parent: str | None) -> Said:
    if node.event is not None:
        return Said(node.uuid, parent, node.line, node.at, node.event)
    if not node.reply:
        message = Message("user", tuple(node.blocks))
        return Said(node.uuid, parent, node.line, node.at, message, meta=node.meta)
    message = Message("assistant", tuple(node.blocks))
    stop = node.stop or ("tool_use" if message.tool_uses else "end_turn")
    reply = Reply(message, node.usage, stop, model=node.model)
    return Said(node.uuid, parent, node.line, node.at, reply, model=node.model)
