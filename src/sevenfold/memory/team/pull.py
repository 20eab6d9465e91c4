"""Merges the changes of the team into the folder: a decision for each file, then one write.

here      there       what happens
same      same        nothing
as last   changed     theirs is taken, also when it is a removal
changed   as last     nothing here; it is sent later
removed   changed     theirs is taken
changed   removed     ours stays, and is sent later
changed   changed     joined by lines; where they clash theirs keeps the name, ours becomes a copy
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from sevenfold.core.errors import Refused, StorageFailure
from sevenfold.memory.folder.changes import apply_changes
from sevenfold.memory.folder.folder import A_SECRET, FolderTransaction
from sevenfold.memory.folder.names import INDEX_NAME, TEAM
from sevenfold.memory.merge import merge_texts
from sevenfold.memory.team.files import BY_TEAM, IncomingFiles, TeamScreen, TextJudgement, merge_indexes
from sevenfold.memory.team.git import RefusedFile
from sevenfold.memory.team.repository import BlobTexts, WriteTime, find_memory_time
from sevenfold.memory.team.state import (
    FileNameSet,
    LocalFiles,
    PlannedMerge,
    RejectedVersion,
    TeamState,
    choose_copy_name,
    hash_blob,
    read_local_files,
)
from sevenfold.memory.topic_file import read_topic

_MANY: Final = 3  # If the remote lost this many files and more than half of all, they are kept here


@dataclass(slots=True)
class PullPlan:
    """The changes to write, and the state afterwards."""

    agreed: dict[str, str]
    left: dict[str, RejectedVersion]
    copies: dict[str, bytes] = field(default_factory=dict)
    covers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """For each copy the files that may only be changed if the copy is made."""
    removals: set[str] = field(default_factory=set)
    writes: dict[str, bytes] = field(default_factory=dict)
    aside: dict[str, bytes] = field(default_factory=dict)
    """Released secrets: written to the folder, but not to the history."""
    planned: dict[str, PlannedMerge] = field(default_factory=dict)
    refused: list[RefusedFile] = field(default_factory=list)

    @property
    def changes(self) -> dict[str, bytes | None]:
        """All changes in order: a copy before its original is replaced, removals before writes."""
        gone: dict[str, bytes | None] = dict.fromkeys(sorted(self.removals - self.writes.keys()))
        found = {**self.copies, **gone, **self.writes}
        return {f"{TEAM}{file}": data for file, data in found.items()}

    @property
    def pulled(self) -> tuple[str, ...]:
        return tuple(sorted({*self.writes, *self.aside} - {INDEX_NAME}))

    @property
    def removed(self) -> tuple[str, ...]:
        """Files that the team removed, without those that became copies."""
        moved = {file for files in self.covers.values() for file in files}
        return tuple(sorted(self.removals - self.writes.keys() - moved))


class PullMerge:
    """One merge of the remote into the folder, under the store's lock. It may be repeated."""

    def __init__(
        self,
        desk: FolderTransaction,
        state: TeamState,
        incoming: IncomingFiles,
        texts: BlobTexts,
        screen: TeamScreen,
        rewound: bool = False,
    ) -> None:
        """`rewound`: the remote lost commits, so the files here are kept."""
        self._desk, self._state, self._incoming = desk, state, incoming
        self._texts, self._screen, self._rewound = texts, screen, rewound
        self._known: FileNameSet | None = None
        self.ours: LocalFiles = read_local_files(desk)
        self.lost = len(state.agreed) > 1 and not self.ours.files and not self.ours.held
        """The whole folder is gone: that is an accident, so its files are restored."""
        if self.lost:
            texts.want(incoming.files.values())
        agreed = {} if self.lost else dict(state.agreed)
        self.taken = PullPlan(agreed, {} if self.lost else dict(state.left))
        for file, plan in state.planned.items():
            if self.ours.ids.get(file) == plan.merged:  # written by a run that died
                agreed[file] = plan.theirs
        self._before = dict(agreed)
        self.kept: set[str] = set()  # Files that the remote lost and that are kept here
        self._keeps = rewound or _vanished(agreed, incoming)

    def decide(self) -> PullPlan:
        """Decide about every file."""
        every = {*self.ours.files, *self._incoming.files, *self.taken.agreed} - {INDEX_NAME}
        gone = [file for file in every if file not in self._incoming.files]
        for file in (*sorted(gone), *sorted(every - {*gone})):
            self._decide(file)
        self._decide_index()
        # All texts are checked a last time, so that no secret gets into a history.
        for file, data in [*self.taken.copies.items(), *self.taken.writes.items()]:
            if why := self._screen.explain_secret(data):
                for one in (file, *self.taken.covers.get(file, ())):
                    self._keep_ours(one, why)
        for file in [file for file in self.taken.left if file not in self._incoming.files]:
            del self.taken.left[file]
        return self.taken

    def _decide(self, file: str) -> None:
        taken, ours, theirs = self.taken, self.ours, self._incoming.files.get(file)
        mine, last = ours.ids.get(file), taken.agreed.get(file)
        if why := ours.explain_block(file):
            taken.refused.append(RefusedFile(file, why, "here"))
        elif self._incoming.unknown(file):
            return
        elif mine == theirs:
            taken.left.pop(file, None)
            if theirs is None:
                taken.agreed.pop(file, None)
            else:
                taken.agreed[file] = theirs
        elif file in taken.left and taken.left[file].id == theirs:
            taken.refused.append(RefusedFile(file, taken.left[file].why, "remote"))
        elif theirs == last:
            return  # only we changed it
        elif theirs is None:
            del taken.agreed[file]
            if mine is not None and self._keeps:
                self.kept.add(file)
            elif mine == last:
                taken.removals.add(file)
        else:
            self._changed_there(file, theirs, mine, last)

    def _changed_there(self, file: str, theirs: str, mine: str | None, last: str | None) -> None:
        taken, data = self.taken, self._texts.get(theirs)
        if data is None:
            taken.refused.append(RefusedFile(file, "its text could not be read", "remote"))
            return
        if file in self.ours.secret and mine != last:
            why = "it looks like a secret, and the team changed it: take the secret out first"
            taken.refused.append(RefusedFile(file, why, "here"))
            return
        judged = self._judged(file, theirs, data)
        if judged.why or not self._has_place(file, mine):
            return
        taken.left.pop(file, None)
        taken.agreed[file] = theirs
        if mine is not None and self._rewound and not judged.secret:
            self._copy(file, data)
            self.kept.add(file)
        elif mine in (last, None):
            self._write(file, data, judged)
        else:
            self._both_changed(file, theirs, data, judged, last)

    def _judged(self, file: str, theirs: str, data: bytes) -> TextJudgement:
        old = self.ours.files.get(file, b"")
        judged = self._screen.judge_incoming(file, data, old, self._desk.gate)
        if judged.why:
            self.taken.refused.append(RefusedFile(file, judged.why, "remote"))
            if judged.settled:
                self.taken.left[file] = RejectedVersion(theirs, judged.why)
        return judged

    def _has_place(self, file: str, mine: str | None) -> bool:
        """True if the file can be written; one of ours whose name clashes becomes a copy."""
        if mine is not None:
            return True
        if other := self._names.clash(file):
            data = self.ours.files.get(other)
            if data is None or other in self.ours.secret:
                self._in_the_way(file, other)
                return False
            self._copy(other, data, other, file)
            self.taken.removals.add(other)
            self._known = None
            return True
        try:
            free = self._desk.at.stamp(f"{TEAM}{file}") is None
        except (StorageFailure, Refused):
            free = False
        if not free:
            self._in_the_way(file, file)
        return free

    def _in_the_way(self, file: str, other: str) -> None:
        why = f"{other!r} is in its way here; rename that"
        self.taken.refused.append(RefusedFile(file, why, "remote"))

    @property
    def _names(self) -> FileNameSet:
        """The names in the folder after the merge; made when the removals are known."""
        if self._known is None:
            self._known = FileNameSet()
            for one in ({*self.ours.files} - self.taken.removals) | {*self.taken.writes}:
                self._known.add(one)
        return self._known

    def _both_changed(
        self, file: str, theirs: str, data: bytes, judged: TextJudgement, last: str | None
    ) -> None:
        mine = self.ours.files[file]
        both = None if judged.secret else merge_texts(self._texts.get(last or ""), mine, data)
        if both is not None and not self._screen.explain_bad_merge(both, mine, data):
            self.taken.planned[file] = PlannedMerge(hash_blob(both), theirs)
            self._write(file, both, judged)
            return
        self._copy(file, mine, file)
        self._write(file, data, judged)

    def _copy(self, file: str, data: bytes, *covers: str) -> None:
        id = hash_blob(data)

        def usable(name: str) -> bool:
            known = {self.ours.ids.get(name), self._incoming.files.get(name)} - {None}
            return known <= {id} and not self.ours.explain_block(name)

        name = choose_copy_name(file, data, usable)
        if name not in self.ours.files:
            self.taken.copies[name] = data
            self.taken.covers[name] = covers

    def _write(self, file: str, data: bytes, judged: TextJudgement) -> None:
        if data != self.ours.files.get(file):
            (self.taken.aside if judged.secret else self.taken.writes)[file] = data
            self._names.add(file)

    def _decide_index(self) -> None:
        taken, theirs = self.taken, self._incoming.files.get(INDEX_NAME)
        mine, last = self.ours.ids.get(INDEX_NAME), taken.agreed.get(INDEX_NAME)
        if theirs is None or theirs in (mine, last) or self._incoming.unknown(INDEX_NAME):
            if theirs is None:
                taken.agreed.pop(INDEX_NAME, None)
            elif theirs == mine:
                taken.agreed[INDEX_NAME] = theirs
            return
        if (data := self._their_index(theirs)) is None:
            return
        known = None if self._keeps else self._texts.get(last or "")
        before = (known or b"").decode("utf-8", "replace")
        text = merge_indexes(before, self.ours.index, data.decode("utf-8"), dict(self._after()))
        both, own = text.encode("utf-8", "surrogateescape"), self.ours.files.get(INDEX_NAME, b"")
        if why := self._screen.explain_bad_merge(both, own, data):
            taken.refused.append(RefusedFile(INDEX_NAME, why, "remote"))
            return
        taken.left.pop(INDEX_NAME, None)
        taken.agreed[INDEX_NAME] = theirs
        if both != self.ours.files.get(INDEX_NAME):
            taken.writes[INDEX_NAME] = both

    def _their_index(self, theirs: str) -> bytes | None:
        """The index of the remote if it may be merged; otherwise the refusal is recorded."""
        taken, data = self.taken, self._texts.get(theirs)
        left = taken.left.get(INDEX_NAME)
        if left is not None and left.id == theirs:
            taken.refused.append(RefusedFile(INDEX_NAME, left.why, "remote"))
        elif why := self.ours.explain_block(INDEX_NAME):
            taken.refused.append(RefusedFile(INDEX_NAME, why, "here"))
        elif data is None:
            taken.refused.append(RefusedFile(INDEX_NAME, "its text could not be read", "remote"))
        elif INDEX_NAME in self.ours.secret:
            why = "it looks like a secret, and the team changed it: take the secret out first"
            taken.refused.append(RefusedFile(INDEX_NAME, why, "here"))
        else:
            judged = self._judged(INDEX_NAME, theirs, data)
            if judged.secret:
                taken.refused.append(RefusedFile(INDEX_NAME, "it looks like a secret", "remote"))
            elif not judged.why:
                return data
        return None

    def _keep_ours(self, file: str, why: str) -> None:
        """Undo the decision about a file."""
        taken = self.taken
        taken.writes.pop(file, None)
        taken.planned.pop(file, None)
        taken.removals.discard(file)
        if taken.copies.pop(file, None) is not None:
            return
        for copy in [copy for copy, files in taken.covers.items() if file in files]:
            taken.copies.pop(copy, None)
        taken.agreed.pop(file, None)
        taken.agreed |= {file: self._before[file]} if file in self._before else {}
        taken.refused.append(RefusedFile(file, why, "here"))

    def _after(self) -> Iterator[tuple[str, str]]:
        """The memories in the folder after the merge, with their names."""
        new = {**self.taken.copies, **self.taken.writes, **self.taken.aside}
        gone = self.taken.removals - new.keys()
        for file in sorted({*self.ours.files, *self.ours.held, *new} - gone - {INDEX_NAME}):
            data = new.get(file)
            yield (file, self.ours.names.get(file, "") if data is None else read_topic(data, file).name)

    def write(self, times: Mapping[str, WriteTime]) -> None:
        """Write the plan. `times` are the team's write times; merged files are new."""
        taken = self.taken
        for file, data in taken.aside.items():
            self._desk.write(f"{TEAM}{file}", data, held=A_SECRET)
        if taken.changes:
            old = {
                f"{TEAM}{file}": min(find_memory_time(data, times[file]), self._desk.now)
                for file, data in taken.writes.items()
                if file in times and hash_blob(data) == self._incoming.files.get(file)
            }
            old |= {
                f"{TEAM}{copy}": self.ours.times[files[0]]
                for copy, files in taken.covers.items()
                if files and files[0] in self.ours.times
            }
            apply_changes(self._desk, taken.changes, BY_TEAM, _told(taken), times=old)
        else:
            self._desk.settle()


def _vanished(agreed: Mapping[str, str], incoming: IncomingFiles) -> bool:
    """True if the remote lost so many files at once that it must be an accident."""
    there = {*incoming.files.values()}  # what was only renamed is not gone
    topics = {file: id for file, id in agreed.items() if file != INDEX_NAME}
    gone = [file for file, id in topics.items() if file not in incoming.files and id not in there]
    lost = [file for file in gone if not incoming.unknown(file)]
    return len(lost) >= _MANY and 2 * len(lost) > len(topics)


def _told(taken: PullPlan) -> str:
    files = (*taken.pulled, *taken.removed) or (INDEX_NAME,)
    more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
    return f"took in what the team changed: {files[0]}{more}"
