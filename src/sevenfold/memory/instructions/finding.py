"""Where instruction files stand: their names in a folder, the folders of a project, folders of rules."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from sevenfold.memory.instructions.border import OUTSIDE, Border
from sevenfold.memory.instructions.taking import Source
from sevenfold.memory.instructions.values import Kind, Limits, Warnings, shown

OWN: Final = ("CLAUDE.md", "AGENTS.md")
"""In the folders of the machine and of the user."""
PROJECT: Final = (
    "CLAUDE.md",
    "AGENTS.md",
    ".claude/CLAUDE.md",
    ".sevenfold/CLAUDE.md",
    ".sevenfold/AGENTS.md",
)
LOCAL: Final = ("CLAUDE.local.md", ".sevenfold/CLAUDE.local.md", ".sevenfold/AGENTS.local.md")
RULES: Final = "rules"
PROJECT_RULES: Final = (".claude/rules", ".sevenfold/rules")
PACKAGES: Final = frozenset({"node_modules", "site-packages", "bower_components", ".venv", ".git"})
"""Folders of other people's work: what lies there instructs nobody, unless work begins there."""

_SAID: Final[dict[str, str]] = {
    "managed": "set for this machine by whoever runs it",
    "user": "the user's own, for every project",
    "local": "for this folder on this machine, usually not shared",
}
_SAID_OF_RULES: Final[dict[str, str]] = {
    "managed": "a rule set for this machine by whoever runs it",
    "user": "the user's own rule, for every project",
}


def of_owner(folder: Path, kind: Kind) -> Iterator[Source]:
    """The machine's or the user's own files."""
    for name in OWN:
        yield Source(folder / name, kind, _SAID[kind], kind, free=True)


def of_folder(folder: Path, root: Path) -> Iterator[Source]:
    """What a folder of the project may hold, shared with others."""
    for name in PROJECT:
        yield Source(folder / name, "project", f"of {_whose(folder, root)}", str(folder))


def local_to(folder: Path) -> Iterator[Source]:
    for name in LOCAL:
        yield Source(folder / name, "local", _SAID["local"], str(folder))


def rules_of_owner(folder: Path, kind: Kind, root: Path, look: RuleFolders) -> Iterator[Source]:
    for path in look.files(folder / RULES, free=True):
        yield Source(path, "rule", _SAID_OF_RULES[kind], kind, free=True, start=root)


def rules_of_folder(folder: Path, root: Path, look: RuleFolders) -> Iterator[Source]:
    for name in PROJECT_RULES:
        for path in look.files(folder / name, free=False):
            why = f"a rule of {_whose(folder, root)}"
            yield Source(path, "rule", why, str(folder), start=folder)


def _whose(folder: Path, root: Path) -> str:
    return "this project" if folder == root else f"the folder {shown(folder.relative_to(root))}"


def between(root: Path, folder: Path) -> list[Path]:
    """The folders from the root down to this one; none when it is elsewhere."""
    return [p for p in (*reversed(folder.parents), folder) if p.is_relative_to(root)]


class RuleFolders:
    """Lists folders of rules, as far as they may be looked into."""

    def __init__(self, border: Border, limits: Limits, warnings: Warnings) -> None:
        self._border, self._limits, self._warnings = border, limits, warnings

    def files(self, folder: Path, *, free: bool) -> list[Path]:
        """The rule files in a folder and the folders in it, in the order of their names."""
        limits, found = self._limits, []
        waiting, looked, names = [folder], set[str](), 0
        while waiting:
            inner = waiting.pop()
            real = os.path.realpath(inner)
            if real in looked or not self._may(inner, Path(real), free=free):
                continue
            looked.add(real)
            entries = self._listed(inner, limits.names - names + 1)
            names += len(entries)
            if names > limits.names or len(looked) > limits.folders:
                why = f"it holds more than {limits.names:,} names or {limits.folders:,} folders"
                self._warnings.leave_out(folder, why)
                return []
            found += [inner / name for name, is_folder in entries if _is_rule(name, is_folder)]
            waiting += [inner / name for name, is_folder in entries if is_folder]
        found.sort(key=lambda path: os.fsencode(path.relative_to(folder).as_posix()))
        for path in found[limits.rules :]:
            why = f"there are more than {limits.rules:,} rule files in one folder"
            self._warnings.leave_out(path, why)
        return found[: limits.rules]

    def _listed(self, folder: Path, most: int) -> list[tuple[str, bool]]:
        """Names in a folder, and which of them are folders."""
        try:
            with os.scandir(folder) as entries:
                return [(entry.name, _is_folder(entry)) for entry in islice(entries, most)]
        except OSError as error:
            self._warnings.leave_out(folder, (error.strerror or str(error)).lower())
            return []

    def _may(self, folder: Path, real: Path, *, free: bool) -> bool:
        if not real.is_dir():
            return False
        if free or self._border.trusted or self._border.inside(real):
            return True
        self._warnings.leave_out(folder, OUTSIDE)
        return False


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself; it must not hide its neighbours
        return False


def _is_rule(name: str, is_folder: bool) -> bool:
    return not is_folder and name.lower().endswith(".md") and not name.startswith(".")
