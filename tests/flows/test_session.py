"""A whole session on a real wire: our client, the simulator's port, real tools, real files."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import anyio.lowlevel
import pytest
from flows.wire import SteadySimulator

from sevenfold.core.errors import ContextFull, FromTheFuture, Mistake, Refused, SessionBusy, SessionNotFound
from sevenfold.core.events import CacheBroke, Closed, Event, Notice, Replied, Sending, Started, ToolStarted
from sevenfold.core.messages import Message, Text, Thinking, ToolUse, assistant, user
from sevenfold.core.protocols import Capabilities
from sevenfold.core.request import encode_prefix, has_paired_tools
from sevenfold.core.tokens import Calibration, Usage
from sevenfold.core.transcript import Mark, Reply, Transcript
from sevenfold.offline import encode_reply
from sevenfold.session.session import Session
from sevenfold.simulator import ManualClock, Simulator
from sevenfold.storage.jsonl import read_log
from sevenfold.testing import FakeClock, ScriptedModel
from sevenfold.testing.doubles import Line

pytestmark = pytest.mark.anyio
MODEL = "claude-sonnet-4-5"


class Place:
    """A project and a home of its own, and sessions in them."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.project, self.home = folder / "project", folder / "home"
        self.project.mkdir()
        (self.project / "config.toml").write_text("port = 8471\n", encoding="utf-8")
        self.environ = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "ANTHROPIC_API_KEY": "k"}
        if url:
            self.environ["ANTHROPIC_BASE_URL"] = url
        self.events: list[Event] = []

    @asynccontextmanager
    async def session(self, model: Any = MODEL, **options: Any) -> AsyncIterator[Session]:
        options.setdefault("environ", self.environ)
        async with Session(model, self.project, home=self.home, **options) as session:
            session.subscribe(self.events.append)
            yield session

    def of(self, kind: Callable[..., Any]) -> list[Any]:
        return [e for e in self.events if isinstance(e, kind)]  # type: ignore[arg-type]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[tuple[Place, Simulator]]:
    async with SteadySimulator(replies=encode_reply, clock=ManualClock()) as simulator:
        here = Place(tmp_path, simulator.url)
        simulator.events = here.events
        yield here, simulator


async def test_every_request_extends_the_one_before_on_the_wire(place: tuple[Place, Simulator]) -> None:
    here, simulator = place
    async with here.session() as session:
        await session.ask("read config.toml and tell me which port is used")
        await session.ask("run `ls`")
        await session.ask("what is the port?")

    rows = list(simulator.ledger.rows)
    assert len(rows) == 5
    for row in rows[1:]:
        assert row.shared is not None
        assert row.shared.diverged is None
        assert row.shared.blocks == row.shared.of_blocks
    for before, after in pairwise(rows):
        written = before.tokens.cache_write_5m + before.tokens.cache_read
        assert after.tokens.cache_read == written, "all that was cached is read again"
    assert here.of(CacheBroke) == []


async def test_a_resumed_session_sends_the_same_bytes_and_reads_the_same_cache(
    place: tuple[Place, Simulator],
) -> None:
    here, simulator = place
    async with here.session() as session:
        await session.ask("read config.toml")
        before, id = encode_prefix(session.request), session.id
    async with here.session(resume=id) as session:
        assert encode_prefix(session.request) == before
        await session.ask("what is the port?")

    last = simulator.ledger.rows[-1]
    assert last.shared is not None
    assert last.shared.diverged is None
    assert last.hit_rate > 0.95
    assert [s.source for s in here.of(Started)] == ["startup", "resume"]
    assert all(s.lost == 0 for s in here.of(Sending))


async def test_resuming_with_another_model_says_what_it_costs_before_it_is_sent(
    place: tuple[Place, Simulator],
) -> None:
    here, _ = place
    async with here.session() as session:
        await session.ask("read config.toml")
        id = session.id
    async with here.session("claude-haiku-4-5", resume=id) as session:
        await session.ask("what is the port?")

    last = here.of(Sending)[-1]
    assert last.why == "the model changed from claude-sonnet-4-5 to claude-haiku-4-5"
    assert last.lost > 1_000
    assert last.cost > 0


async def test_a_model_changed_in_the_middle_is_announced_too(place: tuple[Place, Simulator]) -> None:
    here, _ = place
    async with here.session() as session:
        await session.ask("read config.toml")
        session.use_model("claude-haiku-4-5")
        reply = await session.ask("what is the port?")
        id = session.id
    async with here.session(None, resume=id) as session:
        assert session.model.name == "claude-haiku-4-5"

    assert reply.model == "claude-haiku-4-5"
    assert "the model changed" in here.of(Sending)[-1].why


async def test_a_cold_cache_is_announced_before_it_is_paid_for(place: tuple[Place, Simulator]) -> None:
    here, simulator = place
    clock = FakeClock(2_000_000_000.0)
    async with here.session(clock=clock) as session:
        await session.ask("read config.toml")
        clock.time += 301
        simulator.api.clock.advance(301)  # type: ignore[attr-defined]
        await session.ask("what is the port?")

    assert here.of(Sending)[-1].why == "idle for 5 min, kept for 5 min"
    assert [b.why for b in here.of(CacheBroke)] == ["idle for 5 min, kept for 5 min"]


async def test_the_price_of_each_reply_is_the_simulators(place: tuple[Place, Simulator]) -> None:
    here, simulator = place
    async with here.session() as session:
        await session.ask("read config.toml")

    ours = [event.cost for event in here.of(Replied)]
    assert ours == pytest.approx([row.cost for row in simulator.ledger.rows])


# --- on a scripted model -----------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def test_nothing_is_written_before_something_is_said(here: Place) -> None:
    async with here.session(ScriptedModel([])):
        pass
    assert not here.home.exists()


async def test_where_we_are_is_said_once_and_what_has_changed_again(here: Place) -> None:
    clock = FakeClock(1_790_000_000.0)
    async with here.session(ScriptedModel(["a", "b", "c"]), clock=clock) as session:
        await session.ask("one")
        await session.ask("two")
        clock.time += 86_400
        await session.ask("three")
        said = [p.message.text for p in session.view if p.by == "session"]

    assert len(said) == 2
    assert f"Working folder: {here.project}" in said[0]
    assert "This has changed:\nDate: " in said[1]
    assert "Working folder" not in said[1]


def git(*words: str, cwd: Path) -> None:
    command = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *words]
    subprocess.run(command, cwd=cwd, check=True, capture_output=True)


@pytest.mark.real
async def test_in_a_worktree_the_branch_is_its_own_and_a_move_is_said(here: Place) -> None:
    git("init", "-q", "-b", "main", cwd=here.project)
    git("commit", "-q", "--allow-empty", "-m", "x", cwd=here.project)
    git("worktree", "add", "-q", "-b", "feature", "../tree", cwd=here.project)
    async with here.session(ScriptedModel(["a"])) as session:
        await session.ask("one")
        id = session.id
    tree = here.project.parent / "tree"
    async with Session(
        ScriptedModel(["b"]), tree, home=here.home, resume=id, environ=here.environ
    ) as session:
        await session.ask("two")
        said = [p.message.text for p in session.view if p.by == "session"]

    assert "Git branch: main" in said[0]
    assert "Git branch: feature" in said[1]
    assert f"Working folder: {tree}" in said[1]


async def test_stopping_a_turn_leaves_the_view_whole_and_the_session_usable(here: Place) -> None:
    forever = assistant(ToolUse("1", "Bash", {"command": "sleep 600"}))
    settings = {"permissions": {"allow": ["Bash(sleep:*)"]}}
    async with here.session(ScriptedModel([forever, "ok"]), settings=settings) as session:
        session.subscribe(lambda e: session.stop() if isinstance(e, ToolStarted) else None)
        reply = await session.ask("wait")
        assert reply.stop == "interrupted"
        assert has_paired_tools(session.view)
        assert not session.stop(), "nothing is running any more"
        assert (await session.ask("go on")).message.text == "ok"


async def test_a_refused_tool_says_which_rule_would_allow_it(here: Place) -> None:
    model = ScriptedModel([assistant(ToolUse("1", "Bash", {"command": "touch x"})), "ok"])
    async with here.session(model) as session:
        await session.ask("go")
        [result] = next(p.message.results for p in session.view if p.message.results)

    assert result.is_error
    assert "--allow 'Bash(touch x)'" in result.text
    assert not (here.project / "x").exists()


async def test_a_rule_about_a_tool_that_is_not_there_is_said(here: Place) -> None:
    settings = {"permissions": {"deny": ["Bsh"], "allow": ["mcp__x__y", "WebFetch"]}}
    async with here.session(ScriptedModel([]), settings=settings):
        pass

    [notice] = here.of(Notice)
    assert "no tool is called Bsh; did you mean Bash?" in notice.text


async def test_a_transcript_from_the_future_is_not_touched(here: Place) -> None:
    async with here.session(ScriptedModel(["a"])) as session:
        await session.ask("one")
        path, id = session.path, session.id
    later = path.read_bytes().replace(b'"format":1', b'"format":2')
    path.write_bytes(later)
    with pytest.raises(FromTheFuture, match=rf"{path}: .*upgrade"):
        async with here.session(ScriptedModel([]), resume=id):
            pass
    assert path.read_bytes() == later


async def test_a_session_that_is_not_there_is_said(here: Place) -> None:
    with pytest.raises(SessionNotFound, match="sevenfold sessions"):
        async with here.session(ScriptedModel([]), resume="20260101-nothing"):
            pass


async def test_two_sessions_on_one_transcript_are_refused(here: Place) -> None:
    async with here.session(ScriptedModel(["a"])) as session:
        await session.ask("one")
        with pytest.raises(SessionBusy):
            async with here.session(ScriptedModel([]), resume=session.id):
                pass


async def test_a_torn_transcript_is_mended_and_said(here: Place) -> None:
    async with here.session(ScriptedModel(["a"])) as session:
        await session.ask("one")
        path, id = session.path, session.id
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"id":99,"at":1.0,"what":{"type":"mess')
    async with here.session(ScriptedModel([]), resume=id) as session:
        assert [p.message.text for p in session.view if p.by in ("user", "model")] == ["one", "a"]

    assert path.read_bytes() == whole
    assert ["torn" in notice.text for notice in here.of(Notice)] == [True]
    assert path.with_name(f"{path.name}.torn").exists()


async def test_a_window_too_small_for_the_system_prompt_is_said(here: Place) -> None:
    able = Capabilities(window=1_000, max_output=100)
    async with here.session(ScriptedModel([], able)) as session:
        with pytest.raises(ContextFull, match="larger window"):
            await session.ask("hello")
        assert read_log(session.path), "what was said is kept"


@pytest.mark.parametrize("nothing", ["", "  \n", Message("user", ())])
async def test_nothing_cannot_be_asked_and_spoils_nothing(
    place: tuple[Place, Simulator], nothing: str | Message
) -> None:
    at, _ = place
    async with at.session() as session:
        with pytest.raises(Mistake, match="nothing to ask"):
            await session.ask(nothing)
        assert (await session.ask("hello")).message.text


async def test_a_message_that_can_never_fit_is_refused_before_it_is_written(here: Place) -> None:
    async with here.session(ScriptedModel(["fine"])) as session:
        with pytest.raises(ContextFull, match="put it into a file"):
            await session.ask("word " * 200_000)
        assert (await session.ask("hello")).message.text == "fine"


async def test_a_session_that_is_not_open_says_how_to_open_it(here: Place) -> None:
    session = Session(ScriptedModel([]), here.project, home=here.home, environ=here.environ)
    with pytest.raises(Mistake, match="async with"):
        await session.ask("hello")


async def test_a_block_limit_that_is_too_low_is_named(here: Place) -> None:
    settings = {"blockLimit": 1_000}
    async with here.session(ScriptedModel([]), settings=settings) as session:
        with pytest.raises(ContextFull, match="blockLimit"):
            await session.ask("hello")


async def test_a_tool_of_ones_own_is_called(here: Place) -> None:
    class Dice:
        name = "Dice"
        schema: ClassVar = {"name": "Dice", "description": "Rolls.", "input_schema": {"type": "object"}}

        def safe(self, args: dict[str, Any]) -> bool:
            return True

        async def run(self, args: dict[str, Any], use_id: str) -> str:
            return "six"

    model = ScriptedModel([assistant(ToolUse("1", "Dice", {})), "you rolled a six"])
    settings = {"permissions": {"allow": ["Dice"]}}
    async with here.session(model, tools=[Dice()], settings=settings) as session:
        await session.ask("roll")
        assert any(r.text == "six" for p in session.view for r in p.message.results)
    assert model.requests[0].frame.tools[-1]["name"] == "Dice"


async def test_a_second_question_while_a_turn_runs_is_refused(here: Place) -> None:
    refused: list[str] = []
    async with here.session(ScriptedModel(["a", "b"], pause=0.01)) as session:

        async def too_early() -> None:
            try:
                await session.ask("two")
            except Refused as error:
                refused.append(str(error))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.ask, "one")
            await anyio.lowlevel.checkpoint()
            tasks.start_soon(too_early)
        assert [p.message.text for p in session.view if p.by == "user"] == ["one"]

    assert "a turn is running" in refused[0]


async def test_a_close_that_fails_lets_go_of_the_transcript(here: Place) -> None:
    def broken(event: Event) -> None:
        if isinstance(event, Closed):
            raise BrokenPipeError("nobody listens")

    async with here.session(ScriptedModel(["a"])) as session:
        await session.ask("one")
        id = session.id
    with pytest.raises(BrokenPipeError):
        async with here.session(ScriptedModel([]), resume=id) as session:
            session.subscribe(broken)
    async with here.session(ScriptedModel(["b"]), resume=id) as session:
        assert (await session.ask("two")).message.text == "b"


async def test_another_model_inherits_no_calibration_no_limit_and_no_bound_thinking(
    place: tuple[Place, Simulator],
) -> None:
    at, _ = place
    async with at.session("claude-sonnet-5-5") as session:
        session.turn.transcript.add(
            user("x"),
            Reply(assistant(Thinking("t", "sig"), Text("a")), Usage(input=9)),
            Mark("calibration", {"tt": 9_000.0, "ty": 18_000.0}),
        )
        assert session.view.calibration.factors[0] > 1
        session.use_model("claude-opus-5-5")
        assert session.view.calibration == Calibration()
        assert session.turn.max_tokens == 16_000
        session.use_model("claude-3-5-haiku")
        assert session.turn.max_tokens == 0, "all it has is less than what we ask for first"

    thinking = [b for p in session.view for b in p.message.content if isinstance(b, Thinking)]
    assert thinking == []


async def test_tools_that_came_or_went_since_are_named_on_resume(here: Place) -> None:
    async with here.session(ScriptedModel(["a"])) as session:
        await session.ask("one")
        path, id = session.path, session.id
    path.write_bytes(path.read_bytes().replace(b'"name":"Glob"', b'"name":"Telescope"'))
    async with here.session(ScriptedModel(["b"]), resume=id) as session:
        await session.ask("two")

    said = [notice.text for notice in here.of(Notice)]
    assert any("began without Glob" in text for text in said)
    assert any("had Telescope" in text for text in said)


# --- hooks -------------------------------------------------------------------------------------------


def hooks(**events: str) -> dict[str, Any]:
    entry = {name: [{"hooks": [{"type": "command", "command": c}]}] for name, c in events.items()}
    return {"hooks": entry}


async def test_what_hooks_add_is_stored_and_replayed_on_resume(here: Place) -> None:
    settings = hooks(SessionStart="echo we test with tox", UserPromptSubmit="echo it is raining")
    async with here.session(ScriptedModel(["a"]), settings=settings) as session:
        await session.ask("one")
        said, id = [p.message.text for p in session.view if p.by == "hooks"], session.id
    stored = Transcript.load(read_log(session.path), lambda: 0.0)

    assert ["tox" in said[0], "raining" in said[1]] == [True, True]
    assert [p.message.text for p in stored.view if p.by == "hooks"] == said
    async with here.session(ScriptedModel([]), resume=id) as session:
        assert [p.message.text for p in session.view if p.by == "hooks"] == said


async def test_a_hook_may_refuse_a_prompt(here: Place) -> None:
    settings = hooks(UserPromptSubmit="echo not today >&2; exit 2")
    async with here.session(ScriptedModel([]), settings=settings) as session:
        with pytest.raises(Refused, match="not today"):
            await session.ask("one")
        assert len(session.view) == 0


async def test_a_stop_hook_sends_the_model_back_to_work_at_most_eight_times(here: Place) -> None:
    settings = hooks(Stop="echo the tests still fail >&2; exit 2")
    model = ScriptedModel([f"reply {i}" for i in range(20)])
    async with here.session(model, settings=settings) as session:
        await session.ask("fix it")
        said = [p.message.text for p in session.view if p.by == "hooks"]

    assert len(model.requests) == 9
    assert len(said) == 8
    assert all("the tests still fail" in text for text in said)


async def test_stopping_also_stops_a_hook_that_hangs(here: Place) -> None:
    settings = hooks(UserPromptSubmit="sleep 60")
    async with (
        here.session(ScriptedModel([]), settings=settings) as session,
        anyio.create_task_group() as tasks,
    ):

        async def stop() -> None:
            await anyio.sleep(0.1)
            session.stop()

        tasks.start_soon(stop)
        reply = await session.ask("one")

    assert reply.stop == "interrupted"


async def test_what_a_hook_allows_counts_for_that_call_only(here: Place) -> None:
    allow = '{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}'
    matcher = {"matcher": "Read", "hooks": [{"type": "command", "command": f"echo '{allow}'"}]}
    script: list[Line] = [
        assistant(ToolUse("same", "Read", {"wrong": "input"})),
        assistant(ToolUse("same", "Bash", {"command": "touch owned"})),
        "done",
    ]
    settings = {"hooks": {"PreToolUse": [matcher]}}
    async with here.session(ScriptedModel(script), settings=settings) as session:
        await session.ask("go")

    assert not (here.project / "owned").exists()


async def test_a_message_may_be_more_than_text(here: Place) -> None:
    model = ScriptedModel(["a"])
    async with here.session(model) as session:
        await session.ask(Message("user", (Text("look: \ud800 half a character"),)))
        await anyio.lowlevel.checkpoint()
    assert model.requests[0].view[-1].message == user("look: ? half a character")


async def test_what_is_no_tool_is_a_mistake_that_says_what_it_lacks(tmp_path: Path) -> None:
    made: Any = object()
    session = Session("offline", tmp_path, home=tmp_path / "home", environ={}, tools=[made])

    with pytest.raises(Mistake, match=r"is no tool, it lacks name, schema, safe, run: a tool has"):
        async with session:
            pass
