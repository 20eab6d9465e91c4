"""Which paths are acceptable as a place to write, and whether one lies inside another.

Everything here fails closed: what is not clearly inside is outside.
"""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path
from typing import Final

from sevenfold.errors import Refused, SettingsError

SHORTEST: Final = 3
_DRIVE_ROOT: Final = re.compile(r"[A-Za-z]:[\\/]*")


def checked(text: str, what: str, user_home: Path) -> Path:
    """A folder that somebody configured, as an absolute path; `what` is the setting's name.

    No file is looked at. `~/x` is expanded; the home folder itself and what is above it are refused,
    and so are relative paths, roots of drives, network shares and NULs.
    """
    given = unicodedata.normalize("NFC", text)
    if why := _unacceptable(given):
        raise _refusal(what, text, why)
    expanded = given
    if given == "~" or given.startswith(("~/", "~\\")):
        expanded = os.path.normpath(user_home / given[2:])
    normal = os.path.normpath(expanded)
    if not Path(normal).is_absolute():
        raise _refusal(what, text, "it is not an absolute path")
    if user_home.is_relative_to(normal):
        raise _refusal(what, text, "it is your home folder or a folder above it")
    if len(normal) < SHORTEST or _DRIVE_ROOT.fullmatch(normal):
        raise _refusal(what, text, "it is too close to the root of the file system")
    return Path(normal)


def _unacceptable(given: str) -> str:
    if "\0" in given:
        return "it contains a NUL character"
    if given.startswith(("//", "\\\\")):
        return "network paths are not allowed"
    return ""


def _refusal(what: str, text: str, why: str) -> SettingsError:
    return SettingsError(
        f"{what} cannot be {text!r}: {why}; give the absolute path of a folder of its own"
    )


def inside(path: Path, root: Path) -> Path:
    """The real path of `path`, which must lie inside `root`; `Refused` when that is not certain.

    Compared by component after every link is followed; a link that leads nowhere or in a circle is
    refused, because what it will lead to is not known yet.
    """
    if "\0" in str(path) or ".." in path.parts:
        raise Refused(f"{str(path)!r} is refused: it contains '..' or a NUL; give a plain path")
    full = path if path.is_absolute() else root / path
    for link in (full, *full.parents):
        if link.is_symlink() and not link.exists():
            raise Refused(f"{link} is refused: it is a link that leads nowhere; remove it")
    real = Path(os.path.realpath(full))
    if not real.is_relative_to(os.path.realpath(root)):
        raise Refused(f"{path} is refused: it is not inside {root}")
    return real
