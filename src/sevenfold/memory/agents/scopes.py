"""Where the memory of a kind of agent lies: with the user, with the project, or with this machine alone.

    user       <home>/agent-memory/<type>/                      of all projects
    project    <tree>/.sevenfold/agent-memory/<type>/           committed: the team has it too
    local      <tree>/.sevenfold/agent-memory-local/<type>/     of this project, on this machine

Where only the `.claude/` form of a folder is there, that one is read and written: never both. A name that
would leave the folder is refused, and so is a folder that is reached through a symbolic link.
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from sevenfold.errors import Refused
from sevenfold.memory.folder.naming import shown, wrong_with_file
from sevenfold.storage.files import make_private_dir, write_new
from sevenfold.storage.places import slug_of

AgentScope: TypeAlias = Literal["user", "project", "local"]

OWN: Final = ".sevenfold"
OTHER: Final = ".claude"
MEMORY: Final = "agent-memory"
LOCAL: Final = "agent-memory-local"
SNAPSHOTS: Final = "agent-memory-snapshots"
STATE: Final = "memory-state"
"""The folder of what belongs to a memory and is not memory: history, quarantine."""
_NOT_COMMITTED: Final = {MEMORY: b".memory.lock\n.memory-writing-*\n", LOCAL: b"*\n"}
"""What git is told to leave alone in the folders that lie in a project."""


class AgentPlace(msgspec.Struct, frozen=True):
    """The memory folder of one kind of agent in one scope. Nothing is made before `prepare`."""

    scope: AgentScope
    folder: Path
    state: Path
    """Where its history and its quarantine are kept: never in the project."""
    note: str = ""
    """What the user should be told once."""


def folder_name(kind: str) -> str:
    """The name of a folder for a kind of agent; `Refused` with the reason when there can be none."""
    name = unicodedata.normalize("NFC", kind).replace(":", "-")
    why = "it holds a slash" if "/" in name else wrong_with_file(f"{name}/x.md")
    if why:
        raise Refused(
            f"an agent called {shown(kind)} can have no memory: {why}; give it a plain name"
        )
    return name


def agent_place(
    kind: str, scope: AgentScope, *, home: Path, tree: Path, state_home: Path
) -> AgentPlace:
    """Where this memory is. `state_home` is our own home, also where `home` is shared with others.

    Only for a trusted workspace, unless the scope is `user`: what lies in a project is its owner's word.
    """
    name, note = folder_name(kind), ""
    if scope == "user":
        folder = unlinked(home, MEMORY, name)
    else:
        folder, note = in_project(tree, MEMORY if scope == "project" else LOCAL, name)
    return AgentPlace(scope, folder, state_of(folder, state_home), note)


def agent_places(home: Path, tree: Path | None, state_home: Path) -> Iterator[AgentPlace]:
    """The agent memories that there are, also of kinds that are no longer defined.

    Without `tree` those of the user alone: a project that is not trusted is not looked into.
    """
    ways: list[tuple[AgentScope, Path, tuple[str, ...]]] = [("user", home, (MEMORY,))]
    if tree is not None:
        whose = (OWN, OTHER)
        ways += [("project", tree, (at, MEMORY)) for at in whose]
        ways += [("local", tree, (at, LOCAL)) for at in whose]
    for scope, root, parts in ways:
        try:
            folders = sorted(unlinked(root, *parts).iterdir())
        except (OSError, Refused):
            continue
        for folder in folders:
            if folder.is_dir() and not folder.is_symlink() and not folder.name.startswith("."):
                yield AgentPlace(scope, folder, state_of(folder, state_home))


def agent_of(folder: Path) -> str:
    """The kind of agent whose memory is in this folder, as folders spell it; empty for any other."""
    return folder.name if folder.parent.name in (MEMORY, LOCAL) else ""


def in_project(tree: Path, what: str, name: str) -> tuple[Path, str]:
    """The folder in a project: ours, or the other program's where only that one is there."""
    ours, theirs = (unlinked(tree, at, what, name) for at in (OWN, OTHER))
    if not theirs.is_dir():
        return ours, ""
    if not ours.is_dir():
        return theirs, ""
    return ours, f"{theirs} is not used: {ours} is there too; merge them and remove one"


def unlinked(root: Path, *parts: str) -> Path:
    """The real path of a folder below `root`; `Refused` when any part below is a symbolic link."""
    at = Path(os.path.realpath(root))
    for part in parts:
        at /= part
        if at.is_symlink():
            raise Refused(f"{at} is refused: it is a symbolic link; put the folder itself there")
    return at


def prepare(place: AgentPlace) -> None:
    """Make the folder. In a project, git is told which files in it are nobody else's concern."""
    make_private_dir(place.folder, nofollow=True)
    above = place.folder.parent
    if above.parent.name == OWN and above.name in _NOT_COMMITTED and place.scope != "user":
        write_new(above / ".gitignore", _NOT_COMMITTED[above.name], 0o644)


def state_of(folder: Path, home: Path) -> Path:
    """Where the history of an agent's memory is kept, below our own home.

    The slug alone would be the same for `a-b` and `a_b`, and their histories one.
    """
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    return home / STATE / f"{slug_of(folder)}-{digest}"
