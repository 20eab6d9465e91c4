"""The check that every text passes on its way into memory: size, secrets, orders to the agent, provenance.

A secret is refused and written nowhere. A text that gives orders, or a rule of an agent that the user did
not say, is put into the quarantine, from where the user may release it; the sentences that pass are saved.
What stood in the file before is not held against the writer: the user wrote it, or has released it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import msgspec

from sevenfold.core.protocols import Clock
from sevenfold.memory.backend import HEAD, StateRecords
from sevenfold.memory.errors import Guarded
from sevenfold.memory.history.revisions import Author

if TYPE_CHECKING:
    from sevenfold.memory.guard.guard import Guard, Quarantine
    from sevenfold.memory.guard.text import GuardFinding, GuardVerdict
    from sevenfold.memory.guard.user_words import SpokenWords
    from sevenfold.memory.guard.wall import WriteSources

Hear = Callable[[], "WriteSources"]
"""Gives what a write may rest on, at the time of the write."""


class PreparedWrite(msgspec.Struct, frozen=True):
    """The bytes to write, and what the writer should know about them."""

    data: bytes
    said: str = ""


class GuardGate:
    """The guard and the quarantine, made when they are first needed."""

    def __init__(
        self,
        texts: StateRecords,
        clock: Clock,
        agent: str = "",
        say: Callable[[str], None] | None = None,
        rules: Callable[[str], SpokenWords] | None = None,
    ) -> None:
        """`agent`: whose memory is behind it, where that is not the project's. `say` tells the user.

        `rules` gives the rules that memory has already and that a file may repeat.
        """
        self._texts, self._clock, self._agent, self._say, self._rules = texts, clock, agent, say, rules
        self._guard: Guard | None = None
        self._quarantine: Quarantine | None = None
        self._hear: Hear | None = None

    def rest_on(self, hear: Hear | None) -> GuardGate:
        """A gate to the same quarantine, for writes that rest on these words and texts."""
        gate = GuardGate(self._texts, self._clock, self._agent, self._say, self._rules)
        gate._guard, gate._quarantine, gate._hear = self._guard, self._quarantine, hear
        return gate

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

    def let_pass(
        self, file: str, data: bytes, old: bytes, author: Author, *, whole: bool = False
    ) -> PreparedWrite:
        """The bytes to write, attributed to their source; `Guarded` when none of it may become the file,
        or not all of it where the `whole` is asked for."""
        self.screen(file, data, old, author)
        if author.kind not in ("agent", "extraction"):  # a dream is judged by what was in the folder
            return PreparedWrite(data)
        return self.pass_wall(file, data, old, author, whole=whole)

    def screen(self, file: str, data: bytes, old: bytes, author: Author) -> None:
        """Raises `Guarded` for a secret, for a text that is too large, and for orders, which are held."""
        verdict = self.check(data, _source(author))
        if verdict.action == "refuse":
            raise Guarded(verdict)
        if verdict.action == "quarantine" and not self._known(verdict, old, author):
            self.hold(file, data, author, verdict)

    def pass_wall(
        self, file: str, data: bytes, old: bytes, author: Author, *, whole: bool = False
    ) -> PreparedWrite:
        """What the user's words and the sources of this write allow; the rest is held."""
        from sevenfold.memory.guard.wall import NO_SOURCES, add_attribution, judge_write, make_held_verdict

        sources = self._hear() if self._hear is not None else NO_SOURCES
        known = partial(self._rules, file) if self._rules is not None else None
        judged = judge_write(file, data, old, sources, known)
        if not judged.findings:
            return PreparedWrite(add_attribution(data, file, judged.source))
        # An extraction saves one statement a file
        alone = judged.part if author.kind == "agent" and not whole else b""
        part = add_attribution(alone, file, judged.source) if alone else b""
        verdict = make_held_verdict(judged.findings, in_part=bool(part))
        if not part:
            self.hold(file, data, author, verdict)
        return PreparedWrite(part, str(self._keep_back(file, data, author, verdict, part)))

    def hold(self, file: str, data: bytes, author: Author, verdict: GuardVerdict) -> NoReturn:
        """Put a text into the quarantine, tell the user, and raise `Guarded`."""
        raise self._keep_back(file, data, author, verdict)

    def _keep_back(
        self, file: str, data: bytes, author: Author, verdict: GuardVerdict, part: bytes = b""
    ) -> Guarded:
        """`part`: what is saved of the text."""
        who = " ".join(one for one in (author.kind, author.session) if one)
        source = author.reason or author.kind
        number = self.quarantine.put(file, data, source, verdict.findings, author=who, part=part)
        held = Guarded(verdict, quarantined=number, agent=self._agent)
        if self._say is not None:
            chat = "" if self._agent else f"'/quarantine release {number}' in a chat or "
            release = f"{chat}'{held.release_command}'"
            self._say(_describe_held(file, verdict.findings, release, in_part=bool(part)))
        return held

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


def _describe_held(file: str, findings: Sequence[GuardFinding], release: str, *, in_part: bool) -> str:
    """The notice for the user; it does not repeat the text."""
    what = " and ".join(dict.fromkeys(one.what for one in findings))
    if in_part:
        return f"{file} was saved without a part, which waits for your word: it {what}. {release} saves all"
    return f"{file} was not saved, it waits for your word: it {what}. {release} saves it"


def make_size_verdict(size: int) -> GuardVerdict:
    from sevenfold.memory.guard.text import GuardFinding, GuardVerdict

    why = f"it has {size:,} bytes, and a memory has at most {HEAD:,}; keep the essence, or split it"
    found = GuardFinding("size", "a memory that is too large", "the whole text", why)
    return GuardVerdict("refuse", (found,), f"refused: {why}")
