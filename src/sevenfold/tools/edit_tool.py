"""The tools Write and Edit: change whole files or exact parts of files that were read before."""

from __future__ import annotations

import codecs
import os
import re
from pathlib import Path
from typing import Final

import anyio.to_thread
import msgspec

from sevenfold.core.errors import StorageFailure
from sevenfold.core.messages import Json
from sevenfold.core.protocols import Tool, ToolFailed
from sevenfold.storage.files import PRIVATE_FILE, make_private_dir, write_atomic
from sevenfold.tools.paths import normalise_path, resolve_path
from sevenfold.tools.read_tool import WIDE, detect_utf16
from sevenfold.tools.workspace import (
    SeenFile,
    Workspace,
    check_unchanged,
    format_size,
    look_at_file,
    open_ordinary,
)

_LINE_NUMBERS: Final = r"(?m)^[ ]*\d+\t"
_MOST_LINES: Final = 100_000
_SHOWN: Final = 12
_QUOTES: Final = str.maketrans("‘’‚“”„–—\u00a0", "'''\"\"\"-- ")


def explain_not_found(text: str, old: str, new: str) -> str:
    """The end of an error message: the nearly equal text in the file, so that the next try succeeds."""
    text = text.replace("\r\n", "\n")
    without = re.sub(_LINE_NUMBERS, "", old)
    if without != old and without in text:
        return "; it holds the line numbers that Read puts in front: leave them out"
    if len(new) > 20 and new in text:
        at = text.count("\n", 0, text.index(new)) + 1
        return f", but new_string is there already, at line {at}"
    lines = text.split("\n")
    if len(lines) > _MOST_LINES:
        return "; Read the place again"
    return (
        _explain_by_blanks(lines, old.split("\n"))
        or _explain_by_characters(text, old)
        or _explain_by_beginning(lines, old)
        or "; Read it again and copy the text exactly"
    )


def _explain_by_blanks(lines: list[str], wanted: list[str]) -> str:
    squeezed = [" ".join(line.split()) for line in wanted]
    while squeezed and not squeezed[0]:
        squeezed.pop(0)
    while squeezed and not squeezed[-1]:
        squeezed.pop()
    if not squeezed:
        return ""
    candidates = [" ".join(line.split()) for line in lines]
    for at in range(len(candidates) - len(squeezed) + 1):
        if candidates[at] == squeezed[0] and candidates[at : at + len(squeezed)] == squeezed:
            there = "\n".join(lines[at : at + len(squeezed)][:_SHOWN])
            where = f"line {at + 1}" if len(squeezed) == 1 else f"lines {at + 1}-{at + len(squeezed)}"
            return f", but {where} differ{'s' * (len(squeezed) == 1)} only in blanks:\n{there}"
    return ""


def _explain_by_characters(text: str, old: str) -> str:
    at = text.translate(_QUOTES).find(old.translate(_QUOTES))
    if at < 0:
        return ""
    line = text.count("\n", 0, at) + 1
    return f", but line {line} differs only in quotes, dashes or special blanks: {text[at : at + 200]!r}"


def _explain_by_beginning(lines: list[str], old: str) -> str:
    first = next((line for line in old.split("\n") if len(line.strip()) > 3), None)
    if first is None:
        return ""
    found = [number for number, line in enumerate(lines, 1) if first.strip() in line][:3]
    if not found:
        return ""
    where = ", ".join(map(str, found))
    return f"; its line {first.strip()[:80]!r} is there (line {where}), but what follows differs"


LARGEST_EDIT: Final = 32 << 20
_PLACES: Final = 5

WRITE_SCHEMA: Final[Json] = {
    "name": "Write",
    "description": "Create a file with its folders, or replace one that was Read before.",
    "input_schema": {
        "type": "object",
        "properties": {"file_path": {"type": "string"}, "content": {"type": "string"}},
        "required": ["file_path", "content"],
        "additionalProperties": False,
    },
}
EDIT_SCHEMA: Final[Json] = {
    "name": "Edit",
    "description": (
        "Replace old_string by new_string in a file that was Read before. old_string must fit the"
        " file exactly, indentation included and without line numbers, and occur only once, unless"
        " replace_all."
    ),
    "input_schema": {
        "type": "object",
        "properties": {
            "file_path": {"type": "string"},
            "old_string": {"type": "string"},
            "new_string": {"type": "string"},
            "replace_all": {"type": "boolean"},
        },
        "required": ["file_path", "old_string", "new_string"],
        "additionalProperties": False,
    },
}


class WriteTool:
    """Writes a whole file, all or nothing."""

    name = "Write"
    schema = WRITE_SCHEMA

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def safe(self, args: Json) -> bool:
        return False

    async def run(self, args: Json, use_id: str) -> str:
        # Not abandoned on cancel: a write is short, and its result must be known.
        return await anyio.to_thread.run_sync(self._write, args["file_path"], args["content"])

    def _write(self, asked: str, content: str) -> str:
        path = self._workspace.locate(asked)
        before: SeenFile | None = None
        if os.path.lexists(path):
            with open_ordinary(self._workspace, path) as file:
                before = look_at_file(file, 0.0)
            check_unchanged(self._workspace, path, before, "overwriting")
        said = store_file(self._workspace, path, content.encode("utf-8", "replace"), before)
        if said.instead:
            return said.instead
        lines = content.count("\n") + (not content.endswith("\n") and bool(content))
        verb = "Created" if before is None else "Replaced"
        return (
            f"{verb} {self._workspace.format_path(path)} ({lines:,} line{'s' * (lines != 1)}).{said.also}"
        )


class EditTool:
    """Replaces one exact piece of a file by another; encoding and line ends stay as they are."""

    name = "Edit"
    schema = EDIT_SCHEMA

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def safe(self, args: Json) -> bool:
        return False

    async def run(self, args: Json, use_id: str) -> str:
        old, new, every = args["old_string"], args["new_string"], args.get("replace_all", False)
        return await anyio.to_thread.run_sync(self._edit, args["file_path"], old, new, every)

    def _edit(self, asked: str, old: str, new: str, every: bool) -> str:
        path = self._workspace.locate(asked)
        shown = self._workspace.format_path(path)
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
        if not old:
            raise ToolFailed("old_string is empty; name the text to replace, or use Write")
        if old == new:
            raise ToolFailed("old_string and new_string are the same; nothing would change")
        loaded = _load_text(self._workspace, path)
        spans = find_occurrences(loaded.text, old)
        if not spans:
            raise ToolFailed(
                f"{shown} does not contain old_string{explain_not_found(loaded.text, old, new)}"
            )
        if len(spans) > 1 and not every:
            where = ", ".join(str(_count_line(loaded.text, start)) for start, _ in spans[:_PLACES])
            raise ToolFailed(
                f"old_string occurs {len(spans)} times in {shown} (lines {where}"
                f"{', …' if len(spans) > _PLACES else ''}); add lines around it, or set replace_all"
            )
        if len(loaded.text) + len(spans) * len(new) > 2 * LARGEST_EDIT:
            raise ToolFailed(f"the result would be larger than {format_size(2 * LARGEST_EDIT)}")
        after = loaded.encode(replace_spans(loaded.text, spans, new))
        said = store_file(self._workspace, path, after, loaded.seen)
        if said.instead:
            return said.instead
        line = _count_line(loaded.text, spans[0][0])
        if len(spans) == 1:
            return f"Edited {shown} at line {line}.{said.also}"
        return f"Edited {shown}: {len(spans)} replacements, the first at line {line}.{said.also}"


class _LoadedText(msgspec.Struct, frozen=True):
    """A text, with its byte order mark and encoding for writing it back."""

    text: str
    mark: bytes
    encoding: str
    seen: SeenFile

    def encode(self, text: str) -> bytes:
        return self.mark + text.encode(self.encoding, "surrogateescape")


def _load_text(workspace: Workspace, path: Path) -> _LoadedText:
    with open_ordinary(workspace, path) as file:
        seen = look_at_file(file, 0.0)
        check_unchanged(workspace, path, seen, "editing")
        if seen.size > LARGEST_EDIT:
            raise ToolFailed(
                f"{workspace.format_path(path)} is larger than {format_size(LARGEST_EDIT)};"
                " change it with Bash, for instance with sed"
            )
        file.seek(0)
        data = file.read(LARGEST_EDIT)
    mark, encoding = b"", "utf-8"
    if found := detect_utf16(data):
        mark, encoding = next(mark for mark, name in WIDE if name == found), found
    elif data.startswith(codecs.BOM_UTF8):
        mark = codecs.BOM_UTF8
    try:
        # Bytes that are not UTF-8 become surrogates, which are written back as the same bytes.
        text = data[len(mark) :].decode(encoding, "surrogateescape")
    except UnicodeDecodeError:
        raise ToolFailed(
            f"{workspace.format_path(path)} is not valid {encoding}; convert it first"
        ) from None
    if "\0" in text:
        raise ToolFailed(f"{workspace.format_path(path)} is not text; Edit changes text only")
    return _LoadedText(text, mark, encoding, seen)


def find_occurrences(text: str, old: str) -> list[tuple[int, int]]:
    """The spans of `old` in the text; a line end in it matches LF and CRLF."""
    piece = re.compile("\r?\n".join(re.escape(line) for line in old.split("\n")))
    return [match.span() for match in piece.finditer(text)]


def replace_spans(text: str, spans: list[tuple[int, int]], new: str) -> str:
    """The text with each span replaced; new lines end as the lines they replace."""
    crlf = text.count("\r\n") * 2 > text.count("\n")
    out, at = [], 0
    for start, end in spans:
        gone = text[start:end]
        dos = "\r\n" in gone if "\n" in gone else crlf
        out += [text[at:start], new.replace("\n", "\r\n") if dos else new]
        at = end
    return "".join([*out, text[at:]])


class WriteNote(msgspec.Struct, frozen=True):
    """Notes about a write."""

    also: str = ""  # Text to append to the result, with a space before it
    instead: str = ""  # The result, if something else was done than to write the file


def store_file(workspace: Workspace, path: Path, data: bytes, before: SeenFile | None) -> WriteNote:
    """Write the bytes atomically, unless that would leave the project or lose a change."""
    target, shown = resolve_path(path), workspace.format_path(path)
    if not target.is_relative_to(workspace.root) and _goes_through(path, workspace.root):
        raise ToolFailed(
            f"{shown} leads through a link to {target}, outside the project;"
            " if that is meant, name that path itself"
        )
    kept = workspace.keeper.is_kept(target)
    if kept:
        if before is not None:
            _check_replaceable(target, shown, before)
        if (done := workspace.keeper.replace_write(target, data)) is not None:
            workspace.seen.pop(target, None)
            return WriteNote(instead=done)
        data = workspace.keeper.before_write(target, data)
    if before is None:
        _make_folder(target.parent, private=kept)
        if os.path.lexists(target):
            raise ToolFailed(f"{shown} has just been created by something else; Read it first")
    else:
        _check_replaceable(target, shown, before)
    try:
        write_atomic(target, data, PRIVATE_FILE if kept else None, nofollow=True)
    except StorageFailure as error:
        raise ToolFailed(str(error)) from error
    with open_ordinary(workspace, target) as file:
        workspace.remember(target, look_at_file(file, workspace.clock.now()))
    said = workspace.keeper.after_write(target) if kept else ""
    return WriteNote(f" {said}" if said else "")


def _make_folder(folder: Path, *, private: bool) -> None:
    if not private:
        folder.mkdir(parents=True, exist_ok=True)
        return
    try:
        make_private_dir(folder)
    except StorageFailure as error:
        raise ToolFailed(str(error)) from error


def _goes_through(path: Path, root: Path) -> bool:
    """True if the path as written, without following links, goes through the project."""
    plain = normalise_path(path)
    return any(resolve_path(folder).is_relative_to(root) for folder in (plain, *plain.parents))


def _check_replaceable(target: Path, shown: str, before: SeenFile) -> None:
    state = target.stat()
    if not os.access(target, os.W_OK) or not state.st_mode & 0o222:  # a rename would not ask
        raise ToolFailed(f"{shown} is read-only; change its mode first if it should be written")
    if (state.st_size, state.st_mtime_ns) != (before.size, before.modified):
        raise ToolFailed(f"{shown} changed just now; Read it again")


def _count_line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


_write: type[Tool] = WriteTool
_edit: type[Tool] = EditTool
