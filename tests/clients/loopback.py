"""A network namespace with loopback and nothing else: no packet can leave it, whatever a client tries."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000
SET_FLAGS = 0x8914
UP_LOOPBACK_RUNNING = 0x1 | 0x8 | 0x40


def has_only_loopback() -> bool:
    """True if this process can reach nothing but itself and its children."""
    return [name for _, name in socket.if_nameindex()] == ["lo"]


def can_enter_loopback() -> bool:
    """Try it in a child."""
    child = os.fork()
    if child == 0:
        try:
            enter_loopback()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def enter_loopback() -> None:
    """Move this process into such a namespace: as root, or as a user who may make user namespaces.

    Raises `OSError` where the system allows neither.
    """
    if sys.platform != "linux":
        raise OSError("network namespaces are a thing of Linux")
    user, group = os.getuid(), os.getgid()
    try:
        _unshare(NEW_NETWORK)
    except OSError:
        _unshare(NEW_USER | NEW_NETWORK)
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1", encoding="ascii")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SET_FLAGS, struct.pack("16sh14x", b"lo", UP_LOOPBACK_RUNNING))


def _unshare(flags: int) -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
