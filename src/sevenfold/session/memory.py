"""What a session knows before anything is said: its memory and its instruction files.

It gives the memory part of the system prompt, the message that opens the conversation, what recall
searches in, and who looks after the memory files when tools read or write them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

import anyio.to_thread

from sevenfold.core.errors import SevenfoldError
from sevenfold.core.events import Emit, Event, Failed, Remembered
from sevenfold.core.messages import Message
from sevenfold.core.protocols import Attach, Capabilities, Change, Clock, Forker, ToolFailed
from sevenfold.core.transcript import Mark, View
from sevenfold.layers.l5_durable_memory.prompt import (
    LOADED,
    InstructionLoader,
    format_memory_prompt,
    is_opening,
)
from sevenfold.layers.l5_durable_memory.prompt import format_opening as opened_with
from sevenfold.layers.l5_durable_memory.selection import RecallParts, Start
from sevenfold.layers.shared.restore import CompactionCut, StandingMessages, Stands
from sevenfold.memory.folder.folder import Saved, find_state_folder
from sevenfold.memory.folder.folder_backend import FolderBackend
from sevenfold.memory.folder.names import INDEX_NAME
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.instructions.loader import InstructionFiles
from sevenfold.memory.instructions.reader import InstructionLimits, SuspiciousText
from sevenfold.memory.recall_results import format_age, format_caveat
from sevenfold.memory.search.embedding import open_default_embedder
from sevenfold.memory.store import MemoryStore
from sevenfold.session import frame as opening
from sevenfold.session.project import Project
from sevenfold.settings.place import claim_memory_place
from sevenfold.tools.paths import is_secret_file, resolve_path
from sevenfold.tools.workspace import FileKeeper

MANAGED: Final = Path("/etc/sevenfold")
"""Where whoever looks after the machine puts instructions for everybody on it."""
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
        *,
        team: bool = True,
    ) -> None:
        """`locate`: which file a tool means by a path. `team`: whether memory shared with one is used."""
        self._at, self._clock, self._emit = at, clock, emit
        self._own, self._waiting = threading.get_ident(), deque[Event]()
        self.store: MemoryStore | None = None
        self._others: list[MemoryStore] = []
        if at.memory.off is None:
            author, place = Author("agent", session), at.memory
            self.store = MemoryStore(
                FolderBackend.at(place),
                clock,
                emit=self._tell,
                author=author,
                embedder=open_default_embedder(place.words),
                claim=lambda: FolderBackend.at(claim_memory_place(place)),
            )
        about = self._instruction_files, self._said, is_opening, locate, emit
        self._instructing = InstructionLoader(*about, view.marks.get(LOADED), besides=self._indexes)
        self._team = team and self.store is not None and _shared(self.store)
        self.measured: Callable[[float, int], object] | None = None
        """Told at the end how many memories turned out wrong, and how many are quarantined."""

    def _instruction_files(
        self, already: Sequence[object], limits: InstructionLimits | None = None
    ) -> InstructionFiles:
        at = self._at
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

    # --- in the prompt ----------------------------------------------------------------------------------

    @property
    def system(self) -> tuple[str, ...]:
        """What is said about memory in front of every request."""
        if self.store is None:
            return ()
        place, guidelines = self._at.memory, self._at.settings.guidelines
        logs = self._at.settings.assistant_mode
        project, team = self._at.places.project, self._team
        return (format_memory_prompt(place.folder, project, guidelines, logs=logs, team=team),)

    def opening(self) -> tuple[Message | Mark, ...]:
        """What opens the conversation: instruction files and the index, read now."""
        return self._instructing.opening()

    @property
    def stands(self) -> Stands:
        return is_opening

    def again(self, cut: CompactionCut, room: int) -> Sequence[Message]:
        """The same after a compaction, where it has left the view."""
        return self._instructing.again(cut, room)

    def _said(self, instructions: str, index: bool) -> tuple[Message, ...]:
        team = self._index(team=True) if index and self._team else ""
        said = opened_with(self._index() if index else "", instructions, team)
        return () if said is None else (opening.make_context_message(said),)

    def _indexes(self) -> tuple[Path, ...]:
        return (self.store.path_of(INDEX_NAME),) if self.store else ()

    def beside(
        self,
        memory: Path | None,
        own: Callable[[], Sequence[Message]],
        stands: Stands,
        locate: Callable[[str], Path],
        emit: Emit,
        known: object,
    ) -> InstructionLoader:
        """The instruction files of an agent: it works in the same project. `own`: what brings its memory,
        which lies in `memory`.
        """

        def said(instructions: str, more: bool) -> tuple[Message, ...]:
            rules = opened_with("", instructions)
            first = () if rules is None else (opening.make_context_message(rules),)
            return (*first, *own()) if more else first

        besides = (memory / INDEX_NAME,) if memory else ()
        about = self._instruction_files, said, stands, locate, emit, known
        return InstructionLoader(*about, besides=lambda: besides, warns=False)

    def index_of(self, folder: Path) -> str:
        """The index of an agent's memory, as it is now."""
        state = find_state_folder(folder, self._at.environment.home)
        try:
            return MemoryStore(FolderBackend(folder, state), self._clock).loaded_index()
        except SevenfoldError as error:
            self._emit(Failed(BY, str(error)))
            return ""

    def _index(self, *, team: bool = False) -> str:
        try:
            return self.store.loaded_index(team=team) if self.store else ""
        except SevenfoldError as error:
            self._emit(Failed(BY, str(error)))
            return ""

    # --- beside the conversation ------------------------------------------------------------------------

    def sources(
        self, able: Callable[[], Capabilities], fork: Forker, model: Callable[[], str], start: Start
    ) -> RecallParts | None:
        """What recall searches in, with what it needs of the conversation."""
        store = self.store
        if store is None:
            return None
        return RecallParts(store.path_of(), store.recall, able, store.newest, fork, model, start)

    def attach(self, view: View) -> Sequence[Message | Mark]:
        """What the folders of newly touched files say, and which day it is where a new one began."""
        self._flush()
        known = view.marks.get("surroundings")
        day = opening.make_date_news(known if isinstance(known, dict) else {}, self._clock.now())
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
        self._others.append(store)
        return MemoryKeeper(store, self._clock, self._tell)

    async def prepare(self) -> Sequence[Change]:
        """Take in what others wrote since, and bring the search up to date; nobody waits for it."""
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
        """Tools and searches run in threads; whoever listens is not made for that."""
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
    """Whether there is a team; its folder may have vanished, and is brought back by the next sync."""
    return store.has_team or (store.local / "team" / "team.json").exists()


class MemoryKeeper:
    """What the agent's own file tools do in the memory folder: checked before, taken in after, dated."""

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
            self._store.before_write(path, data)
            written = prepare_write(self._store, path, data, self._clock.now())
        except SevenfoldError as error:
            raise ToolFailed(str(error)) from error
        self._say[path] = written.said
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
            said = one.name, str(one.path), one.action, one.revision, kind
            self._emit(Remembered(*said))

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
