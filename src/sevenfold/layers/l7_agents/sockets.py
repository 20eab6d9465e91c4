"""Messages between sessions on one machine, over a Unix socket: one line there, one line back.

    {"version": 1, "to": "<session>", "session": "<sender's>", "letter": {id, from, text, …}}
    {"version": 1, "ok": true}
    {"version": 1, "ok": false, "why": "full", "said": "50 messages wait for …"}

Both ends look who the other one is; only the same user is talked to. The receiver has written the letter to
its disk before it says yes, so a sender that heard nothing sends the same letter again, and it counts once.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec.structs import replace

from sevenfold.background import owned_tasks
from sevenfold.errors import Refused, SevenfoldError
from sevenfold.events import Emit, Notice
from sevenfold.layers.l7_agents.frames import SESSION
from sevenfold.layers.l7_agents.letters import (
    Letter,
    MailboxFull,
    TooLong,
    checked,
    entry_of,
    letter_of,
)
from sevenfold.layers.l7_agents.lines import (
    HungUp,
    LineTooLong,
    accept,
    connect,
    listen,
    read_line,
    send,
)
from sevenfold.layers.l7_agents.names import COMMAND_LINE, UNKNOWN
from sevenfold.layers.l7_agents.peers import check_peer, own_user
from sevenfold.layers.l7_agents.reachable import (
    NotSent,
    Reachable,
    find,
    new_socket,
    private,
    reachable,
    register,
    unregister,
)
from sevenfold.layers.l7_agents.rendering import attribute
from sevenfold.messages import Json
from sevenfold.protocols import Clock

VERSION: Final = 1
LONGEST_LINE: Final = 262_144
"""Bytes of a line; a letter of the longest kind fits."""
CONNECTIONS: Final = 16
"""At the same time; whoever comes beyond that is asked to come again."""
SECONDS: Final = 5.0
"""For all of one exchange."""
TRIES: Final = 3
"""How often a letter is sent that may not have arrived."""
PAUSE: Final = 0.1
"""Seconds before it is sent again."""
_FLOOD: Final = 4
"""Times the connections allowed; beyond that they are cut without a word."""
_SAID: Final = 300
_AGAIN: Final = frozenset({"timeout", "cut", "busy"})
_encode = msgspec.json.Encoder().encode


class Asked(msgspec.Struct, frozen=True):
    version: int
    to: str = ""
    session: str = ""
    letter: Any = None


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    version: int
    ok: bool = False
    why: str = ""
    said: str = ""


Receive = Callable[[Letter], Awaitable[object]]
"""Writes a letter down for good, or raises one of our errors: `Mailbox.accept`."""


# --- listening ------------------------------------------------------------------------------------------


class Listener:
    """Takes letters for one session as long as the block runs.

    Where nobody can listen the session goes on without: `problem` says why, and so does a notice.
    """

    def __init__(
        self,
        session: str,
        receive: Receive,
        folder: Path,
        clock: Clock,
        emit: Emit,
        *,
        project: str = "",
        user: int | None = None,
        seconds: float = SECONDS,
        connections: int = CONNECTIONS,
    ) -> None:
        self._session, self._receive, self._folder = session, receive, folder
        self._clock, self._emit = clock, emit
        self._project, self._user = project, user
        self._seconds, self._connections = seconds, connections
        self._open: set[socket.socket] = set()
        self._stack = contextlib.AsyncExitStack()
        self.here: Reachable | None = None
        """How others see it; None when it cannot be reached."""
        self.problem = ""

    async def __aenter__(self) -> Listener:
        with contextlib.ExitStack() as opened:
            try:
                self._user = own_user() if self._user is None else self._user
                path = new_socket(private(self._folder))
                listener = opened.enter_context(listen(path))
                about = (self._session, self._project, path)
                self.here = register(self._folder, *about, self._clock)
            except (SevenfoldError, OSError) as error:
                self.problem = str(error)
                self._emit(Notice(f"other sessions cannot reach this one: {error}", "warning"))
                return self
            opened.callback(unregister, self._folder, self.here)
            opened.callback(self._close)
            self._stack.enter_context(opened.pop_all())
        tasks = await self._stack.enter_async_context(owned_tasks())
        tasks.start_soon(self._accept, listener, tasks)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)

    async def _accept(self, listener: socket.socket, tasks: TaskGroup) -> None:
        while True:
            connection = await accept(listener)
            self._open.add(connection)
            tasks.start_soon(self._serve, connection)

    async def _serve(self, connection: socket.socket) -> None:
        try:
            with contextlib.suppress(HungUp), anyio.move_on_after(self._seconds):
                if len(self._open) <= _FLOOD * self._connections:
                    await send(connection, _encode(await self._answer(connection)) + b"\n")
        finally:
            connection.close()
            self._open.discard(connection)

    def _close(self) -> None:
        """Those that came in the last moment and were not served."""
        while self._open:
            self._open.pop().close()

    async def _answer(self, connection: socket.socket) -> Answer:
        if len(self._open) > self._connections:
            return _no("busy", "too many messages come in at once: try again in a moment")
        try:
            check_peer(connection, self._user or 0)
            line = await read_line(connection, LONGEST_LINE)
        except Refused as error:
            return _no("refused", str(error))
        except LineTooLong:
            return _no("too_long", f"a message has at most {LONGEST_LINE:,} bytes")
        return await self._take(line)

    async def _take(self, line: bytes) -> Answer:
        try:
            asked = msgspec.json.decode(line, type=Asked)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _no("refused", "what came in is no message")
        if asked.version != VERSION:
            return _no("version", f"this session speaks version {VERSION}, not {asked.version}")
        if asked.to != self._session:
            return _no("nobody", f"this is not the session {asked.to[:60]!r}")
        try:
            await self._receive(_letter(asked))
        except MailboxFull as error:
            return _no("full", str(error))
        except TooLong as error:
            return _no("too_long", str(error))
        except Refused as error:
            return _no("refused", str(error))
        except SevenfoldError as error:
            return _no("busy", str(error))
        return Answer(VERSION, True)


def _letter(asked: Asked) -> Letter:
    """The letter, from the session or the terminal that sent it: no name of this team can be claimed."""
    letter = letter_of(asked.letter)
    if letter.frame is not None or (isinstance(asked.letter, dict) and "frame" in asked.letter):
        raise Refused("frames stay inside a team: other sessions take plain messages only")
    session = attribute(asked.session, 128)
    if not session and letter.sender == COMMAND_LINE:
        return replace(letter, read=False)
    return replace(letter, sender=f"{SESSION}{session or UNKNOWN}", read=False)


def _no(why: str, said: str) -> Answer:
    return Answer(VERSION, False, why, said)


# --- sending --------------------------------------------------------------------------------------------


async def send_to(
    session: str,
    letter: Letter,
    folder: Path,
    *,
    own: str = "",
    user: int | None = None,
    seconds: float = SECONDS,
) -> Reachable:
    """Returns when the other session has the letter on its disk; `NotSent` says why it has not.

    After `timeout` or `cut` it may have arrived all the same: send the very same letter again.
    """
    if checked(letter).frame is not None:
        raise Refused("frames stay inside a team: other sessions take plain messages only")
    user = own_user() if user is None else user
    there = find(folder, session)
    asked: Json = {
        "version": VERSION,
        "to": there.session,
        "session": own,
        "letter": entry_of(letter),
    }
    try:
        with anyio.fail_after(seconds):
            answer = await _exchange(folder / there.socket, _encode(asked) + b"\n", user)
    except TimeoutError:
        raise NotSent(
            "timeout", f"the session {there.session} did not answer within {seconds:g} s"
        ) from None
    if not answer.ok:
        said = attribute(answer.said, _SAID) or "it did not say why"
        raise NotSent(answer.why, f"the session {there.session} did not take the message: {said}")
    return there


async def _exchange(path: Path, line: bytes, user: int) -> Answer:
    try:
        connection = await connect(path)
    except OSError as error:
        raise NotSent("nobody", f"nobody listens at {path}: the session has ended") from error
    with connection:
        try:
            check_peer(connection, user)
        except Refused as error:
            raise NotSent("refused", str(error)) from error
        with contextlib.suppress(HungUp):  # it may have answered before it had read all
            await send(connection, line)
        try:
            return _understood(await read_line(connection, LONGEST_LINE))
        except (HungUp, LineTooLong) as error:
            raise NotSent("cut", "the other session hung up before it answered") from error


def _understood(line: bytes) -> Answer:
    try:
        answer = msgspec.json.decode(line, type=Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotSent("version", "what the other session answered is no answer") from error
    if answer.version != VERSION:
        raise NotSent(
            "version",
            f"the other session speaks version {answer.version} and this one version {VERSION}",
        )
    return answer


class Sessions:
    """The other sessions on this machine, for one that sends. `folder` as `runtime_folder` gives it."""

    def __init__(self, folder: Path, own: str, clock: Clock) -> None:
        self._folder, self._own, self._clock = folder, own, clock

    def listed(self) -> list[Reachable]:
        return [one for one in reachable(self._folder) if one.session != self._own]

    async def send(self, session: str, letter: Letter) -> Reachable:
        """As `send_to`; one that may not have arrived is sent again, and counts once."""
        if session == self._own:
            raise NotSent("nobody", "that is this session itself: nothing was sent")
        for _ in range(TRIES - 1):
            try:
                return await send_to(session, letter, self._folder, own=self._own)
            except NotSent as error:
                if error.why not in _AGAIN:
                    raise
            await self._clock.sleep(PAUSE)
        return await send_to(session, letter, self._folder, own=self._own)
