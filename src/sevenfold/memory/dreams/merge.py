"""Joins what a dream changed with what others changed meanwhile, file by file and line by line.

What others wrote is never covered: where both changed the same lines, theirs stay and the dream's change
of that file is dropped. Who removed a file meanwhile has removed it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import SequenceMatcher
from typing import Final

import msgspec

from sevenfold.memory.folder.names import ENDING, INDEX_NAME, explain_bad_file, make_file_key

MOST_LINES: Final = 5_000
"""Lines of a file that are compared one by one; a longer one is only taken whole."""
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
        if new in (old, there):
            continue
        if old is None and (there is not None or make_file_key(file) in taken):
            other = _other_name(file, used)
            used.add(make_file_key(other))
            changes[other] = new
            conflicts.append(DreamConflict(file, f"written meanwhile: the dream's own is {other}"))
        elif old == there:
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


def merge_lines(old: bytes, one: bytes, other: bytes) -> bytes | None:
    """Both changes of a text in one; None when they touch each other."""
    before, left, right = (text.splitlines(keepends=True) for text in (old, one, other))
    if max(map(len, (before, left, right))) > MOST_LINES:
        return None
    edits = sorted([*_edits(before, left), *_edits(before, right)], key=lambda edit: edit[:2])
    out: list[bytes] = []
    at, last = -1, None
    for edit in edits:
        start, end, lines = edit
        if edit == last:  # both did the same
            continue
        last = edit
        if start <= at:  # the same line, or right beside it
            return None
        out += before[max(at, 0) : start] + lines
        at = end
    out += before[max(at, 0) :]
    return _whole_lines(out)


def _edits(before: list[bytes], after: list[bytes]) -> list[tuple[int, int, list[bytes]]]:
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    return [
        (start, end, after[first:last])
        for tag, start, end, first, last in matcher.get_opcodes()
        if tag != "equal"
    ]


def _whole_lines(lines: list[bytes]) -> bytes:
    """A last line without its break may have become one in the middle."""
    inner = [line if line.endswith((b"\n", b"\r")) else line + b"\n" for line in lines[:-1]]
    return b"".join([*inner, *lines[-1:]])


def _other_name(file: str, used: Collection[str]) -> str:
    stem = file.removesuffix(ENDING)
    for number in range(2, _NAMES):
        other = f"{stem}-{number}{ENDING}"
        if make_file_key(other) not in used and not explain_bad_file(other):
            return other
    return f"{stem[:80]}-{_NAMES}{ENDING}"
