"""On a real wire: looking through a conversation waits for a silence, and then keeps the cache alive."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from flows.test_session import Place
from flows.wire import SteadySimulator
from layers.l7_agents.stage import HandClock, until

from sevenfold.core.events import CacheBroke, Forked
from sevenfold.core.messages import Json
from sevenfold.core.request import KEPT_WARM, TTL_SECONDS
from sevenfold.layers.l5_durable_memory.extraction import LULL
from sevenfold.simulator.server import Simulator
from sevenfold.storage.waiting_notes import CURSOR

pytestmark = pytest.mark.anyio
FORKED = {"flags": {"dream": False}, "sideWork": "fork", "extraction": {"leastRequests": 0}}
TALK = {"interactive": True, "settings": FORKED}


def answers(body: Json) -> Any:
    return [{"type": "text", "text": "Nothing to save, and a long answer. " * 40}]


class Wire:
    def __init__(self, here: Place, simulator: Simulator, clock: HandClock) -> None:
        self.here, self.simulator, self.clock = here, simulator, clock

    def session(self, **more: Any) -> Any:
        return self.here.session(**{**TALK, "clock": self.clock, **more})

    @property
    def rows(self) -> list[Any]:
        return list(self.simulator.ledger.rows)

    async def looked(self, times: int = 1) -> None:
        """Until extraction has run so often."""
        await until(lambda: sum(one.kind == "extract" for one in self.here.of(Forked)) >= times)


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[Wire]:
    clock = HandClock()
    async with SteadySimulator(replies=answers, clock=clock) as simulator:
        here = Place(tmp_path, simulator.url)
        simulator.events = here.events
        yield Wire(here, simulator, clock)


def cached(row: Any) -> int:
    used = row.tokens
    return int(used.cache_read + used.cache_write_5m + used.cache_write_1h)


async def test_a_look_in_a_silence_reads_the_prefix_and_lets_it_live_on(wire: Wire) -> None:
    async with wire.session() as session:
        await session.ask("Please look at the build. " * 60)
        assert len(wire.rows) == 1, "nothing was looked through yet"
        await wire.clock.advance(LULL + 16)
        await wire.looked()
        turn, look = wire.rows
        assert look.tokens.cache_read >= 0.99 * cached(turn)

        await wire.clock.advance(
            TTL_SECONDS["5m"] - 60
        )  # the prefix of the turn alone would be gone by now
        await session.ask("And now?")
        again = wire.rows[-1]
        assert again.tokens.cache_read >= 0.99 * cached(turn)
        assert wire.here.of(CacheBroke) == []
        assert session.view.marks[CURSOR]["last"] is not None


async def test_another_model_does_not_inherit_a_warm_cache(wire: Wire) -> None:
    async with wire.session() as session:
        await session.ask("Please look at the build. " * 60)
        await wire.clock.advance(LULL + 16)
        await wire.looked()
        await session.ask("And now?")
        assert session.view.marks[KEPT_WARM]
        session.use_model("claude-haiku-4-5")
        assert not session.view.marks[KEPT_WARM]


async def test_what_waits_is_looked_through_when_the_session_ends(wire: Wire) -> None:
    async with wire.session() as session:
        await session.ask("Please look at the build. " * 60)
        await session.ask("And at the tests.")
    assert [one.kind for one in wire.here.of(Forked)] == ["extract"]
    assert wire.rows[-1].tokens.cache_read >= 0.99 * cached(wire.rows[-2])

    async with wire.session(resume=session.id) as again:
        await again.ask("Thank you.")
        assert again.view.marks[CURSOR]["last"] is not None, "it is in the transcript"


@pytest.mark.parametrize("way", ["cheapest", "fork", "small"])
async def test_a_short_session_spends_nothing_beside_the_conversation(wire: Wire, way: str) -> None:
    async with wire.session(settings={"sideWork": way}) as session:
        await session.ask("Please look at the build. " * 60)
        await wire.clock.advance(LULL + 16)
        await session.ask("And at the tests.")
    assert [row.source for row in wire.rows] == ["main", "main"]


async def test_after_each_turn_by_a_fork_where_it_is_set(wire: Wire) -> None:
    each = {"batch": 1, "leastRequests": 0, "patient": False}
    flags = {"dream": False, "notes": False}
    async with wire.session(settings={"sideWork": "fork", "extraction": each, "flags": flags}) as session:
        for n in (1, 2):
            await session.ask("Please look at the build. " * 60)
            await wire.looked(n)
    assert [row.source for row in wire.rows] == ["main", "fork:extract"] * 2


async def test_what_is_said_for_good_is_looked_through_at_the_end_of_a_short_session_too(
    wire: Wire,
) -> None:
    async with wire.session(settings={"sideWork": "fork"}) as session:
        await session.ask("From now on always answer in German, please.")
        await session.ask("And never use tabs.")
        assert len(wire.rows) == 2
    assert [row.source for row in wire.rows[2:]] == ["fork:extract"]


async def test_what_stands_before_the_messages_outlives_them_where_a_person_talks(wire: Wire) -> None:
    async with wire.session(settings={"flags": {"dream": False, "extraction": False}}) as session:
        await session.ask("Please look at the build. " * 60)
        [first] = wire.rows
        head = first.tokens.cache_write_1h
        assert 0 < head < cached(first)
        await wire.clock.advance(TTL_SECONDS["1h"] - 60)
        await session.ask("And now?")
        assert wire.rows[-1].tokens.cache_read == head
        assert wire.rows[-1].tokens.cache_write_1h == 0
        await wire.clock.advance(TTL_SECONDS["1h"] + 60)
        await session.ask("And now?")
        assert wire.rows[-1].tokens.cache_write_1h == head


@pytest.mark.parametrize(
    "options",
    [{"interactive": False}, {"settings": {"systemTtl": "5m", "flags": {"dream": False}}}],
    ids=["a program asks", "as it is set"],
)
async def test_else_all_of_it_is_kept_as_long(wire: Wire, options: dict[str, Any]) -> None:
    async with wire.session(**options) as session:
        await session.ask("Please look at the build. " * 60)
    assert wire.rows[0].tokens.cache_write_1h == 0
    assert wire.rows[0].tokens.cache_write_5m > 0


async def test_a_session_that_fails_does_not_stay_for_what_waits(wire: Wire) -> None:
    async def failing() -> None:
        async with wire.session() as session:
            await session.ask("Please look at the build. " * 60)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await failing()
    assert len(wire.rows) == 1
