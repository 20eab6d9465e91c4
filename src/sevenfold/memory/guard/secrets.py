"""Finds secrets in a text: keys, tokens, passwords and private keys, also in disguise.

Examples, placeholders, names of variables, hashes and paths are no secrets. Three readers look: for tokens
of published formats (`secret_formats.toml`), for values behind a telling name, and for keys with a prefix
that no table knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sevenfold.memory.guard.named_secrets import find_named_secrets
from sevenfold.memory.guard.secret_formats import SecretSpan, find_prefixed_tokens, find_runs, find_tokens
from sevenfold.memory.guard.text import (
    GuardFinding,
    find_base64_text,
    find_split_tokens,
    format_line_number,
    remove_disguises,
)

SHOWN: Final = 4  # Characters of a token that may be told, where all tokens of its kind begin with them
_MOST: Final = 50  # Findings that are reported; more would not change what is done


def find_secrets(text: str) -> list[GuardFinding]:
    """Every secret in a text, in the order of its lines."""
    text = remove_disguises(text)
    seen = _distinct(_tokens(text))
    found = [(token.start, _told(token, text, token.start)) for token in seen]
    for start, joined in find_split_tokens(text):
        if not any(token.start <= start < token.end for token in seen):
            whole = _distinct(_tokens(joined, named=False))[:1]
            found += [(start, _told(token, text, start, "it is broken over lines")) for token in whole]
    for start, said in find_base64_text(text):
        hidden = _distinct(_tokens(remove_disguises(said)))
        found += [(start, _told(token, text, start, "it is written in base64")) for token in hidden]
    found.sort(key=lambda placed: placed[0])
    return [told for _, told in found[:_MOST]]


def _tokens(text: str, *, named: bool = True) -> Iterator[SecretSpan]:
    runs = find_runs(text)
    yield from find_tokens(text, runs)
    if named:
        yield from find_named_secrets(text)
    yield from find_prefixed_tokens(text, runs)


def _distinct(found: Iterator[SecretSpan]) -> list[SecretSpan]:
    """One finding for one place: the first reader that saw it names it best."""
    kept: list[SecretSpan] = []
    for token in found:
        if not any(token.start < other.end and other.start < token.end for other in kept):
            kept.append(token)
        if len(kept) >= _MOST:
            break
    return sorted(kept, key=lambda token: token.start)


def _told(token: SecretSpan, text: str, position: int, how: str = "") -> GuardFinding:
    why = f"it begins like one, {token.head[:SHOWN]}…" if token.head else _WHY.get(token.what, _SHAPE)
    where = format_line_number(text, position)
    return GuardFinding("secret", token.what, where, f"{why}; {how}" if how else why)


_SHAPE: Final = "it has the shape of one"
_WHY: Final = {
    "password": "what follows the word looks like a password",
    "secret value": "what follows the word looks random, as keys do",
    "key with a prefix": "a long random part follows a short prefix, as in keys",
    "password beside a user name": "it stands where a password follows a user name",
    "token in a URL": "there is a random user name before the host",
    "password in a URL": "there is a password between the user and the host",
    "password on a command line": "the command is given a password",
}
