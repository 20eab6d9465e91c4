"""Instruction files in whole sessions: they outlive every compaction, and agents have them too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from layers.l4_compaction.summaries import summary

from sevenfold import Memory, Session
from sevenfold.core.events import Compacted, Event
from sevenfold.core.messages import Message, ToolUse, assistant, user, write_directive
from sevenfold.core.protocols import AgentSpec, Capabilities
from sevenfold.core.request import Request, encode_prefix
from sevenfold.layers.shared.boundary import find_last_boundary
from sevenfold.testing import ScriptedModel

pytestmark = pytest.mark.anyio
RULES = "HOUSERULE: keep it short.\n"
SETTINGS = {"flags": {"notes": False, "microCost": False, "extraction": False}}
INDEX = "<memory-index>"


class Place:
    """A project with rules, nested rules, files to read and a memory."""

    def __init__(self, top: Path) -> None:
        self.project, self.home = top / "project", top / "home"
        self.environ = {"HOME": str(top)}
        self.write("CLAUDE.md", RULES)
        self.write("a/CLAUDE.md", "NESTEDRULE\n")
        self.write("a/b/x.txt", "the port is 8080\n")
        self.write(".claude/rules/text.md", "---\npaths: '**/*.txt'\n---\nTEXTRULE\n")
        for n in range(8):
            self.write(f"f{n}.md", f"line {n} of this file, which is one of many\n" * 400)

    def write(self, name: str, text: str) -> Path:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def remember(self) -> None:
        where: dict[str, Any] = {"home": self.home, "environ": self.environ}
        with Memory.open(self.project, **where) as memory:
            about = "which port the server listens on"
            memory.add(type="reference", name="port", description=about, body="8080")

    def session(self, model: ScriptedModel | str) -> Session:
        where: dict[str, Any] = {"home": self.home, "environ": self.environ}
        return Session(model, self.project, settings=SETTINGS, **where)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def text(request: Request) -> str:
    return "\n".join(message.text for message in request.view.messages)


def reads(id: str, path: str) -> Message:
    return assistant(ToolUse(id, "Read", {"file_path": path}))


def reading(files: int) -> Callable[[Request], str | Message]:
    """Reads one file after another, and sums up what it is asked to."""
    count = 0

    def line(request: Request) -> str | Message:
        nonlocal count
        if "compact" in request.source:
            return summary()
        count += 1
        return reads(f"r{count}", f"f{count - 1}.md") if count <= files else "done"

    return line


def small(files: int = 8) -> ScriptedModel:
    return ScriptedModel([reading(files)] * 40, Capabilities(window=32_000, max_output=2_000))


async def test_rules_longer_than_their_share_are_in_every_request(place: Place) -> None:
    place.write("CLAUDE.md", RULES + "Keep every function short and plain.\n" * 950)
    place.remember()
    model, events = small(), list[Event]()
    async with place.session(model) as session:
        session.subscribe(events.append)
        await session.ask("read all of it")
    main = [request for request in model.requests if request.source == "main"]

    assert [event for event in events if isinstance(event, Compacted)]
    assert len(main) == 9
    assert all(text(request).count("HOUSERULE") == 1 for request in main)
    assert all(text(request).count(INDEX) == 1 for request in main)


async def test_a_short_conversation_keeps_its_rules_when_it_is_compacted_by_hand(place: Place) -> None:
    place.write("CLAUDE.md", RULES + "Keep every function short and plain.\n" * 200)
    place.remember()
    async with place.session("offline") as session:
        await session.ask("hello")
        await session.ask("are you there?")
        before = list(session.view.messages)
        report = await session.compact()

        assert report.boundary is None
        assert list(session.view.messages) == before


async def test_an_agent_keeps_the_rules_and_its_own_index(place: Place, tmp_path: Path) -> None:
    memory = tmp_path / "home" / "agent-memory" / "reader"
    memory.mkdir(parents=True)
    (memory / "MEMORY.md").write_text("- [the port](port.md): AGENTINDEX\n", encoding="utf-8")
    model = small()
    async with place.session(model) as session:
        spec = AgentSpec(
            id="a1", name="reader", kind="reader", system=("Read.",), tools=("Read",), memory=memory
        )
        agent = session.spawning(spec)
        await agent.run(user("read all of it"))
        assert find_last_boundary(agent.request.view)
        await agent.close()
    asked = [text(request) for request in model.requests if request.source == "agent:reader"]

    assert len(asked) == 9
    assert all(said.count("HOUSERULE") == 1 for said in asked)
    assert all(said.count("AGENTINDEX") == 1 for said in asked)


def looking(path: str) -> list[str | Message]:
    return [reads("r1", path), "seen", reads("r2", path), "seen again"]


async def test_an_agent_hears_what_the_folders_say_that_it_works_in(place: Place) -> None:
    model = ScriptedModel(looking("a/b/x.txt"))
    async with place.session(model) as session:
        agent = session.spawning(AgentSpec(id="a1", name="one", kind="one", tools=("Read",)))
        await agent.run(user("look"))
        assert "NESTEDRULE" not in text(model.requests[0])
        await agent.close()
        spec = AgentSpec(id="a1", name="one", kind="one", tools=("Read",), resumes=True)
        agent = session.spawning(spec)
        await agent.run(user("look again"))
        await agent.close()
        assert "NESTEDRULE" not in "\n".join(m.text for m in session.view.messages)
    for rule in ("NESTEDRULE", "TEXTRULE", "HOUSERULE"):
        assert [text(request).count(rule) for request in model.requests[1:]] == [1, 1, 1]


async def test_a_fork_hears_it_behind_the_bytes_of_its_parent(place: Place) -> None:
    model = ScriptedModel(["hello", *looking("a/b/x.txt")])
    async with place.session(model) as session:
        await session.ask("hi")
        before, length = encode_prefix(session.request), len(session.view)
        agent = session.spawning(AgentSpec(id="f1", name="f", kind="fork", on=session.request))
        await agent.run(user(write_directive("agent", "f1", "look around")))
        await agent.close()
        assert len(session.view) == length
        assert encode_prefix(session.request) == before
    assert model.seen[-1][: len(before)] == before
    for rule in ("NESTEDRULE", "TEXTRULE", "HOUSERULE"):
        assert text(model.requests[-1]).count(rule) == 1


async def test_a_fork_does_not_hear_again_what_its_parent_has_heard(place: Place) -> None:
    model = ScriptedModel([reads("r0", "a/b/x.txt"), "seen", *looking("a/b/x.txt")])
    async with place.session(model) as session:
        await session.ask("look")
        assert text(session.request).count("NESTEDRULE") == 1
        agent = session.spawning(AgentSpec(id="f1", name="f", kind="fork", on=session.request))
        await agent.run(user(write_directive("agent", "f1", "look around")))
        await agent.close()
    assert text(model.requests[-1]).count("NESTEDRULE") == 1
    assert text(model.requests[-1]).count("TEXTRULE") == 1


async def test_an_agent_in_a_work_tree_hears_what_the_project_says(place: Place, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "x.txt").write_text("the port is 9090\n", encoding="utf-8")
    model = ScriptedModel(looking("a/b/x.txt"))
    async with place.session(model) as session:
        spec = AgentSpec(id="a1", name="one", kind="one", tools=("Read",), folder=tree)
        agent = session.spawning(spec)
        await agent.run(user("look"))
        await agent.close()
    said = text(model.requests[-1])
    assert "9090" in str(model.requests[-1].view[-2].message) + str(model.requests[-1].view[-1])
    assert [said.count(rule) for rule in ("HOUSERULE", "NESTEDRULE", "TEXTRULE")] == [1, 1, 1]


async def test_nothing_is_marked_twice_in_an_agents_file(place: Place) -> None:
    model = ScriptedModel(looking("a/b/x.txt"))
    async with place.session(model) as session:
        agent = session.spawning(AgentSpec(id="a1", name="one", kind="one", tools=("Read",)))
        await agent.run(user("look"))
        known = agent.request.view.marks["instructions"]
        await agent.close()
    assert sorted(Path(path).name for path in known) == ["CLAUDE.md", "CLAUDE.md", "text.md"]
