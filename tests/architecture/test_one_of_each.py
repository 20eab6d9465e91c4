"""What exists once stays once: each of these is done in one module, and the others call it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("source")  # the package is parsed once

PACKAGE = Path(__file__).parents[2] / "src" / "sevenfold"


def calls() -> Iterator[tuple[str, ast.Call, str]]:
    """Each call in the package: the module, the call, and what is called as it is written."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                yield path.relative_to(PACKAGE).as_posix(), node, ast.unparse(node.func)


def test_files_are_locked_in_one_module() -> None:
    locking = {"flock", "lockf", "locking"}
    assert {module for module, _, name in calls() if name.rpartition(".")[2] in locking} == {
        "storage/locks.py"
    }


RENAMES = {
    "layers/l3_session_memory/notes.py": "damaged and replaced notes are put aside",
    "layers/l7_agents/mailbox.py": "a damaged mailbox is put aside",
    "memory/folder/files.py": "a record gets another name, as the journal of a commit does on its way back",
    "memory/history/database.py": "a damaged history is put aside",
    "settings/place.py": "damaged settings are put aside",
}
"""Modules that give a finished file another name."""


def is_rename(call: ast.Call, name: str) -> bool:
    """True for `os.replace`, `os.rename` and the methods of a path (those of a text take two arguments)."""
    plain = len(call.args) == 1 and not call.keywords
    return name in ("os.replace", "os.rename") or (name.endswith((".replace", ".rename")) and plain)


def test_a_new_file_takes_its_place_in_one_module() -> None:
    renaming = {module for module, call, name in calls() if is_rename(call, name)}
    assert renaming == {"storage/files.py", *RENAMES}
