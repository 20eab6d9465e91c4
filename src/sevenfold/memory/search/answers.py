"""What the search index says: what it found, what a look at the files changed, how far vectors are."""

from __future__ import annotations

import msgspec


class Hit(msgspec.Struct, frozen=True):
    """A memory file that answers a question."""

    file: str
    score: float
    """To rank by: words and meaning, each beside the most that any memory has for this question."""
    lexical: float
    """By its words, the whole file (BM25); 0 when it shares none with the question."""
    semantic: float
    """By its meaning (cosine of its nearest passage); 0 when it has no vectors."""


class Refreshed(msgspec.Struct, frozen=True):
    """What a look at the files found; all empty when nothing had changed."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()


class Progress(msgspec.Struct, frozen=True):
    """How far the vectors are; `str` of it is a line for people."""

    done: int = 0
    total: int = 0
    rate: float = 0.0
    """Passages a second."""
    running: bool = False
    problem: str = ""
    """Why it stopped before the end; empty when it did not."""

    def __str__(self) -> str:
        said = f"{self.done:,} of {self.total:,} passages have vectors"
        if self.rate:
            said += f", {self.rate:,.0f} a second"
        return f"{said}; {self.problem}" if self.problem else said
