"""Replays recorded files under policies, in one or several processes, with a progress line."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from threading import current_thread, main_thread
from time import monotonic, perf_counter
from types import FrameType
from typing import Final, TextIO, TypeAlias

import msgspec
from msgspec.structs import replace

from sevenfold.cache.prices import Prices
from sevenfold.core.errors import SevenfoldError
from sevenfold.core.transcript import Entry, Problem, Reply
from sevenfold.recordings.finder import ReplayFile, read_recording
from sevenfold.recordings.messages import FORMAT as MESSAGES
from sevenfold.recordings.own_sessions import iterate_sessions
from sevenfold.recordings.reader import ALWAYS
from sevenfold.recordings.recorded_session import RecordedSession, retell_recording
from sevenfold.recordings.windows import SessionWindow, find_session_window
from sevenfold.replay.costs import (
    SessionPrice,
    find_largest_fixed,
    find_session_price,
    find_unmarked_losses,
)
from sevenfold.replay.driver import drive_session
from sevenfold.replay.outcome import ReplayOutcome
from sevenfold.replay.policies import Policy
from sevenfold.replay.results import LeftBranches, ReplayFigures, compute_figures, sum_costs
from sevenfold.replay.stand_ins import UNKNOWN, adjust_to_session, find_role, is_extraction_uncertain

MOST_ERRORS: Final = 20  # Errors that are listed of one file; the rest is counted
TELL_EVERY: Final = 0.2  # Seconds between two progress reports of a file
# Errors that an unexpected file may raise: they end this session, and the others go on
BROKEN: Final = (ValueError, LookupError, ArithmeticError, RecursionError, MemoryError)


class ReplayJob(msgspec.Struct, frozen=True):
    """A file and what to do with it; it is sent to another process."""

    number: int
    found: ReplayFile
    policies: tuple[Policy, ...]
    price: str | None = None  # Count with the price of this model, whatever the file says
    prices: Path | None = None  # The user's own price table
    drawn: bool = False  # True if each request is wanted, for a drawing
    shared_reads: frozenset[int] = frozenset()  # First reads from the cache that other sessions had too
    copied: frozenset[str] = frozenset()  # Ids of its requests that are counted in another file


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one conversation of a file."""

    number: int
    path: str
    format: str = ""
    session: str = ""
    agent: str = ""  # The sub-agent whose conversation it is; `session` is then the session it worked for
    title: str = ""
    model: str = ""
    began: float = 0.0
    recorded: int = 0  # Requests in the recording
    window: SessionWindow = SessionWindow()
    by_policy: dict[str, ReplayFigures] = {}
    left: LeftBranches = LeftBranches()  # Requests on branches that the user left; they are not replayed
    errors: tuple[str, ...] = ()  # Problems of the file: the figures are incomplete
    notes: tuple[str, ...] = ()  # Data that files of this format do not have
    passed_over: bool = False  # True for a file that is no session
    agents: tuple[ReplayResult, ...] = ()  # The sub-agents whose conversations are in the same file

    @property
    def short_name(self) -> str:
        """The name in a list of results."""
        name = Path(self.path).name
        for end in (".gz", ".jsonl", ".json", ".ndjson"):
            name = name.removesuffix(end)
        return f"{self.agent[:8]} of {(self.session or name)[:8]}" if self.agent else name


class FileProgress(msgspec.Struct, frozen=True):
    """The progress of a file."""

    number: int
    share: float
    requests: int


Tell: TypeAlias = Callable[[FileProgress], None]


def ignore_progress(so_far: FileProgress) -> None:
    """Do nothing."""


class RecordedDrive:
    """A recorded session, ready to be replayed under policies."""

    def __init__(
        self,
        recorded: RecordedSession,
        entries: Sequence[Entry],
        prices: Prices,
        price: str | None = None,
        shared_reads: frozenset[int] = frozenset(),
        copied: frozenset[str] = frozenset(),
    ) -> None:
        """The fields of `ReplayJob`: `price`, `shared_reads` and `copied`."""
        self._recorded, self._entries, self._limits_of = recorded, entries, prices.limits
        self.at = at = find_session_price(entries, prices, price)
        self.window = find_session_window(
            entries, at.model, recorded=recorded.windows, limits_of=prices.limits
        )
        self._fixed = find_largest_fixed(entries, shared_reads)
        asked = [e.what.diagnostics.get("request_id") for e in entries if isinstance(e.what, Reply)]
        self.asked = len(asked)
        self.copied = next((n for n, id in enumerate(asked) if id not in copied), self.asked)
        """The requests at the beginning that are counted in another file."""

    def replay(self, policy: Policy, tell: Callable[[int], None] = lambda done: None) -> ReplayOutcome:
        """Replay it under a policy, as the product applies that to such a session."""
        return drive_session(
            self._entries,
            adjust_to_session(policy, self._recorded),
            self.at.model,
            self.at.price,
            window=self.window.tokens,
            prices=self.at.prices,
            limits_of=self._limits_of,
            fixed=self._fixed,
            role=find_role(self._recorded),
            copied=self.copied,
            tell=tell,
        )


def replay_file(job: ReplayJob, tell: Tell = ignore_progress) -> ReplayResult:
    """Replay one file. Errors of the file are in the result, never raised."""
    path, began = job.found.path, perf_counter()
    try:
        recorded = read_recording(job.found)
    except (SevenfoldError, OSError, *BROKEN) as error:
        return make_failed_result(job, _format_error(error, path))
    if recorded is None:
        return ReplayResult(number=job.number, path=path, passed_over=True)
    done: list[ReplayResult] = []
    for one in iterate_sessions(recorded):
        done.append(_replay_session(job, one, began, tell if not done else ignore_progress))
        began = perf_counter()
    return replace(done[0], agents=tuple(done[1:]))


def _replay_session(job: ReplayJob, recorded: RecordedSession, began: float, tell: Tell) -> ReplayResult:
    """Replay one conversation of a file; reading it began at `began`."""
    try:
        retold = retell_recording(recorded)
    except (SevenfoldError, *BROKEN) as error:
        why = _format_error(error, job.found.path)
        return replace(make_failed_result(job, why), session=recorded.session, agent=recorded.agent)
    entries = retold.entries
    errors = _format_problems(retold.problems)
    notes, more = _find_missing_data(recorded, entries)
    return _drive_policies(job, recorded, entries, (*errors, *more), notes, perf_counter() - began, tell)


def make_failed_result(job: ReplayJob, why: str) -> ReplayResult:
    return ReplayResult(number=job.number, path=job.found.path, errors=(why,))


def _drive_policies(
    job: ReplayJob,
    recorded: RecordedSession,
    entries: Sequence[Entry],
    errors: tuple[str, ...],
    notes: tuple[str, ...],
    parsing: float,
    tell: Tell,
) -> ReplayResult:
    prices = _load_prices(job.prices)
    drive = RecordedDrive(recorded, entries, prices, job.price, job.shared_reads, job.copied)
    at, asked = drive.at, drive.asked
    done: dict[str, ReplayFigures] = {}
    unnamed = recorded.format == MESSAGES and not at.model  # such files mostly name none
    if asked and is_extraction_uncertain(recorded, job.policies):
        notes += (UNKNOWN,)
    if asked:
        copied = _describe_copied(drive.copied, asked)
        told_of = (drive.window.problem, _describe_shrinking(entries), copied)
        notes += tuple(filter(None, told_of))
    for n, policy in enumerate(job.policies if drive.copied < asked else ()):
        told = _make_progress_callback(job, entries, n, tell)
        try:
            outcome = drive.replay(policy, told)
            done[policy.name] = compute_figures(
                replace(outcome, spent=replace(outcome.spent, parsing=parsing)),
                at.price,
                priced=at.known,
                drawn=job.drawn,
                others=at.others,
                paid_at=job.price or "",
            )
        except (SevenfoldError, *BROKEN) as error:
            errors += (f"{policy.name}: {_format_error(error, job.found.path)}",)
    return ReplayResult(
        number=job.number,
        path=job.found.path,
        format=recorded.format,
        session=recorded.session,
        agent=recorded.agent,
        title=recorded.title,
        model=at.model,
        window=drive.window,
        began=entries[0].at if entries else 0.0,
        recorded=asked,
        by_policy=done,
        left=_price_left_branches(recorded, at, job.copied),
        errors=(*errors, at.error) if at.error and asked and not unnamed else errors,
        notes=(*notes, at.error) if at.error and asked and unnamed else notes,
    )


def _describe_copied(copied: int, asked: int) -> str:
    if not copied:
        return ""
    which = f"all {asked:,} requests" if copied == asked else f"the first {copied:,} of {asked:,} requests"
    return f"{which} are in another file too, from which this one was copied or forked: they count there"


def _describe_shrinking(entries: Sequence[Entry]) -> str:
    """A note on requests that are smaller than the one before, without a mark; empty without any."""
    if not (lost := find_unmarked_losses(entries)):
        return ""
    were = "1 request was" if len(lost) == 1 else f"{len(lost):,} requests were"
    return (
        f"{were} smaller than the one before (by {sum(lost):,} tokens in all) without a mark of what left "
        "the view: it is replayed as if it were still there"
    )


def _make_progress_callback(
    job: ReplayJob, entries: Sequence[Entry], before: int, tell: Tell
) -> Callable[[int], None]:
    """A callback that reports the progress now and then; `before`: policies that are done."""
    last = monotonic()
    replies = list(accumulate((isinstance(e.what, Reply) for e in entries), initial=0))

    def told(done: int) -> None:
        nonlocal last
        if (now := monotonic()) - last >= TELL_EVERY:
            last = now
            share = (before + done / len(entries)) / len(job.policies)
            tell(FileProgress(job.number, share, before * replies[-1] + replies[done]))

    return told


def _price_left_branches(
    recorded: RecordedSession, at: SessionPrice, copied: frozenset[str]
) -> LeftBranches:
    """The requests on branches that were left, and their price if it is known."""
    left = [one.what for one in recorded.abandoned if one.request_id not in copied]
    replies = [one for one in left if isinstance(one, Reply)]
    used = [(r.model, replace(r.usage, output=0)) for r in replies if r.usage.prompt]
    paid = sum_costs(used, at.price, priced=at.known, others=at.others) if used else None
    return LeftBranches(len(replies), paid)


_load_prices = cache(Prices.load)


def _find_missing_data(
    recorded: RecordedSession, entries: Sequence[Entry]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The data that the file lacks: (notes, if its format never has them; errors, if it should)."""
    replies = [entry.what for entry in entries if isinstance(entry.what, Reply)]
    notes, errors = list[str](), list[str]()
    if not replies:
        return (), ("no model answered in it: there is nothing to replay",)
    used = sum(bool(reply.usage.prompt) for reply in replies)
    told = notes if recorded.format == MESSAGES else errors
    if not used:
        told.append("no usage is recorded: tokens are estimated, what was paid is not known")
    elif used < len(replies):
        told.append(
            f"usage is recorded for {used:,} of {len(replies):,} requests: what was paid is known for "
            "those, and only they are compared with it"
        )
    if not any(said.at for said in recorded.entries):
        told = errors if recorded.format in ALWAYS else notes
        told.append("no times are recorded that can be read: no idle time is counted, and no cache expires")
    return tuple(notes), tuple(errors)


def _format_problems(problems: Sequence[Problem]) -> tuple[str, ...]:
    said = [f"line {problem.line}: {problem.why}" for problem in problems[:MOST_ERRORS]]
    if len(problems) > MOST_ERRORS:
        said.append(f"and {len(problems) - MOST_ERRORS:,} more lines that cannot be read")
    return tuple(said)


def _format_error(error: BaseException, path: str) -> str:
    return (" ".join(str(error).split()) or type(error).__name__).removeprefix(f"{path}: ")


_CONTEXT: Final = get_context("spawn")
Work: TypeAlias = Callable[[ReplayJob, Tell], ReplayResult]
LOST: Final = "the process that replayed it died, perhaps for want of memory"


@dataclass(slots=True)
class _ReplayWorker:
    process: SpawnProcess
    line: Connection
    job: ReplayJob | None = None

    @classmethod
    def start(cls, work: Work) -> _ReplayWorker:
        ours, theirs = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=_serve, args=(theirs, work), daemon=True)
        with _block_interrupts():
            process.start()
        theirs.close()
        return cls(process, ours)

    def end(self) -> None:
        self.process.terminate()
        self.process.join()
        self.line.close()
        self.process.close()


def replay_files(
    jobs: Iterable[ReplayJob], processes: int, work: Work = replay_file, tell: Tell = ignore_progress
) -> Generator[ReplayResult, None, None]:
    """The result of each job, as they are done. With `processes=1` no other process is started."""
    if processes <= 1:
        for job in jobs:
            yield work(job, tell)
        return
    waiting, crew = iter(jobs), list[_ReplayWorker]()
    try:
        for job in waiting:
            if len(crew) < processes:
                crew.append(_ReplayWorker.start(work))
                _give_job(crew[-1], job)
                continue
            done, free = _wait_for_result(crew, work, tell)
            _give_job(free, job)
            yield done
        while any(worker.job for worker in crew):
            done, _ = _wait_for_result(crew, work, tell)
            yield done
    finally:
        for worker in crew:
            worker.end()


def _give_job(worker: _ReplayWorker, job: ReplayJob) -> None:
    worker.job = job
    with suppress(OSError):  # it has died: `_wait_for_result` will notice
        worker.line.send(job)


def _wait_for_result(
    crew: list[_ReplayWorker], work: Work, tell: Tell
) -> tuple[ReplayResult, _ReplayWorker]:
    """The next result, and the worker that is free now."""
    busy = {worker.line: n for n, worker in enumerate(crew) if worker.job}
    while True:
        [ready, *_] = wait(list(busy))
        n = busy[ready]  # type: ignore[index]
        worker = crew[n]
        try:
            received: ReplayResult | FileProgress = worker.line.recv()
        except (EOFError, OSError):
            assert worker.job is not None
            received = make_failed_result(worker.job, LOST)
            worker.end()
            worker = crew[n] = _ReplayWorker.start(work)
        if isinstance(received, ReplayResult):
            worker.job = None
            return received, worker
        tell(received)


def _serve(line: Connection, work: Work) -> None:
    while True:
        try:
            job: ReplayJob = line.recv()
        except EOFError:
            return
        line.send(work(job, line.send))


@contextmanager
def _block_interrupts() -> Iterator[None]:
    """Block Ctrl-C for a process started here: its parent gets the signal and ends it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def end_on_sigterm() -> Iterator[None]:
    """Make SIGTERM raise SystemExit, so that files are removed and processes ended."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    if current_thread() is not main_thread():  # only there can signals be caught
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


TICK: Final = 0.1  # Seconds between two drawings
CLEAR: Final = "\r\x1b[K"


@dataclass(slots=True)
class ReplayProgress:
    """Draws a progress line on `out`, which is a terminal."""

    out: TextIO
    files: int
    size: int  # Bytes of all files
    now: Callable[[], float] = monotonic
    done: int = 0
    read: int = 0
    requests: int = 0
    _within: dict[int, tuple[float, int]] = field(default_factory=dict)  # Bytes, requests of open files
    _began: float | None = None
    _drawn: float = float("-inf")

    def start(self) -> None:
        self._began = self.now()
        self.draw()

    def update_file(self, number: int, read: float, requests: int) -> None:
        """Set the bytes and requests of a file that are done."""
        self._within[number] = read, requests
        if self.now() - self._drawn >= TICK:
            self.draw()

    def add_file(self, size: int, requests: int, number: int = -1) -> None:
        self._within.pop(number, None)
        self.done += 1
        self.read += size
        self.requests += requests
        if self.now() - self._drawn >= TICK:
            self.draw()

    def draw(self) -> None:
        self._drawn = self.now()
        self.out.write(f"{CLEAR}{self.format_line()}")
        self.out.flush()

    def end(self) -> None:
        self.out.write(CLEAR)
        self.out.flush()

    def format_line(self) -> str:
        took = self.now() - (self.now() if self._began is None else self._began)
        said = f"replaying: {self.done:,} of {self.files:,} file{'' if self.files == 1 else 's'}"
        read = self.read + sum(part for part, _ in self._within.values())
        requests = self.requests + sum(number for _, number in self._within.values())
        if not (self.done or self._within) or took <= 0:
            return said
        if self._within and self.size:
            said += f" · {min(99.0, 100 * read / self.size):.0f}%"
        said += f" · {requests / took:,.0f} requests/s"
        if read and self.size > read:
            said += f" · {_format_remaining((self.size - read) * took / read)} left"
        return said


def _format_remaining(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5_400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3_600:.1f} h"
