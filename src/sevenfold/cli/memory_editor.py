"""A memory in the user's own editor: on a copy, so that the guard sees it before the folder does."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sevenfold.cli.memory_showing import warn
from sevenfold.errors import Failure, Mistake
from sevenfold.memory.refusing import Guarded
from sevenfold.remembering import Memory
from sevenfold.storage.files import make_private_dir, read_bounded, write_new

if TYPE_CHECKING:
    from sevenfold.memory.folder.desk import Saved

USUAL: Final = ("sensible-editor", "nano", "vi")
"""Editors that are tried when nobody says which."""
LARGEST: Final = 4 << 20
"""Bytes that are read of what an editor leaves."""


def edited(memory: Memory, name: str, variables: Mapping[str, str]) -> Saved:
    """Open the file of a memory in the editor, as often as the guard says no and the user goes on."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Mistake("there is nothing to change: use --body, --file, --description or --type")
    editor = editor_of(variables)
    before = memory.get(name)
    make_private_dir(memory.state)
    with tempfile.TemporaryDirectory(prefix="edit-", dir=memory.state) as folder:
        copy = Path(folder) / before.file.rpartition("/")[2]
        write_new(copy, before.data)
        while True:
            _open(editor, copy, variables)
            after = read_bounded(copy, LARGEST)
            if memory.get(before.file).data != before.data and after != before.data:
                warn(f"{before.file} was changed meanwhile; what it said then is in its history")
            try:
                return memory.rewrite(before.file, after)
            except Guarded as error:
                warn(str(error))
                if not _again():
                    raise


def editor_of(variables: Mapping[str, str]) -> list[str]:
    """The words of the command that opens an editor."""
    for variable in ("VISUAL", "EDITOR"):
        if said := variables.get(variable, "").strip():
            try:
                return shlex.split(said)
            except ValueError as error:
                raise Mistake(f"{variable} is no command: {error}; set it again") from error
    for program in USUAL:
        if found := shutil.which(program, path=variables.get("PATH")):
            return [found]
    raise Mistake("no editor was found: set EDITOR, or use --body, --file, --description or --type")


def _open(editor: list[str], file: Path, variables: Mapping[str, str]) -> None:
    try:
        ended = subprocess.run([*editor, str(file)], env=dict(variables), check=False).returncode
    except OSError as error:
        why = error.strerror or error
        raise Mistake(f"the editor {editor[0]} cannot be started: {why}; set EDITOR") from error
    if ended != 0:
        raise Failure(f"the editor {editor[0]} ended with {ended}; nothing was changed")


def _again() -> bool:
    print(
        "Edit it again? Your changes are lost otherwise. [Y/n] ",
        end="",
        file=sys.stderr,
        flush=True,
    )
    return sys.stdin.readline().strip().lower() in ("", "y", "yes")
