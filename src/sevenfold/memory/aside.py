"""Whether a person wants memory set aside: "ignore memory" means to work as if it were empty."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

LONGEST: Final = 4_000
"""Characters of a message that are looked at."""
_MEMORY: Final = (
    r"(?:the\s+|your\s+|my\s+|our\s+|all\s+|any\s+|saved\s+)*(?:memory|memories|what\s+you\s+remember)\b"
    r"(?!-|\s+(?:leak|usage|use|limit|error|warning|footprint|pressure|manage|alloc|safe|address|bound"
    r"|consum|issue|problem|test|bug|constraint|overhead|layout|access|barrier|file\s+format))"
)
_IGNORE: Final = re.compile(
    rf"\b(?:ignore|disregard|(?:do\s+not|don['’]?t)\s+(?:use|consult|look\s+at|rely\s+on|read)"
    rf"|without(?:\s+(?:using|looking\s+at|consulting))?)\s+{_MEMORY}"
    "|(?:忽略|无视|不要(?:使用|参考|用|看)|别(?:参考|用|看)|不用)(?:掉)?(?:你的|所有的?|任何)?记忆",
    re.IGNORECASE,
)
_NOT_IGNORE: Final = re.compile(
    rf"\b(?:stop\s+ignoring|(?:do\s+not|don['’]?t)\s+ignore)\s+{_MEMORY}", re.IGNORECASE
)
_USE: Final = re.compile(
    rf"\b(?:use|consult)\s+{_MEMORY}|(?:重新|可以|继续)(?:使用|参考|用)(?:你的)?记忆", re.IGNORECASE
)


def set_aside(typed: Iterable[str]) -> bool:
    """Whether memory is to be ignored now; `typed` is what the person said, the newest first."""
    for text in typed:
        rest, wanted = _without(_NOT_IGNORE, text[:LONGEST])
        rest, ignored = _without(_IGNORE, rest)
        wanted = max(wanted, _without(_USE, rest)[1])
        if ignored != wanted:
            return ignored > wanted
    return False


def _without(pattern: re.Pattern[str], text: str) -> tuple[str, int]:
    """The text with blanks where it matches, and where the last match ends; -1: there is none."""
    ends = [found.end() for found in pattern.finditer(text)]
    return pattern.sub(lambda found: " " * len(found[0]), text), max(ends, default=-1)
