"""Starts llama.cpp for one GGUF file, and says in a sentence why it ended when it did."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Final, Self

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from sevenfold.errors import ModelFailure, ModelNotFound, Unreachable
from sevenfold.models.llama_server import Ready, Wanted

PROGRAM: Final = "sevenfold.models.llama_server"
LONGEST_ANSWER: Final = 4096
LOG_TAIL: Final = 1 << 16
END_SECONDS: Final = 2.0
"""How long a process may take to be gone after its connection broke."""

_STAMP: Final = re.compile(r"^[\d.]+ [A-Z] ")
_CANNOT_LOAD: Final = re.compile(r"error loading model: (.+)")
_MEMORY: Final = re.compile(r"insufficient memory|failed to allocate|bad_alloc|out of memory", re.I)
_KILLED: Final = -9


class LlamaProcess:
    """A running server. `url` and `key` are how to reach it; `close` ends it."""

    def __init__(self, wanted: Wanted, process: Process, log: IO[bytes]) -> None:
        self.url, self.key, self.pid = "", wanted.key, process.pid
        self._wanted, self._process, self._log = wanted, process, log

    @classmethod
    async def start(cls, path: Path, name: str, window: int) -> Self:
        """Load the model, which may take a while; cancelled, nothing stays."""
        wanted = Wanted(str(path), name, window, cores(), secrets.token_hex(16))
        log = tempfile.TemporaryFile()  # noqa: SIM115 -- it lives as long as the process
        with anyio.CancelScope(shield=True):  # half a process could not be ended
            process = await anyio.open_process(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    PROGRAM,
                ],  # -P: nothing is imported from where we stand
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us, and ends a reply, not the model
            )
        started = cls(wanted, process, log)
        try:
            await started._told_where()
        except BaseException:
            await started.close()
            raise
        return started

    async def _told_where(self) -> None:
        orders, answers = self._process.stdin, self._process.stdout
        assert orders is not None
        assert answers is not None
        try:
            await orders.send(msgspec.json.encode(self._wanted) + b"\n")
            line = await BufferedByteReceiveStream(answers).receive_until(b"\n", LONGEST_ANSWER)
        except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.IncompleteRead):
            await self._process.wait()
            raise self._why(loading=True) from None
        self.url = msgspec.json.decode(line, type=Ready).url

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def why_ended(self, *, wait: bool) -> ModelFailure | None:
        """Why it is no longer there; None when it is. A broken connection is worth a moment's wait."""
        if wait:
            with anyio.move_on_after(END_SECONDS):
                await self._process.wait()
        return None if self.alive else self._why()

    async def close(self) -> None:
        """End it at once: it keeps nothing that would be lost."""
        with anyio.CancelScope(shield=True):
            if self.alive:
                self._process.kill()
            await self._process.aclose()
            self._log.close()

    def _why(self, loading: bool = False) -> ModelFailure:
        wanted, log = self._wanted, self._said()
        if _MEMORY.search(log) or self._process.returncode == _KILLED:
            return _final(
                f"memory ran out for {wanted.path} with a window of {wanted.window:,} tokens: "
                "set a smaller one with SEVENFOLD_WINDOW, or use a smaller model"
            )
        reasons = _CANNOT_LOAD.findall(log) or [_STAMP.sub("", log.splitlines()[-1])] if log else []
        said = f": {reasons[-1].strip()[:300]}" if reasons else ""
        if loading:
            return ModelNotFound(f"llama.cpp cannot run {wanted.path}{said}")
        how = ended(self._process.returncode)
        return Unreachable(
            f"llama.cpp {how} while it ran {wanted.path}{said}; the next request starts it again"
        )

    def _said(self) -> str:
        end = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, end - LOG_TAIL))
        return self._log.read().decode("utf-8", "replace").strip()


def cores() -> int:
    """How many may be used: a container often has fewer than its machine."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def ended(code: int | None) -> str:
    if code is None or code >= 0:
        return f"ended with {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _final(message: str) -> ModelFailure:
    error = Unreachable(message)
    error.retryable = False  # there will be no more memory the next time
    return error
