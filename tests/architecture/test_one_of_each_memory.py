"""A memory store is asked for operations: the folder and the state are known to its backend alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from sevenfold.memory.backend import MemoryBackend
from sevenfold.memory.store import MemoryStore
from sevenfold.testing import InMemoryBackend

pytestmark = pytest.mark.xdist_group("source")  # the package is parsed once

SRC = Path(__file__).parents[2] / "src" / "sevenfold"
OUTSIDE = [path for path in sorted(SRC.rglob("*.py")) if not path.is_relative_to(SRC / "memory")]
STORES = ("store", "memory")
"""The names under which modules outside `memory/` hold a store."""
FILES = ("MemoryFiles", "OpenFolder", "LedgerFile", "MemoryHistory", "DreamJournal")
"""Parts of the folder backend that no module outside `memory/` builds."""


def reached(tree: ast.AST) -> Iterator[str]:
    """Each `store.folder`, `self._store.state` and the like, as it is written."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("folder", "state"):
            owner = node.value
            own = isinstance(owner, ast.Attribute) and isinstance(owner.value, ast.Name | ast.Attribute)
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if name.lstrip("_") in STORES and not (own and ast.unparse(owner).endswith("at.memory")):
                yield ast.unparse(node)


def imported(tree: ast.AST) -> set[str]:
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {name.name for node in nodes for name in node.names}


@pytest.mark.parametrize("module", OUTSIDE, ids=lambda path: str(path.relative_to(SRC)))
def test_a_module_outside_reaches_into_no_store(module: Path) -> None:
    tree = ast.parse(module.read_text("utf-8"))
    names = imported(tree)

    if names & {"MemoryStore", "Memory"}:
        assert list(reached(tree)) == []
    assert names.isdisjoint(FILES) or module.parts[-2:] == ("commands", "doctor.py")


def test_a_store_and_a_backend_have_no_folder() -> None:
    store = MemoryStore(InMemoryBackend())

    assert not hasattr(store, "folder")
    assert not hasattr(store, "state")
    assert not hasattr(MemoryBackend, "folder")
