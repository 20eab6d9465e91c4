"""The chat at a real pseudo-terminal, typed into as a person would."""

from __future__ import annotations

import json
import re
import stat
import time

import pytest
from cli.terminal import CTRL_C, CTRL_D, ENTER, ESCAPE, PROMPT, Terminal
from cli.world import World, is_running

from sevenfold.core.request import find_open_uses
from sevenfold.simulator import Script, parse_steps, run_in_thread

pytestmark = pytest.mark.real
QUESTION = "Run it?"


def at_terminal(world: World, *words: str) -> Terminal:
    return Terminal(words, world.env, world.project)


def test_a_whole_conversation(world: World) -> None:
    world.write("add.py", "def add(a, b):\n    return a + b\n")
    with at_terminal(world) as t:
        t.wait_for("offline", PROMPT)
        t.ask("hello", "offline engine")
        t.ask("read add.py", "→ Read add.py · 2 lines", "return a + b")
        t.ask("/context", "system", "tool results: Read", "reserved for the reply")
        t.ask("/cost", "3 requests", "hit rate 0%", "$0.00", "prices as of")
        t.ask("/hlep", "there is no command /hlep; did you mean /help?")
        t.ask("/help", "/resume [ID]", "Ctrl-D leaves")
        t.ask("/etc/hosts is a file", "offline")
        t.line("/exit")

        assert t.wait_for_end() == 0

    screen = t.screen
    assert "· cache 0%" not in t.text, "a model without a prompt cache has no figure for it"
    assert "· Ctrl-C stops" not in screen, "nothing of what was drawn meanwhile is left"
    assert screen.count("return a + b") == 1, "the reply is shown once, when it is final"
    assert "```" not in screen, "it is rendered, not raw"
    assert f"sevenfold chat --resume {world.transcripts[0].stem}" in screen


def test_a_tool_asks_before_it_runs(world: World) -> None:
    with at_terminal(world) as t:
        t.wait_for(PROMPT)
        t.line("run `touch one`")
        t.wait_for(
            "Run this command", "> touch one", "asked because:", "always in this session: ", QUESTION
        )
        t.line("maybe")
        t.wait_for(QUESTION)
        t.line("n")
        t.wait_for("not allowed: the person said no", PROMPT)
        assert not (world.project / "one").exists()

        t.line("run `touch one`")
        t.wait_for(QUESTION)
        t.line("y")
        t.wait_for("→ Bash touch one", PROMPT)
        assert (world.project / "one").exists()

        t.line("run `touch two`")
        t.wait_for(QUESTION)
        t.line("a")
        t.wait_for("→ Bash touch two", PROMPT)
        (world.project / "two").unlink()
        t.ask("run `touch two`", "→ Bash touch two")
        assert (world.project / "two").exists()

        t.press(CTRL_D)
        assert t.wait_for_end() == 0


def test_ctrl_c_stops_the_turn_and_the_chat_goes_on(world: World) -> None:
    with at_terminal(world, "--allow", "Bash(sleep:*)") as t:
        t.wait_for(PROMPT)
        t.line("run `sleep 9753`")
        t.wait_for("Bash sleep 9753", "Ctrl-C stops")
        t.press(CTRL_C)
        t.wait_for("stopped; what was complete is kept", PROMPT)
        t.ask("hello", "offline engine")
        t.line("/exit")

        assert t.wait_for_end() == 0

    assert not is_running("sleep 9753")
    assert find_open_uses(world.transcript().view) == ()


def test_ctrl_c_stops_a_hook_that_looks_at_the_prompt(world: World) -> None:
    hook = {"hooks": [{"type": "command", "command": f"touch {world.top}/began; sleep 9757"}]}
    world.settings({"hooks": {"UserPromptSubmit": [hook]}})
    with at_terminal(world) as t:
        t.wait_for(PROMPT)
        t.line("hello")
        deadline = time.monotonic() + 40
        while not (world.top / "began").exists():
            assert time.monotonic() < deadline
        t.press(CTRL_C)
        t.wait_for("stopped", PROMPT)
        t.line("/exit")

        assert t.wait_for_end() == 0


def test_ctrl_c_twice_leaves(world: World) -> None:
    with at_terminal(world) as t:
        t.wait_for(PROMPT)
        t.press(CTRL_C)
        t.wait_for("Ctrl-C again leaves", PROMPT)
        t.press(CTRL_C)

        assert t.wait_for_end() == 130

    assert world.transcripts == []


def test_ctrl_c_at_a_question_stops_the_turn(world: World) -> None:
    with at_terminal(world) as t:
        t.wait_for(PROMPT)
        t.line("run `touch one`")
        t.wait_for(QUESTION)
        t.press(CTRL_C)
        t.wait_for("stopped", PROMPT)
        t.line("/exit")

        assert t.wait_for_end() == 0

    assert not (world.project / "one").exists()
    assert find_open_uses(world.transcript().view) == ()


def test_esc_stops_the_turn_and_brings_back_the_words_to_edit(world: World) -> None:
    with at_terminal(world, "--allow", "Bash(sleep:*)") as t:
        t.wait_for(PROMPT)
        t.line("run `sleep 9754`")
        t.wait_for("Bash sleep 9754", "Ctrl-C stops")
        t.press(ESCAPE)
        t.wait_for("stopped", PROMPT, "run `sleep 9754`")
        t.press("\x08" * len("run `sleep 9754`") + "hello" + ENTER)
        t.wait_for("offline engine", PROMPT)
        t.line("/exit")
        assert t.wait_for_end() == 0

    said = [p.message.text for p in world.transcript().view if p.by == "user"]
    assert said == ["run `sleep 9754`", "hello"]


def test_what_is_typed_during_a_turn_waits_in_the_next_prompt(world: World) -> None:
    with at_terminal(world, "--allow", "Bash(sleep:*)") as t:
        t.wait_for(PROMPT)
        t.line("run `sleep 2`")
        t.wait_for("Bash sleep 2", "Ctrl-C stops")
        t.press("hel\x1b[Dlo")
        t.wait_for("Ran sleep 2", PROMPT, "hello")
        t.press(ENTER)
        t.wait_for("offline engine", PROMPT)
        t.line("/exit")
        assert t.wait_for_end() == 0


def test_several_lines_are_one_message(world: World) -> None:
    with at_terminal(world) as t:
        t.wait_for(PROMPT)
        t.press(f"first{ESCAPE}{ENTER}second{ENTER}")
        t.wait_for("offline engine", PROMPT)
        t.press("\x1b[200~pasted one\npasted two\x1b[201~")
        t.wait_for("pasted two")
        t.press(ENTER)
        t.wait_for("Ctrl-C stops", PROMPT)
        t.line("/exit")
        assert t.wait_for_end() == 0

    said = [p.message.text for p in world.transcript().view if p.by == "user"]
    assert said == ["first\nsecond", "pasted one\npasted two"]


def test_what_was_typed_is_remembered_for_this_user_alone(world: World) -> None:
    for _ in range(2):
        with at_terminal(world) as t:
            t.wait_for(PROMPT)
            t.press("\x1b[A")  # up: what was typed the time before
            if world.transcripts:
                t.wait_for("hello there")
                t.press(ENTER)
            else:
                t.line("hello there")
            t.wait_for("offline engine", PROMPT)
            t.press(CTRL_D)
            assert t.wait_for_end() == 0

    history = world.home / "history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert history.read_text(encoding="utf-8").count("+hello there") >= 1
    assert len(world.transcripts) == 2


def test_clear_resume_and_model(world: World) -> None:
    with at_terminal(world, "--bare") as t:
        t.wait_for(PROMPT)
        t.ask("my colour is green", "offline")
        [first] = world.transcripts
        t.ask("/clear")
        t.ask("what is my colour?", "offline engine")
        t.line("/resume")
        t.wait_for("go on with", "my colour is green", "just now", "Esc leaves")
        t.press(ESCAPE)
        t.wait_for(PROMPT)
        t.ask("/resume nope", "there is no session 'nope'", "/resume lists those there are")
        t.ask(f"/resume {first.stem}", f"resumed {first.stem}", "> my colour is green")
        t.ask("/model claude-sonnet-4-5", "claude-sonnet-4-5 needs a key")
        t.ask("/model", "offline; /model NAME changes it")
        t.ask("what is my colour?", "green")
        t.line("/exit")

        assert t.wait_for_end() == 0
    assert len(world.transcripts) == 2


def test_a_session_that_cannot_be_opened_leaves_the_chat_where_it_was(world: World) -> None:
    with at_terminal(world) as t:
        t.wait_for(PROMPT)
        t.ask("hello", "offline engine")
        [first] = world.transcripts
        other = first.with_name("from-the-future.jsonl")
        other.write_bytes(first.read_bytes().replace(b'"format":1', b'"format":99', 1))
        t.line("/resume from-the-future")
        t.wait_for("has format 99", f"resumed {first.stem}", PROMPT)
        t.line("/exit")

        assert t.wait_for_end() == 0


def test_a_folder_is_asked_about_once_and_not_trusted_by_default(world: World) -> None:
    hook = {"hooks": [{"type": "command", "command": f"touch {world.top}/owned"}]}
    world.write(".sevenfold/settings.json", json.dumps({"hooks": {"SessionStart": [hook]}}))
    with at_terminal(world) as t:
        t.wait_for("hooks.SessionStart", f"touch {world.top}/owned", "unless you trust", "[y/N]")
        t.press(ENTER)
        assert "not trusted" not in t.wait_for("offline", PROMPT), "it has just been said"
        t.ask("/clear", "offline")
        assert "not trusted" not in t.text
        t.line("/exit")
        assert t.wait_for_end() == 0
    assert not (world.top / "owned").exists()

    with at_terminal(world) as t:
        assert "Trust it?" not in t.wait_for("this folder is not trusted", PROMPT)
        t.line("/exit")
        assert t.wait_for_end() == 0
    assert not (world.top / "owned").exists()


def test_a_folder_that_is_trusted_may_bring_hooks(world: World) -> None:
    hook = {"hooks": [{"type": "command", "command": f"touch {world.top}/ran"}]}
    world.write(".sevenfold/settings.json", json.dumps({"hooks": {"SessionStart": [hook]}}))
    with at_terminal(world) as t:
        t.wait_for("Trust it? [y/N]")
        t.line("y")
        assert "not trusted" not in t.wait_for("hook SessionStart", "ok", PROMPT)
        t.line("/exit")
        assert t.wait_for_end() == 0
    assert (world.top / "ran").exists()

    (world.top / "ran").unlink()
    hook["hooks"][0]["command"] += " --other"
    world.write(".sevenfold/settings.json", json.dumps({"hooks": {"SessionStart": [hook]}}))
    for asked in (True, False):  # once for each state of the files
        with at_terminal(world) as t:
            if asked:
                assert "is not as you trusted it" in t.wait_for("--other", "Trust it? [y/N]")
                t.line("n")
            assert asked or "Trust it?" not in t.wait_for(PROMPT)
            t.wait_for(PROMPT)
            t.line("/exit")
            assert t.wait_for_end() == 0
    assert not (world.top / "ran").exists()


def test_a_rebuilt_cache_is_announced_with_its_price_before_it_is_paid(world: World) -> None:
    with run_in_thread(script=Script(parse_steps('{"reply": {"text": "Yes."}, "times": 2}'))) as sim:
        world.at(sim.url)
        with at_terminal(world, "--bare", "--model", "claude-sonnet-4-5") as t:
            t.wait_for(PROMPT)
            t.ask("first", "Yes.")
            t.ask("/model claude-opus-4-1", "now with claude-opus-4-1")
            t.ask("second", "the cache will be rebuilt: the model changed", "about $0.0", "Yes.")
            t.ask("/cost", "2 requests", "cache written")
            t.line("/exit")
            assert t.wait_for_end() == 0


def test_the_footer_says_how_full_the_window_is_and_what_was_spent(world: World) -> None:
    with run_in_thread(script=Script(parse_steps('{"reply": {"text": "Yes."}}'))) as sim:
        world.at(sim.url)
        with at_terminal(world, "--bare", "--model", "claude-sonnet-4-5") as t:
            t.wait_for(PROMPT)
            t.ask("first", "Yes.")
            t.wait_for("claude-sonnet-4-5 · 2% of 200k · $0.0", "· cache 0%")
            t.line("/exit")
            assert t.wait_for_end() == 0


def test_a_failure_is_told_and_the_chat_goes_on(world: World) -> None:
    script = '{"error": {"status": 400, "message": "no such thing"}}\n{"reply": {"text": "Better."}}'
    with run_in_thread(script=Script(parse_steps(script))) as sim:
        world.at(sim.url)
        with at_terminal(world) as t:
            t.wait_for(PROMPT)
            t.ask("first", "no such thing")
            t.ask("second", "Better.")
            t.line("/exit")
            assert t.wait_for_end() == 0


@pytest.mark.parametrize("words", [("--no-color",), ()])
def test_without_colour_it_is_plain_text(world: World, words: tuple[str, ...]) -> None:
    if not words:
        world.variables["NO_COLOR"] = "1"
    with at_terminal(world, *words) as t:
        t.wait_for(PROMPT)
        t.ask("what can you do?", "offline engine")
        t.line("/exit")
        assert t.wait_for_end() == 0

    assert "`ANTHROPIC_API_KEY`" in t.screen, "as the model wrote it"
    styles = {part for style in re.findall(r"\x1b\[([0-9;]*)m", t.raw) for part in style.split(";")}
    assert not styles & {str(color) for color in (*range(30, 39), *range(90, 98))}
    assert "Ctrl-C stops" not in t.text


def test_a_prompt_at_a_terminal_is_answered_there_and_it_leaves(world: World) -> None:
    with at_terminal(world, "-p", "hello") as t:
        assert t.wait_for_end() == 0

    assert "offline engine" in t.screen
    assert PROMPT not in t.text


def test_a_terminal_that_goes_away_ends_the_turn_and_leaves_nothing_behind(world: World) -> None:
    with at_terminal(world, "--allow", "Bash(sleep:*)") as t:
        t.wait_for(PROMPT)
        t.line("run `sleep 9756`")
        t.wait_for("Bash sleep 9756", "Ctrl-C stops")
        t.hang_up()

        assert t.process.wait(60) == 130

    assert not is_running("sleep 9756")
    assert find_open_uses(world.transcript().view) == ()


@pytest.mark.parametrize("said", ["", "hello"])
def test_a_terminal_that_goes_away_at_the_prompt_ends_the_program_and_frees_its_session(
    world: World, said: str
) -> None:
    with at_terminal(world) as t:
        t.wait_for(PROMPT)
        if said:
            t.ask(said, "offline engine")
        t.hang_up()

        assert t.process.wait(60) == 130

    if said:
        again = world.run("chat", "--continue", "-p", "and again")
        assert again.code == 0, again.err


def test_control_characters_of_a_model_do_not_reach_the_terminal(world: World) -> None:
    evil = "before \x1b]0;owned\x07\x1b[2J after"
    step = json.dumps({"reply": {"text": evil}})
    with run_in_thread(script=Script(parse_steps(step))) as sim:
        world.at(sim.url)
        with at_terminal(world) as t:
            t.wait_for(PROMPT)
            t.ask("first", "before", "after")
            t.line("/exit")
            assert t.wait_for_end() == 0

    assert "\x1b]0;owned" not in t.raw
    assert "\x1b[2J" not in t.raw


def test_the_last_reply_of_a_resumed_session_is_rendered_like_any_other(world: World) -> None:
    world.write("add.py", "def add(a, b):\n    return a + b\n")
    assert "```" in world.run("-p", "read add.py").out

    with at_terminal(world, "--continue") as t:
        t.wait_for("resumed", "return a + b", PROMPT)
        t.line("/exit")
        assert t.wait_for_end() == 0

    assert "```" not in t.screen
    assert "no answer" not in t.screen
