"""The tools Read, Write and Edit, and the preview of a change that has not run yet."""

from __future__ import annotations

import base64
import codecs
import io
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

import anyio.to_thread
import msgspec

from sevenfold.core.errors import StorageFailure
from sevenfold.core.messages import Block, Image, Json, Text, ToolUse
from sevenfold.core.protocols import Tool, ToolFailed
from sevenfold.core.tokens import JSON_RATE, TEXT_RATE, scale_constant
from sevenfold.storage.files import PRIVATE_FILE, make_private_dir, write_atomic
from sevenfold.tools.workspace import (
    SeenFile,
    Workspace,
    check_unchanged,
    describe_binary,
    format_size,
    look_at_file,
    normalise_path,
    open_ordinary,
    resolve_path,
)

MOST_LINES: Final = 2_000
MOST_BYTES: Final = 256 << 10
MOST_TOKENS: Final = 25_000  # Tokens of a page, in a window of 200,000; fewer in a smaller one
LONGEST_LINE: Final = 2_000  # Most characters of a line that are shown
LARGEST_IMAGE: Final = 5 << 20  # Bytes as they go over the wire, in base64
LARGEST_WIDE: Final = 16 << 20  # Largest UTF-16 file (bytes): it is decoded as a whole
FARTHEST_COUNT: Final = 256 << 20  # Most bytes beyond the page in which lines are counted
_CHUNK: Final = 1 << 20
_SNIFFED: Final = 8192
_JSON_NAMES: Final = frozenset({".json", ".jsonl", ".ndjson", ".ipynb", ".geojson", ".har"})
WIDE: Final = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))

SCHEMA: Final[Json] = {
    "name": "Read",
    "description": (
        "Read a file. Text comes as `number<tab>line`, at most 2,000 lines at a time; go on with"
        " offset. Images (png, jpg, gif, webp) are shown."
    ),
    "input_schema": {
        "type": "object",
        "properties": {
            "file_path": {"type": "string"},
            "offset": {"type": "integer", "minimum": 1, "description": "First line, from 1"},
            "limit": {"type": "integer", "minimum": 1, "description": "Number of lines"},
        },
        "required": ["file_path"],
        "additionalProperties": False,
    },
}


class ReadTool:
    """Shows the content of a file, and remembers that it was seen."""

    name = "Read"
    schema = SCHEMA

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def safe(self, args: Json) -> bool:
        return True

    async def run(self, args: Json, use_id: str) -> str | tuple[Block, ...]:
        offset, limit = args.get("offset", 1), args.get("limit", MOST_LINES)
        return await anyio.to_thread.run_sync(
            self._read, args["file_path"], offset, limit, abandon_on_cancel=True
        )

    def _read(self, asked: str, first: int, count: int) -> str | tuple[Block, ...]:
        path = self._workspace.locate(asked)
        with open_ordinary(self._workspace, path) as file:
            head = file.read(_SNIFFED)
            shown: str | tuple[Block, ...]
            if kind := detect_image_type(head):
                shown = self._read_image(path, file, kind)
            else:
                shown = self._read_text(path, file, head, first, count)
            seen = look_at_file(file, self._workspace.clock.now())
        self._workspace.remember(resolve_path(path), seen)
        keeper = self._workspace.keeper
        if isinstance(shown, str) and keeper.is_kept(resolve_path(path)):
            shown = "\n".join(filter(None, [shown, keeper.make_remark(resolve_path(path))]))
        return shown

    def _read_image(self, path: Path, file: BinaryIO, kind: str) -> tuple[Block, ...]:
        size = os.fstat(file.fileno()).st_size
        name = self._workspace.format_path(path)
        if size * 4 > LARGEST_IMAGE * 3:
            raise ToolFailed(
                f"{name} is an image of {format_size(size)}; at most {format_size(LARGEST_IMAGE * 3 // 4)}"
                " can be shown, so make it smaller first"
            )
        file.seek(0)
        data = base64.b64encode(file.read(size)).decode("ascii")
        source = {"type": "base64", "media_type": kind, "data": data}
        return (Text(f"{name}: {kind}, {format_size(size)}"), Image(source))

    def _read_text(self, path: Path, file: BinaryIO, head: bytes, first: int, count: int) -> str:
        name, size = self._workspace.format_path(path), os.fstat(file.fileno()).st_size
        if not head:
            return f"[{name} is empty]"
        if head.startswith(b"%PDF-"):
            raise ToolFailed(
                f"{name} is a PDF of {format_size(size)}; turn it into text with Bash, for instance"
                f" `pdftotext -layout '{name}' -`"
            )
        source, page = file, FilePage(first, count, _find_budget(path, self._workspace.window))
        if encoding := detect_utf16(head):
            source, page.encoding = _decode_utf16(name, file, encoding), encoding
        elif b"\0" in head:
            raise ToolFailed(f"{name} is not text: {describe_binary(head)}, {format_size(size)}")
        source.seek(0)
        page.read(source)
        if not page.lines:
            raise ToolFailed(f"{name} has {page.total:,} lines; offset {first:,} is past its end")
        return "\n".join([*page.lines, *page.notes])


@dataclass(slots=True)
class FilePage:
    """Some lines of a text; no more than a page is held in memory."""

    first: int
    count: int
    budget: int  # Bytes that may still be shown
    encoding: str = "utf-8"
    lines: list[str] = field(default_factory=list)
    total: int = 0  # Lines of the file, as far as they were counted
    counted: bool = True
    _cut: int = 0
    _strange: bool = False
    _crlf: bool = False

    def read(self, source: BinaryIO) -> None:
        if source.read(3) != codecs.BOM_UTF8:
            source.seek(0)
        self.total = _skip_lines(source, self.first - 1)
        while len(self.lines) < self.count and (raw := source.readline(LONGEST_LINE * 4 + 1)):
            dropped = 0 if raw.endswith(b"\n") else _skip_line(source)
            line = self._format_line(raw, dropped)
            self.budget -= len(line.encode("utf-8", "replace")) + 1
            self.total += 1
            if self.budget < 0 and self.lines:
                break
            self.lines.append(line)
        self._count_rest(source)

    def _format_line(self, raw: bytes, dropped: int) -> str:
        text = raw.decode("utf-8", "replace").removesuffix("\n")
        if text.endswith("\r"):
            self._crlf, text = True, text[:-1]
        over = len(text) - LONGEST_LINE
        if over > 0 or dropped:
            self._cut += 1
            more = f"{over:,} characters" if not dropped else f"{len(raw) + dropped:,} bytes in all"
            text = f"{text[:LONGEST_LINE]} […{more}]"
        if "\ufffd" in text and b"\xef\xbf\xbd" not in raw:
            self._strange = True
        return f"{self.first + len(self.lines)}\t{text}"

    def _count_rest(self, source: BinaryIO) -> None:
        last, left = b"\n", FARTHEST_COUNT
        while chunk := source.read(_CHUNK):
            self.total += chunk.count(b"\n")
            last, left = chunk[-1:], left - len(chunk)
            if left < 0:
                self.counted = False
                return
        self.total += last != b"\n"

    @property
    def notes(self) -> list[str]:
        """Notes on the page for the model, each on a line in brackets."""
        shown = self.first + len(self.lines) - 1
        notes = []
        if shown < self.total:
            of = f"{self.total:,}" if self.counted else f"more than {self.total:,}"
            notes.append(f"[lines {self.first}-{shown} of {of}; go on with offset={shown + 1}]")
        if self._cut:
            notes.append(f"[{self._cut} long lines are cut; Grep or `cut -c` shows other parts]")
        if self._crlf:
            notes.append("[lines end in CRLF; Edit takes care of that]")
        if self.encoding != "utf-8":
            notes.append(f"[the file is in {self.encoding}; Edit keeps it so]")
        if self._strange:
            notes.append("[bytes that are not UTF-8 are shown as \ufffd]")
        return notes


def _find_budget(path: Path, window: int) -> int:
    rate = JSON_RATE if path.suffix.lower() in _JSON_NAMES else TEXT_RATE
    return min(MOST_BYTES, int(scale_constant(MOST_TOKENS, window) / rate))


def _skip_lines(source: BinaryIO, lines: int) -> int:
    """Move past so many lines; returns the number there were."""
    left = lines
    while left > 0:
        at = source.tell()
        chunk = source.read(_CHUNK)
        if not chunk:
            source.seek(max(0, at - 1))
            unfinished = at > 0 and source.read(1) != b"\n"
            return lines - left + unfinished
        found = chunk.count(b"\n")
        if found >= left:
            end = -1
            for _ in range(left):
                end = chunk.find(b"\n", end + 1)
            source.seek(at + end + 1)
            return lines
        left -= found
    return lines


def _skip_line(source: BinaryIO) -> int:
    """Move to the end of this line; returns the bytes skipped."""
    skipped = 0
    while chunk := source.read(_CHUNK):
        end = chunk.find(b"\n")
        if end >= 0:
            source.seek(end + 1 - len(chunk), os.SEEK_CUR)
            return skipped + end
        skipped += len(chunk)
    return skipped


def detect_utf16(head: bytes) -> str | None:
    """The UTF-16 encoding that the first bytes announce."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return None
    return next((name for mark, name in WIDE if head.startswith(mark)), None)


def _decode_utf16(name: str, file: BinaryIO, encoding: str) -> BinaryIO:
    file.seek(2)
    data = file.read(LARGEST_WIDE + 1)
    if len(data) > LARGEST_WIDE:
        raise ToolFailed(
            f"{name} is in {encoding} and larger than {format_size(LARGEST_WIDE)};"
            " convert it first, for instance with iconv"
        )
    return io.BytesIO(data.decode(encoding, "replace").encode("utf-8", "replace"))


def detect_image_type(head: bytes) -> str | None:
    """The media type of an image that models can see."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if head[:4] == b"RIFF" and head[8:12] == b"WEBP" else None


_check: type[Tool] = ReadTool


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
        plan = _plan_edit(self._workspace, path, old, new, every)
        loaded = plan.loaded
        said = store_file(self._workspace, path, loaded.encode(plan.after), loaded.seen)
        if said.instead:
            return said.instead
        line = _count_line(loaded.text, plan.first)
        if plan.count == 1:
            return f"Edited {shown} at line {line}.{said.also}"
        return f"Edited {shown}: {plan.count} replacements, the first at line {line}.{said.also}"


class _EditPlan(msgspec.Struct, frozen=True):
    """A file, and its text after an edit."""

    loaded: _LoadedText
    after: str
    count: int  # Replacements
    first: int  # Where the first of them begins


def _plan_edit(workspace: Workspace, path: Path, old: str, new: str, every: bool) -> _EditPlan:
    """What an edit would make of a file; raises `ToolFailed` if it cannot be done."""
    shown = workspace.format_path(path)
    old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if not old:
        raise ToolFailed("old_string is empty; name the text to replace, or use Write")
    if old == new:
        raise ToolFailed("old_string and new_string are the same; nothing would change")
    loaded = _load_text(workspace, path)
    spans = find_occurrences(loaded.text, old)
    if not spans:
        raise ToolFailed(f"{shown} does not contain old_string{explain_not_found(loaded.text, old, new)}")
    if len(spans) > 1 and not every:
        where = ", ".join(str(_count_line(loaded.text, start)) for start, _ in spans[:_PLACES])
        raise ToolFailed(
            f"old_string occurs {len(spans)} times in {shown} (lines {where}"
            f"{', …' if len(spans) > _PLACES else ''}); add lines around it, or set replace_all"
        )
    if len(loaded.text) + len(spans) * len(new) > 2 * LARGEST_EDIT:
        raise ToolFailed(f"the result would be larger than {format_size(2 * LARGEST_EDIT)}")
    return _EditPlan(loaded, replace_spans(loaded.text, spans, new), len(spans), spans[0][0])


class FileChange(msgspec.Struct, frozen=True):
    """A file before and after a Write or an Edit that has not run yet."""

    path: Path
    before: str | None  # None: there is no such file
    after: str
    problem: str = ""  # The reason why the call will fail as things are


def preview_change(workspace: Workspace, use: ToolUse) -> FileChange:
    """The effect of a Write or Edit; of an Edit that will fail, the two strings of the call."""
    path = workspace.locate(use.input["file_path"])
    if use.name == "Edit":
        old, new = use.input["old_string"], use.input["new_string"]
        try:
            plan = _plan_edit(workspace, path, old, new, use.input.get("replace_all", False))
        except (ToolFailed, OSError) as error:
            return FileChange(path, old, new, str(error))
        return FileChange(path, plan.loaded.text, plan.after)
    if not os.path.lexists(path):
        return FileChange(path, None, use.input["content"])
    before, problem = "", ""
    try:
        with open_ordinary(workspace, path) as file:
            before = file.read(LARGEST_EDIT).decode("utf-8", "replace")
            check_unchanged(workspace, path, look_at_file(file, 0.0), "overwriting")
    except (ToolFailed, OSError) as error:
        problem = str(error)
    return FileChange(path, before, use.input["content"], problem)


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
