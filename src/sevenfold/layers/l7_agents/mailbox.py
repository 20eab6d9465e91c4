"""A mailbox: a file with the letters that wait for one agent, and the last ones that it has read.

    [{"id": "5f0c…", "from": "lead", "text": "…", "timestamp": "…", "read": false, "summary": "…"}, …]

A writer holds the lock and replaces the file as a whole, so reading needs none. A letter that `post`
returned from is on the disk. An entry that is no letter is set aside in `<name>.damaged.jsonl`, a file that
is no list in `<name>.damaged-1.json`; both are told, and neither stops the reader. Keys that we do not know
stay where they are.

A letter is one message from one agent to another. Frames are the few messages between agents of a team that
mean something to the program too. The names of agents and teams are checked here: a name is also the name
of a file, and others read it.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import random
import re
import stat
import time
import unicodedata
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import anyio.to_thread
import msgspec

from sevenfold.core.errors import Refused, StorageFailure
from sevenfold.core.events import Emit, Notice
from sevenfold.core.messages import Json, strip_half_characters
from sevenfold.core.protocols import Clock
from sevenfold.memory.folder.names import explain_bad_name, explain_bad_part, format_name
from sevenfold.memory.folder.names import make_file_key as key_names
from sevenfold.storage.files import (
    append_synced,
    make_private_dir,
    make_storage_failure,
    read_head,
    sync_folder,
    write_atomic,
)
from sevenfold.storage.locks import hold_lock_async, take_lock
from sevenfold.tools.toolbox import clean_arguments

ALL: Final = "*"  # The address of all teammates
SESSION: Final = "uds:"  # The prefix of the address of another session on this machine
BRIDGE: Final = "bridge:"  # The prefix of the address of something on another machine
LEAD: Final = "lead"  # The name of the conversation that leads a team
LONGEST_ID: Final = 64
LONGEST_WORDS: Final = 16_000  # Characters of a reason, of feedback and of a plan


class ShutdownRequest(msgspec.Struct, frozen=True, tag_field="type", tag="shutdown_request"):
    request_id: str
    reason: str = ""


class ShutdownResponse(msgspec.Struct, frozen=True, tag_field="type", tag="shutdown_response"):
    request_id: str
    approve: bool
    reason: str = ""


class PlanApprovalRequest(msgspec.Struct, frozen=True, tag_field="type", tag="plan_approval_request"):
    request_id: str
    plan: str = ""


class PlanApprovalResponse(msgspec.Struct, frozen=True, tag_field="type", tag="plan_approval_response"):
    request_id: str
    approve: bool
    feedback: str = ""


LetterFrame: TypeAlias = ShutdownRequest | ShutdownResponse | PlanApprovalRequest | PlanApprovalResponse
KINDS: Final = ("shutdown_request", "shutdown_response", "plan_approval_request", "plan_approval_response")


def name_frame_kind(frame: LetterFrame) -> str:
    return str(frame.__struct_config__.tag)


def read_frame_text(frame: LetterFrame) -> str:
    """The reason, feedback or plan that it carries."""
    match frame:
        case PlanApprovalRequest(plan=plan):
            return plan
        case PlanApprovalResponse(feedback=feedback):
            return feedback
        case _:
            return frame.reason


def read_approval(frame: LetterFrame) -> bool | None:
    """The answer in a letter; None if it is no answer."""
    return frame.approve if isinstance(frame, ShutdownResponse | PlanApprovalResponse) else None


def parse_frame(fields: Json) -> LetterFrame:
    """A frame as a model or a file gives it; `Refused` with what is wrong."""
    kind = fields.get("type")
    if kind not in KINDS:
        raise Refused(f"a frame has one of the types {', '.join(KINDS)}, and not {str(kind)[:60]!r}")
    try:
        frame: LetterFrame = msgspec.convert(fields, LetterFrame)
    except msgspec.ValidationError as error:
        raise Refused(f"the frame {kind} is not complete: {error}") from None
    return frame


def check_frame(frame: LetterFrame, sender: str, to: str, lead: str = LEAD) -> None:
    """Raises `Refused` with the rule that this frame would break."""
    kind = name_frame_kind(frame)
    if to == ALL:
        raise Refused(f"{kind} is never sent to all: name one agent")
    if to.startswith((SESSION, BRIDGE)):
        raise Refused(f"{kind} stays inside the team: other sessions take plain messages only")
    if not 0 < len(frame.request_id.strip()) <= LONGEST_ID:
        raise Refused(f"{kind} needs a request_id of at most {LONGEST_ID} characters")
    if len(read_frame_text(frame)) > LONGEST_WORDS:
        raise Refused(f"{kind} says more than {LONGEST_WORDS:,} characters: write them to a file")
    _check_answer(frame, kind, sender, to, lead)


def _check_answer(frame: LetterFrame, kind: str, sender: str, to: str, lead: str) -> None:
    if isinstance(frame, ShutdownResponse) and to != lead:
        raise Refused(f"{kind} goes to the lead only: send it to {lead!r}")
    if isinstance(frame, PlanApprovalResponse) and sender != lead:
        raise Refused(f"only the lead approves plans: {sender!r} is not {lead!r}")
    if read_approval(frame) is False and not read_frame_text(frame).strip():
        said = "feedback" if isinstance(frame, PlanApprovalResponse) else "a reason"
        raise Refused(f"{kind} with approve=false needs {said}")


def explain_remote_address(to: str) -> str:
    """The reason why nothing is sent to an address on another machine."""
    return (
        f"{to[:60]!r} is an address on another machine, and messages stay on this one: write to "
        f"an agent by name, or to a session as {SESSION}<session>"
    )


def explain_bad_address(to: str) -> str:
    """The reason why nothing can be sent there from outside a session; empty: it may be possible."""
    if to.startswith(BRIDGE):
        return explain_remote_address(to)
    if to == ALL:
        return (
            f"{ALL!r} means all teammates of a session, and this is none: write to one of them by name, "
            f"or to a session as {SESSION}<session>"
        )
    return ""


AGENT: Final = "an agent"
LONGEST: Final = 64
COMMAND_LINE: Final = "command-line"  # The sender of a message from a terminal outside any session
UNKNOWN: Final = "unknown"  # The sender of a message that claims a sender it cannot have
_WORDS: Final = frozenset({"user", "lead", "leader"})
"""Words that make a name look like another's, wherever in it they stand."""
_ROLES: Final = frozenset({"main", "system", "the system", "assistant"})
_WHOLE: Final = frozenset(
    {"human", "the human", "person", "the person", "all", "you", "fork", UNKNOWN, "command line"}
)
"""Names that mean others."""
_ALIKE: Final = str.maketrans(
    "авеікмнорстухѕјһԁԍԛԝӏ" + "αβεηικνορτυχωγ" + "ɑɡıɩϲϳ0",
    "abeikmhopctyxsjhdgqwl" + "abenikvoptuxwy" + "agiicjo",
)
"""Small Cyrillic, Greek and other letters, and the Latin ones that they look like."""
_STROKES: Final = str.maketrans("i1|", "lll")
_UNSEEN: Final = frozenset({"Mn", "Cf"})
_PARTS: Final = r"[\W_]+"
_LETTERS: Final = r"[\W\d_]+"
_HUMP: Final = r"(?<=[a-z\d])(?=[A-Z])"


def check_agent_name(name: str, what: str = AGENT) -> str:
    """The name, composed (NFC); `Refused` with the reason when it cannot be one."""
    why = _wrong(name)
    if not why and what == AGENT and name != LEAD and is_posing_name(name):
        why = "others would take it for somebody else; choose another"
    if why:
        raise Refused(f"{format_name(name)} cannot be the name of {what}: {why}")
    return unicodedata.normalize("NFC", name)


def is_same_name(one: str, other: str) -> bool:
    """True if both would be one file on some system."""
    return key_names(one) == key_names(other)


def is_posing_name(name: str) -> bool:
    """True if a reader could take this name for the user's, the lead's or the program's."""
    return any(_poses(to_latin_lookalike(spelled)) for spelled in (name, re.sub(_HUMP, " ", name)))


def format_sender(sender: str) -> str:
    """The sender that is shown for a letter. A letter from a file may claim anything."""
    given = sender in (LEAD, COMMAND_LINE) or sender.startswith(SESSION)
    return UNKNOWN if not given and is_posing_name(sender) else sender


def to_latin_lookalike(text: str) -> str:
    """The text in small Latin letters as far as it looks like them, character by character.

    As long as the text itself: what is found in the one is at the same place in the other.
    """
    return text.lower() if text.isascii() else "".join(map(_letter_names, text))


@lru_cache(maxsize=4096)
def _letter_names(character: str) -> str:
    plain = unicodedata.normalize("NFKD", character)[:1].casefold()
    plain = plain if len(plain) == 1 else character
    return plain.translate(_ALIKE)


def _poses(text: str) -> bool:
    text = "".join(c for c in text if unicodedata.category(c) not in _UNSEEN)
    words = re.split(_PARTS, text)
    whole = " ".join(word for word in words if word)
    if whole in _WHOLE or _thin(whole) in _THIN_ROLES:
        return True
    # A digit may stand for a letter, or only be put behind a word.
    return any(_thin(word) in _THIN_WORDS for word in (*words, *re.split(_LETTERS, text)))


def _thin(text: str) -> str:
    """With one letter for those that are a mere stroke in many fonts."""
    return text.translate(_STROKES)


_THIN_WORDS: Final = frozenset(map(_thin, _WORDS))
_THIN_ROLES: Final = frozenset(map(_thin, _ROLES))


def _wrong(name: str) -> str:
    if not 0 < len(name) <= LONGEST:
        return f"a name has 1 to {LONGEST} characters"
    if why := explain_bad_name(name) or explain_bad_part(name):
        return why
    for character in name:
        if unicodedata.category(character)[0] not in "LMN" and character not in " _-.":
            return f"{character!r} is no letter, digit, blank, '-', '_' or '.'"
    return ""


LONGEST_TEXT: Final = 32_000  # Characters of a message: all of it goes into the receiver's window
LONGEST_SUMMARY: Final = 200
LONGEST_SENDER: Final = 200
BRIEF: Final = 60  # Characters of a message that stand for it where there is no summary
_ID: Final = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}"


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A message from a peer. Never the user's word."""

    id: str
    sender: str = msgspec.field(name="from")
    text: str
    timestamp: str = ""  # The time of writing, as ISO 8601
    read: bool = False
    summary: str = ""
    frame: LetterFrame | None = None


class MailboxFull(Refused, kind="mailbox_full"):
    """So many messages wait for this receiver already that another one is refused."""


class TooLong(Refused, kind="too_long"):
    """A message that is longer than messages may be."""


class Damaged(Refused, kind="damaged"):
    """A record that should be a letter and is none."""


def make_letter(
    sender: str, text: str, summary: str, clock: Clock, frame: LetterFrame | None = None, *, id: str = ""
) -> Letter:
    """A letter of now; give the `id` to send one again that may have arrived."""
    return Letter(
        id=id or make_id(),
        sender=strip_half_characters(sender),
        text=strip_half_characters(text),
        timestamp=format_iso_time(clock.now()),
        summary=strip_half_characters(summary),
        frame=frame,
    )


def summarise_text(text: str) -> str:
    """The first line of a message, for a list, where there is no summary."""
    line = " ".join(text.split())
    return line if len(line) <= BRIEF else f"{line[: BRIEF - 1].rstrip()}…"


def make_id() -> str:
    return os.urandom(6).hex()


def format_iso_time(at: float) -> str:
    """A moment as it stands in a mailbox; empty for one that no calendar has."""
    try:
        moment = datetime.datetime.fromtimestamp(at, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return ""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def check_letter(letter: Letter) -> Letter:
    """The letter, if it can be sent; `Refused` with the reason and what to do."""
    if not re.fullmatch(_ID, letter.id):
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


def encode_letter(letter: Letter) -> Json:
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


def parse_letter(entry: Any) -> Letter:
    """The letter in an entry; `Refused` when there is none. What else the entry has is not looked at."""
    if not isinstance(entry, dict):
        raise Damaged("it is no object")
    for key in ("id", "from", "text"):
        if not isinstance(entry.get(key), str):
            raise Damaged(f"it has no {key}")
    if not isinstance(entry.get("read", False), bool):
        raise Damaged("its read is neither true nor false")
    summary = entry.get("summary")
    return check_letter(
        Letter(
            id=entry["id"],
            sender=format_sender(entry["from"]),
            text=entry["text"],
            timestamp=_timestamp(entry.get("timestamp")),
            read=entry.get("read", False),
            summary=summary[:LONGEST_SUMMARY] if isinstance(summary, str) else "",
            frame=_frame(entry.get("frame")),
        )
    )


def _timestamp(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return format_iso_time(value)
    return value[:40] if isinstance(value, str) else ""


def _frame(fields: Any) -> LetterFrame | None:
    """A frame of a kind that we do not know is a message in words, and no more."""
    if not isinstance(fields, dict):
        return None
    try:
        return parse_frame(fields)
    except Refused:
        return None


MOST_ASIDE: Final = 1_000  # Most damaged files kept beside one
_encode = msgspec.json.Encoder().encode


def parse_entries(data: bytes) -> list[Any] | None:
    """The entries of a file, damaged ones among them; None when it is no list. Nothing is an empty one."""
    if not data.strip(b"\0 \t\r\n"):
        return []
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = _forgiving(data)
    return found if isinstance(found, list) else None


def _forgiving(data: bytes) -> Any:
    """Half a character somewhere must not cost all the others."""
    try:
        return clean_arguments(json.loads(data.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return None


def encode_entries(entries: Sequence[Json]) -> bytes:
    """One entry a line, so that a person can look at it."""
    if not entries:
        return b"[]\n"
    return b"[\n" + b",\n".join(map(_encode, entries)) + b"\n]\n"


def save_damaged_entries(path: Path, entries: Sequence[Any]) -> Path:
    """Append them to `<name>.damaged.jsonl`."""
    aside = path.with_name(f"{path.stem}.damaged.jsonl")
    lines = b"".join(_encode(entry) + b"\n" for entry in entries)
    try:
        append_synced(aside, lines)
    except OSError as error:
        raise make_storage_failure(error, aside) from error
    return aside


def rename_damaged_file(path: Path) -> Path:
    """Give the file another name, `<name>.damaged-1.json` and so on."""
    for number in range(1, MOST_ASIDE + 1):
        aside = path.with_name(f"{path.stem}.damaged-{number}{path.suffix}")
        if os.path.lexists(aside):
            continue
        try:
            path.rename(aside)
            sync_folder(path.parent)
        except OSError as error:
            raise make_storage_failure(error, path, "set aside") from error
        return aside
    raise StorageFailure(f"{path} is damaged, and so were {MOST_ASIDE:,} before it; remove those beside it")


MOST_WAITING: Final = 50
REMEMBERED: Final = 256
"""Letters that were read and stay in the file, so that one that is sent again is recognised."""
KEPT_TEXT: Final = 200  # Characters that stay of a letter that was read: the transcript has all of it
LARGEST: Final = 32_000_000  # Bytes of a mailbox; ours stay far below
SETTLED: Final = 0.05
"""Seconds after which a change of a file is sure to have changed what `stat` says of it."""

_Stamp: TypeAlias = tuple[int, int, int, int]


class Mailbox:
    """The mailbox of one agent. `post` for those who write to it; `waiting` and `settle` for itself."""

    def __init__(
        self, path: Path, clock: Clock, emit: Emit, *, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self.path = path
        self._clock, self._emit, self._sleep = clock, emit, sleep
        self._stamp: _Stamp | None = None
        self._waiting: tuple[Letter, ...] = ()
        self._said: list[str] = []
        """Sentences for the user that have not been told yet; a thread cannot emit them."""

    @property
    def owner(self) -> str:
        return self.path.stem

    # --- for those who write ----------------------------------------------------------------------------

    def post(self, letter: Letter) -> bool:
        """Put a letter in; it is on the disk when this returns. False: it was there already.

        `MailboxFull` when too many wait, `Busy` when the lock cannot be had soon.
        """
        try:
            return self._post(letter)
        finally:
            self._tell()

    async def accept(self, letter: Letter) -> bool:
        """The same, beside the event loop."""
        try:
            return await anyio.to_thread.run_sync(self._post, letter)
        finally:
            self._tell()

    def _post(self, letter: Letter) -> bool:
        check_letter(letter)
        with hold_mail_lock(self.path, self._sleep):
            entries = self._entries()
            if any(entry["id"] == letter.id for entry in entries):
                return False
            if sum(not _is_read(entry) for entry in entries) >= MOST_WAITING:
                raise MailboxFull(
                    f"{MOST_WAITING} messages wait for {self.owner!r} already, and this one was not "
                    "sent: wait until some are read"
                )
            self._store([*entries, encode_letter(letter)])
        return True

    # --- for its owner ----------------------------------------------------------------------------------

    def waiting(self) -> tuple[Letter, ...]:
        """The letters that have not been settled, oldest first. One `stat` when nothing has changed."""
        stamp, modified = self._look()
        if stamp is None:
            self._stamp, self._waiting = None, ()
        elif stamp != self._stamp:
            self._waiting = self._read()
            # A second change in the same tick of the disk's clock could look like none.
            aged = self._clock.now() - modified > SETTLED
            self._stamp = stamp if aged else None
        self._tell()
        return self._waiting

    def settle(self, ids: Collection[str], *, retries: int = 0) -> bool:
        """These have been delivered. False: the mailbox is being written, settle them later."""
        try:
            with hold_mail_lock(self.path, self._sleep, retries):
                entries = self._entries()
                new = [_settled(entry) if entry["id"] in ids else entry for entry in entries]
                if new != entries:
                    self._store(_trimmed(new))
        except Busy:
            return False
        finally:
            self._tell()
        return True

    # --- the file ---------------------------------------------------------------------------------------

    def _look(self) -> tuple[_Stamp | None, float]:
        try:
            found = os.lstat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return None, 0.0
        except OSError as error:
            raise make_storage_failure(error, self.path, "read") from error
        if not stat.S_ISREG(found.st_mode):
            raise StorageFailure(
                f"{self.path} is not read: it is a link, a folder or a device; move it away"
            )
        stamp = (found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
        return stamp, found.st_mtime

    def _read(self) -> tuple[Letter, ...]:
        """Without the lock; it is taken only to set something aside."""
        found = parse_entries(self._bytes())
        letters, damaged = _sorted_out(found or ())
        if found is None or damaged:
            with contextlib.suppress(Busy), hold_mail_lock(self.path, self._sleep, 0):
                letters, _ = _sorted_out(self._entries())
        return _unread(letters)

    def _bytes(self) -> bytes:
        try:
            return read_head(self.path, LARGEST + 1, nofollow=True)
        except StorageFailure as error:
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                return b""
            raise

    def _entries(self) -> list[Json]:
        """The letters in the file; other lines are set aside. Needs the lock."""
        data = self._bytes()
        found = parse_entries(data) if len(data) <= LARGEST else None
        if found is None:
            aside = rename_damaged_file(self.path)
            self._said.append(
                f"the mailbox {self.path} could not be read as one and was set aside as {aside.name}; "
                "messages in it were not delivered"
            )
            return []
        good, bad = list[Json](), list[Any]()
        for entry in found:
            (good if _is_letter(entry) else bad).append(entry)
        if bad:
            aside = save_damaged_entries(self.path, bad)
            self._store(good)
            many = "1 entry" if len(bad) == 1 else f"{len(bad)} entries"
            self._said.append(
                f"{many} of the mailbox {self.path} could not be read as a message and went to "
                f"{aside.name}; the others are delivered"
            )
        return good

    def _store(self, entries: Sequence[Json]) -> None:
        write_atomic(self.path, encode_entries(entries), nofollow=True)

    def _tell(self) -> None:
        while self._said:
            self._emit(Notice(self._said.pop(0), "warning"))


def _sorted_out(found: Sequence[Any]) -> tuple[list[Letter], int]:
    """The letters, and how many entries are none."""
    letters = [letter for entry in found if (letter := _letter(entry))]
    return letters, len(found) - len(letters)


def _is_letter(entry: Any) -> bool:
    return _letter(entry) is not None


def _letter(entry: Any) -> Letter | None:
    try:
        return parse_letter(entry)
    except Refused:
        return None


def _is_read(entry: Json) -> bool:
    return entry.get("read") is True


def _unread(letters: Sequence[Letter]) -> tuple[Letter, ...]:
    """Each id once, and none that was read before."""
    seen = {letter.id for letter in letters if letter.read}
    fresh: dict[str, Letter] = {}
    for letter in letters:
        if letter.id not in seen:
            fresh.setdefault(letter.id, letter)
    return tuple(fresh.values())


def _settled(entry: Json) -> Json:
    if _is_read(entry):
        return entry
    text = str(entry["text"])
    short = text if len(text) <= KEPT_TEXT else f"{text[: KEPT_TEXT - 1]}…"
    return {**entry, "text": short, "read": True}


def _trimmed(entries: Sequence[Json]) -> list[Json]:
    """Without the oldest of those that were read."""
    extra = max(0, sum(map(_is_read, entries)) - REMEMBERED)
    kept = list[Json]()
    for entry in entries:
        if extra and _is_read(entry):
            extra -= 1
        else:
            kept.append(entry)
    return kept


RETRIES: Final = 10
SHORTEST: Final = 0.005
LONGEST_WAIT: Final = 0.1  # Seconds between two tries, at the least and at the most


class Busy(StorageFailure, kind="busy"):
    """Somebody else has it at the moment."""


@contextmanager
def hold_mail_lock(file: Path, sleep: Callable[[float], object], retries: int = RETRIES) -> Iterator[None]:
    """Hold the lock of a mail file, `<file>.lock` beside it; `Busy` after this many more tries."""
    make_private_dir(file.parent, nofollow=True)
    lock = file.with_name(f"{file.name}.lock")
    attempt = 0
    while (fd := take_lock(lock, wait=0.0)) is None:
        if attempt == retries:
            raise Busy(f"{file} is being changed by another process; try again in a moment")
        sleep(choose_retry_delay(attempt))
        attempt += 1
    try:
        yield
    finally:
        os.close(fd)


def choose_retry_delay(attempt: int, chance: Callable[[], float] = random.random) -> float:
    """Seconds before the next try: longer each time, and random, so that processes do not collide again."""
    longest = min(LONGEST_WAIT, SHORTEST * 2.0 ** (attempt + 1))
    return SHORTEST + (longest - SHORTEST) * chance()


class WorktreeLock:
    """Lets one task at a time add or remove work trees of a folder: git fails when several do."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._file, self._seconds = folder.with_name(f"{folder.name}.lock"), seconds
        self._here = anyio.Lock()

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[None]:
        """Hold the lock during the block; `StorageFailure` if it cannot be had in time."""
        async with self._here, hold_lock_async(self._file, wait=self._seconds) as held:
            if not held:
                raise StorageFailure(
                    f"{self._file} is held by another process for more than {self._seconds:.0f} seconds; "
                    "look what it waits for, or try again later"
                )
            yield
