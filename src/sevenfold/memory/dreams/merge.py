"""Merges the changes of a dream with those that others made meanwhile, file by file.

What others wrote is never overwritten: where both changed the same lines, theirs stay and the dream's
change of that file is dropped. A file that was removed meanwhile stays removed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from sevenfold.memory.folder.names import ENDING, INDEX_NAME, explain_bad_file, make_file_key
from sevenfold.memory.merge import choose_side, merge_lines

_NAMES: Final = 100

Files = Mapping[str, bytes]


class DreamConflict(msgspec.Struct, frozen=True):
    """A change of the dream that was not made, and why."""

    file: str
    why: str


class MergedChanges(msgspec.Struct, frozen=True):
    """What is to be changed in the folder as it is now; None: the file goes."""

    changes: dict[str, bytes | None]
    conflicts: tuple[DreamConflict, ...]


def merge_dream(before: Files, dreamt: Files, now: Files, taken: Collection[str]) -> MergedChanges:
    """The changes of a dream on a folder that others may have changed since it began.

    `before` is what the dream was given, `dreamt` what it left, `now` what is there. `taken` are the keys
    of all names in use, also of files that the dream never saw.
    """
    changes: dict[str, bytes | None] = {}
    conflicts: list[DreamConflict] = []
    used = {*taken, *map(make_file_key, dreamt), *map(make_file_key, now)}
    for file in sorted({*before, *dreamt} - {INDEX_NAME}):
        old, new, there = before.get(file), dreamt.get(file), now.get(file)
        side = choose_side(old, there, new)
        if side == "ours":
            continue
        if old is None and (there is not None or make_file_key(file) in taken):
            other = _other_name(file, used)
            used.add(make_file_key(other))
            changes[other] = new
            conflicts.append(DreamConflict(file, f"written meanwhile: the dream's own is {other}"))
        elif side == "theirs":
            changes[file] = new
        else:
            merged, why = _both_changed(old, new, there)
            if merged is not None and merged != there:
                changes[file] = merged
            conflicts += [DreamConflict(file, why)] if why else []
    return MergedChanges(changes, tuple(conflicts))


def _both_changed(old: bytes | None, new: bytes | None, there: bytes | None) -> tuple[bytes | None, str]:
    if there is None:
        return None, "removed meanwhile: it stays removed"
    if new is None:
        return None, "changed meanwhile: it is not removed"
    merged = merge_lines(old or b"", new, there)
    if merged is None:
        return None, "changed meanwhile in the same lines: the dream's change is dropped"
    return merged, ""


def _other_name(file: str, used: Collection[str]) -> str:
    stem = file.removesuffix(ENDING)
    for number in range(2, _NAMES):
        other = f"{stem}-{number}{ENDING}"
        if make_file_key(other) not in used and not explain_bad_file(other):
            return other
    return f"{stem[:80]}-{_NAMES}{ENDING}"
