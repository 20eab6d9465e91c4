"""A sentence that somebody said of themselves, as a statement that anyone can read later.

`I prefer tabs` becomes `The user prefers tabs`, `我喜欢` becomes `用户喜欢`, and relative dates become
calendar dates. Only these words change: nothing is added, and nothing is understood.
"""

from __future__ import annotations

import datetime
import re
from typing import Final

from sevenfold.memory.calendar.absolute_dates import absolute
from sevenfold.models.offline.words import CJK

_ADVERB: Final = (
    r"(?:really|also|still|just|usually|always|often|mostly|generally|personally|actually"
    r"|definitely|absolutely"
    r"|honestly|strongly|much|particularly|especially|currently|now|already|finally|recently"
    r"|totally|truly|simply"
    r"|normally|typically|never|rarely|sometimes|only|successfully|officially|probably|even|both)"
)
_WORD: Final = re.compile(r"\w+")
_CONTRACTED: Final = (
    (re.compile(r"\bI['’]m\b"), "the user is"),
    (re.compile(r"\bI am\b"), "the user is"),
    (re.compile(r"\bI['’]ve\b"), "the user has"),
    (re.compile(r"\bI['’]ll\b"), "the user will"),
    (re.compile(r"\bI['’]d\b(?=\s+(?:been|had|gone|done|\w+ed)\b)"), "the user had"),
    (re.compile(r"\bI['’]d\b"), "the user would"),
    (re.compile(r"\bI have\b"), "the user has"),
    (re.compile(rf"\bI((?:\s+{_ADVERB})*) (?:don['’]t|do not)\b"), r"the user\1 does not"),
    (re.compile(r"\bI do\b"), "the user does"),
    (re.compile(rf"\bI((?:\s+{_ADVERB})+) (?:am|['’]m)\b"), r"the user\1 is"),
    (re.compile(r"\bI haven['’]t\b"), "the user has not"),
)
_VERB: Final = re.compile(rf"\bI((?:\s+{_ADVERB}\b)*+)\s+([a-z]+)\b(?!['’])")
_KEPT: Final = frozenset(
    _WORD.findall(
        "can could will would should must may might shall had was were did went got made took saw met "
        "bought found said told gave came ran left kept felt thought knew began chose spent sent "
        "wrote read built grew paid won lost hit quit set put cut let led drove flew ate drank "
        "slept taught caught brought fell held heard meant understood cannot used and or but who"
    )
)
"""Verbs that look the same for everyone, or are past already."""
_IRREGULAR: Final = {"have": "has", "do": "does", "go": "goes", "am": "is", "be": "is"}
_PRONOUNS: Final = (
    (re.compile(r"^Me\b"), "The user"),
    (re.compile(r"\bmyself\b", re.IGNORECASE), "themselves"),
    (re.compile(r"\bmine\b", re.IGNORECASE), "theirs"),
    (re.compile(r"\bme\b"), "them"),
    (re.compile(r"\bI\b"), "the user"),
)
_MY: Final = re.compile(r"\bmy\b", re.IGNORECASE)
_THEM: Final = re.compile(r"\bthe user\b")
_BEGINNING: Final = re.compile(r"(?<=[.!?] )the user\b")
_BOLD: Final = re.compile(r"\*\*|__")
_CJK: Final = re.compile(f"[{CJK}]")
_MYSELF: Final = re.compile("(?<!自)我(?!们|們)")
_REASON: Final = re.compile(
    r",?\s+(?:because|since|so that|as (?:it|they|we|I)\b|otherwise|, or (?:else"
    r"|it))\s*(?P<why>.{6,})$"
    r"|\s[—–-]\s+(?P<dash>(?:it|we|they|that|this|the)\b.{6,})$"
    r"|[，,]?(?:因为|由于)(?P<zh>[^。]{3,})|[，,](?P<or>(?:否则|不然|以免|免得)[^。]{2,})",
    re.IGNORECASE,
)
_SHORTEST_RULE: Final = 4
_OLD: Final = datetime.date(1990, 1, 1)


def told(sentence: str, day: str) -> str:
    """The statement: without markup, in the third person, with calendar dates where they are sure."""
    text = _BOLD.sub("", sentence).strip()
    text = dated(text, day)
    text = _MYSELF.sub("用户", text) if _CJK.search(text) else _third(text)
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?", "。", "！", "…", ":", "”", '"')) else _ended(text)


def dated(text: str, day: str) -> str:
    """Against the day on which it was said."""
    try:
        said = datetime.date.fromisoformat(day)
    except ValueError:
        return text
    if said < _OLD:
        return text
    return absolute(text, datetime.datetime.combine(said, datetime.time(12)).timestamp())


def parted(text: str) -> tuple[str, str]:
    """A rule, and the reason that it gives for itself if it does."""
    found = _REASON.search(text)
    if found is None or found.start() < _SHORTEST_RULE:
        return text, ""
    why = next(part.strip(" .。") for part in found.groups() if part)
    return text[: found.start()].rstrip(" ,，"), why


def _ended(text: str) -> str:
    return f"{text}。" if _CJK.search(text) else f"{text}."


def _third(text: str) -> str:
    for pattern, words in _CONTRACTED:
        text = pattern.sub(words, text)
    text = _VERB.sub(_conjugated, text)
    for pattern, words in _PRONOUNS:
        text = pattern.sub(words, text)
    return _BEGINNING.sub("The user", _possessive(text))


def _conjugated(match: re.Match[str]) -> str:
    return f"the user{match[1]} {_with_s(match[2])}"


def _with_s(verb: str) -> str:
    if verb in _KEPT or (verb.endswith("ed") and not verb.endswith("eed")):
        return verb
    if verb in _IRREGULAR:
        return _IRREGULAR[verb]
    if verb.endswith(("s", "x", "z", "ch", "sh")):
        return f"{verb}es"
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        return f"{verb[:-1]}ies"
    return f"{verb}s"


def _possessive(text: str) -> str:
    """`my` is `the user's` until somebody has been named; then it is `their`."""
    first = _MY.search(text)
    named = _THEM.search(text)
    if first and (named is None or first.start() < named.start()):
        text = _MY.sub("the user's", text, count=1)
    return _MY.sub("their", text)
