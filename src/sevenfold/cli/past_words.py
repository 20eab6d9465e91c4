"""A narrow grep of what was said in the sessions of a project: bounded, streamed, newest first.

Transcripts grow to hundreds of megabytes. A block is looked through for the rarest of the words as it
stands on disk, and only an entry that has it is taken apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from sevenfold.errors import Mistake
from sevenfold.storage.files import failure
from sevenfold.storage.places import Places, list_sessions

BLOCK: Final = 4 << 20
LONGEST: Final = 64 << 20
"""Bytes of an entry that is looked at; a longer one is passed over."""
AROUND: Final = 100
"""Characters that are shown on each side of the first match."""
IN_ONE: Final = 3
"""Lines of one entry that are given back."""
_ASIDE: Final = frozenset({"type", "id", "tool_use_id", "signature", "data", "media_type", "name"})
"""What stands in a block beside what it says."""


class Said(msgspec.Struct, frozen=True):
    """One line in a transcript that has the words."""

    session: str
    at: float
    by: str
    text: str
    """The line, or as much of it as stands around the first match."""
    path: Path
    entry: int


class Sought(msgspec.Struct, frozen=True):
    """Words to look for, in any case; quoted ones belong together."""

    words: tuple[str, ...]

    def all_in(self, text: str) -> bool:
        folded = text.lower()
        return all(word in folded for word in self.words)

    def any_in(self, text: str) -> bool:
        folded = text.lower()
        return any(word in folded for word in self.words)

    def around(self, line: str) -> str:
        """As much of a line as shows the first match."""
        found = [at for word in self.words if (at := line.lower().find(word)) >= 0]
        at = min(found, default=0)
        start, end = max(0, at - AROUND), at + AROUND + len(self.words[0])
        shown = " ".join(line[start:end].split())
        return f"{'…' if start else ''}{shown}{'…' if end < len(line) else ''}"

    @property
    def on_disk(self) -> bytes:
        """Bytes that every entry with the words has, once it is in lower case."""
        parts = [part for word in self.words for part in _caseless(word)]
        longest = max(parts, key=len, default="")
        return msgspec.json.encode(longest)[1:-1].lower()


def sought(text: str) -> Sought | None:
    """The words of a search; None when there are none."""
    found = re.findall(r'"([^"]+)"|(\S+)', text)
    words = tuple(" ".join((quoted or plain).lower().split()) for quoted, plain in found)
    words = tuple(dict.fromkeys(word for word in words if word))
    return Sought(words) if words else None


def _caseless(word: str) -> list[str]:
    """The parts of a word whose bytes are the same in every spelling, but for the case of ASCII."""
    same = [c if c.isascii() or (c.upper() == c and c.lower() == c) else "\0" for c in word]
    return [part for part in "".join(same).split("\0") if part]


def said_in(places: Places, wanted: Sought, limit: int) -> Iterator[Said]:
    """The newest session first; as many as are asked for, and not more than looked for."""
    needle, given = wanted.on_disk, 0
    if not needle:
        raise Mistake("transcripts cannot be searched for that: give a word with plain letters")
    for session in list_sessions(places):
        for line in lines_with(session.path, needle):
            for said in _matching(line, wanted, session.path):
                yield said
                given += 1
                if given == limit:
                    return


def lines_with(path: Path, needle: bytes) -> Iterator[bytes]:
    """The lines of a file that hold these bytes, which are in lower case."""
    rest = b""
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                data = rest + block
                end = data.rfind(b"\n") + 1
                yield from _in_block(data[:end], needle)
                rest = data[end:] if len(data) - end <= LONGEST else b""
    except OSError as error:
        raise failure(error, path, "read") from error
    yield from _in_block(rest, needle)


def _in_block(data: bytes, needle: bytes) -> Iterator[bytes]:
    lowered, at = data.lower(), 0
    while (found := lowered.find(needle, at)) >= 0:
        start = lowered.rfind(b"\n", 0, found) + 1
        stop = lowered.find(b"\n", found)
        stop = len(data) if stop < 0 else stop
        yield data[start:stop]
        at = stop + 1


class _Entry(msgspec.Struct, frozen=True):
    id: int = 0
    at: float = 0.0
    by: str = ""
    what: dict[str, Any] = {}


_entry = msgspec.json.Decoder(_Entry)


def _matching(line: bytes, wanted: Sought, path: Path) -> Iterator[Said]:
    try:
        entry = _entry.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return  # torn, or of a kind we do not know
    if entry.what.get("type") not in ("message", "reply"):
        return  # what layers note down was not said
    given = 0
    for text in _texts(entry.what.get("message", entry.what.get("content"))):
        for each in text.split("\n") if wanted.all_in(text) else ():
            if wanted.all_in(each):
                yield Said(path.stem, entry.at, entry.by, wanted.around(each), path, entry.id)
                given += 1
                if given == IN_ONE:
                    return


def _texts(value: Any) -> Iterator[str]:
    """What a message says, to a person or to a tool."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key not in _ASIDE:
                yield from _texts(each)
