"""Tells values that were drawn at random from names, words, paths, code and placeholders."""

from __future__ import annotations

import re
from typing import Final

_PIECES: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_JOINTS: Final = re.compile(r"[-_./ ]")
_LONGEST_PIECE: Final = 3.3
"""Words come in pieces of about five letters; random letters and digits take turns every one to three."""
_LONGEST_HEX_PIECE: Final = 5.0  # Ten of sixteen digits are no letters: runs are longer by chance
_FEWEST: Final = 8  # So many different characters at least

_FEWEST_VOWELS: Final = 0.27  # Words have two in five; letters drawn at random one in five

_PLACEHOLDER: Final = re.compile(
    r"\.\.\.|\*\*\*|[xX]{4}|0{8}|#{3}|_{4}|-{4}|•{2}|"
    r"^[<\[{$%@]|[>\]}]$|\$\{|\{\{|%\(\w|%s|<[^>]*>|&lt;|"
    r"example|dummy|sample|placeholder|redacted|censored|changeme|change[_-]me|replace[_-]?(?:me|with|this)|"
    r"insert[_-]?|your[_-]|yourkey|yourtoken|[_-]here$|to[_-]?be[_-]|goes[_-]?here|"
    r"foobar|\bfake|[_-]fake|^mock|[_-]mock|示例|你的|占位",
    re.IGNORECASE,
)
_EXAMPLE: Final = re.compile(
    r"\.\.\.|\*\*\*|[xX]{6}|0{12}|•{2}|[<>{}]|EXAMPLE|example|dummy|placeholder|redacted|REDACTED|"
    r"(?:^|[_-])(?:your|YOUR|fake|FAKE)[_-]"
)
_VARIABLE: Final = re.compile(r"\$?[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|\$[A-Za-z_]\w*|%[A-Za-z_]\w*%")
_PATH: Final = re.compile(
    r"(?:~|\.{0,2})/|[A-Za-z]:\\|.*\.(?:[a-z]{1,5}|json5|py3|mp[34])(?:[:#].*)?$|.*/$"
)
_CODE: Final = re.compile(
    r".*(?:\(\)|::|->|=>|&&|\|\||==)|"
    r"(?:process\.env|os\.environ|os\.getenv|import\.meta|self|this|config|settings|env|secrets|vars|req|ctx|"
    r"data|user|props|params|options|args|github|inputs|steps|var|local|module|node|std|cfg|state|app)\.\w"
    r".*|[a-z_]\w*\.[a-z_]\w*(?:\.\w+)*|@[a-z][\w/.-]*|!?(?:ref|sub|env|secret)\b.*",
    re.IGNORECASE,
)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d|v?\d+\.\d+(?:\.\d+)*(?:[-+.][\w.]+)?$")
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HEX: Final = re.compile(r"(?:0x)?(?:[0-9a-f]+|[0-9A-F]+)")


def is_random(value: str, least: int = 16) -> bool:
    """True if letters and digits alternate as in keys, not as in words, paths or dates."""
    if len(value) < least or _DATE.match(value):
        return False
    if _UUID.fullmatch(value):
        return True
    pieces = _PIECES.findall(value)
    if not pieces or _is_joined_words(value) or len(set(value)) < _FEWEST:
        return False
    solid = sum(map(len, pieces))
    longest = _LONGEST_HEX_PIECE if solid >= 32 and is_hexadecimal(value) else _LONGEST_PIECE
    if solid < least * 3 // 4:
        return False
    if solid / len(pieces) > longest:
        return _is_unpronounceable(value)
    if any(map(str.isdigit, value)) and any(map(str.isalpha, value)):
        return True
    # Letters alone: only a long run that changes its case all the time.
    return len(value) >= 24 and not value.islower() and not value.isupper()


def _is_joined_words(value: str) -> bool:
    """True for words and numbers with dashes between them: `e2e-secret-for-tests-only`."""
    parts = [part for part in _JOINTS.split(value) if part]
    return len(parts) > 2 and all(
        len(part) < 4
        or part.isdigit()
        or (part.isalpha() and (part.islower() or part.istitle() or part.isupper()))
        for part in parts
    )


def _is_unpronounceable(value: str) -> bool:
    """True for letters and digits in one case that no words can make: too few of them are vowels."""
    letters = sum(map(str.isalpha, value))
    if not value.isalnum() or letters < 16 or len(value) - letters < 2:
        return False
    return sum(map(value.lower().count, "aeiou")) / letters < _FEWEST_VOWELS


def is_mixed(value: str) -> bool:
    """True if it has small letters, capitals and digits: no hash, no UUID, no constant."""
    return not value.islower() and not value.isupper() and any(map(str.isdigit, value))


def is_placeholder(value: str) -> bool:
    """True if it stands for a value: dots, angle brackets, "your-key", a variable."""
    return bool(_PLACEHOLDER.search(value) or _VARIABLE.fullmatch(value)) or len(set(value)) < 3


def is_documented_example(value: str) -> bool:
    """The same for a complete token: only what says itself that it is an example."""
    return bool(_EXAMPLE.search(value.rstrip(".")))


def is_code(value: str) -> bool:
    """True for an expression, a path or a name in code."""
    return bool(_CODE.fullmatch(value) or is_path(value)) and not is_random(value.rsplit(".", 1)[-1], 20)


def is_path(value: str) -> bool:
    return bool(_PATH.match(value)) and not is_random(value.rsplit("/", 1)[-1], 20)


def is_hexadecimal(value: str) -> bool:
    """True for what can be a hash or a UUID: one case of hexadecimal digits, dashes allowed."""
    return bool(_HEX.fullmatch(value.replace("-", "")))
