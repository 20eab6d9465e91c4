"""The records of a transcript: what was said, and what was done to it. One JSON line each."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from sevenfold.errors import FromTheFuture
from sevenfold.messages import Json, Message
from sevenfold.tokens import Usage

Id: TypeAlias = int
FORMAT: Final = 1
"""Version of the log. A higher one is refused before anything is read or written."""


class Reply(msgspec.Struct, frozen=True, tag="reply", omit_defaults=True):
    """What the model said, what it was charged, why it stopped, and what the server changed."""

    message: Message
    usage: Usage = Usage()
    stop: str = "end_turn"
    applied: tuple[Json, ...] = ()
    """Context edits the provider reports to have made."""
    model: str = ""
    diagnostics: Json = {}
    """What else the provider said about this reply: request id, cache diagnostics."""

    @property
    def cut_short(self) -> bool:
        """Whether it ran into its length limit in the middle of its words."""
        return self.stop == "max_tokens" and not self.message.tool_uses


class Results(msgspec.Struct, frozen=True, tag="results"):
    """Edit: show these instead of these tool results, by tool-use id."""

    shown: dict[str, str]


class Replace(msgspec.Struct, frozen=True, tag="replace"):
    """Edit: put `by` in place of the messages from `first` to `last`."""

    first: Id
    last: Id
    by: tuple[Message, ...]


class Unthink(msgspec.Struct, frozen=True, tag="unthink"):
    """Edit: drop the thinking blocks of every message from `first` on."""

    first: Id


class Undo(msgspec.Struct, frozen=True, tag="undo"):
    """Edit: work the view out as if these entries had never been (rewind, expand)."""

    ids: frozenset[Id]


Edit: TypeAlias = Results | Replace | Unthink | Undo


class Pin(msgspec.Struct, frozen=True, tag="pin", omit_defaults=True):
    """Goes into the request after message `after`, for ever; the view does not show it."""

    after: Id
    payload: Json
    frees: int = 0


class Mark(msgspec.Struct, frozen=True, tag="mark"):
    """What someone wants to find again, here or after a resume. The last one per name counts."""

    name: str
    value: Any


class Unknown(msgspec.Struct, frozen=True, tag="unknown"):
    """A record of a kind we do not know: it stays in the file and changes nothing."""

    raw: bytes


What: TypeAlias = Message | Reply | Results | Replace | Unthink | Undo | Pin | Mark | Unknown


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    id: Id
    at: float
    what: What
    by: str = ""
    """Who: "user", "model", "tools", or the layer that handed it back."""
    source: str = ""
    """Fingerprint of the caller's own message that this stands for (`Context`)."""


class Problem(msgspec.Struct, frozen=True):
    """A line of a file that could not be read, and why. It stays in the file."""

    line: int
    why: str


def decode_entry(line: bytes, next_id: Id) -> Entry:
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError:
        head = _head_decoder.decode(line)  # JSON it is, so a record of some later kind
        id = next_id if head.id is None else head.id
        return Entry(id, head.at, Unknown(line), head.by)


class _Head(msgspec.Struct):
    id: Id | None = None
    at: float = 0.0
    by: str = ""


def check_format(entry: Entry) -> None:
    if isinstance(entry.what, Mark) and entry.what.name == "session":
        value = entry.what.value
        version = value.get("format") if isinstance(value, dict) else None
        if isinstance(version, int) and version > FORMAT:
            raise FromTheFuture(
                f"this transcript has format {version} and this version of Sevenfold reads up to "
                f"{FORMAT}: upgrade with 'pip install -U sevenfold'; the file was not touched"
            )


encode_entry = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Entry)
_head_decoder = msgspec.json.Decoder(_Head)
