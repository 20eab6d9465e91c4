"""Plans a push: the files that changed here, screened for secrets before they become git objects.

A file that may not be sent is reported with the reason and stays as it is on both sides. Files of the
remote that we did not take are never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sevenfold.memory.folder.names import INDEX_NAME
from sevenfold.memory.guard.secrets import find_secrets
from sevenfold.memory.team.files import MOST, TOTAL, IncomingFiles, TeamScreen, make_shared_index
from sevenfold.memory.team.git import RefusedFile
from sevenfold.memory.team.repository import LINE
from sevenfold.memory.team.state import (
    FileNameSet,
    LocalFiles,
    TeamState,
    explain_bad_name,
    explain_suspicious_name,
    hash_blob,
)

_NAMED: Final = 50


@dataclass(slots=True)
class PushPlan:
    """The changes to send; None removes a file."""

    changes: dict[str, bytes | None] = field(default_factory=dict)
    refused: list[RefusedFile] = field(default_factory=list)

    @property
    def files(self) -> tuple[str, ...]:
        sent = {file for file, data in self.changes.items() if data is not None}
        return tuple(sorted(sent - {INDEX_NAME}))

    @property
    def gone(self) -> tuple[str, ...]:
        return tuple(sorted(file for file, data in self.changes.items() if data is None))


class PushPlanner:
    """Compares the folder with the remote after a pull: every difference is our change."""

    def __init__(
        self,
        state: TeamState,
        incoming: IncomingFiles,
        ours: LocalFiles,
        screen: TeamScreen,
        most: int = MOST,
        go_on: Callable[[], None] = lambda: None,
    ) -> None:
        """`most` is the limit of files; `go_on` may raise."""
        self._state, self._incoming, self._ours, self._screen = state, incoming, ours, screen
        self._most, self._go_on = most, go_on
        self._sizes = dict(incoming.sizes)
        self._total = sum(self._sizes.values())
        self._names = FileNameSet()
        for file in (*incoming.files, *incoming.untaken):
            if file in ours.files or file not in state.agreed:  # the others are removed by this push
                self._names.add(file)

    def offer(self, theirs: str) -> PushPlan:
        """All changes; `theirs` is the text of the remote's index."""
        offer = PushPlan()
        files = {*self._ours.files, *self._state.agreed} - {INDEX_NAME}
        # Removals first, because they make room; then known files, then new ones.
        for file in sorted(files, key=lambda one: (one in self._ours.files, self._is_new(one), one)):
            self._go_on()
            self._look_at(file, offer)
        offer.refused += [RefusedFile(file, why, "here") for file, why in self._ours.held.items()]
        self._look_at_index(offer, theirs)
        return offer

    def _look_at(self, file: str, offer: PushPlan) -> None:
        mine, theirs = self._ours.ids.get(file), self._incoming.files.get(file)
        if self._ours.explain_block(file) or mine == theirs:
            return
        if self._incoming.unknown(file) or theirs != self._state.agreed.get(file):
            if mine is not None and mine != self._state.agreed.get(file):
                why = "the team has something of this name that was not taken; rename yours"
                if self._incoming.cut and file not in self._incoming.untaken:
                    why = f"nobody knows what the team has there: {self._incoming.cut}"
                offer.refused.append(RefusedFile(file, why, "here"))
            return
        if mine is None:
            offer.changes[file] = None
            self._total -= self._sizes.pop(file, 0)
            return
        if why := self._wrong(file):
            offer.refused.append(RefusedFile(file, why, "here"))
            return
        offer.changes[file] = data = self._ours.files[file]
        self._total += len(data) - self._sizes.get(file, 0)
        self._sizes[file] = len(data)
        self._names.add(file)

    def _is_new(self, file: str) -> bool:
        return file not in self._incoming.files and file not in self._state.agreed

    def _wrong(self, file: str) -> str:
        if why := explain_bad_name(file):
            return f"{why}; rename it"
        if other := self._names.clash(file):
            return f"some systems take its name for that of {other!r}; rename it"
        if self._is_new(file) and (why := explain_suspicious_name(file)) and not find_secrets(file):
            return f"{why}; rename it"
        return self._no_room(file) or self._screen.explain_unsent(file, self._ours.files[file])

    def _no_room(self, file: str) -> str:
        """The reason if a limit of the team is reached; other members would not take the file."""
        if self._is_new(file) and len(self._sizes) >= self._most:
            return f"the team has {self._most:,} files, and no more are shared; remove some"
        more = len(self._ours.files[file]) - self._sizes.get(file, 0)
        if more > 0 and self._total + more > TOTAL:
            return f"the team's memory would have more than {TOTAL:,} bytes; remove some"
        return ""

    def _look_at_index(self, offer: PushPlan, theirs: str) -> None:
        """Plan the index: the remote's lists the files there, ours those here."""
        there = self._incoming.files.get(INDEX_NAME)
        waits = self._incoming.unknown(INDEX_NAME) or there != self._state.agreed.get(INDEX_NAME)
        if waits or INDEX_NAME not in self._ours.files or self._ours.explain_block(INDEX_NAME):
            return
        after = {*self._incoming.files, *self._incoming.untaken, *offer.changes} - {*offer.gone}
        here, shared = (
            {file: self._ours.names.get(file, "") for file in sorted(every - {INDEX_NAME})}
            for every in ({*self._ours.files, *self._ours.held}, after)
        )
        new = make_shared_index(self._ours.index, theirs, here, shared)
        data = new.encode("utf-8", "surrogateescape")
        if hash_blob(data) == there or (not new.strip() and there is None):
            return
        if why := self._screen.explain_unsent(INDEX_NAME, data):
            offer.refused.append(RefusedFile(INDEX_NAME, why, "here"))
        else:
            offer.changes[INDEX_NAME] = data


def format_commit_message(
    changes: Mapping[str, bytes | None], known: Mapping[str, str], old: Mapping[str, float]
) -> str:
    """The message: a sentence, the files, and the write times of files older than the commit."""
    added = [file for file, data in changes.items() if data is not None and file not in known]
    gone = [file for file, data in changes.items() if data is None]
    changed = [file for file in changes if file not in added and file not in gone]
    done = {"added": sorted(added), "changed": sorted(changed), "removed": sorted(gone)}
    topics = [file for file in changes if file != INDEX_NAME] or [INDEX_NAME]
    first = next(what for what, files in done.items() if topics[0] in files)
    more = f" and {len(topics) - 1:,} more" if len(topics) > 1 else ""
    lines = [f"{first} {topics[0]}{more}", ""]
    for what, files in done.items():
        lines += [f"{what} {file}" for file in files[:_NAMED]]
        lines += [f"{what} {len(files) - _NAMED:,} more"] if len(files) > _NAMED else []
    aged = [f"{LINE} {int(old[file])} {file}" for file in sorted(old) if changes.get(file)]
    lines += ["", *aged] if aged else []
    return "\n".join(lines)
