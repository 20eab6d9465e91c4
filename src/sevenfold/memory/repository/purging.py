"""Takes a file out of the whole history, so that its bytes are nowhere on the disk any more.

Every revision is written again without the file, without the lines of the index that point at it, and
without words about it; a revision that did nothing else is gone. All of it goes into one new pack; then
the name of the last commit moves, and everything else is removed. What is to be purged is noted in a
journal first: after a kill at any moment the next writer does it again from there, with the same result.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from posixpath import normpath
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec.structs import replace

from sevenfold.errors import StorageFailure
from sevenfold.memory.repository.objects import BLOB, BRANCH, COMMIT, TREE, Objects, id_of
from sevenfold.memory.repository.packfile import PackWriter
from sevenfold.memory.repository.packing import drop_pack, note_packed, packing
from sevenfold.memory.repository.trees import (
    NOTHING,
    Folder,
    changed_tree,
    find,
    fresh,
    name_of,
    path_of,
)
from sevenfold.memory.revisions import SHORT, Author, Commit, described, encode
from sevenfold.storage.files import TEMPORARY, failure, write_atomic

JOURNAL: Final = "purging"
INDEX: Final = b"MEMORY.md"
ASIDE: Final = ".damaged-"
"""What the name of a history that was set aside goes on with."""
_LINK: Final = re.compile(rb"\]\(\s*<?([^)>\n]*)")
_LEFT_BY_GIT: Final = ("packed-refs", "logs", "ORIG_HEAD", "FETCH_HEAD", "objects/info")


class Purged(msgspec.Struct, frozen=True):
    """What a purge did; every revision after the first one changed has a new id."""

    files: tuple[str, ...]
    ids: Mapping[str, str]
    """Old id to new id, for the revisions that changed; an empty one is gone."""
    removed: tuple[str, ...] = ()
    """Damaged histories that had been set aside: they could not be cleaned, so they were removed."""
    lost: bool = False
    """The oldest revisions could not be read, thus not cleaned either: they are gone."""


def begin(objects: Objects, files: Sequence[str]) -> None:
    """Note what is to be purged; from here on it happens, now or by the next writer."""
    for file in files:
        path_of(file)
    write_atomic(objects.path / JOURNAL, msgspec.json.encode(list(files)))


def pending(objects: Objects) -> tuple[str, ...]:
    """What a purge that was cut off still has to do."""
    journal = objects.path / JOURNAL
    try:
        return tuple(msgspec.json.decode(journal.read_bytes(), type=list[str]))
    except FileNotFoundError:
        return ()
    except NotADirectoryError:
        return ()
    except OSError as error:
        raise failure(error, journal, "read") from error
    except msgspec.MsgspecError as error:
        raise StorageFailure(
            f"{journal} cannot be understood; purge the memory again, or remove that file"
        ) from error


def finish(objects: Objects, files: Sequence[str]) -> Purged:
    """Do what the journal says, then forget it. Only the holder of the write lock may."""
    try:
        with packing(objects):
            ids, lost = _rewrite(objects, [path_of(file) for file in files])
            removed = remove_aside(objects.path)
            (objects.path / JOURNAL).unlink(missing_ok=True)
    except OSError as error:
        raise failure(error, objects.path) from error
    return Purged(tuple(files), ids, removed, lost)


def _rewrite(objects: Objects, paths: Sequence[bytes]) -> tuple[dict[str, str], bool]:
    objects.forget()
    chain, lost = _chain(objects)
    cleaner = _Cleaner(objects, paths)
    with PackWriter(objects.packs) as writer:
        trees = [cleaner.write(commit.tree, writer) for _, commit in chain]
        ids, head, number = _commits(objects, chain, trees, paths, writer)
        made = writer.finish() if head else None
    objects.set_head(head, sync=True)
    _drop_all_but(objects, made)
    note_packed(objects, number)
    objects.forget()
    return ids, lost or None in trees


def _chain(objects: Objects) -> tuple[list[tuple[bytes, Commit]], bool]:
    """All commits, newest first, as far back as they can be read, and whether that was not all."""
    chain: list[tuple[bytes, Commit]] = []
    id = objects.head()
    while id is not None:
        try:
            chain.append((id, objects.commit(id)))
        except StorageFailure:
            return chain, True
        id = chain[-1][1].parent
    return chain, False


class _Cleaner:
    """Makes trees without the files, and hands what they need to the pack."""

    def __init__(self, objects: Objects, paths: Sequence[bytes]) -> None:
        self.objects, self.paths = objects, paths
        self.here: dict[bytes, Folder | bytes] = {}
        self.before: dict[bytes, Folder | bytes] = {}
        """New objects of this tree and of the one before: no more of them are kept in memory."""
        self.newer: bytes | None = None
        self.indexes = sorted({above + INDEX for path in paths for above in _above(path)})

    def folder(self, id: bytes) -> Folder:
        new = self.here.get(id, self.before.get(id))
        return new if isinstance(new, Folder) else self.objects.folder(id)

    def put_folder(self, folder: Folder) -> bytes:
        id = id_of(TREE, folder.raw())
        self.here[id] = folder
        return id

    def write(self, tree: bytes, writer: PackWriter) -> bytes | None:
        """The tree without the files, None when it cannot be read.

        What the one written before it has is not written again.
        """
        before, here, self.before, self.here = self.before, self.here, self.here, {}
        try:
            new = self._clean(tree)
            for place, id in fresh(self, new, self.newer):
                if id not in writer:
                    self._hand_over(id, place, writer)
        except StorageFailure:
            self.before, self.here = before, here
            return None
        self.newer = new
        return new

    def _clean(self, tree: bytes) -> bytes:
        changes: dict[bytes, bytes | None] = {
            path: None for path in self.paths if find(self, tree, path)
        }
        for index in self.indexes:
            if index not in self.paths and (blob := find(self, tree, index)):
                clean = self._clean_index(index, blob)
                if clean != blob:
                    changes[index] = clean
        if not changes:
            return tree
        return changed_tree(self, tree, changes) or self.put_folder(NOTHING)

    def _hand_over(self, id: bytes, place: bytes, writer: PackWriter) -> None:
        new = self.here.get(id, self.before.get(id))
        if isinstance(new, Folder):
            writer.add(TREE, id, new.raw(), place)
        elif new is not None:
            writer.add(BLOB, id, new, place)
        else:
            with contextlib.suppress(StorageFailure):  # damaged before, damaged after
                kind, data = self.objects.raw(id)
                writer.add(kind, id, data, place)

    def _clean_index(self, index: bytes, blob: bytes) -> bytes | None:
        try:
            data = self.objects.read(blob)[1]
        except StorageFailure:
            return None
        clean = without_pointers(data, index, self.paths)
        id = id_of(BLOB, clean)
        self.here[id] = clean
        return id


def _above(path: bytes) -> Iterator[bytes]:
    """Every folder above a file, with a slash at its end; the outermost is empty."""
    parts = path.split(b"/")
    return (b"".join(part + b"/" for part in parts[:depth]) for depth in range(len(parts)))


def without_pointers(index: bytes, at: bytes, paths: Sequence[bytes]) -> bytes:
    """The index without the lines that point at one of these files."""
    parent = name_of(at.rpartition(b"/")[0])
    gone = {name_of(path) for path in paths}

    def points(line: bytes) -> bool:
        links = (name_of(unquote_to_bytes(link.strip())) for link in _LINK.findall(line))
        return any(normpath(f"{parent}/{link}" if parent else link) in gone for link in links)

    return b"".join(line for line in index.splitlines(keepends=True) if not points(line))


def _commits(
    objects: Objects,
    chain: list[tuple[bytes, Commit]],
    trees: list[bytes | None],
    paths: Sequence[bytes],
    writer: PackWriter,
) -> tuple[dict[str, str], bytes | None, int]:
    """Write the commits again from the first to the last; those that do nothing any more are left out."""
    ids: dict[str, str] = {}
    parent: bytes | None = None
    below, number = id_of(TREE, b""), 0
    words = _words(paths)
    for (old, commit), tree in zip(reversed(chain), reversed(trees), strict=True):
        if tree is None or tree == below:
            ids[old.hex()[:SHORT]] = ""
            continue
        number += 1
        same = tree == commit.tree and parent == commit.parent and not words.search(_said(commit))
        data = objects.read(old)[1]
        if not same:
            data = encode(_cleaned(commit, tree, parent, number, paths, words))
        new = id_of(COMMIT, data)
        writer.add(COMMIT, new, data)
        if new != old:
            ids[old.hex()[:SHORT]] = new.hex()[:SHORT]
        parent, below = new, tree
    return ids, parent, number


def _said(commit: Commit) -> str:
    names = " ".join(change.file for change in commit.files or ())
    return f"{commit.summary} {commit.author.reason} {names}"


def _words(paths: Sequence[bytes]) -> re.Pattern[str]:
    """Finds the names of the files, with or without their ending, where they stand as words."""
    names = {name_of(path) for path in paths}
    names |= {name.removesuffix(".md") for name in names}
    names |= {name.rpartition("/")[2] for name in names}
    longest_first = sorted(names, key=len, reverse=True)
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)", re.IGNORECASE)


def _cleaned(
    commit: Commit,
    tree: bytes,
    parent: bytes | None,
    number: int,
    paths: Sequence[bytes],
    words: re.Pattern[str],
) -> Commit:
    gone = {name_of(path) for path in paths}
    files = commit.files
    touched = files is None or any(change.file in gone for change in files)
    if files is not None:
        files = tuple(change for change in files if change.file not in gone)
    summary, author = commit.summary, commit.author
    if touched or words.search(f"{summary} {author.reason}"):
        summary = described(files) if files is not None else "changed many files"
        author = Author(author.kind, author.session)
    return replace(
        commit, tree=tree, parent=parent, number=number, files=files, summary=summary, author=author
    )


def _drop_all_but(objects: Objects, made: Path | None) -> None:
    """Remove every object that is not in the new pack, and every other name that pointed at one."""
    for file in objects.loose():
        file.unlink(missing_ok=True)
    stems = {file.stem for file in objects.packs.glob("pack-*")} - {made.stem if made else ""}
    for stem in stems:
        drop_pack(objects, stem)
    for folder in (objects.store, objects.packs, objects.path / BRANCH / ".."):
        for left in [*folder.glob(f"{TEMPORARY}*"), *folder.glob("tmp_*")]:
            left.unlink(missing_ok=True)
    for name in _LEFT_BY_GIT:
        _remove(objects.path / name)
    for ref in [file for file in (objects.path / "refs").rglob("*") if file.is_file()]:
        if ref != objects.path / BRANCH:
            ref.unlink(missing_ok=True)


def remove_aside(path: Path) -> tuple[str, ...]:
    removed = []
    for aside in sorted(path.parent.glob(f"{path.name}{ASIDE}*")):
        _remove(aside)
        removed.append(aside.name)
    return tuple(removed)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
