"""Checks settings files against the schema: mistakes with a suggestion, and the reference.

Types, limits, examples and meanings all come from the fields of `schema`.
Also merges files, and leaves out what a file of an untrusted folder may not set.
"""

from __future__ import annotations

import contextlib
import copy
import difflib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import inspect
from msgspec.structs import replace

from sevenfold.core.errors import SettingsError
from sevenfold.core.messages import Json
from sevenfold.hooks.events import HookCommand, HookEvents, HookMatcher
from sevenfold.settings.files import (
    FOLDER,
    HONOURED,
    SERVERS_FILE,
    KeyPath,
    SettingsDocument,
    format_value,
    is_outside,
    is_tracked,
    merge_values,
    read_document,
)
from sevenfold.settings.schema import STRICTEST_FIRST, PermissionSettings, Settings

MOST_WARNINGS: Final = 20
MOST_RULES: Final = 500
"""Each is held against every path and every command."""
LARGEST_NUMBER: Final = 2**53
ELSEWHERE: Final = {
    "autoMemoryEnabled": "memoryEnabled",
    "autoMemoryDirectory": "memoryDirectory",
    "cleanupPeriodDays": "cleanupDays",
}
"""Names of some of our keys in other tools."""


class SettingsProblem(msgspec.Struct, frozen=True):
    """One thing in a file that is not as it should be."""

    key: KeyPath
    text: str
    fatal: bool = True


@cache
def _schema() -> inspect.Type:
    """The types of all settings. It takes 20 ms, so only a file that says something pays for it."""
    return inspect.type_info(Settings)


def check_document(document: SettingsDocument) -> list[str]:
    """Warnings about a file; a mistake that cannot be overlooked is raised."""
    found = list(_problems(_schema(), document.values, (), ())) if document.values else []
    wrong = [f"{document.where(p.key)}: {p.text}" for p in found if p.fatal]
    if wrong:
        more = f" (and {len(wrong) - 1} more in this file)" if len(wrong) > 1 else ""
        raise SettingsError(wrong[0] + more)
    return _warnings(document, found)


def drop_wrong_values(document: SettingsDocument) -> tuple[SettingsDocument, list[str]]:
    """The file without what is wrong in it, for files that must not be able to stop us; and warnings."""
    found = list(_problems(_schema(), document.values, (), ()))
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


def _warnings(document: SettingsDocument, found: list[SettingsProblem]) -> list[str]:
    found += [
        SettingsProblem(k, f"{format_key(k)} is written twice; the last counts.") for k in document.twice
    ]
    warnings = [f"{document.where(p.key)}: {p.text}" for p in found]
    if len(warnings) > MOST_WARNINGS:
        rest = len(warnings) - MOST_WARNINGS
        warnings[MOST_WARNINGS:] = [f"{document.path}: {rest} more keys are ignored."]
    return warnings


def format_key(key: KeyPath) -> str:
    """A key as people write it: `permissions.allow[0]`."""
    out = ""
    for part in key:
        name = part if isinstance(part, int) or part.isidentifier() else format_value(part)
        out += f"[{name}]" if isinstance(part, int) else f".{name}" if out else str(name)
    return out


def _problems(
    kind: inspect.Type, value: Any, key: KeyPath, examples: tuple[Any, ...]
) -> Iterator[SettingsProblem]:
    """Everything wrong with a value and what is in it."""
    while isinstance(kind, inspect.Metadata):
        more = kind.extra_json_schema or {}
        examples = tuple(more.get("examples", examples))
        if isinstance(kind.type, inspect.StrType) and "title" in more:
            break
        kind = kind.type
    if not _fits(kind, value):
        yield SettingsProblem(
            key, f"{format_key(key)} must be {describe_type(kind)}; {_got(kind, value, examples)}"
        )
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


def _in_struct(kind: inspect.StructType, value: dict[str, Any], key: KeyPath) -> Iterator[SettingsProblem]:
    fields = {field.encode_name: field for field in kind.fields}
    for name, item in value.items():
        if name in fields:
            yield from _problems(fields[name].type, item, (*key, name), _defaults(fields[name]))
        elif (*key, name) != ("$schema",):
            yield SettingsProblem((*key, name), _unknown((*key, name), fields), fatal=False)
    for name, field in fields.items():
        if field.required and name not in value:
            yield SettingsProblem(key, f"{format_key(key)} has no {format_value(name)}; add it.")
    if kind.cls is PermissionSettings:
        yield from _of_rules(value, key)
    yield from _of_hooks(kind, value, key)


def _defaults(field: inspect.Field) -> tuple[Any, ...]:
    """The default of a setting as an example; none where it says nothing."""
    default = field.default
    if isinstance(default, float) and default.is_integer():
        default = int(default)
    return (default,) if isinstance(default, int | float | str) and default != "" else ()


def _of_rules(value: dict[str, Any], key: KeyPath) -> Iterator[SettingsProblem]:
    from sevenfold.tools.permissions import PermissionRule  # slow, and most files have no rules

    for name in ("allow", "ask", "deny"):
        rules = value.get(name, [])
        if isinstance(rules, list) and len(rules) > MOST_RULES:
            yield SettingsProblem((*key, name), f"{format_key((*key, name))} has over {MOST_RULES} rules.")
            continue
        for i, text in enumerate(rules if isinstance(rules, list) else ()):
            try:
                PermissionRule.parse(text if isinstance(text, str) else "Read")
            except SettingsError as error:
                yield SettingsProblem((*key, name, i), f"{error}.")


def _of_hooks(kind: inspect.StructType, value: dict[str, Any], key: KeyPath) -> Iterator[SettingsProblem]:
    """Problems of hooks that a type cannot express."""
    if kind.cls is HookMatcher and isinstance(pattern := value.get("matcher"), str):
        try:
            re.compile("" if pattern == "*" else pattern)
        except (re.error, RecursionError, OverflowError) as error:
            at = (*key, "matcher")
            text = (
                f"{format_key(at)} is not a regular expression: {error}. Write "
                f"{format_value('Edit|Write')}."
            )
            yield SettingsProblem(at, text)
    if kind.cls is HookCommand and value.get("type", "command") != "command":
        at = (*key, "type")
        yield SettingsProblem(
            at, f"{format_key(at)}: only commands are run, so it is ignored.", fatal=False
        )
    elif kind.cls is HookCommand and not value.get("command"):
        yield SettingsProblem(key, f'{format_key(key)} has no "command"; add the command that is to run.')


def _fits(kind: inspect.Type, value: Any) -> bool:
    """True if a value is right, without looking into it."""
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
    if isinstance(kind, inspect.AnyType):
        return True
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


def describe_type(kind: inspect.Type) -> str:
    """A type in words."""
    match kind:
        case inspect.Metadata():
            return str((kind.extra_json_schema or {}).get("title") or describe_type(kind.type))
        case inspect.UnionType():
            return f"{describe_type(_given(kind))} or null"
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
    return f"{describe_type(kind).split()[1]}s"


def _got(kind: inspect.Type, value: Any, examples: Iterable[Any]) -> str:
    """The value that stands there, and a suggestion."""
    names = {str: "a string", int: "a number", float: "a number", list: "a list", dict: "an object"}
    got = names.get(type(value), format_value(value))
    if _shape(kind, value) and not isinstance(value, list | dict):
        got = format_value(value)
    suggestion: Any = next(iter(examples), None)
    if isinstance(kind, inspect.VarTupleType) and isinstance(value, str) and value:
        suggestion = [value] if describe_type(kind) == "a list of strings" else suggestion
    elif isinstance(kind, inspect.LiteralType):
        suggestion = next(iter(difflib.get_close_matches(str(value), map(str, kind.values), 1)), suggestion)
    elif isinstance(value, str) and value in ("true", "false") and _shape(kind, True):
        suggestion = value == "true"
    return f"got {got}." + (f" Write {format_value(suggestion, 200)}." if suggestion is not None else "")


def _unknown(key: KeyPath, fields: Iterable[str]) -> str:
    name = str(key[-1])
    near = difflib.get_close_matches(name, fields, 1) or [
        field for field in fields if field == ELSEWHERE.get(name) or field.casefold() == name.casefold()
    ]
    hint = f"did you mean {format_value(near[0])}? " if near else ""
    return f"{format_key(key)} is not a setting; {hint}it is ignored."


# --- for people -----------------------------------------------------------------------------------------


def describe_settings() -> list[tuple[str, str, str, str]]:
    """Key, type, default and meaning of every setting, in the order of the schema."""
    return list(_described(_schema(), ()))


def _described(kind: inspect.Type, key: KeyPath) -> Iterator[tuple[str, str, str, str]]:
    assert isinstance(kind, inspect.StructType)
    for field in kind.fields:
        at = (*key, field.encode_name)
        if isinstance(field.type, inspect.StructType):
            yield from _described(field.type, at)
        else:
            assert isinstance(field.type, inspect.Metadata)
            meaning = (field.type.extra_json_schema or {})["description"]
            words = "a list of hooks" if kind.cls is HookEvents else describe_type(field.type)
            default = field.default if field.default_factory is msgspec.NODEFAULT else {}
            yield format_key(at), words, json.dumps(default), meaning


class SettingsLoader:
    """Reads settings files and collects warnings about them."""

    def __init__(self, root: Path, trusted: bool) -> None:
        self._root, self._trusted = root, trusted
        self.read: list[Path] = []
        self.warnings: list[str] = []
        self.ignored: list[str] = []
        self.notes: list[str] = []

    def file(self, path: Path, *, strict: bool = True) -> SettingsDocument | None:
        document = read_document(path)
        if document is None:
            return None
        self.read.append(path)
        return _beside(self.taken(document, strict=strict), path.parent)

    def taken(self, document: SettingsDocument, *, strict: bool = True) -> SettingsDocument:
        """The checked document; unless `strict`, wrong values are left out with a warning."""
        document = _renamed(document)
        if strict:
            self.warnings += check_document(document)
            return document
        document, warnings = drop_wrong_values(document)
        self.warnings += warnings
        return document

    def of_claude(
        self, path: Path, keys: Collection[str] = HONOURED, when: str = ""
    ) -> SettingsDocument | None:
        """The part of a file of Claude Code that holds here. It stops nobody: mistakes are warnings."""
        try:
            document = read_document(path)
        except SettingsError as error:
            self.warnings.append(f"{error} {UNREAD}")
            return None
        if document is None:
            return None
        from sevenfold.settings.claude_files import pick_settings  # slow, and most have no such file

        self.read.append(path)
        picked = pick_settings(document, keys)
        self.notes.append(picked.describe(when))
        self.warnings += picked.warn()
        return self.taken(picked.document, strict=False)

    def of_folder(self, name: str, limits: Settings, folder: str = FOLDER) -> SettingsDocument | None:
        """A file of the project folder, without what it may not say."""
        path = self._root / folder / name
        if not self._trusted and is_outside(path, self._root):
            self.ignored.append(f"{path} (a link that leads out of the project)")
            return None
        if any(_same(path, known) for known in self.read):
            return None  # started in the home folder: this is the user's own file
        when = "" if self._trusted else " once you trust the folder"
        document = self._read(path) if folder == FOLDER else self.of_claude(path, when=when)
        if document is None:
            return None
        committed = folder == FOLDER and (name == "settings.json" or is_tracked(path))
        kept: Json = {}
        for key, value in _leaves(document.values):
            never = committed and key[0] in NEVER_FROM_THE_PROJECT
            if not never and (self._trusted or _restricts(key, value, limits)):
                _put(kept, key, value)
            elif value not in ([], {}, _holding(limits, key)):  # else it would change nothing
                self._say(f"{document.where(key)}: {format_key(key)}", never)
        return SettingsDocument(document.path, kept)

    def hold_servers(self) -> None:
        """Note the MCP servers of a project that is not trusted: they are not started."""
        path = self._root / SERVERS_FILE
        if self._trusted or is_outside(path, self._root):
            return
        try:
            document = read_document(path)
        except SettingsError:  # it names no server as it is
            return
        named = document.values.get("mcpServers") if document else None
        if document is not None and isinstance(named, dict):
            keys: list[KeyPath] = [("mcpServers", name) for name in named]
            self.ignored += [f"{document.where(key)}: {format_key(key)}" for key in keys]

    def _read(self, path: Path) -> SettingsDocument | None:
        """In a folder that is not trusted, a file that cannot be read is as if it were not there.

        It could only have restricted, and its author must not be able to stop the user. A warning says
        that its rules do not hold.
        """
        if self._trusted:
            return self.file(path)
        try:
            return self.file(path, strict=False)
        except SettingsError as error:
            self.warnings.append(f"{error} {UNREAD}")
            return None

    def _say(self, where: str, never: bool) -> None:
        if self._trusted:
            self.warnings.append(f"{where} is ignored: a file of the project never sets it.")
        else:
            self.ignored.append(f"{where} {NEVER}" if never else where)


UNREAD: Final = (
    "Nothing in this file holds, and so not what it denies or restricts either: mend or remove it."
)
NEVER: Final = "(a file of the project never sets it)"
"""The remark about such a setting: trusting the folder does not change it."""
NEVER_FROM_THE_PROJECT: Final = frozenset({"memoryDirectory", "env", "mcpServers"})
"""They could point writes at a folder of keys, change what every command does, and start programs."""


SAVING: Final = frozenset(
    [
        "tool_results",
        "aggregate_budget",
        "payout",
        "compact",
        "reactive",
        "micro_cost",
        "micro_time",
        "micro_cache_edit",
        "micro_api",
    ]
)
"""Flags that keep a conversation small: an untrusted folder cannot switch them off."""


def _restricts(key: KeyPath, value: Any, limits: Settings) -> bool:
    """True if this only restricts the settings without it.

    A lower window or a smaller first reply is not on the list: both make for more requests. Nor are the
    flags of what saves: without it requests get larger, until none can be sent any more.
    """
    match key:
        case ("permissions", "deny" | "ask"):
            return True
        case ("permissions", "mode"):
            order = STRICTEST_FIRST
            return order.index(value) < order.index(limits.permissions.mode)
        case ("maxSteps",):
            return bool(value < limits.max_steps)
        case ("sandbox",):
            return bool(value == "all")
        case ("dailyBackgroundLimit",):
            now = limits.daily_background_limit
            return value is not None and (now is None or value < now)
        case ("memoryEnabled",) | ("telemetry", "enabled"):
            return value is False
        case ("flags", name):
            return value is False and name not in SAVING
        case _:
            return False


# --- putting them together ------------------------------------------------------------------------------


def _leaves(values: Json) -> Iterator[tuple[KeyPath, Any]]:
    """Each setting by itself, also those in groups; not what is no setting."""
    known = {row[0] for row in describe_settings()}
    groups = {key.partition(".")[0] for key in known if "." in key}
    for key, value in values.items():
        inside = value if key in groups else {}
        yield from (((key, name), item) for name, item in inside.items() if f"{key}.{name}" in known)
        if key in known:
            yield (key,), value


def _put(values: Json, key: KeyPath, value: Any) -> None:
    if len(key) == 1:
        values[str(key[0])] = value
    else:
        values.setdefault(str(key[0]), {})[str(key[1])] = value


def _holding(settings: Settings, key: KeyPath) -> Any:
    """The value of this key, as a file would have it."""
    value: Any = msgspec.to_builtins(settings, enc_hook=str)
    for part in key:
        value = value.get(part)
    return value


def merge_documents(low_to_high: Iterable[SettingsDocument | None]) -> Json:
    out: Json = {}
    for document in low_to_high:
        if document is not None:
            out = merge_values(out, document.values)
    return out


def _renamed(document: SettingsDocument) -> SettingsDocument:
    """`permissions.defaultMode`, as other tools' files have it, is `permissions.mode`."""
    permissions = document.values.get("permissions")
    old, new = "defaultMode", "mode"
    if not isinstance(permissions, dict) or old not in permissions or new in permissions:
        return document
    renamed = {new if key == old else key: value for key, value in permissions.items()}
    lines = {("permissions", new): document.lines.get(("permissions", old), 1), **document.lines}
    values = {**document.values, "permissions": renamed}
    return msgspec.structs.replace(document, values=values, lines=lines)


def to_plain_json(overrides: Mapping[str, Any]) -> Json:
    """As a file would have it: tuples are lists, paths are text."""
    values: Json = msgspec.json.decode(msgspec.json.encode(dict(overrides), enc_hook=str))
    return values


def _beside(document: SettingsDocument, folder: Path) -> SettingsDocument:
    """With the paths that are relative to the file itself made absolute."""
    values, micro = dict(document.values), document.values.get("micro")
    if (prices := values.get("prices")) is not None:
        values["prices"] = str(folder / Path(prices).expanduser())
    if isinstance(micro, dict) and isinstance(named := micro.get("needModel"), str):
        values["micro"] = {**micro, "needModel": str(folder / Path(named).expanduser())}
    return msgspec.structs.replace(document, values=values)


def resolve_paths(settings: Settings, root: Path) -> Settings:
    folders = settings.permissions.additional_directories
    absolute = tuple(str(root / Path(folder).expanduser()) for folder in folders)
    permissions = msgspec.structs.replace(settings.permissions, additional_directories=absolute)
    return msgspec.structs.replace(settings, permissions=permissions)


def _same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False
