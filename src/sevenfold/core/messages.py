"""Messages made of blocks. Pure values, no identity.

Blocks have the shape of the Messages API, which is also how we store them. Fields we do not know ride
along in `extra`; whole blocks we do not know are `Opaque` and keep the very bytes they came in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

Role: TypeAlias = Literal["user", "assistant"]
Json: TypeAlias = dict[str, Any]


class Text(msgspec.Struct, frozen=True, tag="text", tag_field="type", omit_defaults=True):
    text: str
    extra: Json = {}


class Thinking(msgspec.Struct, frozen=True, tag="thinking", tag_field="type", omit_defaults=True):
    thinking: str
    signature: str = ""
    extra: Json = {}


class RedactedThinking(
    msgspec.Struct, frozen=True, tag="redacted_thinking", tag_field="type", omit_defaults=True
):
    data: str
    extra: Json = {}


class ToolUse(msgspec.Struct, frozen=True, tag="tool_use", tag_field="type", omit_defaults=True):
    id: str
    name: str
    input: Json
    extra: Json = {}


class ToolResult(msgspec.Struct, frozen=True, tag="tool_result", tag_field="type", omit_defaults=True):
    tool_use_id: str
    content: str | tuple[Block, ...] = ""
    is_error: bool = False
    extra: Json = {}

    @property
    def text(self) -> str:
        """The words of the message; images and documents have none."""
        if isinstance(self.content, str):
            return self.content
        return "".join(b.text for b in self.content if isinstance(b, Text))

    @property
    def has_media(self) -> bool:
        return not isinstance(self.content, str) and any(
            isinstance(b, Image | Document) for b in self.content
        )


class Image(msgspec.Struct, frozen=True, tag="image", tag_field="type", omit_defaults=True):
    source: Json
    extra: Json = {}


class Document(msgspec.Struct, frozen=True, tag="document", tag_field="type", omit_defaults=True):
    source: Json
    extra: Json = {}


class Opaque(msgspec.Struct, frozen=True, tag="opaque", tag_field="type", omit_defaults=True):
    """A block we do not know, kept as the bytes it came in."""

    kind: str
    raw: str


Block: TypeAlias = Text | Thinking | RedactedThinking | ToolUse | ToolResult | Image | Document | Opaque
THOUGHTS: Final = (Thinking, RedactedThinking)


class Message(msgspec.Struct, frozen=True, tag="message"):
    """Its parts are asked for many times a request; `isinstance` of another kind of block is slow."""

    role: Role
    content: tuple[Block, ...]

    @property
    def text(self) -> str:
        return "".join([b.text for b in self.content if type(b) is Text])

    @property
    def says_something(self) -> bool:
        """Thinking alone is not an answer, and providers refuse it when it comes back."""
        return any(
            b.text.strip() if isinstance(b, Text) else not isinstance(b, THOUGHTS) for b in self.content
        )

    @property
    def tool_uses(self) -> tuple[ToolUse, ...]:
        return tuple([b for b in self.content if type(b) is ToolUse])

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple([b for b in self.content if type(b) is ToolResult])


def user(text: str) -> Message:
    return Message("user", (Text(strip_half_characters(text)),))


def make_context_message(*lines: str) -> Message:
    """A message of the program, marked so that it is not taken for the user's."""
    text = "\n".join(lines).replace("</context", "&lt;/context")  # what it quotes cannot end it
    return user(f"<context>\n{text}\n</context>")


def assistant(*blocks: Block) -> Message:
    return Message("assistant", blocks)


def strip_half_characters(text: str) -> str:
    """The text without halves of characters, which no wire format and no file can hold."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")


def strip_message_characters(message: Message) -> Message:
    return Message(
        message.role,
        tuple(
            Text(strip_half_characters(b.text), b.extra) if isinstance(b, Text) else b
            for b in message.content
        ),
    )


# --- to and from the wire ---------------------------------------------------------------------------

_KNOWN: Final[dict[str, tuple[type[Any], frozenset[str]]]] = {
    str(kind.__struct_config__.tag): (kind, frozenset(kind.__struct_fields__) - {"extra"})
    for kind in (Text, Thinking, RedactedThinking, ToolUse, ToolResult, Image, Document)
}
_ENCODED, _OBJECTS, _LISTS = (bytes, msgspec.Raw), (dict, Mapping), (list, tuple)
_UNKEPT: Final = ("type", "cache_control")
_decode_raws = msgspec.json.Decoder(list[msgspec.Raw])
_encode = msgspec.json.Encoder().encode


def parse_block(raw: bytes | msgspec.Raw | Mapping[str, Any]) -> Block:
    """A block from the wire. Whatever does not have the shape we know is kept as it came."""
    encoded = raw if isinstance(raw, _ENCODED) else None
    fields: Any = raw if encoded is None else msgspec.json.decode(encoded)
    kind = str(fields.get("type", "")) if isinstance(fields, _OBJECTS) else ""
    if kind in _KNOWN:
        try:
            return _known_block(kind, fields)
        except msgspec.ValidationError:
            pass
    return Opaque(kind, (_encode(raw) if encoded is None else bytes(encoded)).decode("utf-8"))


def _known_block(kind: str, fields: Mapping[str, Any]) -> Block:
    struct, names = _KNOWN[kind]
    extra: Json = {}
    ours: Json = {"type": kind, "extra": extra}
    for name, value in fields.items():
        if name not in names:
            if name not in _UNKEPT:
                extra[name] = value
        elif value is not None:
            ours[name] = value
    content = ours.pop("content", None) if isinstance(ours.get("content"), _LISTS) else None
    block: Block = msgspec.convert(ours, struct)
    if content is not None and isinstance(block, ToolResult):
        return msgspec.structs.replace(block, content=tuple(parse_block(b) for b in content))
    return block


def parse_message(role: Role, content: str | bytes | Iterable[msgspec.Raw | Mapping[str, Any]]) -> Message:
    """A message from the wire: content as text, as a list of blocks, or as the bytes of that list."""
    if isinstance(content, str):
        return Message(role, (Text(content),))
    blocks = _decode_raws.decode(content) if isinstance(content, bytes) else content
    return Message(role, tuple(parse_block(b) for b in blocks))


def encode_block(block: Block) -> Json | msgspec.Raw:
    """The JSON of this block in a request."""
    if isinstance(block, Opaque):
        return msgspec.Raw(block.raw.encode("utf-8"))
    out: Json = {"type": block.__struct_config__.tag}
    for name in block.__struct_fields__:
        if name != "extra":
            out[name] = getattr(block, name)
    if isinstance(block, ToolResult):
        if not isinstance(block.content, str):
            out["content"] = [encode_block(b) for b in block.content]
        if not block.is_error:
            del out["is_error"]
    out.update(block.extra)
    return out


def make_wire_message(message: Message) -> Json:
    return {"role": message.role, "content": [encode_block(b) for b in message.content]}


CLOSE: Final = "</directive>"
_TOKEN: Final = r"[A-Za-z0-9_.:-]{1,128}"
_OPEN: Final = rf'<directive kind="({_TOKEN})" id="({_TOKEN})">[ \t]*(?:\n|\Z)'


class Directive(msgspec.Struct, frozen=True):
    kind: str
    id: str
    body: str


def parse_directive(text: str) -> Directive | None:
    """The directive that a text is, or None. One that was never closed goes to the end."""
    opened = re.match(_OPEN, text)
    if opened is None:
        return None
    end = text.rfind(CLOSE, opened.end())
    body = text[opened.end() : end if end >= 0 else len(text)]
    return Directive(opened[1], opened[2], body.strip("\n"))


def write_directive(kind: str, id: str, body: str) -> str:
    """The text of a directive, as `parse_directive` reads it."""
    for token in (kind, id):
        if not re.fullmatch(_TOKEN, token):
            raise ValueError(f"{token!r} cannot stand in the tag of a directive")
    return f'<directive kind="{kind}" id="{id}">\n{body}\n{CLOSE}'
