"""The memory folders of agents: where each kind of agent has one, in each scope."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from sevenfold.core.errors import Refused
from sevenfold.memory.folder.folder import LOCAL, MEMORY
from sevenfold.memory.folder.names import explain_bad_file, format_name
from sevenfold.storage.files import make_private_dir, write_new
from sevenfold.storage.places import make_path_slug

AgentScope: TypeAlias = Literal["user", "project", "local"]

OWN_SCOPES: Final = ".sevenfold"
OTHER: Final = ".claude"
SNAPSHOTS: Final = "agent-memory-snapshots"
STATE: Final = "memory-state"
"""The folder of what belongs to a memory and is not memory: history, quarantine."""
_NOT_COMMITTED: Final = {MEMORY: b".memory.lock\n.memory-writing-*\n", LOCAL: b"*\n"}
"""The `.gitignore` of agent memory folders in a project."""


class AgentFolder(msgspec.Struct, frozen=True):
    """The memory folder of one kind of agent in one scope. Nothing is made before
    `prepare_agent_folder`.
    """

    scope: AgentScope
    folder: Path
    state: Path  # The folder of its history and quarantine: never in the project
    note: str = ""  # A warning for the user


def make_folder_name(kind: str) -> str:
    """The name of a folder for a kind of agent; `Refused` with the reason when there can be none."""
    name = unicodedata.normalize("NFC", kind).replace(":", "-")
    why = "it holds a slash" if "/" in name else explain_bad_file(f"{name}/x.md")
    if why:
        raise Refused(
            f"an agent called {format_name(kind)} can have no memory: {why}; give it a plain name"
        )
    return name


def find_agent_folder(
    kind: str, scope: AgentScope, *, home: Path, tree: Path, state_home: Path
) -> AgentFolder:
    """The folder of an agent's memory. `state_home` is our own home, even if `home` is shared.

    Call it only in a trusted workspace, unless the scope is `user`.
    """
    name, note = make_folder_name(kind), ""
    if scope == "user":
        folder = resolve_unlinked(home, MEMORY, name)
    else:
        folder, note = find_project_folder(tree, MEMORY if scope == "project" else LOCAL, name)
    return AgentFolder(scope, folder, find_state_folder(folder, state_home), note)


def list_agent_folders(home: Path, tree: Path | None, state_home: Path) -> Iterator[AgentFolder]:
    """The agent memories that there are, also of kinds that are no longer defined.

    Without `tree` those of the user alone: a project that is not trusted is not looked into.
    """
    ways: list[tuple[AgentScope, Path, tuple[str, ...]]] = [("user", home, (MEMORY,))]
    if tree is not None:
        whose = (OWN_SCOPES, OTHER)
        ways += [("project", tree, (at, MEMORY)) for at in whose]
        ways += [("local", tree, (at, LOCAL)) for at in whose]
    for scope, root, parts in ways:
        try:
            folders = sorted(resolve_unlinked(root, *parts).iterdir())
        except (OSError, Refused):
            continue
        for folder in folders:
            if folder.is_dir() and not folder.is_symlink() and not folder.name.startswith("."):
                yield AgentFolder(scope, folder, find_state_folder(folder, state_home))


def find_project_folder(tree: Path, what: str, name: str) -> tuple[Path, str]:
    """The folder in a project: ours, or the other program's where only that one is there."""
    ours, theirs = (resolve_unlinked(tree, at, what, name) for at in (OWN_SCOPES, OTHER))
    if not theirs.is_dir():
        return ours, ""
    if not ours.is_dir():
        return theirs, ""
    return ours, f"{theirs} is not used: {ours} is there too; merge them and remove one"


def resolve_unlinked(root: Path, *parts: str) -> Path:
    """The real path of a folder below `root`; `Refused` when any part below is a symbolic link."""
    at = Path(os.path.realpath(root))
    for part in parts:
        at /= part
        if at.is_symlink():
            raise Refused(f"{at} is refused: it is a symbolic link; put the folder itself there")
    return at


def prepare_agent_folder(place: AgentFolder) -> None:
    """Make the folder. In a project a `.gitignore` leaves out our lock and temporary files."""
    make_private_dir(place.folder, nofollow=True)
    above = place.folder.parent
    if above.parent.name == OWN_SCOPES and above.name in _NOT_COMMITTED and place.scope != "user":
        write_new(above / ".gitignore", _NOT_COMMITTED[above.name], 0o644)


def find_state_folder(folder: Path, home: Path) -> Path:
    """The folder for the history of an agent's memory, below our own home.

    The slug alone would be the same for `a-b` and `a_b`, and their histories one.
    """
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    return home / STATE / f"{make_path_slug(folder)}-{digest}"
