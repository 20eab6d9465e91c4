"""The conversation at a terminal: read a line, take a turn, show it, until the user leaves."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
from msgspec.structs import replace
from prompt_toolkit.formatted_text import ANSI

from sevenfold import __version__
from sevenfold.cli.chat.attachments import (
    attach_mentions,
    is_prefix_command,
    make_mode_message,
    plan_prefix_command,
)
from sevenfold.cli.chat.completion import ChatCompleter
from sevenfold.cli.chat.line_editor import EditorActions, InputHistory, make_answer_editor, make_line_editor
from sevenfold.cli.chat.picker import RowPicker
from sevenfold.cli.chat.slash import find_session_currency, offer_sessions, run_slash_command
from sevenfold.cli.chat.status_line import StatusCommand
from sevenfold.cli.chat.tasks import list_tasks
from sevenfold.cli.commands.sessions import collect_results, format_conversation
from sevenfold.cli.failures import INTERRUPTED, describe_error, exit_now, watch_signals
from sevenfold.cli.input import (
    InterruptCounter,
    KeyListener,
    TrustQuestions,
    TurnSignal,
    ask_choice,
    ask_permission,
    ask_trust,
)
from sevenfold.cli.options import ChatOptions
from sevenfold.cli.output import (
    CommandChoice,
    CommandMenu,
    CommandOutcome,
    CommandReply,
    ExitChat,
    OpenSession,
    SendPrompt,
    SideOutput,
    SlowCommand,
    StatusLine,
    format_count,
    format_money,
    format_percent,
    format_tokens,
    format_work_name,
    is_command,
)
from sevenfold.cli.startup import (
    CommandContext,
    describe_unknown_model,
    open_servers,
    open_session,
    read_command_context,
)
from sevenfold.cli.terminal import Screen, make_console
from sevenfold.cli.themes import THEMES, find_theme
from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import SessionNotFound, SevenfoldError
from sevenfold.core.events import Event, Notice
from sevenfold.core.messages import ToolUse
from sevenfold.core.transcript import Reply
from sevenfold.layers.shared.background import open_task_group
from sevenfold.session.session import Session
from sevenfold.tools.permissions import Mode
from sevenfold.tools.toolbox import PermissionAnswer

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.formatted_text import AnyFormattedText

MODES: Final[dict[Mode, str]] = {  # What the footer says of a mode; Shift-Tab goes through the first three
    "default": "",
    "acceptEdits": "accept edits",
    "plan": "plan: nothing is changed",
    "dontAsk": "never asks, refuses",
    "bypassPermissions": "never asks, allows everything",
}
CYCLE: Final[tuple[Mode, ...]] = ("default", "acceptEdits", "plan")


def format_footer(session: Session, currency: str = "USD") -> str:
    """Model, use of the window, money, cache, background: one line."""
    pressure, ledger = session.turn.pressure(), session.ledger
    total = ledger.total
    parts = [session.model.name, f"{format_percent(pressure.share)} of {format_tokens(pressure.window)}"]
    if mode := MODES[session.tools.permissions.mode]:
        parts.insert(0, mode)
    if any(line.cost is not None for line in ledger.lines):
        parts.append(format_money(total.cost, currency))
    used = total.usage
    if session.model.capabilities.caches_prompts and (used.cache_read or used.cache_write):
        parts.append(f"cache {format_percent(total.usage.hit_rate)}")
    if running := list_tasks(session):
        shown = ", ".join(f"{task.name} ({task.said})" if task.said else task.name for task in running[:3])
        parts.append(f"{format_count(len(running), 'task')} in the background: {shown}")
    return " · ".join(parts)


RECALLED: Final = 2  # Last messages of a resumed conversation that are shown again


class _QuickExit(Exception):
    """The user left with Ctrl-C: do not wait for background work."""


async def run_conversation(options: ChatOptions) -> int:
    return await Chat(options).run()


class Chat:
    """One person at one terminal; sessions follow each other."""

    def __init__(self, options: ChatOptions) -> None:
        shared = options.shared
        self._options = options
        self._context: CommandContext = read_command_context(shared)
        self._loaded = self._context.load_settings(options.settings)
        theme, no_theme = find_theme(self._loaded.settings.theme)
        self._session: Session | None = None
        out, plain = make_console(shared.no_color or self._context.environment.no_color, theme)
        self._theme = THEMES["plain"] if plain else theme
        self._aside = SideOutput(quiet=shared.quiet, color=not shared.no_color, theme=self._theme.name)
        self._screen = Screen(
            out,
            self._aside,
            plain=plain,
            quiet=shared.quiet,
            footer=self._format_footer,
            chat=True,
            theme=theme,
        )
        self._interrupts = InterruptCounter()
        self._key_listener = KeyListener(sys.stdin.fileno(), self._on_escape, self._cycle_mode)
        history, no_history = InputHistory.open(self._context.home)
        self._lines: PromptSession[str] = make_line_editor(
            history,
            self._format_toolbar,
            self._theme,
            EditorActions(self._cycle_mode, self._paste_image),
            ChatCompleter(lambda: self._session),
        )
        self._questions: PromptSession[str] = make_answer_editor(self._format_toolbar, self._theme)
        self._picker: RowPicker | None = None
        self._signal = TurnSignal(self._loaded.settings.notifications)
        self._status: StatusCommand | None = None
        self._mode: Mode | None = None  # The mode that was chosen with Shift-Tab
        self._told_mode: Mode | None = None  # The mode that the model of this session knows of
        self._problems = [text for text in (no_theme, no_history) if text]
        self._draft, self._escaped = "", False
        self._currency, self._closing = "USD", False
        self._ignored_settings: tuple[str, ...] = ()
        self._turn_scope: anyio.CancelScope | None = None

    def _format_footer(self) -> str:
        if self._session is None:
            return ""
        if self._status is not None and self._status.text:
            mode = MODES[self._session.tools.permissions.mode]
            return "\n".join(filter(None, [self._status.text, mode]))
        return format_footer(self._session, self._currency)

    def _format_toolbar(self) -> AnyFormattedText:
        text = self._format_footer()
        return ANSI(text) if "\x1b" in text else text

    def _cycle_mode(self) -> None:
        """Ask, accept edits, plan; a session that began in another mode comes to the first of them."""
        if self._session is None:
            return
        permissions = self._session.tools.permissions
        at = CYCLE.index(permissions.mode) + 1 if permissions.mode in CYCLE else 0
        self._mode = permissions.mode = CYCLE[at % len(CYCLE)]
        if self._status is not None:
            self._status.want()

    async def _paste_image(self) -> str:
        """Save the image of the clipboard; returns the mention of its file."""
        from prompt_toolkit.application import run_in_terminal

        from sevenfold.cli.chat.clipboard import save_clipboard_image

        if self._session is None:
            return ""
        path, why = await anyio.to_thread.run_sync(save_clipboard_image, self._session.folder / "pasted")
        if path is None:
            await run_in_terminal(lambda: self._aside.say(StatusLine(why)))
            return ""
        return f'@"{path}" '

    # --- sessions -----------------------------------------------------------------------------------------

    async def run(self) -> int:
        async with watch_signals(self._on_signal):
            await self._ask_for_trust()
            opening = await self._choose_first()
            last, started_by = self._options, "startup"
            while opening is not None:
                try:
                    session, after = await self._run_session(opening, started_by)
                except SevenfoldError as error:
                    if self._session is None or opening is last:
                        raise
                    self._show_error(error)  # the other session cannot be opened: back to the last
                    opening = last
                    continue
                resume = session.id if session.path.exists() else None
                last = replace(self._options, resume=resume, newest=False, model=session.model.name)
                started_by = "clear"
                opening = self._choose_next(session, after)
        return INTERRUPTED if self._interrupts.leaving else 0

    async def _choose_first(self) -> ChatOptions | None:
        """The session to begin with; `--resume` without an id lets the user pick it."""
        if self._options.resume != "":
            return self._options
        places, now = self._context.find_session_places(), SystemClock().now()
        offer = offer_sessions(places, now)
        if isinstance(offer, CommandReply):
            raise SessionNotFound(offer.text.strip())
        chosen = (await self._pick_row(offer)).removeprefix("/resume ")
        self._options = replace(self._options, resume=chosen or None)
        return self._options if chosen else None

    async def _run_session(self, options: ChatOptions, started_by: str) -> tuple[Session, CommandOutcome]:
        """One session from its opening to its end, and the MCP servers around it."""
        around, ask = self._context, self._ask_permission
        async with open_servers(around, lambda text: self._aside.say(StatusLine(text))) as servers:
            tools = servers.tools
            session = open_session(options, around, ask, started_by, interactive=True, tools=tools)
            servers.follow(session)
            return session, await self._run_opened(session)

    async def _run_opened(self, session: Session) -> CommandOutcome:
        after: CommandOutcome | None = None
        self._closing = False
        try:
            async with session:
                self._session, self._told_mode = session, None
                if self._mode is not None:
                    session.tools.permissions.mode = self._mode
                self._status = StatusCommand(session, plain=self._theme.plain)
                async with open_task_group() as tasks:
                    tasks.start_soon(self._status.keep_fresh)
                    after = await self._talk(session)
                self._closing = True
                self._check_quick_exit()
                await session.catch_up()
                if running := session.tray.running:
                    names = ", ".join(map(format_work_name, running))
                    self._aside.say(StatusLine(f"waiting for {names}; Ctrl-C leaves without it"))
        except SevenfoldError as error:
            if after is None:
                raise
            self._show_error(error)  # it could not be closed as it should: nothing to go back to
        except _QuickExit:
            pass
        assert after is not None
        return after

    def _check_quick_exit(self) -> None:
        if self._interrupts.leaving:
            raise _QuickExit

    def _choose_next(self, session: Session, after: CommandOutcome) -> ChatOptions | None:
        if isinstance(after, OpenSession):
            model = None if after.resume else session.model.name
            return replace(self._options, resume=after.resume, newest=False, model=model)
        if session.path.exists():
            self._aside.say(StatusLine(f"go on with: sevenfold chat --resume {session.id}"))
        return None

    async def _ask_for_trust(self) -> None:
        around = self._context
        root, tree = around.places.root, around.places.tree
        ignored = self._loaded.ignored
        asked, changes = TrustQuestions(around.home), around.trust.list_changes(root, tree)
        known = around.trust.covering(root) is not None
        if around.trusted or not (ignored or known) or asked.has_asked(root, changes):
            return
        asked.add(root, changes)
        self._ignored_settings = ignored
        if await ask_trust(self._questions, root, ignored, tree, changes if known else ()):
            around.trust.add(root, tree)
            self._context = read_command_context(self._options.shared)

    # --- talking ------------------------------------------------------------------------------------------

    async def _talk(self, session: Session) -> CommandOutcome:
        self._greet(session)
        session.subscribe(self._show_event)
        self._show_last_messages(session)
        while not self._interrupts.leaving:
            self._refresh_status()
            line = await self._read_line()
            if line is None:
                return ExitChat()
            if not line.strip():
                if session.company.heard:  # mail of agents or other sessions is waiting
                    await self._take_turn(session, None)
                continue
            if not is_command(line) and not is_prefix_command(line):
                await self._take_turn(session, line)
                continue
            after = await self._run_command(session, line)
            if isinstance(after, SendPrompt):
                await self._take_turn(session, after.text)
                continue
            if not isinstance(after, CommandReply):
                return after
            self._draft = after.draft or self._draft
            print(f"{after.text}\n" if after.text else "", flush=True)
        return ExitChat()

    def _refresh_status(self) -> None:
        if self._status is not None:
            self._status.want()
            if problem := self._status.take_problem():
                self._aside.say(StatusLine(problem, "warning"))

    def _show_event(self, event: Event) -> None:
        """Show an event, but not a second time the settings of the question about trust."""
        said = event.text if isinstance(event, Notice) else ""
        if not (self._ignored_settings and all(text in said for text in self._ignored_settings)):
            self._screen(event)

    async def _run_command(self, session: Session, line: str) -> CommandOutcome:
        try:
            after = plan_prefix_command(session, line) or run_slash_command(session, line)
            while isinstance(after, CommandChoice | CommandMenu):
                if isinstance(after, CommandMenu):
                    chosen = await self._pick_row(after)
                else:
                    chosen = await self._ask_choice(after)
                after = run_slash_command(session, chosen) if chosen else CommandReply("")
            return await self._run_slow_command(after) if isinstance(after, SlowCommand) else after
        except SevenfoldError as error:
            self._show_error(error)
            return CommandReply("")

    async def _ask_choice(self, offer: CommandChoice) -> str:
        """The command that was chosen; empty for none."""
        print(offer.text, flush=True)
        try:
            return await ask_choice(self._questions, offer.question, offer.choices) or ""
        except KeyboardInterrupt:
            return ""

    async def _pick_row(self, menu: CommandMenu) -> str:
        """The command of the row that was picked; empty for none."""
        self._picker = RowPicker(menu, plain=self._theme.plain)
        try:
            return await self._picker.run()
        except KeyboardInterrupt:
            return ""
        finally:
            self._picker = None

    async def _run_slow_command(self, doing: SlowCommand) -> CommandReply:
        """Run a command that takes a while; Ctrl-C and Esc stop it."""
        said = CommandReply("  stopped", "interrupted")
        async with open_task_group() as tasks:
            tasks.start_soon(self._screen.keep_drawing)
            tasks.start_soon(self._key_listener.listen)
            with self._screen.show_work(doing.what), anyio.CancelScope() as self._turn_scope:
                said = await doing.work()
        self._draft = self._key_listener.take_typed()
        return said

    def _greet(self, session: Session) -> None:
        self._currency = find_session_currency(session)
        self._screen.set_currency(self._currency)
        what = f"sevenfold {__version__} · {session.model.name} · {session.places.tree}"
        self._aside.say(StatusLine(f"{what} · /help", "progress"))
        while self._problems:
            self._aside.say(StatusLine(self._problems.pop(0), "warning"))
        if said := describe_unknown_model(session):
            self._aside.say(StatusLine(said))

    def _show_last_messages(self, session: Session) -> None:
        view = list(session.view)
        said = [placed for placed in view if placed.by in ("user", "model")]
        for placed in said[-RECALLED:]:
            if placed.by == "model" and not placed.message.tool_uses:
                self._screen.show_earlier_reply(placed.message.text)
            else:
                print(*format_conversation([placed], collect_results(view)), sep="\n", flush=True)
            print(flush=True)

    async def _read_line(self) -> str | None:
        """The next line; None: leave."""
        draft, self._draft = self._draft, ""
        try:
            return await self._lines.prompt_async("› ", default=draft, handle_sigint=False)
        except EOFError:
            return None
        except KeyboardInterrupt:
            if self._interrupts.count_interrupt():
                return None
            self._aside.say(StatusLine("Ctrl-C again leaves"))
            return ""

    async def _take_turn(self, session: Session, line: str | None) -> None:
        """Take a turn with this line; without one the mail of agents is the input."""
        self._escaped = False
        self._signal.begin()
        self._tell_mode(session)
        for told in await attach_mentions(session, line) if line else ():
            self._screen.say(told)
        async with open_task_group() as tasks:
            tasks.start_soon(self._screen.keep_drawing)
            tasks.start_soon(self._key_listener.listen)
            reply: Reply | None = None
            try:
                with anyio.CancelScope() as self._turn_scope:
                    reply = await (session.go_on() if line is None else session.ask(line))
                if (reply is None or reply.stop == "interrupted") and not self._interrupts.leaving:
                    self._aside.say(StatusLine("stopped; what was complete is kept"))
            except SevenfoldError as error:
                self._show_error(error)
        self._signal.call_user("the turn has ended")
        print(flush=True)
        typed = self._key_listener.take_typed()
        self._draft = (line or "") if self._escaped else typed

    def _tell_mode(self, session: Session) -> None:
        mode = session.tools.permissions.mode
        if message := make_mode_message(mode, self._told_mode):
            session.attach(message)
        self._told_mode = mode

    def _show_error(self, error: SevenfoldError) -> None:
        self._screen.say(StatusLine(describe_error(error), "warning"))

    # --- questions and interruptions ----------------------------------------------------------------------

    async def _ask_permission(self, use: ToolUse, reason: str, rules: tuple[str, ...]) -> PermissionAnswer:
        async with self._key_listener.pause():
            with self._screen.pause_for_question():
                self._signal.call_user(f"it asks about {use.name}")
                try:
                    return await ask_permission(self._questions, use, reason, rules)
                except KeyboardInterrupt:
                    self._interrupt()
                    return False
                finally:
                    self._signal.begin()

    def _on_escape(self) -> None:
        if self._session is not None and self._session.stop():
            self._escaped = True
        elif self._turn_scope is not None:
            self._turn_scope.cancel()

    def _interrupt(self) -> None:
        self._interrupts.count_interrupt()
        if self._session is not None and not self._session.stop() and self._turn_scope is not None:
            self._turn_scope.cancel()  # a hook is still checking the prompt

    def _on_signal(self, number: int) -> None:
        pressed = number == signal.SIGINT
        if pressed and (self._interrupts.leaving or self._closing):
            self._key_listener.restore_terminal()
            exit_now()
        self._interrupts.leaving = self._interrupts.leaving or not pressed
        apps = [one.app for one in (self._lines, self._questions, self._picker) if one is not None]
        prompts = [app for app in apps if app.is_running and not app.is_done]
        # A prompt that is open takes the signal as the key Ctrl-C.
        for prompt in prompts:
            prompt.exit(exception=KeyboardInterrupt())
        if not prompts:
            self._interrupt()
