"""Work trees: a folder and a branch of its own for an agent, made and removed by the git binary.

    trees = Worktrees(tree, folder, program, environment, trusted=True)
    mine = await trees.make("a1")          branch sevenfold/a1, from the commit that is checked out
    await trees.join(mine.path, "a2")      another agent works in it, too
    await trees.leave(mine)                "removed …", or "kept …" with what is in it and where
    await trees.tidy()                     what a crash left behind, by the same rule; in words

One is removed only if nothing in it could be somebody's work: no changed, new or ignored file, no commit
more than it began with, no merge or rebase under way, no submodule checked out. Ignored files count,
because a fresh work tree has none: whatever is there was made by the agent. Only what any tool makes again
at once (`CACHES`) goes with the folder.

Which work trees there are, and whether somebody is in one: a file for each, locked while it is
used. Runs the git binary for the work trees of agents: no hooks, no prompts, nothing taken from the
caller.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio.abc import ByteReceiveStream

from sevenfold.core.errors import Mistake, Refused, SevenfoldError, StorageFailure
from sevenfold.layers.l7_agents.locks import WorktreeLock
from sevenfold.storage.files import (
    CLOEXEC,
    NOFOLLOW,
    PRIVATE_FILE,
    make_private_dir,
    make_storage_failure,
    write_all,
)
from sevenfold.tools.processes import end_groups

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

ENDING: Final = ".json"
BRANCHES: Final = "sevenfold/"
"""How the branches of agents begin."""
_LARGEST: Final = 1 << 16
_ID: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){0,99}"


class Worktree(msgspec.Struct, frozen=True):
    """A folder with files of its own, on a branch of its own."""

    id: str
    path: Path
    branch: str
    began: str
    """The commit that it was made from."""
    ready: bool = True
    """False while it is being made: nobody has worked in it."""
    told: bool = False
    """Whether somebody was told that it stays."""


class _WorktreeRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    branch: str
    began: str
    ready: bool
    told: bool = False


def check_agent_id(id: str) -> str:
    """The id, if it can name a folder and a branch."""
    if not re.fullmatch(_ID, id) or id.endswith((".", ".lock", ENDING)):
        raise Mistake(f"{id[:60]!r} cannot name a work tree: use letters, digits, '-', '_' and single dots")
    return id


class WorktreeRecords:
    """The files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held: dict[str, int] = {}

    def begin(self, id: str, began: str) -> Worktree:
        """Write down a new one and hold it; `Mistake` when the id is taken."""
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

    def made(self, worktree: Worktree) -> Worktree:
        """From now on somebody works in it."""
        ready = msgspec.structs.replace(worktree, ready=True)
        self._write(self._held[worktree.id], ready)
        return ready

    def told(self, worktree: Worktree) -> None:
        """Somebody knows now that it stays. Only for one that is held."""
        if not worktree.told:
            self._write(self._held[worktree.id], msgspec.structs.replace(worktree, told=True))

    def holds(self, id: str) -> bool:
        """Whether it is held here."""
        return id in self._held

    def hold(self, id: str) -> bool:
        """Take one that nobody is in; False when somebody is, here or elsewhere, or it is not there."""
        if id in self._held:
            return False
        fd = self._opened(id)
        if fd is None:
            return False
        self._held[id] = fd
        return True

    def read(self, id: str) -> Worktree | None:
        """What is written down; None when it is damaged. Only for one that is held."""
        data = os.pread(self._held[id], _LARGEST, 0)
        try:
            record = msgspec.json.decode(data, type=_WorktreeRecord)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        path = self.folder / id
        return Worktree(id, path, record.branch, record.began, record.ready, record.told)

    def let_go(self, id: str) -> None:
        """Somebody else may have it now."""
        if (fd := self._held.pop(id, None)) is not None:
            os.close(fd)

    def forget(self, id: str) -> None:
        """It is no more."""
        with contextlib.suppress(OSError):  # one that stays is found empty-handed the next time
            self._path(id).unlink()
        self.let_go(id)

    def ids(self) -> list[str]:
        """Of all that are written down, in order; somebody may be in them."""
        try:
            names = sorted(path.name for path in self.folder.iterdir())
        except OSError:
            return []
        ids = (name.removesuffix(ENDING) for name in names if name.endswith(ENDING))
        return [id for id in ids if re.fullmatch(_ID, id)]

    def _path(self, id: str) -> Path:
        return self.folder / f"{id}{ENDING}"

    def _created(self, id: str) -> int | None:
        """A new file, locked before anybody can take it for one that was left behind."""
        while True:
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | NOFOLLOW | CLOEXEC
                fd = os.open(self._path(id), flags, PRIVATE_FILE)
            except FileExistsError:
                return None
            except OSError as error:
                raise make_storage_failure(error, self._path(id)) from error
            if self._locked(fd, id, wait=True):
                return fd

    def _opened(self, id: str) -> int | None:
        try:
            fd = os.open(self._path(id), os.O_RDWR | NOFOLLOW | CLOEXEC)
        except OSError:
            return None
        return fd if self._locked(fd, id, wait=False) else None

    def _locked(self, fd: int, id: str, *, wait: bool) -> bool:
        """Lock a file that still has its name; it is closed when that cannot be had."""
        if fcntl is None:  # nobody can tell whether somebody is in it
            if not wait:
                os.close(fd)
            return wait
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            named = self._path(id).lstat()
            if named.st_ino == os.fstat(fd).st_ino:
                return True
        except OSError:
            pass
        os.close(fd)
        return False

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


SECONDS: Final = 300.0
"""How long one command may take: a large project is written out whole."""
_SAFE: Final = (
    f"core.hooksPath={os.devnull}",
    "core.fsmonitor=false",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
)
_ALWAYS: Final = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_PAGER": "cat", "LC_ALL": "C"}
_PASSED_ON: Final = frozenset(
    {"GIT_EXEC_PATH", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"}
)
_REASON: Final = ("fatal: ", "error: ")
_LONGEST: Final = 300


class GitRun(msgspec.Struct, frozen=True):
    """How a command ended."""

    code: int
    out: bytes
    why: str = ""
    """What git gave as the reason, on one line."""

    @property
    def text(self) -> str:
        return os.fsdecode(self.out).strip()


class WorktreeGit:
    """The program, and what it gets to see."""

    def __init__(
        self, program: str | None, environment: Mapping[str, str], *, seconds: float = SECONDS
    ) -> None:
        """`program` is its path, None where there is none. `environment` is what commands get to see."""
        self._program, self._seconds = program, seconds
        kept = {
            name: value
            for name, value in environment.items()
            if not name.startswith("GIT_") or name in _PASSED_ON
        }
        self._environment = {**kept, **_ALWAYS}

    async def ask(self, where: Path, *arguments: str | Path) -> GitRun:
        """Run a command in a folder, whatever comes of it."""
        if self._program is None:
            raise Mistake("git was not found; install it, or start the agent without isolation")
        options = [part for one in _SAFE for part in ("-c", one)]
        command = [self._program, *options, *(str(one) for one in arguments)]
        try:
            with anyio.fail_after(self._seconds):
                return await _run(command, where, self._environment)
        except TimeoutError:
            raise StorageFailure(
                f"git {arguments[0]} in {where} took longer than {self._seconds:.0f} seconds and was "
                "stopped; look what holds it up there"
            ) from None
        except OSError as error:
            raise StorageFailure(
                f"{self._program} could not be run in {where}: {(error.strerror or str(error)).lower()}; "
                "check that both are there"
            ) from error

    async def do(self, where: Path, *arguments: str | Path) -> GitRun:
        """The same, for what has to succeed."""
        done = await self.ask(where, *arguments)
        if done.code:
            raise StorageFailure(f"git {arguments[0]} in {where} failed: {done.why}")
        return done


async def _run(command: Sequence[str], where: Path, environment: Mapping[str, str]) -> GitRun:
    """To its end; when that is not waited for, whatever it has started is ended with it."""
    process = await anyio.open_process(
        command,
        stdin=subprocess.DEVNULL,  # nobody is there to answer
        cwd=where,
        env=environment,
        start_new_session=True,
    )
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
    """The lines in which git says why; all of them when none says so."""
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
"""Ignored files and folders of these names go with a work tree."""
_UNDER_WAY: Final = {
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "BISECT_LOG": "a bisection",
}
_NAMED: Final = 3
_PAUSE: Final = 0.1
"""Seconds before what git could not do is tried again: another git may have been in the way."""
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
        """`repository` is a folder of the project, `folder` is where the work trees go, `program` the path
        of git (None: there is none) and `environment` what it gets to see. Nothing is run before it is
        needed, and nothing at all where the project is not trusted: git does what its files say.
        """
        self._repository = repository
        self._git = WorktreeGit(program, environment, seconds=seconds)
        self._runs = trusted and program is not None
        self._trusted = trusted
        self._records = WorktreeRecords(folder)
        self._alone = WorktreeLock(folder, seconds)
        self._looking = anyio.Lock()
        """Had by whoever finds out whether one is free, until it has it or has let go of it."""
        self._inside: dict[str, set[str]] = {}
        """Which agents of this process work in which; one stays while there is any."""

    async def make(self, id: str) -> Worktree:
        """A new work tree on a new branch; what was begun of it is taken back when that fails."""
        check_agent_id(id)
        commit = await self._commit()
        worktree = self._records.begin(id, commit)
        begun = False
        try:
            begun = await self._branch(worktree)
            await self._add(worktree)
            self._inside[id] = {id}
            return self._records.made(worktree)
        except BaseException:
            self._inside.pop(id, None)
            with anyio.CancelScope(shield=True):
                if not begun or await self._taken_back(worktree):
                    self._records.forget(id)
                else:
                    self._records.let_go(id)
            raise

    async def tidy(self) -> list[str]:
        """Leave those that nobody is in any more. Says what was removed, and once of each that it stays.

        Each is looked at just before it is touched: somebody may have begun to work in it meanwhile.
        """
        said = list[str]()
        for id in self._records.ids() if self._runs else ():
            async with self._looking:
                if self._records.hold(id):
                    said.append(await self._tidied(id))
        return [text for text in said if text]

    async def take_up(self, id: str) -> Worktree | None:
        """One that was kept, to work in it again; None when it is not there or somebody is in it."""
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
        """The one with this folder, in which this agent works from now on beside whoever does already.

        None when it is not there, or somebody of another process is in it.
        """
        id = folder.name
        if folder != self._records.folder / id:
            return None
        async with self._looking:
            held = self._records.holds(id)
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
        """This agent (it is the tree's own unless told) works in it no more. Says what was done.

        The last one removes it if nothing is lost by that. Begins with `removed` or `kept`; empty when a
        guest goes and others stay. Not interrupted, and it raises nothing: it comes last.
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
        """The commit that is checked out; `Mistake` when there is no repository, or none in it."""
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
        """Make the branch, if there is none of that name."""
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
        """Add or remove one, while nobody else does; what fails is tried once more."""
        async with self._alone():
            done = await self._git.ask(self._repository, "worktree", what, *arguments)
            if not done.code:
                return done
            await anyio.sleep(_PAUSE)
            return await self._git.ask(self._repository, "worktree", what, *arguments)

    async def _taken_back(self, worktree: Worktree) -> bool:
        """Nobody has worked in it: away with whatever there is of it. Whether that could be done."""
        try:
            await self._change("remove", "--force", "--force", worktree.path)
            await self._git.ask(self._repository, "update-ref", "-d", _ref(worktree), worktree.began)
        except SevenfoldError:  # what went wrong first is what is told
            return False
        return not worktree.path.exists()

    # --- leaving --------------------------------------------------------------------------------------

    async def _tidied(self, id: str) -> str:
        """What became of one that nobody was in, if anybody has to know. It is held, and let go of."""
        worktree = self._records.read(id)
        if worktree is not None:
            said = await self._left(worktree)
            return said if said.startswith("removed") or not worktree.told else ""
        if (self._records.folder / id).exists():
            self._records.let_go(id)  # damaged; what is in the folder may be somebody's work
        else:
            self._records.forget(id)  # its process died before it made anything
        return ""

    async def _last_left(self, worktree: Worktree) -> str:
        self._inside.pop(worktree.id, None)
        if not self._records.holds(worktree.id) and not self._records.hold(worktree.id):
            return f"kept: somebody else is in {worktree.path}"
        return await self._left(worktree)

    async def _left(self, worktree: Worktree) -> str:
        """For one that is held: whatever comes of it, it is let go of, and that is said."""
        said = ""
        with anyio.CancelScope(shield=True):
            try:
                said = await self._left_by(worktree)
            except (SevenfoldError, OSError) as error:
                said = self._stays(worktree, f"it could not be looked through or removed: {error}")
        return said

    def _stays(self, worktree: Worktree, why: str) -> str:
        with contextlib.suppress(StorageFailure):  # then it is told once more
            self._records.told(worktree)
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
        """What in the folder could be somebody's work; empty: nothing."""
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
        """How many commits it has that were not there when it began."""
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
        """Without force git looks once more by itself; it never removes one with submodules, though."""
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
    """The files that count, of what `git status -z` says."""
    parts = iter(status.split("\0"))
    for part in parts:
        state, path = part[:2], part[3:]
        if state[:1] in ("R", "C"):
            next(parts, None)  # where it was before
        inner = path.rstrip("/").split("/")
        if state == "!!" and (not CACHES.isdisjoint(inner) or path.endswith(".pyc")):
            continue
        if path:
            yield path
