"""What waits for extraction survives every end of a chat, and the next chat of the project takes it up."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.terminal import CTRL_C, CTRL_D, PROMPT, Terminal
from cli.world import World

from sevenfold.simulator import Script, parse_steps, run_in_thread

pytestmark = pytest.mark.real
SAID = "The audit of the accounts ends on 2026-12-01."


def send(number: int) -> Callable[[Terminal], object]:
    return lambda chat: os.killpg(chat.process.pid, number)


def press_twice(chat: Terminal) -> None:
    chat.press(CTRL_C)
    chat.press(CTRL_C)


ENDS = {
    "SIGHUP": send(signal.SIGHUP),
    "SIGTERM": send(signal.SIGTERM),
    "Ctrl-C twice": press_twice,
    "SIGKILL": send(signal.SIGKILL),
    "the window is closed": Terminal.hang_up,
}


def find_notes(world: World) -> list[Path]:
    return sorted(world.home.glob("projects/*/waiting/*.json"))


def list_memories(world: World) -> list[dict[str, object]]:
    listed = world.run("memory", "--json").json["memories"]
    assert isinstance(listed, list)
    return listed


def leave_words(world: World, end: Callable[[Terminal], object]) -> str:
    """A chat with a model that costs money, in which words wait; how it ends; returns its id."""
    script = Script(parse_steps('{"reply": {"text": "Understood."}}'))
    with run_in_thread(script=script) as sim:
        world.at(sim.url)
        with Terminal(["chat", "--model", "claude-sonnet-4-5"], world.env, world.project) as chat:
            chat.wait_for(PROMPT)
            chat.ask(SAID, "Understood.")
            assert "waits for extraction: 1 message of this session" in chat.ask("/tasks", "waits")
            end(chat)
            chat.process.wait(60)
    [path] = world.transcripts
    return path.stem


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_the_next_chat_takes_up_what_waits(world: World, end: Callable[[Terminal], object]) -> None:
    session = leave_words(world, end)
    [note] = find_notes(world)
    assert note.stem == session
    assert list_memories(world) == []

    with Terminal(["chat", "--model", "offline"], world.env, world.project) as chat:
        chat.wait_for("saved to memory", PROMPT)  # a key before the prompt is nobody's
        chat.press(CTRL_D)
        assert chat.wait_for_end() == 0

    assert find_notes(world) == []
    [saved] = list_memories(world)
    text = Path(str(saved["path"])).read_text(encoding="utf-8")
    assert session in text
    assert SAID.removesuffix(".") in text

    ran = world.run("chat", "--resume", session, "--model", "offline", "-p", "hello", "--json")
    assert ran.code == 0, "its transcript is whole, with a mark more"
