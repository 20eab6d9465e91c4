"""The sandbox of commands: Landlock for files and ports, a seccomp filter for sockets, modes and owners.

Both bind the calling thread and what it starts from then on. So a thread of its own enters the sandbox,
starts the program and ends: no code of ours runs between fork and exec.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

_Started = TypeVar("_Started")
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every machine
_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER_MODE = 38, 22, 2  # of prctl
_CAPABILITIES_VERSION, _READ_ANY_FILE = 0x20080522, 0b110  # all that root keeps of its powers
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL = 1, 2, 4, 8, 1 << 14, 1 << 15
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_READS: Final = _READ_FILE | _READ_DIR
_RIGHTS_BITS: Final = {1: 13, 2: 14, 3: 15, 4: 15}  # from version 5 on: 16
_PORTS: Final = 0b11  # Version 4: to bind and to connect TCP
_SCOPES: Final = 0b11  # Version 6: abstract sockets and signals stay inside

# `socket` and `io_uring_setup`; then calls for lengths, modes, owners, times and attributes.
_CALLS: Final[dict[str, tuple[int, tuple[int, ...], tuple[int, ...]]]] = {
    "x86_64": (
        0xC000003E,
        (41, 425),
        (76, 90, 91, 92, 93, 94, 132, 188, 189, 190, 197, 198, 199, 235, 260, 261, 268, 280, 452, 463, 466),
    ),
    "aarch64": (0xC00000B7, (198, 425), (5, 6, 7, 14, 15, 16, 45, 52, 53, 54, 55, 88, 452, 463, 466)),
}
_FOREIGN: Final = 0x40000000  # System calls from here on are those of another binary format
_ALLOWED, _REFUSED = 0x7FFF0000, 0x00050000 | errno.EPERM
_NEEDED: Final = """
/usr /bin /sbin /lib /lib32 /lib64 /libx32 /nix/store /gnu/store /snap /run/current-system
/etc/ld.so.cache /etc/ld.so.preload /etc/alternatives /etc/localtime /etc/magic
/dev/null /dev/zero /dev/random /dev/urandom
"""
SYSTEM: Final = tuple(map(Path, _NEEDED.split()))
"""Programs, libraries and what they need to start; nothing here belongs to a user."""


class Sandbox(msgspec.Struct, frozen=True):
    """The paths that a command may read, run or write; nothing else, and no network."""

    readable: tuple[Path, ...]
    runnable: tuple[Path, ...] = SYSTEM
    writable: tuple[Path, ...] = ()


@cache
def _load_libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


@cache
def find_landlock_version() -> int:
    """The version of Landlock that this system has; 0: none."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_load_libc().syscall(_CREATE_RULESET, None, 0, 1)))


def start_in_sandbox(sandbox: Sandbox, start: Callable[[], _Started], version: int = 0) -> _Started:
    """Call `start` in a thread that is in the sandbox, of an older version if one is given."""
    started: Future[_Started] = Future()

    def run() -> None:
        try:
            _enter(ruleset, metadata=bool(sandbox.writable))
            started.set_result(start())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            started.set_exception(error)

    with _open_ruleset(sandbox, version or find_landlock_version()) as ruleset:
        threading.Thread(target=run, name="sandbox").start()
        return started.result()


def _check(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), "the sandbox cannot be set up")
    return result


@contextmanager
def _open_ruleset(sandbox: Sandbox, version: int) -> Iterator[int]:
    rights = (1 << _RIGHTS_BITS.get(version, 16)) - 1
    scopes = _SCOPES * (version >= 6 and not sandbox.writable)  # else no command could end another
    asked = struct.pack("=QQQ", rights, _PORTS * (version >= 4), scopes)
    ruleset = _check(_load_libc().syscall(_CREATE_RULESET, asked, len(asked), 0))
    try:
        _add_rules(ruleset, sandbox.readable, _READS)
        _add_rules(ruleset, sandbox.runnable, _READS | _EXECUTE)
        _add_rules(ruleset, (Path("/dev/null"),), (_READ_FILE | _WRITE_FILE | _TRUNCATE) & rights)
        _add_rules(ruleset, sandbox.writable, rights)
        yield ruleset
    finally:
        os.close(ruleset)


def _add_rules(ruleset: int, paths: Iterable[Path], rights: int) -> None:
    for path in paths:
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):  # then it cannot be used
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                allowed = rights if path.is_dir() else rights & _OF_FILES
                rule = struct.pack("=Qi", allowed, place)
                _check(_load_libc().syscall(_ADD_RULE, ruleset, 1, rule, 0))
            finally:
                os.close(place)


def _enter(ruleset: int, *, metadata: bool) -> None:
    """Bind this thread, for good. `metadata`: it may change modes, owners and times."""
    libc = _load_libc()
    _check(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
    who, held = struct.pack("=Ii", _CAPABILITIES_VERSION, 0), ctypes.create_string_buffer(24)
    _check(libc.capget(who, held))
    kept = [value & _READ_ANY_FILE for value in struct.unpack_from("=II", held)]
    _check(libc.capset(who, struct.pack("=6I", *kept, 0, 0, 0, 0)))
    _check(libc.syscall(_RESTRICT_SELF, ruleset, 0))
    machine, sockets, changes = _CALLS.get(platform.machine(), (0, (), ()))
    if machine:
        _filter_calls(machine, sockets if metadata else (*sockets, *changes))


def _filter_calls(machine: int, refused: tuple[int, ...]) -> None:
    """Refuse these system calls, and all of another machine or binary format."""
    last = len(refused) + 4  # where the refusal stands
    steps = [(0x20, 0, 0, 4), (0x15, 0, last - 1, machine), (0x20, 0, 0, 0), (0x35, last - 3, 0, _FOREIGN)]
    steps += [(0x15, last - at, 0, number) for at, number in enumerate(refused, start=4)]
    steps += [(0x06, 0, 0, _ALLOWED), (0x06, 0, 0, _REFUSED)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
    _check(_load_libc().prctl(_SET_SECCOMP, _FILTER_MODE, program, 0, 0))
