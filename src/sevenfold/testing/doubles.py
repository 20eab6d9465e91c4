"""Real implementations of the protocols, for tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio

from sevenfold.core.errors import ScriptError
from sevenfold.core.messages import Block, Message, Text, ToolResult, ToolUse, assistant
from sevenfold.core.protocols import Accounts, Background, Capabilities, Change, Clock, Model, Tools, Work
from sevenfold.core.request import Request, encode_prefix
from sevenfold.core.transcript import Reply

Line: TypeAlias = str | Message | Reply | Exception | Callable[[Request], "str | Message | Reply"]


@dataclass
class ScriptedModel:
    """Answers with its lines in order: a text, a message, a reply, an error to raise, or a function."""

    script: Iterable[Line] = ()
    capabilities: Capabilities = field(default_factory=Capabilities)
    name: str = "scripted"
    pause: float = 0.0
    seen: list[list[bytes]] = field(default_factory=list)
    """The prefix of each request, as `request.prefix` gives it."""
    requests: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lines = iter(self.script)

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        self.seen.append(encode_prefix(request))
        self.requests.append(request)
        reply = self._make_reply(request)
        for block in reply.message.content:
            if isinstance(block, Text):
                for i in range(0, len(block.text), 12):
                    await anyio.sleep(self.pause)
                    yield block.text[i : i + 12]
            await anyio.sleep(self.pause)
            yield block
        yield reply

    def _make_reply(self, request: Request) -> Reply:
        try:
            line = next(self._lines)
        except StopIteration:
            raise ScriptError(f"the script is used up: request {len(self.requests)} has no line") from None
        if isinstance(line, Exception):
            raise line
        if callable(line):
            line = line(request)
        if isinstance(line, str):
            line = assistant(Text(line))
        if isinstance(line, Message):
            line = Reply(line, stop="tool_use" if line.tool_uses else "end_turn", model=self.name)
        return line


@dataclass
class FakeClock:
    """Moves when `time` is set, and when a task sleeps on it."""

    time: float = 1_000_000.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        await anyio.lowlevel.checkpoint()


@dataclass
class FakeTools:
    """Answers by tool name; remembers when each call began and ended."""

    answers: dict[str, str | Callable[[ToolUse], str]] = field(default_factory=dict)
    delays: dict[str, float] = field(default_factory=dict)
    unsafe: frozenset[str] = frozenset({"Write", "Edit", "Bash"})
    log: list[str] = field(default_factory=list)

    def safe(self, use: ToolUse) -> bool:
        return use.name not in self.unsafe

    async def call(self, use: ToolUse) -> ToolResult:
        self.log.append(f"start {use.id}")
        await anyio.sleep(self.delays.get(use.id, 0))
        self.log.append(f"end {use.id}")
        answer = self.answers.get(use.name, "ok")
        return ToolResult(use.id, answer if isinstance(answer, str) else answer(use))


@dataclass
class Postponed:
    """Keeps work until the test runs it; its changes wait to be collected."""

    work: list[tuple[str, Work]] = field(default_factory=list)
    done: list[tuple[str, Sequence[Change]]] = field(default_factory=list)

    def start(self, name: str, work: Work) -> None:
        self.work.append((name, work))

    def collect(self) -> list[tuple[str, Sequence[Change]]]:
        done, self.done = self.done, []
        return done

    async def run(self) -> None:
        work, self.work = self.work, []
        for name, job in work:
            handed = await job()  # awaited first: `collect` may swap the list meanwhile
            self.done.append((name, handed))


class NoAccounts:
    """Counts nothing."""

    def before(self, request: Request) -> None:
        return None

    def after(self, request: Request, reply: Reply) -> float | None:
        return None


_model: type[Model] = ScriptedModel
_clock: type[Clock] = FakeClock
_tools: type[Tools] = FakeTools
_background: type[Background] = Postponed
_accounts: type[Accounts] = NoAccounts
