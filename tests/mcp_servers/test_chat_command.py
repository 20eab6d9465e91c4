"""`.mcp.json` and `mcpServers`: what starts when a chat begins, and what waits for trust."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from cli.terminal import PROMPT, Terminal
from cli.world import World

pytestmark = pytest.mark.real
ODD = Path(__file__).with_name("odd_server.py")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def write_server(world: World, *words: str) -> Path:
    """A server of the project that leaves a file when it starts."""
    sign = world.top / "started"
    command = f"touch {sign}; exec {sys.executable} {ODD} {' '.join(words)}"
    entry = {"command": "/bin/sh", "args": ["-c", command]}
    (world.project / ".mcp.json").write_text(json.dumps({"mcpServers": {"odd": entry}}))
    return sign


def test_a_server_of_a_project_starts_after_trust_and_again_only_as_it_was(world: World) -> None:
    sign = write_server(world)
    ask = ("chat", "-p", "hello", "--model", "offline")
    before = world.run(*ask)
    assert (before.code, sign.exists()) == (0, False)
    assert "mcpServers.odd" in before.err
    assert "sevenfold trust" in before.err

    trusted = world.run("trust")
    assert str(ODD) in trusted.err

    assert world.run(*ask).code == 0
    assert sign.exists()

    sign.unlink()
    write_server(world, "redescribed")
    after = world.run(*ask)
    assert (after.code, sign.exists()) == (0, False)
    assert "is not as you trusted it" in after.err

    world.run("trust")
    assert "describes itself differently" not in world.run(*ask).err
    assert sign.exists()


def test_a_server_of_the_user_starts_in_every_project(world: World) -> None:
    sign = write_server(world)
    settings = (world.project / ".mcp.json").read_text()
    (world.project / ".mcp.json").unlink()
    world.home.mkdir()
    (world.home / "settings.json").write_text(settings)

    ran = world.run("chat", "-p", "hello", "--model", "offline")

    assert ran.code == 0
    assert sign.exists()


def test_no_file_of_the_project_sets_servers_of_the_user(world: World) -> None:
    sign = write_server(world)
    folder = world.project / ".sevenfold"
    folder.mkdir()
    (world.project / ".mcp.json").rename(folder / "settings.json")
    world.run("trust")
    ran = world.run("chat", "-p", "hello", "--model", "offline")

    assert not sign.exists()
    assert "a file of the project never sets it" in ran.err


def test_a_chat_asks_before_it_starts_a_server_of_the_project(world: World) -> None:
    sign = write_server(world)
    with Terminal(["chat", "--model", "offline"], world.env, world.project) as t:
        t.wait_for("mcpServers.odd", "args: touch", "Trust it? [y/N]")
        assert not sign.exists()
        t.line("y")
        t.wait_for("starting 1 MCP server: odd", PROMPT)
        assert sign.exists()
        t.line("/exit")
        assert t.wait_for_end() == 0
