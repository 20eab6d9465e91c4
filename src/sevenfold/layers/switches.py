"""A switch for every layer and mechanism. Who turns them is not the layers' business."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


def _flag(description: str) -> Meta:
    return Meta(description=description, examples=[False])


class Switches(msgspec.Struct, frozen=True, kw_only=True):
    """A switch for every layer and mechanism."""

    tool_results: Annotated[bool, _flag("Layer 1: large tool results go to disk.")] = True
    aggregate_budget: Annotated[bool, _flag("Layer 1: the limit for all results of a message.")] = (
        True
    )
    micro_cost: Annotated[bool, _flag("Layer 2: old results are cleared when it pays.")] = True
    micro_time: Annotated[bool, _flag("Layer 2: the plain time rule instead.")] = False
    micro_cache_edit: Annotated[bool, _flag("Layer 2: deletions in the provider's cache.")] = True
    micro_api: Annotated[bool, _flag("Layer 2: the provider's context management.")] = True
    pre_cold: Annotated[bool, _flag("Layer 2: acts before the cache goes cold; it spends.")] = False
    notes: Annotated[bool, _flag("Layer 3: notes on this session are kept.")] = True
    payout: Annotated[bool, _flag("Layer 3: the notes stand in for a compaction.")] = True
    compact: Annotated[bool, _flag("Layer 4: the window is compacted when nearly full.")] = True
    reactive: Annotated[bool, _flag("Layer 4: compaction after a refusal as too long.")] = True
    precompute: Annotated[bool, _flag("Layer 4: the summary is prepared ahead.")] = False
    server_compact: Annotated[bool, _flag("Layer 4: the provider compacts.")] = False
    snip: Annotated[bool, _flag("Layer 4: whole old rounds leave the view.")] = False
    collapse: Annotated[bool, _flag("Layer 4: finished tool rounds become a short projection.")] = (
        False
    )
    recall: Annotated[bool, _flag("Layer 5: memories are recalled.")] = True
    extraction: Annotated[bool, _flag("Layer 5: memories are extracted after a turn.")] = True
    dream: Annotated[bool, _flag("Layer 6: memories are consolidated.")] = True
    team: Annotated[bool, _flag("Layer 5: memory shared with a team.")] = True
    agent_summaries: Annotated[bool, _flag("Layer 7: running agents say what they do.")] = True
