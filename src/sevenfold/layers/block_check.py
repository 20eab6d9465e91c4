"""The last one asked before a request: warns in time, and stops what cannot fit, saying what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sevenfold.errors import ContextFull
from sevenfold.events import Emit, Notice
from sevenfold.protocols import Fit, Handback
from sevenfold.request import Request
from sevenfold.tokens import Pressure

NEAR: Final = 0.75
"""Nobody is warned before this share of what is compacted: the limit may have been set very low."""


class BlockCheck:
    """Better no request than one that the provider will refuse and we cannot mend."""

    def __init__(self, emit: Emit | None = None, *, compacts: bool = True) -> None:
        """`emit` is told once when the window gets full, and again each time that it gets full anew.

        `compacts`: whether anything makes room before there is none.
        """
        self._emit, self._compacts = emit, compacts
        self._warned = False

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Handback]:
        limit = pressure.thresholds.block
        if pressure.refused:
            return ()  # the provider has said it better than we could
        self._warn(pressure)
        if pressure.tokens <= limit:
            return ()
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

    def _warn(self, pressure: Pressure) -> None:
        at = pressure.thresholds
        over = pressure.tokens >= max(at.warning, NEAR * at.auto_compact)
        if over and not self._warned and self._emit is not None:
            self._emit(_warning(pressure, self._compacts))
        self._warned = over


def _warning(pressure: Pressure, compacts: bool) -> Notice:
    at = pressure.thresholds
    full = f"the window is getting full: about {pressure.tokens:,} of {at.effective:,} tokens"
    if compacts:
        return Notice(
            f"{full}; at {at.auto_compact:,} the older part is compacted. To say what matters in it, "
            "compact it yourself before (/compact and what to keep)"
        )
    return Notice(
        f"{full}; compaction is off, and from {at.block:,} on nothing is sent any more. Compact it "
        "(/compact) or begin a new conversation",
        "warning",
    )


_check: type[Fit] = BlockCheck
