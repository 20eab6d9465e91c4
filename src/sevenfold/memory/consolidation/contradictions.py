"""Finds a memory whose description and text contradict each other, by the rules a dream compares with.

Recall judges a memory by its description: one that says the old port keeps answering for the new one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from sevenfold.memory.consolidation.sentences import read_body_sentences
from sevenfold.memory.consolidation.supersession import (
    SentenceCore,
    find_shared_frame,
    has_old_value,
    is_negation,
    make_core,
)
from sevenfold.memory.dreams.statements import split_sentences
from sevenfold.memory.similarity import is_quote
from sevenfold.memory.text.words import STOP, make_word_set, split_words, stem_word
from sevenfold.memory.topic_file import Topic

_SENTENCES: Final = 40  # Sentences of a text that are compared
_VALUE: Final = re.compile(
    r"([^\W\d_][\w-]*)(?:\s+(?:is|are|was|to|at|now|number|version|v\.?))?[\s:=]+v?(\d[\w.:-]*\w|\d)\b",
    re.I,
)
"""A word and the value behind it, such as `port 5432`, `Python 3.12` or `timeout: 30s`."""
_COUNTING: Final = make_word_set(
    "step steps section chapter part parts day days week weeks month months year years line lines item "
    "items phase page pages figure table rule rules issue issues pr bug ticket case cases level round "
    "option january february march april may june july august september october november december"
)
"""Words that count or date: a text may go through many of their numbers."""
_NO: Final = make_word_set("not no never 不 别 勿 没")
_ALWAYS: Final = re.compile(r"\balways\s+|总是|始终", re.I)  # It says no more than the bare order
_DAYS: Final = make_word_set("monday tuesday wednesday thursday friday saturday sunday")


class Contradiction(msgspec.Struct, frozen=True):
    """A sentence of a description and one of the text that cannot both be right."""

    description: str
    text: str


def find_contradiction(topic: Topic) -> Contradiction | None:
    """The first sentence of a memory's text that contradicts its description; None: there is none."""
    body = "\n".join(line for line in topic.body.split("\n") if not is_quote(line))
    said = [one.text for one in read_body_sentences(body) if one.form == "prose"][:_SENTENCES]
    for about in split_sentences(topic.description):
        words = set(split_words(about))
        for one in said:
            if not words.isdisjoint(split_words(one)) and is_contradicting(about, one, body):
                return Contradiction(about, one)
    return None


def is_contradicting(about: str, said: str, body: str) -> bool:
    """True if a sentence says another thing than the description, and `body` does not say both."""
    left, right = (make_core(_ALWAYS.sub("", text)) for text in (about, said))
    frame = find_shared_frame(left, right)
    if frame is not None and not frame.needs:
        return frame.values[0] not in body.lower()
    turned = _NO.intersection(set(left.raw) ^ set(right.raw))
    if (turned and is_negation(left, right)) or _differ_in_day(left, right):
        return True
    given = dict(_list_values(right.marks.core))
    return any(
        given.get(word, value) != value and (value not in body or has_old_value(right, value))
        for word, value in _list_values(about)
    )


def _differ_in_day(one: SentenceCore, other: SentenceCore) -> bool:
    """True if two sentences are the same but for a day of the week."""
    left, right = (["" if word in _DAYS else word for word in core.raw] for core in (one, other))
    return left == right and one.raw != other.raw


def _list_values(text: str) -> Iterator[tuple[str, str]]:
    for found in _VALUE.finditer(text):
        word = stem_word(found[1].lower())
        if found[1].lower() not in STOP | _COUNTING and len(word) > 1:
            yield word, found[2]
