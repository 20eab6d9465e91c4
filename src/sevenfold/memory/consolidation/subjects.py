"""What a memory is about, by its name and description: whether two of them have one subject."""

from __future__ import annotations

from typing import Final

from sevenfold.memory.search.words import tokens
from sevenfold.memory.topic import Topic

SHARED: Final = 0.3
"""The part of the words of both names that two memories on one subject have in common."""
_VAGUE: Final = frozenset(
    tokens(
        "user users feedback project projects reference references memory memories note notes info "
        "information preference preferences profile general misc about details fact facts setting "
        "settings update updated new old copy again latest current version"
    )
) | frozenset(["用户", "项目", "笔记"])


def name_words(topic: Topic) -> frozenset[str]:
    """The words of a memory's name and file that tell what it is about."""
    stem = topic.file.rpartition("/")[2].removesuffix(".md")
    return frozenset(tokens(f"{topic.name} {stem.replace('_', ' ')}"))


def told(topic: Topic) -> frozenset[str]:
    """The same without the words that every other name has, and without numbers."""
    return frozenset(
        word for word in name_words(topic) if word not in _VAGUE and not word.isdigit()
    )


def of_one_subject(one: Topic, other: Topic) -> bool:
    """Whether names or descriptions show that two memories are about the same thing."""
    if numbered_apart(one, other):
        return False
    return overlap(told(one), told(other)) >= SHARED or _alike_described(one, other)


def overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """The part of all their words that two sets share."""
    both = len(one & other)
    return both / (len(one) + len(other) - both) if both else 0.0


def _alike_described(one: Topic, other: Topic) -> bool:
    left, right = frozenset(tokens(one.description)), frozenset(tokens(other.description))
    return len(left & right) >= 3 and overlap(left, right) >= 0.5


def numbered_apart(one: Topic, other: Topic) -> bool:
    """`sprint-12` and `sprint-13` are two things; `no-mocks` and `no-mocks-2` may be one."""
    left, right = name_words(one), name_words(other)
    mine, theirs = (
        {word for word in words if any(sign.isdigit() for sign in word)}
        for words in (left - right, right - left)
    )
    return bool(mine) and bool(theirs)
