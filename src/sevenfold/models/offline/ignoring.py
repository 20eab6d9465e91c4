"""A conversation as if memory were empty, for a person who wants it ignored."""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace

from sevenfold.memory.aside import set_aside
from sevenfold.messages import Message, Text
from sevenfold.models.offline.view import Conversation, typed_text

_REMEMBERED: Final = re.compile(
    r"<(?P<tag>(?:team-)?memory-index|recalled-memories)\b.*?(?:</(?P=tag)>|\Z)", re.DOTALL
)


def as_if_empty(conversation: Conversation) -> Conversation:
    """The same without index and recalled memories, if the person asked for that; else as it is."""
    typed = (
        typed_text(message)
        for at, message in reversed([*enumerate(conversation.messages)])
        if message.role == "user" and at not in conversation.added
    )
    if not set_aside(typed):
        return conversation
    messages = tuple(
        _without(message) if message.role == "user" else message
        for message in conversation.messages
    )
    return replace(conversation, messages=messages)


def _without(message: Message) -> Message:
    blocks = (
        replace(block, text=_REMEMBERED.sub("", block.text)) if isinstance(block, Text) else block
        for block in message.content
    )
    return replace(message, content=tuple(blocks))
