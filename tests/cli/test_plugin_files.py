"""The files of the plugin for Claude Code, and the command that its slash commands run."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Here
from cli.world import World
from replay import sessions

from sevenfold import __version__
from sevenfold.cli.clients import SlashCommand
from sevenfold.clients.events import MOMENTS
from sevenfold.clients.setup import PLUGIN, find_marketplace

ROOT = Path(__file__).parents[2]
FILES = ROOT / "plugin"
COMMANDS = sorted((FILES / "commands").glob("*.md"))


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_all_versions_are_the_same() -> None:
    market = read_json(ROOT / ".claude-plugin" / "marketplace.json")
    found = {
        read_json(FILES / ".claude-plugin" / "plugin.json")["version"],
        market["plugins"][0]["version"],
        tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"],
    }

    assert found == {__version__}
    assert f"{market['plugins'][0]['name']}@{market['name']}" == PLUGIN
    assert find_marketplace() == ROOT


def test_every_hook_is_an_event_that_we_answer() -> None:
    hooks = read_json(FILES / "hooks" / "hooks.json")["hooks"]
    server = read_json(FILES / ".claude-plugin" / "plugin.json")["mcpServers"]["memory"]

    for event, groups in hooks.items():
        (hook,) = groups[0]["hooks"]
        assert event in MOMENTS
        if hook["type"] == "mcp_tool":
            assert (hook["server"], hook["tool"]) == ("plugin:sevenfold:memory", "hook")
            assert hook["input"]["event"] == event
        else:
            assert [hook["command"], *hook["args"]] == ["sevenfold", "hook", event]
    assert [event for event, groups in hooks.items() if groups[0]["hooks"][0]["type"] == "command"] == [
        "SessionStart",  # Claude Code has no servers yet, or none any more
        "PreCompact",
        "SessionEnd",
    ]
    assert server == {"command": "sevenfold", "args": ["mcp", "--plugin"]}


def test_there_is_a_file_for_each_slash_command() -> None:
    assert [path.stem for path in COMMANDS] == sorted(SlashCommand)


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.stem)
def test_what_is_typed_behind_a_command_is_never_a_part_of_the_shell_line(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    block = re.search(r"```!\n(.*?)\n```", text, re.DOTALL)
    assert block is not None
    assert block[1].splitlines() == [
        f"sevenfold slash {path.stem} <<'SEVENFOLD_ARGUMENTS'",
        "$ARGUMENTS",
        "SEVENFOLD_ARGUMENTS",
    ]
    assert text.count("$ARGUMENTS") == 1
    assert "disable-model-invocation: true" in text


def test_the_plugin_gives_no_orders_about_the_native_memory() -> None:
    for path in FILES.rglob("*.md"):
        assert "MEMORY.md" not in path.read_text(encoding="utf-8")


@pytest.fixture
def memory(here: Here, world: World) -> Path:
    """A memory of Claude Code that was changed once."""
    words = (
        "memory",
        "add",
        "--type",
        "project",
        "--name",
        "deploy-day",
        "--description",
        "Day of deploys",
    )
    home = ("--home", str(world.user / ".claude"))
    for day in ("Thursdays", "Fridays"):
        assert here(*words, "--body", f"The service is deployed on {day}.", *home).code == 0
    return Path(here("memory", "path", *home).out.strip())


def test_slash_commands_work_on_the_memory_of_claude_code(here: Here, memory: Path) -> None:
    assert "on Fridays" in here("slash", "recall", stdin=b'when\'s the "deploy" of the service?\n').out
    assert "deploy-day" in here("slash", "history", stdin=b"\n").out
    assert "nothing to mend" in here("slash", "check").out

    assert here("slash", "undo", stdin=b"deploy-day\n").code == 0

    assert "Thursdays" in (memory / "deploy-day.md").read_text(encoding="utf-8")
    assert "dreamt" in here("slash", "dream").out


def test_words_that_look_like_options_are_words(here: Here, memory: Path) -> None:
    assert here("slash", "undo", stdin=b"--to HEAD~1").code == 2
    assert "Fridays" in (memory / "deploy-day.md").read_text(encoding="utf-8")


def test_the_cost_is_that_of_the_session(here: Here, memory: Path, world: World) -> None:
    (memory.parent / "s-1.jsonl").write_bytes(sessions.claude_code())
    world.variables["CLAUDE_CODE_SESSION_ID"] = "s-1"

    said = here("slash", "cost").out

    head, row, *_ = said.splitlines()
    assert "paid" in head
    assert "$" in row
