"""Finds out whether a history can be used, and makes it usable again when it cannot.

What can be saved is saved: a lost name of the last commit is found again, and revisions at the end that
a power cut tore are left out. What cannot is set aside under another name, and a new history begins.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from sevenfold.errors import StorageFailure
from sevenfold.memory.repository.objects import Objects
from sevenfold.memory.repository.purging import ASIDE
from sevenfold.memory.repository.trees import files
from sevenfold.storage.files import failure


def usable(objects: Objects) -> bool:
    """Whether the last revision can be read, so that another can follow it."""
    try:
        head = objects.head()
        return _whole(objects, head) if head else not _has_objects(objects)
    except StorageFailure:
        return False


def _whole(objects: Objects, id: bytes) -> bool:
    try:
        for _ in files(objects, objects.commit(id).tree):
            pass
    except StorageFailure:
        return False
    return True


def _has_objects(objects: Objects) -> bool:
    try:
        return any(objects.packs.glob("*.pack")) or any(True for _ in objects.loose())
    except FileNotFoundError:
        return False
    except OSError as error:
        raise failure(error, objects.store, "read") from error


def recover(objects: Objects, at: float) -> str:
    """Make the history usable; returns a sentence for the user, empty when nothing was lost."""
    path = objects.path
    if not path.is_dir():
        return set_aside(path, at)
    objects.forget()
    try:
        head = objects.head()
    except StorageFailure:
        head = None
    found = _newest_whole(objects)
    if found is not None:
        objects.set_head(found, sync=True)
        if head is None:
            return ""
        return (
            f"The last revisions in the history {path} could not be read and were left out; "
            "the memories themselves are as they were."
        )
    if head is None and not any(objects.packs.glob("*.pack")):
        objects.set_head(None)  # killed before the first revision was complete
        return ""
    return set_aside(path, at)


def _newest_whole(objects: Objects) -> bytes | None:
    commits: list[tuple[int, float, bytes]] = []
    try:
        everything = set(objects.everything())
    except OSError:
        return None
    for id in everything:
        with contextlib.suppress(StorageFailure):
            commit = objects.commit(id)
            commits.append((commit.number, commit.at, id))
    return next((id for *_, id in sorted(commits, reverse=True) if _whole(objects, id)), None)


def set_aside(path: Path, at: float) -> str:
    """Move a history out of the way, whatever it is; returns the sentence that says so."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(max(0.0, at)))
    aside = path.with_name(f"{path.name}{ASIDE}{stamp}")
    number = 1
    while aside.exists() or aside.is_symlink():
        number += 1
        aside = path.with_name(f"{path.name}{ASIDE}{stamp}-{number}")
    try:
        path.rename(aside)
    except OSError as error:
        raise failure(error, path, "moved") from error
    return (
        f"The history of the memories in {path} was damaged: it was set aside as {aside.name}, and a "
        "new one begins; the memories themselves are as they were."
    )
