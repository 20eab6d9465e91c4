"""Replays files and says what came of it: a table, JSON, or a page."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.cache.prices import Prices
from sevenfold.cli.options import Shared
from sevenfold.cli.output import result, say
from sevenfold.cli.replay_choosing import chosen
from sevenfold.cli.replay_report import check_report, write_report
from sevenfold.cli.replay_showing import as_json, drawn
from sevenfold.cli.surroundings import look
from sevenfold.cli.wording import count, one_line, printable
from sevenfold.errors import Mistake
from sevenfold.replay.crew import replay, terminable
from sevenfold.replay.policies import Policy
from sevenfold.replay.pricing import asked_for
from sevenfold.replay.progress import Progress
from sevenfold.replay.reading.finding import Found, files_in
from sevenfold.replay.running import Job, Replayed, Underway

FEW: Final = 2_000_000
"""Bytes that one process has replayed before others have started."""
LONGEST_PATH: Final = 300
"""Characters of a path, or of a policy's name, in a sentence."""
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
    rows = chosen(wanted.policies, wanted.without, compare=wanted.compare)
    policies, notes = tuple(r.policy for r in rows), {r.policy.name: r.note for r in rows}
    prices = look(shared).settings().settings.prices
    if wanted.price is not None:
        asked_for(Prices.load(prices), wanted.price)
    files = list(files_in(wanted.paths))
    if wanted.html is not None:
        check_report(wanted.html, [found.path for found in files])
    done = _replayed(shared, wanted, files, policies, prices)
    if not done:
        raise Mistake(
            "there is no session in what was named; name files, or folders that have some"
        )
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    result(shared, drawn(done, list(notes), width), as_json(done, notes))
    if wanted.html is not None:
        write_report(shared, wanted.html.expanduser(), done, policies, notes)
    return _told(shared, done, notes)


def _replayed(
    shared: Shared,
    wanted: Wanted,
    files: Sequence[Found],
    policies: tuple[Policy, ...],
    prices: Path | None,
) -> list[Replayed]:
    size = sum(found.size for found in files)
    at_once = min(wanted.jobs or _cores(), len(files))
    if wanted.jobs is None and size < FEW:
        at_once = 1
    shows = sys.stderr.isatty() and not shared.quiet and not shared.no_color
    progress = Progress(sys.stderr, len(files), size) if shows else None
    done: list[Replayed] = []

    def tell(so_far: Underway) -> None:
        if progress is not None:
            read = files[so_far.number].size * so_far.share
            progress.underway(so_far.number, read, so_far.requests)

    try:
        if progress is not None:
            progress.start()
        with terminable(), TemporaryDirectory(prefix="sevenfold-replay-") as scratch:
            jobs = [
                Job(n, one, policies, wanted.price, prices, wanted.html is not None, Path(scratch))
                for n, one in enumerate(files)
            ]
            with closing(replay(jobs, at_once, tell=tell)) as answers:  # an interrupt ends them
                for one in answers:
                    done.append(one)
                    if progress is not None:
                        parts = (one, *one.agents)
                        requests = sum(f.requests for p in parts for f in p.by_policy.values())
                        progress.add(files[one.number].size, requests, one.number)
    finally:
        if progress is not None:
            progress.end()
    return _each(done)


def _each(done: Sequence[Replayed]) -> list[Replayed]:
    """The sessions in the order of the files, each of a file's sub-agents behind it."""
    known = sorted((one for one in done if not one.passed_over), key=lambda one: one.number)
    each = [part for one in known for part in (replace(one, agents=()), *one.agents)]
    return [replace(one, number=n) for n, one in enumerate(each)]


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _told(shared: Shared, done: Sequence[Replayed], notes: Mapping[str, str]) -> int:
    """Say what is wrong, file by file; the exit code."""
    wrong = [one for one in done if one.errors]
    if shared.json:
        return 1 if wrong else 0
    for one in wrong[:MOST_SAID]:
        more = f" (and {len(one.errors) - 1} more)" if len(one.errors) > 1 else ""
        said = f"{one_line(one.path, LONGEST_PATH)}: {printable(one.errors[0])}{more}"
        print(f"sevenfold: {said}", file=sys.stderr)
    if len(wrong) > MOST_SAID:
        print(f"sevenfold: and {count(len(wrong) - MOST_SAID, 'more file')}", file=sys.stderr)
    for note, number in Counter(note for one in done for note in one.notes).items():
        say(shared, f"{count(number, 'file')}: {note}")
    for name, note in notes.items():
        if note:
            say(shared, f"policy {one_line(name, LONGEST_PATH)}: {note}")
    return 1 if wrong else 0
