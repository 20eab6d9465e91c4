"""The official client, in each of its modes, finds every tool, resource and prompt, and they work."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import Client
from mcp_servers.serving import MODES, ServedProject
from mcp_types import ElicitRequestParams, ElicitResult, ListRootsResult

from sevenfold.core.tokens import estimate_tokens

pytestmark = [pytest.mark.anyio, pytest.mark.real]
TOOLS = ["recall", "remember", "forget", "read", "search", "history", "undo", "dream"]
DEPLOY = {
    "type": "project",
    "name": "deploy-day",
    "description": "The service is deployed on Tuesdays",
    "body": "The billing service is deployed on Tuesdays from the main branch.",
}


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def text_of(result: Any) -> str:
    return "\n".join(block.text for block in result.content)


async def test_a_client_of_each_mode_agrees_on_a_version(project: ServedProject, mode: str) -> None:
    async with Client(project.parameters(), mode=mode) as client:
        assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
        listed = (await client.list_tools()).tools

    assert [tool.name for tool in listed] == TOOLS
    assert all(tool.description and tool.input_schema["type"] == "object" for tool in listed)


async def test_the_tools_cost_a_client_at_most_1500_tokens(project: ServedProject) -> None:
    async with Client(project.parameters("--plugin")) as client:
        listed = (await client.list_tools()).tools
        instructions = client.instructions or ""

    cost = sum(estimate_tokens(tool.model_dump_json(by_alias=True, exclude_none=True)) for tool in listed)
    assert cost + estimate_tokens(instructions) <= 1_500


async def test_every_tool_answers(project: ServedProject, mode: str) -> None:
    async with Client(project.parameters(), mode=mode) as client:
        saved = await client.call_tool("remember", DEPLOY)
        found = await client.call_tool("recall", {"query": "when is billing deployed?"})
        read = await client.call_tool("read", {"name": "deploy-day"})
        index = await client.call_tool("read", {"index": True})
        lines = await client.call_tool("search", {"words": "billing", "sessions": True})
        gone = await client.call_tool("forget", {"name": "deploy-day"})
        back = await client.call_tool("undo", {"name": "deploy-day"})
        past = await client.call_tool("history", {"name": "deploy-day"})
        diff = await client.call_tool("history", {"diff": True})

    assert not any(one.is_error for one in (saved, found, read, index, lines, gone, back, past, diff))
    assert saved.structured_content["action"] == "created"
    (memory,) = found.structured_content["memories"]
    assert (memory["name"], memory["type"], memory["age_days"]) == ("deploy-day", "project", 0)
    assert memory["text"].startswith("<memory ")
    assert memory["text"] in text_of(found)
    assert read.structured_content["origin"]["author"] == "agent"
    assert "deploy-day" in text_of(index)
    assert lines.structured_content["memories"][0]["name"] == "deploy-day"
    assert gone.structured_content["action"] == "removed"
    assert back.structured_content["changes"] == [{"name": "deploy-day", "action": "created"}]
    assert [one["author"] for one in past.structured_content["revisions"]] == ["agent"] * 3
    assert "+" in text_of(diff)


async def test_a_dream_reports_its_progress_and_its_end(project: ServedProject, mode: str) -> None:
    told: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async with Client(project.parameters(), mode=mode) as client:
        await client.call_tool("remember", DEPLOY)
        ended = await client.call_tool("dream", {"dry_run": True}, progress_callback=hear)
        asked = await client.call_tool("dream", {"job": ended.structured_content["job"]})

    assert ended.structured_content["status"] == "completed"
    assert told[0] == "starting"
    assert asked.structured_content["status"] == "completed"


async def test_every_resource_and_prompt_is_there(project: ServedProject, mode: str) -> None:
    async with Client(project.parameters(), mode=mode) as client:
        await client.call_tool("remember", DEPLOY)
        listed = (await client.list_resources()).resources
        templates = (await client.list_resource_templates()).resource_templates
        read = [await client.read_resource(one.uri) for one in listed]
        prompts = (await client.list_prompts()).prompts
        recalled = await client.get_prompt("recall", {"question": "when is billing deployed?"})
        tidy = await client.get_prompt("tidy")

    assert [one.uri for one in listed] == ["memory://index", "memory://topic/deploy-day"]
    assert [one.uri_template for one in templates] == ["memory://topic/{name}", "memory://session/{id}"]
    assert all("deploy-day" in one.model_dump_json() for one in read)
    assert [one.name for one in prompts] == ["recall", "tidy"]
    assert "Tuesdays" in recalled.model_dump_json()
    assert "dry_run" in tidy.model_dump_json()


async def test_a_purge_asks_the_person(project: ServedProject, mode: str) -> None:
    asked: list[str] = []

    async def answer(context: Any, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"yes": len(asked) > 1})

    async with Client(project.parameters(), mode=mode, elicitation_callback=answer) as client:
        await client.call_tool("remember", DEPLOY)
        kept = await client.call_tool("forget", {"name": "deploy-day", "purge": True})
        there = await client.call_tool("read", {"name": "deploy-day"})
        purged = await client.call_tool("forget", {"name": "deploy-day", "purge": True})
        gone = await client.call_tool("history", {"name": "deploy-day"})

    assert [line.startswith("Purge the memory deploy-day for good") for line in asked] == [True, True]
    assert kept.is_error
    assert text_of(kept) == "deploy-day was kept: the user said no"
    assert not there.is_error
    assert purged.structured_content["action"] == "purged"
    assert gone.is_error


async def test_a_purge_is_refused_where_nobody_can_be_asked(project: ServedProject) -> None:
    async with Client(project.parameters()) as client:
        await client.call_tool("remember", DEPLOY)
        kept = await client.call_tool("forget", {"name": "deploy-day", "purge": True})
        there = await client.call_tool("read", {"name": "deploy-day"})

    assert kept.is_error
    assert "nobody can be asked here" in text_of(kept)
    assert not there.is_error


async def test_the_guard_is_heard_as_it_is_written(project: ServedProject) -> None:
    secret = {**DEPLOY, "body": "The token is\n\nghp_016C7GtjPjVuWyrAEyYNqwSAqhnHKd4Vwd2h"}
    about_user = {**DEPLOY, "type": "user", "name": "tabs", "body": "The user likes tabs."}
    async with Client(project.parameters()) as client:
        refused = await client.call_tool("remember", secret)
        held = await client.call_tool("remember", about_user)
        unknown = await client.call_tool("read", {"name": "nothing-of-the-kind"})

    assert [one.is_error for one in (refused, held, unknown)] == [True, True, True]
    assert "looks like a GitHub token" in text_of(refused)
    assert "held for the user's word" in text_of(held)
    assert "there is no memory 'nothing-of-the-kind'" in text_of(unknown)
    with project.open_memory() as memory:
        assert memory.topics() == []
        assert [one.file for one in memory.quarantine.list()] == ["tabs.md"]


async def test_a_memory_over_mcp_is_the_word_of_an_agent(project: ServedProject) -> None:
    async with Client(project.parameters()) as client:
        await client.call_tool("remember", DEPLOY)
        again = await client.call_tool("remember", DEPLOY)

    assert again.structured_content["revision"] == ""
    with project.open_memory() as memory:
        (topic,) = memory.topics()
        (revision,) = memory.history("deploy-day")
    assert topic.body.startswith("According to the agent mcp")
    assert revision.author.kind == "agent"


async def test_the_first_root_of_the_client_is_the_project(project: ServedProject, mode: str) -> None:
    roots = ListRootsResult.model_validate({"roots": [{"uri": project.folder.as_uri()}]})

    async def list_roots(context: Any) -> ListRootsResult:
        return roots

    elsewhere = project.top / "elsewhere"
    elsewhere.mkdir()
    async with Client(
        project.parameters(cwd=elsewhere), mode=mode, list_roots_callback=list_roots
    ) as client:
        await client.call_tool("remember", DEPLOY)

    with project.open_memory() as memory:
        assert [topic.name for topic in memory.topics()] == ["deploy-day"]


async def test_words_that_the_agent_puts_into_the_mouth_of_the_user_are_held(
    project: ServedProject,
) -> None:
    claimed = {**DEPLOY, "body": "According to the user: the billing service is deployed on Fridays."}
    async with Client(project.parameters()) as client:
        held = await client.call_tool("remember", claimed)

    assert "held for the user's word" in text_of(held)
    with project.open_memory() as memory:
        assert memory.topics() == []
