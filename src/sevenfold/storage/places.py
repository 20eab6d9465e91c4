"""The files of a project: its repository, its own folder, its sessions.

<home>/projects/<slug>/root.json            the project that this folder is for
                       memory/
                       <session>.jsonl      the transcript
                       <session>/           what else belongs to it
                       waiting/             the sessions whose words wait for an extraction

The repository of a folder is found by reading files; git is never run.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import re
import shutil
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec.structs import replace

from sevenfold.core.errors import Mistake, SessionNotFound, StorageFailure
from sevenfold.core.messages import strip_half_characters
from sevenfold.storage.files import (
    make_private_dir,
    make_storage_failure,
    read_head,
    read_if_there,
    write_atomic,
    write_new,
)
from sevenfold.storage.jsonl import JsonlLog

_LIMIT: Final = 1 << 16
_WORKTREE: Final = r"(?m)^\s*worktree\s*=\s*\"?([^\"\n]+?)\"?\s*$"


class GitRepository(msgspec.Struct, frozen=True):
    root: Path  # The main working folder; worktrees share it. The repository itself where it is bare.
    tree: Path  # The working folder we are in
    note: str = ""  # A claim of the `.git` file that was not believed, and why


def find_repository(start: Path) -> GitRepository | None:
    """The repository around a folder, or None.

    A `.git` that cannot be believed ends the search: its folder is no part of a repository further up.
    """
    for folder in (start, *start.parents):
        git = folder / ".git"
        try:
            if git.is_dir():
                if (git / "HEAD").exists():
                    return GitRepository(folder, folder)
            elif git.exists() or git.is_symlink():
                return _by_file(folder, git)
        except OSError:  # no permission
            continue
    return None


def _by_file(folder: Path, git: Path) -> GitRepository:
    points_to = _pointed(git, folder, "gitdir:")
    if points_to is None:
        return GitRepository(folder, folder, f"{git} is not a git file; it was ignored")
    if not points_to.is_dir():
        return GitRepository(folder, folder, f"{git} names {points_to}, which is not there; it was ignored")
    shared = _pointed(points_to / "commondir", points_to)
    if shared is None:  # a submodule, or a repository whose folder lies elsewhere
        if points_to.name == ".git" and not _same_repository(points_to.parent, folder):
            return GitRepository(folder, folder, _unbelieved(git, points_to.parent))
        return GitRepository(folder, folder)
    main, back = _main_folder(shared), _pointed(points_to / "gitdir", points_to, real=False)
    listed = back is not None and back.name == ".git" and _same_repository(back.parent, folder)
    if listed and _same_repository(points_to.parent, shared / "worktrees"):
        return GitRepository(main, folder)
    return GitRepository(folder, folder, _unbelieved(git, main))


def find_git_folder(tree: Path) -> Path | None:
    """The git folder that the `.git` file of a working folder names, if the two name each other."""
    points_to = _pointed(tree / ".git", tree, "gitdir:") if (tree / ".git").is_file() else None
    if points_to is None or not points_to.is_dir():
        return None
    shared = _pointed(points_to / "commondir", points_to)
    if shared is None:
        return points_to if _main_folder(points_to) == tree else None
    found = _by_file(tree, tree / ".git")
    return shared if not found.note else None


def _unbelieved(git: Path, other: Path) -> str:
    return f"{git} claims to belong to {other}, which does not know of it; it was ignored"


def _main_folder(shared: Path) -> Path:
    if shared.name == ".git":
        return shared.parent
    config = _text(shared / "config")
    if found := re.search(_WORKTREE, config):  # a submodule: its folder and its repository name each other
        folder = Path(os.path.realpath(shared / found[1]))
        named = _pointed(folder / ".git", folder, "gitdir:")
        if named is not None and _same_repository(named, shared):
            return folder
    return shared


def _pointed(file: Path, beside: Path, prefix: str = "", *, real: bool = True) -> Path | None:
    """The path in a small file of git; a relative one counts from `beside`."""
    text = _text(file)
    if not text.startswith(prefix):
        return None
    text = text.removeprefix(prefix).strip()
    if not text or "\0" in text or "\n" in text:
        return None
    path = beside / text
    return Path(os.path.realpath(path) if real else os.path.normpath(path))


def _text(file: Path) -> str:
    try:
        data = read_if_there(file, _LIMIT)
    except StorageFailure:
        return ""
    return os.fsdecode(data or b"")


def _same_repository(a: Path, b: Path) -> bool:
    try:
        return a.samefile(b)
    except OSError:
        return False


Scope: TypeAlias = Literal["repository", "worktree", "folder", "user"]

LONGEST_SLUG: Final = 200
ROOT_FILE: Final = "root.json"
WAITING: Final = "waiting"  # The folder of notes on words that wait for an extraction
PEEK: Final = 1 << 16  # Bytes read from each end of a transcript to list it
TITLE_LENGTH: Final = 100
_ID: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
_RESERVED: Final = frozenset(
    ["memory", WAITING, "con", "prn", "aux", "nul"]
    + [f"{port}{n}" for port in ("com", "lpt") for n in range(10)]
)
_FIRST_TEXT: Final = rb'"text":("(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u]){0,2000})'


class ProjectPaths(msgspec.Struct, frozen=True):
    home: Path
    root: Path  # The path that identifies the project: the same for all worktrees of a repository
    tree: Path  # The folder of the project's own files: settings, instruction files
    slug: str
    project: Path
    scope: Scope = "repository"
    note: str = ""  # A remark for the user: a claim not believed, another scope than asked for

    @property
    def memory(self) -> Path:
        return self.project / "memory"

    def session_file(self, session: str) -> Path:
        return self.project / f"{check_session_id(session)}.jsonl"

    def session_folder(self, session: str) -> Path:
        return self.project / check_session_id(session)


def find_places(
    start: Path, home: Path, scope: Scope = "repository", *, user_home: Path | None = None
) -> ProjectPaths:
    """The places of the project around `start`. Writes nothing; `claim_places` does."""
    if scope not in get_args(Scope):
        raise Mistake(f"{scope!r} is no scope; use one of {', '.join(get_args(Scope))}")
    folder = Path(os.path.realpath(start))
    if not folder.is_dir():
        raise Mistake(f"{start} is not a folder; name the project's folder with --project")
    home, person = home.absolute(), None
    with contextlib.suppress(RuntimeError):  # a user without a name, as in some containers
        person = Path(os.path.realpath(user_home or Path.home()))
    notes = []
    if person and _same(folder, person) and scope != "user":
        notes.append(f"started in your home folder {person}: what is kept belongs to you, not to a project")
        scope = "user"
    root = tree = folder
    if scope == "user":
        root = person or folder
    elif scope != "folder" and (found := find_repository(folder)):
        root, tree = (found.root if scope == "repository" else found.tree), found.tree
        notes.append(found.note)
        if root == person:
            notes.append(f"the repository around {folder} is your whole home folder")
    slug, project, said = _folder_for(home, root)
    return ProjectPaths(home, root, tree, slug, project, scope, "; ".join(filter(None, [*notes, said])))


def claim_places(places: ProjectPaths) -> ProjectPaths:
    """Make the project's folder and record its owner; if another project has it, take the next one."""
    while True:
        make_private_dir(places.project)
        record = places.project / ROOT_FILE
        data = json.dumps({"root": str(places.root)}).encode("ascii") + b"\n"
        if write_new(record, data):
            return places
        slug, project, said = _folder_for(places.home, places.root)
        if project == places.project:
            if said:  # it is there, but damaged
                write_atomic(record, data)
            return places
        places = replace(places, slug=slug, project=project)


def claim_or_fail(places: ProjectPaths) -> ProjectPaths:
    """Claim the places of a project that is in use; `Mistake` if another project has its folder."""
    if (now := claim_places(places)).project == places.project:
        return now
    raise Mistake(
        f"{places.project} belongs to another project since a moment ago, whose path gives the same "
        f"name; open this one again: it is kept in {now.project}"
    )


def _folder_for(home: Path, root: Path) -> tuple[str, Path, str]:
    """The slug and folder of a root, the first that is free or its own, and a remark for the user."""
    short = make_path_slug(root)
    for slug in (short, f"{short}-{hash_text(str(root))}"):
        folder = home / "projects" / slug
        recorded, said = _recorded_root(folder / ROOT_FILE)
        if recorded is None or _same(recorded, root):
            return slug, folder, said
    slug = f"{short}-{hashlib.sha256(os.fsencode(root)).hexdigest()[:16]}"
    return slug, home / "projects" / slug, ""


def _recorded_root(file: Path) -> tuple[Path | None, str]:
    data = read_if_there(file, PEEK)
    if data is None:
        return None, ""
    try:
        return Path(json.loads(data)["root"]), ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, f"{file} did not say whose folder this is; it was taken as this project's"


def _same(a: Path, b: Path) -> bool:
    try:
        return a == b or a.samefile(b)
    except OSError:
        return False


def make_path_slug(root: Path) -> str:
    """A folder name for a path: what is no letter or digit becomes a dash, and it is never too long."""
    text = _normal(str(root))
    slug = "".join(chr(u) if u < 128 and chr(u).isalnum() else "-" for u in _utf16(text))
    return slug if len(slug) <= LONGEST_SLUG else f"{slug[:LONGEST_SLUG]}-{hash_text(text)}"


def hash_text(text: str) -> str:
    """The 32-bit hash h = 31h + c over UTF-16 units, its absolute value in base 36."""
    h = 0
    for unit in _utf16(_normal(text)):
        h = (31 * h + unit) & 0xFFFFFFFF
    h = abs(h - (1 << 32) if h >= 1 << 31 else h)
    digits = ""
    while True:
        h, digit = divmod(h, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
        if not h:
            return digits


def _normal(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _utf16(text: str) -> Iterator[int]:
    units = text.encode("utf-16-le", "surrogatepass")
    return (units[i] | units[i + 1] << 8 for i in range(0, len(units), 2))


# --- sessions ---------------------------------------------------------------------------------------


class SessionInfo(msgspec.Struct, frozen=True):
    id: str
    path: Path
    at: float  # The time of the last write
    size: int
    title: str = ""  # Its title mark, or the first line of its first prompt


def make_session_id(now: float, random: Callable[[int], bytes] = os.urandom) -> str:
    """An id that sorts by time and is safe as a file name."""
    moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
    return f"{moment:%Y%m%d-%H%M%S}{moment.microsecond // 1000:03d}-{random(3).hex()}"


def check_session_id(session: str) -> str:
    """The id as given, if it can be one: it becomes the name of a file and of a folder."""
    if not re.fullmatch(_ID, session) or session.endswith(".") or session.lower() in _RESERVED:
        raise SessionNotFound(
            f"{session!r} cannot be a session id: use letters, digits, '-', '_' and '.'; "
            "'sevenfold sessions' lists those there are"
        )
    return session


def list_sessions(places: ProjectPaths) -> list[SessionInfo]:
    """The project's sessions, newest first. Reads a bounded part of each."""
    found = []
    for path, stat in _transcripts(places.project):
        try:
            title = _title(path, stat.st_size)
        except StorageFailure:  # an unreadable one is listed without a title
            title = ""
        found.append(SessionInfo(path.stem, path, stat.st_mtime, stat.st_size, title))
    return sorted(found, key=lambda s: (s.at, s.id), reverse=True)


def find_session(places: ProjectPaths, session: str) -> Path:
    """The transcript of an id, or of the beginning of an id if only one begins so."""
    exact = places.session_file(session)
    if exact.is_file():
        return exact
    matching = [path for path, _ in _transcripts(places.project) if path.stem.startswith(session)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        newest = sorted((path.stem for path in matching), reverse=True)[:5]
        which = "the newest are " if len(matching) > len(newest) else ""
        raise SessionNotFound(
            f"{session!r} is the beginning of {len(matching):,} sessions, {which}{', '.join(newest)}; "
            "give more of it"
        )
    raise SessionNotFound(
        f"there is no session {session!r} of {places.root}; 'sevenfold sessions' lists those there are"
    )


def remove_session(places: ProjectPaths, session: str) -> None:
    """Delete a transcript and all that belongs to it; `SessionBusy` while it is open."""
    path = find_session(places, session)
    with JsonlLog(path, create=False):
        try:
            path.with_name(path.name + ".torn").unlink(missing_ok=True)
            folder = places.session_folder(path.stem)
            if folder.is_dir() and not folder.is_symlink():
                shutil.rmtree(folder)
            path.unlink()
        except OSError as error:
            raise make_storage_failure(error, path, "removed") from error


def _transcripts(project: Path) -> Iterator[tuple[Path, os.stat_result]]:
    try:
        entries = list(os.scandir(project))
    except FileNotFoundError:
        return
    except OSError as error:
        raise make_storage_failure(error, project, "read") from error
    for entry in entries:
        id, dot, kind = entry.name.rpartition(".")
        if dot and kind == "jsonl" and re.fullmatch(_ID, id) and entry.is_file(follow_symlinks=False):
            with contextlib.suppress(FileNotFoundError):  # removed just now
                yield Path(entry.path), entry.stat(follow_symlinks=False)


def _title(path: Path, size: int) -> str:
    head = read_head(path, PEEK, nofollow=True)
    tail = head if size <= PEEK else _read_tail(path, size)
    for line in reversed(tail.split(b"\n")):
        if b'"title"' in line and (mark := _peeked(line)) and mark.what.name == "title":
            return _one_line(str(mark.what.value))
    for line in head.split(b"\n"):
        entry = _peeked(line)
        if entry and entry.by == "user" and entry.what.role == "user":
            return _one_line(" ".join(block.text for block in entry.what.content))
    if b'"role":"user"' in line and (cut := re.search(_FIRST_TEXT, line)):  # longer than what we read
        return _one_line(str(json.loads((cut[1] + b'"').decode("utf-8", "ignore"))))
    return ""


class _PeekBlock(msgspec.Struct):
    text: str = ""


class _PeekPayload(msgspec.Struct):
    role: str = ""
    content: list[_PeekBlock] = []
    name: str = ""
    value: Any = None


class _PeekEntry(msgspec.Struct):
    what: _PeekPayload
    by: str = ""


_decode_peek = msgspec.json.Decoder(_PeekEntry).decode


def _peeked(line: bytes) -> _PeekEntry | None:
    try:
        return _decode_peek(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _one_line(text: str) -> str:
    line = " ".join(strip_half_characters(text).split())
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1] + "…"


def _read_tail(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(size - PEEK)
            return file.read(PEEK)
    except OSError as error:
        raise make_storage_failure(error, path, "read") from error
