"""The program that runs one GGUF file: llama.cpp's server, in a process of its own.

It reads one line of input (`ServerConfig`), answers with one line (its address), and ends when its input
ends: so it never outlives the process that started it.
"""

from __future__ import annotations

import os
import sys
from typing import Any, BinaryIO

import msgspec


class ServerConfig(msgspec.Struct, frozen=True):
    """The file to run, and the server's options."""

    path: str
    name: str  # The model's name in its replies; prices go by it
    window: int
    threads: int
    key: str  # Made for this run, so that other users of the machine cannot use the server


class ServerReady(msgspec.Struct, frozen=True):
    """The address where the server listens."""

    url: str


def make_server_params(wanted: ServerConfig) -> Any:
    """The settings of llama.cpp; others keep their defaults."""
    import xllamacpp  # type: ignore[import-untyped]

    chosen = xllamacpp.CommonParams()
    chosen.model.path = wanted.path
    chosen.model_alias = {wanted.name}
    chosen.n_ctx = wanted.window
    # One slot: forks queue, and each finds the whole prefix in it. With several, a fork that runs
    # beside another gets an empty slot and reads its prompt from the start.
    chosen.n_parallel = 1
    # A window that slides over the cache cannot be taken back to where a fork begins.
    chosen.swa_full = True
    chosen.cache_ram_mib = 2048
    for cores in (chosen.cpuparams, chosen.cpuparams_batch):
        cores.n_threads = wanted.threads
    chosen.hostnames, chosen.port, chosen.api_keys = ["127.0.0.1"], 0, [wanted.key]
    chosen.sse_ping_interval = 10  # a long prompt is no silence, and neither is waiting for the slot
    chosen.ui = chosen.endpoint_slots = False
    chosen.offline = chosen.use_jinja = True
    chosen.verbosity = 1  # errors only: they are shown when it ends
    return chosen


def run_server(orders: BinaryIO, answers: BinaryIO) -> None:
    """Run what the first line of `orders` asks for until `orders` ends."""
    import xllamacpp

    wanted = msgspec.json.decode(orders.readline(), type=ServerConfig)
    server = xllamacpp.Server(make_server_params(wanted))
    answers.write(msgspec.json.encode(ServerReady(server.listening_address)) + b"\n")
    answers.flush()
    orders.read()
    # Do not wait for a running reply: its reader is gone.
    os._exit(0)


def main() -> None:
    # llama.cpp prints to stdout, too: the answer goes out on a descriptor of its own.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        run_server(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
