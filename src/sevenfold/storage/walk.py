"""Walks a folder, lists its files and searches in them.

Standard library only, because it is also run as a process of its own (`python -I -S walk.py`): a
regular expression can take for ever and holds the interpreter while it does, and a process can be
ended. It is asked with one JSON object and answers in the lines of `rg --json`, so that its caller need
not care which of the two did the work.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv"})
"""Folders left out of a search of a project; a search that begins inside one still works."""
LARGEST = 5 << 20
"""Bytes of a file that a search over a folder looks into."""
LARGEST_NAMED = 64 << 20
"""Bytes of a file that is searched when it is named."""
MOST_LINES = 200
"""Lines of one match that are shown; one more is told, to say that there are more."""
_SNIFFED = 8192
_IGNORE_FILE = 1 << 16
_LONG_LINE = 4000

# --- patterns ---------------------------------------------------------------------------------------

_GLOB_TOKENS = r"(?s)(?:\*\*/)+|\*+|\?|\[!?\]?[^\]/]*\]|[{},]|\\.|."


def translate_glob(glob: str, *, braces: bool = True) -> str:
    """A glob as a regular expression for whole paths: `*`, `?`, `[…]`, `{a,b}`, `**` over folders.

    Without `braces`, or when they are not paired, braces and commas are letters.
    """
    braces = braces and glob.count("{") == glob.count("}")
    depth, out = 0, []
    for token in re.findall(_GLOB_TOKENS, glob):
        if token.startswith("**/"):
            out.append("(?:[^/]+/)*")
        elif token[0] == "*":
            out.append("[^/]*" if len(token) == 1 else ".*")
        elif token == "?":
            out.append("[^/]")
        elif token[0] == "[" and len(token) > 1:
            out.append(_character_class(token))
        elif braces and (token in "{}" or (token == "," and depth)):
            depth += {"{": 1, "}": -1}.get(token, 0)
            out.append({"{": "(?:", "}": ")", ",": "|"}[token])
        else:
            out.append(re.escape(token[-1]))
    return "".join(out if braces and "{" in glob else _settled(out))


def _settled(pieces: list[str]) -> list[str]:
    """The same without second thoughts: between two stars of a name the first fit is as good as any.

    Otherwise `*a*a*a*a*b` could take for ever over a long name.
    """
    star = None
    for i, piece in enumerate(pieces):
        if piece == "[^/]*":
            if star is not None:
                pieces[star] = "(?>[^/]*?"
                pieces[i - 1] += ")"
            star = i
        elif piece in {"/", ".*", "(?:[^/]+/)*"}:
            star = None
    return pieces


def _character_class(token: str) -> str:
    negated = token[1] in "!^"
    inner = re.sub(r"([\\\[\]^&~|])", r"\\\1", token[2 if negated else 1 : -1])
    expression = f"[^/{inner}]" if negated else f"[{inner}]"
    try:
        re.compile(expression)
    except re.error:  # a range that runs backwards, as in `[z-a]`: taken literally
        return re.escape(token)
    return expression


class IgnoreRule(NamedTuple):
    """One line of a `.gitignore`, bound to the folder it stands in."""

    folder: str
    pattern: re.Pattern[str]
    keeps: bool
    folders_only: bool


def read_gitignore(folder: str) -> list[IgnoreRule]:
    """The lines of a folder's `.gitignore`; no file, no lines."""
    path = Path(folder, ".gitignore")
    try:
        if path.is_symlink() or not path.is_file():
            return []
        with path.open("rb") as file:
            text = file.read(_IGNORE_FILE).decode("utf-8", "replace")
    except OSError:
        return []
    return [line for raw in text.splitlines() if (line := _ignore(folder, raw))]


def _ignore(folder: str, raw: str) -> IgnoreRule | None:
    line = raw.rstrip()
    if not line or line.startswith("#"):
        return None
    keeps = line.startswith("!")
    line = line.removeprefix("!")
    folders_only = line.endswith("/")
    line = line.rstrip("/")
    anchored = "/" in line
    expression = translate_glob(line.lstrip("/"))
    try:
        pattern = re.compile(expression if anchored else f"(?:.*/)?{expression}", re.DOTALL)
    except re.error:
        return None
    return IgnoreRule(folder, pattern, keeps, folders_only) if line else None


def _ignored(path: str, is_folder: bool, lines: list[IgnoreRule]) -> bool:
    for line in reversed(lines):  # the last that fits decides
        if line.folders_only and not is_folder:
            continue
        if line.pattern.fullmatch(path[len(line.folder) :].lstrip("/")):
            return not line.keeps
    return False


def _ignores_above(root: str) -> list[IgnoreRule]:
    """The rules of the folders above, up to the repository's own."""
    if Path(root, ".git").exists():
        return []
    above: list[IgnoreRule] = []
    for folder in Path(root).parents:
        above = read_gitignore(str(folder)) + above
        if Path(folder, ".git").exists():
            return above
    return []


def walk_files(root: str, *, every: bool = False) -> Iterator[os.DirEntry[str]]:
    """Files and links below a folder, in order of their names; links are never followed.

    What git ignores is left out unless `every`.
    """
    waiting: list[tuple[os.DirEntry[str] | str, list[IgnoreRule]]]
    waiting = [(root, [] if every else _ignores_above(root))]
    while waiting:
        at, lines = waiting.pop()
        if not isinstance(at, str) and not at.is_dir(follow_symlinks=False):
            if at.is_symlink() or at.is_file(follow_symlinks=False):
                yield at
            continue
        folder = at if isinstance(at, str) else at.path
        lines = lines if every else lines + read_gitignore(folder)
        waiting += [(entry, lines) for entry in reversed(_entries(folder, lines))]


def _entries(folder: str, lines: list[IgnoreRule]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []
    kept = []
    for entry in entries:
        is_folder = entry.is_dir(follow_symlinks=False)
        if not (is_folder and entry.name in SKIPPED) and not _ignored(entry.path, is_folder, lines):
            kept.append(entry)
    return kept


def find_relative_path(path: str, root: str) -> str:
    return path[len(root) :].lstrip("/")


# --- listing ----------------------------------------------------------------------------------------


def find_files(root: str, pattern: str, *, every: bool, limit: int) -> Iterator[dict[str, Any]]:
    """The newest files whose path below the folder fits the pattern, then how many there are."""
    expression = re.compile(translate_glob(pattern), re.DOTALL)
    found = []
    for entry in walk_files(root, every=every):
        if expression.fullmatch(find_relative_path(entry.path, root)):
            try:
                modified = entry.stat(follow_symlinks=False).st_mtime_ns
            except OSError:
                continue
            found.append((-modified, entry.path))
    found.sort()
    for _, path in found[:limit]:
        yield {"type": "file", "data": {"path": {"text": path}}}
    yield {"type": "total", "data": {"files": len(found)}}


# --- searching --------------------------------------------------------------------------------------


class MatchSpan(NamedTuple):
    """Lines that belong to one match, and where in the first of them it begins."""

    first: int
    last: int
    start: int


class TextLines:
    """The lines of a text by number, without a list of them: of a large text there may be millions."""

    def __init__(self, text: str) -> None:
        self._text, self._number, self._at = text, 0, 0

    def __len__(self) -> int:
        return self._text.count("\n") + (self._text[-1:] not in ("", "\n"))

    def __getitem__(self, number: int) -> str:
        while self._number < number:
            self._at = self._text.index("\n", self._at) + 1
            self._number += 1
        while self._number > number:
            self._at = self._text.rfind("\n", 0, self._at - 1) + 1
            self._number -= 1
        end = self._text.find("\n", self._at)
        return self._text[self._at : end if end >= 0 else None]


def search_files(
    root: str,
    pattern: str,
    *,
    glob: str | None = None,
    ignore_case: bool = False,
    multiline: bool = False,
    context: int = 0,
    first_only: bool = False,
    most: int = sys.maxsize,  # of one file; the others are counted
) -> Iterator[dict[str, Any]]:
    """Every match below a folder, or in one file, as `rg --json` would say it; and what is too large."""
    expression = compile_pattern(pattern, ignore_case=ignore_case, multiline=multiline)
    named = not Path(root).is_dir()
    for path in [root] if named else _searched(root, glob):
        if named and not multiline:
            told = _streamed(path, expression, context)
        elif (text := read_text(path, named=named)) is None:
            told = iter([{"type": "large", "data": {"path": {"text": path}}}])
        elif _may_match(expression, pattern, text):
            spans = (_spans_across if multiline else _spans)(expression, text)
            told = _told(path, TextLines(text), spans, context)
        else:
            continue
        yield from islice(told, 1) if first_only else _counted(path, told, most)


def compile_pattern(pattern: str, *, ignore_case: bool, multiline: bool) -> re.Pattern[str]:
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0) | (re.DOTALL if multiline else 0)
    return re.compile(pattern, flags)


def _searched(root: str, glob: str | None) -> Iterator[str]:
    wanted = re.compile(translate_glob(glob), re.DOTALL) if glob else None
    for entry in walk_files(root):
        if not entry.is_symlink() and is_glob_match(wanted, find_relative_path(entry.path, root)):
            yield entry.path


def is_glob_match(wanted: re.Pattern[str] | None, path: str) -> bool:
    """A glob without a folder in it is meant for the name alone."""
    if wanted is None or wanted.fullmatch(path):
        return True
    return wanted.fullmatch(path.rpartition("/")[2]) is not None


def read_text(path: str, *, named: bool) -> str | None:
    """The text of a file; empty if it is not text or cannot be read, None if it is too large."""
    most = LARGEST_NAMED if named else LARGEST
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            large = os.fstat(fd).st_size > most
            data = file.read(_SNIFFED if large else most)
    except OSError:
        return ""
    if b"\0" in data[:_SNIFFED] and not named:
        return ""
    return None if large else data.decode("utf-8", "replace")


def _may_match(expression: re.Pattern[str], pattern: str, text: str) -> bool:
    """False only if no line can match: one search over the text is faster than one per line.

    Not asked when the pattern looks around itself or refuses to give back, where the two differ.
    """
    if re.search(r"\\[AZ]|\(\?|[*+?}]\+", pattern):
        return True
    return expression.search(text) is not None


def _counted(path: str, told: Iterable[dict[str, Any]], most: int) -> Iterator[dict[str, Any]]:
    matches = 0
    for said in told:
        matches += said["type"] == "match"
        if matches <= most:
            yield said
    if matches > most:
        yield {"type": "more", "data": {"path": {"text": path}, "matches": matches - most}}


def _streamed(path: str, expression: re.Pattern[str], around: int) -> Iterator[dict[str, Any]]:
    """The matches in a file that may be large: no more than a line and what is around it is held."""
    before: deque[str] = deque(maxlen=around)
    after = 0
    with Path(path).open("rb") as file:
        for number, raw in enumerate(file):
            line = raw.decode("utf-8", "replace").removesuffix("\n")
            if match := expression.search(line.removesuffix("\r")):
                for back in range(len(before), 0, -1):
                    yield _line("context", path, number - back, before.popleft())
                yield _match(path, number, line, match.start())
                after = around
            elif after:
                after -= 1
                yield _line("context", path, number, line[:_LONG_LINE])
            else:
                before.append(line[:_LONG_LINE])


def _spans(expression: re.Pattern[str], text: str) -> Iterator[MatchSpan]:
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else ()):
        if match := expression.search(line.removesuffix("\r")):
            yield MatchSpan(number, number, match.start())


def _spans_across(expression: re.Pattern[str], text: str) -> Iterator[MatchSpan]:
    """Matches may cross lines; those that share a line are told as one."""
    found: MatchSpan | None = None
    number = at = 0
    for match in expression.finditer(text):
        if match.end() == match.start():
            continue
        number += text.count("\n", at, match.start())
        at = match.start()
        last = number + text.count("\n", at, match.end() - 1)
        if found and number <= found.last:
            found = found._replace(last=max(last, found.last))
            continue
        if found:
            yield found
        found = MatchSpan(number, last, at - text.rfind("\n", 0, at) - 1)
    if found:
        yield found


def _told(path: str, lines: TextLines, spans: Iterable[MatchSpan], around: int) -> Iterator[dict[str, Any]]:
    told, end = -1, len(lines)
    for span, following in pairwise(chain(spans, [MatchSpan(end, end, 0)])):
        for number in range(max(told + 1, span.first - around), span.first):
            yield _line("context", path, number, lines[number][:_LONG_LINE])
        rest = range(span.first + 1, min(span.last, span.first + MOST_LINES) + 1)
        more = [lines[number][:_LONG_LINE] for number in rest]
        yield _match(path, span.first, lines[span.first], span.start, *more)
        told = min(span.last + around, following.first - 1, end - 1)
        for number in range(span.last + 1, told + 1):
            yield _line("context", path, number, lines[number][:_LONG_LINE])


def _match(path: str, number: int, line: str, start: int, *more: str) -> dict[str, Any]:
    """Of a line of megabytes only what is around the match."""
    begin = max(0, start - _LONG_LINE // 2) if len(line) > _LONG_LINE else 0
    line = line[begin : start + _LONG_LINE]
    said = _line("match", path, number, "\n".join([line, *more]))
    before = line[: start - begin].encode("utf-8", "replace")
    said["data"]["submatches"] = [{"start": len(before)}]
    return said


def _line(kind: str, path: str, number: int, text: str) -> dict[str, Any]:
    data = {"path": {"text": path}, "lines": {"text": text}, "line_number": number + 1}
    return {"type": kind, "data": data}


def answer_request(asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Do what one request asks for."""
    return find_files(**asked) if asked.pop("do") == "files" else search_files(**asked)


if __name__ == "__main__":
    for said in answer_request(json.load(sys.stdin)):
        sys.stdout.write(json.dumps(said) + "\n")
