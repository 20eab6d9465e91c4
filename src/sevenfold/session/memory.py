"""The memory and the instruction files of a session.

It gives the memory part of the system prompt, the message that opens the conversation, what recall
searches in, and who looks after the memory files when tools read or write them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import anyio.to_thread
from anyio.abc import TaskGroup

from sevenfold.core.clock import format_date
from sevenfold.core.errors import SevenfoldError
from sevenfold.core.events import Emit, Ended, Event, Failed, Notice, Remembered
from sevenfold.core.messages import Message, make_context_message
from sevenfold.core.protocols import Attach, Change, Clock, ToolFailed
from sevenfold.core.transcript import Entry, Mark, View
from sevenfold.layers.l5_durable_memory.prompt import (
    LOADED,
    InstructionLoader,
    format_memory_prompt,
    format_opening,
    is_opening,
)
from sevenfold.layers.shared.restore import CompactionCut, StandingMessages, Stands
from sevenfold.memory.backend import open_backend, start_following
from sevenfold.memory.folder.agent_folders import find_state_folder
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.folder.folder import Saved
from sevenfold.memory.folder.names import INDEX_NAME
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.instructions.loader import InstructionFiles
from sevenfold.memory.instructions.reader import InstructionLimits, SuspiciousText
from sevenfold.memory.recall_results import format_age, format_caveat
from sevenfold.memory.search.embedding import open_default_embedder
from sevenfold.memory.store import MemoryStore
from sevenfold.memory.team import STATE
from sevenfold.session.frame import make_date_news
from sevenfold.session.project import Project
from sevenfold.settings.place import claim_memory_place
from sevenfold.tools.workspace import FileKeeper, is_secret_file, resolve_path

if TYPE_CHECKING:
    from sevenfold.memory.guard.wall import WriteSources
    from sevenfold.memory.team.sync import SyncScheduler
    from sevenfold.memory.team.team import Team
    from sevenfold.session.session import Session

MANAGED: Final = Path("/etc/sevenfold")  # The folder with instructions for all users of a machine
BY: Final = "memory"


class SessionMemory:
    """Of one session. Without memory it is the instruction files alone."""

    label: ClassVar[str] = "Knowledge"

    def __init__(
        self,
        at: Project,
        session: str,
        view: View,
        clock: Clock,
        emit: Emit,
        locate: Callable[[str], Path],
        entries: Callable[[], Sequence[Entry]],
        *,
        team: bool = True,
    ) -> None:
        """`locate`: which file a tool means by a path. `team`: whether memory shared with one is used.

        `entries`: the transcript, in which stands what the user said himself.
        """
        self._at, self._clock, self._emit = at, clock, emit
        self._own, self._waiting = threading.get_ident(), deque[Event]()
        self.store: MemoryStore | None = None
        self._others: list[MemoryStore] = []
        if at.memory.off is None:
            author, place = Author("agent", session), at.memory
            self.store = MemoryStore(
                open_backend(place),
                clock,
                emit=self._tell,
                author=author,
                embedder=open_default_embedder(place.words),
                claim=lambda: open_backend(claim_memory_place(place)),
            )
            self.store.rest_on(self._collect_sources)
            start_following(self.store)
        self._entries = entries
        self._team = team and self.store is not None and _shared(self.store)
        self._instructing = InstructionLoader(
            partial(find_instruction_files, at),
            MemoryOpening(self.store, self._team, emit),
            is_opening,
            locate,
            emit,
            view.marks.get(LOADED),
            besides=(self.store.path_of(INDEX_NAME),) if self.store else (),
        )
        self.measured: Callable[[float, int], object] | None = None
        """Told at the end how many memories turned out wrong, and how many are quarantined."""

    # --- in the prompt ----------------------------------------------------------------------------------

    @property
    def system(self) -> tuple[str, ...]:
        """The part of the system prompt about memory."""
        if self.store is None:
            return ()
        place, guidelines = self._at.memory, self._at.settings.guidelines
        logs = self._at.settings.assistant_mode
        project, team = self._at.places.project, self._team
        return (format_memory_prompt(place.folder, project, guidelines, logs=logs, team=team),)

    def opening(self) -> tuple[Message | Mark, ...]:
        """The messages that open the conversation: instruction files and the index, read now."""
        return self._instructing.opening()

    @property
    def stands(self) -> Stands:
        return is_opening

    def again(self, cut: CompactionCut, room: int) -> Sequence[Message]:
        """The same after a compaction, where it has left the view."""
        return self._instructing.again(cut, room)

    def beside(
        self,
        memory: Path | None,
        own: Callable[[], Sequence[Message]],
        stands: Stands,
        locate: Callable[[str], Path],
        emit: Emit,
        known: object,
    ) -> InstructionLoader:
        """The instruction files of an agent, which works in the same project.

        `own` makes the messages that bring its memory, which lies in `memory`.
        """
        return InstructionLoader(
            partial(find_instruction_files, self._at),
            AgentOpening(own),
            stands,
            locate,
            emit,
            known,
            besides=(memory / INDEX_NAME,) if memory else (),
            warns=False,
        )

    def index_of(self, folder: Path) -> str:
        """The index of an agent's memory, as it is now."""
        state = find_state_folder(folder, self._at.environment.home)
        try:
            return MemoryStore(FolderBackend(folder, state), self._clock).loaded_index()
        except SevenfoldError as error:
            self._emit(Failed(BY, str(error)))
            return ""

    # --- beside the conversation ------------------------------------------------------------------------

    def attach(self, view: View) -> Sequence[Message | Mark]:
        """Instructions for folders of newly touched files, and the date when a new day began."""
        self._flush()
        known = view.marks.get("surroundings")
        day = make_date_news(known if isinstance(known, dict) else {}, self._clock.now())
        return (*self._instructing.attach(view), *day)

    @property
    def keeper(self) -> FileKeeper | None:
        return MemoryKeeper(self.store, self._clock, self._tell) if self.store else None

    def keeper_of(self, folder: Path) -> FileKeeper | None:
        """Looks after the memory of an agent, as it does after the session's own."""
        if self.store is None:
            return None
        store = MemoryStore(
            FolderBackend(folder, find_state_folder(folder, self._at.environment.home)),
            self._clock,
            emit=self._tell,
            author=self.store.author,
        )
        store.rest_on(self._collect_sources)
        self._others.append(store)
        return MemoryKeeper(store, self._clock, self._tell)

    def _collect_sources(self) -> WriteSources:
        from sevenfold.layers.l5_durable_memory.provenance import collect_write_sources

        return collect_write_sources(tuple(self._entries()))

    async def prepare(self) -> Sequence[Change]:
        """Take in what others wrote since, and bring the search up to date, in the background."""
        if self.store is not None and self.store.exists():
            await anyio.to_thread.run_sync(partial(self.store.take_in, Author("other")))
            await anyio.to_thread.run_sync(self.store.prepare)
            self._flush()
        return ()

    def claim(self) -> None:
        """A conversation begins: from now on it is written down whose memory this is."""
        if self.store is not None:
            self.store.claim()

    def close(self) -> None:
        self._measure()
        for store in (self.store, *self._others):
            if store is not None:
                store.close()
        self._flush()

    def _measure(self) -> None:
        if self.measured is None or self.store is None or not self.store.exists():
            return
        from sevenfold.memory.pollution import measure_pollution  # the rules of dreams: slow to import

        try:
            rate = measure_pollution(self.store, self._clock.now()).rate
            self.measured(rate, len(self.store.quarantine.list()))
        except SevenfoldError as error:
            self._emit(Failed(BY, str(error)))

    def _tell(self, event: Event) -> None:
        """Emit in the session's own thread. Tools and searches run in others."""
        self._waiting.append(event)
        if threading.get_ident() == self._own:
            self._flush()

    def _flush(self) -> None:
        while self._waiting:
            self._emit(self._waiting.popleft())


def _find_orders(text: str) -> Sequence[SuspiciousText]:
    from sevenfold.memory.guard.injection import find_instructions  # few projects have a file to look at

    return find_instructions(text)


def _shared(store: MemoryStore) -> bool:
    """True if there is a team; its folder may have vanished, and is brought back by the next sync."""
    return store.has_team or (store.local / "team" / "team.json").exists()


def find_instruction_files(
    at: Project, already: Sequence[object], limits: InstructionLimits | None = None
) -> InstructionFiles:
    """The instruction files of a project, without those that the conversation has already."""
    person = at.environment.variables.get("HOME")
    return InstructionFiles(
        at.places.tree,
        at.cwd,
        home=at.environment.home,
        managed=MANAGED,
        user_home=Path(person) if person else Path.home(),
        trusted=at.trusted,
        forbidden=is_secret_file,
        shared_home=at.environment.shared,
        suspicious=_find_orders,
        already=tuple(map(str, already)),
        limits=limits,
    )


class MemoryOpening:
    """Writes the message that opens a session: instructions, the index of memory and the team's."""

    def __init__(self, store: MemoryStore | None, team: bool, emit: Emit) -> None:
        self._store, self._team, self._emit = store, team, emit

    def __call__(self, instructions: str, more: bool) -> tuple[Message, ...]:
        team = self._read_index(team=True) if more and self._team else ""
        text = format_opening(self._read_index() if more else "", instructions, team)
        return () if text is None else (make_context_message(text),)

    def _read_index(self, *, team: bool = False) -> str:
        try:
            return self._store.loaded_index(team=team) if self._store else ""
        except SevenfoldError as error:
            self._emit(Failed(BY, str(error)))
            return ""


class AgentOpening:
    """Writes the messages that open an agent: instructions, and those that bring its own memory."""

    def __init__(self, own: Callable[[], Sequence[Message]]) -> None:
        self._own = own

    def __call__(self, instructions: str, more: bool) -> tuple[Message, ...]:
        text = format_opening("", instructions)
        first = () if text is None else (make_context_message(text),)
        return (*first, *self._own()) if more else first


class MemoryKeeper:
    """Guards the memory folder for the agent's file tools: checks before a write, records after it."""

    def __init__(self, store: MemoryStore, clock: Clock, emit: Emit) -> None:
        self._store, self._clock, self._emit = store, clock, emit
        self._folder = resolve_path(store.path_of())
        self._say: dict[Path, str] = {}

    def is_kept(self, path: Path) -> bool:
        return path.is_relative_to(self._folder)

    def replace_write(self, path: Path, data: bytes) -> str | None:
        from sevenfold.memory.agent_writes import redirect_write

        try:
            done = redirect_write(self._store, path, data, self._clock.now())
        except SevenfoldError as error:
            raise ToolFailed(str(error)) from error
        if done is None:
            return None
        saved, said = done
        self._told([saved] if saved else [])
        return said

    def before_write(self, path: Path, data: bytes) -> bytes:
        from sevenfold.memory.agent_writes import prepare_write

        try:
            self._store.take_in()  # the person's own changes since are not the agent's
            checked = self._store.before_write(path, data)
            written = prepare_write(self._store, path, checked.data, self._clock.now())
            self._store.announce_write(path, written.data)
        except SevenfoldError as error:
            raise ToolFailed(str(error)) from error
        self._say[path] = " ".join(filter(None, (checked.said, written.said)))
        return written.data

    def after_write(self, path: Path) -> str:
        try:
            saved = self._store.after_write(path)
        except SevenfoldError as error:
            return f"It could not be recorded: {error}"
        self._told(saved)
        return self._say.pop(path, "")

    def _told(self, saved: Sequence[Saved]) -> None:
        kind = self._store.author.kind
        for one in saved:
            self._emit(Remembered(one.name, str(one.path), one.action, one.revision, kind))

    def make_remark(self, path: Path) -> str:
        try:
            modified = path.stat().st_mtime
        except OSError:
            return ""
        now = self._clock.now()
        said = " ".join(filter(None, [f"saved {format_age(modified, now)}.", format_caveat(modified, now)]))
        return f"[a memory, {said}]"


_check: tuple[type[FileKeeper], type[StandingMessages], type[Attach]] = (
    MemoryKeeper,
    SessionMemory,
    SessionMemory,
)


BEFORE: Final = 3.0
"""Seconds that the first turn waits for what the team has written; then it goes on without."""
DOUBTFUL: Final = 0.5  # The same, when the last sync did not reach the team's repository
AFTER: Final = 10.0  # Seconds at the end for what is not sent yet; the next sync carries the rest
UNANSWERED: Final = 3.0  # The same, when the repository has not answered in the whole session


class SessionTeamSync:
    """Of one session. Without a team, or with the flag off, it does nothing."""

    def __init__(self, session: Session) -> None:
        store = session.knowledge.store
        self._emit = session.emit
        self._team = _team(session, store) if store is not None and session.flags.team else None
        self._pushing = _pushing(session, self._team) if self._team is not None else None
        if self._pushing is not None:
            session.events.overhear(self._heard)

    def start(self, tasks: TaskGroup) -> None:
        if self._pushing is not None:
            tasks.start_soon(self._pushing.run)

    async def ready(self) -> None:
        """Before the index is read for the first time."""
        if self._pushing is None or self._team is None:
            return
        try:
            last = self._team.last
        except SevenfoldError:  # the sync says what is wrong
            return
        if not await self._pushing.wait_for_first(BEFORE if last.offline is None else DOUBTFUL):
            when = f"of {format_date(last.synced)}" if last.synced is not None else "it was here"
            self._emit(
                Notice(f"The team's repository has not answered yet: its memory is as {when}.", "warning")
            )

    async def close(self) -> None:
        if self._pushing is not None:
            await self._pushing.close(AFTER if self._pushing.answered else UNANSWERED)

    def _heard(self, event: Event) -> None:
        if self._pushing is None:
            return
        if isinstance(event, Remembered):
            self._pushing.note_write(Path(event.path))
        elif isinstance(event, Ended):
            self._pushing.look_for_changes()


def _team(session: Session, store: MemoryStore) -> Team | None:
    if not (store.local / STATE).is_dir():
        return None
    from sevenfold.memory.team.team import Team

    at = session.at
    own = at.environment.tool_environment(at.settings.env)
    team = Team(store, session.clock, own, plain=at.settings.team_plain_remotes)
    return team if team.joined else None


def _pushing(session: Session, team: Team) -> SyncScheduler:
    from sevenfold.memory.team.sync import SyncScheduler

    return SyncScheduler(team, team.store.path_of(), session.clock, session.emit)
