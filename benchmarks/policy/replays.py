"""Replays the recorded sessions of several repositories under policies, in two processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing import Pool
from pathlib import Path
from time import process_time
from typing import Final

import msgspec
from msgspec.structs import replace

from benchmarks.policy.samples import SESSIONS, session_files
from sevenfold.cache.prices import Prices
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Entry, Reply
from sevenfold.recordings.finder import (
    ReplayFile,
    find_copied_requests,
    find_repeated_reads,
    read_first_requests,
    read_recording,
)
from sevenfold.recordings.recorded_session import retell_recording
from sevenfold.replay.outcome import TimeSpent
from sevenfold.replay.policies import Policy
from sevenfold.replay.results import compute_figures
from sevenfold.replay.runner import RecordedDrive

FIRST: Final = "entireio/cli"
DATA: Final = SESSIONS.parent
USUAL: Final = 200_000
"""Tokens. A recording with a longer prompt really had a larger window."""
PROCESSES: Final = 2
FEW: Final = 3
"""Sessions of each repository in a quick run."""

_load_prices = cache(Prices.load)


class SessionReplay(msgspec.Struct, frozen=True, kw_only=True):
    """One session under one policy; costs in base-price input tokens."""

    repository: str
    path: str
    policy: str
    long: bool  # True if a prompt had more than 200,000 tokens
    turns: int
    cost: float
    compared: float = 0.0  # The part of the cost where the paid one is known, and of added requests
    paid: float = 0.0
    extra: int = 0  # Requests that only read back
    robust: int = 0  # Of these, those that were needed beyond doubt
    summaries: int = 0
    written: float = 0.0  # The output of summaries
    removed: int = 0  # Tool results of at least 150 tokens that left the view
    needed: int = 0  # Of these, those that were needed beyond doubt
    memory: float = 0.0  # Recall and dreams, beside the cost
    spent: TimeSpent = TimeSpent()


class SessionJob(msgspec.Struct, frozen=True):
    """A recorded session and the policies to replay it under."""

    repository: str
    path: Path
    policies: tuple[Policy, ...]
    shared_reads: frozenset[int] = frozenset()  # First reads from the cache that other sessions had too
    copied: frozenset[str] = frozenset()  # Requests that are counted in another file
    first: int | None = None  # Only so many requests, as if the session had ended there


def find_repositories(data: Path = DATA) -> dict[str, list[Path]]:
    """The session files of each repository; empty without the shared sessions."""
    found = {FIRST: session_files(data / "sessions")}
    for folder in sorted((data / "sessions_2").glob("*+*")):
        found[folder.name.replace("+", "/", 1)] = session_files(folder)
    return {name: files for name, files in found.items() if files}


def replay_repositories(
    repositories: Mapping[str, Sequence[Path]],
    policies: Sequence[Policy],
    *,
    quick: bool = False,
    first: int | None = None,
) -> list[SessionReplay]:
    """Every session under every policy. A session that was copied into another file counts once.

    `first`: only so many requests of each that begins in its own file.
    """
    chosen = [
        (name, path) for name, files in repositories.items() for path in files[: FEW if quick else None]
    ]
    firsts = read_first_requests([ReplayFile(str(path)) for _, path in chosen])
    reads, copied = find_repeated_reads(firsts.values()), find_copied_requests(firsts)
    jobs = [
        SessionJob(name, path, tuple(policies), reads, copied.get(str(path), frozenset()), first)
        for name, path in sorted(chosen, key=lambda one: -one[1].stat().st_size)
    ]
    with Pool(PROCESSES) as pool:
        return [one for part in pool.imap_unordered(replay_session, jobs) for one in part]


def replay_session(job: SessionJob) -> list[SessionReplay]:
    """One session under each policy; nothing for a file in which all is copied, or no model answered."""
    began = process_time()
    recorded = read_recording(ReplayFile(str(job.path)))
    assert recorded is not None, f"{job.path} is no session"
    entries = retell_recording(recorded).entries
    parsing = process_time() - began
    if job.first is not None:
        entries = _cut_beginning(entries, job.first)
    drive = RecordedDrive(
        recorded, entries, _load_prices(), shared_reads=job.shared_reads, copied=job.copied
    )
    if drive.copied == drive.asked or (drive.copied and job.first):
        return []
    long = max(e.what.usage.prompt for e in entries if isinstance(e.what, Reply)) > USUAL
    return [_replay_policy(job, drive, policy, long, parsing) for policy in job.policies]


def _cut_beginning(entries: Sequence[Entry], requests: int) -> list[Entry]:
    """The entries up to the last reply of so many."""
    replies = [n for n, entry in enumerate(entries) if isinstance(entry.what, Reply)]
    return list(entries[: replies[:requests][-1] + 1])


def _replay_policy(
    job: SessionJob, drive: RecordedDrive, policy: Policy, long: bool, parsing: float
) -> SessionReplay:
    outcome, at = drive.replay(policy), drive.at
    figures = compute_figures(outcome, at.price, priced=at.known, others=at.others)
    paid, compared = figures.paid, figures.compared
    written = sum(row.usage.output for row in outcome.rows if row.kind == "summary")
    return SessionReplay(
        repository=job.repository,
        path=job.path.name,
        policy=policy.name,
        long=long,
        turns=outcome.turns,
        cost=figures.cost.units,
        compared=compared.units if compared is not None else 0.0,
        paid=paid.units if paid is not None else 0.0,
        extra=outcome.extra_requests,
        robust=outcome.robust_requests,
        summaries=outcome.summaries,
        written=at.price.units(Usage(output=written)),
        removed=outcome.regret.large_removed,
        needed=outcome.regret.large_needed,
        memory=outcome.recalled + outcome.dreamt,
        spent=replace(outcome.spent, parsing=parsing),
    )
