"""The policies that are compared: ours, as sessions use it, and two rules that others use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sevenfold.cache.prices import Prices
from sevenfold.events import Cleared, Emit
from sevenfold.layers.l2_microcompaction.candidates import Candidate, Scan
from sevenfold.layers.l2_microcompaction.clearing import cleared
from sevenfold.layers.l2_microcompaction.settings import CLEARABLE, MicroSettings
from sevenfold.layers.ladder import Lent, standard
from sevenfold.layers.switches import Switches
from sevenfold.protocols import Capabilities, Handback, Layers
from sevenfold.replay.driving import Unwritten
from sevenfold.request import Request
from sevenfold.tokens import Pressure
from sevenfold.transcript import Results

PRICES = Prices.load()


def nothing(emit: Emit) -> Layers:
    return Layers()


def ours(
    micro: MicroSettings | None = None, switches: Switches | None = None
) -> Callable[[Emit], Layers]:
    """Layers 1 and 2. Compaction stays where the recording has it, for every policy alike."""
    on = switches or Switches(compact=False, reactive=False)

    def layers(emit: Emit) -> Layers:
        lent = Lent(
            emit=emit,
            expect=lambda why: None,
            able=Capabilities,
            prices=PRICES,
            store=Unwritten(),
            switches=on,
            micro=micro or MicroSettings(),
        )
        made = standard("main", lent)
        return Layers(intake=made.intake, fit=made.fit[:-1])  # the recording was never blocked

    return layers


class _Rule:
    """Clears by counting alone."""

    def __init__(self, emit: Emit, keep: int) -> None:
        self._emit, self._keep = emit, keep
        self._scan, self._store = Scan(CLEARABLE, ()), Unwritten()

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Handback]:
        self._scan.follow(request.view)
        old = self._scan.found[: -self._keep]
        if not old or not self.due(old):
            return ()
        shown = cleared(old, request.view, self._store, self._emit)
        self._emit(Cleared("rule", tuple(shown), 0, 0, 0.0, 0.0, "counted"))
        return (Results(shown),)

    def due(self, old: Sequence[Candidate]) -> bool:
        return len(old) >= 10


class _Watermark(_Rule):
    def due(self, old: Sequence[Candidate]) -> bool:
        return sum(one.tokens for one in old) >= 30_000


def rolling(emit: Emit) -> Layers:
    """Every ten calls, all but the newest five."""
    return Layers(fit=(_Rule(emit, 5),))


def watermark(emit: Emit) -> Layers:
    """When 30,000 tokens of results have gathered, all but the newest three."""
    return Layers(fit=(_Watermark(emit, 3),))
