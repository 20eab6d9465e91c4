"""Reads the statements of a memory, one per sentence, in a form in which two wordings can be compared.

Numbers, dates, paths and identifiers count exactly; names have to be there; other words may be left out
to a small part. "Not" turns a statement into another one, and "tabs over spaces" is not "spaces over tabs".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import msgspec

from sevenfold.memory.dates.relative import list_relative_dates
from sevenfold.memory.dates.written_dates import find_dates
from sevenfold.memory.folder.folder import digest_bytes
from sevenfold.memory.frontmatter import find_frontmatter
from sevenfold.memory.text.markdown import MarkdownBlock, split_blocks
from sevenfold.memory.text.words import tokenize_text
from sevenfold.memory.topic_file import decode_text, explain_not_text, read_topic

_END: Final = re.compile(r"(?<=[.!?])[\"'”’)\]*_]{0,3}\s+(?=[\"'“‘(\[*_`]{0,3}[A-Z0-9])|(?<=[。！？；])")
_ABBREVIATED: Final = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|approx|no|nr|dr|mr|mrs|ms|st)\.$", re.I)


class TextBlock(msgspec.Struct, frozen=True):
    """A paragraph, a list item, a table row or a line of code, and the heading it stands under."""

    text: str
    under: str


def read_blocks(body: str) -> Iterator[TextBlock]:
    """The blocks of a text in their order; a heading with nothing under it is one too."""
    bare: MarkdownBlock | None = None
    for block in split_blocks(body):
        if block.form == "heading":
            if bare and bare.text and bare.level >= block.level:  # else it announces this one
                yield TextBlock(bare.text, "")
            bare = block
        elif text := block.text.strip(" \t|") if block.form == "row" else block.text:
            bare = None
            yield TextBlock(text, block.under)
    if bare and bare.text:
        yield TextBlock(bare.text, "")


def split_sentences(text: str) -> list[str]:
    """The sentences of a block; where in doubt, two are one."""
    found: list[str] = []
    start = 0
    for end in _END.finditer(text):
        if not _ABBREVIATED.search(text[start : end.start()]):
            found.append(text[start : end.end()].strip())
            start = end.end()
    found.append(text[start:].strip())
    return [one for one in found if one]


SHORT: Final = 5  # A statement of fewer words says little without its heading: that has to come along
_LABEL: Final = 2  # Words of a line with a colon at its end that says nothing by itself
_ISO: Final = re.compile(r"\b\d{4}-\d{2}-\d{2}\b", re.ASCII)
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}\b)")
_EXACT: Final = re.compile(
    r"[a-z][a-z0-9+.-]*://[^\s)>\]]+"
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|(?:~|\.{1,2})?/[\w.@+-]+(?:/[\w.@+-]*)*"
    r"|[\w.@+-]+(?:/[\w.@+-]+){2,}/?|[\w.@+-]+/[\w@+-]+\.[a-z]{1,5}\b"
    r"|[a-z]*\d(?:[a-z0-9_:.-]*[a-z0-9])?"
    r"|[a-z0-9]+(?:_[a-z0-9]+)+|\b[\w-]+\.(?:[a-z]{2,4}|[chrd])\b",
    re.IGNORECASE | re.ASCII,
)
_NAME: Final = re.compile(r"(?<=[^\s.!?:*#>-])[ \t]+[\"'“(*_]{0,3}([A-Z][\w'’-]*)")
_NOT: Final = re.compile(
    r"\b(?:not|never|no|none|nothing|nobody|neither|nor|without|cannot|avoid(?:s|ed|ing)?|"
    r"stop(?:s|ped)?)\b|n['’]t\b|不(?!同|过|過|错|錯)|没|沒|[别別](?=[用再把])|勿|禁止|避免",
    re.IGNORECASE,
)
_TURN: Final = re.compile(
    r"\b(?:over|than|instead|before|after|from|to|by|until|above|below|under|off|only|except|"
    r"against|less|more)\b",
    re.IGNORECASE,
)
_WIKI: Final = re.compile(r"!?\[\[([^\]|#]*)[^\]|]*(?:\|([^\]]*))?\]\]")
_MARKUP: Final = re.compile(r"[`*]+|(?<!\w)_+|_+(?!\w)")
_OURS: Final = frozenset(["name", "description", "type", "metadata", "origin", "originsessionid"])
_VAGUE: Final = frozenset(
    tokenize_text(
        "user users role roles preference preferences note notes project projects info information "
        "memory memories feedback reference references profile general misc about details fact facts "
        "kept index summary context overview why apply merged"
    )
)


class MemoryFact(msgspec.Struct, frozen=True):
    """One statement of a memory, as it stands there."""

    file: str
    text: str
    under: str = ""  # The heading above it


class FactMeaning(msgspec.Struct, frozen=True):
    """A sentence as it is compared."""

    exact: frozenset[str]
    names: frozenset[str]
    words: frozenset[str]  # Everything else that says something, each without its endings
    order: tuple[str, ...]
    turns: tuple[tuple[str, str], ...]  # Pairs of words that mean something else the other way round
    negated: bool
    relative: bool
    """True if it names a day that only its own date tells: a calendar date may stand in its place."""
    dates: tuple[str, ...]

    @property
    def everything(self) -> frozenset[str]:
        return self.exact | self.names | self.words

    @property
    def empty(self) -> bool:
        return not self.everything


class ComparedFact(msgspec.Struct, frozen=True):
    """A fact with its meaning, and the words that say what it is about."""

    fact: MemoryFact
    plain: str  # Its words as `normalise_words` has them
    meaning: FactMeaning
    block: int
    subject: frozenset[str]
    context: frozenset[str]  # The words of its heading, and of the name and the description of the memory


@lru_cache(maxsize=8_192)
def read_facts(data: bytes, file: str) -> tuple[ComparedFact, ...]:
    """Everything that a topic file says; never raises. A commit asks again and again, and clears it."""
    if explain_not_text(data):  # nobody can tell what it says: only the same bytes say the same
        same = frozenset([f"bytes:{digest_bytes(data)}"])
        whole = FactMeaning(same, frozenset(), frozenset(), (), (), False, False, ())
        fact, none = MemoryFact(file, "(not text)"), frozenset[str]()
        return (ComparedFact(fact, digest_bytes(data), whole, 0, none, none),)
    topic = read_topic(data, file)
    name = frozenset(tokenize_text(topic.name)) | frozenset(tokenize_text(file.rpartition("/")[2][:-3]))
    about = name | frozenset(tokenize_text(topic.description))
    found: list[ComparedFact] = []
    for number, block in enumerate(_blocks(data, topic.body)):
        heading = frozenset(tokenize_text(block.under))
        for text in split_sentences(block.text):
            said = make_meaning(text)
            if not said.empty and not _is_label(text, said):
                short = len(said.everything) < SHORT  # then its subject is said above it
                subject = (heading or name) - _VAGUE if short else frozenset[str]()
                fact = MemoryFact(file, text, block.under)
                plain = normalise_words(text)
                found.append(ComparedFact(fact, plain, said, number, subject, heading | about))
    if not found and not (said := make_meaning(topic.name)).empty:
        fact = MemoryFact(file, topic.name)
        found.append(ComparedFact(fact, normalise_words(topic.name), said, 0, frozenset(), name))
    return tuple(found)


def _is_label(text: str, said: FactMeaning) -> bool:
    """True if it only announces what comes below: "Repositories:"."""
    return text.rstrip(" *_").endswith((":", "：")) and len(said.everything) <= _LABEL


def _blocks(data: bytes, body: str) -> Iterator[TextBlock]:
    """The values of the frontmatter that say something, then the body."""
    text = decode_text(data)
    found = find_frontmatter(text)
    for entry in found.entries if found else ():
        key = entry.key.casefold()
        told = key == "description" or key not in _OURS
        broken = "\n" in text[entry.start : entry.end]  # a line of the text slipped into the name
        if entry.value and entry.value.strip() and (told or broken):
            lead = "" if key == "description" else f"{entry.key}: "
            yield TextBlock(f"{lead}{' '.join(entry.value.split())}", "")
        yield from (TextBlock(item, "") for item in entry.items if len(item.split()) > _LABEL)
    yield from read_blocks(body)


def make_meaning(text: str) -> FactMeaning:
    """The meaning of a sentence, whatever the words around it."""
    plain, relative = _dated(text)
    plain = _plain_dates(_THOUSANDS.sub("", _without_markup(plain)))
    exact = frozenset(map(_trimmed, _EXACT.findall(plain))) - {""}
    names = frozenset(word for found in _NAME.findall(plain) for word in tokenize_text(found))
    order = tuple(tokenize_text(plain))
    pieces = frozenset(word for one in exact for word in tokenize_text(one))
    return FactMeaning(
        exact=exact,
        names=names - pieces,
        words=frozenset(order) - names - pieces,
        order=order,
        turns=_turns(plain),
        negated=_NOT.search(plain) is not None,
        relative=relative,
        dates=tuple(_ISO.findall(plain)),
    )


def normalise_words(text: str) -> str:
    """A text without markup, case and spacing: equal for what is written the same."""
    return " ".join(_without_markup(text).casefold().split()).strip(" .;:,-")


def _without_markup(text: str) -> str:
    """Links are only ways to another memory, unless nothing else is said."""
    plain = _WIKI.sub(lambda found: found[2] or "", text)
    if not plain.strip(" .,;:-*()"):
        plain = _WIKI.sub(lambda found: found[2] or found[1], text)
    return _MARKUP.sub("", plain)


def _dated(text: str) -> tuple[str, bool]:
    phrases = list_relative_dates(text)
    for phrase in phrases:
        text = re.sub(r"\s+".join(map(re.escape, phrase.split())), " ", text)
    return text, bool(phrases)


def _plain_dates(text: str) -> str:
    """Calendar dates in one form, whatever the habit of the writer."""
    for day in reversed(list(find_dates(text))):
        written = day.date.isoformat()
        if text[day.start : day.end] != written:
            text = f"{text[: day.start]} {written} {text[day.end :]}"
    return text


def _trimmed(token: str) -> str:
    token = token.casefold().strip(".:-/")
    return token[1:] if re.fullmatch(r"v\d[\d.]*", token) else token


def _turns(text: str) -> tuple[tuple[str, str], ...]:
    """The words on both sides of one that gives them their order."""
    pairs = []
    for found in _TURN.finditer(text):
        left, right = tokenize_text(text[: found.start()]), tokenize_text(text[found.end() :])
        if left and right and left[-1] != right[0]:
            pairs.append((left[-1], right[0]))
    return tuple(pairs)
