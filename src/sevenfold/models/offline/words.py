"""Words for the offline engine: sentences, stems, and what a question is about.

Chinese, Japanese and Korean are taken as pairs of neighbouring characters, since they have no spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

LONGEST_SENTENCE: Final = 400
CJK: Final = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"

_RUN = re.compile(rf"[{CJK}]+|[^\W_{CJK}]+")
_CAMEL = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_CJK_CHARACTER = re.compile(rf"[{CJK}]")
_LATIN_WORD = re.compile(r"[A-Za-z]+")
_SENTENCE_END = re.compile(r"(?<=[.!?])[ \t]+(?=\S)|(?<=[。！？；])")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_STOP: Final = _words(
    """a about after again all also am an and any are aren as at be been before being but by can could
    d did didn do does doesn doing don for from had has have he her here him his how i if in into is
    isn it its just let ll m may me might more most must my no not now of off ok on once one only or
    other our out over own per please re s said same say says shall she should so some such t tell
    than thank thanks that the their them then there these they this those through to too up us ve
    very was wasn we were what when where which while who whom whose why will with would yes you
    your"""
)
_WEAK: Final = _words(
    """agree answer ask call choose chose chosen contain decide decided explain find found get give
    given go know like list look made make mean mention name need new old pick read remember report
    show set settle something talk thing think told try use used using want work write written wrote"""
)
_CJK_STOP: Final = re.compile(
    "为什么|什么时候|什么|哪一个|哪一些|哪个|哪些|哪里|哪儿|多少|几个|怎么样|怎么|如何|是否|是不是|"
    "告诉我|告诉|请问|关于|我们|你们|他们|咱们|刚才|之前|以前|现在|一下|"
    "[的了吗呢吧啊是我你他她它这那在有和与或把将被就都也还很用说过谁请叫为选]"
)


def terms(text: str) -> list[str]:
    """What a text is about: the stems of its words and its pairs of characters."""
    if _CJK_CHARACTER.search(text):
        text = _CJK_STOP.sub(" ", text)
    return [term for run in _RUN.findall(text) for term in _terms_of(run)]


@lru_cache(maxsize=1 << 16)
def _terms_of(run: str) -> tuple[str, ...]:
    if _CJK_CHARACTER.match(run):
        return tuple(run[i : i + 2] for i in range(len(run) - 1)) or (run,)
    words = {run.lower(): None}
    words.update((part.lower(), None) for part in _CAMEL.findall(run))
    return tuple(stem(word) for word in words if word not in _STOP)


def stem(word: str) -> str:
    """The word without its usual English endings; the same for all its forms is what matters."""
    if len(word) <= 3 or not word.isascii():
        return word
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith("ing") and len(word) > 5:
        word = _single(word[:-3])
    elif word.endswith("ed") and len(word) > 4:
        word = _single(word[:-2])
    elif word.endswith("s") and word[-2] not in "sui":
        word = word[:-1]
    word = word[:-1] if word.endswith("e") and len(word) > 3 else word
    return _SHORT.get(word, word)


_SHORT: Final = {
    "authentication": "auth",
    "configuration": "config",
    "databas": "db",
    "directory": "dir",
    "documentation": "doc",
    "environment": "env",
    "repository": "repo",
}
"""Long forms that people and files shorten. Each short form but its last letter begins the long one."""


def _single(word: str) -> str:
    return word[:-1] if word[-1] == word[-2] and word[-1] not in "lsz" else word


_WEAK_STEMS: Final = frozenset(stem(word) for word in _WEAK)


def question_terms(question: str) -> dict[str, bool]:
    """The terms of a question, and whether each says what it is about rather than what is asked of it."""
    found = {term: term not in _WEAK_STEMS for term in terms(question)}
    return found if any(found.values()) else dict.fromkeys(found, True)


def sentences(text: str) -> Iterator[str]:
    """Lines and sentences, none of them longer than can be quoted."""
    for line in text.splitlines():
        for sentence in _SENTENCE_END.split(line):
            yield from _bounded(sentence.strip())


def _bounded(sentence: str) -> Iterator[str]:
    start = 0
    while len(sentence) - start > LONGEST_SENTENCE:
        end = sentence.rfind(" ", start + LONGEST_SENTENCE // 2, start + LONGEST_SENTENCE)
        end = end if end > 0 else start + LONGEST_SENTENCE
        yield sentence[start:end].strip()
        start = end
    if sentence[start:].strip():
        yield sentence[start:].strip()


def is_chinese(text: str) -> bool:
    """Whether a text is to be answered in Chinese: by how it begins, or by what most of it is."""
    characters = len(_CJK_CHARACTER.findall(text))
    first = re.search(rf"[{CJK}A-Za-z]", text)
    begins = bool(first and _CJK_CHARACTER.match(first[0]))
    return begins or characters > len(_LATIN_WORD.findall(text))
