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
    """One module: its path, its text, its syntax tree and every node of the tree."""

    path: Path
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def functions(self) -> list[FunctionNode]:
        """Functions and methods, nested ones too."""
        return [node for node in self.nodes if isinstance(node, FUNCTIONS)]

    @property
    def classes(self) -> list[ast.ClassDef]:
        """Classes, nested ones too."""
        return [node for node in self.nodes if isinstance(node, ast.ClassDef)]

    def locate(self, line: int = 1) -> str:
        """Path and line, for a message that lists offenders."""
        return f"{self.path.relative_to(ROOT)}:{line}"


@cache
def read_package() -> tuple[SourceFile, ...]:
    return tuple(read_source(path) for path in sorted(PACKAGE.rglob("*.py")))


def read_source(path: Path) -> SourceFile:
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    return SourceFile(path, text, tree, tuple(ast.walk(tree)))


def format_offenders(offenders: list[str]) -> str:
    """A message for a guard that failed: the number, then one offender per line."""
    return "\n".join([f"{len(offenders)} offenders:", *offenders])
