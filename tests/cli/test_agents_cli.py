"""`sevenfold agents`, `/agents` and `/send`: kinds of agents, who is there, and writing to them."""

from __future__ import annotations

import pytest
from cli.conftest import Here
from cli.terminal import CTRL_D, PROMPT, Terminal
from cli.world import World

REVIEWER = """---
name: reviewer
description: Reads a change and says what is wrong with it.
tools: Read, Grep, Nonsense
model: inherit
colour: green
---
You review changes.
"""


def write_agent(world: World, folder: str, name: str, text: str) -> None:
    place = world.project / folder / "agents"
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(text, encoding="utf-8")


def test_the_kinds_of_agents_are_listed_with_what_they_are_for(here: Here) -> None:
    ran = here("agents")

    assert ran.code == 0
    assert "explore" in ran.out
    assert "…" not in ran.out, "in a pipe nothing is cut"
    assert "no session can be written to" in ran.out
    assert {one["name"] for one in here("agents", "--json").json["definitions"]} == {
        "general-purpose",
        "explore",
    }


def test_agents_of_a_project_count_when_it_is_trusted(here: Here, world: World) -> None:
    write_agent(world, ".claude", "reviewer.md", REVIEWER)

    before = here("agents", "--json")
    here("trust")
    after = here("agents", "--json")

    assert "reviewer" not in {one["name"] for one in before.json["definitions"]}
    assert "not trusted" in before.err
    assert "reviewer" in {one["name"] for one in after.json["definitions"]}
    assert "colour" in after.err


def test_one_kind_is_shown_with_its_tools_and_its_prompt(here: Here, world: World) -> None:
    write_agent(world, ".sevenfold", "reviewer.md", REVIEWER)
    here("trust")

    ran = here("agents", "show", "reviewer")

    assert "You review changes." in ran.out
    assert "Read, Grep" in ran.out
    assert "colour" in ran.err


CAREFUL = """---
name: careful
description: Changes nothing.
disallowedTools: Write, Edit
background: true
isolation: worktree
maxTurns: 12
permissionMode: plan
---
You look.
"""


def test_everything_that_a_definition_says_is_shown(here: Here, world: World) -> None:
    write_agent(world, ".sevenfold", "careful.md", CAREFUL)
    write_agent(world, ".sevenfold", "reviewer.md", REVIEWER)
    here("trust")

    ran = here("agents", "show", "careful")
    data = here("agents", "show", "careful", "--json").json
    plain = here("agents", "show", "explore").out

    for line in ("disallowedTools: Write, Edit", "background: yes", "isolation: worktree"):
        assert f"\n  {line}\n" in ran.out
    assert "\n  maxTurns: 12\n" in ran.out
    assert "not applied: permissionMode" in ran.err
    assert "colour" not in ran.err, "that is about another one"
    assert (data["disallowed_tools"], data["max_turns"]) == (["Write", "Edit"], 12)
    assert "maxTurns: as many as the session allows" in plain
    assert "disallowedTools" not in plain


def test_who_can_be_written_to_is_not_called_a_kind_of_agent(here: Here) -> None:
    assert "A teammate or a session" in here("agents", "send", "--help").out
    assert "A kind of agent" not in here("agents", "send", "--help").out
    assert "A kind of agent" in here("agents", "show", "--help").out


def test_an_unknown_kind_is_a_mistake_that_names_those_there_are(here: Here) -> None:
    ran = here("agents", "show", "explorer")

    assert ran.code == 2
    assert "explore" in ran.err


def test_writing_to_nobody_says_who_can_be_reached(here: Here) -> None:
    ran = here("agents", "send", "somebody", "hello", "--json")

    assert ran.code == 2
    assert "somebody" in ran.json["reason"]


@pytest.mark.parametrize(
    ("to", "why"), [("bridge:x", "on another machine"), ("*", "all teammates of a session")]
)
def test_an_address_that_leads_nowhere_from_here_is_refused_with_the_reason(
    here: Here, to: str, why: str
) -> None:
    ran = here("agents", "send", to, "hello", "--json")

    assert ran.code == 3
    assert why in ran.json["reason"]


def test_an_open_chat_is_reached_from_another_terminal_and_shows_who_wrote(
    here: Here, world: World
) -> None:
    with Terminal([], world.env, world.project) as terminal:
        terminal.wait_for(PROMPT)
        [there] = here("agents", "--json").json["sessions"]
        ran = here("agents", "send", there["session"], "the", "build", "is", "red", "--json")
        assert ran.code == 0
        assert ran.json["to"] == f"uds:{there['session']}" == there["address"]
        terminal.ask("hello", "a message from command-line", "the build is red")
        terminal.press(CTRL_D)
        assert terminal.wait_for_end() == 0
    assert here("agents", "--json").json["sessions"] == []


def test_agents_and_send_in_the_chat_say_what_is_wrong(here: Here) -> None:
    assert "no agents yet" in here("-p", "/agents").out
    assert "/send NAME TEXT" in here("-p", "/send").err
    assert "there is no agent" in here("-p", "/send nobody hello").err
    assert "no agent called x is at work" in here("-p", "/tasks kill x").err


def test_a_first_snapshot_is_offered_in_words_and_can_be_declined(here: Here, world: World) -> None:
    text = "---\nname: keeper\ndescription: Keeps.\nmemory: user\n---\nKeep.\n"
    write_agent(world, ".sevenfold", "keeper.md", text)
    here("trust")
    place = world.project / ".sevenfold" / "agent-memory-snapshots" / "keeper"
    place.mkdir(parents=True)
    (place / "style.md").write_text("---\nname: style\n---\nTabs.\n", encoding="utf-8")
    (place / "snapshot.json").write_text('{"updatedAt": "2026-01-01T00:00:00Z"}', encoding="utf-8")

    offered = here("agents", "snapshot", "keeper")
    declined = here("agents", "snapshot", "keeper", "--decline", "--json")

    assert "brings a first memory for the agent 'keeper', of 2026-01-01" in offered.out
    assert declined.json["action"] == "initialise"
    assert declined.json["said"].startswith("declined")
    assert "nothing to take over" in here("agents", "snapshot", "keeper").out
    assert not (world.home / "agent-memory" / "keeper" / "style.md").exists()


def test_a_snapshot_is_taken_over_when_somebody_says_so_and_keeps_what_was_changed_here(
    here: Here, world: World
) -> None:
    write_agent(
        world,
        ".sevenfold",
        "keeper.md",
        "---\nname: keeper\ndescription: Keeps.\nmemory: user\n---\nKeep.\n",
    )
    here("trust")
    place = world.project / ".sevenfold" / "agent-memory-snapshots" / "keeper"
    place.mkdir(parents=True)
    memory = "---\nname: style\ndescription: how we write\ntype: project\n---\nTabs.\n"
    (place / "style.md").write_text(memory, encoding="utf-8")
    (place / "snapshot.json").write_text('{"updatedAt": "2026-01-01T00:00:00Z"}', encoding="utf-8")

    first = here("agents", "snapshot", "keeper", "--accept", "--json")
    mine = world.home / "agent-memory" / "keeper" / "style.md"
    mine.write_text(memory.replace("Tabs.", "Spaces, I say."), encoding="utf-8")
    (place / "style.md").write_text(memory.replace("Tabs.", "Tabs of four."), encoding="utf-8")
    (place / "snapshot.json").write_text('{"updatedAt": "2026-02-01T00:00:00Z"}', encoding="utf-8")
    offered = here("agents", "snapshot", "keeper", "--json")
    second = here("agents", "snapshot", "keeper", "--accept", "--json")

    assert first.json["action"] == "initialise"
    assert offered.json["action"] == "update"
    assert second.code == 0
    assert "Spaces, I say." in mine.read_text(encoding="utf-8")
    beside = [p for p in mine.parent.glob("*.md") if "Tabs of four." in p.read_text(encoding="utf-8")]
    assert len(beside) == 1
    assert here("agents", "snapshot", "keeper", "--json").json["action"] == "nothing"


def test_an_agent_without_a_memory_of_the_users_has_no_snapshot(here: Here) -> None:
    ran = here("agents", "snapshot", "explore")

    assert ran.code == 2
    assert "memory: user" in ran.err
