"""Lines over a Unix socket that waits for nobody: connect, accept, send and read, each bounded.

Whoever calls these says how long they may take. An end that has hung up can still be read to its end, which
is how a sender that was refused in the middle of its line hears why.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

import anyio

from sevenfold.storage.files import PRIVATE_FILE

BACKLOG: Final = 64
_CHUNK: Final = 65_536
_PAUSE: Final = 0.01
"""Seconds before another try where a queue is full or no file can be opened."""


class LineTooLong(Exception):
    """A line is longer than lines may be."""


class HungUp(Exception):
    """The other end is gone."""


def listen(path: Path) -> socket.socket:
    """A socket that takes connections at this path; for this user alone."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.bind(os.fspath(path))
        path.chmod(PRIVATE_FILE)
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


async def accept(listener: socket.socket) -> socket.socket:
    """The next connection; where the system has no room for it, it waits in its queue."""
    while True:
        await anyio.wait_readable(listener)
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            continue
        except OSError:
            await anyio.sleep(_PAUSE)
            continue
        connection.setblocking(False)
        return connection


async def connect(path: Path) -> socket.socket:
    """A connection to whoever listens there; an `OSError` when nobody does."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        while True:
            try:
                made.connect(os.fspath(path))
            except BlockingIOError:  # its queue is full
                await anyio.sleep(_PAUSE)
                continue
            return made
    except BaseException:
        made.close()
        raise


async def send(connection: socket.socket, data: bytes) -> None:
    """All of it, or `HungUp`."""
    view = memoryview(data)
    while view:
        try:
            view = view[connection.send(view) :]
        except BlockingIOError:
            await anyio.wait_writable(connection)
        except OSError as error:
            raise HungUp(str(error)) from error


async def read_line(connection: socket.socket, longest: int) -> bytes:
    """Up to the next line break, which is left out; `HungUp` when it does not come."""
    read = bytearray()
    while (end := read.find(b"\n")) < 0 and len(read) <= longest:
        part = await _received(connection)
        if not part:
            raise HungUp("before the end of a line")
        read += part
    if not 0 <= end <= longest:
        raise LineTooLong
    return bytes(read[:end])


async def _received(connection: socket.socket) -> bytes:
    while True:
        try:
            return connection.recv(_CHUNK)
        except BlockingIOError:
            await anyio.wait_readable(connection)
        except OSError as error:
            raise HungUp(str(error)) from error
