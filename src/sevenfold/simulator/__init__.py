"""A provider in a box: the Messages API on a loopback port, with a faithful prompt cache.

Everything that later measures cost runs against this. It counts tokens by a fixed rule, keeps a prompt
cache by the provider's documented rules, prices each request, fails when a script tells it to, and
writes down what it did. `docs/reference/simulator.md` has the whole of it.

    with run_in_thread(clock=ManualClock()) as sim:          # or: async with Simulator() as sim
        client = anthropic.Anthropic(base_url=sim.url, api_key="any")
        ...
        print(sim.ledger.total)
"""

from __future__ import annotations

from sevenfold.simulator.api import Api, ApiOutcome
from sevenfold.simulator.errors import ApiError
from sevenfold.simulator.ledger import LedgerRow, SimulatorLedger
from sevenfold.simulator.script import (
    Replies,
    Script,
    ScriptReply,
    ScriptStep,
    make_echo,
    parse_steps,
    read_script,
)
from sevenfold.simulator.server import ManualClock, Simulator, run_in_thread

__all__ = [
    "Api", "ApiError", "ApiOutcome", "LedgerRow", "ManualClock", "Replies", "Script", "ScriptReply",
    "ScriptStep", "Simulator", "SimulatorLedger", "make_echo", "parse_steps", "read_script",
    "run_in_thread",
]  # fmt: skip
