"""One dream from its gate to its end: the lock, a copy, the work, the commit; or nothing at all.

If it fails or is stopped, the folder is as it was, the copy is gone and the
lock has the time it had before: the next session tries again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import anyio
import anyio.to_thread
import msgspec

from sevenfold.core.errors import Failure, SevenfoldError
from sevenfold.core.events import Emit, Failed
from sevenfold.core.protocols import Clock
from sevenfold.core.tokens import Usage
from sevenfold.layers.l6_dreaming.gates import ClosedGate, DreamGates
from sevenfold.layers.l6_dreaming.progress import BY, DreamSnapshot, DreamWatch, format_names
from sevenfold.layers.shared.background import open_task_group
from sevenfold.memory.dreams.lock import DreamLock, HeldDreamLock
from sevenfold.memory.dreams.stage import DreamStage, discard_stage, list_waiting_stages, stage_folder
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.store import MemoryStore
from sevenfold.settings.layers import DreamSettings

if TYPE_CHECKING:  # they take a while to import, and most sessions do not dream
    from sevenfold.layers.l6_dreaming.workers import Think
    from sevenfold.memory.dreams.losses import LossAccount
    from sevenfold.memory.dreams.merge import DreamConflict
    from sevenfold.memory.dreams.plan import DreamOutcome, KeptStatement, MergedFile
    from sevenfold.memory.dreams.statements import MemoryFact

LOOK: Final = 0.5  # Seconds between looks for a request to stop
REFRESH: Final = 600.0
"""Seconds after which a long dream says that it still goes on, so that its lock is not taken."""
DreamEnding: TypeAlias = Literal["completed", "failed", "killed", "skipped"]
STOPPED: Final = "somebody stopped it, or its session ended; the memories are as they were"
DreamMode: TypeAlias = Literal["commit", "review", "preview"]


class DreamResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a dream, as `sevenfold dream --json` prints it."""

    status: DreamEnding
    gate: str | None = None  # The gate that was closed, when it was skipped
    why: str = ""
    files_before: int = 0
    files_after: int = 0
    merged: tuple[MergedFile, ...] = ()
    superseded: tuple[LossAccount, ...] = ()
    archived: tuple[MergedFile, ...] = ()
    kept: tuple[KeptStatement, ...] = ()  # Statements that were let go without an account, and put back
    lost: tuple[MemoryFact, ...] = ()
    conflicts: tuple[DreamConflict, ...] = ()
    """Changes that were not made, because others wrote meanwhile or a check said no."""
    files: tuple[str, ...] = ()
    revision: str | None = None
    review: str | None = None  # The dream that waits for the user to look at it
    usage: Usage = Usage()
    notes: tuple[str, ...] = ()
    diff: str | None = None

    def with_outcome(self, outcome: DreamOutcome, review: str | None, diff: str | None) -> DreamResult:
        """The result with the figures of a commit or a preview."""
        return msgspec.structs.replace(
            self,
            files_before=outcome.files_before,
            files_after=outcome.files_after,
            merged=outcome.merged,
            superseded=outcome.superseded,
            archived=outcome.archived,
            kept=outcome.kept,
            lost=outcome.lost,
            conflicts=outcome.conflicts,
            files=tuple(one.file for one in outcome.files),
            revision=outcome.revision or None,
            review=review,
            diff=diff,
        )


class DreamRunner:
    """The dreams of one memory folder, for a session or a command."""

    def __init__(
        self,
        store: MemoryStore,
        transcripts: Path,
        clock: Clock,
        emit: Emit,
        settings: DreamSettings | None = None,
        *,
        session: str = "",
        enabled: Callable[[], bool] = lambda: True,
    ) -> None:
        """`transcripts` is the folder of the project's sessions, `session` the one that this belongs to."""
        self.store, self.transcripts, self.session = store, transcripts, session
        self.settings = settings or DreamSettings()
        stale = self.settings.stale_minutes * 60
        self.lock = DreamLock(store.path_of(), store.local, clock, stale=stale)
        self.gates = DreamGates(self.lock, transcripts, session, self.settings, clock, enabled)
        self.enabled = enabled
        self._clock, self._emit = clock, emit
        self._scope: anyio.CancelScope | None = None
        self._watch: DreamWatch | None = None
        self._before: float | None = None

    @property
    def previous(self) -> float | None:
        """The time of the last dream that ended; while one goes on, of the one before."""
        return self._before if self._scope is not None else self.lock.last()

    @property
    def running(self) -> DreamSnapshot | None:
        """The dream that goes on here, if one does."""
        return self._watch.now if self._watch is not None else None

    def kill(self) -> bool:
        """Stop it; what it has done so far is dropped."""
        if self._scope is None:
            return False
        self._scope.cancel()
        return True

    async def dream(
        self, think: Think, *, by_hand: bool = False, how: DreamMode | None = None
    ) -> DreamResult:
        """Go through the gates, or only the last one, and dream. What can be told is not raised."""
        if self._scope is not None:
            return _skipped("lock", "a dream is going on in this session")
        if not by_hand and (closed := self._not_now()) is not None:
            return closed
        if not self.store.exists():
            return _skipped("empty", f"there are no memories yet in {self.store.path_of()}")
        self._before = self.lock.last()
        with anyio.CancelScope() as self._scope:
            try:
                return await self._entered(think, how or self._usual)
            finally:
                self._scope = self._watch = None
        return DreamResult(status="killed", why=STOPPED)

    @property
    def _usual(self) -> DreamMode:
        return "review" if self.settings.review else "commit"

    def _not_now(self) -> DreamResult | None:
        if (closed := self.gates.check()) is not None:
            return _skipped(closed.gate, closed.why)
        if list_waiting_stages(self.store.local):
            return _skipped("review", "a dream waits for review")
        return None

    async def _entered(self, think: Think, how: DreamMode) -> DreamResult:
        run = _DreamRun(self.store, self.transcripts, self.session)
        held: HeldDreamLock | ClosedGate | None = None
        try:
            held = await anyio.to_thread.run_sync(self.gates.take)
            if isinstance(held, ClosedGate):
                return _skipped(held.gate, held.why)
            return await self._dreamt(run, held, think, how)
        except SevenfoldError as error:
            return self._failed(str(error))
        except BaseException as error:  # told, and then raised again
            self._cut_off(error)
            raise
        finally:
            if isinstance(held, HeldDreamLock) and not run.over:
                run.drop()
                _let_go(held, done=False)

    async def _dreamt(
        self, run: _DreamRun, held: HeldDreamLock, think: Think, how: DreamMode
    ) -> DreamResult:
        staged = run.staged = await anyio.to_thread.run_sync(stage_folder, self.store)
        watch = self._watch = DreamWatch(staged.id, self.store.local, self.session, self._clock, self._emit)
        async with open_task_group() as tasks:
            tasks.start_soon(self._attend, watch, held)
            run.thought = await think(staged, watch)
        if not held.ours():
            raise Failure("it took so long that another dream began; nothing is changed")
        outcome = await anyio.to_thread.run_sync(partial(run.finish, how))
        ended = _told(outcome, run, how)
        run.over = True
        if how != "commit" and not ended.review:
            run.drop()
        _let_go(held, done=how != "preview")
        said = describe_result(ended)
        watch.end("waiting" if ended.review else "completed", said, ended.revision or "")
        return ended

    async def _attend(self, watch: DreamWatch, held: HeldDreamLock) -> None:
        """Stop at the request of another process, and keep the lock young."""
        fresh = self._clock.now()
        while True:
            await anyio.sleep(LOOK)
            if watch.wished_away:
                self.kill()
            if abs(self._clock.now() - fresh) > REFRESH:
                fresh = self._clock.now()
                await anyio.to_thread.run_sync(held.touch)

    # --- how it ended -----------------------------------------------------------------------------------

    def _cut_off(self, error: BaseException) -> None:
        if self._watch is None:
            return
        if isinstance(error, Exception):
            self._watch.end("failed", f"the dream failed: {error!r}")
        else:
            self._watch.end("killed", f"the dream was stopped: {STOPPED}")

    def _failed(self, why: str) -> DreamResult:
        if self._watch is not None:
            self._watch.end("failed", f"the dream failed: {why}")
        self._emit(Failed(BY, f"{why}; the memories are as they were, the next session tries again"))
        return DreamResult(status="failed", why=why)


def _skipped(gate: str, why: str) -> DreamResult:
    return DreamResult(status="skipped", gate=gate, why=why)


class _DreamRun:
    """The state of one dream while it goes on."""

    def __init__(self, store: MemoryStore, transcripts: Path, session: str) -> None:
        from sevenfold.layers.l6_dreaming.workers import DreamOutput

        self._store, self._transcripts = store, transcripts
        self._author = Author("dream", session)
        self.staged: DreamStage | None = None
        self.thought = DreamOutput()
        self.over = False

    def finish(self, how: DreamMode) -> DreamOutcome:
        """Blocking: it reads and writes the folder."""
        from sevenfold.layers.l6_dreaming.review import keep_for_review, list_session_names
        from sevenfold.memory.dreams.commit import commit_dream, preview_dream

        staged, explained = self.staged, self.thought.explained
        if staged is None:
            raise Failure("there is no copy to take over")
        sessions = list_session_names(self._transcripts)
        if how == "commit":
            return commit_dream(self._store, staged, self._author, explained, sessions)
        outcome = preview_dream(self._store, staged, self._author, explained, sessions)
        if how == "review" and outcome.files:
            keep_for_review(staged, self._author, explained, self._transcripts)
        return outcome

    def drop(self) -> None:
        if self.staged is not None:
            discard_stage(self.staged)


def _let_go(held: HeldDreamLock, *, done: bool) -> None:
    with contextlib.suppress(SevenfoldError):  # the disk refuses: in an hour the lock is stale
        held.done() if done else held.give_back()


def _told(outcome: DreamOutcome, run: _DreamRun, how: DreamMode) -> DreamResult:
    waits = how == "review" and bool(outcome.files) and run.staged is not None
    review = run.staged.id if waits and run.staged else None
    ended = DreamResult(status="completed", usage=run.thought.usage, notes=run.thought.notes)
    return ended.with_outcome(outcome, review, outcome.diff if how != "commit" else None)


def describe_result(ended: DreamResult, undo: str = "/dream undo", review: str = "/dream review") -> str:
    """The result of a dream in words, with commands to type next."""
    if not ended.files:
        if ended.kept:
            back = f"{len(ended.kept):,} statement{'s' * (len(ended.kept) != 1)}"
            return f"dreamt: {back} would have been lost and stayed, so nothing was changed"
        return "dreamt: the memories are in order, nothing was changed"
    counts = {
        "merged": len(ended.merged),
        "superseded": len(ended.superseded),
        "archived": len(ended.archived),
        "put back": len(ended.kept),
    }
    parts = [f"{number} {what}" for what, number in counts.items() if number]
    done = "dreamt" if ended.revision else "a dream would change" if not ended.review else "dreamt"
    what = f"{done}: {', '.join([*parts, format_names(ended.files)])}"
    if ended.review:
        return f"{what}; ready for review: {review}"
    return f"{what} ({undo} takes it back)" if ended.revision else what
