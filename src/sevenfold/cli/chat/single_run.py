"""`sevenfold chat -p`: one question, one answer, as text, as one JSON object, or event by event."""

from __future__ import annotations

import os
import re
import select
import signal
import stat
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from textwrap import dedent
from typing import Any, BinaryIO, Final

import anyio
import msgspec

from sevenfold.cli.failures import (
    INTERRUPTED,
    describe_error,
    exit_now,
    find_error_kind,
    find_exit_code,
    report_error,
    watch_signals,
)
from sevenfold.cli.options import ChatOptions, ReplyFormat
from sevenfold.cli.output import (
    CommandChoice,
    CommandMenu,
    CommandReply,
    EventPrinter,
    SendPrompt,
    SideOutput,
    SlowCommand,
    StatusLine,
    is_command,
    print_message,
    write_json,
)
from sevenfold.cli.startup import (
    NoServers,
    describe_unknown_model,
    open_servers,
    open_session,
    read_command_context,
)
from sevenfold.core.errors import ContextFull, Mistake, NoKey, PromptTooLong, SevenfoldError
from sevenfold.core.events import Delta, Event, Notice, Remembered, Surfaced
from sevenfold.core.messages import Block
from sevenfold.core.protocols import Capabilities, Clock, Model
from sevenfold.core.request import Request
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Reply, View
from sevenfold.layers.shared.background import open_task_group
from sevenfold.models.capabilities import find_user_capabilities
from sevenfold.session.session import Session

_CLEAR: Final = r"(?:start (?:afresh|anew)|clear the conversation) with /clear"
MOST_PIPED: Final = 600_000  # Most bytes that may be piped in: a usual window, with room for the answer
PATIENCE: Final = 3.0  # Seconds of waiting for a pipe before a message says so
TICK: Final = 0.25  # Seconds of one wait: a signal that came just before a longer one began would be lost
WAITING: Final = "waiting for what is piped in; '</dev/null' says that there is nothing"


def join_prompt(asked: str | None, given: str | None) -> str | None:
    """The question with the piped text behind it; None without either."""
    asked = asked if asked and asked.strip() else None
    if given is None or not given.strip():
        return asked
    if asked is None:
        return given
    tag = "stdin"
    while f"</{tag}>" in given:  # what is piped in must not be able to end its own block
        tag += "-"
    end = "" if given.endswith("\n") else "\n"
    return f"{asked}\n\n<{tag}>\n{given}{end}</{tag}>"


def read_piped_text(options: ChatOptions) -> str | None:
    """The text on stdin, unless that is a terminal."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return None
    data = _read_stdin(sys.stdin.buffer, options)
    if len(data) > MOST_PIPED:
        raise Mistake(
            f"more than {MOST_PIPED:,} bytes were piped in; save them to a file and ask about the file"
        )
    if b"\0" in data:
        raise Mistake("what was piped in is not text; save it to a file and ask about the file")
    return data.decode("utf-8-sig", "replace")


def _read_stdin(stdin: BinaryIO, options: ChatOptions) -> bytes:
    try:
        fd = stdin.fileno()
        waits = stat.S_ISFIFO(os.fstat(fd).st_mode) and os.name == "posix"
    except OSError:  # a stream in memory
        return stdin.read(MOST_PIPED + 1)
    if not waits:
        return stdin.read(MOST_PIPED + 1)
    data, ticks = bytearray(), 0
    while len(data) <= MOST_PIPED:
        if select.select([fd], [], [], TICK)[0]:
            part = os.read(fd, 65_536)
            if not part:
                break
            data += part
            continue
        ticks += 1
        if ticks == PATIENCE / TICK and not data:
            print_message(options.shared, WAITING)
    return bytes(data)


class ChatResult(msgspec.Struct, frozen=True, kw_only=True):
    """The object that `--output-format json` prints; with `stream-json` the last line, without events."""

    event: str | msgspec.UnsetType = msgspec.UNSET
    session: str | None = None
    result: str = ""
    is_error: bool = False
    stop: str = "failed"
    steps: int = 0
    usage: dict[str, int] = {}
    cost: float | None = None
    cache_hit: float = 0.0
    memories: tuple[str, ...] = ()
    events: list[Any] | msgspec.UnsetType = msgspec.UNSET
    error: str | msgspec.UnsetType = msgspec.UNSET
    reason: str | msgspec.UnsetType = msgspec.UNSET


class RunOutput:
    """Shows a run: events as they happen, on stderr, then the answer; the subclasses say in which form."""

    def __init__(self, show_event: Callable[[Event], None]) -> None:
        self._show_event = show_event

    def __call__(self, event: Event) -> None:
        self._show_event(event)

    def show_answer(self, text: str) -> None:
        """Called when the turn is over; closing may still take a while."""

    def show_command_reply(self, text: str) -> None:
        """Called with the answer of a slash command, which no event has shown."""

    def finish(self, result: ChatResult) -> None:
        """Called last, with the whole result."""

    def show_work(self, what: str) -> AbstractContextManager[None]:
        return nullcontext()


class TextOutput(RunOutput):
    """Prints only the answer, when it is complete."""

    def show_answer(self, text: str) -> None:
        if text:
            print(text, flush=True)

    show_command_reply = show_answer


class JsonOutput(RunOutput):
    """Prints one object. Its events leave out the deltas, as it has the whole reply."""

    def __init__(self, show_event: Callable[[Event], None]) -> None:
        super().__init__(show_event)
        self._events: list[Any] = []

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        if not isinstance(event, Delta):
            self._events.append(event)

    def finish(self, result: ChatResult) -> None:
        write_json(msgspec.structs.replace(result, events=self._events))


class StreamOutput(RunOutput):
    """Prints an event a line, then the result."""

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        write_json(event)

    def finish(self, result: ChatResult) -> None:
        write_json(msgspec.structs.replace(result, event="Result"))


class TerminalOutput(RunOutput):
    """Shows the reply as it is written."""

    def __init__(self, options: ChatOptions, aside: SideOutput) -> None:
        from sevenfold.cli.terminal import Screen, make_console

        out, plain = make_console(options.shared.no_color)
        self._screen = Screen(out, aside, plain=plain, quiet=options.shared.quiet)
        super().__init__(self._screen)

    async def keep_drawing(self) -> None:
        await self._screen.keep_drawing()

    def show_work(self, what: str) -> AbstractContextManager[None]:
        return self._screen.show_work(what)

    def show_command_reply(self, text: str) -> None:
        if text:
            print(text, flush=True)


def make_run_output(options: ChatOptions) -> RunOutput:
    aside = SideOutput(quiet=options.shared.quiet, color=not options.shared.no_color)
    if options.format is ReplyFormat.json:
        return JsonOutput(EventPrinter(aside))
    if options.format is ReplyFormat.stream_json:
        return StreamOutput(EventPrinter(aside))
    return TerminalOutput(options, aside) if sys.stdout.isatty() else TextOutput(EventPrinter(aside))


def find_last_answer(view: View) -> str:
    """The last answer, also when it was cut at its length and continued."""
    parts: list[str] = []
    for placed in reversed(list(view)):
        if placed.message.role == "assistant":
            parts.append(placed.message.text)
        elif placed.by != "turn":
            break
    return "".join(reversed(parts))


async def ask_once(options: ChatOptions, prompt: str, clock: Clock | None = None) -> int:
    run = SingleRun(options, clock)
    error: SevenfoldError | None = None
    try:
        async with watch_signals(run.stop):
            await run.ask(prompt)
    except SevenfoldError as raised:
        error = raised
    error = _adapt_advice(error or run.error)
    answer = run.make_result(error)
    run.output.finish(answer)
    kept = run.session is not None and run.session.path.exists()
    again = f"go on with: sevenfold chat --resume {answer.session}"
    if answer.stop == "interrupted":
        run.aside.say(StatusLine(f"interrupted; {again}" if kept else "interrupted"))
        return INTERRUPTED
    if error is None:
        return int(answer.is_error)
    report_error(error, as_json=False)
    if kept and not isinstance(error, ContextFull | PromptTooLong):
        run.aside.say(StatusLine(f"nothing is lost; {again}"))
    return find_exit_code(error)


def _adapt_advice(error: SevenfoldError | None) -> SevenfoldError | None:
    """The error of a full window without the advice to type /clear, which is for a conversation."""
    if not isinstance(error, ContextFull | PromptTooLong):
        return error
    return type(error)(re.sub(_CLEAR, "start a new session", str(error)))


class UnreachableModel:
    """A model whose key is missing: it can be named and measured, but not asked."""

    def __init__(self, name: str, capabilities: Capabilities, why: Mistake) -> None:
        self.name, self.capabilities, self._why = name, capabilities, why

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        raise self._why
        yield ""  # makes it a generator


_check: type[Model] = UnreachableModel


class CommandSession(Session):
    """A session for one slash command: most commands ask no model, so a missing key is only a notice."""

    def connect(self, name: str) -> Model:
        try:
            return super().connect(name)
        except NoKey as error:
            if self._open:
                raise
            self.emit(Notice(f"{error}; what asks no model works without"))
            name = name.strip().removeprefix("anthropic:")  # the model's own name
            return UnreachableModel(name, find_user_capabilities(name, self.at.access), error)


class SingleRun:
    """One question or slash command, from the opening of its session to the result."""

    def __init__(self, options: ChatOptions, clock: Clock | None = None) -> None:
        self._options, self._clock = options, clock
        self.output = make_run_output(options)
        self.aside = SideOutput(quiet=options.shared.quiet, color=not options.shared.no_color)
        self.session: Session | None = None
        self.error: SevenfoldError | None = None
        self._stop = ""
        self._result = ""
        self._memories: dict[str, None] = {}
        self._scope = anyio.CancelScope()
        self._stops = 0

    async def ask(self, prompt: str) -> None:
        with self._scope:
            async with open_task_group() as tasks, AsyncExitStack() as stack:
                if isinstance(self.output, TerminalOutput):
                    tasks.start_soon(self.output.keep_drawing)
                asked = self._options.prompt or ""
                command = bool(asked.strip()) and is_command(asked)
                around = read_command_context(self._options.shared)
                started = nullcontext(NoServers()) if command else open_servers(around, self._say_progress)
                servers = await stack.enter_async_context(started)
                opening = open_session(
                    self._options,
                    around,
                    clock=self._clock,
                    one_shot=True,
                    kind=CommandSession if command else Session,
                    tools=servers.tools,
                )
                servers.follow(opening)
                self.session = session = await stack.enter_async_context(opening)
                session.subscribe(self.output)
                session.subscribe(self._note_memories)
                if not command and (said := describe_unknown_model(session)):
                    self.aside.say(StatusLine(said))
                await (self._run_command if command else self._take_turn)(session, prompt)

    def _say_progress(self, text: str) -> None:
        self.aside.say(StatusLine(text, "progress"))

    async def _take_turn(self, session: Session, prompt: str) -> None:
        try:
            await self._attach_files(session)
            self._stop = (await session.ask(prompt)).stop
            await self._wait_for_agents(session)
        except SevenfoldError as error:
            self.error = error
        finally:  # also when the wait for agents is cut short: the reply so far is an answer
            self._result = find_last_answer(session.view)
            self.output.show_answer(self._result)

    async def _attach_files(self, session: Session) -> None:
        """Attach the files that the prompt names; what is piped in names none."""
        asked = self._options.prompt or ""
        if not any(sign in asked.lower() for sign in ("@", ".png", ".jp", ".gif", ".webp")):
            return
        from sevenfold.cli.chat.attachments import attach_mentions

        for told in await attach_mentions(session, asked):
            self.aside.say(told)

    async def _wait_for_agents(self, session: Session) -> None:
        """Go on until the agents that the model started have reported: they are part of the answer."""
        while self._stop != "interrupted" and (session.agents.busy or session.company.heard):
            answered, self._stop = self._stop, "interrupted"
            if session.agents.busy:
                names = ", ".join(session.agents.busy)
                self.aside.say(StatusLine(f"waiting for {names}; Ctrl-C stops them", "progress"))
            if not await session.company.news():
                self._stop = answered
                return
            self._stop = (await session.go_on()).stop

    async def _run_command(self, session: Session, line: str) -> None:
        from sevenfold.cli.chat.slash import run_slash_command

        try:
            after = run_slash_command(session, line)
            if isinstance(after, SlowCommand):
                with self.output.show_work(after.what):
                    after = await after.work()
            if isinstance(after, SendPrompt):
                await self._take_turn(session, after.text)
                return
            if not isinstance(after, CommandReply | CommandChoice | CommandMenu):
                raise Mistake(f"{line.split()[0]} is for a conversation at a terminal, not for -p")
        except SevenfoldError as error:
            self.error = error
            return
        self._result = dedent(after.text)
        self._stop = after.how if isinstance(after, CommandReply) else "command"
        self.output.show_command_reply(self._result)

    def _note_memories(self, event: Event) -> None:
        """Keep the names of the memories that were recalled or saved."""
        if isinstance(event, Surfaced):
            self._memories |= dict.fromkeys(event.names)
        elif isinstance(event, Remembered):
            self._memories[event.name] = None

    def stop(self, number: int) -> None:
        """Stop the turn; at the second Ctrl-C stop everything; at the third leave at once."""
        self._stops += number == signal.SIGINT
        running = self.session is not None and self.session.stop()
        if self._stops > 2:
            exit_now()
        if self._stops > 1 or not running:
            self._scope.cancel()

    def make_result(self, error: SevenfoldError | None) -> ChatResult:
        usage, steps, cost = Usage(), 0, None
        if self.session is not None and hasattr(self.session, "ledger"):
            ledger = self.session.ledger
            usage, steps = ledger.total.usage, ledger.total.requests
            known = [line.cost for line in ledger.lines if line.cost is not None]
            cost = sum(known) if known else None
        stop = self._stop or ("failed" if error else "interrupted")
        return ChatResult(
            session=self.session.id if self.session else None,
            result=self._result,
            is_error=error is not None or stop in ("interrupted", "declined"),
            stop=stop,
            steps=steps,
            usage=msgspec.structs.asdict(usage),
            cost=cost,
            cache_hit=round(usage.hit_rate, 4),
            memories=tuple(self._memories),
            error=find_error_kind(error) if error else msgspec.UNSET,
            reason=describe_error(error) if error else msgspec.UNSET,
        )
