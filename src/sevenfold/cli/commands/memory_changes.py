"""Memories changed by a command: `add`, `edit`, `rm`, `purge`, `learn`, `export`, and the quarantine."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sevenfold.cli.commands.memory_display import format_agent_option, open_memory
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
from sevenfold.core.errors import Failure, Mistake, Refused
from sevenfold.memory.errors import Guarded
from sevenfold.memory.folder.folder import SHARED
from sevenfold.memory.frontmatter import find_frontmatter, find_last_entry
from sevenfold.memory.guard.text import format_quarantine_hint
from sevenfold.memory.store import Memory
from sevenfold.memory.topic_file import TYPES, Type, read_topic
from sevenfold.storage.files import make_private_dir, read_bounded, write_new

if TYPE_CHECKING:
    from sevenfold.memory.folder.folder import Saved
    from sevenfold.memory.guard.guard import QuarantinedText

MOST: Final = 4 << 20  # Most bytes of a text that are read; the guard refuses what is too large
STDIN: Final = Path("-")
USUAL: Final = ("sensible-editor", "nano", "vi")  # Tried when neither VISUAL nor EDITOR is set
_OURS: Final = ("name", "description", "type", "metadata")


def run_add(
    shared: SharedOptions,
    type: Type | None,
    name: str,
    description: str | None,
    body: str | None,
    file: Path | None,
    *,
    team: bool,
    new: bool,
) -> int:
    with open_memory(shared) as memory:
        text = _read_text(body, file)
        if text is None:
            raise Mistake("a memory needs a text: give it with --body, with --file, or on stdin")
        given = _split_frontmatter(text)
        type, description = type or given.type, (description or given.description).strip()
        if type is None:
            raise Mistake(f"a memory needs a type: give it with --type, {', '.join(TYPES)}")
        if not description:
            raise Mistake("a memory needs a description: recall judges by it")
        saved = memory.add(
            type=type, name=name, description=description, body=given.body, team=team, new=new
        )
    return _print_saved(shared, saved, _describe_merge(saved))


def _describe_merge(saved: Saved) -> str:
    if saved.action != "merged":
        return ""
    if not saved.revision:
        return "; it says so already (--new makes a memory of its own)"
    return "; it is about the same and has the new text now (--new makes a memory of its own)"


def run_edit(
    shared: SharedOptions,
    name: str,
    type: Type | None,
    description: str | None,
    body: str | None,
    file: Path | None,
    agent: str | None = None,
) -> int:
    with open_memory(shared, agent) as memory:
        name = memory.get(name).file  # before anything is read or an editor opens
        text = _read_text(body, file, piped=type is None and description is None)
        if text is None and type is None and description is None:
            variables = read_command_context(shared).environment.variables
            return _print_saved(shared, edit_in_editor(memory, name, variables))
        if description is not None and not description.strip():
            raise Mistake("a memory needs a description: recall judges by it")
        saved = memory.edit(name, description=description, body=text, type=type)
    return _print_saved(shared, saved)


def run_remove(shared: SharedOptions, name: str, agent: str | None = None) -> int:
    with open_memory(shared, agent) as memory:
        saved = memory.remove(name)
    undo = f"sevenfold memory undo {saved.name}{format_agent_option(agent)}"
    return _print_saved(shared, saved, f"; '{undo}' brings it back")


def run_purge(shared: SharedOptions, name: str, yes: bool, agent: str | None = None) -> int:
    with open_memory(shared, agent) as memory:
        revisions = len(memory.history(name, limit=1_000))  # raises if there is no such memory
        if not yes:
            _confirm_purge(name, revisions)
        saved = memory.purge(name)
        ours = SHARED.holds(saved.path.relative_to(memory.path_of()).as_posix())
    more = "; what was shared with the team before is still in its repository" if ours else ""
    print_message(shared, f"purged {saved.name}: it is gone from files, index, history and search{more}")
    print_result(shared, "", saved)
    return 0


def run_export(shared: SharedOptions, folder: Path, git: bool, agent: str | None = None) -> int:
    with open_memory(shared, agent) as memory:
        count = memory.export(folder, git=git)
    what = format_count(count, "revision") if git else format_count(count, "file")
    print_message(shared, f"wrote {what} to {folder}")
    print_result(shared, "", {"folder": folder, "git": git, "revisions" if git else "files": count})
    return 0


def _confirm_purge(name: str, revisions: int) -> None:
    if not sys.stdin.isatty():
        raise Mistake(f"purging {name} cannot be undone and has to be confirmed: add --yes")
    about = f"with its {revisions:,} revisions" if revisions != 1 else "with its one revision"
    if not ask_yes_or_no(f"Purge {name} for good, {about}? [y/N] "):
        raise Refused(f"{name} was kept")


def _print_saved(shared: SharedOptions, saved: Saved, more: str = "") -> int:
    if saved.action == "updated" and not saved.revision:
        print_message(shared, f"{saved.name} is as it was: {saved.path}")
    else:
        done = "merged into" if saved.action == "merged" else saved.action
        print_message(shared, f"{done} {saved.name}: {saved.path}{more}")
    print_result(shared, "", saved)
    return 0


class _InputText(msgspec.Struct, frozen=True):
    """The frontmatter of a text, as far as we use it, and the text below."""

    type: Type | None
    description: str
    body: str


def _split_frontmatter(text: str) -> _InputText:
    """The text may be a memory file already, with frontmatter."""
    found = find_frontmatter(text)
    if found is None or not any(find_last_entry(found.entries, key) for key in _OURS):
        return _InputText(None, "", text)
    said = find_last_entry(found.entries, "description")
    topic = read_topic(text.encode("utf-8", "surrogateescape"), "memory.md")
    if not topic.body.strip():
        raise Mistake("the text has frontmatter and nothing below it; nothing was saved")
    return _InputText(topic.type, topic.description if said else "", topic.body)


def _read_text(body: str | None, file: Path | None, *, piped: bool = True) -> str | None:
    """The text of --body, --file or, if `piped`, of stdin; None without one."""
    if body is not None and file is not None:
        raise Mistake("--body and --file give two texts; use one of them")
    if body is not None:
        data = body.encode("utf-8", "surrogateescape")
    elif file is not None and file != STDIN:
        with file.expanduser().open("rb") as opened_file:
            data = opened_file.read(MOST)
    elif file is None and not (
        piped and sys.stdin is not None and not sys.stdin.closed and not sys.stdin.isatty()
    ):
        return None
    else:
        data = sys.stdin.buffer.read(MOST)
        if file is None and not data:
            return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Mistake("the text is not UTF-8; save it as UTF-8 and try again") from error
    if "\0" in text or not text.strip():
        raise Mistake(f"the text {'is not text' if text.strip() else 'is empty'}; nothing was saved")
    return text


def run_learn(shared: SharedOptions, path: Path, model: str | None) -> int:
    import anyio

    from sevenfold.cli.output import EventPrinter, SideOutput
    from sevenfold.clients.recorded_words import learn_from_recording
    from sevenfold.session.project import Project

    printer = EventPrinter(SideOutput(quiet=shared.quiet, color=not shared.no_color))
    at = Project.open(shared.project, read_command_context(shared).environment, {}, lambda event: None)
    found = anyio.run(learn_from_recording, path, at, model, printer)
    lines = [f"{one.action} {one.name}: {one.path}" for one in found]
    said = "\n".join(lines) or "nothing was saved: it was looked at before, waits, or says nothing lasting"
    print_result(shared, said, {"memories": [msgspec.structs.asdict(one) for one in found]})
    return 0


# --- the user's own editor, which gets a copy for the guard to check; and the quarantine ----------------


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
            after = read_bounded(copy, MOST)
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
