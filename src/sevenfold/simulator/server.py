"""The simulator on a loopback port: routes, streams, and the faults a script asks for."""

from __future__ import annotations

import hmac
import inspect
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import anyio

from sevenfold.cache.prices import Prices
from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import BadRequest, ScriptError, SevenfoldError
from sevenfold.loopback import HOST, SURPRISES, ConnectionCut, HttpAnswer, HttpCall, LoopbackServer
from sevenfold.models.sse import write_event
from sevenfold.simulator.api import (
    MESSAGES,
    Api,
    ApiOutcome,
    PendingRequest,
    TimeSource,
    decode_body,
    describe_model,
    list_models,
)
from sevenfold.simulator.cache import encode
from sevenfold.simulator.chat_completions import ChatCompletions
from sevenfold.simulator.errors import ApiError, Json, make_invalid_request
from sevenfold.simulator.ledger import SimulatorLedger
from sevenfold.simulator.responses import Responses, iterate_response_events
from sevenfold.simulator.script import Replies, Script, ScriptStep, make_echo, parse_step, read_script

ENDPOINTS: Final = {
    MESSAGES: MESSAGES,
    ChatCompletions.address: ChatCompletions.address,
    Responses.address: Responses.address,
    "/responses": Responses.address,
}
"""Addresses that answer as a model, and the endpoint of each in the ledger."""
UNSIMULATED: Final = {
    f"{MESSAGES}/batches": f"send the requests one by one to {MESSAGES}",
    "/v1/batches": "send the requests one by one",
    "/v1/embeddings": "it has no model for them",
}
"""Addresses of the real APIs that are refused in their own form, and what to do instead."""
FURTHEST: Final = 1_000_000_000  # Seconds that the clock can be moved at once
TOKEN_HEADER: Final = "x-sevenfold-token"


CHUNK: Final = 24  # Characters of text or of JSON in one delta


# --- the Messages API ------------------------------------------------------------------------------------


def _event(name: str, **data: Any) -> bytes:
    return write_event(encode({"type": name, **data}), name)


def iterate_message_events(message: Json) -> Iterator[bytes]:
    """The events of one message, in the order and with the names of the Messages API."""
    usage = message["usage"]
    start = {
        **{k: v for k, v in message.items() if k != "context_management"},
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": min(1, usage["output_tokens"])},
    }
    yield _event("message_start", message=start)
    yield _event("ping")
    for index, block in enumerate(message["content"]):
        opened, deltas = _opened(block)
        yield _event("content_block_start", index=index, content_block=opened)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    end: Json = {
        "delta": {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]},
        "usage": {k: v for k, v in usage.items() if k.endswith("_tokens")},
    }
    if message.get("context_management") is not None:
        end["context_management"] = message["context_management"]
    yield _event("message_delta", **end)
    yield _event("message_stop")


def _opened(block: Json) -> tuple[Json, list[Json]]:
    """A block as it is first announced, and the deltas that fill it."""
    match block["type"]:
        case "text":
            deltas = [{"type": "text_delta", "text": part} for part in _parts(block["text"])]
            return {**block, "text": ""}, deltas
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": part} for part in _parts(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, deltas
        case "tool_use":
            text = encode(block["input"]).decode() if block["input"] else ""
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in ("", *_parts(text))]
            return {**block, "input": {}}, deltas
        case "compaction":
            whole = {"type": "compaction_delta", "content": block.get("content")}
            return {**block, "content": None}, [whole]
    return block, []


def _parts(text: str) -> list[str]:
    return [text[i : i + CHUNK] for i in range(0, len(text), CHUNK)]


# --- chat completions ------------------------------------------------------------------------------------


def iterate_chat_events(completion: Json, *, include_usage: bool) -> Iterator[bytes]:
    """The chunks of one completion."""
    choice = completion["choices"][0]
    message = choice["message"]

    def chunk(delta: Json, finish: str | None = None) -> bytes:
        choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
        return write_event(encode({**_head(completion, include_usage), "choices": choices}))

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for part in _parts(message["content"] or ""):
        yield chunk({"content": part})
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = {"name": call["function"]["name"], "arguments": ""}
        yield chunk({"tool_calls": [{**call, "index": index, "function": function}]})
        for part in _parts(call["function"]["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    yield chunk({}, choice["finish_reason"])
    if include_usage:
        head = {**_head(completion, include_usage), "usage": completion["usage"]}
        yield write_event(encode({**head, "choices": []}))
    yield write_event(b"[DONE]")


def _head(completion: Json, include_usage: bool) -> Json:
    head = {k: completion[k] for k in ("id", "created", "model", "system_fingerprint")}
    return {**head, "object": "chat.completion.chunk", **({"usage": None} if include_usage else {})}


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


class ApiEndpoint(Protocol):
    """The Messages API or chat completions: the same three steps."""

    def prepare(self, body: Any, headers: dict[str, str], received: int) -> PendingRequest | ApiOutcome: ...
    def reply_to(self, pending: PendingRequest) -> Any: ...
    def finish(self, pending: PendingRequest, answer: Any) -> ApiOutcome: ...


class Simulator:
    """The simulated provider, served.

        async with Simulator(script=Path("faults.jsonl")) as sim:
            client = AsyncAnthropic(base_url=sim.url, api_key="any")

    `clock` needs `now()`; with `advance(seconds)` it can be driven over HTTP as well. `replies` answers
    what the script does not. `models` closes the list of models; `window` sets every model's window.
    `counts_headers` counts the version or billing header that a client puts before its system prompt.
    `token` is what the addresses below `/sevenfold` want to see; a new one each time unless it is given.
    """

    def __init__(
        self,
        *,
        clock: TimeSource | None = None,
        script: Script | Path | None = None,
        replies: Replies = make_echo,
        prices: Prices | None = None,
        models: Sequence[str] | None = None,
        window: int | None = None,
        bad_keys: Sequence[str] = ("sk-wrong",),
        counts_headers: bool = False,
        port: int = 0,
        host: str = HOST,
        token: str | None = None,
    ) -> None:
        if isinstance(script, Path):
            script = read_script(script)
        self.token = token or secrets.token_urlsafe(16)
        self.api = Api(
            clock or SystemClock(),
            script=script,
            replies=replies,
            prices=prices,
            models=models,
            window=window,
            bad_keys=frozenset(bad_keys),
            counts_headers=counts_headers,
        )
        self._chat = ChatCompletions(self.api)
        self._responses = Responses(self.api)
        self._server = LoopbackServer(self._answer, port=port, host=host, name="The simulator")

    @property
    def url(self) -> str:
        """The base URL for clients; `url + "/v1"` for clients of chat completions."""
        return self._server.url

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def ledger(self) -> SimulatorLedger:
        return self.api.ledger

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.__aexit__(kind, error, trace)

    async def serve(self, ready: Callable[[str], None]) -> None:
        """Serve until cancelled. `ready` is told the address once it can be reached."""
        async with self:
            ready(self.url)
            await anyio.sleep_forever()

    # --- routes -----------------------------------------------------------------------------------------

    async def _answer(self, call: HttpCall) -> HttpAnswer:
        try:
            return await self._route(call)
        except ApiError as error:
            return self._refuse(call, error)
        except SURPRISES as error:
            return self._refuse(call, ApiError(500, f"The simulator failed: {error!r}"))

    def _refuse(self, call: HttpCall, error: ApiError) -> HttpAnswer:
        opened = self.api.open(len(call.body))
        if (path := call.path.rstrip("/")) in ENDPOINTS:  # not even readable, and still a request
            outcome = self.api.refuse(opened, ENDPOINTS[path], None, call.headers, error)
            return _json(outcome.body, outcome.status, outcome.headers)
        headers = self.api.headers(opened.id) | error.headers
        return _json(error.as_messages(opened.id), error.status, headers)

    def _check_sender(self, call: HttpCall, path: str) -> None:
        """Raise for a web page, which could reach us from a browser, and for control without the token."""
        if foreign := self._server.describe_foreign_sender(call):
            raise ApiError(403, foreign)
        given = call.headers.get(TOKEN_HEADER, "").encode("utf-8")
        if f"{path}/".startswith("/sevenfold/") and not hmac.compare_digest(
            given, self.token.encode("utf-8")
        ):
            raise ApiError(
                401, f"The header {TOKEN_HEADER} is missing or wrong; the simulator printed its value"
            )

    async def _route(self, call: HttpCall) -> HttpAnswer:
        if call.rest is not None:
            raise ApiError(413, "Request exceeds the maximum size of 32 MB")
        path = call.path.rstrip("/") or "/"
        self._check_sender(call, path)
        respond = partial(self._reply, self._responses, events=iterate_response_events)
        routes: dict[tuple[str, str], Callable[[HttpCall], Awaitable[HttpAnswer]]] = {
            ("POST", MESSAGES): partial(self._reply, self.api, events=iterate_message_events),
            ("POST", "/v1/messages/count_tokens"): self._count_tokens,
            ("POST", ChatCompletions.address): self._completions,
            ("POST", Responses.address): respond,
            ("POST", "/responses"): respond,
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
            name = path.removeprefix("/v1/models/")
            return _json(describe_model(name, self.api.price_of(name)))
        route = routes.get((method, path))
        if route is not None:
            return await route(call)
        if refused := _find_unsimulated(path):
            return _refuse_unsimulated(path, *refused)
        if any(known == path for _, known in routes):
            raise ApiError(405, f"Method {call.method} is not allowed for {call.path}")
        raise ApiError(404, f"Not found: {call.path}")

    async def _completions(self, call: HttpCall) -> HttpAnswer:
        options = decode_body(call.body)
        asked = options.get("stream_options") if isinstance(options, dict) else None
        usage = bool(isinstance(asked, dict) and asked.get("include_usage"))
        return await self._reply(self._chat, call, partial(iterate_chat_events, include_usage=usage))

    async def _count_tokens(self, call: HttpCall) -> HttpAnswer:
        self.api.check_key(call.headers)
        with _blame_body():
            return _json(self.api.count_tokens(decode_body(call.body)))

    async def _models(self, call: HttpCall) -> HttpAnswer:
        self.api.check_key(call.headers)
        return _json(list_models(self.api, call.query))

    async def _health(self, call: HttpCall) -> HttpAnswer:
        return _json({"name": "sevenfold simulator", "requests": len(self.ledger)})

    async def _show_ledger(self, call: HttpCall) -> HttpAnswer:
        return _json(self.ledger.as_json())

    async def _show_clock(self, call: HttpCall) -> HttpAnswer:
        return _json({"now": self.api.clock.now(), "manual": hasattr(self.api.clock, "advance")})

    async def _move_clock(self, call: HttpCall) -> HttpAnswer:
        seconds = _object(call).get("advance")
        if (
            isinstance(seconds, bool)
            or not isinstance(seconds, int | float)
            or not 0 <= seconds <= FURTHEST
        ):
            raise make_invalid_request(f"advance: a number of seconds is needed, 0 to {FURTHEST:,}")
        advance = getattr(self.api.clock, "advance", None)
        if advance is None:
            raise ApiError(409, "The clock is real. Start the simulator with a manual clock.")
        advance(seconds)
        return await self._show_clock(call)

    async def _change_script(self, call: HttpCall) -> HttpAnswer:
        body = _object(call)
        items = body.get("items")
        if not isinstance(items, list):
            raise make_invalid_request("items: a list of steps is needed")
        try:
            steps = [parse_step(item, f"step {n}") for n, item in enumerate(items, 1)]
        except ScriptError as error:
            raise make_invalid_request(str(error)) from error
        if body.get("replace"):
            self.api.script.clear()
        self.api.script.extend(steps)
        return _json({"waiting": len(self.api.script)})

    # --- replies and faults -----------------------------------------------------------------------------

    async def _reply(
        self, endpoint: ApiEndpoint, call: HttpCall, events: Callable[[Json], Iterator[bytes]]
    ) -> HttpAnswer:
        with _blame_body():
            pending = endpoint.prepare(decode_body(call.body), call.headers, len(call.body))
        if isinstance(pending, ApiOutcome):
            return _json(pending.body, pending.status, pending.headers)
        try:
            with self.api.releasing(pending):
                answer = endpoint.reply_to(pending)
                if inspect.isawaitable(answer):
                    answer = await answer
        except BadRequest as error:
            raise make_invalid_request(str(error)) from error
        except SevenfoldError as error:
            raise ApiError(500, f"The simulated model failed: {error}") from error
        step = pending.step or ScriptStep()
        if step.hangs_at == 0:
            await call.wait_for_goodbye()
            self.api.abandon(pending, call.path)
            raise ConnectionCut
        if step.slow is not None and step.slow.first_byte_ms:
            await anyio.sleep(step.slow.first_byte_ms / 1_000)
        outcome = endpoint.finish(pending, answer)
        if step.cut is not None and step.cut.after_events == 0:
            raise ConnectionCut
        if pending.body.get("stream"):
            headers = {**outcome.headers, "content-type": "text/event-stream; charset=utf-8"}
            chunks = _faulty(events(outcome.body), step)
            return HttpAnswer(200, headers | {"cache-control": "no-cache"}, chunks)
        if step.malformed_at is not None:
            headers = {**outcome.headers, "content-type": "application/json"}
            return HttpAnswer(200, headers, encode(outcome.body)[:-7])
        return replace(_json(outcome.body, 200, outcome.headers), cut=step.cut is not None)


async def _faulty(events: Iterator[bytes], step: ScriptStep) -> AsyncGenerator[bytes, None]:
    """The events of a stream, late, broken, or ended early as the step says."""
    error = step.error if step.error and step.error.after_events is not None else None
    for n, data in enumerate(events):
        if step.cut is not None and n >= step.cut.after_events:
            raise ConnectionCut
        if step.hangs_at is not None and n >= step.hangs_at:
            await anyio.sleep_forever()  # until the client leaves
        if error is not None and n >= (error.after_events or 0):
            yield write_event(encode(error.problem().as_messages()), "error")
            return
        if step.malformed_at is not None and n >= step.malformed_at:
            yield data.replace(b"}\n\n", b"\n\n", 1)
            continue
        if n and step.slow is not None and step.slow.chunk_delay_ms:
            await anyio.sleep(step.slow.chunk_delay_ms / 1_000)
        yield data


@contextmanager
def _blame_body() -> Iterator[None]:
    """A body that our checks let pass and that cannot be read all the same is a wrong request."""
    try:
        yield
    except RecursionError as error:
        raise make_invalid_request("The request body is nested too deeply") from error
    except SURPRISES as error:
        raise make_invalid_request(f"The request body cannot be read: {error!r}") from error


def _find_unsimulated(path: str) -> tuple[str, str] | None:
    """The first of our unsimulated addresses that this one lies below, and what to do instead."""
    return next((item for item in UNSIMULATED.items() if f"{path}/".startswith(f"{item[0]}/")), None)


def _refuse_unsimulated(path: str, address: str, instead: str) -> HttpAnswer:
    """A 404 in the form of the API that has this address."""
    said = f"{path} is not simulated: {instead}"
    if address.startswith(MESSAGES):
        return _json(ApiError(404, said).as_messages(), 404)
    error = ApiError(404, said, kind="invalid_request_error", code="unknown_url")
    return _json(error.as_chat(), 404)


def _object(call: HttpCall) -> Json:
    body = decode_body(call.body)
    if not isinstance(body, dict):
        raise make_invalid_request("The request body must be a JSON object")
    return body


def _json(body: Json, status: int = 200, headers: dict[str, str] | None = None) -> HttpAnswer:
    return HttpAnswer(status, {**(headers or {}), "content-type": "application/json"}, encode(body))


@contextmanager
def run_in_thread(**options: Any) -> Iterator[Simulator]:
    """The simulator in a thread of its own, for clients and tests that are not asynchronous.

    with run_in_thread(clock=ManualClock()) as sim:
        client = Anthropic(base_url=sim.url, api_key="any")
    """
    from anyio.from_thread import start_blocking_portal

    with (
        start_blocking_portal(name="sevenfold-simulator") as portal,
        portal.wrap_async_context_manager(Simulator(**options)) as sim,
    ):
        yield sim
