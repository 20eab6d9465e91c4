"""The wall of provenance: only the user's own words found rules for the agent and facts about the user.

    the user said it                            saved
    a source says it, and it is no rule         saved as what that source says
    a rule, something about the user, or what
    changes the agent's rights and duties,
    that the user did not say                   held until the user releases it

It is asked about every text that an agent, an extraction or a dream writes. What stood in the file before
is not asked about again. Of a text of an agent or an extraction the sentences that pass are saved, if they
are a memory without the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from sevenfold.memory.backend import is_topic
from sevenfold.memory.folder.names import LOGS
from sevenfold.memory.guard.passing_sentences import NEW_BLOCK, keep_passing_sentences
from sevenfold.memory.guard.rules import is_loosening, is_order, is_rule, split_clauses
from sevenfold.memory.guard.text import GuardFinding, GuardVerdict
from sevenfold.memory.guard.user_words import (
    LOOSE,
    NOTHING_SAID,
    SHARE,
    SpokenWords,
    count_telling_words,
    is_empty,
)
from sevenfold.memory.text.words import split_words
from sevenfold.memory.topic_file import Topic, change_topic, read_topic, shorten_text

BY_USER: Final = ("user", "feedback")  # Types of memory that only the user's words found
REPEATED: Final = 0.8  # The part of its words that a rule shares with one that memory has
RUN: Final = 5  # Words in a row that a memory shares with the text that it comes from
_ASIDE: Final = 2  # Telling words of a heading that need no ground of their own
_MOSTLY: Final = 3  # Statements for each held sentence with which the rest of a memory stands alone
_DESCRIBED: Final = 150  # Characters of a description that is made of the first sentence
_NAMED: Final = 80  # Characters of a source that an attribution names
_ATTRIBUTION: Final = re.compile(r"(?i)\s*(?:according to|laut|nach angabe)\b|\s*(?:根据|據|据)")
_ATTRIBUTED: Final = re.compile(r"According to ([^\n]{1,80}):\n")
ALONE: Final = "the agent; the user did not say it"
PARTLY: Final = "the agent; the user said a part of it"
"""Sources of what no text says that the agent has read: its own word is no rule either."""
_SLUG: Final = re.compile(r"[-_\d]+")
_HELD: Final = "held for the user's word and not saved"
_RULE: Final = "states a rule that the user did not say"
_ABOUT: Final = "says something of the user that the user did not say"


class SourceText(msgspec.Struct, frozen=True):
    """A text that is not the user's, and the place where it comes from: a file, a page, a pasted text."""

    name: str
    text: str


class WriteSources(msgspec.Struct, frozen=True):
    """All that a write may rest on: the user's words, other texts, and the source that the writer names."""

    spoken: SpokenWords = NOTHING_SAID
    others: tuple[SourceText, ...] = ()
    given: str = ""
    quoted: bool = False  # The writer quotes the conversation for each text, as an extraction does


NO_SOURCES: Final = WriteSources()


class _Clause(msgspec.Struct, frozen=True):
    text: str
    line: int
    rule: bool
    founded: bool


class WallVerdict(msgspec.Struct, frozen=True):
    """The findings for which a text is held, and the part of it that passes."""

    findings: tuple[GuardFinding, ...] = ()
    source: str = ""  # The source that what passes is to be attributed to, if any
    part: bytes = b""  # Of a held text: the file without the sentences that do not pass; empty: none of it


def judge_write(
    file: str,
    data: bytes,
    old: bytes,
    sources: WriteSources,
    known: Callable[[], SpokenWords] | None = None,
) -> WallVerdict:
    """The verdict on a file that is to become `data`; `old` is what it says now.

    `known` gives the rules that memory has already: to repeat one is no news.
    """
    topic, told = read_topic(data, file), list(read_clauses(read_topic(data, file), data))
    kept = _list_kept_clauses(file, topic, old)
    clauses, held = _judge_clauses(file, topic, told, kept, sources, known)
    if not held:
        return WallVerdict(source=_find_clause_source(file, old, clauses, sources))
    findings = tuple(_make_finding(one, topic) for one in held)
    if not is_topic(file) or not kept <= {
        _plain(clause) for _, clause in told
    }:  # it replaces what stood there
        return WallVerdict(findings)
    part = _cut_held(topic, kept, [one for one in clauses if one not in held], held, sources)
    rest = read_topic(part, file)
    clauses, held = _judge_clauses(file, rest, list(read_clauses(rest, part)), kept, sources, known)
    if not part or held:
        return WallVerdict(findings)
    return WallVerdict(findings, _find_clause_source(file, old, clauses, sources), part)


def _list_kept_clauses(file: str, topic: Topic, old: bytes) -> set[str]:
    """What stands in the file already; statements of another type of memory found no rule."""
    before = read_topic(old, file)
    if not old or (is_topic(file) and topic.type in BY_USER and before.type not in BY_USER):
        return set()
    return {_plain(clause) for _, clause in read_clauses(before, old)}


def _judge_clauses(
    file: str,
    topic: Topic,
    told: Iterable[tuple[int, str]],
    kept: set[str],
    sources: WriteSources,
    known: Callable[[], SpokenWords] | None,
) -> tuple[list[_Clause], list[_Clause]]:
    """The clauses that are new and say something, and those of them that are held."""
    by_user = is_topic(file) and topic.type in BY_USER
    new = [one for one in told if _plain(one[1]) not in kept]
    clauses = [_Clause(text, line, is_rule(text), sources.spoken.has_said(text)) for line, text in new]
    beside = kept or _has_founded(clauses)  # "apply it everywhere" says nothing beside a rule of the user
    telling = [one for one in clauses if not _says_nothing(one.text, beside=bool(beside))]
    clauses = telling or clauses
    held = [one for one in clauses if not one.founded and _is_held(one, topic, by_user, clauses, sources)]
    if held and known is not None:
        rules = known()
        held = [one for one in held if not rules.has_said(one.text, REPEATED)]
    return clauses, held


def _find_clause_source(file: str, old: bytes, clauses: Sequence[_Clause], sources: WriteSources) -> str:
    foreign = [one.text for one in clauses if not one.founded]
    if not is_topic(file):
        return ""
    if not foreign:  # a text that is saved again stays what its source says
        return _find_attribution(read_topic(old, file).body)
    if (source := find_source(foreign, sources)) or sources.quoted:
        return source
    if not old and len(foreign) == len(clauses):
        return ALONE
    spoken = sources.spoken
    aside = (count_telling_words(one) <= _ASIDE or spoken.has_said(one, LOOSE) for one in foreign)
    return "" if all(aside) else PARTLY


def _cut_held(
    topic: Topic, kept: set[str], passing: Sequence[_Clause], held: Sequence[_Clause], sources: WriteSources
) -> bytes:
    """The memory without the sentences that are held; nothing if the rest is no memory of its own.

    Of rules and of what is said about the user only the user's own words are left. Of a project or a
    reference the statements are left, where they are most of it.
    """
    by_user = topic.type in BY_USER
    founded = _has_founded(passing)
    if not (founded or (not by_user and len(passing) >= sum(one.rule for one in held) * _MOSTLY)):
        return b""

    def passes(clause: str) -> bool:
        if _plain(clause) in kept or _says_nothing(clause, beside=founded or bool(kept)):
            return True
        if by_user and not is_rule(clause) and count_telling_words(clause) <= _ASIDE:
            return True
        if not by_user and not is_rule(clause):
            return not is_loosening(clause)
        return sources.spoken.has_said(clause, LOOSE if founded else SHARE)

    body = keep_passing_sentences(topic.body, passes)
    if not split_words(body):
        return b""
    first = next(clause for clause in split_clauses(body) if split_words(clause))
    named = all(map(passes, split_clauses(_SLUG.sub(" ", topic.name))))
    described = all(map(passes, split_clauses(topic.description)))
    return change_topic(
        topic,
        name=topic.name if named else shorten_text(first, _NAMED),
        description=topic.description if described else shorten_text(first, _DESCRIBED),
        body=body,
    )


def judge_dreamt(
    file: str, data: bytes, known: Mapping[str, bytes], said: Callable[[], SpokenWords] | None = None
) -> WallVerdict:
    """The same for a file of a dream: what the memories in `known` say is known, as rules or as statements.

    A rule may come from rules, and from what the user said in past sessions; a statement of a project or a
    source never becomes one.
    """
    topic = read_topic(data, file)
    by_user = topic.type in BY_USER
    grounds = [(name, text) for name, text in known.items() if _can_found(name, text, by_user)]
    kept = {
        _plain(clause)
        for name, text in grounds
        for _, clause in _read_file(name, text)
        if not (by_user and name.startswith(f"{LOGS}/") and not is_rule(clause))
    }
    telling = _drop_empty(list(read_clauses(topic, data)))
    new = [one for one in telling if _plain(one[1]) not in kept]
    unknown = file not in known and len(new) == len(telling)  # a dream finds nothing out by itself
    if not any(by_user or unknown or is_rule(text) or is_loosening(text) for _, text in new):
        return WallVerdict()
    rules = SpokenWords.of_texts(_read_grounds(name, text, by_user) for name, text in grounds)
    held = _find_unfounded(topic, new, rules, len(new) < len(telling), unknown)
    if held and said is not None:
        rules = rules.join_with(said())
        held = _find_unfounded(topic, new, rules, len(new) < len(telling), unknown)
    return WallVerdict(tuple(_make_finding(one, topic) for one in held))


def _find_unfounded(
    topic: Topic, new: Iterable[tuple[int, str]], said: SpokenWords, founded: bool, unknown: bool
) -> list[_Clause]:
    """The rules among the clauses that nobody said; of what is about the user or unknown, all clauses."""
    clauses = [_Clause(text, line, is_rule(text), said.has_said(text)) for line, text in new]
    founded = founded or any(one.founded for one in clauses)
    needing = [one for one in clauses if one.rule or topic.type == "user" or not founded]
    if topic.type not in BY_USER:
        needing = [
            one for one in clauses if one.rule or (unknown and not founded) or is_loosening(one.text)
        ]
    return [one for one in needing if not one.founded and not (founded and said.has_said(one.text, LOOSE))]


def add_attribution(data: bytes, file: str, source: str) -> bytes:
    """The memory as what its source says: the name of the source stands before the text."""
    topic = read_topic(data, file)
    if not source or _ATTRIBUTION.match(topic.body):
        return data
    name = re.sub(r"\s+", " ", source).strip()[:_NAMED]
    return change_topic(topic, body=f"According to {name}:\n\n{topic.body}")


def _find_attribution(body: str) -> str:
    found = _ATTRIBUTED.match(body)
    return found[1] if found else ""


def make_held_verdict(findings: Sequence[GuardFinding], *, in_part: bool = False) -> GuardVerdict:
    """The verdict on a held text, with the sentences that the model reads."""
    places = ", ".join(dict.fromkeys(one.where for one in findings))
    what = " and ".join(dict.fromkeys(one.what for one in findings))
    held = "saved without a part, which is held for the user's word" if in_part else _HELD
    return GuardVerdict(
        "quarantine",
        tuple(findings),
        f"{held}: {places} {what}. The user has been told, and can release "
        "it in one step. Do not write it again in other words: go on with the task",
    )


def find_source(clauses: Sequence[str], sources: WriteSources) -> str:
    """The source that the writer named, or the text from which the clauses were copied; else nothing."""
    if sources.given:
        return sources.given
    for clause in clauses:
        words = split_words(clause)
        runs = [f" {' '.join(words[at : at + RUN])} " for at in range(len(words) - RUN + 1)]
        for other in reversed(sources.others):
            if any(run in _flat(other.text) for run in runs):
                return other.name
    return ""


def _is_held(
    clause: _Clause, topic: Topic, by_user: bool, clauses: Iterable[_Clause], sources: WriteSources
) -> bool:
    founded = _has_founded(clauses)
    if clause.rule:
        return not (founded and sources.spoken.has_said(clause.text, LOOSE))
    if not by_user:
        return is_loosening(clause.text)  # it would be followed, whoever says it
    if topic.type == "feedback" and founded:  # the reason of a rule, as the writer understands it
        return False
    small = count_telling_words(clause.text) <= _ASIDE
    return not (founded and (small or sources.spoken.has_said(clause.text, LOOSE)))


def _says_nothing(clause: str, *, beside: bool) -> bool:
    """True for words that only apply a rule; an order does so only beside what the user said."""
    return is_empty(clause) and (beside or not is_order(clause))


def _has_founded(clauses: Iterable[_Clause]) -> bool:
    """True if the user said one of them, and it is more than a heading."""
    return any(
        one.founded and (one.rule or at == 0 or count_telling_words(one.text) > _ASIDE)
        for at, one in enumerate(clauses)
    )


def _drop_empty(clauses: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """The clauses that say something; of a text that says nothing else, all."""
    return [one for one in clauses if not is_empty(one[1])] or clauses


def _can_found(file: str, data: bytes, by_user: bool) -> bool:
    """True for a memory that a clause may repeat; a daily log holds only rules that the user said."""
    return not by_user or file.startswith(f"{LOGS}/") or read_topic(data, file).type in BY_USER


def _read_grounds(file: str, data: bytes, by_user: bool) -> str:
    """The text of a memory; of a daily log the rules, where a rule is to be founded."""
    if by_user and file.startswith(f"{LOGS}/"):
        return "\n".join(text for _, text in _read_file(file, data) if is_rule(text))
    return data.decode("utf-8", "replace")


def _make_finding(clause: _Clause, topic: Topic) -> GuardFinding:
    what = _ABOUT if topic.type == "user" and not clause.rule else _RULE
    return GuardFinding("source", what, f"line {clause.line}", "not among the user's own words")


def _read_file(file: str, data: bytes) -> Iterator[tuple[int, str]]:
    return read_clauses(read_topic(data, file), data)


def read_clauses(topic: Topic, data: bytes) -> Iterator[tuple[int, str]]:
    """Each clause of a file with its line: the frontmatter without the origin, the name, the text."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    lines = text.split("\n")
    start = text[: text.rfind(topic.body)].count("\n") if topic.body else len(lines)
    yield from ((2, clause) for clause in split_clauses(_SLUG.sub(" ", topic.name)) if " " in clause)
    if topic.description not in topic.body:
        yield from ((2, clause) for clause in split_clauses(topic.description))
    yield from _read_own_fields(lines[:start])
    for line, paragraph in _read_paragraphs(lines[start:]):
        yield from ((start + line, clause) for clause in split_clauses(paragraph))


def _read_own_fields(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The values of frontmatter that are not ours: they are read as well."""
    origin = False
    for number, line in enumerate(lines, 1):
        key, _, value = line.partition(":")
        indent = len(line) - len(line.lstrip())
        if key.strip() in ("origin", "metadata"):
            origin = key.strip() == "origin" or origin
            continue
        if origin and indent >= 2:
            continue
        origin = False
        if key.strip() not in ("name", "description", "type") and len(value.split()) > 1:
            yield from ((number, clause) for clause in split_clauses(value))


def _read_paragraphs(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Lines that belong together as one, with the number of the first."""
    parts: list[str] = []
    first = 1
    for number, line in enumerate(lines, 1):
        if parts and NEW_BLOCK.match(line):
            yield first, " ".join(parts)
            parts = []
        if not parts:
            first = number
        if line.strip():
            parts.append(line.strip())
    if parts:
        yield first, " ".join(parts)


def _plain(clause: str) -> str:
    return " ".join(split_words(clause))


@lru_cache(maxsize=256)
def _flat(text: str) -> str:
    return f" {' '.join(split_words(text))} "
