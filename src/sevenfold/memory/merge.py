"""Three-way merge: what two sides made of the same beginning, in one.

choose_side(before, ours, theirs)     the side that changed, if only one did; for texts, ids or digests
merge_lines(before, ours, theirs)     both changes of a text, line by line
merge_texts(before, ours, theirs)     the same for texts that others wrote
"""

from __future__ import annotations

from collections import Counter
from difflib import SequenceMatcher
from typing import Final, Literal, TypeVar

from sevenfold.memory.backend import HEAD

T = TypeVar("T")
_MOST_LINES: Final = 5_000  # Lines of a file that are compared one by one; a longer one is only taken whole
_PAIRS: Final = 100_000  # Pairs of equal lines that are compared: the time it takes grows with their number


def choose_side(before: T, ours: T, theirs: T) -> Literal["ours", "theirs"] | None:
    """The side to take; None if both changed it, each in another way."""
    if theirs in (before, ours):
        return "ours"
    return "theirs" if ours == before else None


def merge_lines(old: bytes, one: bytes, other: bytes) -> bytes | None:
    """A text with the changes of both sides; None if they touch the same or neighbouring lines."""
    before, left, right = (text.splitlines(keepends=True) for text in (old, one, other))
    if max(map(len, (before, left, right))) > _MOST_LINES:
        return None
    edits = sorted([*_edits(before, left), *_edits(before, right)], key=lambda edit: edit[:2])
    out: list[bytes] = []
    at, last = -1, None
    for edit in edits:
        start, end, lines = edit
        if edit == last:  # both did the same
            continue
        last = edit
        if start <= at:
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
    """Join lines; what was a last line without its break may stand in the middle now."""
    inner = [line if line.endswith((b"\n", b"\r")) else line + b"\n" for line in lines[:-1]]
    return b"".join([*inner, *lines[-1:]])


def merge_texts(before: bytes | None, ours: bytes, theirs: bytes) -> bytes | None:
    """The same for texts that others wrote, in bounded time; None also if `before` is not known."""
    if before is None:
        return None
    texts = [text.splitlines(keepends=True) for text in (before, ours, theirs)]
    start = _count_equal(texts)
    texts = [lines[start:] for lines in texts]
    end = _count_equal([lines[::-1] for lines in texts])
    old, one, other = (lines[: len(lines) - end] for lines in texts)
    if max(_pairs(old, one), _pairs(old, other)) > _PAIRS:
        return None
    middle = merge_lines(b"".join(old), b"".join(one), b"".join(other))
    if middle is None:
        return None
    whole = ours.splitlines(keepends=True)
    text = b"".join([*whole[:start], middle, *whole[len(whole) - end :]])
    return text if len(text) <= HEAD else None


def _count_equal(texts: list[list[bytes]]) -> int:
    """The number of lines at the beginning that are equal in all texts."""
    count = 0
    for lines in zip(*texts, strict=False):
        if any(line != lines[0] for line in lines):
            break
        count += 1
    return count


def _pairs(one: list[bytes], other: list[bytes]) -> int:
    counted = Counter(other)
    return sum(count * counted[line] for line, count in Counter(one).items())
