"""Finds tokens of published formats; `secret_formats.toml` has the formats of each service.

A text is read once: runs without a space that are long enough for a token are searched for the beginnings
of all formats at once, and only the formats whose beginning is there are tried.
"""

from __future__ import annotations

import datetime
import functools
import re
import tomllib
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.memory.guard.randomness import is_documented_example, is_hexadecimal, is_mixed, is_random

TABLE: Final = Path(__file__).with_name("secret_formats.toml")

_RUN: Final = re.compile(r"[!#-&(-;=?-_a-~]{16,}")
"""Printable ASCII without spaces, quotes and angle brackets; no token is shorter."""
_LIKELY: Final = re.compile(r"\d|[a-z][A-Z][a-z]?[A-Z]")  # A digit, or capitals as no name has them
_BLOB: Final = re.compile(r"[A-Za-z0-9+/]{200}")
_UUID: Final = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_NEAR: Final = 60  # Characters between a word and the token that it stands for
_GIVEN: Final = re.compile(r"[=:\"'(,>]|\b(?:key|token|secret|password|auth)\b", re.IGNORECASE)
_HEX_DIGITS: Final = "0123456789abcdef"
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class SecretSpan(msgspec.Struct, frozen=True):
    """A place where a secret stands. The value stays inside the guard."""

    what: str
    start: int
    end: int
    head: str = ""  # The beginning of every such token; empty if the first characters are secret

    def __repr__(self) -> str:
        return f"SecretSpan({self.what!r}, {self.start}, {self.end})"


class TokenFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of token of a service; the head of the table explains the fields."""

    begins: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    alphabet: str = ""
    length: tuple[int, int] = (0, 0)
    pattern: str = ""
    random: bool = False
    checksum: str = ""


class SecretService(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A service that issues tokens, and the page where it describes them."""

    name: str
    kind: str
    documented: str
    tokens: tuple[TokenFormat, ...]


class SecretShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A secret that no single service issues, such as a private key."""

    what: str
    holds: tuple[str, ...]
    pattern: str


class SecretTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    date: datetime.date
    alphabets: dict[str, str]
    service: tuple[SecretService, ...]
    shape: tuple[SecretShape, ...]


class _FormatRow:
    """A format that is ready to be tried; its expression is compiled when it is first needed."""

    def __init__(self, what: str, form: TokenFormat, alphabets: dict[str, str]) -> None:
        self.what = what
        self.form = form
        self._body = form.pattern or (_UUID if form.alphabet == "uuid" else _write_class(form, alphabets))

    @functools.cached_property
    def body(self) -> re.Pattern[str]:
        return re.compile(self._body)

    @functools.cached_property
    def alone(self) -> re.Pattern[str]:
        """For a token without a beginning: it may not continue on either side."""
        return re.compile(rf"(?<![A-Za-z0-9_/+-])(?:{self._body})(?![A-Za-z0-9_/+-])")


def _write_class(form: TokenFormat, alphabets: dict[str, str]) -> str:
    least, most = form.length
    return f"[{alphabets[form.alphabet]}]{{{least},{most}}}"


class _FormatIndex(msgspec.Struct, frozen=True):
    """The table by what gives a token away."""

    marks: re.Pattern[str]
    begins: dict[str, tuple[tuple[str, _FormatRow], ...]]
    holds: dict[str, tuple[_FormatRow, ...]]
    near: dict[str, tuple[_FormatRow, ...]]
    shapes: tuple[tuple[SecretShape, re.Pattern[str]], ...]


@functools.cache
def load_secret_table() -> SecretTable:
    """The table as it is written, read once."""
    return msgspec.convert(tomllib.loads(TABLE.read_text(encoding="utf-8")), SecretTable)


@functools.cache
def _load_index() -> _FormatIndex:
    table = load_secret_table()
    begins: dict[str, list[_FormatRow]] = {}
    holds: dict[str, list[_FormatRow]] = {}
    near: dict[str, list[_FormatRow]] = {}
    for service in table.service:
        for form in service.tokens:
            row = _FormatRow(f"{service.name} {service.kind}", form, table.alphabets)
            for literals, rows in ((form.begins, begins), (form.holds, holds)):
                for literal in literals:
                    rows.setdefault(literal, []).append(row)
            if not form.begins:
                for word in form.near:
                    near.setdefault(word.lower(), []).append(row)
    return _FormatIndex(
        re.compile(f"(?=({_join_literals({*begins, *holds})}))"),
        {literal: _rows_for(literal, begins) for literal in begins},
        {literal: tuple(rows) for literal, rows in holds.items()},
        {word: tuple(rows) for word, rows in near.items()},
        tuple((shape, re.compile(shape.pattern)) for shape in table.shape),
    )


def _rows_for(literal: str, begins: dict[str, list[_FormatRow]]) -> tuple[tuple[str, _FormatRow], ...]:
    """The rows of a beginning and of every shorter one that it begins with, longest first."""
    heads = (literal[:end] for end in range(len(literal), 0, -1))
    return tuple((head, row) for head in heads for row in begins.get(head, ()))


def _join_literals(literals: Iterable[str]) -> str:
    """An expression for any of the literals, the longest first, that decides character by character."""
    tree: dict[str, list[str]] = {}
    for literal in literals:
        tree.setdefault(literal[:1], []).append(literal[1:])
    ends = "" in tree
    tree.pop("", None)
    if not tree:
        return ""
    parts = [re.escape(first) + _join_literals(rest) for first, rest in sorted(tree.items())]
    whole = parts[0] if len(parts) == 1 and not ends else f"(?:{'|'.join(parts)})"
    return f"{whole}?" if ends else whole


def find_runs(text: str) -> list[tuple[int, int]]:
    """Where the text has no space for so long that a token fits, and does not look like words."""
    return [run.span() for run in _RUN.finditer(text) if _LIKELY.search(run[0])]


def find_tokens(text: str, runs: Iterable[tuple[int, int]] | None = None) -> Iterator[SecretSpan]:
    """Every complete token in a text without disguises; `runs` are those of `find_runs`, if known."""
    index = _load_index()
    for shape, expression in index.shapes:
        if any(mark in text for mark in shape.holds):
            for match in expression.finditer(text):
                yield SecretSpan(shape.what, match.start(), match.end())
    for start, end in find_runs(text) if runs is None else runs:
        yield from _tokens_in(index, text, start, end)
    yield from _tokens_near_words(index, text)


def _tokens_in(index: _FormatIndex, text: str, start: int, end: int) -> Iterator[SecretSpan]:
    done, inside = start, set[_FormatRow]()
    for mark in index.marks.finditer(text, start, end):
        inside.update(index.holds.get(mark[1], ()))
        if mark.start() < done:
            continue
        for head, row in index.begins.get(mark[1], ()):
            if (span := _token_at(row, head, text, mark.start())) is not None:
                yield span
                done = span.end
                break
    for row in inside:
        for match in row.alone.finditer(text, start, end):
            if is_random(match[0], 16) and not is_documented_example(match[0]):
                yield SecretSpan(row.what, match.start(), match.end())


def _token_at(row: _FormatRow, head: str, text: str, start: int) -> SecretSpan | None:
    match = row.body.match(text, start + len(head))
    if match is None or (row.form.near and not _is_near(row.form.near, text, start)):
        return None
    end, body = match.end(), match[0].rstrip("-_=.")
    before, after = text[start - 1 : start], text[end : end + 1]
    bounded = not (_is_letter(before) and _is_letter(head[:1])) and not _is_letter(after)
    span = SecretSpan(row.what, start, end, head)
    if row.form.checksum and is_checksum_right(row.form.checksum, head, match[0]):
        return span
    if is_documented_example(text[start:end]):
        return None
    if not bounded and not _can_be_glued(row, head, text, start, end):
        return None
    if row.form.random or not bounded:
        return span if is_random(body, min(16, len(body))) else None
    return span if _is_varied(body) else None


def _is_letter(character: str) -> bool:
    return character.isascii() and character.isalnum()


def _is_varied(body: str) -> bool:
    """True unless one character is repeated, or words are joined with dashes."""
    if len(set(body)) < 5:
        return False
    return any(map(str.isdigit, body)) or not (body.islower() or body.isupper()) or body.isalpha()


def _can_be_glued(row: _FormatRow, head: str, text: str, start: int, end: int) -> bool:
    """True if the beginning cannot be chance inside a longer run."""
    after, body = text[end : end + 1], text[start + len(head) : end]
    if len(head) < 3 or (is_hexadecimal(body) and after and after in _HEX_DIGITS):
        return False
    if head.isalnum():
        return len(head) > 3 and not _BLOB.search(text, max(0, start - 200), end + 200)
    return len(head) > 3 or len(body) >= 24


def _is_near(words: tuple[str, ...], text: str, start: int) -> bool:
    before = text[max(0, start - _NEAR) : start].lower()
    return any(word in before for word in words)


def _tokens_near_words(index: _FormatIndex, text: str) -> Iterator[SecretSpan]:
    lower = text.lower()
    if len(lower) != len(text):  # a letter whose small form is two letters: places would shift
        return
    for word, rows in index.near.items():
        for at in find_literal(word, lower):
            line = text.find("\n", at, at + 2 * _NEAR)
            end = line if line >= 0 else at + 2 * _NEAR
            for row in rows:
                yield from _tokens_behind(row, text, at + len(word), end)


def _tokens_behind(row: _FormatRow, text: str, start: int, end: int) -> Iterator[SecretSpan]:
    for match in row.alone.finditer(text, start, end):
        between = text[start : match.start()]
        if (
            len(between) <= _NEAR
            and "://" not in between
            and _GIVEN.search(between)
            and is_random(match[0], 16)
            and not is_documented_example(match[0])
        ):
            yield SecretSpan(row.what, match.start(), match.end())


def find_literal(literal: str, text: str) -> Iterator[int]:
    """Every place where a text has the literal; much faster than an expression of many."""
    at = text.find(literal)
    while at >= 0:
        yield at
        at = text.find(literal, at + len(literal))


def is_checksum_right(kind: str, head: str, body: str) -> bool:
    """True if the last characters of a token are the checksum of the others."""
    if kind == "grafana":
        secret, _, said = body.rpartition("_")
        crc = zlib.crc32((head + secret).encode())
        return crc.to_bytes(4, "little").hex() == said.lower()
    number, digits = zlib.crc32(body[:-6].encode()), ""
    while number:
        number, rest = divmod(number, len(_DIGITS))
        digits = _DIGITS[rest] + digits
    return len(body) == 36 and digits.rjust(6, "0") == body[-6:]


_ID_BEGINNINGS: Final = """
    pk pub toolu srvtoolu agent env msg req call chatcmpl resp run thread asst file step cus evt pi pm prod
    price sub in cs ch txn re seti acct prj dpl team usr org ses session sess id uid uuid item fc rs
    ws batch part prt vs snap img ami vol eni sg subnet vpc igw rtb commit build job task trace span
    sha sha1 sha256 sha512 md5 blob tree hash etag cache chunk bundle index main vendor style app
    page node rev ver v urn arn doc docs gid ga gtm
"""
_IDENTIFIER: Final = frozenset(_ID_BEGINNINGS.split())
"""Beginnings of ids: what follows them names a thing and opens nothing."""
_PREFIXED: Final = re.compile(
    r"(?<![A-Za-z0-9/])(?P<head>[A-Za-z][A-Za-z0-9]{1,11}(?:[_-][A-Za-z0-9]{1,8}){0,2}[_-])"
    r"(?P<body>[A-Za-z0-9]{20,200})(?![A-Za-z0-9_-])"
)
_OF_KEYS: Final = re.compile(
    r"(?:^|[_-])(?:sk|key|apikey|token|tok|secret|api|pat|auth|live|prod|access|private|pass|pwd)(?=[_-])",
    re.IGNORECASE,
)


def find_prefixed_tokens(text: str, runs: Iterable[tuple[int, int]]) -> Iterator[SecretSpan]:
    """Tokens of services that the table does not know: a short prefix, then a long random part."""
    for start, end in runs:
        for match in _PREFIXED.finditer(text, start, end):
            if _is_prefixed_token(match["head"], match["body"]):
                yield SecretSpan("key with a prefix", match.start(), match.end())


def _is_prefixed_token(head: str, body: str) -> bool:
    pieces = re.split("[_-]", head[:-1].lower())
    if pieces[0] in _IDENTIFIER or pieces[-1] in _IDENTIFIER or is_documented_example(head + body):
        return False
    if _OF_KEYS.search(head):
        return is_random(body, 20)
    return len(body) >= 24 and is_mixed(body) and is_random(body, 24)
