"""Replays files and says what came of it: a table, JSON, or a page."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.cache.prices import Prices
from sevenfold.cli.options import Shared
from sevenfold.cli.output import result, say
from sevenfold.cli.replay_showing import as_json, drawn
from sevenfold.cli.surroundings import look
from sevenfold.cli.wording import count, printable
from sevenfold.errors import Mistake
from sevenfold.replay.crew import replay
from sevenfold.replay.policies import BUILT_IN, DEFAULT, Policy, policy, without
from sevenfold.replay.pricing import asked_for
from sevenfold.replay.progress import Progress
from sevenfold.replay.reading.finding import files_in
from sevenfold.replay.running import Job, Replayed

FEW: Final = 2_000_000
"""Bytes that one process has replayed before others have started."""
MOST_SAID: Final = 10
"""Files whose troubles are told on the screen; JSON and the report tell all."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    paths: tuple[Path, ...]
    policies: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    compare: bool = False
    price: str | None = None
    html: Path | None = None
    jobs: int | None = None


def run(shared: Shared, wanted: Wanted) -> int:
    policies = chosen(wanted)
    prices = look(shared).settings().settings.prices
    if wanted.price is not None:
        asked_for(Prices.load(prices), wanted.price)
    if wanted.html is not None:
        _check_report(wanted.html)
    done = _replayed(shared, wanted, policies, prices)
    if not done:
        raise Mistake(
            "there is no session in what was named; name files, or folders that have some"
        )
    names = [one.name for one in policies]
    result(shared, drawn(done, names), as_json(done, names))
    if wanted.html is not None:
        _write_report(shared, wanted.html.expanduser(), done, policies)
    return _told(shared, done)


def chosen(wanted: Wanted) -> tuple[Policy, ...]:
    """The policies; when they are compared, each layer that is left out makes one more."""
    every = wanted.compare and not wanted.policies and not wanted.without
    names = BUILT_IN if every else wanted.policies or (DEFAULT,)
    plain = [policy(name) for name in names]
    if wanted.compare:
        out = [p for one in plain for p in (one, *(without(one, [w]) for w in wanted.without))]
    else:
        out = [without(one, wanted.without) for one in plain]
    twice = [name for name, n in Counter(one.name for one in out).items() if n > 1]
    if twice:
        raise Mistake(f"the policy {twice[0]!r} is named twice; leave one of them out")
    return tuple(out)


def _replayed(
    shared: Shared, wanted: Wanted, policies: tuple[Policy, ...], prices: Path | None
) -> list[Replayed]:
    files = list(files_in(wanted.paths))
    jobs = [
        Job(n, found, policies, wanted.price, prices, wanted.html is not None)
        for n, found in enumerate(files)
    ]
    size = sum(found.size for found in files)
    at_once = min(wanted.jobs or _cores(), len(files))
    if wanted.jobs is None and size < FEW:
        at_once = 1
    shows = sys.stderr.isatty() and not shared.quiet and not shared.no_color
    progress = Progress(sys.stderr, len(files), size) if shows else None
    done: list[Replayed] = []
    try:
        if progress is not None:
            progress.start()
        with closing(replay(jobs, at_once)) as answers:  # an interrupt ends the processes
            for one in answers:
                done.append(one)
                if progress is not None:
                    requests = sum(each.requests for each in one.by_policy.values())
                    progress.add(files[one.number].size, requests)
    finally:
        if progress is not None:
            progress.end()
    return sorted((one for one in done if not one.passed_over), key=lambda one: one.number)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _check_report(path: Path) -> None:
    """A replay may take long: whether there is a place for its report is known before."""
    if path.expanduser().is_dir():
        raise Mistake(f"{path}: that is a folder; name the file to write the report to")
    if not path.expanduser().parent.is_dir():
        raise Mistake(f"{path}: there is no such folder to write the report to")


def _write_report(
    shared: Shared, path: Path, done: Sequence[Replayed], policies: Sequence[Policy]
) -> None:
    from sevenfold.clock import SystemClock
    from sevenfold.replay.report.page import page
    from sevenfold.storage.files import write_atomic

    write_atomic(path, page(done, policies, SystemClock().now()).encode("utf-8"))
    say(shared, f"wrote {path}")


def _told(shared: Shared, done: Sequence[Replayed]) -> int:
    """Say what is wrong, file by file; the exit code."""
    wrong = [one for one in done if one.errors]
    if shared.json:
        return 1 if wrong else 0
    for one in wrong[:MOST_SAID]:
        more = f" (and {len(one.errors) - 1} more)" if len(one.errors) > 1 else ""
        said = printable(f"{one.path}: {one.errors[0]}{more}")
        print(f"sevenfold: {said}", file=sys.stderr)
    if len(wrong) > MOST_SAID:
        print(f"sevenfold: and {count(len(wrong) - MOST_SAID, 'more file')}", file=sys.stderr)
    for note, number in Counter(note for one in done for note in one.notes).items():
        say(shared, f"{count(number, 'file')}: {note}")
    return 1 if wrong else 0
