"""The private copy of a memory folder that a dream works on, and the copy it is compared with later.

Both are in `<state>/dreams/<id>`: `staged`, which the dream may change, and `base`; `dream.json` names the
owner. Too large files, files with secrets, links and files that cannot be read are not copied: the dream
cannot change what it was not given.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from sevenfold.core.errors import Refused, StorageFailure
from sevenfold.memory.dreams.lock import LockProcess, read_current_process
from sevenfold.memory.folder.files import MemoryFiles
from sevenfold.memory.folder.folder import RECORDED, FolderTransaction, digest_bytes
from sevenfold.memory.folder.names import INDEX_NAME
from sevenfold.memory.store import MemoryStore
from sevenfold.storage.files import (
    PRIVATE_FILE,
    make_private_dir,
    make_storage_failure,
    read_if_there,
    write_atomic,
)

DREAMS: Final = "dreams"
TOTAL: Final = 64 << 20  # Bytes of all files that are copied; beyond it the oldest are left out
_ABOUT: Final = "dream.json"
_ID: Final = re.compile(r"[0-9a-f]{16}")


class StagedChange(msgspec.Struct, frozen=True):
    """The change that the dream made to one file of its copy."""

    file: str
    action: Literal["created", "changed", "removed"]


class _StageHeader(msgspec.Struct, frozen=True):
    owner: LockProcess
    at: float
    digests: dict[str, str]
    waiting: bool = False


class DreamStage:
    """One dream's copy."""

    def __init__(
        self, place: Path, digests: Mapping[str, str], at: float, removed: Collection[str] = ()
    ) -> None:
        """`removed`: files that the index points to and that were removed before the dream."""
        self.place, self.at, self.removed = place, at, removed
        self.folder = place / "staged"
        self._digests = dict(digests)

    @property
    def id(self) -> str:
        return self.place.name

    @property
    def files(self) -> list[str]:
        """The files as the dream was given them."""
        return sorted(self._digests)

    def before(self) -> dict[str, bytes]:
        """The files as they were when the dream began; `StorageFailure` when the copy is damaged."""
        found = _contents(self.place / "base")
        if {file: digest_bytes(data) for file, data in found.items()} != self._digests:
            raise StorageFailure(
                f"{self.place} is damaged: what the dream began with is no longer known, so that "
                "nothing of it is taken over; discard it and dream again"
            )
        return found

    def dreamt(self) -> dict[str, bytes]:
        """The files as the dream left them; one that cannot be taken over counts as not changed."""
        found = _contents(self.folder)
        with MemoryFiles(self.folder).opened() as at:
            there = at.list()
        odd = [*(one.file for one in there.odd), *(file for file in there.files if file not in found)]
        for file in self._digests.keys() - found.keys():
            if any(one == "." or file == one or file.startswith(f"{one}/") for one in odd):
                with MemoryFiles(self.place / "base").opened() as at:
                    found[file] = at.read(file, RECORDED)[0]
        return found

    def times(self) -> dict[str, int]:
        """Files that the dream wrote and gave an older time than its own, in nanoseconds."""
        with MemoryFiles(self.folder).opened() as at:
            stamps = at.list().files
        return {file: one.modified for file, one in stamps.items() if one.modified / 1e9 < self.at}

    def changes(self) -> list[StagedChange]:
        """The changes of the dream so far, in the order of the files."""
        now = {file: digest_bytes(data) for file, data in self.dreamt().items()}
        found: list[StagedChange] = []
        for file in sorted({*now, *self._digests}):
            old, new = self._digests.get(file), now.get(file)
            if old != new:
                action: Literal["created", "changed", "removed"] = "changed"
                if old is None or new is None:
                    action = "created" if old is None else "removed"
                found.append(StagedChange(file, action))
        return found

    def wait(self) -> None:
        """Keep it until the user has seen it, also when this process is gone."""
        _note(self.place, _StageHeader(read_current_process(), self.at, self._digests, waiting=True))


def stage_folder(store: MemoryStore) -> DreamStage:
    """Copy the folder as it is now, with everything that others wrote taken in."""
    sweep_stages(store.local)
    place = make_private_dir(store.local / DREAMS) / secrets.token_hex(8)
    try:
        digests, at, removed = store.changing(
            lambda desk: (_copied(desk, place), desk.now, _find_removed(desk)), tidy=False
        )
        _note(place, _StageHeader(read_current_process(), at, digests))
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    return DreamStage(place, digests, at, removed)


def open_stage(state: Path, id: str) -> DreamStage:
    """A copy that is there already: one that waits for the user."""
    place = state / DREAMS / id
    about = _about(place) if _ID.fullmatch(id) else None
    if about is None:
        raise Refused(f"there is no dream {id[:40]!r} that waits; 'sevenfold dream status' shows them")
    return DreamStage(place, about.digests, about.at)


def list_waiting_stages(state: Path) -> list[str]:
    """The dreams that wait for the user, the oldest first."""
    found = [(about.at, id) for id, about in _all(state) if about is not None and about.waiting]
    return [id for _, id in sorted(found)]


def discard_stage(staged: DreamStage) -> None:
    """Nothing of this dream is taken over."""
    shutil.rmtree(staged.place, ignore_errors=True)


def discard_all_stages(state: Path) -> None:
    """No copy of any memory stays here: for those who purge one."""
    shutil.rmtree(state / DREAMS, ignore_errors=True)


def sweep_stages(state: Path) -> None:
    """Remove what dreams of dead processes left behind, unless it waits for the user."""
    for id, about in _all(state):
        if about is None or not (about.waiting or about.owner.lives()):
            shutil.rmtree(state / DREAMS / id, ignore_errors=True)


def _all(state: Path) -> list[tuple[str, _StageHeader | None]]:
    try:
        names = sorted(each.name for each in (state / DREAMS).iterdir())
    except OSError:
        return []
    return [(name, _about(state / DREAMS / name)) for name in names if _ID.fullmatch(name)]


def _about(place: Path) -> _StageHeader | None:
    with contextlib.suppress(StorageFailure, msgspec.DecodeError, UnicodeDecodeError):
        data = read_if_there(place / _ABOUT, TOTAL, nofollow=True)
        return msgspec.json.decode(data, type=_StageHeader) if data is not None else None
    return None


def _note(place: Path, about: _StageHeader) -> None:
    write_atomic(place / _ABOUT, msgspec.json.encode(about), nofollow=True)


def _find_removed(desk: FolderTransaction) -> list[str]:
    from sevenfold.memory.index import find_dead_pointers
    from sevenfold.memory.index_update import decode_index, drop_removed

    if desk.stamp(INDEX_NAME) is None:
        return []
    names = {file: row.name or file for file, row in desk.ledger.rows.items()}
    text = decode_index(desk.at.read(INDEX_NAME, RECORDED)[0])
    left = find_dead_pointers(drop_removed(desk, text, names), names)
    return [file for file in find_dead_pointers(text, names) if file not in left]


def _copied(desk: FolderTransaction, place: Path) -> dict[str, str]:
    """Copy what may be copied, the newest first, with its times."""
    for each in ("staged", "base"):
        make_private_dir(place / each)
    rows = desk.ledger.rows
    usable = [
        (file, row.stamp)
        for file, row in rows.items()
        if row.stamp is not None and not row.held and row.stamp.size <= RECORDED
    ]
    usable.sort(key=lambda one: (one[0] != INDEX_NAME, -one[1].modified, one[0]))
    digests: dict[str, str] = {}
    left = TOTAL
    for file, stamp in usable:
        try:
            data, _ = desk.at.read(file, RECORDED + 1)
        except (StorageFailure, Refused):
            continue
        if len(data) > min(left, RECORDED):
            continue
        left -= len(data)
        for each in ("staged", "base"):
            _write(place / each / file, data, stamp.modified)
        digests[file] = digest_bytes(data)
    return digests


def _write(path: Path, data: bytes, modified: int) -> None:
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        path.touch(PRIVATE_FILE)
        path.write_bytes(data)
        os.utime(path, ns=(modified, modified))
    except OSError as error:
        raise make_storage_failure(error, path) from error


def _contents(folder: Path) -> dict[str, bytes]:
    """All files of a copy that could be memories; links and odd names are not looked at."""
    found: dict[str, bytes] = {}
    with MemoryFiles(folder).opened() as at:
        for file, stamp in sorted(at.list().files.items()):
            if stamp.size <= RECORDED:
                found[file] = at.read(file, RECORDED)[0]
    return found
