"""Our own sessions read back: what a layer added was said by nobody, and one line has no branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest
from flows.test_layers_in_session import Provider, call, provided, text
from flows.test_session import Place
from flows.wire import SteadySimulator
from msgspec.structs import replace

from sevenfold.cache.prices import Prices
from sevenfold.context.context import Context
from sevenfold.core.clock import run_sync
from sevenfold.core.messages import (
    Json,
    Message,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    assistant,
    parse_directive,
    user,
)
from sevenfold.core.protocols import Capabilities
from sevenfold.core.request import Request
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Mark, Pin, Replace, Reply, Results, Transcript, Unthink
from sevenfold.layers.shared.boundary import Boundary, BoundaryRecord
from sevenfold.layers.shared.facts import Facts
from sevenfold.offline import encode_reply
from sevenfold.offline.conversation import OfflineConversation
from sevenfold.offline.reply import make_reply
from sevenfold.recordings.finder import ReplayFile, find_replay_files
from sevenfold.recordings.own_sessions import OwnReader
from sevenfold.recordings.recorded_session import (
    BY_RULE,
    RecordedCompaction,
    RecordedSession,
    convert_recording,
    retell_recording,
)
from sevenfold.recordings.windows import SessionWindow, WindowSource
from sevenfold.replay.bookkeeping import COMPACTION
from sevenfold.replay.costs import find_session_price, find_unmarked_losses, has_thinking
from sevenfold.replay.driver import drive_session
from sevenfold.replay.policies import Policy, load_policy
from sevenfold.replay.runner import ReplayJob, ReplayResult, replay_file
from sevenfold.testing import ScriptedModel

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


def question_log(*, opening: bool = True, reads: int) -> OwnLog:
    log = OwnLog()
    if opening:
        log.transcript.add(user("the opening"), by="session")
    log.transcript.add(user("read them"), by="user")
    for n in range(reads):
        log.reads(n)
    return log


def read_compactions(recorded: RecordedSession) -> list[RecordedCompaction]:
    return [said.what for said in recorded.entries if isinstance(said.what, RecordedCompaction)]


def get_texts(transcript: Transcript) -> list[str]:
    """What each message of the view says, or calls, or answers."""
    return [
        placed.message.text + "".join(use.id for use in placed.message.tool_uses)
        + "".join(result.tool_use_id for result in placed.message.results)
        for placed in transcript.view
    ]  # fmt: skip


def read_again(log: OwnLog) -> list[str]:
    return get_texts(convert_recording(log.read()))


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

    [compaction] = read_compactions(recorded)
    assert compaction.summary == user("<summary>as it was</summary>")
    assert compaction.restored == (given_back,)
    said = [e.what for e in convert_recording(recorded).entries if isinstance(e.what, Message)]
    assert not any("<context>" in message.text for message in said)


def test_what_a_compaction_put_beside_its_summary_is_no_part_of_the_summary() -> None:
    log = question_log(reads=4)
    summary, given_back = user("<summary>as it was</summary>"), user("<context>a file</context>")
    record = BoundaryRecord(Facts()).mark(summary)
    log.transcript.add(
        record, Replace(1, log.transcript.view[5].id, (given_back, summary)), by="Compaction"
    )
    log.answers()

    [compaction] = read_compactions(log.read())
    assert (compaction.summary, compaction.restored) == (summary, (given_back,))


@pytest.mark.parametrize(
    ("used", "lean"),
    [
        (Usage(input=9_000, output=600), True),
        (Usage(10, 200, 8_800, 600), False),
        (Usage(), False),
        (Usage(input=10**12, output=-600), False),
    ],
    ids=["a request of its own on the small model", "on the prefix", "not recorded", "that cannot be"],
)
def test_a_recorded_summary_is_charged_as_it_was_asked_for(used: Usage, lean: bool) -> None:
    log = question_log(reads=6)
    view, words = log.transcript.view, "<summary>" + "as it was, word for word " * 80 + "</summary>"
    model = "claude-haiku-4-5" if lean else "claude-sonnet-4-5"
    asked = Boundary("summary", "price", last=view[-1].id, model=model, usage=used)
    edit = Replace(view[0].id, view[-1].id, (user(words),))
    log.transcript.add(edit, asked.mark, by="Compaction")
    log.answers()
    entries = retell_recording(log.read()).entries
    at = find_session_price(entries, Prices.load(), None)
    outcome = drive_session(entries, RECORDED, at.model, at.price, prices=at.prices)

    [row] = [row for row in outcome.rows if row.kind == "summary"]
    if lean:  # the small model costs a third, and shares no prefix
        assert (row.model, row.usage) == ("side:claude-haiku-4-5", Usage(input=3_000, output=200))
    else:
        assert row.usage.cache_read > 5_000
        assert row.usage.output == (600 if used.output > 0 else pytest.approx(945))


def test_context_given_back_behind_a_compaction_in_two_parts_belongs_to_its_summary() -> None:
    log = question_log(reads=5)
    view, given_back = log.transcript.view, user("<context>a file</context>")
    summary = Replace(view[0].id, view[0].id, (user("<summary>as it was</summary>"),))
    log.transcript.add(summary, Replace(view[2].id, view[7].id, ()), given_back, by="Compaction")
    log.answers()

    assert [one.restored for one in read_compactions(log.read())] == [(given_back,), ()]


NOTES = "<session-notes>so far</session-notes>"


def pay_out_apart(log: OwnLog, asked: int) -> None:
    """Notes in place of what stands before the question, and of most of what stands behind it."""
    view = log.transcript.view
    before = (Replace(view[0].id, view[asked - 1].id, (user(NOTES),)),) if asked else ()
    behind = Replace(view[asked + 1].id, view[-5].id, () if asked else (user(NOTES),))
    log.transcript.add(*before, behind, by="PayOut")


def pay_out_whole(log: OwnLog, asked: int) -> None:
    """Notes, and the question again behind them, in place of all but the newest."""
    view = log.transcript.view
    log.transcript.add(Replace(view[0].id, view[-5].id, (user(NOTES), user("read them"))), by="PayOut")


@pytest.mark.parametrize("opening", [True, False], ids=["session", "Context"])
@pytest.mark.parametrize("pay_out", [pay_out_apart, pay_out_whole])
def test_notes_paid_out_twice_in_one_turn_take_both_parts_away(
    pay_out: Callable[[OwnLog, int], None], opening: bool
) -> None:
    log = question_log(opening=opening, reads=0)
    for turn in range(3):
        for n in range(6):
            log.reads(6 * turn + n)
        pay_out(log, get_texts(log.transcript).index("read them"))
    log.answers()

    assert read_again(log) == get_texts(log.transcript)


def fold_runs(log: OwnLog) -> None:
    """Two runs of calls in the middle, each as a note."""
    view = log.transcript.view
    runs = [Replace(view[a].id, view[a + 3].id, (user("<collapsed>"),)) for a in (4, 10)]
    log.transcript.add(*runs, by="Collapse")


def snip(log: OwnLog) -> None:
    view = log.transcript.view
    log.transcript.add(Replace(view[2].id, view[7].id, (user("<snipped>"),)), by="Snip")


def compact_from(log: OwnLog) -> None:
    """All from a place on to the end."""
    view = log.transcript.view
    log.transcript.add(Replace(view[6].id, view[-1].id, (user("<summary>"),)), by="Compaction")


@pytest.mark.parametrize("fold", [fold_runs, snip, compact_from])
def test_what_left_the_middle_of_the_view_is_gone_and_the_rest_is_there(
    fold: Callable[[OwnLog], None],
) -> None:
    log = question_log(reads=9)
    fold(log)
    log.answers()

    assert read_again(log) == get_texts(log.transcript)
    asked = {compaction.asked for compaction in read_compactions(log.read())}
    assert asked == {fold is compact_from}


def test_a_reply_that_a_caller_sent_back_in_other_words_can_begin_what_is_folded() -> None:
    log = question_log(reads=6)
    view = log.transcript.view
    [own] = log.transcript.add(Replace(view[2].id, view[2].id, (view[2].message,)), by="model")
    log.transcript.add(Replace(own, view[7].id, (user(NOTES),)), by="PayOut")
    log.answers()

    assert read_again(log) == get_texts(log.transcript)


def test_results_deleted_from_the_cache_weigh_nothing_and_break_nothing() -> None:
    log = question_log(reads=9)
    gone = [f"u{n}" for n in range(5)]
    log.transcript.add(Pin(log.transcript.view[-1].id, {"type": "cache_edits", "delete": gone}, 1_000))
    log.answers()
    entries = retell_recording(log.read()).entries
    at = find_session_price(entries, Prices.load(), None)
    outcome = drive_session(entries, RECORDED, at.model, at.price)

    *_, before, after = outcome.rows
    assert before.context - after.context > 1_000
    assert outcome.breaks == ()
    assert after.usage.cache_write < 500


@pytest.mark.parametrize("whole", [True, False], ids=["to the end", "of the older replies"])
def test_thinking_that_left_the_view_is_gone_where_the_file_says_so(whole: bool) -> None:
    log, prompt = question_log(reads=0), 5_000
    for n in range(8):
        use, thought = ToolUse(f"t{n}", "Read", {"file_path": f"/{n}"}), Thinking("hm so " * 300, "signed")
        said = Reply(assistant(thought, Text("so"), use), Usage(0, 550, prompt, 20))
        log.transcript.add(said, by="model")
        log.transcript.add(Message("user", (ToolResult(f"t{n}", "as it is"),)), by="tools")
        prompt += 550
    view = log.transcript.view
    first, last = (view[0].id, None) if whole else (view[2].id, view[-4].id)
    log.now += 5_000
    log.transcript.add(Unthink(first, last), by="OldThinking")
    log.transcript.add(Reply(assistant(Text("done")), Usage(0, 0, 5_600, 20)), by="model")
    entries = retell_recording(log.read()).entries
    at = find_session_price(entries, Prices.load(), None)
    outcome = drive_session(entries, RECORDED, at.model, at.price)

    assert read_again(log) == get_texts(log.transcript)
    assert find_unmarked_losses(entries) == []
    thoughts = sum(has_thinking(p.message) for p in convert_recording(log.read()).view)
    assert thoughts == (0 if whole else 1)
    assert outcome.rows[-1].context < outcome.rows[-2].context - 2_500


def test_what_a_layer_attached_is_not_what_the_user_said() -> None:
    log = OwnLog()
    log.transcript.add(user("read them"), by="user")
    log.transcript.add(user("<memory>remember this</memory>"), by="Recall")
    log.answers()

    spoken = [e.by for e in convert_recording(log.read()).entries if isinstance(e.what, Message)]
    assert spoken == ["user", "session"]


# --- a real session ---------------------------------------------------------------------------------------

FILES, CALLS, WINDOW = 20, 70, 40_000


def read_files(turn: int) -> Callable[[Json], Sequence[Json]]:
    """Reads one file after the other; after `turn` calls it tells the user. Layers get answers by rule."""
    said = count(1)

    def reply(body: Json) -> Sequence[Json]:
        if any(parse_directive(block.get("text", "")) for block in body["messages"][-1]["content"]):
            return encode_reply(body)
        n = next(said)
        if n % (turn + 1) == 0:
            return [text("so far, so good")]
        return [call(f"c{n}", "Read", file_path=f"notes_{n % FILES}.txt")]

    return reply


def write_notes(here: Place) -> None:
    for n in range(FILES):
        lines = "".join(f"note {n}, line {line}: {line * n}\n" for line in range(220))
        (here.project / f"notes_{n}.txt").write_text(lines, encoding="utf-8")


async def recorded_session(folder: Path, notes: bool) -> ReplayFile:
    """A session of ours in a small window, until it was compacted more than once."""
    flags = {"notes": notes, "extraction": False, "micro_cost": True}
    settings = {"policy": "specified", "window": WINDOW, "maxSteps": CALLS + 10, "flags": flags}
    provider = Provider(read_files(CALLS if notes else 5))
    async with provided(folder, provider) as (here, _):
        write_notes(here)
        async with here.session(settings=settings, clock=provider.clock) as session:
            while len(session.turn.transcript.entries) < 2 * CALLS:
                await session.ask("go on, please")
            path = session.path
    return ReplayFile(str(path), path.stat().st_size)


def replayed(found: ReplayFile, *policies: Policy) -> ReplayResult:
    return replay_file(ReplayJob(0, found, policies, drawn=True))


@pytest.mark.real
@pytest.mark.parametrize("notes", [False, True], ids=["summaries", "notes paid out within one turn"])
def test_a_compacted_session_of_ours_costs_in_replay_what_it_cost(tmp_path: Path, notes: bool) -> None:
    found = run_sync(recorded_session, tmp_path, notes)
    done = replayed(found, RECORDED)

    figures = done.by_policy[RECORDED.name]
    assert {made.by for made in figures.compactions} == {BY_RULE if notes else "recorded"}
    assert len(figures.compactions) >= 2
    assert (done.left.requests, done.errors, done.notes) == (0, (), ())
    off = [abs(p.context / p.recorded - 1) for p in figures.points if p.recorded]
    assert max(off) < 0.1, "the messages that stayed behind the summary are counted once"
    assert figures.turns == done.recorded
    assert figures.beside == (0 if notes else len(figures.compactions)), "notes stand in without a model"
    asked = figures.layers[COMPACTION].cost if not notes else 0.0  # what was paid is of the turns alone
    assert figures.paid is not None
    assert figures.cost.units - asked == pytest.approx(figures.paid.units, rel=0.05)


def answer_layer(request: Request) -> Message:
    return Message("assistant", make_reply(OfflineConversation.of(request)))


def test_a_conversation_of_a_context_is_replayed_in_its_window_with_what_it_compacted(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([answer_layer] * CALLS, Capabilities(window=WINDOW, max_output=4_000))
    settings = {"policy": "specified", "window": WINDOW, "notes": {"priced": True}}
    history: list[Json] = [{"role": "user", "content": "read them"}]
    tools: list[Json] = [
        {"name": name, "description": name, "input_schema": {}} for name in ("Read", "Edit")
    ]
    with Context(model, state=tmp_path, id="one", settings=settings, home=tmp_path, environ={}) as context:
        for n in range(CALLS):
            size = len(str(context.prepare(history, tools=tools)["messages"])) // 4
            context.rest_sync()
            reply = {"role": "assistant", "content": [call(f"c{n}", "Read", file_path=f"notes_{n}.txt")]}
            context.record(reply | {"model": "claude-sonnet-4-6", "usage": {"input_tokens": size}})
            result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": f"note {n}, " * 400}
            history += [reply, {"role": "user", "content": [result]}]
    file = tmp_path / "one.jsonl"
    done = replayed(ReplayFile(str(file), file.stat().st_size), RECORDED)

    assert done.window == SessionWindow(WINDOW, WindowSource.RECORDED)
    assert (done.errors, done.notes) == ((), ())
    figures = done.by_policy[RECORDED.name]
    assert {made.by for made in figures.compactions} == {BY_RULE}
    assert max(abs(p.context / p.recorded - 1) for p in figures.points if p.recorded) < 0.1


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
