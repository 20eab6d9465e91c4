"""The check that all flows end with: it must find a break that nobody announced."""

from __future__ import annotations

from pathlib import Path

import pytest
from flows.wire import check

from sevenfold.core.events import Event, Sending
from sevenfold.simulator import LedgerRow
from sevenfold.simulator.ledger import SharedPrefix


def row(n: int, shared: SharedPrefix | None) -> LedgerRow:
    return LedgerRow(
        n=n,
        id=f"r{n}",
        at=0.0,
        endpoint="messages",
        model="m",
        source="main",
        stream=True,
        status=200,
        shared=shared,
    )


FIRST, WHOLE = row(0, None), row(1, SharedPrefix(blocks=4, tokens=9, of_blocks=4))
CHANGED = row(1, SharedPrefix(blocks=2, tokens=5, of_blocks=4, diverged="messages[1]"))
SHORTER = row(1, SharedPrefix(blocks=3, tokens=5, of_blocks=4))


def sent(lost: int = 0, why: str = "", *, expected: bool = False, shared: int = 5) -> Sending:
    return Sending("main", 9, shared, lost, why, 0.0, expected)


@pytest.mark.parametrize("broken", [CHANGED, SHORTER])
def test_a_break_on_the_wire_that_nobody_told_of_is_found(broken: LedgerRow) -> None:
    check([FIRST, WHOLE], [sent(shared=0), sent()])
    with pytest.raises(AssertionError):
        check([FIRST, broken], [sent(shared=0), sent()])
    check([FIRST, broken], [sent(shared=0), sent(4, "a layer cleared it", expected=True)])


def test_a_loss_that_nobody_expected_is_found() -> None:
    told: list[Event] = [sent(shared=0), sent(4, "the tools changed")]
    with pytest.raises(AssertionError, match="the tools changed"):
        check([FIRST, CHANGED], told)


def test_another_conversation_begins_anew() -> None:
    check([FIRST, CHANGED], [sent(shared=0), sent(shared=0)])


def test_every_flow_on_the_simulator_is_held_to_it() -> None:
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.name != Path(__file__).name:
            assert " Simulator(r" not in path.read_text(encoding="utf-8"), f"not steady: {path.name}"
