"""The same layers for someone else's loop: messages in, a request out, the reply back.

    ctx = Context("claude-sonnet-4-5", state="conversations", id="42")
    request = ctx.prepare(messages, system=system, tools=tools)
    response = client.messages.create(**request)
    ctx.record(response)

The caller hands over its whole history every time and owns it. What was there before is recognised by
its content, so nothing has to be told to us: a history that was edited is an edit, not an error.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias

import msgspec

from sevenfold.cache.ledger import Ledger
from sevenfold.cache.prices import Prices
from sevenfold.context.anthropic import AnthropicFormat, add_thread, check_thread_params
from sevenfold.context.follower import AnsweredHistory, MessageFollower
from sevenfold.context.formats import (
    CallerRequest,
    WireFormat,
    WrittenMessages,
    copy_value,
    to_plain_json,
    to_plain_text,
)
from sevenfold.context.history import BY, RequestWriter
from sevenfold.context.loop import (
    CallerTools,
    ContextFiles,
    HostedTurn,
    IdleBackground,
    PrivateEventLoop,
    RestModel,
    check_conversation_id,
    find_measuring_model,
    is_still_too_long,
    make_weak_emit,
    read_refusal,
)
from sevenfold.context.openai import OpenAiFormat
from sevenfold.context.responses import ResponsesFormat, find_server_history
from sevenfold.core.clock import SystemClock, run_without_waiting
from sevenfold.core.errors import Mistake, PromptTooLong
from sevenfold.core.events import Added, Closed, EventSource, Notice, Replied, Started
from sevenfold.core.messages import Json
from sevenfold.core.protocols import Clock, Model, ToolFailed
from sevenfold.core.request import Frame, Request
from sevenfold.core.tokens import Calibration
from sevenfold.core.transcript import Mark, Reply, View, What
from sevenfold.layers.l1_tool_results.preview import WITH_READ_RESULT
from sevenfold.layers.l1_tool_results.read_result import ReadResultTool
from sevenfold.layers.l2_microcompaction.provider import add_context_management, is_wanted
from sevenfold.layers.l7_agents.forks import ForkRunner
from sevenfold.layers.ladder import make_standard_layers
from sevenfold.layers.parts import WITH_FILE_TOOLS, LayerParts, PlainConversation, ServerSummaries
from sevenfold.models.jsontext import NotJson, decode_json_object
from sevenfold.models.threads import ThreadRefused, ThreadStep, ThreadTracker, read_thread_refusal
from sevenfold.session.frame import make_thresholds
from sevenfold.session.spending import CappedForker, SpendingFile
from sevenfold.session.wiring import wrap_ledger
from sevenfold.settings import load_settings
from sevenfold.settings.environment import Environment
from sevenfold.settings.layers import Flags
from sevenfold.settings.schema import Settings
from sevenfold.storage.places import make_session_id
from sevenfold.storage.results import ResultStore
from sevenfold.telemetry import Telemetry
from sevenfold.tools.toolbox import clean_arguments, find_argument_problem

FormatName: TypeAlias = Literal["anthropic", "openai", "responses"]
FORMATS: Final[dict[str, type[WireFormat]]] = {
    "anthropic": AnthropicFormat,
    "openai": OpenAiFormat,
    "responses": ResponsesFormat,
}


class Context(EventSource):
    """One conversation of a caller who asks the model and runs the tools itself.

    Not for several threads at once. `close` it, or use it in a `with` block, to let go of its file.
    """

    def __init__(
        self,
        model: str | Model,
        *,
        state: str | Path | None = None,
        id: str | None = None,
        format: FormatName | WireFormat = "anthropic",
        results: str | Path | Callable[[], Path] | None = None,
        threads: bool = False,
        settings: Mapping[str, Any] | None = None,
        home: str | Path | None = None,
        clock: Clock | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`results` is the folder for whole tool results, if they belong elsewhere than under `state`."""
        super().__init__()
        if isinstance(format, str) and format not in FORMATS:
            raise Mistake(f"there is no format {format!r}: use {' or '.join(map(repr, FORMATS))}")
        self._form = FORMATS[format]() if isinstance(format, str) else format
        if threads and not self._form.is_messages_api:
            raise Mistake("threads are a feature of the Messages API: they need format='anthropic'")
        self._writer = RequestWriter(self._form)
        self.clock = clock or SystemClock()
        self.settings = self._read_settings(settings or {}, home, environ)
        self.model = find_measuring_model(model, self.settings)
        self._asks = RestModel.by(model, str(format), self._at, self.settings, self.clock)
        self.id = check_conversation_id(id) if id is not None else make_session_id(self.clock.now())
        if self.settings.telemetry.enabled:
            self.overhear(Telemetry(self.id))
        self._asked: CallerRequest | None = None
        self._sent: Request | None = None
        self._sent_at = 0.0
        self._given: list[Any] = []
        self._threads = ThreadTracker() if threads else None
        self._step: ThreadStep | None = None
        self._fixed: Any = None
        self._answered: AnsweredHistory | None = None
        self._is_aside = self._is_told_aside = False
        self._refused: PromptTooLong | None = None
        self._unrested = self._told = self._closed = False
        self._loop = PrivateEventLoop()
        self._kept = ContextFiles(state, self.id, self.clock, make_weak_emit(self.emit), results)
        self._transcript = self._kept.transcript
        self._let_go = weakref.finalize(self, self._kept.close)
        self._open_turn(self._kept.frame)
        source = "resume" if self._transcript.entries else "startup"
        self.emit(Started(self.id, self.model.name, source, len(self.view)))

    # --- opening and closing ----------------------------------------------------------------------------

    def _read_settings(
        self, given: Mapping[str, Any], home: str | Path | None, environ: Mapping[str, str] | None
    ) -> Settings:
        """The settings of the user and the machine; a `Context` has no project."""
        environment = Environment.read(environ)
        if home:
            environment = environment.based(Path(home))
        self._at, self._home = environment, environment.home
        loaded = load_settings(environment.home, environment, given)
        for text in loaded.warnings:
            self.emit(Notice(text, "warning"))
        return loaded.settings

    def _open_turn(self, stored: Frame | None) -> None:
        latched = Flags.latch(self.settings.flags, emit=self.emit)
        session = self.view.marks.get("session")
        self.flags, self._begun = (latched.as_begun(session, self.emit), latched.all_as_begun(session))
        self.ledger = Ledger(Prices.load(self.settings.prices), self.clock, self.emit)
        self.ledger.window = self.model.capabilities.window
        self.store = ResultStore(self._kept.results)
        self._accounts = wrap_ledger(self.ledger, self.emit, self._transcript, ServerSummaries())
        thresholds = make_thresholds(self.model, self.settings)
        self._conversation = PlainConversation(
            self.model, thresholds=thresholds, transcript_path=self._kept.path
        )
        self._turn = HostedTurn(
            model=self.model,
            frame=stored or Frame(self.model.name),
            tools=CallerTools(),
            layers=make_standard_layers("main", self._make_parts()),
            transcript=self._transcript,
            background=IdleBackground(),
            accounts=self._accounts,
            clock=self.clock,
            emit=self.emit,
            thresholds=thresholds,
            max_tokens=self.settings.max_output_tokens,
        )
        self._following = MessageFollower(
            self._transcript, self._form, self._turn.take_in, self._caller_changed
        )
        if stored:
            self.ledger.recall(stored, self._transcript)
            if stored.model != self.model.name:  # it counts tokens in a way of its own
                self._transcript.add(Mark("calibration", msgspec.to_builtins(Calibration())), by=BY)

    def _make_parts(self) -> LayerParts:
        """A model that can be reached is asked only while the caller rests."""
        forks, background = self._make_forks()
        parts = LayerParts(
            conversation=self._conversation,
            settings=self.settings,
            switches=self.flags,
            emit=self.emit,
            clock=self.clock,
            prices=self.ledger.prices,
            expect=self.ledger.expect,
            results=self.store,
            home=self._home,
            fork=forks,
            background_fork=background,
            can_wait=False,
            cached_until=self.ledger.warmth.until,
        )
        if forks is not None:
            forks.layers = make_standard_layers("fork", parts)
        return parts

    def _make_forks(self) -> tuple[ForkRunner | None, CappedForker | None]:
        if self._asks.model is None:
            return None, None
        asked = PlainConversation(self._asks.model, thresholds=self._conversation.thresholds)
        forks = ForkRunner(asked, self._accounts, self.clock, self.emit)
        spending = SpendingFile(self._home, self.settings.daily_background_limit, self.clock)
        return forks, CappedForker(forks, self.ledger.prices, spending, self.emit)

    def close(self) -> None:
        """Close the file, or delete the temporary folder."""
        if self._closed:
            return
        self._closed = True
        self._kept.sync()
        self._loop.close(self.model)
        self._let_go()
        self.emit(Closed(self.id, "exit"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- the caller's loop ------------------------------------------------------------------------------

    def prepare(
        self,
        messages: Sequence[Any],
        *,
        after: str | None = None,
        system: Any = None,
        tools: Any = None,
        **params: Any,
    ) -> Json:
        """The request to send for these messages: pass it to the SDK's call as `**request`.

        `messages` is the whole conversation, as the caller has it; with `after`, the id of the response
        that was recorded last, only what came since. It is not changed, and what no layer touches goes out
        as the caller wrote it. All `params` are passed on.
        """
        self._check_open()
        given = self._complete(messages, after)
        lead = self._form.count_leading(given)
        asked = self._read_request(given[:lead], system, tools, params)
        if self._form.is_messages_api:
            check_thread_params(params)
        if isinstance(self._form, ResponsesFormat) and find_server_history(params):
            return self._step_aside(self._form.pass_request(asked, given), params)
        self._given, self._is_aside = list(given), False
        said = given[lead:] if lead else given
        news = self._following.hear(said, lead)
        self._reframe(asked)
        self._unrested = self._unrested or bool(news.rest)
        self._following.follow(news)
        self._turn.attach()
        self._fit()
        self._sent = request = self._turn.request
        self._accounts.before(request)
        following = self._following
        following.catch_up()
        written = self._writer.write(request.view, following.history.groups, following.known, said)
        self._sent_at = perf_counter()
        out = self._form.make_request(asked, request, written, self.model.capabilities.max_output)
        return self._add_thread(out, request, written)

    def record(self, response: Any) -> None:
        """Take in what the model answered: an SDK's response, the same as a dict, or a `Reply`."""
        self._check_open()
        if self._is_aside:
            return
        if self._sent is None:
            raise Mistake("nothing was asked yet: record() takes the response to what prepare() made")
        took = perf_counter() - self._sent_at
        reply = response if isinstance(response, Reply) else self._read_reply(response)
        self._answered = AnsweredHistory.of(self._given, reply, response, self._form)
        self._following.record(reply)
        if self._threads and self._step:
            self._threads.record(self._sent, reply, self._fixed)
        self._unrested = True
        cost = self._accounts.after(self._sent, reply)
        source = self._sent.source
        self.emit(Replied(reply.message, reply.usage, reply.stop, took, cost, reply.model, source))

    def refused(self, error: BaseException) -> bool:
        """Say that the provider refused what `prepare` made, with what your client raised.

        True: it was too long, and the next `prepare` makes it shorter, or the provider does not hold its
        thread any more, and the next `prepare` sends all of it. False: it was about something else.
        """
        self._check_open()
        if self._is_aside:
            return False
        if self._sent is None:
            raise Mistake("nothing was asked yet: refused() is about what prepare() made")
        if self._threads and self._step and (thread := read_thread_refusal(error)):
            with suppress(ThreadRefused):
                self._threads.recover(self._sent.source, self._step, thread)
                return True
        self._refused = read_refusal(error, self._sent.frame.model)
        return self._refused is not None

    def _complete(self, messages: Sequence[Any], after: str | None) -> list[Any]:
        """The whole conversation, of which only the end was given where `after` says so."""
        if isinstance(messages, str) and isinstance(self._form, ResponsesFormat):
            messages = [{"role": "user", "content": to_plain_text(messages)}]
        given = messages if isinstance(messages, list) else list(messages)  # a long list is not copied
        if after is not None:
            if self._answered is None or self._answered.id != after:
                raise Mistake(
                    f"no history is known up to the response {after!r}: give the whole conversation. "
                    "after= takes the id of the response that record() was given last"
                )
            given = [*self._answered.messages, *given]
        if not given:
            raise Mistake("there are no messages: the model needs at least one to answer")
        return given

    def _add_thread(self, out: Json, request: Request, written: WrittenMessages) -> Json:
        if self._threads is None:
            return out
        self._fixed = out.get("betas"), out.get("extra_headers")
        self._step = self._threads.plan(request, self._fixed)
        return add_thread(out, self._step, written.ends) if self._step else out

    def _step_aside(self, request: Json, params: Json) -> Json:
        """The caller's request as it is: the server adds a history to it that we do not see."""
        if not self._is_told_aside:
            names = ", ".join(find_server_history(params))
            said = f"requests with {names} go out as they are: the server holds that conversation"
            self.emit(Notice(said, "warning"))
        self._is_aside = self._is_told_aside = True
        return request

    def _fit(self) -> None:
        """Make it fit. What was refused and cannot be made any shorter would be refused again."""
        refused, self._refused = self._refused, None
        if refused and self._sent and not is_still_too_long(refused, self._sent.view, self.view):
            refused = None
        if not run_without_waiting(self._turn.fit(refused)) and refused is not None:
            raise refused

    async def rest(self) -> None:
        """Let the layers ask the model what they want to know: notes, and a summary for a full window.

        Call it when no user waits. It does nothing if there is nothing to do. A model given by name is
        asked if its key is set; else a notice says, once, why not.
        """
        self._check_open()
        if not self._unrested:
            return
        self._unrested = False
        if self._asks.model is None:
            if not self._told:
                self.emit(Notice(f"rest() asks nobody: {self._asks.why}", "warning"))
            self._told = True
            return
        layers, view = self._turn.layers, self.view
        at_rest = len(view) and view[-1].message.role == "assistant" and not view[-1].message.tool_uses
        try:
            if due := (*layers.replied, *(layers.rest if at_rest else ())):
                await self._turn.run_at_rest(due)
        finally:
            await self._asks.close()
        self._kept.sync()

    def rest_sync(self) -> None:
        """The same for code without an event loop."""
        self._loop.run(self.rest)

    @property
    def read_back_tool(self) -> Json:
        """A tool for agents that cannot read files: offer it to the model, answer with `read_back`."""
        return self._form.encode_tool(ReadResultTool.schema)

    def read_back(self, arguments: Mapping[str, Any] | str) -> str:
        """The result of a call of `read_back_tool`; a senseless call gets an explanation."""
        try:
            if isinstance(arguments, str):
                arguments = decode_json_object(to_plain_text(arguments))
            args = clean_arguments(dict(arguments))
            if wrong := find_argument_problem(ReadResultTool.schema["input_schema"], args):
                return f"{ReadResultTool.name} was not run: {wrong}"
            return ReadResultTool(self.store, self._turn.thresholds.window).read(args)
        except (ToolFailed, NotJson) as error:
            return f"{ReadResultTool.name} did not work: {error}"

    @property
    def view(self) -> View:
        return self._transcript.view

    def _check_open(self) -> None:
        if self._closed:
            raise Mistake(f"the Context {self.id} is closed: make another one with the same id")

    def _read_request(self, leading: list[Any], system: Any, tools: Any, params: Json) -> CallerRequest:
        model = params.get("model") or self.model.name
        return CallerRequest(
            to_plain_text(model) if isinstance(model, str) else str(model),
            tuple(leading),
            to_plain_text(system) if isinstance(system, str) else list(system) if system else system,
            list(tools) if tools else None,
            params,
        )

    def _reframe(self, asked: CallerRequest) -> None:
        """Keep the very same frame as long as nothing in it changes."""
        if asked != self._asked:
            frame = self._form.make_frame(asked, self.settings.cache_ttl)
            if self._form.is_messages_api and is_wanted(self._begun, self.settings.micro):
                frame = add_context_management(frame, self.model.capabilities, self.settings.micro)
            if frame != self._turn.frame:
                self._turn.frame = frame
            self._conversation.reading_hint = choose_reading_hint(frame)
            self._asked = CallerRequest(
                asked.model,
                copy_value(asked.leading),
                copy_value(asked.system),
                copy_value(asked.tools),
                copy_value(asked.params),
            )
        about = {
            "id": self.id,
            "model": self.model.name,
            "flags": msgspec.to_builtins(self._begun),
            "window": self.model.capabilities.window,
        }
        self._kept.keep(about, self._turn.frame)

    def _read_reply(self, response: Any) -> Reply:
        try:
            told = to_plain_json(response, "the response")
            reply = self._form.decode_reply(told) if isinstance(told, dict) else None
        except Mistake:
            reply = None
        if reply is None:
            raise Mistake(
                f"record() was given a {type(response).__name__} that is no reply in this format: give "
                "it the whole response of the call, for a stream the final message"
            )
        return reply

    def _caller_changed(self, number: int, whats: tuple[What, ...]) -> None:
        self.ledger.expect(f"the caller changed messages[{number}]")
        self.emit(Added(BY, whats))


def choose_reading_hint(frame: Frame) -> str:
    """The sentence that tells the model how to read a stored result with the tools it has."""
    offered = {tool.get("name") for tool in frame.tools}
    if "Read" in offered:
        return WITH_FILE_TOOLS
    return WITH_READ_RESULT if ReadResultTool.name in offered else ""
