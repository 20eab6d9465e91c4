"""Frontmatter that only looks like YAML: read line by line, so that one bad line costs one value.

People and models write `description: Fix: never mock`, quotes that never close, tabs, and colons
without a space. Each key is tried as YAML of its own first; what that refuses is taken as it stands.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from sevenfold.memory.topics.entries import Entry, line_end
from sevenfold.memory.topics.strict_yaml import NotYaml, read_strict

DEEPEST: Final = 2
"""How far keys within keys are followed: `metadata`, `origin`, and what stands in it."""
_INDENT: Final = re.compile(r"[ \t]*")
_KEY: Final = re.compile(
    r"""[ \t]*(?P<quote>["']?)(?P<key>[\w$@.][\w$@./ -]{0,60})(?P=quote)[ \t]*:(?=[ \t\r\n]|\Z)"""
)
_KNOWN: Final = re.compile(
    r"""[ \t]*(?P<quote>["']?)(?P<key>name|description|type|metadata)(?P=quote)[ \t]*[:：]""",
    re.IGNORECASE,
)
_BLOCK: Final = re.compile(r"[|>][+-]?\d?[+-]?[ \t]*(?:#.*)?")
_PAIR: Final = re.compile(r"""["']?(\w[\w-]{0,60})["']?\s*:\s*([^,{}\[\]\r\n]*)""")
_ESCAPES: Final = re.compile(r"\\(.)", re.DOTALL)


def key_in(line: str) -> re.Match[str] | None:
    """Whether a line begins a `key: value`; the keys we know may be written more freely."""
    return _KEY.match(line) or _KNOWN.match(line)


def indent(line: str) -> int:
    """How far in a line begins; a tab counts as one."""
    found = _INDENT.match(line)
    return found.end() if found else 0


def read_loose(text: str, depth: int = 0) -> tuple[Entry, ...]:
    """The entries of a block, whatever its state; never raises."""
    return tuple(
        entry for part, at in _parts(text) if (entry := _entry(part, at, depth)) is not None
    )


def _parts(text: str) -> list[tuple[str, int]]:
    """The block, cut in front of every key that stands as far left as the first one."""
    cuts: list[int] = []
    depth = -1
    at = 0
    while at < len(text):
        after = line_end(text, at)
        line = text[at:after]
        if key_in(line) and (depth < 0 or indent(line) <= depth):
            depth = indent(line) if depth < 0 else depth
            cuts.append(at)
        at = after
    return [(text[one:end], one) for one, end in pairwise([*cuts, len(text)])]


def _entry(part: str, at: int, depth: int) -> Entry | None:
    try:
        strict = read_strict(part)
    except NotYaml:
        strict = ()
    if len(strict) == 1:
        return strict[0].moved(at)
    found = key_in(part)
    return _scanned(part, found, depth).moved(at) if found else None


def _scanned(part: str, found: re.Match[str], depth: int) -> Entry:
    colon = found.end()
    used = _without_remarks(part, colon)
    first_end = line_end(part, colon)
    first = part[colon:first_end].strip()
    below = part[first_end:used] if used > first_end else ""
    value: str | None
    inner: tuple[Entry, ...] = ()
    items: tuple[str, ...] = ()
    start = min(used, colon + len(part[colon:]) - len(part[colon:].lstrip(" \t\r\n")))
    if not first and below:
        if depth < DEEPEST:
            inner = tuple(one.moved(first_end) for one in read_loose(below, depth + 1))
        items = tuple(
            line.strip()[1:].strip() for line in below.splitlines() if line.strip()[:1] == "-"
        )
        value = None if inner or items else _plain(below)
    elif _BLOCK.fullmatch(first):
        value = _block(below, folded=first[0] == ">")
    else:
        value = _plain(part[colon:used])
        if first[:1] == "{":
            inner, value = _pairs(part, start, used), None
    return Entry(
        key=found["key"].strip(), value=value, colon=colon, start=start, end=max(used, start), line=0,
        after=line_end(part, max(used, start)), inner=inner, items=items, flow=first[:1] in {"{", "["},
    )  # fmt: skip


def _without_remarks(part: str, colon: int) -> int:
    """Where the value ends: blank lines and remarks behind it belong to nobody."""
    end = len(part)
    while True:
        end = len(part[:end].rstrip())
        if end <= colon:
            return colon
        line = max(part.rfind("\n", 0, end), part.rfind("\r", 0, end)) + 1
        if line <= colon or part[line:end].lstrip()[:1] != "#":
            return end
        end = line


def _plain(raw: str) -> str:
    """A value over one or more lines, without the quotes around it if they are around all of it."""
    text = " ".join(line.strip() for line in raw.splitlines() if line.strip())
    mark = text[:1]
    if mark not in {'"', "'"} or not mark:
        return text
    inside = text[1:]
    if mark not in inside:
        return inside.strip()  # never closed
    if inside.endswith(mark) and mark not in inside[:-1].replace(f"\\{mark}", ""):
        body = inside[:-1]
        return _ESCAPES.sub(r"\1", body) if mark == '"' else body
    return text


def _block(below: str, *, folded: bool) -> str:
    lines = below.splitlines()
    depth = min((indent(line) for line in lines if line.strip()), default=0)
    return (" " if folded else "\n").join(line[depth:].rstrip() for line in lines).strip()


def _pairs(part: str, start: int, end: int) -> tuple[Entry, ...]:
    """What can be had of `{type: user, …` that is not YAML."""
    return tuple(
        Entry(
            key=pair[1], value=_plain(pair[2]), colon=pair.start(2), start=pair.start(2),
            end=pair.start(2) + len(pair[2].rstrip()), line=0, after=line_end(part, pair.end()),
        )
        for pair in _PAIR.finditer(part, start, end)
    )  # fmt: skip
