"""Merges the texts of a snapshot into a memory folder, so that nothing of the user's is overwritten.

For each file there are three texts: what the snapshot says, what it said when it was last taken over, and
what is there. Only where the user has changed nothing since does the new text go into its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

import msgspec

from sevenfold.errors import SevenfoldError
from sevenfold.memory.folder.desk import Desk
from sevenfold.memory.folder.files import HEAD
from sevenfold.memory.folder.ledger import digest
from sevenfold.memory.folder.naming import INDEX_NAME, key
from sevenfold.memory.folder.reaching import Overtaken
from sevenfold.memory.folder.writing import applied
from sevenfold.memory.index import over_limit
from sevenfold.memory.refusing import Guarded
from sevenfold.memory.revisions import Author
from sevenfold.memory.topic import changed, read_topic


class Taken(msgspec.Struct, frozen=True):
    """What became of the files of a snapshot."""

    new: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    """Files that hold the new text of a memory that the user has changed."""
    removed: tuple[str, ...] = ()
    """The snapshot has them no more, and the user had not changed them; `undo` brings them back."""
    left: tuple[str, ...] = ()
    """The user has removed them, so they do not come back."""
    refused: tuple[str, ...] = ()
    """`file: why` for each that the guard held back."""
    there: bool = False
    """Something was there when it was to be the beginning: nothing was done."""

    @property
    def said(self) -> str:
        """In a sentence."""
        parts = [
            f"{len(self.new)} new" if self.new else "",
            f"{len(self.replaced)} replaced" if self.replaced else "",
            f"{len(self.removed)} removed" if self.removed else "",
            f"kept yours and put the new text beside it: {', '.join(self.beside)}"
            if self.beside
            else "",
            f"held back: {'; '.join(self.refused)}" if self.refused else "",
        ]
        return "; ".join(filter(None, parts)) or "nothing had to change"


class Merge:
    """One merge, under the lock of the folder."""

    def __init__(self, desk: Desk, known: Mapping[str, str], date: str) -> None:
        """`known` are the digests of the texts as they were last taken over."""
        self._desk, self._known, self._date = desk, known, date
        self._author = Author("team", reason=f"snapshot of {date}")
        self._changes: dict[str, bytes | None] = {}
        self._refused: list[str] = []
        self.held: set[str] = set()
        """The files that were held back; a name may be the very secret, so it is not shown then."""
        self._done: dict[str, list[str]] = {}

    def taken(self, texts: Mapping[str, bytes]) -> Taken:
        """Merge these files: memories by their names, and an index that counts where there is none."""
        for file, data in texts.items():
            if file != INDEX_NAME:
                self._merge(file, data)
        for file, was in self._known.items():
            if file not in texts and file in self._desk.ledger.rows and self._digest(file) == was:
                self._changes[file] = None
                self._note("removed", file)
        if INDEX_NAME not in self._desk.ledger.rows and INDEX_NAME in texts:
            self._take_index(texts[INDEX_NAME])
        if self._changes:
            applied(
                self._desk, self._changes, self._author, f"took over a snapshot of {self._date}"
            )
        return Taken(
            new=self._noted("new"),
            replaced=self._noted("replaced"),
            beside=self._noted("beside"),
            removed=self._noted("removed"),
            left=self._noted("left"),
            refused=tuple(self._refused),
        )

    def _noted(self, done: str) -> tuple[str, ...]:
        return tuple(self._done.get(done, ()))

    def _note(self, done: str, file: str) -> None:
        self._done.setdefault(done, []).append(file)

    def _merge(self, file: str, data: bytes) -> None:
        theirs, was = digest(data), self._known.get(file)
        if not (name := self._desk.gate.check(file.encode(), "team")).passed:
            self.held.add(file)
            self._refused.append(f"a file, for its name: {name.explanation}")
            return
        if file not in self._desk.ledger.rows:
            if was is not None:
                self._note("left", file)
            elif key(file) in self._desk.listing.taken:
                self._hold(file, "another file differs from it only in case")
            else:
                self._put("new", file, data, b"")
            return
        mine = self._digest(file)
        if theirs in (mine, was):
            return
        if mine == was:
            self._put("replaced", file, data, self._read(file))
        else:
            self._put_beside(file, data)

    def _put(self, done: str, file: str, data: bytes, old: bytes) -> None:
        if not self._passes(file, data, old):
            return
        self._changes[file] = data
        self._note(done, file)

    def _put_beside(self, file: str, data: bytes) -> None:
        """Under a name of its own: two memories of one name could not be told apart."""
        if not self._passes(file, data, b""):
            return
        topic = read_topic(data, file)
        new = changed(topic, name=f"{topic.name} (snapshot of {self._date})")
        path = PurePosixPath(file)
        for count in range(1, 100):
            more = f"-{count}" if count > 1 else ""
            beside = path.with_name(f"{path.stem}-snapshot-{self._date}{more}.md").as_posix()
            if beside in self._desk.ledger.rows and self._digest(beside) == digest(new):
                return
            if key(beside) not in self._desk.listing.taken and beside not in self._changes:
                self._changes[beside] = new
                self._note("beside", beside)
                return
        self._hold(file, "there are too many copies of it; merge them")

    def _take_index(self, data: bytes) -> None:
        """Its lines to memories that were held back go by themselves."""
        if self._passes(INDEX_NAME, data, b"") and not over_limit(data.decode("utf-8")):
            self._changes[INDEX_NAME] = data

    def _passes(self, file: str, data: bytes, old: bytes) -> bool:
        try:
            data.decode("utf-8")
            self._desk.gate.let_pass(file, data, old, self._author)
        except UnicodeDecodeError:
            return self._hold(file, "it is not text in UTF-8")
        except Guarded as no:
            return self._hold(file, no.explanation)
        except SevenfoldError as no:  # the quarantine is full, or cannot be written
            return self._hold(file, str(no))
        return True

    def _hold(self, file: str, why: str) -> bool:
        self.held.add(file)
        self._refused.append(f"{file}: {why}")
        return False

    def _digest(self, file: str) -> str:
        """Of what is there; one that is too large to be a memory is nobody's but the user's."""
        data = self._read(file)
        return digest(data) if len(data) <= HEAD else ""

    def _read(self, file: str) -> bytes:
        data, stamp = self._desk.at.read(file, HEAD + 1)
        if stamp != self._desk.stamp(file):
            raise Overtaken
        return data
