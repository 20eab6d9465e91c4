"""Import time, start to first request, our own time per step at growing lengths, memory, prefix size.

python -m benchmarks.core.run [--quick] [--json]
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import anyio

from benchmarks.report import Table, arguments, show
from sevenfold.cache.ledger import Ledger
from sevenfold.cache.prices import Prices
from sevenfold.core.clock import SystemClock, run_sync
from sevenfold.core.messages import Block, Message, Text, ToolResult, ToolUse, assistant, user
from sevenfold.core.protocols import Capabilities
from sevenfold.core.request import Frame, Request
from sevenfold.core.tokens import Thresholds, Usage
from sevenfold.core.transcript import Reply, Transcript
from sevenfold.layers.ladder import make_standard_layers
from sevenfold.layers.parts import LayerParts, PlainConversation
from sevenfold.models.anthropic_wire import encode_body
from sevenfold.session.frame import read_system_prompt
from sevenfold.session.session import Session
from sevenfold.storage.jsonl import JsonlLog
from sevenfold.storage.results import ResultStore
from sevenfold.testing import FakeTools, Postponed
from sevenfold.tools.toolbox import make_standard_tools
from sevenfold.tools.workspace import Workspace
from sevenfold.turn import Turn

LENGTHS = (10, 1_000, 10_000)


def timed(work: Callable[[], object], times: int) -> float:
    """The median of several runs, in seconds."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def python(code: str, **environ: str) -> Callable[[], object]:
    """A fresh interpreter that runs this."""
    env = {**os.environ, **environ}
    return lambda: subprocess.run([sys.executable, "-c", code], check=True, env=env, capture_output=True)


def imports(times: int) -> Table:
    bare = timed(python("pass"), times)
    table = Table("import time, seconds, the interpreter's own start subtracted", "package", "s", "ratio")
    ours = timed(python("import sevenfold; sevenfold.Session"), times) - bare
    for name, code in (
        ("sevenfold (Session included)", "import sevenfold; sevenfold.Session"),
        ("anthropic SDK", "import anthropic"),
        ("openai SDK", "import openai"),
    ):
        took = ours if name.startswith("sevenfold") else timed(python(code), times) - bare
        table.add(name, round(took, 3), round(took / ours, 1))
    return table


_ANSWER = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "hello"}],
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


class Instant:
    """A model that takes no time, so that what is measured is ours."""

    name = "claude-sonnet-4-5"
    capabilities = Capabilities(window=100_000_000)

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        yield Reply(assistant(Text("done")), Usage(input=10, cache_read=100_000, output=3))


def history(transcript: Transcript, messages: int) -> None:
    """Rounds of a question, a tool call, its result and an answer, about 800 bytes a message."""
    for i in range(messages // 4):
        transcript.add(user(f"question {i} " + "word " * 160))
        call = assistant(Text("looking"), ToolUse(f"toolu_{i}", "Read", {"file_path": "x" * 700}))
        transcript.add(Reply(call, Usage(input=10)), by="model")
        transcript.add(Message("user", (ToolResult(f"toolu_{i}", "line\n" * 160),)), by="tools")
        transcript.add(Reply(assistant(Text("answer " * 120)), Usage(input=10)), by="model")


def a_frame() -> Frame:
    here = Path.cwd()
    workspace = Workspace(here, here, {}, here, SystemClock())
    tools = tuple(tool.schema for tool in make_standard_tools(workspace))
    return Frame("claude-sonnet-4-5", (read_system_prompt(),), tools)


async def step_times(messages: int, times: int, folder: Path) -> tuple[float, float, float]:
    """Median seconds of one step (with its writes to disk), of the body's bytes, and a socket's time."""
    clock = SystemClock()
    log = JsonlLog(folder / f"{messages}.jsonl")
    transcript = Transcript(clock.now, log.append)
    history(transcript, messages)
    ledger = Ledger(Prices.load(), clock, lambda event: None)
    parts = LayerParts(
        conversation=PlainConversation(capabilities=Capabilities(window=100_000_000)),
        prices=ledger.prices,
        expect=ledger.expect,
        results=ResultStore(lambda: folder / "tool-results"),
    )
    turn = Turn(
        Instant(),
        a_frame(),
        FakeTools(),
        make_standard_layers("main", parts),
        transcript,
        Postponed(),
        ledger,
        clock,
        lambda event: None,
        Thresholds.of(100_000_000, 32_000),
    )
    await turn.run(user("warm up"))
    encode_body(turn.request)
    steps = []
    gc.disable()
    for i in range(times):
        began = time.perf_counter()
        await turn.run(user(f"a new question {i}"))
        steps.append(time.perf_counter() - began)
    wire = encode_body(turn.request)
    bodies = timed(lambda: encode_body(turn.request), times)
    gc.enable()
    log.close()
    return statistics.median(steps), bodies, socket_time(wire, times)


def socket_time(wire: bytes, times: int) -> float:
    """What it takes to hand these bytes to another thread through a loopback socket."""
    import socket

    server = socket.create_server(("127.0.0.1", 0))

    def sink() -> None:
        peer, _ = server.accept()
        with peer:
            while length := int.from_bytes(peer.recv(8, socket.MSG_WAITALL), "big"):
                while length:
                    length -= len(peer.recv(min(length, 1 << 20)))
                peer.sendall(b"k")

    threading.Thread(target=sink, daemon=True).start()
    with socket.create_connection(server.getsockname()) as client:

        def send() -> None:
            client.sendall(len(wire).to_bytes(8, "big") + wire)
            client.recv(1)

        took = timed(send, times)
        client.sendall(bytes(8))
    server.close()
    return took


def steps(times: int) -> Table:
    table = Table(
        "our own time per step, milliseconds (median; transcript written to disk, model instant)",
        "messages",
        "step",
        "body bytes",
        "loopback socket",
        "official SDK",
    )
    with tempfile.TemporaryDirectory() as folder:
        for messages in LENGTHS:
            step, wire, sock = anyio.run(step_times, messages, times, Path(folder))
            sdk = sdk_request(messages, max(3, times // 20))
            row = (round(1000 * value, 3) for value in (step, wire, sock, sdk))
            table.add(messages, *row)
    return table


def sdk_request(messages: int, times: int) -> float:
    """What the official SDK needs for the same request: no network, the answer is always the same."""
    import anthropic
    import httpx2

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json=_ANSWER)

    transcript = Transcript(lambda: 0.0)
    history(transcript, messages)
    plain: Any = [json.loads(part) for part in _encoded(transcript)]
    transport = httpx2.Client(transport=httpx2.MockTransport(answer))
    with anthropic.Anthropic(api_key="k", http_client=transport) as client:

        def ask() -> object:
            return client.messages.create(model="claude-sonnet-5", max_tokens=10, messages=plain)

        return timed(ask, times)


def _encoded(transcript: Transcript) -> list[bytes]:
    from sevenfold.core.request import encode_view

    return encode_view(transcript.view)


def memory() -> Table:
    table = Table("memory of a transcript and its encoded bytes, MB", "messages", "of text", "held")
    for messages in LENGTHS:
        gc.collect()
        tracemalloc.start()
        transcript = Transcript(lambda: 0.0)
        history(transcript, messages)
        text = sum(map(len, _encoded(transcript)))
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        table.add(messages, round(text / 1e6, 2), round(held / 1e6, 2))
    return table


async def _frame_of_a_session(folder: Path) -> Frame:
    environ = {"HOME": str(folder)}
    async with Session("offline", folder, home=folder / "home", environ=environ) as session:
        return session.turn.frame


def fixed_prefix() -> Table:
    """Of a session as it opens: what stands in front of every request."""
    with tempfile.TemporaryDirectory() as folder:
        whole = run_sync(_frame_of_a_session, Path(folder))
    parts = {
        "system prompt": Frame("m", whole.system[:1]).tokens,
        "rules of memory": Frame("m", whole.system[1:]).tokens,
        f"{len(whole.tools)} tools": Frame("m", (), whole.tools).tokens,
    }
    table = Table("the fixed prefix, estimated tokens (goal: at most 5,000)", "part", "tokens")
    for part in parts.items():
        table.add(*part)
    table.add("together", whole.tokens)
    return table


def run(quick: bool) -> list[Table]:
    few, many = (3, 40) if quick else (10, 200)
    return [imports(few), steps(many), memory(), fixed_prefix()]


if __name__ == "__main__":
    options = arguments(__doc__)
    show(run(options.quick), as_json=options.json)
