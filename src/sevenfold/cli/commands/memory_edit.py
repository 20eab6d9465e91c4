"""A memory in the user's own editor: on a copy, so that the guard sees it before the folder does.

`sevenfold memory quarantine`: what the guard held back, to be read, let through or deleted.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sevenfold.cli.commands.memory_find import held_back
from sevenfold.cli.commands.memory_read import opened, warn
from sevenfold.cli.options import Shared
from sevenfold.cli.output import count, moment, one_line, result, say
from sevenfold.cli.surroundings import look
from sevenfold.context.memory import Memory
from sevenfold.errors import Failure, Mistake
from sevenfold.memory.errors import Guarded
from sevenfold.memory.guard.text import quarantine_command
from sevenfold.storage.files import make_private_dir, read_bounded, write_new

if TYPE_CHECKING:
    from sevenfold.memory.folder.folder import Saved
    from sevenfold.memory.guard.guard import Held

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


def show_list(shared: Shared, agent: str | None = None) -> int:
    with opened(shared, agent) as memory:
        held = memory.quarantine.list()
    agents = {} if agent else dict(held_back(look(shared)))
    if not held:
        say(shared, "nothing is in quarantine")
    for name, number in agents.items():
        texts = count(number, "text is", "texts are")
        say(shared, f"{texts} held back from an agent: '{quarantine_command(agent=name)}'")
    value = {"quarantine": [_about(one) for one in held]}
    result(shared, lines(held), value if agent else {**value, "agents": agents})
    return 0


# --- what is held back --------------------------------------------------------------------------------


def lines(held: Sequence[Held]) -> str:
    """One line for each: its number, when, which memory it was to become, and why not."""
    return "\n".join(
        f"{one.number:>4}  {moment(one.at)}  {one_line(f'{one.file}: {_why(one)}', 200)}"
        if not one.damaged
        else f"{one.number:>4}  {one_line(one.damaged, 200)}"
        for one in held
    )


def _why(held: Held) -> str:
    found = "; ".join(dict.fromkeys(f"{one.where} {one.what}" for one in held.findings))
    return f"{found} (from {held.source})" if held.source else found


def _about(held: Held) -> dict[str, Any]:
    return {
        "number": held.number,
        "file": held.file,
        "source": held.source,
        "author": held.author,
        "at": held.at,
        "findings": held.findings,
        "damaged": held.damaged,
    }


def show(shared: Shared, number: int, agent: str | None = None) -> int:
    with opened(shared, agent) as memory:
        held = memory.quarantine.show(number)
    if held.damaged:
        say(shared, held.damaged)
    else:
        say(shared, f"{held.file} was held back: {_why(held)}")
        how = quarantine_command(f"release {number}", agent or "")
        say(shared, f"'{how}' makes it a memory")
    result(shared, held.text.rstrip(), {**_about(held), "text": held.text})
    return 0


def release(shared: Shared, number: int, agent: str | None = None) -> int:
    with opened(shared, agent) as memory:
        saved = memory.release(number)
    say(shared, f"{saved.action} {saved.name}: {saved.path}")
    result(shared, "", saved)
    return 0


def drop(shared: Shared, number: int, agent: str | None = None) -> int:
    with opened(shared, agent) as memory:
        memory.quarantine.drop(number)
    say(shared, f"number {number} is deleted")
    result(shared, "", {"number": number, "dropped": True})
    return 0
