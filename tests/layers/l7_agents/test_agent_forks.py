"""Forks by the Agent tool: the parent's bytes, then a directive, which is all in which siblings differ."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
import pytest
from kit import extends
from layers.l7_agents.stage import Stage, agent, agent_use, defined, settled, until, work

from sevenfold.core.errors import Refused
from sevenfold.core.messages import Text, assistant, parse_directive
from sevenfold.core.protocols import ToolFailed
from sevenfold.core.request import encode_prefix
from sevenfold.layers.l7_agents.forks import PLACEHOLDER
from sevenfold.layers.l7_agents.members import AgentOrder, ParentConversation, check_depth
from sevenfold.settings.layers import AgentSettings

pytestmark = pytest.mark.anyio


async def test_a_fork_goes_on_from_its_parents_bytes_with_the_reply_that_asked_for_it(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, [agent("u", subagent_type="fork", prompt="look at b.py"), "thanks"])
    forked = stage.plays("fork", "b.py is fine")
    async with stage.open():
        await stage.ask()

    parent, child = stage.model.seen[0], forked.seen[0]
    assert extends(parent, child)
    assert len(child) == len(parent) + 3, "the reply, the placeholder and the directive"
    view = forked.requests[0].view
    assert view[-3].message.tool_uses[0].id == "u"
    assert view[-2].message.results[0].text == PLACEHOLDER
    directive = parse_directive(view[-1].message.text)
    assert directive is not None
    assert directive.kind == "agent"
    assert directive.body.endswith("look at b.py")
    assert stage.results[0].text.startswith("b.py is fine")


async def test_parallel_forks_differ_in_nothing_but_their_directive(tmp_path: Path) -> None:
    calls = assistant(*(agent_use(f"u{n}", subagent_type="fork", prompt=f"part {n}") for n in range(3)))
    stage = Stage(tmp_path, [calls, "all are back"])
    forked = stage.plays("fork", "one", "two", "three")
    async with stage.open():
        await stage.ask()

    first, *others = forked.seen
    assert len(forked.seen) == 3
    for other in others:
        assert other[:-1] == first[:-1], "the prefix is paid for once"
        assert other[-1] != first[-1]
    assert len(forked.requests[0].view[-2].message.results) == 3
    assert extends(stage.model.seen[0], first)


async def test_a_fork_waits_until_the_reply_it_stands_in_is_written(tmp_path: Path) -> None:
    """Tools start while the reply is still on its way."""
    stage = Stage(tmp_path, [assistant(agent_use("u1", subagent_type="fork"), work().content[0])])
    stage.model.pause = 0.05
    forked = stage.plays("fork", "done")
    async with stage.open():
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as turn:
                turn.start_soon(stage.ask)
                await until(lambda: stage.roster.agents)
                assert forked.requests == [], "the second call is not there yet"
                await until(lambda: forked.requests)
                scope.cancel()

        uses = forked.requests[0].view[-3].message.tool_uses
        assert [use.name for use in uses] == ["Agent", "Work"]


async def test_a_fork_is_not_waited_for_without_end(tmp_path: Path) -> None:
    """A reply that was cut off is only written when its tools are done."""
    async with Stage(tmp_path).open() as stage:
        hasty = ParentConversation("main", 0, lambda: stage.turn.request, patience=0.02)
        with pytest.raises(ToolFailed, match="was cut off: ask for it again"):
            await hasty.written("u")


async def test_a_fork_that_is_given_up_before_it_began_leaves_nothing(tmp_path: Path) -> None:
    async with Stage(tmp_path).open() as stage:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(stage.call, subagent_type="fork"))
                await settled()
                assert len(stage.roster.agents) == 1
                scope.cancel()
        assert stage.roster.agents == ()
        assert stage.events == []


async def test_closing_does_not_wait_for_a_fork_that_never_begins(tmp_path: Path) -> None:
    async with Stage(tmp_path).open() as stage:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(stage.call, subagent_type="fork"))
                await settled()
                with anyio.fail_after(5):
                    await stage.roster.close()
                scope.cancel()
        assert stage.roster.agents == ()


async def test_one_that_is_stopped_before_it_begins_never_says_anything(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [assistant(agent_use("u", subagent_type="fork"), Text("so")), "fine"])
    stage.model.pause = 0.02
    forked = stage.plays("fork", "never")
    async with stage.open():
        stage.tasks.start_soon(stage.ask)
        await until(lambda: stage.roster.agents)
        assert stage.roster.stop("fork-1")
        await until(lambda: stage.results)

        assert stage.results[0].is_error
        assert forked.requests == []
        assert [a.status for a in stage.roster.agents] == ["stopped"]


async def test_nothing_is_begun_while_the_session_closes(tmp_path: Path) -> None:
    async with Stage(tmp_path).open() as stage:
        await stage.roster.close()
        with pytest.raises(ToolFailed, match="the session is closing"):
            await stage.call()
        assert stage.roster.agents == ()


async def test_a_fork_cannot_fork_and_can_go_on(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [agent("u", subagent_type="fork"), "thanks"])
    forked = stage.plays("fork", agent("v", subagent_type="fork"), "did it myself")
    async with stage.open():
        await stage.ask()

    [refused] = forked.requests[1].view[-1].message.results
    assert refused.is_error
    assert "a fork cannot fork" in refused.text
    assert stage.results[0].text.startswith("did it myself")
    assert [a.kind for a in stage.roster.agents] == ["fork"]


async def test_a_fork_at_the_deepest_has_the_tool_and_is_told_the_limit(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [agent("u", subagent_type="fork"), "thanks"], settings=AgentSettings(depth=1))
    forked = stage.plays("fork", agent("v", name="deeper"), "did it myself")
    async with stage.open():
        await stage.ask()

    [refused] = forked.requests[1].view[-1].message.results
    assert refused.is_error
    assert "agents.depth" in refused.text


async def test_what_a_fork_says_so_far_is_not_what_its_parent_said(tmp_path: Path) -> None:
    stage = Stage(tmp_path, ["I am the parent", agent("u", subagent_type="fork"), "thanks"])
    stage.plays("fork", work(), "never")
    async with stage.open():
        await stage.ask()
        stage.tasks.start_soon(stage.ask)
        await until(lambda: stage.roster.agents and stage.roster.agents[0].steps)
        await settled()
        stage.roster.stop(stage.roster.agents[0].id)
        await settled()

    assert "had said nothing yet" in stage.results[-1].text
    assert "I am the parent" not in stage.results[-1].text


async def test_a_fork_that_is_over_is_not_resumed(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [agent("u", subagent_type="fork", name="twin"), "thanks"])
    stage.plays("twin", "done")
    async with stage.open():
        await stage.ask()
        with pytest.raises(Refused, match="a fork cannot be resumed") as no:
            await stage.roster.deliver("twin", stage.letter("go on"))

    assert str(stage.roster.agents[0].path) in str(no.value), "where its words are"
    assert "start another fork" in str(no.value)


def test_depth_is_refused_by_its_number() -> None:
    order = AgentOrder(description="d", prompt="p")
    deep = ParentConversation("a", 3, lambda: pytest.fail("never asked"))

    with pytest.raises(ToolFailed, match=r"3 deep at most \(agents\.depth\), and this one is at 3"):
        check_depth(order, deep, 3)
    check_depth(order, deep, 4)


async def test_agents_of_one_kind_share_what_their_requests_begin_with(tmp_path: Path) -> None:
    calls = assistant(*(agent_use(f"u{n}", prompt=f"part {n}") for n in range(2)))
    stage = Stage(tmp_path, [calls, "both are back"], definitions=defined("other"))
    model = stage.plays("general-purpose", "one", "two")
    async with stage.open():
        await stage.ask()

    one, two = model.seen
    assert one[:2] == two[:2], "tools and system"
    assert encode_prefix(model.requests[0]) != encode_prefix(model.requests[1])
