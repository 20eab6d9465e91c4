"""Drives another package through the conversation and writes down what it sent and how long it took.

python -m benchmarks.fit.peers.NAME WORKLOAD OUTPUT --trigger N --repeat N

Runs in the other package's environment: nothing but the standard library is imported here.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Protocol

from benchmarks.fit.workload import Json, canonical, tokens_in

NEVER: Final = 100_000_000
"""A trigger that nothing here reaches."""
SUMMARY: Final = "The session so far, in the words of a model that is not there. ".ljust(4_000, ".")
"""What the fake model says when it is asked for a summary: 1,000 tokens."""


class Talk(Protocol):
    """One conversation, as the package under test keeps it."""

    def hear(self, message: Json, usage: tuple[int, int]) -> None:
        """Take in a message; with the assistant's, the tokens of its request and of itself."""
        ...

    async def step(self) -> Any:
        """What the package does before a request. This is what is timed."""
        ...

    def sent(self, outcome: Any) -> list[Json]:
        """The messages of the request, in the Messages format; keeps what the step changed."""
        ...

    def calls(self) -> list[tuple[float, float]]:
        """Input and output tokens of the calls the package made to the model itself, all of them."""
        ...


class Record:
    """What was sent, each different message once."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.sizes: list[float] = []
        self.requests: list[list[int]] = []

    def request(self, messages: list[Json]) -> float:
        """Write a request down; returns its tokens."""
        places = [self._place(canonical(message)) for message in messages]
        self.requests.append(places)
        return sum(self.sizes[place] for place in places)

    def _place(self, text: str) -> int:
        if text not in self.places:
            self.places[text] = len(self.sizes)
            self.sizes.append(tokens_in(text))
        return self.places[text]


async def through(talk: Talk, messages: list[Json]) -> Json:
    """The whole conversation, a request before each thing that the assistant says."""
    record, took = Record(), []
    for message in messages:
        used = (0, 0)
        if message["role"] == "assistant":
            began = time.perf_counter()
            outcome = await talk.step()
            took.append(time.perf_counter() - began)
            prompt = record.request(talk.sent(outcome))
            used = (round(prompt), round(tokens_in(canonical(message))))
        talk.hear(message, used)
    return {"seconds": took, "sizes": record.sizes, "requests": record.requests, "calls": talk.calls()}


def after(talk: Talk, messages: list[Json]) -> Talk:
    """A conversation that has heard all of this, with the usage of one that only ever grew."""
    tokens = 0
    for message in messages:
        own = round(tokens_in(canonical(message)))
        talk.hear(message, (tokens, own) if message["role"] == "assistant" else (0, 0))
        tokens += own
    return talk


async def timed(talks: Iterable[Talk]) -> list[float]:
    """One step of each of these conversations."""
    took = []
    for talk in talks:
        gc.collect()
        began = time.perf_counter()
        await talk.step()
        took.append(time.perf_counter() - began)
    return took


def main(begin: Callable[[int], Talk], *packages: str) -> None:
    """What every script here does when it is run; `begin` takes the trigger in tokens."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--trigger", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=10)
    options = parser.parse_args()
    messages: list[Json] = json.loads(options.workload.read_text(encoding="utf-8"))

    async def everything() -> Json:
        whole = messages[:-1]  # the last thing said is the reply to the last request
        quiet = after(begin(NEVER), whole)  # it changes nothing, so it can be asked again
        await quiet.step()
        firing = (after(begin(options.trigger), whole) for _ in range(options.repeat))
        return {
            "run": await through(begin(options.trigger), messages),
            "quiet": await timed([quiet] * 3 * options.repeat),
            "firing": await timed(firing),
            "versions": {name: version(name) for name in packages},
        }

    options.output.write_text(json.dumps(asyncio.run(everything())), encoding="utf-8")
