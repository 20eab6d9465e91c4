"""Keys that are pressed while a turn runs: Esc stops it, and what is typed is kept for the next prompt."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import anyio

ESCAPE: Final = b"\x1b"
_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)
"""Arrow keys and the like, and the marks around pasted text."""


class Keys:
    """Listens to a terminal without showing what is typed. Ctrl-C is still a signal."""

    def __init__(self, fd: int, on_escape: Callable[[], object]) -> None:
        self._fd, self._on_escape = fd, on_escape
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._typed = ""
        self._scope: anyio.CancelScope | None = None
        self._may_listen = anyio.Event()
        self._may_listen.set()
        self._silent = anyio.Event()
        self._silent.set()
        self._undo: Callable[[], None] | None = None

    def restore(self) -> None:
        """The terminal as it was, at once: for those who leave without looking back."""
        if self._undo is not None:
            self._undo()

    def typed(self) -> str:
        """What was typed since this was last asked."""
        text, self._typed = self._typed, ""
        text = _SEQUENCE.sub("", text).replace("\r", "\n")
        return "".join(c for c in text if c == "\n" or c.isprintable()).strip("\n")

    async def listen(self) -> None:
        """Until cancelled, or until the terminal is gone."""
        gone = False
        while not gone:
            await self._may_listen.wait()
            self._silent = anyio.Event()
            try:
                with anyio.CancelScope() as self._scope, unechoed(self._fd) as self._undo:
                    gone = await self._read()
            finally:
                self._undo = None
                self._silent.set()

    async def _read(self) -> bool:
        while True:
            await anyio.wait_readable(self._fd)
            try:
                data = os.read(self._fd, 4096)
            except OSError:
                return True
            if not data:
                return True
            if data == ESCAPE:
                self._on_escape()
            else:
                self._typed += self._decode(data)

    @asynccontextmanager
    async def silent(self) -> AsyncIterator[None]:
        """The terminal as it was, for somebody else to read from."""
        self._may_listen = anyio.Event()
        if self._scope is not None:
            self._scope.cancel()
        await self._silent.wait()
        try:
            yield
        finally:
            self._may_listen.set()


if sys.platform == "win32":

    @contextmanager
    def unechoed(fd: int) -> Iterator[Callable[[], None]]:
        yield lambda: None

else:
    import termios
    import tty

    @contextmanager
    def unechoed(fd: int) -> Iterator[Callable[[], None]]:
        """Each key at once and none shown; signals as usual. Yields how to undo it."""
        before = termios.tcgetattr(fd)

        def undo() -> None:
            with contextlib.suppress(termios.error):  # the terminal may be gone
                termios.tcsetattr(fd, termios.TCSANOW, before)

        tty.setcbreak(fd, termios.TCSANOW)
        try:
            yield undo
        finally:
            undo()
