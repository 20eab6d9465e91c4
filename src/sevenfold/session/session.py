"""A conversation that lasts: its file, its tools, its background work, and one turn after another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace as with_fields
from functools import partial
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.lowlevel
import msgspec
from msgspec.structs import replace

from sevenfold.cache.ledger import Ledger
from sevenfold.cache.prices import Prices
from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Mistake, Refused, StorageFailure
from sevenfold.core.events import Asked, Closed, Ended, Event, EventSource, Failed, Notice, Started
from sevenfold.core.messages import Message, make_context_message, strip_message_characters, user
from sevenfold.core.protocols import Clock, Layers, Model, Tool
from sevenfold.core.request import Frame, Request
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Mark, Reply, View
from sevenfold.hooks.hooks import make_prompt_id
from sevenfold.layers.l3_session_memory.notes_update import NotesUpdater
from sevenfold.layers.l5_durable_memory.extraction import EARLIER, Extraction, LateExtraction
from sevenfold.layers.l5_durable_memory.recall import Recall
from sevenfold.layers.l7_agents.roster import Roster
from sevenfold.layers.ladder import make_standard_layers
from sevenfold.layers.parts import ServerSummaries
from sevenfold.layers.shared.background import BackgroundTasks, ask_idle_layers, open_task_group, watch_idle
from sevenfold.layers.shared.restore import RestoreSource
from sevenfold.models import connect_model
from sevenfold.models.capabilities import is_thinking_dropped
from sevenfold.session.agents import AgentSpawner, SessionAgents
from sevenfold.session.commands import (
    CompactionReport,
    ConversationEditor,
    PastTurn,
    TurnLock,
    run_until_hooks_agree,
)
from sevenfold.session.frame import (
    adapt_frame,
    check_message,
    choose_first_budget,
    describe_surroundings,
    describe_tool_changes,
    make_frame,
    make_news_message,
    make_thresholds,
    plan_model_change,
)
from sevenfold.session.log import CalibrationFile, IdleGapFile, TranscriptFile, make_frame_mark
from sevenfold.session.memory import SessionMemory, SessionTeamSync
from sevenfold.session.project import Project, Toolset
from sevenfold.session.wiring import find_side_model, make_layer_parts, wrap_ledger
from sevenfold.settings.environment import Environment
from sevenfold.settings.schema import Settings
from sevenfold.storage.cleanup import DailyCleanup
from sevenfold.storage.places import ProjectPaths, claim_or_fail, find_session, make_session_id
from sevenfold.storage.waiting_notes import WaitingFolder
from sevenfold.telemetry import Telemetry
from sevenfold.tools.toolbox import AskPermission
from sevenfold.turn import Turn


class Session:
    """The whole loop. `async with Session(...) as session: reply = await session.ask("...")`"""

    def __init__(
        self,
        model: str | Model | None = None,
        project: str | Path = ".",
        *,
        resume: str | None = None,
        tools: Sequence[Tool] = (),
        layers: Callable[[Layers], Layers] | None = None,
        ask: AskPermission | None = None,
        home: str | Path | None = None,
        settings: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        started_by: str = "startup",
        interactive: bool = False,
        one_shot: bool = False,
        restorables: Sequence[RestoreSource] = (),
    ) -> None:
        """`layers`: from the standard layers of the main conversation to those it is to have.

        `interactive`: a person talks to it, and it may learn from what they say. `one_shot`: it is asked
        once and closed, so no notes are taken on it. `restorables`: what the model is given back after a
        compaction, beside files and memory.
        """
        self.events = EventSource()
        self.emit = self.events.emit
        self._chosen, self._resume, self.started_by = model, resume, started_by
        self._cwd = Path(project).resolve()
        self._own_tools, self._own_layers, self._asker = tuple(tools), layers, ask
        self.interactive, self.one_shot, self.restorables = interactive, one_shot, tuple(restorables)
        self._overrides = dict(settings or {})
        self.environment = Environment.read(environ)
        if home:
            self.environment = self.environment.based(Path(home))
        self._learned = CalibrationFile(self.environment.home)
        self.clock = clock or SystemClock()
        self._alone = TurnLock()
        self._ended_because = ""  # The reason that a hook gave for ending the turn, if one has
        self._contexts: list[str] = []
        self._attached: list[Message] = []
        self._connected: list[Model] = []
        self._stack = AsyncExitStack()
        self._open = self._watched = False
        self.ended_by = "exit"

    # --- looking ----------------------------------------------------------------------------------------

    def subscribe(self, subscriber: Callable[[Event], object]) -> Callable[[], None]:
        """Be told everything that happens; returns how to stop being told.

        The first to subscribe is also told what happened before, at the opening for instance.
        """
        return self.events.subscribe(subscriber)

    @property
    def view(self) -> View:
        return self._recording.transcript.view

    @property
    def settings(self) -> Settings:
        return self.at.settings

    @property
    def places(self) -> ProjectPaths:
        return self.at.places

    @property
    def request(self) -> Request:
        return self.turn.request

    @property
    def path(self) -> Path:
        return self._recording.path

    @property
    def folder(self) -> Path:
        """The folder for what is too big for the transcript."""
        return self._recording.path.with_suffix("")

    @property
    def agents(self) -> Roster:
        """The agents that work beside this conversation."""
        return self.company.roster

    @property
    def extraction(self) -> Extraction | None:
        """The layer that learns from this conversation; None where nothing is learned from it."""
        return next((layer for layer in self.turn.layers.rest if isinstance(layer, Extraction)), None)

    # --- opening and closing ----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._tasks = await stack.enter_async_context(open_task_group())
            self.at = Project.open(self._cwd, self.environment, self._overrides, self.emit)
            self._open_model_and_file(stack)
            self._open_tools(stack)
            self._open_turn()
            await self._start()
            self._stack = stack.pop_all()
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._open = False
        seconds = self.settings.extraction.drain_seconds if kind is None else 0.0
        try:
            with anyio.CancelScope(shield=True):
                await self._close(seconds)
        except BaseException as failed:  # the lock and what still runs are let go of even so
            await self._stack.__aexit__(type(failed), failed, failed.__traceback__)
            raise
        return await self._stack.__aexit__(kind, error, trace)

    def _open_model_and_file(self, stack: AsyncExitStack) -> None:
        if self._resume:
            path = find_session(self.at.places, self._resume)
        else:
            path = self.at.places.session_file(make_session_id(self.clock.now()))
        self.id = path.stem
        self._recording = TranscriptFile(path, self.clock, self.emit)
        stack.callback(self._recording.close)
        stored = self._recording.resume(self.clock) if self._resume else None
        chosen = self._chosen or (stored.model if stored else self.at.default_model)
        self._stored_frame = stored
        self.model = self.connect(chosen) if isinstance(chosen, str) else chosen
        self.flags = self.at.flags.as_begun(self.view.marks.get("session"), self.emit)
        self.ledger = Ledger(Prices.load(self.settings.prices), self.clock, self.emit)

    def connect(self, name: str) -> Model:
        """A model of this name, which is closed with the session."""
        access, resumed = self.at.access, None if self._open else self._stored_frame
        if resumed and resumed.model == name:  # its frame is sent as it was, whatever is set by now
            access = replace(access, drop_thinking=is_thinking_dropped(resumed.params))
        model = connect_model(name, access, clock=self.clock)
        self._connected.append(model)
        return model

    @property
    def owns_model(self) -> bool:
        """True if the session connected its model itself; else the caller's own client is asked."""
        return any(model is self.model for model in self._connected)

    def _open_tools(self, stack: AsyncExitStack) -> None:
        self.knowledge = SessionMemory(
            self.at,
            self.id,
            self.view,
            self.clock,
            self.emit,
            lambda path: self.tools.workspace.locate(path),
            lambda: self._recording.transcript.entries,
            team=self.flags.team,
        )
        stack.callback(self.knowledge.close)
        self.spawning = AgentSpawner(self)
        self.company = SessionAgents(self.spawning, self._tasks, interactive=self.interactive)
        self._teamwork = SessionTeamSync(self)
        self.tools = Toolset(
            self.at,
            self.flags,
            self._recording.path,
            self.company.joining(self._own_tools),
            self._asker,
            self.clock,
            self.emit,
            self.stop_because,
            self.knowledge.keeper,
        )
        self.tools.workspace.window = self.ledger.window = self.model.capabilities.window
        stack.push_async_callback(self.tools.workspace.close)

    def _open_turn(self) -> None:
        self.tray = BackgroundTasks(self._tasks, self.emit)
        self.tools.notify(self.events.overhear, self.tray.start, self.interactive)
        self.idle_gaps = IdleGapFile(self.environment.home, self.clock)
        transcript, summaries = self._recording.transcript, ServerSummaries()
        accounts = wrap_ledger(self.ledger, self.emit, transcript, summaries)
        frame = self._make_frame()
        self.parts = make_layer_parts(self, accounts, summaries)
        self.turn = Turn(
            model=self.model,
            frame=frame,
            tools=self.tools.hooked,
            layers=self._make_layers(),
            transcript=transcript,
            background=self.tray,
            accounts=accounts,
            clock=self.clock,
            emit=self.emit,
            thresholds=make_thresholds(self.model, self.settings),
            max_steps=self.settings.max_steps,
            max_tokens=choose_first_budget(self.model, self.settings),
        )
        self.steering = ConversationEditor(self.turn, self.ledger, self._alone, self._recording.sync)
        if self._stored_frame:
            self.ledger.recall(self._stored_frame, transcript)
        if self.settings.telemetry.enabled:
            self.events.overhear(telemetry := Telemetry(self.id))
            self.knowledge.measured = telemetry.record_memory

    def _make_layers(self) -> Layers:
        """The standard layers, and what the caller makes of them."""
        standard = make_standard_layers("main", self.parts)
        if self._own_layers is None:
            return standard
        own = self._own_layers(standard)
        if not isinstance(own, Layers):
            raise Mistake(
                f"Session(layers=...) returned a {type(own).__name__}: it has to return Layers, such as "
                "dataclasses.replace(standard, fit=(*standard.fit, mine))"
            )
        return own

    def _make_frame(self) -> Frame:
        """Resumed: the very frame that was sent before, unless another model was asked for."""
        stored = self._stored_frame
        if stored is None:
            more = self.knowledge.system
            talks = self.interactive
            new = make_frame(self.at, self.model, self.tools.all, self.flags, more, silences=talks)
            if self._resume:  # its record was damaged: what is sent from now on is kept
                self._recording.transcript.add(make_frame_mark(new), by="session")
            return new
        for text in describe_tool_changes(stored, self.tools.all):
            self.emit(Notice(text, "warning"))
        return stored if stored.model == self.model.name else self._hand_over(stored)

    def _hand_over(self, frame: Frame) -> Frame:
        """Write down what the model of now needs to know and must not inherit."""
        changed = adapt_frame(self.model, frame, self.at, self.flags)
        learned = self._learned.of(self.model.name)
        whats = plan_model_change(self.model, changed, self.view, learned)
        self._recording.transcript.add(*whats, by="session")
        return changed

    def _apply_switches(self) -> None:
        """Switches that were changed from afar hold from this turn on: the layers are made anew."""
        if (now := self.flags.by_now(self.view.marks.get("session"))) != self.flags:
            self.flags, self.parts = now, with_fields(self.parts, switches=now)
            self.turn.layers = self._make_layers()
            self._watch()

    def _watch(self) -> None:
        if self.turn.layers.idle and not self._watched:
            self._watched = True
            self._tasks.start_soon(watch_idle, self.turn, self.tray, lambda: self._alone.busy)

    async def _start(self) -> None:
        source = "resume" if self._resume else self.started_by
        self.emit(Started(self.id, self.model.name, source, len(self.view)))
        outcome = await self.tools.hooks.run("SessionStart", {"source": source})
        if outcome.stop:
            raise Refused(f"a hook ended the session: {outcome.reason}")
        self._contexts += outcome.contexts
        here, others = self.at.retention
        self._cleanup = DailyCleanup(self.places.project, self.id, here, others, self.clock, self.emit)
        self.tray.start("clean-up", self._cleanup)
        self.tray.start("memory", self.knowledge.prepare)
        if self.extraction is not None and (left := self.extraction.list_earlier()):
            work = partial(self.extraction.take_up, self.request)
            self.tray.start(EARLIER, work, broken=len(left) - 1)  # it made room in all of them but one
        self._teamwork.start(self._tasks)
        await self.company.start(self.folder, self.view)
        self._watch()

    async def _close(self, drain_seconds: float) -> None:
        self._cleanup.stop()
        for layer in self.turn.layers.attach:
            if isinstance(layer, Recall):  # its result is not needed any more
                layer.stop()
        await self.company.close()
        if drain_seconds:
            self._apply_switches()
            await self.catch_up()
        left = await self.tray.drain(drain_seconds)
        if left:
            names = ", ".join(left)
            self.emit(Notice(f"still running at the end, and stopped: {names}", "warning"))
        self.turn.collect()
        await self._teamwork.close()
        await self.tools.hooks.run("SessionEnd", {"reason": self.ended_by})
        if self._recording.begun:
            self._recording.sync()
            self._learned.keep(self.model.name, self.view.calibration)
            self.idle_gaps.leave()
        await self._close_models()
        self.emit(Closed(self.id, self.ended_by))

    async def _close_models(self) -> None:
        """Close the models that the session connected; a model that was handed in is its owner's."""
        for model in self._connected:
            if close := getattr(model, "close", None):
                await close()

    # --- talking ----------------------------------------------------------------------------------------

    async def ask(self, said: str | Message) -> Reply:
        """One turn. Cancelling it, or `stop()`, leaves the transcript whole."""
        self._alone.check()
        message = user(said) if isinstance(said, str) else strip_message_characters(said)
        if not self._open:
            raise Mistake("the session is not open: use it inside 'async with Session(...)'")
        check_message(message, self.turn.thresholds.block - self.turn.frame.tokens)
        return await self._take_turn(message)

    def attach(self, *messages: Message) -> None:
        """Put these before the user's next words: a file they named, the output of their command."""
        self._attached += messages

    async def go_on(self) -> Reply:
        """A turn without the user's words, because agents have something to say."""
        if not self._open or not self.company.heard:
            raise Mistake("there is nothing to go on with: no agent has said anything new")
        return await self._take_turn(None)

    async def _take_turn(self, message: Message | None) -> Reply:
        began, requests = perf_counter(), len(self.ledger.lines)
        stop, self._ended_because = "failed", ""
        try:
            with self._alone() as scope:
                self._apply_switches()
                if message is not None:
                    await self._submit(message)
                    await self._make_room()
                await self._begin()
                if message is not None:
                    self.emit(Asked(message.text))
                    self._note_words()
                reply = await run_until_hooks_agree(self.turn, message, self.tools.hooks, "Stop", {})
                stop = reply.stop
            if scope.cancelled_caught:
                stop = "interrupted"
                if self._ended_because:
                    raise Refused(f"a hook ended the turn: {self._ended_because}")
                reply = Reply(Message("assistant", ()), stop=stop)
            return reply
        finally:
            self.turn.append("Notices", self.agents.notices.expected(self.view))
            self._recording.sync()
            lines = self.ledger.lines[requests:]
            used = sum((line.usage for line in lines), Usage())
            self.emit(Ended(stop, len(lines), used, perf_counter() - began))

    async def _make_room(self) -> None:
        """A model on the user's own machine does one thing at a time: what can be begun anew makes room.

        Behind a server there may be a provider: what is paid for is not asked for twice.
        """
        if not (self.interactive and self.model.capabilities.one_at_a_time):
            return
        if all(map(self.ledger.prices.is_free, (self.model.name, find_side_model(self)))):
            await self.tray.stop(Extraction.label, LateExtraction.label, EARLIER, NotesUpdater.label)

    def _note_words(self) -> None:
        """Nothing else runs between this note and the user's words in the transcript."""
        try:
            if self.extraction is not None:
                self.extraction.note_words(self.view)
            elif len(self.view):  # what waited before goes on waiting; what is said now never will
                WaitingFolder(self.places.project).switch(self.id, self.view[-1].id, on=False)
        except StorageFailure as error:
            self.emit(Failed(Extraction.label, str(error)))

    async def _submit(self, message: Message) -> None:
        """Hooks see the message before anything else does. Raises `Refused` if one blocks it."""
        hooks = self.tools.hooks
        hooks.prompt_id = make_prompt_id()
        outcome = await hooks.run("UserPromptSubmit", {"prompt": message.text})
        if outcome.block or outcome.stop:
            raise Refused(f"a hook refused the prompt: {outcome.reason}")
        self._contexts += outcome.contexts
        self.idle_gaps.spoke(self.view.replied_at)

    async def _begin(self) -> None:
        """Before anything is sent: the file, what the project says, and where we are."""
        transcript, now = self._recording.transcript, self.clock.now()
        if not self._recording.begun:
            await self._begin_file()
        here = describe_surroundings(now, self.tools.workspace.cwd, self.at.places.tree)
        if news := make_news_message(self.view.marks.get("surroundings", {}), here):
            transcript.add(news, Mark("surroundings", here), by="session")
        for text in self._contexts:
            transcript.add(make_context_message(text), by="hooks")
        self._contexts.clear()
        if self._attached:
            transcript.add(*self._attached, by="session")
            self._attached.clear()

    async def _begin_file(self) -> None:
        places = claim_or_fail(self.at.places)
        self._recording.path = places.session_file(self.id)
        about = {
            "id": self.id,
            "root": str(places.root),
            "model": self.model.name,
            "flags": msgspec.to_builtins(self.flags),
            "interactive": self.interactive and not self.environment.remote,
            "oneShot": self.one_shot,
            "window": self.model.capabilities.window,
        }
        self._recording.begin(about, self.turn.frame, self._learned.of(self.model.name))
        self.knowledge.claim()
        await self._teamwork.ready()
        if opened := self.knowledge.opening():
            self._recording.transcript.add(*opened, by="session")

    def stop(self) -> bool:
        """Stop the turn or the compaction that is running, if one is."""
        return self._alone.stop()

    def stop_because(self, why: str) -> None:
        """A hook wants everything to end: what is running says so when it has."""
        self._ended_because = why
        if not self.stop():
            self.emit(Notice(f"a hook wanted everything to end: {why}", "warning"))

    async def catch_up(self) -> None:
        """Begin now what waits for a silence. A session that ends does so by itself."""
        await anyio.lowlevel.checkpoint()  # what was started with the last turn decides first what waits
        with anyio.move_on_after(self.settings.extraction.drain_seconds):
            await self.tray.stop()  # what made room for a question that was stopped then waits, too
        if len(self.view) and self.settings.extraction.drain_seconds:
            ask_idle_layers(self.turn, self.tray, math.inf)

    # --- changing the conversation ----------------------------------------------------------------------

    async def compact(
        self, instructions: str = "", *, since: int | None = None, up_to: int | None = None
    ) -> CompactionReport:
        """Summarise now: all but the newest round, or from a turn on, or up to a turn."""
        return await self.steering.compact(instructions, since=since, up_to=up_to)

    def rewind(self, number: int) -> PastTurn:
        """Go back to before this turn; the transcript keeps everything."""
        return self.steering.rewind(number)

    def change_tools(self, prefix: str, tools: Sequence[Tool]) -> None:
        """Offer these in place of the caller's tools whose names begin so.

        Tools stand before everything else in the provider's cache: right after a compaction it costs least.
        """
        self.tools.replace_own(prefix, tools)
        kept = (tool for tool in self.turn.frame.tools if not str(tool.get("name")).startswith(prefix))
        frame = replace(self.turn.frame, tools=(*kept, *(tool.schema for tool in tools)))
        if frame == self.turn.frame:
            return
        self.ledger.expect("the tools changed")
        self._recording.transcript.add(make_frame_mark(frame), by="session")
        self.turn.frame = frame

    def use_model(self, name: str) -> None:
        """Go on with another model. The next request says what that costs before it is sent."""
        self._learned.keep(self.model.name, self.view.calibration)
        self.ledger.expect("the model changed")
        self.model = self.turn.model = self.connect(name)
        self.turn.thresholds = make_thresholds(self.model, self.settings)
        self.tools.workspace.window = self.ledger.window = self.model.capabilities.window
        self.turn.max_tokens = choose_first_budget(self.model, self.settings)
        if self._recording.begun:
            self.turn.frame = self._hand_over(self.turn.frame)
        else:
            self.turn.frame = adapt_frame(self.model, self.turn.frame, self.at, self.flags)
