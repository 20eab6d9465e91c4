"""How things are shown: Markdown as it grows, events in one line, words that cannot do harm."""

from __future__ import annotations

import io
import itertools
import os
import select
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from sevenfold.cli.input import KeyListener
from sevenfold.cli.output import (
    EventNarrator,
    SideOutput,
    StatusLine,
    fit_line,
    format_call,
    format_money,
    format_outcome,
    format_percent,
    format_tokens,
    format_work_name,
    make_printable,
    to_one_line,
)
from sevenfold.cli.terminal import MarkdownStream, PlainStream, Screen, measure_first_block
from sevenfold.core.events import (
    Acted,
    CacheBroke,
    Delta,
    Denied,
    Event,
    Failed,
    HookRan,
    Notice,
    Replied,
    Retrying,
    Sending,
    ToolStarted,
)
from sevenfold.core.messages import Image, Text, ToolResult, ToolUse, assistant
from sevenfold.core.tokens import Usage

# --- Markdown as it grows -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("one paragraph", ""),
        ("one\n\n", ""),
        ("one\n\ntwo", "one\n\n"),
        ("one\n\ntwo\n\nthree", "one\n\n"),
        ("\n\none\n\ntwo", "\n\none\n\n"),
        ("- a\n\n  still a", ""),
        ("- a\n\n  still a\n\nb", "- a\n\n  still a\n\n"),
        ("```\ncode\n\nmore code", ""),
        ("```\ncode\n\nmore\n```\n\nafter", "```\ncode\n\nmore\n```\n\n"),
        ("````\n```\n\nx\n````\n\ny", "````\n```\n\nx\n````\n\n"),
        ("~~~\n```\n\nx", ""),
        ("```python\n\n```python\n\nx", ""),
    ],
)
def test_a_block_is_settled_when_what_follows_cannot_belong_to_it(text: str, done: str) -> None:
    assert text[: measure_first_block(text)] == done


def console() -> Console:
    return Console(file=io.StringIO(), width=60, color_system=None, force_terminal=False)


def written(out: Console) -> str:
    assert isinstance(out.file, io.StringIO)
    return "\n".join(line.rstrip() for line in out.file.getvalue().splitlines())


MARKDOWN = st.lists(
    st.sampled_from(["words here", "- a\n- b", "1. x\n2. y", "```\ncode\n\nmore\n```", "**bold** `c`"]),
    min_size=1,
    max_size=6,
).map("\n\n".join)


@given(text=MARKDOWN, cuts=st.lists(st.integers(0, 200), max_size=8))
def test_however_it_arrives_it_looks_the_same_in_the_end(text: str, cuts: list[int]) -> None:
    at_once, pieces = console(), console()
    whole = MarkdownStream(at_once)
    whole.feed(text)
    whole.finish()
    stream = MarkdownStream(pieces)
    edges = [0, *sorted(min(c, len(text)) for c in cuts), len(text)]
    for a, b in itertools.pairwise(edges):
        stream.feed(text[a:b])
    stream.finish()

    assert written(pieces) == written(at_once)


def test_what_is_not_settled_is_drawn_and_not_printed() -> None:
    out = console()
    stream = MarkdownStream(out)
    stream.feed("done\n\nnot yet")

    assert written(out).strip() == "done"
    out.print(stream)
    assert "not yet" in written(out)


def test_a_long_unfinished_block_shows_its_end() -> None:
    out = Console(file=io.StringIO(), width=60, height=10, color_system=None, force_terminal=True)
    stream = MarkdownStream(out)
    stream.feed("```\n" + "\n".join(f"line {n}" for n in range(100)))

    out.print(stream)

    assert "line 99" in written(out)
    assert "line 1\n" not in written(out)


def test_plain_text_comes_as_it_is_and_ends_its_line() -> None:
    out = console()
    stream = PlainStream(out)
    for piece in ("**as", " it** is", "\x1b[2J"):
        stream.feed(piece)
    stream.finish()
    stream.finish()

    assert isinstance(out.file, io.StringIO)
    assert out.file.getvalue() == "**as it** is�[2J\n"


def make_screen(*, plain: bool) -> tuple[Screen, Console]:
    out = Console(file=io.StringIO(), width=60, color_system=None, force_terminal=True)
    aside = SideOutput()
    return Screen(out, aside, plain=plain, quiet=True), out


@pytest.mark.parametrize("plain", [False, True])
def test_a_retry_beside_the_conversation_does_not_end_a_paragraph_and_its_own_does(plain: bool) -> None:
    screen, out = make_screen(plain=plain)

    screen(Delta("one "))
    screen(Retrying("busy", 1, 0.5, beside=True))
    screen(Delta("two "))
    screen(Retrying("busy", 1, 0.5))
    screen(Delta("three"))
    screen(Replied(assistant(Text("one two three")), Usage(), "end_turn"))

    assert [line.strip() for line in written(out).splitlines()] == ["one two", "three"]


# --- events in one line ---------------------------------------------------------------------------------

READ = ToolUse("r", "Read", {"file_path": "src/a.py", "limit": 3})
SENDING: dict[str, Any] = {
    "source": "main",
    "tokens": 9,
    "shared": 1,
    "lost": 8,
    "why": "the tools changed",
}


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Notice("look"), StatusLine("look")),
        (Notice("look out", "warning"), StatusLine("look out", "warning")),
        (Sending(**SENDING, cost=0.01, expected=False), None),
        (
            Sending(**SENDING, cost=0.5, expected=False),
            StatusLine("the cache will be rebuilt: the tools changed, about $0.5000"),
        ),
        (CacheBroke("main", 9_000, 1_000, "idle", 0.2, True), None),
        (CacheBroke("main", 9_000, 1_000, "idle", 0.009, False), None),
        (
            CacheBroke("main", 9_000, 1_000, "idle", 0.2, False),
            StatusLine("the cache broke: idle; 8k tokens are paid for again, $0.2000"),
        ),
        (Retrying("busy", 1, 2.0), StatusLine("busy; trying again in 2.0 s (attempt 2)", "warning")),
        (
            Retrying("Busy (529): Overloaded; later; try again in a while", 3, 1.4),
            StatusLine("Busy (529): Overloaded; later; trying again in 1.4 s (attempt 4)", "warning"),
        ),
        (Failed("notes", "why"), StatusLine("notes failed and was passed over: why", "warning")),
        (HookRan("Stop", "a.sh", "ok"), StatusLine("hook Stop (a.sh): ok", "progress")),
        (
            HookRan("Stop", "a.sh", "blocked", "tests fail"),
            StatusLine("hook Stop (a.sh): blocked: tests fail", "warning"),
        ),
        (
            Denied(READ, "a rule says no"),
            StatusLine("✗ Read src/a.py · not allowed: a rule says no", "warning"),
        ),
    ],
)
def test_an_event_is_told_in_one_line_or_not_at_all(event: Event, line: StatusLine | None) -> None:
    assert EventNarrator().describe_event(event) == ([line] if line else [])


def test_a_tool_is_told_with_what_came_of_it() -> None:
    teller = EventNarrator()
    assert teller.describe_event(ToolStarted(READ)) == []

    lines = teller.describe_event(Acted((ToolResult("r", "1\n2\n3"),)))

    assert lines == [StatusLine("→ Read src/a.py · 3 lines", "progress")]


def test_a_tool_that_was_denied_is_told_once() -> None:
    teller = EventNarrator()
    teller.describe_event(ToolStarted(READ))
    assert len(teller.describe_event(Denied(READ, "no"))) == 1
    assert teller.describe_event(Acted((ToolResult("r", "no", True),))) == []


def test_what_a_hook_said_is_told_once() -> None:
    teller = EventNarrator()
    [ran] = teller.describe_event(HookRan("SessionStart", "a.sh", "failed", "no such file"))
    [said] = teller.describe_event(Notice("no such file", "warning"))

    assert ran == StatusLine("hook SessionStart (a.sh): failed", "progress")
    assert said == StatusLine("no such file", "warning")


def test_what_a_hook_says_to_the_user_is_not_cut() -> None:
    long = "all of this must be read. " * 40
    told = [
        *EventNarrator().describe_event(HookRan("Stop", "a.sh", "ok", long)),
        *EventNarrator().describe_event(Notice(long)),
    ]

    assert told == [StatusLine("hook Stop (a.sh): ok", "progress"), StatusLine(long, "info")]


def test_a_loss_that_was_announced_is_told_once() -> None:
    teller = EventNarrator()
    broke = CacheBroke("main", 9_000, 1_000, "the tools changed", 0.5, False)

    assert len(teller.describe_event(Sending(**SENDING, cost=0.5, expected=False))) == 1
    assert teller.describe_event(broke) == []
    teller.describe_event(Sending(**SENDING, cost=0.0, expected=False))
    assert len(teller.describe_event(broke)) == 1, "nothing was announced this time"
    teller.describe_event(Sending(**SENDING, cost=0.5, expected=False))
    assert len(teller.describe_event(CacheBroke("main", 9_000, 0, "the server", 0.5, False))) == 1


def test_other_money_is_called_by_its_name() -> None:
    [line] = EventNarrator("EUR").describe_event(Sending(**SENDING, cost=2.0, expected=False))

    assert line.text.endswith("about EUR 2.00")


# --- words ----------------------------------------------------------------------------------------------


@given(st.text())
def test_printable_text_cannot_control_a_terminal(text: str) -> None:
    safe = make_printable(text)

    assert len(safe) == len(text)
    assert not any(c < " " and c not in "\n\t" for c in safe)
    assert not set("\x7f\x9b\u202e\u2066") & set(safe)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1_000, "1k"), (12_345, "12.3k"), (999_960, "1M"), (1_250_000, "1.25M")],
)
def test_tokens_are_short(number: int, text: str) -> None:
    assert format_tokens(number) == text


def test_a_little_is_not_nothing() -> None:
    assert (format_percent(0), format_percent(0.001), format_percent(0.5)) == ("0%", "<1%", "50%")
    assert (format_money(0.0), format_money(0.0042), format_money(12.3), format_money(None)) == (
        *("$0.00", "$0.0042", "$12.30"),
        "no price known",
    )


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (READ, "Read src/a.py"),
        (ToolUse("b", "Bash", {"command": "ls\n-l"}), "Bash ls -l"),
        (ToolUse("x", "Odd", {"n": 1, "of": "a\nb"}), "Odd n: 1, of: a b"),
        (
            ToolUse("a", "Agent", {"description": "find the tests", "prompt": "…"}),
            "Start a general-purpose agent: find the tests",
        ),
        (
            ToolUse(
                "a",
                "Agent",
                {
                    "description": "find the tests",
                    "prompt": "…",
                    "subagent_type": "explore",
                    "name": "scout",
                    "run_in_background": True,
                },
            ),
            "Start the explore agent scout in the background: find the tests",
        ),
        (ToolUse("m", "SendMessage", {"to": "scout", "summary": "stop now"}), "Tell scout: stop now"),
        (ToolUse("x", "Odd", {}), "Odd"),
    ],
)
def test_a_call_is_told_by_what_it_is_about(use: ToolUse, text: str) -> None:
    assert format_call(use).strip() == text


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ToolResult("a", ""), "nothing"),
        (ToolResult("a", "short"), "short"),
        (ToolResult("a", "1\n2"), "2 lines"),
        (ToolResult("a", "no such file", True), "failed: no such file"),
        (ToolResult("a", (Text("see"), Image({}))), "an image"),
    ],
)
def test_an_outcome_is_told_by_its_size(result: ToolResult, text: str) -> None:
    assert format_outcome(result) == text


def test_a_long_line_is_cut() -> None:
    assert to_one_line("a  b\n c", 100) == "a b c"
    assert to_one_line("x" * 30, 10) == "x" * 9 + "…"


@pytest.mark.parametrize("columns", [1, 5, 10, 11, 80])
def test_a_fitted_line_is_not_broken(columns: int) -> None:
    assert cell_len(fit_line("日本語 and more", columns)) <= columns
    assert fit_line("short", 5) == "short"


# --- keys -----------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_keys_pressed_meanwhile_are_kept_and_escape_is_told() -> None:
    master, slave = os.openpty()
    escaped = anyio.Event()
    keys = KeyListener(slave, escaped.set)
    typed = ""
    try:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(keys.listen)
                await anyio.wait_all_tasks_blocked()
                os.write(master, "grün\x1b[A\r".encode())
                while not typed:
                    await anyio.lowlevel.checkpoint()
                    typed += keys.take_typed()
                os.write(master, b"\x1b")
                await escaped.wait()
                async with keys.pause():
                    os.write(master, b"for somebody else\n")
                    assert select.select([slave], [], [], 10)[0], "whole lines, as usual"
                    assert os.read(slave, 100) == b"for somebody else\n"
                tasks.cancel_scope.cancel()
        assert typed == "grün"
    finally:
        os.close(master)
        os.close(slave)


def test_work_in_the_background_is_called_as_one_says_it() -> None:
    assert [format_work_name(name) for name in ("LateExtraction", "clean-up")] == [
        "late extraction",
        "clean-up",
    ]
