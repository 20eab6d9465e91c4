"""One session is looked through as layer 5 does it, with any model, and what lands in the folder is kept.

The directive, the checks of what a memory rests on, the guard and the store are the library's own; only
the loop around them is written here, so that sessions without tools can be looked through one by one.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from benchmarks.extraction.personas import Session
from sevenfold.core.errors import SevenfoldError
from sevenfold.core.messages import (
    Message,
    Text,
    ToolResult,
    ToolUse,
    assistant,
    make_context_message,
    user,
    write_directive,
)
from sevenfold.core.protocols import Model
from sevenfold.core.request import Frame, Request
from sevenfold.core.transcript import Reply, Transcript
from sevenfold.layers.l5_durable_memory.extraction import (
    format_extraction_request,
    make_extraction_question,
)
from sevenfold.layers.l5_durable_memory.extraction_tools import MemoryWriter
from sevenfold.layers.l5_durable_memory.prompt import format_memory_prompt
from sevenfold.layers.l5_durable_memory.provenance import SourceMessages, UnfitMemory
from sevenfold.layers.shared.side_work import make_lean_messages, make_lean_request
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.similarity import extract_statement
from sevenfold.memory.store import MemoryStore
from sevenfold.tools.file_tools import EDIT_SCHEMA, WRITE_SCHEMA
from sevenfold.tools.file_tools import SCHEMA as READ_SCHEMA

STEPS: Final = 5
NEWEST: Final = 200
ANSWER: Final = 4_000
KIND: Final = "extract"


class Saved(msgspec.Struct, frozen=True):
    """A memory that a session left: its type, what it states, and the words it rests on."""

    type: str
    text: str
    quote: str


class Looked(msgspec.Struct, frozen=True):
    saved: tuple[Saved, ...]
    refused: tuple[str, ...]
    """Of each write that was not carried out, the kind of the reason."""
    steps: int
    tokens: int = 0
    """Of the first request, by our own estimate."""


class Day:
    """A clock that stands on the day of the session."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


class Learner:
    """One persona's memory folder, which grows from session to session."""

    def __init__(self, model: Model, folder: Path, *, lean: bool = False) -> None:
        """`lean`: it is asked by a request of its own, else by a fork of the conversation."""
        self._model, self._clock, self._lean = model, Day(), lean
        self.store = MemoryStore(FolderBackend(folder / "memory", folder / "state"), self._clock)
        self._system = format_memory_prompt(self.store.path_of(), folder)

    async def look(self, session: Session) -> Looked:
        return await self.look_through(make_log(session), session.name)

    async def look_through(self, log: Transcript, name: str) -> Looked:
        """Look through a conversation of any kind."""
        now = self._clock.at = log.entries[-1].at
        sources = SourceMessages(log.view, log.entries, now)
        writer = MemoryWriter(self.store, sources, name, Path)
        memories = self.store.newest(NEWEST)
        body = format_extraction_request(memories, self.store.path_of(), name, now, 0, STEPS)
        frame = make_frame(self._model.name, self._system)
        whole = make_first_request(frame, log, body, lean=self._lean)
        asked = Transcript.on(whole.view, self._clock.now)
        refused: list[str] = []
        steps = 0
        for _ in range(STEPS):
            reply = await self._reply(replace(whole, view=asked.view, max_tokens=ANSWER))
            steps += 1
            asked.add(reply, by="model")
            uses = reply.message.tool_uses
            if not uses:
                break
            results = tuple(self._called(use, writer, refused) for use in uses)
            asked.add(Message("user", results), by="tools")
        return Looked(tuple(self._left(writer)), tuple(refused), steps, whole.tokens)

    async def _reply(self, request: Request) -> Reply:
        async for part in self._model.stream(request):
            if isinstance(part, Reply):
                return part
        raise SevenfoldError("the model ended without a reply")

    def _called(self, use: ToolUse, writer: MemoryWriter, refused: list[str]) -> ToolResult:
        try:
            if use.name == "Read":
                return ToolResult(use.id, self._read(str(use.input.get("file_path")), writer))
            if use.name == "Write":
                return ToolResult(use.id, writer.write(use.input))
            if use.name == "Edit":
                return ToolResult(use.id, writer.edit(use.input))
        except UnfitMemory as why:
            refused.append(why.kind)
            return ToolResult(use.id, why.why, is_error=True)
        refused.append("tool")
        return ToolResult(use.id, f"{use.name} is not to be used here", is_error=True)

    def _read(self, path: str, writer: MemoryWriter) -> str:
        file = writer.file_of(path)
        writer.was_read(path)
        try:
            text = (self.store.path_of() / file).read_text(encoding="utf-8")
        except OSError:
            raise UnfitMemory("form", f"there is no {file}") from None
        return "\n".join(f"{n}\t{line}" for n, line in enumerate(text.splitlines(), 1))

    def _left(self, writer: MemoryWriter) -> Iterator[Saved]:
        for one in writer.saved.values():
            topic = self.store.get(one.path.relative_to(self.store.path_of()).as_posix())
            quotes = [
                line.lstrip("> ").strip("“”") for line in topic.body.split("\n") if line.startswith(">")
            ]
            yield Saved(topic.type or "untyped", extract_statement(topic), " ".join(quotes))


def make_frame(model: str, system: str) -> Frame:
    """The system prompt and the tools of a conversation."""
    return Frame(model, (system,), (READ_SCHEMA, WRITE_SCHEMA, EDIT_SCHEMA))


def make_first_request(frame: Frame, log: Transcript, body: str, *, lean: bool) -> Request:
    """What a look sends first, with its directive: by a fork of the conversation, or lean."""
    view, now = log.view, log.entries[-1].at
    request = Request(frame, view, max_tokens=ANSWER)
    if lean:
        times = {entry.id: entry.at for entry in log.entries}
        question = make_extraction_question(make_lean_messages(view, view, times), (), STEPS)
        request = make_lean_request(request, question, frame.model, lambda: now)
    asked = Transcript.on(request.view, lambda: now)
    asked.add(user(write_directive(KIND, "x-1", body)), by="fork")
    return replace(request, view=asked.view)


def make_log(session: Session) -> Transcript:
    """The conversation as a transcript, at noon of its day."""
    at = _noon(session.day)
    log = Transcript(lambda: at)
    for message, by in make_messages(session):
        log.add(message if by != "model" else Reply(message), by=by)
    return log


def _noon(day: str) -> float:
    said = datetime.date.fromisoformat(day)
    return datetime.datetime.combine(said, datetime.time(12)).timestamp()


def make_messages(session: Session) -> Iterator[tuple[Message, str]]:
    yield make_context_message(f"Date: {session.day}"), "session"
    for who, text in session.turns:
        if text.strip():
            yield (user(text), "user") if who == "user" else (assistant(Text(text)), "model")
