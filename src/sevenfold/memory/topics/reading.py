"""Reading topic files: whatever the bytes are, there is a memory, with its flaws named.

Both `type: user` and `metadata: {type: user}` are read. A file without frontmatter is named after
itself and described by its first heading or sentence.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final, Literal, get_args

import msgspec

from sevenfold.memory.links import wiki_links
from sevenfold.memory.topics.entries import Entry, last
from sevenfold.memory.topics.frontmatter import Frontmatter, find_frontmatter, whole
from sevenfold.memory.topics.strict_yaml import PROSE

Type = Literal["user", "feedback", "project", "reference"]
TYPES: Final[tuple[Type, ...]] = get_args(Type)
LARGEST: Final = 1_000_000
"""Bytes of a file that are read; what lies behind them is kept and never looked at."""
DESCRIPTION: Final = 150
"""Characters of a description that is made from the text, because the file gives none."""

_LEADING: Final = re.compile(r"\A(?:[ \t]*\n)+")
_BREAKS: Final = re.compile(r"\r\n|\r")
_HEADING: Final = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t#]*$", re.MULTILINE)
_SENTENCE: Final = re.compile(r".+?(?:[.!?](?=\s|$)|[。！？]|$)")
_ID: Final = re.compile(r"\d{1,15}")
_REMARK: Final = re.compile(r"(?![\"'|>])[^\r\n]*?[ \t]#[^\s#]")
_MARKUP: Final = re.compile(r"^[\s>*+#-]+|\*\*|__|`")


class Origin(msgspec.Struct, frozen=True):
    """Where a memory comes from: kept in the frontmatter as `metadata.origin`."""

    session: str = ""
    entries: tuple[int, ...] = ()
    date: str = ""
    author: str = ""


class Topic(msgspec.Struct, frozen=True):
    """One memory, and the bytes it was read from."""

    file: str
    """The path below the memory folder, with `/`."""
    data: bytes
    name: str
    description: str
    type: Type | None
    body: str
    origin: Origin | None = None
    links: tuple[str, ...] = ()
    """The names in `[[name]]`."""
    problems: tuple[str, ...] = ()
    """What is not as it should be, in words."""


def read_topic(data: bytes, file: str) -> Topic:
    """The memory in these bytes; never raises."""
    stem = PurePosixPath(file).name.removesuffix(".md") or file
    if unreadable := not_text(data):
        return Topic(file, data, stem, "", None, "", problems=(unreadable,))
    text = decoded(data)
    found = find_frontmatter(text)
    entries = found.entries if found else ()
    problems = _flaws(data, text, found)
    body = trimmed(text[found.body if found else len(bom(text)) :])
    name = _prose(entries, "name", problems, found)
    description = _prose(entries, "description", problems, found)
    return Topic(
        file=file,
        data=data,
        name=name or stem,
        description=description or summary(body),
        type=_type(entries, problems),
        body=body,
        origin=_origin(entries),
        links=wiki_links(body),
        problems=tuple(problems),
    )


def not_text(data: bytes) -> str:
    """Why these bytes cannot be read as text; empty when they can."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "it is written in UTF-16; save it as UTF-8"
    if b"\0" in data[:LARGEST]:
        return "it is not text; a memory is a markdown file in UTF-8"
    return ""


def decoded(data: bytes) -> str:
    """The text that is read; bytes that are no UTF-8 are held as halves of characters."""
    return data[:LARGEST].decode("utf-8", "surrogateescape")


def bom(text: str) -> str:
    """The byte order mark that some editors put in front."""
    return text[:1] if text[:1] == "\ufeff" else ""


def trimmed(text: str) -> str:
    """A body as it is compared and shown: plain line breaks, no blank lines around it."""
    return _LEADING.sub("", _BREAKS.sub("\n", whole(text))).rstrip(" \t\n")


def summary(body: str) -> str:
    """One line that says what a text is about: its first heading, else its first sentence."""
    head = body[:5000]
    heading = _HEADING.search(head)
    line = heading[1] if heading else next((one for one in head.split("\n") if one.strip()), "")
    line = " ".join(_MARKUP.sub("", line).split())
    sentence = _SENTENCE.match(line)
    return shortened(sentence.group() if sentence and not heading else line, DESCRIPTION)


def shortened(text: str, limit: int) -> str:
    """The text on one line and within the limit, cut between words where that is near."""
    text = " ".join(text.split())
    if len(text) <= limit:
        return text
    cut = text[: max(limit - 1, 0)]
    space = cut.rfind(" ")
    return (cut[:space] if space > limit * 2 // 3 else cut).rstrip(" ,;:—-") + "…"


def _flaws(data: bytes, text: str, found: Frontmatter | None) -> list[str]:
    problems = []
    if not text.strip():
        problems.append("it is empty")
    if len(data) > LARGEST:
        problems.append(
            f"it has {len(data):,} bytes; only the first {LARGEST:,} are read, so split it up"
        )
    if whole(text) != text:
        problems.append("it is not all UTF-8; save it as UTF-8")
    if found is None:
        if text.strip():
            problems.append("it has no frontmatter with name, description and type")
        return problems
    if not found.closed:
        problems.append("its frontmatter has no closing '---'")
    if found.why:
        problems.append(f"its frontmatter is not valid YAML: {found.why}; put values in quotes")
    problems += [
        f"its {one.key} holds ' #', where YAML begins a remark; put it in quotes"
        for one in found.entries
        if one.key.casefold() in PROSE and _REMARK.match(text, one.start, one.end)
    ]
    keys = [one.key for one in found.entries]
    problems += [f"'{key[:40]}' stands twice" for key in dict.fromkeys(keys) if keys.count(key) > 1]
    return problems


def _prose(
    entries: tuple[Entry, ...], key: str, problems: list[str], found: Frontmatter | None
) -> str:
    entry = last(entries, key)
    value = entry.value if entry is not None else None
    if value is None and entry is not None and entry.items:
        value = ", ".join(entry.items)
        problems.append(f"its {key} is a list; one line of text is needed")
    elif found is not None and not (value or "").strip():
        problems.append(f"it has no {key}")
    return whole(value or "").strip()


def type_entries(entries: tuple[Entry, ...]) -> list[Entry]:
    """Where the type is written: at the top, under `metadata`, or both."""
    meta = last(entries, "metadata")
    found = [last(entries, "type"), last(meta.inner, "type") if meta else None]
    return [one for one in found if one is not None]


def _type(entries: tuple[Entry, ...], problems: list[str]) -> Type | None:
    written = [(one.value or "").strip() for one in type_entries(entries)]
    for value in written:
        for known in TYPES:
            if value.casefold() == known:
                return known
    named = next((value for value in written if value), "")
    if named:
        problems.append(f"'{named[:40]}' is no type; use {', '.join(TYPES)}")
    elif entries:
        problems.append(f"it has no type; use one of {', '.join(TYPES)}")
    return None


def origin_entry(entries: tuple[Entry, ...]) -> Entry | None:
    """Where the origin is written: under `metadata`, or at the top where that could not be."""
    meta = last(entries, "metadata")
    return (last(meta.inner, "origin") if meta else None) or last(entries, "origin")


def _origin(entries: tuple[Entry, ...]) -> Origin | None:
    entry = origin_entry(entries)
    if entry is not None and entry.inner:
        said = {one.key: (one.value or "").strip() for one in entry.inner}
        ids = last(entry.inner, "entries")
        return Origin(
            session=said.get("session", ""),
            entries=tuple(int(one) for one in (ids.items if ids else ()) if _ID.fullmatch(one)),
            date=said.get("date", ""),
            author=said.get("author", ""),
        )
    meta = last(entries, "metadata")
    session = last((*entries, *(meta.inner if meta else ())), "originsessionid")
    if session is not None and (session.value or "").strip():
        return Origin(session=(session.value or "").strip())
    return None
