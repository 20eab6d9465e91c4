"""Whether a process is still there, and still the one it was: numbers are given out again."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import msgspec

_LARGEST: Final = (1 << 31) - 1


class Process(msgspec.Struct, frozen=True):
    """A process by its number and the moment it began, where the system tells that."""

    pid: int
    began: str = ""

    def lives(self) -> bool:
        """Whether it is this very process that has the number now."""
        if not alive(self.pid):
            return False
        return not self.began or began(self.pid) in ("", self.began)


def this_process() -> Process:
    return Process(os.getpid(), began(os.getpid()))


def alive(pid: int) -> bool:
    """Whether some process has this number; one that has ended and was not buried yet does not count."""
    if not 0 < pid <= _LARGEST:
        return False
    if sys.platform == "win32":  # there the question itself would end the process
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        return True
    return _status(pid)[:1] not in (["Z"], ["X"])


def began(pid: int) -> str:
    """When a process began, in the counting of this system; empty where nobody knows."""
    status = _status(pid)
    return f"{_boot()}:{status[19]}" if len(status) > 19 else ""


def _status(pid: int) -> list[str]:
    """The fields behind the name, which may hold anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii", "replace").strip()
    except OSError:
        return ""
