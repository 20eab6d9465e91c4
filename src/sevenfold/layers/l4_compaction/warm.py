"""A summary while nobody speaks and the cache is about to be lost: asked for now, it reads what it would
have to write later, and what comes after the silence is smaller.

Whether it is worth that is decided where the silence is watched. Here stand the sums, and the summary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sevenfold.layers.l4_compaction.asking import Summariser
from sevenfold.layers.l4_compaction.compaction import Compaction
from sevenfold.layers.l4_compaction.planning import Plan
from sevenfold.layers.l4_compaction.worth import Worth
from sevenfold.protocols import Forker, Handback
from sevenfold.request import Request, pressure_of
from sevenfold.tokens import Thresholds


class WhileWarm:
    """One summary, offered and made at the same prefix; `fork` may spend what background work may."""

    def __init__(
        self, compaction: Compaction, fork: Forker, thresholds: Callable[[], Thresholds]
    ) -> None:
        self._compaction, self._thresholds = compaction, thresholds
        self._margin = compaction.settings.margin_in
        self._summarise = Summariser(fork, compaction.settings, compaction.emit)
        self._found: tuple[Plan, Worth] | None = None

    def offered(self, request: Request, now: float) -> tuple[float, float, float, float] | None:
        """Tokens freed, what later requests save by that, what it costs, and how many times as much it has
        to save: all but the last in base-price input tokens.
        """
        pressure = pressure_of(request, self._thresholds(), now)
        self._found = self._compaction.paying(request, pressure, margin=0.0)
        if self._found is None or not pressure.warm:
            return None
        worth = self._found[1]
        return worth.freed, worth.saving, worth.price, self._margin(pressure.window)

    async def made(self) -> Sequence[Handback]:
        found, self._found = self._found, None
        return () if found is None else await self._compaction.made(*found, self._summarise)
