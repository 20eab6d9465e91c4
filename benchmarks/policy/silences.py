"""What the pre-cold layer saves while users of recorded sessions are silent, by the rules of the cache.

python -m benchmarks.policy.silences [FOLDER] [--json]

Every second session file of FOLDER (default: ../shared/data/sessions): the ones that `gaps.toml` was not
made from. Counted is only what a silence costs: requests that keep warm, and writing the context again when
the cache is lost and the user does come back. Small contexts are let go in every row.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from benchmarks.policy.gaps import typed
from benchmarks.policy.samples import SESSIONS, halves, session_files
from benchmarks.report import Table, show
from sevenfold.core.transcript import Reply
from sevenfold.layers.l2_microcompaction.cache_expiry import (
    ASKING,
    HOUR,
    LARGE,
    NEAR,
    CacheSituation,
    Way,
    choose_cache_action,
)
from sevenfold.layers.shared.idle_gaps import QUICKEST, GapCounts
from sevenfold.recordings.claude_code import read_session

READ, WRITE, WRITE_HOUR, OUTPUT = 0.1, 1.25, 2.0, 5.0
LIFE: Final = 300.0
FRESH: Final = 500
"""Tokens of a reply, about."""
MOST: Final = 2
Policy: TypeAlias = Callable[[CacheSituation], Way]


class Quiet(msgspec.Struct, frozen=True):
    """One silence: how large the context was, and after how long the user spoke; None: never."""

    tokens: int
    gap: float | None


def quiets(path: Path) -> Iterator[Quiet]:
    replied, tokens = None, 0
    for said in read_session(path).entries:
        if isinstance(said.what, Reply):
            if not said.made_up and not said.failed:
                tokens = said.what.usage.total or tokens
                replied = None if said.what.message.tool_uses else said.at
        elif replied is not None and typed(said):
            if said.at - replied >= QUICKEST:
                yield Quiet(tokens, said.at - replied)
            replied = None
    if replied is not None:
        yield Quiet(tokens, None)


class Outcome(msgspec.Struct):
    cost: float = 0.0
    """In base-price input tokens."""
    rewrites: int = 0
    requests: int = 0


def replayed(silences: Sequence[Quiet], policy: Policy, *, hour_holds: bool = True) -> Outcome:
    """What these silences cost under a policy that learns the user's gaps as it goes."""
    out, seen = Outcome(), GapCounts()
    for quiet in silences:
        until = _kept(quiet, policy, seen.with_prior(), out, hour_holds)
        if quiet.gap is not None and quiet.gap > until:
            out.cost += quiet.tokens * (WRITE - READ)
            out.rewrites += 1
        seen = seen.leaving() if quiet.gap is None else seen.after(quiet.gap)
    return out


def _kept(quiet: Quiet, policy: Policy, gaps: GapCounts, out: Outcome, hour_holds: bool) -> float:
    """Spend on one silence what the policy says; until when the cache is kept."""
    until, now, times, hour = LIFE, NEAR * LIFE, 0, False
    away = float("inf") if quiet.gap is None else quiet.gap
    while quiet.tokens >= LARGE and now < min(away, until):
        way = policy(_situation(quiet.tokens, now, until, gaps, times, hour))
        if way not in ("keep warm", "an hour"):
            break
        if way == "an hour":
            hour = True
            out.cost += FRESH * (WRITE_HOUR - READ)
        out.cost += quiet.tokens * READ + ASKING + OUTPUT
        out.requests += 1
        times += 1
        until = now + (HOUR if hour and hour_holds else LIFE)
        now += NEAR * (HOUR if hour else LIFE)
    return until


def _situation(
    tokens: int, now: float, until: float, gaps: GapCounts, times: int, hour: bool
) -> CacheSituation:
    return CacheSituation(
        tokens=tokens,
        idle=now,
        expires=until,
        life=HOUR if hour else LIFE,
        gaps=gaps,
        read=READ,
        write=WRITE,
        write_hour=WRITE_HOUR,
        output=OUTPUT,
        fresh=0 if times else FRESH,
        left=MOST - times,
    )


def keeping(times: int) -> Policy:
    return lambda s: "keep warm" if MOST - s.left < times else "let go"


def measured(silences: Sequence[Quiet]) -> Table:
    table = Table("what silences cost", "policy", "cost, %", "rewrites", "requests")
    policies: list[tuple[str, Policy, bool]] = [
        ("let it go cold", lambda s: "let go", True),
        ("one keep-warm request", keeping(1), True),
        ("two keep-warm requests", keeping(2), True),
        ("the layer", lambda s: choose_cache_action(s).way, True),
        ("the layer, if an hour does not hold", lambda s: choose_cache_action(s).way, False),
    ]
    whole = replayed(silences, policies[0][1]).cost or 1.0
    for name, policy, holds in policies:
        out = replayed(silences, policy, hour_holds=holds)
        table.add(name, f"{100 * out.cost / whole:.1f}", out.rewrites, out.requests)
    table.notes.append(f"{len(silences)} silences, {sum(q.gap is None for q in silences)} for ever")
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=SESSIONS)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    options = parser.parse_args()
    _, paths = halves(session_files(options.folder))
    if not paths:
        print(f"{options.folder} holds too few session files", file=sys.stderr)
        return 2
    silences = [quiet for path in paths for quiet in quiets(path)]
    show([measured(silences)], as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
