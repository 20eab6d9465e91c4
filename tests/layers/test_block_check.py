"""The last one asked before a request: when it warns, what it says, and that it says it once."""

from __future__ import annotations

import pytest
from kit import FRAME

from sevenfold.core.events import Event, Notice
from sevenfold.core.request import Request
from sevenfold.core.tokens import Pressure, Thresholds
from sevenfold.core.transcript import Transcript
from sevenfold.layers.ladder import BlockCheck

pytestmark = pytest.mark.anyio
AT = Thresholds.of(200_000, 32_000)


class Filling:
    """A conversation of so many tokens, as the block check sees it."""

    def __init__(self, *, compacts: bool = True, collapses: bool = False) -> None:
        self.events: list[Event] = []
        self._check = BlockCheck(self.events.append, compacts=compacts, collapses=collapses)
        self._request = Request(FRAME, Transcript(lambda: 0.0).view)

    async def at(self, tokens: int, thresholds: Thresholds = AT) -> None:
        assert await self._check.fit(self._request, Pressure(tokens, thresholds)) == ()


async def test_the_user_is_warned_once_when_the_window_gets_full() -> None:
    filling = Filling()
    for tokens in (1_000, AT.warning - 1, AT.warning, AT.warning + 5_000, AT.auto_compact - 1):
        await filling.at(tokens)

    (said,) = filling.events
    assert isinstance(said, Notice)
    assert f"about {AT.warning:,} of {AT.effective:,} tokens" in said.text
    assert f"at {AT.auto_compact:,} the older part is compacted" in said.text
    assert "/compact" in said.text


async def test_after_a_compaction_the_warning_comes_again() -> None:
    filling = Filling()
    for tokens in (AT.warning, 40_000, AT.warning, AT.warning + 1):
        await filling.at(tokens)

    assert len(filling.events) == 2


async def test_without_compaction_the_warning_says_where_it_ends() -> None:
    filling = Filling(compacts=False)
    await filling.at(AT.warning)

    (said,) = filling.events
    assert isinstance(said, Notice)
    assert said.level == "warning"
    assert f"from {AT.block:,} on nothing is sent" in said.text


@pytest.mark.parametrize("compacts", [True, False])
async def test_while_tool_rounds_are_collapsed_no_compaction_is_promised_before_its_time(
    compacts: bool,
) -> None:
    filling = Filling(compacts=compacts, collapses=True)
    await filling.at(AT.warning)

    (said,) = filling.events
    assert isinstance(said, Notice)
    assert f"at {AT.auto_compact:,}" not in said.text
    assert f"above {int(0.9 * AT.effective):,} finished tool rounds are collapsed" in said.text
    later = f"above {int(0.95 * AT.effective):,} the older part is compacted"
    assert (later in said.text) == compacts
    assert (f"from {AT.block:,} on nothing is sent" in said.text) == (not compacts)


async def test_a_limit_that_was_set_very_low_is_near_when_it_is_near() -> None:
    filling, low = Filling(), Thresholds.of(200_000, 32_000, compact_percent=5)
    assert low.warning < 0
    await filling.at(5_000, low)
    assert filling.events == []
    await filling.at(8_000, low)
    assert len(filling.events) == 1


async def test_whoever_gives_no_ear_is_not_told() -> None:
    request = Request(FRAME, Transcript(lambda: 0.0).view)

    assert await BlockCheck().fit(request, Pressure(AT.warning, AT)) == ()
