"""Our own answers: the search index itself, over memories that are handed to it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from sevenfold.memory.search.embedding import Embedder
from sevenfold.memory.search.index import SearchIndex

TOP: Final = 10
SHOWN: Final = 5  # As many as recall shows


class Answer(NamedTuple):
    """The best memories, and those that recall shows of them; the same by words alone."""

    ranking: list[str]
    shown: list[str]
    by_words: list[str]
    shown_by_words: list[str]


def answers(
    folder: Mapping[str, str], questions: Sequence[str], embedder: Embedder | None
) -> Iterator[Answer]:
    names = list(folder)
    files = {f"{at}.md": text.encode() for at, text in enumerate(folder.values())}
    listing = [(file, 1, len(data)) for file, data in files.items()]
    with (
        tempfile.TemporaryDirectory() as state,
        SearchIndex(Path(state), embedder) as index,
        SearchIndex(Path(state)) as plain,
    ):
        index.refresh(listing, files.__getitem__)
        plain.refresh(listing, files.__getitem__)
        index.build(files.__getitem__)
        index.wait()
        if problem := index.progress().problem:
            print(f"  no vectors: {problem}", file=sys.stderr)
        for question in questions:
            both = (_asked(one, question, names) for one in (index, plain))
            (ranking, shown), (words, shown_by_words) = both
            yield Answer(ranking, shown, words, shown_by_words)


def _asked(index: SearchIndex, question: str, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """All that is found, and what a conversation is shown: the same rules, the same limit."""
    ranked, shown = index.search(question, TOP, silent=False), index.search(question, SHOWN)
    return [names[int(hit.file[:-3])] for hit in ranked], [names[int(hit.file[:-3])] for hit in shown]
