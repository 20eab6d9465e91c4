"""One question, one answer, for pipes and programs: as text, as one JSON object, or event by event."""

from __future__ import annotations

import re
import signal
import sys
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from textwrap import dedent
from typing import Any, Final, Protocol

import anyio
import msgspec

from sevenfold.cli.failures import (
    INTERRUPTED,
    describe_error,
    find_error_kind,
    find_exit_code,
    report_error,
)
from sevenfold.cli.input import exit_now, watch_signals
from sevenfold.cli.options import ChatOptions, ReplyFormat
from sevenfold.cli.output import (
    CommandChoice,
    CommandReply,
    EventPrinter,
    SideOutput,
    SlowCommand,
    StatusLine,
    write_json,
)
from sevenfold.cli.startup import describe_unknown_model, open_session
from sevenfold.core.errors import ContextFull, Mistake, PromptTooLong, SevenfoldError
from sevenfold.core.events import Delta, Event, Remembered, Surfaced
from sevenfold.core.protocols import Clock
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import View
from sevenfold.layers.shared.background import open_task_group
from sevenfold.session.session import Session

_CLEAR: Final = r"(?:start (?:afresh|anew)|clear the conversation) with /clear"


class ChatResult(msgspec.Struct, frozen=True, kw_only=True):
    """What `--output-format json` prints; of `stream-json` it is the last line, without the events."""

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


class RunOutput(Protocol):
    """A way to show a run: what happens as it happens, then the answer."""

    def __call__(self, event: Event) -> None: ...
    def answered(self, text: str) -> None:
        """The turn is over; closing may still take a while."""

    def told(self, text: str) -> None:
        """What a command says, which is no reply and was shown nowhere yet."""

    def finish(self, answer: ChatResult) -> None: ...


class TextOutput:
    """Only the answer, when it is complete."""

    def __init__(self, telling: EventPrinter) -> None:
        self._tell = telling

    def __call__(self, event: Event) -> None:
        self._tell(event)

    def answered(self, text: str) -> None:
        if text:
            print(text, flush=True)

    def told(self, text: str) -> None:
        self.answered(text)

    def finish(self, answer: ChatResult) -> None:
        """It has been printed."""


class JsonOutput:
    """One object; the pieces of the reply are left out of its events, as it has the whole."""

    def __init__(self, telling: EventPrinter) -> None:
        self._tell = telling
        self._events: list[Any] = []

    def __call__(self, event: Event) -> None:
        self._tell(event)
        if not isinstance(event, Delta):
            self._events.append(event)

    def answered(self, text: str) -> None:
        """It will be in the object."""

    def told(self, text: str) -> None:
        """It will be in the object."""

    def finish(self, answer: ChatResult) -> None:
        write_json(msgspec.structs.replace(answer, events=self._events))


class StreamOutput:
    """An event a line."""

    def __init__(self, telling: EventPrinter) -> None:
        self._tell = telling

    def __call__(self, event: Event) -> None:
        self._tell(event)
        write_json(event)

    def answered(self, text: str) -> None:
        """It will be in the last line."""

    def told(self, text: str) -> None:
        """It will be in the last line."""

    def finish(self, answer: ChatResult) -> None:
        write_json(msgspec.structs.replace(answer, event="Result"))


class TerminalOutput:
    """At a terminal the reply is shown as it is written."""

    def __init__(self, options: ChatOptions, aside: SideOutput) -> None:
        from sevenfold.cli.terminal import Screen, make_console

        out, plain = make_console(options.shared.no_color)
        self._screen = Screen(out, aside, plain=plain, quiet=options.shared.quiet)

    def __call__(self, event: Event) -> None:
        self._screen(event)

    async def keep_drawing(self) -> None:
        await self._screen.keep_drawing()

    def working(self, what: str) -> AbstractContextManager[None]:
        return self._screen.working(what)

    def answered(self, text: str) -> None:
        """It has been shown."""

    def told(self, text: str) -> None:
        if text:
            print(text, flush=True)

    def finish(self, answer: ChatResult) -> None:
        """It has been shown."""


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
    error = _for_one_question(error or run.error)
    answer = run.answer(error)
    run.shown.finish(answer)
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


def _for_one_question(error: SevenfoldError | None) -> SevenfoldError | None:
    """After a full window going on makes no sense, and there is no /clear here."""
    if not isinstance(error, ContextFull | PromptTooLong):
        return error
    return type(error)(re.sub(_CLEAR, "start a new session", str(error)))


def _is_command(asked: str) -> bool:
    from sevenfold.cli.chat.slash import is_command  # most prompts are none: the commands load a lot

    return is_command(asked)


class SingleRun:
    """One question on its way."""

    def __init__(self, options: ChatOptions, clock: Clock | None = None) -> None:
        self._options, self._clock = options, clock
        self.shown = make_run_output(options)
        self.aside = SideOutput(quiet=options.shared.quiet, color=not options.shared.no_color)
        self.session: Session | None = None
        self.error: SevenfoldError | None = None
        self._how = ""
        self._result = ""
        self._memories: dict[str, None] = {}
        self._scope = anyio.CancelScope()
        self._stops = 0

    async def ask(self, prompt: str) -> None:
        with self._scope:
            async with open_task_group() as tasks, AsyncExitStack() as stack:
                if isinstance(self.shown, TerminalOutput):
                    tasks.start_soon(self.shown.keep_drawing)
                asked = self._options.prompt or ""
                commands = asked.lstrip().startswith("/") and _is_command(asked)
                session = await stack.enter_async_context(
                    open_session(self._options, clock=self._clock, looking=commands)
                )
                self.session = session
                session.subscribe(self.shown)
                session.subscribe(self._note)
                if not commands and (said := describe_unknown_model(session)):
                    self.aside.say(StatusLine(said))
                await (self._command if commands else self._turn)(session, prompt)

    async def _turn(self, session: Session, prompt: str) -> None:
        try:
            self._how = (await session.ask(prompt)).stop
            await self._hear_agents(session)
        except SevenfoldError as error:
            self.error = error
        finally:  # also when the wait for agents is cut short: what was answered is an answer
            self._result = find_last_answer(session.view)
            self.shown.answered(self._result)

    async def _hear_agents(self, session: Session) -> None:
        """One question has one answer, with what the agents found that were sent off for it."""
        while self._how != "interrupted" and (session.agents.busy or session.company.heard):
            answered, self._how = self._how, "interrupted"
            if session.agents.busy:
                names = ", ".join(session.agents.busy)
                self.aside.say(StatusLine(f"waiting for {names}; Ctrl-C stops them", "progress"))
            if not await session.company.news():
                self._how = answered
                return
            self._how = (await session.go_on()).stop

    async def _command(self, session: Session, line: str) -> None:
        from sevenfold.cli.chat.slash import run_slash_command

        try:
            after = run_slash_command(session, line)
            if isinstance(after, SlowCommand):
                with self._working(after.what):
                    after = await after.work()
            if not isinstance(
                after, CommandReply | CommandChoice
            ):  # where nobody can be asked, an offer is told
                raise Mistake(f"{line.split()[0]} is for a conversation at a terminal, not for -p")
        except SevenfoldError as error:
            self.error = error
            return
        self._result = dedent(after.text)
        self._how = after.how if isinstance(after, CommandReply) else "command"
        self.shown.told(self._result)

    def _note(self, event: Event) -> None:
        """Which memories were recalled or saved."""
        if isinstance(event, Surfaced):
            self._memories |= dict.fromkeys(event.names)
        elif isinstance(event, Remembered):
            self._memories[event.name] = None

    def _working(self, what: str) -> AbstractContextManager[None]:
        return self.shown.working(what) if isinstance(self.shown, TerminalOutput) else nullcontext()

    def stop(self, number: int) -> None:
        """First the turn, so that it ends whole; a key pressed again: everything; again: at once."""
        self._stops += number == signal.SIGINT
        running = self.session is not None and self.session.stop()
        if self._stops > 2:
            exit_now()
        if self._stops > 1 or not running:
            self._scope.cancel()

    def answer(self, error: SevenfoldError | None) -> ChatResult:
        usage, steps, cost = Usage(), 0, None
        if self.session is not None and hasattr(self.session, "ledger"):
            ledger = self.session.ledger
            usage, steps = ledger.total.usage, ledger.total.requests
            known = [line.cost for line in ledger.lines if line.cost is not None]
            cost = sum(known) if known else None
        stop = self._how or ("failed" if error else "interrupted")
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
