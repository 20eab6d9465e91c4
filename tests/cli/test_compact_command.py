"""`/compact`, `/rewind` and `/notes`, typed at a terminal and given with -p, against the simulator."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from cli.conftest import Here
from cli.terminal import CTRL_C, CTRL_D, DOWN, ENTER, ESCAPE, PROMPT, Terminal
from cli.world import World

from sevenfold.cli.chat.slash import describe_compaction, describe_worst_loss, parse_compact_range
from sevenfold.cli.output import EventNarrator, StatusLine
from sevenfold.core.errors import Mistake
from sevenfold.core.events import Compacted
from sevenfold.core.request import has_paired_tools
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import View
from sevenfold.layers.shared.boundary import Boundary, find_last_boundary
from sevenfold.layers.shared.fidelity import Fidelity, FoundShare
from sevenfold.offline import encode_reply
from sevenfold.session.commands import CompactionReport
from sevenfold.simulator import Script, Simulator, parse_steps, run_in_thread

MODEL = "claude-sonnet-4-5"
ASKED = ("read ports.py", "read names.py", "run `ls -a`")
NO_SUMMARY = '{"match": {"source": "fork:compact"}, "hang": true}'


def write_project(world: World) -> World:
    ports = "".join(f"PORT_{n} = 80{n:02d}  # where service {n} listens\n" for n in range(60))
    names = "".join(f"NAME_{n} = 'service-{n}'  # as the others call it\n" for n in range(60))
    world.write("ports.py", ports)
    world.write("names.py", names)
    return world


@contextmanager
def provider(world: World, script: str = "") -> Iterator[Simulator]:
    """A model that answers, summarises and keeps notes by rule, unless the script says otherwise."""
    with run_in_thread(replies=encode_reply, script=Script(parse_steps(script))) as sim:
        write_project(world).at(sim.url)
        yield sim


@contextmanager
def chatting(world: World) -> Iterator[Terminal]:
    """Three turns have been taken."""
    with Terminal(("--bare", "--model", MODEL), world.env, world.project) as t:
        t.wait_for(PROMPT)
        for words, shown in zip(ASKED, ("Read ports.py", "Read names.py", "Bash ls -a"), strict=True):
            t.ask(words, f"→ {shown}")
        yield t
        t.line("/exit")
        assert t.wait_for_end() == 0


def shown(view: View) -> str:
    return "\n".join(placed.message.text for placed in view)


# --- at a terminal --------------------------------------------------------------------------------------


@pytest.mark.real
def test_compact_says_in_one_line_what_came_of_it_and_context_remembers(world: World) -> None:
    with provider(world) as sim, chatting(world) as t:
        said = t.ask("/compact keep the ports", "summary: ", "fidelity", "$0.0", "from the cache")
        t.ask("/context", "last compacted (manual), summary: ", "fidelity", "notes: none yet")
        t.ask("hello", "offline engine")

    result = re.search(r"summary: ([\d.]+)k → ([\d.]+)k tokens · fidelity (\d+)% · .*", said)
    assert result is not None
    assert float(result[2]) < float(result[1])
    view = world.transcript().view
    boundary = find_last_boundary(view)
    assert boundary is not None
    assert (boundary.trigger, boundary.instructions) == ("manual", "keep the ports")
    assert has_paired_tools(view)
    assert all(words in shown(view) for words in ASKED), "every word of the user is still there"
    asked = [row for row in sim.ledger.rows if row.source == "fork:compact"]
    assert len(asked) == 1
    assert asked[0].tokens.cache_read > 0, "it was asked on the prefix that is in the cache"


@pytest.mark.real
def test_ctrl_c_stops_a_compaction_and_nothing_has_changed(world: World) -> None:
    with provider(world, NO_SUMMARY), chatting(world) as t:
        t.line("/compact")
        t.wait_for("summarising about", "Ctrl-C stops")
        before = world.transcript().view
        t.press(CTRL_C)
        t.wait_for("stopped; the conversation is as it was", PROMPT)
        assert world.transcript().view == before
        t.ask("/compact", "summary: ")
        assert world.transcript().view != before

    assert "· Ctrl-C stops" not in t.screen, "nothing of what was drawn meanwhile is left"


@pytest.mark.real
def test_esc_stops_it_too_and_what_was_typed_meanwhile_waits_in_the_line(world: World) -> None:
    with provider(world, NO_SUMMARY), chatting(world) as t:
        t.line("/compact")
        t.wait_for("summarising about", "Ctrl-C stops")
        t.press("hello")
        t.wait_for("Ctrl-C stops")
        t.press(ESCAPE)
        t.wait_for("stopped; the conversation is as it was", "› hello")
        t.press(ENTER)
        t.wait_for("offline engine", PROMPT)


@pytest.mark.real
def test_rewind_lists_the_turns_and_goes_back_with_the_words_to_edit(world: World) -> None:
    with provider(world), chatting(world) as t:
        t.line("/rewind")
        listed = t.wait_for("go back to before a turn", ASKED[2], ASKED[1], ASKED[0], "Esc leaves")
        assert re.search(r"3  run `ls.* · 20\d\d-\d\d-\d\d \d\d:\d\d · [\d.]+k tokens", listed)
        t.press(f"{DOWN}{ENTER}")  # the newest stands first
        t.wait_for("turn 2", ASKED[1], "/rewind 2 back", "/compact from 2", "/compact up_to 2")
        t.wait_for("b/f/u, or Enter for nothing: ")
        t.line("b")
        t.wait_for("back to before turn 2", "files are as they are now", f"› {ASKED[1]}")
        t.press(ENTER)
        t.wait_for("Read names.py", PROMPT)

    log = world.transcript()
    assert [placed.message.text for placed in log.view if placed.by == "user"] == [*ASKED[:2]]
    texts = [getattr(entry.what, "text", "") for entry in log.entries if entry.by == "user"]
    assert texts == [*ASKED, ASKED[1]], "the transcript keeps all of it"


@pytest.mark.real
@pytest.mark.parametrize(("key", "trigger", "left"), [("f", "from", ASKED[:1]), ("u", "up_to", ASKED[1:])])
def test_rewind_offers_to_summarise_around_a_turn(
    world: World, key: str, trigger: str, left: tuple[str, ...]
) -> None:
    with provider(world), chatting(world) as t:
        t.line("/rewind 2")
        t.wait_for("Enter for nothing: ")
        t.line(key)
        t.wait_for("summary: ", "tokens", PROMPT)

    view = world.transcript().view
    boundary = find_last_boundary(view)
    assert boundary is not None
    assert boundary.trigger == trigger
    assert tuple(p.message.text for p in view if p.by == "user") == left
    assert all(words in shown(view) for words in ASKED)


@pytest.mark.real
def test_an_offer_may_be_declined(world: World) -> None:
    with provider(world), chatting(world) as t:
        before = world.transcript().view
        for key in (ENTER, CTRL_C, CTRL_D):
            t.line("/rewind 1")
            t.wait_for("b/f, or Enter for nothing: ")
            t.press(key)
            t.wait_for(PROMPT)
        t.ask("/rewind 9", "there is no turn 9: they go from 1 to 3")
        t.ask("/compact from 9", "there is no turn 9")
        t.ask("/compact up_to", "which turn? /compact up_to N")
        assert world.transcript().view == before


@pytest.mark.real
def test_notes_are_shown_once_there_are_some(world: World) -> None:
    world.settings({"notes": {"priced": True, "firstAt": 300, "grownBy": 300}})
    with provider(world):
        with Terminal(("--bare", "--model", MODEL), world.env, world.project) as t:
            t.wait_for(PROMPT)
            t.ask("/notes", "there are no notes on this session yet: they are begun when")
            t.line("/exit")
            assert t.wait_for_end() == 0
        with chatting(world) as t:
            deadline = time.monotonic() + 40
            while not list(world.home.rglob("summary.md")):
                assert time.monotonic() < deadline, "no notes were kept"
            t.ask("/notes", "summary.md · about", "# Session title", ASKED[0])
            t.ask("/context", "notes: /", "summary.md")


# --- with -p --------------------------------------------------------------------------------------------


def take_turns(here: Here) -> None:
    for words in ASKED:
        ran = here("-p", words, "--model", MODEL, "--continue")
        assert ran.code == 0, ran.err


def begin_session(here: Here) -> None:
    assert here("-p", "hello", "--model", MODEL).code == 0
    take_turns(here)


@pytest.mark.real
def test_a_command_with_p_acts_on_the_session_that_is_named(world: World, here: Here) -> None:
    with provider(world):
        begin_session(here)
        id = world.transcripts[0].stem

        ran = world.run("-p", "/compact the ports", "--resume", id)

        assert (ran.code, ran.err) == (0, "")
        assert re.fullmatch(r"summary: [\d.]+k → [\d.]+k tokens · fidelity \d+% · .*\n", ran.out)
        listed = here("-p", "/rewind", "--continue").out
        assert listed.splitlines()[0].split() == ["turn", "when", "tokens", "first", "words"]
        assert "(summarised) read ports.py" in listed
        offered = here("-p", "/rewind 4", "--continue")
        assert (offered.code, "/rewind 4 back" in offered.out) == (0, True)
        context = here("context", "--json").json
        assert context["compacted"]["trigger"] == "manual"
        assert context["compacted"]["instructions"] == "the ports"
        assert 0 < context["compacted"]["fidelity"] <= 1
        assert context["notes"] is None


@pytest.mark.real
def test_what_is_piped_in_beside_a_command_belongs_to_it(world: World, here: Here) -> None:
    with provider(world):
        begin_session(here)
        ran = world.run("-p", "/compact", "--continue", stdin=b"the ports matter most")

        assert ran.code == 0
        boundary = find_last_boundary(world.transcript().view)
        assert boundary is not None
        assert "the ports matter most" in boundary.instructions

        ran = world.run("--continue", stdin=b"/compact\n")
        assert "user: /compact\n" in list(world.kept()), "alone it is something to talk about"


@pytest.mark.real
def test_for_programs_the_result_says_whether_it_was_done(world: World, here: Here) -> None:
    with provider(world):
        assert here("-p", "hello", "--model", MODEL).code == 0
        little = here("-p", "/compact", "--continue", "--json")
        assert (little.code, little.json["stop"], little.json["is_error"]) == (1, "declined", True)
        assert "too little here to compact" in little.err

        take_turns(here)
        done = world.run("-p", "/compact from 2", "--continue", "--json").json
        assert (done["stop"], done["is_error"]) == ("command", False)
        assert done["result"].startswith("summary: ")
        assert "Compacted" in [event["event"] for event in done["events"]]


@pytest.mark.real
@pytest.mark.parametrize(
    ("line", "code", "why"),
    [
        ("/compcat", 2, "there is no command /compcat; did you mean /compact?"),
        ("/compact", 2, "there is nothing to compact: nothing has been said yet"),
        ("/clear", 2, "/clear is for a conversation at a terminal, not for -p"),
    ],
)
def test_a_command_that_cannot_be_is_refused(world: World, line: str, code: int, why: str) -> None:
    ran = world.run("-p", line)

    assert (ran.code, ran.out) == (code, "")
    assert why in ran.err
    assert world.transcripts == []


@pytest.mark.real
def test_an_interrupted_compaction_with_p_changes_nothing(world: World, here: Here) -> None:
    with provider(world, NO_SUMMARY):
        begin_session(here)
        before = world.transcript().view
        with world.start("-p", "/compact", "--continue", "--output-format", "stream-json") as process:
            assert process.stdout is not None
            for line in process.stdout:
                if json.loads(line)["event"] == "Sending":
                    break
            os.killpg(process.pid, signal.SIGINT)
            *_, last = process.stdout.read().splitlines()
            assert process.wait(60) == 130

        assert json.loads(last)["stop"] == "interrupted"
        assert world.transcript().view == before


# --- words ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("", (None, None, "")),
        ("keep the schema", (None, None, "keep the schema")),
        ("from 3", (3, None, "")),
        ("from 3 keep the schema", (3, None, "keep the schema")),
        ("up_to 12 short\nplease", (None, 12, "short\nplease")),
        ("from now on only the API", (None, None, "from now on only the API")),
        ("fromage", (None, None, "fromage")),
    ],
)
def test_which_part_and_what_matters(typed: str, meant: tuple[int | None, int | None, str]) -> None:
    assert parse_compact_range(typed) == meant


@pytest.mark.parametrize("typed", ["from", "up_to", "up_to the schema"])
def test_a_part_without_a_turn_is_asked_about(typed: str) -> None:
    with pytest.raises(Mistake, match="which turn"):
        parse_compact_range(typed)


def test_what_is_missed_most_is_what_lowers_the_score_most() -> None:
    kinds = {"said": FoundShare(2, 2), "paths": FoundShare(9, 12), "urls": FoundShare(0, 1)}
    assert describe_worst_loss(Fidelity(0.9, kinds)) == "1 of 1 addresses"
    assert describe_worst_loss(Fidelity(0.9, {**kinds, "said": FoundShare(1.5, 2)})) == "25% of your words"
    assert describe_worst_loss(Fidelity(1.0, {"said": FoundShare(2, 2), "urls": FoundShare(0, 0)})) == ""


def test_the_result_is_one_line_with_sizes_fidelity_what_is_missed_time_and_cost() -> None:
    boundary = Boundary("summary", "manual", 120_300, 14_000, fidelity=0.934)
    found = Fidelity(0.934, {"paths": FoundShare(9, 12)})
    report = CompactionReport(boundary, False, found, Usage(1_000, 0, 99_000, 900), 0.046, 12.3)

    assert describe_compaction(boundary, report, "USD") == (
        "summary: 120.3k → 14k tokens · fidelity 93% · misses most: 3 of 12 paths · 12 s · "
        "$0.0460 (99% of it from the cache)"
    )
    without = describe_compaction(boundary, CompactionReport(boundary, seconds=1.0), "USD")
    assert without == "summary: 120.3k → 14k tokens · fidelity 93% · 1.0 s", "nothing was asked"


def test_a_compaction_nobody_asked_for_is_told_when_it_does_not_tell_itself() -> None:
    lines = EventNarrator().describe_event(Compacted("summary", "auto", 180_000, 21_000, 0.93))

    assert lines == [StatusLine("the older part was compacted (summary): 180k → 21k tokens, fidelity 93%")]
    assert EventNarrator().describe_event(Compacted("summary", "manual", 9_000, 2_000)) == []
    assert EventNarrator().describe_event(Compacted("digest", "auto", 9_000, 2_000)) == []
