"""The steps that chat completions and the Responses API have in common on the simulated provider.

A request is turned into the Messages form, so that one reply function and one script serve all APIs, and
the reply is turned back. The cache is automatic.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import msgspec

from sevenfold.core.tokens import Usage
from sevenfold.simulator.api import (
    Api,
    ApiOutcome,
    OpenedRequest,
    PendingRequest,
    lower_headers,
    name_source,
)
from sevenfold.simulator.cache import (
    LEAST,
    STEP,
    CacheVerdict,
    count_content_tokens,
    hash_steps,
    parse_retention,
    read_prompt,
)
from sevenfold.simulator.errors import ApiError, Json
from sevenfold.simulator.script import ScriptAnswer, ScriptReply, finish_reply, to_reply

T = TypeVar("T")


@dataclass(slots=True)
class PendingChat(PendingRequest):
    asked: Json = field(default_factory=dict)  # The request as it came
    steps: list[bytes] = field(default_factory=list)
    keep: float = 0.0


class OpenAiEndpoint(ABC):
    """Answers one of OpenAI's two APIs with the parts of an `Api`."""

    address: ClassVar[str]

    def __init__(self, api: Api) -> None:
        self._api = api
        self._uses = self._replies = 0

    @abstractmethod
    def to_messages_request(self, body: Any, key: str) -> Json:
        """The same request as the Messages API would have it; raises `ApiError` for a wrong one."""

    @abstractmethod
    def encode_reply(self, pending: PendingChat, reply: ScriptReply, number: int, usage: Usage) -> Json:
        """The body of the response; `number` counts the replies."""

    def prepare(
        self, body: Any, headers: Mapping[str, str] | None = None, received: int = 0
    ) -> PendingChat | ApiOutcome:
        headers = lower_headers(headers)
        opened = self._api.open(received)
        try:
            return self._accept(opened, body, headers)
        except ApiError as error:
            said = _in_its_words(error, body, headers)
            return self._api.refuse(opened, self.address, body, headers, said)

    def reply_to(self, pending: PendingRequest) -> Any:
        return self._api.reply_to(pending)

    def finish(self, pending: PendingRequest, answer: ScriptAnswer) -> ApiOutcome:
        assert isinstance(pending, PendingChat)
        reply = finish_reply(to_reply(answer), pending.body, pending.room, self._next_use)
        self._replies += 1
        scope = pending.key, pending.model
        self._api.implicit.write(scope, pending.steps, pending.opened.at, pending.keep)
        usage = pending.verdict.usage(count_content_tokens(reply.content))
        body = self.encode_reply(pending, reply, self._replies, usage)
        row = self._api.enter(pending, usage, self.address, body["id"], reply.stop_reason)
        return ApiOutcome(200, body, self._api.headers(pending.opened.id), row, pending.step)

    def _accept(self, opened: OpenedRequest, body: Any, headers: Mapping[str, str]) -> PendingChat:
        key = self._api.check_key(headers)
        form = self.to_messages_request(body, key)
        model = form["model"]
        price = self._api.price_of(model)
        source = name_source(headers)
        step = self._api.script.take(form, source)
        if step is not None and step.error is not None and step.error.after_events is None:
            raise step.error.problem()
        prompt = read_prompt({**form, "tool_choice": None})  # here it is no part of the prefix
        window = self._api.window_of(model, price)
        if prompt.tokens > window:
            raise ApiError(
                400,
                f"This model's maximum context length is {window} tokens. However, your messages "
                f"resulted in {prompt.tokens} tokens. Please reduce the length of the messages.",
                code="context_length_exceeded",
            )
        steps, total = hash_steps(form)
        cached = self._api.implicit.look((key, model), steps, opened.at)
        # Models that bill writes report the whole steps they had to write; others have no writes.
        writes = price is not None and price.write_5m > 1 and total >= LEAST
        written = max(0, total // STEP * STEP - cached) if writes else 0
        verdict = CacheVerdict(total - cached - written, written, 0, cached, cached // STEP)
        shared = self._api.ledger.compare(source, prompt)
        return PendingChat(
            opened, key, source, form, model, price, prompt, verdict, step, shared,
            room=window - total, asked=body, steps=steps, keep=parse_retention(body),
        )  # fmt: skip

    def _next_use(self) -> str:
        self._uses += 1
        return f"call_sim_{self._uses:06d}"


def convert_body(body: Any, kind: type[T]) -> T:
    """The body as this type; raises what these APIs say of a missing or wrong field."""
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at `$")
        where = at.strip("`.") or "request body"
        raise ApiError(400, f"Invalid value for '{where}': {what}.", param=where) from error


def make_output_config(wanted: Any, where: str) -> Json:
    """The field of the Messages API that asks for this format; no field for plain text."""
    if wanted is None:
        return {}
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind not in ("text", "json_object", "json_schema"):
        said = f"Invalid value for '{where}.type': expected 'text', 'json_object' or 'json_schema'."
        raise ApiError(400, said, param=f"{where}.type", code="invalid_value")
    if kind == "json_schema" and not isinstance(wanted.get("schema"), dict):
        said = f"Missing required parameter: '{where}.schema'."
        raise ApiError(400, said, param=f"{where}.schema", code="missing_required_parameter")
    return {"output_config": {"format": wanted}} if kind != "text" else {}


def _in_its_words(error: ApiError, body: Any, headers: Mapping[str, str]) -> ApiError:
    """The errors that the Messages API has, too, as these say them."""
    if error.status == 401:
        key = headers.get("authorization", "").removeprefix("Bearer ")
        said = f"Incorrect API key provided: {key}." if key else "You didn't provide an API key."
        return ApiError(401, said, kind="invalid_request_error", code="invalid_api_key")
    if error.status == 404 and error.code is None:
        said = f"The model `{body['model']}` does not exist or you do not have access to it."
        return ApiError(404, said, kind="invalid_request_error", code="model_not_found")
    return error
