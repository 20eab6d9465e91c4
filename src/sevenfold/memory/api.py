"""The memory of a project, for programs: the folder of markdown files that its sessions share.

    with Memory.open(".") as memory:
        memory.add(type="feedback", name="no-db-mocks", description="…", body="…")
        memory.recall("how do we test SQL?")

It is found as a session finds it, by home, project, settings and environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from sevenfold.core.errors import Mistake
from sevenfold.core.events import Emit, Notice
from sevenfold.core.protocols import Clock
from sevenfold.memory.folder.folder import FolderTransaction, Saved
from sevenfold.memory.folder.folder_backend import FolderBackend
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.recall_results import Recalled
from sevenfold.memory.search.embedding import open_default_embedder
from sevenfold.memory.store import MemoryStore, ignore_event
from sevenfold.settings import load_settings
from sevenfold.settings.environment import Environment
from sevenfold.settings.place import MemoryPlace, TrustedFolders, claim_memory_place, find_memory_place
from sevenfold.storage.places import find_places

PATIENCE: Final = 20.0  # Seconds that a program waits for recall by meaning; a conversation never does


class MemoryOff(Mistake, kind="memory_off"):
    """Memory is switched off here; the message says by what."""

    def __init__(self, why: str) -> None:
        super().__init__(f"memory is off: {why}; SEVENFOLD_DISABLE_MEMORY=0 turns it on")


class Memory(MemoryStore):
    """The memories of one project. Nothing is written to disk before the first is saved."""

    @classmethod
    def open(
        cls,
        project: str | Path = ".",
        *,
        home: str | Path | None = None,
        settings: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        emit: Emit = ignore_event,
    ) -> Self:
        """The memory of the project of this folder. Raises `MemoryOff` if memory is switched off."""
        environment = Environment.read(environ)
        if home:
            environment = environment.based(Path(home))
        places = find_places(Path(project), environment.home)
        trusted = TrustedFolders(environment.home).is_trusted(places.root)
        known = load_settings(places.tree, environment, settings or {}, trusted).settings
        if known.scope != places.scope:
            places = find_places(Path(project), environment.home, known.scope)
        place = find_memory_place(places, environment, known)
        for text in filter(None, (places.note, place.note)):
            emit(Notice(text, "warning"))
        return cls.at(place, clock, emit)

    @classmethod
    def at(cls, place: MemoryPlace, clock: Clock | None = None, emit: Emit = ignore_event) -> Self:
        """The memory at a known place."""
        if place.off is not None:
            raise MemoryOff(place.off)
        return cls(
            FolderBackend.at(place),
            clock,
            emit=emit,
            embedder=open_default_embedder(place.words),
            claim=lambda: FolderBackend.at(claim_memory_place(place)),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def recall(self, query: str, limit: int = 5, skip: frozenset[str] = frozenset()) -> list[Recalled]:
        """The memories that answer a question, the best first; files in `skip` are left out.

        The first call, and one after many additions, waits for recall by meaning.
        """
        self.settled(PATIENCE)
        return super().recall(query, limit, skip)

    def rewrite(self, name: str, data: bytes, *, author: Author | None = None) -> Saved:
        """Replace the whole file of a memory by these bytes, as an editor left it."""
        return self.changing(lambda desk: _rewritten(desk, author or self.author, name, data))


def _rewritten(desk: FolderTransaction, author: Author, asked: str, data: bytes) -> Saved:
    from sevenfold.memory.folder.changes import load_for_update, write_file
    from sevenfold.memory.folder.names import find_meant_file
    from sevenfold.memory.topic_file import explain_not_text

    file = find_meant_file(asked, desk.names)
    old = load_for_update(desk, file)
    if why := explain_not_text(data):
        raise Mistake(f"{desk.folder / file} was not changed: what was to be written is no text ({why})")
    if data == old.data:
        return Saved(old.name, desk.folder / file, "", "updated")
    return write_file(desk, author, file, data, "updated", f"edited {old.name}")
