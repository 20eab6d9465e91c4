"""Answers by words straight from the files, while there is no index yet.

Every file is looked through once for the beginnings of the question's words; the best are then read
properly and scored as the index would. It takes a fraction of a second for ten thousand files, because
nothing is cut into words that does not have one. Without numpy: its import alone takes as long.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from msgspec.structs import replace

from sevenfold.core.errors import SevenfoldError
from sevenfold.memory.search.relevance import RecallEvidence, find_traits, is_worth_showing
from sevenfold.memory.search.scoring import (
    BESIDE_BY_WORDS,
    K1,
    SEVERAL,
    B,
    SearchHit,
    add_kinship,
    add_word_scores,
    compute_rarity,
    is_long,
    read_texts,
    weigh_question,
)
from sevenfold.memory.text.words import stem_word, tokenize_text

CLOSELY: Final = 40  # Files that are read properly
_SHORT: Final = 4  # A stem with fewer letters is looked for as a whole word with a short ending
_ReadFile: TypeAlias = tuple[list[tuple[list[str], float]], list[str]]  # Its passages, and all its words
_MARK: Final = re.compile(r"[a-z0-9]")


@dataclass(slots=True)
class ScannedFiles:
    """The files that have a word of the question, and how many have each."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    files: Counter[str] = field(default_factory=Counter)
    looked: int = 0  # At so many files
    characters: int = 0  # Of all of them

    def score(self, file: str, weights: Mapping[str, float]) -> float:
        """BM25 of a whole file, by beginnings of words."""
        norm = K1 * (1 - B + B * self.sizes[file] * self.looked / max(self.characters, 1))
        return sum(weights[word] * (K1 + 1) * n / (n + norm) for word, n in self.counts[file].items())


def count_in_files(
    files: Iterable[str], read: Callable[[str], bytes], words: Iterable[str], going: Callable[[], bool]
) -> ScannedFiles:
    """Count the words in these files, until `going` says no."""
    by_beginning = {_beginning(word): word for word in words}
    whole = [re.escape(word) for word in by_beginning if _MARK.match(word) and len(word) < _SHORT]
    begun = [re.escape(word) for word in by_beginning if _MARK.match(word) and len(word) >= _SHORT]
    signs = [re.escape(word) for word in by_beginning if not _MARK.match(word)]
    ways = [rf"(?<![^\W_])(?:{'|'.join(begun)})"] if begun else []
    ways += [rf"(?<![^\W_])(?:{'|'.join(whole)})[a-z]{{0,3}}(?![^\W_])"] if whole else []
    pattern = re.compile("|".join([*ways, *signs]))
    found = ScannedFiles()
    for file in files:
        try:
            text = read(file).decode("utf-8", "replace").lower()
        except (OSError, SevenfoldError):
            continue
        found.looked += 1
        found.characters += len(text)
        if hits := pattern.findall(text):
            known = (by_beginning.get(hit) or by_beginning.get(stem_word(hit)) for hit in hits)
            count = Counter(word for word in known if word)
            found.counts[file], found.sizes[file] = count, len(text)
            found.files.update(count.keys())
        if not going():
            break
    return found


def _beginning(word: str) -> str:
    """The part of a word's stem that all of its forms have: `city` and `cities` are `citi`."""
    return word[:-1] if len(word) > _SHORT and word.endswith("i") and word.isascii() else word


class _ScannedHit(SearchHit, frozen=True):
    share: float
    covered: float
    passages: int


def search_files(
    files: Iterable[str],
    read: Callable[[str], bytes],
    query: str,
    limit: int,
    skip: AbstractSet[str] = frozenset(),
    *,
    silent: bool = True,
    going: Callable[[], bool] = lambda: True,
) -> list[SearchHit]:
    """The files that answer a question, the best first, of those that were seen before `going` said no."""
    words = list(dict.fromkeys(tokenize_text(query)))
    if not words or limit < 1:
        return []
    found = count_in_files(files, read, words, going)
    weights = weigh_question({w: compute_rarity(found.files[w], found.looked) for w in words}, query)
    rough = sorted(found.counts, key=lambda file: (-found.score(file, weights), file))
    closely = dict[str, _ReadFile]()
    for file in rough[: max(CLOSELY, 2 * limit)]:
        with suppress(OSError, SevenfoldError):  # it went away meanwhile
            closely[file] = _read_file(file, read(file))
    lengths = [len(words) for parts, _ in closely.values() for words, _ in parts]
    usual = max(1.0, sum(lengths) / max(len(lengths), 1))
    hits = [_score_file(file, one, found, weights, usual) for file, one in closely.items()]
    hits = [hit for hit in hits if hit.score > 0]
    if is_long(len(words)):
        texts = [closely[hit.file][1] for hit in hits]
        raised = add_kinship([hit.score for hit in hits], len(words), partial(_compare_words, texts))
        hits = [replace(hit, score=score) for hit, score in zip(hits, raised, strict=True)]
    hits.sort(key=lambda hit: (-hit.score, hit.file))
    if silent and hits:
        traits = find_traits(query, {word: found.files[word] > 0 for word in words})
        passages = found.looked * sum(hit.passages for hit in hits) // len(hits)
        if not is_worth_showing(traits, RecallEvidence(hits[0].share, hits[0].covered, None, passages)):
            return []
        hits = [hit for hit in hits if hit.score >= BESIDE_BY_WORDS * hits[0].score]
    return list[SearchHit]([hit for hit in hits if hit.file not in skip][:limit])


def _read_file(file: str, data: bytes) -> _ReadFile:
    parts, rest = read_texts(data, file)
    cut = [(tokenize_text(part.text), part.weight) for part in parts]
    return cut, [word for words, _ in cut for word in words] + tokenize_text(rest)


def _score_file(
    file: str, text: _ReadFile, found: ScannedFiles, weights: Mapping[str, float], usual: float
) -> _ScannedHit:
    """The scores of the index for one file; how long others are is known by their characters only."""
    cut, every = text
    even = is_long(len(weights))
    scores = [_bm25(words, weights, usual) * (1 if even else weight) for words, weight in cut]
    passages = sorted(scores, reverse=True)
    usual_whole = len(every) * found.characters / max(found.looked * found.sizes[file], 1)
    whole = _bm25(every, weights, max(1.0, usual_whole))
    few = passages[:SEVERAL]
    total, has = max(sum(weights.values()), 1e-9), set(every)
    return _ScannedHit(
        file,
        add_word_scores(whole, passages[0], sum(few) / len(few)),
        whole,
        0.0,
        share=passages[0] / (total * (K1 + 1)),
        covered=sum(weight for word, weight in weights.items() if word in has) / total,
        passages=len(cut),
    )


def _compare_words(texts: Sequence[list[str]], at: int) -> list[float]:
    """As in the index, but how rare a word is and how long others are is known by these texts alone."""
    usual, files = (
        sum(map(len, texts)) / len(texts),
        Counter(word for words in texts for word in set(words)),
    )
    norm = K1 * (1 - B + B * len(texts[at]) / usual)
    own = Counter(texts[at]).items()
    weights = {word: compute_rarity(files[word], len(texts)) ** 2 * n / (n + norm) for word, n in own}
    return [_bm25(words, weights, usual) for words in texts]


def _bm25(words: list[str], weights: Mapping[str, float], usual: float) -> float:
    norm = K1 * (1 - B + B * len(words) / usual)
    counts = Counter(word for word in words if word in weights)
    return sum(weights[word] * (K1 + 1) * n / (n + norm) for word, n in counts.items())
