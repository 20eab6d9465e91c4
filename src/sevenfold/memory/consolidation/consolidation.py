"""Consolidation of a memory folder without a model: what the offline engine does in a dream.

    report = consolidate(staged.folder, clock.now(), store.modified())
    commit_dream(store, staged, Author("dream", session), report.explained)

It works on the plain files of a folder, which should be a copy: the commit checks again that nothing is
lost. Done twice, the second time changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sevenfold.memory.backend import is_topic
from sevenfold.memory.consolidation.dates import resolve_memory_dates
from sevenfold.memory.consolidation.duplicates import merge_duplicates
from sevenfold.memory.consolidation.housekeeping import Learn, archive_finished, distil_logs, tidy_index
from sevenfold.memory.consolidation.staged_memories import (
    ArchivedMemory,
    ConsolidationReport,
    DatedSentence,
    MergedMemory,
    StagedFiles,
    SupersededStatement,
    UnclearPair,
)
from sevenfold.memory.consolidation.supersession import supersede_statements
from sevenfold.memory.dreams.losses import LossReason
from sevenfold.memory.dreams.statements import normalise_words, read_facts

_ROUNDS: Final = 6


def consolidate_folder(
    folder: Path,
    now: float,
    modified: Mapping[str, float],
    *,
    logs: Collection[str] = (),
    learn: Learn | None = None,
) -> ConsolidationReport:
    """Tidy up the memories of a folder by rule; what is not sure stays as it is.

    `modified` says when each memory was last changed; files that are only named there exist elsewhere
    and keep their lines in the index. `logs` are the daily logs to distil, with `learn`, which says what
    of a note is worth remembering; without it they are left alone.
    """
    files = StagedFiles(folder, modified)
    known = frozenset(file for file in modified if file not in files.times)
    learned = distil_logs(files, logs, learn) if learn is not None else []
    done = _ConsolidationLog()
    for _ in range(_ROUNDS):
        before = dict(files.now)
        done.round(files, now, known)
        if files.now == before:
            break
    files.write()
    return ConsolidationReport(
        merged=tuple(done.merged),
        superseded=tuple(done.superseded),
        archived=tuple(done.archived),
        dated=tuple(done.dated),
        learned=tuple(learned),
        index=tuple(dict.fromkeys(done.index)),
        unclear=tuple(done.unclear),
        changed=tuple(files.changed()),
        explained=_explained(files, done),
    )


@dataclass(slots=True)
class _ConsolidationLog:
    """The steps done so far."""

    merged: list[MergedMemory] = field(default_factory=list)
    superseded: list[SupersededStatement] = field(default_factory=list)
    archived: list[ArchivedMemory] = field(default_factory=list)
    dated: list[DatedSentence] = field(default_factory=list)
    index: list[str] = field(default_factory=list)
    unclear: list[UnclearPair] = field(default_factory=list)

    def round(self, files: StagedFiles, now: float, known: frozenset[str]) -> None:
        """Everything once, in the order in which one thing makes way for the next."""
        self.dated += resolve_memory_dates(files)
        replaced, self.unclear = supersede_statements(files, now)
        self.superseded += replaced
        self.merged += merge_duplicates(files)
        self.archived += archive_finished(files, now)
        self.index += tidy_index(files, known)


def _explained(files: StagedFiles, done: _ConsolidationLog) -> dict[str, LossReason]:
    """For each file and each statement that is gone, what became of it."""
    went = {one.file: one.into for one in done.merged}
    went |= {one.file: one.to for one in done.archived}
    told = {one.file: LossReason("merged", one.into, _last(one.into, went)) for one in done.merged}
    told |= {one.file: LossReason("stale", one.file, one.to) for one in done.archived}
    for one in done.superseded:
        told[one.old] = LossReason("superseded", one.by, _last(one.by, went))
    return told | _as_the_loss_report_cuts(files, done.superseded, went)


def _as_the_loss_report_cuts(
    files: StagedFiles, superseded: list[SupersededStatement], went: Mapping[str, str]
) -> dict[str, LossReason]:
    """The same by the words of the statements as the loss report finds them in the files."""
    told: dict[str, LossReason] = {}
    olds = [(normalise_words(one.old), one) for one in superseded]
    for file in files.changed() if olds else ():
        if file not in files.before or not is_topic(file):
            continue
        for each in read_facts(files.before[file], file):
            words = normalise_words(each.fact.text)
            places = {file, _last(file, went)}
            mine = [one for old, one in olds if words and words in old and one.file in places]
            found = mine[-1] if mine else None
            if found is not None:
                told[each.fact.text] = LossReason("superseded", found.by, _last(found.by, went))
    return told


def _last(file: str, went: Mapping[str, str]) -> str:
    """The final place of a file, which may have been merged into one that was merged itself."""
    seen: set[str] = set()
    while file in went and file not in seen:
        seen.add(file)
        file = went[file]
    return file
