"""The public surface is a decision: changing it means changing this list."""

from __future__ import annotations

import subprocess
import sys

import pytest

import sevenfold

PUBLIC = [
    "Author",
    "Context",
    "Document",
    "Event",
    "Failure",
    "Guarded",
    "Image",
    "Memory",
    "MemoryOff",
    "Message",
    "Mistake",
    "Model",
    "NoSuchMemory",
    "Opaque",
    "Recalled",
    "RedactedThinking",
    "Saved",
    "Session",
    "Settings",
    "SevenfoldError",
    "Text",
    "Thinking",
    "Tool",
    "ToolResult",
    "ToolUse",
    "run_sync",
]
HEAVY = ["httpx", "rich", "typer", "prompt_toolkit", "tree_sitter", "anthropic", "openai"]


def test_the_public_names_are_these() -> None:
    assert sevenfold.__all__ == PUBLIC
    assert all(getattr(sevenfold, name) is not None for name in PUBLIC)


@pytest.mark.parametrize("name", ["Session", "Context", "Memory"])
def test_importing_the_package_does_nothing_and_what_it_offers_brings_nothing_heavy(name: str) -> None:
    code = (
        "import sys, sevenfold; first = sorted(m for m in sys.modules if m.startswith('sevenfold'));"
        f"sevenfold.{name};"
        f"print(first, [m for m in {HEAVY} if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert out.stdout.strip() == "['sevenfold'] []"
