"""The Read tool: a bounded page of a text file with line numbers, or an image."""

from __future__ import annotations

import base64
import codecs
import io
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

import anyio.to_thread

from sevenfold.core.messages import Block, Image, Json, Text
from sevenfold.core.protocols import Tool, ToolFailed
from sevenfold.core.tokens import JSON_RATE, TEXT_RATE, scale_constant
from sevenfold.tools.paths import resolve_path
from sevenfold.tools.workspace import Workspace, describe_binary, format_size, look_at_file, open_ordinary

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
