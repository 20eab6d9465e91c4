"""Which files a memory folder holds, without reading them: names, stamps, and what is odd about some.

Ten thousand files are listed in some tens of milliseconds. Links are never followed; what cannot be
a memory (a link, a pipe, a name that is no name elsewhere) is listed as odd, with the reason.
"""

from __future__ import annotations

import os
import stat
from typing import Final

import msgspec

from sevenfold.errors import Refused
from sevenfold.memory.folder.files import Opened
from sevenfold.memory.folder.naming import (
    DEEPEST,
    ENDING,
    INDEX_NAME,
    LOGS,
    key,
    wrong_part,
    wrong_with_file,
)
from sevenfold.memory.folder.reaching import UNFINISHED, Stamp

MOST: Final = 250_000
"""Files that are listed; whatever is beyond is odd, and said."""
_AN_INDEX: Final = f"/{INDEX_NAME}"
_A_LOG: Final = f"{LOGS}/"


class Odd(msgspec.Struct, frozen=True):
    """Something in the folder that is not used, and why."""

    file: str
    why: str


class Listing(msgspec.Struct, frozen=True):
    """What is in the folder."""

    files: dict[str, Stamp] = {}
    """Every markdown file: topic files, indexes and daily logs."""
    odd: tuple[Odd, ...] = ()
    unfinished: tuple[str, ...] = ()
    """What processes that died left behind."""
    folders: tuple[str, ...] = ()

    @property
    def taken(self) -> set[str]:
        """The keys of every name in use, whatever it is that has it."""
        return {key(file) for file in (*self.files, *self.folders, *(odd.file for odd in self.odd))}

    @property
    def topics(self) -> list[str]:
        """The topic files in order: not the indexes, not the daily logs."""
        return sorted(file for file in self.files if is_topic(file))


def is_topic(file: str) -> bool:
    """Whether a file of the folder is a memory: no index, no daily log."""
    return not (file.endswith(_AN_INDEX) or file.startswith(_A_LOG) or file == INDEX_NAME)


def listed(at: Opened) -> Listing:
    """Everything below the folder."""
    found = _Found()
    waiting: list[tuple[str, int]] = [("", 0)]
    while waiting:
        folder, depth = waiting.pop()
        for inner in _scan(at, folder, found):
            found.folders.append(inner)
            if depth < DEEPEST:
                waiting.append((inner, depth + 1))
            else:
                found.odd.append(Odd(inner, "it is too deep; move it up"))
    return Listing(found.files, tuple(found.odd), tuple(found.unfinished), tuple(found.folders))


class _Found:
    def __init__(self) -> None:
        self.files: dict[str, Stamp] = {}
        self.odd: list[Odd] = []
        self.unfinished: list[str] = []
        self.folders: list[str] = []
        self.more = False


def _scan(at: Opened, folder: str, found: _Found) -> list[str]:
    """Note the files of one folder; returns the folders in it."""
    inside = f"{folder}/" if folder else ""
    try:
        with (
            at.folder(folder) as place,
            os.scandir(at.real / folder if place is None else place) as entries,
        ):
            return [inner for entry in entries if (inner := _note(entry, inside, found))]
    except Refused:  # it was swapped for a link just now
        found.odd.append(Odd(folder or ".", "it is no folder any more"))
    except OSError as error:
        found.odd.append(Odd(folder or ".", f"it cannot be listed: {error.strerror}"))
    return []


def _note(entry: os.DirEntry[str], inside: str, found: _Found) -> str:
    """Note one entry; returns its path when it is a folder to look into."""
    name = entry.name
    file = inside + name
    if name[0] == ".":
        if name.startswith(UNFINISHED):
            found.unfinished.append(file)
        return ""
    try:
        seen = entry.stat(follow_symlinks=False)
    except OSError:  # it went away just now
        return ""
    if not stat.S_ISREG(seen.st_mode):
        return _note_other(file, seen.st_mode, found)
    if not name.endswith(ENDING):
        return ""  # pictures and the like are the user's own
    if why := wrong_with_file(file, True):
        found.odd.append(Odd(file, f"{why}; rename it"))
    elif len(found.files) < MOST:
        found.files[file] = Stamp(seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size, seen.st_ino)
    elif not found.more:
        found.more = True
        found.odd.append(Odd(file, f"there are more than {MOST:,} files; the rest is left out"))
    return ""


def _note_other(file: str, mode: int, found: _Found) -> str:
    name = file.rpartition("/")[2]
    if stat.S_ISDIR(mode):
        if not (why := wrong_part(name)):
            return file
        found.odd.append(Odd(file, f"{why}; rename the folder"))
    elif stat.S_ISLNK(mode):
        found.odd.append(
            Odd(file, "it is a symbolic link, which is not followed; put the file here")
        )
    elif name.endswith(ENDING):
        found.odd.append(Odd(file, "it is a pipe, a socket or a device and no file; remove it"))
    return ""
