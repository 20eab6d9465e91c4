"""The package as the guards see it: every module read and parsed once."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "sevenfold"
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, eq=False)
class SourceFile:
    """One module: its text, its syntax tree, and the nodes of the tree; functions and classes by kind."""

    path: Path
    text: str
    tree: ast.Module
    nodes: list[ast.AST]
    functions: list[FunctionNode]
    classes: list[ast.ClassDef]

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    def locate(self, line: int = 1) -> str:
        """Path and line, for a message that lists offenders."""
        return f"{self.path.relative_to(ROOT)}:{line}"


@cache
def read_package() -> tuple[SourceFile, ...]:
    return tuple(read_source(path) for path in sorted(PACKAGE.rglob("*.py")))


def read_source(path: Path) -> SourceFile:
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    functions = [node for node in nodes if isinstance(node, FUNCTIONS)]
    return SourceFile(path, text, tree, nodes, functions, [n for n in nodes if isinstance(n, ast.ClassDef)])


def format_offenders(offenders: list[str]) -> str:
    """A message for a guard that failed: the number, then one offender per line."""
    return "\n".join([f"{len(offenders)} offenders:", *offenders])
