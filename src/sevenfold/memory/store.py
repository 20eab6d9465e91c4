"""A folder of memories: written under one lock, guarded, with a history, and found by what they say.

    store = MemoryStore(folder, state, SystemClock())
    store.add(type="feedback", name="no-db-mocks", description="…", body="…")
    store.recall("how do we test SQL?")
    store.undo("no-db-mocks")

The files are the truth; people and other programs write them too. `take_in` makes their changes part of
the history. Everything else that is known about them lies in `state` and may be deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from sevenfold.core.errors import StorageFailure
from sevenfold.core.events import Emit, Event
from sevenfold.core.protocols import Clock
from sevenfold.memory.dreams.journal import is_commit_pending
from sevenfold.memory.errors import NoSuchMemory
from sevenfold.memory.folder.files import ConcurrentWrite, MemoryFiles, OpenFolder
from sevenfold.memory.folder.folder import (
    OWN,
    SHARED,
    DeferredNotices,
    FolderListing,
    FolderTransaction,
    LedgerFile,
    Saved,
    find_agent_kind,
    list_folder,
)
from sevenfold.memory.folder.folder_history import FolderHistory
from sevenfold.memory.folder.names import TEAM
from sevenfold.memory.folder.reader import FolderReader, RecallReader
from sevenfold.memory.guard.gate import GuardGate
from sevenfold.memory.history.revisions import Author, Revision
from sevenfold.memory.recall_results import Recalled

if TYPE_CHECKING:
    from sevenfold.memory.check import CheckFinding
    from sevenfold.memory.guard.guard import Quarantine
    from sevenfold.memory.search.embedding import Embedder
    from sevenfold.memory.search.scoring import VectorProgress
    from sevenfold.memory.topic_file import Origin, Topic, Type

HISTORY: Final = "history"
QUARANTINE: Final = "quarantine"
USER: Final = Author("user")
OTHER: Final = Author("other")
"""Who wrote what was found in the folder, when nobody says."""
_TRIES: Final = 20

T = TypeVar("T")
Claim: TypeAlias = Callable[[], tuple[Path, Path]]
"""Gives the folder and the state."""


def ignore_event(event: Event) -> None:
    """For those who want no events."""


class MemoryStore:
    """The memories in one folder. Nothing is made or read before it is asked for."""

    def __init__(
        self,
        folder: Path,
        state: Path,
        clock: Clock,
        *,
        emit: Emit = ignore_event,
        author: Author = USER,
        embedder: Embedder | None = None,
        claim: Claim | None = None,
    ) -> None:
        """`claim` writes down whose memory this is, and says where it is: it may be another's by now."""
        self.author = author
        self._clock, self._embedder, self._claim = clock, embedder, claim
        saying = DeferredNotices(emit)
        self._say, self._tell = saying.say, saying.tell
        self._settle(folder, state)

    def _settle(self, folder: Path, state: Path) -> None:
        self.folder, self.state = folder, state
        self._files = MemoryFiles(folder)
        self._reading = FolderReader(self._files)
        self._ledgers = LedgerFile(state)
        self._past = FolderHistory(state / HISTORY, self._say)
        self._recalling = RecallReader(self._files, self._reading, state, self._embedder, self._say)
        self._gate = GuardGate(state / QUARANTINE, self._clock, find_agent_kind(folder))

    def claim(self) -> None:
        """Before the first write: whose memory this is. Where another project was faster, we move."""
        if self._claim is None:
            return
        where = self._claim()
        self._claim = None
        if where != (self.folder, self.state):
            self._recalling.close()
            self._settle(*where)

    # --- reading --------------------------------------------------------------------------------------

    def topics(self) -> list[Topic]:
        """Every memory, in the order of its files; what has not changed is not read again."""
        return self._reading.topics()

    def get(self, name: str) -> Topic:
        """One memory: by name, by file, or by a beginning that only one has."""
        return self._reading.get(name)

    def listing(self) -> FolderListing:
        """The files with their times and sizes, and what in the folder is not used and why."""
        return self._reading.listing()

    @property
    def has_team(self) -> bool:
        """Whether there is a part that is shared with a team."""
        place = self.folder / TEAM.rstrip("/")
        return place.is_dir() and not place.is_symlink()

    def index_text(self, *, team: bool = False) -> str:
        """MEMORY.md, or that of the team, as it is; empty when there is none."""
        return self._reading.index_text((SHARED if team else OWN).index)

    def loaded_index(self, *, team: bool = False) -> str:
        """An index as a session sees it: within its limits, with a warning when that took a cut."""
        part, text = SHARED if team else OWN, self.index_text(team=team)
        if not text:
            return ""
        from sevenfold.memory.index import load_index

        known = self.modified().items()
        times = {part.inner(file): at for file, at in known if file.startswith(part.folder)}
        return load_index(text, times, part.index)

    def modified(self) -> dict[str, float]:
        """When each memory was last changed, by file."""
        found = self.listing()
        return {file: found.files[file].modified / 1e9 for file in found.topics}

    def recall(self, query: str, limit: int = 5, skip: frozenset[str] = frozenset()) -> list[Recalled]:
        """The memories that answer a question, the best first; `skip` are files not to give."""
        found = self._recalling.find(query, limit, skip)
        self._tell()
        return found

    def search(self, words: str, limit: int = 20) -> list[Recalled]:
        """Every memory that shares words or meaning with these, the best first."""
        found = self._recalling.find(words, limit, silent=False)
        self._tell()
        return found

    def newest(self, most: int) -> list[Recalled]:
        """The memories that were changed last, the newest first."""
        return self._recalling.newest(most)

    def prepare(self) -> None:
        """Bring the search up to date, so that the first question need not wait for it."""
        self._recalling.prepare()
        self._tell()

    def check(self) -> list[CheckFinding]:
        """What is wrong with the memories, the index and the folder, and what to do about it."""
        from sevenfold.memory.check import check_memories

        return check_memories(
            self.topics(),
            self.index_text(),
            self.index_text(team=True),
            modified=self.modified(),
            now=self._clock.now(),
            scan=lambda text: self._gate.check(text.encode("utf-8", "replace"), "other").findings,
            also=list(self.listing().files),
        )

    def settled(self, seconds: float) -> bool:
        """Wait until every memory can be found by its meaning too; False when that takes longer."""
        return self._recalling.settled(seconds)

    def build(self, tell: Callable[[VectorProgress], None] | None = None) -> None:
        """Start making the vectors by which memories are found by meaning, in the background."""
        self._recalling.build(tell)

    # --- writing --------------------------------------------------------------------------------------

    def add(
        self,
        *,
        type: Type,
        name: str,
        description: str,
        body: str,
        origin: Origin | None = None,
        author: Author | None = None,
        team: bool = False,
        new: bool = False,
    ) -> Saved:
        """Save a memory; one of that name, or about the same, is replaced, and stays in the history.

        With `new` only the name counts. With `team` it is shared: nothing about a person is taken then.
        """
        from sevenfold.memory.folder.changes import add_memory
        from sevenfold.memory.similarity import find_repeated_file

        by = author or self.author
        return self.changing(
            lambda desk: add_memory(
                desk,
                by,
                type=type,
                name=name,
                description=description,
                body=body,
                origin=origin,
                team=team,
                like=None if new else partial(find_repeated_file, self),
            )
        )

    def edit(
        self,
        name: str,
        *,
        description: str | None = None,
        body: str | None = None,
        type: Type | None = None,
        author: Author | None = None,
    ) -> Saved:
        """Change what is given of one memory, and nothing else of its file."""
        from sevenfold.memory.folder.changes import edit_memory

        by = author or self.author
        return self.changing(
            lambda desk: edit_memory(desk, by, name, description=description, body=body, type=type)
        )

    def remove(self, name: str, *, author: Author | None = None) -> Saved:
        """Remove a memory; it can be had back with `undo`."""
        from sevenfold.memory.folder.changes import remove_memory

        return self.changing(lambda desk: remove_memory(desk, author or self.author, name))

    def purge(self, name: str) -> Saved:
        """Take a memory out of files, index, history and search, for good."""
        from sevenfold.memory.dreams.stage import discard_all_stages, list_waiting_stages
        from sevenfold.memory.folder.undo import purge_memory

        saved = self.changing(lambda desk: purge_memory(desk, name))
        file = saved.path.relative_to(self.folder).as_posix()
        self._recalling.purge(file)
        for held in [one for one in self.quarantine.list() if one.file == file]:
            self.quarantine.drop(held.number)
        if list_waiting_stages(self.state):
            self._say("the dream that waited for review was dropped: it had a copy of the memory")
        discard_all_stages(self.state)
        self._tell()
        return saved

    def undo(
        self, name: str | None = None, to: str | None = None, *, author: Author | None = None
    ) -> list[Saved]:
        """Undo the last change of one memory or of all, or go back to a revision."""
        from sevenfold.memory.folder.undo import undo_changes

        return self.changing(lambda desk: undo_changes(desk, author or self.author, name, to))

    def take_in(self, author: Author = OTHER) -> list[Saved]:
        """Make what others wrote in the folder a revision, and bring the index up to date."""
        if not self.folder.is_dir():
            return []
        saved = list[Saved]()
        self.changing(lambda desk: None, taken=(author, saved))
        return saved

    # --- the agent's own Write and Edit ---------------------------------------------------------------

    def before_write(self, path: Path, data: bytes, *, author: Author | None = None) -> None:
        """`Refused` with the reason when these bytes may not become this file."""
        from sevenfold.memory.folder.proposals import WriteProposal

        self.claim()
        proposal = WriteProposal(self._files, path, data)
        old = proposal.check(self._reading.index_text)
        self._gate.let_pass(proposal.file, data, old, author or self.author)

    def after_write(self, path: Path, *, author: Author | None = None) -> list[Saved]:
        """Take in what was just written; `path` is where."""
        self._files.file_of(path)
        return self.take_in(author or self.author)

    # --- the past, and what was held back -------------------------------------------------------------

    def history(self, name: str | None = None, limit: int = 50) -> list[Revision]:
        """The newest revisions first, of one memory or of the folder."""
        file = self._ever(name)
        return self._past.ask(lambda history: history.log(file, limit))

    def as_of(self, revision: str, file: str) -> bytes | None:
        """A file as it was right after a revision; None when it was not there."""
        return self._past.ask(lambda history: history.file_at(revision, file))

    def diff(self, name: str | None = None, revision: str | None = None) -> str:
        """What the last change changed, or everything since a revision, as a unified diff."""
        file = self._ever(name)
        if revision is not None:
            return self._past.ask(lambda history: history.diff(revision, file=file))
        newest = self.history(name, 1)
        if not newest:
            return ""
        return self._past.ask(lambda history: history.changes(newest[0].id, file))

    @property
    def quarantine(self) -> Quarantine:
        """What the guard held back."""
        return self._gate.quarantine

    def release(self, number: int) -> Saved:
        """Make a memory of what is in the quarantine, because the user says so."""
        from sevenfold.memory.folder.changes import release_memory

        by = Author("user", self.author.session, f"released from quarantine, number {number}")
        saved = list[Saved]()

        def write(file: str, data: bytes) -> None:
            saved.append(self.changing(lambda desk: release_memory(desk, by, file, data)))

        self.quarantine.release(number, write)
        return saved[0]

    def recover(self) -> str:
        """Finish or take back what a dream that died was committing; says what was done, if anything."""
        if not is_commit_pending(self.state) or not self.folder.is_dir():
            return ""
        from sevenfold.memory.dreams.commit import finish_pending_dream

        try:
            with self._files.opened() as at, at.alone():
                return finish_pending_dream(self._desk(at), self.state)
        finally:
            self._recalling.changed()

    def close(self) -> None:
        """Wait for what goes on in the background."""
        self._recalling.close()

    # --- inside ---------------------------------------------------------------------------------------

    def changing(
        self, work: Callable[[FolderTransaction], T], taken: tuple[Author, list[Saved]] | None = None
    ) -> T:
        """Do something with the folder, ours alone and with everything taken in."""
        from sevenfold.memory.folder.external_changes import record_external_changes

        author, saved = taken or (OTHER, [])
        self.claim()
        try:
            for _ in range(_TRIES):
                try:
                    with self._files.opened(make=True) as at, at.alone():
                        if is_commit_pending(self.state):  # a dream died while it was written
                            from sevenfold.memory.dreams.commit import finish_pending_dream

                            finish_pending_dream(self._desk(at), self.state)
                        desk = self._desk(at)
                        saved += record_external_changes(desk, author)
                        return work(desk)
                except ConcurrentWrite:  # somebody without the lock was faster: look again
                    continue
            raise StorageFailure(
                f"{self.folder} could not be written: another program keeps changing the same file; "
                "stop it and try again"
            )
        finally:
            self._recalling.changed()
            self._tell()

    def _desk(self, at: OpenFolder) -> FolderTransaction:
        return FolderTransaction(
            at=at,
            folder=self.folder,
            ledgers=self._ledgers,
            past=self._past,
            gate=self._gate,
            now=self._clock.now(),
            say=self._say,
            listing=list_folder(at),
            ledger=self._ledgers.load(),
        )

    def _ever(self, name: str | None) -> str | None:
        """The file of a memory that is there or was."""
        from sevenfold.memory.folder.undo import find_file_in_history

        if name is None:
            return None
        try:
            return self.get(name).file
        except NoSuchMemory:
            if (file := self._past.ask(lambda history: find_file_in_history(history, name))) is None:
                raise
            return file
