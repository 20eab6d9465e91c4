"""Lists of words as they are easiest to read: in one string, with spaces between them."""

from __future__ import annotations

from sevenfold.memory.search.words import stem


def word_set(words: str) -> frozenset[str]:
    """The words of a list."""
    return frozenset(words.split())


def stem_set(words: str) -> frozenset[str]:
    """The words of a list without their endings."""
    return frozenset(stem(word) for word in words.split())
