"""What a tool call would touch: the places it names, the commands it runs, and what is unclear."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal, TypeAlias

import msgspec

from sevenfold.messages import ToolUse
from sevenfold.protocols import ToolFailed
from sevenfold.tools.command_rules import parts_of
from sevenfold.tools.path_rules import Place
from sevenfold.tools.reach import moves_to, reach
from sevenfold.tools.readonly_commands import READ_ONLY_COMMANDS
from sevenfold.tools.rules import EDITORS, READERS
from sevenfold.tools.shell import Verdict, classify, classify_within
from sevenfold.tools.workspace import Workspace

Kind: TypeAlias = Literal["read", "edit", "run", "other"]
_classify: Final = lru_cache(maxsize=256)(classify)
_WITHOUT_GIT: Final = READ_ONLY_COMMANDS - {"git"}


@lru_cache(maxsize=256)
def _classify_without_git(part: str) -> Verdict:
    return classify_within(part, _WITHOUT_GIT)


class Call(msgspec.Struct, frozen=True):
    """One use of a tool, taken apart for the rules."""

    use: ToolUse
    kind: Kind
    places: tuple[Place, ...] = ()
    """The file of a file tool, or the words of a command that could be paths."""
    command: str = ""
    parts: tuple[str, ...] | None = ()
    read_only: bool = False
    why: str = ""
    """Why a command is not read-only."""
    unclear: str = ""
    """Why a command may reach more than `places`."""
    redirected: bool = False


def take_apart(use: ToolUse, workspace: Workspace) -> Call:
    """Raises `ToolFailed` when the call names a path that cannot be one."""
    if use.name == "Bash":
        return _command(use, workspace)
    if use.name in EDITORS or use.name == "Read":
        place = _place(workspace, use.input.get("file_path"))
        return Call(use, "edit" if use.name in EDITORS else "read", (place,))
    if use.name in READERS:
        return Call(use, "read", (_place(workspace, use.input.get("path", ".")),))
    return Call(use, "other")


def reads_only(part: str) -> bool:
    return _classify(part).read_only


def runs_git(part: str) -> bool:
    """Whether a command only reads, but by git, which does what the repository's own files say."""
    return reads_only(part) and not _classify_without_git(part).read_only


def only_looks(command: str) -> bool:
    """Whether all of it reads or goes to another folder."""
    parts = parts_of(command)
    return parts is not None and all(reads_only(part) or moves_to(part) for part in parts)


def _place(workspace: Workspace, asked: object) -> Place:
    if not isinstance(asked, str):
        raise ToolFailed("the path is missing")
    return Place.of(workspace.locate(asked))


def _command(use: ToolUse, workspace: Workspace) -> Call:
    command = use.input.get("command")
    if not isinstance(command, str) or not command.strip() or "\0" in command:
        raise ToolFailed("the command is missing, or holds a NUL character")
    parts, verdict = parts_of(command), _classify(command)
    reached = reach(command, parts, workspace.cwd, workspace.home)
    read_only = verdict.read_only and not use.input.get("run_in_background", False)
    return Call(
        use,
        "run",
        reached.places,
        command,
        parts,
        read_only,
        verdict.why,
        reached.unclear,
        reached.redirected,
    )
