"""Cuts texts into words: as they are written, or as recall compares them.

`tokenize_text` gives small letters with their endings cut, and Chinese in pairs of signs. It leaves out
words that say nothing about a subject ("the", "when", "please", 什么), in memories and in questions.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Final

CJK: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af"
_PIECE: Final = rf"([{CJK}]+)|[^\W_{CJK}]+(?:['’][^\W\d_{CJK}]+)?"
_ASCII_PIECE: Final = re.compile("(?!)()|[A-Za-z0-9]+(?:'[A-Za-z]+)?")
_ASCII_WORD: Final = re.compile(r"[a-z0-9_]+")
_WORD: Final = rf"[{CJK}]|[^\W{CJK}]+"
_compile: Final = cache(
    re.compile
)  # Where a text needs them: those of all writing systems take milliseconds
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NAMED: Final = re.compile(r"(?<=[\w,;:)] )[\"'(]?([A-Z]\w+)")
_CODE_NAME: Final = re.compile(r"\b[^\W\d_]+(?:_[^\W_]+)+\b|\b[a-z]+(?:[A-Z][a-z0-9]+)+\b|`([^`\n]{1,60})`")
_LONGEST: Final = 40  # Longer pieces (hashes, encoded data) are cut: nobody asks for them by heart

_NO_SUBJECT: Final = """
    a able about above actually after again against all almost already alright also although always am
    an and any anybody anyone anything anyway are aren as ask at awesome basically be because been
    before being below between bit both but by can cannot certain certainly come comes continue cool
    could couldn definitely did didn do does doesn doing don done down during each easily either else
    enough especially ever every exactly few fine for from further get gets getting give given glad go
    goes going gone gonna good got great had hadn happen happened happens has hasn have haven having he
    hello help her here hers herself hey hi him himself his hope hopefully how however i if in
    interesting into is isn it its itself just keep kind kinda know let lets like ll look looking looks
    lot lots made make makes many may maybe me mean means mention mentioned might more most mostly much
    must my myself need nice no nor not nothing now of off often oh ok okay on once one only or other
    ought our ours ourselves out over own perhaps please possible pretty probably put quite rather re
    really regarding remember remind right s said same say see seem seems several shall she should
    shouldn simply so some somebody someone something sorry sort specific still stuff such suppose sure
    t tell than thank thanks that thats the their theirs them themselves then there these they thing
    things think this those though through to told too try trying under understand until up upon us
    usually various ve very want wanted was wasn way we welcome well were weren what whatever when where
    whether which while who whom whose why will with without won wonder wonderful wondering would wouldn
    wow yeah yes yet you your yours yourself yourselves
    """
STOP: Final = frozenset(_NO_SUBJECT.split())  # English words that carry no subject

STOP_SIGNS: Final = re.compile(
    "什么时候|什麼時候|为什么|為什麼|怎么样|怎麼樣|什么|什麼|怎么|怎麼|怎样|怎樣|如何|哪里|哪裡|哪些|哪个|哪個"
    "|多少|是否|可以|请问|請問|告诉|告訴|一下|我们|我們|你们|你們|他们|他們|她们|她們|自己|这个|這個|那个|那個"
    "|这些|這些|那些|已经|已經|还是|還是|或者|以及|因为|因為|所以|但是|如果|就是|没有|沒有|应该|應該|需要"
    "|[的了吗嗎呢吧啊呀着是在和与與及就都也又很把被让讓给給对對从從到为為以而我你您他她它这這那哪谁誰请請嘛]"
)
"""Chinese words that carry no subject; a run of signs is cut where they stand."""


LIGHT: Final = 0.3  # The weight of a word that asks for a sum or a time instead of naming a subject
_ASKING: Final = """
    one two three four five six seven eight nine ten eleven twelve dozen ago minute hour day week month
    year decade weekend recent recently past last previous previously earlier earliest latest since total
    number amount order average sum passed current currently altogether consecutive different related
    """


def make_word_set(words: str) -> frozenset[str]:
    """The words of a list that is written as one string."""
    return frozenset(words.split())


def make_stem_set(words: str) -> frozenset[str]:
    """The words of such a list without their endings."""
    return frozenset(map(stem_word, words.split()))


def split_words(text: str) -> list[str]:
    """The words of a text in lower case; of Chinese, Japanese and Korean the characters."""
    text = text.casefold()
    return _ASCII_WORD.findall(text) if text.isascii() else _compile(_WORD).findall(text)


def tokenize_text(
    text: str, stop: frozenset[str] = STOP, stop_signs: re.Pattern[str] = STOP_SIGNS
) -> list[str]:
    """The words of this text in their order, repeated ones repeated, without those that are stopped."""
    found: list[str] = []
    for piece, chinese in split_written_words(text):
        found += _pairs(piece, stop_signs) if chinese else _words(piece, stop)
    return found


def split_written_words(text: str) -> Iterator[tuple[str, bool]]:
    """The words as they are written, and whether it is a run of Chinese, Japanese or Korean signs."""
    text = unicodedata.normalize("NFKC", text)
    for match in _ASCII_PIECE.finditer(text) if text.isascii() else _compile(_PIECE).finditer(text):
        yield match[0], match[1] is not None


def find_names(text: str) -> list[str]:
    """The words of names: written large inside a sentence, or written as code is."""
    found = _NAMED.findall(text)
    if len(found) > len(text.split()) / 2:  # a headline
        found = []
    found += [match[0] for match in _CODE_NAME.finditer(text)]
    return [token for name in found for token in tokenize_text(name)]


def find_emphasis(token: str) -> float:
    """The weight of a word of a question beside its rarity: "how many weeks ago" is not about weeks."""
    return LIGHT if token in _light() or (token.isdigit() and len(token) <= 2) else 1.0


@cache
def _light() -> frozenset[str]:
    return make_stem_set(_ASKING)


def _pairs(run: str, stop_signs: re.Pattern[str]) -> list[str]:
    """Neighbouring signs two by two: there are no spaces, and two signs are most often a word."""
    found = []
    for part in stop_signs.split(run):
        if len(part) == 1:
            found.append(part)
        found += [part[at : at + 2] for at in range(len(part) - 1)]
    return found


@lru_cache(maxsize=200_000)
def _words(piece: str, stop: frozenset[str]) -> tuple[str, ...]:
    """A written word; `useMemory` is found by both of its parts and as a whole."""
    piece = re.split("['’]", piece)[0][:_LONGEST]
    parts = _HUMP.split(piece)
    wholes = [piece, *parts] if len(parts) > 1 else [piece]
    lower = [_plain(part.lower()) for part in wholes]
    return tuple(
        stem_word(word) for word in lower if word not in stop and (len(word) > 1 or word.isdigit())
    )


def _plain(word: str) -> str:
    """Without accents: "café" is asked for as "cafe"."""
    if word.isascii():
        return word
    return "".join(sign for sign in unicodedata.normalize("NFD", word) if not unicodedata.combining(sign))


_ROOTS: Final = """
    buy bought, go went, eat ate eaten, take took taken, give gave given, write wrote written, run ran,
    see saw seen, meet met, speak spoke spoken, drive drove driven, teach taught, sell sold, leave left,
    begin began begun, win won, choose chose chosen, break broke broken, grow grew grown, fly flew
    flown, child children, person people, man men, woman women, life lives, wife wives, mouse mice, foot
    feet, tooth teeth, die died dying, lie lying, swim swam, sing sang sung, hold held, spend spent,
    build built, pay paid, send sent, lose lost, catch caught, bring brought
    """
_IRREGULAR: Final = {word: one.split()[0] for one in _ROOTS.split(",") for word in one.split()[1:]}


@lru_cache(maxsize=200_000)
def stem_word(word: str) -> str:
    """The word without the endings English puts on it; the result need not be a word."""
    word = _IRREGULAR.get(word, word)
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    return _without_suffix(_without_ending(_without_plural(word)))


def _without_plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith("ies"):
        return word[:-3] + ("y" if len(word) > 4 else "ie")
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _without_ending(word: str) -> str:
    for ending in ("edly", "ingly", "ied", "eed", "ed", "ing"):
        if not word.endswith(ending):
            continue
        if ending == "ied":
            return word[:-3] + "y"
        if ending == "eed":
            return word[:-1] if len(word) > 5 else word
        root = word[: -len(ending)]
        if len(root) < 2 or not re.search("[aeiouy]", root):
            return word
        return root[:-1] if root[-1] == root[-2] and root[-1] not in "lsz" else root
    return word


_ENDINGS: Final = """
    ization>iz ational>at fulness>ful iveness>iv ousness>ous ation>at ator>at ement> ment> ness> ance>
    ence> able> ible> ally>al tion>t sion>s ful> ily>y ate>at ize>iz ise>is ive>iv ly> er> or>
    """
"""Suffixes and what is written instead, in the order in which they are tried."""
_SUFFIXES: Final = tuple(tuple(one.split(">")) for one in _ENDINGS.split())


def _without_suffix(word: str) -> str:
    for suffix, instead in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 4:
            word = word[: -len(suffix)] + instead
            break
    if len(word) > 3 and word.endswith("e"):
        word = word[:-1]
    if len(word) > 2 and word.endswith("y") and word[-2] not in "aeiou":
        word = word[:-1] + "i"
    return word
