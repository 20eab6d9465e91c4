"""Our step in someone else's loop: the same conversation through `Context.prepare`, dicts in and out."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.fit.accounting import Part
from benchmarks.fit.ours import ABLE, MODEL, SECONDS, Seen, watch
from benchmarks.fit.workload import Json, canonical, tokens_in
from sevenfold.context.context import Context
from sevenfold.context.loop import NamedModel
from sevenfold.testing import FakeClock


class Loop:
    """A caller that keeps its own list of messages and asks a model that charges by bytes."""

    def __init__(self, folder: Path) -> None:
        self.seen, self.clock = Seen(), FakeClock()
        model = NamedModel(MODEL, ABLE)
        self.context = Context(
            model, state=folder / "state", home=folder / "home", clock=self.clock, environ={}
        )
        self.context.subscribe(watch)
        self.messages: list[Json] = []

    def request(self, reply: Json) -> None:
        """One request, timed until the dict for the SDK is there, and its reply."""
        self.clock.time += SECONDS
        changed = self.seen.bill.changed
        began, cpu = time.perf_counter(), time.process_time()
        request = self.context.prepare(self.messages)
        self.seen.seconds.append(time.perf_counter() - began)
        self.seen.cpu.append(time.process_time() - cpu)
        texts = [canonical(_unmarked(message)) for message in request["messages"]]
        read, written = self.seen.bill.request([Part(text, tokens_in(text)) for text in texts])
        self.seen.fired.append(self.seen.bill.changed > changed)
        self.context.record(
            {
                "id": f"msg_{len(self.messages)}",
                "type": "message",
                "role": "assistant",
                "model": MODEL,
                "stop_reason": "tool_use",
                "content": reply["content"],
                "usage": {
                    "input_tokens": 0,
                    "cache_read_input_tokens": round(read),
                    "cache_creation_input_tokens": round(written),
                    "output_tokens": 50,
                },
            }
        )


def through(conversation: list[Json], folder: Path, newest: int | None = None) -> Seen:
    """The whole conversation; or only so many requests, after one that takes in all before them."""
    loop = Loop(folder)
    first = len(conversation) - 2 * newest - 1 if newest else 0
    with loop.context:
        for at, message in enumerate(conversation):
            if message["role"] == "assistant" and at >= first:
                loop.request(message)
            loop.messages.append(message)
    return loop.seen


def _unmarked(message: Json) -> Json:
    """Without the marks that say where the provider is to keep the prefix."""
    if not any("cache_control" in block for block in message["content"]):
        return message
    kept = [{k: v for k, v in b.items() if k != "cache_control"} for b in message["content"]]
    return {**message, "content": kept}
