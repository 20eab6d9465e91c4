"""The state of a team memory between two syncs, its local files and their names, and syncs in words.

The state is one file beside the repository. `agreed` holds for each file the version that was the same on
both sides. It is written after the folder, so a sync that dies is simply repeated. A name can be shared if
it means one file, the same one, on every system.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.core.errors import Refused, StorageFailure
from sevenfold.memory.backend import HEAD
from sevenfold.memory.folder.folder import A_SECRET, SHARED, FolderTransaction
from sevenfold.memory.folder.names import (
    COPY,
    ENDING,
    INDEX_NAME,
    TEAM,
    explain_bad_file,
    is_copy,
    make_file_key,
)
from sevenfold.memory.guard.injection import find_instructions
from sevenfold.memory.team.git import NoTeam, RefusedFile, SyncResult, TeamStatus
from sevenfold.memory.team.objects import BLOB, hash_object
from sevenfold.storage.files import make_private_dir, read_if_there, write_atomic

FILE: Final = "team.json"
_LIMIT: Final = 64 << 20


class RejectedVersion(msgspec.Struct, frozen=True):
    """A version in the remote that was not taken, and why."""

    id: str
    why: str


class PlannedMerge(msgspec.Struct, frozen=True):
    """A merged text that is about to be written."""

    merged: str
    theirs: str


class TeamState(msgspec.Struct):
    """The state of one team memory."""

    remote: str
    path: str = ""
    branch: str = "main"
    tip: str = ""  # The newest known commit of the remote
    agreed: dict[str, str] = {}
    left: dict[str, RejectedVersion] = {}
    planned: dict[str, PlannedMerge] = {}
    released: set[str] = set()  # Digests of texts that the user lets pass although they look like secrets
    synced: float | None = None
    offline: str | None = None
    refused: tuple[RefusedFile, ...] = ()
    more_refused: int = 0


class TeamStateFile:
    """The file with the state."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def there(self) -> bool:
        return self.path.exists()

    def load(self) -> TeamState:
        """The state; `NoTeam` if there is none."""
        data = read_if_there(self.path, _LIMIT, nofollow=True)
        if data is None:
            raise NoTeam
        try:
            return msgspec.json.decode(data, type=TeamState)
        except msgspec.MsgspecError as error:
            raise StorageFailure(
                f"{self.path} is damaged; move it away and join the team again, nothing is lost by that"
            ) from error

    def save(self, state: TeamState) -> None:
        make_private_dir(self.path.parent)
        write_atomic(self.path, msgspec.json.encode(state), nofollow=True)


def release_key(data: bytes) -> str:
    """The digest that identifies a released text; the text itself is not stored."""
    return hashlib.sha256(data).hexdigest()


LONGEST: Final = 80  # Most characters of one part of a name
WORDS: Final = 8  # Most words of one part of a name
_STEM: Final = 100  # Bytes of a name that its conflict copy keeps


def explain_bad_name(file: str) -> str:
    """The reason not to share a file of this name, or empty. `file` is relative to the team's folder."""
    if why := explain_bad_file(f"{TEAM}{file}", file == INDEX_NAME):
        return why
    if unicodedata.normalize("NFC", file) != file:
        return "its name is not written with composed characters (NFC)"
    return ""


def explain_suspicious_name(file: str) -> str:
    """The reason not to show a name from the remote to the agent, or empty.

    The index shows names, and a name can be a sentence.
    """
    for part in COPY.sub("", file).removesuffix(ENDING).split("/"):
        if len(part) > LONGEST:
            return f"its name has more than {LONGEST} characters"
        if len(re.findall(r"[^\W_]+", part)) > WORDS:
            return f"its name has more than {WORDS} words"
    spoken = re.sub(r"[\W_]+", " ", file.removesuffix(ENDING))
    if find_instructions(file, "team") or find_instructions(spoken, "team"):
        return "its name tries to give the agent orders"
    return ""


class FileNameSet:
    """Names in use. Two clash if some system takes them for one, or one is a folder of the other."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}

    def add(self, file: str) -> None:
        self._files[make_file_key(file)] = file
        for folder in _above(file):
            self._folders.setdefault(make_file_key(folder), folder)

    def clash(self, file: str) -> str:
        """The name in use with which this one clashes, or empty."""
        same = self._files.get(make_file_key(file), file)
        if same != file:
            return same
        if make_file_key(file) in self._folders:
            return self._folders[make_file_key(file)]
        for folder in _above(file):
            if make_file_key(folder) in self._files:
                return self._files[make_file_key(folder)]
            if self._folders.get(make_file_key(folder), folder) != folder:
                return self._folders[make_file_key(folder)]
        return ""


def _above(file: str) -> list[str]:
    parts = file.split("/")[:-1]
    return ["/".join(parts[: at + 1]) for at in range(len(parts))]


def choose_copy_name(file: str, data: bytes, usable: Callable[[str], bool]) -> str:
    """The name of a conflict copy. It has a digest of the text, so that all members make the same copy.

    `usable` is True for a name that is free or holds the same bytes.
    """
    stem = COPY.sub("", file) if is_copy(file) else file.removesuffix(ENDING)
    folder, slash, last = stem.rpartition("/")
    last = last.encode("utf-8")[:_STEM].decode("utf-8", "ignore").rstrip(" .")
    digest = hashlib.sha256(data).hexdigest()
    names = [f"{folder}{slash}{last}.conflict-{digest[:n]}{ENDING}" for n in (8, 16, 32, 64)]
    return next((name for name in names if usable(name) and not explain_bad_name(name)), names[-1])


@dataclass(slots=True)
class LocalFiles:
    """The files of the team on this machine, named relative to the team's folder."""

    files: dict[str, bytes] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    """Files that cannot be shared as they are, with the reason; they stay on both sides."""
    names: dict[str, str] = field(default_factory=dict)  # The names of the memories, by file
    times: dict[str, float] = field(default_factory=dict)  # The write times
    secret: set[str] = field(default_factory=set)  # Files that the store keeps out of its history

    @property
    def index(self) -> str:
        return self.files.get(INDEX_NAME, b"").decode("utf-8", "surrogateescape")

    def explain_block(self, file: str) -> str:
        """The reason if this name, or a folder above it, is in `held`; or empty."""
        parts = file.split("/")
        tries = ("/".join(parts[:at]) for at in range(1, len(parts) + 1))
        return next((self.held[one] for one in tries if one in self.held), "")


def hash_blob(data: bytes) -> str:
    """The id that git gives to a text."""
    return hash_object(BLOB, data).hex()


def read_local_files(desk: FolderTransaction) -> LocalFiles:
    """Read the team's folder; `Refused` if it is not a plain folder."""
    found = LocalFiles()
    for odd in desk.listing.odd:
        if odd.file in (".", TEAM.rstrip("/")):
            raise Refused(f"{desk.folder / odd.file} is not synchronised: {odd.why}")
        if odd.file.startswith(TEAM):
            found.held[odd.file.removeprefix(TEAM)] = odd.why
    for file, stamp in desk.listing.files.items():
        if not file.startswith(TEAM):
            continue
        inner = file.removeprefix(TEAM)
        if stamp.size > HEAD:
            found.held[inner] = f"it has {stamp.size:,} bytes, and a memory has at most {HEAD:,}"
        else:
            _read(desk, file, inner, found)
    return found


def _read(desk: FolderTransaction, file: str, inner: str, found: LocalFiles) -> None:
    try:
        data, stamp = desk.at.read(file, HEAD + 1)
    except (StorageFailure, Refused) as error:
        found.held[inner] = str(error)
        return
    if stamp.size > HEAD:
        found.held[inner] = "it is being written"
        return
    found.files[inner] = data
    found.ids[inner] = hash_blob(data)
    found.times[inner] = stamp.modified / 1e9
    row = desk.ledger.rows.get(file)
    if row is not None and row.held == A_SECRET:
        found.secret.add(inner)
    if row is not None and SHARED.lists(file):
        found.names[inner] = row.name


_NAMED: Final = 5


def describe_sync(synced: SyncResult) -> str:
    """One line about a sync."""
    done = {"took": synced.pulled, "removed": synced.removed_here, "sent": synced.pushed}
    done["sent the removal of"] = synced.removed_there
    parts = [f"{what} {format_file_names(files)}" for what, files in done.items() if files]
    if synced.offline is not None:
        first = f"{', '.join(parts)}; " if parts else ""
        return f"{first}not synchronised: {synced.offline}. What changed here goes with the next sync."
    count = synced.left_out
    if not count:
        return ", ".join(parts) if parts else "both sides are the same"
    what = "1 file was left out" if count == 1 else f"{count:,} files were left out"
    which = "it" if count == 1 else "them"
    done_now = ", ".join(parts) if parts else "nothing more to take or send"
    return f"{done_now}; {what} ('sevenfold team status' names {which})"


def list_remarks(synced: SyncResult) -> list[str]:
    """Remarks about a sync, a sentence each, without those of the previous one."""
    lines = [synced.note, describe_conflicts(synced), *format_refusals(synced.fresh, 0)]
    return [line for line in lines if line]


def format_file_names(files: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    more = len(files) - _NAMED
    return ", ".join(files[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def describe_conflicts(synced: SyncResult) -> str:
    """Advice about the copies that a sync made, or empty."""
    if not synced.conflicts:
        return ""
    copies = [f"{TEAM}{file}" for file in synced.conflicts]
    return (
        "you and the team changed the same lines: theirs keeps the name, yours is in "
        f"{format_file_names(copies)}; put them together and remove the copy: "
        f"sevenfold memory rm {shlex.quote(copies[0])}"
    )


def format_refusals(refused: Sequence[RefusedFile], more: int) -> list[str]:
    """One line for each file that was not sent or not taken."""
    done = {"here": "not sent", "remote": "not taken"}
    lines = [f"{done[one.side]}: {one.file}: {one.why}" for one in refused]
    return [*lines, f"and {more:,} more that were not taken or not sent"] if more else lines


def describe_status(status: TeamStatus) -> list[str]:
    """The status of a team memory, line by line."""
    lines = [f"remote: {status.remote}, branch {status.branch}"]
    lines.append(f"not sent yet: {format_file_names(status.ahead) or 'nothing'}")
    behind = f"not taken yet: {format_file_names(status.behind) or 'nothing'}"
    lines.append(behind if status.offline is None else f"offline: {status.offline}")
    if status.conflicts:
        copies = [f"{TEAM}{file}" for file in status.conflicts]
        lines.append(
            f"copies to be put together: {format_file_names(copies)}; 'sevenfold memory "
            "rm FILE' removes one"
        )
    return lines + format_refusals(status.refused, status.more_refused)
