"""Git objects that the team repository writes: trees, blobs and commits as loose files.

Objects are read with the git program; here they are only named, put together and written.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from sevenfold.storage.files import (
    PRIVATE_FOLDER,
    TemporaryFile,
    make_private_dir,
    make_storage_failure,
    write_atomic,
)

COMMIT: Final = b"commit"
TREE: Final = b"tree"
BLOB: Final = b"blob"
_BRANCHES: Final = "refs/heads"
_CONFIG: Final = (
    b"[core]\n\trepositoryformatversion = 0\n\tfilemode = false\n\tbare = true\n[gc]\n\tauto = 0\n"
)
_ENTRY: Final = re.compile(rb"[0-7]{5,6} [^\0]+\0.{20}", re.DOTALL)
_FOLDER: Final = (b"40000 ", b"040000 ")
_ID: Final = 20


class TreeStore(Protocol):
    """Reads and writes the folders of trees."""

    def folder(self, id: bytes) -> TreeFolder: ...
    def put_folder(self, folder: TreeFolder) -> bytes: ...


class TreeFolder:
    """The entries of one folder, in git's order. Immutable."""

    __slots__ = ("_all", "_keys", "entries")

    def __init__(self, entries: list[bytes], keys: list[bytes] | None = None) -> None:
        self.entries = entries
        self._keys = keys
        self._all: frozenset[bytes] | None = None

    @property
    def keys(self) -> list[bytes]:
        """The names by which the entries are sorted; that of a folder ends in a slash."""
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

    def with_changes(self, changes: Mapping[bytes, bytes | None]) -> TreeFolder:
        """A copy with these entries added or replaced, or removed where the id is None."""
        entries, keys = self.entries.copy(), self.keys.copy()
        for key, id in changes.items():
            at = bisect_left(keys, key)
            while at < len(keys) and keys[at] == key:
                del entries[at], keys[at]
            if id is not None:
                keys.insert(at, key)
                name = b"40000 " + key[:-1] if key.endswith(b"/") else b"100644 " + key
                entries.insert(at, name + b"\0" + id)
        return TreeFolder(entries, keys)


NOTHING: Final = TreeFolder([], [])


def parse_tree(raw: bytes) -> list[bytes]:
    """The entries of a git tree object, each as it stands there; `ValueError` if it is damaged."""
    entries = _ENTRY.findall(raw)
    if sum(map(len, entries)) != len(raw):
        raise ValueError("not a git tree")
    return entries


def split_entry(entry: bytes) -> tuple[bytes, bytes, bytes]:
    """Mode, name and id of an entry; the name of a folder ends in a slash."""
    return entry[: entry.index(b" ")], _key(entry), entry[-_ID:]


def _key(entry: bytes) -> bytes:
    name = entry[entry.index(b" ") + 1 : -_ID - 1]
    return name + b"/" if entry.startswith(_FOLDER) else name


def sort_tree(raw: bytes) -> TreeFolder:
    """The folder of a tree object that another program wrote, perhaps in another order."""
    return TreeFolder(sorted(parse_tree(raw), key=_key))


def change_tree(
    store: TreeStore, tree: bytes | None, changes: Mapping[bytes, bytes | None]
) -> bytes | None:
    """The id of a tree with these files changed (path to id, None to remove); None if it is empty."""
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
        here[key] = change_tree(store, folder.get(key), inside)
    new = folder.with_changes(here)
    return store.put_folder(new) if new.entries else None


def hash_object(kind: bytes, data: bytes) -> bytes:
    """The id that git gives to an object."""
    return hashlib.sha1(_with_head(kind, data), usedforsecurity=False).digest()


def _with_head(kind: bytes, data: bytes) -> bytes:
    return b"%s %d\0" % (kind, len(data)) + data


class NewObjects:
    """The objects that one commit adds to a repository: `put` keeps them, `flush` writes them."""

    def __init__(self, path: Path) -> None:
        self.path, self._store = path, path / "objects"
        self._new: dict[bytes, bytes] = {}

    def prepare(self) -> None:
        """Make the repository if it is missing or incomplete."""
        if (self.path / "HEAD").is_file() and (self._store / "pack").is_dir():
            return
        make_private_dir(self._store / "pack")
        make_private_dir(self.path / _BRANCHES)
        if not (self.path / "config").exists():
            write_atomic(self.path / "config", _CONFIG)
        write_atomic(self.path / "HEAD", f"ref: {_BRANCHES}/main\n".encode())

    def count_packs(self) -> int:
        return sum(1 for _ in (self._store / "pack").glob("*.pack"))

    def put(self, kind: bytes, data: bytes) -> bytes:
        id = hash_object(kind, data)
        self._new[id] = _with_head(kind, data)
        return id

    def forget(self) -> None:
        """Drop what was not written."""
        self._new.clear()

    def flush(self) -> None:
        """Write all of them, also existing ones, which may be damaged."""
        try:
            for id, whole in self._new.items():
                folder = self._store / id.hex()[:2]
                folder.mkdir(PRIVATE_FOLDER, exist_ok=True)
                with TemporaryFile(self._store) as new:
                    new.write(zlib.compress(whole, 1))
                    new.move_to(folder / id.hex()[2:], sync=False)
        except OSError as error:
            raise make_storage_failure(error, self._store) from error
        finally:
            self._new.clear()
