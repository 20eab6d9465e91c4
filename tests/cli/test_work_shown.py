"""Work in the background at a pseudo-terminal: in the footer, above the prompt, and at the end."""

from __future__ import annotations

import json

import pytest
from cli.terminal import CTRL_C, ENTER, PROMPT, Terminal
from cli.world import World, is_running

from sevenfold.simulator import Script, parse_steps, run_in_thread

pytestmark = pytest.mark.real


def at_terminal(world: World, *words: str) -> Terminal:
    return Terminal(words, world.env, world.project, columns=100)


def test_running_agents_and_commands_are_in_the_footer_and_exit_says_that_it_stops_them(
    world: World,
) -> None:
    background = {"command": "sleep 9781", "run_in_background": True}
    content = [{"type": "tool_use", "name": "Bash", "input": background}]
    agent = {
        "description": "look around",
        "prompt": "survey the attic",
        "name": "scout",
        "run_in_background": True,
    }
    content.append({"type": "tool_use", "name": "Agent", "input": agent})
    steps = [
        {"reply": {"content": content}},
        {"match": {"text": "survey the attic"}, "hang": True},
        {"reply": {"text": "Both are at work."}, "times": 9},
    ]
    script = Script(parse_steps("\n".join(map(json.dumps, steps))))
    with run_in_thread(script=script) as sim:
        world.at(sim.url)
        with at_terminal(world, "--allow", "Bash(sleep:*)") as t:
            t.wait_for(PROMPT)
            t.line("go")
            t.wait_for("→ Start the general-purpose agent scout in the background: look around")
            t.wait_for("Both are at work.", PROMPT, "1 agent: scout (look around) · 1 command: process ")
            t.line("/exit")
            t.wait_for("stopping agent scout, 1 background command")
            assert t.wait_for_end() == 0

    assert "{" not in t.text, "a call of an agent is a sentence"
    assert not is_running("sleep 9781")


def test_a_notice_that_comes_while_a_line_is_typed_stands_above_it(world: World) -> None:
    with at_terminal(world) as t:
        t.wait_for(PROMPT)
        t.ask("hello", "offline engine")
        [session] = [path.stem for path in world.transcripts]
        t.press("half a li")
        t.wait_for("half a li")
        sent = world.run("agents", "send", f"uds:{session}", "the build is red")
        assert sent.code == 0, sent.err
        t.wait_for("writes: the build is red")
        t.press("ne")
        t.wait_until(lambda: f"{PROMPT} half a line" in t.screen)
        lines = t.screen.split("\n")
        at = next(n for n, line in enumerate(lines) if "writes: the build is red" in line)
        assert "half" not in lines[at]
        assert [line for line in lines if "half a li" in line] == [f"{PROMPT} half a line"]
        assert lines.index(f"{PROMPT} half a line") > at
        assert sum("of 200k" in line for line in lines) == 1, "one footer"
        t.press("\x15/exit" + ENTER)
        assert t.wait_for_end() == 0


def test_exit_says_what_it_waits_for_and_ctrl_c_leaves_now(world: World) -> None:
    steps = ['{"reply": {"text": "Noted."}}', '{"hang": true, "times": 9}']
    with run_in_thread(script=Script(parse_steps("\n".join(steps)))) as sim:
        world.at(sim.url)
        with at_terminal(world) as t:
            t.wait_for(PROMPT)
            t.line("remember that we deploy on Tuesdays")
            t.wait_for("Noted.", PROMPT)  # What lasts waits for the end where tokens cost money
            t.line("/exit")
            t.wait_for(
                "waiting for extraction, at most ", " s; Ctrl-C leaves now, and what was said is kept"
            )
            t.press(CTRL_C)
            assert t.wait_for_end() == 130

    assert "user: remember that we deploy on Tuesdays" in list(world.kept())


@pytest.mark.parametrize("words", [(), ("--no-color",)])
def test_a_notice_does_not_split_a_reply_and_lines_break_at_words(
    world: World, words: tuple[str, ...]
) -> None:
    text = " ".join(f"word{n}" for n in range(120))
    step = {"reply": {"text": text}, "slow": {"chunk_delay_ms": 40}}
    with run_in_thread(script=Script(parse_steps(json.dumps(step)))) as sim:
        world.at(sim.url)
        with at_terminal(world, *words) as t:
            t.wait_for(PROMPT)
            t.line("go")
            t.wait_for("word3")
            [session] = [path.stem for path in world.transcripts]
            assert world.run("agents", "send", f"uds:{session}", "the build is red").code == 0
            t.wait_for("the build is red", PROMPT)
            t.line("/exit")
            assert t.wait_for_end() == 0

    lines = [line.split() for line in t.screen.split("\n")]
    rows = [n for n, words_of in enumerate(lines) if "word0" in words_of or "word119" in words_of]
    reply = [word for words_of in lines[rows[0] : rows[-1] + 1] for word in words_of]
    assert reply == text.split(), "one paragraph, no word of it broken"
