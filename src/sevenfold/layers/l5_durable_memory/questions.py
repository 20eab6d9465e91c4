"""What was asked: the newest thing that a person typed, and whether it is worth a search."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from sevenfold.facts import TYPED
from sevenfold.messages import Message, Text
from sevenfold.transcript import Id, View

LONGEST: Final = 2_000
"""Characters to search with. Of a longer text the two ends: a question stands before or after the rest."""
_PIPED: Final = re.compile(r"^<(stdin-*)>\n.*\n</\1>\s*\Z", re.DOTALL | re.MULTILINE)
_UNSPACED: Final = (
    (re.compile(r"[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"), 2),
    (re.compile(r"[\u3040-\u30ff]"), 4),
    (re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"), 5),
)
"""Scripts without spaces between words, and how many characters a word has: Han, kana, those of Thailand,
Laos, Burma and Cambodia."""
_WORD: Final = re.compile(r"\S*\w\S*")


class Question(msgspec.Struct, frozen=True):
    """Something that a person typed: where it stands, what it says, whether a reply has begun."""

    id: Id
    text: str
    answered: bool = False


def newest_question(view: View) -> Question | None:
    """The newest; results of tools and what the program itself said are none."""
    answered = False
    for at in range(len(view) - 1, -1, -1):
        placed = view[at]
        if placed.message.role == "assistant":
            answered = True
        elif placed.by in TYPED and not placed.message.results and (text := typed(placed.message)):
            return Question(placed.id, text, answered)
    return None


def typed_in(view: View) -> Iterator[str]:
    """All that a person typed, the newest first."""
    for at in range(len(view) - 1, -1, -1):
        placed = view[at]
        if placed.by in TYPED and placed.message.role == "user" and not placed.message.results:
            yield typed(placed.message)


def typed(message: Message) -> str:
    """The words of a message without what was piped in behind them."""
    text = "\n".join(b.text for b in message.content if isinstance(b, Text))
    return _PIPED.sub("", text).strip()


def is_worth_a_search(text: str) -> bool:
    """More than one word: "ok", "继续" and "continue" ask for nothing that could be remembered."""
    return words(text[:LONGEST]) >= 2


def words(text: str) -> float:
    """About how many words this has, in scripts with and without spaces."""
    count = 0.0
    for script, length in _UNSPACED:
        text, characters = script.subn(" ", text)
        count += characters / length
    return count + len(_WORD.findall(text))


def search_text(question: str) -> str:
    """What is searched for."""
    if len(question) <= LONGEST:
        return question
    return f"{question[: LONGEST // 2]}\n{question[-LONGEST // 2 :]}"
