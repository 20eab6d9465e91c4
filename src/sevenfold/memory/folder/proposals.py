"""Checks a write of the agent's own file tools before it happens."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path

from sevenfold.core.errors import Refused
from sevenfold.memory.backend import HEAD, FolderListing, MemoryBackend, OpenMemories, is_topic
from sevenfold.memory.errors import Guarded
from sevenfold.memory.folder.folder import INDEXES, SHARED, check_private, check_team, find_part
from sevenfold.memory.folder.names import INDEX_NAME, LOGS, TEAM, check_file_path, make_file_key
from sevenfold.memory.guard.gate import make_size_verdict
from sevenfold.memory.index import explain_over_limit, reconcile_index
from sevenfold.memory.index_update import is_incomplete
from sevenfold.memory.topic_file import read_topic


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

    def check(self, index: Callable[[str], str]) -> bytes:
        """All checks; what the file says now. `index` reads the index of a part."""
        try:
            with self._files.opened() as at:
                now = at.list()
                self.check_place(at, now)
                self.check_sharing(now)
                self.check_text(at)
                self.check_index(index(self.part.index), now)
                return at.read(self.file)[0] if self.file in now.files else b""
        except FileNotFoundError:  # there is no memory yet
            self.check_sharing(FolderListing())
            self.check_text(None)
            self.check_index("", FolderListing())
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
            check_team(now)
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

    def check_index(self, text: str, now: FolderListing) -> None:
        """The index of its part, which is `text` now, stays within its limits, also with a new line."""
        if self.file.endswith(INDEX_NAME):
            if why := explain_over_limit(self.data.decode("utf-8"), self.file):
                raise Refused(why)
            return
        if not is_topic(self.file) or self.file in now.files:
            return
        part = self.part
        others = [file for file in now.files if file.startswith(part.folder) and file != self.file]
        also = [part.inner(file) for file in others]
        new = reconcile_index(text, [read_topic(self.data, part.inner(self.file))], also)
        if len(new) > len(text) and (why := explain_over_limit(new, part.index)):
            listed = [(part.inner(file), "") for file in others if part.lists(file)]
            if not is_incomplete(text, listed):
                raise Refused(why)
