"""Tools for a fork that keeps memory: it looks around, and changes markdown in one folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sevenfold.core.messages import ToolResult, ToolUse
from sevenfold.core.protocols import Tools
from sevenfold.testing import FakeClock
from sevenfold.tools.confined_tools import ConfinedTools
from sevenfold.tools.permission_settings import PermissionRules
from sevenfold.tools.workspace import Workspace

pytestmark = pytest.mark.anyio


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("project", "kept", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "kept" / "a.md").write_text("An old note.\n", encoding="utf-8")
    (tmp_path / "elsewhere" / "b.md").write_text("Somebody's.\n", encoding="utf-8")
    return tmp_path


def confined(top: Path, rules: PermissionRules | None = None, **options: Any) -> ConfinedTools:
    parent = Workspace(top / "project", top, {"PATH": os.defpath}, top / "shells", FakeClock())
    return ConfinedTools(top / "kept", parent, rules or PermissionRules(), **options)


async def call(tools: Tools, name: str, **args: Any) -> ToolResult:
    return await tools.call(ToolUse("u", name, args))


async def test_a_file_of_the_folder_is_read_and_changed_without_a_question(project: Path) -> None:
    tools = confined(project)
    path = str(project / "kept" / "a.md")
    assert not (await call(tools, "Read", file_path=path)).is_error
    done = await call(tools, "Edit", file_path=path, old_string="old", new_string="new")
    assert not done.is_error, done.text
    assert (project / "kept" / "a.md").read_text(encoding="utf-8") == "An new note.\n"
    assert tools.denied == 0


async def test_a_link_does_not_lead_out_of_the_folder(project: Path) -> None:
    (project / "kept" / "way.md").symlink_to(project / "elsewhere" / "b.md")
    (project / "kept" / "out").symlink_to(project / "elsewhere")
    tools = confined(project)
    for path in ("kept/way.md", "kept/out/new.md", "kept/../elsewhere/b.md"):
        refused = await call(tools, "Write", file_path=str(project / path), content="mine")
        assert refused.is_error
    assert tools.denied == 3
    assert "only files in" in tools.reasons[0]
    assert (project / "elsewhere" / "b.md").read_text(encoding="utf-8") == "Somebody's.\n"
    assert not (project / "elsewhere" / "new.md").exists()


async def test_a_mode_that_never_asks_in_the_conversation_opens_nothing_here(project: Path) -> None:
    rules = PermissionRules("bypassPermissions", allow=("Bash", "Edit", "Write"))
    tools = confined(project, rules)
    assert (await call(tools, "Bash", command="touch x")).is_error
    outside = str(project / "project" / "x.md")
    assert (await call(tools, "Write", file_path=outside, content="x")).is_error
    assert list((project / "project").iterdir()) == []


@pytest.mark.parametrize(
    "command",
    ["ls -la", "cat a.md | head -3", "grep -rn note . | wc -l", "find . -name '*.md'", "stat a.md"],
)
async def test_commands_that_only_look_run_in_the_folder(project: Path, command: str) -> None:
    looked = await call(confined(project), "Bash", command=command)
    assert not looked.is_error, looked.text


@pytest.mark.parametrize(
    "command",
    [
        "git log",
        "sort a.md",
        "find . -delete",
        "cat a.md > b.md",
        "ls; rm a.md",
        "python -c 1",
        "cat $(ls)",
        "",
    ],
)
async def test_other_commands_do_not(project: Path, command: str) -> None:
    tools = confined(project)
    assert (await call(tools, "Bash", command=command)).is_error
    assert tools.denied == 1
    assert (project / "kept" / "a.md").exists()


async def test_what_it_reads_does_not_count_as_read_in_the_conversation(project: Path) -> None:
    parent = Workspace(project / "project", project, {"PATH": os.defpath}, project / "shells", FakeClock())
    tools = ConfinedTools(project / "kept", parent, PermissionRules())
    await call(tools, "Read", file_path=str(project / "kept" / "a.md"))
    assert parent.seen == {}
    assert parent.cwd == project / "project"
    assert len(tools.workspace.seen) == 1


async def test_a_transcript_is_searched_and_never_read_whole(project: Path) -> None:
    talk = project / "talks" / "s.jsonl"
    talk.parent.mkdir()
    talk.write_text('{"said": "we moved to Postgres"}\n', encoding="utf-8")
    tools = confined(project, transcripts=talk.parent)
    found = await call(tools, "Grep", pattern="Postgres", path=str(talk.parent))
    assert "s.jsonl" in found.text
    assert not (await call(tools, "Bash", command=f"grep -c Postgres {talk}")).is_error
    for whole in (
        await call(tools, "Read", file_path=str(talk)),
        await call(tools, "Bash", command=f"cat {talk}"),
        await call(tools, "Bash", command=f"tail -n 100000 {talk}"),
        await call(tools, "Bash", command=f"head {talk.parent}/*.jsonl"),
    ):
        assert whole.is_error
        assert "moved" not in whole.text
