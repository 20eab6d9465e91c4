"""What a project keeps on disk, file by file, and which stored results a conversation still points to.

    <session>.jsonl                     the transcript
    <session>/tool-results/…            whole tool results
    <session>/agents/<agent>.jsonl      its sub-agents, each with a folder like this one

Only what has the names we give is ours; links are neither followed nor counted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from sevenfold.errors import FromTheFuture, SessionNotFound, StorageFailure
from sevenfold.request import encoded
from sevenfold.storage.files import TEMPORARY, failure, read_head
from sevenfold.storage.jsonl import read_log
from sevenfold.storage.places import checked_id
from sevenfold.transcript import FORMAT, Transcript, Unknown

LARGEST: Final = 1 << 30
"""A longer transcript is not looked into, so nothing of its session is removed."""
DEEPEST: Final = 12
"""Folders below a session's folder that are looked into."""

_SESSION: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
_STORED: Final = (
    r"(?:[A-Za-z0-9_][A-Za-z0-9_-]{0,79}|[A-Za-z0-9_-]{1,40}=[0-9a-f]{16})"
    r"(?:\.[0-9a-f]{16}(?:\.\d{1,2})?)?\.(?:txt|json)"
)
_AGENTS: Final = rf"(?:agents/{_SESSION}/){{0,4}}"
STORED: Final = re.compile(rf"{_AGENTS}tool-results/{_STORED}")
OURS: Final = re.compile(
    rf"{_AGENTS}(?:tool-results/{_STORED}|shells/shell-[a-z0-9_]{{8}}\.txt|"
    rf"session-memory/summary(?:\.damaged|\.undone)?\.md|agents/{_SESSION}\.jsonl(?:\.torn|\.lock)?)"
)
_LOG: Final = re.compile(rf"{_AGENTS}agents/{_SESSION}\.jsonl")
_NOTES: Final = re.compile(rf"{_AGENTS}session-memory/summary(?:\.damaged|\.undone)?\.md")
_UNFINISHED: Final = re.compile(rf"(?:.*/)?{re.escape(TEMPORARY)}[0-9a-f]{{16}}")
_RUN: Final = re.compile(rb"[A-Za-z0-9_.=-]+")
"""All characters of a stored result's name: it is in a text if it is inside one such run."""


class Kept(msgspec.Struct, frozen=True):
    """A file: which session it belongs to, where it is in that session's folder, how big, how old."""

    session: str
    """Empty: it lies in the project's folder itself."""
    inside: str
    size: int
    at: float

    @property
    def parts(self) -> tuple[str, ...]:
        """The names that lead to it from the project's folder."""
        inside = self.inside.split("/")
        return (self.session, *inside) if self.session else tuple(inside)

    @property
    def stored(self) -> bool:
        """Whether it is a whole tool result."""
        return bool(self.session and STORED.fullmatch(self.inside))

    @property
    def unfinished(self) -> bool:
        """Whether it is what a crash left of a file that was being written."""
        return _UNFINISHED.fullmatch(self.inside) is not None

    @property
    def ours(self) -> bool:
        return self.unfinished or bool(self.session and OURS.fullmatch(self.inside))


class Survey(msgspec.Struct):
    """What there is. Of `strange` sessions nothing can be said for certain."""

    transcripts: dict[str, Kept] = {}
    files: dict[str, list[Kept]] = {}
    """By session."""
    strange: set[str] = set()
    problems: list[str] = []


def survey(project: Path) -> Survey:
    """Look at everything below a project's folder, its memory apart."""
    found = Survey()
    folders = []
    for entry in _entries(project):
        session = entry.name.removesuffix(".jsonl")
        one = _file(entry, "", entry.name)
        if session != entry.name and _is_session(session):
            if one:
                found.transcripts[session] = one
            else:
                found.strange.add(session)
        elif one:
            found.files.setdefault("", []).append(one)
        elif entry.is_dir(follow_symlinks=False) and _is_session(entry.name):
            folders.append(entry.name)
    for session in folders:
        try:
            found.files[session] = list(_walk(project / session, session, "", DEEPEST))
        except StorageFailure as error:
            found.strange.add(session)
            found.problems.append(f"{error}; nothing of session {session} was removed")
    return found


def _is_session(name: str) -> bool:
    try:
        return bool(checked_id(name))
    except SessionNotFound:
        return False


def _walk(folder: Path, session: str, prefix: str, deep: int) -> Iterator[Kept]:
    for entry in _entries(folder):
        inside = f"{prefix}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            if deep:
                yield from _walk(folder / entry.name, session, f"{inside}/", deep - 1)
        elif one := _file(entry, session, inside):
            yield one


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise failure(error, folder, "read") from error


def _file(entry: os.DirEntry[str], session: str, inside: str) -> Kept | None:
    """A plain file; None for links, pipes and what has gone meanwhile."""
    try:
        if not entry.is_file(follow_symlinks=False):
            return None
        stat = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    return Kept(session, inside, stat.st_size, stat.st_mtime)


# --- what a conversation still points to --------------------------------------------------------------


class Damaged(Exception):
    """A transcript that cannot be read whole; the message says where and why."""


class NotOurs(Exception):
    """A file that has the name of a transcript and was written by something else."""


class _Mark(msgspec.Struct):
    type: str = ""
    name: str = ""
    value: Any = None


class _Record(msgspec.Struct):
    """As much of an entry as shows that it is one; the rest is only looked over."""

    what: _Mark


_record = msgspec.json.Decoder(_Record)


def check_ours(path: Path) -> bytes:
    """The lines of a transcript of ours, each of them readable."""
    if path.lstat().st_size > LARGEST:
        raise Damaged(f"{path} is too large to be looked into")
    data = read_log(path)
    _check_first(data.partition(b"\n")[0], path)
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip() and (why := _unreadable(line)):
            raise Damaged(f"{path}:{number} cannot be read ({why})")
    return data


def _check_first(line: bytes, path: Path) -> None:
    """The first line says whose file it is; one from a later version is not ours to judge."""
    try:
        mark = _record.decode(line).what
    except msgspec.ValidationError:
        raise NotOurs(str(path)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"{path}:1 cannot be read ({error})") from error
    version = mark.value.get("format") if isinstance(mark.value, dict) else None
    known = isinstance(version, int) and version <= FORMAT
    if (mark.type, mark.name) != ("mark", "session") or not known:
        raise NotOurs(str(path))


def _unreadable(line: bytes) -> str:
    try:
        _record.decode(line)
    except msgspec.ValidationError as error:  # of a later kind, if it is an object at all
        return "" if line.lstrip().startswith(b"{") else str(error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return str(error)
    return ""


def pointed_to(project: Path, session: str, files: Iterable[Kept]) -> bytes:
    """Every text of a session's view that could hold the name of a stored result, in one piece.

    It is searched for names, so that it does not matter how a pointer is written. The views of its
    sub-agents and its notes count as well.
    """
    texts = _texts(check_ours(project / f"{session}.jsonl"), project / f"{session}.jsonl")
    for one in files:
        path = project.joinpath(*one.parts)
        if _LOG.fullmatch(one.inside):
            texts += _texts(read_log(path), path)
        elif _NOTES.fullmatch(one.inside):
            texts.append(read_head(path, LARGEST, nofollow=True))
    runs = (run for text in texts for run in _RUN.findall(text))
    return b"\n".join(dict.fromkeys(run for run in runs if b".txt" in run or b".json" in run))


def _texts(lines: bytes, path: Path) -> list[bytes]:
    try:
        transcript = Transcript.load(lines, lambda: 0.0)
    except (FromTheFuture, RecursionError) as error:
        raise Damaged(f"{path} cannot be read ({error})") from error
    for problem in transcript.problems:
        raise Damaged(f"{path}:{problem.line} cannot be read ({problem.why})")
    texts = list(encoded(transcript.view))
    texts += [msgspec.json.encode(pin.payload) for pin in transcript.view.pins]
    return texts + [e.what.raw for e in transcript.entries if isinstance(e.what, Unknown)]
