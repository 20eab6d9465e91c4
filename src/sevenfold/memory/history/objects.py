"""Reads and writes a bare git repository: trees, packs, objects, and the branch that names the last commit.

Packs are read with libgit2's object database alone. A libgit2 *repository* reads `~/.gitconfig` and
`/etc/gitconfig`; that can only be turned off for the whole process, which belongs to the program that uses
us. The object database reads no configuration.

Loose objects are not synced: they survive the death of the process, and after a power cut the history
steps back to the newest whole revision. Packs are synced before the objects in them are removed elsewhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import struct
import zlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self

from sevenfold.core.errors import Refused, StorageFailure
from sevenfold.memory.history.revisions import StoredCommit, decode_commit
from sevenfold.storage.files import (
    PRIVATE_FOLDER,
    TemporaryFile,
    make_private_dir,
    make_storage_failure,
    write_atomic,
)

if TYPE_CHECKING:
    import pygit2

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


def encode_path(file: str) -> bytes:
    """The path of a file in a tree; `Refused` for names that git does not accept."""
    parts = file.split("/")
    if "\0" in file or any(p in ("", ".", "..") or p.lower() == ".git" for p in parts):
        raise Refused(f"{file!r} cannot be kept in the history: give the file another name")
    return file.encode("utf-8", "surrogateescape")


def decode_path(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


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


def find_in_tree(store: TreeStore, tree: bytes, path: bytes) -> bytes | None:
    """The id of one file in a tree."""
    at: bytes | None = tree
    *folders, name = path.split(b"/")
    for part in folders:
        at = store.folder(at).get(part + b"/") if at else None
    return store.folder(at).get(name) if at else None


def iterate_files(
    store: TreeStore, tree: bytes | None, under: bytes = b""
) -> Iterator[tuple[bytes, bytes]]:
    """Every file of a tree with its id."""
    folder = store.folder(tree) if tree else NOTHING
    for entry, key in zip(folder.entries, folder.keys, strict=True):
        if entry.startswith(_FOLDER):
            yield from iterate_files(store, entry[-_ID:], under + key)
        else:
            yield under + key, entry[-_ID:]


def compare_trees(
    store: TreeStore, old: bytes | None, new: bytes | None, under: bytes = b""
) -> list[tuple[bytes, bytes | None, bytes | None]]:
    """Each file that differs, with its id before and after; equal folders are not read."""
    if old == new:
        return []
    before, after = _unlike(store.folder(old) if old else NOTHING, store.folder(new) if new else NOTHING)
    found: list[tuple[bytes, bytes | None, bytes | None]] = []
    for key in before.keys() | after.keys():
        was, now = before.get(key), after.get(key)
        if key.endswith(b"/"):
            found += compare_trees(store, was, now, under + key)
        else:
            found.append((under + key, was, now))
    return sorted(found, key=lambda change: change[0])


def _unlike(old: TreeFolder, new: TreeFolder) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """The entries that only one of two folders has: key to id."""
    return _by_key(old.all - new.all), _by_key(new.all - old.all)


def _by_key(entries: frozenset[bytes]) -> dict[bytes, bytes]:
    return {_key(entry): entry[-_ID:] for entry in entries}


def find_new_objects(
    store: TreeStore, tree: bytes, older: bytes | None, under: bytes = b""
) -> Iterator[tuple[bytes, bytes]]:
    """The path and id of each object of a tree that an older tree does not have.

    The path of a folder ends in a slash; that of the whole tree is empty.
    """
    if tree == older:
        return
    yield under, tree
    old = store.folder(older) if older else NOTHING
    _, new = _unlike(old, store.folder(tree))
    for key, id in new.items():
        if key.endswith(b"/"):
            yield from find_new_objects(store, id, old.get(key), under + key)
        else:
            yield under + key, id


DEPTH: Final = 50  # Longest chain of deltas, as in git
BASE_LIMIT: Final = 4_000_000  # Bytes of the largest object that is kept as a base for the next delta
_ANCHOR: Final = 32
_WINDOW: Final = 8_192
_RUN: Final = 16
_COPY: Final = 0xFFFFFF
_CHUNK: Final = 1 << 20
_OFS_DELTA: Final = 6
_LARGE: Final = 1 << 31


class PackWriter:
    """Writes objects one by one into a pack, each as a delta to the one before it where possible."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = TemporaryFile(folder)
        self.file = os.fdopen(self.temporary.fd, "w+b", closefd=False)
        self.file.write(b"PACK" + struct.pack(">II", 2, 0))
        self.at = 12
        self.written: dict[bytes, tuple[int, int]] = {}  # The offset and checksum of each object
        self.last: dict[bytes, tuple[int, bytes, int]] = {}
        """For each path the object written last: its offset, bytes and delta depth."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            self.file.close()
        finally:
            self.temporary.__exit__(*raised)

    def __contains__(self, id: bytes) -> bool:
        return id in self.written

    def add(self, kind: int, id: bytes, data: bytes, place: bytes | None = None) -> None:
        """Write an object, as a delta to the last one of the same `place` if that is shorter."""
        if id in self.written:
            return
        begin, depth, head, body = self.at, 0, b"", data
        near = self.last.get(place) if place is not None else None
        if near and near[2] < DEPTH and (short := make_delta(near[1], data)) is not None:
            kind, body, depth = _OFS_DELTA, short, near[2] + 1
            head = _distance(begin - near[0])
        packed = _header(kind, len(body)) + head + zlib.compress(body)
        self.file.write(packed)
        self.at += len(packed)
        self.written[id] = (begin, zlib.crc32(packed))
        if place is not None and len(data) <= BASE_LIMIT:
            self.last[place] = (begin, data, depth)

    def finish(self) -> Path | None:
        """Sync the pack and give it its name; None if it is empty."""
        if not self.written:
            return None
        self.file.seek(8)
        self.file.write(struct.pack(">I", len(self.written)))
        self.file.seek(0)
        whole = hashlib.sha1(usedforsecurity=False)
        while part := self.file.read(_CHUNK):
            whole.update(part)
        self.file.write(whole.digest())
        self.file.close()
        pack = self.folder / f"pack-{whole.hexdigest()}.pack"
        self.temporary.move_to(pack)
        write_atomic(pack.with_suffix(".idx"), _index(self.written, whole.digest()))
        return pack


def _header(kind: int, size: int) -> bytes:
    first, rest = kind << 4 | size & 15, size >> 4
    return bytes([first | 0x80]) + _size(rest) if rest else bytes([first])


def _distance(back: int) -> bytes:
    out = [back & 0x7F]
    while back := back >> 7:
        back -= 1
        out.append(0x80 | back & 0x7F)
    return bytes(reversed(out))


def _index(written: dict[bytes, tuple[int, int]], pack: bytes) -> bytes:
    ids = sorted(written)
    counts = Counter(id[0] for id in ids)
    fan = struct.pack(">256I", *accumulate(counts[first] for first in range(256)))
    small, large = bytearray(), bytearray()
    for id in ids:
        offset = written[id][0]
        if offset >= _LARGE:
            small += struct.pack(">I", _LARGE | len(large) // 8)
            large += struct.pack(">Q", offset)
        else:
            small += struct.pack(">I", offset)
    sums = b"".join(struct.pack(">I", written[id][1]) for id in ids)
    body = b"\377tOc" + struct.pack(">I", 2) + fan + b"".join(ids) + sums + small + large + pack
    return body + hashlib.sha1(body, usedforsecurity=False).digest()


def read_pack_ids(index: Path) -> frozenset[bytes] | None:
    """The ids of the objects in a pack, from its index; None if that is damaged."""
    try:
        data = index.read_bytes()
    except OSError:
        return None
    if data[:8] != b"\377tOc\0\0\0\2" or len(data) < 1032:
        return None
    (count,) = struct.unpack_from(">I", data, 1028)
    ids = frozenset(data[at : at + 20] for at in range(1032, 1032 + 20 * count, 20))
    return ids if len(ids) == count and len(data) >= 1032 + 28 * count else None


# --- deltas -----------------------------------------------------------------------------------------


def make_delta(base: bytes, target: bytes) -> bytes | None:
    """A delta in git's format that makes `target` from `base`; None if it is hardly shorter.

    Compares both until they differ, then looks ahead in a window for the next equal bytes. So the time is
    that of reading both once, if there are few changes.
    """
    out = bytearray(_size(len(base)) + _size(len(target)))
    budget = len(target) * 3 // 4
    i = j = 0
    while j < len(target):
        length = _run(base, i, target, j)
        if length >= _RUN:
            _copy(out, i, length)
            i, j = i + length, j + length
            continue
        i, meet = _meeting(base, i, target, j)
        for at in range(j, meet, 127):
            part = target[at : min(at + 127, meet)]
            out += bytes([len(part)]) + part
        j = meet
        if len(out) > budget:
            return None
    return bytes(out) if len(out) <= budget else None


def _meeting(base: bytes, i: int, target: bytes, j: int) -> tuple[int, int]:
    """The next position where both are equal; the end of `target` if none is near."""
    for at in range(j, min(j + _WINDOW, len(target) - _ANCHOR) + 1, 8):
        found = base.find(target[at : at + _ANCHOR], i, i + _WINDOW)
        if found >= 0:
            while found > i and at > j and base[found - 1] == target[at - 1]:
                found, at = found - 1, at - 1
            return found, at
    return i, len(target)


def _run(a: bytes, i: int, b: bytes, j: int) -> int:
    """The number of equal bytes from here on, found in steps that grow and then shrink."""
    most = min(len(a) - i, len(b) - j)
    length, step = 0, 64
    while length + step <= most and _alike(a, i + length, b, j + length, step):
        length, step = length + step, step * 2
    while step := step // 2:
        if length + step <= most and _alike(a, i + length, b, j + length, step):
            length += step
    return length


def _alike(a: bytes, i: int, b: bytes, j: int, length: int) -> bool:
    return a[i : i + length] == b[j : j + length]


def _size(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _copy(out: bytearray, at: int, length: int) -> None:
    while length > 0:
        part = min(length, _COPY)
        code, said = 0x80, bytearray()
        for n, byte in enumerate(at.to_bytes(4, "little") + part.to_bytes(3, "little")):
            if byte:
                code |= 1 << n
                said.append(byte)
        out.append(code)
        out += said
        at, length = at + part, length - part


COMMIT: Final = 1
TREE: Final = 2
BLOB: Final = 3
_NAMES: Final = {COMMIT: b"commit", TREE: b"tree", BLOB: b"blob"}
_KINDS: Final = {name: kind for kind, name in _NAMES.items()}
BRANCH: Final = "refs/heads/main"
MANY: Final = 32  # More new objects than this are written as one pack
_PLAIN: Final = 100_000
"""A larger tree is mostly ids, which do not compress: it is stored uncompressed until packed."""
_REMEMBERED: Final = 250_000  # Entries of parsed folders that are cached: those of the largest folder fit
_CONFIG: Final = (
    b"[core]\n\trepositoryformatversion = 0\n\tfilemode = false\n\tbare = true\n[gc]\n\tauto = 0\n"
)


def hash_object(kind: int, data: bytes) -> bytes:
    """The id that git gives to an object."""
    return _sha1(_with_head(kind, data))


def _with_head(kind: int, data: bytes) -> bytes:
    return b"%s %d\0" % (_NAMES[kind], len(data)) + data


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


class ObjectStore:
    """The objects of one repository. `put` stages them and `flush` writes them, under the write lock."""

    def __init__(self, path: Path, *, sync: bool = False) -> None:
        self.path, self.sync = path, sync
        self.store = path / "objects"
        self.packs = self.store / "pack"
        self.staged: dict[bytes, tuple[int, bytes]] = {}
        self._folders: dict[bytes, TreeFolder] = {}
        self._entries = 0
        self._odb: pygit2.Odb | None = None

    # --- reading --------------------------------------------------------------------------------------

    def read(self, id: bytes) -> tuple[int, bytes]:
        """The kind and the bytes of an object; `StorageFailure` when it is missing or damaged."""
        found = self.staged.get(id) or self._loose(id)
        # Another process may have packed it since: then the packs are opened anew.
        found = found or self._packed(id) or self._packed(id, anew=True) or self._loose(id)
        if found is None:
            raise StorageFailure(
                f"the history in {self.path} is damaged: {id.hex()[:12]} cannot be read; copy the "
                "folder back from a backup, or move it away and a new history begins"
            )
        return found

    def _loose(self, id: bytes) -> tuple[int, bytes] | None:
        """Read a loose object. Not with libgit2, which waits forever on half a file."""
        name = id.hex()
        try:
            with open(f"{self.store}/{name[:2]}/{name[2:]}", "rb") as file:  # noqa: PTH123
                whole = zlib.decompress(file.read())
        except (OSError, zlib.error):
            return None
        head, _, data = whole.partition(b"\0")
        kind = _KINDS.get(head.partition(b" ")[0])
        return (kind, data) if kind and _sha1(whole) == id else None

    def _packed(self, id: bytes, *, anew: bool = False) -> tuple[int, bytes] | None:
        import pygit2

        try:
            if self._odb is None or anew:
                self._odb = pygit2.Odb()
                self._odb.add_backend(pygit2.OdbBackendPack(str(self.store)), 1)
            kind, data = self._odb.read(id.hex())
        except (KeyError, ValueError, OSError, MemoryError, pygit2.GitError):
            return None
        return int(kind), data

    def forget(self) -> None:
        """Drop all caches and staged objects."""
        self._odb, self._entries = None, 0
        self._folders.clear()
        self.staged.clear()

    def blob(self, id: bytes) -> bytes:
        return self._typed(id, BLOB)

    def commit(self, id: bytes) -> StoredCommit:
        return decode_commit(self._typed(id, COMMIT))

    def folder(self, id: bytes) -> TreeFolder:
        if (folder := self._folders.get(id)) is None:
            try:
                folder = TreeFolder(parse_tree(self._typed(id, TREE)))
            except ValueError as error:
                raise StorageFailure("a folder of the history cannot be understood") from error
            self._remember(id, folder)
        return folder

    def raw(self, id: bytes) -> tuple[int, bytes]:
        """The same as `read`; cached folders are not read again."""
        folder = self._folders.get(id)
        return (TREE, folder.raw()) if folder else self.read(id)

    def _typed(self, id: bytes, kind: int) -> bytes:
        found, data = self.read(id)
        if found != kind:
            raise StorageFailure(f"the history in {self.path} is damaged at {id.hex()[:12]}")
        return data

    def _remember(self, id: bytes, folder: TreeFolder) -> None:
        if id in self._folders or len(folder.entries) > _REMEMBERED:
            return
        self._entries += len(folder.entries) + 1
        self._folders[id] = folder
        while self._entries > _REMEMBERED:
            oldest = self._folders.pop(next(iter(self._folders)))
            self._entries -= len(oldest.entries) + 1

    def head(self) -> bytes | None:
        """The last commit; None if there is none, `StorageFailure` if the branch is damaged."""
        text = self._text(BRANCH)
        if text is None:  # `git gc` moves names into one file
            lines = (self._text("packed-refs") or "").splitlines()
            text = next((line[:40] for line in lines if line[40:] == f" {BRANCH}"), None)
        if text is None:
            return None
        try:
            id = bytes.fromhex(text.strip())
        except ValueError:
            id = b""
        if len(id) != 20:
            raise StorageFailure(f"{self.path / BRANCH} does not name a revision; remove that file")
        return id

    def _text(self, name: str) -> str | None:
        try:
            return (self.path / name).read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise make_storage_failure(error, self.path / name, "read") from error

    def loose(self) -> Iterator[Path]:
        """The files of all loose objects."""
        for folder in self.store.iterdir():
            if len(folder.name) == 2 and folder.is_dir():
                yield from folder.iterdir()

    def everything(self) -> Iterator[bytes]:
        """The ids of all objects, used or not."""
        for file in self.loose():
            with contextlib.suppress(ValueError):
                yield bytes.fromhex(file.parent.name + file.name)
        for index in self.packs.glob("*.idx"):
            yield from read_pack_ids(index) or ()

    # --- writing --------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the repository if it is missing or incomplete."""
        if (self.path / "HEAD").is_file() and self.packs.is_dir() and (self.path / BRANCH).parent.is_dir():
            return
        make_private_dir(self.packs)
        make_private_dir(self.path / "refs" / "heads")
        if not (self.path / "config").exists():
            write_atomic(self.path / "config", _CONFIG)
        write_atomic(self.path / "HEAD", f"ref: {BRANCH}\n".encode())

    def put(self, kind: int, data: bytes) -> bytes:
        id = hash_object(kind, data)
        self.staged[id] = (kind, data)
        return id

    def put_folder(self, folder: TreeFolder) -> bytes:
        id = self.put(TREE, folder.raw())
        self._remember(id, folder)
        return id

    def flush(self) -> bool:
        """Write all staged objects, also existing ones, which may be damaged; True if as a pack."""
        many = len(self.staged) > MANY
        try:
            if many:
                with PackWriter(self.packs) as pack:
                    for id, (kind, data) in self.staged.items():
                        pack.add(kind, id, data)
                    pack.finish()
            else:
                for id, (kind, data) in self.staged.items():
                    folder, whole = self.store / id.hex()[:2], _with_head(kind, data)
                    self._write(folder / id.hex()[2:], _deflated(whole, kind), self.store)
        except OSError as error:
            raise make_storage_failure(error, self.store) from error
        finally:
            self.staged.clear()
        return many

    def _write(self, target: Path, data: bytes, beside: Path) -> None:
        with TemporaryFile(beside) as new:
            new.write(data)
            target.parent.mkdir(PRIVATE_FOLDER, exist_ok=True)
            new.move_to(target, sync=self.sync)

    def set_head(self, id: bytes | None, *, sync: bool = False) -> None:
        """Set the last commit, atomically."""
        target = self.path / BRANCH
        try:
            if id is None:
                target.unlink(missing_ok=True)
            elif sync:
                make_private_dir(target.parent)
                write_atomic(target, f"{id.hex()}\n".encode())
            else:
                self._write(target, f"{id.hex()}\n".encode(), target.parent)
        except OSError as error:
            raise make_storage_failure(error, target) from error


def _deflated(whole: bytes, kind: int) -> bytes:
    if kind != TREE or len(whole) < _PLAIN:
        return zlib.compress(whole, 1)
    # The first bytes are compressed, because libgit2 cannot read an object that is stored from its first
    # byte on. The rest is stored, which takes a tenth of the time.
    first, rest = zlib.compressobj(1), zlib.compressobj(0, zlib.DEFLATED, -15)
    begin = first.compress(whole[:256]) + first.flush(zlib.Z_FULL_FLUSH)
    stored = rest.compress(whole[256:]) + rest.flush()
    return begin + stored + zlib.adler32(whole).to_bytes(4, "big")


_NONE = "/dev/null"


def make_unified_diff(file: str, old: bytes | None, new: bytes | None) -> str:
    """The change of one file as a unified diff; None is a file that does not exist."""
    if old == new:
        return ""
    import pygit2

    try:
        data = pygit2.Patch.create_from(old or b"", new or b"", file, file).data
    except (ValueError, pygit2.GitError) as error:
        raise StorageFailure(f"{file} could not be compared: {error}") from error
    text = data.decode("utf-8", "replace")
    head = f"--- {file if old is not None else _NONE}\n+++ {file if new is not None else _NONE}\n"
    if (at := text.find("\n@@ ")) >= 0:
        return head + text[at + 1 :]
    return f"{head}({'not text: it is not shown' if 'Binary' in text else 'empty'})\n"
