"""What is in the window: every token is counted once, and the bar is as long as it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Here
from cli.world import World
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sevenfold.cli.chat.slash import run_slash_command
from sevenfold.cli.commands.window import BAR, format_bar, format_window, measure_savings, measure_window
from sevenfold.cli.output import CommandReply
from sevenfold.core.messages import Image, Message, Opaque, Thinking, ToolResult, ToolUse, assistant, user
from sevenfold.core.messages import Text as Words
from sevenfold.core.request import Frame
from sevenfold.core.tokens import Thresholds, Usage
from sevenfold.core.transcript import Mark, Reply, Results, Transcript
from sevenfold.layers.l1_tool_results.preview import make_envelope
from sevenfold.layers.l2_microcompaction.microcompaction import REREAD
from sevenfold.layers.shared.boundary import Boundary
from sevenfold.session.session import Session
from sevenfold.storage.jsonl import JsonlLog
from sevenfold.testing import ScriptedModel

FRAME = Frame("m", ("You are here. " * 40,), ({"name": "Read", "input_schema": {}},))
THRESHOLDS = Thresholds.of(200_000, 32_000)


def full() -> Transcript:
    t = Transcript(lambda: 0.0)
    t.add(user("<context>\nDate: today\n</context>"), by="session")
    t.add(user("read both files " * 30))
    uses = (ToolUse("a", "Read", {"file_path": "a.py"}), ToolUse("b", "Bash", {"command": "ls"}))
    reply = assistant(Thinking("I should look. " * 20), Words("Looking. " * 10), *uses)
    t.add(Reply(reply, Usage(input=3_000, output=200)), by="model")
    results = (ToolResult("a", "line\n" * 400), ToolResult("b", "a.py\n" * 20))
    t.add(Message("user", results), by="tools")
    t.add(user("remember: tabs " * 10), by="recall")
    t.add(Message("user", (Image({"type": "base64"}), Opaque("new", '{"type":"new"}'))))
    return t


def test_every_kind_of_content_is_named() -> None:
    window = measure_window("s", FRAME, full().view, THRESHOLDS)

    assert [(p.kind, p.tool) for p in window.parts] == [
        ("system", ""),
        ("tools", ""),
        ("user words", ""),
        ("assistant words", ""),
        ("thinking", ""),
        ("tool calls", ""),
        ("tool results", "Read"),
        ("tool results", "Bash"),
        ("context blocks", ""),
        ("images and documents", ""),
        ("other", ""),
    ]


def test_the_last_compaction_is_told_with_its_fidelity_and_whether_there_are_notes() -> None:
    log = full()
    assert format_window(measure_window("s", FRAME, log.view, THRESHOLDS)).endswith("\n  notes: none yet")

    log.add(Boundary("digest", "auto", 150_000, 30_000).mark, by="Digest")
    log.add(Boundary("summary", "manual", 90_000, 9_000, fidelity=0.876).mark, by="Compaction")
    window = measure_window("s", FRAME, log.view, THRESHOLDS)

    assert window.compacted is not None
    assert window.compacted.fidelity == 0.876
    *_, last, notes = format_window(replace(window, notes="/n/summary.md")).splitlines()
    assert last == "  last compacted (manual), summary: 90k → 9k tokens · fidelity 88%"
    assert notes == "  notes: /n/summary.md"


def test_the_parts_are_the_whole() -> None:
    view = full().view

    window = measure_window("s", FRAME, view, THRESHOLDS)

    assert window.used == view.tokens
    assert sum(p.tokens for p in window.parts) == window.used
    assert sum(window.by.values()) == window.used
    assert window.used + window.free + window.margin + window.reserved == window.window
    assert not window.estimated


def test_it_is_told_who_put_what_there() -> None:
    window = measure_window("s", FRAME, full().view, THRESHOLDS)

    assert set(window.by) == {"frame", "session", "user", "model", "tools", "recall"}


def test_before_the_first_reply_it_is_an_estimate_and_says_so() -> None:
    t = Transcript(lambda: 0.0)
    t.add(user("hello"))

    window = measure_window("s", FRAME, t.view, THRESHOLDS)

    assert window.estimated
    assert "about " in format_window(window)
    assert window.used == sum(p.tokens for p in window.parts) > 0


@given(
    words=st.lists(st.integers(1, 60_000), max_size=6),
    size=st.sampled_from([8_000, 32_000, 200_000, 1_000_000]),
)
def test_the_bar_is_always_as_long_as_it_should_be(words: list[int], size: int) -> None:
    t = Transcript(lambda: 0.0)
    for n in words:
        t.add(user("x" * n))
    window = measure_window("s", FRAME, t.view, Thresholds.of(size, 32_000))

    line = format_bar(window)

    assert len(line) == BAR
    assert "S" in line, "what is there at all is seen at all"
    assert window.used + window.free + window.margin + window.reserved == max(window.window, window.used)


def conversation(here: Here, world: World) -> Any:
    world.write("a.txt", "one\ntwo\n")
    here("-p", "read a.txt")
    return here("context", "--json").json


def test_the_command_works_from_what_is_on_disk(here: Here, world: World) -> None:
    window = conversation(here, world)

    assert window["session"] == world.transcripts[0].stem
    assert (window["model"], window["window"]) == ("offline", 200_000)
    assert sum(p["tokens"] for p in window["parts"]) == window["used"]
    assert {"kind": "tool results", "tool": "Read"}.items() <= next(
        p for p in window["parts"] if p["kind"] == "tool results"
    ).items()


def test_people_see_the_same_numbers(here: Here, world: World) -> None:
    window = conversation(here, world)

    text = here("context").out

    assert window["session"] in text
    for part in window["parts"]:
        assert f"{part['kind']}: {part['tool']}" in text if part["tool"] else part["kind"] in text
    assert f"[{'S'}" in text


def test_a_window_that_is_fuller_than_it_should_be_has_nothing_free() -> None:
    t = Transcript(lambda: 0.0)
    t.add(user("x" * 900_000))

    window = measure_window("s", FRAME, t.view, THRESHOLDS)

    assert (window.free, window.margin, window.reserved) == (0, 0, 0)
    assert len(format_bar(window)) == BAR


def test_without_a_session_it_says_how_to_begin_one(here: Here) -> None:
    ran = here("context")

    assert ran.code == 2
    assert "'sevenfold chat' starts one" in ran.err


@pytest.mark.parametrize("which", ["first", "second"])
def test_a_session_can_be_chosen(here: Here, which: str) -> None:
    ids = {name: here("-p", name, "--json").json["session"] for name in ("first", "second")}

    assert here("context", "--session", ids[which], "--json").json["session"] == ids[which]


# --- what the layers saved ----------------------------------------------------------------------------

USED = Usage(input=10, cache_write=2_000, cache_read=9_000, output=20)


def with_layers(t: Transcript) -> None:
    """Two results arrive, one of them as an envelope; the other is cleared, and asked for again."""
    uses = (ToolUse("big", "Bash", {"command": "ls -R"}), ToolUse("old", "Bash", {"command": "ls"}))
    t.add(Reply(assistant(*uses), USED, stop="tool_use"), by="model")
    big = make_envelope("a line of it\n" * 20_000, Path("/r/big.txt"), "Read it.", 2_000)
    t.add(Message("user", (ToolResult("big", big), ToolResult("old", "line\n" * 4_000))), by="tools")
    t.add(Reply(assistant(Words("Done.")), USED), by="model")
    t.add(user("go on"))
    t.add(Results({"old": "[cleared]"}), Mark(REREAD, {"count": 2, "often": []}), by="Microcompaction")
    t.add(Reply(assistant(Words("Done.")), USED), by="model")


def test_a_window_without_layers_says_nothing_of_them() -> None:
    window = measure_window("s", FRAME, full().view, THRESHOLDS, measure_savings(full(), None))

    assert (window.saved, window.read_again) == ((), 0)
    assert "layer" not in format_window(window)


def test_what_the_layers_saved_is_drawn_below() -> None:
    t = full()
    with_layers(t)

    window = measure_window("s", FRAME, t.view, THRESHOLDS, measure_savings(t, None))

    one, two, again, note = format_window(window).splitlines()[-4:]
    assert one.startswith("  layer 1, large tool results kept on disk (1): 64.")
    assert one.endswith("k not sent so far"), "no price, no money"
    assert two.startswith("  layer 2, old tool results cleared (1): 5k kept out now, ")
    assert again == "  asked for again after it was cleared: 2 results"
    assert "simulated" in note


def test_the_command_tells_what_each_layer_saved(here: Here, world: World) -> None:
    here("-p", "hello")
    [path] = world.transcripts
    with JsonlLog(path) as log:
        t = Transcript.load(log.read(), lambda: 2.0, log.append)
        frame = {**t.view.marks["frame"], "model": "claude-sonnet-4-5"}
        t.add(Mark("frame", frame), by="session")
        with_layers(t)

    window = here("context", "--json").json

    assert [one["layer"] for one in window["saved"]] == [1, 2]
    assert all(one["tokens_so_far"] >= one["tokens_now"] > 0 for one in window["saved"])
    stored, cleared = (one["cost"] for one in window["saved"])
    assert stored > 0
    assert cleared < 0, "one request is not enough to make a break worth it"
    assert (window["read_again"], window["currency"]) == (2, "USD")
    text = here("context").out
    assert f", ${stored:.4f} saved\n" in text
    assert f", ${-cleared:.4f} lost by it\n" in text


@pytest.mark.anyio
@pytest.mark.parametrize("command", ["/context", "/cost"])
async def test_in_the_chat_it_is_told_too(world: World, command: str) -> None:
    model = ScriptedModel(["Hello."], name="claude-sonnet-4-5")
    async with Session(model, world.project, home=world.home, environ=world.env) as session:
        await session.ask("hello")
        before = run_slash_command(session, command)
        with_layers(session.turn.transcript)
        after = run_slash_command(session, command)

    assert isinstance(before, CommandReply)
    assert isinstance(after, CommandReply)
    assert "layer" not in before.text
    assert "layer 1, large tool results kept on disk (1): " in after.text
    assert "layer 2, old tool results cleared (1): " in after.text
    assert "asked for again after it was cleared: 2 results" in after.text
    assert "simulated" in after.text
