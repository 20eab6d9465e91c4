"""Entries of ours in the settings files of other programs: put in, taken out, all else kept as it is.

Each function goes from bytes to bytes. A file that is not valid is a `Mistake`, and nothing is written.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from sevenfold.core.errors import Mistake

Change = Callable[[bytes], bytes]
OPENING: Final = (
    "# >>> sevenfold: written by 'sevenfold setup', removed by 'sevenfold setup codex --remove'"
)
CLOSING: Final = "# <<< sevenfold"
_OURS: Final = (
    r"sevenfold\S* hook \w+ --client \w+"  # The command of a hook of ours, wherever the program is
)
_BLOCK: Final = rf"(?ms)\n?^{re.escape(OPENING)}$.*?^{re.escape(CLOSING)}$\n?"


class SettingsFile(msgspec.Struct, frozen=True):
    """A file of a client, and our part of it. A file that is not there is an empty text for both functions.

    `take_out` gives an empty text if nothing but our part was in the file.
    """

    path: Path
    put_in: Change
    take_out: Change
    is_ours: bool = False  # All of it: what was there before comes back whole


def make_own_file(path: Path, text: str) -> SettingsFile:
    """A file that is ours alone."""
    return SettingsFile(path, lambda _: text.encode(), lambda _: b"", is_ours=True)


def make_json_file(
    path: Path, put: Callable[[dict[str, Any]], None], take: Callable[[dict[str, Any]], None]
) -> SettingsFile:
    """A JSON object in which `put` and `take` change some entries."""

    def put_in(data: bytes) -> bytes:
        value = _read_object(path, data)
        before = json.dumps(value)
        take(value)
        put(value)
        return data if data and json.dumps(value) == before else _write_object(path, value, data)

    def take_out(data: bytes) -> bytes:
        value = _read_object(path, data)
        before = json.dumps(value)
        take(value)
        if json.dumps(value) == before:
            return data
        return _write_object(path, value, data) if value else b""

    return SettingsFile(path, put_in, take_out)


def make_toml_file(path: Path, block: str) -> SettingsFile:
    """A TOML file with a block of lines of ours at its end, between two comments."""

    def take_out(data: bytes) -> bytes:
        text = _read_toml(path, data)
        found = re.search(_BLOCK, text)
        if found is None:
            return data
        above, below = text[: found.start()], text[found.end() :]
        return (f"{above}\n{below}" if above and below else above or below).encode()

    def put_in(data: bytes) -> bytes:
        text = take_out(data).decode()
        end = "\n" if text else ""
        whole = f"{text}{end}{OPENING}\n{block}{CLOSING}\n"
        try:
            tomllib.loads(whole)
        except tomllib.TOMLDecodeError as error:
            raise Mistake(
                f"{path} has settings of its own for this ({error}), so nothing was changed"
            ) from error
        return whole.encode()

    return SettingsFile(path, put_in, take_out)


def _read_toml(path: Path, data: bytes) -> str:
    try:
        text = data.decode("utf-8")
        tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Mistake(
            f"{path} is not valid TOML ({error}), so nothing was changed; mend it first"
        ) from error
    return text


def _read_object(path: Path, data: bytes) -> dict[str, Any]:
    if not data.strip():
        return {}
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_make_object)
    except (ValueError, RecursionError) as error:
        raise Mistake(
            f"{path} is not valid JSON ({error}), so nothing was changed; mend it first"
        ) from error
    if not isinstance(value, dict):
        raise Mistake(f"{path} is not a JSON object, so nothing was changed; mend it first")
    return value


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs. Raises `ValueError` for a key that is there twice: one would be lost."""
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise ValueError(f"the key {key!r} is there twice")
        made[key] = value
    return made


def _write_object(path: Path, value: Mapping[str, Any], like: bytes) -> bytes:
    """JSON with the indentation and the last line break of the file as it was. Raises `Mistake`."""
    found = re.search(rb'\n([ \t]+)"', like)
    indent, end = found[1].decode() if found else 2, "\n" if not like or like.endswith(b"\n") else ""
    try:
        text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
        return f"{text}{end}".encode()
    except ValueError as error:  # infinity, or half a character
        raise Mistake(
            f"{path} has a value that cannot be written back ({error}), so nothing was changed; "
            "mend it first"
        ) from error


def get_object(path: Path, value: dict[str, Any], key: str) -> dict[str, Any]:
    """The object under a key, made if it is not there."""
    inner = value.setdefault(key, {})
    if not isinstance(inner, dict):
        raise Mistake(f"{path}: {key!r} is not an object, so nothing was changed; mend it first")
    return inner


def make_hooks_file(path: Path, hooks: Mapping[str, Mapping[str, Any]]) -> SettingsFile:
    """A file of hooks in Claude Code's shape, with one group of ours for each event."""

    def put(value: dict[str, Any]) -> None:
        events = get_object(path, value, "hooks")
        for event, group in hooks.items():
            groups = events.setdefault(event, [])
            if not isinstance(groups, list):
                raise Mistake(
                    f"{path}: the hooks of {event} are no list, so nothing was changed; mend it first"
                )
            groups.append(dict(group))

    def take(value: dict[str, Any]) -> None:
        events = value.get("hooks")
        if not isinstance(events, dict):
            return
        for event, groups in list(events.items()):
            if isinstance(groups, list):
                events[event] = [left for group in groups if (left := _take_from_group(group)) is not None]
                if groups and not events[event]:
                    del events[event]
        if not events:
            del value["hooks"]

    return make_json_file(path, put, take)


def _take_from_group(group: Any) -> Any:
    """The group without the hooks of ours; None if no other is in it."""
    hooks = group.get("hooks") if isinstance(group, dict) else None
    if not isinstance(hooks, list):
        return group
    kept = [hook for hook in hooks if not _is_our_hook(hook)]
    if len(kept) == len(hooks):
        return group
    return {**group, "hooks": kept} if kept else None


def _is_our_hook(hook: Any) -> bool:
    command = hook.get("command") if isinstance(hook, dict) else None
    return isinstance(command, str) and re.search(_OURS, command) is not None
