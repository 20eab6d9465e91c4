"""Docstrings say what a thing is or does, and calls name what they pass."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from architecture.source import FUNCTIONS, FunctionNode, SourceFile, format_offenders, read_package

pytestmark = pytest.mark.xdist_group("source")  # one worker reads the package once
RIDDLE = re.compile(r"(What|Whether|Which|Who|Whom|Whose|How|Where|When|Why)\b")
RIDDLES_ALLOWED = 0.05


def iterate_docstrings(module: SourceFile) -> Iterator[tuple[str, str]]:
    """Place and text of each docstring: of the module, its classes, functions and methods."""
    for node in [module.tree, *module.classes, *module.functions]:
        if text := ast.get_docstring(node):
            yield module.locate(getattr(node, "lineno", 1)), text


def test_every_module_has_a_docstring() -> None:
    mute = [module.locate() for module in read_package() if not ast.get_docstring(module.tree)]

    assert not mute, format_offenders(mute)


def test_docstrings_begin_with_the_thing_itself() -> None:
    docstrings = [found for module in read_package() for found in iterate_docstrings(module)]
    riddles = [f"{place} {text.splitlines()[0]}" for place, text in docstrings if RIDDLE.match(text)]

    share = len(riddles) / len(docstrings)

    assert share <= RIDDLES_ALLOWED, f"{share:.1%} of {len(docstrings)}: {format_offenders(riddles)}"


def test_no_tuple_is_built_to_be_splatted_into_a_class() -> None:
    splats = [
        f"{module.locate(call.lineno)} {ast.unparse(call.func)}(*{name})"
        for module in read_package()
        for scope in [module.tree, *module.functions]
        for call, name in _find_splats(scope)
    ]

    assert not splats, format_offenders(splats)


def _find_splats(scope: ast.Module | FunctionNode) -> Iterator[tuple[ast.Call, str]]:
    """Calls of a class with `*name`, where the scope itself assigned a tuple to that name."""
    nodes = list(_iterate_scope(scope))
    tuples = {name for node in nodes for name in _get_tuple_names(node)}
    for node in nodes:
        if isinstance(node, ast.Call) and _is_class(node.func):
            for argument in node.args:
                if isinstance(argument, ast.Starred) and _is_built_tuple(argument.value, tuples):
                    yield node, ast.unparse(argument.value)


def _iterate_scope(scope: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, FUNCTIONS):
            yield from _iterate_scope(child)


def _get_tuple_names(node: ast.AST) -> list[str]:
    if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.Tuple):
        return []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _is_built_tuple(value: ast.expr, tuples: set[str]) -> bool:
    return isinstance(value, ast.Tuple) or (isinstance(value, ast.Name) and value.id in tuples)


def _is_class(function: ast.expr) -> bool:
    name = ast.unparse(function).rsplit(".", 1)[-1].lstrip("_")
    return name == "cls" or name[:1].isupper()
