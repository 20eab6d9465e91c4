"""Our own sessions read back: what a layer added was said by nobody, and one line has no branches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from flows.test_layers_in_session import Provider, call, provided, text
from flows.test_session import Place
from flows.wire import SteadySimulator
from msgspec.structs import replace

from sevenfold.core.clock import run_sync
from sevenfold.core.messages import Json, Message, Text, ToolResult, ToolUse, assistant, user
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Mark, Replace, Reply, Results, Transcript
from sevenfold.recordings.finder import ReplayFile, find_replay_files
from sevenfold.recordings.own_sessions import OwnReader
from sevenfold.recordings.recorded_session import RecordedCompaction, RecordedSession, convert_recording
from sevenfold.replay.policies import Policy, load_policy
from sevenfold.replay.runner import ReplayJob, ReplayResult, replay_file

RECORDED = replace(load_policy("append-only"), name="as recorded", compactions="recorded")


class OwnLog:
    """A session file of ours, entry by entry."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.now = 1_780_000_000.0
        self.transcript = Transcript(lambda: self.now, self.lines.append)
        about = {"format": 1, "id": "one", "model": "claude-sonnet-4-5", "interactive": False}
        self.transcript.add(Mark("session", about), by="session")

    def reads(self, n: int) -> None:
        self.now += 5
        use = ToolUse(f"u{n}", "Read", {"file_path": f"/w/{n}.py"})
        self.transcript.add(Reply(assistant(Text("reading"), use), Usage(10, 900, 5_000, 20)), by="model")
        self.transcript.add(Message("user", (ToolResult(f"u{n}", "words " * 200),)), by="tools")

    def answers(self) -> None:
        self.now += 5
        self.transcript.add(Reply(assistant(Text("all read")), Usage(10, 900, 5_000, 20)), by="model")

    def read(self) -> RecordedSession:
        return OwnReader().read(b"".join(self.lines))


def cleared_log() -> OwnLog:
    log = OwnLog()
    log.transcript.add(user("read them"), by="user")
    for n in range(6):
        log.reads(n)
        if n in (2, 4):
            log.transcript.add(Results({f"u{n - 1}": "[cleared]"}), by="Microcompaction")
    log.answers()
    return log


def test_a_session_whose_results_were_cleared_has_no_branches() -> None:
    recorded = cleared_log().read()

    assert recorded.tips == (recorded.tip,)
    assert recorded.abandoned == ()
    assert sum(isinstance(e.what, Reply) for e in convert_recording(recorded).entries) == 7


def test_context_that_a_compaction_gave_back_belongs_to_its_summary() -> None:
    log = OwnLog()
    log.transcript.add(user("read them"), by="user")
    for n in range(4):
        log.reads(n)
    last = log.transcript.view[4].id
    log.transcript.add(Replace(1, last, (user("<summary>as it was</summary>"),)), by="Compaction")
    given_back = user("<context>a file</context>")
    log.transcript.add(Mark("compacted", {"trigger": "auto"}), given_back, by="Compaction")
    log.answers()
    recorded = log.read()

    [compaction] = [said.what for said in recorded.entries if isinstance(said.what, RecordedCompaction)]
    assert compaction.summary is not None
    assert compaction.summary.text == "<summary>as it was</summary><context>a file</context>"
    said = [e.what for e in convert_recording(recorded).entries if isinstance(e.what, Message)]
    assert not any("<context>" in message.text for message in said)


def test_what_a_compaction_took_behind_the_question_is_gone_as_well() -> None:
    log = OwnLog()
    log.transcript.add(user("the opening"), by="session")
    log.transcript.add(user("read them"), by="user")
    for n in range(6):
        log.reads(n)
    view = log.transcript.view
    summary = Replace(view[0].id, view[0].id, (user("<summary>as it was</summary>"),))
    log.transcript.add(summary, Replace(view[2].id, view[9].id, ()), by="Compaction")
    left = [placed.message.text for placed in log.transcript.view]
    log.answers()
    rebuilt = convert_recording(log.read()).view

    assert left[:2] == ["<summary>as it was</summary>", "read them"]
    assert rebuilt[0].message.text == "".join(left[:2])
    assert [placed.message.text for placed in rebuilt][1:-1] == left[2:]


def test_what_a_layer_attached_is_not_what_the_user_said() -> None:
    log = OwnLog()
    log.transcript.add(user("read them"), by="user")
    log.transcript.add(user("<memory>remember this</memory>"), by="Recall")
    log.answers()

    spoken = [e.by for e in convert_recording(log.read()).entries if isinstance(e.what, Message)]
    assert spoken == ["user", "session"]


# --- a real session ---------------------------------------------------------------------------------------

FILES, CALLS, WINDOW = 20, 70, 40_000


def reading(body: Json) -> Sequence[Json]:
    """Reads one file after the other; now and then it tells the user."""
    n = sum(block["type"] == "tool_use" for m in body["messages"] for block in m["content"])
    last = body["messages"][-1]["content"]
    if any("<summary>" in block.get("text", "") for block in last):
        return [text("<analysis>much</analysis><summary>Files were read one by one.</summary>")]
    if last[-1]["type"] == "tool_result" and n % 5 == 0:
        return [text("so far, so good")]
    return [call(f"c{len(str(body))}", "Read", file_path=f"notes_{n % FILES}.txt")]


def write_notes(here: Place) -> None:
    for n in range(FILES):
        lines = "".join(f"note {n}, line {line}: {line * n}\n" for line in range(220))
        (here.project / f"notes_{n}.txt").write_text(lines, encoding="utf-8")


async def recorded_session(folder: Path) -> ReplayFile:
    """A session of ours in a small window, until it was compacted more than once."""
    settings = {"window": WINDOW, "flags": {"notes": False, "extraction": False, "micro_cost": True}}
    async with provided(folder, provider := Provider(reading)) as (here, _):
        write_notes(here)
        async with here.session(settings=settings, clock=provider.clock) as session:
            while len(session.turn.transcript.entries) < 2 * CALLS:
                await session.ask("go on, please")
            path = session.path
    return ReplayFile(str(path), path.stat().st_size)


def replayed(found: ReplayFile, *policies: Policy) -> ReplayResult:
    return replay_file(ReplayJob(0, found, policies, drawn=True))


@pytest.mark.real
def test_a_compacted_session_of_ours_costs_in_replay_what_it_cost(tmp_path: Path) -> None:
    found = run_sync(recorded_session, tmp_path)
    done = replayed(found, RECORDED)

    figures = done.by_policy[RECORDED.name]
    assert len(figures.compactions) >= 2
    assert (done.left.requests, done.errors) == (0, ())
    off = [abs(p.context / p.recorded - 1) for p in figures.points if p.recorded]
    assert max(off) < 0.1, "the messages that stayed behind the summary are counted once"
    assert figures.turns == done.recorded


def forking(body: Json) -> Sequence[Json]:
    said = body["messages"][-1]["content"][-1].get("text", "")
    if "<directive" in said:
        return [text("looked")]
    if said == "both":
        task = {"description": "look around", "prompt": "look", "subagent_type": "fork"}
        return [call(f"f{n}", "Agent", **task) for n in range(2)]
    if said == "read":
        return [call(f"c{len(body['messages'])}", "Read", file_path="long.txt")]
    return [text("done")]


async def forked_session(folder: Path) -> Path:
    """A session that reads 60,000 tokens and sends two forks off; returns its home."""
    off = {"flags": {"notes": False, "extraction": False, "micro_cost": False}}
    async with SteadySimulator(replies=forking) as simulator:
        here = Place(folder, simulator.url)
        lines = "".join(f"a line of some words {n} {n * n}\n" for n in range(1_600))
        (here.project / "long.txt").write_text(lines, encoding="utf-8")
        async with here.session(settings=off) as session:
            for said in ("read", "read", "read", "read", "read", "both", "fine"):
                await session.ask(said)
    return here.home


@pytest.mark.real
def test_the_prefix_of_a_fork_is_read_from_the_cache_of_its_session(tmp_path: Path) -> None:
    home = run_sync(forked_session, tmp_path)
    policies = (RECORDED, load_policy("balanced"))
    [session, *forks] = [
        replayed(found, *policies) for found in find_replay_files([home]) if found.path.endswith(".jsonl")
    ]

    assert len(forks) == 2
    for fork in forks:
        assert (fork.errors, fork.session) == ((), session.session)
        assert fork.agent != ""
        for figures in fork.by_policy.values():
            assert figures.of_paid == pytest.approx(1.0, abs=0.05), "the prefix is not paid again"
            assert figures.beside == 0, "a fork has no notes and extracts nothing"
