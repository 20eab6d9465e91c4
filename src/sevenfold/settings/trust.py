"""What the files of a project could run or widen, line by line: the user trusts this and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sevenfold.core.errors import SettingsError, StorageFailure
from sevenfold.core.messages import Json
from sevenfold.settings.files import CLAUDE_FOLDER, FOLDER, HONOURED, LARGEST_FILE, read_document
from sevenfold.storage.files import read_bounded

_FOLDERS: Final = (FOLDER, CLAUDE_FOLDER)
_SETTINGS: Final = ("settings.json", "settings.local.json")
_SERVERS: Final = (".mcp.json", ".sevenfold/mcp.json")
_RESTRICTING: Final = frozenset({"permissions.deny", "permissions.ask", "$schema"})
_MOST_LINES: Final = 500  # Of more, only a digest is kept


def list_trusted_content(tree: Path) -> tuple[str, ...]:
    """A line for each setting, agent and server of the project; what only restricts is left out."""
    lines = sorted({line for file in _list_files(tree) for line in _list_lines(tree, file)})
    if len(lines) <= _MOST_LINES:
        return tuple(lines)
    return (f"{len(lines):,} lines, digest {_make_digest(chr(10).join(lines).encode('utf-8'))}",)


def compare_content(before: tuple[str, ...], now: tuple[str, ...]) -> tuple[str, ...]:
    """The difference: `+` before a line that came, `-` before one that went."""
    gone = [f"- {line}" for line in before if line not in now]
    return (*gone, *(f"+ {line}" for line in now if line not in before))


def format_line(line: str, most: int = 200) -> str:
    """A line as it may be printed: no control characters, not too long."""
    text = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in line)
    return text if len(text) <= most else text[: most - 1] + "…"


def _list_files(tree: Path) -> Iterator[Path]:
    for folder in _FOLDERS:
        yield from (tree / folder / name for name in _SETTINGS)
        yield from sorted((tree / folder / "agents").glob("**/*.md"))
    yield from (tree / name for name in _SERVERS)


def _list_lines(tree: Path, file: Path) -> Iterator[str]:
    name = file.relative_to(tree)
    if file.name not in _SETTINGS and str(name) not in _SERVERS:
        if digest := _digest_file(file):
            yield f"{name}: digest {digest}"
        return
    try:
        document = read_document(file)
    except SettingsError:  # it sets nothing as it is
        yield f"{name}: digest {_digest_file(file)}"
        return
    values = document.values if document else {}
    if name.parts[0] == CLAUDE_FOLDER:
        values = {key: value for key, value in values.items() if key in HONOURED}
    for key, value in _list_settings(values):
        yield f"{name}: {key}: {json.dumps(value, sort_keys=True, ensure_ascii=False)}"


def _list_settings(values: Json) -> Iterator[tuple[str, Any]]:
    """Every setting by its whole name; those of a list one by one."""
    for key, value in values.items():
        inside = value.items() if isinstance(value, dict) else [("", value)]
        for name, item in inside:
            whole = f"{key}.{name}" if name else key
            if whole not in _RESTRICTING:
                yield from ((whole, one) for one in (item if isinstance(item, list) else [item]))


def _digest_file(file: Path) -> str:
    try:
        return _make_digest(read_bounded(file, LARGEST_FILE)) if file.is_file() else ""
    except (StorageFailure, OSError):
        return "unreadable"


def _make_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
