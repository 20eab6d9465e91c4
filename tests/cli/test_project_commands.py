"""`/init`, `/export`, `/permissions`, `/config`, `/status`, and attachments, without a terminal."""

from __future__ import annotations

import json

import pytest
from cli.conftest import Here
from cli.terminal import ENTER, PROMPT, Terminal
from cli.world import World

from sevenfold.simulator import Script, parse_steps, run_in_thread

PYPROJECT = """
[project]
name = "till"
requires-python = ">=3.11"
[tool.ruff]
line-length = 99
[tool.pytest.ini_options]
"""


def make_project(world: World) -> None:
    world.write("pyproject.toml", PYPROJECT)
    world.write("README.md", "# Till\n\n[![badge](x)](y)\n\nA till for small shops.\nIt rounds nothing.\n")
    world.write("src/till.py", "TAX = 7\n")
    world.write("tests/test_till.py", "def test_tax(): ...\n")
    world.write("CONTRIBUTING.md", "be kind\n")
    world.write("package.json", '{"scripts": {"lint": "eslint ."}}')


def test_init_by_rule_says_what_the_project_holds(here: Here, world: World) -> None:
    make_project(world)

    ran = here("-p", "/init", "--json").json

    assert f"wrote {world.project}/AGENTS.md" in ran["result"]
    written = (world.project / "AGENTS.md").read_text(encoding="utf-8")
    assert written.startswith("# till\n\nA till for small shops. It rounds nothing.\n")
    for part in (
        "- `npm run lint`: `eslint .`",
        "- `python -m pytest`: all tests",
        "- `src/`: 1 file (1 Python)",
        "- Python >=3.11",
        "- Lines of at most 99 characters (ruff)",
        "- `CONTRIBUTING.md`",
    ):
        assert part in written


def test_init_does_not_replace_a_file_unasked(here: Here, world: World) -> None:
    world.write("CLAUDE.md", "mine\n")

    ran = here("-p", "/init")

    assert "is there already; '/init CLAUDE.md over' replaces it" in ran.out
    assert (world.project / "CLAUDE.md").read_text(encoding="utf-8") == "mine\n"
    assert here("-p", "/init CLAUDE.md over").code == 0
    assert "mine" not in (world.project / "CLAUDE.md").read_text(encoding="utf-8")


def test_init_writes_neither_through_a_link_out_of_the_project_nor_in_plan_mode(
    here: Here, world: World
) -> None:
    (world.project / "AGENTS.md").symlink_to(world.top / "outside.md")

    assert "leads out of the project" in here("-p", "/init over").err
    assert not (world.top / "outside.md").exists()
    (world.project / "AGENTS.md").unlink()
    assert "in plan mode nothing is written" in here("-p", "/init", "--permission-mode", "plan").err
    assert not (world.project / "AGENTS.md").exists()
    assert "name one of them" in here("-p", "/init ../x.md").err


def test_init_with_a_model_is_a_prompt_and_a_tool_call(here: Here, world: World) -> None:
    make_project(world)
    use = {"type": "tool_use", "name": "Write", "input": {"file_path": "AGENTS.md", "content": "# Till\n"}}
    steps = [{"reply": {"content": [use]}}, {"reply": {"text": "Done."}}]
    with run_in_thread(script=Script(parse_steps("\n".join(map(json.dumps, steps))))) as sim:
        world.at(sim.url)
        ran = here("-p", "/init", "--model", "claude-sonnet-4-5", "--allow", "Write", "--json").json

    assert ran["result"] == "Done."
    assert (world.project / "AGENTS.md").read_text(encoding="utf-8") == "# Till\n"
    [asked] = [p.message.text for p in world.transcript().view if p.by == "user"]
    assert "<draft>\n# till" in asked
    assert "how to run one single test" in asked


@pytest.mark.real
def test_init_asks_at_a_terminal_before_it_replaces_a_file(world: World) -> None:
    world.write("AGENTS.md", "mine\n")
    with Terminal((), world.env, world.project) as t:
        t.wait_for(PROMPT)
        t.line("/init")
        t.wait_for("is there already", "y replaces it, Enter leaves it")
        t.press(ENTER)
        t.wait_for(PROMPT)
        assert (world.project / "AGENTS.md").read_text(encoding="utf-8") == "mine\n"
        t.line("/init")
        t.wait_for("Enter leaves it")
        t.line("y")
        t.wait_for("wrote", PROMPT)
        t.line("/exit")
        assert t.wait_for_end() == 0

    assert (world.project / "AGENTS.md").read_text(encoding="utf-8").startswith("# project")


def test_export_writes_what_was_said_and_asks_before_it_replaces(here: Here, world: World) -> None:
    world.write("add.py", "def add(a, b): ...\n")
    here("-p", "read add.py")
    here("-p", "remember \x1b[2J nothing", "--continue")

    assert here("-p", "/export talk.md", "--continue").code == 0

    text = (world.project / "talk.md").read_text(encoding="utf-8")
    assert text.startswith("# Conversation ")
    assert "\n> read add.py\n" in text
    assert "- `Read add.py` · " in text
    assert "\x1b" not in text
    assert "is there already" in here("-p", "/export talk.md", "--continue").out
    here("-p", "/export talk.json", "--continue")
    messages = json.loads((world.project / "talk.json").read_text(encoding="utf-8"))["messages"]
    assert next(m["content"][0]["text"] for m in messages if m["by"] == "user") == "read add.py"
    assert "cannot be a file" in here("-p", f"/export {'x' * 300}.md", "--continue").err
    assert "nothing has been said yet" in here("-p", "/export other.md").err


def test_permissions_are_shown_with_their_source(here: Here, world: World) -> None:
    world.settings({"permissions": {"deny": ["Read(./.env)"]}})

    shown = here("-p", "/permissions", "--allow", "Bash(make:*)").out

    assert "mode: default" in shown
    assert "Read(./.env)  (settings)" in shown
    assert "Bash(make:*)" in shown
    assert "for this session" in here("-p", "/permissions deny Bash(rm:*)").out
    assert "cannot be understood" in here("-p", "/permissions allow Bash(").err
    assert "is no mode; the modes are default" in here("-p", "/permissions mode reckless").err


def test_config_lists_explains_and_sets(here: Here, world: World) -> None:
    path = world.settings({"env": {"TOKEN": "hidden-value"}})

    assert "env = TOKEN" in here("-p", "/config").out
    assert "hidden-value" not in here("-p", "/config").out
    assert 'theme = "dark"' in here("-p", "/config theme").out
    assert f'theme = "light", in {path}' in here("-p", "/config theme light").out
    assert json.loads(path.read_text()) == {"env": {"TOKEN": "hidden-value"}, "theme": "light"}
    assert here("-p", "/config permissions.mode plan").code == 0
    assert json.loads(path.read_text())["permissions"] == {"mode": "plan"}
    before = path.read_bytes()
    assert "maxSteps must be a whole number" in here("-p", "/config maxSteps many").err
    assert "did you mean theme?" in here("-p", "/config thme dark").err
    assert path.read_bytes() == before


def test_status_names_model_folders_and_files(here: Here, world: World) -> None:
    path = world.settings({"theme": "light"})

    shown = here("-p", "/status").out

    for part in ("offline", str(world.project), "not trusted", "memory", str(path), "default"):
        assert part in shown


def test_a_prompt_may_name_files_and_what_is_piped_in_may_not(here: Here, world: World) -> None:
    world.write("one.txt", "alpha beta\n")
    world.write("two.txt", "gamma delta\n")

    assert here("-p", "hello @one.txt", stdin=b"see @two.txt\n").code == 0

    kept = "\n".join(world.kept())
    assert "gamma delta" in here("-p", "read @two.txt").out
    assert "alpha beta" in kept
    assert "gamma delta" not in kept


def test_resume_without_an_id_is_for_a_chat(here: Here) -> None:
    assert "with a prompt name it" in here("--resume", "-p", "hello").err
    assert here("--resume", "-p", "hello").code == 2


def test_without_a_terminal_the_pickers_are_lists(here: Here) -> None:
    here("-p", "hello")
    here("-p", "hello again", "--continue")

    assert "/resume ID goes on with one of them" in here("-p", "/resume").out
    assert "hello again" in here("-p", "/rewind", "--continue").out
