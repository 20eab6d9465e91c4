"""What somebody else is about to write into the memory folder: the agent's own Write and Edit."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Final

from sevenfold.errors import Refused
from sevenfold.memory.folder.files import HEAD, MemoryFiles, Opened
from sevenfold.memory.folder.gating import too_large
from sevenfold.memory.folder.listing import Listing, is_topic
from sevenfold.memory.folder.naming import INDEX_NAME, LOGS, checked_file, key
from sevenfold.memory.index import over_limit, reconciled
from sevenfold.memory.indexing import TEAM, incomplete
from sevenfold.memory.refusing import Guarded
from sevenfold.memory.topic import read_topic

TEAM_INDEX: Final = f"{TEAM}{INDEX_NAME}"


class Proposal:
    """One file and its new text; each check raises `Refused` with what to do about it."""

    def __init__(self, files: MemoryFiles, path: Path, data: bytes) -> None:
        self.file = checked_file(files.file_of(path), index=True)
        self.path, self.data = path, data
        if unicodedata.normalize("NFC", self.file) != self.file:
            raise Refused(f"{path} is refused: write its name with composed characters (NFC)")
        if self.file.endswith(INDEX_NAME) and self.file not in (INDEX_NAME, TEAM_INDEX):
            raise Refused(f"{path} is refused: the only indexes are {INDEX_NAME} and {TEAM_INDEX}")

    def check_place(self, at: Opened, now: Listing) -> None:
        """No link on the way, and no other file that some system would take for the same."""
        if at.stamp(self.file) is None:
            same = [file for file in now.files if key(file) == key(self.file)]
            same += [odd.file for odd in now.odd if key(odd.file) == key(self.file)]
            if same:
                raise Refused(
                    f"{self.path} is refused: {same[0]} is there and differs only in case"
                )

    def check_text(self, at: Opened | None) -> None:
        """Text of a size that is read, and a log that only grows."""
        if len(self.data) > HEAD:
            raise Guarded(too_large(len(self.data)))
        try:
            self.data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Refused(f"{self.path} is refused: it is not text in UTF-8") from error
        if self.file.startswith(f"{LOGS}/") and at is not None and at.stamp(self.file) is not None:
            old, _ = at.read(self.file, HEAD)
            if not self.data.startswith(old):
                raise Refused(f"{self.path} is refused: a daily log is only added to, at its end")

    def check_index(self, text: str, now: Listing) -> None:
        """The index stays within its limits, also with the line that a new memory brings."""
        if self.file.endswith(INDEX_NAME):
            if why := over_limit(self.data.decode("utf-8")):
                raise Refused(why)
            return
        if not is_topic(self.file) or self.file in now.files or self.file.startswith(TEAM):
            return
        others = [file for file in now.files if file != self.file]
        new = reconciled(text, [read_topic(self.data, self.file)], others)
        if len(new) > len(text) and (why := over_limit(new)):
            listed = [(file, "") for file in others if is_topic(file) and not file.startswith(TEAM)]
            if not incomplete(text, listed):
                raise Refused(why)
