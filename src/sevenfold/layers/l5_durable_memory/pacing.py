"""When a conversation is looked through: at once for words that last, else when that costs next to nothing.

A look is one request on the whole prefix, and most turns say nothing that a later session needs. What is
said by the way can wait until the user is silent and the provider is about to drop the prefix: the same
request then looks through everything that waits, and keeps the prefix for as long again. Nothing that waits
is lost: it is looked at when the session ends, and after a crash when it is resumed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from sevenfold.request import TTL_SECONDS

LULL: Final = 0.85 * TTL_SECONDS["5m"]
"""Seconds of silence after which to look, before others think of keeping the prefix. One that is kept for
an hour does not wait for that hour."""
MOST: Final = 8
"""Turns that may wait: so many would be looked at only on resume, if the machine went down."""
_LASTING: Final = re.compile(
    r"\b(?:remember|forget|memori[sz]e|keep in mind|note that|from now on|going forward|in (?:the )?future"
    r"|always|never|every time|each time|whenever|prefer\w*|conventions?|deadline|freeze"
    r"|i(?:['’]m| am) (?:an?|the|new)\b|i (?:work|live|like|love|hate|use|own|maintain)\b"
    r"|i (?:don['’]?t|do not) (?:like|use)\b|call me|my (?:name|team|role|job|boss|manager)\b"
    r"|we (?:use|don['’]?t use|do not use|decided|agreed|ship|release|deploy)\b"
    r"|our (?:team|rule|policy|standard|style|process)\w*)"
    r"|记住|記住|别忘|別忘|以后|以後|今后|今後|总是|總是|永远|永遠|从不|從不|每次|偏好|喜欢|喜歡|讨厌|討厭"
    r"|我是|我叫|我们用|我們用|我们不|我們不|决定|決定|截止|规定|規定|约定|約定",
    re.IGNORECASE,
)
"""What people say when they mean more than this session. It decides when, never whether."""
_UNKNOWN: Final = re.compile(r"[^\W\d_\u0000-\u024f\u3400-\u9fff\uf900-\ufaff]")
"""Letters of scripts for which there are no such words here."""


def at_once(texts: Sequence[str]) -> bool:
    """Whether what was typed since the last look, in order, should be looked through without delay."""
    return len(texts) >= MOST or any(map(lasts, texts))


def lasts(text: str) -> bool:
    return bool(_LASTING.search(text)) or len(_UNKNOWN.findall(text)) * 2 > len(text)
