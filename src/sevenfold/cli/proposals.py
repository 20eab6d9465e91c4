"""What the settings of a folder would do, in full lines, for the person who is asked to trust it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from sevenfold.cli.wording import count, one_line, printable
from sevenfold.errors import SettingsError
from sevenfold.settings.checks import dotted
from sevenfold.settings.files import Document, KeyPath, leads_outside, read
from sevenfold.settings.merging import FOLDER

WIDEST: Final = 100
MOST_VALUES: Final = 20
"""Lines for one setting; how many more there are is said."""
_FILES: Final = ("settings.json", "settings.local.json")
_OLD_NAMES: Final[dict[KeyPath, KeyPath]] = {
    ("permissions", "defaultMode"): ("permissions", "mode"),
}


def with_values(ignored: Iterable[str], tree: Path) -> Iterator[str]:
    """Each setting that is ignored, as it was named, and below it what it says."""
    known = {where: value for one in _documents(tree) for where, value in _named(one)}
    for text in ignored:
        yield printable(text)
        found = [value for where, value in known.items() if text in (where, f"{where}{_why(text)}")]
        lines = [one_line(line, WIDEST) for value in found for line in _lines(value)]
        yield from (f"    {line}" for line in lines[:MOST_VALUES])
        if len(lines) > MOST_VALUES:
            yield f"    … and {count(len(lines) - MOST_VALUES, 'line')} more"


def _why(text: str) -> str:
    """The remark in brackets that may follow the name of a setting."""
    _, opening, remark = text.rpartition(" (")
    return f"{opening}{remark}"


def _documents(tree: Path) -> Iterator[Document]:
    root = tree.resolve()
    for name in _FILES:
        path = root / FOLDER / name
        if leads_outside(path, root):
            continue
        try:
            document = read(path)
        except SettingsError:  # whoever loads the settings says what is wrong with it
            continue
        if document is not None:
            yield document


def _named(document: Document) -> Iterator[tuple[str, Any]]:
    """Every setting of a file under the name that it has in messages."""
    for key, value in document.values.items():
        inside = value if isinstance(value, dict) else {}
        for path, item in [((key,), value), *(((key, name), v) for name, v in inside.items())]:
            yield f"{document.where(path)}: {dotted(_OLD_NAMES.get(path, path))}", item


def _lines(value: Any) -> Iterator[str]:
    """A value line by line: of hooks the commands, of lists the items, of objects the pairs."""
    match value:
        case {"hooks": list(hooks)}:
            when = f"{value['matcher']}: " if value.get("matcher") else ""
            yield from (f"{when}{line}" for hook in hooks for line in _lines(hook))
        case {"command": str(command)}:
            yield command
        case dict():
            yield from (f"{name}: {line}" for name, item in value.items() for line in _lines(item))
        case list():
            for item in value:
                yield from _lines(item)
        case str():
            yield value
        case _:
            yield msgspec.json.encode(value).decode("utf-8")
