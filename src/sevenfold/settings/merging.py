"""How settings files come together, and what a file of a folder may say before the folder is trusted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from sevenfold.errors import SettingsError
from sevenfold.messages import Json
from sevenfold.settings.checks import check, describe, dotted, sound
from sevenfold.settings.files import Document, KeyPath, is_tracked, leads_outside, read
from sevenfold.settings.schema import STRICTEST_FIRST, Settings

FOLDER: Final = ".sevenfold"


class Loading:
    """Reads files one by one and remembers what there is to say about them."""

    def __init__(self, root: Path, trusted: bool) -> None:
        self._root, self._trusted = root, trusted
        self.read: list[Path] = []
        self.warnings: list[str] = []
        self.ignored: list[str] = []

    def file(self, path: Path, *, strict: bool = True) -> Document | None:
        document = read(path)
        if document is None:
            return None
        self.read.append(path)
        return _beside(self.taken(document, strict=strict), path.parent)

    def taken(self, document: Document, *, strict: bool = True) -> Document:
        """What it says; unless it is `strict`, what is wrong in it is left out with a warning."""
        document = _renamed(document)
        if strict:
            self.warnings += check(document)
            return document
        document, warnings = sound(document)
        self.warnings += warnings
        return document

    def of_folder(self, name: str, limits: Settings) -> Document | None:
        """A file of the project folder, without what it may not say."""
        path = self._root / FOLDER / name
        if not self._trusted and leads_outside(path, self._root):
            self.ignored.append(f"{path} (a link that leads out of the project)")
            return None
        if any(_same(path, known) for known in self.read):
            return None  # started in the home folder: this is the user's own file
        document = self._read(path)
        if document is None:
            return None
        committed = name == "settings.json" or is_tracked(path)
        kept: Json = {}
        for key, value in _leaves(document.values):
            never = committed and key[0] in NEVER_FROM_THE_PROJECT
            if not never and (self._trusted or _restricts(key, value, limits)):
                _put(kept, key, value)
            elif value not in ([], {}, _holding(limits, key)):  # else it would change nothing
                self._say(f"{document.where(key)}: {dotted(key)}", never)
        return Document(document.path, kept)

    def _read(self, path: Path) -> Document | None:
        """In a folder that is not trusted, a file that cannot be read is as if it were not there.

        It could only have restricted, and whoever wrote it must not be able to stop the user. But then what
        it denies is not denied, and that is said.
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
"""What is said of such a setting: trusting the folder does not change that."""
NEVER_FROM_THE_PROJECT: Final = frozenset({"memoryDirectory", "env"})
"""One could point writes at a folder of keys, the other could change what every command does."""


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
"""Flags of what keeps a conversation small: a folder that nobody trusts does not switch them off."""


def _restricts(key: KeyPath, value: Any, limits: Settings) -> bool:
    """Whether this only takes something away from what holds without it.

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
    known = {row[0] for row in describe()}
    groups = {key.partition(".")[0] for key in known if "." in key}
    for key, value in values.items():
        inside = value if key in groups else {}
        yield from (
            ((key, name), item) for name, item in inside.items() if f"{key}.{name}" in known
        )
        if key in known:
            yield (key,), value


def _put(values: Json, key: KeyPath, value: Any) -> None:
    if len(key) == 1:
        values[str(key[0])] = value
    else:
        values.setdefault(str(key[0]), {})[str(key[1])] = value


def _holding(settings: Settings, key: KeyPath) -> Any:
    """What holds for this key, in the form a file has it."""
    value: Any = msgspec.to_builtins(settings, enc_hook=str)
    for part in key:
        value = value.get(part)
    return value


def merged(low_to_high: Iterable[Document | None]) -> Json:
    out: Json = {}
    for document in low_to_high:
        if document is not None:
            out = _over(out, document.values)
    return out


def _over(low: Any, high: Any) -> Any:
    """Objects key by key, lists one after the other, anything else as the higher one says."""
    if isinstance(low, dict) and isinstance(high, dict):
        both = {key: _over(low[key], high[key]) for key in low.keys() & high.keys()}
        return {**low, **high, **both}
    if isinstance(low, list) and isinstance(high, list):
        known = {_canonical(item) for item in high}
        return [*high, *(item for item in low if _canonical(item) not in known)]
    return high


def _renamed(document: Document) -> Document:
    """`permissions.defaultMode`, as other tools' files have it, is `permissions.mode`."""
    permissions = document.values.get("permissions")
    old, new = "defaultMode", "mode"
    if not isinstance(permissions, dict) or old not in permissions or new in permissions:
        return document
    renamed = {new if key == old else key: value for key, value in permissions.items()}
    lines = {("permissions", new): document.lines.get(("permissions", old), 1), **document.lines}
    values = {**document.values, "permissions": renamed}
    return msgspec.structs.replace(document, values=values, lines=lines)


def plain(overrides: Mapping[str, Any]) -> Json:
    """As a file would have it: tuples are lists, paths are text."""
    values: Json = msgspec.json.decode(msgspec.json.encode(dict(overrides), enc_hook=str))
    return values


def _beside(document: Document, folder: Path) -> Document:
    """With the paths that are relative to the file itself made absolute."""
    values, micro = dict(document.values), document.values.get("micro")
    if (prices := values.get("prices")) is not None:
        values["prices"] = str(folder / Path(prices).expanduser())
    if isinstance(micro, dict) and isinstance(named := micro.get("needModel"), str):
        values["micro"] = {**micro, "needModel": str(folder / Path(named).expanduser())}
    return msgspec.structs.replace(document, values=values)


def with_paths(settings: Settings, root: Path) -> Settings:
    folders = settings.permissions.additional_directories
    absolute = tuple(str(root / Path(folder).expanduser()) for folder in folders)
    permissions = msgspec.structs.replace(settings.permissions, additional_directories=absolute)
    return msgspec.structs.replace(settings, permissions=permissions)


def _same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False


_canonical: Final = msgspec.json.Encoder(order="deterministic").encode
"""Equal values have equal bytes: comparing every pair would take for ever over long lists."""
