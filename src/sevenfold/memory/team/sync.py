"""One sync of a team memory, and the syncs of a session.

    fetch     the newest commit of the remote, without its history
    take      merge it into the folder, file by file, under the store's lock      (pull.py)
    remember  the state of both sides, after the folder was written
    offer     the changes here, without secrets                                   (push.py)
    push      as the next commit of the remote; if another member was faster, from the top

Each step can be repeated: the next sync completes one that was killed. A session pulls at its start, and
pushes when its writes have paused and at its end. Only one sync of a folder runs at a time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from sevenfold.core.errors import SevenfoldError
from sevenfold.core.events import Emit, Notice
from sevenfold.core.protocols import Clock
from sevenfold.memory.folder.folder import FolderTransaction
from sevenfold.memory.folder.names import INDEX_NAME, TEAM
from sevenfold.memory.recall_results import DAY
from sevenfold.memory.store import MemoryStore
from sevenfold.memory.team.files import MOST, IncomingFiles, TeamScreen, screen_tree
from sevenfold.memory.team.git import (
    Behind,
    GitFailed,
    RefusedFile,
    RemoteAddress,
    SyncResult,
    limit_refusals,
)
from sevenfold.memory.team.pull import PullMerge, PullPlan
from sevenfold.memory.team.push import PushPlan, PushPlanner, format_commit_message
from sevenfold.memory.team.repository import BlobTexts, CommitTree, TeamRepository, WriteTime
from sevenfold.memory.team.state import (
    LocalFiles,
    TeamState,
    TeamStateFile,
    hash_blob,
    list_remarks,
    read_local_files,
)
from sevenfold.storage.locks import hold_lock

TRIES: Final = 8  # Number of tries to push when others are faster
_WAIT: Final = 0.2  # Seconds before the second try; more before each next one, and random
REWOUND: Final = (
    "the team's repository was set back, or begun anew: {} here were kept and are sent again; where it "
    "says something else, that is in a copy ('sevenfold team status' names it)"
)
VANISHED: Final = (
    "{} vanished from the team's repository at once: that is taken for an accident, and they were kept "
    "and are sent again. To remove them for all, remove less than half at a time"
)
RESTORED: Final = (
    "the folder of the team was empty: its files were brought back. To remove them for all, remove them "
    "one by one"
)


class RemoteState(msgspec.Struct, frozen=True):
    """The state of the remote."""

    tip: str | None
    tree: CommitTree
    incoming: IncomingFiles
    texts: BlobTexts
    rewound: bool = False  # True if the remote lost commits since the last sync
    times: dict[str, WriteTime] = {}  # The write times of its files, if any of them are new here


@dataclass(slots=True)
class SyncRun:
    """One sync, under the lock for syncs."""

    store: MemoryStore
    repository: TeamRepository
    file: TeamStateFile
    state: TeamState
    clock: Clock
    most: int = MOST
    pause: Callable[[float], None] | None = None
    pulled: set[str] = field(default_factory=set)
    pushed: set[str] = field(default_factory=set)
    removed_here: set[str] = field(default_factory=set)
    removed_there: set[str] = field(default_factory=set)
    conflicts: set[str] = field(default_factory=set)
    refused: list[RefusedFile] = field(default_factory=list)
    note: str = ""
    seen: dict[str, str] = field(default_factory=dict)
    """The files here, with the ids of their texts, when the push was planned."""
    screen: TeamScreen = field(init=False)
    _late: str = ""
    _times: dict[str, float] = field(default_factory=dict)
    _take_refused: list[RefusedFile] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.screen = TeamScreen(self.state.released)

    @property
    def address(self) -> RemoteAddress:
        return RemoteAddress(self.state.remote, self.state.path)

    def run(self) -> SyncResult:
        """Sync until both sides are the same, or it fails."""
        self.repository.prepare()
        for number in range(TRIES):
            wait = self.pause or self.repository.git.pause
            try:
                if number:
                    wait(_WAIT * number * random.uniform(0.5, 1.5))
                if self._once():
                    break
            except GitFailed as error:
                return self._ended(str(error))
        else:
            return self._ended(f"{self._late} (tried {TRIES} times)")
        self.repository.tidy()
        return self._ended(None)

    def _once(self) -> bool:
        """Sync once; False if another member pushed meanwhile."""
        remote = self.look()
        self._take(remote)
        ours = self.store.changing(read_local_files)
        self.seen, self._times = ours.ids, ours.times
        offer = self.plan_push(remote, ours)
        self.refused = [*self._take_refused, *remote.incoming.refused, *offer.refused]
        if not offer.changes:
            return True
        try:
            self._push(remote, offer)
        except Behind as error:
            self._late = str(error)
            return False
        return True

    def look(self) -> RemoteState:
        """Fetch the remote, and judge its files by name, kind and size."""
        try:
            remote = self._looked()
        except GitFailed as error:
            self.repository.begin_anew(error)
            remote = self._looked()
        known, left = self.state.agreed, self.state.left
        changed = [
            (known.get(file, ""), id)
            for file, id in remote.incoming.files.items()
            if known.get(file) != id and (file not in left or left[file].id != id)
        ]
        remote.texts.want(id for pair in changed for id in pair)
        for _, id in changed:
            self.repository.git.go_on()
            self.screen.verdict(remote.texts.get(id) or b"")
        times = self.repository.times(remote.tip) if changed and remote.tip else {}
        return replace(remote, times=times)

    def _looked(self) -> RemoteState:
        tip = self.repository.fetch(self.address, self.state.branch)
        if tip is None and self.state.tip:
            raise GitFailed(
                f"{self.address.shown} has no branch {self.state.branch!r} any more; everything stays as "
                "it is here, and 'sevenfold team init' sends it to an empty repository again"
            )
        old, rewound = self.state.tip, False
        if tip is not None and old and tip != old:
            rewound = not self.repository.descends(self.address, self.state.branch, tip, old)
        tree = self.repository.tree(tip)
        sizes, go_on = self.repository.sizes, self.repository.git.go_on
        incoming = screen_tree(tree, sizes, self.state.agreed, self.screen.is_released, self.most, go_on)
        return RemoteState(tip, tree, incoming, BlobTexts(self.repository.read), rewound)

    def _take(self, remote: RemoteState) -> None:
        taken = self.store.changing(lambda desk: self._taken(desk, remote))
        state, tip = self.state, remote.tip or ""
        known = (state.tip, state.agreed, state.left, state.planned)
        if known != (tip, taken.agreed, taken.left, {}):
            state.tip, state.agreed, state.left, state.planned = tip, taken.agreed, taken.left, {}
            self.file.save(state)
        self.pulled.update(taken.pulled)
        self.removed_here.update(taken.removed)
        self.conflicts.update(copy for copy in taken.copies if taken.covers[copy])
        self._take_refused = taken.refused

    def _taken(self, desk: FolderTransaction, remote: RemoteState) -> PullPlan:
        taking = PullMerge(desk, self.state, remote.incoming, remote.texts, self.screen, remote.rewound)
        taken = taking.decide()
        self._remark(taking, remote.rewound)
        if taken.planned:
            self.state.planned = {**self.state.planned, **taken.planned}
            self.file.save(self.state)
        taking.write(remote.times)
        return taken

    def _remark(self, taking: PullMerge, rewound: bool) -> None:
        count = len(taking.kept)
        files = "1 file" if count == 1 else f"{count:,} files"
        if taking.lost:
            self.note = RESTORED
        elif count:
            self.note = (REWOUND if rewound else VANISHED).format(files)

    def plan_push(self, remote: RemoteState, ours: LocalFiles) -> PushPlan:
        """The changes that a push would send."""
        id = remote.incoming.files.get(INDEX_NAME, "")
        same = id == ours.ids.get(INDEX_NAME)
        index = ours.files[INDEX_NAME] if same else remote.texts.get(id) or b""
        go_on = self.repository.git.go_on
        offering = PushPlanner(self.state, remote.incoming, ours, self.screen, self.most, go_on)
        return offering.offer(index.decode("utf-8", "surrogateescape"))

    def _push(self, remote: RemoteState, offer: PushPlan) -> None:
        state = self.state
        now = self.clock.now()
        old = {file: at for file, at in self._times.items() if 0 < at < now - DAY}
        said = format_commit_message(offer.changes, remote.incoming.files, old)
        commit = self.repository.commit(remote.tree, remote.tip, offer.changes, said, now)
        self.repository.push(self.address, state.branch, commit)
        for file, data in offer.changes.items():
            if data is None:
                state.agreed.pop(file, None)
            else:
                state.agreed[file] = hash_blob(data)
        state.tip = commit
        self.pushed.update(offer.files)
        self.removed_there.update(offer.gone)

    def _ended(self, offline: str | None) -> SyncResult:
        state, known = self.state, {*self.state.refused}
        state.offline = offline
        if offline is None:
            state.synced = self.clock.now()
            state.refused, state.more_refused = limit_refusals(self.refused)
        self.file.save(state)
        return SyncResult(
            tuple(sorted(self.pulled)),
            tuple(sorted(self.pushed)),
            tuple(sorted(self.conflicts)),
            state.refused,
            state.more_refused,
            offline,
            self.note,
            tuple(sorted(self.removed_here - self.pulled)),
            tuple(sorted(self.removed_there - self.pushed)),
            tuple(one for one in state.refused if one not in known),
        )


QUIET: Final = 2.0  # Seconds without a change after which changes are sent
LATEST: Final = 30.0  # Seconds after which they are sent even if changes go on


class TeamSync(Protocol):
    """The part of `Team` that the scheduler needs."""

    def sync(self) -> SyncResult: ...
    def unsent(self) -> bool: ...
    def stop(self) -> None: ...


class SyncScheduler:
    """Runs the syncs of one session, one after another, each in a thread. Not thread-safe itself."""

    def __init__(
        self,
        team: TeamSync,
        folder: Path,
        clock: Clock,
        emit: Emit,
        *,
        quiet: float = QUIET,
        taken: Callable[[SyncResult], None] | None = None,
    ) -> None:
        """`folder` is the memory folder; `taken` is called after every sync that changed files here."""
        self._team, self._clock, self._emit, self._quiet = team, clock, emit, quiet
        self._folder, self._taken = folder / TEAM.rstrip("/"), taken
        self._changes = self._sent = 0
        self._asked, self._first = anyio.Event(), anyio.Event()
        self._turn = anyio.Lock()
        self._said: set[str] = set()

    def note_write(self, path: Path) -> None:
        """Note that a memory file was written or removed; only files of the team count."""
        if path.is_relative_to(self._folder):
            self.note_change()

    def note_change(self) -> None:
        """Note that a file of the team changed here."""
        self._changes += 1
        self._asked.set()

    def look_for_changes(self) -> None:
        """Look for changes that were not reported, such as those of an editor."""
        self._asked.set()

    @property
    def answered(self) -> bool:
        """True once the first sync is done."""
        return self._first.is_set()

    async def run(self) -> None:
        """Pull, then push each change, until it is cancelled."""
        try:
            await self._sync()
        finally:
            self._first.set()
        while True:
            await self._asked.wait()
            self._asked = anyio.Event()
            if await self._unsent():
                await self._settled()
                await self._sync()

    async def wait_for_first(self, seconds: float) -> bool:
        """Wait at most this long for the first sync; True if it is done."""
        with anyio.move_on_after(seconds):
            await self._first.wait()
        return self._first.is_set()

    async def close(self, seconds: float) -> None:
        """Send what is left, within this time. Nothing is sent after it."""
        with anyio.move_on_after(seconds) as limit:
            if await self._unsent():
                await self._sync()
        if limit.cancelled_caught:
            self._say("Not all changes were sent to the team in time: they go with the next sync.")
        self._team.stop()

    async def _unsent(self) -> bool:
        """True if there is something to send."""
        if self._changes > self._sent:
            return True
        try:
            return await anyio.to_thread.run_sync(self._team.unsent, abandon_on_cancel=True)
        except SevenfoldError:
            return True  # the sync reports the problem

    async def _settled(self) -> None:
        """Wait until there was no change for a while."""
        began, seen = self._clock.now(), -1
        while seen != self._changes and self._clock.now() - began < LATEST:
            seen = self._changes
            await self._clock.sleep(self._quiet)

    async def _sync(self) -> None:
        async with self._turn:
            seen, self._asked = self._changes, anyio.Event()
            try:
                synced = await anyio.to_thread.run_sync(self._team.sync, abandon_on_cancel=True)
            except SevenfoldError as error:
                self._say(f"The team memory is not synchronised: {error}.")
                return
            if synced.offline is None:
                self._sent = seen
            self._tell(synced)

    def _tell(self, synced: SyncResult) -> None:
        if (synced.pulled or synced.removed_here) and self._taken is not None:
            self._taken(synced)
        if synced.offline is not None:
            self._say(f"The team memory is not synchronised: {synced.offline}.")
        for line in list_remarks(synced):
            self._say(f"Team memory: {line}.")

    def _say(self, text: str) -> None:
        """Emit each text once: every sync may meet the same problem."""
        if text not in self._said:
            self._said.add(text)
            self._emit(Notice(text, "warning"))


PATIENCE: Final = 240.0
"""Seconds to wait for another sync; one that hangs is ended earlier by its own limits."""


@contextmanager
def hold_sync_lock(lock: Path, stopped: Callable[[], bool]) -> Iterator[None]:
    """Wait until no other sync of this folder runs; `GitFailed` when `stopped` or out of patience."""
    with hold_lock(lock, wait=PATIENCE, cancel=stopped) as held:
        if not held:
            raise GitFailed("another sync of this team memory goes on; try again when it is done")
        yield
