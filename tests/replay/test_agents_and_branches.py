"""What else is in a file: sub-agents are sessions, branches that were left are counted apart."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from replay import sessions

from sevenfold.core.messages import Text, assistant, user
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Mark, Reply, Transcript, Undo
from sevenfold.recordings.finder import ReplayFile, read_recording
from sevenfold.replay.policies import load_policy
from sevenfold.replay.runner import ReplayJob, ReplayResult, replay_file

Json = dict[str, Any]


def records(data: bytes, prefix: str = "", **more: Any) -> list[Json]:
    """The records of a session, with ids of their own."""
    found = [json.loads(line) for line in data.splitlines()]
    for record in found:
        record |= more
        record["uuid"] = prefix + record["uuid"]
        if record["parentUuid"]:
            record["parentUuid"] = prefix + record["parentUuid"]
        if "id" in record["message"]:
            record["message"]["id"] = prefix + record["message"]["id"]
    return found


def replayed(folder: Path, lines: list[Json], name: str = "session.jsonl") -> ReplayResult:
    path = folder / name
    path.write_bytes(sessions.jsonl(lines))
    return replay_file(ReplayJob(0, ReplayFile(str(path)), (load_policy("append-only"),)))


def turns(one: ReplayResult) -> int:
    return one.by_policy["append-only"].turns


def paid(one: ReplayResult) -> float:
    known = one.by_policy["append-only"].paid
    assert known is not None
    return known.units


# --- sub-agents -------------------------------------------------------------------------------------------


def test_a_sub_agent_in_a_file_is_replayed_as_a_session_of_its_own(tmp_path: Path) -> None:
    own = records(sessions.claude_code(3))
    side = records(sessions.claude_code(1), "s.", isSidechain=True, agentId="ag-7")

    done = replayed(tmp_path, [*own[:3], *side, *own[3:]])

    [agent] = done.agents
    alone = replayed(tmp_path, own)
    assert (turns(done), paid(done)) == (turns(alone), paid(alone)) == (4, paid(alone))
    assert (agent.agent, agent.session, turns(agent)) == ("ag-7", "a-claude-session", 2)
    assert agent.short_name == "ag-7 of a-claude"
    assert (done.errors, agent.errors) == ((), ())


def test_sub_agents_without_an_id_are_told_apart_by_how_they_begin(tmp_path: Path) -> None:
    sides = [records(sessions.claude_code(n), f"s{n}.", isSidechain=True) for n in (1, 2)]

    done = replayed(tmp_path, [*records(sessions.claude_code(3)), *sides[0], *sides[1]])

    assert [(one.agent, turns(one)) for one in done.agents] == [("s1.u", 2), ("s2.u", 3)]


def test_the_file_of_a_sub_agent_says_whose_it_is(tmp_path: Path) -> None:
    side = records(sessions.claude_code(1), isSidechain=True, agentId="ag-7")

    done = replayed(tmp_path, side, "agent-ag-7.jsonl")

    assert (done.agent, done.session, turns(done), done.agents) == ("ag-7", "a-claude-session", 2, ())


def test_a_file_of_several_sub_agents_is_replayed_whole(tmp_path: Path) -> None:
    sides = [records(sessions.claude_code(n), f"s{n}.", isSidechain=True) for n in (1, 2)]
    sides[1][1]["timestamp"] = 12

    done = replayed(tmp_path, [*sides[0], *sides[1]])

    assert [turns(one) for one in (done, *done.agents)] == [2, 3]
    assert [len(one.errors) for one in (done, *done.agents)] == [1, 0]


def test_a_sub_agent_that_no_model_answered_is_passed_over(tmp_path: Path) -> None:
    asked = records(sessions.claude_code(1), "s.", isSidechain=True, agentId="ag-7")[:1]

    done = replayed(tmp_path, [*records(sessions.claude_code(3)), *asked])

    assert (done.agents, done.errors) == ((), ())


# --- branches that were left ------------------------------------------------------------------------------


def test_requests_on_a_branch_that_was_left_are_counted_apart(tmp_path: Path) -> None:
    own = records(sessions.claude_code(3))
    left = records(sessions.claude_code(2), "left.")[1:]
    left[0]["parentUuid"] = "u"

    done, alone = replayed(tmp_path, [own[0], *left, *own[1:]]), replayed(tmp_path, own)

    assert (turns(done), paid(done)) == (turns(alone), paid(alone))
    assert done.left.requests == 3
    assert done.left.paid is not None
    first, later = 3 + 1.25 * 19_997, [3 + 1.25 * 900 + 0.1 * (19_097 + 900 * n) for n in (1, 2)]
    assert done.left.paid.units == pytest.approx(first + sum(later))
    assert (alone.left.requests, alone.left.paid) == (0, None)


def test_what_was_rewound_in_one_of_our_own_is_counted_apart_too(tmp_path: Path) -> None:
    log: list[bytes] = []
    transcript = Transcript(lambda: sessions.BEGAN, log.append)
    transcript.add(Mark("session", {"format": 1, "model": "claude-sonnet-4-5"}), by="session")
    transcript.add(user("go"), by="user")
    reply = Reply(assistant(Text("gone")), Usage(10, 900, 5_000, 20))
    gone = transcript.add(reply, by="model")
    transcript.add(Undo(frozenset(gone)), by="session")
    transcript.add(Reply(assistant(Text("done")), Usage(10, 900, 5_000, 20)), by="model")
    path = tmp_path / "ours.jsonl"
    path.write_bytes(b"".join(log))

    done = replay_file(ReplayJob(0, ReplayFile(str(path)), (load_policy("append-only"),)))

    assert (turns(done), done.left.requests) == (1, 1)
    assert done.left.paid is not None


@pytest.mark.parametrize(
    ("left", "silence", "kept"),
    [((5_900,), 250, True), ((5_900,), 7_200, True), ((500, 5_900), 250, False), ((), 250, False)],
    ids=["longer", "after a long silence", "compacted, and longer again", "none"],
)
def test_requests_on_a_branch_that_was_left_keep_the_common_prefix_in_the_cache(
    left: tuple[int, ...], silence: float, kept: bool, tmp_path: Path
) -> None:
    log: list[bytes] = []
    now = [sessions.BEGAN]
    transcript = Transcript(lambda: now[0], log.append)
    transcript.add(Mark("session", {"format": 1, "model": "claude-sonnet-4-5"}), by="session")

    def ask(after: float, read: int = 5_900) -> list[int]:
        now[0] += after
        said = Reply(assistant(Text("so be it")), Usage(10, 900, read, 20))
        return [*transcript.add(user("go on"), by="user"), *transcript.add(said, by="model")]

    ask(1.0, 5_000)
    for read in left:
        transcript.add(Undo(frozenset(ask(silence / len(left), read))), by="session")
    ask(250.0 if left else 500.0)
    path = tmp_path / "ours.jsonl"
    path.write_bytes(b"".join(log))

    done = replay_file(ReplayJob(0, ReplayFile(str(path)), (load_policy("append-only"),)))

    found = done.by_policy["append-only"]
    assert [one.reason for one in found.breaks] == ([] if kept else ["silence"])
    assert (found.turns, done.left.requests) == (2, len(left))


# --- reading once -----------------------------------------------------------------------------------------


def test_a_wrong_field_does_not_bring_the_whole_file_into_memory(tmp_path: Path) -> None:
    lines = records(sessions.claude_code(3))
    for n in range(40):  # what no model saw is passed over, line by line
        lines.insert(-1, {"type": "progress", "sessionId": "s", "data": f"{n}" + "x" * 250_000})
    lines[3]["timestamp"] = 12
    path = tmp_path / "long.jsonl"
    path.write_bytes(sessions.jsonl(lines))

    tracemalloc.start()
    try:
        recorded = read_recording(ReplayFile(str(path)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert recorded is not None
    assert [problem.line for problem in recorded.problems] == [4]
    assert peak < path.stat().st_size / 4
