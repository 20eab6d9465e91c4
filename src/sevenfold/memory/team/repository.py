"""The bare repository of a team memory in the state folder: fetch, read, commit, push.

Only the newest commit of the remote is fetched, never its past. Nothing is ever checked out. Our commits
have the remote's newest one as their only parent, so that the history is a line and a push can only
add to it.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.errors import Mistake
from sevenfold.memory.repository.objects import BLOB, COMMIT, TREE, Objects
from sevenfold.memory.team.addresses import Address
from sevenfold.memory.team.git import Git
from sevenfold.memory.team.trees import Tree, edited, walked
from sevenfold.memory.team.values import GitFailed
from sevenfold.memory.team.writing_times import LOGGED, Written, times_in

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


class Heads(msgspec.Struct, frozen=True):
    """The branches of a remote, and which of them is the main one."""

    branches: tuple[str, ...]
    main: str = ""


class TeamRepository:
    """One repository of ours that stands for the team's."""

    def __init__(self, path: Path, git: Git) -> None:
        self.path, self.git = path, git
        self._objects = Objects(path)
        self._roots: dict[str, str] = {}
        self._sizes: dict[str, int] = {}
        self._walked: tuple[str, Tree] = "", Tree()

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
            Address(path, path), "init", "--quiet", "--bare", "--initial-branch=main", "--", path
        )

    def heads(self, remote: Address) -> Heads:
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
        return Heads(tuple(found), main if main in found else "")

    def fetch(self, remote: Address, branch: str, depth: int = 1) -> str | None:
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

    def descends(self, remote: Address, branch: str, tip: str, old: str) -> bool:
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

    def times(self, commit: str) -> dict[str, Written]:
        """When each file was written, as far as the commits tell that were fetched."""
        try:
            said = self.git.local("log", f"--max-count={_PAST[-1]}", *LOGGED, commit)
        except GitFailed:  # then they are from now
            return {}
        return times_in(said.decode("utf-8", "replace"))

    def push(self, remote: Address, branch: str, commit: str) -> None:
        """Send a commit; `Behind` when somebody else was faster."""
        words = ["push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-signed"]
        target = f"{commit}:refs/heads/{branch}"
        self.git.far(remote, *words, "--", remote.given, target, pushing=True)

    def tidy(self) -> None:
        """Put many small packs together; that it fails costs nothing but space."""
        if sum(1 for _ in self._objects.packs.glob("*.pack")) > _PACKS:
            with contextlib.suppress(GitFailed):
                self.git.far(Address(str(self.path)), "gc", "--quiet")

    # --- reading --------------------------------------------------------------------------------------

    def tree(self, commit: str | None) -> Tree:
        """Everything in a commit that was fetched."""
        if commit is None:
            return Tree()
        root = self._roots[commit]
        if self._walked[0] != root:  # a session asks again and again, and mostly nothing is new
            self._walked = root, walked(root, self._batch, self.sizes, self.git.go_on)
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
        tree: Tree,
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
        root = edited(tree.folders, ids, lambda raw: put(TREE, raw))
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
