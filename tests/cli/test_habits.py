"""The habits of a terminal, typed as a person would: completion, @ ! #, modes, rewind, history, images."""

from __future__ import annotations

import base64
import json

import pytest
from cli.terminal import (
    BACKSPACE,
    CTRL_C,
    CTRL_R,
    CTRL_V,
    ENTER,
    ESCAPE,
    PROMPT,
    SHIFT_TAB,
    TAB,
    UP,
    WIDTH,
    Terminal,
)
from cli.world import World, is_running

from sevenfold.core.messages import Image
from sevenfold.simulator import Script, parse_steps, run_in_thread

pytestmark = pytest.mark.real
DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def at_terminal(world: World, *words: str, columns: int = WIDTH) -> Terminal:
    return Terminal(words, world.env, world.project, columns)


def leave(t: Terminal) -> None:
    t.line("/exit")
    assert t.wait_for_end() == 0


# --- Tab ------------------------------------------------------------------------------------------------


def test_tab_completes_commands_models_and_memories(world: World) -> None:
    about = ("--type", "project", "--description", "when", "--body", "on Tuesdays")
    world.run("memory", "add", "--name", "deploy-window", *about)
    with at_terminal(world) as t:
        t.wait_for(PROMPT)
        t.press(f"/stat{TAB}")
        t.wait_until(lambda: "/status" in t.screen)  # the last letters may be drawn alone
        t.press(ENTER)
        t.wait_for("version", "transcript", "not trusted", "memory", PROMPT)
        t.press(f"/memory show dwin{TAB}")  # letters in their order are enough
        t.wait_for("deploy-window")
        t.press(f"{ENTER}{ENTER}")
        t.wait_for("on Tuesdays", PROMPT)
        t.press(f"/model clsonnet55{TAB}")
        t.wait_for("claude-sonnet-5-5")
        t.press(ESCAPE)  # closes the list
        t.press(ESCAPE + ESCAPE)  # clears the line
        leave(t)


def test_tab_finds_files_by_letters_and_leaves_out_what_git_ignores(world: World) -> None:
    (world.project / ".git").mkdir()
    (world.project / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    world.write(".gitignore", "build/\n")
    world.write("build/invoices.py", "generated")
    world.write("shop/billing/invoices.py", "TAX = 7\n")
    with at_terminal(world) as t:
        t.wait_for(PROMPT)
        t.press(f"what is in @invo{TAB}")
        t.wait_for("shop/billing/invoices.py")
        t.press(ENTER)  # takes the completion
        t.press(ENTER)  # sends
        t.wait_for("attached shop/billing/invoices.py: 1 line", PROMPT)
        leave(t)

    assert "build/invoices" not in t.text
    texts = [p.message.text for p in world.transcript().view]
    [attached] = [text for text in texts if "The user attached shop/billing/invoices.py" in text]
    assert "TAX = 7" in attached


# --- @ ! # ----------------------------------------------------------------------------------------------


def test_at_path_attaches_the_file_beside_the_words(world: World) -> None:
    world.write("a file.txt", "one\ntwo\nthree\nfour\n")
    with at_terminal(world) as t:
        t.wait_for(PROMPT)
        t.ask('hello @"a file.txt#L2-3", and mail me@example.com', "attached a file.txt: ")
        t.ask("hello @src/nowhere.py", "there is no file src/nowhere.py; it is sent as you wrote it")
        leave(t)

    view = list(world.transcript().view)
    [file] = [p for p in view if "2\ttwo" in p.message.text]
    assert file.by != "user", "a file is not what the user said"
    assert "3\tthree" in file.message.text
    assert "four" not in file.message.text
    said = [p.message.text for p in view if p.by == "user"]
    assert said == ['hello @"a file.txt#L2-3", and mail me@example.com', "hello @src/nowhere.py"]


def test_a_file_that_a_rule_denies_is_not_attached(world: World) -> None:
    world.write("keys.txt", "the key is 1234\n")
    with at_terminal(world, "--deny", "Read(./keys.txt)") as t:
        t.wait_for(PROMPT)
        t.ask("hello @keys.txt", "keys.txt is not attached: the rule Read(./keys.txt) denies it")
        leave(t)

    assert not any("1234" in text for text in world.kept())


def test_a_command_after_an_exclamation_mark_runs_and_the_model_sees_its_output(world: World) -> None:
    with at_terminal(world) as t:
        t.wait_for(PROMPT)
        t.ask("!echo $((6 * 7)) && printf '\\033]0;owned\\007' && false", "Exit code 1", "42")
        t.line("!sleep 9761")
        t.wait_for("running sleep 9761")
        t.press(CTRL_C)
        t.wait_for("stopped", PROMPT)
        t.ask("hello", "offline engine")
        leave(t)

    assert "\x1b]0;owned" not in t.raw
    assert not is_running("sleep 9761")
    [ran] = [p for p in world.transcript().view if "$ echo $((6 * 7))" in p.message.text]
    assert "42" in ran.message.text
    assert ran.by != "user"


def test_a_line_after_a_hash_is_remembered_and_it_says_where(world: World) -> None:
    with at_terminal(world) as t:
        t.wait_for(PROMPT)
        t.ask(
            "#never mock the database in tests",
            "memory created: ",
            "/memory/",
            "/memory undo takes it back",
        )
        t.ask("#12 is the ticket", "in view now")
        t.ask("# my key is AKIAIOSFODNN7EXAMPLZ", "AWS")
        leave(t)

    [memory] = _list_memories(world)
    assert memory["name"] == "never-mock-database-tests"
    [revision] = json.loads(world.run("memory", "history", "--json").out)["revisions"]
    assert revision["author"]["kind"] == "user"
    assert [p.message.text for p in world.transcript().view if p.by == "user"] == ["#12 is the ticket"]


def _list_memories(world: World) -> list[dict[str, str]]:
    memories: list[dict[str, str]] = json.loads(world.run("memory", "--json").out)["memories"]
    return memories


def test_an_image_is_sent_to_a_model_that_takes_images_and_not_to_another(world: World) -> None:
    (world.project / "a dot.png").write_bytes(DOT)
    with run_in_thread(script=Script(parse_steps('{"reply": {"text": "A dot."}}'))) as sim:
        world.at(sim.url)
        with at_terminal(world, "--bare", "--model", "claude-sonnet-4-5") as t:
            t.wait_for(PROMPT)
            t.press(f"\x1b[200~what is {world.project}/a\\ dot.png\x1b[201~")  # dropped on the terminal
            t.press(ENTER)
            t.wait_for("attached the image a dot.png", "A dot.", PROMPT)
            t.ask("/model offline", "now with offline")
            t.ask('and @"a dot.png"', "offline takes no images; only the path of a dot.png is sent")
            leave(t)

    images = [b for p in world.transcript().view for b in p.message.content if isinstance(b, Image)]
    assert [image.source["media_type"] for image in images] == ["image/png"]


def test_ctrl_v_attaches_the_image_in_the_clipboard(world: World) -> None:
    programs = world.top / "programs"
    programs.mkdir()
    (world.top / "clipboard.png").write_bytes(DOT)
    for name, command in (("wl-paste", "exit 1"), ("xclip", f"cat {world.top}/clipboard.png")):
        (programs / name).write_text(f"#!/bin/sh\n{command}\n")
        (programs / name).chmod(0o755)
    world.variables["PATH"] = f"{programs}:/usr/bin:/bin"
    with run_in_thread(script=Script(parse_steps('{"reply": {"text": "A dot."}}'))) as sim:
        world.at(sim.url)
        with at_terminal(world, "--bare") as t:
            t.wait_for(PROMPT)
            t.press(CTRL_V)
            t.wait_for("pasted-1.png")
            t.press(ENTER)
            t.wait_for("attached the image", "A dot.", PROMPT)
            (world.top / "clipboard.png").write_bytes(b"words")
            t.press(CTRL_V)
            t.wait_for("there is no image in the clipboard")
            leave(t)

    images = [b for p in world.transcript().view for b in p.message.content if isinstance(b, Image)]
    assert len(images) == 1


# --- keys -----------------------------------------------------------------------------------------------


def test_shift_tab_goes_through_the_modes(world: World) -> None:
    with at_terminal(world, "--allow", "Bash(sleep:*)") as t:
        t.wait_for(PROMPT)
        t.line("run `sleep 2`")
        t.wait_for("Ctrl-C stops")
        t.press(SHIFT_TAB)  # also while a turn runs
        t.wait_for("accept edits ·", "Ran", PROMPT)
        t.line('write "x" to one.txt')
        t.wait_for("→ Write one.txt", PROMPT)
        assert (world.project / "one.txt").exists(), "an edit is not asked about"
        t.press(SHIFT_TAB)
        t.wait_for("plan: nothing")
        t.line('write "x" to two.txt')
        t.wait_for("in plan mode nothing is changed", PROMPT)
        t.press(SHIFT_TAB)
        t.line("run `touch three`")
        t.wait_for("Run it?")
        t.line("n")
        t.wait_for(PROMPT)
        leave(t)

    assert not (world.project / "two.txt").exists()
    told = [p.message.text for p in world.transcript().view if "plan mode:" in p.message.text]
    assert [text.split(":")[0] for text in told] == [
        "<context>\nThe user switched to plan mode",
        "<context>\nThe user left plan mode",
    ]


def test_esc_twice_opens_rewind_or_clears_the_line(world: World) -> None:
    with at_terminal(world) as t:
        t.wait_for(PROMPT)
        t.ask("my colour is green", "offline")
        t.ask("my number is seven", "offline")
        t.press("a line that is not sent")
        t.wait_for("not sent")
        t.press(ESCAPE + ESCAPE)
        t.press(ESCAPE + ESCAPE)
        t.wait_for("go back to before a turn", "my number is seven", "my colour is green")
        t.press(f"gre{ENTER}")  # typing filters
        t.wait_for("turn 1", "go back to before it", "or Enter for nothing")
        t.line("b")
        t.wait_for("back to before turn 1", PROMPT, "my colour is green")
        t.press(ESCAPE + ESCAPE + "q")
        t.wait_for("q")
        t.press(BACKSPACE + UP + UP)
        t.wait_for("line that is not sent")
        t.press(ESCAPE + ESCAPE)
        leave(t)


def test_ctrl_r_searches_what_was_typed_and_enter_takes_it(world: World) -> None:
    with run_in_thread(script=Script(parse_steps('{"reply": {"text": "Yes."}, "times": 3}'))) as sim:
        world.at(sim.url)
        with at_terminal(world, "--bare") as t:
            t.wait_for(PROMPT)
            t.ask("find the invoices", "Yes.")
            t.ask("hello", "Yes.")
            t.press(f"{CTRL_R}invo")
            t.wait_for("find the invoices", "I-search backward: invo")
            t.press(ENTER)  # takes it, and does not send it yet
            t.press("\x05 again")
            t.wait_for("again")
            t.press(ENTER)
            t.wait_for("Yes.", PROMPT)
            leave(t)

    said = [p.message.text for p in world.transcript().view if p.by == "user"]
    assert said == ["find the invoices", "hello", "find the invoices again"]


# --- the resume picker ----------------------------------------------------------------------------------


def test_the_resume_picker_shows_title_age_size_and_last_words_and_hides_single_runs(world: World) -> None:
    world.run("-p", "what a single run asks")
    with at_terminal(world) as t:
        t.wait_for(PROMPT)
        t.ask("my colour is green", "offline")
        t.ask("/clear")
        t.line("/resume")
        t.wait_for("my colour is green · just now · ", " kB", "1 one-shot run not shown", "Esc leaves")
        t.press(ENTER)
        t.wait_for("resumed", "> my colour is green", PROMPT)
        leave(t)

    assert "what a single run asks" not in t.text
    with at_terminal(world, "--resume") as t:
        t.wait_for("my colour is green", "Esc leaves")
        t.press(ENTER)
        t.wait_for("resumed", PROMPT)
        leave(t)


# --- settings of the chat -------------------------------------------------------------------------------


def test_a_status_line_command_is_given_the_session_and_its_colours_alone_reach_the_terminal(
    world: World,
) -> None:
    seen = world.top / "seen.json"
    line = "printf '\\033[32mGREEN\\033[0m\\033]0;owned\\007 line'"
    command = f"cat > {seen}.new; mv {seen}.new {seen}; {line}"
    world.settings({"statusLine": {"type": "command", "command": command}})
    with at_terminal(world) as t:
        t.wait_for(PROMPT)
        t.wait_for("GREEN")
        t.press(SHIFT_TAB)
        t.wait_for("accept edits")
        leave(t)

    assert "\x1b]0;owned" not in t.raw
    told = json.loads(seen.read_text(encoding="utf-8"))
    assert told["model"]["id"] == "offline"
    assert told["workspace"]["current_dir"] == str(world.project)
    assert told["cost"]["total_cost_usd"] == 0
    assert told["context_window"]["context_window_size"] == 200_000


def test_a_status_line_that_fails_is_said_once_and_the_usual_footer_stays(world: World) -> None:
    world.settings({"statusLine": {"command": "exit 3"}})
    with at_terminal(world) as t:
        t.wait_for(PROMPT, "offline · ")
        t.ask("hello", "offline engine")
        t.ask("hello again", "offline")
        leave(t)

    assert t.screen.count("the statusLine command exit 3 ended with exit code 3") == 1


def test_a_status_line_of_a_folder_that_is_not_trusted_does_not_run(world: World) -> None:
    command = {"type": "command", "command": f"touch {world.top}/owned"}
    world.write(".sevenfold/settings.json", json.dumps({"statusLine": command}))
    with at_terminal(world) as t:
        t.wait_for("statusLine", "[y/N]")
        t.press(ENTER)
        t.wait_for(PROMPT)
        t.ask("hello", "offline engine")
        leave(t)

    assert not (world.top / "owned").exists()


@pytest.mark.parametrize(
    ("how", "sign"),
    [("bell", "\x07"), ("desktop", "\x1b]9;sevenfold: the turn has ended\x07"), ("off", "")],
)
def test_a_long_turn_ends_with_a_bell_or_a_message(world: World, how: str, sign: str) -> None:
    world.settings({"notifications": {"how": how, "afterSeconds": 0}})
    with at_terminal(world) as t:
        t.wait_for(PROMPT)
        assert "\x07" not in t.raw
        t.ask("hello", "offline engine")
        leave(t)

    assert sign in t.raw
    assert ("\x07" in t.raw) is (how != "off")


@pytest.mark.parametrize(
    ("theme", "code"), [("dark", "\x1b[36m"), ("light", "\x1b[34m"), ("neon", "\x1b[36m")]
)
def test_a_theme_says_the_colours_and_a_broken_one_is_named(world: World, theme: str, code: str) -> None:
    world.settings({"theme": theme})
    with at_terminal(world) as t:
        shown = t.wait_for(PROMPT)
        t.press(CTRL_C)
        t.wait_for("Ctrl-C again leaves", PROMPT)
        leave(t)

    assert f"{code}Ctrl-C again leaves" in t.raw
    assert ("there is no theme 'neon'; dark is used" in shown) is (theme == "neon")


def test_the_plain_theme_has_no_colours(world: World) -> None:
    world.settings({"theme": "plain"})
    with at_terminal(world) as t:
        t.wait_for(PROMPT)
        t.ask("hello", "offline engine")
        t.line("/rewind")
        t.wait_for("hello", "Esc leaves")
        t.press(ESCAPE)
        t.wait_for(PROMPT)
        leave(t)

    assert not {code for code in range(30, 39) if f"\x1b[{code}m" in t.raw}
    assert "\x07" not in t.raw, "a short turn ends without a bell"


# --- bad input ------------------------------------------------------------------------------------------


def test_a_history_of_another_program_is_left_as_it_is(world: World) -> None:
    world.home.mkdir(mode=0o700)
    other = b"#1700000000\nls -la\n#1700000001\nmake \xff test\n"
    (world.home / "history").write_bytes(other)
    with at_terminal(world) as t:
        t.wait_for("is no history of ours", PROMPT)
        t.ask("hello", "offline engine")
        t.press(UP)
        t.wait_for("hello")
        t.press(ESCAPE + ESCAPE)
        leave(t)

    assert (world.home / "history").read_bytes() == other


def test_a_terminal_that_can_only_print_is_enough(world: World) -> None:
    with Terminal((), world.env, world.project, kind="dumb") as t:
        t.wait_for(PROMPT)
        t.ask("!echo $((6 * 7))", "42")
        t.ask("hello", "offline engine")
        leave(t)

    assert "\x1b[3" not in t.raw, "no colours"


def test_codes_that_a_model_streams_in_pieces_are_shown_and_not_obeyed(world: World) -> None:
    evil = "before \x1b]0;owned\x07 \x9b2J \x1b[31mred\x1b[0m \u202eafter\n\n" * 3
    slow = {"chunk_delay_ms": 5}
    step = json.dumps({"reply": {"text": evil}, "slow": slow})
    with run_in_thread(script=Script(parse_steps(step))) as sim:
        world.at(sim.url)
        with at_terminal(world, "--bare") as t:
            t.wait_for(PROMPT)
            t.ask("first", "before", "red", "after")
            t.ask("/export said.md", "wrote")
            leave(t)

    assert not [code for code in ("\x1b]0;owned", "\x9b", "\x1b[31mred", "\u202e") if code in t.raw]
    assert "\x1b" not in (world.project / "said.md").read_text(encoding="utf-8")
    [reply] = [p.message.text for p in world.transcript().view if p.by == "model"]
    assert reply == evil.rstrip("\n") or reply == evil, "nothing is lost: the transcript has what was said"


def test_forty_columns_are_enough(world: World) -> None:
    world.write("add.py", "def add(a, b):\n    return a + b\n")
    with at_terminal(world, columns=40) as t:
        t.wait_for(PROMPT)
        t.line("my colour is a green that goes on for longer than forty columns")
        t.wait_for("Ask me about it at any time", PROMPT)
        t.press(f"/perm{TAB}")
        t.wait_for("issions")
        t.press(ENTER)
        t.wait_for("mode: default", "deny:", PROMPT)
        t.line("/rewind")
        t.wait_for("my colour", "Esc leaves")
        t.press(ESCAPE)
        t.wait_for(PROMPT)
        leave(t)

    assert max(map(len, t.screen.split("\n"))) <= 40
