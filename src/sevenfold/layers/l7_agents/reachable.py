"""Which sessions on this machine can be reached, and where: a small private folder says it.

<runtime>/<session's hash>.json     session, project, process, since when, and the name of its socket
          <random>.sock             the socket; never the same name twice, so nobody removes a new one

The folder is `$XDG_RUNTIME_DIR/sevenfold-<hash of the home>`, or the same with the user's number in the
folder for temporary files. It is short because the address of a socket has room for about a hundred bytes.
What dead processes left there is removed by whoever looks.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import socket
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.errors import Mistake, Refused, StorageFailure
from sevenfold.layers.l7_agents.peers import own_user
from sevenfold.memory.dreams.processes import Process, this_process
from sevenfold.protocols import Clock
from sevenfold.storage.files import failure, make_private_dir, read_if_there, write_atomic
from sevenfold.storage.locking import alone

LONGEST_PATH: Final = 103
"""Bytes of a socket's path: what macOS takes; Linux takes four more."""
_LARGEST: Final = 20_000
_SOCKET: Final = ".sock"
_SOCKET_NAME: Final = 21
"""Bytes of a slash and the name of a socket."""


class Reachable(msgspec.Struct, frozen=True):
    """A session that can be written to."""

    session: str
    project: str
    pid: int
    started: float
    began: str = ""
    """When its process began, as the system counts."""
    socket: str = ""

    @property
    def lives(self) -> bool:
        return Process(self.pid, self.began).lives()


class NotSent(Mistake):
    """A message to another session did not arrive, or nobody said that it did; `why` is one word."""

    def __init__(self, why: str, text: str) -> None:
        super().__init__(text)
        self.why = why
        """nobody, refused, full, too_long, timeout, cut, version or busy."""


# --- the folder -----------------------------------------------------------------------------------------


def runtime_folder(home: Path, variables: Mapping[str, str]) -> Path:
    """Where the sessions of this home say how they are reached; `Refused` when no path is short enough."""
    digest = hashlib.sha256(os.fsencode(home.absolute())).hexdigest()[:10]
    places = [
        Path(variables.get("TMPDIR") or "/tmp") / f"sevenfold-{own_user()}-{digest}",
        Path("/tmp") / f"sevenfold-{own_user()}-{digest}",
    ]
    given = variables.get("XDG_RUNTIME_DIR")
    if given and Path(given).is_dir():
        places.insert(0, Path(given) / f"sevenfold-{digest}")
    for place in places:
        if place.is_absolute() and len(os.fsencode(place)) + _SOCKET_NAME <= LONGEST_PATH:
            return place
    raise Refused(f"{places[0]} is too long for the address of a socket; set XDG_RUNTIME_DIR")


def private(folder: Path) -> Path:
    """Make the folder if it is missing; `Refused` unless it is this user's alone."""
    make_private_dir(folder, nofollow=True)
    try:
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != own_user():
            raise Refused(f"{folder} is not used: it belongs to somebody else; remove it")
        if stat.S_IMODE(found.st_mode) != 0o700:
            folder.chmod(0o700)
    except OSError as error:
        raise failure(error, folder, "used") from error
    return folder


def new_socket(folder: Path) -> Path:
    return folder / f"{secrets.token_hex(7)}{_SOCKET}"


# --- saying that one is there ---------------------------------------------------------------------------


def register(folder: Path, session: str, project: str, at: Path, clock: Clock) -> Reachable:
    """Say that this process can be reached at a socket; whatever the session said before is replaced."""
    me = this_process()
    one = Reachable(session, project, me.pid, clock.now(), me.began, at.name)
    file = _file(folder, session)
    with alone(folder / "sessions"):
        before = _read(file)
        write_atomic(file, msgspec.json.encode(one) + b"\n", nofollow=True)
        if before is not None and not before.lives:
            _remove_socket(folder, before)
    return one


def unregister(folder: Path, one: Reachable) -> None:
    """It cannot be reached any more. What another process said since stays."""
    with contextlib.suppress(OSError, StorageFailure), alone(folder / "sessions"):
        file = _file(folder, one.session)
        if _read(file) == one:
            file.unlink(missing_ok=True)
        _remove_socket(folder, one)


# --- looking --------------------------------------------------------------------------------------------


def reachable(folder: Path) -> list[Reachable]:
    """The sessions that can be reached now, oldest first. What is left of dead ones is removed."""
    found = []
    for file in _files(folder):
        one = _read(file)
        if one is None or _file(folder, one.session) != file:
            continue
        if one.lives and _listens(folder / one.socket):
            found.append(one)
        else:
            unregister(folder, one)
    return sorted(found, key=lambda one: (one.started, one.session))


def find(folder: Path, session: str) -> Reachable:
    """The one with this id, or with the only id that begins so; `NotSent` says who else is there."""
    there = reachable(folder)
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
        "nobody",
        f"no session {session[:60]!r} can be reached on this machine; those there are: {others}",
    )


def _files(folder: Path) -> Iterator[Path]:
    try:
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != own_user():
            return
        files = sorted(folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise failure(error, folder, "read") from error
    yield from (file for file in files if file.suffix == ".json")


def _file(folder: Path, session: str) -> Path:
    return folder / f"{hashlib.sha256(session.encode('utf-8')).hexdigest()[:16]}.json"


def _read(file: Path) -> Reachable | None:
    try:
        data = read_if_there(file, _LARGEST, nofollow=True)
        one = msgspec.json.decode(data, type=Reachable) if data else None
    except (StorageFailure, msgspec.DecodeError, UnicodeDecodeError):
        return None
    fine = one is not None and one.socket.endswith(_SOCKET) and Path(one.socket).name == one.socket
    return one if fine else None


def _listens(path: Path) -> bool:
    """Whether somebody takes connections there; a long queue counts as yes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except OSError as error:
            return error.errno in (errno.EAGAIN, errno.EINPROGRESS)
    return True


def _remove_socket(folder: Path, one: Reachable) -> None:
    with contextlib.suppress(OSError):
        (folder / one.socket).unlink()
