"""ReadResult: shows more of a stored result, for agents that have no file tools of their own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import anyio.to_thread
import msgspec

from sevenfold.core.errors import StorageFailure
from sevenfold.core.messages import Json, Text, parse_message
from sevenfold.core.protocols import Tool, ToolFailed
from sevenfold.core.tokens import REFERENCE_WINDOW, scale_constant
from sevenfold.layers.l1_tool_results.preview import LEAST, MOST, LinePattern, format_matches, format_page
from sevenfold.storage.files import make_storage_failure
from sevenfold.storage.results import BLOCKS, ResultStore

LARGEST: Final = 256 << 20
"""Bytes. A result was in memory once, so it is read whole; but nothing larger than this."""
MOST_LINES: Final = 2_000
MOST_MATCHES: Final = 200

SCHEMA: Final[Json] = {
    "name": "ReadResult",
    "description": (
        "Read a tool result that was too long to show. Lines come as `number<tab>line`, up to"
        f" {MOST:,} characters at a time, with how to go on."
    ),
    "input_schema": {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "As given where the result was left out"},
            "id": {"type": "string", "description": "Or the id of the tool call"},
            "offset": {"type": "integer", "minimum": 1, "description": "First line, from 1"},
            "limit": {"type": "integer", "minimum": 1, "description": "Number of lines"},
            "character": {
                "type": "integer",
                "minimum": 1,
                "description": "Where in the first line to begin, from 1",
            },
            "pattern": {
                "type": "string",
                "description": "Only lines with this text in any case; a|b either, a.*b both",
            },
        },
        "additionalProperties": False,
    },
}


class ReadResultTool:
    """Reads what is in this store and nothing else. Every answer is bounded."""

    name = "ReadResult"
    schema = SCHEMA

    def __init__(self, store: ResultStore, window: int = REFERENCE_WINDOW) -> None:
        self._store = store
        self._most = max(LEAST, int(scale_constant(MOST, window)))

    def safe(self, args: Json) -> bool:
        return True

    async def run(self, args: Json, use_id: str) -> str:
        return await anyio.to_thread.run_sync(partial(self.read, args), abandon_on_cancel=True)

    def read(self, args: Json) -> str:
        """The same for plain code, which waits for the disk."""
        path = self._located(args)
        wanted = LinePattern(args["pattern"]) if "pattern" in args else None
        text = self._text(path)
        if not text:
            return "[the result is empty]"
        first, character = args.get("offset", 1), args.get("character", 1)
        if wanted is None:
            return format_page(text, first, args.get("limit", MOST_LINES), character, self._most)
        limit = min(args.get("limit", MOST_MATCHES), MOST_MATCHES)
        return format_matches(text, wanted, first, character, limit, most=self._most)

    def _located(self, args: Json) -> Path:
        if asked := args.get("path", "").strip():
            path = Path(asked)
            path = path if path.is_absolute() else self._store.folder / path
            if not self._store.owns(path):
                raise ToolFailed(
                    f"{asked[:300]} is no stored result of this conversation; give the path exactly as it"
                    " stands where the result was left out"
                )
            return path
        if not (use_id := args.get("id", "")):
            raise ToolFailed("say which result: give its path, or the id of the tool call")
        if (found := self._store.find(use_id)) is None:
            raise ToolFailed(f"no result of the call {use_id[:100]!r} is stored; give its path")
        return found

    def _text(self, path: Path) -> str:
        try:
            with self._store.open(path) as file:
                data = file.read(LARGEST + 1)
        except StorageFailure as error:
            raise ToolFailed(str(error)) from error
        except OSError as error:
            raise ToolFailed(str(make_storage_failure(error, path, "read"))) from error
        if len(data) > LARGEST:
            raise ToolFailed(f"{path} is larger than {LARGEST:,} bytes; it is not read")
        if path.suffix != BLOCKS:
            return data.decode("utf-8", "replace")
        try:
            blocks = parse_message("user", data).content
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ToolFailed(
                f"{path} is damaged and cannot be read: {error}; call the tool again"
            ) from error
        return "\n".join(block.text for block in blocks if isinstance(block, Text))


_check: type[Tool] = ReadResultTool
