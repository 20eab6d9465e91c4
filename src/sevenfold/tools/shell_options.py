"""Known options of a program: everything that is not written down here is not accepted.

A table is one string, so that it can be read at a glance:

    -n          takes no value; may stand in a cluster (`-nr`)
    -k=         takes a value, attached (`-k2`) or as the next word
    -M[=]       may take an attached number (`-M90%`), never the next word
    -#          a bare number (`-20`)
    --all  --key=  --color[=]   the same for long options, which are never abbreviated
    --arg==     takes the next two words
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from sevenfold.tools.shell_words import Kind, UnsureError, Word

_ENTRY = re.compile(r"(-[^=\[\s]+)(==|=|\[=\])?")
_ATTACHED_NUMBER = re.compile(r"[0-9%/]*")
_BARE_NUMBER = re.compile(r"-[0-9]+")

_Given = list[tuple[str, str | None]]  # option names, each with its value if one is known


class Options(msgspec.Struct, frozen=True):
    """The options a program is allowed, and how strictly its words are read."""

    takes: dict[str, str]
    most: int | None = None  # operands; a further one might be a file to write
    first: bool = False  # options must stand before operands: programs differ in what follows
    clusters: bool = True
    attached: bool = True  # a short option may carry its value in the same word


class Parsed(msgspec.Struct, frozen=True):
    """What the words of a call turned out to be."""

    operands: tuple[Word, ...]
    names: frozenset[str]
    values: tuple[tuple[str, str], ...]


def names(text: str) -> frozenset[str]:
    """The words of a text as a set, so that a long list stays readable."""
    return frozenset(text.split())


def options(
    spec: str,
    *,
    most: int | None = None,
    first: bool = False,
    clusters: bool = True,
    attached: bool = True,
) -> Options:
    """Read a table of options from its string form."""
    takes: dict[str, str] = {}
    for entry in spec.split():
        found = _ENTRY.fullmatch(entry)
        if found is None:
            raise ValueError(f"{entry!r} is not an entry of an option table")
        takes[found[1]] = found[2] or ""
    return Options(takes, most, first, clusters, attached)


def parse(words: Sequence[Word], table: Options) -> Parsed:
    """Tell options, their values and operands apart; unsure about anything not in the table."""
    operands: list[Word] = []
    given: _Given = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        dashed = word.text != "-" and word.text.startswith("-")
        if table.first and operands and dashed:
            raise UnsureError(f"the option `{word.text}` after an operand")
        if word.text == "--" and word.kind is Kind.FIXED:
            operands += [operand(rest, after_dashes=True) for rest in words[at:]]
            break
        if not dashed:
            operands.append(operand(word))
            continue
        found, follow = _option(word, table)
        given += found
        given += [(found[-1][0], _separate_value(word, next_)) for next_ in words[at : at + follow]]
        at += follow
    if table.most is not None:
        _check_count(operands, table.most)
    return Parsed(
        tuple(operands),
        frozenset(name for name, _ in given),
        tuple((name, value) for name, value in given if value is not None),
    )


def _check_count(operands: Sequence[Word], most: int) -> None:
    if len(operands) > most:
        raise UnsureError(f"`{operands[most].source}` is one operand too many")
    for word in operands:
        if word.kind is Kind.GLOB:
            raise UnsureError(f"`{word.source}` may match more than one file")


def operand(word: Word, *, after_dashes: bool = False) -> Word:
    """The word itself when it cannot turn into an option."""
    if word.kind > Kind.GLOB:
        raise UnsureError(f"`{word.source}` may expand to options")
    if word.kind is Kind.GLOB and not after_dashes and word.text[:1] in {"*", "?", "[", "-"}:
        raise UnsureError(f"`{word.source}` may match a file whose name is an option (use `./`)")
    if word.kind is not Kind.GLOB and after_dashes and len(word.text) > 1 and word.text[0] == "-":
        raise UnsureError(f"`{word.source}` looks like an option")
    return word


def fixed(word: Word) -> str:
    """The text of a word that cannot expand to anything else."""
    if word.kind is not Kind.FIXED:
        raise UnsureError(f"`{word.source}` is not literal")
    return word.text


def _separate_value(option: Word, value: Word) -> str:
    if value.kind is not Kind.FIXED or value.text.startswith("-"):
        raise UnsureError(f"`{value.source}` as the value of `{option.source}`")
    return value.text


def _option(word: Word, table: Options) -> tuple[_Given, int]:
    """The options in one word, and how many of the following words are values."""
    text = fixed(word)
    if text in table.takes:
        return [(text, None)], {"=": 1, "==": 2}.get(table.takes[text], 0)
    if text.startswith("--"):
        name, given, value = text.partition("=")
        if not given or table.takes.get(name) not in {"=", "[=]"}:
            raise _unknown(name)
        return [(name, value)], 0
    if "-#" in table.takes and _BARE_NUMBER.fullmatch(text):
        return [("-#", None)], 0
    return _cluster(text, table)


def _cluster(text: str, table: Options) -> tuple[_Given, int]:
    """The options in a word such as `-nrk2`: every letter must be known."""
    given: _Given = []
    for place, letter in enumerate(text[1:], start=2):
        name, rest = f"-{letter}", text[place:]
        takes = table.takes.get(name)
        if takes == "[=]" and _ATTACHED_NUMBER.fullmatch(rest):
            return [*given, (name, rest)], 0
        if takes == "=" and rest and table.attached:
            return [*given, (name, rest)], 0
        if takes == "=" and not rest:
            return [*given, (name, None)], 1
        if takes is None:
            raise _unknown(name)
        if takes or (rest and not table.clusters):
            raise _unknown(text)
        given.append((name, None))
    return given, 0


def _unknown(name: str) -> UnsureError:
    return UnsureError(f"the option `{name}` is not known to be harmless")
