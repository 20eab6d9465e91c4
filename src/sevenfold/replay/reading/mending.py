"""Single wrong fields: a count that is a word, a time that is a number. Only they are dropped."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from sevenfold.messages import Json
from sevenfold.replay.reading.parsing import left_out, object_of

__all__ = ["bounded", "left_out", "mended"]
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
            field, lost = _wrong(str(error)), list[str]()
            if len(dropped) >= MOST_FIELDS:
                raise
            record = object_of(line, lost)
            if not lost and (field is None or not _drop(record, field)):
                raise
            if lost:
                _drop_usage(record)
            line = msgspec.json.encode(record)
            dropped += lost[:1] if lost or field is None else [".".join(field)]
        else:
            return line, dropped


def _drop_usage(record: Json) -> None:
    """Usage with one count that was no number goes as a whole."""
    message = record.get("message")
    usage = message.get("usage") if isinstance(message, dict) else None
    if isinstance(usage, dict) and None in usage.values():
        del record["message"]["usage"]


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
