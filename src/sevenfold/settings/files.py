"""Settings files as text: bounded reading, JSON with line numbers, and files that git tracks.

Nothing here runs another program: in a repository of another person, even asking git a question can
start a program that its configuration names.
"""

from __future__ import annotations

import json
import os
import struct
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from sevenfold.core.errors import SettingsError, StorageFailure
from sevenfold.core.messages import Json
from sevenfold.storage.files import read_bounded, read_if_there

FOLDER: Final = ".sevenfold"
CLAUDE_FOLDER: Final = ".claude"
SERVERS_FILE: Final = ".mcp.json"
"""The MCP servers of a project, where other clients look for them, too."""
HONOURED: Final = ("hooks", "permissions", "env")
"""The keys of Claude Code's files that hold here."""
LARGEST_FILE: Final = 1_000_000
DEEPEST: Final = 40
KeyPath: TypeAlias = tuple[str | int, ...]


class SettingsDocument(msgspec.Struct, frozen=True):
    """A settings file: what it says, and on which line."""

    path: str
    values: Json
    lines: dict[KeyPath, int] = {}
    twice: tuple[KeyPath, ...] = ()
    """Keys that are written more than once; the last one counts."""

    def where(self, key: KeyPath) -> str:
        """File and line of a key, or of the nearest thing around it."""
        while key and key not in self.lines:
            key = key[:-1]
        return f"{self.path}:{self.lines[key]}" if key in self.lines else self.path


def read_document(path: Path) -> SettingsDocument | None:
    """The file, or None when there is none."""
    try:
        data = read_if_there(path, LARGEST_FILE)
    except StorageFailure as error:
        raise SettingsError(str(error)) from error
    if data is None:
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{path}:{line}: this is not UTF-8 text; save it as UTF-8.") from error
    return parse_document(text, str(path))


def is_outside(path: Path, root: Path) -> bool:
    """True if a symbolic link leads this path out of its folder."""
    try:
        return not path.resolve(strict=True).is_relative_to(root.resolve(strict=True))
    except FileNotFoundError:
        return path.is_symlink()  # it points at nothing yet
    except (OSError, RuntimeError):  # a loop
        return True


# --- JSON that remembers its lines ----------------------------------------------------------------------


def parse_document(text: str, path: str) -> SettingsDocument:
    """JSON as the standard says it; a mistake is named by line and column."""
    reader = _LineReader(text, path)
    values = reader.whole()
    if not isinstance(values, dict):
        raise SettingsError(f"{path}:1: settings are an object; begin with {{ and end with }}.")
    return SettingsDocument(path, values, reader.lines, tuple(reader.twice))


class _LineReader:
    def __init__(self, text: str, path: str) -> None:
        self._text, self._path, self._at = text, path, 0
        self._line, self._counted = 1, 0
        self.lines: dict[KeyPath, int] = {}
        self.twice: list[KeyPath] = []
        self._scalar = json.JSONDecoder(parse_constant=self._constant).raw_decode

    def whole(self) -> Any:
        value = self._value(())
        if self._peek():
            raise self._wrong("nothing more after the end of the object")
        return value

    def _value(self, key: KeyPath) -> Any:
        char = self._peek()
        self.lines[key] = self._line_here()
        if len(key) > DEEPEST:
            raise self._wrong(f"at most {DEEPEST} levels of nesting")
        if char == "{":
            return self._object(key)
        if char == "[":
            return self._array(key)
        if not (char and char in '"-0123456789tfn'):
            raise self._wrong("a value")
        return self._plain()

    def _object(self, key: KeyPath) -> Json:
        out: Json = {}
        self._at += 1
        while self._peek() != "}":
            if self._peek() != '"':
                raise self._wrong('a key in double quotes, or "}"' if not out else "a key")
            line = self._line_here()
            name = self._plain()
            self._expect(":")
            if name in out:
                self.twice.append((*key, name))
            out[name] = self._value((*key, name))
            self.lines[*key, name] = line
            if not self._more("}"):
                break
        self._expect("}")
        return out

    def _array(self, key: KeyPath) -> list[Any]:
        out: list[Any] = []
        self._at += 1
        while self._peek() != "]":
            out.append(self._value((*key, len(out))))
            if not self._more("]"):
                break
        self._expect("]")
        return out

    def _more(self, end: str) -> bool:
        if self._peek() != ",":
            return False
        self._at += 1
        if self._peek() == end:
            raise self._wrong(f'another item, or no comma before "{end}"')
        return True

    def _plain(self) -> Any:
        """A string, a number, true, false or null."""
        try:
            value, self._at = self._scalar(self._text, self._at)
        except json.JSONDecodeError as error:
            if error.pos > self._at:
                self._at = error.pos
            raise self._wrong(f"a proper value ({error.msg.lower()})") from error
        except ValueError as error:
            raise self._wrong("a smaller number") from error
        if isinstance(value, str) and not value.isascii():
            try:
                value.encode("utf-8")
            except UnicodeEncodeError as error:
                raise self._wrong("text without halves of characters") from error
        return value

    def _constant(self, name: str) -> Any:
        raise self._wrong(f"a number, and {name} is none")

    def _expect(self, char: str) -> None:
        if self._peek() != char:
            other = ' or ","' if char in "}]" else ""
            raise self._wrong(f'"{char}"{other}')
        self._at += 1

    def _peek(self) -> str:
        while self._at < len(self._text) and self._text[self._at] in " \t\r\n":
            self._at += 1
        return self._text[self._at : self._at + 1]

    def _line_here(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = max(self._counted, self._at)
        return self._line

    def _wrong(self, expected: str) -> SettingsError:
        at = self._at
        line = self._text.count("\n", 0, at) + 1
        column = at - (self._text.rfind("\n", 0, at) + 1) + 1
        found = self._text[at : at + 12].split("\n")[0]
        said = f"found {format_value(found)}" if at < len(self._text) else "the file ends here"
        hint = next((h for start, h in _HINTS.items() if found.startswith(start)), "")
        return SettingsError(f"{self._path}:{line}:{column}: expected {expected}, {said}.{hint}")


_HINTS: Final = {
    "//": " JSON has no comments: remove it.",
    "/*": " JSON has no comments: remove it.",
    "#": " JSON has no comments: remove it.",
    "'": " Use double quotes.",
    "True": " Write true.",
    "False": " Write false.",
    "None": " Write null.",
}


def format_value(value: object, most: int = 60) -> str:
    """A piece of a file as it may be printed: no control characters, not too long."""
    text = json.dumps(value, ensure_ascii=False)
    text = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
    return text if len(text) <= most else text[: most - 1] + "…"


# --- what git tracks ------------------------------------------------------------------------------------

_LARGEST_INDEX: Final = 256_000_000
_FIXED: Final = 40
"""Bytes of an entry before its hash: times, device, inode, mode, owner, size."""
_MODE: Final = 24
_EXTENDED: Final = 0x4000
_LONGEST_COUNTED: Final = 0xFFF
_HOLDS: Final = frozenset({0o120000, 0o040000})
"""A symbolic link, and a folder in a sparse index: what is below them is git's doing as well."""


def is_tracked(path: Path) -> bool:
    """True if git's index has this file, or cannot be read.

    So does a file that is reached through a link which git has.
    """
    try:
        return any(_has(place, top) for place in {path, path.resolve()} for top in place.parents)
    except (StorageFailure, OSError, ValueError, RuntimeError, IndexError, struct.error):
        return True


def _has(path: Path, top: Path) -> bool:
    """True if a repository at this folder has the file."""
    git = _git_folder(top)
    if git is None:
        return False
    wanted = _folded(os.fsencode(path.relative_to(top).as_posix()))
    indexes = [git / "index", *git.glob("sharedindex.*")]
    return any(
        name == wanted or (holds and wanted.startswith(name + "/"))
        for index in indexes
        if index.exists()
        for name, holds in _tracked(index)
    )


def _git_folder(top: Path) -> Path | None:
    """The git folder of a working folder; a `.git` file names the place."""
    dot = top / ".git"
    if dot.is_file():
        text = read_bounded(dot, 10_000).decode("utf-8", "surrogateescape")
        folder = top / text.removeprefix("gitdir:").strip()
        if not folder.is_dir():
            raise ValueError(f"{dot} names a folder that is not there")
        return folder
    return dot if dot.is_dir() else None


def _folded(name: bytes) -> str:
    """A name as a file system that overlooks case and invisible characters compares it."""
    text = name.decode("utf-8", "surrogateescape")
    if not text.isascii():
        text = "".join(c for c in text if unicodedata.category(c) != "Cf")
        text = unicodedata.normalize("NFC", text)
    return text.casefold()


def _tracked(index: Path) -> Iterator[tuple[str, bool]]:
    """Every name in an index, and whether it stands for what is below it too."""
    data = read_bounded(index, _LARGEST_INDEX)
    magic, version, count = struct.unpack_from(">4sLL", data)
    if magic != b"DIRC" or version not in (2, 3, 4):
        raise ValueError(f"{index} is not an index this version can read")
    try:
        entries = list(_entries(data, version, count, hash_size=20))
    except (ValueError, IndexError, struct.error):
        entries = list(_entries(data, version, count, hash_size=32))
    for mode, name in entries:
        yield _folded(name.rstrip(b"/")), mode in _HOLDS


def _entries(data: bytes, version: int, count: int, hash_size: int) -> Iterator[tuple[int, bytes]]:
    at, name = 12, b""
    for _ in range(count):
        start = at
        (mode,) = struct.unpack_from(">L", data, at + _MODE)
        (flags,) = struct.unpack_from(">H", data, at + _FIXED + hash_size)
        at += _FIXED + hash_size + (4 if flags & _EXTENDED else 2)
        kept = b""
        if version == 4:  # a name is the one before it, less some bytes, and what follows
            drop, at = _varint(data, at)
            kept = name[: len(name) - drop]
        end = data.index(b"\0", at)
        name = kept + data[at:end]
        if min(len(name), _LONGEST_COUNTED) != flags & _LONGEST_COUNTED:
            raise ValueError("the lengths in the index do not fit its names")
        yield mode, name
        at = end + 1 if version == 4 else start + (end - start + 8) // 8 * 8


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = (value + 1) << 7 | data[at] & 0x7F
    return value, at + 1


_canonical: Final = msgspec.json.Encoder(order="deterministic").encode
"""Equal values have equal bytes: comparing every pair would take for ever over long lists."""


def merge_values(low: Any, high: Any) -> Any:
    """Objects key by key, lists one after the other, anything else as the higher one says."""
    if isinstance(low, dict) and isinstance(high, dict):
        both = {key: merge_values(low[key], high[key]) for key in low.keys() & high.keys()}
        return {**low, **high, **both}
    if isinstance(low, list) and isinstance(high, list):
        known = {_canonical(item) for item in high}
        return [*high, *(item for item in low if _canonical(item) not in known)]
    return high
