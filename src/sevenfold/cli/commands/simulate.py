"""`sevenfold simulate`: a model provider on this machine, until it is told to stop."""

from __future__ import annotations

import signal
from pathlib import Path

import anyio

from sevenfold.cli.failing import INTERRUPTED
from sevenfold.cli.options import Shared
from sevenfold.cli.output import result, say


def simulate(
    shared: Shared, *, port: int, script: Path | None, model: str | None, manual: bool
) -> int:
    from sevenfold.offline import reply_to_wire
    from sevenfold.simulator.server import ManualClock, Simulator

    simulator = Simulator(
        clock=ManualClock() if manual else None,
        script=script,
        replies=reply_to_wire,
        models=[model] if model else None,
        port=port,
    )

    async def serve() -> int:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with simulator:
                _ready(shared, simulator.url, simulator.port)
                async for number in signals:
                    return INTERRUPTED if number == signal.SIGINT else 0
        return 0

    return anyio.run(serve)


def _ready(shared: Shared, url: str, port: int) -> None:
    result(shared, f"ready: {url}", {"url": url, "port": port, "ready": True})
    say(shared, f"point a client at it with ANTHROPIC_BASE_URL={url}; Ctrl-C ends it")
