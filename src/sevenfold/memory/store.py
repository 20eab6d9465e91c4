"""A folder of memories: written under one lock, guarded, with a history, and found by what they say.

    store = MemoryStore(FolderBackend(folder, state), SystemClock())
    store.add(type="feedback", name="no-db-mocks", description="…", body="…")
    store.recall("how do we test SQL?")
    store.undo("no-db-mocks")

The files are the truth; people and other programs write them too. `take_in` makes their changes part of
the history. A `MemoryBackend` keeps files, revisions and records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Mistake, Refused, StorageFailure
from sevenfold.core.events import Emit, Event, Notice
from sevenfold.core.protocols import Clock
from sevenfold.memory.backend import (
    ConcurrentWrite,
    FolderListing,
    MemoryBackend,
    OpenMemories,
    is_topic,
    open_backend,
    start_following,
)
from sevenfold.memory.dreams.journal import is_commit_pending
from sevenfold.memory.errors import Guarded, NoSuchMemory
from sevenfold.memory.folder.folder import (
    A_SECRET,
    OWN,
    SHARED,
    DeferredNotices,
    FolderHistory,
    FolderTransaction,
    LedgerFile,
    PendingWrite,
    RecallTimes,
    Saved,
    digest_bytes,
    find_agent_kind,
)
from sevenfold.memory.folder.names import TEAM
from sevenfold.memory.folder.reader import FolderReader, RecallReader
from sevenfold.memory.guard.gate import GuardGate, Hear, PreparedWrite
from sevenfold.memory.history.revisions import FOUND, Author, Revision
from sevenfold.memory.recall_results import Recalled
from sevenfold.memory.search.embedding import open_default_embedder
from sevenfold.storage.places import find_places

if TYPE_CHECKING:
    from sevenfold.memory.check import CheckFinding
    from sevenfold.memory.guard.guard import Quarantine
    from sevenfold.memory.guard.user_words import SpokenWords
    from sevenfold.memory.search.embedding import Embedder
    from sevenfold.memory.search.scoring import VectorProgress
    from sevenfold.memory.topic_file import Origin, Topic, Type
    from sevenfold.settings.place import MemoryPlace

QUARANTINE: Final = "quarantine"
RELEASED: Final = "released from quarantine"  # How the reason of a change begins that the user ordered
USER: Final = Author("user")
_TRIES: Final = 20

T = TypeVar("T")
Claim: TypeAlias = Callable[[], MemoryBackend]
"""Registers the memory for its project; returns the backend to use from then on."""


def ignore_event(event: Event) -> None:
    """Does nothing: the default for callers that want no events."""


class MemoryStore:
    """The memories of one backend. Nothing is made or read before it is asked for."""

    def __init__(
        self,
        backend: MemoryBackend,
        clock: Clock | None = None,
        *,
        emit: Emit = ignore_event,
        author: Author = USER,
        embedder: Embedder | None = None,
        claim: Claim | None = None,
    ) -> None:
        """`claim` is called before the first write. Another project may own the place by then."""
        self.author = author
        self._hear: Hear | None = None
        self._clock, self._embedder, self._claim = clock or SystemClock(), embedder, claim
        saying = DeferredNotices(emit)
        self._say, self._tell = saying.say, saying.tell
        self._settle(backend)

    def _settle(self, backend: MemoryBackend) -> None:
        self.backend = backend
        self._reading = FolderReader(backend)
        self._ledgers = LedgerFile(backend.state(""))
        self._recalls = RecallTimes(backend.state(""))
        self._past = FolderHistory(backend.revisions, self._say)
        self._recalling = RecallReader(backend, self._reading, self._embedder, self._say)
        kind = find_agent_kind(backend.path_of())
        gate = GuardGate(backend.state(QUARANTINE), self._clock, kind, self._say, self._known_rules)
        self._gate = gate.rest_on(self._hear)

    def claim(self) -> None:
        """Register the memory for its project, before the first write."""
        if self._claim is None:
            return
        backend, self._claim = self._claim(), None
        if backend != self.backend:  # another project was faster
            self._recalling.close()
            self._settle(backend)

    def rest_on(self, hear: Hear) -> None:
        """From now on writes of an agent rest on these words of the user and these texts."""
        self._hear = hear
        self._gate = self._gate.rest_on(hear)

    @property
    def local(self) -> Path:
        """The folder on this machine for what belongs to the store and is no memory."""
        return self.backend.local

    def path_of(self, file: str = "") -> Path:
        """The path of a file, or of the memory folder, to show to people and to give to file tools."""
        return self.backend.path_of(file)

    def file_of(self, path: Path) -> str:
        """The file at an absolute path. Raises `Refused` for a path outside the memory folder."""
        return self.backend.file_of(path)

    def exists(self) -> bool:
        """True once there is a memory folder."""
        return self.backend.exists()

    # --- reading --------------------------------------------------------------------------------------

    def topics(self) -> list[Topic]:
        """All memories in the order of their files. A file that has not changed is not read again."""
        return self._reading.topics()

    def get(self, name: str) -> Topic:
        """One memory, by its name, its file, or the beginning of one name."""
        return self._reading.get(name)

    def listing(self) -> FolderListing:
        """The files with their stamps, and the files that are not used, each with the reason."""
        return self._reading.listing()

    @property
    def has_team(self) -> bool:
        """True if there is a part that is shared with a team."""
        return self.backend.exists(TEAM.rstrip("/"))

    def index_text(self, *, team: bool = False) -> str:
        """The text of MEMORY.md, or of the team's; empty if there is none."""
        return self._reading.index_text((SHARED if team else OWN).index)

    def loaded_index(self, *, team: bool = False) -> str:
        """An index as a session sees it: cut to its limits, with a warning if it was cut.

        Where there are memories and no index, it is the one that the next write makes.
        """
        part, text = SHARED if team else OWN, self.index_text(team=team)
        if not text and not self.exists():
            return ""
        known = self.modified().items()
        times = {part.inner(file): at for file, at in known if file.startswith(part.folder)}
        if not text:
            return self._reading.make_index(part, times)
        from sevenfold.memory.index import load_index

        loaded = load_index(text, times, part.index)
        if loaded.warning:
            self._say(f"{self.path_of()}: {loaded.warning}.")
            self._tell()
        return loaded.text

    def modified(self) -> dict[str, float]:
        """The time of the last change of each memory, by file."""
        found = self.listing()
        return {file: found.files[file].modified / 1e9 for file in found.topics}

    def recall(self, query: str, limit: int = 5, skip: frozenset[str] = frozenset()) -> list[Recalled]:
        """The memories that answer a question, the best first; files in `skip` are left out."""
        return self._recall(query, limit, skip, 0.0)

    def _recall(self, query: str, limit: int, skip: frozenset[str], wait: float | None) -> list[Recalled]:
        found = self._recalling.find(query, limit, skip, wait=wait)
        self._recalls.note((one.file for one in found), self._clock.now())
        self._tell()
        return found

    def search(self, words: str, limit: int = 20) -> list[Recalled]:
        """All memories that share words or meaning with `words`, the best first."""
        found = self._recalling.find(words, limit, silent=False)
        self._tell()
        return found

    def newest(self, most: int) -> list[Recalled]:
        """The memories that were changed last, the newest first."""
        return self._recalling.newest(most)

    def prepare(self) -> None:
        """Bring the search index up to date, so that the first recall does not wait for it."""
        self._recalling.prepare()
        self._tell()

    def check(self) -> list[CheckFinding]:
        """Problems of the memories, the index and the folder, each with its fix."""
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
        """Wait until all memories can be found by meaning; False if that takes longer."""
        return self._recalling.settled(seconds)

    def describe_progress(self) -> str:
        """A line about the search index while it is being built; empty when it is complete."""
        return self._recalling.describe_progress()

    def build(self, tell: Callable[[VectorProgress], None] | None = None) -> None:
        """Start building the vectors for recall by meaning, in the background."""
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
        said: str | Sequence[str] = (),
        source: str = "",
    ) -> Saved:
        """Save a memory. One of that name, or about the same, is replaced and stays in the history.

        With `new` only the name is compared. With `team` it is shared; memories about a person are refused.
        The author is the user, unless `author` says otherwise. A memory of an agent needs its grounds:
        `said` is what the user typed, `source` names the text that the rest comes from.
        """
        from sevenfold.memory.folder.changes import add_memory

        by = author or self.author
        return self.changing(
            lambda desk: add_memory(
                self._grounded(desk, said, source),
                by,
                type=type,
                name=name,
                description=description,
                body=body,
                origin=origin,
                team=team,
                new=new,
            ),
            look=False,
        )

    def edit(
        self,
        name: str,
        *,
        description: str | None = None,
        body: str | None = None,
        type: Type | None = None,
        author: Author | None = None,
        said: str | Sequence[str] = (),
        source: str = "",
    ) -> Saved:
        """Change the given parts of one memory and nothing else of its file. For `said` see `add`."""
        from sevenfold.memory.folder.changes import edit_memory

        by = author or self.author
        return self.changing(
            lambda desk: edit_memory(
                self._grounded(desk, said, source), by, name, description=description, body=body, type=type
            )
        )

    def remove(self, name: str, *, author: Author | None = None) -> Saved:
        """Remove a memory; `undo` brings it back."""
        from sevenfold.memory.folder.changes import remove_memory

        return self.changing(lambda desk: remove_memory(desk, author or self.author, name))

    def purge(self, name: str) -> Saved:
        """Remove a memory from files, index, history and search, for good."""
        from sevenfold.memory.folder.undo import find_file_ever

        return self._purge(lambda desk: find_file_ever(desk, name))

    def purge_file(self, file: str) -> None:
        """Remove a file, or what is left of one that is gone, in the same way: another machine did."""
        self._purge(lambda desk: file)

    def _purge(self, find: Callable[[FolderTransaction], str]) -> Saved:
        from sevenfold.memory.dreams.stage import discard_all_stages, list_waiting_stages
        from sevenfold.memory.folder.undo import purge_file

        saved = self.changing(lambda desk: purge_file(desk, find(desk)))
        file = saved.path.relative_to(self.path_of()).as_posix()
        self._recalling.purge(file)
        self._recalls.forget(file)
        for held in [one for one in self.quarantine.list() if one.file == file]:
            self.quarantine.drop(held.number)
        if list_waiting_stages(self.local):
            self._say("the dream that waited for review was dropped: it had a copy of the memory")
        discard_all_stages(self.local)
        self._tell()
        return saved

    def undo(
        self, name: str | None = None, to: str | None = None, *, author: Author | None = None
    ) -> list[Saved]:
        """Undo the last change of one memory or of all, or return to a revision.

        Undo again goes one step further back. What others wrote since stays.
        """
        from sevenfold.memory.folder.undo import undo_changes

        return self.changing(lambda desk: undo_changes(desk, author or self.author, name, to))

    def redo(self, name: str | None = None, *, author: Author | None = None) -> list[Saved]:
        """Bring back what the last undo took back, of one memory or of all."""
        from sevenfold.memory.folder.undo import redo_changes

        return self.changing(lambda desk: redo_changes(desk, author or self.author, name))

    def take_in(self, author: Author = FOUND, file: str = "", *, tidy: bool = True) -> list[Saved]:
        """Record changes of other programs as a revision, and update the index.

        With `file` the author has written only that one, and only it is returned. Without `tidy` the index
        stays as it is: a program that keeps it itself may be about to write it.
        """
        if not self.exists():
            return []
        saved = list[Saved]()
        self.changing(lambda desk: None, taken=(author, file, saved), tidy=tidy)
        return saved

    def has_news(self) -> bool:
        """True if other programs changed the folder since it was last seen. Loads less than `take_in`."""
        seen = self._ledgers.load().rows
        return {file: row.stamp for file, row in seen.items()} != self.listing().files

    def list_secrets(self) -> list[str]:
        """The files that are kept out of the history because they hold a secret."""
        return [file for file, row in self._ledgers.load().rows.items() if row.held == A_SECRET]

    # --- the agent's own Write and Edit ---------------------------------------------------------------

    def before_write(
        self,
        path: Path,
        data: bytes,
        *,
        author: Author | None = None,
        grounds: Hear | None = None,
        whole: bool = False,
    ) -> PreparedWrite:
        """The bytes to write, attributed to their source; `Refused` if none may become this file.

        `grounds` gives what the write of somebody else rests on. `whole`: all of it passes, or nothing.
        """
        from sevenfold.memory.folder.proposals import WriteProposal

        self.claim()
        proposal = WriteProposal(self.backend, path, data)
        old = proposal.check()
        gate = self._gate if grounds is None else self._gate.rest_on(grounds)
        try:
            return gate.let_pass(proposal.file, data, old, author or self.author, whole=whole)
        finally:
            self._tell()

    def let_in(self, file: str, data: bytes, old: bytes, author: Author) -> bool:
        """True if a text of another machine may be taken in; else the user is told, and orders are held."""
        try:
            if author.kind == "user" and author.reason.startswith(RELEASED):
                self._gate.refuse_secrets(data)
            else:
                self._gate.screen(file, data, old, author)
        except Refused as held:
            if not isinstance(held, Guarded) or held.quarantined is None:
                self._say(f"{file} of another machine was not taken in: {held}")
            return False
        finally:
            self._tell()
        return True

    def announce_write(self, path: Path, data: bytes, *, author: Author | None = None) -> None:
        """Say whose bytes these are before they are written: whoever finds them first books them so."""
        digests, head = {self.file_of(path): digest_bytes(data)}, self._ledgers.load().head
        self._ledgers.announce(PendingWrite(head, author or self.author, "", digests))

    def announce_taken(
        self, files: Mapping[str, bytes | None], author: Author, summary: str, at: float
    ) -> None:
        """Say what another machine wrote before it is written, unless a write of ours is announced."""
        head = self._past.head(self._clock.now())
        if self._ledgers.announced(head) is None:
            digests = {file: "" if data is None else digest_bytes(data) for file, data in files.items()}
            self._ledgers.announce(PendingWrite(head, author, summary, digests, at))

    def after_write(self, path: Path, *, author: Author | None = None) -> list[Saved]:
        """Record the file that was just written at `path`; what others wrote meanwhile is theirs."""
        saved = self.take_in(author or self.author, self.file_of(path))
        self._ledgers.withdraw()  # it may quote what the user said
        return saved

    # --- the past, and what was held back -------------------------------------------------------------

    def history(self, name: str | None = None, limit: int = 50) -> list[Revision]:
        """The newest revisions first, of one memory or of the folder."""
        file = self._ever(name)
        return self._past.ask(lambda history: history.log(file, limit))

    def as_of(self, revision: str, file: str) -> bytes | None:
        """A file right after a revision; None if it was not there."""
        return self._past.ask(lambda history: history.file_at(revision, file))

    def diff(self, name: str | None = None, revision: str | None = None) -> str:
        """The last change, or all changes since a revision, as a unified diff."""
        file = self._ever(name)
        if revision is not None:
            return self._past.ask(lambda history: history.diff(revision, file=file))
        newest = self.history(name, 1)
        if not newest:
            return ""
        return self._past.ask(lambda history: history.changes(newest[0].id, file))

    @property
    def quarantine(self) -> Quarantine:
        """The texts that the guard held back."""
        return self._gate.quarantine

    @property
    def has_quarantine(self) -> bool:
        """True if something was ever held back. Loads less than `quarantine`."""
        return bool(self.backend.state(QUARANTINE).sizes())

    def release(self, number: int) -> Saved:
        """Make a memory of a text in quarantine, on the user's order."""
        from sevenfold.memory.folder.changes import release_memory

        by = Author("user", self.author.session, f"{RELEASED}, number {number}")
        saved = list[Saved]()

        def write(file: str, data: bytes, part: bytes) -> None:
            saved.append(self.changing(lambda desk: release_memory(desk, by, file, data, part)))

        self.quarantine.release(number, write)
        return saved[0]

    def export(self, folder: Path, *, git: bool = False) -> int:
        """Copy the memories to an empty folder; returns the number of files.

        With `git` it becomes a repository with their whole history; returns the number of revisions.
        """
        from sevenfold.memory.export import export_files, export_to_git

        self.take_in()
        if not self.exists():
            raise Mistake(f"there are no memories in {self.path_of()} yet; nothing was exported")
        if git:
            return self._past.ask(lambda history: export_to_git(history, folder))
        return export_files(self.backend, folder)

    def recover(self) -> str:
        """Finish or take back the commit of a dream that died; returns a sentence, or an empty text."""
        if not is_commit_pending(self.backend) or not self.exists():
            return ""
        from sevenfold.memory.dreams.commit import finish_pending_dream

        try:
            with self.backend.opened() as at, at.alone():
                return finish_pending_dream(self._desk(at), self.backend)
        finally:
            self._recalling.changed()

    def close(self) -> None:
        """End background work; what is done is kept, and the next process goes on from there."""
        self._recalls.save()
        self._recalling.close()
        self.backend.close()

    # --- inside ---------------------------------------------------------------------------------------

    def changing(
        self,
        work: Callable[[FolderTransaction], T],
        taken: tuple[Author, str, list[Saved]] | None = None,
        *,
        look: bool = True,
        tidy: bool = True,
    ) -> T:
        """Run `work` under the write lock, after changes of other programs are recorded.

        Without `look` not every file of a large folder is looked at if that was done just now. Without
        `tidy` what is recorded does not change the index.
        """
        from sevenfold.memory.folder.changes import is_up_to_date, record_external_changes

        author, file, saved = taken or (FOUND, "", [])
        self.claim()
        try:
            for _ in range(_TRIES):
                try:
                    with self.backend.opened(make=True) as at, at.alone():
                        if is_commit_pending(self.backend):  # a dream died while it was written
                            from sevenfold.memory.dreams.commit import finish_pending_dream

                            finish_pending_dream(self._desk(at), self.backend)
                        desk = self._desk(at)
                        if look or not is_up_to_date(desk):
                            saved += record_external_changes(desk, author, file, tidy=tidy)
                        done = work(desk)
                        desk.settle()
                        return done
                except ConcurrentWrite:  # a program without the lock was faster: look again
                    look = True
            raise StorageFailure(
                f"{self.path_of()} could not be written: another program keeps changing the same file; "
                "stop it and try again"
            )
        finally:
            self._recalling.changed()
            self._tell()

    def _grounded(
        self, desk: FolderTransaction, said: str | Sequence[str], source: str
    ) -> FolderTransaction:
        """The transaction with a gate that knows what this write rests on."""
        if said or source:
            from sevenfold.memory.guard.user_words import SpokenWords, join_said
            from sevenfold.memory.guard.wall import WriteSources

            given = WriteSources(SpokenWords(join_said(said)), given=source)
            desk.gate = self._gate.rest_on(lambda: given)
        return desk

    def _known_rules(self, file: str) -> SpokenWords:
        """The rules that memory has; for an index the descriptions of all memories."""
        from sevenfold.memory.guard.user_words import SpokenWords
        from sevenfold.memory.guard.wall import BY_USER

        if is_topic(file):
            return SpokenWords.of_texts(_tell(one) for one in self.topics() if one.type in BY_USER)
        return SpokenWords.of_texts(f"{one.name}\n{one.description}" for one in self.topics())

    def _desk(self, at: OpenMemories) -> FolderTransaction:
        ledger = self._ledgers.load()
        return FolderTransaction(
            at=at,
            folder=self.path_of(),
            ledgers=self._ledgers,
            past=self._past,
            gate=self._gate,
            now=self._clock.now(),
            say=self._say,
            recalls=self._recalls,
            ledger=ledger,
            lookup=self._ledgers.lookup(ledger),
        )

    def _ever(self, name: str | None) -> str | None:
        """The file of a memory that exists or existed."""
        from sevenfold.memory.folder.undo import find_file_in_history

        if name is None:
            return None
        try:
            return self.get(name).file
        except NoSuchMemory:
            if (file := self._past.ask(lambda history: find_file_in_history(history, name))) is None:
                raise
            return file


def _tell(topic: Topic) -> str:
    return f"{topic.description}\n{topic.body}"


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
        # Settings take a while to load, and a memory at a known place needs none.
        from sevenfold.settings import load_settings
        from sevenfold.settings.environment import Environment
        from sevenfold.settings.place import TrustedFolders, find_memory_place

        environment = Environment.read(environ)
        if home:
            environment = environment.based(Path(home))
        places = find_places(Path(project), environment.home)
        trusted = TrustedFolders(environment.home).is_trusted(places.root, places.tree)
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

        def claim() -> MemoryBackend:
            from sevenfold.settings.place import claim_memory_place

            return open_backend(claim_memory_place(place))

        embedder = open_default_embedder(place.words)
        memory = cls(open_backend(place), clock, emit=emit, embedder=embedder, claim=claim)
        start_following(memory)
        return memory

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def recall(
        self, query: str, limit: int = 5, skip: frozenset[str] = frozenset(), *, wait: float | None = None
    ) -> list[Recalled]:
        """The memories that answer a question, the best first; files in `skip` are left out.

        `wait` is how many seconds to wait until all memories can be found by meaning. 0: answer by words
        with what there is; the rest is built in the background. None: wait a moment (0.1 s) if a few
        memories are new, and do not wait if many are.
        """
        return self._recall(query, limit, skip, wait)

    def rewrite(self, name: str, data: bytes, *, author: Author | None = None) -> Saved:
        """Replace the whole file of a memory by these bytes, as an editor left it."""
        return self.changing(lambda desk: _rewritten(desk, author or self.author, name, data))


def _rewritten(desk: FolderTransaction, author: Author, asked: str, data: bytes) -> Saved:
    from sevenfold.memory.folder.changes import load_for_update, report_contradiction, write_file
    from sevenfold.memory.folder.names import find_meant_file
    from sevenfold.memory.topic_file import explain_not_text, read_topic

    file = find_meant_file(asked, desk.names)
    old = load_for_update(desk, file)
    if why := explain_not_text(data):
        raise Mistake(f"{desk.folder / file} was not changed: what was to be written is no text ({why})")
    if data == old.data:
        return Saved(old.name, desk.folder / file, "", "updated")
    saved = write_file(desk, author, file, data, "updated", f"edited {old.name}")
    report_contradiction(desk, read_topic(data, file))
    return saved
