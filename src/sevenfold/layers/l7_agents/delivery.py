"""Delivery: what waits for an agent is put into its transcript, each letter exactly once.

A letter is delivered when it stands in the transcript. In the same write a mark lists the ids of the last
letters; only what is listed there is settled in its mailbox, at the next look. So a crash at any moment
leaves a letter in the mailbox, or in the transcript, or in both and known to be in both. Marks outlive
compaction. A letter whose mark was lost in the middle of a write is known by its id in the view.

Going back in the conversation takes letters out of the view like everything else that was said since; they
do not come again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, Protocol

from sevenfold.errors import SevenfoldError
from sevenfold.events import Emit, Failed, Mail
from sevenfold.layers.l7_agents.frames import words_of
from sevenfold.layers.l7_agents.letters import Letter, MailboxFull
from sevenfold.layers.l7_agents.mailbox import MOST_WAITING
from sevenfold.layers.l7_agents.rendering import BY, id_in, render
from sevenfold.messages import Message
from sevenfold.protocols import Attach
from sevenfold.transcript import Mark, View

__all__ = ["BY", "MARK", "Delivery", "Inbox", "Queue", "render"]

MARK: Final = "mail"
REMEMBERED: Final = 100
"""Ids that the mark lists beside those that are still to be settled."""
MOST_AT_ONCE: Final = 64_000
"""Characters of letters that one request takes in, and one letter at the least; the rest waits."""


class Inbox(Protocol):
    """Where letters for an agent wait."""

    def waiting(self) -> Sequence[Letter]: ...
    def settle(self, ids: Collection[str]) -> object: ...


class Queue:
    """An inbox in memory: for an agent of this process, while it runs."""

    def __init__(self, owner: str = "", most: int = MOST_WAITING) -> None:
        self._owner, self._most = owner, most
        self._waiting: dict[str, Letter] = {}
        self._settled: dict[str, None] = {}

    def post(self, letter: Letter) -> bool:
        """False: it is or was there already."""
        if letter.id in self._waiting or letter.id in self._settled:
            return False
        if len(self._waiting) >= self._most:
            raise MailboxFull(
                f"{self._most} messages wait for {self._owner!r} already, and this one was not sent: "
                "wait until some are read"
            )
        self._waiting[letter.id] = letter
        return True

    def waiting(self) -> tuple[Letter, ...]:
        return tuple(self._waiting.values())

    def settle(self, ids: Collection[str]) -> None:
        for id in ids:
            if self._waiting.pop(id, None):
                self._settled[id] = None
        for id in list(self._settled)[: -2 * self._most]:
            del self._settled[id]


class Delivery:
    """Attaches what has arrived. `arrived` is told of each letter when it is handed over."""

    def __init__(
        self,
        inboxes: Sequence[Inbox],
        emit: Emit,
        arrived: Callable[[Letter], object] = lambda letter: None,
    ) -> None:
        self._inboxes, self._emit, self._arrived = inboxes, emit, arrived
        self._looked = False
        self._cut_off: list[str] = []
        """Letters that the view showed at the first look and the mark did not list."""
        self._announced: dict[str, None] = {}
        self._told: set[str] = set()

    def attach(self, view: View) -> Sequence[Message | Mark]:
        fresh = _at_once(self.waiting(view))
        if not fresh:
            return ()
        for letter in fresh:
            self._announce(letter)
        known = [*_marked(view), *(letter.id for letter in fresh)]
        return *map(render, fresh), Mark(MARK, self._worth_listing(known))

    def waiting(self, view: View) -> tuple[Letter, ...]:
        """What is not in this transcript yet, oldest first; what is in it gets settled."""
        heaps = [(inbox, heap) for inbox in self._inboxes if (heap := self._heap(inbox))]
        if not heaps:
            return ()
        delivered = self._delivered(view)
        fresh: dict[str, Letter] = {}
        for inbox, heap in heaps:
            if done := [letter.id for letter in heap if letter.id in delivered]:
                self._settle(inbox, done)
            for letter in heap:
                if letter.id not in delivered:
                    fresh.setdefault(letter.id, letter)
        return tuple(fresh.values())

    def _heap(self, inbox: Inbox) -> Sequence[Letter]:
        try:
            return inbox.waiting()
        except SevenfoldError as error:
            self._fail(error)
            return ()

    def _settle(self, inbox: Inbox, ids: Collection[str]) -> None:
        try:
            inbox.settle(ids)
        except SevenfoldError as error:
            self._fail(error)

    def _fail(self, error: SevenfoldError) -> None:
        """Mail that cannot be fetched stops no turn; it is said once."""
        if (why := str(error)) not in self._told:
            self._told.add(why)
            self._emit(Failed(BY, why))

    def _delivered(self, view: View) -> set[str]:
        delivered = set(_marked(view))
        if not self._looked:  # once: a crash may have cut a write before its mark
            self._looked = True
            self._cut_off = [id for placed in view if (id := id_in(placed)) and id not in delivered]
        return delivered.union(self._cut_off)

    def _worth_listing(self, known: list[str]) -> list[str]:
        """The newest, and before them those that still wait to be settled."""
        ids = list(dict.fromkeys([*self._cut_off, *known]))
        old, new = ids[:-REMEMBERED], ids[-REMEMBERED:]
        unsettled = {letter.id for inbox in self._inboxes for letter in self._heap(inbox)}
        return [*(id for id in old if id in unsettled), *new]

    def _announce(self, letter: Letter) -> None:
        if letter.id in self._announced:  # handed over before, and then not written
            return
        self._announced[letter.id] = None
        for id in list(self._announced)[: -2 * REMEMBERED]:
            del self._announced[id]
        self._emit(Mail(letter.sender, letter.summary, letter.id))
        self._arrived(letter)


def _marked(view: View) -> Iterator[str]:
    ids = view.marks.get(MARK)
    return (id for id in ids if isinstance(id, str)) if isinstance(ids, list) else iter(())


def _at_once(letters: Sequence[Letter]) -> list[Letter]:
    """As many as one request may take in."""
    taken, length = list[Letter](), 0
    for letter in letters:
        length += len(letter.text) + (len(words_of(letter.frame)) if letter.frame else 0)
        if taken and length > MOST_AT_ONCE:
            break
        taken.append(letter)
    return taken


_attach: type[Attach] = Delivery
_inbox: type[Inbox] = Queue
