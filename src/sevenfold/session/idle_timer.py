"""The timer of an idle session: writes background results, and asks the layers that act on silence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from sevenfold.core.errors import SevenfoldError
from sevenfold.core.events import Failed, get_label
from sevenfold.layers.shared.background import BackgroundTasks
from sevenfold.turn import Turn

TICK: Final = 15.0  # Seconds between two looks at the clock


async def watch_idle(turn: Turn, tray: BackgroundTasks, busy: Callable[[], bool]) -> None:
    """Never ends by itself; `busy` says that a turn is running."""
    while True:
        await turn.clock.sleep(TICK)
        replied_at = turn.transcript.view.replied_at
        if busy() or replied_at is None:
            continue
        try:
            turn.collect()
        except SevenfoldError as error:  # the disk, for instance: the next turn will say so too
            turn.emit(Failed("idle", str(error)))
        ask_idle_layers(turn, tray, turn.clock.now() - replied_at)


def ask_idle_layers(turn: Turn, tray: BackgroundTasks, idle: float) -> None:
    """Ask the layers that act on silence, after so many seconds of it; one may say that nothing waits."""
    for layer in turn.layers.idle:
        name, waiting = get_label(layer), getattr(layer, "waiting", True)
        if waiting and name not in tray.running:
            tray.start(name, partial(layer, turn.request, idle))
