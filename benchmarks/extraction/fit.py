"""Fits the weights of the offline engine on some personas and reports on the one left out, in turn.

python -m benchmarks.extraction.fit [--all] [--nested] [--json]

`--all` prints the weights fitted on all personas, which is what `offline/worth.toml` holds.
`--nested` chooses the limits of worth without the persona too, by weights fitted on two of the others.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import cache
from typing import Final

import msgspec
import numpy as np

from benchmarks.extraction.learning import make_messages
from benchmarks.extraction.matching import LENIENT, STRICT, covered, matched, words
from benchmarks.extraction.personas import Session, names, sessions
from benchmarks.report import Table, show
from sevenfold.offline import extraction
from sevenfold.offline.conversation import OfflineConversation
from sevenfold.offline.cues import BESIDE, LIMIT, find_traits, load_weights
from sevenfold.offline.extraction import extract_facts, find_kind
from sevenfold.offline.language import TypedSentence, find_typed_sentences, rewrite_statement, trim_remarks

RIDGE: Final = 2.0  # Keeps weights small for which there is little evidence
ROUNDS: Final = 40
WISHED: Final = 85.0  # Lenient precision, in %
LIMITS: Final = tuple((limit, beside) for limit in (0.6, 0.8, 1.0, 1.2, 1.4) for beside in (-1.0, 0.0, 0.5))


class Typed(msgspec.Struct, frozen=True):
    """A session of a persona: what was typed, and the words of each gold memory."""

    session: Session
    sentences: tuple[TypedSentence, ...]
    gold: tuple[frozenset[str], ...]


class Score(msgspec.Struct, frozen=True):
    """What is saved of a persona's sessions, judged without a folder: nothing is known before."""

    saved: int
    lenient: float
    covered_strict: float
    covered_lenient: float
    noise: int
    gold: int


@cache
def typed_sessions(name: str) -> tuple[Typed, ...]:
    return tuple(_read(one) for one in sessions(name))


def _read(session: Session) -> Typed:
    pairs = list(make_messages(session))
    added = frozenset(at for at, (_, by) in enumerate(pairs) if by == "session")
    conversation = OfflineConversation(tuple(message for message, _ in pairs), added=added)
    sentences = tuple(find_typed_sentences(conversation, 0, len(pairs)))
    return Typed(session, sentences, tuple(words(gold.text) for gold in session.gold))


@cache
def read_rows(name: str) -> tuple[list[list[float]], list[bool]]:
    """The traits of every sentence of a persona, and whether it matches a gold memory of its session."""
    order = list(load_weights())
    rows, marks = [], []
    for one in typed_sessions(name):
        for sentence in one.sentences:
            traits = find_traits(sentence, find_kind(sentence))
            rows.append([traits[name] for name in order])
            said = words(rewrite_statement(trim_remarks(sentence.text), sentence.day))
            marks.append(max((matched(said, gold) for gold in one.gold), default=0.0) >= LENIENT)
    return rows, marks


def fit_weights(personas: Sequence[str]) -> dict[str, float]:
    """The weights of a logistic regression: whether a sentence matches a gold memory, by its traits."""
    order = list(load_weights())
    found = [read_rows(name) for name in personas]
    x = np.array([row for rows, _ in found for row in rows])
    y = np.array([mark for _, marks in found for mark in marks], float)
    fitted = np.zeros(len(order))
    for _ in range(ROUNDS):
        chance = 1 / (1 + np.exp(-x @ fitted))
        slope = x.T @ (chance - y) + RIDGE * fitted
        bend = (x.T * (chance * (1 - chance))) @ x + RIDGE * np.eye(len(order))
        fitted -= np.linalg.solve(bend, slope)
    return dict(zip(order, map(float, fitted), strict=True))


def judge(personas: Sequence[str]) -> Score:
    """With the weights of the moment."""
    saved = matches = noise = total = strict = lenient = 0
    for one in (one for name in personas for one in typed_sessions(name)):
        found = [words(fact.text) for fact in extract_facts(one.sentences)]
        saved += len(found)
        noise += len(found) if one.session.is_noise else 0
        matches += sum(max((matched(f, g) for g in one.gold), default=0.0) >= LENIENT for f in found)
        parts = [max((covered(gold, f) for f in found), default=0.0) for gold in one.gold]
        total += len(parts)
        strict += sum(part >= STRICT for part in parts)
        lenient += sum(part >= LENIENT for part in parts)
    share = 100 / max(1, total)
    return Score(saved, 100 * matches / max(1, saved), share * strict, share * lenient, noise, total)


def held_out_table() -> Table:
    """Each persona with weights that were fitted without it."""
    table = _make_table("Offline: weights fitted on the other personas, reported on this one, %")
    found = {name: judge_with(name, _others(names(), name)) for name in names()}
    return _fill(table, found)


def nested_table() -> Table:
    """The limits, too, chosen on the other personas: the most coverage at the wished precision there."""
    table = _make_table("Offline: weights and limits chosen on the other personas, %")
    found = {}
    for name in names():
        rest = _others(names(), name)
        tried = [(limits, _sum_up([_inner(one, rest, limits) for one in rest])) for limits in LIMITS]
        good = [one for one in tried if one[1].lenient >= WISHED]
        best = max(good, key=lambda one: one[1].covered_lenient, default=None) or max(
            tried, key=lambda one: one[1].lenient
        )
        found[name] = judge_with(name, rest, best[0])
        table.notes.append(f"{name}: saved from {best[0][0]} on, added from {best[0][1]} on")
    return _fill(table, found)


def judge_with(name: str, personas: Sequence[str], limits: tuple[float, float] | None = None) -> Score:
    """One persona, by weights fitted on others, and by other limits than the product's."""
    shipped, own = dict(load_weights()), (LIMIT, BESIDE)
    load_weights().update(fit_weights(personas))
    vars(extraction).update(zip(("LIMIT", "BESIDE"), limits or own, strict=True))
    try:
        return judge([name])
    finally:
        load_weights().update(shipped)
        vars(extraction).update(zip(("LIMIT", "BESIDE"), own, strict=True))


def _inner(name: str, personas: Sequence[str], limits: tuple[float, float]) -> Score:
    return judge_with(name, _others(personas, name), limits)


def _others(personas: Sequence[str], name: str) -> list[str]:
    return [other for other in personas if other != name]


def _sum_up(scores: Sequence[Score]) -> Score:
    saved, gold = sum(one.saved for one in scores) or 1, sum(one.gold for one in scores) or 1
    return Score(
        sum(one.saved for one in scores),
        sum(one.saved * one.lenient for one in scores) / saved,
        sum(one.gold * one.covered_strict for one in scores) / gold,
        sum(one.gold * one.covered_lenient for one in scores) / gold,
        sum(one.noise for one in scores),
        gold,
    )


def _make_table(title: str) -> Table:
    table = Table(title, *("persona", "saved", "precision lenient", "covered strict", "lenient", "noise"))
    table.notes.append("without a memory folder: what earlier sessions saved is not known here")
    return table


def _fill(table: Table, found: dict[str, Score]) -> Table:
    for name, score in (found | {"all": _sum_up(list(found.values()))}).items():
        figures = (score.lenient, score.covered_strict, score.covered_lenient)
        table.add(name, score.saved, *(f"{figure:.1f}" for figure in figures), score.noise)
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--all", action="store_true", help="print the weights fitted on all personas")
    parser.add_argument("--nested", action="store_true", help="choose the limits on the others too")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    options = parser.parse_args()
    if options.all:
        for name, weight in fit_weights(names()).items():
            print(f'"{name}" = {weight:.2f}')
        sys.exit(0)
    show([nested_table() if options.nested else held_out_table()], as_json=options.json)
