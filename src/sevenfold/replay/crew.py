"""Several processes that replay files at the same time, one file each at any moment.

Each is started afresh and handed one job after the other, so that memory is bounded by the largest files,
not by their number. One that dies takes a file with it, which is said; another takes its place.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from threading import current_thread, main_thread
from types import FrameType
from typing import Final, TypeAlias

from sevenfold.replay.running import Job, Replayed, Tell, Underway, failed, nobody, run

_CONTEXT: Final = get_context("spawn")
Work: TypeAlias = Callable[[Job, Tell], Replayed]
LOST: Final = "the process that replayed it died, perhaps for want of memory"


@dataclass(slots=True)
class _Worker:
    process: SpawnProcess
    line: Connection
    job: Job | None = None

    @classmethod
    def start(cls, work: Work) -> _Worker:
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


def replay(
    jobs: Iterable[Job], processes: int, work: Work = run, tell: Tell = nobody
) -> Generator[Replayed, None, None]:
    """What came of each job, as they are done. With one process it is this one.

    `tell` is called now and then with how far a job is.
    """
    if processes <= 1:
        for job in jobs:
            yield work(job, tell)
        return
    waiting, crew = iter(jobs), list[_Worker]()
    try:
        for job in waiting:
            if len(crew) < processes:
                crew.append(_Worker.start(work))
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


def _hand(worker: _Worker, job: Job) -> None:
    worker.job = job
    with suppress(OSError):  # it has died: that is noticed when its answer is waited for
        worker.line.send(job)


def _next(crew: list[_Worker], work: Work, tell: Tell) -> tuple[Replayed, _Worker]:
    """The next answer, and who is free now."""
    busy = {worker.line: n for n, worker in enumerate(crew) if worker.job}
    while True:
        [ready, *_] = wait(list(busy))
        n = busy[ready]  # type: ignore[index]
        worker = crew[n]
        try:
            heard: Replayed | Underway = worker.line.recv()
        except (EOFError, OSError):
            assert worker.job is not None
            heard = failed(worker.job, LOST)
            worker.end()
            worker = crew[n] = _Worker.start(work)
        if isinstance(heard, Replayed):
            worker.job = None
            return heard, worker
        tell(heard)


def _serve(line: Connection, work: Work) -> None:
    while True:
        try:
            job: Job = line.recv()
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
def terminable() -> Iterator[None]:
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
