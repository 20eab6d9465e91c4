"""Work beside the conversation: collected later, failing visibly, drained at the end."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import anyio.lowlevel
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


async def test_work_that_is_ended_has_ended_and_so_has_what_began_meanwhile() -> None:
    async with open_task_group() as tasks:
        tray = BackgroundTasks(tasks, lambda event: None)

        async def begins_another() -> Sequence[Change]:
            try:
                await anyio.sleep_forever()
            finally:
                tray.start("notes", for_ever)
            return ()

        tray.start("notes", begins_another)
        tray.start("dream", for_ever)
        await anyio.lowlevel.checkpoint()
        await tray.stop("notes")
        assert tray.running == ("dream",)


async def test_work_that_was_broken_off_twice_is_let_finish_until_it_has_handed_something_back() -> None:
    async with open_task_group() as tasks:
        tray, go_on = BackgroundTasks(tasks, lambda event: None), anyio.Event()

        async def slow() -> Sequence[Change]:
            await go_on.wait()
            return await marks()

        for left in ((), (), ("a",)):
            tray.start("a", nothing)  # a run that finds nothing to do ends nothing
            tray.start("a", slow)
            await anyio.lowlevel.checkpoint()
            await tray.stop("a")
            assert tray.running == left
        go_on.set()
        await tray.drain(5)

        tray.start("a", for_ever)
        await anyio.lowlevel.checkpoint()
        await tray.stop("a")
        assert tray.running == ()


async def test_who_stops_nothing_waits_for_what_is_ending() -> None:
    async with open_task_group() as tasks:
        tray, order = BackgroundTasks(tasks, lambda event: None), list[str]()

        async def ends_slowly() -> Sequence[Change]:
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    for _ in range(9):
                        await anyio.lowlevel.checkpoint()
                order.append("ended")
            return ()

        tray.start("a", ends_slowly)
        tray.start("b", for_ever)
        await anyio.lowlevel.checkpoint()
        with anyio.CancelScope() as impatient:
            tasks.start_soon(tray.stop, "a")
            await anyio.lowlevel.checkpoint()
            impatient.cancel()
        await tray.stop()
        assert (order, tray.running) == (["ended"], ("b",))
