"""Single wrong fields: a count that is a word, a time that is a number. Only they are dropped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from sevenfold.messages import Json
from sevenfold.replay.reading.parsing import LARGEST_DOCUMENT, object_of
from sevenfold.storage.lines import lines_of
from sevenfold.storage.recorded import Recorded, Said
from sevenfold.tokens import Usage
from sevenfold.transcript import Problem, Reply

MOST_TOKENS: Final = 100_000_000
"""Of one request: more than any window has, and far below where sums stop being exact."""
MOST_FIELDS: Final = 10
"""Dropped of one record; one with more that is wrong is something else."""
NEEDED: Final = frozenset({"type", "uuid", "message", "id", "what"})
"""Without these a record says nothing."""
_AT: Final = re.compile(r" - at `\$\.([\w.]+)`")


def mended(line: bytes, decode: Callable[[bytes], object]) -> tuple[bytes, list[str]]:
    """The line without what is wrong in it, and what that was; `ValueError` when that does not help."""
    dropped: list[str] = []
    while True:
        try:
            decode(line)
        except ValueError as error:
            field = _wrong(str(error))
            if field is None or len(dropped) >= MOST_FIELDS:
                raise
            record = object_of(line)
            if not _drop(record, field):
                raise
            line = msgspec.json.encode(record)
            dropped.append(".".join(field))
        else:
            return line, dropped


def mended_file(
    path: Path, problems: Iterable[Problem], decode: Callable[[bytes], object]
) -> tuple[bytes, list[Problem]] | None:
    """The file with the lines mended that have such a problem; None when there is none to mend."""
    wrong = {problem.line for problem in problems if _wrong(problem.why)}
    if not wrong:
        return None
    held, at, told = bytearray(), 1, list[Problem]()
    for number, line in lines_of(path, []):
        held += b"\n" * (number - at)  # lines keep their numbers
        at = number
        if number in wrong:
            try:
                line, fields = mended(line, decode)
            except ValueError:
                fields = []
            told += [Problem(number, left_out(field)) for field in fields]
        held += line
        if len(held) > LARGEST_DOCUMENT:
            return None
    return (bytes(held), told) if told else None


def left_out(field: str) -> str:
    return f"{field} is not what it should be: it is left out, the rest of the line is kept"


def bounded(recorded: Recorded) -> Recorded:
    """The session without usage that cannot be: what it says of a request is not known then."""
    problems, entries = list(recorded.problems), list[Said]()
    for said in recorded.entries:
        if isinstance(said.what, Reply) and not _can_be(said.what.usage):
            problems.append(Problem(said.line, "its usage cannot be: it is left out"))
            said = replace(said, what=replace(said.what, usage=Usage()))
        entries.append(said)
    if len(problems) == len(recorded.problems):
        return recorded
    problems.sort(key=lambda problem: problem.line)
    return replace(recorded, entries=tuple(entries), problems=tuple(problems))


def _can_be(usage: Usage) -> bool:
    return all(0 <= getattr(usage, name) <= MOST_TOKENS for name in usage.__struct_fields__)


def _wrong(why: str) -> list[str] | None:
    """The way to the field that a decoder complains of. Usage with one wrong count goes as a whole."""
    found = _AT.search(why)
    if found is None:
        return None
    field = found[1].split(".")
    if "usage" in field:
        field = field[: field.index("usage") + 1]
    return None if len(field) == 1 and field[0] in NEEDED else field


def _drop(record: Json, field: list[str]) -> bool:
    inner: Any = record
    for name in field[:-1]:
        inner = inner.get(name) if isinstance(inner, dict) else None
    return isinstance(inner, dict) and inner.pop(field[-1], None) is not None
