"""Work beside the conversation: collected later, failing visibly, drained at the end."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from sevenfold.core.errors import Refused
from sevenfold.core.events import Event, Failed
from sevenfold.core.protocols import Change
from sevenfold.core.transcript import Mark
from sevenfold.layers.shared.background import BackgroundTasks, open_task_group

pytestmark = pytest.mark.anyio


async def marks() -> Sequence[Change]:
    return (Mark("done", 1),)


async def nothing() -> Sequence[Change]:
    return ()


async def for_ever() -> Sequence[Change]:
    await anyio.sleep_forever()
    return ()


async def breaks() -> Sequence[Change]:
    raise ZeroDivisionError("oops")


async def refuses() -> Sequence[Change]:
    raise Refused("not allowed")


async def test_what_work_hands_back_waits_until_it_is_collected_and_only_once() -> None:
    async with open_task_group() as tasks:
        tray = BackgroundTasks(tasks, lambda event: None)
        tray.start("a", marks)
        tray.start("b", nothing)
        assert tray.collect() == []
        assert tray.running == ("a", "b")
        assert await tray.drain(5) == ()

        assert tray.collect() == [("a", (Mark("done", 1),))]
        assert tray.collect() == []


async def test_work_that_fails_says_so_and_hurts_nobody() -> None:
    events: list[Event] = []
    async with open_task_group() as tasks:
        tray = BackgroundTasks(tasks, events.append)
        tray.start("a", breaks)
        tray.start("b", refuses)
        await tray.drain(5)

    assert events == [Failed("a", "ZeroDivisionError('oops')"), Failed("b", "not allowed")]


async def test_draining_has_an_end_and_names_what_did_not_finish() -> None:
    async with open_task_group() as tasks:
        tray = BackgroundTasks(tasks, lambda event: None)
        tray.start("quick", nothing)
        tray.start("slow", for_ever)

        assert await tray.drain(0.05) == ("slow",)
    # leaving the group ends it: this test would hang if it did not


async def test_an_owners_error_comes_out_as_itself_and_ends_the_work() -> None:
    async def owner() -> None:
        async with open_task_group() as tasks:
            BackgroundTasks(tasks, lambda event: None).start("slow", for_ever)
            raise KeyError("mine")

    with pytest.raises(KeyError):
        await owner()
