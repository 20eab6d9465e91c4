"""Shortening a conversation by hand and going back in it: what leaves the view, and what never leaves."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from kit import make, make_parts, use
from layers.l4_compaction import foldable
from layers.l4_compaction.summaries import summary

from sevenfold.cache.ledger import Ledger
from sevenfold.cache.prices import Prices
from sevenfold.core.errors import Mistake, Refused
from sevenfold.core.events import Event, Notice, Progress
from sevenfold.core.messages import Message, Text, Thinking, ToolResult, assistant, user
from sevenfold.core.protocols import Capabilities, Layers
from sevenfold.core.request import Frame, encode_prefix, has_paired_tools
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Mark, Reply, Transcript, Undo, Unthink
from sevenfold.hooks.events import HookCommand, HookEvents, HookMatcher
from sevenfold.hooks.hooks import Hooks
from sevenfold.layers.l4_compaction.compaction import Compaction
from sevenfold.layers.l4_compaction.fold import Collapse
from sevenfold.layers.l7_agents.forks import ForkRunner
from sevenfold.layers.parts import PlainConversation
from sevenfold.layers.shared.boundary import Boundary
from sevenfold.layers.shared.restore import CompactionHooks
from sevenfold.session.commands import (
    CompactionReport,
    ConversationEditor,
    TurnLock,
    list_folds,
    list_past_turns,
    make_compaction_hooks,
    read_notes,
)
from sevenfold.testing import FakeClock, ScriptedModel
from sevenfold.testing.doubles import Line

pytestmark = pytest.mark.anyio
MODEL = "claude-sonnet-4-5"


def talked() -> Transcript:
    """Three turns, as a session writes them."""
    log = Transcript(FakeClock().now)
    log.add(Mark("session", {"id": "s"}), Mark("frame", {"model": MODEL}), by="session")
    log.add(user("<context>\nDate: today\n</context>"), Mark("surroundings", {"a": "1"}), by="session")
    for n, said in enumerate(("build it", "test it in /srv/app/check.py", "ship it"), 1):
        if n == 3:
            log.add(user("<context>\nthe build is green\n</context>"), by="hooks")
        log.add(user(said))
        log.add(Reply(use(f"u{n}", "Bash", command=f"make {n}"), Usage(input=900 * n)), by="model")
        lines = "".join(f"part {i} of step {n} is made\n" for i in range(150))
        log.add(Message("user", (ToolResult(f"u{n}", lines),)), by="tools")
        done = assistant(Text(f"Step {n} is done."))
        log.add(Reply(done, Usage(input=1_000 * n, output=10)), by="model")
    return log


@dataclass
class Steered:
    """A conversation with a real turn, ledger and compaction, and a scripted model."""

    script: tuple[Line, ...] = ()
    log: Transcript = field(default_factory=talked)
    able: Capabilities = field(default_factory=Capabilities)
    hooks: CompactionHooks = field(default_factory=CompactionHooks)
    pause: float = 0.0
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        clock, emit = FakeClock(), self.events.append
        self.model = ScriptedModel(self.script, self.able, MODEL, self.pause)
        self.ledger = Ledger(Prices.load(), clock, emit)
        known = PlainConversation(self.model)
        forks = ForkRunner(known, self.ledger, clock, emit)
        parts = make_parts(
            conversation=known,
            clock=clock,
            emit=emit,
            expect=self.ledger.expect,
            fork=forks,
            hooks=self.hooks,
        )
        layer = Compaction(parts)
        layers = Layers(fit=(layer,))
        self.turn = make(self.model, layers, events=self.events, transcript=self.log, clock=clock)
        self.turn.frame = Frame(MODEL, ("system",))
        self.alone, self.synced = TurnLock(), list[int]()
        self.steering = ConversationEditor(
            self.turn, self.ledger, self.alone, lambda: self.synced.append(len(self.log.entries))
        )

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.log.view.messages if message.text]

    async def compact(self, instructions: str = "", **which: int) -> CompactionReport:
        report = await self.steering.compact(instructions, **which)
        assert has_paired_tools(self.log.view)
        return report


# --- turns ----------------------------------------------------------------------------------------------


def test_turns_are_numbered_with_their_words_and_the_tokens_so_far() -> None:
    turns = list_past_turns(talked())

    told = [(past.number, past.said, past.tokens, past.in_view) for past in turns]
    assert told == [
        (1, "build it", 1_010, True),
        (2, "test it in /srv/app/check.py", 2_010, True),
        (3, "ship it", 3_010, True),
    ]


def test_nothing_said_is_no_turn() -> None:
    assert list_past_turns(Transcript(lambda: 0.0)) == ()


# --- compacting by hand ---------------------------------------------------------------------------------


async def test_all_but_the_newest_round_is_summarised_and_the_report_says_what_came_of_it() -> None:
    at = Steered((Reply(assistant(Text(summary())), Usage(input=100, output=50)),))
    lines = len(at.log.entries)

    report = await at.compact("keep the ports")

    assert report.boundary is not None
    assert (report.boundary.by, report.boundary.trigger) == ("summary", "manual")
    assert report.boundary.instructions == "keep the ports"
    assert report.boundary.tokens_after < report.boundary.tokens_before
    assert report.fidelity is not None
    assert report.boundary.fidelity == report.fidelity.score
    assert (report.usage, report.stopped) == (Usage(input=100, output=50), False)
    assert report.cost == pytest.approx((100 * 3 + 50 * 15) / 1e6)
    assert at.texts[-1] == "Step 3 is done."
    assert len(at.log.view) < 5
    assert at.synced == [len(at.log.entries)]
    assert at.log.entries[lines].by == "Compaction"
    assert [past.in_view for past in at.steering.turns] == [False, False, False]


async def test_from_a_turn_keeps_what_comes_before_it_to_the_byte() -> None:
    at = Steered((summary(),))
    before = encode_prefix(at.turn.request)

    report = await at.compact(since=2)

    assert report.boundary is not None
    assert report.boundary.trigger == "from"
    after = encode_prefix(at.turn.request)
    assert after[:7] == before[:7], "the frame and the first turn"
    assert len(after) == 8
    assert [past.in_view for past in at.steering.turns] == [True, False, False]


async def test_up_to_a_turn_keeps_that_turn_and_what_was_said_beside_it() -> None:
    at = Steered((summary(),))

    report = await at.compact("short", up_to=3)

    assert report.boundary is not None
    assert report.boundary.trigger == "up_to"
    _, beside, words, *_ = at.texts
    assert ("the build is green" in beside, words) == (True, "ship it")
    assert [past.in_view for past in at.steering.turns] == [False, False, True]


async def test_up_to_a_turn_again_takes_the_summary_before_it_along() -> None:
    at = Steered((summary("the first"), summary("both")))
    await at.compact(up_to=2)

    await at.compact(up_to=3)

    assert sum("Current work" in text for text in at.texts) == 1
    assert [past.in_view for past in at.steering.turns] == [False, False, True]


@pytest.mark.parametrize(
    ("which", "why"),
    [
        ({"since": 4}, "there is no turn 4: they go from 1 to 3"),
        ({"up_to": 0}, "there is no turn 0"),
        ({"up_to": 1}, "nothing comes before turn 1"),
        ({"since": 1, "up_to": 2}, "one of them"),
    ],
)
async def test_a_turn_that_cannot_be_meant_is_refused_and_nothing_is_asked(
    which: dict[str, Any], why: str
) -> None:
    at = Steered()

    with pytest.raises(Mistake, match=why):
        await at.steering.compact(**which)

    assert at.model.requests == []


async def test_a_turn_that_was_summarised_cannot_be_summarised_from() -> None:
    at = Steered((summary(),))
    await at.compact(up_to=3)

    with pytest.raises(Mistake, match="turn 2 is part of a summary already"):
        await at.compact(since=2)


async def test_with_nothing_said_there_is_nothing_to_compact() -> None:
    at = Steered(log=Transcript(lambda: 0.0))

    with pytest.raises(Mistake, match="nothing has been said yet"):
        await at.compact()


async def test_with_compaction_switched_off_it_says_which_flags_to_look_at() -> None:
    at = Steered()
    at.turn.layers = Layers()

    with pytest.raises(Mistake, match="compact and reactive"):
        await at.compact()


async def test_a_model_that_gives_no_summary_leaves_everything_as_it_was() -> None:
    at = Steered(("no", "still no"))
    before = at.log.view

    report = await at.compact()

    assert (report.boundary, report.stopped) == (None, False)
    assert list(at.log.view) == list(before)
    assert [e.text for e in at.events if isinstance(e, Notice)][-1].startswith("nothing was compacted")


async def test_stopped_it_leaves_the_view_as_it_was_and_the_conversation_free() -> None:
    at = Steered((summary(), summary()), pause=3_600.0)
    before, entries = at.log.view, len(at.log.entries)
    reports: list[CompactionReport] = []

    async def run() -> None:
        reports.append(await at.compact())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        while not at.model.requests:
            await anyio.lowlevel.checkpoint()
        assert at.alone.busy
        with pytest.raises(Refused, match="a turn is running"):
            await at.compact()
        with pytest.raises(Refused, match="a turn is running"):
            at.steering.rewind(2)
        assert at.alone.stop()

    assert reports == [CompactionReport(stopped=True)]
    assert (at.log.view, len(at.log.entries)) == (before, entries)
    assert at.events[-1] == Progress("compaction", "stopped: nothing was changed", done=True)
    assert not at.alone.busy
    assert not at.alone.stop(), "there is nothing left to stop"


# --- going back -----------------------------------------------------------------------------------------


def test_going_back_the_view_is_what_it_was_then_and_the_log_keeps_all() -> None:
    at = Steered()
    then = encode_prefix(at.turn.request)[: 2 + 9]
    entries = list(at.log.entries)

    past = at.steering.rewind(3)

    assert past.said == "ship it"
    assert encode_prefix(at.turn.request) == then, "what a hook said beside the words has gone with them"
    assert at.log.entries[:-1] == entries
    assert at.log.entries[-1].by == "rewind"
    assert [one.said for one in at.steering.turns] == ["build it", "test it in /srv/app/check.py"]
    assert at.synced == [len(at.log.entries)]


def test_gone_back_it_goes_on_and_may_go_back_further() -> None:
    at = Steered()
    at.steering.rewind(3)
    at.log.add(user("rather not"))
    at.log.add(Reply(assistant(Text("As you like."))), by="model")
    assert [one.said for one in at.steering.turns][2:] == ["rather not"]

    at.steering.rewind(2)

    assert [one.said for one in at.steering.turns] == ["build it"]
    assert at.texts[-1] == "Step 1 is done."
    assert has_paired_tools(at.log.view)


def test_before_the_first_turn_only_the_session_is_left() -> None:
    at = Steered()

    at.steering.rewind(1)

    assert len(at.log.view) == 0
    assert at.log.view.marks == {"session": {"id": "s"}, "frame": {"model": MODEL}}


async def test_a_summary_made_since_goes_too_and_what_it_replaced_is_back() -> None:
    at = Steered((summary(),))
    then = encode_prefix(at.turn.request)[: 2 + 5]
    await at.compact()

    at.steering.rewind(2)

    assert encode_prefix(at.turn.request) == then
    assert "compacted" not in at.log.view.marks


def test_another_model_since_then_stays_and_does_not_get_thoughts_that_are_not_its_own() -> None:
    log = Transcript(lambda: 0.0)
    log.add(Mark("frame", {"model": "one"}), by="session")
    log.add(user("first"))
    log.add(Reply(assistant(Thinking("hm", "signed"), Text("One."))), by="model")
    log.add(user("second"))
    log.add(Reply(assistant(Text("Two."))), by="model")
    log.add(Mark("frame", {"model": "two"}), Unthink(1), by="session")
    at = Steered(log=log, able=Capabilities(binds_thinking=True))

    at.steering.rewind(2)

    assert at.log.view.marks["frame"] == {"model": "two"}
    assert at.log.view.messages == (user("first"), assistant(Text("One.")))
    assert isinstance(at.log.entries[-2].what, Undo)


def test_a_resumed_transcript_is_back_there_too() -> None:
    lines: list[bytes] = []
    log = Transcript(lambda: 0.0, lines.append)
    for entry in talked().entries:
        log.add(entry.what, by=entry.by)
    at = Steered(log=log)
    at.steering.rewind(2)

    again = Transcript.load(b"".join(lines), lambda: 0.0)

    assert again.view == at.log.view
    assert list_past_turns(again) == at.steering.turns


def test_there_is_no_going_back_to_a_turn_that_never_was() -> None:
    at = Steered()

    with pytest.raises(Mistake, match="there is no turn 7"):
        at.steering.rewind(7)

    assert at.log.entries == talked().entries


# --- notes ----------------------------------------------------------------------------------------------


def test_notes_are_shown_as_they_are_on_disk(tmp_path: Path) -> None:
    transcript = tmp_path / "s.jsonl"
    assert read_notes(transcript) is None

    path = tmp_path / "s" / "session-memory" / "summary.md"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"# Current state\n\xff\n")

    found = read_notes(transcript)

    assert found is not None
    assert (found.path, found.text) == (path, "# Current state\n\N{REPLACEMENT CHARACTER}\n")


# --- hooks ----------------------------------------------------------------------------------------------


def hooks(folder: Path, **commands: str) -> Hooks:
    configured = {
        event: (HookMatcher(hooks=(HookCommand(command=command),)),) for event, command in commands.items()
    }
    path, env = folder / "s.jsonl", {"PATH": "/usr/bin:/bin"}
    return Hooks(HookEvents(**configured), "s", path, folder, lambda: folder, env, lambda event: None)


async def test_hooks_are_told_who_asked_and_what_came_of_it(tmp_path: Path) -> None:
    ended: list[str] = []
    own = make_compaction_hooks(
        hooks(
            tmp_path,
            pre_compact="cat > before.json",
            post_compact="cat > after.json",
            session_start="cat > start.json; echo remember the port",
        ),
        ended.append,
    )

    await own.ask(Transcript(lambda: 0.0).view, "manual", "keep the ports")
    said = await own.told(Boundary("summary", "up_to"), "what happened")

    def told(name: str) -> dict[str, Any]:
        read: dict[str, Any] = json.loads((tmp_path / name).read_text(encoding="utf-8"))
        return read

    assert told("before.json")["custom_instructions"] == "keep the ports"
    assert told("before.json")["trigger"] == told("after.json")["trigger"] == "manual"
    assert told("after.json")["compact_summary"] == "what happened"
    assert told("start.json")["source"] == "compact"
    assert [one.text for one in said] == ["<context>\nremember the port\n</context>"]
    assert ended == []


async def test_a_hook_adds_instructions_or_refuses(tmp_path: Path) -> None:
    extra = '{"hookSpecificOutput": {"additionalContext": "and the schema"}}'
    own = make_compaction_hooks(hooks(tmp_path, pre_compact=f"echo '{extra}'"), lambda o: None)
    at = Steered((summary(),), hooks=own)

    report = await at.compact("keep the ports")

    assert report.boundary is not None
    assert report.boundary.instructions == "keep the ports\n\nand the schema"

    refusing = make_compaction_hooks(
        hooks(tmp_path, pre_compact="echo not now >&2; exit 2"), lambda o: None
    )
    at = Steered(hooks=refusing)
    view = at.log.view

    assert (await at.compact()).boundary is None
    assert at.log.view == view
    assert Notice("a hook refused the compaction: not now", "warning") in at.events


# --- what was folded ------------------------------------------------------------------------------------


def test_what_was_collapsed_is_listed_and_put_back_as_it_was() -> None:
    log = foldable.talked()
    before = [placed.message for placed in log.view]
    foldable.written(log, foldable.offered(Collapse, log, 8_000), "Collapse")
    steered = Steered(log=log)
    found = list_folds(log)
    assert found
    assert {one.by for one in found} == {"Collapse"}
    assert all(one.fold.rounds and one.fold.tokens for one in found)
    for _ in found:
        steered.steering.expand(1)
    assert [placed.message for placed in log.view] == before
    assert list_folds(log) == []
    with pytest.raises(Mistake, match="no folded stretch 1: nothing is folded"):
        steered.steering.expand(1)


def test_a_folded_stretch_that_never_was_cannot_be_put_back() -> None:
    log = foldable.talked()
    foldable.written(log, foldable.offered(Collapse, log, 8_000), "Collapse")
    entries = len(log.entries)
    with pytest.raises(Mistake, match="no folded stretch 99: they go from 1 to"):
        Steered(log=log).steering.expand(99)
    assert len(log.entries) == entries
