"""What a message format must be able to do for us. No logic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from sevenfold.messages import Block, Json, Message, Role
from sevenfold.request import Frame, Request
from sevenfold.transcript import Reply


class Spoken(msgspec.Struct, frozen=True):
    """One of the caller's messages as we understand it."""

    role: Role
    blocks: tuple[Block, ...]
    by: str
    """Who: "user", "model", "tools", or "system" for instructions among the messages."""


class Asked(msgspec.Struct, frozen=True):
    """What a caller hands over beside the messages."""

    model: str
    leading: tuple[Any, ...]
    """Messages at the beginning that belong to the frame."""
    system: Any
    tools: Any
    params: Json


class Written(msgspec.Struct, frozen=True):
    """The messages of a request, and which of them each message of the view became."""

    messages: list[Any]
    ends: Sequence[int]
    """Where each message of the view ends."""


class Format(Protocol):
    """How a provider's messages are read and written."""

    @property
    def is_messages_api(self) -> bool:
        """Whether we place its cache marks and may use its context management."""
        ...

    def leading(self, messages: Sequence[Any]) -> int:
        """How many messages at the beginning belong to the frame."""
        ...

    def spoken(self, message: Json, where: str) -> Spoken:
        """A message of the caller, plain and without marks."""
        ...

    def rewritten(
        self, message: Json, before: Sequence[Block], after: Sequence[Block | None]
    ) -> Json | None:
        """The caller's message with these of its blocks shown otherwise; None: nothing is left."""
        ...

    def told(self, message: Message) -> list[Json]:
        """A message of ours in the words of this format."""
        ...

    def frame(self, asked: Asked, ttl: Any) -> Frame:
        """What the provider's cache depends on, of what the caller asks for."""
        ...

    def request(self, asked: Asked, request: Request, written: Written, most: int) -> Json:
        """What goes into the SDK's call; `most` is the longest reply the model can give."""
        ...

    def reply(self, response: Json) -> Reply | None:
        """What the provider answered; None when this is no answer in this format."""
        ...

    def tool(self, schema: Json) -> Json:
        """A tool of ours as this format defines tools."""
        ...
