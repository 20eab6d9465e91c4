"""Consolidates a memory folder without a model: the dream of the offline engine.

The folder should be a copy: the commit checks again that nothing is lost. A second run changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
    removed: Collection[str] = (),
) -> ConsolidationReport:
    """Tidy up the memories of a folder by rule; what is not sure stays as it is.

    `modified` says when each memory was last changed; files that are only named there exist elsewhere
    and keep their lines in the index. `logs` are the daily logs to distil, with `learn`, which says what
    of a note is worth remembering; without it they are left alone. `removed` are files that are gone
    already and lose their lines in the index.
    """
    files = StagedFiles(folder, modified, removed)
    known = frozenset(file for file in modified if file not in files.times)
    learned = distil_logs(files, logs, learn) if learn is not None else []
    merged: list[MergedMemory] = []
    superseded: list[SupersededStatement] = []
    archived: list[ArchivedMemory] = []
    dated: list[DatedSentence] = []
    index: list[str] = []
    unclear: list[UnclearPair] = []
    for _ in range(_ROUNDS):  # each step makes way for the next
        before = dict(files.now)
        dated += resolve_memory_dates(files)
        replaced, unclear = supersede_statements(files, now)
        superseded += replaced
        merged += merge_duplicates(files, {frozenset((one.file, one.other_file)) for one in unclear})
        archived += archive_finished(files, now)
        index += tidy_index(files, known)
        if files.now == before:
            break
    files.write()
    return ConsolidationReport(
        merged=tuple(merged),
        superseded=tuple(superseded),
        archived=tuple(archived),
        dated=tuple(dated),
        learned=tuple(learned),
        index=tuple(dict.fromkeys(index)),
        unclear=tuple(unclear),
        changed=tuple(files.changed()),
        explained=_explained(files, merged, archived, superseded),
    )


def _explained(
    files: StagedFiles,
    merged: list[MergedMemory],
    archived: list[ArchivedMemory],
    superseded: list[SupersededStatement],
) -> dict[str, LossReason]:
    """For each file and each statement that is gone, what became of it."""
    went = {one.file: one.into for one in merged} | {one.file: one.to for one in archived}
    told = {one.file: LossReason("merged", one.into, _last(one.into, went)) for one in merged}
    told |= {one.file: LossReason("stale", one.file, one.to) for one in archived}
    told |= {one.old: LossReason("superseded", one.by, _last(one.by, went)) for one in superseded}
    return told | _as_the_loss_report_cuts(files, superseded, went)


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
            mine = [one.by for old, one in olds if words and words in old and one.file in places]
            if mine:
                told[each.fact.text] = LossReason("superseded", mine[-1], _last(mine[-1], went))
    return told


def _last(file: str, went: Mapping[str, str]) -> str:
    """The final place of a file, which may have been merged into one that was merged itself."""
    seen: set[str] = set()
    while file in went and file not in seen:
        seen.add(file)
        file = went[file]
    return file
