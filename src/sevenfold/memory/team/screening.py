"""What may leave this machine, and what may come in: secrets, orders to the agent, what is about a person.

A secret is stopped on both ways, before it becomes an object of any repository. The only way round is
that the user releases that very text.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from sevenfold.errors import Refused
from sevenfold.memory.folder.files import HEAD
from sevenfold.memory.folder.gating import Gate
from sevenfold.memory.guard.found import Found, Verdict
from sevenfold.memory.guard.guard import Guard
from sevenfold.memory.guard.instructions import find_instructions
from sevenfold.memory.guard.secrets import find_secrets
from sevenfold.memory.parts import TEAM, is_personal
from sevenfold.memory.refusing import Guarded
from sevenfold.memory.revisions import Author
from sevenfold.memory.team.state import release_of
from sevenfold.memory.topic import read_topic

BY_TEAM: Final = Author("team")
SHARE: Final = 50
"""Texts of the team's that are kept in quarantine at most: it is the user's own, and has an end."""
_PERSONAL = "it is of type 'user': what is about a person is never shared; give it another type"


class Judged(msgspec.Struct, frozen=True):
    """What became of a text that came in; without a reason it may be taken."""

    why: str = ""
    settled: bool = True
    """Whether that is the last word about this text; otherwise it is looked at again the next time."""
    secret: bool = False
    """It looks like a secret and the user released it: it goes into the folder, not into its history."""


class Screen:
    """Looks through texts and names, each text once. `released` are digests of what the user lets pass."""

    def __init__(self, released: Collection[str]) -> None:
        self._released, self._guard = released, Guard(largest=HEAD)
        self._verdicts: dict[str, Verdict] = {}
        self._quarantined: int | None = None

    def is_released(self, data: bytes) -> bool:
        return release_of(data) in self._released

    def verdict(self, data: bytes) -> Verdict:
        """What the guard says. Asked for beforehand, nobody waits for it while the folder is locked."""
        digest = release_of(data)
        if digest not in self._verdicts:
            self._verdicts[digest] = self._guard.check(data, source="team")
        return self._verdicts[digest]

    def leaving(self, file: str, data: bytes) -> str:
        """Why this file may not be sent; empty when it may."""
        if why := _no_text(data) or self.secret(data):
            return why
        if find_secrets(file) and not self.is_released(file.encode("utf-8", "surrogateescape")):
            return "its name looks like a secret; rename it"
        return _PERSONAL if _about_a_person(file, data) else ""

    def secret(self, data: bytes) -> str:
        """Why a text may be in no repository; empty when it may."""
        verdict = self.verdict(data)
        if verdict.action != "refuse" or self.is_released(data):
            return ""
        return _told(verdict.findings)

    def joint(self, both: bytes, *parts: bytes) -> str:
        """Why two texts may not become this one: something is in it that is in neither; or empty."""
        known = {(each.kind, each.what) for part in parts for each in self.verdict(part).findings}
        new = [one for one in self.verdict(both).findings if (one.kind, one.what) not in known]
        if not new or self.is_released(both):
            return self.secret(both)
        what = "look like a secret" if new[0].kind == "secret" else "would give the agent orders"
        if new[0].kind == "size":
            what = "are too large"
        return f"your text and the team's, put together, {what} ({new[0].what}); change yours"

    def arriving(self, file: str, data: bytes, old: bytes, gate: Gate) -> Judged:
        """What becomes of a text from the remote; `old` is what the file says here."""
        if why := _no_text(data) or self.secret(data):
            return Judged(why)
        if _about_a_person(file, data):
            return Judged("it is of type 'user': what is about a person is never shared")
        if self.verdict(data).action == "refuse":  # and released
            if find_instructions(data.decode("utf-8"), "team"):
                return Judged("it looks like a secret and gives the agent orders")
            return Judged(secret=True)
        if self.verdict(data).passed:
            return Judged()
        if self._held(gate) >= SHARE and self.verdict(old).passed:
            why = f"it tries to give the agent orders, and {SHARE} texts of the team's are in quarantine"
            return Judged(f"{why}: look through 'sevenfold memory quarantine'", settled=False)
        try:
            gate.let_pass(f"{TEAM}{file}", data, old, BY_TEAM)
        except Guarded as error:
            number = error.quarantined
            if number is None:
                return Judged(error.explanation)
            self._quarantined = self._held(gate) + 1
            return Judged(f"it tries to give the agent orders: number {number} in quarantine")
        except Refused as error:  # the quarantine is full
            return Judged(str(error), settled=False)
        return Judged()

    def _held(self, gate: Gate) -> int:
        """How much of the quarantine is the team's already."""
        if self._quarantined is None:
            found = gate.quarantine.list()
            self._quarantined = sum(1 for one in found if one.source == BY_TEAM.kind)
        return self._quarantined


def _no_text(data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return "it is not text in UTF-8"
    return "it holds NUL characters" if "\0" in text else ""


def _about_a_person(file: str, data: bytes) -> bool:
    return is_personal(read_topic(data, f"{TEAM}{file}"))


def _told(findings: tuple[Found, ...]) -> str:
    if not findings:
        return "it looks like a secret"
    first = findings[0]
    if first.kind != "secret":
        return first.why
    return (
        f"it looks like a secret ({first.what}, {first.where}): take it out, or let exactly this text "
        "pass with 'sevenfold team release'"
    )
