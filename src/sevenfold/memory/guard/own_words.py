"""Tells what a user typed himself from what he pasted or quoted: mails, logs, pages, other people's words.

    "Summarise this mail: Hi all, always approve …"     own: "Summarise this mail:"

Foreign are fences, `>` lines, tags, a mail from its headers or its greeting on, text after a lead-in ("here
is the mail:"), reported speech in quotation marks, and what stands far down in a long message. In doubt a
text is foreign: then it founds no rule, and nothing else is lost. The words stand in `own_words.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

Span: TypeAlias = tuple[int, int]

TABLE: Final = Path(__file__).with_name("own_words.toml")
LONGEST: Final = 20_000  # Characters of a message that are looked at
LONG: Final = 1_600  # Characters of own text; what stands further down in a longer message was pasted
_KEPT: Final = 800  # Characters at the beginning of such a message that still are the user's
_FEW: Final = 12  # Words after a lead-in without a colon that make a text
_LETTER: Final = 10  # Words after a greeting that make a letter
_TERM: Final = 2  # Words in quotation marks that are only a name
_PHRASE: Final = 8  # Words in quotation marks that may be the user's own, where no other speaker is named
_NEAR: Final = 400  # Characters between two headers of one mail

_CLAUSE: Final = re.compile(
    r"[^\n.!?。！？]{0,200}?(?:[:：](?!//)(?=\s|[\"“„«「'‘]|[^\x00-\x7f]|$)|\s(?:--|—|->|→)(?=\s))"
)
_FENCE: Final = re.compile(r"(?m)^[ \t]*(?:`{3,}|~{3,}|\"{3}|'{3})[^\n]*$|\"\"\"|```")
_RULER: Final = re.compile(
    r"(?m)^[ \t]*(?:[-=*_#~+–—]{3,}|(?:[-=*_] ){3,})[^\n\w]*(?:\w[^\n]{0,60}[-=*_#~]{2,})?[ \t]*$"
)
_TAG: Final = re.compile(r"<([A-Za-z_][\w.-]*)(?:\s[^<>\n]*)?>")
_QUOTED_LINE: Final = re.compile(r"(?m)^[ \t]*(?:>|&gt;|\|).*(?:\n|$)")
_INDENTED: Final = re.compile(r"(?m)^(?: {4,}|\t)(?![-*•\d]).*(?:\n|$)")
_MARKS: Final = ("“”", "„“", "«»", "「」", "『』", "‘’", "《》", '""', "''")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?。！？…])[\"”’)]*(?:\s+|(?<=[。！？]))|\n+")
_PARAGRAPH: Final = re.compile(r"\n[ \t]*\n")
_WORD: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+")
_SIGNS: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_DEICTIC: Final = re.compile(
    r"(?i)\b(?:this|these|below|following|attached|fyi|fwd|dies\w*)\b|这|這|下面|以下|如下"
)
_POINTS_UP: Final = re.compile(r"(?i)\b(?:this|that|above)\b|这|這|以上|上面")
_ITEM: Final = re.compile(r"\s*(?:[-*•+]|\d{1,2}[.)]|\*\*)")
_FIRST_PERSON: Final = re.compile(r"(?i)\b(?:i|i'm|i’m|i've|i’ve|my|me|ich|mein\w*|mir)\b|我")


class TypedText(msgspec.Struct, frozen=True):
    """A message of the user: his own words, and the texts that he pasted or quoted in it."""

    own: str
    pasted: tuple[str, ...] = ()


@lru_cache(maxsize=4_096)
def split_pasted_text(text: str) -> TypedText:
    """The user's own words in a message, and what is foreign in it."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if len(text) > LONGEST:
        first = split_pasted_text(text[:LONGEST])
        return TypedText(first.own, (*first.pasted, text[LONGEST:]))
    spans = list(_marked_spans(text))
    spans += _reported_speech(_blanked(text, spans))
    rest = _blanked(text, spans)
    spans.append((min(_announced(rest), _mail(rest)), len(text)))
    spans += _asked_about(rest)
    own = _blanked(text, spans)
    if len(own.strip()) > LONG:
        cut = own.rfind("\n", 0, _KEPT)
        spans.append((cut if cut > 0 else _KEPT, len(text)))
        own = _blanked(text, spans)
    return TypedText(re.sub(r"[ \t]*\n\s*\n\s*", "\n\n", own).strip(), tuple(_pieces(text, spans)))


@cache
def _pattern(name: str) -> re.Pattern[str]:
    """A row of the table."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    text: str = rows[name] if name != "named" else rf"(?i)\b{rows['document']}\b|{rows['signs']}"
    return re.compile(text.replace("{document}", rows["document"]).replace("{signs}", rows["signs"]))


def _has(name: str, text: str) -> bool:
    return _pattern(name).search(text) is not None


def _blanked(text: str, spans: list[Span]) -> str:
    """The text with line breaks where a span is foreign; every place stays where it is."""
    for start, end in spans:
        text = f"{text[:start]}{chr(10) * (end - start)}{text[end:]}"
    return text


def _pieces(text: str, spans: list[Span]) -> Iterator[str]:
    done = 0
    for start, end in sorted(spans):
        if end > done and (piece := text[max(start, done) : end].strip()):
            yield piece
        done = max(done, end)


def _marked_spans(text: str) -> Iterator[Span]:
    """Blocks with a sign of their own: fences, rulers, tags, quoted and indented lines, lines of a chat."""
    for pattern in (_FENCE, _RULER):  # to the last: what was pasted may have such lines, too
        if found := list(pattern.finditer(text)):
            yield found[0].start(), found[-1].end() if len(found) > 1 else len(text)
    for tag in _TAG.finditer(text):
        if (end := text.rfind(f"</{tag[1]}>")) > tag.start():
            yield tag.start(), end + len(tag[1]) + 3
    yield from (line.span() for line in _QUOTED_LINE.finditer(text))
    yield from (line.span() for line in _INDENTED.finditer(text))
    spoken = [line for line in _pattern("speaker").finditer(text) if not _pattern("label").match(line[0])]
    if len(spoken) > 1:
        yield from (line.span() for line in spoken if count_spoken_words(line[0]) > _TERM + 2)


def _announced(text: str) -> int:
    """The end of the first lead-in: from there on all is foreign."""
    found = [_after_request(text), *(_after_lead(text, clause) for clause in _CLAUSE.finditer(text))]
    return min((at for at in found if at is not None), default=len(text))


def _mail(text: str) -> int:
    """The paragraph in which a mail begins: with a header, a greeting, or any, where somebody signs."""
    headers = [found.start() for found in _pattern("header").finditer(text)]
    places = [a for a, b in pairwise(headers) if b - a < _NEAR]
    places += [one.start() for name in ("subject", "forwarded") for one in _pattern(name).finditer(text)]
    signed = _pattern("signed").search(text)
    for found in _pattern("greeting").finditer(text):
        below = bool(text[: found.start()].strip())
        much = count_spoken_words(text[found.end() :]) >= _LETTER
        if signed or (much and (below or _has("foreign_signs", text))):
            places.append(found.start())
    if signed and "\n" in text.strip():
        places.append(signed.start())
    if not places:
        return len(text)
    return max((gap.end() for gap in _PARAGRAPH.finditer(text, 0, min(places))), default=0)


def _asked_about(text: str) -> Iterator[Span]:
    """All above a last question about "this mail"."""
    body = text.rstrip()
    last = max((gap.end() for gap in _PARAGRAPH.finditer(body)), default=0)
    above, question = body[:last], body[last:]
    asks = _has("above", question) and _has("asked", question)
    sure = _POINTS_UP.search(question) is not None or _is_foreign(above)
    if asks and sure and count_spoken_words(above) >= _LETTER:
        yield 0, last


def _after_lead(text: str, clause: re.Match[str]) -> int | None:
    """The end of a clause with a colon that announces another's words."""
    said = clause[0].rstrip(":： ->—→")
    named = _has("named", said)
    if (_has("own_list", said) or _has("myself", said)) and not named:
        return None
    colon = clause[0].endswith((":", "："))  # "keep messages short -- one line" announces nothing
    announced = named and colon and not _ITEM.match(said) and not _is_short_item(text, clause)
    here = _has("here", said) and _is_foreign(text[clause.end() :])
    if _has("pointing", said) or _has("worked_on", said) or announced or here:
        return clause.end()
    return None


def _is_short_item(text: str, clause: re.Match[str]) -> bool:
    """True for `Log level: debug`, which names a value; `the log: …` announces a text."""
    after = text[clause.end() :]
    line = after.split("\n", 1)[0]
    short = 0 < count_spoken_words(line) <= _TERM + 2 and count_spoken_words(after) <= _FEW
    return short and not re.search(r"[.!?。！？]\s*$", line)


def _after_request(text: str) -> int | None:
    """The end of the sentence that asks about a text without a colon, where enough follows."""
    at = 0
    for found in _SENTENCE_END.finditer(text):
        sentence, rest = text[at : found.end()], text[found.end() :]
        pointed = _has("pointed", sentence)
        if (words := count_spoken_words(rest)) < _FEW // 2:
            return None
        at = found.end()
        if not (pointed or (words >= _FEW and _has("asked", sentence))):
            continue
        breaks = "\n" in found[0]
        if _has("named", sentence) and (breaks or pointed or _has("foreign_signs", rest)):
            return at
        if (breaks or pointed) and _DEICTIC.search(sentence) and _is_foreign(rest):
            return at
    return None


def _is_foreign(text: str) -> bool:
    """True for a text with signs of a mail, a page or a log, or one that never speaks of its writer."""
    signs = any(_has(name, text) for name in ("foreign_signs", "greeting", "signed"))
    return signs or not _FIRST_PERSON.search(text)


def _reported_speech(text: str) -> Iterator[Span]:
    """Quotation marks around what somebody else said, or around whole sentences."""
    for opening, closing in _MARKS:
        at = 0
        while (start := text.find(opening, at)) >= 0:
            at = start + 1
            if opening == "'" and text[start - 1 : start].strip():  # an apostrophe
                continue
            lead = re.split(r"[.!?。！？\n]", text[max(0, start - 80) : start])[-1].rstrip()
            end = text.find(closing, start + 1)
            if opening == closing == '"' and _has("pointing", lead.rstrip(" :：,")):
                end = text.rfind(closing)  # a quote may quote: it lasts until the last mark
            end = len(text) - 1 if end <= start else end
            if opening != "'" or not text[end + 1 : end + 2].isalnum():
                at = end + 1
                if _is_reported(text[start + 1 : end], lead):
                    yield start, at


def _is_reported(inside: str, lead: str) -> bool:
    count = count_spoken_words(inside)
    if count <= _TERM or (_has("own_list", lead) and not _has("named", lead)):
        return False
    spoken = lead.rstrip(" :：,")
    if not spoken or lead.endswith((":", "：")) or _has("pointing", spoken) or _has("named", spoken):
        return True
    return count > _PHRASE or bool(re.search(r"[.!?。！？]\s+\S", inside))


def count_spoken_words(text: str) -> int:
    """The words of a text; two signs of Chinese or Japanese are one."""
    signs = len(_SIGNS.findall(text)) if not text.isascii() else 0
    return len(_WORD.findall(text)) - signs + (signs + 1) // 2
