"""A session whose user goes away: the timer, the layer and the wire together."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from flows.test_session import Place
from flows.wire import SteadySimulator

from sevenfold.core.events import CacheBroke, Cleared, Compacted, Failed, Progress, Sending
from sevenfold.offline import encode_reply
from sevenfold.simulator import ManualClock

pytestmark = pytest.mark.anyio


class Driven(ManualClock):
    """Whoever sleeps wakes when the test moves the clock."""

    def __init__(self) -> None:
        super().__init__()
        self._moved = anyio.Event()

    async def sleep(self, seconds: float) -> None:
        end = self.now() + seconds
        while self.now() < end:
            await self._moved.wait()

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        moved, self._moved = self._moved, anyio.Event()
        moved.set()


async def away(clock: Driven, session: object, minutes: float) -> None:
    for _ in range(int(minutes * 4)):
        clock.advance(15)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        await session.tray.drain(60)  # type: ignore[attr-defined]


@pytest.mark.parametrize("on", [True, False])
async def test_with_the_flag_a_user_who_comes_back_finds_the_cache_warm(tmp_path: Path, on: bool) -> None:
    clock = Driven()
    async with SteadySimulator(replies=encode_reply, clock=clock) as sim:
        here = Place(tmp_path, sim.url)
        sim.events = here.events
        options = {"clock": clock, "settings": {"flags": {"pre_cold": on, "notes": False}}}
        async with here.session(**options) as session:
            await session.ask("x " * 90_000)
            await away(clock, session, 6)
            await session.ask("thanks")
        kept = [row for row in sim.ledger.rows if row.source == "keep-warm"]
        assert len(kept) == on
        assert (sim.ledger[-1].hit_rate > 0.9) is on
        assert (here.of(Sending)[-1].lost == 0) is on
        assert bool(here.of(CacheBroke)) is not on
        assert len(here.of(Progress)) == on
        assert not here.of(Failed)
        assert not here.of(Cleared)
        assert (here.home / "gaps.json").is_file()
        assert (here.home / "spending.json").is_file() is on


async def test_what_would_be_summed_up_anyway_is_summed_up_while_that_reads_the_cache(
    tmp_path: Path,
) -> None:
    clock = Driven()
    async with SteadySimulator(replies=encode_reply, clock=clock) as sim:
        here = Place(tmp_path, sim.url)
        sim.events = here.events
        for n in range(3):
            lines = (f"line {i} of file {n} says nothing new at all\n" for i in range(1_900))
            (here.project / f"f{n}.txt").write_text("".join(lines), encoding="utf-8")
        settings = {"flags": {"pre_cold": True, "notes": False}, "micro": {"keepWarm": 0}}
        async with here.session(clock=clock, settings=settings) as session:
            for n in range(3):
                await session.ask(f"read f{n}.txt")
            full, sent = session.view.tokens, len(sim.ledger.rows)
            assert not here.of(Compacted)
            await away(clock, session, 6)
            await session.ask("thanks")
        asked, back = list(sim.ledger.rows)[sent:]

    (compacted,) = here.of(Compacted)
    assert (compacted.by, compacted.trigger) == ("summary", "price")
    assert (asked.source, back.source) == ("fork:compact", "main")
    assert asked.tokens.cache_read > 0.95 * full
    assert back.tokens.cache_write_5m < full / 10, "only what was left had to be written again"
    assert all(broke.expected for broke in here.of(CacheBroke))
    assert (here.home / "spending.json").is_file(), "what nobody waits for is held to the day's limit"
    assert not here.of(Failed)
