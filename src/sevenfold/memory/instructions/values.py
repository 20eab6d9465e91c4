"""What an instruction file is once it has been read, and how much of them is taken at most."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from sevenfold.messages import whole_characters

Kind: TypeAlias = Literal["managed", "user", "project", "local", "included", "rule"]

LONG: Final = 40_000
"""Characters of one file from which on the user is warned; it is loaded all the same."""
NAMED: Final = 5
"""Files that are named in one warning; the others are counted."""
_LONGEST_SHOWN: Final = 200
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


class Instruction(msgspec.Struct, frozen=True):
    """The text of one file that tells the model how to work."""

    path: Path
    kind: Kind
    text: str
    paths: tuple[str, ...] = ()
    """Of a rule: the globs of the files it is for. Empty: for all."""
    why: str = ""
    """Where it comes from, in words: whose it is, or which file included it."""


class Instructions(msgspec.Struct, frozen=True):
    """What a conversation opens with, lowest priority first, and what waits for a file to be touched."""

    always: tuple[Instruction, ...] = ()
    conditional: tuple[Instruction, ...] = ()
    warnings: tuple[str, ...] = ()
    """Sentences for the user: what was left out, and why."""


class Loaded(msgspec.Struct, frozen=True):
    """What was found because a file was touched."""

    instructions: tuple[Instruction, ...] = ()
    warnings: tuple[str, ...] = ()


class Limits(msgspec.Struct, frozen=True):
    """How much is taken at most. What is over a limit is left out, and the user is told."""

    characters: int = 400_000
    """Of all files of a session together."""
    file_bytes: int = 1 << 20
    """Of one file; a larger one is not read."""
    all_bytes: int = 2 << 20
    """Read from disk in all, also for what is not shown in the end."""
    files: int = 1_000
    """Files opened."""
    rules: int = 500
    """Rule files of one folder."""
    names: int = 20_000
    """Names in one folder of rules; in a fuller one none is looked at."""
    folders: int = 200
    """Folders within one folder of rules."""
    depth: int = 5
    """How many includes may hang on each other."""
    mentions: int = 200
    """`@path` mentions of one file that are looked up."""
    lookups: int = 2_000
    """The same of all files together."""
    globs: int = 2_000
    """Globs of all rules that wait for a file, `{a,b}` counted as two."""
    warnings: int = 20
    """Remarks about single files."""


class Suspicion(Protocol):
    """Something in a text that the user should look at."""

    @property
    def what(self) -> str: ...
    @property
    def where(self) -> str: ...


class Warnings:
    """Sentences for the user: each once, no more than can be read, and none hidden by a flood of others."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._left_out: dict[str, dict[str, None]] = {}
        self._said: dict[str, None] = {}

    def leave_out(self, path: Path | str, why: str, by: Path | None = None) -> None:
        """A file was not loaded; those left out for the same reason share a sentence."""
        asked = f" (asked for by {shown(by)})" if by else ""
        self._left_out.setdefault(why, {})[shown(path) + asked] = None

    def add(self, text: str) -> None:
        self._said[text] = None

    def drain(self) -> tuple[str, ...]:
        """What there is to say since the last time."""
        said = [_sentence(list(paths), why) for why, paths in self._left_out.items()]
        said += list(self._said)[: self._most]
        if len(self._said) > self._most:
            more = len(self._said) - self._most
            said.append(f"there are {more:,} more warnings of this kind about instruction files")
        self._left_out, self._said = {}, {}
        return tuple(said)


def _sentence(paths: list[str], why: str) -> str:
    named, more = paths[:NAMED], len(paths) - NAMED
    rest = f" and {more:,} more" if more > 0 else ""
    return f"not loaded: {', '.join(named)}{rest}: {why}"


def shown(path: Path | str) -> str:
    """A path as it may stand in a sentence: a hostile name cannot break the line or hide in it."""
    text = "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in _INVISIBLE else c
        for c in whole_characters(str(path))
    )
    if len(text) <= _LONGEST_SHOWN:
        return text
    half = _LONGEST_SHOWN // 2
    return f"{text[:half]}…{text[-half:]}"
