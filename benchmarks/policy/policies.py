"""The policies that are compared: those of the product by name, other sizes, and one change at a time."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from sevenfold.replay.policies import Policy, exclude_layers, load_policy

BASE: Final = load_policy("append-only")
"""All costs are compared with it."""
DEFAULT: Final = load_policy("balanced")
NAMED: Final = (BASE, load_policy("lifetimes"), load_policy("specified"), DEFAULT, load_policy("thrifty"))
"""Exactly as they run."""

POLICY_A: Final = replace(
    DEFAULT,
    name="policy A, rebuilt",
    compaction=replace(
        DEFAULT.compaction,
        turn_tokens=90_000,
        task_tokens=140_000,
        cold_tokens=90_000,
        record_characters=0,
        by_small_model=False,
        margin=3.0,
        replies_apart=25,
        names=6_500,
        files=5,
        file_tokens=5_000,
        excerpts=False,
    ),
    micro=replace(DEFAULT.micro, margin=1_000.0),
)
"""The line to beat, with its published numbers in our settings. It clears in the cold alone; its names and
its paths are one list here."""
SHOWN: Final = (*NAMED, POLICY_A)

SIZES: Final = ((75, 115, 55), (80, 125, 55), (85, 140, 60), (95, 155, 65), (105, 170, 70), (115, 185, 80))
"""`compaction.turnTokens`, `taskTokens` and `coldTokens`, in thousands."""


def _with_sizes(turn: int, task: int, cold: int) -> Policy:
    sizes = {"turn_tokens": 1_000 * turn, "task_tokens": 1_000 * task, "cold_tokens": 1_000 * cold}
    sized = replace(DEFAULT.compaction, **sizes)
    return replace(DEFAULT, name=f"{turn}/{task}/{cold}", compaction=sized)


GRID: Final = tuple(_with_sizes(*sizes) for sizes in SIZES)

NO_BREAKS: Final = "recorded breaks of the cache dropped (append-only too)"
LONG_SUMMARIES: Final = "summaries of 4,500 tokens of output (append-only too)"
BASE_WITHOUT_BREAKS: Final = replace(BASE, name="append-only without breaks", recorded_breaks=False)
CHANGES: Final = (
    replace(
        DEFAULT,
        name="all summaries by the conversation's own model",
        compaction=replace(DEFAULT.compaction, by_small_model=False),
    ),
    replace(
        DEFAULT,
        name="cold summaries on the whole conversation",
        compaction=replace(DEFAULT.compaction, record_characters=0),
    ),
    replace(DEFAULT, name="no excerpts of files", compaction=replace(DEFAULT.compaction, excerpts=False)),
    replace(DEFAULT, name="no list of names", compaction=replace(DEFAULT.compaction, names=0)),
    replace(DEFAULT, name="thinking stays", micro=replace(DEFAULT.micro, thinking_replies=0)),
    replace(exclude_layers(DEFAULT, ["micro"]), name="no clearing (layer 2 off)"),
    replace(exclude_layers(DEFAULT, ["extraction"]), name="no extraction"),
    replace(DEFAULT, name="side work by forks alone", side_work="fork"),
    replace(DEFAULT, name="notes on priced models", notes=replace(DEFAULT.notes, priced=True)),
    replace(DEFAULT, name=NO_BREAKS, recorded_breaks=False),
)
"""`balanced` with one change each."""
ALL: Final = (
    *SHOWN,
    *(p for p in GRID if p.compaction != DEFAULT.compaction),
    *CHANGES,
    BASE_WITHOUT_BREAKS,
)
"""Each is replayed once. The point of the grid that is the default is not replayed again."""


def find_replayed_name(policy: Policy) -> str:
    """The name under which a point of the grid was replayed."""
    return DEFAULT.name if policy.compaction == DEFAULT.compaction else policy.name
