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
from typing import Final

import anyio.to_thread

from sevenfold import opening
from sevenfold.errors import SevenfoldError
from sevenfold.events import Emit, Event, Failed, Notice, Remembered
from sevenfold.layers.l5_durable_memory.nearby import LOADED, Nearby
from sevenfold.layers.l5_durable_memory.prompt import is_opening, memory_prompt
from sevenfold.layers.l5_durable_memory.prompt import opening as opened_with
from sevenfold.layers.l5_durable_memory.selecting import Sources, Start
from sevenfold.memory.age import age, caveat
from sevenfold.memory.agents.scopes import state_of
from sevenfold.memory.guard.instructions import find_instructions
from sevenfold.memory.history import Author
from sevenfold.memory.instructions import InstructionFiles, Loaded, rendered
from sevenfold.memory.search.embedding import default_embedder
from sevenfold.memory.store import MemoryStore
from sevenfold.messages import Message
from sevenfold.protocols import Attach, Capabilities, Clock, Forker, Handback, ToolFailed
from sevenfold.restore import Cut, Restorable
from sevenfold.tools.paths import real, secret
from sevenfold.tools.workspace import Keeper
from sevenfold.transcript import Mark, View
from sevenfold.whereabouts import claim_memory
from sevenfold.workplace import Workplace

MANAGED: Final = Path("/etc/sevenfold")
"""Where whoever looks after the machine puts instructions for everybody on it."""
BY: Final = "memory"


class Knowledge:
    """Of one session. Without memory it is the instruction files alone."""

    def __init__(
        self,
        at: Workplace,
        session: str,
        view: View,
        clock: Clock,
        emit: Emit,
        locate: Callable[[str], Path],
    ) -> None:
        """`locate`: which file a tool means by a path."""
        self._at, self._clock, self._emit = at, clock, emit
        self._own, self._waiting = threading.get_ident(), deque[Event]()
        self.store: MemoryStore | None = None
        self._others: list[MemoryStore] = []
        if at.memory.off is None:
            author, place = Author("agent", session), at.memory
            self.store = MemoryStore(
                place.folder,
                place.state,
                clock,
                emit=self._tell,
                author=author,
                embedder=default_embedder(place.words),
            )
        known = view.marks.get(LOADED)
        self.files = self._instruction_files(known if isinstance(known, list) else ())
        self._nearby = Nearby(self._touched, self._known, locate, emit)
        self._opened_again = False
        if known:  # resumed: what was said stays, and rules for certain files wait for these again
            self.files.load()
        self._team = at.flags.team and self.store is not None and _shared(self.store)
        self.measured: Callable[[float, int], object] | None = None
        """Told at the end how many memories turned out wrong, and how many are quarantined."""

    def _instruction_files(self, already: Sequence[object]) -> InstructionFiles:
        at = self._at
        person = at.environment.variables.get("HOME")
        return InstructionFiles(
            at.places.tree,
            at.cwd,
            home=at.environment.home,
            managed=MANAGED,
            user_home=Path(person) if person else Path.home(),
            trusted=at.trusted,
            forbidden=secret,
            shared_home=at.environment.shared,
            suspicious=find_instructions,
            already=tuple(map(str, already)),
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
        return (memory_prompt(place.folder, project, guidelines, logs=logs, team=team),)

    def opening(self) -> tuple[Message | Mark, ...]:
        """What opens the conversation: instruction files and the index, read now."""
        self.files = self._instruction_files(())
        self._nearby.forget()
        found = self.files.load()
        for text in found.warnings:
            self._emit(Notice(text, "warning"))
        team = self._index(team=True) if self._team else ""
        said = opened_with(self._index(), rendered(found), team)
        if said is None:
            return ()
        return opening.context(said), Mark(LOADED, list(self.files.known))

    def rules(self) -> tuple[Message, ...]:
        """The instruction files alone, for agents: they work in the same project."""
        said = opened_with("", rendered(self._instruction_files(()).load()))
        return () if said is None else (opening.context(said),)

    name = "instruction files and memory index"

    def restored(self, cut: Cut, room: int) -> Message | None:
        """After a compaction: the opening as it would be now, where it has left the view."""
        if any(is_opening(placed) for placed in cut.kept):
            return None
        self._opened_again = True
        return next((one for one in self.opening() if isinstance(one, Message)), None)

    def _index(self, *, team: bool = False) -> str:
        try:
            return self.store.loaded_index(team=team) if self.store else ""
        except SevenfoldError as error:
            self._emit(Failed(BY, str(error)))
            return ""

    def _touched(self, path: Path) -> Loaded:
        return self.files.touched(path)

    def _known(self) -> tuple[str, ...]:
        return self.files.known

    # --- beside the conversation ------------------------------------------------------------------------

    def sources(
        self, able: Callable[[], Capabilities], fork: Forker, model: Callable[[], str], start: Start
    ) -> Sources | None:
        """What recall searches in, with what it needs of the conversation."""
        store = self.store
        if store is None:
            return None
        return Sources(store.folder, store.recall, able, store.newest, fork, model, start)

    def attach(self, view: View) -> Sequence[Message | Mark]:
        """What the folders of newly touched files say."""
        self._flush()
        handed = self._nearby.attach(view)
        if self._opened_again and not handed:
            handed = (Mark(LOADED, list(self.files.known)),)
        self._opened_again = False
        return handed

    @property
    def keeper(self) -> Keeper | None:
        return MemoryKeeper(self.store, self._clock, self._tell) if self.store else None

    def keeper_of(self, folder: Path) -> Keeper | None:
        """Looks after the memory of an agent, as it does after the session's own."""
        if self.store is None:
            return None
        store = MemoryStore(
            folder,
            state_of(folder, self._at.environment.home),
            self._clock,
            emit=self._tell,
            author=self.store.author,
        )
        self._others.append(store)
        return MemoryKeeper(store, self._clock, self._tell)

    async def prepare(self) -> Sequence[Handback]:
        """Take in what others wrote since, and bring the search up to date; nobody waits for it."""
        if self.store is not None and self.store.folder.is_dir():
            await anyio.to_thread.run_sync(partial(self.store.take_in, Author("other")))
            await anyio.to_thread.run_sync(self.store.prepare)
            self._flush()
        return ()

    def claim(self) -> None:
        """A conversation begins: from now on it is written down whose memory this is."""
        if self.store is not None and self._at.environment.shared is not None:
            claim_memory(self._at.memory, self._at.places.root)

    def close(self) -> None:
        self._measure()
        for store in (self.store, *self._others):
            if store is not None:
                store.close()
        self._flush()

    def _measure(self) -> None:
        if self.measured is None or self.store is None or not self.store.folder.is_dir():
            return
        from sevenfold.memory.pollution import pollution  # the rules of dreams: slow to import

        try:
            rate = pollution(self.store, self._clock.now()).rate
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


def _shared(store: MemoryStore) -> bool:
    """Whether there is a team; its folder may have vanished, and is brought back by the next sync."""
    return store.has_team or (store.state / "team" / "team.json").exists()


class MemoryKeeper:
    """What the agent's own file tools do in the memory folder: checked before, taken in after, dated."""

    def __init__(self, store: MemoryStore, clock: Clock, emit: Emit) -> None:
        self._store, self._clock, self._emit = store, clock, emit
        self._folder = real(store.folder)

    def keeps(self, path: Path) -> bool:
        return path.is_relative_to(self._folder)

    def before_write(self, path: Path, data: bytes) -> None:
        try:
            self._store.before_write(path, data)
        except SevenfoldError as error:
            raise ToolFailed(str(error)) from error

    def after_write(self, path: Path) -> str:
        try:
            saved = self._store.after_write(path)
        except SevenfoldError as error:
            return f"It could not be recorded: {error}"
        kind = self._store.author.kind
        for one in saved:
            said = one.name, str(one.path), one.action, one.revision, kind
            self._emit(Remembered(*said))
        return ""

    def remark(self, path: Path) -> str:
        try:
            modified = path.stat().st_mtime
        except OSError:
            return ""
        now = self._clock.now()
        said = " ".join(filter(None, [f"saved {age(modified, now)}.", caveat(modified, now)]))
        return f"[a memory, {said}]"


_check: tuple[type[Keeper], type[Restorable], type[Attach]] = (MemoryKeeper, Knowledge, Knowledge)
