"""Nothing grows past what one sitting can read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
MODULES = sorted(SRC.rglob("*.py"))
LONGEST_MODULE = 800
LONGEST_FUNCTION = 50
MOST_MODULES = 16
MOST_AT_THE_TOP = 30
TURN = 200
LYING_NAMES = ("manager", "helper", "util", "handler", "base", "common", "v2")


def functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_module_is_short_and_says_what_it_is_for(module: Path) -> None:
    source = module.read_text("utf-8")
    tree = ast.parse(source)

    assert len(source.splitlines()) <= (TURN if module.name == "turn.py" else LONGEST_MODULE)
    assert ast.get_docstring(tree), "the module has no docstring"
    assert [name for name, lines in functions(tree) if lines > LONGEST_FUNCTION] == []


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_names_say_what_a_thing_is(module: Path) -> None:
    defined = [
        node.name
        for node in ast.walk(ast.parse(module.read_text("utf-8")))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    words = {word for name in [module.stem, *defined] for word in _words(name)}

    assert words.isdisjoint(LYING_NAMES)


def test_a_folder_can_be_taken_in_at_a_glance() -> None:
    folders = {path.parent for path in MODULES}
    sizes = {f: len([m for m in MODULES if m.parent == f and m.stem != "__init__"]) for f in folders}

    assert [str(folder) for folder, size in sizes.items() if size > MOST_MODULES] == []
    assert len([p for p in (SRC / "sevenfold").iterdir() if p.name[:2] != "__"]) <= MOST_AT_THE_TOP


def _words(name: str) -> list[str]:
    spaced = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
    return [word for word in spaced.split("_") if word]
