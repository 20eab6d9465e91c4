"""The tool `hook`: one server answers all hooks of a session, on the memory of Claude Code."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp import Client
from mcp_servers.serving import ServedProject

from sevenfold.memory.store import Memory

pytestmark = [pytest.mark.anyio, pytest.mark.real]
ASKED = "when is the billing service deployed?"


@pytest.fixture
def memory(project: ServedProject) -> Memory:
    """The memory of Claude Code for this project."""
    opened = Memory.open(project.folder, home=project.user / ".claude", environ=project.environment)
    body = "The billing service is deployed on Tuesdays from the main branch."
    opened.add(type="project", name="deploy-day", description="Day of deploys", body=body)
    return opened


async def call_hook(client: Client, event: str, **fields: Any) -> Any:
    result = await client.call_tool("hook", {"event": event, "session_id": "s-1", **fields})
    assert not result.is_error
    return json.loads(result.content[0].text)  # type: ignore[union-attr]


async def test_it_answers_as_the_command_does(project: ServedProject, memory: Memory) -> None:
    secret = json.dumps({"file_path": str(memory.path_of("k.md")), "content": "ghp_" + "a1B2c3D4e5" * 4})
    async with Client(project.parameters("--plugin")) as client:
        said = await call_hook(client, "UserPromptSubmit", prompt=ASKED, cwd="")
        again = await call_hook(client, "UserPromptSubmit", prompt=ASKED)
        denied = await call_hook(client, "PreToolUse", tool_name="Write", tool_input=secret)
        rest = await call_hook(client, "Stop", transcript_path="")

    assert "on Tuesdays" in said["hookSpecificOutput"]["additionalContext"]
    assert (again, rest) == ({}, {})
    assert denied["hookSpecificOutput"]["permissionDecision"] == "deny"


async def test_a_failure_is_a_line_for_the_user_and_stops_nothing(
    project: ServedProject, memory: Memory
) -> None:
    async with Client(project.parameters("--plugin")) as client:
        said = await call_hook(client, "NoSuchEvent")
        wrong = await call_hook(client, "UserPromptSubmit", prompt=7)

    assert "there is no event 'NoSuchEvent'" in said["systemMessage"]
    assert "is no event of a client" in wrong["systemMessage"]


async def test_without_the_plugin_there_is_no_such_tool(project: ServedProject) -> None:
    async with Client(project.parameters()) as client:
        assert "hook" not in [tool.name for tool in (await client.list_tools()).tools]
