"""What a line of the chat brings along: `@path` and paths of images, `!command`, `#text`.

None of it becomes part of the user's own words, from which memories are made: it stands before them, in
messages that are marked as the program's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import anyio.to_thread
import msgspec

from sevenfold.cli.output import CommandReply, SlowCommand, StatusLine, format_count, make_printable
from sevenfold.core.errors import Mistake, StorageFailure
from sevenfold.core.messages import Block, Image, Message, ToolUse, make_context_message
from sevenfold.core.protocols import ToolFailed
from sevenfold.session.session import Session
from sevenfold.tools.bash_tool import BashTool
from sevenfold.tools.file_tools import ReadTool
from sevenfold.tools.permission_settings import Mode
from sevenfold.tools.workspace import Workspace

IMAGES: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp")
MOST_ATTACHED: Final = 20  # Files of one line
MOST_NAMES: Final = 200  # Names of a folder that are attached
MOST_OUTPUT: Final = 30_000  # Characters of a command's output that are shown and attached
LONGEST_RUN: Final = 600_000  # Milliseconds that a command of the user may take
_MENTION: Final = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|((?:\\.|[^\s"\\])+))')
_PATH: Final = re.compile(r"""(?<!\S)(?:'([^'\n]+)'|"([^"\n]+)"|((?:\\.|[^\s'"\\@])(?:\\.|[^\s'"\\])*))""")
_LINES: Final = re.compile(r"#L(\d{1,7})(?:-L?(\d{1,7}))?$")
_NOTE: Final = re.compile(r"#(?![#!\d])\s*(\S.*)")


class Mention(msgspec.Struct, frozen=True):
    """A file that a line names, and which of its lines."""

    path: Path
    first: int | None = None
    last: int | None = None


def find_mentions(line: str, workspace: Workspace) -> tuple[list[Mention], list[str]]:
    """The files that a line names by `@path` or as images, and the paths after `@` that lead nowhere."""
    found, missing = dict[Path, Mention](), list[str]()
    for match in _MENTION.finditer(line):
        text = match[1] or _unescape(match[2])
        if mention := next(_read_mention(text, workspace), None):
            found.setdefault(mention.path, mention)
        elif "/" in text:
            missing.append(text)
    for match in _PATH.finditer(line):
        text = match[1] or match[2] or _unescape(match[3])
        mention = next(_read_mention(text, workspace), None) if _is_image_name(text) else None
        if mention and mention.path.is_file():
            found.setdefault(mention.path, mention)
    return list(found.values()), missing


def _unescape(text: str) -> str:
    """The path as the terminal's user meant it: dropped files have escaped spaces, or are addresses."""
    text = re.sub(r"\\(.)", r"\1", text)
    return unquote(text.removeprefix("file://")) if text.startswith("file://") else text


def _is_image_name(text: str) -> bool:
    return text.rstrip(",.;:!?)").lower().endswith(IMAGES)


def _read_mention(text: str, workspace: Workspace) -> Iterator[Mention]:
    """The path as it is written, then without the punctuation behind it."""
    for written in dict.fromkeys((text, text.rstrip(",.;:!?)"))):
        lines = _LINES.search(written)
        name = written[: lines.start()] if lines else written
        try:
            path = workspace.locate(name)
            if path.exists():
                first = int(lines[1]) if lines else None
                yield Mention(path, first, int(lines[2] or lines[1]) if lines else None)
        except (ToolFailed, OSError, ValueError):  # it cannot be a path
            continue


async def attach_mentions(session: Session, line: str) -> list[StatusLine]:
    """Attach the files that a line names to the user's next words; returns what to tell the user."""
    found, missing = find_mentions(line, session.tools.workspace)
    told = [StatusLine(f"there is no file {text}; it is sent as you wrote it") for text in missing]
    told += [await _attach_file(session, mention) for mention in found[:MOST_ATTACHED]]
    if len(found) > MOST_ATTACHED:
        left = len(found) - MOST_ATTACHED
        told.append(StatusLine(f"{format_count(left, 'file')} more not attached: at most {MOST_ATTACHED}"))
    return told


async def _attach_file(session: Session, mention: Mention) -> StatusLine:
    workspace, path = session.tools.workspace, mention.path
    name = workspace.format_path(path)
    use = ToolUse("", "Read", {"file_path": str(path)})
    decision = session.tools.permissions.decide(use, workspace)
    if decision.behaviour == "deny":
        return StatusLine(f"{name} is not attached: {decision.reason}", "warning")
    try:
        if path.is_dir():
            session.attach(make_context_message(f"The user attached the folder {name}:", _list_names(path)))
            return StatusLine(f"attached the folder {name}", "progress")
        content = await ReadTool(workspace).run(_make_arguments(mention), "")
    except (ToolFailed, StorageFailure, OSError) as error:
        return StatusLine(f"{name} is not attached: {error}", "warning")
    if isinstance(content, str):
        session.attach(make_context_message(f"The user attached {name}:", content))
        return StatusLine(
            f"attached {name}: {format_count(content.count(chr(10)) + 1, 'line')}", "progress"
        )
    if not session.model.capabilities.images:
        what = f"{session.model.name} takes no images; only the path of {name} is sent"
        return StatusLine(what, "warning")
    session.attach(_make_image_message(name, content))
    return StatusLine(f"attached the image {name}", "progress")


def _make_arguments(mention: Mention) -> dict[str, Any]:
    arguments: dict[str, Any] = {"file_path": str(mention.path)}
    if mention.first is not None and mention.last is not None:
        first = max(1, mention.first)
        arguments |= {"offset": first, "limit": max(1, mention.last - first + 1)}
    return arguments


def _list_names(folder: Path) -> str:
    names = sorted(f"{one.name}/" if one.is_dir() else one.name for one in folder.iterdir())
    more = [f"… and {len(names) - MOST_NAMES:,} more"] if len(names) > MOST_NAMES else []
    return "\n".join([*names[:MOST_NAMES], *more]) or "(it is empty)"


def _make_image_message(name: str, content: tuple[Block, ...]) -> Message:
    about = make_context_message(f"The user attached the image {name}:").content
    return Message("user", (*about, *(block for block in content if isinstance(block, Image))))


def make_mode_message(mode: Mode, before: Mode | None) -> Message | None:
    """The message that tells the model of plan mode, or of its end; None where nothing is to be told."""
    if mode == "plan" and before != "plan":
        return make_context_message(
            "The user switched to plan mode: look at what you need, and describe what you would change.",
            "Nothing can be changed before the user leaves it.",
        )
    if before == "plan" and mode != "plan":
        return make_context_message("The user left plan mode: files can be changed again.")
    return None


# --- ! and # --------------------------------------------------------------------------------------------


def is_prefix_command(line: str) -> bool:
    """True for `!command` and `#text`; several lines that begin with # are a text in Markdown."""
    return bool(line[:1] == "!" and line[1:].strip()) or _NOTE.fullmatch(line.strip()) is not None


def plan_prefix_command(session: Session, line: str) -> SlowCommand | None:
    """The work that `!command` or `#text` asks for; None for any other line."""
    if not is_prefix_command(line):
        return None
    text = line.strip()[1:].strip()
    return _plan_command(session, text) if line[0] == "!" else _plan_note(session, text)


def _plan_command(session: Session, command: str) -> SlowCommand:
    async def work() -> CommandReply:
        try:
            said = await BashTool(session.tools.workspace).run(
                {"command": command, "timeout": LONGEST_RUN}, ""
            )
        except (ToolFailed, StorageFailure, OSError) as error:
            said = str(error)
        said = shorten_output(said)
        session.attach(
            make_context_message("The user ran this command and saw its output:", f"$ {command}", said)
        )
        return CommandReply(make_printable(said))

    return SlowCommand(f"running {make_printable(command[:60])}", work)


def shorten_output(text: str, most: int = MOST_OUTPUT) -> str:
    """The beginning and the end of a long output."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"


def _plan_note(session: Session, text: str) -> SlowCommand:
    store = session.knowledge.store
    if store is None:
        raise Mistake(f"nothing can be remembered: memory is off ({session.at.memory.off})")

    async def work() -> CommandReply:
        from sevenfold.memory.folder.labels import classify_memory, make_memory_name
        from sevenfold.memory.history.revisions import Author
        from sevenfold.memory.topic_file import summarise_body

        saved = await anyio.to_thread.run_sync(
            partial(
                store.add,
                type=classify_memory(text),
                name=make_memory_name(text),
                description=summarise_body(text),
                body=text,
                author=Author("user", session.id),
            )
        )
        session.attach(make_context_message("The user saved this to memory:", text))
        return CommandReply(
            f"  memory {saved.action}: {saved.name}, in {saved.path}\n  /memory undo takes it back"
        )

    return SlowCommand("remembering", work)
