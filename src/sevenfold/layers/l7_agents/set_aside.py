"""Lists of entries on the disk, and where what is damaged among them goes: beside them, never away."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from sevenfold.errors import StorageFailure
from sevenfold.messages import Json
from sevenfold.storage.files import (
    BINARY,
    CLOEXEC,
    NOFOLLOW,
    PRIVATE_FILE,
    failure,
    sync_folder,
    write_all,
)
from sevenfold.tools.arguments import cleaned

MOST_ASIDE: Final = 1_000
"""Damaged files beside one; more than that is nobody's accident."""
_APPENDING: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | NOFOLLOW | CLOEXEC | BINARY
_encode = msgspec.json.Encoder().encode


def listed(data: bytes) -> list[Any] | None:
    """The entries of a file, damaged ones among them; None when it is no list. Nothing is an empty one."""
    if not data.strip(b"\0 \t\r\n"):
        return []
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = _forgiving(data)
    return found if isinstance(found, list) else None


def _forgiving(data: bytes) -> Any:
    """Half a character somewhere must not cost all the others."""
    try:
        return cleaned(json.loads(data.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return None


def written(entries: Sequence[Json]) -> bytes:
    """One entry a line, so that a person can look at it."""
    if not entries:
        return b"[]\n"
    return b"[\n" + b",\n".join(map(_encode, entries)) + b"\n]\n"


def keep_entries(path: Path, entries: Sequence[Any]) -> Path:
    """Append them to `<name>.damaged.jsonl`."""
    aside = path.with_name(f"{path.stem}.damaged.jsonl")
    lines = b"".join(_encode(entry) + b"\n" for entry in entries)
    try:
        fd = os.open(aside, _APPENDING, PRIVATE_FILE)
        try:
            write_all(fd, lines)
            os.fsync(fd)
        finally:
            os.close(fd)
        sync_folder(aside.parent)
    except OSError as error:
        raise failure(error, aside) from error
    return aside


def keep_file(path: Path) -> Path:
    """Give the file another name, `<name>.damaged-1.json` and so on."""
    for number in range(1, MOST_ASIDE + 1):
        aside = path.with_name(f"{path.stem}.damaged-{number}{path.suffix}")
        if os.path.lexists(aside):
            continue
        try:
            path.rename(aside)
            sync_folder(path.parent)
        except OSError as error:
            raise failure(error, path, "set aside") from error
        return aside
    raise StorageFailure(
        f"{path} is damaged, and so were {MOST_ASIDE:,} before it; remove those beside it"
    )
