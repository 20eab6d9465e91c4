"""Finds the traces of a purged file: lines of indexes that point at it, and its name in sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from posixpath import normpath
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from sevenfold.memory.history.revisions import decode_path

INDEX: Final = b"MEMORY.md"
_LINK: Final = re.compile(rb"\]\(\s*<?([^)>\n]*)")


class PurgeReport(msgspec.Struct, frozen=True):
    """The result of a purge."""

    files: tuple[str, ...]
    ids: Mapping[str, str]  # The revisions of which nothing is left
    removed: tuple[str, ...] = ()
    """Damaged histories that had been set aside; they cannot be cleaned, so they were removed."""
    lost: bool = False  # The history itself was damaged, so it was removed


def find_indexes_above(paths: Sequence[bytes]) -> list[bytes]:
    """The indexes that may point at these files: those of the folders above them."""
    return sorted({above + INDEX for path in paths for above in _above(path)} - set(paths))


def _above(path: bytes) -> Iterator[bytes]:
    """The folders above a file, each with a slash at its end; the outermost is empty."""
    parts = path.split(b"/")
    return (b"".join(part + b"/" for part in parts[:depth]) for depth in range(len(parts)))


def clean_index(index: bytes, at: bytes, paths: Sequence[bytes]) -> bytes:
    """The index without the lines that point at one of these files."""
    parent = decode_path(at.rpartition(b"/")[0])
    gone = {decode_path(path) for path in paths}

    def points(line: bytes) -> bool:
        links = (decode_path(unquote_to_bytes(link.strip())) for link in _LINK.findall(line))
        return any(normpath(f"{parent}/{link}" if parent else link) in gone for link in links)

    return b"".join(line for line in index.splitlines(keepends=True) if not points(line))


def make_name_pattern(paths: Sequence[bytes]) -> re.Pattern[str]:
    """A pattern for the names of the files as words, with or without their ending."""
    names = {decode_path(path) for path in paths}
    names |= {name.removesuffix(".md") for name in names}
    names |= {name.rpartition("/")[2] for name in names}
    longest_first = sorted(names, key=len, reverse=True)
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)", re.IGNORECASE)
