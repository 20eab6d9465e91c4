"""Puts together what the three readers of secrets see, without ever telling what it is.

They are the shapes of known tokens (`formats`), what stands after words like "password" (`assigned`), and
the maintained detectors of `detect-secrets` (`maintained`). What they look at has its disguises taken off.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sevenfold.memory.guard.assigned import spoken
from sevenfold.memory.guard.formats import Token, tokens
from sevenfold.memory.guard.found import Found, line
from sevenfold.memory.guard.maintained import detectors
from sevenfold.memory.guard.reading import broken, encoded, plain

SHOWN: Final = 4
"""Characters of a token that may be told, where all tokens of its kind begin with them."""
_MOST: Final = 50
"""Findings that are reported; more would not change what is done."""


def spotted(text: str) -> list[Found]:
    """Every secret in a text, in the order of its lines."""
    text = plain(text)
    seen = _distinct(_tokens(text))
    found = [(token.start, _told(token, text, token.start)) for token in seen]
    for start, joined in broken(text):
        if not any(token.start <= start < token.end for token in seen):
            whole = _distinct(_shapes(joined))[:1]
            found += [
                (start, _told(token, text, start, "it is broken over lines")) for token in whole
            ]
    for start, said in encoded(text):
        hidden = _distinct(_tokens(plain(said)))
        found += [(start, _told(token, text, start, "it is written in base64")) for token in hidden]
    found.sort(key=lambda placed: placed[0])
    return [told for _, told in found[:_MOST]]


def _tokens(text: str) -> Iterator[Token]:
    yield from tokens(text)
    yield from spoken(text)
    yield from detectors().tokens(text)


def _shapes(text: str) -> Iterator[Token]:
    yield from tokens(text)
    yield from detectors().tokens(text)


def _distinct(found: Iterator[Token]) -> list[Token]:
    """One finding for one place: the first reader that saw it names it best."""
    kept: list[Token] = []
    for token in found:
        if not any(token.start < other.end and other.start < token.end for other in kept):
            kept.append(token)
        if len(kept) >= _MOST:
            break
    return sorted(kept, key=lambda token: token.start)


def _told(token: Token, text: str, position: int, how: str = "") -> Found:
    why = (
        f"it begins like one, {token.head[:SHOWN]}…" if token.head else _WHY.get(token.what, _SHAPE)
    )
    return Found(
        kind="secret",
        what=token.what,
        where=line(text, position),
        why=f"{why}; {how}" if how else why,
    )


_SHAPE: Final = "it has the shape of one"
_WHY: Final = {
    "password": "what follows the word looks like a password",
    "secret value": "what follows the word looks random, as keys do",
    "password in a URL": "there is a password between the user and the host",
    "password on a command line": "the command is given a password",
}
