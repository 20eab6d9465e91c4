"""MEMORY.md, the index: one line for each memory, `- [Title](file.md) — hook`.

People write in it too: headings, prose, another order, another bullet. Only pointers are ever added or
removed here, every other line stays as it is, byte for byte.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from sevenfold.memory.folder.names import INDEX_NAME, make_file_key, make_slug
from sevenfold.memory.frontmatter import detect_line_break, strip_broken_characters
from sevenfold.memory.text.links import MarkdownLink, find_file_links, find_name_links, format_link_target
from sevenfold.memory.text.markdown import blank_out_code
from sevenfold.memory.topic_file import shorten_text

_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_ITEM_INDEX_ROWS: Final = re.compile(
    r"\ufeff?[ \t]*(?:>[ \t]*)?(?:[-*+•]|\d{1,3}[.)]|\|)[ \t]*(?:\[[ xX]\][ \t]*)?[^\w\s\[\]()#]{0,4}[ \t]*"
)
_BARE: Final = re.compile(r"\ufeff?[ \t]*(?:\*\*|__|\*|_)?")
_HOOK: Final = re.compile(r"(?:\*\*|__|\*|_)?[ \t]*(?:[—–:：|-].*|[ \t]*)", re.DOTALL)
_SEPARATORS: Final = " \t,;·|/+&*_、，；和"
_LEAD: Final = " \t—–-:：|*_"


class IndexPointer(msgspec.Struct, frozen=True):
    """A link from the index to a memory."""

    file: str
    title: str
    hook: str
    line: int  # Counted from 1


class MemoryIndex(msgspec.Struct, frozen=True):
    """An index as it stands."""

    lines: tuple[str, ...]  # Every line, with its line break
    pointers: tuple[IndexPointer, ...]
    mentions: tuple[IndexPointer, ...]
    """Links in the middle of hand-written lines: they count as pointing, and are never removed."""


class IndexRow(msgspec.Struct, frozen=True):
    """A line, with the indented text that continues it if it is a pointer."""

    text: str
    number: int
    count: int
    links: tuple[MarkdownLink, ...]
    pointing: bool
    by_name: bool  # True if it points with `[[name]]` and not with a file


def read_index(text: str) -> MemoryIndex:
    """Every line of an index, and where it points; never raises."""
    pointers: list[IndexPointer] = []
    mentions: list[IndexPointer] = []
    for row in split_rows(text):
        (pointers if row.pointing else mentions).extend(parse_pointers(row))
    return MemoryIndex(tuple(_LINE.findall(text)), tuple(pointers), tuple(mentions))


def parse_pointers(row: IndexRow) -> list[IndexPointer]:
    """The links of a row, each with what is said about it."""
    found: list[IndexPointer] = []
    end = len(row.text)
    for link in reversed(row.links):
        hook = row.text[link.end : end].strip().strip(_LEAD).strip()
        found.append(IndexPointer(link.file, link.title, hook, row.number))
        end = link.start
    return found[::-1]


def split_rows(text: str) -> list[IndexRow]:
    """The lines of an index, in order; joined, they are the text again."""
    lines, plain = _LINE.findall(text), _LINE.findall(blank_out_code(text))
    rows: list[IndexRow] = []
    at = 0
    while at < len(lines):
        files = find_file_links(plain[at])
        links = files or find_name_links(plain[at])
        pointing = bool(links) and _points(plain[at], links)
        count = 1
        while pointing and at + count < len(lines) and _continues(plain[at], plain[at + count]):
            count += 1
        whole = "".join(lines[at : at + count])
        rows.append(IndexRow(whole, at + 1, count, tuple(links), pointing, not files))
        at += count
    return rows


def has_text_between(text: str) -> bool:
    """True if more than a separator stands between two links of one line."""
    return bool(text.strip(_SEPARATORS)) and text.strip().casefold() not in {"and", "und", "or"}


def _points(line: str, links: list[MarkdownLink]) -> bool:
    before = line[: links[0].start]
    if _ITEM_INDEX_ROWS.fullmatch(before):
        return True
    behind = line[links[-1].end :].rstrip("\r\n")
    return _BARE.fullmatch(before) is not None and _HOOK.fullmatch(behind) is not None


def _continues(pointer: str, line: str) -> bool:
    """True for indented text below a pointer: part of the same list item."""
    stripped = line.strip()
    if not stripped or stripped[0] in "-*+•|#>`~" or stripped[0].isdigit() or "](" in line:
        return False
    return _depth(line) > _depth(pointer) + 1


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" \t\ufeff"))


INDEX: Final = INDEX_NAME
LINES: Final = 200
CHARACTERS: Final = 25_000
HOOK: Final = 150  # Characters that the line of one memory should not exceed
WARNING: Final = 700  # Characters that the line about a cut may have
_NAMED: Final = 8
_NAME: Final = 50
_UNLISTED: Final = re.compile(
    r"^- ([\d,]+) more memor(?:y is|ies are) not listed here; recall finds (?:it|them)[ \t]*"
    r"(?:\r\n|\n|\r|\Z)",
    re.MULTILINE,
)


def format_unlisted(count: int) -> str:
    """The last line of an index that has no room for all memories."""
    if count == 1:
        return "- 1 more memory is not listed here; recall finds it"
    return f"- {count:,} more memories are not listed here; recall finds them"


UNLISTED: Final = len(format_unlisted(1_000_000)) + 2  # Characters that are kept free for that line


def split_unlisted(text: str) -> tuple[str, int]:
    """An index without the line of `format_unlisted`, and the number in that line; 0: there is none."""
    if not (found := _UNLISTED.search(text)):
        return text, 0
    return _UNLISTED.sub("", text), int(found[1].replace(",", ""))


def list_exceeded_limits(text: str) -> list[str]:
    """The limits that a text exceeds, in words."""
    count, more = sum(row.count for row in split_rows(text)), len(text) - CHARACTERS
    over = [f"{count:,} lines, {count - LINES:,} over the limit of {LINES}"] if count > LINES else []
    if more > 0:
        over.append(f"{len(text):,} characters, {more:,} over the limit of {CHARACTERS:,}")
    return over


class LoadedIndex(msgspec.Struct, frozen=True):
    """An index within its limits, and the warning about what was left out; empty: it is whole."""

    text: str
    warning: str = ""


def load_index(text: str, modified: Mapping[str, float], file: str = INDEX) -> LoadedIndex:
    """The index as a session sees it; `modified` says when each topic file was last changed.

    Within the limits it is the text itself. Otherwise pointers go, those to the oldest files first
    (to files that are not there before all), and where that is not enough, hand-written lines from
    the end; the order of what stays is kept, and the last line says what is missing.
    """
    if not (over := list_exceeded_limits(text)):
        return LoadedIndex(text)
    text, unlisted = split_unlisted(text)
    over = list_exceeded_limits(text) or over
    rows = split_rows(text)
    times = {make_file_key(file): at for file, at in modified.items()}
    gone = _gone(rows, [_time(row, times) for row in rows])
    kept = "".join(row.text for at, row in enumerate(rows) if at not in gone)
    kept = kept if kept.strip() else _beginning(text)
    lead = "" if not kept or kept.endswith(("\n", "\r")) else "\n"
    said = describe_cut(over, [rows[at] for at in sorted(gone)], unlisted)
    warning = f"{file} has {said}. The files themselves are still in the folder"
    return LoadedIndex(
        f"{kept}{lead}> Warning: {warning}: search there, and shorten the index.\n",
        f"{warning}, and recall finds them: shorten the index, or let a dream do it",
    )


def _beginning(text: str) -> str:
    """Of one endless line as much as there is room for, cut at a space if it has one."""
    cut = " ".join(text.split()) if len(text) < 1 << 20 else text[: 2 * CHARACTERS]
    cut = cut[: CHARACTERS - WARNING].replace("\n", " ").replace("\r", " ")
    space = cut.rfind(" ")
    return cut[:space] if space > 0 else cut


def _time(row: IndexRow, times: Mapping[str, float]) -> float:
    """The time of the newest memory of a line."""
    known = [times.get(make_file_key(f"{one.file}.md" if row.by_name else one.file)) for one in row.links]
    return max((at for at in known if at is not None), default=-math.inf)


def _gone(rows: list[IndexRow], times: list[float]) -> set[int]:
    """The rows that have to go so that the rest and the warning fit."""
    count = sum(row.count for row in rows) - (LINES - 1)
    size = sum(len(row.text) for row in rows) - (CHARACTERS - WARNING)
    pointers = [at for at, row in enumerate(rows) if row.pointing]
    pointers.sort(key=lambda at: (times[at], at))
    by_hand = [at for at, row in reversed(list(enumerate(rows))) if not row.pointing]
    endless = [at for at, row in enumerate(rows) if len(row.text) > CHARACTERS - WARNING]
    enough = (
        sum(rows[at].count for at in pointers) >= count
        and sum(len(rows[at].text) for at in {*pointers, *endless}) >= size
    )
    order = [*endless, *pointers, *by_hand] if enough else [*endless, *by_hand, *pointers]
    gone: set[int] = set()
    for at in order:
        if count <= 0 and size <= 0:
            break
        if at not in gone:
            gone.add(at)
            count -= rows[at].count
            size -= len(rows[at].text)
    return gone


def describe_cut(over: list[str], gone: list[IndexRow], unlisted: int) -> str:
    """The limits that are exceeded, and the lines that are left out: how many, and which."""
    files = [link.file[:_NAME] for row in gone if row.pointing for link in row.links]
    by_hand = [row for row in gone if not row.pointing and row.text.strip()]
    parts = []
    if files:
        more = f" and {len(files) - _NAMED:,} more" if len(files) > _NAMED else ""
        which = "pointer" if len(files) == 1 else "pointers, to the oldest memories,"
        parts.append(f"{len(files):,} {which} left out: {', '.join(files[:_NAMED])}{more}")
    if by_hand:
        which = "line" if len(by_hand) == 1 else "lines"
        parts.append(f"{len(by_hand):,} other {which} left out, from line {by_hand[0].number:,} on")
    if unlisted:
        parts.append(f"{unlisted:,} more memor{'y has' if unlisted == 1 else 'ies have'} no line in it")
    return f"{' and '.join(over)}; {'; '.join(parts) or 'its end is left out'}"


TITLE: Final = 80
SHORTEST_HOOK: Final = 20
_BULLET: Final = re.compile(r"[ \t]*([-*+])[ \t]")
_ITEMS: Final = ("- ", "* ", "+ ")
_ITEM: Final = re.compile(r"\s*(?:[-*+•|#>]|\d{1,3}[.)])")


class IndexTarget(Protocol):
    """The data of a pointer; a `Topic` is one."""

    @property
    def file(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...


class _KnownFiles(msgspec.Struct, frozen=True):
    """The files there are, by every way a link may name them."""

    files: dict[str, str]
    names: dict[str, str]

    def file(self, link: MarkdownLink, *, by_name: bool) -> str | None:
        if not by_name:
            return self.files.get(make_file_key(link.file))
        return self.names.get(make_file_key(link.file)) or self.files.get(make_file_key(f"{link.file}.md"))


def reconcile_index(text: str, topics: Iterable[IndexTarget], also: Collection[str] = ()) -> str:
    """The index with a pointer for every topic, none to a file that is not there, and nothing said twice.

    A pointer to a file that is not there becomes text: it may be the only place that says so. Those to
    files that were removed go with `drop_pointers` before. `also` are files that exist and may be pointed
    to but need no pointer here (another index has it). The text is returned as it is when nothing has to
    change. It may be over the limit: `fit_index` makes it fit.
    """
    topics = list(topics)
    known = _known([(one.file, one.name) for one in topics], also)
    kept: list[str] = []
    seen: dict[str, list[IndexPointer]] = {}
    for row in split_rows(text):
        files = [known.file(link, by_name=row.by_name) for link in row.links]
        said = [(file, one) for file, one in zip(files, parse_pointers(row), strict=True) if file]
        repeats = all(_repeats(one, seen.get(file, [])) for file, one in said)
        if row.pointing and repeats and (said or not any(map(_says_more, parse_pointers(row)))):
            continue
        for file, one in said:
            seen.setdefault(file, []).extend([one] if row.pointing else [])
        kept.append(row.text if None not in files or not row.pointing else _as_text(row, files))
    return _with("".join(kept), [one for one in topics if one.file not in seen])


def drop_pointers(text: str, files: Iterable[str]) -> str:
    """The index without its pointers to these files, by file or by name, each with what it says."""
    gone = {make_file_key(file) for file in files}
    gone |= {file.removesuffix(".md") for file in gone}
    kept: list[str] = []
    for row in split_rows(text) if gone else ():
        left = [None if make_file_key(link.file) in gone else link.file for link in row.links]
        if not row.pointing or any(left):
            kept.append(_without(row, left) if row.pointing and None in left else row.text)
    return "".join(kept) if gone else text


def find_dead_pointers(text: str, names: Mapping[str, str]) -> list[str]:
    """The files, or names, that an index points to and that are none of these, which are names by file."""
    known = _known(((file, name) for file, name in names.items() if name), names)
    rows = [row for row in split_rows(text) if row.pointing]
    return [link.file for row in rows for link in row.links if not known.file(link, by_name=row.by_name)]


def _says_more(pointer: IndexPointer) -> bool:
    """True if a pointer says more than the name of its file."""
    return bool(pointer.hook) or make_slug(pointer.title) != make_slug(pointer.file.removesuffix(".md"))


def _as_text(row: IndexRow, files: list[str | None]) -> str:
    """The line with the titles of its dead links in their place."""
    text = row.text
    for link, file in reversed(list(zip(row.links, files, strict=True))):
        if file is None:
            text = text[: link.start] + (link.title or link.file) + text[link.end :]
    return text


def _repeats(pointer: IndexPointer, earlier: list[IndexPointer]) -> bool:
    """True if it says no more than an earlier one; the user may list a file under two headings."""
    return any(
        not pointer.hook or pointer.hook == one.hook or pointer.title.casefold() == one.title.casefold()
        for one in earlier
    )


def find_missing_pointers(
    text: str, files: Iterable[str], names: Iterable[tuple[str, str]] = ()
) -> list[str]:
    """The files that the index does not point to: only they have to be read.

    `names` are (file, name) pairs, for indexes that point with `[[name]]`.
    """
    files = list(files)
    known = _known(names, files)
    found = {known.file(link, by_name=row.by_name) for row in split_rows(text) for link in row.links}
    return [file for file in files if file not in found]


def format_pointer(topic: IndexTarget, bullet: str = "-") -> str:
    """The line for one memory, at most `HOOK` characters unless its title and file alone are longer."""
    start = f"{bullet} {format_pointer_link(topic.file, topic.name)}"
    hook, room = _harmless(topic.description), max(HOOK - len(start) - len(" — "), SHORTEST_HOOK)
    return f"{start} — {shorten_text(hook, room)}" if hook else start


def format_pointer_link(file: str, name: str) -> str:
    """The link of such a line."""
    title = shorten_text(_harmless(name).replace("[", "(").replace("]", ")"), TITLE)
    title += " " * title.endswith("\\")  # a backslash would escape the bracket behind it
    return f"[{title}]({format_link_target(file)})"


def _harmless(text: str) -> str:
    """Escape a text so that it does not look like a link or like code."""
    text = strip_broken_characters(text)
    for link, plain in (("`", "'"), ("](", "] ("), ("[[", "["), ("]]", "]")):
        text = text.replace(link, plain)
    return " ".join(text.split())


def _known(pairs: Iterable[tuple[str, str]], also: Iterable[str]) -> _KnownFiles:
    files = {make_file_key(file): file for file in also}
    names: dict[str, str] = {}
    for file, name in pairs:
        files[make_file_key(file)] = file
        names.setdefault(make_file_key(name), file)
    return _KnownFiles(files, names)


def _without(row: IndexRow, files: list[str | None]) -> str:
    """The line without its dead links, each with what belongs to it."""
    text = row.text
    for at in reversed(range(len(row.links))):
        if files[at] is not None:
            continue
        link, before = row.links[at], row.links[at - 1].end
        if at + 1 < len(row.links):
            text = text[: link.start] + text[row.links[at + 1].start :]
        elif has_text_between(row.text[before : link.start]):
            ending = row.text[len(row.text.rstrip("\r\n")) :]
            text = text[: link.start].rstrip(" \t,;·|/+&、，；") + ending
        else:
            text = text[:before] + text[link.end :]
    return text


def _with(text: str, topics: list[IndexTarget]) -> str:
    """The text with these pointers at its end, in its own style."""
    if not topics:
        return text
    start, bullet, nl = begin_list(text)
    return start + "".join(format_pointer(topic, bullet) + nl for topic in topics)


def begin_list(text: str) -> tuple[str, str, str]:
    """The text so that a list item may follow, and the bullet and the line break that it uses."""
    end = text.removesuffix("\n").rpartition("\n")[2]
    if end[:2] in _ITEMS and "](" in end and text.endswith("\n") and "\r" not in text:
        return text, end[0], "\n"  # it ends as we leave it
    nl = detect_line_break(text)
    lines = text.rstrip().splitlines()
    bullets = [found[1] for row in split_rows(text) if row.pointing and (found := _BULLET.match(row.text))]
    last = lines[-1].lstrip("\ufeff") if lines else ""
    if last and not text.endswith(("\n", "\r")):
        text += nl
    if last and lines[-1] == text.splitlines()[-1] and _ITEM.match(last) is None:
        text += nl  # prose: a list begins behind a blank line
    return text, bullets[-1] if bullets else "-", nl
