"""Removes old sessions and stored tool results, by age and by size.

Kept are: results that a conversation still points to, all files of an open session, sessions whose words
wait for an extraction, files that we did not write, and memory. No link is followed.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Final

import anyio.to_thread
import msgspec

from sevenfold.core.errors import FromTheFuture, SessionBusy, SessionNotFound, StorageFailure
from sevenfold.core.events import Emit, Notice
from sevenfold.core.protocols import Clock
from sevenfold.core.request import encode_view
from sevenfold.core.transcript import FORMAT, Transcript, Unknown
from sevenfold.storage.files import (
    CLOEXEC,
    NOFOLLOW,
    PRIVATE_FILE,
    TEMPORARY,
    make_storage_failure,
    read_head,
)
from sevenfold.storage.jsonl import hold_closed_log, read_log
from sevenfold.storage.places import ROOT_FILE, check_session_id
from sevenfold.storage.waiting_notes import WaitingFolder

LARGEST: Final = 1 << 30  # Bytes; a longer transcript is not read, so nothing of its session is removed
DEEPEST: Final = 12  # Folders below a session's folder that are looked into

_SESSION: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
_STORED: Final = (
    r"(?:[A-Za-z0-9_][A-Za-z0-9_-]{0,79}|[A-Za-z0-9_-]{1,40}=[0-9a-f]{16})"
    r"(?:\.[0-9a-f]{16}(?:\.\d{1,2})?)?\.(?:txt|json)"
)
_AGENTS: Final = rf"(?:agents/{_SESSION}/){{0,4}}"
STORED: Final = rf"{_AGENTS}tool-results/{_STORED}"
OURS: Final = (
    rf"{_AGENTS}(?:tool-results/{_STORED}|shells/shell-[a-z0-9_]{{8}}\.txt|"
    rf"session-memory/summary(?:\.damaged|\.undone)?\.md|agents/{_SESSION}\.jsonl(?:\.torn|\.lock)?)"
)
_LOG: Final = rf"{_AGENTS}agents/{_SESSION}\.jsonl"
_NOTES: Final = rf"{_AGENTS}session-memory/summary(?:\.damaged|\.undone)?\.md"
_UNFINISHED: Final = rf"(?:.*/)?{re.escape(TEMPORARY)}[0-9a-f]{{16}}"
_RUN: Final = rb"[A-Za-z0-9_.=-]+"
"""The characters of a result's name: a text that holds the name has it inside one such run."""


class StoredFile(msgspec.Struct, frozen=True):
    """A file: its session, its path in that session's folder, its size and age."""

    session: str  # Empty: it lies in the project's folder itself
    inside: str
    size: int
    at: float

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of its path below the project's folder."""
        inside = self.inside.split("/")
        return (self.session, *inside) if self.session else tuple(inside)

    @property
    def stored(self) -> bool:
        """True for a stored tool result."""
        return bool(self.session and re.fullmatch(STORED, self.inside))

    @property
    def unfinished(self) -> bool:
        """True for a temporary file that a crash left behind."""
        return re.fullmatch(_UNFINISHED, self.inside) is not None

    @property
    def ours(self) -> bool:
        return self.unfinished or bool(self.session and re.fullmatch(OURS, self.inside))


class StorageSurvey(msgspec.Struct):
    """The sessions and files of a project. `strange` sessions could not be judged."""

    transcripts: dict[str, StoredFile] = {}
    files: dict[str, list[StoredFile]] = {}  # By session
    strange: set[str] = set()
    problems: list[str] = []


def survey_project(project: Path) -> StorageSurvey:
    """List everything below a project's folder, except its memory."""
    found = StorageSurvey()
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
        return bool(check_session_id(name))
    except SessionNotFound:
        return False


def _walk(folder: Path, session: str, prefix: str, deep: int) -> Iterator[StoredFile]:
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
        raise make_storage_failure(error, folder, "read") from error


def _file(entry: os.DirEntry[str], session: str, inside: str) -> StoredFile | None:
    """A plain file; None for links, pipes and what has gone meanwhile."""
    try:
        if not entry.is_file(follow_symlinks=False):
            return None
        stat = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    return StoredFile(session, inside, stat.st_size, stat.st_mtime)


# --- what a conversation still points to --------------------------------------------------------------


class DamagedTranscript(Exception):
    """A transcript that cannot be read whole; the message says where and why."""


class ForeignFile(Exception):
    """A file that has the name of a transcript and was written by something else."""


class _PeekMark(msgspec.Struct):
    type: str = ""
    name: str = ""
    value: Any = None


class _PeekRecord(msgspec.Struct):
    """The fields that identify an entry; the others are only parsed."""

    what: _PeekMark


_record = msgspec.json.Decoder(_PeekRecord)


def read_own_transcript(path: Path) -> bytes:
    """The lines of a transcript of ours, each of them readable."""
    if path.lstat().st_size > LARGEST:
        raise DamagedTranscript(f"{path} is too large to be looked into")
    data = read_log(path)
    _check_first(data.partition(b"\n")[0], path)
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            if line.strip():
                _record.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            # A line of the wrong shape may be of a kind that a later version writes.
            if not isinstance(error, msgspec.ValidationError) or not line.lstrip().startswith(b"{"):
                raise DamagedTranscript(f"{path}:{number} cannot be read ({error})") from None
    return data


def _check_first(line: bytes, path: Path) -> None:
    """Check that the first line is ours, and not of a later version."""
    try:
        mark = _record.decode(line).what
    except msgspec.ValidationError:
        raise ForeignFile(str(path)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedTranscript(f"{path}:1 cannot be read ({error})") from error
    version = mark.value.get("format") if isinstance(mark.value, dict) else None
    known = isinstance(version, int) and version <= FORMAT
    if (mark.type, mark.name) != ("mark", "session") or not known:
        raise ForeignFile(str(path))


def collect_pointer_texts(project: Path, session: str, files: Iterable[StoredFile]) -> bytes:
    """Every text of a session's view that could hold the name of a stored result, in one piece.

    It is searched for names, so that it does not matter how a pointer is written. The views of its
    sub-agents and its notes count as well.
    """
    texts = _texts(read_own_transcript(project / f"{session}.jsonl"), project / f"{session}.jsonl")
    for one in files:
        path = project.joinpath(*one.parts)
        if re.fullmatch(_LOG, one.inside):
            texts += _texts(read_log(path), path)
        elif re.fullmatch(_NOTES, one.inside):
            texts.append(read_head(path, LARGEST, nofollow=True))
    runs = (run for text in texts for run in re.findall(_RUN, text))
    return b"\n".join(dict.fromkeys(run for run in runs if b".txt" in run or b".json" in run))


def _texts(lines: bytes, path: Path) -> list[bytes]:
    try:
        transcript = Transcript.load(lines, lambda: 0.0)
    except (FromTheFuture, RecursionError) as error:
        raise DamagedTranscript(f"{path} cannot be read ({error})") from error
    for problem in transcript.problems:
        raise DamagedTranscript(f"{path}:{problem.line} cannot be read ({problem.why})")
    texts = list(encode_view(transcript.view))
    texts += [msgspec.json.encode(pin.payload) for pin in transcript.view.pins]
    return texts + [e.what.raw for e in transcript.entries if isinstance(e.what, Unknown)]


DAY: Final = 86_400.0
MEGABYTE: Final = 1_000_000
STAMP: Final = ".cleaned"  # A file of each project; its time is that of the last cleaning

OWN_ID: Final = r"\d{8}-\d{9}-[0-9a-f]{6}"
"""The ids that `make_session_id` makes; a folder without a transcript is only removed if it has one."""
_BY_FOLDER: Final = os.unlink in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")
_FOLDER: Final[int] = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | NOFOLLOW | CLOEXEC


class StorageLimits(msgspec.Struct, frozen=True):
    """The age and the size up to which sessions and results are kept."""

    days: float = 30
    megabytes: float = 1_000  # Of stored tool results, over all sessions of the project


class CleanupReport(msgspec.Struct, frozen=True, kw_only=True):
    """The files that were removed, or would have been in a dry run."""

    files: int = 0
    bytes: int = 0
    sessions: tuple[str, ...] = ()  # The sessions that were removed whole
    removed: tuple[str, ...] = ()  # Each file, by its path in the project's folder
    in_use: int = 0
    """Files that were due and stay: a conversation points to them, or their session is open or waits."""
    problems: tuple[str, ...] = ()
    finished: bool = True  # False if it was stopped before the end


def clean_project(
    project: Path,
    now: float,
    limits: StorageLimits,
    *,
    current: str = "",
    dry_run: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> CleanupReport:
    """Clean one project's folder. What cannot be removed is a problem to report, never an error."""
    if project.is_symlink():
        return CleanupReport(problems=(f"{project} is a symbolic link and was not cleaned",))
    if not project.is_dir():
        return CleanupReport()
    try:
        found = survey_project(project)
    except StorageFailure as error:
        return CleanupReport(problems=(str(error),))
    work = _CleanupRun(project, found, now, limits, current, dry_run, stop)
    work.run()
    return work.done()


@dataclass(slots=True)
class _CleanupRun:
    """One run over what was found."""

    project: Path
    found: StorageSurvey
    now: float
    limits: StorageLimits
    current: str
    dry_run: bool
    stop: Callable[[], bool]
    removed: list[StoredFile] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    in_use: set[StoredFile] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    finished: bool = True
    _gone: set[str] = field(default_factory=set)
    _pointers: dict[str, bytes] = field(default_factory=dict)  # By session: the names that its view holds

    def run(self) -> None:
        self.problems += self.found.problems
        waiting = WaitingFolder(self.project).list_sessions()
        for session in sorted({*self.found.transcripts, *self.found.files} - {""}):
            if self._stopped():
                return
            there = [*self._all_of(session), *self.found.files.get(session, ())]
            if not there or not all(self._old(one) for one in there):
                continue
            if session in waiting:
                self.in_use.update(there)
            else:
                self._try(session, self._remove_session, self._all_of(session))
        results = [one for one in self._left() if one.stored]
        too_much = sum(one.size for one in results) - int(self.limits.megabytes * MEGABYTE)
        for one in sorted(results, key=lambda one: (one.at, one.parts)):
            if self._stopped() or not (self._old(one) or too_much > 0):
                break
            if self._try(one.session, self._remove_result, [one]):
                too_much -= one.size
        for one in [one for one in self._left() if one.unfinished and self.now - one.at > DAY]:
            if not self._stopped():
                self._try(one.session, self._remove_all, [one])

    def done(self) -> CleanupReport:
        return CleanupReport(
            files=len(self.removed),
            bytes=sum(one.size for one in self.removed),
            sessions=tuple(self.sessions),
            removed=tuple("/".join(one.parts) for one in self.removed),
            in_use=len(self.in_use),
            problems=tuple(self.problems),
            finished=self.finished,
        )

    # --- what is due --------------------------------------------------------------------------------

    def _old(self, one: StoredFile) -> bool:
        return self.now - one.at > self.limits.days * DAY

    def _all_of(self, session: str) -> list[StoredFile]:
        """Everything of ours that belongs to a session, its transcript first."""
        transcript = self.found.transcripts.get(session)
        inside = [one for one in self.found.files.get(session, ()) if one.ours]
        return [transcript, *inside] if transcript else inside

    def _left(self) -> Iterator[StoredFile]:
        for session, files in self.found.files.items():
            if session not in self._gone:
                yield from files

    def _stopped(self) -> bool:
        self.finished = self.finished and not self.stop()
        return not self.finished

    # --- removing -----------------------------------------------------------------------------------

    def _try(
        self, session: str, remove: Callable[[str, list[StoredFile]], bool], what: list[StoredFile]
    ) -> bool:
        """Remove a file while its session cannot be opened; False if it stays."""
        if session in self.found.strange:
            return False
        try:
            with self._unopened(session):
                return remove(session, what)
        except SessionBusy:
            self.in_use.update(what)
        except ForeignFile:
            self.found.strange.add(session)
        except (DamagedTranscript, StorageFailure) as error:
            self.found.strange.add(session)
            if not isinstance(error.__cause__, FileNotFoundError):  # another process cleaned it
                self.problems.append(
                    f"{error}; nothing of session {session} was removed: "
                    f"'sevenfold sessions rm {session}' does it"
                )
        except OSError as error:
            self.problems.append(str(make_storage_failure(error, self.project / session, "removed")))
        return False

    @contextlib.contextmanager
    def _unopened(self, session: str) -> Iterator[None]:
        """`SessionBusy` for a session that is open or was opened since the survey, and for our own."""
        seen = self.found.transcripts.get(session)
        if session and session == self.current:
            raise SessionBusy(f"{session} is this session")
        if seen is None:
            if session and not re.fullmatch(OWN_ID, session):
                raise ForeignFile(session)
            yield
            return
        with hold_closed_log(self._transcript(session)):
            now = self._transcript(session).lstat()
            if (now.st_mtime, now.st_size) != (seen.at, seen.size):
                raise SessionBusy(f"{session} was used just now")
            yield

    def _transcript(self, session: str) -> Path:
        return self.project / f"{session}.jsonl"

    def _remove_session(self, session: str, what: list[StoredFile]) -> bool:
        """Remove the transcript first: after a crash nothing points to the rest."""
        if session in self.found.transcripts:
            read_own_transcript(self._transcript(session))
            if not self._remove(what[0]):
                return False
            self.sessions.append(session)
            names = (f"{session}.jsonl.torn", f"{session}.jsonl.lock")
            what = [*what[1:], *(one for one in self.found.files.get("", ()) if one.inside in names)]
        self._gone.add(session)
        self._remove_all(session, what)
        files = [] if self.dry_run else self.found.files.get(session, [])
        folders = {PurePath(session), *(folder for one in files for folder in PurePath(*one.parts).parents)}
        for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True):
            if folder.parts and not self.dry_run:
                with contextlib.suppress(OSError):  # other files are not ours, and their folder stays
                    _without_links(self.project, folder.parts, os.rmdir)
        return True

    def _remove_result(self, session: str, what: list[StoredFile]) -> bool:
        [one] = what
        if session not in self.found.transcripts:
            # A new file may belong to a session whose transcript is not written yet.
            return self.now - one.at > DAY and self._remove(one)
        if session not in self._pointers:
            files = self.found.files[session]
            self._pointers[session] = collect_pointer_texts(self.project, session, files)
        if one.parts[-1].encode("ascii") in self._pointers[session]:
            self.in_use.add(one)
            return False
        return self._remove(one)

    def _remove_all(self, session: str, what: list[StoredFile]) -> bool:
        return sum(self._remove(one) for one in what) == len(what)

    def _remove(self, one: StoredFile) -> bool:
        if not self.dry_run:
            try:
                _without_links(self.project, one.parts, os.unlink)
            except FileNotFoundError:
                return False  # another process removed it
            except OSError as error:
                path = self.project.joinpath(*one.parts)
                self.problems.append(str(make_storage_failure(error, path, "removed")))
                return False
        self.removed.append(one)
        return True


def _without_links(project: Path, parts: tuple[str, ...], act: Callable[..., None]) -> None:
    """Call `act` on a file reached folder by folder, so that a new link is not followed."""
    if not _BY_FOLDER:
        for n in range(len(parts)):
            if (at := project.joinpath(*parts[:n])).is_symlink():
                raise NotADirectoryError(f"{at} is a link")
        act(project.joinpath(*parts))
        return
    fd = os.open(project, _FOLDER)
    try:
        for name in parts[:-1]:
            inner = os.open(name, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = inner
        act(parts[-1], dir_fd=fd)
    finally:
        os.close(fd)


# --- by itself ----------------------------------------------------------------------------------------


class DailyCleanup:
    """Cleans every project once a day, beside a session: `tray.start("clean-up", cleanup)`.

    Its own project comes first, then the others: some of them may never be opened again. It works in a
    thread; after `stop` the next session does the rest.
    """

    def __init__(
        self,
        project: Path,
        current: str,
        limits: StorageLimits,
        others: StorageLimits | None,
        clock: Clock,
        emit: Emit,
    ) -> None:
        """`others` are the limits of all other projects; None: they are not cleaned."""
        self._project, self._current, self._limits = project, current, limits
        self._others, self._clock, self._emit = others, clock, emit
        self._stopped = False

    async def __call__(self) -> tuple[()]:
        now = self._clock.now()
        try:
            problems = await anyio.to_thread.run_sync(self._clean, now, abandon_on_cancel=True)
        finally:
            self.stop()
        if problems:
            more = len(problems) - 1
            rest = f" (and {more} more: 'sevenfold sessions clean' lists them)" if more else ""
            self._emit(Notice(f"cleaning up old sessions: {problems[0]}{rest}", "warning"))
        return ()

    def stop(self) -> None:
        self._stopped = True

    def _clean(self, now: float) -> list[str]:
        problems: list[str] = []
        for project, limits in self._projects():
            if self._stopped:
                break
            if is_due(project, now):
                current = self._current if project == self._project else ""
                done = clean_project(project, now, limits, current=current, stop=lambda: self._stopped)
                problems += done.problems
                if done.finished:
                    record_cleanup(project, now)
        return problems

    def _projects(self) -> Iterator[tuple[Path, StorageLimits]]:
        yield self._project, self._limits
        if self._others is None:
            return
        with contextlib.suppress(OSError):
            for entry in sorted(os.scandir(self._project.parent), key=lambda entry: entry.name):
                project = Path(entry.path)
                there = entry.is_dir(follow_symlinks=False) and (project / ROOT_FILE).is_file()
                if there and project != self._project:
                    yield project, self._others


def is_due(project: Path, now: float) -> bool:
    """True if a project was not cleaned within the last day."""
    try:
        return abs(now - (project / STAMP).lstat().st_mtime) >= DAY
    except OSError:
        return project.is_dir()


def record_cleanup(project: Path, now: float) -> None:
    """Record that the project was cleaned; if that fails, it is cleaned again next time."""
    path = project / STAMP
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | NOFOLLOW | CLOEXEC, PRIVATE_FILE))
        os.utime(path, (now, now))
