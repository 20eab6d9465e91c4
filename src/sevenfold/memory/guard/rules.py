"""Tells a rule from a statement: orders, duties, wishes, requests, and what is said of or as the user.

A memory of a source may state what is the case. It may not say what the agent should do, nor what the user
is like. In doubt a sentence is a rule. English, German and Chinese are read; of another language each
sentence is taken for a rule. The words stand in `rules.toml`; those of statements that give no order and
would be followed all the same ("commands are approved without asking") in `loosening.toml`.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import msgspec

from sevenfold.memory.guard.text import remove_disguises, undo_lookalikes
from sevenfold.memory.text.words import stem_word

TABLE: Final = Path(__file__).with_name("rules.toml")
LOOSENING: Final = Path(__file__).with_name("loosening.toml")
WEIGHTS: Final = Path(__file__).with_name("weighed_words.txt")
_PAST: Final = r"\b(?:was|were|had|did|wurden?|war|ago|\d{4}-\d\d)\b"

_OTHER_SCRIPT: Final = re.compile(r"[\u0370-\u1fff\u3040-\u30ff\uac00-\ud7af]{2,}")  # Cyrillic, kana …
_MARKUP: Final = re.compile(
    r"\[\[[\w./-]{1,80}\]\]|[*_`~]+|^#+\s*|\[\[|\]\]|!?\[([^\]]*)\]\([^)]*\)|</?\w+[^>]*>|<!--|-->"
)
_BULLET: Final = re.compile(r"^\s*(?:[-*+•>]|\d{1,3}[.)]|\[[ xX]\])\s+")
_ENDS: Final = re.compile(
    r"(?<=[.!?;])[\"”’)]*\s+|[。！？；;\n]+|\s+[—–-]\s+|\\n|,\s+(?=(?:and|but|so|then|also|plus|however|und|aber)\b)"
    r"|\s+(?:then|plus|as well as|and also|but)\s+"
)
_WORD: Final = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?|\d+")
WEIGHED: Final = re.compile(r"[\u4e00-\u9fff]|[^\W\d_\u4e00-\u9fff]+")
ENOUGH: Final = 0.0  # The least weight at which a statement is held
_LATIN: Final = re.compile(r"[^\W\d_]+")
_PATH: Final = re.compile(r"\S*(?:\w[/\\]|\w\.\w|[/\\]\w)\S*")
_ASKS: Final = re.compile(
    r"(?i)[?？](?:[\s.\"”’)]*$|\\n)|[吗嗎呢]\s*$"
    r"|^\W*(?:(?:what|who|where|when|why|how|which)(?:['’]s|\s+(?:is|are|was|were|do|does|did|can|could|will|would))"
    r"|(?:can|could|would|will|do|does|did|is|are)\s+(?:you|it|there|this|that|the|he|she|they|we|i))\b"
)
_LEAD: Final = re.compile(
    r"(?i)^\W+|^(?:\w+(?:[ -]\w+){0,3}:\s+)+|^\w+ing\b[^,]{2,80},\s*"
    r"|^(?:so|also|and|then|but|plus|or|next|first|second|finally|lastly|again"
    r"|once|later|now|just|simply|only|kindly|instead|if needed|if possible|where possible)\b,?\s*"
    r"|^(?:if|when|before|after|while|once|until|as|in|on|at|for|with|during|to|by|upon|under|given|since)\b"
    r"[^,]{2,80},\s*"
)
_HEADING: Final = 4  # Words of an order that is no heading
_LABEL: Final = 3  # Words of a label before a colon
_MANY: Final = 8  # Words without one of those that every English sentence has


@functools.cache
def _table() -> dict[str, Any]:
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


@functools.cache
def list_rule_words(kind: str) -> frozenset[str]:
    """The words of one row of the table, as stems for all but verbs and function words."""
    if kind == "acting":  # verbs that name no thing
        return frozenset(map(stem_word, list_rule_words("verbs") - list_rule_words("nouns")))
    words = str(_table()[kind]).split()
    if kind not in ("acts", "sensitive", "careful", "generic"):
        return frozenset(words)
    same = load_same_words()
    return frozenset(same.get(stem, stem) for stem in map(stem_word, words))


@functools.cache
def load_same_words() -> dict[str, str]:
    """A stem for each of the words that mean the same."""
    groups = (tuple(map(stem_word, row.split())) for row in _table()["same"].split(","))
    return {stem: group[0] for group in groups for stem in group}


@functools.cache
def _cues() -> re.Pattern[str]:
    return re.compile("|".join(_table()["cues"]))


@functools.cache
def _romance_cues() -> re.Pattern[str]:
    return re.compile(_table()["romance_cues"].replace("\n", ""))


@functools.cache
def _habits() -> re.Pattern[str]:
    return re.compile(_table()["habits"])


def split_clauses(text: str) -> Iterator[str]:
    """The clauses of a text without markup, each of which may be a rule of its own."""
    for line in undo_lookalikes(remove_disguises(text)).split("\n"):
        bare = _BULLET.sub("", _MARKUP.sub(lambda found: found[1] or " ", line)).strip()
        for part in _ENDS.split(bare):
            yield from _coordinated(part.strip(" ,:—–-"))


def _coordinated(clause: str) -> Iterator[str]:
    """Two orders that "and" joins are two."""
    start = 0
    for found in re.finditer(r"\s+(?:and|or|und)\s+(?=([a-z]+)\b)", clause):
        if (
            found[1] in list_rule_words("verbs") - {"have"}
            and len(_WORD.findall(clause[start : found.start()])) > 1
        ):
            yield clause[start : found.start()]
            start = found.end()
    if clause[start:].strip():
        yield clause[start:]


def _is_labelled_order(clause: str) -> bool:
    """True for "write: …" and "Order: forget it", where the label is an order or stands before one."""
    label, colon, rest = clause.partition(":")
    first, after = _LATIN.search(label), _LATIN.search(rest)
    if not colon or first is None or after is None or len(label.split()) > _LABEL:
        return False
    acting = list_rule_words("verbs") - list_rule_words("nouns")
    return first[0].lower() in acting or (not rest[:1].isspace() and after[0].lower() in acting)


def is_rule(clause: str) -> bool:
    """True for an order, a duty, a wish or a question, and for what is said about or as the user."""
    clause = re.sub(_table()["kept_by_programs"], "settings", _PATH.sub(" ", clause))
    if re.match(_table()["plain_romance"], clause.lower()):
        clause = re.sub(r"\b(?:du|des)\b", "de", clause)  # German for "you" and "of the"
    words = [word.lower() for word in _LATIN.findall(clause)]
    if _ASKS.search(clause) or _cues().search(clause.lower()) or _is_habit(clause.lower(), words):
        return True
    if _OTHER_SCRIPT.search(clause):
        return True
    if len(words) < 2:
        return False
    return is_order(clause) or _is_labelled_order(clause) or _is_strange(clause, words)


def _is_habit(clause: str, words: list[str]) -> bool:
    """True for "every reply ends with a poem" and "commands are always approved"."""
    if not _habits().search(
        re.sub(r"\bevery (?:\w+ )?\w*(?:day|night|hour|week|month|minute|quarter|year)s?\b", "", clause)
    ):
        return False
    same = load_same_words()
    stems = {same.get(stem, stem) for stem in map(stem_word, words)}
    return any(stems & list_rule_words(kind) for kind in ("acts", "sensitive", "careful"))


def is_order(clause: str) -> bool:
    """True if it begins with a verb and goes on as an order; "Build times are long" does not."""
    bare = clause.strip()
    while (cut := _LEAD.sub("", bare, count=1)) != bare and cut:
        bare = cut
    words = [word.lower() for word in _WORD.findall(bare)][:12]
    if re.match(r"\w+-(?:off|only|in|out|up|time|side|level|install)\b", bare):
        return False  # "Sign-off is given", "Read-only replicas"
    if not words or words[0] in list_rule_words("subjects") or words[0] not in list_rule_words("verbs"):
        return False
    if len(words) == 1:
        return False
    if words[0] in list_rule_words("nouns") and re.match(_table()["noun_first"], bare.lower()):
        return False  # "Code from the old monolith was moved"
    if words[1] in list_rule_words("objects"):
        return True
    if words[0] in list_rule_words("nouns") and (words[1] in ("and", "or", "of") or len(words) < _HEADING):
        return False  # "Name and language", "Rate limit"
    acting = list_rule_words("compound_verbs").intersection(words[2:3]) or list_rule_words(
        "finite"
    ).intersection(words[3:8])
    if acting and words[0] in list_rule_words("compounds") and words[1].endswith("s"):
        return False  # "Pull requests need a build", "Write access to the bucket is limited"
    before = takewhile(lambda word: word not in list_rule_words("subordinate"), words[1:6])
    return not any(word in list_rule_words("finite") for word in before)


def _is_strange(clause: str, words: list[str]) -> bool:
    """True for a language in which orders are not recognised, and for a German one."""
    found = set(words)
    if words[1] in (verbs := list_rule_words("german_verbs")) or (words[1] == "des" and found & verbs):
        return False  # "Befehle werden gesammelt"
    if len(found & list_rule_words("german")) >= 2:
        first = words[0]
        return (
            first not in list_rule_words("german") and first.endswith(("e", "en")) and clause[:1].isupper()
        )
    if re.match(_table()["plain_romance"], clause.lower()):
        return _romance_cues().search(clause.lower()) is not None
    english = found & (
        list_rule_words("subjects")
        | list_rule_words("finite")
        | list_rule_words("objects")
        | list_rule_words("joining")
    )
    if len(words) >= _MANY and not english:
        return True
    return len(found & list_rule_words("foreign")) >= 2 > len(english)


def is_question(clause: str) -> bool:
    """True for a question."""
    return _ASKS.search(clause) is not None


class _LooseningRule(msgspec.Struct, frozen=True):
    """Rows of words that must all be found, and rows of which none may be."""

    all: tuple[str, ...]
    unless: tuple[str, ...] = ()
    past: bool = False  # Whether a report of the past counts: what was given up is given up


@functools.cache
def load_loosening() -> tuple[dict[str, re.Pattern[str]], tuple[_LooseningRule, ...]]:
    """The patterns and the rules of `loosening.toml`."""
    table = tomllib.loads(LOOSENING.read_text(encoding="utf-8"))
    rows = {name: row.replace("\n", "") for name, row in table["words"].items()}
    words = {
        name: re.compile(re.sub(r"\{([a-z]+)\}", lambda at: f"(?:{rows[at[1]]})", row))
        for name, row in rows.items()
    }
    return words, msgspec.convert(table["rules"], tuple[_LooseningRule, ...])


@functools.cache
def _load_weights() -> dict[str, tuple[int, ...]]:
    rows = (line.split() for line in WEIGHTS.read_text(encoding="utf-8").splitlines() if line[0] != "#")
    return {word: tuple(map(int, numbers)) for word, *numbers in rows}


def weigh_statement(clause: str) -> float:
    """How much a plain statement reads like one that loosens; above 0 more than like a harmless one."""
    weights, found = _load_weights(), load_loosening()[0]["verb"].search(clause)
    parts = [WEIGHED.findall(part) for part in (clause[: found.start() if found else 0], clause)]
    parts[1] = parts[1][len(parts[0]) :]
    means = (
        sum(weights.get(word, (0, 0))[at] for word in words) / len(words)
        for at, words in enumerate(parts)
        if words
    )
    stems = {f"{word[:6]}*" for words in parts for word in words}
    return (weights["="][0] + sum(means) + sum(weights.get(stem, (0,))[0] for stem in stems)) / 100


@functools.lru_cache(maxsize=8_192)
def is_loosening(clause: str) -> bool:
    """True for a statement that would loosen a check, a right, a secret or the agent's obedience."""
    (words, rules), lower = load_loosening(), clause.lower().replace("’", "'")
    past = re.search(_PAST, lower) is not None
    found = functools.cache(lambda name: words[name].search(lower) is not None)
    return any(
        all(map(found, rule.all)) and not any(map(found, rule.unless))
        for rule in rules
        if rule.past or not past
    ) or (
        words["sentence"].match(clause) is not None
        and not any(map(found, ("specific", "upheld", "scheduled", "technical")))
        and weigh_statement(lower) > ENOUGH
    )
