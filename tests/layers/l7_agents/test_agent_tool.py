"""The Agent tool: waited for, sent to the background, refused, failed, stopped with the turn."""

from __future__ import annotations

from pathlib import Path

import anyio
import msgspec
import pytest
from layers.l7_agents.stage import Stage, agent, agent_use, defined, settled, work

from sevenfold.core.errors import UnknownModel
from sevenfold.core.events import AgentEnded, AgentStarted, Notice
from sevenfold.core.messages import Text, ToolUse, assistant
from sevenfold.core.protocols import ToolFailed
from sevenfold.core.tokens import MessageSize, Usage, estimate_tokens
from sevenfold.core.transcript import Reply
from sevenfold.layers.l7_agents.agent_tools import MOST_TOKENS, MOST_TYPES, make_schema
from sevenfold.layers.l7_agents.definitions import BUILT_IN, AgentDefinition
from sevenfold.layers.l7_agents.members import find_awaited_agents, make_free_name, read_order
from sevenfold.settings.layers import AgentSettings
from sevenfold.testing.doubles import Line

pytestmark = pytest.mark.anyio


async def test_a_foreground_agent_is_waited_for_and_its_last_words_are_the_result(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [agent(name="scout"), "thanks"])
    said = Reply(assistant(Text("the bug is in a.py:3")), Usage(input=40, output=2))
    scout = stage.plays("scout", said)
    async with stage.open():
        await stage.ask()

        [result] = stage.results
        path = stage.actors["scout"].path
        assert result.text.startswith("the bug is in a.py:3\n\n[agent a-")
        assert "(scout): done; 1 step; 42 tokens" in result.text
        assert f"transcript: {path}" in result.text
        assert not result.is_error
        assert scout.requests[0].view[-1].message.text == "do it"
        assert path.is_file(), "its transcript stays"
        assert stage.actors["scout"].closed
        assert stage.told == [], "the result says it all"


async def test_a_foreground_agent_says_when_it_begins_and_ends(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [agent(name="scout"), "thanks"])
    stage.plays("scout", Reply(assistant(Text("found")), Usage(input=7)))
    async with stage.open():
        await stage.ask()

    [began] = [e for e in stage.events if isinstance(e, AgentStarted)]
    [ended] = [e for e in stage.events if isinstance(e, AgentEnded)]
    assert (began.name, began.kind, began.background, began.depth) == ("scout", "general-purpose", False, 1)
    assert (ended.id, ended.status, ended.said, ended.steps, ended.usage.input) == (
        began.id,
        "done",
        "found",
        1,
        7,
    )


async def test_agents_called_in_one_reply_work_side_by_side(tmp_path: Path) -> None:
    calls = assistant(agent_use("u1", name="one"), agent_use("u2", name="two"))
    stage = Stage(tmp_path, [calls, "both are back"])
    for name in ("one", "two"):
        stage.plays(name, work(), f"{name} is done")
    async with stage.open():
        stage.tasks.start_soon(stage.ask)
        await settled()
        assert [a.status for a in stage.roster.agents] == ["running", "running"]

        stage.held.let_go.set()
        await stage.roster.wait()
        await settled()
        assert [r.text.split("\n")[0] for r in stage.results] == ["one is done", "two is done"]


async def test_a_background_agent_gives_its_id_at_once_and_a_notice_later(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [agent(name="scout", run_in_background=True), "meanwhile", "I see"])
    stage.plays("scout", work(), "found it")
    async with stage.open():
        await stage.ask()
        [listed] = stage.roster.agents
        assert listed.status == "running"
        assert listed.id in stage.results[0].text
        assert stage.told == []

        stage.held.let_go.set()
        await stage.roster.wait()
        await stage.ask("and now?")

        [notice] = stage.told
        assert notice.startswith(f'<agent-notice id="{listed.id}" name="scout" status="done">')
        assert "found it" in notice
        assert "not the user's" in notice
        assert notice.endswith("</agent-notice>")


async def test_a_notice_comes_at_the_next_round_of_tools_and_once(tmp_path: Path) -> None:
    script: list[Line] = [agent(name="scout", run_in_background=True), work(), "I see", "nothing new"]
    stage = Stage(tmp_path, script)
    stage.plays("scout", "found it")
    async with stage.open():
        stage.tasks.start_soon(stage.ask)
        await settled()
        assert [a.status for a in stage.roster.agents] == ["done"]
        assert stage.told == [], "the tool is still at work"

        stage.held.let_go.set()
        await settled()
        assert len(stage.told) == 1
        await stage.ask("again")
        assert len(stage.told) == 1


async def test_an_agent_that_takes_long_goes_on_in_the_background(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [agent(name="slow"), "then later", "ah"])
    stage.plays("slow", work(), "here it is")
    async with stage.open():
        stage.tasks.start_soon(stage.ask)
        await stage.clock.advance(AgentSettings().auto_background_seconds - 1)
        assert stage.results == []

        await stage.clock.advance(1)
        [result] = stage.results
        assert "goes on in the background" in result.text
        assert not result.is_error
        [listed] = stage.roster.agents
        assert listed.background
        assert find_awaited_agents(stage.turn.transcript.view.marks) == [listed.id]

        stage.held.let_go.set()
        await stage.roster.wait()
        await stage.ask("well?")
        assert "here it is" in stage.told[0]


async def test_without_a_limit_an_agent_is_waited_for_however_long_it_takes(tmp_path: Path) -> None:
    settings = AgentSettings(auto_background_seconds=0)
    stage = Stage(tmp_path, [agent(name="slow"), "fine"], settings=settings)
    stage.plays("slow", work(), "here it is")
    async with stage.open():
        stage.tasks.start_soon(stage.ask)
        await stage.clock.advance(100_000)
        assert stage.results == []
        stage.held.let_go.set()
        await settled()
        assert stage.results[0].text.startswith("here it is")


async def test_stopping_the_turn_stops_a_foreground_agent_and_leaves_the_others(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [agent("u1", name="bg", run_in_background=True), agent("u2", name="fg")])
    for name in ("bg", "fg"):
        stage.plays(name, work(), "done")
    async with stage.open():
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as turn:
                turn.start_soon(stage.ask)
                await settled()
                scope.cancel()

        assert {a.name: a.status for a in stage.roster.agents} == {"bg": "running", "fg": "stopped"}
        transcript = stage.actors["fg"].turn.transcript
        assert transcript.view[-1].message.results[0].is_error, "its open call is answered"
        assert stage.actors["fg"].closed

        stage.held.let_go.set()
        await stage.roster.wait()
        assert stage.ended == [("fg", "stopped"), ("bg", "done")]


async def test_an_agent_stopped_by_hand_is_an_error_with_what_it_said(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [agent(name="fg"), "a pity"])
    stage.plays("fg", assistant(Text("I look into it"), ToolUse("w", "Work", {})), "never")
    async with stage.open():
        stage.tasks.start_soon(stage.ask)
        await settled()
        assert stage.roster.stop("fg")
        await settled()

        [result] = stage.results
        assert result.is_error
        assert "stopped before it was done" in result.text
        assert "I look into it" in result.text
        assert not stage.roster.stop("fg"), "it is over"


async def test_an_agent_at_its_step_limit_is_an_error_with_what_it_said(tmp_path: Path) -> None:
    busy = assistant(Text("still reading"), ToolUse("w", "Work", {}))
    definitions = defined("short", max_turns=2)
    stage = Stage(tmp_path, [agent(subagent_type="short"), "a pity"], definitions=definitions)
    stage.held.let_go.set()
    stage.plays("short", busy, busy, "never")
    async with stage.open():
        await stage.ask()

    [result] = stage.results
    assert result.is_error
    assert "2 steps" in result.text
    assert "maxTurns" in result.text
    assert "--max-steps" not in result.text
    assert "still reading" in result.text
    assert stage.ended == [("short-1", "failed")]


async def test_an_agent_whose_model_fails_is_an_error_and_the_turn_goes_on(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [agent(name="fg"), "never mind"])
    stage.plays("fg", UnknownModel("there is no such model"))
    async with stage.open():
        reply = await stage.ask()

    assert reply.message.text == "never mind"
    assert stage.results[0].is_error
    assert "there is no such model" in stage.results[0].text


async def test_an_agent_that_breaks_does_not_end_the_session(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [agent(name="fg"), "never mind"])
    stage.plays("fg", ZeroDivisionError("a bug"))
    async with stage.open():
        assert (await stage.ask()).message.text == "never mind"
        assert stage.results[0].is_error
        assert [a.status for a in stage.roster.agents] == ["failed"]


# --- what cannot be ---------------------------------------------------------------------------------------


async def test_an_unknown_type_is_refused_with_what_there_is(tmp_path: Path) -> None:
    async with Stage(tmp_path).open() as stage:
        with pytest.raises(ToolFailed, match=r"no agent of the kind 'wizard'.*general-purpose"):
            await stage.call(subagent_type="wizard")
        assert stage.roster.agents == ()


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"prompt": "  "}, "the prompt is empty"),
        ({"name": "lead"}, "means somebody else"),
        ({"name": "main"}, "somebody else"),
        ({"name": "the user"}, "somebody else"),
        ({"name": "User"}, "somebody else"),
        ({"name": "../../etc/passwd"}, "cannot be the name"),
        ({"teammate": True}, "needs a name"),
        ({"subagent_type": "fork", "model": "other"}, "cannot have another model"),
        ({"subagent_type": "fork", "teammate": True, "name": "x"}, "cannot be a teammate"),
        ({"isolation": "worktree"}, "no git repository"),
    ],
)
async def test_what_cannot_be_had_is_refused_in_words(
    tmp_path: Path, args: dict[str, object], why: str
) -> None:
    async with Stage(tmp_path).open() as stage:
        with pytest.raises(ToolFailed, match=why):
            await stage.call(**args)
        assert stage.roster.agents == (), "nothing of it stays"


async def test_one_more_than_the_most_at_once_is_refused_by_the_limit(tmp_path: Path) -> None:
    stage = Stage(tmp_path, settings=AgentSettings(most=2))
    stage.plays("general-purpose", work("a"), work("b"), "done", "done", "done")
    async with stage.open():
        await stage.call(run_in_background=True)
        await stage.call(run_in_background=True)
        with pytest.raises(ToolFailed, match=r"2 agents are at work.*agents\.most"):
            await stage.call(run_in_background=True)

        stage.held.let_go.set()
        await stage.roster.wait()
        await stage.call(run_in_background=True)
        assert len(stage.roster.agents) == 3


async def test_agents_go_no_deeper_than_they_may(tmp_path: Path) -> None:
    """The last one does not even have the tool; one that calls it all the same is told."""
    stage = Stage(tmp_path, [agent(name="one"), "fine"])
    stage.plays("one", agent(name="two"), "one is done")
    stage.plays("two", agent(name="three"), "two is done")
    stage.plays("three", agent(name="four"), "did it myself")
    async with stage.open():
        await stage.ask()

        depths = {a.name: a.depth for a in stage.roster.agents}
        assert depths == {"one": 1, "two": 2, "three": 3}
        assert "Agent" in [t.name for t in stage.actors["two"].tools]
        assert "Agent" not in [t.name for t in stage.actors["three"].tools]
        refused = stage.actors["three"].turn.transcript.view
        assert any("there is no tool Agent" in r.text for p in refused for r in p.message.results)


async def test_nobody_is_asked_for_the_agents_of_one_that_nobody_watches(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.plays("boss", agent(name="minion"), "done")
    stage.plays("minion", "dug it")
    async with stage.open():
        await stage.call(name="boss", run_in_background=True)
        await stage.roster.wait()
        asks = {name: actor.spec.asks for name, actor in stage.actors.items()}
        assert asks == {"boss": False, "minion": False}


async def test_the_name_of_an_agent_at_work_is_taken(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.plays("scout", work(), "done", "done")
    async with stage.open():
        await stage.call(name="scout", run_in_background=True)
        with pytest.raises(ToolFailed, match="Scout is at work already"):
            await stage.call(name="Scout")


# --- what a definition says -------------------------------------------------------------------------------


async def test_what_a_definition_says_goes_into_the_conversation(tmp_path: Path) -> None:
    definitions = defined(
        "tester",
        prompt="You test things.",
        tools=("Work", "Quantum"),
        model="small",
        max_turns=5,
        background=True,
    )
    stage = Stage(tmp_path, definitions=definitions)
    stage.plays("tester", "ok")
    async with stage.open():
        await stage.call(subagent_type="tester")
        await stage.call(subagent_type="Tester")
        await stage.roster.wait()

        spec = stage.actors["tester-1"].spec
        assert spec.system[0].startswith("You test things.\n\nAnother agent has handed you")
        assert (spec.tools, spec.model, spec.max_steps) == (("Work",), "small", 5)
        assert not spec.asks, "nobody watches it"
        said = [e.text for e in stage.events if isinstance(e, Notice)]
        assert len(said) == 1, "once, however often it is started"
        assert "Quantum" in said[0]


async def test_what_is_asked_for_goes_before_the_definition(tmp_path: Path) -> None:
    stage = Stage(tmp_path, definitions=defined("tester", model="small"))
    stage.plays("tester", "ok")
    async with stage.open():
        await stage.call(subagent_type="tester", model="large")
        assert stage.actors["tester-1"].spec.model == "large"


def test_the_tool_costs_few_tokens() -> None:
    """Every request of every session carries it."""
    schema = make_schema(BUILT_IN)
    assert MessageSize(text=len(msgspec.json.encode(schema))).tokens() < 450


def test_many_types_are_cut_and_named() -> None:
    many = {f"t{n}": AgentDefinition(name=f"t{n}", description="x " * 200, prompt="p") for n in range(70)}
    about = make_schema(many)["description"]
    described = about.count("\n- t")
    assert 20 < described < MOST_TYPES
    assert f"and {70 - described} more: t{described}, " in about
    assert "- fork: " in about


@pytest.mark.parametrize(("letter", "length"), [("x", 600), ("x", 1), ("字", 600)])
def test_three_thousand_types_cost_no_more_than_a_few(letter: str, length: int) -> None:
    many = {
        f"kind-{n}": AgentDefinition(name=f"kind-{n}", description=letter * length, prompt="p")
        for n in range(3_000)
    }
    about = make_schema(many)["description"]
    few = make_schema(BUILT_IN)["description"]
    assert estimate_tokens(about) - estimate_tokens(few) <= MOST_TOKENS
    assert about.count("\n- kind-") <= MOST_TYPES
    assert " more: kind-" in about


def test_a_fork_is_a_fork_in_whatever_case() -> None:
    args = {"description": "d", "prompt": "p", "subagent_type": " FORK "}
    assert read_order(args).forks


def test_an_agent_without_a_name_gets_none_that_is_somebody_elses() -> None:
    assert make_free_name("Code Reviewer", ()) == "code-reviewer-1"
    assert make_free_name("fork", ["fork-1"]) == "fork-2"
    assert make_free_name("user", ()) == "agent-1"
    assert make_free_name("team lead", ["agent-1"]) == "agent-2"
