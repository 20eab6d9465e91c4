"""The protocol of a message format, and a caller's messages as plain JSON: SDK objects as they are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from operator import is_
from typing import Any, Final, Protocol

import msgspec

from sevenfold.core.errors import Mistake
from sevenfold.core.messages import Block, Json, Message, Role
from sevenfold.core.request import Frame, Request, Ttl
from sevenfold.core.transcript import Reply
from sevenfold.models.jsontext import repair_characters


class SpokenMessage(msgspec.Struct, frozen=True):
    """One of the caller's messages as we understand it."""

    role: Role
    blocks: tuple[Block, ...]
    by: str  # The author: "user", "model", "tools", or "system" for instructions among the messages


class CallerRequest(msgspec.Struct, frozen=True):
    """The caller's request without its messages."""

    model: str
    leading: tuple[Any, ...]  # Messages at the beginning that belong to the frame
    system: Any
    tools: Any
    params: Json


class WrittenMessages(msgspec.Struct, frozen=True):
    """The messages of a request, and which of them each message of the view became."""

    messages: list[Any]
    ends: Sequence[int]  # The end of each message of the view, as an index into `messages`


class WireFormat(Protocol):
    """Reads and writes a provider's messages."""

    @property
    def is_messages_api(self) -> bool:
        """True if we place cache marks and may use context management."""
        ...

    @property
    def has_reply_items(self) -> bool:
        """True if one reply of the model is several messages in a row."""
        ...

    def count_leading(self, messages: Sequence[Any]) -> int:
        """The number of messages at the beginning that belong to the frame."""
        ...

    def decode_message(self, message: Json, where: str) -> SpokenMessage:
        """A message of the caller, plain and without marks."""
        ...

    def rewrite_message(
        self, message: Json, before: Sequence[Block], after: Sequence[Block | None]
    ) -> Json | None:
        """The caller's message with these of its blocks shown otherwise; None: nothing is left."""
        ...

    def encode_message(self, message: Message) -> list[Json]:
        """A message of ours in the words of this format."""
        ...

    def make_frame(self, asked: CallerRequest, ttl: Ttl) -> Frame:
        """The part of the request that the provider's cache depends on."""
        ...

    def make_request(
        self, asked: CallerRequest, request: Request, written: WrittenMessages, most: int
    ) -> Json:
        """The arguments of the SDK's call; `most` is the longest reply the model can give."""
        ...

    def decode_reply(self, response: Json) -> Reply | None:
        """The provider's reply; None if the response is not in this format."""
        ...

    def read_reply_messages(self, response: Json) -> list[Json]:
        """The messages that a caller appends to its history for this response."""
        ...

    def encode_tool(self, schema: Json) -> Json:
        """A tool of ours as this format defines tools."""
        ...


MARK: Final = "cache_control"  # Placed by us; a caller's own marks change between requests: left out
FINGERPRINT: Final = 12  # Bytes. Enough to tell all messages of a conversation apart.
_canonical = msgspec.json.Encoder(order="sorted").encode
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def to_plain_json(value: Any, where: str) -> Any:
    """The value made of objects, lists, texts and numbers only; a `Mistake` where that cannot be."""
    return value if _is_plain(value) else _made_plain(value, where)


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is str or value is None or kind is int or kind is bool or kind is float:
        return True
    if kind is dict:
        return set(map(type, value)) <= {str} and all(map(_is_plain, value.values()))
    return kind is list and all(map(_is_plain, value))


def _made_plain(value: Any, where: str) -> Any:
    if isinstance(value, str):
        return to_plain_text(value)
    if isinstance(value, int | float | None):
        return value
    if isinstance(value, Mapping):
        return {_key(key, where): _made_plain(item, where) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_made_plain(item, where) for item in value]
    if (told := _told(value)) is not None:
        return _made_plain(told, where)
    raise Mistake(
        f"{where} holds a {type(value).__name__}, and JSON has no place for it: give objects, lists, "
        "texts and numbers, or what the SDK returned"
    )


def to_plain_text(text: str) -> str:
    """The same text as a plain `str`: some callers have texts with methods of their own."""
    return str.__str__(text)


def _key(key: Any, where: str) -> str:
    if isinstance(key, str):
        return to_plain_text(key)
    if isinstance(key, int | float | None):
        return str(_encode(key), "ascii")
    raise Mistake(f"{where} has a {type(key).__name__} for a key, and JSON only has texts there")


def _told(value: Any) -> Any:
    """An object of an SDK as that SDK would send it."""
    if callable(dump := getattr(value, "model_dump", None)):
        left_out = getattr(value, "__api_exclude__", None)
        return dump(mode="json", by_alias=True, exclude_unset=True, exclude=left_out, warnings=False)
    tell = getattr(value, "to_dict", None)
    return tell() if callable(tell) else None


def copy_value(value: Any) -> Any:
    """A copy that only shares what cannot change, to compare with later: `==` then sees every change."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return {key: copy_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copy_value(item) for item in value]
    if isinstance(value, tuple):
        return tuple(copy_value(item) for item in value)
    copy: Callable[..., Any] | None = getattr(value, "model_copy", None)
    return copy(deep=True) if copy is not None else value


def to_fresh_json(value: Any) -> Any:
    """A copy of a message or block of ours as JSON."""
    return _decode(_encode(value))


def strip_cache_marks(message: Json) -> Json:
    """A message, a block or a tool without its cache marks; what a tool was called with stays."""
    out = message
    content = message.get("content")
    if isinstance(content, list):
        blocks = [strip_cache_marks(block) if isinstance(block, dict) else block for block in content]
        if not all(map(is_, blocks, content)):
            out = {**message, "content": blocks}
    if MARK in out:
        out = {key: value for key, value in out.items() if key != MARK}
    return out


def encode_canonical(message: Json) -> bytes:
    """The same bytes for the same content: in any order of its fields, a text or a list of one text."""
    if isinstance(content := message.get("content"), str):
        message = {**message, "content": [{"type": "text", "text": content}]}
    return _canonical(message)


def make_frame(
    asked: CallerRequest, system: Iterable[str], tools: Iterable[Json], cached: frozenset[str], ttl: Ttl
) -> Frame:
    """The frame of a request; `cached` are the parameters on which the provider's cache depends."""
    params = {key: value for key, value in asked.params.items() if key in cached}
    return Frame(
        asked.model,
        tuple(map(repair_characters, system)),
        tuple(map(repair_characters, tools)),
        repair_characters(to_plain_json(params, "params")),
        ttl,
    )


def read_instructions(asked: CallerRequest) -> Iterator[str]:
    """Yields the system prompt in parts: what was given beside the messages, then what leads them."""
    if asked.system:
        if not isinstance(asked.system, str):
            raise Mistake("system must be a text here; give parts as a message of the role 'system'")
        yield asked.system
    for message in asked.leading:
        told = to_plain_json(message, "messages")
        content = told.get("content")
        yield content if isinstance(content, str) else str(_encode(told), "utf-8")


def read_tool(tool: Any, where: str) -> Json:
    """The definition of a tool as plain JSON; a `Mistake` if it is no object."""
    told = to_plain_json(tool, where)
    if not isinstance(told, dict):
        raise Mistake(f"{where} is a {type(tool).__name__}: give each tool as an object")
    return told


def fingerprint_messages(messages: Iterable[bytes]) -> str:
    """The fingerprint by which messages are recognised, from their canonical bytes."""
    return blake2b(b"\n".join(messages), digest_size=FINGERPRINT).hexdigest()
