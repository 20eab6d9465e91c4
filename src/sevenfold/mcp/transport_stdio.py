"""The server on standard input and output: a line in, a line out, until the input ends.

One thread reads and answers what needs no memory. A second works through the rest in order. What waits for
a person or for minutes has a thread of its own, so that a recall does not wait behind it.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from sevenfold.mcp.client_calls import DISCOVER, ELICIT, INITIALIZE, ClientCall, ClientConnection
from sevenfold.mcp.protocol import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    Json,
    RejectedMessage,
    RequestId,
    RpcError,
    RpcMessage,
    RpcNotification,
    RpcReply,
    RpcRequest,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    parse_line,
)
from sevenfold.mcp.server import APART, QUICK, McpServer

LONGEST: Final = 16 << 20  # Bytes of a line; the guard of memory refuses much less
BLOCK: Final = 1 << 16
MOST_APART: Final = 8  # Calls that may wait at the same time
PERSON_WAIT: Final = 600.0  # Seconds that a person may take for an answer, and a program
PROGRAM_WAIT: Final = 5.0


class StdioTransport:
    """Serves one client on two file descriptors."""

    def __init__(self, server: McpServer, reads: int, writes: int) -> None:
        self._server, self._reads, self._writes = server, reads, writes
        self._connection = ClientConnection(self._notify, self._ask)
        self._writing = threading.Lock()
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._asked: dict[str, queue.SimpleQueue[RpcReply | None]] = {}
        self._begun: set[int | str] = set()
        self._cancelled: set[int | str] = set()
        self._apart: dict[threading.Thread, None] = {}
        self._numbers = iter(range(1, 1 << 62))
        self._ended = threading.Event()

    def serve(self) -> None:
        """Answer until the input ends; what was begun is finished first, and no question is waited for."""
        worker = threading.Thread(target=self._run_worker, name="memory", daemon=True)
        worker.start()
        try:
            for line in read_lines(self._reads):
                if line is None:
                    why = f"a line has at most {LONGEST:,} bytes; it was not read"
                    self._write(encode_error(None, INVALID_REQUEST, why))
                    continue
                for message in parse_line(line):
                    try:
                        self._receive(message)
                    except Exception as error:  # no line ends the server
                        if isinstance(message, RpcRequest):
                            self._begun.discard(message.id)
                            self._write(self._encode_failure(message.id, error))
        except KeyboardInterrupt:  # the client was stopped at its terminal
            pass
        self._ended.set()
        for waiting in list(self._asked.values()):
            waiting.put(None)
        self._work.put(None)
        worker.join()
        for thread in list(self._apart):
            thread.join()
        self._server.close()

    def _receive(self, message: RpcMessage) -> None:
        match message:
            case RejectedMessage(id=id, code=code, why=why):
                self._write(encode_error(id, code, why))
            case RpcReply(id=id):
                if isinstance(id, str) and (waiting := self._asked.get(id)) is not None:
                    waiting.put(message)
            case RpcNotification(method="notifications/cancelled", params=params):
                if isinstance(given := params.get("requestId"), int | str) and given in self._begun:
                    self._cancelled.add(given)
            case RpcRequest():
                self._begin(message)

    def _begin(self, request: RpcRequest) -> None:
        def is_cancelled() -> bool:
            return request.id in self._cancelled or self._ended.is_set()

        try:
            call = self._connection.open_call(request, is_cancelled)
        except RpcError as error:
            self._write(encode_error(request.id, error.code, str(error), error.data))
            return
        self._begun.add(request.id)
        name = request.params.get("name")
        if request.method in QUICK:
            self._answer(call)
            if request.method in (INITIALIZE, DISCOVER):
                self._work.put(self._warm_up)
        elif request.method == "tools/call" and isinstance(name, str) and name in APART:
            self._begin_apart(call)
        else:
            self._work.put(partial(self._answer, call))

    def _begin_apart(self, call: ClientCall) -> None:
        self._apart = {thread: None for thread in self._apart if thread.is_alive()}
        if len(self._apart) >= MOST_APART:
            why = f"{MOST_APART} calls wait already; try again when one of them is answered"
            self._begun.discard(call.request.id)
            self._write(encode_error(call.request.id, INVALID_REQUEST, why))
            return
        thread = threading.Thread(target=self._answer, args=(call,), daemon=True)
        self._apart[thread] = None
        thread.start()

    def _run_worker(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def _warm_up(self) -> None:
        if not self._ended.is_set():
            self._server.warm_up()

    def _answer(self, call: ClientCall) -> None:
        id = call.request.id
        try:
            answer = encode_result(id, self._server.answer(call))
        except RpcError as error:
            answer = encode_error(id, error.code, str(error), error.data)
        except Exception as error:  # the worker has more to answer
            answer = self._encode_failure(id, error)
        self._begun.discard(id)
        self._cancelled.discard(id)
        self._write(answer)

    def _encode_failure(self, id: RequestId, error: Exception) -> bytes:
        return encode_error(id, INTERNAL_ERROR, self._server.log_error(error))

    def _notify(self, method: str, params: Json) -> None:
        self._write(encode_notification(method, params))

    def _ask(self, method: str, params: Json) -> RpcReply | None:
        """Send a request to the client and wait for the answer; None when the client is gone."""
        id = f"sevenfold-{next(self._numbers)}"
        waiting: queue.SimpleQueue[RpcReply | None] = queue.SimpleQueue()
        self._asked[id] = waiting
        try:
            if self._ended.is_set():
                return None
            self._write(encode_request(id, method, params))
            return waiting.get(timeout=PERSON_WAIT if method == ELICIT else PROGRAM_WAIT)
        except queue.Empty:
            return None
        finally:
            del self._asked[id]

    def _write(self, line: bytes) -> None:
        with self._writing:
            rest = memoryview(line)
            try:
                while rest:
                    rest = rest[os.write(self._writes, rest) :]
            except (BrokenPipeError, OSError):  # the client is gone; its input ends too
                return


def read_lines(descriptor: int) -> Iterator[bytes | None]:
    """The lines that are not empty, without their ends; None stands for one that is too long."""
    parts: list[bytes] = []
    size, skipping = 0, False
    while True:
        try:
            block = os.read(descriptor, BLOCK)
        except OSError:
            return
        if not block:
            break
        *ends, rest = block.split(b"\n")
        for end in ends:
            line = b"".join((*parts, end)).strip()
            parts, size = [], 0
            if skipping or len(line) > LONGEST:
                yield None
            elif line:
                yield line
            skipping = False
        parts.append(rest)
        size += len(rest)
        if size > LONGEST:
            parts, size, skipping = [], 0, True
    if last := b"".join(parts).strip():
        yield None if skipping else last
