"""Finds out why a piece of text was not found in a file, so that the next try can be the last."""

from __future__ import annotations

import re
from typing import Final

_LINE_NUMBERS: Final = re.compile(r"^[ ]*\d+\t", re.MULTILINE)
_MOST_LINES: Final = 100_000
_SHOWN: Final = 12
_QUOTES: Final = str.maketrans("‘’‚“”„–—\u00a0", "'''\"\"\"-- ")


def why_not_found(text: str, old: str, new: str) -> str:
    """The end of a sentence that says what is nearly the same, and where."""
    text = text.replace("\r\n", "\n")
    without = _LINE_NUMBERS.sub("", old)
    if without != old and without in text:
        return "; it holds the line numbers that Read puts in front: leave them out"
    if len(new) > 20 and new in text:
        at = text.count("\n", 0, text.index(new)) + 1
        return f", but new_string is there already, at line {at}"
    lines = text.split("\n")
    if len(lines) > _MOST_LINES:
        return "; Read the place again"
    return (
        _blanks_differ(lines, old.split("\n"))
        or _characters_differ(text, old)
        or _beginning(lines, old)
        or "; Read it again and copy the text exactly"
    )


def _blanks_differ(lines: list[str], wanted: list[str]) -> str:
    squeezed = [" ".join(line.split()) for line in wanted]
    while squeezed and not squeezed[0]:
        squeezed.pop(0)
    while squeezed and not squeezed[-1]:
        squeezed.pop()
    if not squeezed:
        return ""
    candidates = [" ".join(line.split()) for line in lines]
    for at in range(len(candidates) - len(squeezed) + 1):
        if candidates[at] == squeezed[0] and candidates[at : at + len(squeezed)] == squeezed:
            there = "\n".join(lines[at : at + len(squeezed)][:_SHOWN])
            where = (
                f"line {at + 1}" if len(squeezed) == 1 else f"lines {at + 1}-{at + len(squeezed)}"
            )
            return f", but {where} differ{'s' * (len(squeezed) == 1)} only in blanks:\n{there}"
    return ""


def _characters_differ(text: str, old: str) -> str:
    at = text.translate(_QUOTES).find(old.translate(_QUOTES))
    if at < 0:
        return ""
    line = text.count("\n", 0, at) + 1
    return f", but line {line} differs only in quotes, dashes or special blanks: {text[at : at + 200]!r}"


def _beginning(lines: list[str], old: str) -> str:
    first = next((line for line in old.split("\n") if len(line.strip()) > 3), None)
    if first is None:
        return ""
    found = [number for number, line in enumerate(lines, 1) if first.strip() in line][:3]
    if not found:
        return ""
    where = ", ".join(map(str, found))
    return f"; its line {first.strip()[:80]!r} is there (line {where}), but what follows differs"
