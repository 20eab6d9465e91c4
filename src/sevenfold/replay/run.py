"""One recorded file under some policies: read it, drive it, and say what came of it or what is wrong.

Several processes that replay files at the same time, one file each at any moment. How far a replay
is, how fast it goes, and how long it will still take: one line that is drawn again.
"""

from __future__ import annotations

import gc
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
from sevenfold.recordings.recorded import RecordedSession, convert_recording
from sevenfold.replay.costs import SessionPrice, find_session_price
from sevenfold.replay.driver import drive_session
from sevenfold.replay.policies import Policy
from sevenfold.replay.results import LeftBranches, ReplayFigures, compute_figures, sum_costs
from sevenfold.replay.stand_ins import UNKNOWN, adjust_extraction, has_person, is_extraction_uncertain

MOST_ERRORS: Final = 20
"""That are listed of one file; the rest is counted."""
TELL_EVERY: Final = 0.2
"""Seconds between two words on how far a file is."""
BROKEN: Final = (ValueError, LookupError, ArithmeticError, RecursionError, MemoryError)
"""What a file that nobody has thought of may lead to: it ends this session, and the others go on."""


class ReplayJob(msgspec.Struct, frozen=True):
    """A file, and what to do with it. It goes to another process as it is."""

    number: int
    found: ReplayFile
    policies: tuple[Policy, ...]
    price: str | None = None
    """Count with the price of this model, whatever the file says."""
    prices: Path | None = None
    """The user's own price table."""
    drawn: bool = False
    """Whether each request is wanted, for a drawing."""
    scratch: Path | None = None
    """A folder for what layers write; whoever made it takes it away."""


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a file."""

    number: int
    path: str
    format: str = ""
    session: str = ""
    agent: str = ""
    """Of the sub-agent whose conversation it is; `session` is then the one that it worked for."""
    title: str = ""
    model: str = ""
    began: float = 0.0
    recorded: int = 0
    """Requests in the recording."""
    by_policy: dict[str, ReplayFigures] = {}
    left: LeftBranches = LeftBranches()
    """What is not replayed, since the user went back behind it."""
    errors: tuple[str, ...] = ()
    """What could not be read, known or believed: the figures are not the whole truth."""
    notes: tuple[str, ...] = ()
    """What files of this kind do not say."""
    passed_over: bool = False
    """Something else that lay in a folder."""
    agents: tuple[ReplayResult, ...] = ()
    """The sub-agents whose conversations are in the same file."""

    @property
    def called(self) -> str:
        """What it is called where many stand below each other."""
        name = Path(self.path).name
        for end in (".gz", ".jsonl", ".json", ".ndjson"):
            name = name.removesuffix(end)
        return f"{self.agent[:8]} of {(self.session or name)[:8]}" if self.agent else name


class FileProgress(msgspec.Struct, frozen=True):
    """How far a file is."""

    number: int
    share: float
    requests: int


Tell: TypeAlias = Callable[[FileProgress], None]


def ignore_progress(so_far: FileProgress) -> None:
    """Nobody wants to know."""


def replay_file(job: ReplayJob, tell: Tell = ignore_progress) -> ReplayResult:
    """Replay one file. Whatever is wrong with it is in the answer, never raised."""
    path, began = job.found.path, perf_counter()
    try:
        recorded = read_recording(job.found)
    except (SevenfoldError, OSError, *BROKEN) as error:
        return make_failed_result(job, _sentence(error, path))
    if recorded is None:
        return ReplayResult(number=job.number, path=path, passed_over=True)
    done: list[ReplayResult] = []
    for one in iterate_sessions(recorded):
        done.append(_session(job, one, began, tell if not done else ignore_progress))
        began = perf_counter()
    return replace(done[0], agents=tuple(done[1:]))


def _session(job: ReplayJob, recorded: RecordedSession, began: float, tell: Tell) -> ReplayResult:
    """One conversation of a file; its reading began then."""
    try:
        transcript = convert_recording(recorded)
    except (SevenfoldError, *BROKEN) as error:
        why = _sentence(error, job.found.path)
        return replace(make_failed_result(job, why), session=recorded.session, agent=recorded.agent)
    entries = transcript.entries
    errors = _problems(transcript.problems)
    notes, more = _silences(recorded, entries)
    took = perf_counter() - began
    return _driven(job, recorded, entries, (*errors, *more), notes, took, tell)


def make_failed_result(job: ReplayJob, why: str) -> ReplayResult:
    return ReplayResult(number=job.number, path=job.found.path, errors=(why,))


def _driven(
    job: ReplayJob,
    recorded: RecordedSession,
    entries: Sequence[Entry],
    errors: tuple[str, ...],
    notes: tuple[str, ...],
    parsing: float,
    tell: Tell,
) -> ReplayResult:
    at = find_session_price(entries, _prices(job.prices), job.price)
    done: dict[str, ReplayFigures] = {}
    answered = any(isinstance(entry.what, Reply) for entry in entries)
    unnamed = recorded.format == MESSAGES and not at.model  # such files mostly name none
    if answered and is_extraction_uncertain(recorded, job.policies):
        notes += (UNKNOWN,)
    for n, policy in enumerate(job.policies if answered else ()):
        told = _telling(job, entries, n, tell)
        try:
            under = adjust_extraction(policy, has_person(recorded))
            done[policy.name] = _under(under, job, entries, at, parsing, told)
        except (SevenfoldError, *BROKEN) as error:
            errors += (f"{policy.name}: {_sentence(error, job.found.path)}",)
        gc.collect()  # what drove it refers to itself in circles, and holds the texts of a view
    return ReplayResult(
        number=job.number,
        path=job.found.path,
        format=recorded.format,
        session=recorded.session,
        agent=recorded.agent,
        title=recorded.title,
        model=at.model,
        began=entries[0].at if entries else 0.0,
        recorded=sum(isinstance(entry.what, Reply) for entry in entries),
        by_policy=done,
        left=_left(recorded, at),
        errors=(*errors, at.error) if at.error and answered and not unnamed else errors,
        notes=(*notes, at.error) if at.error and answered and unnamed else notes,
    )


def _under(
    policy: Policy,
    job: ReplayJob,
    entries: Sequence[Entry],
    at: SessionPrice,
    parsing: float,
    told: Callable[[int], None],
) -> ReplayFigures:
    """What came of it under one policy."""
    outcome = drive_session(
        entries,
        policy,
        at.model,
        at.price,
        window=at.window,
        prices=at.prices,
        scratch=job.scratch,
        told=told,
    )
    outcome = replace(outcome, spent=replace(outcome.spent, parsing=parsing))
    return compute_figures(
        outcome, at.price, priced=at.known, drawn=job.drawn, others=at.others, paid_at=job.price or ""
    )


def _telling(job: ReplayJob, entries: Sequence[Entry], before: int, tell: Tell) -> Callable[[int], None]:
    """Tells how far the file is, now and then; `before`: so many policies are done."""
    last = monotonic()
    replies = list(accumulate((isinstance(e.what, Reply) for e in entries), initial=0))

    def told(done: int) -> None:
        nonlocal last
        if (now := monotonic()) - last >= TELL_EVERY:
            last = now
            share = (before + done / len(entries)) / len(job.policies)
            tell(FileProgress(job.number, share, before * replies[-1] + replies[done]))

    return told


def _left(recorded: RecordedSession, at: SessionPrice) -> LeftBranches:
    """What was asked on branches that were left, and what is known of its price."""
    left = recorded.abandoned
    used = [(r.model, replace(r.usage, output=0)) for r in left if r.usage.prompt]
    if not used:
        return LeftBranches(len(left))
    return LeftBranches(len(left), sum_costs(used, at.price, priced=at.known, others=at.others))


@cache
def _prices(override: Path | None) -> Prices:
    return Prices.load(override)


def _silences(
    recorded: RecordedSession, entries: Sequence[Entry]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the file does not say: (as such files do not, although such files do)."""
    replies = [entry.what for entry in entries if isinstance(entry.what, Reply)]
    notes, errors = list[str](), list[str]()
    if not replies:
        errors.append("no model answered in it: there is nothing to replay")
        return (), tuple(errors)
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


def _problems(problems: Sequence[Problem]) -> tuple[str, ...]:
    said = [f"line {problem.line}: {problem.why}" for problem in problems[:MOST_ERRORS]]
    if len(problems) > MOST_ERRORS:
        said.append(f"and {len(problems) - MOST_ERRORS:,} more lines that cannot be read")
    return tuple(said)


def _sentence(error: BaseException, path: str) -> str:
    said = " ".join(str(error).split()) or type(error).__name__
    return said.removeprefix(f"{path}: ")


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
        with _undisturbed():
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
    """What came of each job, as they are done. With one process it is this one.

    `tell` is called now and then with how far a job is.
    """
    if processes <= 1:
        for job in jobs:
            yield work(job, tell)
        return
    waiting, crew = iter(jobs), list[_ReplayWorker]()
    try:
        for job in waiting:
            if len(crew) < processes:
                crew.append(_ReplayWorker.start(work))
                _hand(crew[-1], job)
                continue
            done, free = _next(crew, work, tell)
            _hand(free, job)
            yield done
        while any(worker.job for worker in crew):
            done, _ = _next(crew, work, tell)
            yield done
    finally:
        for worker in crew:
            worker.end()


def _hand(worker: _ReplayWorker, job: ReplayJob) -> None:
    worker.job = job
    with suppress(OSError):  # it has died: that is noticed when its answer is waited for
        worker.line.send(job)


def _next(crew: list[_ReplayWorker], work: Work, tell: Tell) -> tuple[ReplayResult, _ReplayWorker]:
    """The next answer, and who is free now."""
    busy = {worker.line: n for n, worker in enumerate(crew) if worker.job}
    while True:
        [ready, *_] = wait(list(busy))
        n = busy[ready]  # type: ignore[index]
        worker = crew[n]
        try:
            heard: ReplayResult | FileProgress = worker.line.recv()
        except (EOFError, OSError):
            assert worker.job is not None
            heard = make_failed_result(worker.job, LOST)
            worker.end()
            worker = crew[n] = _ReplayWorker.start(work)
        if isinstance(heard, ReplayResult):
            worker.job = None
            return heard, worker
        tell(heard)


def _serve(line: Connection, work: Work) -> None:
    while True:
        try:
            job: ReplayJob = line.recv()
        except EOFError:
            return
        line.send(work(job, line.send))


@contextmanager
def _undisturbed() -> Iterator[None]:
    """What is started here never hears of Ctrl-C: who started it does, and ends it."""
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
    """What asks this process to end (SIGTERM) ends it in order: files are taken away, processes ended."""

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


TICK: Final = 0.1
"""Seconds between two drawings."""
CLEAR: Final = "\r\x1b[K"


@dataclass(slots=True)
class ReplayProgress:
    """Told of every file that is done, and how far others are; draws on `out`, which is a terminal."""

    out: TextIO
    files: int
    size: int
    """Bytes of all files."""
    now: Callable[[], float] = monotonic
    done: int = 0
    read: int = 0
    requests: int = 0
    _within: dict[int, tuple[float, int]] = field(default_factory=dict)
    """Of files that are not done yet: bytes and requests that are."""
    _began: float | None = None
    _drawn: float = float("-inf")

    def start(self) -> None:
        self._began = self.now()
        self.draw()

    def underway(self, number: int, read: float, requests: int) -> None:
        """So many bytes of a file are done, and as many requests."""
        self._within[number] = read, requests
        if self.now() - self._drawn >= TICK:
            self.draw()

    def add(self, size: int, requests: int, number: int = -1) -> None:
        self._within.pop(number, None)
        self.done += 1
        self.read += size
        self.requests += requests
        if self.now() - self._drawn >= TICK:
            self.draw()

    def draw(self) -> None:
        self._drawn = self.now()
        self.out.write(f"{CLEAR}{self.line()}")
        self.out.flush()

    def end(self) -> None:
        self.out.write(CLEAR)
        self.out.flush()

    def line(self) -> str:
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
            said += f" · {_left_progress((self.size - read) * took / read)} left"
        return said


def _left_progress(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5_400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3_600:.1f} h"
