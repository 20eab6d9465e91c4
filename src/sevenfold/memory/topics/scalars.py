"""How one value is written into frontmatter so that every YAML reader reads it back the same.

Plain where plain is safe, in quotes where strict YAML would take the text for something else (a
mapping, a comment, a number, a date). One line always: readers that go line by line see all of it.
"""

from __future__ import annotations

import re
from typing import Final

_WORD: Final = re.compile(r"[^\W_]")
_UNSAFE_INSIDE: Final = re.compile(r":(?:\s|$)|\s#|\s$|[\u2028\u2029\x85]")
_FLOW: Final = frozenset(",[]{}")
_OTHER_TYPES: Final = frozenset(
    ["y", "n", "yes", "no", "true", "false", "on", "off", "null", "nan", "inf", "infinity"]
)
"""Words that YAML reads as something other than a text."""
_NUMBER_OR_DATE: Final = re.compile(r"\d[\d_.:a-fA-FxXoOtTzZ+\- ]*")
_ESCAPED: Final = re.compile('["\\\\\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]')
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def scalar(text: str, *, flow: bool = False) -> str:
    """The text as a YAML scalar on one line; `flow` when it stands inside `{}` or `[]`."""
    if _is_plain(text) and not (flow and _FLOW.intersection(text)):
        return text
    if _ESCAPED.search(text) is None:
        return f'"{text}"'
    if "'" not in text and _ESCAPED.search(text.replace('"', "").replace("\\", "")) is None:
        return f"'{text}'"
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _is_plain(text: str) -> bool:
    first = text[:1]
    if _WORD.match(first) is None or _UNSAFE_INSIDE.search(text):
        return False
    if _ESCAPED.search(text.replace('"', "").replace("\\", "")):
        return False
    return text.lower() not in _OTHER_TYPES and _NUMBER_OR_DATE.fullmatch(text) is None


def _escape(match: re.Match[str]) -> str:
    letter = match.group()
    code = ord(letter)
    if letter in _SHORT:
        return _SHORT[letter]
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"  # half a character: no file can hold it
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
