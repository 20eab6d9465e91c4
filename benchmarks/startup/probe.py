"""Runs one start in this process and writes what it took up to the moment that is measured.

python probe.py OUT code CODE         measures when CODE has run
python probe.py OUT command WORD…     measures when `sevenfold WORD…` is done
python probe.py OUT http WORD…        measures when `sevenfold WORD…` writes its first request to a socket
python probe.py OUT offline WORD…     measures when it first asks the offline engine

It is a script and imports nothing of ours before the work begins: what it imports would not be counted.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
from collections import Counter
from re import _compiler  # type: ignore[attr-defined]  # the one door through which every pattern goes
from typing import Any

patterns: Counter[str] = Counter()
measured: dict[str, Any] = {}


def count_patterns() -> None:
    """Note for each regular expression which module had it compiled."""
    original = _compiler.compile

    def compile(*args: Any, **options: Any) -> Any:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals["__name__"] in ("re", "functools"):
            frame = frame.f_back
        patterns[frame.f_globals["__name__"]] += 1
        return original(*args, **options)

    _compiler.compile = compile


def measure_now() -> None:
    """Keep the figures of the first call; later ones are after the moment."""
    if not measured:
        measured.update(
            at=time.perf_counter(),
            cpu=time.process_time(),
            modules=sorted(sys.modules),
            patterns=dict(patterns),
        )


def watch_socket() -> None:
    import socket

    original = socket.socket.send

    def send(self: socket.socket, data: Any, *flags: Any) -> int:
        if bytes(data[:5]) == b"POST ":
            measure_now()
        return original(self, data, *flags)

    socket.socket.send = send  # type: ignore[method-assign, assignment]


def watch_offline() -> None:
    from sevenfold.offline import OfflineEngine

    original = OfflineEngine.stream

    def stream(self: OfflineEngine, request: Any) -> Any:
        measure_now()
        return original(self, request)

    OfflineEngine.stream = stream  # type: ignore[method-assign]


def main() -> int:
    out, kind, *words = sys.argv[1:]
    sys.path.pop(0)  # this folder, which `python -m sevenfold` would not have
    count_patterns()
    code = 0
    if kind == "code":
        exec(words[0], {})
    else:
        if kind != "command":
            {"http": watch_socket, "offline": watch_offline}[kind]()
        from sevenfold.cli.main import main as run

        code = run(words)
    if kind in ("code", "command"):
        measure_now()
    measured["ended"], measured["cpu_ended"] = time.perf_counter(), time.process_time()
    with pathlib.Path(out).open("w", encoding="utf-8") as file:
        json.dump(measured, file)
    return code


if __name__ == "__main__":
    sys.exit(main())
