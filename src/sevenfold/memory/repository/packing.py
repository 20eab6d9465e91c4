"""Puts loose objects into packs now and then, so that a long history stays small and quick.

Needs no lock against writers or readers: objects never change, and one is removed only when a synced
pack has it. Packs double up in steps of eight, so that there are never more than a few dozen, and each
revision is packed again only a few times in its life. A kill at any moment leaves an object twice at
worst.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sevenfold.errors import StorageFailure
from sevenfold.memory.repository.objects import COMMIT, Objects
from sevenfold.memory.repository.packfile import PackWriter, ids_in
from sevenfold.memory.repository.trees import fresh
from sevenfold.memory.revisions import Commit
from sevenfold.storage.files import failure, write_atomic
from sevenfold.storage.locking import alone

EVERY: Final = 64
OVERDUE: Final = 4 * EVERY
"""So many revisions unpacked, and the one who writes the next does it at once."""
_STEPS: Final = (EVERY * 64, EVERY * 8)
_PACKED: Final = "packed"
_LOCK: Final = "packing"
_BESIDE: Final = (".idx", ".rev", ".bitmap", ".mtimes", ".keep", ".pack")


def packing(objects: Objects) -> contextlib.AbstractContextManager[None]:
    """One at a time: packing and purging would undo each other's work."""
    return alone(objects.path / _LOCK)


def unpacked(objects: Objects, last: Commit) -> int:
    """How many revisions there are since the last pack."""
    packed = _packed(objects)
    return last.number - packed if last.number >= packed else last.number


def _packed(objects: Objects) -> int:
    try:
        return int((objects.path / _PACKED).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def note_packed(objects: Objects, number: int) -> None:
    write_atomic(objects.path / _PACKED, f"{number}\n".encode())


def pack(path: Path) -> int:
    """Pack what is loose; returns how many objects are in the new pack."""
    objects = Objects(path)  # one of its own: it may run in a thread beside the writer
    try:
        if (head := objects.head()) is None:
            return 0
        with packing(objects):
            return _pack(objects, head)
    except OSError as error:
        raise failure(error, objects.packs) from error


def _pack(objects: Objects, head: bytes) -> int:
    last = objects.commit(head)
    with PackWriter(objects.packs) as writer:
        for id, commit, older in _since(objects, head, _start(objects, last)):
            writer.add(COMMIT, id, objects.read(id)[1])
            with contextlib.suppress(StorageFailure):  # what cannot be read stays where it is
                for place, wanted in fresh(objects, commit.tree, older):
                    if wanted not in writer:
                        writer.add(*_object(objects, wanted), place)
        made = writer.finish()
        count = len(writer.written)
        if made:
            _drop_loose(objects, writer)
            _drop_packs(objects, made, frozenset(writer.written))
    note_packed(objects, last.number)
    return count


def _object(objects: Objects, id: bytes) -> tuple[int, bytes, bytes]:
    kind, data = objects.raw(id)
    return kind, id, data


def _start(objects: Objects, last: Commit) -> int:
    """Up to which revision earlier packs stay; all after it go into the new one."""
    packed = _packed(objects)
    if last.number < packed:
        return 0
    for step in _STEPS:
        if last.number // step > packed // step:
            return packed // step * step
    return packed


def _since(
    objects: Objects, head: bytes, start: int
) -> Iterator[tuple[bytes, Commit, bytes | None]]:
    """The commits after `start`, newest first, each with the tree before it."""
    id: bytes | None = head
    commit = objects.commit(head)
    while id is not None and (commit.number > start or start == 0):
        before: Commit | None = None
        with contextlib.suppress(StorageFailure):
            before = objects.commit(commit.parent) if commit.parent else None
        yield id, commit, before.tree if before else None
        if before is None:
            return
        id, commit = commit.parent, before


def _drop_loose(objects: Objects, writer: PackWriter) -> None:
    for id in writer.written:
        name = id.hex()
        with contextlib.suppress(FileNotFoundError):
            (objects.store / name[:2] / name[2:]).unlink()


def _drop_packs(objects: Objects, made: Path, has: frozenset[bytes]) -> None:
    """Remove the packs of which everything is in the new one."""
    for index in list(objects.packs.glob("pack-*.idx")):
        ids = ids_in(index)
        if index.stem != made.stem and ids is not None and ids <= has:
            drop_pack(objects, index.stem)


def drop_pack(objects: Objects, stem: str) -> None:
    """Remove a pack, its index first: then nobody looks into it."""
    (objects.packs / "multi-pack-index").unlink(missing_ok=True)
    for ending in _BESIDE:
        (objects.packs / f"{stem}{ending}").unlink(missing_ok=True)
