"""Reads a policy from a TOML file; a mistake is named by file and line, with what was probably meant."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from sevenfold.errors import SettingsError, StorageFailure
from sevenfold.storage.files import read_bounded

LARGEST: Final = 100_000
"""Bytes of a policy file."""
Kind = TypeVar("Kind", bound=msgspec.Struct)
_LINE: Final = re.compile(r"at line (\d+)")
_TABLE: Final = re.compile(r"^\s*\[\[?\s*([^\[\]]+?)\s*\]")
_KEY: Final = re.compile(r"^\s*([A-Za-z0-9_\-.\"' ]+?)\s*=")
_AT: Final = re.compile(r" - at `\$\.?(.*)`$")


def read_policy(path: Path, kind: type[Kind]) -> Kind:
    """What the file says, as this kind of value."""
    text = _text(path)
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = _LINE.search(str(error))
        where = f"{path}:{found[1]}" if found else f"{path}"
        raise SettingsError(f"{where}: not valid TOML: {_plain(error)}.") from None
    lines = _lines(text)
    for key, why in _unknown(inspect.type_info(kind), values, ""):
        raise SettingsError(f"{_where(path, lines, key)}: {why}")
    try:
        return msgspec.convert(values, kind, dec_hook=lambda wanted, value: wanted(value))
    except msgspec.ValidationError as error:
        at = _AT.search(str(error))
        key = at[1].partition("[")[0] if at else ""
        said = _AT.sub("", str(error)).replace("`", "").lower()
        known = _permitted(inspect.type_info(kind), key) if "enum" in said else ""
        where = f"{_where(path, lines, key)}: {key or 'the file'}"
        raise SettingsError(f"{where}: {said}{known}.") from None


def suggestion(given: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(given, list(known), 1)
    return f"did you mean {near[0]!r}?" if near else ""


def _text(path: Path) -> str:
    try:
        return read_bounded(path, LARGEST).decode("utf-8-sig")
    except StorageFailure as error:
        raise SettingsError(str(error)) from error
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: this is not UTF-8 text; save it as UTF-8.") from None


def _unknown(kind: inspect.Type, value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Keys that mean nothing, each with what may have been meant."""
    struct = _struct(kind)
    if struct is None or not isinstance(value, dict):
        return
    fields = {field.encode_name: field for field in struct.fields}
    for name, inner in value.items():
        at = f"{key}.{name}" if key else name
        if name in fields:
            yield from _unknown(fields[name].type, inner, at)
        else:
            near = suggestion(name, fields) or f"there are {', '.join(fields)}."
            yield at, f"{at} is not a key of a policy; {near}"


def _permitted(kind: inspect.Type, key: str) -> str:
    """The values that a key may have, where they can be listed."""
    for name in key.split("."):
        struct = _struct(kind)
        fields = {field.encode_name: field.type for field in struct.fields} if struct else {}
        if name not in fields:
            return ""
        kind = fields[name]
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    values = [str(v) for one in kinds if isinstance(one, inspect.LiteralType) for v in one.values]
    return f"; it may be {', '.join(values)}" if values else ""


def _struct(kind: inspect.Type) -> inspect.StructType | None:
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        return next((found for t in kind.types if (found := _struct(t))), None)
    return kind if isinstance(kind, inspect.StructType) else None


def _lines(text: str) -> dict[str, int]:
    """Where each key and each table stands; good enough to point at."""
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TABLE.match(line):
            table = _dotted(header[1])
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            name = _dotted(key[1])
            found.setdefault(f"{table}.{name}" if table else name, number)
    return found


def _dotted(written: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in written.split("."))


def _where(path: Path, lines: dict[str, int], key: str) -> str:
    while key and key not in lines:
        key = key.rpartition(".")[0]
    return f"{path}:{lines[key]}" if key in lines else f"{path}"


def _plain(error: BaseException) -> str:
    said = str(error) or "nested too deeply"
    return said.rstrip(".")
