"""`sevenfold simulate`: a model provider on this machine, until it is told to stop."""

from __future__ import annotations

import signal
from pathlib import Path

import anyio
import msgspec

from sevenfold.cli.failures import INTERRUPTED
from sevenfold.cli.options import SharedOptions
from sevenfold.cli.output import print_message, print_result


class ServedOptions(msgspec.Struct, frozen=True):
    """What the provider serves, as the command line says it."""

    script: Path | None = None
    model: str | None = None
    is_manual: bool = False
    window: int | None = None
    counts_headers: bool = False


def run_simulator(shared: SharedOptions, port: int, serves: ServedOptions) -> int:
    from sevenfold.offline import encode_reply
    from sevenfold.simulator.server import ManualClock, Simulator

    simulator = Simulator(
        clock=ManualClock() if serves.is_manual else None,
        script=serves.script,
        replies=encode_reply,
        models=[serves.model] if serves.model else None,
        window=serves.window,
        counts_headers=serves.counts_headers,
        port=port,
    )

    async def serve() -> int:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with simulator:
                url, token = simulator.url, simulator.token
                value = {"url": url, "port": simulator.port, "token": token, "ready": True}
                print_result(shared, f"ready: {url}\ntoken: {token}", value)
                print_message(shared, f"point a client at it with ANTHROPIC_BASE_URL={url}; Ctrl-C ends it")
                async for number in signals:
                    return INTERRUPTED if number == signal.SIGINT else 0
        return 0

    return anyio.run(serve)
