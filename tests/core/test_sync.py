"""The doors between plain code and async code."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from sevenfold.core.clock import run_sync, run_without_waiting


async def doubled(number: int) -> int:
    return number * 2


async def forgiving() -> str:
    try:
        await anyio.sleep(5)
    except RuntimeError as error:
        return f"went on: {error}"
    return "slept"


async def stubborn() -> None:
    while True:
        try:
            await anyio.lowlevel.checkpoint()
        except RuntimeError:
            continue


def test_work_that_never_waits_is_done_at_once() -> None:
    assert run_without_waiting(doubled(21)) == 42


@pytest.mark.anyio
async def test_it_is_done_at_once_inside_a_running_loop_too() -> None:
    assert run_without_waiting(doubled(21)) == 42


@pytest.mark.anyio
async def test_work_that_waits_is_told_so_where_it_waits_and_may_go_on() -> None:
    assert run_without_waiting(forgiving()).startswith("went on: this may not wait")


@pytest.mark.anyio
async def test_work_that_would_not_listen_is_given_up() -> None:
    with pytest.raises(RuntimeError, match="may not wait"):
        run_without_waiting(stubborn())


def test_an_async_function_can_be_run_from_plain_code() -> None:
    assert run_sync(doubled, 4) == 8
