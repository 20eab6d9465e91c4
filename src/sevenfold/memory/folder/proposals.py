"""Checks a write of the agent's own file tools before it happens."""

from __future__ import annotations

import unicodedata
from pathlib import Path

from sevenfold.core.errors import Refused
from sevenfold.memory.backend import HEAD, FolderListing, MemoryBackend, OpenMemories
from sevenfold.memory.errors import Guarded
from sevenfold.memory.folder.folder import INDEXES, SHARED, check_private, check_team, find_part
from sevenfold.memory.folder.names import INDEX_NAME, LOGS, TEAM, check_file_path, make_file_key
from sevenfold.memory.guard.gate import make_size_verdict


class WriteProposal:
    """One file and its new text; each check raises `Refused` with the fix."""

    def __init__(self, files: MemoryBackend, path: Path, data: bytes) -> None:
        self.file = check_file_path(files.file_of(path), index=True)
        self.path, self.data, self._files = path, data, files
        if unicodedata.normalize("NFC", self.file) != self.file:
            raise Refused(f"{path} is refused: write its name with composed characters (NFC)")
        if self.file.endswith(INDEX_NAME) and self.file not in INDEXES:
            raise Refused(f"{path} is refused: the only indexes are {' and '.join(INDEXES)}")
        self.part = find_part(self.file)
        if self.part != SHARED and make_file_key(self.file).startswith(TEAM):
            raise Refused(f"{path} is refused: the folder of the team is {TEAM} in lower case")

    def check(self) -> bytes:
        """All checks; what the file says now."""
        try:
            with self._files.opened() as at:
                now = at.list()
                self.check_place(at, now)
                self.check_sharing(now)
                self.check_text(at)
                return at.read(self.file)[0] if self.file in now.files else b""
        except FileNotFoundError:  # there is no memory yet
            self.check_sharing(FolderListing())
            self.check_text(None)
            return b""

    def check_place(self, at: OpenMemories, now: FolderListing) -> None:
        """No link on the way, and no other file that some system would take for the same."""
        if at.stamp(self.file) is None:
            same = [file for file in now.files if make_file_key(file) == make_file_key(self.file)]
            same += [odd.file for odd in now.odd if make_file_key(odd.file) == make_file_key(self.file)]
            if same:
                raise Refused(f"{self.path} is refused: {same[0]} is there and differs only in case")

    def check_sharing(self, now: FolderListing) -> None:
        """There is a team, and nothing about a person goes to it."""
        if self.part == SHARED:
            check_team(now.folders)
            check_private(self.data, self.file)

    def check_text(self, at: OpenMemories | None) -> None:
        """Text of a size that is read, and a log that only grows."""
        if len(self.data) > HEAD:
            raise Guarded(make_size_verdict(len(self.data)))
        try:
            self.data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Refused(f"{self.path} is refused: it is not text in UTF-8") from error
        if self.file.startswith(f"{LOGS}/") and at is not None and at.stamp(self.file) is not None:
            old, _ = at.read(self.file, HEAD)
            if not self.data.startswith(old):
                raise Refused(f"{self.path} is refused: a daily log is only added to, at its end")
