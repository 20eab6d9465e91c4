"""A memory in the user's own editor, which gets a copy for the guard to check; and the quarantine."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sevenfold.cli.commands.memory_display import open_memory
from sevenfold.cli.commands.memory_search import count_held_texts
from sevenfold.cli.options import SharedOptions
from sevenfold.cli.output import (
    ask_yes_or_no,
    format_count,
    format_time,
    print_message,
    print_result,
    print_warning,
    to_one_line,
)
from sevenfold.cli.startup import read_command_context
from sevenfold.core.errors import Failure, Mistake
from sevenfold.memory.errors import Guarded
from sevenfold.memory.guard.text import format_quarantine_hint
from sevenfold.memory.store import Memory
from sevenfold.storage.files import make_private_dir, read_bounded, write_new

if TYPE_CHECKING:
    from sevenfold.memory.folder.folder import Saved
    from sevenfold.memory.guard.guard import QuarantinedText

USUAL: Final = ("sensible-editor", "nano", "vi")  # Tried when neither VISUAL nor EDITOR is set
LARGEST: Final = 4 << 20  # Most bytes that are read of the edited file


def edit_in_editor(memory: Memory, name: str, variables: Mapping[str, str]) -> Saved:
    """Open the file of a memory in the editor; again when the guard refuses and the user wants to."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Mistake("there is nothing to change: use --body, --file, --description or --type")
    editor = find_editor(variables)
    before = memory.get(name)
    make_private_dir(memory.local)
    with tempfile.TemporaryDirectory(prefix="edit-", dir=memory.local) as folder:
        copy = Path(folder) / before.file.rpartition("/")[2]
        write_new(copy, before.data)
        while True:
            _run_editor(editor, copy, variables)
            after = read_bounded(copy, LARGEST)
            if memory.get(before.file).data != before.data and after != before.data:
                print_warning(f"{before.file} was changed meanwhile; what it said then is in its history")
            try:
                return memory.rewrite(before.file, after)
            except Guarded as error:
                print_warning(str(error))
                if not ask_yes_or_no(
                    "Edit it again? Your changes are lost otherwise. [Y/n] ", default=True
                ):
                    raise


def find_editor(variables: Mapping[str, str]) -> list[str]:
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


def _run_editor(editor: list[str], file: Path, variables: Mapping[str, str]) -> None:
    try:
        ended = subprocess.run([*editor, str(file)], env=dict(variables), check=False).returncode
    except OSError as error:
        why = error.strerror or error
        raise Mistake(f"the editor {editor[0]} cannot be started: {why}; set EDITOR") from error
    if ended != 0:
        raise Failure(f"the editor {editor[0]} ended with {ended}; nothing was changed")


def show_quarantine(shared: SharedOptions, agent: str | None = None) -> int:
    with open_memory(shared, agent) as memory:
        held = memory.quarantine.list()
    agents = {} if agent else dict(count_held_texts(read_command_context(shared)))
    if not held:
        print_message(shared, "nothing is in quarantine")
    for name, number in agents.items():
        texts = format_count(number, "text is", "texts are")
        print_message(shared, f"{texts} held back from an agent: '{format_quarantine_hint(agent=name)}'")
    value = {"quarantine": [_to_json(one) for one in held]}
    print_result(shared, format_quarantine(held), value if agent else {**value, "agents": agents})
    return 0


def format_quarantine(held: Sequence[QuarantinedText]) -> str:
    """One line for each text: its number, its time, the memory it was to become, and the findings."""
    return "\n".join(
        f"{one.number:>4}  {format_time(one.at)}  "
        f"{to_one_line(f'{one.file}: {_describe_findings(one)}', 200)}"
        if not one.damaged
        else f"{one.number:>4}  {to_one_line(one.damaged, 200)}"
        for one in held
    )


def _describe_findings(held: QuarantinedText) -> str:
    found = "; ".join(dict.fromkeys(f"{one.where} {one.what}" for one in held.findings))
    return f"{found} (from {held.source})" if held.source else found


def _to_json(held: QuarantinedText) -> dict[str, Any]:
    return {
        "number": held.number,
        "file": held.file,
        "source": held.source,
        "author": held.author,
        "at": held.at,
        "findings": held.findings,
        "damaged": held.damaged,
    }


def describe_held_text(held: QuarantinedText) -> str:
    """One text with the reason why it was held; of a damaged one what is wrong with it."""
    if held.damaged:
        return held.damaged
    return f"{held.file} was held back: {_describe_findings(held)}\n\n{held.text.rstrip()}"


def show_held_text(shared: SharedOptions, number: int, agent: str | None = None) -> int:
    with open_memory(shared, agent) as memory:
        held = memory.quarantine.show(number)
    if held.damaged:
        print_message(shared, held.damaged)
    else:
        print_message(shared, f"{held.file} was held back: {_describe_findings(held)}")
        how = format_quarantine_hint(f"release {number}", agent or "")
        print_message(shared, f"'{how}' makes it a memory")
    print_result(shared, held.text.rstrip(), {**_to_json(held), "text": held.text})
    return 0


def release_quarantined(shared: SharedOptions, number: int, agent: str | None = None) -> int:
    with open_memory(shared, agent) as memory:
        saved = memory.release(number)
    print_message(shared, f"{saved.action} {saved.name}: {saved.path}")
    print_result(shared, "", saved)
    return 0


def drop_quarantined(
    shared: SharedOptions, numbers: Sequence[int], every: bool, agent: str | None = None
) -> int:
    if bool(numbers) == every:
        raise Mistake("name the numbers to delete, or --all; 'sevenfold memory quarantine' lists them")
    with open_memory(shared, agent) as memory:
        gone = [one.number for one in memory.quarantine.list()] if every else list(dict.fromkeys(numbers))
        for number in gone:
            memory.quarantine.drop(number)
    what = f"number {gone[0]} is" if len(gone) == 1 else f"{format_count(len(gone), 'text')} are"
    print_message(shared, f"{what} deleted" if gone else "nothing is in quarantine")
    which = {"number": gone[0]} if len(gone) == 1 else {"numbers": gone}
    print_result(shared, "", {**which, "dropped": True})
    return 0
