"""Whole sessions that dream: by themselves, on a real wire, by hand, stopped, and after midnight."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from flows.test_session import MODEL, Place
from flows.wire import SteadySimulator
from layers.l6_dreaming.sleeping import DAY, NOTHING_GONE, calling, directive, read, topic, write, write_log

from sevenfold.core.events import CacheBroke, Failed, Forked, Progress
from sevenfold.core.messages import Json, Message, Text, assistant
from sevenfold.core.request import Request
from sevenfold.layers.l6_dreaming.dreaming import Dreaming
from sevenfold.layers.l6_dreaming.progress import read_last_snapshot
from sevenfold.memory.store import MemoryStore
from sevenfold.session.session import Session
from sevenfold.simulator import ManualClock
from sevenfold.testing import FakeClock, ScriptedModel
from sevenfold.testing.doubles import Line

pytestmark = pytest.mark.anyio
TABS = "Indent with tabs, never with spaces."
RIG = "The test rig stands in room 4.12."


class Dreamy(Place):
    """A project with memories, and sessions enough since the last dream."""

    def __init__(self, folder: Path, url: str = "") -> None:
        super().__init__(folder, url)
        self.memory = Path()

    @asynccontextmanager
    async def session(self, model: Any = MODEL, **options: Any) -> AsyncIterator[Session]:
        """Somebody sits in front of it; what it learns from what is said is looked at elsewhere."""
        flags = {"extraction": False, **options.setdefault("settings", {}).get("flags", {})}
        options["settings"] = {**options["settings"], "flags": flags}
        async with super().session(model, **{"interactive": True, **options}) as session:
            yield session

    async def open_once(self) -> Path:
        async with self.session(ScriptedModel()) as session:
            store = session.knowledge.store
            assert store is not None
            self.memory = store.path_of()
        self.memory.mkdir(parents=True, exist_ok=True)
        for number in range(5):
            (self.memory.parent / f"earlier-{number}.jsonl").write_text("{}\n", encoding="utf-8")
        return self.memory

    def save(self, name: str, about: str, body: str, type: str = "project") -> None:
        text = topic(name, about, body, type)
        (self.memory / f"{name}.md").write_text(text, encoding="utf-8")

    def texts(self) -> str:
        return "\n".join(path.read_text("utf-8") for path in self.memory.rglob("*.md"))


@pytest.fixture
async def place(tmp_path: Path) -> Dreamy:
    here = Dreamy(tmp_path)
    await here.open_once()
    here.save("tabs", "Indent with tabs", TABS, "feedback")
    here.save("tabs-too", "Indent with tabs", TABS, "feedback")
    here.save("rig", "Where the rig is", RIG, "reference")
    return here


def layer_of(session: Session) -> Dreaming:
    return next(one for one in session.turn.layers.rest if isinstance(one, Dreaming))


class TwoMinds:
    """A model that says one thing to the person and another in its dreams, whatever comes first."""

    def __init__(self, *dream: Line) -> None:
        self._dream = list(dream)
        self.model = ScriptedModel(iter(lambda: self.reply, None))

    def reply(self, request: Request) -> Message:
        if request.source != "fork:dream":
            return assistant(Text("Good evening."))
        line = self._dream.pop(0)
        if isinstance(line, Exception):
            raise line
        said = line(request) if callable(line) else line
        assert isinstance(said, str | Message)
        return assistant(Text(said)) if isinstance(said, str) else said

    @property
    def dreams(self) -> list[Request]:
        return [one for one in self.model.requests if one.source == "fork:dream"]


MERGE: list[Line] = [
    read("tabs.md", "tabs-too.md"),
    write(tabs_too=""),
    '{"gone": [{"what": "tabs-too.md", "why": "merged", "by": "tabs.md", "evidence": "tabs.md"}]}',
]


async def test_a_session_at_rest_dreams_and_the_person_is_told_what_came_of_it(place: Dreamy) -> None:
    mind = TwoMinds(*MERGE)
    async with place.session(mind.model) as session:
        await session.ask("Good evening!")
        assert "Dreaming" in session.tray.running
    assert not (place.memory / "tabs-too.md").exists()
    assert TABS in place.texts()
    assert RIG in place.texts()
    done = [event for event in place.of(Progress) if event.by == "dream" and event.done]
    assert [event.said for event in done] == [
        "dreamt: 1 merged, MEMORY.md, tabs-too.md (/dream undo takes it back)"
    ]
    store = session.knowledge.store
    assert isinstance(store, MemoryStore)
    newest = store.history(limit=1)[0]
    assert (newest.author.kind, newest.author.session) == ("dream", session.id)

    mind = TwoMinds()
    async with place.session(mind.model) as session:
        await session.ask("Good morning!")
    assert mind.dreams == [], "a day has not passed"
    assert place.of(Failed) == []


async def test_a_dream_writes_nothing_into_the_conversation(place: Dreamy) -> None:
    mind = TwoMinds(*MERGE)
    async with place.session(mind.model) as session:
        await session.ask("Good evening!")
        await session.tray.drain(30)
        said = [placed.message.text for placed in session.view]
    assert not any("directive" in text for text in said)
    assert said[-1] == "Good evening."


async def test_with_the_flag_off_nothing_dreams(place: Dreamy) -> None:
    mind = TwoMinds()
    async with place.session(mind.model, settings={"flags": {"dream": False}}) as session:
        await session.ask("Good evening!")
        assert not any(isinstance(one, Dreaming) for one in session.turn.layers.rest)
    assert mind.dreams == []


async def test_where_nobody_sits_in_front_of_it_nothing_dreams_unless_it_is_set(place: Dreamy) -> None:
    mind = TwoMinds()
    async with place.session(mind.model, interactive=False) as session:
        await session.ask("Good evening!")
    assert mind.dreams == []
    mind = TwoMinds(NOTHING_GONE)
    settings = {"dream": {"nonInteractive": True}}
    async with place.session(mind.model, interactive=False, settings=settings) as session:
        await session.ask("Good evening!")
    assert len(mind.dreams) == 1


async def test_without_a_model_the_offline_engine_dreams_by_rule(place: Dreamy) -> None:
    async with place.session("offline") as session:
        await session.ask("hello there")
    left = [path.name for path in place.memory.glob("tabs*.md")]
    assert len(left) == 1
    assert TABS in place.texts()
    assert RIG in place.texts()
    assert place.of(Forked) == []


class Haste(Exception):
    """Somebody leaves and does not want to wait."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session


async def test_a_session_that_ends_in_haste_leaves_everything_as_it_was(place: Dreamy) -> None:
    began = anyio.Event()

    def stuck(request: Request) -> Message:
        began.set()
        return calling(("Bash", {"command": "tail -f {staged}/rig.md"}))(request)

    before = {path.name: path.read_text("utf-8") for path in place.memory.glob("*.md")}
    mind = TwoMinds(stuck, NOTHING_GONE)

    async def hastily() -> Session:
        async with place.session(mind.model) as session:
            await session.ask("Good evening!")
            await began.wait()
            raise Haste(session)

    with pytest.raises(Haste) as raised:
        await hastily()
    session = raised.value.session
    assert all((place.memory / file).read_text("utf-8") == text for file, text in before.items())
    assert not (place.memory / ".consolidate-lock").exists(), "as if it had never begun"
    store = session.knowledge.store
    assert store is not None
    known = read_last_snapshot(store.local)
    assert known is not None
    assert known.status == "killed"
    assert list((store.local / "dreams").glob("*")) == []

    mind = TwoMinds(*MERGE)
    async with place.session(mind.model) as session:
        await session.ask("Again!")
    assert len(mind.dreams) == 3, "the next session tries again"


async def test_hooks_of_the_user_see_what_a_dream_does(place: Dreamy, tmp_path: Path) -> None:
    seen = tmp_path / "seen.txt"
    hook = {"type": "command", "command": f"cat >> {seen}"}
    settings = {"hooks": {"PreToolUse": [{"matcher": "Read", "hooks": [hook]}]}}
    mind = TwoMinds(read("rig.md"), NOTHING_GONE)
    async with place.session(mind.model, settings=settings) as session:
        await session.ask("Good evening!")
    assert "/staged/rig.md" in seen.read_text("utf-8")


async def test_in_assistant_mode_the_first_rest_of_a_day_distils_the_log_of_the_day_before(
    place: Dreamy,
) -> None:
    clock = FakeClock(1_900_000_000.0)
    write_log(place.memory, "Ada prefers short answers.", clock.time)
    new = topic("short", "Ada wants short answers", "Ada prefers short answers.", "user")
    mind = TwoMinds(write(short=new), NOTHING_GONE)
    options: dict[str, Any] = {"settings": {"assistantMode": True}, "clock": clock}
    async with place.session(mind.model, **options) as session:
        await session.ask("Good evening!")
        await session.tray.drain(30)
        assert mind.dreams == [], "the day is not over"
        clock.time += DAY
        await session.ask("Good morning!")
        await session.tray.drain(30)
        assert "short answers" in (place.memory / "short.md").read_text("utf-8")
        assert "the newest: 2030-03" in directive(mind.dreams[0])
        await session.ask("Anything new?")
        await session.tray.drain(30)
    assert len(mind.dreams) == 2


async def test_in_assistant_mode_the_prompt_names_the_pattern_of_the_log_and_no_date(place: Dreamy) -> None:
    clock = FakeClock(1_900_000_000.0)
    options: dict[str, Any] = {"settings": {"assistantMode": True}, "clock": clock}
    async with place.session(TwoMinds().model, **options) as session:
        await session.ask("Good evening!")
        rules = session.turn.frame.system[-1]
        assert f"{place.memory}/logs/YYYY/MM/YYYY-MM-DD.md" in rules
        assert "Saving takes two steps" not in rules
        assert "2030" not in "".join(session.turn.frame.system)
        clock.time += DAY
        await session.ask("Good morning!")
        said = [placed.message.text for placed in session.view if "This has changed" in placed.message.text]
    assert len(said) == 1
    assert "Date: 2030-03-18" in said[0]


# --- on a real wire -------------------------------------------------------------------------------------


def dreaming(body: Json) -> Any:
    """On the wire: the person gets a word, the dream reads, writes and accounts for what is gone."""
    texts = [
        block.get("text", "")
        for message in body["messages"]
        for block in message["content"]
        if block["type"] == "text"
    ]
    asked = next((text for text in texts if text.startswith('<directive kind="dream"')), None)
    if asked is None:
        return [{"type": "text", "text": "Good evening. " * 40}]
    folder = next(line.strip() for line in asked.splitlines() if line.strip().endswith("/staged"))
    answered = sum(
        block["type"] == "tool_result" for message in body["messages"] for block in message["content"]
    )
    if answered == 0:
        return [_use("Read", n, file_path=f"{folder}/{n}.md") for n in ("tabs", "tabs-too")]
    if answered == 2:
        return [_use("Write", "gone", file_path=f"{folder}/tabs-too.md", content="")]
    return [{"type": "text", "text": str(MERGE[-1])}]


def _use(name: str, id: str, **args: str) -> Json:
    return {"type": "tool_use", "id": f"toolu_{id}", "name": name, "input": args}


async def test_on_the_wire_every_request_of_a_dream_reads_what_its_parent_had_cached(
    tmp_path: Path,
) -> None:
    async with SteadySimulator(replies=dreaming, clock=ManualClock()) as simulator:
        place = Dreamy(tmp_path, simulator.url)
        simulator.events = place.events
        await place.open_once()
        place.save("tabs", "Indent with tabs", TABS, "feedback")
        place.save("tabs-too", "Indent with tabs", TABS, "feedback")
        async with place.session(settings={"dream": {"leastRequests": 0}}) as session:
            await session.ask("Good evening! " * 50)
        rows = list(simulator.ledger.rows)
    parent, *forks = rows
    assert len(forks) == 3
    cached = parent.tokens.cache_read + parent.tokens.cache_write_5m + parent.tokens.cache_write_1h
    assert cached > 2_000
    for row in forks:
        assert row.tokens.cache_read >= 0.99 * cached
        cached = row.tokens.cache_read + row.tokens.cache_write_5m
    assert place.of(CacheBroke) == []
    assert not (place.memory / "tabs-too.md").exists()
    assert session.ledger.accounts["fork:dream"].requests == 3
