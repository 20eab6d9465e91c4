"""Which folders the user trusts: a list under the home, and nothing is trusted that is not on it.

Trusting a folder trusts what is in it, now and later: a repository cloned into a trusted folder is
trusted too. That is why the folders that hold everything (`/`, the user's home and what is above it, a
folder like `/tmp` where anybody may put things) cannot be trusted.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.errors import Refused, StorageFailure
from sevenfold.storage.files import make_private_dir, read_if_there, write_atomic
from sevenfold.storage.locking import alone

NAME: Final = "trust.json"
_LARGEST: Final = 10_000_000


class _Kept(msgspec.Struct, forbid_unknown_fields=True):
    trusted: list[str]


class Trust:
    """The trusted folders, as the file has them at the moment of asking."""

    def __init__(self, home: Path, user_home: Path | None = None) -> None:
        self._file = home / NAME
        self._user_home = (user_home or _user_home()).resolve()
        self.problem: str | None = None
        """What was wrong with the file when it was last read. Nothing was trusted then."""

    def is_trusted(self, root: Path) -> bool:
        """Whether this folder, or one that it is in, was trusted."""
        try:
            folder = root.resolve(strict=True)
        except (OSError, RuntimeError):
            return False
        return any(folder.is_relative_to(known) for known in self.list())

    def add(self, root: Path) -> Path:
        """Trust a folder; its real path is handed back. `Refused` says why a folder cannot be."""
        try:
            folder = root.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise Refused(f"{root} cannot be trusted: there is no such folder.") from error
        if why := self._too_much(folder):
            raise Refused(
                f"{folder} cannot be trusted as a whole: {why}. Trust the project itself."
            )
        with alone(self._file):
            known = self.list()
            if folder not in known:
                self._write((*known, folder))
        return folder

    def revoke(self, root: Path) -> bool:
        """Take a folder, and what was trusted below it, off the list. False: it was not on it."""
        folder = root.resolve()
        with alone(self._file):
            known = self.list()
            left = tuple(path for path in known if not path.is_relative_to(folder))
            if left != known:
                self._write(left)
        return left != known

    def covering(self, root: Path) -> Path | None:
        """The entry by which a folder is trusted: what has to be revoked to end it."""
        folder = root.resolve()
        return next((path for path in self.list() if folder.is_relative_to(path)), None)

    def list(self) -> tuple[Path, ...]:
        """Every trusted folder, in the order in which they were trusted."""
        self.problem = None
        try:
            data = read_if_there(self._file, _LARGEST)
            if data is None:
                return ()
            if why := self._exposed():
                self.problem = why
                return ()
            kept = msgspec.json.decode(data, type=_Kept).trusted
        except StorageFailure as error:
            self.problem = f"{error}; until then no folder is trusted."
            return ()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._set_aside(str(error))
            return ()
        folders = (Path(text) for text in kept)
        return tuple(path for path in folders if path.is_absolute() and not self._too_much(path))

    def _write(self, folders: tuple[Path, ...]) -> None:
        make_private_dir(self._file.parent)
        data = msgspec.json.encode(_Kept([str(path) for path in folders]))
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


def _user_home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # a user without one: only the root of the file system is left to refuse
        return Path("/")
