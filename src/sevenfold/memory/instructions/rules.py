"""The head of a rule file: which files it is for.

The head is read line by line and not as YAML: people write `paths: **/*.ts` without quotes, which no
YAML reader takes, and nothing else in it concerns us.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

MOST_GLOBS: Final = 100
"""Globs of one rule."""

_HEAD: Final = re.compile(
    r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE
)
_LONGEST_HEAD: Final = 20_000
_KEY: Final = re.compile(r"(paths|\"paths\"|'paths')[ \t]*:(.*)")
_ITEM: Final = re.compile(r"[ \t]*-(?:[ \t]+(.*)|[ \t]*$)")
_REMARK: Final = re.compile(r"(?:^|[ \t])#.*$")
_NOTHING: Final = frozenset({"[]", "~", "null"})
_PART: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|\\.|[{}\[\],]|[^"\'\\{}\[\],]+|.')


class Head(msgspec.Struct, frozen=True):
    """The globs of a rule, and its text without them."""

    paths: tuple[str, ...]
    text: str
    problem: str = ""


def read_head(text: str) -> Head:
    """A rule's globs; without any, the rule is for all files and the text is as it was."""
    found = _HEAD.match(text, 0, _LONGEST_HEAD)
    if not found:
        return Head((), text)
    lines = found[1].splitlines(keepends=True)
    first = next((i for i, line in enumerate(lines) if _KEY.match(line)), None)
    if first is None:
        return Head((), text)
    last = first + 1
    while last < len(lines) and _continues(lines[last]):
        last += 1
    globs, problem = _globs([line.rstrip("\n") for line in lines[first:last]])
    left = "".join(lines[:first] + lines[last:])
    body = text[found.end() :].lstrip("\n")
    rest = f"---\n{left}---\n{body}" if left.strip() else body
    return Head(globs, rest, problem)


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
        items = _split(_unquoted(value)) if _quoted(value) else _split(value)
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
