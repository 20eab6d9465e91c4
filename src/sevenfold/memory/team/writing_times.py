"""When the memories of a team were written: a memory stays as old as it is, on whatever machine it arrives.

A commit tells it of the files it changed, with a line of its own for each that is older than the commit.
Of what lies behind the commits that were fetched only the memory itself can tell, by its origin.
"""

from __future__ import annotations

import datetime
import re
from typing import Final

import msgspec

from sevenfold.memory.topic import read_topic

LOGGED: Final = (
    "--first-parent",
    "-m",
    "--name-only",
    "--no-renames",
    "-z",
    "--format=%x01%ct %P%x02%B%x02",
)
"""What git is asked for: the time and the parents of each commit, its message, its files."""
LINE: Final = "written"
"""The first word of the line in a commit about a file that is older than it."""
_LINE: Final = re.compile(rf"^{LINE} (\d{{1,11}}) (.+)$", re.MULTILINE)
_HEAD: Final = re.compile(r"(\d{1,11})(?: ([0-9a-f ]*))?")


class Written(msgspec.Struct, frozen=True):
    """When a file was written, at the latest."""

    at: float
    sure: bool
    """Whether it was just then; else it may be older."""


def times_in(log: str) -> dict[str, Written]:
    """The times that a log tells, the newest commit first."""
    found: dict[str, Written] = {}
    for commit in log.split("\x01"):
        head, _, rest = commit.partition("\x02")
        message, _, names = rest.rpartition("\x02")
        if not (known := _HEAD.fullmatch(head)):
            continue
        at, parents = float(known[1]), (known[2] or "").strip()
        told = {file: float(time) for time, file in _LINE.findall(message)}
        for name in filter(None, (name.strip("\n") for name in names.split("\0"))):
            if name not in found:
                sure = bool(parents) or name in told
                found[name] = Written(min(told.get(name, at), at), sure)
    return found


def time_of(data: bytes, written: Written) -> float:
    """Of a memory with this text."""
    origin = None if written.sure else read_topic(data, "").origin
    if origin is None:
        return written.at
    try:
        day = datetime.datetime.combine(
            datetime.date.fromisoformat(origin.date), datetime.time(12), datetime.UTC
        )
    except ValueError:
        return written.at
    return min(written.at, day.timestamp())
