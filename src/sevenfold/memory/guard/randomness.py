"""Whether a value looks drawn at random, or is a word, a path, a name or a placeholder."""

from __future__ import annotations

import re
from typing import Final

_PIECES: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_LONGEST_PIECE: Final = 3.3
"""Words come in pieces of about five letters; random letters and digits take turns every one to three."""
_FEWEST: Final = 8
"""So many different characters at least."""

_PLACEHOLDER: Final = re.compile(
    r"\.\.\.|\*\*\*|[xX]{4}|0{8}|#{3}|_{4}|-{4}|•{2}|"
    r"^[<\[{$%@]|[>\]}]$|\$\{|\{\{|%\(|%s|<[^>]*>|"
    r"example|dummy|sample|placeholder|redacted|censored|changeme|change[_-]me|replace[_-]?(?:me|with|this)|"
    r"insert[_-]?|your[_-]|yourkey|yourtoken|[_-]here$|to[_-]?be[_-]|goes[_-]?here|"
    r"foobar|\bfake|[_-]fake|^mock|[_-]mock|示例|你的|占位",
    re.IGNORECASE,
)
_EXAMPLE: Final = re.compile(
    r"\.\.\.|\*\*\*|[xX]{6}|0{12}|•{2}|[<>{}$]|EXAMPLE|example|dummy|placeholder|redacted|REDACTED|"
    r"(?:^|[_-])(?:your|YOUR|fake|FAKE)[_-]",
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


def random(value: str, least: int = 16) -> bool:
    """Whether letters and digits take turns as they do in keys, and not in words, paths or dates."""
    if len(value) < least or _DATE.match(value):
        return False
    if _UUID.fullmatch(value):
        return True
    pieces = _PIECES.findall(value)
    if not pieces or len(set(value)) < _FEWEST:
        return False
    solid = sum(map(len, pieces))
    if solid < least * 3 // 4 or solid / len(pieces) > _LONGEST_PIECE:
        return False
    return (any(map(str.isdigit, value)) and any(map(str.isalpha, value))) or _alternating(value)


def _alternating(value: str) -> bool:
    """Letters alone: only a long run that changes its case all the time."""
    return len(value) >= 24 and not value.islower() and not value.isupper()


def placeholder(value: str) -> bool:
    """Whether it stands for a value: dots, angle brackets, "your-key", a variable."""
    return bool(_PLACEHOLDER.search(value) or _VARIABLE.fullmatch(value)) or len(set(value)) < 3


def documented(value: str) -> bool:
    """The same for a complete token: only what says itself that it is an example."""
    return bool(_EXAMPLE.search(value.rstrip(".")))


def code(value: str) -> bool:
    """Whether it is an expression, a path or a name in code, and not a value."""
    return bool(_CODE.fullmatch(value) or path(value))


def path(value: str) -> bool:
    return bool(_PATH.match(value)) and not random(value.rsplit("/", 1)[-1], 20)


def uuid(value: str) -> bool:
    return bool(_UUID.fullmatch(value))


def hexadecimal(value: str) -> bool:
    return bool(_HEX.fullmatch(value))
