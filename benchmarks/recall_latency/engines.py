"""Lexical engines on the same words: what a question costs, and what changing one memory costs."""

from __future__ import annotations

import importlib
import sqlite3
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.recall_latency.memories import QUESTIONS, memory, sentences
from benchmarks.report import Table
from sevenfold.memory.search.ranking import LexicalIndex
from sevenfold.memory.search.segment import IndexedFile, IndexedStamp, ScoredPiece, build_segment
from sevenfold.memory.text.words import tokenize_text

BEST: Final = 100
_Ask = Callable[[Sequence[str]], object]
_Change = Callable[[int], object]


def engines(sizes: Sequence[int]) -> Table:
    table = Table(
        "Words only: engines given the same words, ms",
        *("engine", "memories", "build s", "p50", "p95", "change one p50"),
    )
    asked = [list(dict.fromkeys(tokenize_text(q))) for q in sentences()[1][:QUESTIONS]]
    for size in sizes:
        texts = [tokenize_text(memory(number).decode()) for number in range(size)]
        for name, engine in (("SQLite FTS5", _fts5), ("tantivy", _tantivy), ("ours", _ours)):
            with tempfile.TemporaryDirectory() as folder:
                began = time.perf_counter()
                ready = engine(texts, Path(folder))
                if ready is None:
                    continue
                ask, change = ready
                took = time.perf_counter() - began
                ask(asked[0])
                times = timed(ask, asked)
                changes = timed(change, range(0, size, max(1, size // 20)))
                table.add(name, size, f"{took:.1f}", p(times, 50), p(times, 95), p(changes, 50))
    table.notes.append(
        f"the {BEST} best by BM25; stop words are out already; FTS5 and tantivy write to the disk when one "
        "is changed, ours here does not (the next table has that)"
    )
    return table


def timed(what: Callable[[Any], object], each: Sequence[Any]) -> list[float]:
    """Milliseconds, one for each."""
    times = []
    for one in each:
        began = time.perf_counter()
        what(one)
        times.append((time.perf_counter() - began) * 1e3)
    return sorted(times)


def p(times: Sequence[float], percent: int) -> str:
    return f"{times[min(len(times) - 1, len(times) * percent // 100)]:.2f}" if times else "-"


def _fts5(texts: Sequence[Sequence[str]], folder: Path) -> tuple[_Ask, _Change]:
    base = sqlite3.connect(folder / "fts.db")
    base.execute("pragma journal_mode=wal")
    base.execute("pragma synchronous=normal")
    base.execute("create virtual table t using fts5(x)")
    rows = ((number, " ".join(words)) for number, words in enumerate(texts))
    base.executemany("insert into t(rowid, x) values (?, ?)", rows)
    base.commit()

    def ask(words: Sequence[str]) -> object:
        match = " OR ".join(f'"{word}"' for word in words)
        sql = f"select rowid, bm25(t) from t where t match ? order by 2 limit {BEST}"
        return base.execute(sql, (match,)).fetchall()

    def change(number: int) -> None:
        base.execute("delete from t where rowid = ?", (number,))
        base.execute("insert into t(rowid, x) values (?, ?)", (number, " ".join(texts[number])))
        base.commit()

    return ask, change


def _tantivy(texts: Sequence[Sequence[str]], folder: Path) -> tuple[_Ask, _Change] | None:
    try:
        tantivy: Any = importlib.import_module("tantivy")
    except ImportError:
        return None
    fields = tantivy.SchemaBuilder()
    fields.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
    fields.add_text_field("x", tokenizer_name="whitespace", index_option="freq")
    schema = fields.build()
    index = tantivy.Index(schema, path=str(folder))
    writer = index.writer(50_000_000, 1)
    for number, words in enumerate(texts):
        writer.add_document(tantivy.Document(id=str(number), x=" ".join(words)))
    writer.commit()
    index.reload()

    def parts(words: Sequence[str]) -> Iterator[Any]:
        for word in words:
            yield tantivy.Occur.Should, tantivy.Query.term_query(schema, "x", word, "freq")

    def ask(words: Sequence[str]) -> object:
        searcher = index.searcher()
        hits = searcher.search(tantivy.Query.boolean_query(list(parts(words))), BEST).hits
        return [searcher.doc(place)["id"] for _, place in hits]

    def change(number: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            writer.delete_documents("id", str(number))
        writer.add_document(tantivy.Document(id=str(number), x=" ".join(texts[number])))
        writer.commit()
        index.reload()

    return ask, change


def _ours(texts: Sequence[Sequence[str]], folder: Path) -> tuple[_Ask, _Change]:
    def row(number: int) -> IndexedFile:
        words = tuple(texts[number])
        return IndexedFile(IndexedStamp(f"{number}.md", 1, 1, False), 1, (ScoredPiece(1, words),))

    lexical = LexicalIndex()
    lexical.add(build_segment([row(number) for number in range(len(texts))]))

    def ask(words: Sequence[str]) -> object:
        looked = lexical.look(words)
        scores = lexical.scores(looked, looked.rarity).whole
        return (-scores).argpartition(min(BEST, len(scores) - 1))[:BEST]

    def change(number: int) -> None:
        lexical.add(build_segment([row(number)]))
        at = lexical.tail()
        if at is not None:
            lexical.swap(at, lexical.joined(at))

    return ask, change
