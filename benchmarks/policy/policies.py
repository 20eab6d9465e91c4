"""The policies that are compared: ours as sessions have it, its levers one by one, and rules of others."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from sevenfold.layers.l2_microcompaction.settings import MicroSettings
from sevenfold.layers.l3_session_memory.settings import NotesSettings
from sevenfold.layers.l4_compaction.settings import CompactionSettings
from sevenfold.layers.switches import Switches
from sevenfold.replay.policies import ClearRule, Policy, policy

AT_THE_LIMIT: Final = CompactionSettings(by_price=False)
FOUR: Final = Switches(extraction=False)
"""Layers 1 to 4 alone: what is compared is what the window costs."""
NOTHING: Final = replace(
    FOUR, tool_results=False, aggregate_budget=False, micro_cost=False, notes=False, payout=False
)
NO_NOTES: Final = replace(FOUR, notes=False, payout=False)
WARM: Final = replace(FOUR, pre_cold=True)
AS_RECORDED: Final = Policy(
    name="append-only, as recorded", flags=NOTHING, compactions="recorded", cache_ttl="recorded"
)
"""Compactions and lifetimes as they were: how good the accounts are."""
APPEND_ONLY: Final = replace(AS_RECORDED, name="append-only, five minutes", cache_ttl="5m")
DEFAULT: Final = replace(policy("sevenfold"), name="sevenfold, layers 1 to 4", flags=FOUR)
WHOLE: Final = replace(policy("sevenfold"), name="sevenfold with extraction after every turn")
CLAUDE_CODE: Final = replace(
    policy("claude-code"), notes=NotesSettings(grown_share=0, pays_from=0), name="claude-code"
)
OTHERS: Final = (
    AS_RECORDED,
    APPEND_ONLY,
    replace(APPEND_ONLY, name="append-only, kept warm twice", keep_warm=2),
    replace(APPEND_ONLY, name="rolling: every 10 calls, keep 5", clear=ClearRule(every=10, keep=5)),
    replace(APPEND_ONLY, name="watermark: at 30K, keep 3", clear=ClearRule(tokens=30_000, keep=3)),
    replace(policy("summarise-at-80"), name="summarise at 80 %"),
    CLAUDE_CODE,
)
LEVERS: Final = (
    Policy(
        name="layers 1 and 2, compactions as recorded",
        flags=FOUR,
        compactions="recorded",
        cache_ttl="5m",
    ),
    Policy(
        name="as it was: notes from 10K, compaction at the limit",
        flags=FOUR,
        notes=NotesSettings(pays_from=0),
        compaction=AT_THE_LIMIT,
    ),
    Policy(name="without notes, compaction at the limit", flags=NO_NOTES, compaction=AT_THE_LIMIT),
    Policy(name="without notes, compaction by price", flags=NO_NOTES),
    Policy(name="by price, notes from 10K", flags=FOUR, notes=NotesSettings(pays_from=0)),
    Policy(name="by price, nothing cleared", flags=replace(FOUR, micro_cost=False)),
    Policy(name="by price, clearing twice as eager", flags=FOUR, micro=MicroSettings(margin=2)),
    DEFAULT,
    replace(DEFAULT, name="sevenfold, pre_cold on", flags=WARM),
    WHOLE,
)
MARGINS: Final = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0)
FRONTIER: Final = tuple(
    Policy(
        name=f"margin {margin:g}{', pre_cold' if warm else ''}",
        flags=WARM if warm else FOUR,
        compaction=CompactionSettings(margin=margin),
    )
    for warm in (False, True)
    for margin in MARGINS
)
LARGE: Final = (
    replace(policy("append-only"), name="append-only", cache_ttl="5m"),
    replace(policy("summarise-at-80"), name="summarise at 80 %", cache_ttl="5m"),
    replace(CLAUDE_CODE, cache_ttl="5m"),
    DEFAULT,
    replace(DEFAULT, name="sevenfold, pre_cold on", flags=WARM),
)
"""For a window of a million tokens."""
