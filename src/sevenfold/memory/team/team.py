"""A team memory: starts or joins a team, synchronises, reports its status.

    team = Team(store, SystemClock(), environment)
    team.join("git@example.org:team/memory.git", Path.cwd())
    team.sync()                      SyncResult(pulled=…, pushed=…, conflicts=…, refused=…, offline=None)

All functions wait for git and the network: callers run them in threads. A sync that cannot reach the remote
says so in its result; only errors on this machine, or in what was asked for, are raised.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from sevenfold.core.errors import Mistake, Refused, StorageFailure
from sevenfold.core.protocols import Clock
from sevenfold.memory.folder.folder import FolderTransaction
from sevenfold.memory.folder.names import INDEX_NAME, TEAM, is_copy
from sevenfold.memory.guard.secrets import find_secrets
from sevenfold.memory.store import MemoryStore
from sevenfold.memory.team import STATE
from sevenfold.memory.team.files import MOST
from sevenfold.memory.team.git import (
    GitFailed,
    LastSync,
    RefusedFile,
    RemoteAddress,
    SyncResult,
    TeamGit,
    TeamStatus,
    format_foreign_name,
    limit_refusals,
    parse_address,
)
from sevenfold.memory.team.repository import SHA256, RemoteHeads, TeamRepository
from sevenfold.memory.team.state import LocalFiles, TeamState, TeamStateFile, read_local_files, release_key
from sevenfold.memory.team.sync import RemoteState, SyncRun, hold_sync_lock
from sevenfold.storage.files import read_if_there

_CONFIG: Final = 1 << 20
_NOT_BARE: Final = re.compile(r"^\s*bare\s*=\s*(false|no|off|0)\s*$", re.IGNORECASE | re.MULTILINE)
_SHA256: Final = re.compile(r"^\s*objectformat\s*=\s*sha256\s*$", re.IGNORECASE | re.MULTILINE)


def check_remote_place(address: RemoteAddress, project: Path | None) -> None:
    """`Mistake` if a folder on this machine cannot be pushed to, with the fix."""
    if not address.path:
        return
    place, shown = Path(address.path), address.shown
    if project is not None and Path(os.path.realpath(place)).is_relative_to(os.path.realpath(project)):
        raise Mistake(
            f"{shown} lies inside the project, where it would become a part of it: use a folder outside"
        )
    config = _config(place)
    if (place / ".git").exists() or (config and _NOT_BARE.search(config)):
        work = place.parent if place.name == ".git" else place
        raise Mistake(
            f"{shown} has a working folder, and git accepts no push to such a repository: make a bare one "
            f"with 'git clone --bare {work} {work}.git' and use that"
        )
    if _SHA256.search(config):
        raise Mistake(SHA256.format(shown))


def _config(place: Path) -> str:
    """The configuration of a repository; empty if there is none."""
    if not (place / "HEAD").is_file():
        return ""
    try:
        data = read_if_there(place / "config", _CONFIG)
    except StorageFailure:
        data = None
    return (data or b"").decode("utf-8", "replace")


class Team:
    """The team memory of one memory folder. Nothing is made or run before it is needed."""

    def __init__(
        self,
        store: MemoryStore,
        clock: Clock,
        environment: Mapping[str, str],
        *,
        project: Path | None = None,
        most: int = MOST,
        pause: Callable[[float], None] | None = None,
        plain: bool = False,
    ) -> None:
        """`environment` is for git: PATH, HOME, the ssh agent. The remote must not lie in `project`. `most`
        is the limit of files. `pause` waits before another try to push. `plain`: the remote may be reached
        over http:// and git://."""
        self.store, self._clock, self._most, self._pause = store, clock, most, pause
        self._project = project
        self._handled: dict[str, str] | None = None
        self._looked: object = None
        self._folder = store.local / STATE
        self._file = TeamStateFile(self._folder)
        repository = self._folder / "repository"
        self._git = TeamGit(repository, self._folder, environment, plain=plain)
        self._repository = TeamRepository(repository, self._git)

    @property
    def joined(self) -> bool:
        """True if this memory is shared with a team."""
        return self._file.there()

    @property
    def last(self) -> LastSync:
        """The result of the last sync."""
        state = self._file.load()
        return LastSync(state.synced, state.offline)

    # --- begin ----------------------------------------------------------------------------------------

    def init(self, remote: str, start: Path) -> SyncResult:
        """Start a team in an empty repository; a missing folder on this machine is made."""
        address, known = self._address(remote, start), self._known(remote, start)
        with self._alone():
            self._repository.prepare()
            place = Path(address.path)
            made = bool(address.path) and not (
                place.exists() and (not place.is_dir() or any(place.iterdir()))
            )
            if made:
                self._repository.make(address.path)
            heads = self._repository.heads(address)
            if heads.branches:
                if known is not None:
                    return self._run(known, "the team is there already")
                raise Mistake(
                    f"{address.shown} is not empty: 'sevenfold team join' joins the team that it holds"
                )
            released = known.released if known else set[str]()
            state = TeamState(address.given, address.path, released=released)
            return self._begin(state, f"made the repository {address.shown}" if made else "")

    def join(self, remote: str, start: Path) -> SyncResult:
        """Join the team of a repository; files in the folder are merged in."""
        address, known = self._address(remote, start), self._known(remote, start)
        with self._alone():
            self._repository.prepare()
            if known is not None:
                return self._run(known, "you had joined this team already")
            heads = self._repository.heads(address)
            if not heads.branches:  # a team without a memory yet
                state = TeamState(address.given, address.path)
                return self._begin(state, f"{address.shown} is empty: yours will be the first memory")
            return self._begin(TeamState(address.given, address.path, _branch(heads, address)), "")

    def _address(self, remote: str, start: Path) -> RemoteAddress:
        address = parse_address(remote, start)
        if address.weakness and not self._git.plain:
            raise Refused(address.weakness)
        for folder in (self.store.path_of(), self.store.local):
            if address.path and Path(address.path).is_relative_to(folder):
                raise Mistake(f"{address.shown} is a part of the memory itself; use another folder")
        check_remote_place(address, self._project)
        return address

    def _known(self, remote: str, start: Path) -> TeamState | None:
        if not self.joined:
            return None
        known = self._file.load()
        if known.remote != parse_address(remote, start).given:
            raise Mistake(
                f"this memory is shared already, with the team at {_shown(known)}; to leave that team "
                f"move {self._folder} away"
            )
        return known

    def _begin(self, state: TeamState, note: str) -> SyncResult:
        self.store.changing(_make_folder)
        self._file.save(state)
        return self._run(state, note)

    # --- go on ----------------------------------------------------------------------------------------

    def sync(self) -> SyncResult:
        """Take what the team changed and send what changed here."""
        if not self.joined:
            self._file.load()  # raises `NoTeam`
        try:
            with self._alone():
                return self._run(self._file.load())
        except GitFailed as error:
            return SyncResult(offline=str(error))

    def unsent(self) -> bool:
        """True if files here changed since the last sync. Files with unchanged stamps are not read."""
        files = self.store.listing().files
        stamps = {file: stamp for file, stamp in files.items() if file.startswith(TEAM)}
        if stamps == self._looked:
            return False
        ours = self.store.changing(read_local_files)
        known = self._handled if self._handled is not None else self._file.load().agreed
        if ours.ids != known:
            return True
        self._looked = stamps
        return False

    def stop(self) -> None:
        """End a sync in another thread for good; the next process does the rest."""
        self._git.stop()

    def status(self) -> TeamStatus:
        """The state here and in the remote; `offline` if the remote cannot be reached."""
        state = self._file.load()
        sync = self._sync(state)
        remote, offline = None, state.offline
        try:
            with self._alone():
                self._repository.prepare()
                remote, offline = sync.look(), None
        except GitFailed as error:
            offline = str(error)
        ours = self.store.changing(read_local_files)
        refused, more = state.refused, state.more_refused
        held = {one.file for one in refused if one.side == "here"} if remote is None else set[str]()
        if remote is not None:
            offer = sync.plan_push(remote, ours)
            left = [RefusedFile(file, one.why, "remote") for file, one in state.left.items()]
            every = [*remote.incoming.refused, *left, *offer.refused]
            refused, more = limit_refusals(every)
            held |= {one.file for one in every if one.side == "here"}
        ahead = [file for file in _ahead(state, ours) if file not in held]
        behind = _behind(state, remote) if remote is not None else ()
        return TeamStatus(
            _shown(state),
            state.branch,
            tuple(format_foreign_name(file) for file in ahead if format_foreign_name(file) not in held),
            tuple(map(format_foreign_name, behind)),
            tuple(map(format_foreign_name, sorted(filter(is_copy, ours.files)))),
            refused,
            more,
            state.synced,
            offline,
        )

    def release(self, file: str) -> None:
        """Let exactly this text pass from now on, although it looks like a secret."""
        file = file.removeprefix(TEAM)
        with self._alone():
            state = self._file.load()
            state.released |= {release_key(data) for data in self._held_back(file, state)}
            state.left.pop(file, None)
            self._file.save(state)

    def check_release(self, file: str) -> None:
        """`Mistake` if there is nothing to release in this file."""
        with self._alone():
            self._held_back(file.removeprefix(TEAM), self._file.load())

    def _held_back(self, file: str, state: TeamState) -> list[bytes]:
        """The texts of a file, and its name, that look like secrets."""
        ours, left = self.store.changing(read_local_files), state.left.get(file)
        theirs = self._repository.read([left.id]).get(left.id) if left else None
        texts = [data for data in (ours.files.get(file), theirs) if data is not None]
        found = [data for data in texts if find_secrets(data.decode("utf-8", "replace"))]
        found += [file.encode("utf-8", "surrogateescape")] if find_secrets(file) else []
        if not found:
            raise Mistake(
                f"there is nothing to release in {file}: it is not there, or holds no secret; "
                "'sevenfold team status' names what was refused"
            )
        return found

    # --- inside ---------------------------------------------------------------------------------------

    def _alone(self) -> AbstractContextManager[None]:
        return hold_sync_lock(self._folder / "sync.lock", lambda: self._git.stopped)

    def _sync(self, state: TeamState) -> SyncRun:
        return SyncRun(
            self.store, self._repository, self._file, state, self._clock, self._most, self._pause
        )

    def _run(self, state: TeamState, note: str = "") -> SyncResult:
        sync = self._sync(state)
        sync.note = note
        synced = sync.run()
        self._handled = sync.seen if synced.offline is None else None
        return synced


def _make_folder(desk: FolderTransaction) -> None:
    desk.at.make_folder(TEAM.rstrip("/"))


def _shown(state: TeamState) -> str:
    return RemoteAddress(state.remote, state.path).shown


def _branch(heads: RemoteHeads, address: RemoteAddress) -> str:
    for name in (heads.main, "main", "master"):
        if name in heads.branches:
            return name
    if len(heads.branches) == 1:
        return heads.branches[0]
    raise Mistake(f"{address.shown} has several branches and none of them is its main one")


def _ahead(state: TeamState, ours: LocalFiles) -> tuple[str, ...]:
    every = {*ours.files, *state.agreed} - {INDEX_NAME}
    changed = [file for file in every if ours.ids.get(file) != state.agreed.get(file)]
    return tuple(sorted(file for file in changed if not ours.explain_block(file)))


def _behind(state: TeamState, remote: RemoteState) -> tuple[str, ...]:
    files, left = remote.incoming.files, state.left
    every = {*files, *state.agreed} - {INDEX_NAME}
    changed = [file for file in every if files.get(file) != state.agreed.get(file)]
    changed = [file for file in changed if not remote.incoming.unknown(file)]
    return tuple(sorted(file for file in changed if file not in left or left[file].id != files.get(file)))
