"""Which names may be shared: those that are one file, and the same one, on every system."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable
from typing import Final

from sevenfold.memory.folder.naming import COPY, ENDING, INDEX_NAME, is_copy, key, wrong_with_file
from sevenfold.memory.guard.instructions import find_instructions
from sevenfold.memory.parts import TEAM

LONGEST: Final = 80
"""Characters of one part of a name."""
WORDS: Final = 8
"""Words of one."""
_STEM: Final = 100
"""Bytes of a name that its conflict copy keeps."""


def wrong_name(file: str) -> str:
    """Why this cannot be a file of the team; empty when it can. `file` is relative to its folder."""
    if why := wrong_with_file(f"{TEAM}{file}", file == INDEX_NAME):
        return why
    if unicodedata.normalize("NFC", file) != file:
        return "its name is not written with composed characters (NFC)"
    return ""


def suspicious_name(file: str) -> str:
    """Why a name that somebody else chose is not shown to the agent; empty when it may be.

    The index shows names, and a sentence can be one.
    """
    for part in COPY.sub("", file).removesuffix(ENDING).split("/"):
        if len(part) > LONGEST:
            return f"its name has more than {LONGEST} characters"
        if len(re.findall(r"[^\W_]+", part)) > WORDS:
            return f"its name has more than {WORDS} words"
    spoken = re.sub(r"[\W_]+", " ", file.removesuffix(ENDING))
    if find_instructions(file, "team") or find_instructions(spoken, "team"):
        return "its name tries to give the agent orders"
    return ""


class Names:
    """Names in use. Two of them clash when some system takes them for one, or one is in the other's way."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}

    def add(self, file: str) -> None:
        self._files[key(file)] = file
        for folder in _above(file):
            self._folders.setdefault(key(folder), folder)

    def clash(self, file: str) -> str:
        """The name in use with which this one clashes; empty when there is none."""
        same = self._files.get(key(file), file)
        if same != file:
            return same
        if key(file) in self._folders:
            return self._folders[key(file)]
        for folder in _above(file):
            if key(folder) in self._files:
                return self._files[key(folder)]
            if self._folders.get(key(folder), folder) != folder:
                return self._folders[key(folder)]
        return ""


def _above(file: str) -> list[str]:
    parts = file.split("/")[:-1]
    return ["/".join(parts[: at + 1]) for at in range(len(parts))]


def copy_name(file: str, data: bytes, usable: Callable[[str], bool]) -> str:
    """Where the version that lost is kept: named after its text, so that all get the same and one copy.

    `usable` says whether a name is free, or holds these very bytes.
    """
    stem = COPY.sub("", file) if is_copy(file) else file.removesuffix(ENDING)
    folder, slash, last = stem.rpartition("/")
    last = last.encode("utf-8")[:_STEM].decode("utf-8", "ignore").rstrip(" .")
    digest = hashlib.sha256(data).hexdigest()
    names = [f"{folder}{slash}{last}.conflict-{digest[:n]}{ENDING}" for n in (8, 16, 32, 64)]
    return next((name for name in names if usable(name) and not wrong_name(name)), names[-1])
