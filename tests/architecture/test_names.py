"""Names say what a thing is: a noun for a value, verb_noun for an action, is_/has_/can_ for a question.

`verbs.txt` lists the words that may begin the name of a public function: add a word there if it is a verb.
`words.toml` holds the other lists.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest
from architecture.source import FUNCTIONS, PACKAGE, FunctionNode, format_offenders, read_package

pytestmark = pytest.mark.xdist_group("source")  # one worker reads the package once
HERE = Path(__file__).parent
VERBS = frozenset((HERE / "verbs.txt").read_text("utf-8").split())
WORDS = {
    name: words.split() for name, words in tomllib.loads((HERE / "words.toml").read_text("utf-8")).items()
}
# Public methods and properties named with a bare participle. This number only falls.
PARTICIPLE_METHODS = 108
COMMANDS = PACKAGE / "cli" / "commands"  # a file there may be called after its command


def is_participle(name: str) -> bool:
    """True for one word that is a participle, such as `told` or `finished`."""
    if name in WORDS["irregular_participles"]:
        return True
    return re.fullmatch(r"[a-z]+(ed|en)", name) is not None and name not in WORDS["no_participles"]


def is_command(function: FunctionNode) -> bool:
    """True for a function whose decorator makes a CLI command of it."""
    return any(re.match(r"\w+\.command\b", ast.unparse(d)) for d in function.decorator_list)


def split_words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", re.sub(r"([A-Z])", r"_\1", name).lower())


def test_no_name_uses_an_empty_word() -> None:
    names = [
        (module.locate(node.lineno), node.name)
        for module in read_package()
        for node in [*module.functions, *module.classes]
    ]
    names += [
        (module.locate(), part)
        for module in read_package()
        for part in module.path.relative_to(PACKAGE).with_suffix("").parts
    ]
    empty = [
        f"{place} {name}"
        for place, name in names
        if not set(WORDS["empty_words"]).isdisjoint(split_words(name))
    ]

    assert not empty, format_offenders(empty)


def test_class_names_are_unique() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in read_package():
        for node in module.classes:
            places[node.name].append(module.locate(node.lineno))
    shared = [f"{name}: {', '.join(found)}" for name, found in places.items() if len(found) > 1]

    assert not shared, format_offenders(shared)


def test_class_names_mean_something_without_their_module() -> None:
    empty = [
        f"{module.locate(node.lineno)} {node.name}"
        for module in read_package()
        for node in module.classes
        if node.name.lstrip("_") in WORDS["empty_class_names"]
    ]

    assert not empty, format_offenders(empty)


def test_public_functions_begin_with_a_verb() -> None:
    nouns = [
        f"{module.locate(node.lineno)} {node.name}"
        for module in read_package()
        for node in module.tree.body
        if isinstance(node, FUNCTIONS)
        and not node.name.startswith("_")
        and node.name not in WORDS["function_nouns"]
        and node.name.split("_")[0] not in VERBS
        and not is_command(node)
    ]

    assert not nouns, format_offenders(nouns)


def test_the_list_of_verbs_holds_no_participle() -> None:
    assert [verb for verb in sorted(VERBS) if is_participle(verb)] == []


def test_public_methods_are_not_named_with_bare_participles() -> None:
    participles = [
        f"{module.locate(node.lineno)} {owner.name}.{node.name}"
        for module in read_package()
        for owner in module.classes
        for node in owner.body
        if isinstance(node, FUNCTIONS) and is_participle(node.name)
    ]

    assert len(participles) <= PARTICIPLE_METHODS, format_offenders(participles)


def test_modules_are_named_with_nouns() -> None:
    actions = [
        module.locate()
        for module in read_package()
        if module.path.parent != COMMANDS and _is_action(module.path.stem)
    ]

    assert not actions, format_offenders(actions)


def _is_action(name: str) -> bool:
    """True for a verb, a participle, or a word in -ing that is not one of the nouns."""
    last = name.split("_")[-1]
    return (
        name in WORDS["action_modules"]
        or is_participle(name)
        or (last.endswith("ing") and last not in WORDS["nouns_in_ing"])
    )
