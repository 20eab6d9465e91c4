"""The bare repository of a team memory in the state folder: fetch, read, commit, push.

Only the newest commit of the remote is fetched, not its history. Nothing is checked out: trees and texts
are read as raw objects. Our commits have the remote's newest one as their only parent, so a push can only
add to the history. Commits also tell when a memory was written, so that it has the same age everywhere.
"""

from __future__ import annotations

import contextlib
import datetime
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.core.errors import Mistake
from sevenfold.memory.team.git import GitFailed, RemoteAddress, TeamGit
from sevenfold.memory.team.objects import (
    BLOB,
    COMMIT,
    TREE,
    NewObjects,
    TreeFolder,
    change_tree,
    parse_tree,
    sort_tree,
    split_entry,
)
from sevenfold.memory.topic_file import read_topic

MOST: Final = 100_000  # Entries that are read; a small repository can be made to have billions of them
LARGEST: Final = 4 << 20  # Bytes of one tree object; a larger one is not read
DEEPEST: Final = 12
_AT_ONCE_TREES: Final = 16 << 20  # Bytes of tree objects that are read at once

ReadBlobs = Callable[[Sequence[str]], Mapping[str, bytes]]
"""Returns the raw objects of some ids, without those that are missing."""
BlobSizes = Callable[[Sequence[str]], Mapping[str, int]]
"""Returns the sizes of objects, without reading them."""


class TreeEntry(msgspec.Struct, frozen=True, gc=False):
    """One entry of a tree that is not a folder."""

    path: bytes
    mode: bytes
    id: str


class CommitTree(msgspec.Struct, frozen=True):
    """The entries and folders of a commit."""

    root: bytes | None = None  # The id of the whole tree
    entries: tuple[TreeEntry, ...] = ()
    folders: dict[bytes, bytes] = {}  # The raw folders by their ids
    cut: str = ""  # The reason if not all of it was read; empty if it was
    unread: frozenset[bytes] = frozenset()  # The folders that were not read


def walk_tree(
    root: str, read: ReadBlobs, sizes: BlobSizes, go_on: Callable[[], None] = lambda: None
) -> CommitTree:
    """Read everything below a folder, level by level, within the limits; `go_on` may raise."""
    walk = _TreeWalk(read, sizes, go_on)
    level = [(b"", root)]
    for _ in range(DEEPEST + 1):
        level = walk.level(level)
        if not level:
            break
    for path, _ in level:
        walk.leave(path, "its folders are too deep")
    return CommitTree(
        bytes.fromhex(root), tuple(walk.entries), walk.folders, walk.why, frozenset(walk.unread)
    )


class _TreeWalk:
    """One walk: the entries, and the folders that were not read and why."""

    def __init__(self, read: ReadBlobs, sizes: BlobSizes, go_on: Callable[[], None]) -> None:
        self._read, self._sizes, self._go_on = read, sizes, go_on
        self._room = MOST
        self.entries: list[TreeEntry] = []
        self.folders: dict[bytes, bytes] = {}
        self.unread: list[bytes] = []
        self.why = ""

    def leave(self, path: bytes, why: str) -> None:
        self.unread.append(path)
        self.why = self.why or why

    def level(self, folders: list[tuple[bytes, str]]) -> list[tuple[bytes, str]]:
        """Read these folders; returns the folders in them."""
        sizes = self._sizes([id for _, id in folders])
        below: list[tuple[bytes, str]] = []
        for some in _portions(folders, sizes):
            wanted = {id for _, id in some if sizes.get(id, LARGEST + 1) <= LARGEST}
            raws = self._read(sorted(wanted)) if wanted and self._room > 0 else {}
            for path, id in some:
                self._go_on()
                self._look_at(path, id, raws.get(id), sizes.get(id), below)
        return below

    def _look_at(
        self, path: bytes, id: str, raw: bytes | None, size: int | None, below: list[tuple[bytes, str]]
    ) -> None:
        if size is None:
            self.leave(path, "a folder in it is missing")
        elif size > LARGEST:
            self.leave(path, f"a folder in it has more than {LARGEST:,} bytes of names")
        elif raw is None or not self._list(path, raw, below):
            self.leave(path, f"it holds more than {MOST:,} files")
        else:
            self.folders[bytes.fromhex(id)] = raw

    def _list(self, path: bytes, raw: bytes, below: list[tuple[bytes, str]]) -> bool:
        """Take in all that is in a folder, or nothing: False if there is no room for all."""
        inside = path + b"/" if path else b""
        try:
            entries = parse_tree(raw)
        except ValueError as error:
            raise GitFailed("a folder in the team's repository cannot be understood") from error
        self._room -= len(entries)
        if self._room < 0:
            return False
        for mode, name, id in map(split_entry, entries):
            if mode.lstrip(b"0") == b"40000":
                below.append((inside + name[:-1], id.hex()))
            else:
                self.entries.append(TreeEntry(inside + name, mode, id.hex()))
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
            if total + size > _AT_ONCE_TREES:
                yield some
                some, ids, total = [], set(), 0
            ids.add(id)
            total += size
        some.append((path, id))
    yield some


class _FetchedTrees:
    """The folders of a fetched commit, read from memory and written to our repository."""

    def __init__(self, folders: Mapping[bytes, bytes], objects: NewObjects) -> None:
        self._folders, self._objects = folders, objects

    def folder(self, id: bytes) -> TreeFolder:
        if id not in self._folders:
            raise GitFailed("the team's repository is too large: a folder in it was not looked at")
        return sort_tree(self._folders[id])

    def put_folder(self, folder: TreeFolder) -> bytes:
        return self._objects.put(TREE, folder.raw())


LOGGED: Final = (
    "--first-parent", "-m", "--name-only", "--no-renames", "-z", "--format=%x01%ct %P%x02%B%x02",
)  # fmt: skip
"""Options of `git log`: the time, parents, message and files of each commit."""
LINE: Final = "written"
"""First word of a line in a commit's message about a file that is older than the commit."""
_LINE: Final = re.compile(rf"^{LINE} (\d{{1,11}}) (.+)$", re.MULTILINE)
_HEAD: Final = re.compile(r"(\d{1,11})(?: ([0-9a-f ]*))?")


class WriteTime(msgspec.Struct, frozen=True):
    """The latest time at which a file may have been written."""

    at: float
    sure: bool  # True if it was exactly then; else it may be older


def parse_log_times(log: str) -> dict[str, WriteTime]:
    """The write times in a log, the newest commit first."""
    found: dict[str, WriteTime] = {}
    for commit in log.split("\x01"):
        head, _, rest = commit.partition("\x02")
        message, _, names = rest.rpartition("\x02")
        if not (known := _HEAD.fullmatch(head)):
            continue
        at, parents = float(known[1]), (known[2] or "").strip()
        told = {file: float(time) for time, file in _LINE.findall(message)}
        for name in filter(None, (name.strip("\n") for name in names.split("\0"))):
            if name not in found:
                sure = bool(parents) or name in told
                found[name] = WriteTime(min(told.get(name, at), at), sure)
    return found


def find_memory_time(data: bytes, written: WriteTime) -> float:
    """The write time of a memory with this text."""
    origin = None if written.sure else read_topic(data, "").origin
    if origin is None:
        return written.at
    try:
        day = datetime.datetime.combine(
            datetime.date.fromisoformat(origin.date), datetime.time(12), datetime.UTC
        )
    except ValueError:
        return written.at
    return min(written.at, day.timestamp())


TIP: Final = "refs/team/tip"
_AT_ONCE: Final = 32 << 20  # Bytes of objects that are read at once
_PACKS: Final = 40  # Number of packs from which on they are combined
_PAST: Final = (50, 500)
"""Commits that are fetched to see if the remote was set back: first try, second try."""
_SHA256: Final = 64  # Digits of a SHA-256 id
SHA256: Final = (
    "{} names its objects by SHA-256, and team memory needs SHA-1: make another repository with "
    "'git init --bare --object-format=sha1'"
)
_NOBODY: Final = ("sevenfold", "team@sevenfold.invalid")
_DAMAGED: Final = re.compile(
    r"corrupt|bad object|loose object|unable to (read|parse)|unresolved delta|not a valid object"
    r"|needed a single revision|object file .* is empty|index file|missing (blob|tree|commit)",
    re.IGNORECASE,
)
"""Messages of git about a repository that a crash has damaged."""


class RemoteHeads(msgspec.Struct, frozen=True):
    """The branches of a remote, and its main branch."""

    branches: tuple[str, ...]
    main: str = ""


class TeamRepository:
    """Our bare repository for one team."""

    def __init__(self, path: Path, git: TeamGit) -> None:
        self.path, self.git = path, git
        self._objects = NewObjects(path)
        self._roots: dict[str, str] = {}
        self._sizes: dict[str, int] = {}
        self._walked: tuple[str, CommitTree] = "", CommitTree()

    # --- the remote -----------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the repository, or clean it up after a process that died."""
        self._objects.prepare()
        self.git.recover()

    def begin_anew(self, error: GitFailed) -> None:
        """Make a damaged repository anew; the remote has all of it. Raises an error that is no damage."""
        own = [line for line in error.said.splitlines() if not line.startswith("remote:")]
        if not _DAMAGED.search("\n".join(own)):
            raise error
        shutil.rmtree(self.path, ignore_errors=True)
        self._objects.forget()
        self._sizes.clear()
        self.prepare()

    def make(self, path: str) -> None:
        """Make the remote, a bare repository on this machine."""
        words = ("init", "--quiet", "--bare", "--initial-branch=main", "--")
        self.git.far(RemoteAddress(path, path), *words, path)

    def heads(self, remote: RemoteAddress) -> RemoteHeads:
        """The branches of the remote; none if it is empty."""
        said = self.git.far(remote, "ls-remote", "--symref", "--", remote.given)
        found, main = [], ""
        for line in said.decode("utf-8", "replace").splitlines():
            first, _, name = line.partition("\t")
            if len(first) == _SHA256:
                raise Mistake(SHA256.format(remote.shown))
            if name == "HEAD" and first.startswith("ref: refs/heads/"):
                main = first.removeprefix("ref: refs/heads/")
            elif name.startswith("refs/heads/"):
                found.append(name.removeprefix("refs/heads/"))
        return RemoteHeads(tuple(found), main if main in found else "")

    def fetch(self, remote: RemoteAddress, branch: str, depth: int = 1) -> str | None:
        """Fetch the newest commits; returns the last one, None if there is no such branch."""
        wanted = f"+refs/heads/{branch}:{TIP}"
        words = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--refmap="]
        words += ["--no-recurse-submodules", "--update-shallow"]
        try:
            try:
                self.git.far(remote, *words, f"--depth={depth}", "--", remote.given, wanted)
            except GitFailed as error:
                if "support shallow" not in error.said:
                    raise
                self.git.far(remote, *words, "--", remote.given, wanted)
        except GitFailed as error:
            if "couldn't find remote ref" in error.said:
                return None
            raise
        said = self.git.local("rev-parse", TIP, f"{TIP}^{{tree}}").decode("ascii").split()
        self._roots[said[0]] = said[1]
        return said[0]

    def descends(self, remote: RemoteAddress, branch: str, tip: str, old: str) -> bool:
        """True if a fetched commit follows `old`, as far as the fetched history shows."""
        head = self.git.local("cat-file", "commit", tip).partition(b"\n\n")[0]
        if f"parent {old}".encode("ascii") in head.splitlines():
            return True
        for depth in _PAST:
            newest = self.fetch(remote, branch, depth)
            listed = self.git.local("rev-list", f"--max-count={depth}", newest or tip)
            if old in listed.decode("ascii").split():
                return True
        return False

    def times(self, commit: str) -> dict[str, WriteTime]:
        """The write time of each file, as far as the fetched commits tell."""
        try:
            said = self.git.local("log", f"--max-count={_PAST[-1]}", *LOGGED, commit)
        except GitFailed:  # then the files count as new
            return {}
        return parse_log_times(said.decode("utf-8", "replace"))

    def push(self, remote: RemoteAddress, branch: str, commit: str) -> None:
        """Send a commit; `Behind` if another member has pushed meanwhile."""
        words = [
            "push",
            "--porcelain",
            "--no-verify",
            "--no-follow-tags",
            "--no-signed",
            "--",
            remote.given,
        ]
        self.git.far(remote, *words, f"{commit}:refs/heads/{branch}", pushing=True)

    def tidy(self) -> None:
        """Combine many small packs; a failure only costs space."""
        if self._objects.count_packs() > _PACKS:
            with contextlib.suppress(GitFailed):
                self.git.far(RemoteAddress(str(self.path)), "gc", "--quiet")

    # --- reading --------------------------------------------------------------------------------------

    def tree(self, commit: str | None) -> CommitTree:
        """The tree of a fetched commit."""
        if commit is None:
            return CommitTree()
        root = self._roots[commit]
        if self._walked[0] != root:  # a session asks often, and mostly nothing is new
            self._walked = root, walk_tree(root, self._batch, self.sizes, self.git.go_on)
        return self._walked[1]

    def sizes(self, ids: Sequence[str]) -> dict[str, int]:
        """The sizes of these objects, without those that are missing."""
        if new := [id for id in dict.fromkeys(ids) if id not in self._sizes]:
            given = "".join(f"{id}\n" for id in new).encode("ascii")
            said = self.git.local("cat-file", "--batch-check", "--buffer", given=given)
            rows = [line.split() for line in said.decode("ascii", "replace").splitlines()]
            self._sizes |= {row[0]: int(row[2]) for row in rows if len(row) == 3}
        return {id: self._sizes[id] for id in ids if id in self._sizes}

    def read(self, ids: Sequence[str]) -> dict[str, bytes]:
        """The bytes of these objects, without those that are missing."""
        found: dict[str, bytes] = {}
        for some in self._portions(list(dict.fromkeys(ids))):
            found |= self._batch(some)
        return found

    def _batch(self, ids: Sequence[str]) -> dict[str, bytes]:
        given = "".join(f"{id}\n" for id in ids).encode("ascii")
        return _parsed(self.git.local("cat-file", "--batch", "--buffer", given=given))

    def _portions(self, ids: list[str]) -> Iterator[list[str]]:
        sizes = self.sizes(ids)
        some: list[str] = []
        total = 0
        for id in ids:
            total += sizes.get(id, 0)
            if some and total > _AT_ONCE:
                yield some
                some, total = [], sizes.get(id, 0)
            some.append(id)
        if some:
            yield some

    # --- writing --------------------------------------------------------------------------------------

    def commit(
        self,
        tree: CommitTree,
        parent: str | None,
        changes: Mapping[str, bytes | None],
        message: str,
        at: float,
    ) -> str:
        """Write a commit with these files changed (None: removed). The caller has screened them."""
        if b"" in tree.unread:
            raise GitFailed(f"nothing can be sent: {tree.cut}")
        put = self._objects.put
        blobs = ((file.encode("utf-8"), data) for file, data in changes.items())
        ids = {path: None if data is None else put(BLOB, data) for path, data in blobs}
        root = change_tree(_FetchedTrees(tree.folders, self._objects), tree.root, ids)
        who = "{} <{}> {} +0000".format(*self.author(), max(0, int(at)))
        lines = [f"tree {(root or put(TREE, b'')).hex()}"]
        lines += [f"parent {parent}"] if parent else []
        text = "\n".join([*lines, f"author {who}", f"committer {who}", "", message, ""])
        new = put(COMMIT, text.encode("utf-8"))
        self._objects.flush()
        return new.hex()

    def author(self) -> tuple[str, str]:
        """Name and email from the user's git configuration, or neutral ones."""
        from sevenfold.memory.guard.secrets import find_secrets

        found: dict[str, str] = {}
        with contextlib.suppress(GitFailed):  # it fails if nothing is configured
            said = self.git.local("config", "--null", "--get-regexp", r"^user\.(name|email)$")
            for row in said.decode("utf-8", "replace").split("\0"):
                key, _, value = row.partition("\n")
                found[key] = " ".join("".join(c for c in value if c not in "<>").split())
        name, email = found.get("user.name", ""), found.get("user.email", "")
        if find_secrets(f"{name} {email}"):
            return _NOBODY
        return name or _NOBODY[0], email or _NOBODY[1]


def _parsed(said: bytes) -> dict[str, bytes]:
    """The objects in the output of `cat-file --batch`."""
    found: dict[str, bytes] = {}
    at = 0
    while at < len(said):
        end = said.index(b"\n", at)
        head = said[at:end].decode("ascii", "replace").split()
        at = end + 1
        if len(head) == 3:
            size = int(head[2])
            found[head[0]] = said[at : at + size]
            at += size + 1
    return found


class BlobTexts:
    """A cache of texts by their ids."""

    def __init__(self, read: ReadBlobs) -> None:
        self._read = read
        self._known: dict[str, bytes | None] = {"": None}

    def want(self, ids: Iterable[str]) -> None:
        """Read these texts at once."""
        if new := [id for id in dict.fromkeys(ids) if id not in self._known]:
            found = self._read(new)
            self._known |= {id: found.get(id) for id in new}

    def get(self, id: str) -> bytes | None:
        """A text; None if the repository does not have it."""
        self.want([id])
        return self._known[id]
