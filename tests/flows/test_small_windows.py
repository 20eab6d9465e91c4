"""Sessions in small windows: one look at something large must not fill them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sevenfold import Session, Text, ToolUse
from sevenfold.core.events import Compacted, Event
from sevenfold.core.messages import Message, assistant
from sevenfold.core.protocols import Capabilities
from sevenfold.core.request import Request
from sevenfold.testing import ScriptedModel

pytestmark = pytest.mark.anyio
LINES = "".join(f"line {i} of a file that is larger than the window\n" for i in range(1_900))
READ = ToolUse("t1", "Read", {"file_path": "big.txt"})
BASH = ToolUse("t1", "Bash", {"command": "head -c 29000 big.txt"})


class Looking:
    """Looks at something once, and remembers what it saw of it."""

    def __init__(self, use: ToolUse) -> None:
        self._use = use
        self.saw = ""

    def __call__(self, request: Request) -> str | Message:
        if request.source != "main":
            return "nothing to say"
        if results := request.view[-1].message.results:
            self.saw = results[0].text
            return "done"
        if any(placed.message.tool_uses for placed in request.view):
            return "it is gone"
        return assistant(Text("I look."), self._use)


@pytest.mark.parametrize("window", [8_000, 32_000])
@pytest.mark.parametrize("use", [READ, BASH], ids=lambda use: use.name)
async def test_the_model_sees_how_something_large_begins(tmp_path: Path, window: int, use: ToolUse) -> None:
    project, looking = tmp_path / "project", Looking(use)
    project.mkdir()
    (project / "big.txt").write_text(LINES, encoding="utf-8")
    model = ScriptedModel([looking] * 20, Capabilities(window=window, max_output=2_000))
    options: dict[str, Any] = {"environ": {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}}
    settings = {"permissions": {"mode": "bypassPermissions"}, "flags": {"notes": False}}
    events: list[Event] = []
    async with Session(model, project, home=tmp_path / "home", settings=settings, **options) as s:
        s.subscribe(events.append)
        reply = await s.ask("look at big.txt")

    assert reply.message.text == "done"
    assert "line 0 of a file" in looking.saw
    assert "offset" in looking.saw, "and how to see more"
    assert not [event for event in events if isinstance(event, Compacted)]
    assert len([r for r in model.requests if r.source == "main"]) == 2


@pytest.mark.parametrize("interactive", [False, True])
@pytest.mark.parametrize("window", [8_000, 32_000, 128_000])
async def test_hello_starts_no_work_in_the_background(
    tmp_path: Path, window: int, interactive: bool
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "CLAUDE.md").write_text("Use tabs, never spaces.\n" * (window // 200), encoding="utf-8")
    model = ScriptedModel(["Hello, how can I help?"] * 4, Capabilities(window=window, max_output=2_000))
    known: dict[str, Any] = {"environ": {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}}
    for word in ("Hello", "Thanks!"):  # the next session does not take up the word of the first, either
        async with Session(
            model, project, home=tmp_path / "home", interactive=interactive, **known
        ) as session:
            await session.ask(word)

    assert [request.source for request in model.requests] == ["main", "main"]


@pytest.mark.parametrize("one_shot", [False, True])
async def test_a_session_that_is_asked_once_takes_no_notes(tmp_path: Path, one_shot: bool) -> None:
    project = tmp_path / "project"
    project.mkdir()
    model = ScriptedModel(["Hello, how can I help?"] * 4, Capabilities(window=32_000))
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    known: dict[str, Any] = {"environ": environ, "settings": {"notes": {"firstAt": 1}}}
    async with Session(model, project, home=tmp_path / "home", one_shot=one_shot, **known) as session:
        await session.ask("Hello")
        await session.tray.drain(10)

    sources = [request.source for request in model.requests]
    assert sources[0] == "main"
    assert ("fork:notes" in sources) == (not one_shot)


@pytest.mark.parametrize(
    ("model", "said", "windows"),
    [
        ("claude-sonnet-4-5", {"window": 60_000}, 60_000),
        ("claude-sonnet-4-5", {"window": 900_000}, 200_000),
        ("claude-sonnet-4-5", {"prices": "prices.toml"}, 50_000),
        ("claude-sonnet-4-5", {"prices": "prices.toml", "window": 40_000}, 40_000),
        ("offline", {"window": 60_000}, 60_000),
        ("anthropic:mine", {"betas": ["context-1m-2025-08-07"]}, 1_000_000),
        ("anthropic:mine", {"window": 60_000}, 60_000),
    ],
)
async def test_what_the_user_says_about_a_window_steers_where_things_happen(
    tmp_path: Path, model: str, said: dict[str, Any], windows: int
) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    table = '[models."claude-sonnet-4-5"]\nwindow = 50000\nmax_output = 4000\n'
    (home / "prices.toml").write_text(table, encoding="utf-8")
    (home / "settings.json").write_text(json.dumps(said), encoding="utf-8")
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "ANTHROPIC_API_KEY": "k"}
    environ["ANTHROPIC_BASE_URL"] = "http://127.0.0.1:9"
    async with Session(model, project, home=home, environ=environ) as session:
        assert session.turn.thresholds.window == windows
        assert session.model.capabilities.window == windows
        assert session.tools.workspace.window == windows
        assert session.turn.thresholds.auto_compact < windows
        asked = list(session.turn.frame.params.get("betas", ()))
        assert asked == said.get("betas", [])
