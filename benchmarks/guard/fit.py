"""The weights of words by which a statement is weighed that no row of `loosening.toml` tells.

python -m benchmarks.guard.fit FILE

A logistic regression over the mean word vectors before and after the verb, and over beginnings of words. It
learns from all sets of statements but the fresh ones, and from sentences of real memory files, which count
little. What ships is a number for each word, so that no vector is needed when a memory is written.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from benchmarks.guard.source_cases import STATEMENTS
from benchmarks.guard.statements import load_statements
from benchmarks.guard.texts import DATA, memory_files
from sevenfold.memory.guard.rules import WEIGHED, is_rule, load_loosening
from sevenfold.memory.guard.wall import read_clauses
from sevenfold.memory.search.segment import open_arrays
from sevenfold.memory.search.word_table import DIMENSIONS, NAME, WORD_START, WordTable, load_word_table
from sevenfold.memory.topic_file import read_topic

SCALE: Final = 0.3  # How much a beginning of a word counts beside the vectors
STEM: Final = 6  # Letters of a beginning
RIDGE: Final = 0.1
REAL: Final = 0.03  # How much a sentence of a real memory counts
ROUNDS: Final = 10
USUAL: Final = 8  # A word occurs so often in the data, or once in a statement
LEAST: Final = 1.0  # A smaller weight of a word that stands in no statement is left out
LEAST_ELSEWHERE: Final = (
    3.0  # The same of a word of the table that does not occur: other languages are rare in the data
)
LEAST_STEM: Final = 0.03


def read_cases() -> list[tuple[str, bool, float]]:
    """Each text, whether it loosens, and how much it counts."""
    sets = [one for one in load_statements() if not one.fresh]
    found = [(text, True, 1.0) for text in (*(text for one in sets for text in one.loosening), *STATEMENTS)]
    found += [(text, False, 1.0) for one in sets for text in one.harmless]
    files = (text for _, kind, text in memory_files() if kind in ("memory-dir", "agent-memory"))
    clauses = (
        one
        for text in files
        for _, one in read_clauses(read_topic(text.encode(), "note.md"), text.encode())
    )
    real = list(dict.fromkeys(one for one in clauses if not is_rule(one) and len(one.split()) > 2))
    random.Random(1).shuffle(real)
    return found + [(one, False, REAL) for one in real[: len(real) // 3]]


def split_halves(text: str) -> tuple[list[str], list[str]]:
    """The words before the verb and those from it on."""
    lower = text.lower()
    found = load_loosening()[0]["verb"].search(lower)
    at = found.start() if found else 0
    return re.findall(WEIGHED, lower[:at]), re.findall(WEIGHED, lower[at:])


def find_vector(table: WordTable, word: str) -> Any:
    """The vector of a word, of length one; zeros when no piece of it is known."""
    places = table.cut(WORD_START + word)
    if not places:
        return np.zeros(DIMENSIONS)
    rows = table.rows(places)
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    found = (table.weights[places].astype(np.float32)[:, None] * rows).sum(0)
    return found / max(float(np.linalg.norm(found)), 1e-9)


def fit(x: Any, y: Any, weight: Any) -> Any:
    """Newton's steps, solved in the space of the texts: there are fewer of them than of words."""
    x = np.hstack([x, np.ones((len(x), 1))])
    ridge = np.full(x.shape[1], RIDGE)
    ridge[-1] = 1e-4
    found = np.zeros(x.shape[1])
    for _ in range(ROUNDS):
        chance = 1 / (1 + np.exp(-np.clip(x @ found, -30, 30)))
        slope = x.T @ (weight * (chance - y)) + ridge * found
        scaled = x / ridge
        inner = scaled @ x.T
        inner[np.diag_indices(len(x))] += 1 / np.maximum(weight * chance * (1 - chance), 1e-6)
        found -= slope / ridge - scaled.T @ np.linalg.solve(inner, x @ (slope / ridge))
    return found


def make_lines(table: WordTable, known: set[str]) -> Iterator[str]:
    """The lines of the table: a number for all, words with two numbers, beginnings with one."""
    vector = cache(lambda word: find_vector(table, word))
    cases = read_cases()
    halves = [split_halves(text) for text, _, _ in cases]
    own = {
        word
        for case, both in zip(cases, halves, strict=True)
        if case[2] == 1
        for part in both
        for word in part
    }
    stems = {stem: at for at, stem in enumerate(sorted({word[:STEM] for word in own}))}
    x = np.zeros((len(cases), 2 * DIMENSIONS + len(stems)))
    for row, both in zip(x, halves, strict=True):
        for at, words in enumerate(both):
            if words:
                row[at * DIMENSIONS :][:DIMENSIONS] = np.mean([vector(word) for word in words], 0)
            row[[2 * DIMENSIONS + stems[word[:STEM]] for word in words if word[:STEM] in stems]] = SCALE
    y, weight = (np.array([case[column] for case in cases], float) for column in (1, 2))
    found = fit(x, y, weight)
    yield f"= {100 * found[-1]:.0f}"
    usual = {word for word, count in count_words().items() if count >= USUAL and len(word) > 1}
    for word in sorted(own | usual | known):
        before, after = found[: 2 * DIMENSIONS].reshape(2, -1) @ vector(word)
        least = LEAST if word in usual else LEAST_ELSEWHERE
        if word in own or max(abs(before), abs(after)) >= least:
            yield f"{word} {100 * before:.0f} {100 * after:.0f}"
    for stem, at in stems.items():
        if abs(number := SCALE * found[2 * DIMENSIONS + at]) >= LEAST_STEM:
            yield f"{stem}* {100 * number:.0f}"


def list_words(folder: Path) -> set[str]:
    """The whole words of the table in Latin script, and the Chinese characters."""
    pieces = np.asarray(open_arrays(folder / NAME)[1]["pieces"]).tobytes().decode("utf-8").split("\n")
    words = (one.removeprefix(WORD_START) for one in pieces if one.startswith(WORD_START))
    latin = {word for word in words if re.fullmatch(r"[a-zß-öø-ÿœ]{3,}", word)}
    return latin | {one for one in pieces if re.fullmatch(r"[\u4e00-\u9fff]", one)}


def count_words() -> Counter[str]:
    """The words of people's conversations and memories, and of our own pages."""
    paths = [DATA / "longmemeval/oracle_dev.json.gz", *sorted((DATA / "realmem").glob("*.json.gz"))[:2]]
    texts = [text for path in paths for text in _find_texts(json.loads(gzip.decompress(path.read_bytes())))]
    texts += [text for _, _, text in memory_files()]
    docs = Path(__file__).parents[2] / "docs"
    texts += [path.read_text(encoding="utf-8") for path in docs.rglob("*.md")]
    return Counter(word for text in texts for word in re.findall(WEIGHED, text.lower()))


def _find_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        inside: Iterable[Any] = value.values() if isinstance(value, dict) else value
        for one in inside:
            yield from _find_texts(one)


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        table = load_word_table(Path(folder), going=lambda: True)
        made = list(make_lines(table, list_words(Path(folder))))
    Path(sys.argv[1]).write_text("\n".join(made) + "\n", encoding="utf-8")
