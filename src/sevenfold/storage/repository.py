"""Which repository a folder belongs to, found by reading files only: git itself is never run.

A repository's own configuration can make git run programs, so a folder nobody trusts yet must be
looked at without it. And a `.git` *file* is a claim that anyone can write into an archive: it is
believed only when the repository that it names says the same.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.errors import StorageFailure
from sevenfold.storage.files import read_if_there

_LIMIT: Final = 1 << 16
_WORKTREE: Final = re.compile(r"^\s*worktree\s*=\s*\"?([^\"\n]+?)\"?\s*$", re.MULTILINE)


class Repository(msgspec.Struct, frozen=True):
    root: Path
    """The main working folder; worktrees share it. The repository itself where it is bare."""
    tree: Path
    """The working folder we are in."""
    note: str = ""
    """What was not believed, and why."""


def locate(start: Path) -> Repository | None:
    """The repository around a folder, or None. A `.git` that cannot be believed still ends the search:
    what lies in it must not pass for a part of the repository around it."""
    for folder in (start, *start.parents):
        git = folder / ".git"
        try:
            if git.is_dir():
                if (git / "HEAD").exists():
                    return Repository(folder, folder)
            elif git.exists() or git.is_symlink():
                return _by_file(folder, git)
        except OSError:  # a folder that we may not look into
            continue
    return None


def _by_file(folder: Path, git: Path) -> Repository:
    points_to = _pointed(git, folder, "gitdir:")
    if points_to is None:
        return Repository(folder, folder, f"{git} is not a git file; it was ignored")
    if not points_to.is_dir():
        return Repository(
            folder, folder, f"{git} names {points_to}, which is not there; it was ignored"
        )
    shared = _pointed(points_to / "commondir", points_to)
    if shared is None:  # a submodule, or a repository whose folder lies elsewhere
        if points_to.name == ".git" and not _same(points_to.parent, folder):
            return Repository(folder, folder, _unbelieved(git, points_to.parent))
        return Repository(folder, folder)
    main = _main_folder(shared)
    if not _points_back(points_to, shared, folder):
        return Repository(folder, folder, _unbelieved(git, main))
    return Repository(main, folder)


def _unbelieved(git: Path, other: Path) -> str:
    return f"{git} claims to belong to {other}, which does not know of it; it was ignored"


def _points_back(worktree: Path, shared: Path, folder: Path) -> bool:
    """Whether the main repository itself lists this folder among its worktrees."""
    if not _same(worktree.parent, shared / "worktrees"):
        return False
    back = _pointed(worktree / "gitdir", worktree, real=False)
    return back is not None and back.name == ".git" and _same(back.parent, folder)


def _main_folder(shared: Path) -> Path:
    if shared.name == ".git":
        return shared.parent
    config = _text(shared / "config")
    if found := _WORKTREE.search(
        config
    ):  # a submodule: its folder and its repository name each other
        folder = Path(os.path.realpath(shared / found[1]))
        named = _pointed(folder / ".git", folder, "gitdir:")
        if named is not None and _same(named, shared):
            return folder
    return shared


def _pointed(file: Path, beside: Path, prefix: str = "", *, real: bool = True) -> Path | None:
    """The path that a small file of git's holds, relative ones counted from `beside`."""
    text = _text(file)
    if not text.startswith(prefix):
        return None
    text = text.removeprefix(prefix).strip()
    if not text or "\0" in text or "\n" in text:
        return None
    path = beside / text
    return Path(os.path.realpath(path) if real else os.path.normpath(path))


def _text(file: Path) -> str:
    try:
        data = read_if_there(file, _LIMIT)
    except StorageFailure:
        return ""
    return os.fsdecode(data or b"")


def _same(a: Path, b: Path) -> bool:
    try:
        return a.samefile(b)
    except OSError:
        return False
