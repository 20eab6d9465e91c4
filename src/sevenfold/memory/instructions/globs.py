"""Which files a rule is for: globs such as `src/**/*.{ts,tsx}`, matched without ever taking long.

`*` and `?` stay within a name, `**` goes over folders, `{a,b}` and `[a-z]` as usual, `\\` takes the
next character as it is, `!` in front takes files out again. A glob without a slash fits at every
depth; one that ends in a plain name or a slash means what is in that folder too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, TypeAlias

MOST_READINGS: Final = 100
"""Globs that one glob with braces may stand for."""
LONGEST: Final = 300
"""Characters of a glob."""

_TOKENS: Final = re.compile(r"\*+|\?|\[[!^]?\]?[^\]]*\]|\\.|.", re.DOTALL)
_BRACES: Final = re.compile(r"\\.|[{},]", re.DOTALL)
_WILD: Final = re.compile(r"[*?\[\\]")
_Name: TypeAlias = re.Pattern[str] | str | None
"""Of a pattern: a name as it is, one with wildcards, or None for any number of folders."""


class Globs:
    """The globs of one rule, ready to be asked."""

    def __init__(self, globs: Sequence[str]) -> None:
        self.problems: list[str] = []
        self._wanted: list[tuple[_Name, ...]] = []
        self._unwanted: list[tuple[_Name, ...]] = []
        for glob in globs:
            plain = unicodedata.normalize("NFC", glob.removeprefix("!"))
            readings = alternatives(plain) if len(plain) <= LONGEST else ()
            if not readings:
                self.problems.append(glob)
            side = self._unwanted if glob.startswith("!") else self._wanted
            side += [_pattern(reading) for reading in readings]

    @property
    def size(self) -> int:
        return len(self._wanted) + len(self._unwanted)

    def fit(self, path: str) -> bool:
        """Whether a path, relative to the folder the globs begin at, is meant by them."""
        names = tuple(unicodedata.normalize("NFC", path).split("/"))
        return any(_fits(pattern, names) for pattern in self._wanted) and not any(
            _fits(pattern, names) for pattern in self._unwanted
        )


def _pattern(glob: str) -> tuple[_Name, ...]:
    names = [name for name in glob.split("/") if name not in {"", "."}]
    pattern = [None if name == "**" else _name(name) for name in names]
    if "/" not in glob.rstrip("/"):
        pattern.insert(0, None)
    if glob.endswith("/"):
        pattern.append(_name("*"))
    if glob.endswith("/") or isinstance(pattern[-1], str):
        pattern.append(None)
    return tuple(pattern)


@lru_cache(maxsize=4096)
def _name(text: str) -> re.Pattern[str] | str:
    if not _WILD.search(text):
        return text
    chunks = [""]
    for token in _TOKENS.findall(text):
        if token[0] == "*":
            chunks.append("")
        else:
            chunks[-1] += _single(token)
    if len(chunks) == 1:
        return re.compile(chunks[0], re.DOTALL)
    # Between two stars the first fit is as good as any: no second thoughts, no endless search.
    middle = "".join(f"(?>.*?{chunk})" for chunk in chunks[1:-1] if chunk)
    return re.compile(f"{chunks[0]}{middle}.*{chunks[-1]}", re.DOTALL)


def _single(token: str) -> str:
    if token == "?":
        return "."
    if token[0] != "[" or len(token) == 1:
        return re.escape(token[-1])
    negated = token[1] in "!^"
    inner = re.sub(r"([\\\[\]^&~|])", r"\\\1", token[2 if negated else 1 : -1])
    expression = f"[{'^' if negated else ''}{inner}]"
    try:
        re.compile(expression)
    except re.error:  # a range that runs backwards, as in `[z-a]`: taken literally
        return re.escape(token)
    return expression


def _fits(pattern: tuple[_Name, ...], names: tuple[str, ...]) -> bool:
    """Which beginnings of the path fit, one name of the pattern after the other."""
    reached = {0}
    for name in pattern:
        if name is None:
            reached = set(range(min(reached), len(names) + 1))
        else:
            reached = {i + 1 for i in reached if i < len(names) and _same(name, names[i])}
        if not reached:
            return False
    return len(names) in reached


def _same(name: re.Pattern[str] | str, actual: str) -> bool:
    return name == actual if isinstance(name, str) else bool(name.fullmatch(actual))


# --- braces -----------------------------------------------------------------------------------------


def alternatives(glob: str) -> tuple[str, ...]:
    """Every glob that one with braces stands for; none: there are too many."""
    done: list[str] = []
    waiting = [glob]
    while waiting:
        if len(done) + len(waiting) > MOST_READINGS:
            return ()
        one = waiting.pop()
        cuts = _choice(one)
        if cuts is None:
            done.append(one)
            continue
        begin, end = cuts[0], cuts[-1]
        choices = [one[a + 1 : b] for a, b in pairwise(cuts)]
        waiting += [one[:begin] + choice + one[end + 1 :] for choice in reversed(choices)]
    return tuple(dict.fromkeys(done))


def _choice(glob: str) -> list[int] | None:
    """Where the first `{a,b}` that is closed begins, has its commas and ends."""
    found: list[list[int]] = []
    waiting: list[list[int]] = []
    for token in _BRACES.finditer(glob):
        at = token.start()
        if token[0] == "{":
            waiting.append([at])
        elif token[0] == "," and waiting:
            waiting[-1].append(at)
        elif token[0] == "}" and waiting:
            cuts = [*waiting.pop(), at]
            if len(cuts) > 2:
                found.append(cuts)
    return min(found, default=None)
