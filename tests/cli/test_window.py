"""What is in the window: every token is counted once, and the bar is as long as it says."""

from __future__ import annotations

from typing import Any

import pytest
from cli.conftest import Here
from cli.world import World
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.cli.window import BAR, bar, drawn, window_of
from sevenfold.messages import (
    Image,
    Message,
    Opaque,
    Thinking,
    ToolResult,
    ToolUse,
    assistant,
    user,
)
from sevenfold.messages import Text as Words
from sevenfold.request import Frame
from sevenfold.tokens import Thresholds, Usage
from sevenfold.transcript import Reply, Transcript

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
    window = window_of("s", FRAME, full().view, THRESHOLDS)

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


def test_the_parts_are_the_whole() -> None:
    view = full().view

    window = window_of("s", FRAME, view, THRESHOLDS)

    assert window.used == view.tokens
    assert sum(p.tokens for p in window.parts) == window.used
    assert sum(window.by.values()) == window.used
    assert window.used + window.free + window.margin + window.reserved == window.window
    assert not window.estimated


def test_it_is_told_who_put_what_there() -> None:
    window = window_of("s", FRAME, full().view, THRESHOLDS)

    assert set(window.by) == {"frame", "session", "user", "model", "tools", "recall"}


def test_before_the_first_reply_it_is_an_estimate_and_says_so() -> None:
    t = Transcript(lambda: 0.0)
    t.add(user("hello"))

    window = window_of("s", FRAME, t.view, THRESHOLDS)

    assert window.estimated
    assert "about " in drawn(window)
    assert window.used == sum(p.tokens for p in window.parts) > 0


@given(
    words=st.lists(st.integers(1, 60_000), max_size=6),
    size=st.sampled_from([8_000, 32_000, 200_000, 1_000_000]),
)
def test_the_bar_is_always_as_long_as_it_should_be(words: list[int], size: int) -> None:
    t = Transcript(lambda: 0.0)
    for n in words:
        t.add(user("x" * n))
    window = window_of("s", FRAME, t.view, Thresholds.of(size, 32_000))

    line = bar(window)

    assert len(line) == BAR
    assert "S" in line, "what is there at all is seen at all"
    assert window.used + window.free + window.margin + window.reserved == max(
        window.window, window.used
    )


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

    window = window_of("s", FRAME, t.view, THRESHOLDS)

    assert (window.free, window.margin, window.reserved) == (0, 0, 0)
    assert len(bar(window)) == BAR


def test_without_a_session_it_says_how_to_begin_one(here: Here) -> None:
    ran = here("context")

    assert ran.code == 2
    assert "'sevenfold chat' starts one" in ran.err


@pytest.mark.parametrize("which", ["first", "second"])
def test_a_session_can_be_chosen(here: Here, which: str) -> None:
    ids = {name: here("-p", name, "--json").json["session"] for name in ("first", "second")}

    assert here("context", "--session", ids[which], "--json").json["session"] == ids[which]
