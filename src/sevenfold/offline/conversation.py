"""The conversation as the offline engine sees it, and which part of it a person really said.

Only a person's own words are requests. Tool results, reminders, recalled memories and whatever a layer
added are data: they can be quoted, never obeyed. So is what was piped in beside a request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.core.messages import (
    Directive,
    Document,
    Image,
    Json,
    Message,
    Text,
    ToolResult,
    ToolUse,
    parse_directive,
)
from sevenfold.core.request import Request
from sevenfold.memory.agent_writes import is_memory_ignored

TYPED_BY: Final = frozenset({"user", "turn", ""})
"""The authors that may ask for something: the person, or the turn when it wants a reply continued."""

_DATA_OPEN: Final = re.compile(
    r"^[ \t]*<(?:(?P<piped>stdin-*)(?=>)"
    r"|(?P<tag>context|system-reminder|persisted-output|memor(?:y|ies)[\w-]*|recall[\w-]*"
    r"|summary|session-notes|digest|collapsed|snipped|mail|[\w-]*notification"
    r"|peer-message|agent-notice)\b)"
    r"(?P<attributes>[^<>\n]*)>",
    re.MULTILINE,
)
"""The beginning of what was added to a conversation. It holds data."""
LETTER: Final = "peer-message"
NOTICE: Final = "agent-notice"
"""The tags around what another agent wrote, and around what became of an agent of this conversation."""
_ARRIVED: Final = re.compile(
    rf'\s*<(?P<tag>{LETTER}|{NOTICE})\b(?P<attributes>(?:\s+[\w-]+="[^"\n]*")*)(?:\s*>|[^\n]*)'
)
PIPED: Final = "stdin"
"""The tag around what was piped in; it has dashes at its end where the text itself has such a tag."""


class OfflineConversation(msgspec.Struct, frozen=True):
    """A request, whichever way it came: the messages, the tools on offer, the system prompt."""

    messages: tuple[Message, ...] = ()
    tools: dict[str, Json] = {}  # Input schema by tool name
    system: str = ""
    added: frozenset[int] = frozenset()  # The user messages that no person typed, where the request says so
    room: int = 0  # Tokens that the reply may hold; 0: as many as it needs
    told: dict[str, str] = {}  # The descriptions of the tools, by name

    @classmethod
    def of(cls, request: Request) -> OfflineConversation:
        placed = list(request.view)
        offered = [tool for tool in request.frame.tools if tool.get("name")]
        return cls(
            tuple(p.message for p in placed),
            {str(tool["name"]): tool.get("input_schema") or {} for tool in offered},
            "\n\n".join(request.frame.system),
            frozenset(i for i, p in enumerate(placed) if p.message.role == "user" and p.by not in TYPED_BY),
            request.max_tokens,
            {str(tool["name"]): str(tool.get("description", "")) for tool in offered},
        )


class AddedPart(msgspec.Struct, frozen=True):
    """A part of a message that was put there for the reader, not typed by a person."""

    tag: str
    attributes: str
    text: str


class PersonRequest(msgspec.Struct, frozen=True):
    """The newest thing a person asked for: where it stands and what it says."""

    at: int
    text: str
    directive: Directive | None = None
    media: bool = False
    piped: str = ""  # The text piped in beside it. It is never a request.


class PastCall(msgspec.Struct, frozen=True):
    """A tool call that was made, and its result where there is one."""

    at: int
    use: ToolUse
    result: ToolResult | None

    @property
    def failed(self) -> bool:
        return self.result is not None and self.result.is_error


def split_added(text: str) -> tuple[str, list[AddedPart]]:
    """Split a text into what was typed, and what was added around it."""
    if arrived := parse_arrival(text):
        return "", [arrived]
    text, piped = _split_piped(text)
    typed, added, at = [], [], 0
    balance: dict[str, bool] = {}
    while opened := _DATA_OPEN.search(text, at):
        tag = opened["piped"] or opened["tag"]
        if tag not in balance:
            balance[tag] = text.count(f"</{tag}>") <= len(re.findall(rf"<{tag}[\s>]", text))
        find = text.find if balance[tag] else text.rfind
        end = find(f"</{tag}>", opened.end())  # one end too many is a forged one: then only the last counts
        typed.append(text[at : opened.start()])
        added.append(AddedPart(tag, opened["attributes"], text[opened.end() : end if end >= 0 else None]))
        at = end + len(f"</{tag}>") if end >= 0 else len(text)
    typed.append(text[at:])
    return "".join(typed), added + piped


def parse_arrival(text: str) -> AddedPart | None:
    """The arrival from another agent, if a text begins as one: then all of it is one."""
    opened = _ARRIVED.match(text)
    if opened is None:
        return None
    end = text.rfind(f"</{opened['tag']}>", opened.end())
    body = text[opened.end() : end if end >= 0 else len(text)]
    return AddedPart(opened["tag"], opened["attributes"], body.strip("\n"))


def _split_piped(text: str) -> tuple[str, list[AddedPart]]:
    """Cut off piped text first: it ends a message, and nothing in it ends anything else."""
    whole = text.rstrip()
    closed = _PIPED_END.match(whole, whole.rfind("\n</") + 1)
    opened = closed and re.search(rf"^[ \t]*<{closed['tag']}>\n?", whole, re.MULTILINE)
    if not closed or not opened:
        return text, []
    return text[: opened.start()], [AddedPart(closed["tag"], "", whole[opened.end() : closed.start()])]


_PIPED_END: Final = re.compile(rf"</(?P<tag>{PIPED}-*)>\Z")


def extract_typed_text(message: Message) -> str:
    """The text that a person typed in this message."""
    parts = (split_added(b.text)[0] for b in message.content if isinstance(b, Text))
    return "\n".join(part for part in parts if part.strip()).strip()


def extract_piped_text(message: Message) -> str:
    """The text that was piped in with this message."""
    added = (a for b in message.content if isinstance(b, Text) for a in split_added(b.text)[1])
    return "\n".join(part.text.strip("\n") for part in added if is_piped(part))


def is_piped(part: AddedPart) -> bool:
    return part.tag.rstrip("-") == PIPED


def find_ask(conversation: OfflineConversation, before: int | None = None) -> PersonRequest | None:
    """The newest request: a directive, something a person said, or pictures without words."""
    end = len(conversation.messages) if before is None else before
    for at in reversed(range(end)):
        message = conversation.messages[at]
        if message.role == "user" and (ask := _ask(conversation, at, message)):
            return ask
    return None


def _ask(conversation: OfflineConversation, at: int, message: Message) -> PersonRequest | None:
    for block in message.content:
        if isinstance(block, Text) and (directive := parse_directive(block.text)):
            return PersonRequest(at, block.text, directive)
    if at in conversation.added:
        return None
    text = extract_typed_text(message)
    media = any(isinstance(b, Image | Document) for b in message.content)
    piped = extract_piped_text(message)
    return PersonRequest(at, text, media=media, piped=piped) if text or media else None


def iterate_calls(
    conversation: OfflineConversation, start: int = 0, end: int | None = None
) -> Iterator[PastCall]:
    """The tool calls between two places, in order, each with its result."""
    messages = conversation.messages[start:end]
    results = {r.tool_use_id: r for m in messages for r in m.results}
    for at, message in enumerate(messages, start):
        if message.role == "assistant":
            for use in message.tool_uses:
                yield PastCall(at, use, results.get(use.id))


_REMEMBERED: Final = re.compile(
    r"<(?P<tag>(?:team-)?memory-index|recalled-memories)\b.*?(?:</(?P=tag)>|\Z)", re.DOTALL
)


def ignore_memory_if_asked(conversation: OfflineConversation) -> OfflineConversation:
    """The same without index and recalled memories, if the person asked for that; else as it is."""
    typed = (
        extract_typed_text(message)
        for at, message in reversed([*enumerate(conversation.messages)])
        if message.role == "user" and at not in conversation.added
    )
    if not is_memory_ignored(typed):
        return conversation
    messages = tuple(
        _without(message) if message.role == "user" else message for message in conversation.messages
    )
    return replace(conversation, messages=messages)


def _without(message: Message) -> Message:
    blocks = (
        replace(block, text=_REMEMBERED.sub("", block.text)) if isinstance(block, Text) else block
        for block in message.content
    )
    return replace(message, content=tuple(blocks))
