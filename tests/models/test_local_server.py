"""What a real llama.cpp does when it is killed, fed too much or given a broken file, and what we say."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest
from kit import FRAME
from llama import LETTER, Talk, talking, weights_or_fail
from msgspec.structs import replace

from sevenfold.core.errors import ModelFailure, ModelNotFound, PromptTooLong, Unreachable
from sevenfold.core.events import Retrying
from sevenfold.core.messages import user
from sevenfold.core.request import Request
from sevenfold.core.transcript import Transcript

pytestmark = [pytest.mark.anyio, pytest.mark.real, pytest.mark.xdist_group("llama")]


def kill(talk: Talk, how: signal.Signals = signal.SIGABRT) -> None:
    assert talk.model.pid is not None
    os.kill(talk.model.pid, how)


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def drained(stream: AsyncIterator[object]) -> None:
    async for _ in stream:
        pass


async def test_nothing_runs_before_the_first_request_and_nothing_after_the_end() -> None:
    async with talking(weights_or_fail()) as talk:
        assert talk.model.pid is None
        await talk.say("Hello.")
        pid = talk.model.pid
        assert pid is not None
        assert lives(pid)
    assert talk.model.pid is None
    assert not lives(pid)


async def test_a_server_that_was_killed_is_started_again_by_the_next_request() -> None:
    async with talking(weights_or_fail()) as talk:
        await talk.say("Hello.")
        kill(talk)
        assert (await talk.say("Are you there?")).prompt > 0


async def test_a_start_that_is_interrupted_leaves_nothing_and_can_be_made_again() -> None:
    async with talking(weights_or_fail()) as talk:
        with anyio.move_on_after(0.02) as scope:
            await talk.say("Hello.")
        assert scope.cancelled_caught
        assert talk.model.pid is None
        assert (await talk.say("Hello again.")).prompt > 0


STARTS = """
import os, sys
from pathlib import Path
import anyio
from sevenfold.models.local import LlamaProcess

async def main():
    running = await LlamaProcess.start(Path(sys.argv[1]), "local:it", 512)
    print(running.url, flush=True)
    os.kill(os.getpid(), 9)

anyio.run(main)
"""


def test_the_server_does_not_outlive_a_session_that_was_killed() -> None:
    started = [sys.executable, "-c", STARTS, str(weights_or_fail())]
    with subprocess.Popen(started, stdout=subprocess.PIPE, text=True, encoding="utf-8") as session:
        assert session.stdout is not None
        url = urlsplit(session.stdout.readline())
    assert session.returncode == -signal.SIGKILL
    assert url.hostname == "127.0.0.1"
    assert url.port is not None
    ends = gone(url.port)
    assert ends, "it goes on listening"


def gone(port: int) -> bool:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("how", "said", "again"),
    [
        (signal.SIGSEGV, "llama.cpp was ended by SIGSEGV while it ran", True),
        (signal.SIGKILL, "memory ran out for", False),  # so it looks when the system takes it back
    ],
)
async def test_a_server_that_dies_while_it_speaks_is_named(
    how: signal.Signals, said: str, again: bool
) -> None:
    path = weights_or_fail()
    async with talking(path) as talk:
        transcript = Transcript(lambda: 0.0)
        transcript.add(user("Tell me a very long story about the sea."))
        at_length = replace(talk.turn.frame, params={"temperature": 0.0})
        async with aclosing(talk.model.stream(Request(at_length, transcript.view))) as stream:
            await anext(stream)
            kill(talk, how)
            with pytest.raises(Unreachable) as caught:
                await drained(stream)
    assert f"{said} {path}" in str(caught.value)
    assert caught.value.retryable is again


async def test_a_prompt_over_the_window_says_by_how_much() -> None:
    async with talking(weights_or_fail(), window=512) as talk:
        with pytest.raises(PromptTooLong) as caught:
            await talk.say(LETTER * 40)
    assert caught.value.limit == 512
    assert caught.value.over > 100


async def test_tools_go_along_even_if_the_model_was_never_taught_any() -> None:
    async with talking(weights_or_fail()) as talk:
        talk.turn.frame = replace(talk.turn.frame, tools=FRAME.tools, system=("Be brief.",))
        talk.turn.max_tokens, talk.turn.extends = 24, False  # it may call tools without an end
        for text in ("Hello.", "And again.", "And once more."):
            assert (await talk.say(text)).prompt > 0
    retried = [event for event in talk.events if isinstance(event, Retrying)]
    assert not retried, "no request meets a connection that is being closed"


def damaged(folder: Path) -> Path:
    path = folder / "cut.gguf"
    path.write_bytes(weights_or_fail().read_bytes()[:-1_000_000])
    return path


def boundless(folder: Path) -> Path:
    """The same model, which says of itself that it takes two thousand million tokens."""
    whole, key = weights_or_fail().read_bytes(), b"llama.context_length\x04\x00\x00\x00"
    at, path = whole.index(key) + len(key), folder / "vast.gguf"
    path.write_bytes(whole[:at] + b"\xff\xff\xff\x7f" + whole[at + 4 :])
    return path


BEYOND_MEMORY = [(boundless, 1 << 24, Unreachable, r"memory ran out for .*vast.gguf .*SEVENFOLD_WINDOW")]
"""The cache alone would take 368 GB. Only Linux says no to that before it is used."""


@pytest.mark.parametrize(
    ("make", "window", "kind", "said"),
    [
        (damaged, 2_048, ModelNotFound, r"cannot run .*cut.gguf: .*corrupted or incomplete"),
        *(BEYOND_MEMORY if sys.platform == "linux" else []),
    ],
)
async def test_why_a_file_cannot_be_run_is_said_once(
    tmp_path: Path, make: Callable[[Path], Path], window: int, kind: type[ModelFailure], said: str
) -> None:
    async with talking(make(tmp_path), window=window) as talk:
        with pytest.raises(kind, match=said) as caught:
            await talk.say("Hello.")
    assert not caught.value.retryable, "the next time would be no better"
    assert talk.model.pid is None
