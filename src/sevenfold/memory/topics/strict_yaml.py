"""Frontmatter that is YAML: read by PyYAML's event stream, with the place of every value.

Events, not loaded objects: nothing is built from tags, deep nesting costs no stack, every value stays
the text that a person wrote (`no`, `2026-06-18` and `007` are texts here), and keys that stand twice
can be seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from sevenfold.memory.topics.entries import Entry, line_end, line_start

if TYPE_CHECKING:
    from yaml.events import Event, ScalarEvent

DEEPEST: Final = 6
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


class NotYaml(Exception):
    """Why a strict reader would not take this block, and in which of its lines (0: not known)."""

    def __init__(self, why: str, line: int = 0) -> None:
        super().__init__(why)
        self.line = line


def read_strict(text: str) -> tuple[Entry, ...]:
    """The entries of a block that is one YAML mapping; raises `NotYaml` with the reason if it is not."""
    import yaml

    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    if _OTHER_BREAKS.search(text):
        raise NotYaml("it holds line breaks that YAML counts and people do not see")
    if text.count("[") + text.count("{") > MOST_BRACKETS:
        raise NotYaml("it holds too many brackets")
    try:
        events = list(yaml.parse(text, Loader=loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        why = error.problem or "it cannot be read"
        raise NotYaml(_PLAINLY.get(why, why), mark.line + 1 if mark else 0) from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise NotYaml("it holds characters that YAML does not allow") from error
    _check_aliases(events)
    return _document(text, iter(events))


def _check_aliases(events: list[Event]) -> None:
    """`*important*` at the start of a value is an alias to YAML; one that leads nowhere is none."""
    from yaml.events import AliasEvent

    anchors = {
        getattr(event, "anchor", None) for event in events if not isinstance(event, AliasEvent)
    }
    for event in events:
        if isinstance(event, AliasEvent) and event.anchor not in anchors:
            raise NotYaml(f"'*{event.anchor}' refers to nothing")


def _document(text: str, events: Iterator[Event]) -> tuple[Entry, ...]:
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
    raise NotYaml("it is not one list of keys and values")


def _mapping(text: str, events: Iterator[Event], depth: int, *, flow: bool) -> tuple[Entry, ...]:
    from yaml.events import MappingEndEvent, ScalarEvent

    entries: list[Entry] = []
    for event in events:
        if isinstance(event, MappingEndEvent):
            break
        key = event.value if isinstance(event, ScalarEvent) else None
        behind = _end(event)
        if key is None:
            behind = _skip(event, events)
        entry = _entry(text, events, key or "", _start(event), behind, depth, flow)
        if key is not None:
            entries.append(entry)
    return tuple(entries)


def _entry(
    text: str, events: Iterator[Event], key: str, at: int, behind: int, depth: int, flow: bool
) -> Entry:
    from yaml.events import MappingStartEvent, ScalarEvent, SequenceStartEvent

    event = next(events)
    start, end = _start(event), _end(event)
    value: str | None = None
    inner: tuple[Entry, ...] = ()
    items: tuple[str, ...] = ()
    bracketed = bool(getattr(event, "flow_style", False))
    if isinstance(event, ScalarEvent):
        value, end = _scalar(text, event, key, flow)
    elif isinstance(event, MappingStartEvent) and depth < DEEPEST:
        inner = _mapping(text, events, depth + 1, flow=bracketed)
        end = _end_of(text, end, inner, "}", bracketed)
    elif isinstance(event, SequenceStartEvent):
        items, end = _items(events, end, bracketed)
    else:
        end = _skip(event, events)
    end = max(start, _without_break(text, start, end))
    colon = text.find(":", behind) + 1 or behind
    return Entry(
        key=key, value=value, colon=min(colon, start), start=start, end=end,
        line=line_start(text, at), after=line_end(text, end), inner=inner, items=items, flow=bracketed,
    )  # fmt: skip


def _scalar(text: str, event: ScalarEvent, key: str, flow: bool) -> tuple[str, int]:
    """The value and its end. In prose, what YAML takes for markup is what the writer wrote."""
    value, start, end = event.value, _start(event), _end(event)
    if key.casefold() not in PROSE or flow or event.style not in {None, ""}:
        return value, end
    if event.tag is not None:
        value = text[
            start:end
        ]  # "!important: …" is a tag to YAML and an exclamation to everybody else
    tail = _TAIL.match(text, end)
    if tail is not None and value:
        return value + tail.group().rstrip(), tail.end()  # "fixed in #12" goes on behind the "#"
    return value, end


def _end_of(text: str, end: int, inner: tuple[Entry, ...], bracket: str, flow: bool) -> int:
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
    """Past a value that nobody asks for, however deep it goes; where it ends."""
    from yaml.events import CollectionEndEvent, CollectionStartEvent

    end, depth = _end(event), int(isinstance(event, CollectionStartEvent))
    while depth:
        event = next(events)
        end = _end(event)
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
    return end


def _without_break(text: str, start: int, end: int) -> int:
    return start + len(text[start:end].rstrip(" \t\r\n"))


def _start(event: Event) -> int:
    mark = event.start_mark
    return mark.index if mark is not None else 0


def _end(event: Event) -> int:
    mark = event.end_mark
    return mark.index if mark is not None else 0
