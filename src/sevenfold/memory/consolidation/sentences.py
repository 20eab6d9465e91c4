"""Reads a memory sentence by sentence, so that one can be replaced, and compares sentences and subjects.

The cut is that of the loss report (`dreams.statements`): what is one statement there is one here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Literal

import msgspec

from sevenfold.memory.dreams.statements import FactMeaning, make_meaning, split_sentences
from sevenfold.memory.frontmatter import find_frontmatter, find_last_entry
from sevenfold.memory.text.markdown import find_heading_level, has_open_fence, split_blocks
from sevenfold.memory.text.words import CJK, make_word_set, stem_word, tokenize_text
from sevenfold.memory.topic_file import Topic, change_topic, decode_text

_BLANK: Final = re.compile(r"\n{3,}")

Field = Literal["description", "body"]


class MemorySentence(msgspec.Struct, frozen=True):
    """One sentence of a memory, where it stands."""

    field: Field
    start: int
    end: int  # Its place in the description or in the body
    text: str
    under: str = ""  # The heading above it
    form: Literal["prose", "heading", "row", "code", "quote"] = "prose"  # Only prose is ever rewritten
    lines: tuple[int, int] = (0, 0)
    """The lines of its paragraph or list item, when it is all of that; else (0, 0)."""


@lru_cache(maxsize=5_000)
def read_sentences(topic: Topic) -> tuple[MemorySentence, ...]:
    """The description, when the file gives one, then the body."""
    found = _sentences("description", read_description(topic), 0, "")
    return (*found, *read_body_sentences(topic.body))


@lru_cache(maxsize=5_000)
def read_description(topic: Topic) -> str:
    """The description as it stands in the file; empty when it was made up from the body."""
    block = find_frontmatter(decode_text(topic.data))
    entry = find_last_entry(block.entries, "description") if block else None
    return topic.description if entry is not None and (entry.value or "").strip() else ""


def read_body_sentences(body: str) -> Iterator[MemorySentence]:
    """The sentences of a body in their order."""
    for block in split_blocks(body):
        raw = body[block.start : block.end]
        if block.form != "prose":
            yield MemorySentence("body", block.start, block.end, block.text, block.under, block.form)
        elif " ".join(raw.split()) != " ".join(block.text.split()):  # quote marks within
            yield MemorySentence("body", block.start, block.end, block.text, block.under, "quote")
        else:
            found = list(_sentences("body", raw, block.start, block.under))
            if len(found) == 1:
                first = body.rfind("\n", 0, block.start) + 1
                found = [msgspec.structs.replace(found[0], lines=(first, block.end))]
            yield from found


def replace_sentence(topic: Topic, statement: MemorySentence, text: str) -> bytes:
    """The file with another sentence in this place; an empty one takes the sentence out."""
    if statement.field == "description":
        whole = read_description(topic)
        new = whole[: statement.start] + text + whole[statement.end :]
        return change_topic(topic, description=new if new.strip() else None)
    body = topic.body
    if text:
        return change_topic(topic, body=body[: statement.start] + text + body[statement.end :])
    return change_topic(topic, body=remove_sentences(body, [statement]))


def remove_sentences(body: str, gone: list[MemorySentence]) -> str:
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


def append_paragraph(body: str, text: str) -> str:
    """The body with a paragraph more: at its end, but not below a heading that stands there alone."""
    if has_open_fence(body.rstrip()):
        return f"{text}\n\n{body}"
    lines = body.rstrip().split("\n")
    end = len(lines)
    while end and (not lines[end - 1].strip() or find_heading_level(lines[end - 1])):
        end -= 1
    parts = ["\n".join(lines[:end]).rstrip(), text, "\n".join(lines[end:]).strip("\n")]
    return "\n\n".join(part for part in parts if part)


def _without_bare_heading(before: str, behind: str) -> str:
    """A heading that has nothing below it any more goes too."""
    lines = before.rstrip().split("\n")
    following = behind.lstrip().split("\n", 1)[0]
    above, below = find_heading_level(lines[-1]), find_heading_level(following)
    if above and (below or not following) and below <= above:
        before = "\n".join(lines[:-1]) + "\n\n"
    return before + behind


def _sentences(field: Field, raw: str, start: int, under: str) -> Iterator[MemorySentence]:
    at = 0
    for sentence in split_sentences(" ".join(raw.split())):
        place = _place(sentence, raw, at)
        if place is not None:
            at = place[1]
            yield MemorySentence(field, start + place[0], start + at, sentence, under)


def _place(sentence: str, raw: str, at: int) -> tuple[int, int] | None:
    """The place of a sentence in a text that may break its lines elsewhere."""
    found = raw.find(sentence, at)
    if found >= 0:
        return found, found + len(sentence)
    pattern = r"\s+".join(map(re.escape, sentence.split()))
    return match.span() if (match := re.compile(pattern).search(raw, at)) else None


_WORD: Final = re.compile(rf"[{CJK}]|->|→|[:=](?=\s|$)|[^\s{CJK}，。；：！？、（）“”「」《》→]+|：|=")
_EDGES: Final = "`*_.,;:!?\"'()[]{}<>…—–’‘"
_SHORT_FORMS: Final = (
    (re.compile(r"\bcan['’]t\b|\bcannot\b", re.IGNORECASE), "can not"),
    (re.compile(r"\bwon['’]t\b", re.IGNORECASE), "will not"),
    (re.compile(r"n['’]t\b", re.IGNORECASE), " not"),
)
_FILLERS: Final = make_word_set(
    "the a an this that these those please really very strongly generally simply just basically also "
    "definitely certainly clearly 的 了"
)
_STRONG: Final = make_word_set(
    "not no never none without only except unless if might may maybe perhaps probably could would "
    "considering plans was were 不 没 勿 别 只 仅 若 或 曾"
)
"""Words that make another statement of a sentence, wherever they stand."""
_WEAK: Final = make_word_set(
    "sometimes often rarely usually always when before after until on off in out up down over under "
    "above below more less most least all some any every first last min max left right yes true false "
    "前 后 上 下"
)
"""Words that do so when the other sentence has another of them."""
_SAME_WORDS: Final = """
    prefer like want favor favour love, use utilize employ, database db, repository repo, configuration
    config, documentation docs doc, production prod, environment env, application app, kubernetes k8s,
    postgresql postgres, javascript js, typescript ts, directory folder dir, short concise brief terse,
    answer reply response
    """
_SYNONYMS: Final = {word: each.split()[0] for each in _SAME_WORDS.split(",") for word in each.split()}
_LETTER: Final = re.compile(r"(?<![\w'’])(?:[B-HJ-Z]|A(?=\s*(?:[.,;:)]|$)))(?:\+\+|#)?(?![\w'’])")
_COMPARED: Final = re.compile(r"[<>≤≥≠]|(?<![\w-])-(?=\d)")
_BECAUSE: Final = frozenset(["because", "so", "which", "因", "since"])
_LATIN_MONTHS: Final = re.compile(
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?|(?:jan|feb)ruary|march|april|june|july|august"
    r"|(?:septem|octo|novem|decem)ber",
    re.IGNORECASE,
)


class SentenceWording(msgspec.Struct, frozen=True):
    """A sentence as its words, and what of it must agree."""

    words: tuple[str, ...]
    """Every word, small and without its ending; Chinese sign by sign; without those that say nothing."""
    meaning: FactMeaning
    content: frozenset[str]  # The words that carry a subject, one for each group of synonyms
    guards: frozenset[str]  # Words and signs that turn a sentence into another one
    anchors: tuple[str, ...]  # Numbers, names, days and paths in their order
    numbers: tuple[str, ...]  # Every word with a digit in it, sorted, repeated ones repeated


@lru_cache(maxsize=20_000)
def make_wording(text: str) -> SentenceWording:
    """A sentence in the forms in which it is compared."""
    raw = split_wording(text)
    said = make_meaning(text)
    words = tuple(stem_word(word) for word in raw if word not in _FILLERS)
    named = said.exact | said.names
    days = {one.lower() for one in _LATIN_MONTHS.findall(text)}
    return SentenceWording(
        words=words,
        meaning=said,
        content=frozenset(_SYNONYMS.get(word, word) for word in said.order),
        guards=frozenset((_STRONG | _WEAK).intersection(raw))
        | frozenset(_LETTER.findall(text))
        | frozenset(_COMPARED.findall(text)),
        anchors=tuple(word for word in said.order if word in named) + tuple(sorted(days)),
        numbers=tuple(sorted(word for word in raw if any(sign.isdigit() for sign in word))),
    )


def split_wording(text: str) -> list[str]:
    """The words as they are written, small, without marks around them; Chinese sign by sign."""
    for pattern, long in _SHORT_FORMS:
        text = pattern.sub(long, text)
    words = _WORD.findall(re.sub(r"(?<=[\w`*]):(?=\s|$|\*)", " : ", text))
    found = [word if word in ":：=→" else word.strip(_EDGES) for word in words]
    return [":" if word == "：" else word.lower() for word in found if word]


def is_same_wording(one: SentenceWording, other: SentenceWording) -> bool:
    """True if two sentences are the same but for articles, case, marks and endings."""
    return one.words == other.words and one.guards == other.guards and bool(one.words)


def is_wording_covered(one: SentenceWording, other: SentenceWording) -> bool:
    """True if a sentence says what the other says: the same, or the same with a reason behind it."""
    if is_same_wording(one, other):
        return True
    length = len(other.words)
    if not length or one.words[:length] != other.words or len(one.words) == length:
        return False
    return one.words[length] in _BECAUSE and one.meaning.negated == other.meaning.negated


def has_clash(one: SentenceWording, other: SentenceWording) -> bool:
    """True if two sentences that share most words differ in what makes another statement of them."""
    left, right = one.meaning, other.meaning
    if left.exact - right.exact and right.exact - left.exact:
        return True
    mine, theirs = Counter(one.numbers), Counter(other.numbers)
    if mine - theirs and theirs - mine:
        return True
    if left.names - set(right.order) and right.names - set(left.order):
        return True
    if left.negated != right.negated or (one.guards ^ other.guards) & _STRONG:
        return True
    if one.guards - other.guards and other.guards - one.guards:
        return True
    if _odd(one) - _odd(other) and _odd(other) - _odd(one):
        return True
    shared = set(one.anchors) & set(other.anchors)
    first, second = (
        [word for word in dict.fromkeys(each.anchors) if word in shared] for each in (one, other)
    )
    return first != second


def is_near_wording(one: SentenceWording, other: SentenceWording) -> bool:
    """True if one sentence is the other with some words more behind its beginning, or in other order."""
    if is_same_wording(one, other):
        return True
    if has_clash(one, other) or not one.content or not other.content:
        return False
    small, large = sorted((one, other), key=lambda each: len(each.content))
    if not small.content <= large.content:
        return False
    if small.content == large.content:
        return sorted(one.meaning.order) == sorted(other.meaning.order) or _same_start(one, other)
    return len(small.content) >= 0.5 * len(large.content) and _same_start(one, other)


def compute_likeness(one: SentenceWording, other: SentenceWording) -> float:
    """The part of the words of the shorter sentence that the other has too."""
    least = min(len(one.content), len(other.content))
    return len(one.content & other.content) / least if least else 0.0


def _odd(one: SentenceWording) -> set[str]:
    """Flags, paths and the like: `-x` is not `-q`."""
    return {word for word in one.words if not word.isalnum()}


def _same_start(one: SentenceWording, other: SentenceWording) -> bool:
    left, right = one.meaning.order, other.meaning.order
    count = 0
    for a, b in zip(left, right, strict=False):
        if _SYNONYMS.get(a, a) != _SYNONYMS.get(b, b):
            break
        count += 1
    return count >= min(2, len(left), len(right))


SHARED: Final = 0.3  # The part of the words of both names that two memories on one subject have in common
_VAGUE: Final = frozenset(
    tokenize_text(
        "user users feedback project projects reference references memory memories note notes info "
        "information preference preferences profile general misc about details fact facts setting "
        "settings update updated new old copy again latest current version"
    )
) | frozenset(["用户", "项目", "笔记"])


def find_name_words(topic: Topic) -> frozenset[str]:
    """The words of a memory's name and file that tell what it is about."""
    stem = topic.file.rpartition("/")[2].removesuffix(".md")
    return frozenset(tokenize_text(f"{topic.name} {stem.replace('_', ' ')}"))


def find_subject_words(topic: Topic) -> frozenset[str]:
    """The same without the words that every other name has, and without numbers."""
    return frozenset(word for word in find_name_words(topic) if word not in _VAGUE and not word.isdigit())


def is_same_subject(one: Topic, other: Topic) -> bool:
    """True if names or descriptions show that two memories are about the same thing."""
    if is_numbered_apart(one, other):
        return False
    if compute_overlap(find_subject_words(one), find_subject_words(other)) >= SHARED:
        return True
    left, right = (frozenset(tokenize_text(each.description)) for each in (one, other))
    return len(left & right) >= 3 and compute_overlap(left, right) >= 0.5


def compute_overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """The part of all their words that two sets share."""
    both = len(one & other)
    return both / (len(one) + len(other) - both) if both else 0.0


def is_numbered_apart(one: Topic, other: Topic) -> bool:
    """`sprint-12` and `sprint-13` are two things; `no-mocks` and `no-mocks-2` may be one."""
    left, right = find_name_words(one), find_name_words(other)
    mine, theirs = (
        {word for word in words if any(sign.isdigit() for sign in word)}
        for words in (left - right, right - left)
    )
    return bool(mine) and bool(theirs)
