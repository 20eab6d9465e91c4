"""Folders as git stores them, changed entry by entry: what did not change is never looked at twice."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from sevenfold.errors import Refused, StorageFailure

_ENTRY: Final = re.compile(rb"(?:100[67][0-7]{2}|120000|40000) [^\0]+\0.{20}", re.DOTALL)
_FOLDER: Final = ord("4")
"""Only the mode of a folder, 40000, begins with this digit."""
_ID: Final = 20


class TreeStore(Protocol):
    """Where folders are read from and written to."""

    def folder(self, id: bytes) -> Folder: ...
    def put_folder(self, folder: Folder) -> bytes: ...


class Folder:
    """The entries of one folder, in git's order; never changed once it is made."""

    __slots__ = ("_all", "_keys", "entries")

    def __init__(self, entries: list[bytes], keys: list[bytes] | None = None) -> None:
        self.entries = entries
        self._keys = keys
        self._all: frozenset[bytes] | None = None

    @classmethod
    def parse(cls, raw: bytes) -> Folder:
        entries = _ENTRY.findall(raw)
        if sum(map(len, entries)) != len(raw):
            raise StorageFailure("a folder of the history cannot be understood")
        return cls(entries)

    @property
    def keys(self) -> list[bytes]:
        """The names, by which the entries are in order; that of a folder ends in a slash."""
        if self._keys is None:
            self._keys = [_key(entry) for entry in self.entries]
        return self._keys

    @property
    def all(self) -> frozenset[bytes]:
        if self._all is None:
            self._all = frozenset(self.entries)
        return self._all

    def raw(self) -> bytes:
        return b"".join(self.entries)

    def get(self, key: bytes) -> bytes | None:
        """The id of an entry; the key of a folder ends in a slash."""
        at = bisect_left(self.keys, key)
        found = at < len(self.keys) and self.keys[at] == key
        return self.entries[at][-_ID:] if found else None

    def changed(self, changes: Mapping[bytes, bytes | None]) -> Folder:
        """The same folder with these entries put in, or taken out where the id is None."""
        entries, keys = self.entries.copy(), self.keys.copy()
        for key, id in changes.items():
            at = bisect_left(keys, key)
            if at < len(keys) and keys[at] == key:
                del entries[at], keys[at]
            if id is not None:
                keys.insert(at, key)
                entries.insert(at, _entry(key, id))
        return Folder(entries, keys)


NOTHING: Final = Folder([], [])


def _key(entry: bytes) -> bytes:
    return entry[6:-21] + b"/" if entry[0] == _FOLDER else entry[7:-21]


def _entry(key: bytes, id: bytes) -> bytes:
    return (b"40000 " + key[:-1] if key.endswith(b"/") else b"100644 " + key) + b"\0" + id


def path_of(file: str) -> bytes:
    """A file's name as it stands in a tree; names that git would choke on are refused."""
    parts = file.split("/")
    if "\0" in file or any(p in ("", ".", "..") or p.lower() == ".git" for p in parts):
        raise Refused(f"{file!r} cannot be kept in the history: give the file another name")
    return file.encode("utf-8", "surrogateescape")


def name_of(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def changed_tree(
    store: TreeStore, tree: bytes | None, changes: Mapping[bytes, bytes | None]
) -> bytes | None:
    """The id of a tree with these files (path to id, None to take it out); None when nothing is left."""
    here = dict[bytes, bytes | None]()
    below = dict[bytes, dict[bytes, bytes | None]]()
    for path, id in changes.items():
        first, slash, rest = path.partition(b"/")
        if slash:
            below.setdefault(first + slash, {})[rest] = id
        else:
            here[path] = id
    folder = store.folder(tree) if tree else NOTHING
    for key, inside in below.items():
        here[key] = changed_tree(store, folder.get(key), inside)
    new = folder.changed(here)
    return store.put_folder(new) if new.entries else None


def find(store: TreeStore, tree: bytes, path: bytes) -> bytes | None:
    """The id of one file in a tree."""
    at: bytes | None = tree
    *folders, name = path.split(b"/")
    for part in folders:
        at = store.folder(at).get(part + b"/") if at else None
    return store.folder(at).get(name) if at else None


def files(
    store: TreeStore, tree: bytes | None, under: bytes = b""
) -> Iterator[tuple[bytes, bytes]]:
    """Every file of a tree with its id."""
    folder = store.folder(tree) if tree else NOTHING
    for entry, key in zip(folder.entries, folder.keys, strict=True):
        if entry[0] == _FOLDER:
            yield from files(store, entry[-_ID:], under + key)
        else:
            yield under + key, entry[-_ID:]


def differences(
    store: TreeStore, old: bytes | None, new: bytes | None
) -> list[tuple[bytes, bytes | None, bytes | None]]:
    """Each file that differs, with its id before and after; folders that are equal are skipped."""
    found = dict[bytes, tuple[bytes | None, bytes | None]]()
    _compare(store, old, new, b"", found)
    return [(path, *found[path]) for path in sorted(found)]


def _compare(
    store: TreeStore,
    old: bytes | None,
    new: bytes | None,
    under: bytes,
    found: dict[bytes, tuple[bytes | None, bytes | None]],
) -> None:
    if old == new:
        return
    before, after = _unlike(
        store.folder(old) if old else NOTHING, store.folder(new) if new else NOTHING
    )
    for key in before.keys() | after.keys():
        was, now = before.get(key), after.get(key)
        if key.endswith(b"/"):
            _compare(store, was, now, under + key, found)
        else:
            found[under + key] = (was, now)


def _unlike(old: Folder, new: Folder) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """Of two folders the entries that are not in both: key to id."""
    return _by_key(old.all - new.all), _by_key(new.all - old.all)


def _by_key(entries: frozenset[bytes]) -> dict[bytes, bytes]:
    return {_key(entry): entry[-_ID:] for entry in entries}


def fresh(
    store: TreeStore, tree: bytes, older: bytes | None, under: bytes = b""
) -> Iterator[tuple[bytes, bytes]]:
    """The objects a tree needs that an older one does not have: where they stand, and their ids.

    A folder's own path ends in a slash, and that of the whole tree is empty.
    """
    if tree == older:
        return
    yield under, tree
    old = store.folder(older) if older else NOTHING
    _, new = _unlike(old, store.folder(tree))
    for key, id in new.items():
        if key.endswith(b"/"):
            yield from fresh(store, id, old.get(key), under + key)
        else:
            yield under + key, id
