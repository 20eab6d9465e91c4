"""The policies: under one name, the settings with which all layers spend.

`balanced` is what the settings say by themselves. Replay knows the policies by the same names, so that what
is replayed is what runs. `benchmarks/policy` has their figures.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from sevenfold.core.messages import Json

PolicyName: TypeAlias = Literal["specified", "balanced", "thrifty"]

POLICIES: Final[dict[PolicyName, Json]] = {
    "specified": {
        "micro": {"policy": "plain", "thinkingReplies": 0},
        "compaction": {
            "bySize": False,
            "names": 0,
            "files": 5,
            "fileTokens": 5_000,
            "excerpts": False,
            "recordCharacters": 0,
        },
        "notes": {"priced": True},
        "extraction": {"batch": 1, "leastRequests": 0, "patient": False},
        "sideWork": "fork",
    },
    "balanced": {},
    "thrifty": {
        "micro": {"needWeight": 1.0},
        "compaction": {"turnTokens": 75_000, "taskTokens": 110_000, "coldTokens": 60_000, "margin": 2.0},
    },
}
"""The settings that differ from their defaults, as a settings file would have them."""
