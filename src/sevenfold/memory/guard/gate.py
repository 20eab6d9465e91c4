"""The check that every text passes on its way into memory: size, secrets, orders to the agent.

A secret is refused and written nowhere. A text that gives orders is put into the quarantine, from where
the user may release it. What stood in the file before is not held against the writer: the user wrote
it by hand, or has released it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sevenfold.core.protocols import Clock
from sevenfold.memory.backend import HEAD, StateRecords
from sevenfold.memory.errors import Guarded
from sevenfold.memory.history.revisions import Author

if TYPE_CHECKING:
    from sevenfold.memory.guard.guard import Guard, Quarantine
    from sevenfold.memory.guard.text import GuardVerdict


class GuardGate:
    """The guard and the quarantine, made when they are first needed."""

    def __init__(self, texts: StateRecords, clock: Clock, agent: str = "") -> None:
        """`agent`: whose memory is behind it, where that is not the project's."""
        self._texts, self._clock, self._agent = texts, clock, agent
        self._guard: Guard | None = None
        self._quarantine: Quarantine | None = None

    @property
    def quarantine(self) -> Quarantine:
        if self._quarantine is None:
            from sevenfold.memory.guard.guard import Quarantine

            self._quarantine = Quarantine(self._texts, self._clock, self._agent)
        return self._quarantine

    def check(self, data: bytes, source: str) -> GuardVerdict:
        """The guard's verdict on a text; `source` is its origin."""
        if self._guard is None:
            from sevenfold.memory.guard.guard import Guard

            self._guard = Guard(largest=HEAD, agent=self._agent)
        return self._guard.check(data, source=source)

    def let_pass(self, file: str, data: bytes, old: bytes, author: Author) -> None:
        """`Guarded` when this may not become the file."""
        verdict = self.check(data, _source(author))
        if verdict.action == "refuse":
            raise Guarded(verdict)
        if verdict.action == "quarantine" and not self._known(verdict, old, author):
            who = " ".join(part for part in (author.kind, author.session) if part)
            source = author.reason or author.kind
            number = self.quarantine.put(file, data, source, verdict.findings, author=who)
            raise Guarded(verdict, quarantined=number, agent=self._agent)

    def refuse_secrets(self, data: bytes) -> None:
        """For what the user wants although it gives orders."""
        from sevenfold.memory.guard.guard import RELEASED

        verdict = self.check(data, RELEASED)
        if not verdict.passed:
            raise Guarded(verdict)

    def _known(self, verdict: GuardVerdict, old: bytes, author: Author) -> bool:
        known = {(each.kind, each.what) for each in self.check(old, _source(author)).findings}
        return all((each.kind, each.what) in known for each in verdict.findings)


def _source(author: Author) -> str:
    """A command of the user may carry another's words: only a release counts as the user's own."""
    return "" if author.kind == "user" else author.kind


def make_size_verdict(size: int) -> GuardVerdict:
    from sevenfold.memory.guard.text import GuardFinding, GuardVerdict

    why = f"it has {size:,} bytes, and a memory has at most {HEAD:,}; keep the essence, or split it"
    found = GuardFinding("size", "a memory that is too large", "the whole text", why)
    return GuardVerdict("refuse", (found,), f"refused: {why}")
