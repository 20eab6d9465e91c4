"""Who is at the other end of a Unix socket: only the same user is talked to."""

from __future__ import annotations

import os
import socket
import struct
import sys
from typing import Final

from sevenfold.errors import Refused

_XUCRED: Final = struct.Struct("=IIh")
"""macOS: version, user, number of groups; the groups follow."""
_XUCRED_SIZE: Final = 76
_SOL_LOCAL: Final = 0
_LOCAL_PEERCRED: Final = 1


def own_user() -> int:
    """The number of this user; `Refused` on systems where users have none."""
    if not hasattr(os, "geteuid") or not hasattr(socket, "AF_UNIX"):
        raise Refused(
            "sessions cannot be reached by each other here: this system has no Unix sockets"
        )
    return os.geteuid()


def check_peer(connection: socket.socket, user: int) -> None:
    """`Refused` unless the other end belongs to this user, or when nobody can tell."""
    other = peer_user(connection)
    if other != user:
        raise Refused(
            f"the other end belongs to user {other} and not to user {user}: only sessions of the same "
            "user talk to each other"
        )


def peer_user(connection: socket.socket) -> int:
    """The number of the user at the other end, as the system knows it."""
    try:
        if hasattr(socket, "SO_PEERCRED"):
            size = struct.calcsize("3i")
            told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
            return int(struct.unpack("3i", told)[1])
        if sys.platform == "darwin":
            return user_in_xucred(connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_SIZE))
    except (OSError, struct.error) as error:
        raise Refused(f"this system does not say who is at the other end: {error}") from error
    raise Refused("this system does not say who is at the other end, so nobody is talked to")


def user_in_xucred(told: bytes) -> int:
    """The user in what macOS tells of a peer; a version that we do not know is an error."""
    version, user, _ = _XUCRED.unpack_from(told)
    if version != 0:
        raise struct.error(f"version {version} of its credentials is not known")
    return int(user)
