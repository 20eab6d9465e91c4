"""The provider of the flows, which holds every conversation to its prefix.

Whatever else a flow is about: at its end each request of the main conversation must have begun with the
whole of the one before, byte for byte as it came over the wire, or the break was announced before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from sevenfold.core.events import Event, Sending
from sevenfold.simulator import LedgerRow, Simulator

KNOWN = ("idle for", "the model changed from")
"""Breaks that nobody has to announce: the provider forgot, or the person chose another model."""


class SteadySimulator(Simulator):
    """Give it the `events` of the sessions. Without them no break at all is allowed."""

    events: Sequence[Event] = ()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        if kind is None:
            check(list(self.ledger.rows), self.events)


def check(rows: Sequence[LedgerRow], events: Sequence[Event]) -> None:
    """What the provider saw against what was announced to the user."""
    sent = [event for event in events if isinstance(event, Sending) and event.source == "main"]
    told = [event for event in sent if event.why]
    for event in sent:
        assert not event.lost or event.expected or event.why.startswith(KNOWN), f"why? {event}"
    begun = sum(not event.shared and not event.lost for event in sent)
    broken = [row for row in rows if row.source == "main" and parted(row)]
    assert len(broken) <= len(told) + max(0, begun - 1), [row.shared for row in broken]


def parted(row: LedgerRow) -> bool:
    """Whether it did not begin with the whole of the request before."""
    shared = row.shared
    return shared is not None and bool(shared.diverged or shared.blocks < shared.of_blocks)
