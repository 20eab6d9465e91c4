"""How long an index may be, what a writer is told when it is longer, and what a session sees then.

Nothing is dropped in silence: pointers to the oldest memories go first, never the newest, and one line
says which limit, how many and which.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from sevenfold.memory.folder.naming import INDEX_NAME, key
from sevenfold.memory.index_rows import Row, rows_of

INDEX: Final = INDEX_NAME
LINES: Final = 200
CHARACTERS: Final = 25_000
HOOK: Final = 150
"""Characters that the line of one memory should not exceed."""
WARNING: Final = 700
"""Characters that the line about a cut may have."""
_NAMED: Final = 8
_NAME: Final = 50


def over_limit(text: str, file: str = INDEX) -> str:
    """Why a writer may not leave the index like this, and what to do; empty when it is fine."""
    over = exceeded(text)
    if not over:
        return ""
    lines = [(len(row.text.rstrip("\r\n")), row.number) for row in rows_of(text) if row.count == 1]
    long = sorted((one for one in lines if one[0] > HOOK), reverse=True)[:3]
    longest = ", ".join(f"line {number} ({length:,} characters)" for length, number in long)
    return (
        f"{file} would have {' and '.join(over)}. Keep one line of at most {HOOK} characters for each "
        "memory, move what says more into its topic file, and merge or remove memories that are no "
        f"longer needed.{f' The longest: {longest}.' if longest else ''}"
    )


def exceeded(text: str) -> list[str]:
    """The limits that a text exceeds, in words."""
    count = sum(row.count for row in rows_of(text))
    over = []
    if count > LINES:
        over.append(f"{count:,} lines, {count - LINES:,} over the limit of {LINES}")
    if len(text) > CHARACTERS:
        more = len(text) - CHARACTERS
        over.append(f"{len(text):,} characters, {more:,} over the limit of {CHARACTERS:,}")
    return over


def loaded(text: str, modified: Mapping[str, float], file: str = INDEX) -> str:
    """The index as a session sees it; `modified` says when each topic file was last changed.

    Within the limits it is the text itself. Otherwise pointers go, those to the oldest files first
    (to files that are not there before all), and where that is not enough, hand-written lines from
    the end; the order of what stays is kept, and the last line says what is missing.
    """
    over = exceeded(text)
    if not over:
        return text
    rows = rows_of(text)
    times = {key(file): at for file, at in modified.items()}
    gone = _gone(rows, [_time(row, times) for row in rows])
    kept = "".join(row.text for at, row in enumerate(rows) if at not in gone)
    if not kept.strip():
        kept = _beginning(text)
    lead = "" if not kept or kept.endswith(("\n", "\r")) else "\n"
    return f"{kept}{lead}{_warning(file, over, [rows[at] for at in sorted(gone)])}\n"


def _beginning(text: str) -> str:
    """Of one endless line as much as there is room for, cut at a space if it has one."""
    cut = " ".join(text.split()) if len(text) < 1 << 20 else text[: 2 * CHARACTERS]
    cut = cut[: CHARACTERS - WARNING].replace("\n", " ").replace("\r", " ")
    space = cut.rfind(" ")
    return cut[:space] if space > 0 else cut


def _time(row: Row, times: Mapping[str, float]) -> float:
    """When the newest memory of a line was changed."""
    known = [times.get(key(f"{one.file}.md" if row.by_name else one.file)) for one in row.links]
    return max((at for at in known if at is not None), default=-math.inf)


def _gone(rows: list[Row], times: list[float]) -> set[int]:
    """Which rows have to go so that the rest and the warning fit."""
    count = sum(row.count for row in rows) - (LINES - 1)
    size = sum(len(row.text) for row in rows) - (CHARACTERS - WARNING)
    pointers = [at for at, row in enumerate(rows) if row.pointing]
    pointers.sort(key=lambda at: (times[at], at))
    by_hand = [at for at, row in reversed(list(enumerate(rows))) if not row.pointing]
    endless = [at for at, row in enumerate(rows) if len(row.text) > CHARACTERS - WARNING]
    enough = (
        sum(rows[at].count for at in pointers) >= count
        and sum(len(rows[at].text) for at in {*pointers, *endless}) >= size
    )
    order = [*endless, *pointers, *by_hand] if enough else [*endless, *by_hand, *pointers]
    gone: set[int] = set()
    for at in order:
        if count <= 0 and size <= 0:
            break
        if at not in gone:
            gone.add(at)
            count -= rows[at].count
            size -= len(rows[at].text)
    return gone


def _warning(file: str, over: list[str], gone: list[Row]) -> str:
    pointers = [row for row in gone if row.pointing]
    files = [link.file[:_NAME] for row in pointers for link in row.links]
    by_hand = [row for row in gone if not row.pointing and row.text.strip()]
    parts = []
    if files:
        more = f" and {len(files) - _NAMED:,} more" if len(files) > _NAMED else ""
        which = "pointer" if len(files) == 1 else "pointers, to the oldest memories,"
        parts.append(f"{len(files):,} {which} left out: {', '.join(files[:_NAMED])}{more}")
    if by_hand:
        which = "line" if len(by_hand) == 1 else "lines"
        parts.append(f"{len(by_hand):,} other {which} left out, from line {by_hand[0].number:,} on")
    said = "; ".join(parts) or "its end is left out"
    return (
        f"> Warning: {file} has {' and '.join(over)}; {said}. The files themselves are still in the "
        "folder: search there, and shorten the index."
    )
