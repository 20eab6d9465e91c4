"""Writing topic files: one thing changes, every other byte stays as it was.

A value is replaced in its place. Afterwards the result is read again: if it does not say what was
asked for (a block too broken to be mended in place), the known keys are written anew and the old
lines stay below them as comments.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from sevenfold.errors import Refused
from sevenfold.memory.topics.entries import Entry, last, line_start
from sevenfold.memory.topics.frontmatter import Frontmatter, find_frontmatter, line_break, whole
from sevenfold.memory.topics.reading import (
    LARGEST,
    Origin,
    Topic,
    Type,
    bom,
    decoded,
    not_text,
    origin_entry,
    read_topic,
    trimmed,
    type_entries,
)
from sevenfold.memory.topics.scalars import scalar

_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_BLANK_LINES: Final = re.compile(r"(?:[ \t]*(?:\r\n|\n|\r))*")
_BEFORE: Final = {"name": (), "description": ("name",), "type": ("description", "name")}


class _Edit(msgspec.Struct, frozen=True):
    start: int
    end: int
    text: str


def changed(
    topic: Topic,
    *,
    name: str | None = None,
    description: str | None = None,
    type: Type | None = None,
    body: str | None = None,
    origin: Origin | None = None,
) -> bytes:
    """The bytes of the topic with what is given changed; what is None or the same stays as it is."""
    wanted = msgspec.structs.replace(
        topic,
        name=_or(name, topic.name),
        description=_or(description, topic.description),
        type=type or topic.type,
        body=topic.body if body is None else trimmed(body),
        origin=origin or topic.origin,
    )
    keys = [
        key
        for key in ("name", "description", "type", "origin")
        if getattr(wanted, key) != getattr(topic, key)
    ]
    if not keys and wanted.body == topic.body:
        return topic.data
    if why := not_text(topic.data):
        raise Refused(f"{topic.file} cannot be changed in place: {why}")
    data = _edited(topic, wanted, keys)
    return data if _says(data, wanted, keys) else _anew(topic, wanted)


def new_topic(
    file: str,
    *,
    name: str,
    description: str,
    type: Type,
    body: str,
    origin: Origin | None = None,
) -> bytes:
    """The bytes of a new memory."""
    wanted = Topic(file, b"", _or(name, ""), _or(description, ""), type, trimmed(body), origin)
    text = f"---\n{_known(wanted, chr(10))}---\n"
    return encoded(text + (f"\n{wanted.body}\n" if wanted.body else ""))


def encoded(text: str) -> bytes:
    """The bytes of a text, with those that were no UTF-8 as they were."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # halves of characters that no file ever held
        return whole(text).encode("utf-8")


def _or(given: str | None, old: str) -> str:
    return old if given is None else whole(given).strip()


def _says(data: bytes, wanted: Topic, keys: list[str]) -> bool:
    new = read_topic(data, wanted.file)
    entries = _block(wanted)
    given = [key for key in ("name", "description") if key in keys or last(entries, key)]
    return all(
        getattr(new, key) == getattr(wanted, key) for key in [*given, "type", "origin", "body"]
    )


def _block(topic: Topic) -> tuple[Entry, ...]:
    found = find_frontmatter(decoded(topic.data))
    return found.entries if found else ()


def _edited(topic: Topic, wanted: Topic, keys: list[str]) -> bytes:
    text, rest = decoded(topic.data), topic.data[LARGEST:]
    found = find_frontmatter(text)
    begin = found.body if found else len(bom(text))
    if wanted.body != topic.body:
        text, rest = text[:begin] + _new_body(text, begin, topic.body, wanted.body), b""
    if found is None:
        if keys:
            mark, nl = bom(text), line_break(text)
            text = f"{mark}---{nl}{_known(wanted, nl)}---{nl}{nl}{text[len(mark) :]}"
        return encoded(text) + rest
    edits: list[_Edit] = []
    for key in keys:
        edits += _value_edits(text, found, key, wanted)
    edits.sort(key=lambda one: one.start)
    for edit in reversed(edits):  # from the end, so that the other places still hold
        text = text[: edit.start] + edit.text + text[edit.end :]
    return encoded(text) + rest


def _value_edits(text: str, found: Frontmatter, key: str, wanted: Topic) -> list[_Edit]:
    if key == "origin" and wanted.origin is not None:
        return [_origin_edit(text, found, wanted.origin)]
    value = str(getattr(wanted, key))
    places = type_entries(found.entries) if key == "type" else [last(found.entries, key)]
    edits = [_put(text, place, scalar(value, flow=key == "type")) for place in places if place]
    if edits:
        return edits
    at, margin = found.start, ""
    if found.entries:
        margin = _margin(text, found.entries[0])
    for before in _BEFORE[key]:
        if entry := last(found.entries, before):
            at = entry.after
            break
    else:
        at = found.end if key == "type" else at
    return [_line(text, at, f"{margin}{key}: {scalar(value)}")]


def _put(text: str, place: Entry, value: str) -> _Edit:
    """A value in place of another; the colon becomes one that YAML knows."""
    if text[place.colon - 1 : place.colon] == "：":
        return _Edit(place.colon - 1, place.end, f": {value}")
    return _Edit(place.colon, place.end, f" {value}")


def _line(text: str, at: int, line: str) -> _Edit:
    """A line of its own at this place, which is where a line begins or the end of the text."""
    nl = line_break(text)
    lead = "" if at == 0 or text[at - 1] in "\r\n" else nl
    return _Edit(at, at, f"{lead}{line}{nl}")


def _margin(text: str, entry: Entry) -> str:
    head = text[line_start(text, entry.line) : entry.colon]
    return head[: len(head) - len(head.lstrip(" \t"))]


def _origin_edit(text: str, found: Frontmatter, origin: Origin) -> _Edit:
    value = _flow(origin)
    if place := origin_entry(found.entries):
        return _put(text, place, value)
    meta = last(found.entries, "metadata")
    margin = _margin(text, found.entries[0]) if found.entries else ""
    nl = line_break(text)
    if meta is None:
        return _line(text, found.end, f"{margin}metadata:{nl}{margin}  origin: {value}")
    if meta.flow and meta.inner:
        end = meta.inner[-1].end
        return _Edit(end, end, f", origin: {value}")
    if meta.inner:
        return _line(text, meta.inner[-1].after, f"{_margin(text, meta.inner[0])}origin: {value}")
    if not (meta.value or "").strip() and not meta.items:
        return _Edit(meta.colon, meta.end, f"{nl}{margin}  origin: {value}")
    return _line(text, found.end, f"{margin}origin: {value}")


def _flow(origin: Origin) -> str:
    parts = []
    if origin.session:
        parts.append(f"session: {scalar(origin.session, flow=True)}")
    if origin.entries:
        parts.append(f"entries: [{', '.join(str(one) for one in origin.entries)}]")
    if origin.date:
        parts.append(f"date: {scalar(origin.date, flow=True)}")
    parts.append(f"author: {scalar(origin.author, flow=True)}")
    return f"{{{', '.join(parts)}}}"


def _known(topic: Topic, nl: str) -> str:
    """The lines of frontmatter that we know how to write."""
    lines = [f"name: {scalar(topic.name)}", f"description: {scalar(topic.description)}"]
    if topic.type is not None:
        lines.append(f"type: {topic.type}")
    if topic.origin is not None:
        lines += ["metadata:", f"  origin: {_flow(topic.origin)}"]
    return "".join(line + nl for line in lines)


def _new_body(text: str, begin: int, old: str, new: str) -> str:
    """The new body; the lines that it shares with the old one at both ends stay byte for byte."""
    raw = text[begin:]
    nl = line_break(text)
    blank = _BLANK_LINES.match(raw)
    lead = blank.group() if blank else ""
    core = raw[len(lead) :].rstrip(" \t\r\n")
    tail = raw[len(lead) + len(core) :] or nl
    if not new:
        return ""
    if not old:
        lead = lead or nl
        if begin and text[begin - 1] not in "\r\n":
            lead = nl + lead
        return lead + new.replace("\n", nl) + nl
    before, after = _LINE.findall(core), new.split("\n")
    was = old.split("\n") if len(old.split("\n")) == len(before) else []
    first = _shared(was, after)
    behind = _shared(was[first:][::-1], after[first:][::-1])
    lines = [
        *(_ended(line, nl) for line in before[:first]),
        *(line + nl for line in after[first : len(after) - behind]),
        *(_ended(line, nl) for line in before[len(before) - behind :]),
    ]
    return lead + "".join(lines).rstrip("\r\n") + tail


def _shared(one: list[str], other: list[str]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _ended(line: str, nl: str) -> str:
    return line if line.endswith(("\n", "\r")) else line + nl


def _anew(topic: Topic, wanted: Topic) -> bytes:
    """Known keys, then the old lines as comments, then the body: for what cannot be mended in place."""
    text = decoded(topic.data)
    found = find_frontmatter(text)
    nl = line_break(text)
    old = _LINE.findall(text[found.start : found.end]) if found else []
    remarks = "".join(f"# {line.rstrip(chr(13) + chr(10))}{nl}" for line in old)
    kept = text[found.body if found else len(bom(text)) :]
    body, rest = kept, topic.data[LARGEST:]
    if wanted.body != topic.body:
        body, rest = wanted.body.replace("\n", nl) + nl, b""
    head = f"{bom(text)}---{nl}{_known(wanted, nl)}{remarks}---{nl}{nl}"
    return encoded(head + body) + rest
