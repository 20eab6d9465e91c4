"""The simulated Messages API without a socket: a request's body goes in, an outcome comes out.

A request is prepared (checked, counted, looked up in the cache), replied to by a script or a function, and
finished (cache written, ledger entered). The server keeps these apart, because a cache entry can be read
only after the response that wrote it has begun; `Api.answer` does them at once.

`/v1/models` answers in the form of both APIs at once, so that each client finds its own fields.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from sevenfold.cache.prices import Price, Prices
from sevenfold.core.tokens import Usage
from sevenfold.models.capabilities import LONG, LONG_BETA, find_capabilities, find_window
from sevenfold.simulator.cache import (
    CachedPrompt,
    CacheVerdict,
    ImplicitCache,
    PromptCache,
    PromptDiagnostics,
    count_content_tokens,
    mark_automatically,
    parse_ttl,
    read_prompt,
    strip_client_header,
)
from sevenfold.simulator.edits import (
    BLOCK,
    BoundThinking,
    ServerSummary,
    apply_edits,
    cut_before_summary,
    is_threshold_reached,
    make_iteration,
    summarise_request,
)
from sevenfold.simulator.errors import ApiError, Json, make_invalid_request
from sevenfold.simulator.ledger import (
    LedgerRow,
    SharedPrefix,
    SimulatorLedger,
    TokenCounts,
    make_price_fields,
)
from sevenfold.simulator.script import (
    Replies,
    Script,
    ScriptAnswer,
    ScriptReply,
    ScriptStep,
    finish_reply,
    make_echo,
    make_scripted_reply,
    to_reply,
)
from sevenfold.simulator.threads import BETAS, HeldThread, MessageThreads
from sevenfold.simulator.validation import check_body, check_request, find_automatic_target

DEFAULT_MINIMUM: Final = 1_024
BAD_KEYS: Final = frozenset({"sk-wrong"})
SOURCE_HEADER: Final = "x-sevenfold-source"
SESSION_HEADERS: Final = (
    ("x-claude-code-session-id", "x-claude-code-agent-id"),
    ("session-id", "thread-id"),
)
"""Headers of clients: a session, and the agent or thread in it."""
MESSAGES: Final = "/v1/messages"


class TimeSource(Protocol):
    """A clock."""

    def now(self) -> float: ...


@dataclass(slots=True)
class ApiOutcome:
    """The answer to the client."""

    status: int
    body: Json
    headers: dict[str, str]
    row: LedgerRow
    step: ScriptStep | None = None
    """The step of the script that bends the answer: slow, cut, malformed, hanging."""

    @property
    def usage(self) -> Json:
        usage: Json = self.body.get("usage") or {}
        return usage


class OpenedRequest(msgspec.Struct, frozen=True):
    """The number, the id and the time of a request."""

    n: int
    id: str
    at: float
    received_bytes: int = 0


@dataclass(slots=True)
class PendingRequest:
    """A request that was accepted and waits for its reply."""

    opened: OpenedRequest
    key: str
    source: str
    body: Json
    model: str
    price: Price | None
    prompt: CachedPrompt
    verdict: CacheVerdict
    step: ScriptStep | None
    shared: SharedPrefix | None = None
    applied: list[Json] = field(default_factory=list)
    room: int | None = None  # Tokens the window leaves for output, where that is less than what was asked
    summary: ServerSummary | None = None  # The server's summary, made before this request is answered
    thread: HeldThread | None = None

    @property
    def minimum(self) -> int:
        return self.price.min_cacheable if self.price else DEFAULT_MINIMUM


class Api:
    """One simulated provider: its caches, its script, its ledger."""

    def __init__(
        self,
        clock: TimeSource,
        *,
        script: Script | None = None,
        replies: Replies = make_echo,
        prices: Prices | None = None,
        models: Sequence[str] | None = None,
        window: int | None = None,
        bad_keys: frozenset[str] = BAD_KEYS,
        counts_headers: bool = False,
    ) -> None:
        self.clock = clock
        self.script = script or Script()
        self.replies = replies
        self.prices = prices or Prices.load()
        self.models = models  # If given, every other model is a 404
        self.window = window  # If given, the window of every model
        self.bad_keys = bad_keys
        self.counts_headers = counts_headers  # A client's header block is part of the prompt
        self.ledger = SimulatorLedger()
        self.cache = PromptCache()
        self.implicit = ImplicitCache()
        self.diagnostics = PromptDiagnostics()
        self.thinking = BoundThinking()
        self.threads = MessageThreads()
        self._requests = self._messages = self._uses = 0

    # --- the whole way ----------------------------------------------------------------------------------

    def answer(self, body: Any, headers: Mapping[str, str] | None = None) -> ApiOutcome:
        """Answer one request at once. The reply function must not be asynchronous."""
        pending = self.prepare(body, headers)
        if isinstance(pending, ApiOutcome):
            return pending
        with self.releasing(pending):
            reply = self.reply_to(pending)
            if inspect.isawaitable(reply):
                if inspect.iscoroutine(reply):
                    reply.close()
                raise TypeError("Api.answer cannot wait; give it a reply function that is not async")
        return self.finish(pending, reply)

    def prepare(
        self, body: Any, headers: Mapping[str, str] | None = None, received: int = 0
    ) -> PendingRequest | ApiOutcome:
        """Check, count and look into the cache; or the outcome, if it is an error.

        `received` is the size of the body in bytes, if it came over a wire.
        """
        headers = lower_headers(headers)
        opened = self.open(received)
        try:
            return self._accept(opened, body, headers)
        except ApiError as error:
            return self.refuse(opened, MESSAGES, body, headers, error)

    def reply_to(self, pending: PendingRequest) -> Any:
        """The scripted reply, or what the reply function says (perhaps something to wait for)."""
        if pending.step is not None and pending.step.reply is not None:
            return make_scripted_reply(pending.step.reply)
        return self.replies(pending.body)

    def finish(self, pending: PendingRequest, answer: ScriptAnswer) -> ApiOutcome:
        """The response begins: what was marked is in the cache from now on."""
        reply = finish_reply(to_reply(answer), pending.body, pending.room, self.next_use)
        self._messages += 1
        message_id = f"msg_sim_{self._messages:06d}"
        scope = pending.key, pending.model
        self.cache.write(scope, pending.prompt, pending.minimum, pending.opened.at)
        body = self._message(pending, reply, message_id)
        self.diagnostics.remember(message_id, pending.model, pending.prompt)
        if is_thinking_bound(pending.model):
            self.thinking.remember(pending.body, reply.content)
        usage = pending.verdict.usage(count_content_tokens(reply.content))
        usage += pending.summary.usage if pending.summary else Usage()
        row = self.enter(pending, usage, MESSAGES, message_id, reply.stop_reason)
        if pending.thread is not None:
            self.threads.hold(pending.thread, pending.body, body, pending.opened.at)
        return ApiOutcome(200, body, self.headers(pending.opened.id), row, pending.step)

    def count_tokens(self, body: Any) -> Json:
        """The answer of `/v1/messages/count_tokens`; raises `ApiError`."""
        body = check_body(body, counting=True)
        body = body if self.counts_headers else strip_client_header(body)
        price = self.price_of(body["model"])
        check_request(body, None)
        edited, _ = apply_edits(cut_before_summary(body), _tokens, keeps_thinking=is_thinking_kept(price))
        out: Json = {"input_tokens": _tokens(edited)}
        if body.get("context_management") is not None:
            out["context_management"] = {"original_input_tokens": _tokens(body)}
        return out

    # --- accepting --------------------------------------------------------------------------------------

    def open(self, received: int = 0) -> OpenedRequest:
        self._requests += 1
        return OpenedRequest(self._requests, f"req_sim_{self._requests:06d}", self.clock.now(), received)

    def _accept(self, opened: OpenedRequest, body: Any, headers: Mapping[str, str]) -> PendingRequest:
        key, betas = self.check_key(headers), headers.get(BETAS, "")
        thread: HeldThread | None = None
        if isinstance(body, dict):
            body = body if self.counts_headers else strip_client_header(body)
            if body.get("thread") is not None:
                thread = self.threads.open(body, betas, key, opened.at)
                body = thread.complete(body)
        body = check_body(body)
        model = body["model"]
        price = self.price_of(model)
        check_request(body, price.max_output if price else None, betas)
        source = name_source(headers)
        step = self.script.take(body, source)
        if step is not None and step.error is not None and step.error.after_events is None:
            raise step.error.problem()
        readable = self.thinking.check(body, betas) if is_thinking_bound(model) else body
        thinks = is_thinking_kept(price)
        edited, applied = apply_edits(cut_before_summary(readable), _tokens, keeps_thinking=thinks)
        minimum, summary = price.min_cacheable if price else DEFAULT_MINIMUM, None
        if is_threshold_reached(edited, _tokens):
            read = self.cache.look((key, model), read_marked_prompt(edited), minimum, opened.at)
            edited, summary = summarise_request(edited, read.usage())
        prompt = read_marked_prompt(edited)
        room = self._room(body, prompt.tokens, price, betas)
        shared = self.ledger.compare(source, prompt)
        verdict = self.cache.look((key, model), prompt, minimum, opened.at)
        if thread is not None:
            thread.is_busy = True
        return PendingRequest(
            opened, key, source, body, model, price, prompt, verdict, step, shared,
            applied, room, summary, thread,
        )  # fmt: skip

    def abandon(self, pending: PendingRequest, endpoint: str) -> None:
        """The client went away before the response began: nothing was cached, nothing is owed."""
        self._release(pending)
        error = ApiError(499, "The client closed the connection", kind="client_closed_request")
        self.refuse(pending.opened, endpoint, pending.body, {SOURCE_HEADER: pending.source}, error)

    @contextmanager
    def releasing(self, pending: PendingRequest) -> Iterator[None]:
        """If no reply could be made, the thread of the request can be continued by another one."""
        try:
            yield
        except BaseException:
            self._release(pending)
            raise

    def _release(self, pending: PendingRequest) -> None:
        if pending.thread is not None:
            pending.thread.is_busy = False

    def check_key(self, headers: Mapping[str, str]) -> str:
        bearer = headers.get("authorization", "")
        key = headers.get("x-api-key") or bearer.removeprefix("Bearer ").strip()
        if not key:
            raise ApiError(401, "x-api-key header is required")
        if key in self.bad_keys:
            raise ApiError(401, "invalid x-api-key")
        return key

    def price_of(self, model: str) -> Price | None:
        """The price table's entry; raises a 404 for a model this simulator does not have."""
        if model.startswith("unknown") or (self.models is not None and model not in self.models):
            raise ApiError(404, f"model: {model}")
        return self.prices.of(model)

    def window_of(self, model: str, price: Price | None, betas: str = "") -> int:
        if self.window is not None:
            return self.window
        # A client sends the suffix of a long window as a beta flag, whatever the model.
        name = f"{model.removesuffix(LONG)}{LONG}" if LONG_BETA in betas else model
        return find_window(name, own=price.window if price else None)

    def _room(self, body: Json, tokens: int, price: Price | None, betas: str) -> int | None:
        window, asked = self.window_of(body["model"], price, betas), body["max_tokens"]
        if tokens > window:
            raise make_invalid_request(f"prompt is too long: {tokens} tokens > {window} maximum")
        if tokens + asked <= window:
            return None
        if price is not None and price.refuses_overflow:
            raise make_invalid_request(
                f"input length and `max_tokens` exceed context limit: {tokens} + {asked} > "
                f"{window}, decrease input length or `max_tokens` and try again"
            )
        return window - tokens

    def refuse(
        self, opened: OpenedRequest, endpoint: str, body: Any, headers: Mapping[str, str], error: ApiError
    ) -> ApiOutcome:
        asked = body if isinstance(body, dict) else {}
        row = LedgerRow(
            **msgspec.structs.asdict(opened),
            endpoint=endpoint,
            model=str(asked.get("model", "")),
            source=name_source(headers),
            stream=bool(asked.get("stream")),
            status=error.status,
            error=f"{error.kind}: {error.message}",
        )
        self.ledger.add(row)
        said = error.as_messages(opened.id) if endpoint == MESSAGES else error.as_chat()
        return ApiOutcome(error.status, said, self.headers(opened.id) | error.headers, row)

    # --- answering --------------------------------------------------------------------------------------

    def next_use(self) -> str:
        self._uses += 1
        return f"toolu_sim_{self._uses:06d}"

    def headers(self, request_id: str) -> dict[str, str]:
        return {"request-id": request_id, "x-request-id": request_id}

    def _message(self, pending: PendingRequest, reply: ScriptReply, message_id: str) -> Json:
        verdict = pending.verdict
        usage: Json = {
            "input_tokens": verdict.input,
            "cache_creation_input_tokens": verdict.write_5m + verdict.write_1h,
            "cache_read_input_tokens": verdict.read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": verdict.write_5m,
                "ephemeral_1h_input_tokens": verdict.write_1h,
            },
            "output_tokens": count_content_tokens(reply.content),
            "service_tier": "standard",
            **reply.usage,
        }
        content = list(reply.content)
        if (made := pending.summary) is not None:
            answered = verdict.usage(count_content_tokens(reply.content))
            usage["iterations"] = [make_iteration(BLOCK, made.usage), make_iteration("message", answered)]
            content.insert(0, made.block)
        message: Json = {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": pending.model,
            "content": content,
            "stop_reason": reply.stop_reason,
            "stop_sequence": reply.stop_sequence,
            "usage": usage,
        }
        if pending.body.get("context_management") is not None:
            message["context_management"] = {"applied_edits": pending.applied}
        asked = pending.body.get("diagnostics")
        if isinstance(asked, dict):
            message["diagnostics"] = self.diagnostics.explain(asked, pending.model, pending.prompt)
        return message

    def enter(
        self, pending: PendingRequest, usage: Usage, endpoint: str, message_id: str, stop: str | None
    ) -> LedgerRow:
        """Put an answered request into the ledger."""
        row = LedgerRow(
            **msgspec.structs.asdict(pending.opened),
            endpoint=endpoint,
            model=pending.model,
            source=pending.source,
            stream=bool(pending.body.get("stream")),
            status=200,
            message_id=message_id,
            thread=pending.body["thread"]["type"] if pending.thread is not None else None,
            blocks=len(pending.prompt),
            breakpoints=len(pending.prompt.marks),
            tokens=TokenCounts.of(usage),
            hit_rate=usage.hit_rate,
            shared=pending.shared,
            stop_reason=stop,
            applied_edits=pending.applied,
            fault=pending.step.fault if pending.step else None,
            **make_price_fields(pending.price, usage),
        )
        self.ledger.add(row)
        return row


def lower_headers(headers: Mapping[str, str] | None) -> Mapping[str, str]:
    """Headers by their lower-case names. A call without a wire needs no key."""
    if headers is None:
        return {"x-api-key": "in-process"}
    return {name.lower(): value for name, value in headers.items()}


def name_source(headers: Mapping[str, str]) -> str:
    """The conversation a request belongs to: our own header, or the ones by which clients tell theirs."""
    if SOURCE_HEADER in headers:
        return headers[SOURCE_HEADER]
    for names in SESSION_HEADERS:
        if found := [headers[name] for name in names if headers.get(name)]:
            return "/".join(found)
    return "default"


def is_thinking_bound(model: str) -> bool:
    return find_capabilities(model).binds_thinking


def is_thinking_kept(price: Price | None) -> bool:
    return price.keeps_thinking if price is not None else True


def read_marked_prompt(body: Json) -> CachedPrompt:
    """The blocks of a request with the automatic breakpoint in its place."""
    prompt = read_prompt(body)
    control = body.get("cache_control")
    target = find_automatic_target(body) if control else None
    if control and target is not None:
        mark_automatically(prompt, target[0], target[1], parse_ttl(control))
    return prompt


def _tokens(body: Json) -> int:
    return read_prompt(body).tokens


def decode_body(raw: bytes) -> Any:
    """A request's body from the wire; raises what the API says of something that is not JSON."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise make_invalid_request(f"The request body is not valid JSON: {error}") from error


EPOCH: Final = "1970-01-01T00:00:00Z"
"""The release date of every model: our tables have none, and the API then gives the epoch."""


def list_models(api: Api, query: dict[str, str]) -> Json:
    """One page of the models; `limit`, `after_id` and `before_id` turn pages."""
    names = list(api.models) if api.models is not None else [price.model for price in api.prices]
    if "after_id" in query:
        names = names[_index(names, query["after_id"]) + 1 :]
    if "before_id" in query:
        names = names[: _index(names, query["before_id"])]
    limit = query.get("limit", "1000")
    if not limit.isdecimal() or not 1 <= int(limit) <= 1_000:
        raise make_invalid_request("limit: Input should be between 1 and 1000")
    page = names[: int(limit)]
    return {
        "object": "list",
        "data": [describe_model(name, api.prices.of(name)) for name in page],
        "has_more": len(page) < len(names),
        "first_id": page[0] if page else None,
        "last_id": page[-1] if page else None,
    }


def _index(names: list[str], name: str) -> int:
    if name not in names:
        raise make_invalid_request(f"model: {name} is not in the list")
    return names.index(name)


def describe_model(name: str, price: Price | None) -> Json:
    words = [word for word in name.split("-") if not (word.isdecimal() and len(word) == 8)]
    return {
        "type": "model",
        "id": name,
        "display_name": " ".join(words).title(),
        "created_at": EPOCH,
        "lifecycle": "active",
        "max_input_tokens": price.window if price else None,
        "max_tokens": price.max_output if price else None,
        "object": "model",
        "created": 0,
        "owned_by": "sevenfold",
    }
