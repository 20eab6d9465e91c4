"""A project in a throw-away folder, with the real tools over it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from sevenfold.core.events import Event
from sevenfold.core.messages import ToolResult, ToolUse
from sevenfold.testing import FakeClock
from sevenfold.tools.toolbox import Toolbox, make_standard_tools
from sevenfold.tools.workspace import Workspace

Run: TypeAlias = Callable[..., Awaitable[ToolResult]]


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
async def workspace(tmp_path: Path, project: Path) -> AsyncIterator[Workspace]:
    home = tmp_path / "home"
    home.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8"}
    made = Workspace(project, home, environment, tmp_path / "outputs", FakeClock())
    yield made
    await made.close()


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def toolbox(workspace: Workspace, events: list[Event]) -> Toolbox:
    """The standard tools, with everything allowed."""

    async def nobody_minds(use: ToolUse) -> str | None:
        return None

    return Toolbox(make_standard_tools(workspace), nobody_minds, events.append)


@pytest.fixture
def run(toolbox: Toolbox) -> Run:
    async def call(name: str, **args: Any) -> ToolResult:
        return await toolbox.call(ToolUse("u1", name, args))

    return call
