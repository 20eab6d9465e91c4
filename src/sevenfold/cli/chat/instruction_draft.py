"""A draft of an instruction file, made by rule from the files of a project; `/init` writes it."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from sevenfold.cli.output import format_count, to_one_line
from sevenfold.core.errors import StorageFailure
from sevenfold.storage.files import read_head
from sevenfold.storage.walk import find_relative_path, walk_files

MOST_FILES: Final = 20_000  # Files that are counted
MOST_COMMANDS: Final = 16
MOST_FOLDERS: Final = 20
LARGEST: Final = 200_000  # Bytes of a file that are read
LANGUAGES: Final = {
    ".py": "Python", ".pyi": "Python", ".js": "JavaScript", ".jsx": "JavaScript", ".mjs": "JavaScript",
    ".ts": "TypeScript", ".tsx": "TypeScript", ".go": "Go", ".rs": "Rust", ".java": "Java", ".kt": "Kotlin",
    ".rb": "Ruby", ".php": "PHP", ".c": "C", ".h": "C", ".cc": "C++", ".cpp": "C++", ".hpp": "C++",
    ".cs": "C#", ".swift": "Swift", ".scala": "Scala", ".sh": "shell", ".sql": "SQL", ".md": "Markdown",
    ".html": "HTML", ".css": "CSS", ".toml": "TOML", ".yaml": "YAML", ".yml": "YAML", ".json": "JSON",
}  # fmt: skip
GUIDES: Final = (
    "CONTRIBUTING.md", "DEVELOPMENT.md", "docs/architecture.md", "ARCHITECTURE.md", ".cursorrules",
    ".github/copilot-instructions.md", "GEMINI.md", "CLAUDE.md", "AGENTS.md",
)  # fmt: skip
PROMPT: Final = """\
Write {file} in the root of this project, {path}: the instruction file that a coding agent reads at the
start of every session.

Look at the project before you write: its README, its build files, what its CI runs, how its tests are
laid out, and two or three of the files that the rest stands on. A draft that a program made of file names
follows below; keep what is right in it, correct what is wrong, add what it cannot know.{again}

Say, in this order and only where you found it in the project:
1. What the project is and who uses it, in two sentences.
2. The commands to set up, build, run, lint and test it, and how to run one single test.
3. The parts of the source, each with what it is for, and the file to read first.
4. The conventions that one cannot guess from a single file, and the mistakes that are easy to make here.

At most 80 lines of Markdown. Short sentences, real names and paths. No general advice on programming, no
lists of all files, no keys or passwords. Then write the file with Write, and say in two lines what it says.

<draft>
{draft}
</draft>"""
AGAIN: Final = " The file is there already: read it first, and keep what still holds."


def draft_instructions(tree: Path, besides: str = "") -> str:
    """The text for the project in this folder; `besides` is the file that is to be written."""
    files = [find_relative_path(e.path, str(tree)) for e in islice(walk_files(str(tree)), MOST_FILES)]
    python, node = _read_toml(tree / "pyproject.toml"), _read_json(tree / "package.json")
    name = _find_name(tree, python, node)
    parts = [f"# {name}\n", _find_description(tree, python, node)]
    for heading, lines in (
        ("Commands", list(_list_commands(tree, files, python, node))[:MOST_COMMANDS]),
        ("Layout", list(_list_folders(files))),
        ("Conventions", list(_list_conventions(tree, files, python, node))),
        ("Read first", [f"- `{g}`" for g in GUIDES if g != besides and (tree / g).is_file()]),
    ):
        if lines:
            parts.append("\n".join([f"## {heading}\n", *lines]))
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _read_text(path: Path) -> str:
    try:
        return read_head(path, LARGEST, nofollow=True).decode("utf-8", "replace")
    except (StorageFailure, OSError):
        return ""


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_read_text(path))
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_read_text(path) or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _get_table(values: dict[str, Any], *keys: str) -> dict[str, Any]:
    for key in keys:
        found = values.get(key)
        values = found if isinstance(found, dict) else {}
    return values


def _find_name(tree: Path, python: dict[str, Any], node: dict[str, Any]) -> str:
    cargo = _get_table(_read_toml(tree / "Cargo.toml"), "package")
    named = _get_table(python, "project").get("name") or node.get("name") or cargo.get("name")
    return to_one_line(str(named or tree.name), 80)


def _find_description(tree: Path, python: dict[str, Any], node: dict[str, Any]) -> str:
    """The first paragraph of the README, else what the package says of itself."""
    readme = next((p for p in sorted(tree.glob("[Rr][Ee][Aa][Dd][Mm][Ee]*")) if p.is_file()), None)
    for paragraph in re.split(r"\n\s*\n", _read_text(readme) if readme else ""):
        text = " ".join(line for line in paragraph.split("\n") if not line.startswith("#")).strip()
        if text and not text.startswith(("<", "[!", "![", "```", "|", "---", "    ")):
            return to_one_line(text, 400)
    said = _get_table(python, "project").get("description") or node.get("description") or ""
    return to_one_line(str(said), 400)


def _list_commands(
    tree: Path, files: list[str], python: dict[str, Any], node: dict[str, Any]
) -> Iterator[str]:
    makefile = _read_text(tree / "Makefile")
    for target in re.findall(r"(?m)^([a-z][\w-]*):(?!=)", makefile):
        yield f"- `make {target}`"
    scripts = _get_table(node, "scripts")
    run = (
        "pnpm" if (tree / "pnpm-lock.yaml").exists() else "yarn" if (tree / "yarn.lock").exists() else "npm"
    )
    for name, script in scripts.items():
        yield f"- `{run} run {to_one_line(name, 40)}`: `{to_one_line(str(script), 80)}`"
    tools = _get_table(python, "tool")
    if not makefile:
        tests = any(re.search(r"(?:^|/)test_\w+\.py$", path) for path in files)
        if "pytest" in tools or tests:
            yield "- `python -m pytest`: all tests; `python -m pytest path/to/test_file.py -k name`: one"
        if "ruff" in tools or (tree / "ruff.toml").exists():
            yield "- `ruff check .`"
        if "mypy" in tools or (tree / "mypy.ini").exists():
            yield "- `mypy`"
    if (tree / "Cargo.toml").exists():
        yield "- `cargo build`, `cargo test`, `cargo test NAME` for one test, `cargo clippy`"
    if (tree / "go.mod").exists():
        yield "- `go build ./...`, `go test ./...`, `go test ./package -run Name` for one test"


def _list_folders(files: list[str]) -> Iterator[str]:
    """The folders at the top, with the kinds of files that they hold."""
    kinds: dict[str, Counter[str]] = {}
    for path in files:
        top, slash, _ = path.partition("/")
        language = LANGUAGES.get(Path(path).suffix.lower(), "other")
        kinds.setdefault(f"{top}/" if slash else "", Counter())[language] += 1
    for folder, counts in sorted(kinds.items(), key=lambda one: -one[1].total())[:MOST_FOLDERS]:
        if folder and not folder.startswith("."):
            most = ", ".join(f"{number} {kind}" for kind, number in counts.most_common(3))
            yield f"- `{folder}`: {format_count(counts.total(), 'file')} ({most})"


def _list_conventions(
    tree: Path, files: list[str], python: dict[str, Any], node: dict[str, Any]
) -> Iterator[str]:
    if wanted := _get_table(python, "project").get("requires-python"):
        yield f"- Python {to_one_line(str(wanted), 40)}"
    if length := _get_table(python, "tool", "ruff").get("line-length"):
        yield f"- Lines of at most {length} characters (ruff)"
    if _get_table(python, "tool", "mypy").get("strict") is True:
        yield "- Types are checked strictly (mypy)"
    if wanted := _get_table(node, "engines").get("node"):
        yield f"- Node {to_one_line(str(wanted), 40)}"
    if (tree / "tsconfig.json").exists():
        strict = '"strict": true' in _read_text(tree / "tsconfig.json")
        yield f"- TypeScript{', strict' if strict else ''} (tsconfig.json)"
    found = {
        ".editorconfig": "Indentation and line ends as `.editorconfig` says",
        ".prettierrc": "Formatted with prettier",
        ".pre-commit-config.yaml": "Checks before each commit: `.pre-commit-config.yaml`",
    }
    yield from (f"- {text}" for name, text in found.items() if (tree / name).exists())
    if flows := sorted(path for path in files if path.startswith(".github/workflows/")):
        yield f"- CI runs {', '.join(f'`{path}`' for path in flows[:4])}"
