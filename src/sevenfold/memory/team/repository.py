"""The bare repository of a team memory in the state folder: fetch, read, commit, push.

Only the newest commit of the remote is fetched, never its past. Nothing is ever checked out. Our commits
have the remote's newest one as their only parent, so that the history is a line and a push can only
add to it.

The folders of a git repository as raw objects: read without checking anything out, and edited. The
texts of a repository by their ids, read in one go where it is known which will be needed. When the
memories of a team were written: a memory stays as old as it is, on whatever machine it arrives.
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
from sevenfold.memory.history.objects import BLOB, COMMIT, TREE, ObjectStore
from sevenfold.memory.team.git import GitFailed, RemoteAddress, TeamGit
from sevenfold.memory.topic_file import read_topic

FOLDER: Final = b"40000"
FILE: Final = b"100644"
MOST: Final = 100_000
"""Entries that are looked at; a small repository can be made to have billions of them."""
LARGEST: Final = 4 << 20
"""Bytes of one folder's list of names; a longer one is not read."""
DEEPEST: Final = 12
_AT_ONCE_TREES: Final = 16 << 20
"""Bytes of folders that are read in one go."""
_ENTRY: Final = re.compile(rb"([0-7]{5,6}) ([^\0]+)\0(.{20})", re.DOTALL)

ReadBlobs = Callable[[Sequence[str]], Mapping[str, bytes]]
"""The raw objects of some ids; those that are missing are left out."""
BlobSizes = Callable[[Sequence[str]], Mapping[str, int]]
"""The bytes of each, without reading it."""


class TreeEntry(msgspec.Struct, frozen=True, gc=False):
    """One file of a tree, or what else has its place there."""

    path: bytes
    mode: bytes
    id: str


class CommitTree(msgspec.Struct, frozen=True):
    """All that is in a commit."""

    entries: tuple[TreeEntry, ...] = ()
    folders: dict[bytes, bytes] = {}
    """The raw folders by their path; the whole tree has the empty one."""
    cut: str = ""
    """Why not all of it was looked at; empty when it was."""
    unread: frozenset[bytes] = frozenset()
    """The folders that were not looked at."""


def parse_tree(raw: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Mode, name and id of each entry of one folder."""
    at = 0
    while at < len(raw):
        match = _ENTRY.match(raw, at)
        if match is None:
            raise GitFailed("a folder in the team's repository cannot be understood")
        yield match[1], match[2], match[3]
        at = match.end()


def walk_tree(
    root: str, read: ReadBlobs, sizes: BlobSizes, go_on: Callable[[], None] = lambda: None
) -> CommitTree:
    """Everything below a folder, level by level, as far as the limits go; `go_on` may raise."""
    walk = _TreeWalk(read, sizes, go_on)
    level = [(b"", root)]
    for _ in range(DEEPEST + 1):
        level = walk.level(level)
        if not level:
            break
    for path, _ in level:
        walk.leave(path, "its folders are too deep")
    return CommitTree(tuple(walk.entries), walk.folders, walk.why, frozenset(walk.unread))


class _TreeWalk:
    """One walk: what was found, and what was not looked at and why."""

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
        found: list[TreeEntry] = []
        folders: list[tuple[bytes, str]] = []
        for mode, name, id in parse_tree(raw):
            if mode.lstrip(b"0") == FOLDER:
                folders.append((inside + name, id.hex()))
            else:
                found.append(TreeEntry(inside + name, mode, id.hex()))
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
            if total + size > _AT_ONCE_TREES:
                yield some
                some, ids, total = [], set(), 0
            ids.add(id)
            total += size
        some.append((path, id))
    yield some


def edit_tree(
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
    old = list(parse_tree(folders.get(under, b"")))
    kept = [one for one in old if not _replaced(one, here, below)]
    kept += [(FILE, name, id) for name, id in here.items() if id is not None]
    for name, inside in below.items():
        path = under + b"/" + name if under else name
        if path not in folders and any(_replaced(one, {}, {name: None}) for one in old):
            raise GitFailed("the team's repository is too large: a folder in it was not looked at")
        new = edit_tree(folders, inside, put, path)
        kept += [(FOLDER, name, new)] if new is not None else []
    return put(_raw(kept)) if kept else None


def _replaced(
    entry: tuple[bytes, bytes, bytes], here: Mapping[bytes, bytes | None], below: Mapping[bytes, object]
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


LOGGED: Final = (
    "--first-parent",
    "-m",
    "--name-only",
    "--no-renames",
    "-z",
    "--format=%x01%ct %P%x02%B%x02",
)
"""What git is asked for: the time and the parents of each commit, its message, its files."""
LINE: Final = "written"
"""The first word of the line in a commit about a file that is older than it."""
_LINE: Final = re.compile(rf"^{LINE} (\d{{1,11}}) (.+)$", re.MULTILINE)
_HEAD: Final = re.compile(r"(\d{1,11})(?: ([0-9a-f ]*))?")


class WriteTime(msgspec.Struct, frozen=True):
    """When a file was written, at the latest."""

    at: float
    sure: bool
    """Whether it was just then; else it may be older."""


def parse_log_times(log: str) -> dict[str, WriteTime]:
    """The times that a log tells, the newest commit first."""
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
    """Of a memory with this text."""
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
_AT_ONCE: Final = 32 << 20
"""Bytes of objects that are asked for in one go."""
_PACKS: Final = 40
"""More packs than these are put together."""
_PAST: Final = (50, 500)
"""How many commits are fetched to see whether the remote was set back, at first and then."""
_SHA256: Final = 64
"""Digits of such an id."""
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
"""What git says of a repository that a crash has damaged."""


class RemoteHeads(msgspec.Struct, frozen=True):
    """The branches of a remote, and which of them is the main one."""

    branches: tuple[str, ...]
    main: str = ""


class TeamRepository:
    """One repository of ours that stands for the team's."""

    def __init__(self, path: Path, git: TeamGit) -> None:
        self.path, self.git = path, git
        self._objects = ObjectStore(path)
        self._roots: dict[str, str] = {}
        self._sizes: dict[str, int] = {}
        self._walked: tuple[str, CommitTree] = "", CommitTree()

    # --- the remote -----------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make it, or make it usable again after a run that died."""
        self._objects.prepare()
        self.git.recover()

    def begin_anew(self, error: GitFailed) -> None:
        """After damage: all that is in it can be had from the remote again. Raises what is no damage."""
        own = [line for line in error.said.splitlines() if not line.startswith("remote:")]
        if not _DAMAGED.search("\n".join(own)):
            raise error
        shutil.rmtree(self.path, ignore_errors=True)
        self._objects.forget()
        self._sizes.clear()
        self.prepare()

    def make(self, path: str) -> None:
        """Make the remote, a bare repository on this machine."""
        self.git.far(
            RemoteAddress(path, path), "init", "--quiet", "--bare", "--initial-branch=main", "--", path
        )

    def heads(self, remote: RemoteAddress) -> RemoteHeads:
        """What branches the remote has; none when it is empty."""
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
        """The newest commits of the remote, with all they hold; None when it has no such branch."""
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
        """Whether a commit that was fetched is a later one than `old`: as far as can be found out."""
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
        """When each file was written, as far as the commits tell that were fetched."""
        try:
            said = self.git.local("log", f"--max-count={_PAST[-1]}", *LOGGED, commit)
        except GitFailed:  # then they are from now
            return {}
        return parse_log_times(said.decode("utf-8", "replace"))

    def push(self, remote: RemoteAddress, branch: str, commit: str) -> None:
        """Send a commit; `Behind` when somebody else was faster."""
        words = ["push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-signed"]
        target = f"{commit}:refs/heads/{branch}"
        self.git.far(remote, *words, "--", remote.given, target, pushing=True)

    def tidy(self) -> None:
        """Put many small packs together; that it fails costs nothing but space."""
        if sum(1 for _ in self._objects.packs.glob("*.pack")) > _PACKS:
            with contextlib.suppress(GitFailed):
                self.git.far(RemoteAddress(str(self.path)), "gc", "--quiet")

    # --- reading --------------------------------------------------------------------------------------

    def tree(self, commit: str | None) -> CommitTree:
        """Everything in a commit that was fetched."""
        if commit is None:
            return CommitTree()
        root = self._roots[commit]
        if self._walked[0] != root:  # a session asks again and again, and mostly nothing is new
            self._walked = root, walk_tree(root, self._batch, self.sizes, self.git.go_on)
        return self._walked[1]

    def sizes(self, ids: Sequence[str]) -> dict[str, int]:
        """How large these objects are, without reading them; what is missing is left out."""
        if new := [id for id in dict.fromkeys(ids) if id not in self._sizes]:
            given = "".join(f"{id}\n" for id in new).encode("ascii")
            said = self.git.local("cat-file", "--batch-check", "--buffer", given=given)
            rows = [line.split() for line in said.decode("ascii", "replace").splitlines()]
            self._sizes |= {row[0]: int(row[2]) for row in rows if len(row) == 3}
        return {id: self._sizes[id] for id in ids if id in self._sizes}

    def read(self, ids: Sequence[str]) -> dict[str, bytes]:
        """The bytes of these objects; what is missing is left out."""
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
        """A commit with these files changed (None: gone); everything in it has been looked through."""
        if b"" in tree.unread:
            raise GitFailed(f"nothing can be sent: {tree.cut}")
        put = self._objects.put
        ids = {
            file.encode("utf-8"): None if data is None else put(BLOB, data).hex()
            for file, data in changes.items()
        }
        root = edit_tree(tree.folders, ids, lambda raw: put(TREE, raw))
        name, email = self.author()
        who = f"{name} <{email}> {max(0, int(at))} +0000"
        lines = [f"tree {(root or put(TREE, b'')).hex()}"]
        lines += [f"parent {parent}"] if parent else []
        text = "\n".join([*lines, f"author {who}", f"committer {who}", "", message, ""])
        new = put(COMMIT, text.encode("utf-8"))
        self._objects.flush()
        return new.hex()

    def author(self) -> tuple[str, str]:
        """Who commits: as the user's git says, or nobody in particular."""
        from sevenfold.memory.guard.secrets import find_secrets

        found: dict[str, str] = {}
        with contextlib.suppress(GitFailed):  # it fails when there is none
            said = self.git.local("config", "--null", "--get-regexp", r"^user\.(name|email)$")
            for row in said.decode("utf-8", "replace").split("\0"):
                key, _, value = row.partition("\n")
                found[key] = " ".join("".join(c for c in value if c not in "<>").split())
        name, email = found.get("user.name", ""), found.get("user.email", "")
        if find_secrets(f"{name} {email}"):
            return _NOBODY
        return name or _NOBODY[0], email or _NOBODY[1]


def _parsed(said: bytes) -> dict[str, bytes]:
    """What `cat-file --batch` prints: a line about each object, then the object."""
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


ReadTexts = Callable[[Sequence[str]], Mapping[str, bytes]]


class BlobTexts:
    """Reads each text once."""

    def __init__(self, read: ReadTexts) -> None:
        self._read = read
        self._known: dict[str, bytes | None] = {"": None}

    def want(self, ids: Iterable[str]) -> None:
        """Have these at hand."""
        new = [id for id in dict.fromkeys(ids) if id not in self._known]
        if new:
            found = self._read(new)
            self._known |= {id: found.get(id) for id in new}

    def get(self, id: str) -> bytes | None:
        """A text; None when the repository does not have it."""
        self.want([id])
        return self._known[id]
