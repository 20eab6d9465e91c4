"""A bounded search for words in the transcripts of a project, newest first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from sevenfold.core.errors import Mistake
from sevenfold.storage.files import make_storage_failure
from sevenfold.storage.places import ProjectPaths, list_sessions

BLOCK: Final = 4 << 20
LONGEST: Final = 64 << 20  # A longer entry (bytes) is not searched
AROUND: Final = 100  # Characters that are shown on each side of the first match
IN_ONE: Final = 3  # Most hits from one entry
_ASIDE: Final = frozenset({"type", "id", "tool_use_id", "signature", "data", "media_type", "name"})
"""Fields of a block that are not text."""


class GrepHit(msgspec.Struct, frozen=True):
    """One line in a transcript that has the words."""

    session: str
    at: float
    by: str
    text: str  # The line, or as much of it as stands around the first match
    path: Path
    entry: int


class SearchWords(msgspec.Struct, frozen=True):
    """Words to look for, in any case; quoted ones belong together."""

    words: tuple[str, ...]

    def all_in(self, text: str) -> bool:
        folded = text.lower()
        return all(word in folded for word in self.words)

    def any_in(self, text: str) -> bool:
        folded = text.lower()
        return any(word in folded for word in self.words)

    def cut_around(self, line: str) -> str:
        """The part of a line around the first match."""
        found = [at for word in self.words if (at := line.lower().find(word)) >= 0]
        at = min(found, default=0)
        start, end = max(0, at - AROUND), at + AROUND + len(self.words[0])
        shown = " ".join(line[start:end].split())
        return f"{'…' if start else ''}{shown}{'…' if end < len(line) else ''}"

    @property
    def on_disk(self) -> bytes:
        """Bytes that every matching entry contains, once it is in lower case."""
        longest = max([part for word in self.words for part in _split_caseless(word)], key=len, default="")
        return msgspec.json.encode(longest)[1:-1].lower()


def parse_search_words(text: str) -> SearchWords | None:
    """The words of a search; None when there are none."""
    found = re.findall(r'"([^"]+)"|(\S+)', text)
    words = tuple(" ".join((quoted or plain).lower().split()) for quoted, plain in found)
    words = tuple(dict.fromkeys(word for word in words if word))
    return SearchWords(words) if words else None


def _split_caseless(word: str) -> list[str]:
    """The parts of a word whose bytes are the same in every spelling, but for the case of ASCII."""
    same = [c if c.isascii() or (c.upper() == c and c.lower() == c) else "\0" for c in word]
    return [part for part in "".join(same).split("\0") if part]


def grep_transcripts(places: ProjectPaths, wanted: SearchWords, limit: int) -> Iterator[GrepHit]:
    """The hits, those of the newest session first; reading stops at the limit."""
    needle, given = wanted.on_disk, 0
    if not needle:
        raise Mistake("transcripts cannot be searched for that: give a word with plain letters")
    for session in list_sessions(places):
        for line in find_lines_with(session.path, needle):
            for said in _find_hits(line, wanted, session.path):
                yield said
                given += 1
                if given == limit:
                    return


def find_lines_with(path: Path, needle: bytes) -> Iterator[bytes]:
    """The lines of a file that hold these bytes, which are in lower case."""
    rest = b""
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                data = rest + block
                end = data.rfind(b"\n") + 1
                yield from _find_in_block(data[:end], needle)
                rest = data[end:] if len(data) - end <= LONGEST else b""
    except OSError as error:
        raise make_storage_failure(error, path, "read") from error
    yield from _find_in_block(rest, needle)


def _find_in_block(data: bytes, needle: bytes) -> Iterator[bytes]:
    lowered, at = data.lower(), 0
    while (found := lowered.find(needle, at)) >= 0:
        start = lowered.rfind(b"\n", 0, found) + 1
        stop = lowered.find(b"\n", found)
        stop = len(data) if stop < 0 else stop
        yield data[start:stop]
        at = stop + 1


class _SearchedEntry(msgspec.Struct, frozen=True):
    id: int = 0
    at: float = 0.0
    by: str = ""
    what: dict[str, Any] = {}


_search_decoder = msgspec.json.Decoder(_SearchedEntry)


def _find_hits(line: bytes, wanted: SearchWords, path: Path) -> Iterator[GrepHit]:
    try:
        entry = _search_decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return  # torn, or of a kind we do not know
    if entry.what.get("type") not in ("message", "reply"):
        return  # a note of a layer, not part of the conversation
    given = 0
    for text in _iterate_texts(entry.what.get("message", entry.what.get("content"))):
        for each in text.split("\n") if wanted.all_in(text) else ():
            if wanted.all_in(each):
                yield GrepHit(path.stem, entry.at, entry.by, wanted.cut_around(each), path, entry.id)
                given += 1
                if given == IN_ONE:
                    return


def _iterate_texts(value: Any) -> Iterator[str]:
    """The texts in a message."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _iterate_texts(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key not in _ASIDE:
                yield from _iterate_texts(each)
