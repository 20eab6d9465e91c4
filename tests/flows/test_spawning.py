"""Conversations beside the main one, in a whole session: forks on its bytes, agents with their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from sevenfold import Session
from sevenfold.core.events import CacheBroke, Event
from sevenfold.core.messages import Message, Text, ToolUse, assistant, user, write_directive
from sevenfold.core.protocols import AgentSpec
from sevenfold.core.request import Request, encode_prefix, find_open_uses
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Reply
from sevenfold.testing import ScriptedModel
from sevenfold.tools.toolbox import PermissionQuestion

pytestmark = pytest.mark.anyio


def opened(model: ScriptedModel, tmp_path: Path) -> Session:
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    (project / "notes.txt").write_text("the port is 8080\n", encoding="utf-8")
    return Session(model, project, home=tmp_path / "home", environ={"HOME": str(tmp_path)})


async def test_a_fork_sends_the_bytes_of_its_parent_and_one_message_more(tmp_path: Path) -> None:
    model = ScriptedModel(["hello", "forked"])
    async with opened(model, tmp_path) as session:
        await session.ask("hi")
        before, length = encode_prefix(session.request), len(session.view)
        agent = session.spawning(AgentSpec(id="a1", name="one", kind="fork", on=session.request))
        reply = await agent.run(user(write_directive("agent", "a1", "look around")))
        await agent.close()
        assert reply.message.text == "forked"
        assert len(session.view) == length
    assert model.seen[-1][: len(before)] == before
    assert len(model.seen[-1]) == len(before) + 1


async def test_parallel_forks_differ_in_their_directive_alone(tmp_path: Path) -> None:
    forks: list[Request] = []
    read = assistant(ToolUse("t1", "Read", {"file_path": "notes.txt"}))
    lines: list[str | Message] = [read, "done", "one", "two"]
    model = ScriptedModel(lines)
    async with opened(model, tmp_path) as session:
        await session.ask("read notes.txt")
        for name in ("one", "two"):
            spec = AgentSpec(id=name, name=name, kind="fork", on=session.request)
            agent = session.spawning(spec)
            await agent.run(user(write_directive("agent", "same", f"task {name}")))
            await agent.close()
        forks = model.requests[-2:]
    first, second = (encode_prefix(request) for request in forks)
    assert first[:-1] == second[:-1]
    assert first[-1] != second[-1]


async def test_open_calls_are_answered_with_the_same_placeholder_in_every_fork(tmp_path: Path) -> None:
    seen: list[Message] = []

    async with opened(ScriptedModel(["hello", "forked"]), tmp_path) as session:
        await session.ask("hi")
        transcript = session.turn.transcript
        transcript.add(assistant(ToolUse("t9", "Agent", {"prompt": "x"})), by="model")
        agent = session.spawning(AgentSpec(id="f", name="f", kind="fork", on=session.request))
        await agent.run(user(write_directive("agent", "f", "go")))
        seen = list(agent.request.view.messages)
        assert not find_open_uses(agent.request.view)
        assert list(find_open_uses(session.view)) == ["t9"]
        await agent.close()
    assert any(block.tool_use_id == "t9" for message in seen for block in message.results)


async def test_an_agent_has_its_own_prompt_tools_and_file(tmp_path: Path) -> None:
    model = ScriptedModel(
        ["hello", assistant(ToolUse("r1", "Read", {"file_path": "notes.txt"})), "the port is 8080"]
    )
    async with opened(model, tmp_path) as session:
        await session.ask("hi")
        spec = AgentSpec(
            id="a7", name="finder", kind="explore", system=("You find things.",), tools=("Read",)
        )
        agent = session.spawning(spec)
        reply = await agent.run(user("which port?"))
        assert reply.message.text == "the port is 8080"
        assert agent.steps == 2
        assert agent.path == session.folder / "agents" / "a7.jsonl"
        await agent.close()
        assert session.ledger.accounts["agent:finder"].requests == 2
    frame = model.requests[-1].frame
    assert frame.system == ("You find things.",)
    assert [tool["name"] for tool in frame.tools] == ["Read"]
    assert "which port?" in agent.path.read_text(encoding="utf-8")


async def test_an_agent_is_taken_up_again_from_its_file(tmp_path: Path) -> None:
    model = ScriptedModel(["hello", "first answer", "second answer"])
    async with opened(model, tmp_path) as session:
        await session.ask("hi")
        spec = AgentSpec(id="a7", name="finder", kind="explore", system=("You find things.",))
        agent = session.spawning(spec)
        await agent.run(user("one"))
        await agent.close()
        again = session.spawning(AgentSpec(id="a7", name="finder", kind="explore", resumes=True))
        await again.run(user("two"))
        await again.close()
    assert model.seen[2][: len(model.seen[1])] == model.seen[1]


async def test_what_nobody_can_be_asked_about_is_refused_to_an_agent_in_the_background(
    tmp_path: Path,
) -> None:
    asked: list[str] = []

    async def yes(question: PermissionQuestion) -> bool:
        asked.append(question.reason)
        return True

    write = ToolUse("w", "Write", {"file_path": "new.txt", "content": "x"})
    model = ScriptedModel(["hello", assistant(write), "done", assistant(write), "done"])
    project = tmp_path / "project"
    project.mkdir()
    environ = {"HOME": str(tmp_path)}
    async with Session(model, project, home=tmp_path / "home", environ=environ, ask=yes) as session:
        await session.ask("hi")
        quiet = session.spawning(AgentSpec(id="q", name="quiet", kind="x", asks=False))
        await quiet.run(user("write it"))
        await quiet.close()
        assert asked == []
        assert not (project / "new.txt").exists()
        heard = session.spawning(AgentSpec(id="h", name="heard", kind="x"))
        await heard.run(user("write it"))
        await heard.close()
    assert [why.startswith("agent heard: ") for why in asked] == [True]
    assert (project / "new.txt").exists()


async def test_a_second_agent_of_the_same_name_breaks_no_cache_of_the_first(tmp_path: Path) -> None:
    heard: list[Event] = []
    usage = Usage(input=10, cache_write=30_000)
    lines: list[str | Reply] = ["hello", Reply(assistant(Text("one")), usage)]
    lines.append(Reply(assistant(Text("two")), usage))
    async with opened(ScriptedModel(lines), tmp_path) as session:
        session.subscribe(heard.append)
        await session.ask("hi")
        for id in ("a1", "a2"):
            agent = session.spawning(AgentSpec(id=id, name="same", kind="x", system=(id,)))
            await agent.run(user("go"))
            await agent.close()
    assert [event for event in heard if isinstance(event, CacheBroke)] == []
