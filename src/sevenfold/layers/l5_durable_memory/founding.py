"""What a memory rests on: the words that were said, when, and by whom. Without them it is not saved.

    user, feedback        a quote of what the person typed, and nothing copied from results or files
    project, reference    the same, or a sentence of the assistant's that the person went on from

A quote is a line `> words` in the memory. The origin in the frontmatter (session, entries, date) is
written here and never taken from the model. Relative dates become calendar dates, counted from the day
of the message that is quoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from sevenfold.clock import date_of
from sevenfold.layers.l5_durable_memory.provenance import Said, Sources, related
from sevenfold.memory.calendar.absolute_dates import absolute
from sevenfold.memory.merging import is_quote, statement, words
from sevenfold.memory.topic import TYPES, Origin, Topic, changed, read_topic
from sevenfold.memory.topics.entries import last
from sevenfold.memory.topics.frontmatter import find_frontmatter
from sevenfold.memory.topics.reading import decoded, origin_entry, shortened

LONGEST_QUOTE: Final = 300
"""Characters of a quote that are kept."""
BY_PERSON: Final = ("user", "feedback")
"""Types of memory that only the person's own words can found."""
_INSIDE: Final = re.compile(r"[“\"「](.{2,}?)[”\"」]")
_GAP: Final = re.compile(r"\n{3,}")
_HOW: Final = (
    "add a line that begins with '> ' and repeats, letter for letter, the words of the person's message "
    "that it rests on"
)


class Unfit(Exception):
    """A call that is not carried out: of which kind the reason is, and the reason."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind, self.why = kind, why


class Founded(msgspec.Struct, frozen=True):
    """A memory with what it rests on."""

    topic: Topic
    origin: Origin
    quote: str


def founded(new: Topic, old: Topic | None, sources: Sources, session: str) -> Founded:
    """The memory as it may be saved; `Unfit` when nobody said it. `old` is what its file holds now."""
    _check_form(new)
    kept = set(old.body.split("\n")) if old else set()
    found = _found(new, kept, sources)
    stated = statement(new) if old is None else f"{statement(new)}\n{statement(old)}"
    if not any(related(stated, said, quote) for quote, said in found):
        raise Unfit(
            "source",
            f"what it quotes (“{found[0][0]}”) says nothing of what it states; {_HOW}, or leave it",
        )
    if new.type in BY_PERSON:
        _check_not_copied(new, old, kept, sources)
    newest = max(found, key=lambda one: one[1].at)[1]
    origin = Origin(
        session, tuple(sorted({said.id for _, said in found})), date_of(newest.at), "extraction"
    )
    description = new.description
    if old is None or description != old.description:
        description = absolute(description, newest.at)
    body = _body(new, kept, list(_blocks(new, kept)) and [quote for quote, _ in found], newest.at)
    data = changed(new, description=description, body=body, origin=origin)
    return Founded(read_topic(data, new.file), origin, found[0][0])


def _check_form(topic: Topic) -> None:
    if topic.type is None or find_frontmatter(decoded(topic.data)) is None:
        raise Unfit(
            "form",
            "a memory begins with frontmatter: name, description, and as type one of "
            f"{', '.join(TYPES)}",
        )
    if not words(topic.description) or not words(statement(topic)):
        raise Unfit("form", "a memory needs a description that says what it is about, and a text")


def _found(topic: Topic, kept: set[str], sources: Sources) -> list[tuple[str, Said]]:
    """The quotes and who said them: every new one, else those in the file that were said here too."""
    person = topic.type in BY_PERSON
    found = list[tuple[str, Said]]()
    for block in _blocks(topic, kept):
        if (one := _said(block, sources, person)) is None:
            whose = "the person did not type" if person else "nobody said"
            raise Unfit(
                "source",
                f"{whose} “{shortened(block, 120)}” in this conversation: results of tools, files and "
                f"recalled memories are no source, and a quote needs a few words in a row; {_HOW}, or "
                "leave it",
            )
        found.append(one)
    if not found:
        there = (_said(block, sources, person) for block in _blocks(topic, set()))
        found = [one for one in there if one is not None]
    if not found:
        more = "" if person else ", or a sentence of yours that they answered without objecting"
        raise Unfit("source", f"it does not say what it rests on; {_HOW}{more}")
    return found


def _said(block: str, sources: Sources, person: bool) -> tuple[str, Said] | None:
    for quote in _readings(block):
        if (said := sources.find(quote, assistant=not person)) is not None:
            return quote, said
    return None


def _blocks(topic: Topic, kept: set[str]) -> Iterator[str]:
    """The quotes that are not among those kept: lines that stand together are one."""
    block: list[str] = []
    for line in [*topic.body.split("\n"), ""]:
        if is_quote(line) and line not in kept and _bare(line):
            block.append(_bare(line))
        elif block:
            yield " ".join(block)
            block = []
    frontmatter = find_frontmatter(decoded(topic.data))
    entry = origin_entry(frontmatter.entries) if frontmatter else None
    quote = last(entry.inner, "quote") if entry is not None else None
    if quote is not None and words(quote.value or ""):
        yield (quote.value or "").strip()


def _bare(line: str) -> str:
    return line.strip().lstrip(">").strip()


def _readings(block: str) -> list[str]:
    """What a block may mean by its quote: all of it, or what stands in quotation marks."""
    inside = _INSIDE.search(block)
    plain = block.strip("“”\"'「」 ")
    return [plain, inside[1].strip()] if inside else [plain]


def _check_not_copied(topic: Topic, old: Topic | None, kept: set[str], sources: Sources) -> None:
    lines = [line for line in topic.body.split("\n") if line not in kept and not is_quote(line)]
    if old is None or topic.description != old.description:
        lines.append(topic.description)
    for line in lines:
        if run := sources.copied(line):
            raise Unfit(
                "source",
                f"“{shortened(run, 120)}” comes from a result, a file or a recalled memory, and the "
                "person never said it; save only what they said themselves",
            )


def _body(topic: Topic, kept: set[str], quotes: Sequence[str], at: float) -> str:
    """The text with calendar dates, and below it each new quote on a line of its own."""
    own = [line for line in topic.body.split("\n") if line in kept or not is_quote(line)]
    lines = [line if line in kept else absolute(line, at) for line in own]
    text = _GAP.sub("\n\n", "\n".join(lines)).rstrip()
    return "\n".join([text, "", *(_written(quote) for quote in dict.fromkeys(quotes))])


def _written(quote: str) -> str:
    """In quotation marks: what was said stays as it was said, its dates too."""
    inner = shortened(quote, LONGEST_QUOTE - 2).replace("“", "‘").replace("”", "’")
    return f"> “{inner}”"
