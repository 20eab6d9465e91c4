"""What can be set about clearing old tool results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

CLEARABLE: Final = ("Read", "Bash", "Grep", "Glob", "WebSearch", "WebFetch", "Edit", "Write")


class MicroSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Layer 2: whether and when old tool results are cleared."""

    policy: Annotated[
        Literal["cost", "plain"],
        Meta(
            description="`cost` clears when it saves more than it costs; `plain` clears only after "
            "nobody has spoken for `idleMinutes`.",
            examples=["plain"],
        ),
    ] = "cost"
    tools: Annotated[
        tuple[str, ...],
        Meta(
            description="Whose results may be cleared, by the name of the tool.",
            examples=[["Read", "Bash"]],
        ),
    ] = CLEARABLE
    keep_recent: Annotated[
        int, Meta(ge=1, description="So many of the newest results always stay.", examples=[5])
    ] = 5
    margin: Annotated[
        float,
        Meta(
            ge=1,
            description="`cost`: the expected saving must be this many times the price of the break.",
            examples=[4],
        ),
    ] = 4.0
    least_freed: Annotated[
        int,
        Meta(
            ge=0,
            description="`cost`: while the cache is warm, a batch frees at least so many tokens; scaled "
            "down for windows below 200,000.",
            examples=[40_000],
        ),
    ] = 40_000
    requests_ahead: Annotated[
        int,
        Meta(
            ge=1,
            description="`cost`: how many requests a session is expected to make from any point on.",
            examples=[50],
        ),
    ] = 50
    need_model: Annotated[
        Path | None,
        Meta(
            description="`cost`: a file with coefficients of your own for which results will be needed "
            "again, written by `python -m benchmarks.policy.fit`; a relative one begins where the settings "
            "file is.",
            examples=["need.toml"],
        ),
    ] = None
    idle_minutes: Annotated[
        float,
        Meta(gt=0, description="`plain`: clear after so long a silence.", examples=[60]),
    ] = 60.0
    cache_edit_trigger: Annotated[
        int,
        Meta(
            ge=1,
            description="Where the provider can delete from its cache: how many results there must be.",
            examples=[20],
        ),
    ] = 20
    keep_warm: Annotated[
        int,
        Meta(
            ge=0,
            description="With the flag `pre_cold`: at most so many requests in a row that only keep the "
            "cache warm while nobody speaks.",
            examples=[2],
        ),
    ] = 2
