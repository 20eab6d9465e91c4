"""Links that led to a memory that was merged or moved lead to where it is now, in memories and index."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Final

import msgspec

from sevenfold.memory.consolidation.staged import StagedFiles
from sevenfold.memory.consolidation.statements import with_text
from sevenfold.memory.dreams.facts import stated
from sevenfold.memory.dreams.shelf import Shelf
from sevenfold.memory.folder.naming import key, slug
from sevenfold.memory.index_rows import pointers_of, rows_of
from sevenfold.memory.indexing import ARCHIVE
from sevenfold.memory.links import file_links, local_file, target, without_code
from sevenfold.memory.topic import Topic, changed
from sevenfold.memory.topics.changes import encoded
from sevenfold.memory.topics.reading import decoded, not_text, shortened

_WIKI: Final = re.compile(
    r"(?<![\[!])\[\[(?![\s\[])([^\[\]|#\n]{1,200})([|#][^\[\]\n]{0,200})?\]\](?!\])"
)
_BARE: Final = re.compile(r"[\s\-*+>|,;.:()\[\]]*")


class Move(msgspec.Struct, frozen=True):
    """A memory that is somewhere else now."""

    old: Topic
    new: Topic


def relink(files: StagedFiles, moves: list[Move]) -> None:
    """Every link to a memory that is gone leads to the one that has what it said."""
    if not moves:
        return
    still = frozenset(way for topic in files.active() for way in _ways(topic))
    gone = {way: move for move in moves for way in _ways(move.old) - still}
    for topic in files.active():
        if not_text(topic.data) or not (b"[[" in topic.data or b"](" in topic.data):
            continue
        text = decoded(topic.data)
        new = _wiki(text, gone)
        for move in moves:
            new = relinked(new, move.old.file, move.new.file)
        if new != text:
            files.put(topic.file, encoded(new) + topic.data[len(encoded(text)) :])
    files.index = _repointed(files, {key(move.old.file): move for move in moves})


def _repointed(files: StagedFiles, moves: dict[str, Move]) -> str:
    """The index without the lines of memories that are gone; what only those lines said is kept."""
    rows = rows_of(files.index)
    pointed = {key(link.file) for row in rows for link in row.links}
    out: list[str] = []
    for row in rows:
        text = row.text
        mine = [(one, moves[key(one.file)]) for one in pointers_of(row) if key(one.file) in moves]
        if row.pointing and len(row.links) == 1 and mine:
            pointer, move = mine[0]
            if key(move.new.file) in pointed or move.new.file.startswith(ARCHIVE):
                keep_hook(files, move.new.file, pointer.hook)
                continue
            pointed.add(key(move.new.file))
        for _, move in mine:
            text = relinked(text, move.old.file, move.new.file)
        out.append(text)
    return "".join(out)


def keep_hook(files: StagedFiles, file: str, hook: str) -> None:
    """What a line of the index says and its memory does not is added to the memory."""
    topic = files.topic(file)
    text = " ".join(hook.split())
    if not text.strip("…. ") or says(topic, text):
        return
    line = text if text[-1:] in ".!?。！？" else f"{text}."
    files.put(file, changed(topic, body=with_text(topic.body, line)))


def says(topic: Topic, text: str) -> bool:
    """Whether a memory says what a hook says; one that was cut short is part of its description."""
    cut = text.rstrip("…").strip()
    if cut != text and shortened(topic.description, len(text)).startswith(cut):
        return True
    plain = " ".join(f"{topic.name} {topic.description} {topic.body}".split()).casefold()
    if cut.casefold().rstrip(".") in plain:
        return True
    sought = stated(f"{cut}\n".encode(), topic.file)
    shelf = Shelf({topic.file: topic.data})
    return bool(sought) and all(shelf.holder(one) for one in sought)


def linked(files: StagedFiles, topic: Topic) -> int:
    """How many other memories link to this one."""
    ways = _ways(topic)
    return sum(
        other.file != topic.file and any(_way(link) in ways for link in other.links)
        for other in files.active()
    )


def _ways(topic: Topic) -> frozenset[str]:
    return _named(topic.file, topic.name)


@lru_cache(maxsize=20_000)
def _named(file: str, name: str) -> frozenset[str]:
    """Every way in which a link may name a memory."""
    path = PurePosixPath(file)
    named = {name, file, file.removesuffix(".md"), path.name, path.stem}
    return frozenset({*map(_way, named), slug(name), slug(path.stem)} - {""})


def _way(name: str) -> str:
    return key(name.strip())


def _wiki(text: str, gone: Mapping[str, Move]) -> str:
    if "[[" not in text:
        return text
    plain = without_code(text)
    for found in reversed(list(_WIKI.finditer(plain))):
        name, rest = found[1].strip(), found[2] or ""
        move = gone.get(_way(name)) or gone.get(slug(name))
        if move is None:
            continue
        by_name = _way(name) == _way(move.old.name)
        into = move.new.name if by_name else PurePosixPath(move.new.file).stem
        shown = rest if rest.startswith("|") else ""
        if not shown and _stands_alone(plain, found):
            shown = f"|{name}"  # the name is all that this line says
        text = text[: found.start()] + f"[[{into}{shown}]]" + text[found.end() :]
    return text


def _stands_alone(text: str, found: re.Match[str]) -> bool:
    start = text.rfind("\n", 0, found.start()) + 1
    end = text.find("\n", found.end())
    line = text[start : found.start()] + text[found.end() : end if end >= 0 else len(text)]
    return _BARE.fullmatch(_WIKI.sub("", line)) is not None


def relinked(text: str, old: str, new: str) -> str:
    """A text whose markdown links to one file lead to another; a link never spans lines."""
    if "](" not in text or not _mentions(text, old):
        return text
    lines, plain = text.split("\n"), without_code(text).split("\n")
    for at, line in enumerate(plain):
        for link in reversed(file_links(line)):
            if key(link.file) == key(old):
                raw = lines[at]
                aimed = _aimed(raw[link.start : link.end], new)
                lines[at] = raw[: link.start] + aimed + raw[link.end :]
    return "\n".join(lines)


def _mentions(text: str, file: str) -> bool:
    """Whether a link to this file may be there at all; most texts have none."""
    name = file.rpartition("/")[2]
    return not name.isascii() or name.casefold() in text.casefold() or "%" in text


def _aimed(link: str, new: str) -> str:
    """The same link to another file."""
    head, _, behind = link.rpartition("](")
    place = target(new)
    titled = re.search(r"[ \t]+(\"[^\"\n]*\"|'[^'\n]*')[ \t]*\)$", behind)
    tail = f" {titled[1]}" if titled else ""
    made = f"{head}]({place}{tail})"
    return made if local_file(place.strip("<>")) else link
