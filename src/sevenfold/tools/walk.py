"""Walks a folder, lists its files and searches in them.

Standard library only, because it is also run as a process of its own (`python -I -S walk.py`): a
regular expression can take for ever and holds the interpreter while it does, and a process can be
ended. It is asked with one JSON object and answers in the lines of `rg --json`, so that whoever
reads them need not care which of the two did the work.
"""

from __future__ import annotations

import bisect
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv"})
"""Folders nobody means when they search a project; a search that begins inside one still works."""
LARGEST = 5 * 1024 * 1024
_SNIFFED = 8192
_IGNORE_FILE = 1 << 16
_LONG_LINE = 4000

# --- patterns ---------------------------------------------------------------------------------------

_GLOB_TOKENS = re.compile(r"(?:\*\*/)+|\*+|\?|\[!?\]?[^\]/]*\]|[{},]|\\.|.", re.DOTALL)


def translate(glob: str) -> str:
    """A glob as a regular expression for whole paths: `*`, `?`, `[…]`, `{a,b}`, `**` over folders."""
    braces = glob.count("{") == glob.count("}")
    depth, out = 0, []
    for token in _GLOB_TOKENS.findall(glob):
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
    negated = token[1] == "!"
    inner = re.sub(r"([\\\[\]^&~|])", r"\\\1", token[2 if negated else 1 : -1])
    expression = f"[^/{inner}]" if negated else f"[{inner}]"
    try:
        re.compile(expression)
    except re.error:  # a range that runs backwards, as in `[z-a]`: taken literally
        return re.escape(token)
    return expression


class Ignore(NamedTuple):
    """One line of a `.gitignore`, bound to the folder it stands in."""

    folder: str
    pattern: re.Pattern[str]
    keeps: bool
    folders_only: bool


def ignores(folder: str) -> list[Ignore]:
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


def _ignore(folder: str, raw: str) -> Ignore | None:
    line = raw.rstrip()
    if not line or line.startswith("#"):
        return None
    keeps = line.startswith("!")
    line = line.removeprefix("!")
    folders_only = line.endswith("/")
    line = line.rstrip("/")
    anchored = "/" in line
    expression = translate(line.lstrip("/"))
    try:
        pattern = re.compile(expression if anchored else f"(?:.*/)?{expression}", re.DOTALL)
    except re.error:
        return None
    return Ignore(folder, pattern, keeps, folders_only) if line else None


def _ignored(path: str, is_folder: bool, lines: list[Ignore]) -> bool:
    for line in reversed(lines):  # the last that fits decides
        if line.folders_only and not is_folder:
            continue
        if line.pattern.fullmatch(path[len(line.folder) :].lstrip("/")):
            return not line.keeps
    return False


def _ignores_above(root: str) -> list[Ignore]:
    """What the folders above say, up to the repository's own."""
    if Path(root, ".git").exists():
        return []
    above: list[Ignore] = []
    for folder in Path(root).parents:
        above = ignores(str(folder)) + above
        if Path(folder, ".git").exists():
            return above
    return []


def walk(root: str, *, every: bool = False) -> Iterator[os.DirEntry[str]]:
    """Files and links below a folder, in order of their names; links are never followed.

    What git ignores is left out unless `every`.
    """
    waiting: list[tuple[os.DirEntry[str] | str, list[Ignore]]]
    waiting = [(root, [] if every else _ignores_above(root))]
    while waiting:
        at, lines = waiting.pop()
        if not isinstance(at, str) and not at.is_dir(follow_symlinks=False):
            if at.is_symlink() or at.is_file(follow_symlinks=False):
                yield at
            continue
        folder = at if isinstance(at, str) else at.path
        lines = lines if every else lines + ignores(folder)
        waiting += [(entry, lines) for entry in reversed(_entries(folder, lines))]


def _entries(folder: str, lines: list[Ignore]) -> list[os.DirEntry[str]]:
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


def relative(path: str, root: str) -> str:
    return path[len(root) :].lstrip("/")


# --- listing ----------------------------------------------------------------------------------------


def files(root: str, pattern: str, *, every: bool, limit: int) -> Iterator[dict[str, Any]]:
    """The newest files whose path below the folder fits the pattern, then how many there are."""
    expression = re.compile(translate(pattern), re.DOTALL)
    found = []
    for entry in walk(root, every=every):
        if expression.fullmatch(relative(entry.path, root)):
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


class Span(NamedTuple):
    """Lines that belong to one match, and where in the first of them it begins, in bytes."""

    first: int
    last: int
    start: int


def search(
    root: str,
    pattern: str,
    *,
    glob: str | None = None,
    ignore_case: bool = False,
    multiline: bool = False,
    context: int = 0,
    first_only: bool = False,
) -> Iterator[dict[str, Any]]:
    """Every match below a folder, or in one file, as `rg --json` would say it."""
    expression = compiled(pattern, ignore_case=ignore_case, multiline=multiline)
    wanted = re.compile(translate(glob), re.DOTALL) if glob else None
    for path in _searched(root, wanted):
        text = _text(path)
        if text is None or not _may_match(expression, pattern, text):
            continue
        lines = text.split("\n")
        if lines[-1] == "":
            lines.pop()
        spans = _spans_across(expression, text) if multiline else _spans(expression, lines)
        yield from _told(path, lines, spans[:1] if first_only else spans, context)


def compiled(pattern: str, *, ignore_case: bool, multiline: bool) -> re.Pattern[str]:
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0) | (re.DOTALL if multiline else 0)
    return re.compile(pattern, flags)


def _searched(root: str, wanted: re.Pattern[str] | None) -> Iterator[str]:
    if not Path(root).is_dir():
        yield root
        return
    for entry in walk(root):
        path = relative(entry.path, root)
        if entry.is_symlink() or not fits(wanted, path):
            continue
        yield entry.path


def fits(wanted: re.Pattern[str] | None, path: str) -> bool:
    """A glob without a folder in it is meant for the name alone."""
    if wanted is None or wanted.fullmatch(path):
        return True
    return wanted.fullmatch(path.rpartition("/")[2]) is not None


def _text(path: str) -> str | None:
    """The text of a file, or None if it is too large, not text, or not to be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            if os.fstat(fd).st_size > LARGEST:
                return None
            data = file.read(LARGEST)
    except OSError:
        return None
    return None if b"\0" in data[:_SNIFFED] else data.decode("utf-8", "replace")


def _may_match(expression: re.Pattern[str], pattern: str, text: str) -> bool:
    """False only if no line can match: one search over the text is faster than one per line.

    Not asked when the pattern looks around itself or refuses to give back, where the two differ.
    """
    if re.search(r"\\[AZ]|\(\?|[*+?}]\+", pattern):
        return True
    return expression.search(text) is not None


def _spans(expression: re.Pattern[str], lines: list[str]) -> list[Span]:
    found = []
    for number, line in enumerate(lines):
        if match := expression.search(line.removesuffix("\r")):
            found.append(Span(number, number, _bytes(line[: match.start()])))
    return found


def _spans_across(expression: re.Pattern[str], text: str) -> list[Span]:
    """Matches may cross lines; those that share a line are told as one."""
    ends = [match.end() for match in re.finditer("\n", text)]
    found: list[Span] = []
    for match in expression.finditer(text):
        if match.end() == match.start():
            continue
        first = bisect.bisect_right(ends, match.start())
        last = bisect.bisect_right(ends, match.end() - 1)
        if found and first <= found[-1].last:
            found[-1] = found[-1]._replace(last=max(last, found[-1].last))
            continue
        begin = ends[first - 1] if first else 0
        found.append(Span(first, last, _bytes(text[begin : match.start()])))
    return found


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _told(path: str, lines: list[str], spans: list[Span], around: int) -> Iterator[dict[str, Any]]:
    told = -1
    for i, span in enumerate(spans):
        for number in range(max(told + 1, span.first - around), span.first):
            yield _line("context", path, number, lines[number])
        yield _match(path, lines, span)
        following = spans[i + 1].first if i + 1 < len(spans) else len(lines)
        told = min(span.last + around, following - 1, len(lines) - 1)
        for number in range(span.last + 1, told + 1):
            yield _line("context", path, number, lines[number])


def _match(path: str, lines: list[str], span: Span) -> dict[str, Any]:
    first, start = lines[span.first], span.start
    if len(first) > _LONG_LINE:  # a line of megabytes: only what is around the match
        raw = first.encode("utf-8", "replace")
        begin = max(0, start - _LONG_LINE // 2)
        first = raw[begin : start + _LONG_LINE // 2].decode("utf-8", "replace")
        start -= begin
    text = "\n".join([first, *lines[span.first + 1 : span.last + 1]])
    said = _line("match", path, span.first, text)
    said["data"]["submatches"] = [{"start": start}]
    return said


def _line(kind: str, path: str, number: int, text: str) -> dict[str, Any]:
    data = {"path": {"text": path}, "lines": {"text": text}, "line_number": number + 1}
    return {"type": kind, "data": data}


def answer(asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Do what one request asks for."""
    return files(**asked) if asked.pop("do") == "files" else search(**asked)


if __name__ == "__main__":
    for said in answer(json.load(sys.stdin)):
        sys.stdout.write(json.dumps(said) + "\n")
