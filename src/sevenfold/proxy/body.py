"""The body of a client's request, read only as far as needed, and put together again byte for byte."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from operator import is_
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Raw

from sevenfold.context.anthropic import AnthropicFormat
from sevenfold.context.formats import MARK, CallerRequest, WireFormat, WrittenMessages, strip_cache_marks
from sevenfold.context.openai import OpenAiFormat
from sevenfold.context.responses import ResponsesFormat
from sevenfold.core.errors import SevenfoldError
from sevenfold.core.messages import Block, Json, ToolResult
from sevenfold.core.request import Frame, Request, Ttl
from sevenfold.layers.l1_tool_results.tool_results import is_empty

MESSAGES: Final = "/v1/messages"
CHAT: Final = ("/v1/chat/completions", "/chat/completions")
RESPONSES: Final = ("/v1/responses", "/responses")
BILLING: Final = "x-anthropic-billing-header:"
"""Beginning of a system block that a client sends for the provider's books; it is no part of the prompt."""
DIGEST: Final = 12  # Bytes
NO_RAW: Final = Raw(b"null")
_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode
_decode_fields: Final = msgspec.json.Decoder(dict[str, Raw]).decode


class UntouchedRequest(SevenfoldError, kind="untouched_request"):
    """A request goes out as it came; the sentence says why without a word of it."""


class ClientBody(msgspec.Struct):
    """The fields of a request that the proxy looks at; all others it never reads."""

    listed: ClassVar[str] = "messages"  # The field with the messages
    model: str
    messages: list[Raw]
    system: Raw = NO_RAW
    tools: Raw = NO_RAW
    thread: Raw = NO_RAW
    thinking: Raw = NO_RAW
    tool_choice: Raw = NO_RAW
    context_management: Raw = NO_RAW
    output_config: Raw = NO_RAW
    response_format: Raw = NO_RAW
    text: Raw = NO_RAW

    def read_params(self) -> Json:
        """The parameters on which the provider's cache depends."""
        given = {
            "thinking": self.thinking,
            "tool_choice": self.tool_choice,
            "context_management": self.context_management,
            "output_config": self.output_config,
            "response_format": self.response_format,
            "text": self.text,
        }
        return {name: _decode(raw) for name, raw in given.items() if raw is not NO_RAW}


class ItemsBody(ClientBody):
    """The same of the Responses API, whose messages are items."""

    listed: ClassVar[str] = "input"


class ResponsesBody(msgspec.Struct):
    """The fields of a request of the Responses API, under their own names."""

    model: str
    input: list[Raw]
    instructions: Raw = NO_RAW
    tools: Raw = NO_RAW
    text: Raw = NO_RAW
    previous_response_id: Raw = NO_RAW
    conversation: Raw = NO_RAW

    def to_items(self) -> ItemsBody | None:
        """None if the server adds a history that is not in the request."""
        if any(map(decode_raw, (self.previous_response_id, self.conversation))):
            return None
        return ItemsBody(self.model, self.input, self.instructions, self.tools, text=self.text)


_read_responses_body: Final = msgspec.json.Decoder(ResponsesBody).decode
read_body: Final = msgspec.json.Decoder(ClientBody).decode


def decode_raw(raw: Raw) -> Any:
    return None if raw is NO_RAW else _decode(raw)


def replace_messages(
    data: bytes,
    old: Sequence[Raw],
    messages: Iterable[bytes | Raw],
    listed: str = ClientBody.listed,
    others: Mapping[str, bytes | Raw] = {},
) -> bytes:
    """The body with other messages; every field that is not among these stays as the client wrote it."""
    begin, end = _find_messages(data, old, listed) if not others else (0, 0)
    if end:
        return b"".join((data[:begin], b",".join(messages), data[end:]))
    fields: dict[str, bytes | Raw] = {**_decode_fields(data), **others}
    fields[listed] = b"".join((b"[", b",".join(messages), b"]"))
    return b"{" + b",".join(_encode(name) + b":" + value for name, value in fields.items()) + b"}"


def _find_messages(data: bytes, messages: Sequence[Raw], listed: str) -> tuple[int, int]:
    """Where the first of these messages begins and the last one ends; zeros if that is not certain.

    It saves reading a long body a second time. No text holds a message as it is written: its quotes would
    be escaped. Another field might, and then the length is not that of the messages and their commas.
    """
    first, last = bytes(messages[0]), bytes(messages[-1])
    begin, end = data.find(first), data.rfind(last) + len(last)
    after = begin + len(first)
    gap = data.find(b"{", after, after + 8) - after if len(messages) > 1 else 0
    length = sum(memoryview(raw).nbytes for raw in messages) + gap * (len(messages) - 1)
    before = (
        data[max(0, begin - 40) : begin].rstrip().removesuffix(b"[").rstrip().removesuffix(b":").rstrip()
    )
    if gap < 0 or end - begin != length or not before.endswith(b'"%s"' % listed.encode()):
        return 0, 0
    return begin, end


def encode_message(message: Json, marked: Sequence[Json] = ()) -> bytes:
    """A message that a layer changed, with the cache marks that the client had put on it."""
    for original in marked:
        if _list_answers(original) == _list_answers(message) != []:
            return _encode(_copy_marks(original, message))
    return _encode(message)


def _list_answers(message: Json) -> list[Any]:
    content = message.get("content")
    blocks = content if isinstance(content, list) else ()
    return [block["tool_use_id"] for block in blocks if "tool_use_id" in block]


def _copy_marks(original: Json, message: Json) -> Json:
    blocks = [
        {**block, MARK: before[MARK]} if MARK in before else block
        for before, block in zip(original["content"], message["content"], strict=True)
    ]
    return {**message, "content": blocks}


def find_marked(messages: Iterable[Raw]) -> list[Json]:
    """The client's messages that carry cache marks: a few at the end."""
    marked = (_decode(raw) for raw in messages if b'"cache_control"' in bytes(raw))
    return [message for message in marked if strip_cache_marks(message) is not message]


def make_digest(*parts: bytes | Raw) -> str:
    """A short name for this content."""
    digest = blake2b(digest_size=DIGEST)
    for part in map(bytes, parts):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


def _keep_empty_results(before: Sequence[Block], after: Sequence[Block | None]) -> Sequence[Block | None]:
    """The blocks to show: a result that says nothing stays so, as the client is used to it."""
    pairs = zip(before, after, strict=True)
    shown = [old if isinstance(old, ToolResult) and is_empty(old) else new for old, new in pairs]
    return before if all(map(is_, shown, before)) else shown


class _RelayedForm:
    """Before a format: its client's parameters stay its own, and so do results that say nothing."""

    def rewrite_message(
        self, message: Json, before: Sequence[Block], after: Sequence[Block | None]
    ) -> Json | None:
        shown = _keep_empty_results(before, after)
        if shown is before:
            return message
        rewritten: Json | None = super().rewrite_message(message, before, shown)  # type: ignore[misc]
        return rewritten

    def make_request(
        self, asked: CallerRequest, request: Request, written: WrittenMessages, most: int
    ) -> Json:
        return {"messages": [*asked.leading, *written.messages]}


class RelayedMessages(_RelayedForm, AnthropicFormat):
    """The Messages format of a client whose marks stay its own, too."""

    is_messages_api = False

    def make_frame(self, asked: CallerRequest, ttl: Ttl) -> Frame:
        system = asked.system
        if isinstance(system, list):
            long = any((block.get(MARK) or {}).get("ttl") == "1h" for block in system)
            ttl = "1h" if long else "5m"
            system = [block for block in system if not str(block.get("text", "")).startswith(BILLING)]
        return super().make_frame(msgspec.structs.replace(asked, system=system), ttl)


class RelayedChat(_RelayedForm, OpenAiFormat):
    """Chat completions of another client."""


class RelayedResponses(_RelayedForm, ResponsesFormat):
    """Items of the Responses API of another client."""


def choose_format(path: str) -> WireFormat | None:
    """The format of requests to this path; None: they pass through."""
    path = path.rstrip("/")
    if path == MESSAGES:
        return RelayedMessages()
    if path in RESPONSES:
        return RelayedResponses()
    return RelayedChat() if path in CHAT else None


def read_body_of(form: WireFormat, data: bytes) -> ClientBody | None:
    """The body of a request in this format; None if the conversation is not in it."""
    if isinstance(form, RelayedResponses):
        return _read_responses_body(data).to_items()
    return read_body(data)
