"""How memories are chosen for a question: by search, by a model, or by a model from what a search found.

    hybrid          the search alone: plain code, milliseconds
    model           a model chooses from the newest 200
    hybrid+model    a model chooses from the best 20 of the search

Whatever a model cannot answer, the search does, and an event says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final, Protocol, TypeAlias

import anyio.to_thread
import msgspec

from sevenfold.errors import SevenfoldError
from sevenfold.events import Emit, Failed, Notice
from sevenfold.layers.l5_durable_memory.settings import SelectorName
from sevenfold.memory.recalled import BY, Recalled
from sevenfold.protocols import Capabilities, Forker, Work

CANDIDATES: Final = 20
"""Memories that the search puts before a model."""
NEWEST: Final = 200
"""Memories that a model chooses from where there is no search before it."""
FAILURES: Final = 3
"""After so many failures in a row the model is not asked any more."""

Find: TypeAlias = Callable[[str, int, frozenset[str]], Sequence[Recalled]]
"""Searches for a text: at most so many, best first, without these files. Called in a thread."""
Newest: TypeAlias = Callable[[int], Sequence[Recalled]]
"""The newest so many memories, newest first. Called in a thread."""
Start: TypeAlias = Callable[[str, Work], object]
"""Starts work beside the conversation, under a name."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What recall needs of a conversation and its memory."""

    folder: Path
    """The memory folder: what the model has read below it is not recalled."""
    find: Find
    able: Callable[[], Capabilities] = Capabilities
    """What the model of the conversation can do; recalled memories take less of a small window."""
    newest: Newest = lambda most: ()
    fork: Forker | None = None
    """Asks the model that chooses. Without it, and without `start`, the search decides."""
    model: Callable[[], str] = lambda: ""
    """The name of the model that chooses; an error of ours where it cannot be asked."""
    start: Start | None = None


class Wanted(msgspec.Struct, frozen=True):
    """What memories are wanted for."""

    text: str
    limit: int
    skip: frozenset[str]
    """Files that are in view already."""


class Found(msgspec.Struct, frozen=True):
    """What was chosen, best first, by whom, and how long that took."""

    memories: tuple[Recalled, ...]
    selector: SelectorName
    milliseconds: float


class Choose(Protocol):
    """Lets a model choose; `NotChosen` when there is no answer."""

    async def __call__(
        self, wanted: Wanted, candidates: Sequence[Recalled], *, standing: bool
    ) -> tuple[Recalled, ...]:
        """`standing`: the candidates are the same for every question, as far as nobody saves."""
        ...


class NotChosen(Exception):
    """The model has chosen nothing that counts; the message says why, for people."""


def by_search(find: Find, wanted: Wanted, limit: int = 0) -> Found:
    """The search alone."""
    began = perf_counter()
    found = find(wanted.text, limit or wanted.limit, wanted.skip)
    memories = tuple(m for m in found if m.file not in wanted.skip)
    return Found(memories, "hybrid", 1_000 * (perf_counter() - began))


@dataclass(slots=True)
class ByModel:
    """A model chooses, from everything or from what a search found."""

    sources: Sources
    choose: Choose
    selector: SelectorName
    emit: Emit
    _failed: int = field(default=0, init=False)

    @property
    def gave_up(self) -> bool:
        return self._failed >= FAILURES

    async def __call__(self, wanted: Wanted) -> Found:
        began = perf_counter()
        alone = self.selector == "model"
        gather = partial(self._newest if alone else self._best, wanted)
        candidates = await anyio.to_thread.run_sync(gather, abandon_on_cancel=True)
        if all(one.file in wanted.skip for one in candidates):
            return Found((), self.selector, 1_000 * (perf_counter() - began))
        try:
            chosen = await self.choose(wanted, candidates, standing=alone)
        except (NotChosen, SevenfoldError) as error:
            return await self._instead(wanted, candidates, str(error))
        self._failed = 0
        return Found(chosen, self.selector, 1_000 * (perf_counter() - began))

    async def _instead(self, wanted: Wanted, candidates: Sequence[Recalled], why: str) -> Found:
        """What the search says, where the model said nothing."""
        self._failed += 1
        self.emit(Failed(BY, f"the model did not choose, and the search does: {why}"))
        if self.gave_up:
            said = f"memories are chosen by search alone from now on: the model failed {FAILURES} times"
            self.emit(Notice(said, "warning"))
        if self.selector == "hybrid+model":
            return Found(tuple(candidates[: wanted.limit]), "hybrid", 0.0)
        search = partial(by_search, self.sources.find, wanted)
        return await anyio.to_thread.run_sync(search, abandon_on_cancel=True)

    def _best(self, wanted: Wanted) -> Sequence[Recalled]:
        return by_search(self.sources.find, wanted, CANDIDATES).memories

    def _newest(self, wanted: Wanted) -> Sequence[Recalled]:
        return self.sources.newest(NEWEST)
