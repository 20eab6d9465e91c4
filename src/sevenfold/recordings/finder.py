"""Finds files with sessions and the reader for each, by the content of a file, not by its name."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.core.errors import SevenfoldError
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Problem, Reply
from sevenfold.recordings.claude_code import ClaudeCodeReader, decode_record, read_session
from sevenfold.recordings.codex import ENVELOPES, CodexReader
from sevenfold.recordings.messages import MessagesReader
from sevenfold.recordings.own_sessions import OwnReader, has_agents
from sevenfold.recordings.reader import (
    describe_left_out,
    drop_impossible_usage,
    make_times_monotonic,
    read_beginning,
    repair_line,
)
from sevenfold.recordings.recorded_session import RecordedSession, SessionReader, name_requests
from sevenfold.settings.place import STATE
from sevenfold.storage.jsonl import LONGEST_LINE

READERS: Final[tuple[SessionReader, ...]] = (
    OwnReader(),
    ClaudeCodeReader(),
    CodexReader(),
    MessagesReader(),
)
"""The first that recognises a file reads it. Another format is one more of these."""
STRANGE: Final[dict[str, frozenset[str]]] = {"claude-code": ENVELOPES, "codex": frozenset({"claude-code"})}
"""Kinds of records that only another tool writes."""
HEADS: Final = (1 << 16, 1 << 20, 1 << 24, LONGEST_LINE + (1 << 16))
"""Bytes read of a file, in turn, until a reader recognises it: its first line may be long."""
BEGINNINGS: Final = (1 << 18, 1 << 22)  # Bytes of a file, in turn, in which the first reply is looked for
_CONVERSATION: Final = re.compile(rb'"role"\s*:\s*"(?:user|assistant|model)"')
_WORDS: Final = (b'"content"', b'"parts"', b'"text"', b'"tool_calls"')
ENDINGS: Final = (".jsonl", ".json", ".jsonl.gz", ".json.gz", ".ndjson", ".ndjson.gz")
"""The names of files that are read in a folder; a file named by the user may have any name."""
_LINES: Final = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")
"""Of these, what sessions are called: such a file is one, or a damaged one, unless it is other JSON."""


class ReplayFile(msgspec.Struct, frozen=True):
    """A file to be replayed."""

    path: str
    size: int = 0
    named: bool = True  # Named by the user; else come across in a folder, where other things lie too


class Unreadable(SevenfoldError, kind="unreadable"):
    """A file is no session that any reader knows, or there is nothing in it."""


def find_replay_files(paths: Iterable[Path]) -> Iterator[ReplayFile]:
    """The files, and those in the folders, each once: by name within a folder."""
    seen: set[Path] = set()
    for path in paths:
        for file, named in _walked(path):
            if (real := _real(file)) not in seen:
                seen.add(real)
                try:
                    size = file.stat().st_size
                except OSError:
                    size = 0
                yield ReplayFile(str(file), size, named)


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # links in a circle; reading it will say so
        return path.absolute()


def _walked(path: Path) -> Iterator[tuple[Path, bool]]:
    if not os.path.isdir(path):  # noqa: PTH112 - it says no where a folder may not be looked into
        yield path, True
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name != STATE)  # it holds no sessions
        for name in sorted(names):
            if name.lower().endswith(ENDINGS):
                yield Path(folder, name), False


def _is_file(path: Path) -> bool:
    """True for a regular file: a pipe would block. Raises `Unreadable` if there is no file."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        raise Unreadable("there is no such file") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise Unreadable(f"it cannot be opened: {why}") from None


class FirstRequest(msgspec.Struct, frozen=True):
    """The first request of a file."""

    session: str
    id: str  # The same in every copy
    cache_read: int = 0  # Of the first one whose usage is recorded


def read_first_requests(files: Iterable[ReplayFile]) -> dict[str, FirstRequest]:
    """The first request of each file that has one near its beginning, by path."""
    found = ((one.path, _read_first_request(Path(one.path))) for one in files)
    return {path: first for path, first in found if first is not None}


def _read_first_request(path: Path) -> FirstRequest | None:
    try:
        if not _is_file(path):
            return None
        for limit in BEGINNINGS:
            head = read_beginning(path, limit)
            if (reader := find_reader(head)) is None:
                return None
            recorded = name_requests(reader.read(head))
            asked, whole = recorded.all_requests, len(head) < limit
            if asked and (whole or len(asked) > 1):  # else it may be cut off
                used = (s.what.usage for s in asked if isinstance(s.what, Reply) and s.what.usage.prompt)
                read = next(used, Usage()).cache_read
                return FirstRequest(recorded.session or str(path), asked[0].request_id, read)
            if whole:
                return None
    except (SevenfoldError, OSError, ValueError, RecursionError):
        pass  # reading all of it will say what is wrong
    return None


def find_repeated_reads(firsts: Iterable[FirstRequest]) -> frozenset[int]:
    """Tokens that the first requests of several sessions read from the cache alike.

    Such sessions began with one fixed prefix; another first read may be inherited history. A session and
    its forks have one first request, and are one session.
    """
    sessions: dict[int, set[str]] = {}
    for first in {first.id: first for first in firsts}.values():
        sessions.setdefault(first.cache_read, set()).add(first.session)
    return frozenset(tokens for tokens, of in sessions.items() if tokens and len(of) > 1)


def find_copied_requests(firsts: Mapping[str, FirstRequest]) -> dict[str, frozenset[str]]:
    """The requests of a file that are in a longer one too, by path.

    A session that is forked, or resumed into a new file, begins with a copy of what it goes on from.
    """
    alike: dict[str, list[str]] = {}
    for path, first in firsts.items():
        alike.setdefault(first.id, []).append(path)
    copied: dict[str, frozenset[str]] = {}
    for paths in alike.values():
        if len(paths) < 2:
            continue
        known = sorted(((path, _read_request_ids(path)) for path in paths), key=lambda one: -len(one[1]))
        elsewhere = frozenset[str]()
        for path, ids in known:
            copied[path] = ids & elsewhere
            elsewhere |= ids
    return {path: ids for path, ids in copied.items() if ids}


def _read_request_ids(path: str) -> frozenset[str]:
    try:
        recorded = read_recording(ReplayFile(path))
    except (SevenfoldError, OSError, ValueError, RecursionError):
        return frozenset()
    return frozenset(said.request_id for said in recorded.all_requests) if recorded else frozenset()


def find_reader(head: bytes) -> SessionReader | None:
    """The reader for a file that begins like this."""
    return next((reader for reader in READERS if reader.recognises(head)), None)


def read_recording(found: ReplayFile) -> RecordedSession | None:
    """The session in a file; None for something else that lay in a folder. `Unreadable` says why not."""
    path = Path(found.path)
    if not _is_file(path):
        if found.named:
            raise Unreadable("not a file")
        return None
    head, reader = _recognised(path)
    if reader is None:
        lines = path.name.lower().endswith(_LINES)
        meant = (lines and not _is_json(head)) or _is_conversation(head)
        if not found.named and head and not meant:
            return None  # JSON of another kind, which lay in a folder
        raise Unreadable(_why_not(head))
    try:
        # Records of which only a field is wrong are kept; the other readers drop such fields themselves.
        mends = isinstance(reader, ClaudeCodeReader)
        recorded = read_session(path, _mended) if mends else reader.read(path)
    except ValueError as error:
        raise Unreadable(str(error)) from error
    if not recorded.entries and not has_agents(recorded):
        if not found.named and not recorded.problems:
            return None  # notes of a tool about a session that never began
        raise Unreadable("nothing in it was said to a model or by one")
    return name_requests(make_times_monotonic(drop_impossible_usage(_alone(recorded))))


def _recognised(path: Path) -> tuple[bytes, SessionReader | None]:
    """The beginning of a file, and who reads it; of JSON as much is looked at as a line may have."""
    head = b""
    for limit in HEADS:
        head = read_beginning(path, limit)
        if (reader := find_reader(head)) is not None:
            return head, reader
        if len(head) < limit or not _is_json(head):
            break
    return head, None


def _alone(recorded: RecordedSession) -> RecordedSession:
    """The session, with a word on lines that are of another format: two files in one, perhaps."""
    strange = STRANGE.get(recorded.format, frozenset[str]())
    if not (number := sum(recorded.skipped.get(kind, 0) for kind in strange)):
        return recorded
    lines = "1 line is" if number == 1 else f"{number:,} lines are"
    problem = Problem(1, f"{lines} of another format and left out: put each session in its own file")
    return replace(recorded, problems=(*recorded.problems, problem))


def _mended(line: bytes) -> tuple[bytes, list[str]]:
    line, fields = repair_line(line, decode_record)
    return line, [describe_left_out(field) for field in fields]


def _why_not(head: bytes) -> str:
    if not head.strip():
        return "the file is empty, or damaged from its beginning on"
    if b"\0" in head[:4_096]:
        return "a binary file, not a session"
    if _is_conversation(head):
        return (
            "it looks like a conversation, but in none of the known formats: Sevenfold, Claude Code, "
            "Codex rollout or a list of messages"
        )
    return "not a session in a known format: Sevenfold, Claude Code, Codex rollout or a list of messages"


def _is_json(head: bytes) -> bool:
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")


def _is_conversation(head: bytes) -> bool:
    return _CONVERSATION.search(head) is not None and any(word in head for word in _WORDS)
