"""What can be set about compaction."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from sevenfold.tokens import REFERENCE_WINDOW


class CompactionSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Layer 4: how the summary is asked for, and when to stop asking."""

    summary_tokens: Annotated[
        int,
        Meta(
            ge=100,
            description="The longest summary that is asked for, analysis included; scaled down for "
            "windows below 200,000.",
            examples=[20_000],
        ),
    ] = 20_000
    by_price: Annotated[
        bool,
        Meta(
            description="When the user speaks, compact before the window is full, if that is expected "
            "to save more than it costs. Without it only a full window is compacted.",
            examples=[False],
        ),
    ] = True
    margin: Annotated[
        float,
        Meta(
            ge=1,
            description="`byPrice`: the expected saving must be this many times what it costs.",
            examples=[1.75],
        ),
    ] = 1.75
    large_margin: Annotated[
        float,
        Meta(
            ge=1,
            description="`byPrice`: the same for windows over 200,000 tokens, where there is room and "
            "less need be lost.",
            examples=[8],
        ),
    ] = 8.0
    requests_ahead: Annotated[
        int,
        Meta(
            ge=1,
            description="`byPrice`: how many requests a session is expected to make from any point on.",
            examples=[50],
        ),
    ] = 50
    least_tokens: Annotated[
        int,
        Meta(
            ge=0,
            description="`byPrice`: a context below this is left alone, whatever it would save; scaled "
            "down for windows below 200,000.",
            examples=[70_000],
        ),
    ] = 70_000
    names: Annotated[
        int,
        Meta(
            ge=0,
            description="Tokens for a list of names that stood in what was replaced, by file; no model "
            "writes it. 0: none. Scaled down for windows below 200,000.",
            examples=[4_000],
        ),
    ] = 4_000
    server: Annotated[
        Literal["threshold", "onDemand"],
        Meta(
            description="How the provider compacts where the flag `server_compact` lets it: by itself at "
            "a threshold, or when a request of ours asks for it.",
            examples=["onDemand"],
        ),
    ] = "threshold"
    timeout_seconds: Annotated[
        float,
        Meta(gt=0, description="How long one request for a summary may take.", examples=[300]),
    ] = 300.0
    tries: Annotated[
        int,
        Meta(
            ge=1,
            description="How often a request for a summary that is itself too long is shortened.",
            examples=[3],
        ),
    ] = 3
    failures: Annotated[
        int,
        Meta(
            ge=1,
            description="After so many failed summaries in a row none is asked for any more.",
            examples=[3],
        ),
    ] = 3
    refills: Annotated[
        int,
        Meta(
            ge=1,
            description="After so many compactions in a row that helped only for `refilledWithin` "
            "replies, no summary is asked for any more.",
            examples=[3],
        ),
    ] = 3
    refilled_within: Annotated[
        int,
        Meta(
            ge=0,
            description="A window that is full again after so many replies was filled too fast.",
            examples=[3],
        ),
    ] = 3

    def margin_in(self, window: int) -> float:
        """How many times its price a summary has to save in a window of this size."""
        return self.large_margin if window > REFERENCE_WINDOW else self.margin
