"""Reads the frontmatter of a memory file, and rewrites it without changing other bytes.

Lenient on purpose: a memory with a flaw in its first lines is still a memory. A block that is not quite
YAML is read line by line, so that one bad line costs one value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from yaml.events import Event, ScalarEvent


class FrontmatterEntry(msgspec.Struct, frozen=True):
    """One `key: value`, with its places as offsets into the text it was read from."""

    key: str
    value: str | None  # The text of a plain value; None for a list, a mapping or an alias
    colon: int  # Just behind the colon
    start: int
    end: int  # The value, without the line break behind it
    line: int  # The start of the line with the key
    after: int  # Just behind the line on which the value ends
    inner: tuple[FrontmatterEntry, ...] = ()
    items: tuple[str, ...] = ()
    flow: bool = False  # True if the value is written with brackets: `{type: user}`

    def moved(self, by: int) -> FrontmatterEntry:
        """The same entry, read from a text that begins `by` characters earlier."""
        return msgspec.structs.replace(
            self,
            colon=self.colon + by,
            start=self.start + by,
            end=self.end + by,
            line=self.line + by,
            after=self.after + by,
            inner=tuple(one.moved(by) for one in self.inner),
        )


def find_last_entry(entries: Iterable[FrontmatterEntry], key: str) -> FrontmatterEntry | None:
    """The entry with this key, in whatever case; written twice, the last one counts."""
    return next((one for one in reversed(list(entries)) if one.key.casefold() == key), None)


def find_line_start(text: str, at: int) -> int:
    """The start of the line that holds this position."""
    return max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1


def find_line_end(text: str, at: int) -> int:
    """Just behind the line break that ends the line of this place, or the end of the text."""
    for here in range(at, len(text)):
        if text[here] == "\n":
            return here + 1
        if text[here] == "\r":
            return here + (2 if text[here + 1 : here + 2] == "\n" else 1)
    return len(text)


DEEPEST_STRICT_YAML: Final = 6
MOST_BRACKETS: Final = 500
"""The parser's time grows with the square of the depth: what nests deeper is not asked."""
PROSE: Final = frozenset({"name", "description"})
_TAIL: Final = re.compile(r"[ \t]+#[^\s#][^\r\n]*")
_OTHER_BREAKS: Final = re.compile("[\x85\u2028\u2029]")


_PLAINLY: Final = {
    "mapping values are not allowed in this context": "a value holds a colon",
    "found character that cannot start any token": "a value begins with a character that YAML reserves",
    "did not find expected key": "something follows behind a closed quote, or is not indented",
    "found unexpected end of stream": "a quote is never closed",
    "could not find expected ':'": "a line has no key",
    "found a tab character that violates indentation": "a line is indented with a tab",
}


class FrontmatterError(Exception):
    """The reason a strict reader refuses this block, and the line in it (0: not known)."""

    def __init__(self, why: str, line: int = 0) -> None:
        super().__init__(why)
        self.line = line


_VALUE: Final = r'"[^"\\\n]*"|\w(?:[^:#{}\[\]\n]*[^:#{}\[\]\n ])?'
_IN_FLOW: Final = _VALUE.replace(r"\[", r",\[")
_PAIRS: Final = rf"[A-Za-z_]+: (?:{_IN_FLOW})(?:, [A-Za-z_]+: (?:{_IN_FLOW}))*"
_SIMPLE: Final = re.compile(rf"(  )?([A-Za-z_]+):(?: (?:({_VALUE})|(\{{{_PAIRS}\}})))?\n")
_SIMPLE_PAIR: Final = re.compile(rf"([A-Za-z_]+): ({_IN_FLOW})")


def read_simple(text: str) -> tuple[FrontmatterEntry, ...] | None:
    """What `read_yaml` finds in a block as most are written, without loading it; None for any other."""
    found: list[FrontmatterEntry] = []
    at = 0
    if not text.replace("\n", "").isprintable():
        return None
    while at < len(text):
        line = _SIMPLE.match(text, at)
        open_above = bool(found) and found[-1].value is None and not found[-1].flow
        if line is None or (line[1] and not (open_above and (line[3] or line[4]))):
            return None
        pairs = _SIMPLE_PAIR.finditer(text, line.start(4), line.end(4)) if line[4] else ()
        inner = tuple(_make_simple(pair, 1, 2, line) for pair in pairs)
        one = _make_simple(line, 2, 4 if inner else 3, line, inner)
        if line[1]:  # it belongs to the key above
            above, last = found.pop(), one
            start, inner = above.start if above.inner else line.start(2), (*above.inner, last)
            one = msgspec.structs.replace(above, start=start, end=last.end, after=last.after, inner=inner)
        found.append(one)
        at = line.end()
    return None if any(one.value is None and not one.inner for one in found) else tuple(found)


def _make_simple(
    match: re.Match[str], key: int, at: int, line: re.Match[str], inner: tuple[FrontmatterEntry, ...] = ()
) -> FrontmatterEntry:
    value: str | None = None if inner else match[at]
    return FrontmatterEntry(
        key=match[key], value=value[1:-1] if value and value[0] == '"' else value, colon=match.end(key) + 1,
        start=match.start(at), end=match.end(at), line=line.start(), after=line.end(), inner=inner,
        flow=bool(inner),
    )  # fmt: skip


def read_strict(text: str) -> tuple[FrontmatterEntry, ...]:
    """The entries of a block that is one YAML mapping; `FrontmatterError` with the reason if it is not."""
    simple = read_simple(text)
    return read_yaml(text) if simple is None else simple


def read_yaml(text: str) -> tuple[FrontmatterEntry, ...]:
    """The same by a YAML reader, which takes long to load."""
    import yaml

    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    if _OTHER_BREAKS.search(text):
        raise FrontmatterError("it holds line breaks that YAML counts and people do not see")
    if text.count("[") + text.count("{") > MOST_BRACKETS:
        raise FrontmatterError("it holds too many brackets")
    try:
        events = list(yaml.parse(text, Loader=loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        why = error.problem or "it cannot be read"
        raise FrontmatterError(_PLAINLY.get(why, why), mark.line + 1 if mark else 0) from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise FrontmatterError("it holds characters that YAML does not allow") from error
    _check_aliases(events)
    return _document(text, iter(events))


def _check_aliases(events: list[Event]) -> None:
    """`*important*` at the start of a value is an alias to YAML; one that leads nowhere is none."""
    from yaml.events import AliasEvent

    anchors = {getattr(event, "anchor", None) for event in events if not isinstance(event, AliasEvent)}
    for event in events:
        if isinstance(event, AliasEvent) and event.anchor not in anchors:
            raise FrontmatterError(f"'*{event.anchor}' refers to nothing")


def _document(text: str, events: Iterator[Event]) -> tuple[FrontmatterEntry, ...]:
    from yaml.events import DocumentStartEvent, MappingStartEvent, StreamEndEvent, StreamStartEvent

    for event in events:
        if isinstance(event, StreamStartEvent | DocumentStartEvent):
            continue
        if isinstance(event, StreamEndEvent):
            return ()
        if not isinstance(event, MappingStartEvent) or event.flow_style:
            break
        entries = _mapping(text, events, 0, flow=False)
        next(events, None)  # the end of the document
        if isinstance(next(events, None), StreamEndEvent):
            return entries
        break
    raise FrontmatterError("it is not one list of keys and values")


def _mapping(text: str, events: Iterator[Event], depth: int, *, flow: bool) -> tuple[FrontmatterEntry, ...]:
    from yaml.events import MappingEndEvent, ScalarEvent

    entries: list[FrontmatterEntry] = []
    for event in events:
        if isinstance(event, MappingEndEvent):
            break
        key = event.value if isinstance(event, ScalarEvent) else None
        behind = _skip(event, events)
        entry = _entry_strict_yaml(text, events, key or "", _start(event), behind, depth, flow)
        if key is not None:
            entries.append(entry)
    return tuple(entries)


def _entry_strict_yaml(
    text: str, events: Iterator[Event], key: str, at: int, behind: int, depth: int, flow: bool
) -> FrontmatterEntry:
    from yaml.events import MappingStartEvent, ScalarEvent, SequenceStartEvent

    event = next(events)
    start, end = _start(event), _end(event)
    value: str | None = None
    inner: tuple[FrontmatterEntry, ...] = ()
    items: tuple[str, ...] = ()
    bracketed = bool(getattr(event, "flow_style", False))
    if isinstance(event, ScalarEvent):
        value, end = _scalar(text, event, key, flow)
    elif isinstance(event, MappingStartEvent) and depth < DEEPEST_STRICT_YAML:
        inner = _mapping(text, events, depth + 1, flow=bracketed)
        end = _end_of(text, end, inner, "}", bracketed)
    elif isinstance(event, SequenceStartEvent):
        items, end = _items(events, end, bracketed)
    else:
        end = _skip(event, events)
    end = max(start, start + len(text[start:end].rstrip(" \t\r\n")))
    colon = text.find(":", behind) + 1 or behind
    return FrontmatterEntry(
        key=key, value=value, colon=min(colon, start), start=start, end=end,
        line=find_line_start(text, at), after=find_line_end(text, end), inner=inner, items=items,
        flow=bracketed,
    )  # fmt: skip


def _scalar(text: str, event: ScalarEvent, key: str, flow: bool) -> tuple[str, int]:
    """The value and its end. In prose, what YAML takes for markup is what the writer wrote."""
    value, start, end = event.value, _start(event), _end(event)
    if key.casefold() not in PROSE or flow or event.style not in {None, ""}:
        return value, end
    if event.tag is not None:
        value = text[start:end]  # "!important: …" is a tag to YAML and an exclamation to everybody else
    tail = _TAIL.match(text, end)
    if tail is not None and value:
        return value + tail.group().rstrip(), tail.end()  # "fixed in #12" goes on behind the "#"
    return value, end


def _end_of(text: str, end: int, inner: tuple[FrontmatterEntry, ...], bracket: str, flow: bool) -> int:
    last = max((one.end for one in inner), default=end)
    if not flow:
        return last
    closing = text.find(bracket, last)
    return closing + 1 if closing >= 0 else last


def _items(events: Iterator[Event], end: int, flow: bool) -> tuple[tuple[str, ...], int]:
    from yaml.events import ScalarEvent, SequenceEndEvent

    items: list[str] = []
    for event in events:
        if isinstance(event, SequenceEndEvent):
            return tuple(items), _end(event) if flow else end
        if isinstance(event, ScalarEvent):
            items.append(event.value)
            end = _end(event)
        else:
            end = _skip(event, events)
    return tuple(items), end


def _skip(event: Event, events: Iterator[Event]) -> int:
    """Skip a value that is not needed, however deep; returns its end."""
    from yaml.events import CollectionEndEvent, CollectionStartEvent

    end, depth = _end(event), int(isinstance(event, CollectionStartEvent))
    while depth:
        event = next(events)
        end = _end(event)
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
    return end


def _start(event: Event) -> int:
    return event.start_mark.index if event.start_mark is not None else 0


def _end(event: Event) -> int:
    return event.end_mark.index if event.end_mark is not None else 0


DEEPEST: Final = 2  # The depth to which nested keys are read: `metadata`, `origin` and its fields
_INDENT: Final = re.compile(r"[ \t]*")
_KEY: Final = re.compile(
    r"""[ \t]*(?P<quote>["']?)(?P<key>[\w$@.][\w$@./ -]{0,60})(?P=quote)[ \t]*:(?=[ \t\r\n]|\Z)"""
)
_KNOWN: Final = re.compile(
    r"""[ \t]*(?P<quote>["']?)(?P<key>name|description|type|metadata)(?P=quote)[ \t]*[:：]""", re.IGNORECASE
)
_BLOCK: Final = re.compile(r"[|>][+-]?\d?[+-]?[ \t]*(?:#.*)?")
_PAIR: Final = re.compile(r"""["']?(\w[\w-]{0,60})["']?\s*:\s*([^,{}\[\]\r\n]*)""")
_ESCAPES: Final = re.compile(r"\\(.)", re.DOTALL)


def match_key(line: str) -> re.Match[str] | None:
    """The match of a line that begins a `key: value`; known keys may be written more freely."""
    return _KEY.match(line) or _KNOWN.match(line)


def count_indent(line: str) -> int:
    """The indent of a line; a tab counts as one."""
    found = _INDENT.match(line)
    return found.end() if found else 0


def read_loose(text: str, depth: int = 0) -> tuple[FrontmatterEntry, ...]:
    """The entries of a block, whatever its state; never raises."""
    return tuple(entry for part, at in _parts(text) if (entry := _entry(part, at, depth)) is not None)


def _parts(text: str) -> list[tuple[str, int]]:
    """The block, cut in front of every key that stands as far left as the first one."""
    cuts: list[int] = []
    depth, at = -1, 0
    while at < len(text):
        after = find_line_end(text, at)
        line = text[at:after]
        if match_key(line) and (depth < 0 or count_indent(line) <= depth):
            depth = count_indent(line) if depth < 0 else depth
            cuts.append(at)
        at = after
    return [(text[one:end], one) for one, end in pairwise([*cuts, len(text)])]


def _entry(part: str, at: int, depth: int) -> FrontmatterEntry | None:
    try:
        strict = read_strict(part)
    except FrontmatterError:
        strict = ()
    if len(strict) == 1:
        return strict[0].moved(at)
    found = match_key(part)
    return _scanned(part, found, depth).moved(at) if found else None


def _scanned(part: str, found: re.Match[str], depth: int) -> FrontmatterEntry:
    colon = found.end()
    used = _without_remarks(part, colon)
    first_end = find_line_end(part, colon)
    first = part[colon:first_end].strip()
    below = part[first_end:used] if used > first_end else ""
    value: str | None
    inner: tuple[FrontmatterEntry, ...] = ()
    items: tuple[str, ...] = ()
    start = min(used, colon + len(part[colon:]) - len(part[colon:].lstrip(" \t\r\n")))
    if not first and below:
        if depth < DEEPEST:
            inner = tuple(one.moved(first_end) for one in read_loose(below, depth + 1))
        items = tuple(line.strip()[1:].strip() for line in below.splitlines() if line.strip()[:1] == "-")
        value = None if inner or items else _plain(below)
    elif _BLOCK.fullmatch(first):
        value = _block(below, folded=first[0] == ">")
    else:
        value = _plain(part[colon:used])
        if first[:1] == "{":
            inner, value = _pairs(part, start, used), None
    return FrontmatterEntry(
        key=found["key"].strip(), value=value, colon=colon, start=start, end=max(used, start), line=0,
        after=find_line_end(part, max(used, start)), inner=inner, items=items, flow=first[:1] in {"{", "["},
    )  # fmt: skip


def _without_remarks(part: str, colon: int) -> int:
    """The end of the value, without the blank lines and comments behind it."""
    end = len(part)
    while True:
        end = len(part[:end].rstrip())
        if end <= colon:
            return colon
        line = find_line_start(part, end)
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
        return _ESCAPES.sub(r"\1", inside[:-1]) if mark == '"' else inside[:-1]
    return text


def _block(below: str, *, folded: bool) -> str:
    lines = below.splitlines()
    depth = min((count_indent(line) for line in lines if line.strip()), default=0)
    return (" " if folded else "\n").join(line[depth:].rstrip() for line in lines).strip()


def _pairs(part: str, start: int, end: int) -> tuple[FrontmatterEntry, ...]:
    """The pairs of `{type: user, …` that is not valid YAML."""
    return tuple(
        FrontmatterEntry(
            key=pair[1], value=_plain(pair[2]), colon=pair.start(2), start=pair.start(2),
            end=pair.start(2) + len(pair[2].rstrip()), line=0, after=find_line_end(part, pair.end()),
        )
        for pair in _PAIR.finditer(part, start, end)
    )  # fmt: skip


LONGEST: Final = 64 * 1024  # Characters in which the closing line is looked for

_OPENING: Final = re.compile(r"\ufeff?(?:[ \t]*(?:\r\n|\n|\r))*---[ \t]*(?:\r\n|\n|\r|\Z)")
_HEADING: Final = re.compile(r"#{1,6}[ \t]")
_HALVES: Final = re.compile("[\x00\ud800-\udfff]")
_BREAK: Final = re.compile(r"\r\n|\n|\r")


class Frontmatter(msgspec.Struct, frozen=True):
    """The block at the top of a file; the places are offsets into the file's text."""

    start: int
    end: int  # The lines between the two `---`
    body: int  # The start of the body, behind the closing line
    closed: bool
    entries: tuple[FrontmatterEntry, ...] = ()
    why: str = ""  # The reason a strict YAML reader refuses it; empty if it does not


class _FrontmatterLine(msgspec.Struct, frozen=True):
    text: str
    at: int
    after: int


def find_frontmatter(text: str) -> Frontmatter | None:
    """The frontmatter of a text, or None when it has none; never raises."""
    opening = _OPENING.match(text)
    if opening is None:
        return None
    start = opening.end()
    lines, closing = _until_closing(text, start)
    if closing is not None and not _swallows_a_heading(lines):
        found = _read(text, start, closing)
        if not found.why or not _begins_body(lines):
            return found if _fits(lines) else None
    lines = _without_prose(lines)
    if not lines or not _fits(lines):
        return None
    return _read(text, start, _FrontmatterLine("", lines[-1].after, lines[-1].after), closed=False)


def strip_broken_characters(text: str) -> str:
    """The text without NULs and halves of characters, which stand for bytes that are no UTF-8."""
    return _HALVES.sub("\ufffd", text)


def detect_line_break(text: str) -> str:
    """The line break of this text."""
    found = _BREAK.search(text)
    return found.group() if found else "\n"


def _read(text: str, start: int, closing: _FrontmatterLine, *, closed: bool = True) -> Frontmatter:
    """The entries of a block, and the reason it is not YAML, if so."""
    block, why = strip_broken_characters(text[start : closing.at]), ""
    try:
        entries = read_strict(block)
    except FrontmatterError as no:
        entries = read_loose(block)
        line = no.line + len(_BREAK.findall(text, 0, start))
        why = f"{no} (line {line})" if no.line else str(no)
    moved = tuple(one.moved(start) for one in entries)
    return Frontmatter(start, closing.at, closing.after, closed, moved, why)


def _until_closing(text: str, at: int) -> tuple[list[_FrontmatterLine], _FrontmatterLine | None]:
    lines: list[_FrontmatterLine] = []
    limit = min(len(text), at + LONGEST)
    while at < limit:
        after = find_line_end(text, at)
        line = _FrontmatterLine(text[at:after].rstrip("\r\n"), at, after)
        if line.text.rstrip() in {"---", "..."}:
            return lines, line
        lines.append(line)
        at = after
    return lines, None


def _fits(lines: list[_FrontmatterLine]) -> bool:
    """True if these lines can be frontmatter: the first that is not blank has a key."""
    for line in lines:
        if line.text.strip() and line.text.lstrip()[0] != "#":
            return match_key(line.text) is not None
    return not any(line.text.strip() for line in lines)


def _begins_body(lines: list[_FrontmatterLine]) -> bool:
    """True if prose stands between the two `---`: then the first was never closed."""
    blank = True
    for line in lines:
        belongs = count_indent(line.text) > 0 or line.text[:1] in {"#", "-"} or match_key(line.text)
        if blank and line.text.strip() and not belongs:
            return True
        blank = not line.text.strip()
    return False


def _swallows_a_heading(lines: list[_FrontmatterLine]) -> bool:
    """A heading is a comment to YAML. Between blank lines, or with no key after it, it begins the body."""
    blank = keys = heading = False
    for line in lines:
        empty = not line.text.strip()
        if heading and empty:
            return True
        if match_key(line.text):
            keys, heading = True, False
        elif blank and keys and _HEADING.match(line.text):
            heading = True
        blank = empty
    return heading


def _without_prose(lines: list[_FrontmatterLine]) -> list[_FrontmatterLine]:
    """The first lines, up to the first that is blank or has no key, as far as they can be a block."""
    kept: list[_FrontmatterLine] = []
    for line in lines:
        if not (match_key(line.text) or (kept and count_indent(line.text) and line.text.strip())):
            break
        kept.append(line)
    return kept


_WORD: Final = re.compile(r"[^\W_]")
_UNSAFE_INSIDE: Final = re.compile(r":(?:\s|$)|\s#|\s$|[\u2028\u2029\x85]")
_FLOW: Final = frozenset(",[]{}")
_OTHER_TYPES: Final = frozenset(
    ["y", "n", "yes", "no", "true", "false", "on", "off", "null", "nan", "inf", "infinity"]
)
"""Words that YAML reads as something other than a text."""
_NUMBER_OR_DATE: Final = re.compile(r"\d[\d_.:a-fA-FxXoOtTzZ+\- ]*")
_ESCAPED: Final = re.compile('["\\\\\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]')
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def format_scalar(text: str, *, flow: bool = False) -> str:
    """The text as a YAML scalar on one line; `flow` when it stands inside `{}` or `[]`."""
    if _is_plain(text) and not (flow and _FLOW.intersection(text)):
        return text
    if _ESCAPED.search(text) is None:
        return f'"{text}"'
    if "'" not in text and _ESCAPED.search(text.replace('"', "").replace("\\", "")) is None:
        return f"'{text}'"
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _is_plain(text: str) -> bool:
    if _WORD.match(text[:1]) is None or _UNSAFE_INSIDE.search(text):
        return False
    if _ESCAPED.search(text.replace('"', "").replace("\\", "")):
        return False
    return text.lower() not in _OTHER_TYPES and _NUMBER_OR_DATE.fullmatch(text) is None


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if match[0] in _SHORT:
        return _SHORT[match[0]]
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"  # half a character: no file can hold it
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
