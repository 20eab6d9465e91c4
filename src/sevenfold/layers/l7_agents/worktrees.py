"""Work trees: a folder and a branch of its own for an agent, made and removed by the git binary.

    trees = Worktrees(tree, folder, program, environment, trusted=True)
    mine = await trees.make("a1")          branch sevenfold/a1, from the commit that is checked out
    await trees.join(mine.path, "a2")      another agent works in it, too
    await trees.leave(mine)                "removed …", or "kept …" with what is in it and where
    await trees.tidy()                     removes what a crash left behind, by the same rule

A work tree is removed only if no work can be lost: no changed, new or ignored file, no new commit, no merge
or rebase under way, no submodule checked out. Ignored files count, because a fresh work tree has none. Only
files that tools make again (`CACHES`) are removed with the folder.

Each work tree has a record, a file that is locked while an agent works in it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio.abc import ByteReceiveStream

from sevenfold.core.errors import Mistake, Refused, SevenfoldError, StorageFailure
from sevenfold.layers.l7_agents.mailbox import WorktreeLock
from sevenfold.storage.files import make_private_dir, make_storage_failure, write_all
from sevenfold.storage.git import GitProgram
from sevenfold.storage.locks import take_lock
from sevenfold.tools.processes import end_groups

ENDING: Final = ".json"
BRANCHES: Final = "sevenfold/"  # Prefix of the branches of agents
_LARGEST: Final = 1 << 16
_ID: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){0,99}"


class Worktree(msgspec.Struct, frozen=True):
    """A folder with its own files, on its own branch."""

    id: str
    path: Path
    branch: str
    began: str  # The commit that it was made from
    ready: bool = True  # False while it is being made: no agent has worked in it
    told: bool = False  # True once the user was told that it stays


class _WorktreeRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    branch: str
    began: str
    ready: bool
    told: bool = False


def check_agent_id(id: str) -> str:
    """The id; `Mistake` if it cannot name a folder and a branch."""
    if not re.fullmatch(_ID, id) or id.endswith((".", ".lock", ENDING)):
        raise Mistake(f"{id[:60]!r} cannot name a work tree: use letters, digits, '-', '_' and single dots")
    return id


class WorktreeRecords:
    """The records of the work trees in one folder. A record is held while it is locked by us."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held: dict[str, int] = {}

    def begin(self, id: str, began: str) -> Worktree:
        """Write a new record and hold it; `Mistake` if the id is taken."""
        worktree = Worktree(id, self.folder / id, f"{BRANCHES}{id}", began, ready=False)
        make_private_dir(self.folder)
        if os.path.lexists(worktree.path) or (fd := self._created(id)) is None:
            raise Mistake(
                f"there is a work tree {worktree.path} already; give the agent another id, or remove it "
                f"with 'git worktree remove {worktree.path}'"
            )
        self._held[id] = fd
        try:
            self._write(fd, worktree)
        except StorageFailure:
            self.forget(id)
            raise
        return worktree

    def mark_ready(self, worktree: Worktree) -> Worktree:
        """Record that the work tree is complete."""
        ready = msgspec.structs.replace(worktree, ready=True)
        self._write(self._held[worktree.id], ready)
        return ready

    def mark_told(self, worktree: Worktree) -> None:
        """Record that the user was told that it stays. Only for one that is held."""
        if not worktree.told:
            self._write(self._held[worktree.id], msgspec.structs.replace(worktree, told=True))

    def is_held(self, id: str) -> bool:
        return id in self._held

    def hold(self, id: str) -> bool:
        """Hold a record; False if it is held, here or by another process, or does not exist."""
        if id in self._held:
            return False
        fd = self._opened(id)
        if fd is None:
            return False
        self._held[id] = fd
        return True

    def read(self, id: str) -> Worktree | None:
        """The work tree of a record that is held; None if the record is damaged."""
        data = os.pread(self._held[id], _LARGEST, 0)
        try:
            record = msgspec.json.decode(data, type=_WorktreeRecord)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        path = self.folder / id
        return Worktree(id, path, record.branch, record.began, record.ready, record.told)

    def let_go(self, id: str) -> None:
        """Release a record."""
        if (fd := self._held.pop(id, None)) is not None:
            os.close(fd)

    def forget(self, id: str) -> None:
        """Remove a record and release it."""
        with contextlib.suppress(OSError):  # if it stays, `tidy` removes it
            self._path(id).unlink()
        self.let_go(id)

    def ids(self) -> list[str]:
        """The ids of all records in order, held or not."""
        try:
            names = sorted(path.name for path in self.folder.iterdir())
        except OSError:
            return []
        ids = (name.removesuffix(ENDING) for name in names if name.endswith(ENDING))
        return [id for id in ids if re.fullmatch(_ID, id)]

    def _path(self, id: str) -> Path:
        return self.folder / f"{id}{ENDING}"

    def _created(self, id: str) -> int | None:
        """Make a new record and lock it; None if there is one of that name."""
        try:
            return take_lock(self._path(id), flags=os.O_CREAT | os.O_EXCL)
        except StorageFailure as error:
            if isinstance(error.__cause__, FileExistsError):
                return None
            if isinstance(error.__cause__, OSError):
                raise make_storage_failure(error.__cause__, self._path(id)) from error
            raise

    def _opened(self, id: str) -> int | None:
        try:
            return take_lock(self._path(id), wait=0.0, flags=0)
        except StorageFailure:
            return None

    def _write(self, fd: int, worktree: Worktree) -> None:
        record = _WorktreeRecord(worktree.branch, worktree.began, worktree.ready, worktree.told)
        data = msgspec.json.encode(record) + b"\n"
        try:
            os.lseek(fd, 0, os.SEEK_SET)
            write_all(fd, data)
            os.ftruncate(fd, len(data))
            os.fsync(fd)
        except OSError as error:
            raise make_storage_failure(error, self._path(worktree.id)) from error


SECONDS: Final = 300.0  # Seconds for one command: a large project is written out whole
_REASON: Final = ("fatal: ", "error: ")
_LONGEST: Final = 300


class GitRun(msgspec.Struct, frozen=True):
    """The result of a command."""

    code: int
    out: bytes
    why: str = ""  # The reason that git printed, on one line

    @property
    def text(self) -> str:
        return os.fsdecode(self.out).strip()


class WorktreeGit:
    """Runs git in the folders of a project."""

    def __init__(
        self, program: str | None, environment: Mapping[str, str], *, seconds: float = SECONDS
    ) -> None:
        """`program` is the path of git, None if it is not installed."""
        self._program = None if program is None else GitProgram(program, environment)
        self._seconds = seconds

    async def ask(self, where: Path, *arguments: str | Path) -> GitRun:
        """Run a command in a folder; it may fail."""
        if self._program is None:
            raise Mistake("git was not found; install it, or start the agent without isolation")
        try:
            with anyio.fail_after(self._seconds):
                return await _run(self._program, [str(one) for one in arguments], where)
        except TimeoutError:
            raise StorageFailure(
                f"git {arguments[0]} in {where} took longer than {self._seconds:.0f} seconds and was "
                "stopped; look what holds it up there"
            ) from None
        except OSError as error:
            raise StorageFailure(
                f"{self._program.path} could not be run in {where}: "
                f"{(error.strerror or str(error)).lower()}; check that both are there"
            ) from error

    async def do(self, where: Path, *arguments: str | Path) -> GitRun:
        """Run a command that has to succeed."""
        done = await self.ask(where, *arguments)
        if done.code:
            raise StorageFailure(f"git {arguments[0]} in {where} failed: {done.why}")
        return done


async def _run(program: GitProgram, words: Sequence[str], where: Path) -> GitRun:
    """Run a command to its end; if that is not waited for, all processes it has started are ended."""
    process = await program.start_async(words, where)
    out, said = bytearray(), bytearray()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_drain, process.stdout, out)
            tasks.start_soon(_drain, process.stderr, said)
            await process.wait()
    except BaseException:
        await end_groups({process.pid})
        raise
    finally:
        with anyio.CancelScope(shield=True):
            await process.aclose()
    return GitRun(process.returncode or 0, bytes(out), _reason(bytes(said)))


async def _drain(stream: ByteReceiveStream | None, into: bytearray) -> None:
    if stream is not None:
        async for chunk in stream:
            into += chunk


def _reason(stderr: bytes) -> str:
    """The lines with git's reason; all lines if none is marked as such."""
    lines = [line.strip() for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    given = [line for line in lines if line.startswith(_REASON)] or lines
    said = "; ".join(
        dict.fromkeys(line.split(": ", 1)[-1] if line.startswith(_REASON) else line for line in given)
    )
    said = "".join(letter if letter.isprintable() else " " for letter in said)
    return said[:_LONGEST] or "it gave no reason"


CACHES: Final = frozenset(
    {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox"}
    | {"node_modules", ".venv", "venv", ".gradle", ".DS_Store", ".coverage"}
)
"""Ignored files and folders of these names are removed with a work tree."""
_UNDER_WAY: Final = {
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "BISECT_LOG": "a bisection",
}
_NAMED: Final = 3
_PAUSE: Final = 0.1  # Seconds before a second try: another git process may have been in the way
_SUBMODULES: Final = "containing submodules"
_STATUS: Final = ("--porcelain=v1", "-z", "--untracked-files=all", "--ignored=matching")


class Worktrees:
    """The work trees of one project's agents. Several sessions may use the same folder."""

    def __init__(
        self,
        repository: Path,
        folder: Path,
        program: str | None,
        environment: Mapping[str, str],
        *,
        trusted: bool,
        seconds: float = SECONDS,
    ) -> None:
        """`repository` is a folder of the project, `folder` is for the work trees, `program` is the path of
        git (None: not installed). Git is not run in a project that is not `trusted`: it does what the
        files of a repository say.
        """
        self._repository = repository
        self._git = WorktreeGit(program, environment, seconds=seconds)
        self._runs = trusted and program is not None
        self._trusted = trusted
        self._records = WorktreeRecords(folder)
        self._alone = WorktreeLock(folder, seconds)
        self._looking = anyio.Lock()
        """Held while a task checks whether a work tree is free, and takes or releases it."""
        self._inside: dict[str, set[str]] = {}  # The agents of this process in each work tree

    async def make(self, id: str) -> Worktree:
        """Make a work tree on a new branch; a failure leaves nothing behind."""
        check_agent_id(id)
        commit = await self._commit()
        worktree = self._records.begin(id, commit)
        begun = False
        try:
            begun = await self._branch(worktree)
            await self._add(worktree)
            self._inside[id] = {id}
            return self._records.mark_ready(worktree)
        except BaseException:
            self._inside.pop(id, None)
            with anyio.CancelScope(shield=True):
                if not begun or await self._taken_back(worktree):
                    self._records.forget(id)
                else:
                    self._records.let_go(id)
            raise

    async def tidy(self) -> list[str]:
        """Remove work trees without agents, and say so; one that stays is mentioned once.

        Each is checked again just before: an agent may have started to work in it.
        """
        said = list[str]()
        for id in self._records.ids() if self._runs else ():
            async with self._looking:
                if self._records.hold(id):
                    said.append(await self._tidied(id))
        return [text for text in said if text]

    async def take_up(self, id: str) -> Worktree | None:
        """A work tree that was kept, to work in it again; None if it is missing or in use."""
        async with self._looking:
            if not self._records.hold(check_agent_id(id)):
                return None
            worktree = self._records.read(id)
            if worktree is None or not worktree.ready or not worktree.path.is_dir():
                self._records.let_go(id)
                return None
            self._inside[id] = {id}
            return worktree

    async def join(self, folder: Path, who: str) -> Worktree | None:
        """Let an agent work in the work tree of this folder, beside those who do already.

        None if it is missing, or in use by another process.
        """
        id = folder.name
        if folder != self._records.folder / id:
            return None
        async with self._looking:
            held = self._records.is_held(id)
            if not held and not self._records.hold(id):
                return None
            worktree = self._records.read(id)
            if worktree is None or not worktree.ready or not worktree.path.is_dir():
                if not held:
                    self._records.let_go(id)
                return None
            self._inside.setdefault(id, set()).add(who)
            return worktree

    async def leave(self, worktree: Worktree, who: str = "") -> str:
        """End the work of an agent (by default the one it was made for), and say what was done.

        The last agent removes the work tree if no work is lost. The text begins with `removed` or `kept`;
        it is empty if a guest goes and others stay. Cannot be cancelled and raises nothing.
        """
        id, who = worktree.id, who or worktree.id
        said = ""
        with anyio.CancelScope(shield=True):
            async with self._looking:
                inside = self._inside.get(id, set())
                inside.discard(who)
                if not inside:
                    said = await self._last_left(worktree)
                elif who == id:
                    said = _still_used(worktree, len(inside))
        return said

    # --- making ---------------------------------------------------------------------------------------

    async def _commit(self) -> str:
        """The commit that is checked out; `Mistake` if there is no repository or no commit."""
        where = self._repository
        if not self._trusted:
            raise Refused(
                f"no work tree is made: {where} is not trusted, and git does what the files of a "
                "repository say; if you know where they come from, run 'sevenfold trust'"
            )
        found = await self._git.ask(where, "rev-parse", "--git-dir")
        if found.code:
            raise Mistake(
                f"an agent can have no work tree of its own in {where}: {found.why}; start it without "
                "isolation, or make this a repository with 'git init' and a commit"
            )
        head = await self._git.ask(where, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        if head.code:
            raise Mistake(
                f"an agent can have no work tree of its own in {where}: nothing is committed there yet; "
                "make a first commit, or start it without isolation"
            )
        return head.text

    async def _branch(self, worktree: Worktree) -> bool:
        """Make the branch; `Mistake` if there is one of that name."""
        made = await self._git.ask(self._repository, "update-ref", _ref(worktree), worktree.began, "")
        if made.code:
            raise Mistake(
                f"the branch {worktree.branch} could not be made: {made.why}; give the agent another id, "
                "or rename or delete the branch that is in the way"
            )
        return True

    async def _add(self, worktree: Worktree) -> None:
        done = await self._change("add", "--quiet", worktree.path, worktree.branch)
        if done.code:
            raise StorageFailure(f"git worktree in {self._repository} failed: {done.why}")

    async def _change(self, what: str, *arguments: str | Path) -> GitRun:
        """Add or remove a work tree, under the lock; a failure is tried once more."""
        async with self._alone():
            done = await self._git.ask(self._repository, "worktree", what, *arguments)
            if not done.code:
                return done
            await anyio.sleep(_PAUSE)
            return await self._git.ask(self._repository, "worktree", what, *arguments)

    async def _taken_back(self, worktree: Worktree) -> bool:
        """Remove a work tree without work in it; False if that failed."""
        try:
            await self._change("remove", "--force", "--force", worktree.path)
            await self._git.ask(self._repository, "update-ref", "-d", _ref(worktree), worktree.began)
        except SevenfoldError:  # the first error is reported
            return False
        return not worktree.path.exists()

    # --- leaving --------------------------------------------------------------------------------------

    async def _tidied(self, id: str) -> str:
        """Remove or keep a work tree that is held; returns a sentence if the user needs it."""
        worktree = self._records.read(id)
        if worktree is not None:
            said = await self._left(worktree)
            return said if said.startswith("removed") or not worktree.told else ""
        if (self._records.folder / id).exists():
            self._records.let_go(id)  # damaged; the folder may hold work
        else:
            self._records.forget(id)  # its process died before it made anything
        return ""

    async def _last_left(self, worktree: Worktree) -> str:
        self._inside.pop(worktree.id, None)
        if not self._records.is_held(worktree.id) and not self._records.hold(worktree.id):
            return f"kept: somebody else is in {worktree.path}"
        return await self._left(worktree)

    async def _left(self, worktree: Worktree) -> str:
        """Remove or keep a work tree that is held, release it, and say what was done."""
        said = ""
        with anyio.CancelScope(shield=True):
            try:
                said = await self._left_by(worktree)
            except (SevenfoldError, OSError) as error:
                said = self._stays(worktree, f"it could not be looked through or removed: {error}")
        return said

    def _stays(self, worktree: Worktree, why: str) -> str:
        with contextlib.suppress(StorageFailure):  # then the user is told once more
            self._records.mark_told(worktree)
        self._records.let_go(worktree.id)
        return _kept(worktree, why)

    async def _left_by(self, worktree: Worktree) -> str:
        if not worktree.ready:
            if not await self._taken_back(worktree):
                return self._stays(worktree, "it was never finished, and could not be removed")
            self._records.forget(worktree.id)
            return f"removed {worktree.path}, which was never finished"
        there = worktree.path.is_dir()
        why = await self._work_in(worktree) if there else ""
        ahead = "" if why else await self._ahead(worktree, there)
        if there and (why or ahead):
            return self._stays(worktree, why or ahead)
        await self._remove(worktree)
        if ahead:
            self._records.forget(worktree.id)
            return f"kept the branch {worktree.branch}: {ahead}; its folder is gone"
        tip = await self._tip(worktree)
        if tip:
            await self._git.do(self._repository, "update-ref", "-d", _ref(worktree), tip)
        self._records.forget(worktree.id)
        return f"removed {worktree.path} and its branch: nothing was left in it"

    async def _work_in(self, worktree: Worktree) -> str:
        """The work in the folder, in words; empty if there is none."""
        at = worktree.path
        top = await self._git.ask(at, "rev-parse", "--show-toplevel", "--absolute-git-dir")
        lines = top.text.splitlines()
        if top.code or len(lines) != 2 or not _same(lines[0], at):
            return "it is no work tree of git any more"
        for name, what in _UNDER_WAY.items():
            if (Path(lines[1]) / name).exists():
                return f"{what} is under way in it"
        if (Path(lines[1]) / "modules").is_dir():
            return "a submodule was checked out in it"
        found = await self._git.do(at, "status", *_STATUS, "--ignore-submodules=none")
        files = list(_work(os.fsdecode(found.out)))
        if not files:
            return ""
        more = f" and {len(files) - _NAMED:,} more" if len(files) > _NAMED else ""
        return f"not committed: {', '.join(files[:_NAMED])}{more}"

    async def _ahead(self, worktree: Worktree, there: bool) -> str:
        """The new commits, in words; empty if there are none."""
        tips = [await self._tip(worktree)]
        if there:
            tips.append((await self._git.do(worktree.path, "rev-parse", "HEAD")).text)
        known = [tip for tip in tips if tip]
        if not known:
            return ""
        counted = await self._git.do(
            self._repository, "rev-list", "--count", *known, "--not", worktree.began
        )
        count = int(counted.text)
        return f"{count:,} {'commit' if count == 1 else 'commits'} of its own" if count else ""

    async def _tip(self, worktree: Worktree) -> str:
        found = await self._git.ask(self._repository, "rev-parse", "--verify", "--quiet", _ref(worktree))
        return "" if found.code else found.text

    async def _remove(self, worktree: Worktree) -> None:
        """Remove without force, so that git checks again; git needs force if there are submodules."""
        done = await self._change("remove", worktree.path)
        if done.code and _SUBMODULES in done.why:
            done = await self._change("remove", "--force", worktree.path)
        if done.code and worktree.path.exists():
            raise StorageFailure(f"{worktree.path} could not be removed: {done.why}")


def _same(one: str, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _ref(worktree: Worktree) -> str:
    return f"refs/heads/{worktree.branch}"


def _kept(worktree: Worktree, why: str) -> str:
    return (
        f"kept {worktree.path} on the branch {worktree.branch}: {why}. When it is no longer needed: "
        f"'git worktree remove {worktree.path}' and 'git branch -D {worktree.branch}'"
    )


def _still_used(worktree: Worktree, others: int) -> str:
    who = "another agent works" if others == 1 else f"{others:,} other agents work"
    return (
        f"kept {worktree.path} on the branch {worktree.branch}: {who} in it; the last of them removes it "
        "if nothing is left in it"
    )


def _work(status: str) -> Iterator[str]:
    """The files in the output of `git status -z` that are work."""
    parts = iter(status.split("\0"))
    for part in parts:
        state, path = part[:2], part[3:]
        if state[:1] in ("R", "C"):
            next(parts, None)  # the old path
        inner = path.rstrip("/").split("/")
        if state == "!!" and (not CACHES.isdisjoint(inner) or path.endswith(".pyc")):
            continue
        if path:
            yield path
