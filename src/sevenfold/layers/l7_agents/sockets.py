"""Messages between sessions on one machine, over a Unix socket: one line there, one line back.

    {"version": 1, "to": "<session>", "session": "<sender's>", "letter": {id, from, text, …}}
    {"version": 1, "ok": true}
    {"version": 1, "ok": false, "why": "full", "said": "50 messages wait for …"}

Both ends look who the other one is; only the same user is talked to. The receiver has written the letter to
its disk before it says yes, so a sender that heard nothing sends the same letter again, and it counts once.

Connect, accept, send and read are bounded in time. A small private folder lists the sessions on this
machine that can be reached.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import socket
import stat
import struct
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec.structs import replace

from sevenfold.core.errors import Mistake, Refused, SevenfoldError, StorageFailure
from sevenfold.core.events import Emit, Notice
from sevenfold.core.messages import Json
from sevenfold.core.protocols import Clock
from sevenfold.layers.l7_agents.mail import format_attribute
from sevenfold.layers.l7_agents.mailbox import (
    COMMAND_LINE,
    SESSION,
    UNKNOWN,
    Letter,
    MailboxFull,
    TooLong,
    check_letter,
    encode_letter,
    parse_letter,
)
from sevenfold.layers.shared.background import open_task_group
from sevenfold.memory.dreams.lock import LockProcess, read_current_process
from sevenfold.storage.files import (
    PRIVATE_FILE,
    make_private_dir,
    make_storage_failure,
    read_if_there,
    write_atomic,
)
from sevenfold.storage.locks import hold_file_lock

BACKLOG: Final = 64
_CHUNK: Final = 65_536
_PAUSE: Final = 0.01  # Seconds before another try where a queue is full or no file can be opened


class LineTooLong(Exception):
    """A line is longer than lines may be."""


class PeerGone(Exception):
    """The other end is gone."""


def open_listener(path: Path) -> socket.socket:
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


async def accept_connection(listener: socket.socket) -> socket.socket:
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


async def open_connection(path: Path) -> socket.socket:
    """A connection to the listener there. Raises `OSError` if there is none."""
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


async def send_bytes(connection: socket.socket, data: bytes) -> None:
    """All of it, or `PeerGone`."""
    view = memoryview(data)
    while view:
        try:
            view = view[connection.send(view) :]
        except BlockingIOError:
            await anyio.wait_writable(connection)
        except OSError as error:
            raise PeerGone(str(error)) from error


async def read_line(connection: socket.socket, longest: int) -> bytes:
    """Up to the next line break, which is left out; `PeerGone` when it does not come."""
    read = bytearray()
    while (end := read.find(b"\n")) < 0 and len(read) <= longest:
        part = await _received(connection)
        if not part:
            raise PeerGone("before the end of a line")
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
            raise PeerGone(str(error)) from error


_XUCRED: Final = struct.Struct("=IIh")  # macOS: version, user, number of groups; the groups follow
_XUCRED_SIZE: Final = 76
_SOL_LOCAL: Final = 0
_LOCAL_PEERCRED: Final = 1


def get_own_user() -> int:
    """The number of this user; `Refused` on systems where users have none."""
    if not hasattr(os, "geteuid") or not hasattr(socket, "AF_UNIX"):
        raise Refused("sessions cannot be reached by each other here: this system has no Unix sockets")
    return os.geteuid()


def check_peer(connection: socket.socket, user: int) -> None:
    """Raises `Refused` unless the other end is known to belong to this user."""
    other = get_peer_user(connection)
    if other != user:
        raise Refused(
            f"the other end belongs to user {other} and not to user {user}: only sessions of the same "
            "user talk to each other"
        )


def get_peer_user(connection: socket.socket) -> int:
    """The number of the user at the other end, as the system knows it."""
    try:
        if hasattr(socket, "SO_PEERCRED"):
            size = struct.calcsize("3i")
            told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
            return int(struct.unpack("3i", told)[1])
        if sys.platform == "darwin":
            return parse_xucred(connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_SIZE))
    except (OSError, struct.error) as error:
        raise Refused(f"this system does not say who is at the other end: {error}") from error
    raise Refused("this system does not say who is at the other end, so nobody is talked to")


def parse_xucred(told: bytes) -> int:
    """The user in what macOS tells of a peer; a version that we do not know is an error."""
    version, user, _ = _XUCRED.unpack_from(told)
    if version != 0:
        raise struct.error(f"version {version} of its credentials is not known")
    return int(user)


LONGEST_PATH: Final = 103  # Bytes of a socket's path: what macOS takes; Linux takes four more
_LARGEST: Final = 20_000
_SOCKET: Final = ".sock"
_SOCKET_NAME: Final = 21  # Bytes of a slash and the name of a socket


class SessionAddress(msgspec.Struct, frozen=True):
    """A session that can be written to."""

    session: str
    project: str
    pid: int
    started: float
    began: str = ""  # The start of its process, as the system counts
    socket: str = ""

    @property
    def lives(self) -> bool:
        return LockProcess(self.pid, self.began).lives()


class NotSent(Mistake, kind="not_sent"):
    """A message to another session did not arrive, or was not confirmed; `why` is one word."""

    def __init__(self, why: str, text: str) -> None:
        super().__init__(text)
        self.why = why  # nobody, refused, full, too_long, timeout, cut, version or busy


# --- the folder -----------------------------------------------------------------------------------------


def find_runtime_folder(home: Path, variables: Mapping[str, str]) -> Path:
    """The folder where sessions of this home can be reached. Raises `Refused` if every path is too long."""
    digest = hashlib.sha256(os.fsencode(home.absolute())).hexdigest()[:10]
    places = [
        Path(variables.get("TMPDIR") or "/tmp") / f"sevenfold-{get_own_user()}-{digest}",
        Path("/tmp") / f"sevenfold-{get_own_user()}-{digest}",
    ]
    given = variables.get("XDG_RUNTIME_DIR")
    if given and Path(given).is_dir():
        places.insert(0, Path(given) / f"sevenfold-{digest}")
    for place in places:
        if place.is_absolute() and len(os.fsencode(place)) + _SOCKET_NAME <= LONGEST_PATH:
            return place
    raise Refused(f"{places[0]} is too long for the address of a socket; set XDG_RUNTIME_DIR")


def make_private_folder(folder: Path) -> Path:
    """Make the folder if it is missing; `Refused` unless it is this user's alone."""
    make_private_dir(folder, nofollow=True)
    try:
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != get_own_user():
            raise Refused(f"{folder} is not used: it belongs to somebody else; remove it")
        if stat.S_IMODE(found.st_mode) != 0o700:
            folder.chmod(0o700)
    except OSError as error:
        raise make_storage_failure(error, folder, "used") from error
    return folder


def make_socket_path(folder: Path) -> Path:
    return folder / f"{os.urandom(7).hex()}{_SOCKET}"


# --- saying that one is there ---------------------------------------------------------------------------


def register_session(folder: Path, session: str, project: str, at: Path, clock: Clock) -> SessionAddress:
    """Say that this process can be reached at a socket; whatever the session said before is replaced."""
    me = read_current_process()
    one = SessionAddress(session, project, me.pid, clock.now(), me.began, at.name)
    file = _file(folder, session)
    with hold_file_lock(folder / "sessions"):
        before = _read(file)
        write_atomic(file, msgspec.json.encode(one) + b"\n", nofollow=True)
        if before is not None and not before.lives:
            _remove_socket(folder, before)
    return one


def unregister_session(folder: Path, one: SessionAddress) -> None:
    """It cannot be reached any more. What another process said since stays."""
    with contextlib.suppress(OSError, StorageFailure), hold_file_lock(folder / "sessions"):
        file = _file(folder, one.session)
        if _read(file) == one:
            file.unlink(missing_ok=True)
        _remove_socket(folder, one)


# --- looking --------------------------------------------------------------------------------------------


def list_reachable(folder: Path) -> list[SessionAddress]:
    """The sessions that can be reached now, oldest first. What is left of dead ones is removed."""
    found = []
    for file in _files(folder):
        one = _read(file)
        if one is None or _file(folder, one.session) != file:
            continue
        if one.lives and _listens(folder / one.socket):
            found.append(one)
        else:
            unregister_session(folder, one)
    return sorted(found, key=lambda one: (one.started, one.session))


def find_reachable(folder: Path, session: str) -> SessionAddress:
    """The one with this id, or with the only id that begins so; `NotSent` says who else is there."""
    there = list_reachable(folder)
    matching = [one for one in there if one.session == session] or [
        one for one in there if session and one.session.startswith(session)
    ]
    if len(matching) == 1:
        return matching[0]
    if matching:
        ids = ", ".join(one.session for one in matching[:5])
        raise NotSent("nobody", f"several sessions begin with {session[:60]!r}: {ids}; give more")
    others = ", ".join(one.session for one in there[:10]) or "none"
    raise NotSent(
        "nobody", f"no session {session[:60]!r} can be reached on this machine; those there are: {others}"
    )


def _files(folder: Path) -> Iterator[Path]:
    try:
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != get_own_user():
            return
        files = sorted(folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise make_storage_failure(error, folder, "read") from error
    yield from (file for file in files if file.suffix == ".json")


def _file(folder: Path, session: str) -> Path:
    return folder / f"{hashlib.sha256(session.encode('utf-8')).hexdigest()[:16]}.json"


def _read(file: Path) -> SessionAddress | None:
    try:
        data = read_if_there(file, _LARGEST, nofollow=True)
        one = msgspec.json.decode(data, type=SessionAddress) if data else None
    except (StorageFailure, msgspec.DecodeError, UnicodeDecodeError):
        return None
    fine = one is not None and one.socket.endswith(_SOCKET) and Path(one.socket).name == one.socket
    return one if fine else None


def _listens(path: Path) -> bool:
    """True if connections are taken there; a long queue counts as yes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except OSError as error:
            return error.errno in (errno.EAGAIN, errno.EINPROGRESS)
    return True


def _remove_socket(folder: Path, one: SessionAddress) -> None:
    with contextlib.suppress(OSError):
        (folder / one.socket).unlink()


VERSION: Final = 1
LONGEST_LINE: Final = 262_144  # Bytes of a line; a letter of the longest kind fits
CONNECTIONS: Final = 16  # Connections at the same time; others are asked to come again
SECONDS: Final = 5.0  # For all of one exchange
TRIES: Final = 3  # Attempts for a letter that may not have arrived
PAUSE: Final = 0.1  # Seconds before it is sent again
_FLOOD: Final = 4  # Times the connections allowed; beyond that they are cut without a word
_SAID: Final = 300
_AGAIN: Final = frozenset({"timeout", "cut", "busy"})
_encode = msgspec.json.Encoder().encode


class SocketRequest(msgspec.Struct, frozen=True):
    version: int
    to: str = ""
    session: str = ""
    letter: Any = None


class SocketReply(msgspec.Struct, frozen=True, omit_defaults=True):
    version: int
    ok: bool = False
    why: str = ""
    said: str = ""


Receive = Callable[[Letter], Awaitable[object]]
"""Writes a letter down for good, or raises one of our errors: `Mailbox.accept`."""


# --- listening ------------------------------------------------------------------------------------------


class SessionListener:
    """Takes letters for one session as long as the block runs.

    Where listening is impossible the session goes on without: `problem` says why, and so does a notice.
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
        self.here: SessionAddress | None = None
        """The address that others see; None when it cannot be reached."""
        self.problem = ""

    async def __aenter__(self) -> SessionListener:
        with contextlib.ExitStack() as opened:
            try:
                self._user = get_own_user() if self._user is None else self._user
                path = make_socket_path(make_private_folder(self._folder))
                listener = opened.enter_context(open_listener(path))
                self.here = register_session(self._folder, self._session, self._project, path, self._clock)
            except (SevenfoldError, OSError) as error:
                self.problem = str(error)
                self._emit(Notice(f"other sessions cannot reach this one: {error}", "warning"))
                return self
            opened.callback(unregister_session, self._folder, self.here)
            opened.callback(self._close)
            self._stack.enter_context(opened.pop_all())
        tasks = await self._stack.enter_async_context(open_task_group())
        tasks.start_soon(self._accept, listener, tasks)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)

    async def _accept(self, listener: socket.socket, tasks: TaskGroup) -> None:
        while True:
            connection = await accept_connection(listener)
            self._open.add(connection)
            tasks.start_soon(self._serve, connection)

    async def _serve(self, connection: socket.socket) -> None:
        try:
            with contextlib.suppress(PeerGone), anyio.move_on_after(self._seconds):
                if len(self._open) <= _FLOOD * self._connections:
                    await send_bytes(connection, _encode(await self._answer(connection)) + b"\n")
        finally:
            connection.close()
            self._open.discard(connection)

    def _close(self) -> None:
        """Those that came in the last moment and were not served."""
        while self._open:
            self._open.pop().close()

    async def _answer(self, connection: socket.socket) -> SocketReply:
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

    async def _take(self, line: bytes) -> SocketReply:
        try:
            asked = msgspec.json.decode(line, type=SocketRequest)
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
        return SocketReply(VERSION, True)


def _letter(asked: SocketRequest) -> Letter:
    """The letter, from the session or the terminal that sent it: no name of this team can be claimed."""
    letter = parse_letter(asked.letter)
    if letter.frame is not None or (isinstance(asked.letter, dict) and "frame" in asked.letter):
        raise Refused("frames stay inside a team: other sessions take plain messages only")
    session = format_attribute(asked.session, 128)
    if not session and letter.sender == COMMAND_LINE:
        return replace(letter, read=False)
    return replace(letter, sender=f"{SESSION}{session or UNKNOWN}", read=False)


def _no(why: str, said: str) -> SocketReply:
    return SocketReply(VERSION, False, why, said)


# --- sending --------------------------------------------------------------------------------------------


async def send_letter_to(
    session: str,
    letter: Letter,
    folder: Path,
    *,
    own: str = "",
    user: int | None = None,
    seconds: float = SECONDS,
) -> SessionAddress:
    """Returns when the other session has the letter on its disk; `NotSent` says why it has not.

    After `timeout` or `cut` it may have arrived all the same: send the very same letter again.
    """
    if check_letter(letter).frame is not None:
        raise Refused("frames stay inside a team: other sessions take plain messages only")
    user = get_own_user() if user is None else user
    there = find_reachable(folder, session)
    asked: Json = {"version": VERSION, "to": there.session, "session": own, "letter": encode_letter(letter)}
    try:
        with anyio.fail_after(seconds):
            answer = await _exchange(folder / there.socket, _encode(asked) + b"\n", user)
    except TimeoutError:
        raise NotSent(
            "timeout", f"the session {there.session} did not answer within {seconds:g} s"
        ) from None
    if not answer.ok:
        said = format_attribute(answer.said, _SAID) or "it did not say why"
        raise NotSent(answer.why, f"the session {there.session} did not take the message: {said}")
    return there


async def _exchange(path: Path, line: bytes, user: int) -> SocketReply:
    try:
        connection = await open_connection(path)
    except OSError as error:
        raise NotSent("nobody", f"nobody listens at {path}: the session has ended") from error
    with connection:
        try:
            check_peer(connection, user)
        except Refused as error:
            raise NotSent("refused", str(error)) from error
        with contextlib.suppress(PeerGone):  # it may have answered before it had read all
            await send_bytes(connection, line)
        try:
            return _understood(await read_line(connection, LONGEST_LINE))
        except (PeerGone, LineTooLong) as error:
            raise NotSent("cut", "the other session hung up before it answered") from error


def _understood(line: bytes) -> SocketReply:
    try:
        answer = msgspec.json.decode(line, type=SocketReply)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotSent("version", "what the other session answered is no answer") from error
    if answer.version != VERSION:
        raise NotSent(
            "version", f"the other session speaks version {answer.version} and this one version {VERSION}"
        )
    return answer


class PeerSessions:
    """The other sessions on this machine, for one that sends. `folder` as `find_runtime_folder` gives
    it.
    """

    def __init__(self, folder: Path, own: str, clock: Clock) -> None:
        self._folder, self._own, self._clock = folder, own, clock

    def listed(self) -> list[SessionAddress]:
        return [one for one in list_reachable(self._folder) if one.session != self._own]

    async def send(self, session: str, letter: Letter) -> SessionAddress:
        """As `send_letter_to`; one that may not have arrived is sent again, and counts once."""
        if session == self._own:
            raise NotSent("nobody", "that is this session itself: nothing was sent")
        for _ in range(TRIES - 1):
            try:
                return await send_letter_to(session, letter, self._folder, own=self._own)
            except NotSent as error:
                if error.why not in _AGAIN:
                    raise
            await self._clock.sleep(PAUSE)
        return await send_letter_to(session, letter, self._folder, own=self._own)
