"""The bare git repository that holds the history: its objects, and the one name that points at the last.

Packs are read with libgit2's object database alone. A libgit2 *repository* reads `~/.gitconfig` and
`/etc/gitconfig` when it is opened, and writing a tree or a pack through it does so too; turning that
off is a switch for the whole process, which belongs to the program we are a part of. The database
below it reads no configuration, so nothing of the user's git is read or changed here.

Loose objects are not synced: they survive the death of the process, and after a power cut the history
steps back to the newest revision that is whole. Packs are synced before what they hold is removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sevenfold.errors import StorageFailure
from sevenfold.memory.repository.packfile import PackWriter, ids_in
from sevenfold.memory.repository.trees import Folder
from sevenfold.memory.revisions import Commit, decode
from sevenfold.storage.files import (
    BINARY,
    CLOEXEC,
    NOFOLLOW,
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    TEMPORARY,
    failure,
    make_private_dir,
    sync_folder,
    write_all,
    write_atomic,
)

if TYPE_CHECKING:
    import pygit2

COMMIT: Final = 1
TREE: Final = 2
BLOB: Final = 3
_NAMES: Final = {COMMIT: b"commit", TREE: b"tree", BLOB: b"blob"}
_KINDS: Final = {name: kind for kind, name in _NAMES.items()}
BRANCH: Final = "refs/heads/main"
MANY: Final = 32
"""More new objects than this are written as one pack."""
_PLAIN: Final = 100_000
"""A tree larger than this is mostly ids, which do not shrink: it is stored as it is until packed."""
_REMEMBERED: Final = 40_000
"""How many entries of folders are kept parsed."""
_CONFIG: Final = (
    b"[core]\n\trepositoryformatversion = 0\n\tfilemode = false\n\tbare = true\n[gc]\n\tauto = 0\n"
)


def id_of(kind: int, data: bytes) -> bytes:
    """The name git gives to these bytes."""
    head = b"%s %d\0" % (_NAMES[kind], len(data))
    return _sha1(head + data)


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


class Objects:
    """Reads at any time; what is put is staged until `flush`, which only the holder of the lock calls."""

    def __init__(self, path: Path, *, sync: bool = False) -> None:
        self.path, self.sync = path, sync
        self.store = path / "objects"
        self.packs = self.store / "pack"
        self.staged: dict[bytes, tuple[int, bytes]] = {}
        self._folders: dict[bytes, Folder] = {}
        self._entries = 0
        self._odb: pygit2.Odb | None = None

    # --- reading --------------------------------------------------------------------------------------

    def read(self, id: bytes) -> tuple[int, bytes]:
        """The kind and the bytes of an object; `StorageFailure` when it is missing or damaged."""
        found = self.staged.get(id) or self._loose(id)
        # A pack may have taken the place of what the open ones are: then they are opened anew.
        found = found or self._packed(id) or self._packed(id, anew=True) or self._loose(id)
        if found is None:
            raise StorageFailure(
                f"the history in {self.path} is damaged: {id.hex()[:12]} cannot be read; copy the "
                "folder back from a backup, or move it away and a new history begins"
            )
        return found

    def _loose(self, id: bytes) -> tuple[int, bytes] | None:
        """An object with a file of its own. Not read with libgit2, which waits forever on half a file."""
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
        """Look at the disk again: nothing read so far is trusted."""
        self._odb, self._entries = None, 0
        self._folders.clear()
        self.staged.clear()

    def blob(self, id: bytes) -> bytes:
        return self._typed(id, BLOB)

    def commit(self, id: bytes) -> Commit:
        return decode(self._typed(id, COMMIT))

    def folder(self, id: bytes) -> Folder:
        if (folder := self._folders.get(id)) is None:
            folder = Folder.parse(self._typed(id, TREE))
            self._remember(id, folder)
        return folder

    def raw(self, id: bytes) -> tuple[int, bytes]:
        """The same as `read`, without reading again what has just been looked at."""
        folder = self._folders.get(id)
        return (TREE, folder.raw()) if folder else self.read(id)

    def _typed(self, id: bytes, kind: int) -> bytes:
        found, data = self.read(id)
        if found != kind:
            raise StorageFailure(f"the history in {self.path} is damaged at {id.hex()[:12]}")
        return data

    def _remember(self, id: bytes, folder: Folder) -> None:
        if id in self._folders or len(folder.entries) > _REMEMBERED:
            return
        self._entries += len(folder.entries) + 1
        self._folders[id] = folder
        while self._entries > _REMEMBERED:
            oldest = self._folders.pop(next(iter(self._folders)))
            self._entries -= len(oldest.entries) + 1

    def head(self) -> bytes | None:
        """The last commit; None when there is none. A name that makes no sense is a `StorageFailure`."""
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
            raise failure(error, self.path / name, "read") from error

    def loose(self) -> Iterator[Path]:
        """The files of all loose objects."""
        for folder in self.store.iterdir():
            if len(folder.name) == 2 and folder.is_dir():
                yield from folder.iterdir()

    def everything(self) -> Iterator[bytes]:
        """The ids of all objects there are, needed or not."""
        for file in self.loose():
            with contextlib.suppress(ValueError):
                yield bytes.fromhex(file.parent.name + file.name)
        for index in self.packs.glob("*.idx"):
            yield from ids_in(index) or ()

    # --- writing --------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the repository, where it is not there yet or was not finished."""
        if (
            (self.path / "HEAD").is_file()
            and self.packs.is_dir()
            and (self.path / BRANCH).parent.is_dir()
        ):
            return
        make_private_dir(self.packs)
        make_private_dir(self.path / "refs" / "heads")
        if not (self.path / "config").exists():
            write_atomic(self.path / "config", _CONFIG)
        write_atomic(self.path / "HEAD", f"ref: {BRANCH}\n".encode())

    def put(self, kind: int, data: bytes) -> bytes:
        id = id_of(kind, data)
        self.staged[id] = (kind, data)
        return id

    def put_folder(self, folder: Folder) -> bytes:
        id = self.put(TREE, folder.raw())
        self._remember(id, folder)
        return id

    def flush(self) -> bool:
        """Write what was put, even what is there, for that may be half a file; True when as a pack."""
        many = len(self.staged) > MANY
        try:
            if many:
                with PackWriter(self.packs) as pack:
                    for id, (kind, data) in self.staged.items():
                        pack.add(kind, id, data)
                    pack.finish()
            else:
                for id, (kind, data) in self.staged.items():
                    self._write_loose(id, kind, data)
        except OSError as error:
            raise failure(error, self.store) from error
        finally:
            self.staged.clear()
        return many

    def _write_loose(self, id: bytes, kind: int, data: bytes) -> None:
        name = id.hex()
        whole = b"%s %d\0" % (_NAMES[kind], len(data)) + data
        self._write(self.store / name[:2] / name[2:], _deflated(whole, kind), self.store)

    def _write(self, target: Path, data: bytes, beside: Path) -> None:
        """Write a file beside, and put it in its place when it is complete."""
        temporary = f"{beside}/{TEMPORARY}{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | CLOEXEC | BINARY
        fd = os.open(temporary, flags, PRIVATE_FILE)
        try:
            try:
                write_all(fd, data)
                if self.sync:
                    os.fsync(fd)
            finally:
                os.close(fd)
            target.parent.mkdir(PRIVATE_FOLDER, exist_ok=True)
            Path(temporary).replace(target)
        except OSError:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise
        if self.sync:
            sync_folder(target.parent)

    def set_head(self, id: bytes | None, *, sync: bool = False) -> None:
        """Point at another commit, in one step."""
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
            raise failure(error, target) from error


def _deflated(whole: bytes, kind: int) -> bytes:
    if kind != TREE or len(whole) < _PLAIN:
        return zlib.compress(whole, 1)
    # Only the beginning is compressed, because libgit2 cannot read an object that is stored from its
    # first byte on (and someone may look at it with such a program); the rest is stored, which takes
    # a tenth of the time.
    first, rest = zlib.compressobj(1), zlib.compressobj(0, zlib.DEFLATED, -15)
    begin = first.compress(whole[:256]) + first.flush(zlib.Z_FULL_FLUSH)
    stored = rest.compress(whole[256:]) + rest.flush()
    return begin + stored + zlib.adler32(whole).to_bytes(4, "big")
