"""Real folders that are dreamt about through the store and taken back: every byte has to be as it was.

Each folder is one as it is in the data, or all folders of one repository together. It is opened for the
first time by the dream, so that nothing was tidied before.
"""

from __future__ import annotations

import hashlib
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from benchmarks.dreaming.folders import topics
from benchmarks.dreaming.measuring import plain
from benchmarks.dreaming.real import NOW, Real, plant, real_folders, sentences_in, written
from benchmarks.report import Table
from sevenfold.memory.consolidation.consolidation import consolidate_folder
from sevenfold.memory.dreams.commit import commit_dream, undo_dream
from sevenfold.memory.dreams.losses import LossReason
from sevenfold.memory.dreams.stage import stage_folder
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.index import read_index
from sevenfold.memory.store import MemoryStore
from sevenfold.testing import FakeClock

Explained: TypeAlias = dict[str, LossReason]
Dreamer: TypeAlias = Callable[[Path, dict[str, float], int], Explained]
DREAM: Final = Author("dream", "benchmark")
NOTES: Final = (
    "half of the repositories, by a digest of their names, were looked at while undo was written; the "
    "figures of the others were taken once, at the end",
    "by rule: the dream without a model. With copies: the same, with copies and lookalikes planted. "
    "Careless: files removed, cut and renamed, the index emptied, without an account of any of it",
    "as before: every file and the index byte for byte the same after undo. Again: the same after redo "
    "and a second undo, and redo gave what the dream had made",
    "lost: sentences of memories and hooks of the index of which no file has four fifths of the words "
    "after the dream",
)
_ENOUGH: Final = 0.8


class Undone(msgspec.Struct):
    """The counts of some folders."""

    folders: int = 0
    changed: int = 0
    as_before: int = 0
    again: int = 0
    words: int = 0
    lost: int = 0
    examples: list[str] = []


def measure_undo() -> Table:
    """The table for `run`; it has no rows where the data is not there."""
    table = Table(
        "Real folders, dreamt about and taken back",
        *("repositories", "dream", "folders", "changed by it", "as before", "again", "sentences", "lost"),
    )
    dreamers: dict[str, Dreamer] = {"by rule": by_rule, "with copies": by_rule, "careless": careless}
    for unseen, name in ((False, "looked at"), (True, "not looked at")):
        for kind, dreamer in dreamers.items():
            found = _measured(dreamer, unseen, copies=kind == "with copies")
            if found.folders:
                table.add(
                    *(name, kind, found.folders, found.changed, found.as_before, found.again),
                    *(found.words, found.lost),
                )
                table.notes += found.examples[:3]
    skipped = ["skipped: the shared memory files are not beside this checkout"]
    table.notes += NOTES if table.rows else skipped
    return table


def is_unseen(repository: str) -> bool:
    """True for a repository of the half that was not looked at."""
    return hashlib.sha256(repository.encode()).digest()[0] % 2 == 1


def folders_of(unseen: bool) -> Iterator[Real]:
    """The folders of one half, each alone and then all of a repository together."""
    together: dict[str, dict[str, bytes]] = {}
    for one in real_folders():
        repository, _, part = one.name.partition("/")
        if is_unseen(repository) != unseen:
            continue
        yield one
        for file, data in one.files.items():
            together.setdefault(repository, {})[f"{part}/{file}"] = data
            if file == "MEMORY.md":
                together[repository].setdefault(file, data)
    for repository, files in together.items():
        if len({file.partition("/")[0] for file in files if "/" in file}) > 1:
            yield Real(f"{repository} together", files)


def _measured(dreamer: Dreamer, unseen: bool, *, copies: bool) -> Undone:
    total = Undone()
    for seed, one in enumerate(folders_of(unseen)):
        with tempfile.TemporaryDirectory() as temporary:
            _measure(one, Path(temporary), dreamer, seed, total, copies=copies)
    return total


def _measure(one: Real, top: Path, dreamer: Dreamer, seed: int, total: Undone, *, copies: bool) -> None:
    place = top / "memory"
    written(one, place)
    if copies:
        plant(place)
    store = MemoryStore(FolderBackend(place, top / "state"), FakeClock(NOW))
    before, said = _bytes(place), _words(place)
    staged = stage_folder(store)
    modified = {file: (staged.folder / file).stat().st_mtime for file in staged.files}
    explained = dreamer(staged.folder, modified, seed)
    outcome = commit_dream(store, staged, DREAM, explained)
    total.folders += 1
    dreamt, after = _bytes(place), [set(plain(text).split()) for text in _texts(place)]
    gone = [each for each in sorted(said) if not any(_holds(words, each) for words in after)]
    total.words += len(said)
    total.lost += len(gone)
    total.examples += [f"lost in {one.name}: {each[:150]}" for each in gone]
    if outcome.revision:
        total.changed += 1
        undo_dream(store)
    if _bytes(place) == before:
        total.as_before += 1
    else:
        total.examples.append(f"not as before: {one.name}")
    if outcome.revision:
        store.redo()
        came = _bytes(place) == dreamt
        store.undo()
        total.again += came and _bytes(place) == before
    store.close()


def _holds(words: set[str], sentence: str) -> bool:
    wanted = set(sentence.split())
    return len(wanted & words) >= _ENOUGH * len(wanted)


def _bytes(place: Path) -> dict[str, bytes]:
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*.md")}


def _texts(place: Path) -> list[str]:
    return [path.read_text("utf-8", "replace") for path in sorted(place.rglob("*.md"))]


def _words(place: Path) -> set[str]:
    index = place / "MEMORY.md"
    hooks = [one.hook for one in read_index(index.read_text("utf-8")).pointers] if index.exists() else []
    told = {plain(hook) for hook in hooks if "](" not in hook}
    return {one for one in sentences_in(place) | told if len(one) > 3}


def by_rule(folder: Path, modified: dict[str, float], seed: int) -> Explained:
    """The dream without a model."""
    return dict(consolidate_folder(folder, NOW, modified).explained)


def careless(folder: Path, modified: dict[str, float], seed: int) -> Explained:
    """A dream that changes files at random and accounts for nothing."""
    rng = random.Random(seed)
    for path in list(topics(folder)):
        kind, text = rng.randrange(6), path.read_text("utf-8", "replace")
        if kind == 0:
            path.unlink()
        elif kind == 1:
            path.write_text(text[: len(text) // 2], "utf-8")
        elif kind == 2:
            path.rename(path.with_name(f"renamed-{rng.randrange(1_000)}.md"))
        elif kind == 3:
            lines = text.splitlines(keepends=True)
            rng.shuffle(lines)
            path.write_text("".join(lines), "utf-8")
    (folder / "MEMORY.md").write_text("# Index\n\nnothing here any more\n", "utf-8")
    return {}
