"""The words that the user said himself, and whether they found a sentence of a memory.

A sentence is founded if the user said most of what it says: its words, its numbers and addresses, and the
same yes or no. An act that can do harm ("approve", "send", "without asking") must have been named by him.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from sevenfold.memory.guard.own_words import split_pasted_text
from sevenfold.memory.guard.rules import is_question, list_rule_words, load_same_words
from sevenfold.memory.text.words import STOP, STOP_SIGNS, make_word_set, split_written_words, stem_word

SHARE: Final = 0.5  # The part of its words that a sentence must share with what the user said
LOOSE: Final = 0.33  # The same for what a memory adds to a founded sentence
FEW: Final = 3  # Telling words of a short clause
REVERSE: Final = 0.6  # The part of a sentence of the user that a short clause takes up
REVERSE_ALL: Final = 0.2  # The same where the user said all of the clause
NEWEST: Final = 400  # Messages of the user that are looked at
_ALIKE: Final = 5  # First letters in which words of one root agree
_ENDING: Final = 4  # Letters by which such words differ in length
ASKED: Final = 0.8  # The same for a question, which states nothing
ACROSS: Final = 0.6  # The same where its words stand in several messages
NEAR: Final = 3  # Messages in a row that are taken together
WINDOW: Final = 3  # Sentences of a long message that are taken together
SHORT: Final = 60  # Words of a message that is one window
_DENYING: Final = make_word_set(
    "not no never none without avoid stop don don't dont doesn't isn't aren't won't can't cannot shouldn't "
    "mustn't wouldn't didn't nor neither nothing instead rather over than against skip refuse forbid "
    "forbidden ban nicht kein keine keinen keinem nie niemals ohne"
)
_UNTOLD: Final = STOP - make_word_set("ask tell told mention mentioned go")
_DENYING_SIGN: Final = re.compile("不|没|沒|别|別|勿|禁|无|無|未|非")
_TURN: Final = re.compile(
    r"[,;:.!?，；：。！？()]|but|before|after|until|unless|because|sondern|aber|bevor|wenn"
)
_SPAN: Final = 6  # Words after a negation that it turns
_PIECE: Final = re.compile(r"[,;:.!?，；：。！？()]|[^\s,;:.!?，；：。！？()]+")
_NUMBER: Final = re.compile(r"(?<![\w.-])\d[\d.,:]*\d|(?<![\w.-])\d(?![\w-])")
_DATE: Final = re.compile(r"\b\d{4}-\d{2}(?:-\d{2})?\b|\b(?:19|20)\d\d\b")
_ADDRESS: Final = re.compile(
    r"https?://\S+|\bwww\.\S+|[\w.+-]+@[\w-]+\.[\w.]+|\b(?:\d{1,3}\.){3}\d{1,3}\b"
    r"|\b[a-z0-9-]+\.(?:com|net|org|io|xyz|info|ru|cn|cc|biz|co|dev|app)\b"
)
_SENTENCE: Final = re.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])|\n+")
_COUNTED: Final = "zero one two three four five six seven eight nine ten eleven twelve"
_NUMBERS: Final = {word: str(number) for number, word in enumerate(_COUNTED.split())}
_YES: Final = re.compile(
    r"(?i)\W*(?:yes|yeah|yep|yup|sure|ok|okay|exactly|perfect|right|correct|agreed|absolutely|definitely"
    r"|please do|do it|do that|go ahead|sounds good|good idea|ja|genau|gerne|oui|sí|si|对|對|好|是的|可以"
    r"|没错|沒錯|行)(?!\w)"
)
_EMPHATIC: Final = re.compile(
    r"(?i)\b(?:exactly|like that|agreed|perfect|keep (?:it|doing)|genau)\b|就这样|就這樣|没错|沒錯|正是"
)
_APPROVAL_WORDS: Final = 12
_OFFER: Final = re.compile(
    r"(?i)\b(?:shall i|should i|do you want|would you like|want me to|may i|can i|ok if i|okay to|soll ich"
    r"|möchtest du)\b|要不要|是否|需要我|可以吗"
)


class _SpokenPart(msgspec.Struct, frozen=True, gc=False):
    """Some sentences of the user: their stems with yes (True) or no, and their text."""

    stems: dict[str, frozenset[bool]]
    text: str
    beginnings: dict[str, str]  # Of long stems, by their first letters
    sentences: tuple[frozenset[str], ...]  # The telling stems of each sentence


class SpokenWords:
    """What the user said himself in a conversation, message by message, without what he pasted."""

    def __init__(self, messages: Iterable[str] = ()) -> None:
        """`messages` as they were typed, the oldest first."""
        texts = [own for text in messages if (own := split_pasted_text(text).own)]
        texts = texts[-NEWEST:]
        near = ("\n".join(texts[at : at + NEAR]) for at in range(len(texts) - 1))
        self._parts = tuple(part for text in texts for part in _read_parts(text))
        self._wide = tuple(map(_read_part, near))

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> SpokenWords:
        """Texts that count as the user's words as they are: nothing in them was pasted."""
        made = cls()
        made._parts = tuple(part for text in texts for part in _read_parts(text))
        return made

    def join_with(self, other: SpokenWords) -> SpokenWords:
        """The words of both conversations."""
        made = SpokenWords()
        made._parts, made._wide = self._parts + other._parts, self._wide + other._wide
        return made

    def __bool__(self) -> bool:
        return bool(self._parts)

    def has_said(self, clause: str, share: float = SHARE) -> bool:
        """True if the user said this, in these words or in others."""
        stems = read_stems(clause)
        generic = list_rule_words("generic")
        telling = {one: said for one, said in stems.items() if one not in generic and not one.isdigit()}
        telling = telling or stems
        if not telling:
            return False
        if is_question(clause):
            share = max(share, ASKED)
        if any(_is_founded(clause, stems, telling, part, share) for part in self._parts):
            return True
        return any(_is_founded(clause, stems, telling, part, max(share, ACROSS)) for part in self._wide)


def extract_offers(reply: str, answer: str) -> str:
    """The part of a reply that the user made his own: a question that he answered with yes and little else,
    or a short proposal that he approved ("exactly like that")."""
    if not _YES.match(answer) or len(answer.split()) > _APPROVAL_WORDS:
        return ""
    own = split_pasted_text(reply).own
    sentences = [one for one in _SENTENCE.split(own) if one.strip()][-3:]
    if len(own.split()) <= SHORT and _EMPHATIC.search(answer):
        return " ".join(sentences)
    return " ".join(one for one in sentences if _OFFER.search(one))


def is_empty(clause: str) -> bool:
    """True if a clause only says how a rule is to be applied, and names no act that can do harm."""
    stems = read_stems(clause)
    if any(_is_risky(stem, said) for stem, said in stems.items()):
        return False
    if is_question(clause) and len(clause.split()) >= FEW:
        return False
    return all(stem in list_rule_words("generic") or stem.isdigit() for stem in stems)


def count_telling_words(clause: str) -> int:
    """The words of a clause that say what it is about."""
    return sum(stem not in list_rule_words("generic") for stem in read_stems(clause))


@lru_cache(maxsize=8_192)
def _read_parts(text: str) -> tuple[_SpokenPart, ...]:
    if not text:
        return ()
    sentences = [one for one in _SENTENCE.split(text) if one.strip()]
    if len(text.split()) <= SHORT and len(text) <= SHORT * 8:
        return (_read_part(text),)
    groups = (sentences[at : at + WINDOW] for at in range(max(1, len(sentences) - WINDOW + 1)))
    return tuple(_read_part("\n".join(some)) for some in groups)


@lru_cache(maxsize=8_192)
def _read_part(text: str) -> _SpokenPart:
    stems, generic = read_stems(text), list_rule_words("generic")
    beginnings = {one[:_ALIKE]: one for one in stems if len(one) >= _ALIKE}
    sentences = (frozenset(read_stems(one)) - generic for one in _SENTENCE.split(text))
    return _SpokenPart(stems, text.lower(), beginnings, tuple(filter(None, sentences)))


def read_stems(text: str) -> dict[str, frozenset[bool]]:
    """The words of a text without their endings: True as they stand, False after a negation."""
    found: dict[str, set[bool]] = {}
    same = load_same_words()
    left = 0
    for piece in _PIECE.findall(_DATE.sub(" ", text.lower().replace("’", "'"))):
        if _TURN.fullmatch(piece):
            left = 0
            continue
        bare = piece.strip("\"'`*_[]{}<>/\\-“”„‚‘«»‹›「」")
        if bare in _DENYING or bare.endswith("n't"):
            left = _SPAN
            continue
        for word, signs in split_written_words(bare):
            if signs:
                _add_signs(word, found)
            elif word not in _UNTOLD and (len(word) > 1 or word.isdigit()):
                stem = _NUMBERS.get(word, stem_word(word.split("'")[0]))
                found.setdefault(same.get(stem, stem), set()).add(left == 0)
        left = max(0, left - 1)
    return {stem: frozenset(said) for stem, said in found.items()}


def _add_signs(run: str, found: dict[str, set[bool]]) -> None:
    """Chinese two by two; a sign of denial turns what follows it in the run."""
    at = 0
    for part in re.split(f"({_DENYING_SIGN.pattern})", run):
        if _DENYING_SIGN.fullmatch(part):
            at = 1
            continue
        for piece in STOP_SIGNS.split(part):
            for pair in [piece[n : n + 2] for n in range(len(piece) - 1)] or ([piece] if piece else []):
                found.setdefault(pair, set()).add(at == 0)


def _is_founded(
    clause: str,
    stems: dict[str, frozenset[bool]],
    telling: dict[str, frozenset[bool]],
    part: _SpokenPart,
    share: float,
) -> bool:
    both = [stem for stem in telling if _same_word(stem, part) is not None]
    shared = [_same_word(stem, part) or stem for stem in both]
    if len(shared) < len(telling) * share or (len(telling) > 2 and len(shared) < 2):
        return False
    if share >= SHARE and len(telling) <= FEW:
        if len(both) < len(telling) and all(one in list_rule_words("acting") for one in both):
            return False  # "explain recursion" is not "explain the plan"
        if not _is_mostly_said(shared, len(telling), part):
            return False
    agreeing = sum(bool(telling[stem] & _same(stem, part)) for stem in both)
    if agreeing * 2 < len(both) or not agreeing:
        return False
    return _is_harmless(stems, part) and _has_values(clause, part)


def _is_mostly_said(shared: Sequence[str], count: int, part: _SpokenPart) -> bool:
    """True if a sentence of the user is about the few words that a short clause has in common with it.

    In a long conversation every word was said once: that founds nothing.
    """
    least = REVERSE if len(shared) < count else REVERSE_ALL
    return any(len(one.intersection(shared)) >= len(one) * least for one in part.sentences)


def _same_word(stem: str, part: _SpokenPart) -> str | None:
    """The word of the user that means the same: itself, or one that begins alike."""
    if stem in part.stems:
        return stem
    if len(stem) >= _ALIKE and stem.isalpha() and stem.isascii():
        found = part.beginnings.get(stem[:_ALIKE])
        return found if found is not None and abs(len(found) - len(stem)) <= _ENDING else None
    return None


def _same(stem: str, part: _SpokenPart) -> frozenset[bool]:
    return part.stems[_same_word(stem, part) or stem]


def _is_harmless(stems: dict[str, frozenset[bool]], part: _SpokenPart) -> bool:
    """True if the user named each act that can do harm, with the same yes or no."""
    return all(
        _same_word(stem, part) is not None and bool(said & _same(stem, part))
        for stem, said in stems.items()
        if _is_risky(stem, said)
    )


def _is_risky(stem: str, said: frozenset[bool]) -> bool:
    """True for an act that can do harm, and for a precaution that is left out."""
    return stem in list_rule_words("sensitive") or (stem in list_rule_words("careful") and False in said)


def _has_values(clause: str, part: _SpokenPart) -> bool:
    """True if the user said the numbers and addresses; a date may have been worked out."""
    lower = clause.lower()
    if any(one.rstrip(".,;:)") not in part.text for one in _ADDRESS.findall(lower)):
        return False
    numbers = _NUMBER.findall(_DATE.sub(" ", _ADDRESS.sub(" ", lower)))
    return all(one in part.text or one in part.stems for one in numbers)


def join_said(said: str | Sequence[str]) -> tuple[str, ...]:
    """What a caller says the user said, as messages."""
    return (said,) if isinstance(said, str) else tuple(said)


NOTHING_SAID: Final = SpokenWords()
