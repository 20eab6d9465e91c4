"""Findings and verdicts of the guard, and a text as a model would read it: without disguises.

None of these values holds the text itself: a secret must not travel on in a warning, and an order to the
agent must not reach it in the explanation of a refusal.
"""

from __future__ import annotations

import base64
import binascii
import re
import shlex
import string
import unicodedata
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["secret", "instruction", "size", "source"]
Action: TypeAlias = Literal["pass", "refuse", "quarantine"]


class GuardFinding(msgspec.Struct, frozen=True):
    """One thing that should not be in a memory."""

    kind: Kind
    what: str  # In words: "GitHub token", "tells the agent to drop its instructions"
    where: str  # "line 3"
    why: str
    """The passage; of a secret at most the first four characters, and those only where every
    token of that kind begins with them."""


class GuardVerdict(msgspec.Struct, frozen=True):
    """The decision about a text, with a sentence of reason."""

    action: Action
    findings: tuple[GuardFinding, ...] = ()
    explanation: str = ""

    @property
    def passed(self) -> bool:
        return self.action == "pass"


PASSED: Final = GuardVerdict("pass")


def format_quarantine_hint(what: str = "", agent: str = "") -> str:
    """The command that shows the quarantine of the project, or of an agent."""
    whose = f"--agent {shlex.quote(agent)}" if agent else ""
    return " ".join(filter(None, ("sevenfold memory quarantine", what, whose)))


def format_line_number(text: str, position: int) -> str:
    """A position as a line number."""
    return f"line {text.count(chr(10), 0, position) + 1}"


_HIDDEN: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]+"
)
_TAGS: Final = re.compile("[\U000e0020-\U000e007e]{3,}")
_TAG_OFFSET: Final = 0xE0000
_BREAKS: Final = re.compile("\r\n?")
_ODD_BREAKS: Final = re.compile("[\v\f\x1c-\x1e\x85\u2028\u2029]")

_LOOKALIKES: Final = str.maketrans(
    "аеорсухіјѕԁһӏвкмнтАВЕКМНОРСТУХІЈЅαοερυικντΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeopcyxijsdhlbkmhtABEKMHOPCTYXIJSaoepuikvtABEZHIKMNOPTYX",
)
_FOREIGN: Final = re.compile("[Ͱ-ӿԀ-ԯ]")
_MIXED: Final = re.compile(r"[^\W\d_]*(?:[a-z][Ͱ-ӿԀ-ԯ]|[Ͱ-ӿԀ-ԯ][a-z])[^\W\d_]*", re.IGNORECASE)

_RUN: Final = re.compile(r"[A-Za-z0-9_+/=.:~-]{4,}")
_RUN_OF: Final = string.ascii_letters + string.digits + "_+/=.:~-"
_NEXT_LINE: Final = re.compile(r"""["'`]?[ \t]*[+\\]?[ \t]*\n[ \t>|#*]*\+?[ \t]*["'`]?""")
_SHORTEST: Final = 4
_LINES: Final = 12  # Over how many lines a broken token is followed

_ENCODED: Final = re.compile(
    r"(?<![A-Za-z0-9+/_=.-])[A-Za-z0-9+/_-]{24,}(?:[ \t]*\n[ \t>]*[A-Za-z0-9+/_-]{24,}={0,2})*={0,2}"
)
_ENCODED_MOST: Final = 20  # The most runs that are decoded; a picture is one run
_READABLE: Final = 0.97


def remove_disguises(text: str) -> str:
    """The text without disguises; each line stays on its line."""
    if "\r" in text:
        text = _BREAKS.sub("\n", text)
    if not text.isascii():
        text = _HIDDEN.sub("", unicodedata.normalize("NFKC", text))
    return _ODD_BREAKS.sub(" ", text)


def undo_lookalikes(text: str) -> str:
    """The same with lookalike letters undone, in words that mix alphabets."""
    if text.isascii() or not _FOREIGN.search(text):
        return text
    return _MIXED.sub(lambda word: word[0].translate(_LOOKALIKES), text)


def find_tag_text(text: str) -> Iterator[tuple[int, str]]:
    """Text in invisible tag characters, with its position."""
    if text.isascii():
        return
    for run in _TAGS.finditer(text):
        yield run.start(), "".join(chr(ord(letter) - _TAG_OFFSET) for letter in run[0])


def find_base64_text(text: str) -> Iterator[tuple[int, str]]:
    """Text in base64, with its position."""
    for count, run in enumerate(_ENCODED.finditer(text)):
        if count >= _ENCODED_MOST:
            return
        if (said := decode_base64(run[0])) is not None:
            yield run.start(), said


def find_split_tokens(text: str) -> Iterator[tuple[int, str]]:
    """Tokens that continue in the next line or are joined from quoted parts."""
    begin = done = 0
    while (newline := text.find("\n", begin)) >= 0:
        start, end = _last_run(text[begin:newline])
        first, begin = begin + start, newline + 1
        if end - start < _SHORTEST or first < done:
            continue
        parts, done = _going_on(text, first, first + end - start)
        if len(parts) > 1:
            yield first, "".join(parts)


def _last_run(line: str) -> tuple[int, int]:
    """The span of the last run of token characters; a quote, a plus or a backslash may follow."""
    line = line.rstrip(" \t")
    line = (line[:-1] if line[-1:] in ("+", "\\") else line).rstrip(" \t")
    line = line[:-1] if line[-1:] in ("'", '"', "`") else line
    return len(line.rstrip(_RUN_OF)), len(line)


def _going_on(text: str, start: int, end: int) -> tuple[list[str], int]:
    """The run and what follows it line by line, and where that ends."""
    parts = [text[start:end]]
    while _solid(parts[-1]) and len(parts) <= _LINES:
        gap = _NEXT_LINE.match(text, end)
        more = gap and _RUN.match(text, gap.end())
        if not more or not _solid(more[0]):
            break
        parts.append(more[0])
        end = more.end()
    return parts, end


def _solid(run: str) -> bool:
    """True if it can be a piece of a token and is not just the last word of a line."""
    return any(map(str.isdigit, run)) or not (run.islower() or run.istitle())


def decode_base64(value: str) -> str | None:
    """A base64 value as text, or None when it is none."""
    value = re.sub(r"[\s>]", "", value).rstrip("=").replace("-", "+").replace("_", "/")
    if len(value) % 4 == 1:
        value = value[:-1]
    try:
        said = base64.b64decode(value + "=" * (-len(value) % 4), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None
    shown = sum(letter.isprintable() or letter in "\n\r\t" for letter in said)
    return said if said and shown >= len(said) * _READABLE else None
