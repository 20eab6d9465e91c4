"""Claude Code's settings files: what holds here, what is named, and that trust comes first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sevenfold.settings import Environment, LoadedSettings, load_settings

GUARD = {"matcher": "Bash", "hooks": [{"type": "command", "command": "./guard.sh", "timeout": 5}]}


class Desk:
    """A project and a user with Claude Code's files."""

    def __init__(self, top: Path) -> None:
        self.user, self.project = top / "user", top / "project"
        self.home = self.user / ".sevenfold"

    def write(self, path: Path, values: Any) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(values if isinstance(values, str) else json.dumps(values), "utf-8")
        return path

    def load(self, *, trusted: bool = True) -> LoadedSettings:
        environment = Environment.read({"HOME": str(self.user)})
        return load_settings(self.project, environment, trusted=trusted, policy=self.user / "no-policy")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_hooks_permissions_and_environment_of_a_trusted_project_hold(desk: Desk) -> None:
    file = desk.write(
        desk.project / ".claude" / "settings.json",
        {
            "hooks": {"PreToolUse": [GUARD]},
            "permissions": {"defaultMode": "plan", "deny": ["Read(./.env)"], "allow": ["Bash(npm test:*)"]},
            "env": {"PAGER": "cat"},
        },
    )
    desk.write(desk.project / ".claude" / "settings.local.json", {"permissions": {"allow": ["Bash(make)"]}})

    loaded = desk.load()

    settings = loaded.settings
    [guard] = settings.hooks.pre_tool_use
    assert (guard.matcher, guard.hooks[0].command, guard.hooks[0].timeout) == ("Bash", "./guard.sh", 5)
    assert settings.permissions.mode == "plan"
    assert settings.permissions.deny == ("Read(./.env)",)
    assert settings.permissions.allow == ("Bash(make)", "Bash(npm test:*)")
    assert settings.env == {"PAGER": "cat"}
    assert loaded.warnings == ()
    assert f"{file}: Claude Code's settings: hooks, permissions and env hold here" in loaded.notes


def test_a_folder_that_is_not_trusted_can_only_restrict(desk: Desk) -> None:
    desk.write(
        desk.project / ".claude" / "settings.json",
        {"hooks": {"Stop": [GUARD]}, "permissions": {"deny": ["Bash(rm:*)"], "allow": ["Bash"]}},
    )

    loaded = desk.load(trusted=False)

    assert loaded.settings.permissions.deny == ("Bash(rm:*)",)
    assert loaded.settings.permissions.allow == ()
    assert loaded.settings.hooks.stop == ()
    assert [text.rpartition(": ")[2] for text in loaded.ignored] == ["hooks.Stop", "permissions.allow"]


def test_settings_of_ours_stand_in_for_those_of_claude_code(desk: Desk) -> None:
    file = desk.write(desk.project / ".claude" / "settings.json", {"hooks": {"Stop": [GUARD]}})
    ours = desk.write(desk.project / ".sevenfold" / "settings.json", {})

    loaded = desk.load()

    assert loaded.settings.hooks.stop == ()
    assert loaded.notes == (f"{file}: not read, because {ours} is there",)


def test_what_was_kept_for_oneself_does_not_switch_a_guard_off(desk: Desk) -> None:
    desk.write(desk.project / ".claude" / "settings.json", {"hooks": {"PreToolUse": [GUARD]}})
    desk.write(
        desk.project / ".sevenfold" / "settings.local.json", {"permissions": {"allow": ["Bash(make)"]}}
    )

    assert len(desk.load().settings.hooks.pre_tool_use) == 1


def test_the_users_own_file_holds_key_by_key_where_ours_says_nothing(desk: Desk) -> None:
    file = desk.write(
        desk.user / ".claude" / "settings.json",
        {"hooks": {"PreToolUse": [GUARD]}, "permissions": {"allow": ["Bash"]}, "model": "opus"},
    )
    desk.write(desk.home / "settings.json", {"theme": "light", "permissions": {"deny": ["Bash(rm:*)"]}})

    loaded = desk.load(trusted=False)

    assert len(loaded.settings.hooks.pre_tool_use) == 1
    assert loaded.settings.permissions.allow == ()
    assert loaded.settings.model is None
    said = "Claude Code's settings: hooks hold here; not honoured: model, permissions"
    assert loaded.notes == (f"{file}: {said}",)


def test_what_does_not_hold_is_named_in_one_line(desk: Desk) -> None:
    file = desk.write(
        desk.project / ".claude" / "settings.json",
        {
            "model": "opus",
            "statusLine": {"type": "command", "command": "x"},
            "permissions": {
                "allow": ["Skill(pdf)", "NotebookEdit", "Task", "mcp__x__y"],
                "disableBypassPermissionsMode": "disable",
            },
            "env": {"ANTHROPIC_API_KEY": "sk-secret", "A": "b"},
        },
    )

    loaded = desk.load()

    assert loaded.settings.permissions.allow == ("Agent", "mcp__x__y")
    assert loaded.settings.env == {"A": "b"}
    assert loaded.warnings == ()
    [note] = loaded.notes
    assert note == (
        f"{file}: Claude Code's settings: permissions and env hold here; not honoured: "
        "env.ANTHROPIC_API_KEY, model, permissions.allow Skill(pdf), permissions.allow NotebookEdit, "
        "permissions.disableBypassPermissionsMode, statusLine"
    )
    assert "sk-secret" not in note


def test_a_guard_that_cannot_run_here_is_said_at_every_start(desk: Desk) -> None:
    file = desk.write(
        desk.project / ".claude" / "settings.json",
        {
            "hooks": {
                "PermissionRequest": [GUARD],
                "PreToolUse": [
                    {
                        "hooks": [
                            {"type": "prompt", "prompt": "is it safe?"},
                            {"type": "command", "command": "a", "if": "Bash(rm *)"},
                            {"type": "command", "command": "check", "args": ["--all", "a b"], "once": True},
                            {"type": "command", "command": "sevenfold hook pre-tool-use"},
                        ]
                    }
                ],
            },
            "permissions": {"deny": ["Bash(rm -rf", "Read(./secret)"]},
        },
    )

    loaded = desk.load()

    [matcher] = loaded.settings.hooks.pre_tool_use
    assert [hook.command for hook in matcher.hooks] == ["check --all 'a b'"]
    assert loaded.settings.permissions.deny == ("Read(./secret)",)
    assert loaded.warnings == (
        f"{file}: this does not hold here: hooks.PermissionRequest, "
        "hooks.PreToolUse (a hook of the type prompt), hooks.PreToolUse (a hook with if), "
        "permissions.deny Bash(rm -rf",
    )


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"hooks": 3, "permissions": {"deny": "Bash"}, "env": {"A": 1}}']
)
@pytest.mark.parametrize("trusted", [True, False])
def test_a_file_with_mistakes_stops_nobody_and_is_named(desk: Desk, text: str, trusted: bool) -> None:
    file = desk.write(desk.project / ".claude" / "settings.json", text)

    loaded = desk.load(trusted=trusted)

    assert loaded.settings.hooks.pre_tool_use == ()
    assert any(str(file) in warning for warning in loaded.warnings)


def test_a_link_that_leads_out_is_not_followed_before_trust(desk: Desk, tmp_path: Path) -> None:
    outside = desk.write(tmp_path / "outside.json", {"permissions": {"deny": ["Bash"]}})
    (desk.project / ".claude").mkdir(parents=True)
    (desk.project / ".claude" / "settings.json").symlink_to(outside)

    loaded = desk.load(trusted=False)

    assert loaded.settings.permissions.deny == ()
    assert "a link that leads out of the project" in loaded.ignored[0]
