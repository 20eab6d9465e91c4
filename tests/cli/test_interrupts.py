"""Ctrl-C: the turn stops, what was said is kept, nothing is left running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from cli.world import World, is_running

from sevenfold.cli.input import TWICE, InterruptCounter
from sevenfold.core.request import find_open_uses

pytestmark = pytest.mark.real
PATIENCE = 60.0


class Minutes:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_second_one_in_a_short_time_means_leave() -> None:
    clock = Minutes()
    interrupts = InterruptCounter(clock)

    assert not interrupts.count_interrupt()
    clock.now += TWICE + 0.1
    assert not interrupts.count_interrupt()
    clock.now += TWICE - 0.1
    assert interrupts.count_interrupt()
    assert interrupts.leaving


def wait_for_event(process: subprocess.Popen[bytes], name: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["event"] == name:
            return
    raise AssertionError(f"{name} never happened")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_tool_that_never_ends_is_ended_and_answered(world: World, number: signal.Signals) -> None:
    command = f"sleep 98{number.value:03d}{os.getpid() % 1000}"
    process = world.start(
        *("-p", f"run `{command}`", "--allow", "Bash(sleep:*)", "--output-format", "stream-json")
    )
    with process:
        wait_for_event(process, "ToolStarted")
        deadline = time.monotonic() + PATIENCE
        while not is_running(command):
            assert time.monotonic() < deadline, "the tool did not start"
        os.killpg(process.pid, number)
        assert process.stdout is not None
        *_, last = process.stdout.read().splitlines()

        assert process.wait(PATIENCE) == 130

    answer = json.loads(last)
    assert (answer["event"], answer["stop"], answer["is_error"]) == ("Result", "interrupted", True)
    assert not is_running(command)
    view = world.transcript().view
    assert find_open_uses(view) == ()
    assert "interrupted" in view[-1].message.results[0].text
    assert world.run("-p", "hello", "--continue").code == 0


def test_in_text_mode_it_says_how_to_go_on(world: World) -> None:
    command = f"sleep 97{os.getpid()}"
    process = world.start("-p", f"run `{command}`", "--allow", "Bash(sleep:*)")
    with process:
        deadline = time.monotonic() + PATIENCE
        while not is_running(command):
            assert time.monotonic() < deadline, "the tool did not start"
        os.killpg(process.pid, signal.SIGINT)

        assert process.wait(PATIENCE) == 130
        assert process.stderr is not None
        said = process.stderr.read().decode()

    again = f"go on with: sevenfold chat --resume {world.transcripts[0].stem}"
    assert said.splitlines()[-1] == f"sevenfold: interrupted; {again}"


def test_before_anything_was_asked_it_just_ends(world: World) -> None:
    world.write("hook.sh", "sleep 1000\n")
    world.settings(
        {"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "sh hook.sh; :"}]}]}}
    )
    process = world.start("-p", "hi")
    with process:
        deadline = time.monotonic() + PATIENCE
        while not is_running("sh hook.sh"):
            assert time.monotonic() < deadline, "the hook did not start"
        os.killpg(process.pid, signal.SIGINT)

        assert process.wait(PATIENCE) == 130
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()
    assert not is_running("sh hook.sh")
    assert world.transcripts == []


def test_waiting_for_a_pipe_can_be_interrupted(world: World) -> None:
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "sevenfold", "-p", "hi"],
        stdin=read,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=world.env,
        cwd=world.project,
        start_new_session=True,
    )
    os.close(read)
    with process:
        assert process.stderr is not None
        said = process.stderr.readline()
        os.killpg(process.pid, signal.SIGINT)

        assert process.wait(PATIENCE) == 130
        assert b"waiting for what is piped in" in said
    os.close(write)


def test_an_interrupt_while_agents_are_waited_for_keeps_the_answer_and_says_so(world: World) -> None:
    words = ("-p", "in the background, run sleep 97", "--allow", "Bash(sleep:*)")
    process = world.start(*words, "--output-format", "stream-json")
    with process:
        wait_for_event(process, "Ended")
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout is not None
        *_, last = process.stdout.read().splitlines()
    answer = json.loads(last)
    assert process.returncode == 130
    assert answer["stop"] == "interrupted"
    assert answer["is_error"] is True
    assert answer["result"] != ""
    assert not is_running("sleep 97")
