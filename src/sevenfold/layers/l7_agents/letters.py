"""A letter: one message from one agent to another, and what may be one.

In a mailbox it is an entry `{id, from, text, timestamp, read, summary?, frame?}`. Its id is given once, by
the sender: whoever is not sure that a letter arrived sends the same letter again, and it counts once.
"""

from __future__ import annotations

import datetime
import re
import secrets
from typing import Any, Final

import msgspec

from sevenfold.errors import Refused
from sevenfold.layers.l7_agents.frames import Frame, frame_from
from sevenfold.layers.l7_agents.names import known_sender
from sevenfold.messages import Json, whole_characters
from sevenfold.protocols import Clock

LONGEST_TEXT: Final = 32_000
"""Characters of a message: all of it goes into the receiver's window."""
LONGEST_SUMMARY: Final = 200
LONGEST_SENDER: Final = 200
BRIEF: Final = 60
"""Characters of a message that stand for it where nobody has summed it up."""
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A message from a peer. Never the user's word."""

    id: str
    sender: str = msgspec.field(name="from")
    text: str
    timestamp: str = ""
    """When it was written, as ISO 8601."""
    read: bool = False
    summary: str = ""
    frame: Frame | None = None


class MailboxFull(Refused):
    """So many messages wait for this receiver already that another one is refused."""


class TooLong(Refused):
    """A message that is longer than messages may be."""


class Damaged(Refused):
    """What should be a letter is none."""


def new_letter(
    sender: str,
    text: str,
    summary: str,
    clock: Clock,
    frame: Frame | None = None,
    *,
    id: str = "",
) -> Letter:
    """A letter of now; give the `id` to send one again that may have arrived."""
    return Letter(
        id=id or new_id(),
        sender=whole_characters(sender),
        text=whole_characters(text),
        timestamp=iso(clock.now()),
        summary=whole_characters(summary),
        frame=frame,
    )


def shortened(text: str) -> str:
    """How a message begins, for a list: one line that stands for it where nobody has summed it up."""
    line = " ".join(text.split())
    return line if len(line) <= BRIEF else f"{line[: BRIEF - 1].rstrip()}…"


def new_id() -> str:
    return secrets.token_hex(6)


def iso(at: float) -> str:
    """A moment as it stands in a mailbox; empty for one that no calendar has."""
    try:
        moment = datetime.datetime.fromtimestamp(at, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return ""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def checked(letter: Letter) -> Letter:
    """The letter, if it can be sent; `Refused` with the reason and what to do."""
    if not _ID.fullmatch(letter.id):
        raise Damaged(f"{letter.id[:60]!r} cannot be the id of a message")
    if not letter.sender.strip() or len(letter.sender) > LONGEST_SENDER:
        raise Damaged(f"a message needs a sender of at most {LONGEST_SENDER} characters")
    if not letter.text.strip() and letter.frame is None:
        raise Refused("the message is empty: say something")
    if (length := len(letter.text)) > LONGEST_TEXT:
        raise TooLong(
            f"the message has {length:,} characters and may have {LONGEST_TEXT:,}: "
            "write it to a file and send the path"
        )
    if len(letter.summary) > LONGEST_SUMMARY:
        raise TooLong(f"the summary is longer than {LONGEST_SUMMARY} characters: say it shorter")
    return letter


# --- as an entry of a mailbox -----------------------------------------------------------------------


def entry_of(letter: Letter) -> Json:
    entry: Json = {
        "id": letter.id,
        "from": letter.sender,
        "text": letter.text,
        "timestamp": letter.timestamp,
        "read": letter.read,
    }
    if letter.summary:
        entry["summary"] = letter.summary
    if letter.frame is not None:
        entry["frame"] = msgspec.to_builtins(letter.frame)
    return entry


def letter_of(entry: Any) -> Letter:
    """The letter in an entry; `Refused` when there is none. What else the entry has is not looked at."""
    if not isinstance(entry, dict):
        raise Damaged("it is no object")
    for key in ("id", "from", "text"):
        if not isinstance(entry.get(key), str):
            raise Damaged(f"it has no {key}")
    if not isinstance(entry.get("read", False), bool):
        raise Damaged("its read is neither true nor false")
    summary = entry.get("summary")
    return checked(
        Letter(
            id=entry["id"],
            sender=known_sender(entry["from"]),
            text=entry["text"],
            timestamp=_timestamp(entry.get("timestamp")),
            read=entry.get("read", False),
            summary=summary[:LONGEST_SUMMARY] if isinstance(summary, str) else "",
            frame=_frame(entry.get("frame")),
        )
    )


def _timestamp(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return iso(value)
    return value[:40] if isinstance(value, str) else ""


def _frame(fields: Any) -> Frame | None:
    """A frame of a kind that we do not know is a message in words, and no more."""
    if not isinstance(fields, dict):
        return None
    try:
        return frame_from(fields)
    except Refused:
        return None
