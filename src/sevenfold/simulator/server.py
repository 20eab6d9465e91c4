"""The simulator on a loopback port: routes, streams, and the faults a script asks for."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import anyio
from anyio.abc import SocketAttribute

from sevenfold.cache.prices import Prices
from sevenfold.clock import SystemClock
from sevenfold.errors import Mistake, ScriptError, SevenfoldError
from sevenfold.simulator.api import MESSAGES, Api, HasNow, Outcome, Pending, decode
from sevenfold.simulator.chat_completions import ENDPOINT, ChatCompletions
from sevenfold.simulator.counting import encode
from sevenfold.simulator.http import Answer, Call, Cut, serve_connection
from sevenfold.simulator.ledger import Ledger
from sevenfold.simulator.model_list import model_info, model_list
from sevenfold.simulator.problems import ApiError, Json, invalid
from sevenfold.simulator.replies import Replies, echo
from sevenfold.simulator.script import Script, Step, read_script, step_of
from sevenfold.simulator.sse import chat_events, event, message_events

LIMIT: Final = 32 * 1024 * 1024
"""The largest body the provider takes."""
HOST: Final = "127.0.0.1"


class ManualClock:
    """A clock that stands still until it is told to move."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def set(self, now: float) -> None:
        """Go to a moment, for instance that of a recorded request."""
        self._now = now


class Endpoint(Protocol):
    """The Messages API or chat completions: the same three steps."""

    def prepare(self, body: Any, headers: dict[str, str]) -> Pending | Outcome: ...
    def reply_to(self, pending: Pending) -> Any: ...
    def finish(self, pending: Pending, answer: Any) -> Outcome: ...


class Simulator:
    """The simulated provider, served.

        async with Simulator(script=Path("faults.jsonl")) as sim:
            client = AsyncAnthropic(base_url=sim.url, api_key="any")

    `clock` needs `now()`; with `advance(seconds)` it can be driven over HTTP as well. `replies` answers
    what the script does not. `models` closes the list of models; `window` sets every model's window.
    """

    def __init__(
        self,
        *,
        clock: HasNow | None = None,
        script: Script | Path | None = None,
        replies: Replies = echo,
        prices: Prices | None = None,
        models: Sequence[str] | None = None,
        window: int | None = None,
        bad_keys: Sequence[str] = ("sk-wrong",),
        port: int = 0,
        host: str = HOST,
    ) -> None:
        if isinstance(script, Path):
            script = read_script(script)
        self.api = Api(
            clock or SystemClock(),
            script=script,
            replies=replies,
            prices=prices,
            models=models,
            window=window,
            bad_keys=frozenset(bad_keys),
        )
        self.host, self.port = host, port
        self._chat = ChatCompletions(self.api)
        self._stack = AsyncExitStack()

    @property
    def url(self) -> str:
        """What a client is pointed at; `url + "/v1"` for clients of chat completions."""
        return f"http://{self.host}:{self.port}"

    @property
    def ledger(self) -> Ledger:
        return self.api.ledger

    async def __aenter__(self) -> Self:
        try:
            listener = await anyio.create_tcp_listener(local_host=self.host, local_port=self.port)
        except OSError as error:
            raise Mistake(
                f"The simulator cannot listen on {self.host}:{self.port} ({error.strerror}); "
                "choose another port, or 0 for any that is free."
            ) from error
        await self._stack.enter_async_context(listener)
        self.port = int(listener.extra(SocketAttribute.local_port))
        group = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(group.cancel_scope.cancel)
        group.start_soon(listener.serve, lambda s: serve_connection(s, self._answer, LIMIT), group)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, anyio.get_cancelled_exc_class()):
            await self._stack.__aexit__(kind, error, trace)
        else:  # what went wrong in the caller's block is not the server's: it passes as it is
            await self._stack.aclose()

    async def serve(self, ready: Callable[[str], None]) -> None:
        """Serve until cancelled. `ready` is told the address once it can be reached."""
        async with self:
            ready(self.url)
            await anyio.sleep_forever()

    # --- routes -----------------------------------------------------------------------------------------

    async def _answer(self, call: Call) -> Answer:
        try:
            return await self._route(call)
        except ApiError as error:
            number = self.api.open()
            if call.path in (MESSAGES, ENDPOINT):  # not even readable, and still a request
                outcome = self.api.refuse(*number, call.path, None, call.headers, error)
                return _json(outcome.body, outcome.status, outcome.headers)
            _, request_id, _ = number
            headers = self.api.headers(request_id) | error.headers
            return _json(error.as_messages(request_id), error.status, headers)

    async def _route(self, call: Call) -> Answer:
        if call.too_large:
            raise ApiError(413, "Request exceeds the maximum size of 32 MB")
        path = call.path.rstrip("/") or "/"
        routes: dict[tuple[str, str], Callable[[Call], Awaitable[Answer]]] = {
            ("POST", MESSAGES): self._messages,
            ("POST", "/v1/messages/count_tokens"): self._count_tokens,
            ("POST", ENDPOINT): self._completions,
            ("GET", "/v1/models"): self._models,
            ("GET", "/sevenfold/ledger"): self._show_ledger,
            ("GET", "/sevenfold/clock"): self._show_clock,
            ("POST", "/sevenfold/clock"): self._move_clock,
            ("POST", "/sevenfold/script"): self._change_script,
            ("GET", "/"): self._health,
        }
        method = "GET" if call.method == "HEAD" else call.method
        if method == "GET" and path.startswith("/v1/models/"):
            self.api.check_key(call.headers)
            return _json(model_info(self.api, path.removeprefix("/v1/models/")))
        route = routes.get((method, path))
        if route is not None:
            return await route(call)
        if any(known == path for _, known in routes):
            raise ApiError(405, f"Method {call.method} is not allowed for {call.path}")
        raise ApiError(404, f"Not found: {call.path}")

    async def _messages(self, call: Call) -> Answer:
        def events(body: Json) -> Iterator[bytes]:
            return message_events(body)

        return await self._reply(self.api, call, events)

    async def _completions(self, call: Call) -> Answer:
        options = decode(call.body)
        asked = options.get("stream_options") if isinstance(options, dict) else None
        usage = bool(isinstance(asked, dict) and asked.get("include_usage"))

        def events(body: Json) -> Iterator[bytes]:
            return chat_events(body, include_usage=usage)

        return await self._reply(self._chat, call, events)

    async def _count_tokens(self, call: Call) -> Answer:
        self.api.check_key(call.headers)
        return _json(self.api.count_tokens(decode(call.body)))

    async def _models(self, call: Call) -> Answer:
        self.api.check_key(call.headers)
        return _json(model_list(self.api, call.query))

    async def _health(self, call: Call) -> Answer:
        return _json({"name": "sevenfold simulator", "requests": len(self.ledger)})

    async def _show_ledger(self, call: Call) -> Answer:
        return _json(self.ledger.as_json())

    async def _show_clock(self, call: Call) -> Answer:
        manual = hasattr(self.api.clock, "advance")
        return _json({"now": self.api.clock.now(), "manual": manual})

    async def _move_clock(self, call: Call) -> Answer:
        seconds = _object(call).get("advance")
        if not isinstance(seconds, int | float) or isinstance(seconds, bool) or seconds < 0:
            raise invalid("advance: a number of seconds is needed, 0 or more")
        advance = getattr(self.api.clock, "advance", None)
        if advance is None:
            raise ApiError(409, "The clock is real. Start the simulator with a manual clock.")
        advance(seconds)
        return await self._show_clock(call)

    async def _change_script(self, call: Call) -> Answer:
        body = _object(call)
        items = body.get("items")
        if not isinstance(items, list):
            raise invalid("items: a list of steps is needed")
        try:
            steps = [step_of(item, f"step {n}") for n, item in enumerate(items, 1)]
        except ScriptError as error:
            raise invalid(str(error)) from error
        if body.get("replace"):
            self.api.script.clear()
        self.api.script.extend(steps)
        return _json({"waiting": len(self.api.script)})

    # --- replies and faults -----------------------------------------------------------------------------

    async def _reply(
        self, endpoint: Endpoint, call: Call, events: Callable[[Json], Iterator[bytes]]
    ) -> Answer:
        pending = endpoint.prepare(decode(call.body), call.headers)
        if isinstance(pending, Outcome):
            return _json(pending.body, pending.status, pending.headers)
        try:
            answer = endpoint.reply_to(pending)
            if inspect.isawaitable(answer):
                answer = await answer
        except SevenfoldError as error:
            raise ApiError(500, f"The simulated model failed: {error}") from error
        step = pending.step or Step()
        if step.hangs_at == 0:
            await call.wait_for_goodbye()
            self.api.abandon(pending, call.path)
            raise Cut
        if step.slow is not None and step.slow.first_byte_ms:
            await anyio.sleep(step.slow.first_byte_ms / 1_000)
        outcome = endpoint.finish(pending, answer)
        if step.cut is not None and step.cut.after_events == 0:
            raise Cut
        if pending.body.get("stream"):
            headers = {**outcome.headers, "content-type": "text/event-stream; charset=utf-8"}
            chunks = _faulty(events(outcome.body), step, call)
            return Answer(200, headers | {"cache-control": "no-cache"}, chunks)
        if step.malformed_at is not None:
            broken = encode(outcome.body)[:-7]
            headers = {**outcome.headers, "content-type": "application/json"}
            return Answer(200, headers, broken)
        answered = _json(outcome.body, 200, outcome.headers)
        answered.cut = step.cut is not None
        return answered


async def _faulty(events: Iterator[bytes], step: Step, call: Call) -> AsyncGenerator[bytes, None]:
    """The events of a stream, late, broken, or ended early as the step says."""
    error = step.error if step.error and step.error.after_events is not None else None
    for n, data in enumerate(events):
        if step.cut is not None and n >= step.cut.after_events:
            raise Cut
        if step.hangs_at is not None and n >= step.hangs_at:
            await call.wait_for_goodbye()
            raise Cut
        if error is not None and n >= (error.after_events or 0):
            yield event("error", error.problem().as_messages())
            return
        if step.malformed_at is not None and n >= step.malformed_at:
            yield data.replace(b"}\n\n", b"\n\n", 1)
            continue
        if n and step.slow is not None and step.slow.chunk_delay_ms:
            await anyio.sleep(step.slow.chunk_delay_ms / 1_000)
        yield data


def _object(call: Call) -> Json:
    body = decode(call.body)
    if not isinstance(body, dict):
        raise invalid("The request body must be a JSON object")
    return body


def _json(body: Json, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    return Answer(status, {**(headers or {}), "content-type": "application/json"}, encode(body))


@contextmanager
def running(**options: Any) -> Iterator[Simulator]:
    """The simulator in a thread of its own, for clients and tests that are not asynchronous.

    with running(clock=ManualClock()) as sim:
        client = Anthropic(base_url=sim.url, api_key="any")
    """
    from anyio.from_thread import start_blocking_portal

    with (
        start_blocking_portal(name="sevenfold-simulator") as portal,
        portal.wrap_async_context_manager(Simulator(**options)) as sim,
    ):
        yield sim
