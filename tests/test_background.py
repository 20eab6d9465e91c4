"""Work beside the conversation: collected later, failing visibly, drained at the end."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from sevenfold.errors import Refused
from sevenfold.events import Event, Failed
from sevenfold.layers.shared.background import Tray, owned_tasks
from sevenfold.protocols import Handback
from sevenfold.transcript import Mark

pytestmark = pytest.mark.anyio


async def marks() -> Sequence[Handback]:
    return (Mark("done", 1),)


async def nothing() -> Sequence[Handback]:
    return ()


async def for_ever() -> Sequence[Handback]:
    await anyio.sleep_forever()
    return ()


async def breaks() -> Sequence[Handback]:
    raise ZeroDivisionError("oops")


async def refuses() -> Sequence[Handback]:
    raise Refused("not allowed")


async def test_what_work_hands_back_waits_until_it_is_collected_and_only_once() -> None:
    async with owned_tasks() as tasks:
        tray = Tray(tasks, lambda event: None)
        tray.start("a", marks)
        tray.start("b", nothing)
        assert tray.collect() == []
        assert tray.running == ("a", "b")
        assert await tray.drain(5) == ()

        assert tray.collect() == [("a", (Mark("done", 1),))]
        assert tray.collect() == []


async def test_work_that_fails_says_so_and_hurts_nobody() -> None:
    events: list[Event] = []
    async with owned_tasks() as tasks:
        tray = Tray(tasks, events.append)
        tray.start("a", breaks)
        tray.start("b", refuses)
        await tray.drain(5)

    assert events == [Failed("a", "ZeroDivisionError('oops')"), Failed("b", "not allowed")]


async def test_draining_has_an_end_and_names_what_did_not_finish() -> None:
    async with owned_tasks() as tasks:
        tray = Tray(tasks, lambda event: None)
        tray.start("quick", nothing)
        tray.start("slow", for_ever)

        assert await tray.drain(0.05) == ("slow",)
    # leaving the group ends it: this test would hang if it did not


async def test_an_owners_error_comes_out_as_itself_and_ends_the_work() -> None:
    async def owner() -> None:
        async with owned_tasks() as tasks:
            Tray(tasks, lambda event: None).start("slow", for_ever)
            raise KeyError("mine")

    with pytest.raises(KeyError):
        await owner()
