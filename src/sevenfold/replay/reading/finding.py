"""Which files hold sessions, and who can read them: told by what is in a file, not by its name."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.errors import SevenfoldError
from sevenfold.replay.reading.codex import Codex
from sevenfold.replay.reading.mending import bounded, mended_file
from sevenfold.replay.reading.messages import Messages
from sevenfold.replay.reading.own import Own
from sevenfold.replay.reading.parsing import beginning
from sevenfold.replay.reading.steadying import steadied
from sevenfold.storage.claude_code import ClaudeCode
from sevenfold.storage.claude_records import decode
from sevenfold.storage.recorded import Recorded, SessionReader

READERS: Final[tuple[SessionReader, ...]] = (Own(), ClaudeCode(), Codex(), Messages())
"""The first that recognises a file reads it. Another format is one more of these."""
ENDINGS: Final = (".jsonl", ".json", ".jsonl.gz", ".json.gz", ".ndjson", ".ndjson.gz")
"""What is looked at in a folder; a file that is named itself may be called anything."""


class Found(msgspec.Struct, frozen=True):
    """A file to be replayed."""

    path: str
    size: int = 0
    named: bool = True
    """Named by the user; else come across in a folder, where other things lie too."""


class Unreadable(SevenfoldError):
    """A file is no session that any reader knows, or there is nothing in it."""


def files_in(paths: Iterable[Path]) -> Iterator[Found]:
    """The files, and those in the folders, each once: by name within a folder."""
    seen: set[Path] = set()
    for path in paths:
        for file, named in _walked(path):
            if (real := _real(file)) not in seen:
                seen.add(real)
                yield Found(str(file), _size(file), named)


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
        folders.sort()
        for name in sorted(names):
            if name.lower().endswith(ENDINGS):
                yield Path(folder, name), False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _is_file(path: Path) -> bool:
    """Whether it can be read to an end: a pipe would be waited for. `Unreadable` when it is not there."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        raise Unreadable("there is no such file") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise Unreadable(f"it cannot be opened: {why}") from None


def reader_of(head: bytes) -> SessionReader | None:
    """Who reads a file that begins like this."""
    return next((reader for reader in READERS if reader.recognises(head)), None)


def read(found: Found) -> Recorded | None:
    """The session in a file; None for something else that lay in a folder. `Unreadable` says why not."""
    path = Path(found.path)
    if not _is_file(path):
        if found.named:
            raise Unreadable("not a file")
        return None
    head = beginning(path)
    reader = reader_of(head)
    if reader is None:
        if not found.named and head and not _like_a_session(head):
            return None
        raise Unreadable(_why_not(head))
    try:
        recorded = _whole(reader, path)
    except ValueError as error:
        raise Unreadable(str(error)) from error
    if not recorded.entries:
        if not found.named and not recorded.problems:
            return None  # notes of a tool about a session that never began
        raise Unreadable("nothing in it was said to a model or by one")
    return steadied(bounded(recorded))


def _whole(reader: SessionReader, path: Path) -> Recorded:
    """The session, with records of which only a field is wrong."""
    recorded = reader.read(path)
    if not isinstance(reader, ClaudeCode):  # the others drop such fields themselves
        return recorded
    again = mended_file(path, recorded.problems, decode)
    if again is None:
        return recorded
    data, told = again
    recorded = reader.read(data)
    problems = sorted((*recorded.problems, *told), key=lambda problem: problem.line)
    return replace(recorded, problems=tuple(problems))


def _why_not(head: bytes) -> str:
    if not head.strip():
        return "the file is empty, or damaged from its beginning on"
    if b"\0" in head[:4_096]:
        return "a binary file, not a session"
    return "not a session in a known format: Sevenfold, Claude Code, Codex rollout or a list of messages"


def _like_a_session(head: bytes) -> bool:
    """Whether a file in a folder should have been a session; JSON of another kind is passed over."""
    start = head.lstrip()[:1]
    return start not in (b"{", b"[")
