"""Daily logs: in long-lived sessions, what is worth keeping is noted here first, one file a day.

Append-only: a note is never changed, what stands in the file stays byte for byte. Distilling them into
memories is somebody else's work.

    logs = DailyLogs(folder)
    logs.append("Ann prefers short answers", at)        logs/2026/03/2026-03-05.md
"""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Final

from sevenfold.core.errors import Refused
from sevenfold.memory.backend import ConcurrentWrite
from sevenfold.memory.folder.files import MemoryFiles
from sevenfold.memory.folder.names import LOGS
from sevenfold.memory.frontmatter import detect_line_break, strip_broken_characters

PATTERN: Final = f"{LOGS}/YYYY/MM/YYYY-MM-DD.md"
"""What the prompt names; the date itself would change the prompt every midnight."""
LARGEST: Final = 4 << 20
"""Bytes of one day."""
_FILE: Final = re.compile(rf"{LOGS}/(\d{{4}})/(\d{{2}})/(\1-\2-\d{{2}})\.md", re.ASCII)
_TRIES: Final = 5


def make_log_path(at: float) -> str:
    """The log of the local day of this moment, as a path below the memory folder."""
    day = _local(at)
    return f"{LOGS}/{day:%Y}/{day:%m}/{day:%Y-%m-%d}.md"


def parse_log_day(file: str) -> str:
    """The day of a log, as `2026-03-05`; empty when the file is none."""
    found = _FILE.fullmatch(file)
    if found is None:
        return ""
    try:
        return datetime.date.fromisoformat(found[3]).isoformat()
    except ValueError:
        return ""


def is_append_only(old: bytes, new: bytes) -> bool:
    """Whether a write to a log leaves everything in it as it was."""
    return new.startswith(old)


def append_note(data: bytes, text: str, at: float) -> bytes:
    """The bytes of a log with one note more; what was there is the beginning, byte for byte."""
    nl = detect_line_break(data[:4096].decode("utf-8", "replace"))
    lines = strip_broken_characters(text).replace("\r\n", "\n").replace("\r", "\n").strip().split("\n")
    moment = _local(at)
    note = nl.join([f"- {moment:%H:%M} {lines[0]}", *(f"  {line}".rstrip() for line in lines[1:])])
    lead = f"# {moment:%Y-%m-%d}{nl}{nl}" if not data.strip() else ""
    if data and not data.endswith((b"\n", b"\r")):
        lead = nl + lead
    return data + (lead + note + nl).encode("utf-8")


class DailyLogs:
    """The daily logs of one memory folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = MemoryFiles(folder)

    def append(self, text: str, at: float) -> Path:
        """Add a note to the log of its day; several processes may do so at once."""
        file = make_log_path(at)
        if not text.strip():
            raise Refused("An empty note was not added to the daily log; give it some text.")
        with self._files.opened(make=True) as folder, folder.alone():
            for _ in range(_TRIES):
                stamp = folder.stamp(file)
                data = b"" if stamp is None else folder.read(file, LARGEST + 1)[0]
                new = append_note(data, text, at)
                if len(new) > LARGEST:
                    raise Refused(
                        f"{self.folder / file} is full at {LARGEST:,} bytes; keep the essence as a memory"
                    )
                try:
                    folder.write(file, new, stamp)
                except ConcurrentWrite:  # an editor that knows no lock
                    continue
                return self.folder / file
        raise Refused(f"{self.folder / file} keeps changing; close the program that writes it")

    def days(self) -> list[str]:
        """The days that have a log, oldest first."""
        try:
            with self._files.opened() as folder:
                return sorted(day for file in folder.list().files if (day := parse_log_day(file)))
        except FileNotFoundError:
            return []

    def read(self, day: str) -> str:
        """What was noted on a day, as `2026-03-05`; empty when nothing was."""
        file = f"{LOGS}/{day[:4]}/{day[5:7]}/{day}.md"
        if parse_log_day(file) != day:
            raise Refused(f"'{day[:40]}' is no day; write it as 2026-03-05.")
        try:
            with self._files.opened() as folder:
                if folder.stamp(file) is None:
                    return ""
                return folder.read(file, LARGEST)[0].decode("utf-8", "replace")
        except FileNotFoundError:
            return ""


def _local(at: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at).astimezone()
