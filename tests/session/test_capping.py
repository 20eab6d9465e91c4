"""What nobody waits for is asked only while the day's money lasts."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from kit import make_forks, make_parts
from layers.l3_session_memory.noting import Noting
from msgspec.structs import replace

from sevenfold.cache.prices import Prices
from sevenfold.core.errors import Overloaded, Refused, StorageFailure
from sevenfold.core.events import Event, Notice
from sevenfold.core.messages import Text, ToolResult, ToolUse, assistant, user, write_directive
from sevenfold.core.request import Frame, Request
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Reply, Transcript
from sevenfold.layers.ladder import make_standard_layers
from sevenfold.session.spending import CappedForker, SpendingFile
from sevenfold.settings.layers import NotesSettings
from sevenfold.settings.schema import Settings
from sevenfold.testing import FakeClock, ScriptedModel
from sevenfold.testing.doubles import Line

pytestmark = pytest.mark.anyio
MODEL = "claude-sonnet-4-5"
ASK = user(write_directive("notes", "n-1", "Say it."))
USED = Usage(cache_read=100_000, output=1_000)
SAID = Reply(assistant(Text("noted")), usage=USED)


class Asking:
    def __init__(self, home: Path, limit: float | None, *script: Line, model: str = MODEL) -> None:
        self.clock, self.events = FakeClock(), list[Event]()
        self.model = ScriptedModel(script)
        tell = self.events.append
        self.forks = make_forks(self.model, tell, self.clock)
        self.spending = SpendingFile(home, limit, self.clock)
        self.capped = CappedForker(self.forks, Prices.load(), self.spending, tell)
        log = Transcript(self.clock.now)
        log.add(user("w" * 400_000))
        self.request = Request(Frame(model), log.view)

    async def ask(self) -> None:
        await self.capped(self.request, ASK, kind="notes")


async def test_what_was_asked_is_put_down_at_what_it_cost(tmp_path: Path) -> None:
    asking = Asking(tmp_path, 5.0, SAID)
    await asking.ask()
    price = Prices.load().of(MODEL)
    assert price is not None
    assert asking.spending.today.by == {"notes": pytest.approx(price.cost(USED))}


async def test_when_the_days_money_is_gone_nothing_is_sent_and_that_is_said_once(tmp_path: Path) -> None:
    asking = Asking(tmp_path, 0.06, SAID)
    await asking.ask()
    for _ in range(2):
        with pytest.raises(Refused, match="no more today"):
            await asking.ask()
    assert len(asking.model.requests) == 1
    assert [e.text for e in asking.events if isinstance(e, Notice)] == [
        "background work may cost no more today; raise dailyBackgroundLimit in the settings to allow it"
    ]


async def test_a_question_that_failed_is_not_charged(tmp_path: Path) -> None:
    asking = Asking(tmp_path, 5.0, *[Overloaded("busy")] * 20)
    with pytest.raises(Overloaded):
        await asking.ask()
    assert asking.spending.today.spent == pytest.approx(0.0)


class Calling:
    """Tools whose call is stopped by the test."""

    def __init__(self, stop: int) -> None:
        self.left, self.scope = stop, anyio.CancelScope()

    def safe(self, use: ToolUse) -> bool:
        return True

    async def call(self, use: ToolUse) -> ToolResult:
        self.left -= 1
        if not self.left:
            self.scope.cancel()
            await anyio.sleep_forever()
        return ToolResult(use.id, "done")


CALL = Reply(assistant(ToolUse("t1", "Read", {})), usage=USED)


async def test_a_dream_is_expected_to_need_a_part_of_its_steps(tmp_path: Path) -> None:
    asking = Asking(tmp_path, 5.0, SAID, model="claude-opus-4-1")
    await asking.capped(asking.request, ASK, kind="dream", steps=30, max_tokens=4_000)
    assert len(asking.model.requests) == 1


async def test_a_dream_that_was_stopped_costs_what_its_replies_cost(tmp_path: Path) -> None:
    asking = Asking(tmp_path, 5.0, *[CALL] * 9)
    tools, price = Calling(3), Prices.load().of(MODEL)
    assert price is not None
    with tools.scope:
        await asking.capped(asking.request, ASK, kind="dream", steps=30, tools=tools, max_tokens=4_000)
    assert tools.scope.cancelled_caught
    three, spent = 3 * price.cost(USED), asking.spending.today.spent
    assert three <= spent <= 2 * three, "its replies, and one that may have been on its way"


async def test_a_dream_is_stopped_when_the_days_money_is_gone(tmp_path: Path) -> None:
    asking = Asking(tmp_path, 0.2, *[CALL] * 30)
    with pytest.raises(Refused, match="no more today"):
        await asking.capped(asking.request, ASK, kind="dream", steps=30, tools=Calling(0), max_tokens=4_000)
    price = Prices.load().of(MODEL)
    assert price is not None
    assert 0.2 < asking.spending.today.spent <= 0.2 + price.cost(USED)


async def test_a_model_without_a_price_is_asked_and_nothing_is_put_down(tmp_path: Path) -> None:
    asking = Asking(tmp_path, 0.0, SAID, model="offline")
    await asking.ask()
    assert not (tmp_path / "spending.json").exists()


async def test_without_a_ledger_nothing_is_spent(tmp_path: Path) -> None:
    (tmp_path / "home").write_bytes(b"")
    asking = Asking(tmp_path / "home", 5.0, SAID)
    with pytest.raises(StorageFailure, match="home"):
        await asking.ask()
    assert not asking.model.requests


async def test_the_notes_of_a_session_are_held_to_it(tmp_path: Path) -> None:
    asking = Asking(tmp_path, 0.0)
    noting = Noting(tmp_path)
    parts = make_parts(
        able=noting.able,
        path=tmp_path / "one.jsonl",
        folder=tmp_path / "tool-results",
        events=asking.events,
        clock=asking.clock,
        fork=asking.forks,
        background_fork=asking.capped,
        settings=Settings(notes=NotesSettings(priced=True)),
    )
    layers = make_standard_layers("main", parts)
    request = replace(asking.request, frame=replace(noting.frame, model=MODEL))
    for layer in layers.replied:
        await layer(request)
    assert not asking.model.requests
    assert "no more today" in str(asking.events)
