"""The folders of a git repository as raw objects: read without checking anything out, and edited.

What a repository holds is not ours to trust: names that lead elsewhere, links, submodules, two entries of
one name. They are listed as they are, and an edit of other entries leaves them as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from sevenfold.memory.team.values import GitFailed

FOLDER: Final = b"40000"
FILE: Final = b"100644"
MOST: Final = 100_000
"""Entries that are looked at; a small repository can be made to have billions of them."""
LARGEST: Final = 4 << 20
"""Bytes of one folder's list of names; a longer one is not read."""
DEEPEST: Final = 12
_AT_ONCE: Final = 16 << 20
"""Bytes of folders that are read in one go."""
_ENTRY: Final = re.compile(rb"([0-7]{5,6}) ([^\0]+)\0(.{20})", re.DOTALL)

Read = Callable[[Sequence[str]], Mapping[str, bytes]]
"""The raw objects of some ids; those that are missing are left out."""
Sizes = Callable[[Sequence[str]], Mapping[str, int]]
"""The bytes of each, without reading it."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One file of a tree, or what else has its place there."""

    path: bytes
    mode: bytes
    id: str


class Tree(msgspec.Struct, frozen=True):
    """All that is in a commit."""

    entries: tuple[Entry, ...] = ()
    folders: dict[bytes, bytes] = {}
    """The raw folders by their path; the whole tree has the empty one."""
    cut: str = ""
    """Why not all of it was looked at; empty when it was."""
    unread: frozenset[bytes] = frozenset()
    """The folders that were not looked at."""


def parsed(raw: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Mode, name and id of each entry of one folder."""
    at = 0
    while at < len(raw):
        match = _ENTRY.match(raw, at)
        if match is None:
            raise GitFailed("a folder in the team's repository cannot be understood")
        yield match[1], match[2], match[3]
        at = match.end()


def walked(root: str, read: Read, sizes: Sizes, go_on: Callable[[], None] = lambda: None) -> Tree:
    """Everything below a folder, level by level, as far as the limits go; `go_on` may raise."""
    walk = _Walk(read, sizes, go_on)
    level = [(b"", root)]
    for _ in range(DEEPEST + 1):
        level = walk.level(level)
        if not level:
            break
    for path, _ in level:
        walk.leave(path, "its folders are too deep")
    return Tree(tuple(walk.entries), walk.folders, walk.why, frozenset(walk.unread))


class _Walk:
    """One walk: what was found, and what was not looked at and why."""

    def __init__(self, read: Read, sizes: Sizes, go_on: Callable[[], None]) -> None:
        self._read, self._sizes, self._go_on = read, sizes, go_on
        self._room = MOST
        self.entries: list[Entry] = []
        self.folders: dict[bytes, bytes] = {}
        self.unread: list[bytes] = []
        self.why = ""

    def leave(self, path: bytes, why: str) -> None:
        self.unread.append(path)
        self.why = self.why or why

    def level(self, folders: list[tuple[bytes, str]]) -> list[tuple[bytes, str]]:
        """Reads these folders; the ones in them."""
        sizes = self._sizes([id for _, id in folders])
        below: list[tuple[bytes, str]] = []
        for some in _portions(folders, sizes):
            wanted = {id for _, id in some if sizes.get(id, LARGEST + 1) <= LARGEST}
            raws = self._read(sorted(wanted)) if wanted and self._room > 0 else {}
            for path, id in some:
                self._go_on()
                self._look_at(path, raws.get(id), sizes.get(id), below)
        return below

    def _look_at(
        self, path: bytes, raw: bytes | None, size: int | None, below: list[tuple[bytes, str]]
    ) -> None:
        if size is None:
            self.leave(path, "a folder in it is missing")
        elif size > LARGEST:
            self.leave(path, f"a folder in it has more than {LARGEST:,} bytes of names")
        elif raw is None or not self._listed(path, raw, below):
            self.leave(path, f"it holds more than {MOST:,} files")

    def _listed(self, path: bytes, raw: bytes, below: list[tuple[bytes, str]]) -> bool:
        """Whether there was room for all that is in the folder; otherwise for nothing."""
        inside = path + b"/" if path else b""
        found: list[Entry] = []
        folders: list[tuple[bytes, str]] = []
        for mode, name, id in parsed(raw):
            if mode.lstrip(b"0") == FOLDER:
                folders.append((inside + name, id.hex()))
            else:
                found.append(Entry(inside + name, mode, id.hex()))
            self._room -= 1
            if self._room < 0:
                return False
        self.entries += found
        below += folders
        self.folders[path] = raw
        return True


def _portions(
    folders: list[tuple[bytes, str]], sizes: Mapping[str, int]
) -> Iterator[list[tuple[bytes, str]]]:
    some: list[tuple[bytes, str]] = []
    ids: set[str] = set()
    total = 0
    for path, id in folders:
        size = sizes.get(id, 0)
        if id not in ids and size <= LARGEST:
            if total + size > _AT_ONCE:
                yield some
                some, ids, total = [], set(), 0
            ids.add(id)
            total += size
        some.append((path, id))
    yield some


def edited(
    folders: Mapping[bytes, bytes],
    changes: Mapping[bytes, str | None],
    put: Callable[[bytes], bytes],
    under: bytes = b"",
) -> bytes | None:
    """The id of a tree with these files in it, or without them (None); None when nothing is left.

    `put` keeps a raw folder and says its id. What is not named stays byte for byte.
    """
    here: dict[bytes, bytes | None] = {}
    below: dict[bytes, dict[bytes, str | None]] = {}
    for path, id in changes.items():
        first, slash, rest = path.partition(b"/")
        if slash:
            below.setdefault(first, {})[rest] = id
        else:
            here[first] = None if id is None else bytes.fromhex(id)
    old = list(parsed(folders.get(under, b"")))
    kept = [one for one in old if not _replaced(one, here, below)]
    kept += [(FILE, name, id) for name, id in here.items() if id is not None]
    for name, inside in below.items():
        path = under + b"/" + name if under else name
        if path not in folders and any(_replaced(one, {}, {name: None}) for one in old):
            raise GitFailed("the team's repository is too large: a folder in it was not looked at")
        new = edited(folders, inside, put, path)
        kept += [(FOLDER, name, new)] if new is not None else []
    return put(_raw(kept)) if kept else None


def _replaced(
    entry: tuple[bytes, bytes, bytes],
    here: Mapping[bytes, bytes | None],
    below: Mapping[bytes, object],
) -> bool:
    mode, name, _ = entry
    if mode.lstrip(b"0") == FOLDER:
        return name in below
    return name in here and mode.startswith(b"100")


def _raw(entries: Iterable[tuple[bytes, bytes, bytes]]) -> bytes:
    return b"".join(b"%s %s\0%s" % one for one in sorted(entries, key=_order))


def _order(entry: tuple[bytes, bytes, bytes]) -> bytes:
    """Git sorts a folder as if its name ended in a slash."""
    return entry[1] + b"/" if entry[0].lstrip(b"0") == FOLDER else entry[1]
