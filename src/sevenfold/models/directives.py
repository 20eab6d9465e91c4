"""Machine-tagged requests: how a message to a fork says what kind of work it asks for.

    <directive kind="notes" id="n-12">
    what to do, in words
    </directive>

A model reads the words. The offline engine dispatches on the kind, and a fork knows by the tag that it
is one. Only the very beginning of a text counts: a tag that is quoted further down asks for nothing.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

CLOSE: Final = "</directive>"
_TOKEN: Final = r"[A-Za-z0-9_.:-]{1,128}"
_OPEN: Final = rf'<directive kind="({_TOKEN})" id="({_TOKEN})">[ \t]*(?:\n|\Z)'


class Directive(msgspec.Struct, frozen=True):
    kind: str
    id: str
    body: str


def parse_directive(text: str) -> Directive | None:
    """The directive that a text is, or None. One that was never closed goes to the end."""
    opened = re.match(_OPEN, text)
    if opened is None:
        return None
    end = text.rfind(CLOSE, opened.end())
    body = text[opened.end() : end if end >= 0 else len(text)]
    return Directive(opened[1], opened[2], body.strip("\n"))


def write_directive(kind: str, id: str, body: str) -> str:
    """The text of a directive, as `parse_directive` reads it."""
    for token in (kind, id):
        if not re.fullmatch(_TOKEN, token):
            raise ValueError(f"{token!r} cannot stand in the tag of a directive")
    return f'<directive kind="{kind}" id="{id}">\n{body}\n{CLOSE}'
