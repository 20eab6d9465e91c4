"""The policies that are compared: ours as sessions have it, its levers one by one, and rules of others."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from sevenfold.replay.policies import ClearRule, Policy, exclude_layers, load_policy
from sevenfold.settings.layers import CompactionSettings, ExtractionSettings, NotesSettings, Switches

AT_THE_LIMIT: Final = CompactionSettings(by_price=False)
FOUR: Final = Switches(extraction=False)
"""Layers 1 to 4 alone."""
NOTHING: Final = replace(
    FOUR, tool_results=False, aggregate_budget=False, micro_cost=False, notes=False, payout=False
)
WARM: Final = Switches(pre_cold=True)
AS_RECORDED: Final = Policy(
    name="append-only, as recorded", flags=NOTHING, compactions="recorded", cache_ttl="recorded"
)
"""Compactions and lifetimes as they were: how good the accounts are."""
APPEND_ONLY: Final = replace(AS_RECORDED, name="append-only, five minutes", cache_ttl="5m")
NAMELESS: Final = CompactionSettings(names=0)
HASTY: Final = ExtractionSettings(batch=1, least_requests=0, patient=False)
DEFAULT: Final = replace(load_policy("sevenfold"), name="sevenfold")
"""What a default session does, extraction included."""
CLAUDE_CODE: Final = replace(
    load_policy("claude-code"), notes=NotesSettings(grown_share=0, pays_from=0), name="claude-code"
)
OTHERS: Final = (
    AS_RECORDED,
    APPEND_ONLY,
    replace(APPEND_ONLY, name="append-only, kept warm twice", keep_warm=2),
    replace(APPEND_ONLY, name="rolling: every 10 calls, keep 5", clear=ClearRule(every=10, keep=5)),
    replace(APPEND_ONLY, name="watermark: at 30K, keep 3", clear=ClearRule(tokens=30_000, keep=3)),
    replace(load_policy("summarise-at-80"), name="summarise at 80 %"),
    CLAUDE_CODE,
)
TWO: Final = Policy(
    name="layers 1 and 2, compactions as recorded", flags=FOUR, compactions="recorded", cache_ttl="5m"
)
LEVERS: Final = (
    DEFAULT,
    replace(APPEND_ONLY, name="append-only, the system prompt for an hour", system_ttl="1h"),
    TWO,
    Policy(
        name="as it was: notes from 10K, compaction at the limit",
        flags=FOUR,
        notes=NotesSettings(pays_from=0),
        compaction=replace(AT_THE_LIMIT, names=0),
    ),
    replace(DEFAULT, name="sevenfold, compaction at the limit", compaction=AT_THE_LIMIT),
    replace(DEFAULT, name="sevenfold, no names after a compaction", compaction=NAMELESS),
    replace(DEFAULT, name="sevenfold, the system prompt for five minutes", system_ttl=None),
    replace(DEFAULT, name="sevenfold, forks after every turn", extraction=HASTY, side_work="fork"),
    replace(DEFAULT, name="sevenfold, notes from 10K", notes=NotesSettings(pays_from=0)),
    replace(DEFAULT, name="sevenfold, no extraction", flags=FOUR),
    replace(DEFAULT, name="sevenfold, pre_cold on", flags=WARM),
)
"""Ours, and each lever taken away."""
ABLATION: Final = tuple(
    exclude_layers(DEFAULT, [layer])
    for layer in ("tool_results", "micro", "notes", "compaction", "extraction")
)
"""Each layer off, one at a time."""
MARGINS: Final = (1.0, 1.25, 1.75, 2.5, 3.5, 5.0)
FRONTIER: Final = tuple(
    replace(
        DEFAULT,
        name=f"margin {margin:g}{', pre_cold' if warm else ''}",
        flags=WARM if warm else Switches(),
        compaction=CompactionSettings(margin=margin),
    )
    for warm in (False, True)
    for margin in MARGINS
)
LARGE: Final = (
    replace(load_policy("append-only"), name="append-only", cache_ttl="5m"),
    replace(load_policy("summarise-at-80"), name="summarise at 80 %", cache_ttl="5m"),
    replace(CLAUDE_CODE, cache_ttl="5m"),
    DEFAULT,
    replace(DEFAULT, name="sevenfold, pre_cold on", flags=WARM),
)
"""For a window of a million tokens."""
