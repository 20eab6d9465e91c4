"""A first request loads only what it needs. Modules and regular expressions are counted, not seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.startup.run import HTTP, STARTS, Start, open_project, start

MODULES = 325
"""Most modules that may be loaded, those of Python itself apart."""
OWN_MODULES = 175
PATTERNS = 62
"""Most regular expressions that may be compiled, those of Python itself apart."""
OWN_PATTERNS = 33
BESIDE = "sevenfold.storage.cleanup"  # Runs beside the request, sometimes before it is sent
HEAVY = {
    "anthropic",
    "numpy",
    "openai",
    "openfeature",
    "opentelemetry",
    "prompt_toolkit",
    "sqlite3",
    "rich",
    "tree_sitter",
    "yaml",
}
UNUSED = {
    "sevenfold.cli.chat.slash",
    "sevenfold.cli.terminal",
    "sevenfold.layers.l5_durable_memory.extraction_tools",
    "sevenfold.layers.l6_dreaming.workers",
    "sevenfold.memory.dates.relative",
    "sevenfold.memory.guard.guard",
    "sevenfold.memory.team.git",
    "sevenfold.offline",
    "sevenfold.settings.claude_files",
    "sevenfold.tools.sandbox",
}
"""Modules of ours that are slow to import, and that a first request without memories does not use."""


@pytest.fixture(scope="module")
def first_request() -> Start:
    _, kind, words = next(one for one in STARTS if one[0] == HTTP)
    with open_project() as (project, environ):
        return start(kind, words, project, environ)


def not_of_python(name: str) -> bool:
    return name.partition(".")[0] not in sys.stdlib_module_names


def is_ours(name: str) -> bool:
    return name.startswith("sevenfold")


def test_a_first_request_loads_few_modules(first_request: Start) -> None:
    loaded = list(filter(not_of_python, first_request.modules))

    assert len(loaded) <= MODULES
    assert len(list(filter(is_ours, loaded))) <= OWN_MODULES


def test_a_first_request_compiles_few_regular_expressions(first_request: Start) -> None:
    patterns = first_request.patterns.items()
    compiled = {name: count for name, count in patterns if not_of_python(name) and name != BESIDE}

    assert sum(compiled.values()) <= PATTERNS
    assert sum(count for name, count in compiled.items() if is_ours(name)) <= OWN_PATTERNS


def test_a_first_request_loads_nothing_heavy_and_nothing_unused(first_request: Start) -> None:
    loaded = {name.partition(".")[0] for name in first_request.modules}

    assert loaded & HEAVY == set()
    assert set(first_request.modules) & UNUSED == set()


OF_SETTINGS = {"sevenfold.settings.checks", "sevenfold.settings.schema"}
OF_TOOLS = {"sevenfold.hooks.hooks", "sevenfold.tools.permissions", "sevenfold.tools.workspace"}


@pytest.mark.parametrize(
    ("opened", "unused"),
    [
        ("Memory(FolderBackend(Path('memory'), Path('state')))", OF_SETTINGS | OF_TOOLS),
        ("Memory.open('.', home='home', environ={})", OF_TOOLS),
    ],
)
def test_a_first_recall_loads_no_settings_it_does_not_need_and_no_tools(
    tmp_path: Path, opened: str, unused: set[str]
) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom sevenfold.memory.folder.files import FolderBackend\n"
        f"from sevenfold.memory.store import Memory\n{opened}.recall('anything')\nprint(*sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=True)

    assert set(ran.stdout.decode().split()) & unused == set()
