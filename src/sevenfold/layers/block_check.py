"""The last one asked before a request: stops what cannot fit, with a message that says what to do."""

from __future__ import annotations

from collections.abc import Sequence

from sevenfold.errors import ContextFull
from sevenfold.protocols import Fit, Handback
from sevenfold.request import Request
from sevenfold.tokens import Pressure


class BlockCheck:
    """Better no request than one that the provider will refuse and we cannot mend."""

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Handback]:
        limit = pressure.thresholds.block
        if pressure.refused or pressure.tokens <= limit:
            return ()  # refused: the provider has said it better than we could
        fixed = request.frame.tokens
        if fixed > limit and limit < pressure.thresholds.effective // 2:
            raise ContextFull(
                f"system prompt and tools alone take about {fixed:,} tokens, and blockLimit allows "
                f"{limit:,}: raise it in the settings or in SEVENFOLD_BLOCK_LIMIT"
            )
        if fixed > limit:
            raise ContextFull(
                f"the window of {pressure.window:,} tokens is too small: system prompt and tools "
                f"alone take about {fixed:,}; use a model with a larger window"
            )
        raise ContextFull(
            f"the conversation is about {pressure.tokens:,} tokens and at most {limit:,} fit; "
            "compact it (/compact), begin a new one, or use a model with a larger window"
        )


_check: type[Fit] = BlockCheck
