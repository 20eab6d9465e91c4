"""What a search has found, as the model is told it: bounded, and with what was left out."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sevenfold.messages import Json
from sevenfold.tools import walk
from sevenfold.tools.workspace import Workspace

SECONDS: Final = 30.0
"""How long a search may take."""
LONGEST_LINE: Final = 400
_NAMED: Final = 5
"""Names of files in a note."""


@dataclass(slots=True)
class Found:
    """What a search has found so far, as far as it is shown; the rest is only counted."""

    workspace: Workspace
    root: Path
    mode: str
    limit: int
    wanted: re.Pattern[str] | None
    lines: list[str] = field(default_factory=list)
    matches: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """Matches by file."""
    large: list[str] = field(default_factory=list)
    """Files that were not looked into because of their size."""
    _withheld: set[str] = field(default_factory=set)
    _passed: set[str] = field(default_factory=set)
    _at: tuple[str, int] = ("", 0)

    def clear(self) -> None:
        self.lines, self.matches, self.counts, self.large = [], 0, {}, []
        self._at = ("", 0)

    def take(self, said: Json) -> None:
        kind, data = said["type"], said["data"]
        if kind not in ("match", "context", "more", "large"):
            return
        path = os.fsdecode(_bytes_of(data["path"]))
        if kind == "large":
            self.large.append(path)
        elif self._belongs(path):
            if kind != "context":
                self._count(path, data.get("matches", 1))
            if kind != "more" and self.mode == "content" and self.matches <= self.limit:
                text = _bytes_of(data["lines"]).decode("utf-8", "replace")
                starts = [match["start"] for match in data.get("submatches", ())]
                self._show(path, data["line_number"], text, starts[0] if starts else None)

    def _count(self, path: str, matches: int) -> None:
        self.matches += matches
        self.counts[path] = self.counts.get(path, 0) + matches

    def weigh(self, paths: Iterable[bytes]) -> None:
        """Note which of these files are too large, for a search that does not say so itself."""
        root = str(self.root)
        for path in map(os.fsdecode, paths):
            if walk.fits(self.wanted, walk.relative(path, root)) and _is_large(path):
                self.large.append(path)

    def _belongs(self, path: str) -> bool:
        if path in self._passed:
            return True
        if path in self._withheld:
            return False
        if path != str(self.root):
            if not walk.fits(self.wanted, walk.relative(path, str(self.root))):
                return False
            if self.workspace.hidden(Path(path)):
                self._withheld.add(path)
                return False
        self._passed.add(path)
        return True

    def _show(self, path: str, number: int, text: str, start: int | None) -> None:
        before, last = self._at
        if path != before:
            self.lines += [""] * bool(self.lines) + [self.workspace.shown(Path(path))]
        elif number > last + 1:
            self.lines.append("--")
        sign = "-" if start is None else ":"
        for i, line in enumerate(text.removesuffix("\n").split("\n")):
            if i == walk.MOST_LINES:
                self.lines.append("[… more lines of this match …]")
                break
            self.lines.append(f"{number + i}{sign} {_short(line, start if i == 0 else 0)}")
            self._at = (path, number + i)

    def told(self, whole: bool) -> str:
        """The answer, with what it leaves out."""
        notes = [] if whole else [late()]
        if self._withheld:
            names = self._names(self._withheld)
            notes.append(f"[left out because they may hold secrets or are denied: {names}]")
        if n := len(self.large):
            files = "1 file over 5 MB was" if n == 1 else f"{n:,} files over 5 MB were"
            names = self._names(self.large)
            notes.append(f"[{files} left out: {names}; to search one, name it in path]")
        if self.mode == "content":
            lines, total, kind = self.lines, self.matches, "matches"
        else:
            lines, total, kind = self._files(), len(self.counts), "files"
        if total > self.limit:
            notes.append(
                f"[the first {self.limit:,} of {total:,} {kind}; narrow the search, or raise limit]"
            )
        if not lines:
            lines = ["No matches."]
        return "\n".join([*lines, *notes])

    def _names(self, paths: Iterable[str]) -> str:
        names = sorted(self.workspace.shown(Path(path)) for path in paths)
        return ", ".join(names[:_NAMED] + ["…"] * (len(names) > _NAMED))

    def _files(self) -> list[str]:
        shown = [(self.workspace.shown(Path(path)), n) for path, n in self.counts.items()]
        counted = self.mode == "count"
        return [f"{path}: {n}" if counted else path for path, n in shown[: self.limit]]


def _is_large(path: str) -> bool:
    try:
        size = Path(path).stat().st_size
    except OSError:
        return False
    return size > walk.LARGEST and walk.text_of(path, named=False) is None


def _bytes_of(said: Mapping[str, str]) -> bytes:
    """rg gives what is not UTF-8 as base64."""
    if "text" in said:
        return said["text"].encode("utf-8", "surrogateescape")
    return base64.b64decode(said["bytes"])


def _short(line: str, start: int | None) -> str:
    line = line.removesuffix("\r")
    if len(line) <= LONGEST_LINE:
        return line
    at = len(line.encode("utf-8", "replace")[: start or 0].decode("utf-8", "ignore"))
    begin = max(0, at - LONGEST_LINE // 4)
    cut = line[begin : begin + LONGEST_LINE]
    return f"{'…' * (begin > 0)}{cut}{'…' * (begin + LONGEST_LINE < len(line))}"


def late() -> str:
    return f"[stopped after {SECONDS:g} seconds; there may be more: narrow the path or the pattern]"
