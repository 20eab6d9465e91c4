"""Keep memories in a place of your own, here a dictionary: `python examples/own_backend.py`."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext

from sevenfold import Memory
from sevenfold.core.clock import SystemClock
from sevenfold.memory.backend import HEAD, ConcurrentWrite, FileStamp, FolderListing
from sevenfold.testing import InMemoryBackend


class Texts:
    """The files. A database would keep them in a table with a column for each field of the stamp."""

    def __init__(self) -> None:
        self.rows, self.writes = dict[str, tuple[bytes, FileStamp]](), 0

    def alone(self) -> nullcontext[None]:
        return nullcontext()

    def list(self) -> FolderListing:
        return FolderListing({file: stamp for file, (_, stamp) in self.rows.items()})

    def read(self, file: str, limit: int = HEAD) -> tuple[bytes, FileStamp]:
        return self.rows[file][0][:limit], self.rows[file][1]

    def stamp(self, file: str) -> FileStamp | None:
        return self.rows[file][1] if file in self.rows else None

    def write(
        self, file: str, data: bytes, expected: FileStamp | None, *, modified: float | None = None
    ) -> FileStamp:
        if self.stamp(file) != expected:
            raise ConcurrentWrite
        self.writes += 1
        at = int((modified or SystemClock().now()) * 1e9)
        self.rows[file] = data, FileStamp(at, at, len(data), self.writes)
        return self.rows[file][1]

    def remove(self, file: str, expected: FileStamp) -> None:
        del self.rows[file]

    def make_folder(self, folder: str) -> None: ...
    def sweep(self, names: Iterable[str]) -> None: ...

    def versions(self, folders: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(folders, self.writes)


with Memory(InMemoryBackend(files=Texts())) as memory:
    memory.add(type="feedback", name="no-db-mocks", description="SQL tests", body="Use a real database.")
    memory.edit("no-db-mocks", body="Mocks are fine.")
    print(memory.recall("how do we test SQL?")[0].text)
    memory.undo("no-db-mocks")
    print(memory.get("no-db-mocks").body, [one.summary for one in memory.history()])
