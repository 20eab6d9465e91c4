"""Mends `[[links]]` when a dream removes or invents memories, so that none leads nowhere because of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Final

from sevenfold.memory.dreams.draft import Draft, changeable
from sevenfold.memory.folder.naming import key, slug
from sevenfold.memory.links import wiki_links, without_code
from sevenfold.memory.topic import read_topic
from sevenfold.memory.topics.reading import not_text

_LINK: Final = re.compile(
    r"(?<![\[!])\[\[(?![\s\[])([^\[\]|#\n]{1,200})([|#][^\[\]\n]{0,200})?\]\](?!\])"
)


def mend_links(draft: Draft, names: Mapping[str, str], merged: Mapping[str, str]) -> None:
    """Links to a file that was merged lead to where it went; others that would lead nowhere are text.

    `names` has the names of all memories of the folder by file, as they are now.
    """
    there = _known_as(_names_after(draft, names).items())
    gone = {
        one: merged.get(file, "")
        for file, data in draft.changes.items()
        if data is None and file in draft.now
        for one in _ways(file, read_topic(draft.now[file], file).name)
        if one not in there
    }
    old = {_way(one) for data in draft.now.values() for one in wiki_links(_text(data))}
    for file in sorted({*draft.now, *draft.changes}):
        data = draft.after(file)
        if data is None or b"[[" not in data or not changeable(file) or not_text(data):
            continue
        if not gone and file not in draft.changes:
            continue
        leads = {name: "" if into == file else into for name, into in gone.items()}
        new = _mended(draft, _text(data), leads, there, old, file in draft.changes)
        if (mended := new.encode("utf-8", "surrogateescape")) != data:
            draft.changes[file] = mended


def _mended(
    draft: Draft,
    text: str,
    gone: Mapping[str, str],
    there: frozenset[str],
    old: set[str],
    ours: bool,
) -> str:
    plain = without_code(text)
    for found in reversed(list(_LINK.finditer(plain))):
        name, rest = found[1].strip(), found[2] or ""
        if _way(name) in there or slug(name) in there:
            continue
        into = gone.get(_way(name), gone.get(slug(name)))
        if into is None and (not ours or _way(name) in old):
            continue  # it led nowhere before
        shown = rest[1:].strip() if rest.startswith("|") else name
        if into and (data := draft.after(into)) is not None:
            new = f"[[{read_topic(data, into).name}{f'|{shown}' if rest.startswith('|') else ''}]]"
        else:
            new = shown or name
        text = text[: found.start()] + new + text[found.end() :]
    return text


def _names_after(draft: Draft, names: Mapping[str, str]) -> dict[str, str]:
    after = dict(names)
    for file, data in draft.changes.items():
        if data is None:
            after.pop(file, None)
        else:
            after[file] = read_topic(data, file).name
    return after


def _known_as(pairs: Iterable[tuple[str, str]]) -> frozenset[str]:
    return frozenset(way for file, name in pairs for way in _ways(file, name))


def _ways(file: str, name: str) -> set[str]:
    """Every way in which a link may name a memory."""
    path = PurePosixPath(file)
    named = {name, file, file.removesuffix(".md"), path.name, path.stem}
    return {*map(key, named), slug(name), slug(path.stem)} - {""}


def _way(name: str) -> str:
    return key(name.strip())


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
