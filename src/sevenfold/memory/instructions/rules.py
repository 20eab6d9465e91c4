"""Reads the head of a rule file, and matches the files that the rule is for.

The head is read line by line and not as YAML: people write `paths: **/*.ts` without quotes, which no
YAML reader takes. Matching a glob never takes long, whatever it is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, TypeAlias

import msgspec

from sevenfold.storage.walk import translate_glob

MOST_GLOBS: Final = 100  # Globs of one rule

_HEAD: Final = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_LONGEST_HEAD: Final = 20_000
_KEY: Final = re.compile(r"(paths|\"paths\"|'paths')[ \t]*:(.*)")
_ITEM: Final = re.compile(r"[ \t]*-(?:[ \t]+(.*)|[ \t]*$)")
_REMARK: Final = re.compile(r"(?:^|[ \t])#.*$")
_NOTHING: Final = frozenset({"[]", "~", "null"})
_PART: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|\\.|[{}\[\],]|[^"\'\\{}\[\],]+|.')


class RuleHead(msgspec.Struct, frozen=True):
    """The globs of a rule, and its text without them."""

    paths: tuple[str, ...]
    text: str
    problem: str = ""


def parse_rule_head(text: str) -> RuleHead:
    """A rule's globs; without any, the rule is for all files and the text is as it was."""
    found = _HEAD.match(text, 0, _LONGEST_HEAD)
    if not found:
        return RuleHead((), text)
    lines = found[1].splitlines(keepends=True)
    first = next((i for i, line in enumerate(lines) if _KEY.match(line)), None)
    if first is None:
        return RuleHead((), text)
    last = first + 1
    while last < len(lines) and _continues(lines[last]):
        last += 1
    globs, problem = _globs([line.rstrip("\n") for line in lines[first:last]])
    left = "".join(lines[:first] + lines[last:])
    body = text[found.end() :].lstrip("\n")
    return RuleHead(globs, f"---\n{left}---\n{body}" if left.strip() else body, problem)


def _continues(line: str) -> bool:
    return not line.strip() or line[0] in " \t]" or bool(_ITEM.match(line)) or line[0] == "#"


def _globs(lines: list[str]) -> tuple[tuple[str, ...], str]:
    key = _KEY.match(lines[0])
    value = _REMARK.sub("", key[2] if key else "").strip()
    if value in _NOTHING:
        return (), ""
    if value.startswith("["):
        joined = " ".join([value, *(_REMARK.sub("", line).strip() for line in lines[1:])])
        items = _split(joined.strip().removeprefix("[").removesuffix("]"))
    elif value and value not in {"|", ">", "|-", ">-"}:
        items = _split(_unquoted(value))
    else:
        items = [part for line in lines[1:] for part in _listed(line)]
    globs = tuple(dict.fromkeys(filter(None, items)))
    if not globs and any(line.strip() for line in [value, *lines[1:]]):
        return (), "its paths are not a list of globs, so it is taken for all files"
    if len(globs) > MOST_GLOBS:
        return globs[:MOST_GLOBS], f"only the first {MOST_GLOBS} of its {len(globs):,} paths count"
    return globs, ""


def _listed(line: str) -> list[str]:
    item = _ITEM.match(line)
    if not item:
        return []
    value = (item[1] or "").strip()
    return [_unquoted(value)] if _quoted(value) else _split(_REMARK.sub("", value))


def _split(text: str) -> list[str]:
    """The parts between commas, but not those within braces, brackets or quotes."""
    parts, depth = [""], 0
    for token in _PART.findall(text):
        if token == "," and depth <= 0:
            parts.append("")
            continue
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token, 0)
        parts[-1] += token
    return [_unquoted(part.strip()) for part in parts]


def _quoted(text: str) -> bool:
    return len(text) > 1 and text[0] in "\"'" and text.find(text[0], 1) == len(text) - 1


def _unquoted(text: str) -> str:
    return text[1:-1] if _quoted(text) else text


MOST_READINGS: Final = 100  # Globs that one glob with braces may stand for
LONGEST: Final = 300  # Characters of a glob

_BRACES: Final = re.compile(r"\\.|[{},]", re.DOTALL)
_WILD: Final = re.compile(r"[*?\[\\]")
_Name: TypeAlias = re.Pattern[str] | str | None
"""Of a pattern: a name as it is, one with wildcards, or None for any number of folders."""


class RuleGlobs:
    """The globs of one rule, ready to be asked."""

    def __init__(self, globs: Sequence[str]) -> None:
        self.problems: list[str] = []
        self._wanted: list[tuple[_Name, ...]] = []
        self._unwanted: list[tuple[_Name, ...]] = []
        for glob in globs:
            plain = unicodedata.normalize("NFC", glob.removeprefix("!"))
            readings = expand_braces(plain) if len(plain) <= LONGEST else ()
            if not readings:
                self.problems.append(glob)
            side = self._unwanted if glob.startswith("!") else self._wanted
            side += [_pattern(reading) for reading in readings]

    @property
    def size(self) -> int:
        return len(self._wanted) + len(self._unwanted)

    def fit(self, path: str) -> bool:
        """True if a path, relative to the folder the globs begin at, is meant by them."""
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
    single = re.sub(r"(\\.)|\*+", lambda found: found[1] or "*", text)
    return re.compile(translate_glob(single, braces=False), re.DOTALL)


def _fits(pattern: tuple[_Name, ...], names: tuple[str, ...]) -> bool:
    """Follows the beginnings of the path that fit, one name of the pattern after the other."""
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


def expand_braces(glob: str) -> tuple[str, ...]:
    """Every glob that one with braces stands for; none: there are too many."""
    done: list[str] = []
    waiting = [glob]
    while waiting:
        if len(done) + len(waiting) > MOST_READINGS:
            return ()
        one = waiting.pop()
        if (cuts := _choice(one)) is None:
            done.append(one)
            continue
        choices = [one[a + 1 : b] for a, b in pairwise(cuts)]
        waiting += [one[: cuts[0]] + choice + one[cuts[-1] + 1 :] for choice in reversed(choices)]
    return tuple(dict.fromkeys(done))


def _choice(glob: str) -> list[int] | None:
    """The places where the first closed `{a,b}` begins, has its commas and ends."""
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
