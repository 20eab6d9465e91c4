"""Tokens whose shape gives them away, read from the table in `formats.toml`."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.memory.guard import randomness
from sevenfold.memory.guard.reading import opened

TABLE: Final = Path(__file__).with_name("formats.toml")

_BEFORE: Final = r"(?<![A-Za-z0-9])"
_AFTER: Final = r"(?![A-Za-z0-9])"


class Token(msgspec.Struct, frozen=True):
    """A place where a secret stands. The value stays inside the guard."""

    what: str
    start: int
    end: int
    head: str = ""
    """What every such token begins with; empty where the first characters are part of the secret."""

    def __repr__(self) -> str:
        return f"Token({self.what!r}, {self.start}, {self.end})"


class Format(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the table."""

    what: str
    heads: tuple[str, ...]
    pattern: str
    random: bool = False
    inside: bool = False

    def expression(self) -> re.Pattern[str]:
        return re.compile(self.pattern if self.inside else f"{_BEFORE}(?:{self.pattern}){_AFTER}")


class _Table(msgspec.Struct, frozen=True):
    format: tuple[Format, ...]


@functools.cache
def formats() -> tuple[tuple[Format, re.Pattern[str]], ...]:
    """The table, compiled; read once."""
    table = msgspec.convert(tomllib.loads(TABLE.read_text(encoding="utf-8")), _Table)
    return tuple((row, row.expression()) for row in table.format)


def tokens(text: str) -> Iterator[Token]:
    """Every complete token in a text without disguises."""
    for row, expression in formats():
        if any(head in text for head in row.heads):
            for match in expression.finditer(text):
                if _counts(row, match[0]):
                    yield Token(row.what, match.start(), match.end(), _head(row, match[0]))


def _counts(row: Format, value: str) -> bool:
    if row.what == "JSON web token":
        return (opened(value.split(".")[0]) or "").startswith("{")
    if "PRIVATE KEY" in row.heads:
        return True  # its pattern asks for the key itself, not only for its first line
    head = _head(row, value)
    return not randomness.documented(value) and (
        not row.random or randomness.random(value[len(head) :].lstrip("-_"), 16)
    )


def _head(row: Format, value: str) -> str:
    return next((head for head in row.heads if value.startswith(head)), "")
