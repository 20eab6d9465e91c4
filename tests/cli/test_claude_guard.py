"""A guard that was written for Claude Code guards here too, once the folder is trusted."""

from __future__ import annotations

import json

import pytest
from cli.conftest import Here
from cli.world import World

GUARD = r"""#!/bin/sh
input=$(cat)
printf '%s\n' "$input" >> told.jsonl
case "$input" in *"rm -rf"*) echo "rm -rf is not for agents" >&2; exit 2 ;; esac
"""


@pytest.fixture
def guarded(world: World) -> World:
    world.write("guard.sh", GUARD).chmod(0o755)
    hook = {"type": "command", "command": "$CLAUDE_PROJECT_DIR/guard.sh"}
    settings = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [hook]}]}, "model": "opus"}
    world.write(".claude/settings.json", json.dumps(settings))
    world.write("data/kept.txt", "kept")
    return world


def test_a_guard_in_claude_codes_settings_refuses_rm_rf_in_a_trusted_folder(
    here: Here, guarded: World
) -> None:
    here("trust")

    ran = here("-p", "run `rm -rf data`", "--allow", "Bash", "--json")

    told = json.loads((guarded.project / "told.jsonl").read_text("utf-8"))
    assert told["tool_input"]["command"] == "rm -rf data"
    assert (guarded.project / "data" / "kept.txt").exists()
    assert "rm -rf is not for agents" in ran.out


def test_before_trust_the_guard_is_named_and_does_not_run(here: Here, guarded: World) -> None:
    ran = here("-p", "run `ls data`")

    assert not (guarded.project / "told.jsonl").exists()
    assert ".claude/settings.json:1: hooks.PreToolUse" in ran.err
    assert "'sevenfold trust'" in ran.err


def test_a_changed_guard_is_asked_about_again_and_other_keys_are_not(here: Here, guarded: World) -> None:
    here("trust")
    file = guarded.project / ".claude" / "settings.json"
    file.write_text(file.read_text("utf-8").replace('"opus"', '"sonnet"'), "utf-8")
    assert "is not as you trusted it" not in here("-p", "run `ls data`").err

    file.write_text(file.read_text("utf-8").replace("guard.sh", "other.sh"), "utf-8")

    assert "is not as you trusted it" in here("-p", "run `ls data`").err


def test_doctor_says_that_the_file_is_read_and_what_of_it_is_not(here: Here, guarded: World) -> None:
    here("trust")

    said = here("doctor").out

    assert ".claude/settings.json: Claude Code's settings: hooks hold here; not honoured: model" in said
