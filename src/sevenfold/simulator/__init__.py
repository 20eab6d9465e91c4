"""A provider in a box: the Messages API on a loopback port, with a faithful prompt cache.

Everything that later measures cost runs against this. It counts tokens by a fixed rule, keeps a prompt
cache by the provider's documented rules, prices each request, fails when a script tells it to, and
writes down what it did. `docs/reference/simulator.md` has the whole of it.

    with running(clock=ManualClock()) as sim:          # or: async with Simulator() as sim
        client = anthropic.Anthropic(base_url=sim.url, api_key="any")
        ...
        print(sim.ledger.total)
"""

from __future__ import annotations

from sevenfold.simulator.api import Api, Outcome
from sevenfold.simulator.errors import ApiError
from sevenfold.simulator.ledger import Ledger, Row
from sevenfold.simulator.script import Replies, Reply, Script, Step, echo, parse_steps, read_script
from sevenfold.simulator.server import ManualClock, Simulator, running

__all__ = [
    "Api",
    "ApiError",
    "Ledger",
    "ManualClock",
    "Outcome",
    "Replies",
    "Reply",
    "Row",
    "Script",
    "Simulator",
    "Step",
    "echo",
    "parse_steps",
    "read_script",
    "running",
]
