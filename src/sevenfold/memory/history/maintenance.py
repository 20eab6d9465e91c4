"""Packs, purges and repairs the history of a memory folder.

Packing puts loose objects into packs, so that a long history stays small. It needs no lock against writers
or readers: objects never change, and one is removed only when a synced pack has it. Packs grow in steps of
eight, so there are a few dozen at most. A kill at any moment leaves an object twice at worst.

A purge removes a file from the whole history, so that its bytes are nowhere on the disk.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from posixpath import normpath
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec.structs import replace

from sevenfold.core.errors import StorageFailure
from sevenfold.memory.history.objects import (
    BLOB,
    BRANCH,
    COMMIT,
    NOTHING,
    TREE,
    ObjectStore,
    PackWriter,
    TreeFolder,
    change_tree,
    decode_path,
    encode_path,
    find_in_tree,
    find_new_objects,
    hash_object,
    iterate_files,
    read_pack_ids,
)
from sevenfold.memory.history.revisions import (
    SHORT,
    Author,
    StoredCommit,
    TakenRevisions,
    describe_changes,
    encode_commit,
)
from sevenfold.storage.files import TEMPORARY, make_storage_failure, write_atomic
from sevenfold.storage.locks import hold_file_lock

EVERY: Final = 64
OVERDUE: Final = 4 * EVERY  # Number of unpacked revisions from which on the next writer packs at once
_STEPS: Final = (EVERY * 64, EVERY * 8)
_PACKED: Final = "packed"
_LOCK: Final = "packing"
_BESIDE: Final = (".idx", ".rev", ".bitmap", ".mtimes", ".keep", ".pack")


def hold_pack_lock(objects: ObjectStore) -> contextlib.AbstractContextManager[bool]:
    """Hold the lock for packing and purging, which would undo each other's work."""
    return hold_file_lock(objects.path / _LOCK)


def count_unpacked(objects: ObjectStore, last: StoredCommit) -> int:
    """The number of revisions since the last pack."""
    packed = _packed(objects)
    return last.number - packed if last.number >= packed else last.number


def _packed(objects: ObjectStore) -> int:
    try:
        return int((objects.path / _PACKED).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def record_packed(objects: ObjectStore, number: int) -> None:
    write_atomic(objects.path / _PACKED, f"{number}\n".encode())


def pack_objects(path: Path) -> int:
    """Pack loose objects; returns the number of objects in the new pack."""
    objects = ObjectStore(path)  # its own store: it may run in a thread beside the writer
    try:
        if (head := objects.head()) is None:
            return 0
        with hold_pack_lock(objects):
            return _pack(objects, head)
    except OSError as error:
        raise make_storage_failure(error, objects.packs) from error


def _pack(objects: ObjectStore, head: bytes) -> int:
    last = objects.commit(head)
    with PackWriter(objects.packs) as writer:
        for id, commit, older in _since(objects, head, _start(objects, last)):
            writer.add(COMMIT, id, objects.read(id)[1])
            with contextlib.suppress(StorageFailure):  # unreadable objects stay loose
                for place, wanted in find_new_objects(objects, commit.tree, older):
                    if wanted not in writer:
                        kind, data = objects.raw(wanted)
                        writer.add(kind, wanted, data, place)
        made = writer.finish()
        count = len(writer.written)
        if made:
            for name in map(bytes.hex, writer.written):
                with contextlib.suppress(FileNotFoundError):
                    (objects.store / name[:2] / name[2:]).unlink()
            _drop_packs(objects, made, frozenset(writer.written))
    record_packed(objects, last.number)
    return count


def _start(objects: ObjectStore, last: StoredCommit) -> int:
    """The revision up to which earlier packs stay; later ones go into the new pack."""
    packed = _packed(objects)
    if last.number < packed:
        return 0
    for step in _STEPS:
        if last.number // step > packed // step:
            return packed // step * step
    return packed


def _since(
    objects: ObjectStore, head: bytes, start: int
) -> Iterator[tuple[bytes, StoredCommit, bytes | None]]:
    """The commits after `start`, newest first, each with the tree before it."""
    id: bytes | None = head
    commit = objects.commit(head)
    while id is not None and (commit.number > start or start == 0):
        before: StoredCommit | None = None
        with contextlib.suppress(StorageFailure):
            before = objects.commit(commit.parent) if commit.parent else None
        yield id, commit, before.tree if before else None
        if before is None:
            return
        id, commit = commit.parent, before


def _drop_packs(objects: ObjectStore, made: Path, has: frozenset[bytes]) -> None:
    """Remove the packs whose objects are all in the new one."""
    for index in list(objects.packs.glob("pack-*.idx")):
        ids = read_pack_ids(index)
        if index.stem != made.stem and ids is not None and ids <= has:
            drop_pack(objects, index.stem)


def drop_pack(objects: ObjectStore, stem: str) -> None:
    """Remove a pack, its index first, so that no reader opens it."""
    (objects.packs / "multi-pack-index").unlink(missing_ok=True)
    for ending in _BESIDE:
        (objects.packs / f"{stem}{ending}").unlink(missing_ok=True)


JOURNAL: Final = "purging"
INDEX: Final = b"MEMORY.md"
ASIDE: Final = ".damaged-"  # Suffix of a history that was set aside
_LINK: Final = re.compile(rb"\]\(\s*<?([^)>\n]*)")
_LEFT_BY_GIT: Final = ("packed-refs", "logs", "ORIG_HEAD", "FETCH_HEAD", "objects/info")


class PurgeReport(msgspec.Struct, frozen=True):
    """The result of a purge; every revision after the first changed one has a new id."""

    files: tuple[str, ...]
    ids: Mapping[str, str]  # Old id to new id of each changed revision; empty if the revision is gone
    removed: tuple[str, ...] = ()
    """Damaged histories that had been set aside; they cannot be cleaned, so they were removed."""
    lost: bool = False  # The oldest revisions could not be read, so they were removed


def begin_purge(objects: ObjectStore, files: Sequence[str]) -> None:
    """Write the journal of a purge; the next writer finishes it after a crash."""
    for file in files:
        encode_path(file)
    write_atomic(objects.path / JOURNAL, msgspec.json.encode(list(files)))


def read_pending_purge(objects: ObjectStore) -> tuple[str, ...]:
    """The files of an interrupted purge."""
    journal = objects.path / JOURNAL
    try:
        return tuple(msgspec.json.decode(journal.read_bytes(), type=list[str]))
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise make_storage_failure(error, journal, "read") from error
    except msgspec.MsgspecError as error:
        raise StorageFailure(
            f"{journal} cannot be understood; purge the memory again, or remove that file"
        ) from error


def finish_purge(objects: ObjectStore, files: Sequence[str]) -> PurgeReport:
    """Carry out the journal and remove it. Needs the write lock."""
    try:
        with hold_pack_lock(objects):
            ids, lost = _rewrite(objects, [encode_path(file) for file in files])
            removed = remove_set_aside(objects.path)
            (objects.path / JOURNAL).unlink(missing_ok=True)
    except OSError as error:
        raise make_storage_failure(error, objects.path) from error
    return PurgeReport(tuple(files), ids, removed, lost)


def _rewrite(objects: ObjectStore, paths: Sequence[bytes]) -> tuple[dict[str, str], bool]:
    objects.forget()
    chain, lost = _chain(objects)
    cleaner = _PurgeCleaner(objects, paths)
    with PackWriter(objects.packs) as writer:
        trees = [cleaner.write(commit.tree, writer) for _, commit in chain]
        ids, head, number = _commits(objects, chain, trees, paths, writer)
        made = writer.finish() if head else None
    objects.set_head(head, sync=True)
    _drop_all_but(objects, made)
    record_packed(objects, number)
    objects.forget()
    return ids, lost or None in trees


def _chain(objects: ObjectStore) -> tuple[list[tuple[bytes, StoredCommit]], bool]:
    """All readable commits, newest first, and True if older ones could not be read."""
    chain: list[tuple[bytes, StoredCommit]] = []
    id = objects.head()
    while id is not None:
        try:
            chain.append((id, objects.commit(id)))
        except StorageFailure:
            return chain, True
        id = chain[-1][1].parent
    return chain, False


class _PurgeCleaner:
    """Makes trees without the purged files and writes their objects to the pack."""

    def __init__(self, objects: ObjectStore, paths: Sequence[bytes]) -> None:
        self.objects, self.paths = objects, paths
        self.here: dict[bytes, TreeFolder | bytes] = {}
        self.before: dict[bytes, TreeFolder | bytes] = {}
        """New objects of this tree and the one before; older ones are not kept in memory."""
        self.newer: bytes | None = None
        self.indexes = sorted({above + INDEX for path in paths for above in _above(path)})

    def folder(self, id: bytes) -> TreeFolder:
        new = self.here.get(id, self.before.get(id))
        return new if isinstance(new, TreeFolder) else self.objects.folder(id)

    def put_folder(self, folder: TreeFolder) -> bytes:
        id = hash_object(TREE, folder.raw())
        self.here[id] = folder
        return id

    def write(self, tree: bytes, writer: PackWriter) -> bytes | None:
        """Write the tree without the files; None if it cannot be read.

        Objects of the tree before it are not written again.
        """
        before, here, self.before, self.here = self.before, self.here, self.here, {}
        try:
            new = self._clean(tree)
            for place, id in find_new_objects(self, new, self.newer):
                if id not in writer:
                    self._hand_over(id, place, writer)
        except StorageFailure:
            self.before, self.here = before, here
            return None
        self.newer = new
        return new

    def _clean(self, tree: bytes) -> bytes:
        changes: dict[bytes, bytes | None] = {
            path: None for path in self.paths if find_in_tree(self, tree, path)
        }
        for index in self.indexes:
            if index not in self.paths and (blob := find_in_tree(self, tree, index)):
                clean = self._clean_index(index, blob)
                if clean != blob:
                    changes[index] = clean
        if not changes:
            return tree
        return change_tree(self, tree, changes) or self.put_folder(NOTHING)

    def _hand_over(self, id: bytes, place: bytes, writer: PackWriter) -> None:
        new = self.here.get(id, self.before.get(id))
        if isinstance(new, TreeFolder):
            writer.add(TREE, id, new.raw(), place)
        elif new is not None:
            writer.add(BLOB, id, new, place)
        else:
            with contextlib.suppress(StorageFailure):  # it was damaged before
                kind, data = self.objects.raw(id)
                writer.add(kind, id, data, place)

    def _clean_index(self, index: bytes, blob: bytes) -> bytes | None:
        try:
            data = self.objects.read(blob)[1]
        except StorageFailure:
            return None
        clean = remove_pointers(data, index, self.paths)
        self.here[id := hash_object(BLOB, clean)] = clean
        return id


def _above(path: bytes) -> Iterator[bytes]:
    """The folders above a file, each with a slash at its end; the outermost is empty."""
    parts = path.split(b"/")
    return (b"".join(part + b"/" for part in parts[:depth]) for depth in range(len(parts)))


def remove_pointers(index: bytes, at: bytes, paths: Sequence[bytes]) -> bytes:
    """The index without the lines that point at one of these files."""
    parent = decode_path(at.rpartition(b"/")[0])
    gone = {decode_path(path) for path in paths}

    def points(line: bytes) -> bool:
        links = (decode_path(unquote_to_bytes(link.strip())) for link in _LINK.findall(line))
        return any(normpath(f"{parent}/{link}" if parent else link) in gone for link in links)

    return b"".join(line for line in index.splitlines(keepends=True) if not points(line))


def _commits(
    objects: ObjectStore,
    chain: list[tuple[bytes, StoredCommit]],
    trees: list[bytes | None],
    paths: Sequence[bytes],
    writer: PackWriter,
) -> tuple[dict[str, str], bytes | None, int]:
    """Write the commits again, oldest first; those without a change are left out."""
    ids: dict[str, str] = {}
    parent: bytes | None = None
    below, number = hash_object(TREE, b""), 0
    words = _words(paths)
    numbers: dict[int, int] = {}
    for (old, commit), tree in zip(reversed(chain), reversed(trees), strict=True):
        if tree is None or tree == below:
            ids[old.hex()[:SHORT]] = ""
            continue
        number += 1
        numbers[commit.number] = number
        files = " ".join(change.file for change in commit.files or ())
        named = words.search(f"{commit.summary} {commit.author.reason} {files}")
        same = tree == commit.tree and parent == commit.parent and not named
        data = objects.read(old)[1]
        if not same:
            commit = replace(commit, takes_back=_renumbered(commit.takes_back, numbers, paths))
            data = encode_commit(_cleaned(commit, tree, parent, number, paths, words))
        new = hash_object(COMMIT, data)
        writer.add(COMMIT, new, data)
        if new != old:
            ids[old.hex()[:SHORT]] = new.hex()[:SHORT]
        parent, below = new, tree
    return ids, parent, number


def _renumbered(
    taken: TakenRevisions | None, numbers: Mapping[int, int], paths: Sequence[bytes]
) -> TakenRevisions | None:
    """The same revisions by their new numbers; None if none of them is left."""
    if taken is None or (taken.file and encode_path(taken.file) in paths):
        return None
    left = [new for old, new in numbers.items() if taken.first <= old <= taken.last]
    return replace(taken, first=min(left), last=max(left)) if left else None


def _words(paths: Sequence[bytes]) -> re.Pattern[str]:
    """A pattern for the names of the files as words, with or without their ending."""
    names = {decode_path(path) for path in paths}
    names |= {name.removesuffix(".md") for name in names}
    names |= {name.rpartition("/")[2] for name in names}
    longest_first = sorted(names, key=len, reverse=True)
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)", re.IGNORECASE)


def _cleaned(
    commit: StoredCommit,
    tree: bytes,
    parent: bytes | None,
    number: int,
    paths: Sequence[bytes],
    words: re.Pattern[str],
) -> StoredCommit:
    gone = {decode_path(path) for path in paths}
    files = commit.files
    touched = files is None or any(change.file in gone for change in files)
    if files is not None:
        files = tuple(change for change in files if change.file not in gone)
    summary, author = commit.summary, commit.author
    if touched or words.search(f"{summary} {author.reason}"):
        summary = describe_changes(files) if files is not None else "changed many files"
        author = Author(author.kind, author.session)
    return replace(
        commit, tree=tree, parent=parent, number=number, files=files, summary=summary, author=author
    )


def _drop_all_but(objects: ObjectStore, made: Path | None) -> None:
    """Remove every object that is not in the new pack, and all other references."""
    for file in objects.loose():
        file.unlink(missing_ok=True)
    for stem in {file.stem for file in objects.packs.glob("pack-*")} - {made.stem if made else ""}:
        drop_pack(objects, stem)
    for folder in (objects.store, objects.packs, objects.path / BRANCH / ".."):
        for left in [*folder.glob(f"{TEMPORARY}*"), *folder.glob("tmp_*")]:
            left.unlink(missing_ok=True)
    for name in _LEFT_BY_GIT:
        _remove(objects.path / name)
    for ref in [file for file in (objects.path / "refs").rglob("*") if file.is_file()]:
        if ref != objects.path / BRANCH:
            ref.unlink(missing_ok=True)


def remove_set_aside(path: Path) -> tuple[str, ...]:
    found = sorted(path.parent.glob(f"{path.name}{ASIDE}*"))
    for aside in found:
        _remove(aside)
    return tuple(aside.name for aside in found)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def is_usable(objects: ObjectStore) -> bool:
    """True if the last revision can be read, so that another can follow it."""
    try:
        head = objects.head()
        return _whole(objects, head) if head else not _has_objects(objects)
    except StorageFailure:
        return False


def _whole(objects: ObjectStore, id: bytes) -> bool:
    try:
        for _ in iterate_files(objects, objects.commit(id).tree):
            pass
    except StorageFailure:
        return False
    return True


def _has_objects(objects: ObjectStore) -> bool:
    try:
        return any(objects.packs.glob("*.pack")) or any(True for _ in objects.loose())
    except FileNotFoundError:
        return False
    except OSError as error:
        raise make_storage_failure(error, objects.store, "read") from error


def recover_history(objects: ObjectStore, at: float) -> str:
    """Repair the history; returns a sentence for the user, empty if nothing was lost."""
    path = objects.path
    if not path.is_dir():
        return set_history_aside(path, at)
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
    return set_history_aside(path, at)


def _newest_whole(objects: ObjectStore) -> bytes | None:
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


def set_history_aside(path: Path, at: float) -> str:
    """Rename a damaged history; returns a sentence for the user."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(max(0.0, at)))
    aside = path.with_name(f"{path.name}{ASIDE}{stamp}")
    number = 1
    while aside.exists() or aside.is_symlink():
        number += 1
        aside = path.with_name(f"{path.name}{ASIDE}{stamp}-{number}")
    try:
        path.rename(aside)
    except OSError as error:
        raise make_storage_failure(error, path, "moved") from error
    return (
        f"The history of the memories in {path} was damaged: it was set aside as {aside.name}, and a "
        "new one begins; the memories themselves are as they were."
    )
