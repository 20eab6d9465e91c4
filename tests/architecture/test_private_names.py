"""Tests look at what a thing does, not at its private parts: those may change without a test noticing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from architecture.source import ROOT, format_offenders, read_source

pytestmark = pytest.mark.xdist_group("source")  # the package is parsed once

PRIVATE = re.compile(r"_[^_]")
OWNERS = {"self", "cls", "os"}  # a test's own classes, and `os._exit`
# Uses of a private attribute or name of something else. This number only falls.
PRIVATE_USES = 7


def iterate_private_names(path: Path) -> Iterator[str]:
    """Attributes and imports that begin with one underscore, other than those of `self` and `super()`."""
    source = read_source(path)
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and PRIVATE.match(node.attr):
            owner = ast.unparse(node.value)
            if owner not in OWNERS and owner != "super()":
                yield f"{source.locate(node.lineno)} {owner}.{node.attr}"
        if isinstance(node, ast.ImportFrom):
            for name in node.names:
                if PRIVATE.match(name.name):
                    yield f"{source.locate(node.lineno)} {node.module}.{name.name}"


def test_tests_use_public_names() -> None:
    private = [
        use for path in sorted((ROOT / "tests").rglob("*.py")) for use in iterate_private_names(path)
    ]

    assert len(private) <= PRIVATE_USES, format_offenders(private)
