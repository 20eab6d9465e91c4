"""Two changes of one text in one, and two indexes in one.

A text is joined by its lines; where both sides changed the same ones there is no joint text, and both
are kept. The index is made from the files, so that there is never a reason to keep two: what cannot be
joined line by line is the union of both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from sevenfold.memory.dreams.merging import merged_lines
from sevenfold.memory.folder.files import HEAD
from sevenfold.memory.index import missing, reconciled
from sevenfold.memory.indexing import bare, decoded, encoded

_PAIRS: Final = 100_000
"""Pairs of equal lines: comparing takes time with their number, and somebody else wrote the text."""


def joined(before: bytes | None, ours: bytes, theirs: bytes) -> bytes | None:
    """Both changes of a text in one; None when they touch each other, or nobody knows what was before."""
    if before is None:
        return None
    texts = [text.splitlines(keepends=True) for text in (before, ours, theirs)]
    start = _same(texts)
    texts = [lines[start:] for lines in texts]
    end = _same([lines[::-1] for lines in texts])
    old, one, other = (lines[: len(lines) - end] for lines in texts)
    if max(_pairs(old, one), _pairs(old, other)) > _PAIRS:
        return None
    middle = merged_lines(b"".join(old), b"".join(one), b"".join(other))
    if middle is None:
        return None
    whole = ours.splitlines(keepends=True)
    text = b"".join([*whole[:start], middle, *whole[len(whole) - end :]])
    return text if len(text) <= HEAD else None


def _same(texts: list[list[bytes]]) -> int:
    """How many lines at the beginning are the same in all texts."""
    count = 0
    for lines in zip(*texts, strict=False):
        if any(line != lines[0] for line in lines):
            break
        count += 1
    return count


def _pairs(one: list[bytes], other: list[bytes]) -> int:
    counted = Counter(other)
    return sum(count * counted[line] for line, count in Counter(one).items())


def pruned(text: str, names: Mapping[str, str]) -> str:
    """An index without pointers to files that are not there; `names` are the memories by file."""
    absent = set(missing(text, list(names), list(names.items())))
    there = [bare(file, name) for file, name in names.items() if file not in absent]
    return reconciled(text, there, sorted(absent))


def joined_index(before: str, ours: str, theirs: str, names: Mapping[str, str]) -> str:
    """Two indexes in one, as the folder with these files needs it."""
    old, one, other = (pruned(text, names) for text in (before, ours, theirs))
    if one == old:
        return other
    if other in (old, one):
        return one
    both = joined(encoded(old), encoded(one), encoded(other))
    return pruned(decoded(both) if both is not None else _union(other, one), names)


def shared_index(ours: str, theirs: str, here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """The index as the remote should have it: ours, with the lines for what is only there, and without
    those for what is only here. It is theirs when we have nothing to add."""
    seen = pruned(theirs, here)
    if ours == seen:
        return theirs
    both = joined(encoded(seen), encoded(ours), encoded(theirs))
    return pruned(decoded(both) if both is not None else _union(ours, theirs), there)


def _union(one: str, other: str) -> str:
    """All lines of the one, then those of the other that it lacks."""
    known = set(one.splitlines())
    more = [line for line in other.splitlines() if line not in known]
    first = one if not one or one.endswith("\n") else f"{one}\n"
    return first + "".join(f"{line}\n" for line in more)
