"""Layer 6: once in a while, when the agent is at rest, the memories are put in order.

A closed gate costs one look at the disk. An open one costs a fork of many steps on the prefix that the
provider has in its cache, or a second of rules where there is no model. It runs in the background, and
one that failed or was stopped is not begun again in the same session.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias

import anyio
import anyio.to_thread
import msgspec

from sevenfold.core.clock import format_date
from sevenfold.core.errors import Failure, Mistake, SevenfoldError
from sevenfold.core.events import Emit, Failed, Repaired
from sevenfold.core.protocols import BackgroundStep, Change, Clock
from sevenfold.core.request import Frame, Request
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Reply
from sevenfold.layers.l6_dreaming.progress import BY, DreamSnapshot, DreamWatch, format_names
from sevenfold.layers.parts import LayerParts
from sevenfold.layers.shared.background import open_task_group
from sevenfold.memory.dreams.lock import DreamLock, DreamLockBusy, HeldDreamLock, is_credible_time
from sevenfold.memory.dreams.stage import DreamStage, discard_stage, list_waiting_stages, stage_folder
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.store import MemoryStore
from sevenfold.models.capabilities import OFFLINE
from sevenfold.settings.layers import DreamSettings
from sevenfold.tools.permissions import EDITORS

if TYPE_CHECKING:
    from sevenfold.layers.l6_dreaming.workers import DreamContext, Think
    from sevenfold.memory.consolidation.housekeeping import Learn
    from sevenfold.memory.dreams.losses import LossAccount
    from sevenfold.memory.dreams.merge import DreamConflict
    from sevenfold.memory.dreams.plan import DreamOutcome, KeptStatement, MergedFile
    from sevenfold.memory.dreams.statements import MemoryFact

ROOM: Final = 0.4
"""Of the window, so much has to be free: a dream reads a lot, and nothing clears up behind it."""


class Dreaming:
    """The `rest` moment of the main conversation."""

    label: ClassVar[str] = "Dreaming"

    def __init__(self, parts: LayerParts, *, learn: Learn | None = None) -> None:
        """`learn` says what of a note in a log is worth remembering, where no model is asked.

        In assistant mode the first rest of a day distils the logs before it, and there are no other gates.
        """
        if parts.dreams is None:
            raise Mistake("dreaming needs a memory to put in order: give LayerParts `dreams`")
        self.dreams, self._tools, self._learn = parts.dreams.runner, parts.dreams.tools, learn
        self._parts, self._fork, self._clock = parts, parts.get_background_fork(), parts.clock
        self._nightly = parts.settings.assistant_mode
        self._looked_on = ""
        self._tried = False

    async def __call__(self, request: Request) -> Sequence[Change]:
        if self._tried or not self.dreams.enabled() or request.source != "main" or not len(request.view):
            return ()
        if self._nightly and not self._night_is_over():
            return ()
        from sevenfold.layers.l6_dreaming.workers import ModelDreamer

        think = self._think(request)
        if isinstance(think, ModelDreamer) and (self._is_short(request) or not self._room(request)):
            return ()
        ended = await self.dreams.dream(think, by_hand=self._nightly)
        self._tried = ended.status in ("failed", "killed")
        return ()

    async def asked(
        self, request: Request, *, by_hand: bool = True, how: DreamMode | None = None
    ) -> DreamResult:
        """A dream on demand. `by_hand`: whatever the gates say, but never beside another."""
        by_hand = by_hand or self._nightly
        return await self.dreams.dream(self._think(request), by_hand=by_hand, how=how)

    def _think(self, request: Request) -> Think:
        from sevenfold.layers.l6_dreaming.workers import ModelDreamer, RuleDreamer

        if request.frame.model == OFFLINE or not _can_write(request.frame):
            return RuleDreamer(self._clock, lambda: self.dreams.previous, self._learn)
        longest = self._parts.conversation.capabilities.max_output
        return ModelDreamer(self._fork, request, self._tools, self._clock, self._known, longest)

    def _known(self) -> DreamContext:
        """Reads the folder and looks at the transcripts: too slow for the event loop."""
        from sevenfold.layers.l6_dreaming.workers import DreamContext

        dreams, last = self.dreams, self.dreams.previous
        try:
            findings = tuple(f"{one.file}: {one.text}" for one in dreams.store.check())
        except SevenfoldError:
            findings = ()
        return DreamContext(
            transcripts=dreams.transcripts,
            now=self._clock.now(),
            last=last,
            steps=dreams.settings.steps,
            sessions=tuple(find_sessions_since(dreams.transcripts, last or 0.0, dreams.session)),
            findings=findings,
        )

    def _is_short(self, request: Request) -> bool:
        """True for a session that has not made enough requests to pay for a dream, where it costs."""
        if self._nightly or self._parts.prices.is_free(request.frame.model):
            return False
        requests = sum(isinstance(entry.what, Reply) for entry in self._parts.conversation.entries)
        return requests < self.dreams.settings.least_requests

    def _room(self, request: Request) -> bool:
        window = self._parts.window
        return window - request.tokens >= ROOM * window

    def _night_is_over(self) -> bool:
        """True if a day has begun since the last dream, and something was noted before it."""
        today, last = format_date(self._clock.now()), self.dreams.lock.last()
        since = format_date(last) if last is not None else ""
        if since >= today or self._looked_on == today or not self.dreams.enabled():
            return False
        from sevenfold.memory.daily_logs import parse_log_day

        self._looked_on = today
        days = map(parse_log_day, self.dreams.store.listing().files)
        return any(day and since <= day < today for day in days)


def find_sessions_since(transcripts: Path, since: float, current: str) -> list[str]:
    """The sessions that were written to after a moment, the newest first, without the current one."""
    found: list[tuple[float, str]] = []
    try:
        with os.scandir(transcripts) as entries:
            for entry in entries:
                id, dot, _ = entry.name.rpartition(TRANSCRIPT)
                if dot and id != current and entry.is_file(follow_symlinks=False):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, id))
    except OSError:
        return []
    return [id for at, id in sorted(found, reverse=True) if at > since]


def _can_write(frame: Frame) -> bool:
    """True if the conversation offers tools to write with; its list of tools cannot be changed."""
    return {tool.get("name") for tool in frame.tools} >= EDITORS


_check: type[BackgroundStep] = Dreaming


LOOK: Final = 0.5  # Seconds between looks for a request to stop
REFRESH: Final = 600.0
"""Seconds after which a long dream says that it still goes on, so that its lock is not taken."""
DreamEnding: TypeAlias = Literal["completed", "failed", "killed", "skipped"]
_QUOTED: Final = 120  # Characters of a statement that are shown
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
    pairs: tuple[str, ...] = ()  # What became of each memory or statement, a sentence each
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
            pairs=tuple(describe_pairs(outcome)),
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
        if ended.kept or ended.conflicts:
            self._emit(Repaired(BY, f"{len(ended.kept)} put back, {len(ended.conflicts)} changes not made"))
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
        from sevenfold.layers.l6_dreaming.review import (
            keep_for_review,
            list_session_names,
            read_spoken_words,
        )
        from sevenfold.memory.dreams.commit import commit_dream, preview_dream

        staged, explained = self.staged, self.thought.explained
        if staged is None:
            raise Failure("there is no copy to take over")
        sessions = list_session_names(self._transcripts)
        said = partial(read_spoken_words, self._transcripts)
        if how == "commit":
            return commit_dream(self._store, staged, self._author, explained, sessions, said)
        outcome = preview_dream(self._store, staged, self._author, explained, sessions, said)
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


def describe_pairs(outcome: DreamOutcome) -> Iterator[str]:
    """A line for each thing a dream did, pair by pair: `port-old went into port-new`."""
    from sevenfold.memory.topic_file import shorten_text

    for merged in outcome.merged:
        yield f"{_stem(merged.file)} went into {_stem(merged.into)}"
    for archived in outcome.archived:
        yield f"{_stem(archived.file)} went to {_stem(archived.into)}"
    for gone in outcome.superseded:
        verb = "contradicted" if gone.how == "contradicted" else "replaced"
        by = f"what {_stem(gone.by)} says" if gone.by != gone.fact.file else "a newer statement there"
        yield f'{_stem(gone.fact.file)}: "{shorten_text(gone.fact.text, _QUOTED)}" was {verb} by {by}'
    for kept in outcome.kept:
        text = shorten_text(kept.fact.text, _QUOTED)
        yield f'{_stem(kept.fact.file)}: "{text}" was put back, in {_stem(kept.into)}'


def _stem(file: str) -> str:
    return file.removesuffix(".md")


GateName: TypeAlias = Literal["off", "time", "scan", "sessions", "lock"]
TRANSCRIPT: Final = ".jsonl"


class ClosedGate(msgspec.Struct, frozen=True):
    """No dream now, and why, in a sentence."""

    gate: GateName
    why: str


class DreamGates:
    """The gates of one session. `sessions` is the folder of its project's transcripts."""

    def __init__(
        self,
        lock: DreamLock,
        sessions: Path,
        current: str,
        settings: DreamSettings,
        clock: Clock,
        enabled: Callable[[], bool],
    ) -> None:
        self.lock = lock
        self._sessions, self._current = sessions, current
        self._settings, self._clock, self._enabled = settings, clock, enabled
        self._scanned: float | None = None
        self._looked: float | None = None

    def enter(self) -> HeldDreamLock | ClosedGate:
        """Go through all gates. A dream that gets the lock has to give it back."""
        if (closed := self.check()) is not None:
            return closed
        return self.take()

    def take(self) -> HeldDreamLock | ClosedGate:
        """Only the last gate: for a dream by hand."""
        found = self.lock.acquire()
        return ClosedGate("lock", str(found)) if isinstance(found, DreamLockBusy) else found

    def check(self) -> ClosedGate | None:
        """All gates but the lock; None when it is time."""
        if not self._enabled():
            return ClosedGate("off", "dreaming is switched off")
        now = self._clock.now()
        since = self._last(now)
        hours = self._settings.hours
        if since is not None and now - since < hours * 3600:
            return ClosedGate("time", f"the last dream was less than {hours:g} hours ago")
        pause = self._settings.scan_minutes * 60
        if self._scanned is not None and 0 <= now - self._scanned < pause:
            return ClosedGate("scan", "the sessions were counted a short while ago")
        self._scanned = now
        if not self._enough(since or 0.0):
            least = self._settings.sessions
            return ClosedGate("sessions", f"fewer than {least} sessions since the last dream")
        return None

    def _last(self, now: float) -> float | None:
        """The time of the last dream.

        While one may be going on, its lock is read again now and then: one that died puts its time back.
        """
        stale, hours = self._settings.stale_minutes * 60, self._settings.hours
        last = self.lock.last()
        if last is not None and abs(now - last) < stale and self._may_look(now):
            with contextlib.suppress(SevenfoldError):  # a folder that cannot be written: it stays
                self.lock.settle()
            last = self.lock.last()
        if last is not None and not is_credible_time(last, now, stale):
            return now - hours * 3600 - 1  # a wrong clock set it: as if it had just become due
        return last

    def _may_look(self, now: float) -> bool:
        pause = self._settings.scan_minutes * 60
        if self._looked is not None and 0 <= now - self._looked < pause:
            return False
        self._looked = now
        return True

    def _enough(self, since: float) -> bool:
        """True if so many transcripts were written since; counting ends as soon as they are."""
        left = self._settings.sessions
        if left <= 0:
            return True
        own = f"{self._current}{TRANSCRIPT}"
        try:
            with os.scandir(self._sessions) as entries:
                for entry in entries:
                    left -= entry.name != own and _touched(entry, since)
                    if left <= 0:
                        return True
        except OSError:
            return False
        return False


def _touched(entry: os.DirEntry[str], since: float) -> bool:
    if not entry.name.endswith(TRANSCRIPT):
        return False
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:  # it went away just now
        return False
    return found.st_mtime > since and found.st_size > 0
