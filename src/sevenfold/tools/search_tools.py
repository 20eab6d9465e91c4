"""The tools Grep and Glob: search in files and for files, in a process that can be ended."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
from anyio.abc import ByteReceiveStream

from sevenfold.core.messages import Json
from sevenfold.core.protocols import Tool, ToolFailed
from sevenfold.storage import walk
from sevenfold.tools.workspace import Workspace, format_size, resolve_path, suggest_similar

SECONDS: Final = 30.0  # Time limit of a search
LONGEST_LINE: Final = 400
_NAMED: Final = 5  # Names of files in a note


@dataclass(slots=True)
class SearchHits:
    """The hits of a search that are shown, and the number of the others."""

    workspace: Workspace
    root: Path
    mode: str
    limit: int
    wanted: re.Pattern[str] | None
    lines: list[str] = field(default_factory=list)
    matches: int = 0
    counts: dict[str, int] = field(default_factory=dict)  # Matches by file
    large: list[str] = field(default_factory=list)  # Files that were not searched because of their size
    _withheld: set[str] = field(default_factory=set)
    _passed: set[str] = field(default_factory=set)
    _at: tuple[str, int] = ("", 0)

    def clear(self) -> None:
        self.lines, self.matches, self.counts, self.large = [], 0, {}, []
        self._at = ("", 0)

    def add_hit(self, said: Json) -> None:
        kind, data = said["type"], said["data"]
        if kind not in ("match", "context", "more", "large"):
            return
        path = os.fsdecode(_decode_bytes(data["path"]))
        if kind == "large":
            self.large.append(path)
        elif self._is_wanted(path):
            if kind != "context":
                self._count_matches(path, data.get("matches", 1))
            if kind != "more" and self.mode == "content" and self.matches <= self.limit:
                text = _decode_bytes(data["lines"]).decode("utf-8", "replace")
                starts = [match["start"] for match in data.get("submatches", ())]
                self._add_lines(path, data["line_number"], text, starts[0] if starts else None)

    def _count_matches(self, path: str, matches: int) -> None:
        self.matches += matches
        self.counts[path] = self.counts.get(path, 0) + matches

    def note_large(self, paths: Iterable[bytes]) -> None:
        """Note the files that are too large, for a search that does not report them."""
        root = str(self.root)
        for path in map(os.fsdecode, paths):
            if walk.is_glob_match(self.wanted, walk.find_relative_path(path, root)) and _is_large(path):
                self.large.append(path)

    def _is_wanted(self, path: str) -> bool:
        if path in self._passed:
            return True
        if path in self._withheld:
            return False
        if path != str(self.root):
            if not walk.is_glob_match(self.wanted, walk.find_relative_path(path, str(self.root))):
                return False
            if self.workspace.hidden(Path(path)):
                self._withheld.add(path)
                return False
        self._passed.add(path)
        return True

    def _add_lines(self, path: str, number: int, text: str, start: int | None) -> None:
        before, last = self._at
        if path != before:
            self.lines += [""] * bool(self.lines) + [self.workspace.format_path(Path(path))]
        elif number > last + 1:
            self.lines.append("--")
        sign = "-" if start is None else ":"
        for i, line in enumerate(text.removesuffix("\n").split("\n")):
            if i == walk.MOST_LINES:
                self.lines.append("[… more lines of this match …]")
                break
            self.lines.append(f"{number + i}{sign} {_shorten_line(line, start if i == 0 else 0)}")
            self._at = (path, number + i)

    def format_result(self, whole: bool) -> str:
        """The result for the model, with notes on what was left out."""
        notes = [] if whole else [describe_timeout()]
        if self._withheld:
            names = self._format_names(self._withheld)
            notes.append(f"[left out because they may hold secrets or are denied: {names}]")
        if n := len(self.large):
            files = "1 file over 5 MB was" if n == 1 else f"{n:,} files over 5 MB were"
            names = self._format_names(self.large)
            notes.append(f"[{files} left out: {names}; to search one, name it in path]")
        if self.mode == "content":
            lines, total, kind = self.lines, self.matches, "matches"
        else:
            lines, total, kind = self._format_files(), len(self.counts), "files"
        if total > self.limit:
            notes.append(
                f"[the first {self.limit:,} of {total:,} {kind}; narrow the search, or raise limit]"
            )
        if not lines:
            lines = ["No matches."]
        return "\n".join([*lines, *notes])

    def _format_names(self, paths: Iterable[str]) -> str:
        names = sorted(self.workspace.format_path(Path(path)) for path in paths)
        return ", ".join(names[:_NAMED] + ["…"] * (len(names) > _NAMED))

    def _format_files(self) -> list[str]:
        shown = [(self.workspace.format_path(Path(path)), n) for path, n in self.counts.items()]
        counted = self.mode == "count"
        return [f"{path}: {n}" if counted else path for path, n in shown[: self.limit]]


def _is_large(path: str) -> bool:
    try:
        size = Path(path).stat().st_size
    except OSError:
        return False
    return size > walk.LARGEST and walk.read_text(path, named=False) is None


def _decode_bytes(said: Mapping[str, str]) -> bytes:
    """The bytes of a text in the output of rg, which gives invalid UTF-8 as base64."""
    if "text" in said:
        return said["text"].encode("utf-8", "surrogateescape")
    return base64.b64decode(said["bytes"])


def _shorten_line(line: str, start: int | None) -> str:
    line = line.removesuffix("\r")
    if len(line) <= LONGEST_LINE:
        return line
    at = len(line.encode("utf-8", "replace")[: start or 0].decode("utf-8", "ignore"))
    begin = max(0, at - LONGEST_LINE // 4)
    cut = line[begin : begin + LONGEST_LINE]
    return f"{'…' * (begin > 0)}{cut}{'…' * (begin + LONGEST_LINE < len(line))}"


def describe_timeout() -> str:
    return f"[stopped after {SECONDS:g} seconds; there may be more: narrow the path or the pattern]"


MOST_MATCHES: Final = 200
MOST_FILES: Final = 100
MOST_CONTEXT: Final = 50
_LONGEST_ANSWER: Final = 32 << 20  # Most bytes of one line from the search process
MODES: Final = ("content", "files_with_matches", "count")

GREP_SCHEMA: Final[Json] = {
    "name": "Grep",
    "description": (
        "Search file contents by regular expression. In a folder it leaves out what git ignores,"
        " binary files and files over 5 MB; a file that you name is searched up to 64 MB."
    ),
    "input_schema": {
        "type": "object",
        "properties": {
            "pattern": {"type": "string"},
            "path": {"type": "string", "description": "File or folder; else the working folder"},
            "glob": {"type": "string", "description": "Only these files: *.py, src/**/*.{ts,tsx}"},
            "output_mode": {"enum": list(MODES), "description": "Else files_with_matches"},
            "ignore_case": {"type": "boolean"},
            "context": {"type": "integer", "minimum": 0, "description": "Lines around a match"},
            "limit": {"type": "integer", "minimum": 1, "description": "Most matches or files"},
            "multiline": {"type": "boolean", "description": "Let . and matches cross lines"},
        },
        "required": ["pattern"],
        "additionalProperties": False,
    },
}
GLOB_SCHEMA: Final[Json] = {
    "name": "Glob",
    "description": "Find files by path pattern, e.g. src/**/*.py; newest first, at most 100.",
    "input_schema": {
        "type": "object",
        "properties": {
            "pattern": {"type": "string"},
            "path": {"type": "string", "description": "Folder; else the working folder"},
        },
        "required": ["pattern"],
        "additionalProperties": False,
    },
}


class GrepTool:
    """Finds lines, with `rg` if it is installed; the result looks the same either way."""

    name = "Grep"
    schema = GREP_SCHEMA

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def safe(self, args: Json) -> bool:
        return True

    async def run(self, args: Json, use_id: str) -> str:
        root = _find_root(self._workspace, args.get("path", "."))
        large = root.is_file() and _check_size(self._workspace, root) > walk.LARGEST
        glob = args.get("glob")
        mode = args.get("output_mode", "files_with_matches")
        limit = args.get("limit", MOST_MATCHES if mode == "content" else MOST_FILES)
        found = SearchHits(self._workspace, root, mode, limit, _glob_expression(glob))
        asked = {
            "do": "search",
            "root": str(root),
            "pattern": args["pattern"],
            "glob": glob,
            "ignore_case": args.get("ignore_case", False),
            "multiline": args.get("multiline", False),
            "context": min(args.get("context", 0), MOST_CONTEXT) if mode == "content" else 0,
            "first_only": mode == "files_with_matches",
            "most": 0 if mode == "count" else limit,
        }
        whole = await self._search(asked, found, large)
        return found.format_result(whole)

    async def _search(self, asked: Json, found: SearchHits, large: bool) -> bool:
        rg = self._workspace.find_program("rg")
        if rg is not None and not large:  # rg holds a long line several times, and prints all of it
            argv, take = make_rg_command(rg, asked), _decode_lines(found.add_hit)
            code, whole = await _run_search(self._workspace, argv, b"", take)
            if code in (0, 1) and whole:
                return found.root.is_file() or await self._find_large_files(rg, asked, found)
            if not whole:
                return False
            # Its regular expressions are weaker than ours (no lookahead). Begin again.
            found.clear()
        try:
            walk.compile_pattern(
                asked["pattern"], ignore_case=asked["ignore_case"], multiline=asked["multiline"]
            )
        except (re.error, OverflowError, RecursionError) as error:
            raise ToolFailed(
                f"the pattern is not a valid regular expression: {error};"
                " put a backslash before a character that is meant literally"
            ) from None
        _, whole = await _run_walk(self._workspace, asked, found.add_hit)
        return whole

    async def _find_large_files(self, rg: str, asked: Json, found: SearchHits) -> bool:
        """Find the files that rg left out for their size; False: that took too long."""
        paths: list[bytes] = []
        argv = [*_rg_walk(rg), "--files", "--null", "--", asked["root"]]
        _, whole = await _run_search(self._workspace, argv, b"", paths.append, b"\0")
        await anyio.to_thread.run_sync(found.note_large, paths)
        return whole


def _rg_walk(rg: str) -> list[str]:
    argv = [rg, "--no-config", "--no-messages", "--hidden", "--sort=path", "--no-require-git"]
    return argv + [f"--glob=!**/{folder}/" for folder in sorted(walk.SKIPPED)]


def make_rg_command(rg: str, asked: Json) -> list[str]:
    """The same search as a command line of rg; its hits are filtered by the glob afterwards."""
    argv = [*_rg_walk(rg), "--json", f"--context={asked['context']}"]
    named = Path(asked["root"]).is_file()
    argv.append("--text" if named else f"--max-filesize={walk.LARGEST}")
    argv.append("--ignore-case" if asked["ignore_case"] else "--case-sensitive")
    if asked["multiline"]:
        argv += ["--multiline", "--multiline-dotall"]
    if asked["first_only"]:
        argv.append("--max-count=1")
    return [*argv, "--", asked["pattern"], asked["root"]]


class GlobTool:
    """Finds files by their path."""

    name = "Glob"
    schema = GLOB_SCHEMA

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def safe(self, args: Json) -> bool:
        return True

    async def run(self, args: Json, use_id: str) -> str:
        root = _find_root(self._workspace, args.get("path", "."))
        pattern = args["pattern"].removeprefix("./")
        if not root.is_dir():
            raise ToolFailed(f"{self._workspace.format_path(root)} is a file; Glob looks in folders")
        if pattern.startswith(("/", "~")) or ".." in pattern.split("/"):
            raise ToolFailed("the pattern is below path; name another folder in path")
        _glob_expression(pattern)
        paths, total, whole = await self._find_files(root, pattern, every=False)
        note = ""
        if not paths and whole:
            paths, total, whole = await self._find_files(root, pattern, every=True)
            note = "[git ignores these]" if paths else ""
        lines = [self._workspace.format_path(Path(path)) for path in paths]
        if total > len(paths):
            note = f"[the newest {len(paths)} of {total:,}; narrow the pattern to see others]"
        if not whole:
            note = describe_timeout()
        if not lines and not note:
            deeper = "" if "/" in pattern else f"; **/{pattern} looks in folders below too"
            return f"No file matches {pattern}{deeper}."
        return "\n".join([*lines, note] if note else lines)

    async def _find_files(self, root: Path, pattern: str, *, every: bool) -> tuple[list[str], int, bool]:
        paths: list[str] = []
        total = 0

        def take(said: Json) -> None:
            nonlocal total
            if said["type"] == "file":
                paths.append(said["data"]["path"]["text"])
            else:
                total = said["data"]["files"]

        asked = {"root": str(root), "pattern": pattern, "every": every, "limit": MOST_FILES}
        _, whole = await _run_walk(self._workspace, {"do": "files", **asked}, take)
        return paths, total, whole


def _find_root(workspace: Workspace, asked: str) -> Path:
    root = resolve_path(workspace.locate(asked))  # as the gate saw it
    if not root.exists():
        raise ToolFailed(f"{workspace.format_path(root)} does not exist{suggest_similar(root)}")
    if not (root.is_dir() or root.is_file()):
        raise ToolFailed(f"{workspace.format_path(root)} is a pipe or a device; it is not searched")
    return root


def _check_size(workspace: Workspace, file: Path) -> int:
    """The size of a named file; raises if it is too large or cannot be read."""
    with file.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
    if size > walk.LARGEST_NAMED:
        name = workspace.format_path(file)
        raise ToolFailed(
            f"{name} has {format_size(size)} and Grep searches files up to"
            f" {format_size(walk.LARGEST_NAMED)}; use Bash: grep -n 'pattern' {shlex.quote(name)}"
        )
    return size


def _glob_expression(glob: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(walk.translate_glob(glob), re.DOTALL) if glob else None
    except re.error:
        raise ToolFailed(f"the pattern {glob} is not valid; check its brackets") from None


async def _run_walk(
    workspace: Workspace, asked: Json, take: Callable[[Json], Any]
) -> tuple[int | None, bool]:
    argv = [sys.executable, "-I", "-S", walk.__file__]
    question = json.dumps(asked).encode("ascii")
    code, whole = await _run_search(workspace, argv, question, _decode_lines(take))
    if whole and code:
        raise ToolFailed("the search broke; try a simpler pattern")
    return code, whole


def _decode_lines(take: Callable[[Json], Any]) -> Callable[[bytes], Any]:
    return lambda line: take(json.loads(line))


async def _run_search(
    workspace: Workspace,
    argv: Sequence[str],
    asked: bytes,
    take: Callable[[bytes], Any],
    ending: bytes = b"\n",
) -> tuple[int | None, bool]:
    """Run a search process and take its lines; False: its time was up."""
    env = {k: v for k, v in workspace.environment.items() if k != "RIPGREP_CONFIG_PATH"}
    with tempfile.TemporaryFile() as question:
        question.write(asked)
        question.seek(0)
        process = await anyio.open_process(
            argv, stdin=question, stderr=subprocess.DEVNULL, env=env, cwd="/"
        )
    try:
        with anyio.move_on_after(SECONDS):
            if process.stdout is not None and await _read_lines(process.stdout, take, ending):
                return await process.wait(), True
        return None, False
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                # Not `process.kill`, which may take the exit code away from a waiting task.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            await process.aclose()


async def _read_lines(stream: ByteReceiveStream, take: Callable[[bytes], Any], ending: bytes) -> bool:
    """Take each line as it comes; False: one was too long to be kept."""
    parts: list[bytes] = []
    size = 0
    async for chunk in stream:
        *lines, rest = chunk.split(ending)
        if lines:
            lines[0] = b"".join([*parts, lines[0]])
            parts, size = [], 0
            for line in lines:
                take(line)
        parts.append(rest)
        size += len(rest)
        if size > _LONGEST_ANSWER:
            return False
    return True


_grep: type[Tool] = GrepTool
_glob: type[Tool] = GlobTool
