"""Holds what a file says against the schema: mistakes with a suggestion, and the reference for people.

Types, limits, examples and meanings all come from the fields of `schema`.
"""

from __future__ import annotations

import contextlib
import copy
import difflib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import inspect
from msgspec.structs import replace

from sevenfold.errors import SettingsError
from sevenfold.hook_contract import HookCommand, HookEvents, HookMatcher
from sevenfold.messages import Json
from sevenfold.settings.files import Document, KeyPath, shown
from sevenfold.settings.schema import PermissionSettings, Settings
from sevenfold.tools.rules import Rule

MOST_WARNINGS: Final = 20
MOST_RULES: Final = 500
"""Each is held against every path and every command."""
LARGEST_NUMBER: Final = 2**53
ELSEWHERE: Final = {
    "autoMemoryEnabled": "memoryEnabled",
    "autoMemoryDirectory": "memoryDirectory",
    "cleanupPeriodDays": "cleanupDays",
}
"""What other tools call some of our keys."""


class Problem(msgspec.Struct, frozen=True):
    """One thing in a file that is not as it should be."""

    key: KeyPath
    text: str
    fatal: bool = True


def check(document: Document) -> list[str]:
    """Warnings about a file; a mistake that cannot be overlooked is raised."""
    found = list(_problems(inspect.type_info(Settings), document.values, (), ()))
    wrong = [f"{document.where(p.key)}: {p.text}" for p in found if p.fatal]
    if wrong:
        more = f" (and {len(wrong) - 1} more in this file)" if len(wrong) > 1 else ""
        raise SettingsError(wrong[0] + more)
    return _warnings(document, found)


def sound(document: Document) -> tuple[Document, list[str]]:
    """The file without what is wrong in it, for files that must not be able to stop us; and warnings."""
    found = list(_problems(inspect.type_info(Settings), document.values, (), ()))
    wrong = {problem.key for problem in found if problem.fatal}
    values: Json = copy.deepcopy(document.values)
    for key in sorted(wrong, key=_place, reverse=True):
        _drop(values, key)
    told = [replace(one, text=f"{one.text} It is ignored.") if one.fatal else one for one in found]
    return replace(document, values=values), _warnings(document, told)


def _place(key: KeyPath) -> list[tuple[int, str]]:
    """In order; what is taken out of a list has to be taken from its end, or the rest would move."""
    return [(part, "") if isinstance(part, int) else (0, part) for part in key]


def _drop(values: Any, key: KeyPath) -> None:
    """Take out the value at a key, if it is still there."""
    *above, name = key
    for part in above:
        try:
            values = values[part]
        except (KeyError, IndexError):
            return
    with contextlib.suppress(KeyError, IndexError):
        del values[name]


def _warnings(document: Document, found: list[Problem]) -> list[str]:
    found += [Problem(k, f"{dotted(k)} is written twice; the last counts.") for k in document.twice]
    warnings = [f"{document.where(p.key)}: {p.text}" for p in found]
    if len(warnings) > MOST_WARNINGS:
        rest = len(warnings) - MOST_WARNINGS
        warnings[MOST_WARNINGS:] = [f"{document.path}: {rest} more keys are ignored."]
    return warnings


def dotted(key: KeyPath) -> str:
    """A key as people write it: `permissions.allow[0]`."""
    out = ""
    for part in key:
        name = part if isinstance(part, int) or part.isidentifier() else shown(part)
        out += f"[{name}]" if isinstance(part, int) else f".{name}" if out else str(name)
    return out


def _problems(
    kind: inspect.Type, value: Any, key: KeyPath, examples: tuple[Any, ...]
) -> Iterator[Problem]:
    """Everything wrong with a value and what is in it."""
    while isinstance(kind, inspect.Metadata):
        more = kind.extra_json_schema or {}
        examples = tuple(more.get("examples", examples))
        if isinstance(kind.type, inspect.StrType) and "title" in more:
            break
        kind = kind.type
    if not _fits(kind, value):
        yield Problem(key, f"{dotted(key)} must be {wording(kind)}; {_got(kind, value, examples)}")
    elif isinstance(kind, inspect.UnionType) and value is not None:
        yield from _problems(_given(kind), value, key, examples)
    elif isinstance(kind, inspect.StructType):
        yield from _in_struct(kind, value, key)
    elif isinstance(kind, inspect.VarTupleType):
        for i, item in enumerate(value):
            yield from _problems(kind.item_type, item, (*key, i), examples)
    elif isinstance(kind, inspect.DictType):
        for name, item in value.items():
            yield from _problems(kind.value_type, item, (*key, name), examples)


def _in_struct(kind: inspect.StructType, value: dict[str, Any], key: KeyPath) -> Iterator[Problem]:
    fields = {field.encode_name: field for field in kind.fields}
    for name, item in value.items():
        if name in fields:
            yield from _problems(fields[name].type, item, (*key, name), ())
        elif (*key, name) != ("$schema",):
            yield Problem((*key, name), _unknown((*key, name), fields), fatal=False)
    for name, field in fields.items():
        if field.required and name not in value:
            yield Problem(key, f"{dotted(key)} has no {shown(name)}; add it.")
    if kind.cls is PermissionSettings:
        yield from _of_rules(value, key)
    yield from _of_hooks(kind, value, key)


def _of_rules(value: dict[str, Any], key: KeyPath) -> Iterator[Problem]:
    for name in ("allow", "ask", "deny"):
        rules = value.get(name, [])
        if isinstance(rules, list) and len(rules) > MOST_RULES:
            yield Problem((*key, name), f"{dotted((*key, name))} has over {MOST_RULES} rules.")
            continue
        for i, text in enumerate(rules if isinstance(rules, list) else ()):
            try:
                Rule.parse(text if isinstance(text, str) else "Read")
            except SettingsError as error:
                yield Problem((*key, name, i), f"{error}.")


def _of_hooks(kind: inspect.StructType, value: dict[str, Any], key: KeyPath) -> Iterator[Problem]:
    """What a type cannot say about hooks."""
    if kind.cls is HookMatcher and isinstance(pattern := value.get("matcher"), str):
        try:
            re.compile("" if pattern == "*" else pattern)
        except (re.error, RecursionError, OverflowError) as error:
            at = (*key, "matcher")
            text = (
                f"{dotted(at)} is not a regular expression: {error}. Write {shown('Edit|Write')}."
            )
            yield Problem(at, text)
    if kind.cls is HookCommand and value.get("type", "command") != "command":
        at = (*key, "type")
        yield Problem(at, f"{dotted(at)}: only commands are run, so it is ignored.", fatal=False)
    elif kind.cls is HookCommand and not value.get("command"):
        yield Problem(key, f'{dotted(key)} has no "command"; add the command that is to run.')


def _fits(kind: inspect.Type, value: Any) -> bool:
    """Whether a value is right as far as can be seen without looking into it."""
    match kind:
        case inspect.Metadata():
            return _fits(kind.type, value)
        case inspect.UnionType():
            return any(_shape(option, value) for option in kind.types)
        case inspect.StrType():
            long_enough = isinstance(value, str) and len(value) >= (kind.min_length or 0)
            return long_enough and re.search(kind.pattern or "", value) is not None
        case inspect.IntType() | inspect.FloatType():
            return _shape(kind, value) and _within(kind, value)
        case inspect.LiteralType():
            return value in kind.values
        case _:
            return _shape(kind, value)


def _shape(kind: inspect.Type, value: Any) -> bool:
    if isinstance(kind, inspect.Metadata):
        return _shape(kind.type, value)
    if isinstance(value, bool) or value is None:  # in Python a truth value is a number too
        return isinstance(kind, inspect.BoolType if isinstance(value, bool) else inspect.NoneType)
    shapes: dict[type[inspect.Type], tuple[type, ...]] = {
        inspect.StrType: (str,),
        inspect.CustomType: (str,),
        inspect.LiteralType: (str,),
        inspect.IntType: (int,),
        inspect.FloatType: (int, float),
        inspect.VarTupleType: (list,),
        inspect.DictType: (dict,),
        inspect.StructType: (dict,),
    }
    return isinstance(value, shapes.get(type(kind), ()))


def _within(kind: inspect.IntType | inspect.FloatType, value: float) -> bool:
    return not (
        abs(value) > LARGEST_NUMBER
        or (kind.ge is not None and value < kind.ge)
        or (kind.gt is not None and value <= kind.gt)
        or (kind.le is not None and value > kind.le)
    )


def _given(kind: inspect.UnionType) -> inspect.Type:
    return next(t for t in kind.types if not isinstance(t, inspect.NoneType))


def wording(kind: inspect.Type) -> str:
    """A type in words."""
    match kind:
        case inspect.Metadata():
            return str((kind.extra_json_schema or {}).get("title") or wording(kind.type))
        case inspect.UnionType():
            return f"{wording(_given(kind))} or null"
        case inspect.LiteralType():
            return "one of " + ", ".join(json.dumps(value) for value in kind.values)
        case inspect.IntType() | inspect.FloatType():
            return _number(kind)
        case inspect.VarTupleType():
            return f"a list of {_plural(kind.item_type)}"
        case inspect.DictType():
            return f"an object of {_plural(kind.value_type)}"
        case inspect.BoolType():
            return "true or false"
        case inspect.StructType():
            return "an object"
        case inspect.StrType(min_length=int(least)):
            return f"a string of {least} or more characters"
        case _:
            return "a string"


def _number(kind: inspect.IntType | inspect.FloatType) -> str:
    words = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
    limits = [
        f"{said} {limit:g}"
        for said, limit in (("of at least", kind.ge), ("above", kind.gt), ("up to", kind.le))
        if limit is not None
    ]
    return " ".join([words, " and ".join(limits)]).strip()


def _plural(kind: inspect.Type) -> str:
    return f"{wording(kind).split()[1]}s"


def _got(kind: inspect.Type, value: Any, examples: Iterable[Any]) -> str:
    """What stands there instead, and what could."""
    names = {str: "a string", int: "a number", float: "a number", list: "a list", dict: "an object"}
    got = names.get(type(value), shown(value))
    if _shape(kind, value) and not isinstance(value, list | dict):
        got = shown(value)
    suggestion: Any = next(iter(examples), None)
    if isinstance(kind, inspect.VarTupleType) and isinstance(value, str) and value:
        suggestion = [value] if wording(kind) == "a list of strings" else suggestion
    elif isinstance(kind, inspect.LiteralType):
        suggestion = next(
            iter(difflib.get_close_matches(str(value), map(str, kind.values), 1)), suggestion
        )
    elif isinstance(value, str) and value in ("true", "false") and _shape(kind, True):
        suggestion = value == "true"
    return f"got {got}." + (f" Write {shown(suggestion, 200)}." if suggestion is not None else "")


def _unknown(key: KeyPath, fields: Iterable[str]) -> str:
    name = str(key[-1])
    near = difflib.get_close_matches(name, fields, 1) or [
        field
        for field in fields
        if field == ELSEWHERE.get(name) or field.casefold() == name.casefold()
    ]
    hint = f"did you mean {shown(near[0])}? " if near else ""
    return f"{dotted(key)} is not a setting; {hint}it is ignored."


# --- for people -----------------------------------------------------------------------------------------


def describe() -> list[tuple[str, str, str, str]]:
    """Key, type, default and meaning of every setting, in the order of the schema."""
    return list(_described(inspect.type_info(Settings), ()))


def _described(kind: inspect.Type, key: KeyPath) -> Iterator[tuple[str, str, str, str]]:
    assert isinstance(kind, inspect.StructType)
    for field in kind.fields:
        at = (*key, field.encode_name)
        if isinstance(field.type, inspect.StructType):
            yield from _described(field.type, at)
        else:
            assert isinstance(field.type, inspect.Metadata)
            meaning = (field.type.extra_json_schema or {})["description"]
            words = "a list of hooks" if kind.cls is HookEvents else wording(field.type)
            default = field.default if field.default_factory is msgspec.NODEFAULT else {}
            yield dotted(at), words, json.dumps(default), meaning
