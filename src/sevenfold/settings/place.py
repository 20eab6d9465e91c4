"""The memory folder of a project, and the folders that the user trusts (a list below the home)."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.core.errors import Refused, StorageFailure
from sevenfold.settings import explain_memory_off, find_configured_path
from sevenfold.settings.environment import Environment
from sevenfold.settings.schema import Settings
from sevenfold.settings.trust import compare_content, format_line, list_trusted_content
from sevenfold.storage.files import (
    check_folder_setting,
    make_private_dir,
    read_if_there,
    write_atomic,
    write_new,
)
from sevenfold.storage.locks import hold_file_lock
from sevenfold.storage.places import ROOT_FILE, ProjectPaths, claim_places, make_path_slug

STATE: Final = "memory-state"
"""The folder of what belongs to a memory and is not memory: history, quarantine, search index."""


WORDS: Final = "words"


class MemoryPlace(msgspec.Struct, frozen=True):
    folder: Path
    state: Path
    words: Path
    """The folder of the table for recall by meaning, one for all projects."""
    off: str | None = None
    """The reason memory is off; None if it is on."""
    note: str = ""
    """A warning for the user."""
    owner: ProjectPaths | None = None
    """The project whose name the folder has; None for a configured folder."""


def find_memory_place(places: ProjectPaths, environment: Environment, settings: Settings) -> MemoryPlace:
    """Find the memory of a project. Nothing is made; no project file decides the place."""
    words = environment.home / WORDS
    off, told = (explain_memory_off(environment, settings), find_configured_path(environment, settings))
    if told is not None:
        folder = check_folder_setting(told, _who(environment, settings), _person(environment))
        return MemoryPlace(folder, _state_elsewhere(folder, environment.home), words, off)
    if environment.shared is None:
        return MemoryPlace(places.memory, places.project / STATE, words, off, owner=places)
    folder = _find_native_folder(environment.shared, environment, places)
    state = _state_elsewhere(folder, environment.home)
    note = _of_another(state, places.root)
    return MemoryPlace(folder, state, words, off, note, owner=places)


def _find_native_folder(shared: Path, environment: Environment, places: ProjectPaths) -> Path:
    """The memory folder of Claude Code: by the user's own setting there, else by the project's name."""
    try:
        data = read_if_there(shared / "settings.json", _LARGEST) or b"{}"
        told = msgspec.json.decode(data, type=_NativeSettings).directory
    except (StorageFailure, msgspec.DecodeError, UnicodeDecodeError):
        told = ""  # it is for Claude Code to complain about its file
    if told:
        return check_folder_setting(told, "autoMemoryDirectory", _person(environment))
    return shared / "projects" / make_path_slug(places.root) / "memory"


class _NativeSettings(msgspec.Struct):
    directory: str = msgspec.field(name="autoMemoryDirectory", default="")


def _who(environment: Environment, settings: Settings) -> str:
    if environment.memory_path:
        return "SEVENFOLD_MEMORY_PATH"
    if environment.remote and environment.remote_memory_dir:
        return "SEVENFOLD_REMOTE_MEMORY_DIR"
    return "memoryDirectory"


def _person(environment: Environment) -> Path:
    home = environment.variables.get("HOME")
    return Path(home) if home else Path.home()


def _state_elsewhere(folder: Path, home: Path) -> Path:
    """Two projects with one memory have one history of it, and others' folders hold nothing of ours."""
    return home / STATE / make_path_slug(Path(os.path.realpath(folder)))


def _of_another(state: Path, root: Path) -> str:
    """The slug is another program's: two roots may share it, and that can only be said."""
    known = _recorded(state / ROOT_FILE)
    if not known or known == str(root):
        return ""
    return f"the memory of {root} is shared with {known}: both have the same name in the shared folder"


def _recorded(file: Path) -> str:
    try:
        return msgspec.json.decode(read_if_there(file, 1 << 16) or b"{}", type=_TrustRoot).root
    except (StorageFailure, msgspec.DecodeError, UnicodeDecodeError):
        return ""


class _TrustRoot(msgspec.Struct):
    root: str = ""


def claim_memory_place(place: MemoryPlace) -> MemoryPlace:
    """Record the project that owns this memory, before anything is written there; returns the place to use.

    It is another one if a project whose folder has the same name was faster. In the folder of another
    program the name is that program's: the first project is recorded, and the second only warned.
    """
    if place.owner is None:
        return place
    if place.folder != place.owner.memory:
        make_private_dir(place.state)
        write_new(place.state / ROOT_FILE, msgspec.json.encode(_TrustRoot(str(place.owner.root))) + b"\n")
        return place
    places = claim_places(place.owner)
    return msgspec.structs.replace(place, folder=places.memory, state=places.project / STATE)


NAME: Final = "trust.json"
_LARGEST: Final = 10_000_000
_MOST_SHOWN: Final = 5


class _TrustFile(msgspec.Struct, forbid_unknown_fields=True):
    trusted: list[str]
    content: dict[str, tuple[str, ...]] = {}
    """By folder: the lines of `list_trusted_content` when the user trusted it."""


class TrustedFolders:
    """The trusted folders, as the file has them at the moment of asking.

    A folder is trusted with what is below it, but for repositories there, and as it was then: when its
    files come to run or widen something else, the user has to say so again. `tree` is the folder of these
    files, if it is not `root`.
    """

    def __init__(self, home: Path, user_home: Path | None = None) -> None:
        self._file = home / NAME
        self._user_home = (user_home or _user_home()).resolve()
        self.problem: str | None = None
        """The problem of the file at the last read; nothing was trusted then."""

    def is_trusted(self, root: Path, tree: Path | None = None) -> bool:
        """True if this folder, or one above it, was trusted, and is as it was then."""
        return self.covering(root) is not None and not self.list_changes(root, tree)

    def list_changes(self, root: Path, tree: Path | None = None) -> tuple[str, ...]:
        """The lines that came (`+`) and went (`-`) since it was trusted; all of them if it never was."""
        now, content = list_trusted_content(tree or root), self._read().content
        if self.covering(root) is None:
            return compare_content((), now)
        # A work tree of a trusted repository is held against the repository until it is trusted itself.
        places = (str(path.resolve()) for path in (tree or root, root))
        before = next((content[place] for place in places if place in content), ())
        return compare_content(before, now)

    def describe_changes(self, root: Path, tree: Path | None = None) -> str:
        """A warning about a folder that was trusted and has changed; empty for any other."""
        if self.covering(root) is None or not (lines := self.list_changes(root, tree)):
            return ""
        shown = [*map(format_line, lines[:_MOST_SHOWN]), *(["…"] if len(lines) > _MOST_SHOWN else [])]
        return (
            f"{root} is not as you trusted it, so its settings may only restrict: {'; '.join(shown)}. "
            "If that is right: 'sevenfold trust'"
        )

    def add(self, root: Path, tree: Path | None = None) -> Path:
        """Trust a folder as it is now; its real path is handed back. `Refused`: it cannot be trusted."""
        try:
            folder = root.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise Refused(f"{root} cannot be trusted: there is no such folder.") from error
        if why := self._too_much(folder):
            raise Refused(f"{folder} cannot be trusted as a whole: {why}. Trust the project itself.")
        with hold_file_lock(self._file):
            known, content = self.list(), self._read().content
            lines = {str((tree or root).resolve()): list_trusted_content(tree or root)}
            self._write(dict.fromkeys((*known, folder)), {**content, **lines})
        return folder

    def revoke(self, root: Path) -> bool:
        """Take a folder, and what was trusted below it, off the list. False: it was not on it."""
        folder = root.resolve()
        with hold_file_lock(self._file):
            known, content = self.list(), self._read().content
            left = tuple(path for path in known if not path.is_relative_to(folder))
            if left != known:
                self._write(
                    left, {at: v for at, v in content.items() if not Path(at).is_relative_to(folder)}
                )
        return left != known

    def covering(self, root: Path) -> Path | None:
        """The entry by which a folder is trusted: what has to be revoked to end it."""
        try:
            folder = root.resolve(strict=True)
        except (OSError, RuntimeError):
            return None
        return next((path for path in self.list() if _is_part(folder, path)), None)

    def list(self) -> tuple[Path, ...]:
        """Every trusted folder, in the order in which they were trusted."""
        folders = (Path(text) for text in self._read().trusted)
        return tuple(path for path in folders if path.is_absolute() and not self._too_much(path))

    def _read(self) -> _TrustFile:
        self.problem = None
        try:
            data = read_if_there(self._file, _LARGEST)
            if data is None:
                return _TrustFile([])
            if why := self._exposed():
                self.problem = why
                return _TrustFile([])
            return msgspec.json.decode(data, type=_TrustFile)
        except StorageFailure as error:
            self.problem = f"{error}; until then no folder is trusted."
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._set_aside(str(error))
        return _TrustFile([])

    def _write(self, folders: Iterable[Path], content: dict[str, tuple[str, ...]]) -> None:
        make_private_dir(self._file.parent)
        data = msgspec.json.encode(_TrustFile([str(path) for path in folders], content))
        write_atomic(self._file, msgspec.json.format(data, indent=2) + b"\n")

    def _too_much(self, folder: Path) -> str:
        if folder.parent == folder:
            return "it holds everything on this machine"
        if self._user_home.is_relative_to(folder):
            return "it holds your home folder"
        with contextlib.suppress(OSError):
            mode = folder.stat().st_mode
            if os.name == "posix" and mode & stat.S_ISVTX and mode & stat.S_IWOTH:
                return "anybody can put files into it"
        return ""

    def _exposed(self) -> str:
        """A list that others can write is not the user's word."""
        mode = stat.S_IMODE(self._file.stat().st_mode)
        if os.name != "posix" or not mode & 0o022:
            return ""
        return (
            f"{self._file} can be written by others, so no folder is trusted; "
            f"check what is in it, then run: chmod 600 {self._file}"
        )

    def _set_aside(self, why: str) -> None:
        aside = self._file.with_name(f"{NAME}.damaged")
        try:
            self._file.replace(aside)
        except OSError:
            aside = self._file
        self.problem = (
            f"{self._file} is damaged ({why}), so no folder is trusted; what it held is in {aside}. "
            "Trust your projects again with: sevenfold trust"
        )


def _is_part(folder: Path, known: Path) -> bool:
    """True if a folder is the known one or below it, and no repository of its own begins in between."""
    if not folder.is_relative_to(known):
        return False
    between = (folder, *folder.parents)[: len(folder.parts) - len(known.parts)]
    return not any(os.path.lexists(path / ".git") for path in between)


def _user_home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # a user without one: only the root of the file system is left to refuse
        return Path("/")
