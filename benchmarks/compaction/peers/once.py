"""Lets another package compact a full conversation once, and writes down all that it would send.

python -m benchmarks.compaction.peers.once MODULE:CLASS PACKAGE WORKLOAD OUTPUT --trigger N --repeat N

The class is a driver of `benchmarks.fit.peers`. Runs in the other package's environment.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler  # type: ignore[import-not-found]

from benchmarks.fit.peers.driving import after
from benchmarks.fit.peers.langchain_messages import ours
from benchmarks.fit.workload import Json


class Overheard(BaseCallbackHandler):  # type: ignore[misc]
    """Keeps what the package asks its model."""

    def __init__(self) -> None:
        self.calls: list[list[Json]] = []

    def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
        self.calls += [[ours(message) for message in batch] for batch in messages]


async def compacted(begin: Callable[[int], Any], messages: list[Json], trigger: int) -> Json:
    """One conversation that has heard all of this, and its step before the next request."""
    talk, overheard = after(begin(trigger), messages), Overheard()
    talk.model.callbacks = [overheard]  # type: ignore[attr-defined]
    began = time.perf_counter()
    outcome = await talk.step()
    took = time.perf_counter() - began
    return {"seconds": took, "after": talk.sent(outcome), "calls": overheard.calls}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("package")
    parser.add_argument("workload", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--trigger", type=int, required=True)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    module, _, name = options.driver.partition(":")
    begin = getattr(importlib.import_module(f"benchmarks.fit.peers.{module}"), name)
    messages: list[Json] = json.loads(options.workload.read_text(encoding="utf-8"))

    async def everything() -> Json:
        await compacted(begin, messages, options.trigger)  # what is imported late is imported now
        runs = [await compacted(begin, messages, options.trigger) for _ in range(options.repeat)]
        said = {**runs[-1], "seconds": [run["seconds"] for run in runs]}
        return {**said, "version": version(options.package)}

    options.output.write_text(json.dumps(asyncio.run(everything())), encoding="utf-8")


if __name__ == "__main__":
    main()
