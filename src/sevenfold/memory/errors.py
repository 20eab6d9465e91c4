"""The ways in which memory says no: each one sentence for people, with what it found and the fix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sevenfold.core.errors import Mistake, Refused

if TYPE_CHECKING:
    from sevenfold.memory.guard.text import GuardFinding, GuardVerdict


class Guarded(Refused, kind="guarded"):
    """The guard held a text back. Neither the message nor the findings hold what it found."""

    def __init__(self, verdict: GuardVerdict, *, quarantined: int | None = None, agent: str = "") -> None:
        """`agent`: whose memory it was meant for, where that is not the project's."""
        self.findings: tuple[GuardFinding, ...] = verdict.findings
        self.explanation = verdict.explanation
        self.quarantined = quarantined  # Its number in the quarantine, when it was put there
        self.release_command = ""  # The command with which the user makes it a memory
        text = self.explanation
        if quarantined is not None:
            from sevenfold.memory.guard.text import format_quarantine_hint

            show = format_quarantine_hint(f"show {quarantined}", agent)
            self.release_command = format_quarantine_hint(f"release {quarantined}", agent)
            text += f". It is number {quarantined} in quarantine: '{show}' shows it, "
            text += f"'{self.release_command}' makes it a memory"
        super().__init__(text)


class NoSuchMemory(Mistake, kind="no_such_memory"):
    """There is no memory of that name; what comes close is named."""

    def __init__(self, asked: str, close: Sequence[str] = ()) -> None:
        self.asked, self.close = asked, tuple(close)
        hint = "see 'sevenfold memory list'"
        if close:
            hint = "did you mean " + " or ".join(repr(name) for name in close) + "?"
        super().__init__(f"there is no memory {asked!r}: {hint}")


class Ambiguous(Mistake, kind="ambiguous"):
    """Several memories fit."""

    def __init__(self, asked: str, files: Sequence[str]) -> None:
        self.asked, self.files = asked, tuple(files)
        shown = ", ".join(files[:5]) + (" and more" if len(files) > 5 else "")
        super().__init__(f"{asked!r} fits several memories ({shown}): give the file of one of them")
