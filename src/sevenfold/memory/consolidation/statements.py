"""What a memory says, sentence by sentence, with the place of each, so that one can be replaced.

The cut is that of the loss report (`dreams.sentences`): what is one statement there is one here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Literal

import msgspec

from sevenfold.memory.dreams.sentences import sentences_of
from sevenfold.memory.topic import Topic, changed
from sevenfold.memory.topics.entries import last
from sevenfold.memory.topics.frontmatter import find_frontmatter
from sevenfold.memory.topics.reading import decoded

_HEADING: Final = re.compile(r"[ ]{0,3}#{1,6}[ \t]+(.*?)[ \t#]*")
_ITEM: Final = re.compile(r"[ \t]*(?:>[ \t]*)*(?:[-*+•]|\d{1,3}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?")
_QUOTE: Final = re.compile(r"[ \t]*(?:>[ \t]*)+")
_FENCE: Final = re.compile(r"[ \t]*(`{3,}|~{3,})")
_RULE: Final = re.compile(r"[ \t]*(?:[-*_=][ \t]*){3,}|[ \t|:-]+")
_BLANK: Final = re.compile(r"\n{3,}")

Field = Literal["description", "body"]


class Statement(msgspec.Struct, frozen=True):
    """One sentence of a memory, where it stands."""

    field: Field
    start: int
    end: int
    """Its place in the description or in the body."""
    text: str
    under: str = ""
    """The heading above it."""
    form: Literal["prose", "heading", "row", "code", "quote"] = "prose"
    """Only prose is ever rewritten."""
    lines: tuple[int, int] = (0, 0)
    """The lines of its paragraph or list item, when it is all of that; else (0, 0)."""


@lru_cache(maxsize=5_000)
def statements(topic: Topic) -> tuple[Statement, ...]:
    """The description, when the file gives one, then the body."""
    found = _sentences("description", description(topic), 0, "")
    return (*found, *body_statements(topic.body))


@lru_cache(maxsize=5_000)
def description(topic: Topic) -> str:
    """What stands in the file as description; empty when it was made up from the body."""
    block = find_frontmatter(decoded(topic.data))
    entry = last(block.entries, "description") if block else None
    return topic.description if entry is not None and (entry.value or "").strip() else ""


def body_statements(body: str) -> list[Statement]:
    """The sentences of a body in their order."""
    reader = _Reader(body)
    found: list[Statement] = []
    at = 0
    for line in body.split("\n"):
        found += reader.line(line, at)
        at += len(line) + 1
    return [*found, *reader.close()]


def replaced(topic: Topic, statement: Statement, text: str) -> bytes:
    """The file with another sentence in this place; an empty one takes the sentence out."""
    if statement.field == "description":
        whole = description(topic)
        new = whole[: statement.start] + text + whole[statement.end :]
        return changed(topic, description=new if new.strip() else None)
    body = topic.body
    if text:
        return changed(topic, body=body[: statement.start] + text + body[statement.end :])
    return changed(topic, body=without(body, [statement]))


def without(body: str, gone: list[Statement]) -> str:
    """The body without some sentences, and without the list items or headings they leave empty."""
    for one in sorted(gone, key=lambda one: -one.start):
        start, end = one.lines if one.lines != (0, 0) else (one.start, one.end)
        if one.lines != (0, 0):
            end += body[end : end + 1] == "\n"
            body = _without_bare_heading(body[:start], body[end:])
        else:
            behind = body[end:]
            body = body[:start] + behind.lstrip(" ") if behind.strip(" ") else body[:start].rstrip()
    return _BLANK.sub("\n\n", body).strip("\n")


def with_text(body: str, text: str) -> str:
    """The body with a paragraph more: at its end, but not below a heading that stands there alone."""
    lines = body.rstrip().split("\n")
    if _ends_in_code(lines):
        return f"{text}\n\n{body}"
    end = len(lines)
    while end and (not lines[end - 1].strip() or _HEADING.fullmatch(lines[end - 1])):
        end -= 1
    parts = ["\n".join(lines[:end]).rstrip(), text, "\n".join(lines[end:]).strip("\n")]
    return "\n\n".join(part for part in parts if part)


def _ends_in_code(lines: list[str]) -> bool:
    open_with = ""
    for line in lines:
        fence = _FENCE.match(line)
        if fence and not open_with:
            open_with = fence[1]
        elif fence and fence[1].startswith(open_with):
            open_with = ""
    return bool(open_with)


def _without_bare_heading(before: str, behind: str) -> str:
    """A heading that has nothing below it any more goes too."""
    lines = before.rstrip().split("\n")
    following = behind.lstrip().split("\n", 1)[0]
    last = not following or _HEADING.fullmatch(following) is not None
    if last and _HEADING.fullmatch(lines[-1]) and _level(following) <= _level(lines[-1]):
        before = "\n".join(lines[:-1]) + "\n\n"
    return before + behind


def _level(heading: str) -> int:
    return len(heading.strip()) - len(heading.strip().lstrip("#"))


class _Reader:
    """Follows the lines of a body and gives out each block when it is complete."""

    def __init__(self, body: str) -> None:
        self._body = body
        self._under = ""
        self._fence = ""
        self._open: list[tuple[int, int, str]] = []
        """Of the lines of the open block: where its text begins, where it ends, and the text."""

    def line(self, line: str, at: int) -> Iterator[Statement]:
        fence = _FENCE.match(line)
        if fence or self._fence or line.lstrip().startswith("|"):
            yield from self._set_line(line, at, fence)
        elif heading := _HEADING.fullmatch(line):
            yield from self.close()
            self._under = heading[1].strip()
            yield Statement("body", at, at + len(line), self._under, form="heading")
        elif not line.strip() or _RULE.fullmatch(line):
            yield from self.close()
        else:
            bullet = _ITEM.match(line)
            if bullet:
                yield from self.close()
            quote = _QUOTE.match(line)
            start = at + (bullet.end() if bullet else quote.end() if quote else 0)
            text = self._body[start : at + len(line)]
            start += len(text) - len(text.lstrip())
            self._open.append((start, at + len(line.rstrip()), text.strip()))

    def _set_line(self, line: str, at: int, fence: re.Match[str] | None) -> Iterator[Statement]:
        """A line that is not prose: a fence, code, or a row of a table."""
        yield from self.close()
        if fence and not self._fence:
            self._fence = fence[1]
        elif fence and fence[1].startswith(self._fence):
            self._fence = ""
        elif line.strip():
            place = (at, at + len(line))
            form: Literal["row", "code"] = "code" if self._fence else "row"
            yield Statement("body", *place, line.strip(), self._under, form)

    def close(self) -> Iterator[Statement]:
        if not self._open:
            return
        start, end = self._open[0][0], self._open[-1][1]
        joined = " ".join(text for _, _, text in self._open)
        self._open = []
        raw = self._body[start:end]
        if " ".join(raw.split()) != " ".join(joined.split()):  # quote marks within
            yield Statement("body", start, end, joined, self._under, "quote")
            return
        first = self._body.rfind("\n", 0, start) + 1
        found = list(_sentences("body", raw, start, self._under))
        if len(found) == 1:
            found = [msgspec.structs.replace(found[0], lines=(first, end))]
        yield from found


def _sentences(field: Field, raw: str, start: int, under: str) -> Iterator[Statement]:
    at = 0
    for sentence in sentences_of(" ".join(raw.split())):
        place = _place(sentence, raw, at)
        if place is not None:
            at = place[1]
            yield Statement(field, start + place[0], start + at, sentence, under)


def _place(sentence: str, raw: str, at: int) -> tuple[int, int] | None:
    """Where a sentence stands in a text that may break its lines elsewhere."""
    found = raw.find(sentence, at)
    if found >= 0:
        return found, found + len(sentence)
    pattern = r"\s+".join(map(re.escape, sentence.split()))
    match = re.compile(pattern).search(raw, at)
    return match.span() if match else None
