"""Figures of replayed sessions, and the choice of sizes on some repositories for another."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks.policy import policies
from benchmarks.policy.figures import DRAWS, Compared, choose_sizes, compare, hold_out, lengthen_summaries
from benchmarks.policy.replays import SessionJob, SessionReplay, replay_session
from benchmarks.policy.run import run
from benchmarks.policy.samples import SESSIONS, session_files
from sevenfold.core.transcript import Reply
from sevenfold.recordings.claude_code import read_session
from sevenfold.replay.policies import BUILT_IN, load_policy

REPOSITORIES = ("a/a", "b/b", "c/c", "d/d")
COSTS = (70.0, 72.0, 74.0, 76.0, 80.0, 85.0)


def replayed(
    policy: str, cost: float, repository: str = "a/a", path: str = "1", turns: int = 100, **more: int
) -> SessionReplay:
    made = SessionReplay(
        repository=repository, path=path, policy=policy, long=False, turns=turns, cost=cost
    )
    return replace(made, **more)


def grid(repository: str, **more: int) -> list[SessionReplay]:
    """Append-only and every point of the grid; the larger the sizes, the dearer."""
    names = [policies.find_replayed_name(policy) for policy in policies.GRID]
    found = [replayed(name, cost, repository) for name, cost in zip(names, COSTS, strict=True)]
    found[0] = replace(found[0], **more)
    return [replayed("append-only", 100.0, repository), *found]


def test_the_compared_policies_are_those_of_the_product_and_each_name_is_once() -> None:
    names = [policy.name for policy in policies.ALL]

    assert len(set(names)) == len(names)
    assert all(policy == load_policy(policy.name) for policy in policies.NAMED)
    assert {policy.name for policy in policies.NAMED} <= set(BUILT_IN)
    assert [policies.find_replayed_name(policy) for policy in policies.GRID].count("balanced") == 1
    assert all(policies.find_replayed_name(policy) in names for policy in policies.GRID)


def test_every_change_changes_something() -> None:
    for policy in policies.CHANGES:
        assert replace(policy, name="balanced") != policies.DEFAULT, policy.name


def test_costs_are_compared_session_by_session() -> None:
    done = [
        *(replayed("append-only", cost, path=path) for path, cost in (("1", 100.0), ("2", 300.0))),
        replayed("p", 103.0, path="1", turns=10, extra=2, robust=1),
        replayed("p", 197.0, path="2", turns=90, summaries=1, removed=50, needed=1),
        replayed("other", 1.0),
    ]
    found = compare(done, "p")

    assert found.of_base == pytest.approx(75.0)
    assert (found.extra, found.robust, found.summaries, found.regret) == (2.0, 1.0, 1.0, 2.0)
    assert found.dearer == 50.0
    assert found.short.of_base == pytest.approx(103.0)
    assert len(found.short.pairs) == 1


def test_the_cheapest_sizes_that_keep_the_limits_are_chosen() -> None:
    done = grid("a/a")
    assert choose_sizes(done) == (policies.GRID[0], True)

    for broken in ({"robust": 2}, {"summaries": 2}, {"removed": 100, "needed": 4}):
        assert choose_sizes(grid("a/a", **broken)) == (policies.GRID[1], True), broken


def test_without_sizes_that_keep_the_limits_the_largest_are_taken_and_it_is_said() -> None:
    done = [replace(one, robust=5) for one in grid("a/a")]

    assert choose_sizes(done) == (policies.GRID[-1], False)


def test_a_repository_has_no_part_in_the_choice_of_its_sizes() -> None:
    done = [one for name in REPOSITORIES for one in grid(name, robust=50 if name == "d/d" else 0)]
    chosen = {held.repository: held.chosen.name for held in hold_out(done)}

    first, second = (policy.name for policy in policies.GRID[:2])
    assert chosen == {"a/a": second, "b/b": second, "c/c": second, "d/d": first}
    held = next(one for one in hold_out(done) if one.repository == "d/d")
    assert {one.repository for one, _ in held.compared.pairs} == {"d/d"}
    assert held.compared.robust == 50.0


def test_the_interval_is_that_of_sessions_drawn_anew_and_the_same_each_time() -> None:
    pairs = [
        (replayed("p", 60.0 + n, path=str(n)), replayed("append-only", 100.0, path=str(n)))
        for n in range(40)
    ]
    found = Compared(pairs)
    low, high = found.draw_interval()

    assert DRAWS > 100
    assert low < found.of_base < high
    assert (low, high) == Compared(pairs).draw_interval()
    assert Compared(pairs[:1]).draw_interval() == pytest.approx((60.0, 60.0))


def test_longer_summaries_cost_more_in_every_row() -> None:
    done = [replace(replayed("append-only", 100.0), written=33.0), replayed("balanced", 80.0)]
    first, second = lengthen_summaries(done)

    assert first.cost == pytest.approx(112.0)
    assert second.cost == 80.0


def test_without_the_shared_sessions_it_says_so(tmp_path: Path) -> None:
    [table] = run(quick=True, data=tmp_path)

    assert "skipped" in table.notes[0]


@pytest.mark.skipif(not SESSIONS.is_dir(), reason="the recorded sessions are not here")
def test_requests_that_are_copied_from_another_file_count_once() -> None:
    path = min(session_files(SESSIONS), key=lambda file: file.stat().st_size)
    job = SessionJob("a/a", path, (policies.BASE, policies.DEFAULT))
    done = replay_session(job)

    assert [one.policy for one in done] == ["append-only", "balanced"]
    assert all(one.cost and one.paid and one.turns for one in done)
    ids = [one.request_id for one in read_session(path).active if isinstance(one.what, Reply)]
    assert replay_session(replace(job, copied=frozenset(ids))) == []
    [later] = replay_session(replace(job, policies=(policies.BASE,), copied=frozenset(ids[:1])))
    assert later.turns == done[0].turns - 1
    assert 0 < later.cost < done[0].cost
