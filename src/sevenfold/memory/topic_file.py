"""Topic files: one memory each, as markdown with a few lines of frontmatter.

Reading never fails: a file with flaws is a memory with its problems named. Writing changes one thing and
leaves every other byte as it was.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Final, Literal, get_args

import msgspec

from sevenfold.core.errors import Refused
from sevenfold.memory.frontmatter import (
    PROSE,
    Frontmatter,
    FrontmatterEntry,
    detect_line_break,
    find_frontmatter,
    find_last_entry,
    find_line_start,
    format_scalar,
    strip_broken_characters,
)
from sevenfold.memory.text.links import find_wiki_links

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
    """The origin of a memory, kept in the frontmatter as `metadata.origin`."""

    session: str = ""
    entries: tuple[int, ...] = ()
    date: str = ""
    author: str = ""


class Topic(msgspec.Struct, frozen=True):
    """One memory, and the bytes it was read from."""

    file: str  # The path below the memory folder, with `/`
    data: bytes
    name: str
    description: str
    type: Type | None
    body: str
    origin: Origin | None = None
    links: tuple[str, ...] = ()  # The names in `[[name]]`
    problems: tuple[str, ...] = ()  # Problems of the file, a sentence each


@lru_cache(maxsize=8)  # one write reads the same bytes at each of its steps
def read_topic(data: bytes, file: str) -> Topic:
    """The memory in these bytes; never raises."""
    stem = PurePosixPath(file).name.removesuffix(".md") or file
    if unreadable := explain_not_text(data):
        return Topic(file, data, stem, "", None, "", problems=(unreadable,))
    text = decode_text(data)
    found = find_frontmatter(text)
    entries = found.entries if found else ()
    problems = _flaws(data, text, found)
    body = trim_body(text[found.body if found else len(find_bom(text)) :])
    return Topic(
        file=file,
        data=data,
        name=_prose(entries, "name", problems, found) or stem,
        description=_prose(entries, "description", problems, found) or summarise_body(body),
        type=_type(entries, problems),
        body=body,
        origin=_origin(entries),
        links=find_wiki_links(body),
        problems=tuple(problems),
    )


def explain_not_text(data: bytes) -> str:
    """The reason these bytes are not text; empty if they are."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "it is written in UTF-16; save it as UTF-8"
    if b"\0" in data[:LARGEST]:
        return "it is not text; a memory is a markdown file in UTF-8"
    return ""


def decode_text(data: bytes) -> str:
    """The text that is read; bytes that are no UTF-8 are held as halves of characters."""
    return data[:LARGEST].decode("utf-8", "surrogateescape")


def find_bom(text: str) -> str:
    """The byte order mark that some editors put in front."""
    return text[:1] if text[:1] == "\ufeff" else ""


def trim_body(text: str) -> str:
    """A body as it is compared and shown: plain line breaks, no blank lines around it."""
    return _LEADING.sub("", _BREAKS.sub("\n", strip_broken_characters(text))).rstrip(" \t\n")


def summarise_body(body: str) -> str:
    """One line that says what a text is about: its first heading, else its first sentence."""
    head = body[:5000]
    heading = _HEADING.search(head)
    line = heading[1] if heading else next((one for one in head.split("\n") if one.strip()), "")
    line = " ".join(_MARKUP.sub("", line).split())
    sentence = _SENTENCE.match(line)
    return shorten_text(sentence.group() if sentence and not heading else line, DESCRIPTION)


def shorten_text(text: str, limit: int) -> str:
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
        problems.append(f"it has {len(data):,} bytes; only the first {LARGEST:,} are read, so split it up")
    if strip_broken_characters(text) != text:
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
    entries: tuple[FrontmatterEntry, ...], key: str, problems: list[str], found: Frontmatter | None
) -> str:
    entry = find_last_entry(entries, key)
    value = entry.value if entry is not None else None
    if value is None and entry is not None and entry.items:
        value = ", ".join(entry.items)
        problems.append(f"its {key} is a list; one line of text is needed")
    elif found is not None and not (value or "").strip():
        problems.append(f"it has no {key}")
    return strip_broken_characters(value or "").strip()


def find_type_entries(entries: tuple[FrontmatterEntry, ...]) -> list[FrontmatterEntry]:
    """The entries that hold the type: at the top, under `metadata`, or both."""
    meta = find_last_entry(entries, "metadata")
    found = [find_last_entry(entries, "type"), find_last_entry(meta.inner, "type") if meta else None]
    return [one for one in found if one is not None]


def _type(entries: tuple[FrontmatterEntry, ...], problems: list[str]) -> Type | None:
    written = [(one.value or "").strip() for one in find_type_entries(entries)]
    for value in written:
        for known in TYPES:
            if value.casefold() == known:
                return known
    if named := next(filter(None, written), ""):
        problems.append(f"'{named[:40]}' is no type; use {', '.join(TYPES)}")
    elif entries:
        problems.append(f"it has no type; use one of {', '.join(TYPES)}")
    return None


def find_origin_entry(entries: tuple[FrontmatterEntry, ...]) -> FrontmatterEntry | None:
    """The entry that holds the origin: under `metadata`, else at the top."""
    meta = find_last_entry(entries, "metadata")
    return (find_last_entry(meta.inner, "origin") if meta else None) or find_last_entry(entries, "origin")


def _origin(entries: tuple[FrontmatterEntry, ...]) -> Origin | None:
    entry = find_origin_entry(entries)
    if entry is not None and entry.inner:
        said = {one.key: (one.value or "").strip() for one in entry.inner}
        ids = find_last_entry(entry.inner, "entries")
        return Origin(
            session=said.get("session", ""),
            entries=tuple(int(one) for one in (ids.items if ids else ()) if _ID.fullmatch(one)),
            date=said.get("date", ""),
            author=said.get("author", ""),
        )
    meta = find_last_entry(entries, "metadata")
    session = find_last_entry((*entries, *(meta.inner if meta else ())), "originsessionid")
    if session is not None and (session.value or "").strip():
        return Origin(session=(session.value or "").strip())
    return None


_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_BLANK_LINES: Final = re.compile(r"(?:[ \t]*(?:\r\n|\n|\r))*")
_BEFORE: Final = {"name": (), "description": ("name",), "type": ("description", "name")}


class _TextEdit(msgspec.Struct, frozen=True):
    start: int
    end: int
    text: str


def change_topic(
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
        body=topic.body if body is None else trim_body(body),
        origin=origin or topic.origin,
    )
    editable = ("name", "description", "type", "origin")
    keys = [key for key in editable if getattr(wanted, key) != getattr(topic, key)]
    if not keys and wanted.body == topic.body:
        return topic.data
    if why := explain_not_text(topic.data):
        raise Refused(f"{topic.file} cannot be changed in place: {why}")
    data = _edited(topic, wanted, keys)
    return data if _says(data, wanted, keys) else _anew(topic, wanted)


def encode_new_topic(
    file: str, *, name: str, description: str, type: Type, body: str, origin: Origin | None = None
) -> bytes:
    """The bytes of a new memory."""
    wanted = Topic(file, b"", _or(name, ""), _or(description, ""), type, trim_body(body), origin)
    text = f"---\n{_known(wanted, chr(10))}---\n"
    return encode_text(text + (f"\n{wanted.body}\n" if wanted.body else ""))


def encode_text(text: str) -> bytes:
    """The bytes of a text, with those that were no UTF-8 as they were."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # halves of characters that no file ever held
        return strip_broken_characters(text).encode("utf-8")


def _or(given: str | None, old: str) -> str:
    return old if given is None else strip_broken_characters(given).strip()


def _says(data: bytes, wanted: Topic, keys: list[str]) -> bool:
    new, found = read_topic(data, wanted.file), find_frontmatter(decode_text(wanted.data))
    entries = found.entries if found else ()
    given = [key for key in ("name", "description") if key in keys or find_last_entry(entries, key)]
    return all(getattr(new, key) == getattr(wanted, key) for key in [*given, "type", "origin", "body"])


def _edited(topic: Topic, wanted: Topic, keys: list[str]) -> bytes:
    text, rest = decode_text(topic.data), topic.data[LARGEST:]
    found = find_frontmatter(text)
    begin = found.body if found else len(find_bom(text))
    if wanted.body != topic.body:
        text, rest = text[:begin] + _new_body(text, begin, topic.body, wanted.body), b""
    if found is None:
        if keys:
            mark, nl = find_bom(text), detect_line_break(text)
            text = f"{mark}---{nl}{_known(wanted, nl)}---{nl}{nl}{text[len(mark) :]}"
        return encode_text(text) + rest
    edits = [edit for key in keys for edit in _value_edits(text, found, key, wanted)]
    edits.sort(key=lambda one: one.start)
    for edit in reversed(edits):  # from the end, so that the other places still hold
        text = text[: edit.start] + edit.text + text[edit.end :]
    return encode_text(text) + rest


def _value_edits(text: str, found: Frontmatter, key: str, wanted: Topic) -> list[_TextEdit]:
    if key == "origin" and wanted.origin is not None:
        return [_origin_edit(text, found, wanted.origin)]
    value = str(getattr(wanted, key))
    places = find_type_entries(found.entries) if key == "type" else [find_last_entry(found.entries, key)]
    edits = [_put(text, place, format_scalar(value, flow=key == "type")) for place in places if place]
    if edits:
        return edits
    margin = _margin(text, found.entries[0]) if found.entries else ""
    above = [entry.after for one in _BEFORE[key] if (entry := find_last_entry(found.entries, one))]
    at = above[0] if above else found.end if key == "type" else found.start
    return [_line(text, at, f"{margin}{key}: {format_scalar(value)}")]


def _put(text: str, place: FrontmatterEntry, value: str) -> _TextEdit:
    """A value in place of another; the colon becomes one that YAML knows."""
    if text[place.colon - 1 : place.colon] == "：":
        return _TextEdit(place.colon - 1, place.end, f": {value}")
    return _TextEdit(place.colon, place.end, f" {value}")


def _line(text: str, at: int, line: str) -> _TextEdit:
    """A line of its own at this place, which is where a line begins or the end of the text."""
    nl = detect_line_break(text)
    lead = "" if at == 0 or text[at - 1] in "\r\n" else nl
    return _TextEdit(at, at, f"{lead}{line}{nl}")


def _margin(text: str, entry: FrontmatterEntry) -> str:
    head = text[find_line_start(text, entry.line) : entry.colon]
    return head[: len(head) - len(head.lstrip(" \t"))]


def _origin_edit(text: str, found: Frontmatter, origin: Origin) -> _TextEdit:
    value = _flow(origin)
    if place := find_origin_entry(found.entries):
        return _put(text, place, value)
    meta = find_last_entry(found.entries, "metadata")
    margin = _margin(text, found.entries[0]) if found.entries else ""
    nl = detect_line_break(text)
    if meta is None:
        return _line(text, found.end, f"{margin}metadata:{nl}{margin}  origin: {value}")
    if meta.flow and meta.inner:
        return _TextEdit(meta.inner[-1].end, meta.inner[-1].end, f", origin: {value}")
    if meta.inner:
        return _line(text, meta.inner[-1].after, f"{_margin(text, meta.inner[0])}origin: {value}")
    if not (meta.value or "").strip() and not meta.items:
        return _TextEdit(meta.colon, meta.end, f"{nl}{margin}  origin: {value}")
    return _line(text, found.end, f"{margin}origin: {value}")


def _flow(origin: Origin) -> str:
    parts = [
        f"session: {format_scalar(origin.session, flow=True)}" if origin.session else "",
        f"entries: [{', '.join(map(str, origin.entries))}]" if origin.entries else "",
        f"date: {format_scalar(origin.date, flow=True)}" if origin.date else "",
        f"author: {format_scalar(origin.author, flow=True)}",
    ]
    return f"{{{', '.join(filter(None, parts))}}}"


def _known(topic: Topic, nl: str) -> str:
    """The lines of frontmatter that we know how to write."""
    lines = [f"name: {format_scalar(topic.name)}", f"description: {format_scalar(topic.description)}"]
    if topic.type is not None:
        lines.append(f"type: {topic.type}")
    if topic.origin is not None:
        lines += ["metadata:", f"  origin: {_flow(topic.origin)}"]
    return "".join(line + nl for line in lines)


def _new_body(text: str, begin: int, old: str, new: str) -> str:
    """The new body; the lines that it shares with the old one at both ends stay byte for byte."""
    raw, nl = text[begin:], detect_line_break(text)
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
    text = decode_text(topic.data)
    found, nl = find_frontmatter(text), detect_line_break(text)
    old = _LINE.findall(text[found.start : found.end]) if found else []
    remarks = "".join(f"# {line.rstrip(chr(13) + chr(10))}{nl}" for line in old)
    body, rest = text[found.body if found else len(find_bom(text)) :], topic.data[LARGEST:]
    if wanted.body != topic.body:
        body, rest = wanted.body.replace("\n", nl) + nl, b""
    head = f"{find_bom(text)}---{nl}{_known(wanted, nl)}{remarks}---{nl}{nl}"
    return encode_text(head + body) + rest
