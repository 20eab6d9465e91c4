"""What of a removed memory's frontmatter comes along: the keys that are not ours are kept too."""

from __future__ import annotations

from typing import Final

import msgspec

from sevenfold.memory.topic import Origin, Topic, changed, read_topic
from sevenfold.memory.topics.changes import encoded
from sevenfold.memory.topics.entries import Entry, last
from sevenfold.memory.topics.frontmatter import find_frontmatter, line_break
from sevenfold.memory.topics.reading import decoded

_OURS: Final = frozenset(["name", "description", "type", "metadata", "origin"])
_INNER: Final = frozenset(["type", "origin", "originsessionid", "node_type"])


def with_keys_of(kept: Topic, gone: Topic) -> tuple[Topic, list[str]]:
    """The memory with the other's keys that it lacks, and as sentences those that it has otherwise."""
    text = decoded(kept.data)
    told: list[str] = []
    for entry, raw in _foreign(gone):
        mine = _found(kept, entry.key)
        if mine is not None and _value(mine, text) == _value(entry, raw):
            continue
        new = None if mine is not None else _added(kept, entry, raw)
        if new is not None:
            kept, text = new, decoded(new.data)
        elif entry.key.casefold() != "originsessionid":
            told.append(f"{entry.key}: {_value(entry, raw)}")
    return kept, told


def joined_origin(kept: Topic, gone: Topic) -> Topic:
    """The origin of the one that is kept; where it has none, that of the other."""
    mine, other = kept.origin, gone.origin
    if other is None:
        return kept
    origin = mine or other
    if mine is not None and mine.session and mine.session == other.session:
        entries = tuple(sorted({*mine.entries, *other.entries}))
        origin = msgspec.structs.replace(mine, entries=entries)
    if origin == mine or not _writable(kept) or not _told(origin):
        return kept
    return read_topic(changed(kept, origin=origin), kept.file)


def _told(origin: Origin) -> bool:
    """Whether an origin says more than the id of a session of another program."""
    return bool(origin.date or origin.author)


def _writable(topic: Topic) -> bool:
    found = find_frontmatter(decoded(topic.data))
    return found is not None and found.closed and not found.why


def _foreign(topic: Topic) -> list[tuple[Entry, str]]:
    """The entries that are not ours, with the text they stand in."""
    text = decoded(topic.data)
    found = find_frontmatter(text)
    if found is None:
        return []
    meta = last(found.entries, "metadata")
    inner = meta.inner if meta else ()
    outer = [one for one in found.entries if one.key.casefold() not in _OURS]
    return [(one, text) for one in [*outer, *inner] if one.key.casefold() not in _INNER]


def _found(topic: Topic, key: str) -> Entry | None:
    found = find_frontmatter(decoded(topic.data))
    if found is None:
        return None
    meta = last(found.entries, "metadata")
    return last((*found.entries, *(meta.inner if meta else ())), key.casefold())


def _value(entry: Entry, text: str) -> str:
    """A value in one line."""
    if entry.value is not None:
        return " ".join(entry.value.split())
    return " ".join(text[entry.start : entry.end].split())


def _added(topic: Topic, entry: Entry, raw: str) -> Topic | None:
    """The memory with this entry at the end of its frontmatter; None when that cannot be done safely."""
    text = decoded(topic.data)
    found = find_frontmatter(text)
    if found is None or not _writable(topic) or "&" in raw[entry.start : entry.end][:1]:
        return None
    nl = line_break(text)
    lines = raw[entry.line : entry.after].splitlines()
    margin = len(lines[0]) - len(lines[0].lstrip())
    if any(line[:margin].strip() for line in lines):
        return None
    block = "".join(line[margin:] + nl for line in lines)
    data = encoded(text[: found.end] + block + text[found.end :]) + topic.data[len(encoded(text)) :]
    new = read_topic(data, topic.file)
    same = all(
        getattr(new, each) == getattr(topic, each)
        for each in ("name", "description", "type", "origin", "body")
    )
    mine = _found(new, entry.key)
    fits = mine is not None and _value(mine, decoded(new.data)) == _value(entry, raw)
    return new if same and fits and _writable(new) else None
