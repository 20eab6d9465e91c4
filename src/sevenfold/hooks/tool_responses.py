"""`tool_response` of a hook: what a tool did, in the shape that scripts for Claude Code read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from sevenfold.core.errors import StorageFailure
from sevenfold.core.messages import Json, Text, ToolResult, ToolUse
from sevenfold.storage.files import read_if_there

MOST_TOLD: Final = 100_000
"""Most characters of a text in a response that a hook gets: commands may print many megabytes."""
_LARGEST_FILE: Final = 4 * MOST_TOLD  # Bytes of a file that is compared with what it was
_CHANGES: Final = ("Edit", "Write")
_NUMBERED: Final = r"(?m)^\d+\t(.*)$"
_OF: Final = r"(?m)^\[lines \d+-\d+ of (?:more than )?([\d,]+);"


def shorten_for_hook(text: str) -> str:
    """A text as a hook gets it; of a long one both ends and a note between them."""
    if len(text) <= MOST_TOLD:
        return text
    half = (MOST_TOLD - 100) // 2  # the rest is for the note
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"


def read_original(use: ToolUse, cwd: Path) -> str | None:
    """The file that a call is about to change; None if it changes none, or one too large to compare."""
    path = use.input.get("file_path")
    if use.name not in _CHANGES or not isinstance(path, str) or "\0" in path:
        return None
    try:
        data = read_if_there(cwd / Path(path).expanduser(), _LARGEST_FILE)
    except (StorageFailure, RuntimeError):
        return None
    return None if data is None else data.decode("utf-8", "replace")


def make_tool_response(use: ToolUse, result: ToolResult, cwd: Path, original: str | None) -> Any:
    """The response of a call that worked. `original`: the file as it was before the call."""
    text = shorten_for_hook(result.text)
    if use.name == "Bash":
        return {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}
    if use.name.startswith("mcp__"):
        blocks = (Text(result.content),) if isinstance(result.content, str) else result.content
        texts = [block.text for block in blocks if isinstance(block, Text)]
        return [{"type": "text", "text": shorten_for_hook(one)} for one in texts]
    path = use.input.get("file_path")
    if not isinstance(path, str):
        return {"success": True, "content": text}
    place = str(cwd / Path(path))
    if use.name == "Read":
        return _make_read_response(place, result, use.input.get("offset", 1))
    return _make_change_response(use, place, original, read_original(use, cwd))


def _make_read_response(place: str, result: ToolResult, first: int) -> Json:
    if result.has_media:
        return {"type": "image", "file": {"filePath": place}}
    lines = re.findall(_NUMBERED, result.text)
    of = re.search(_OF, result.text)
    total = int(of[1].replace(",", "")) if of else first + len(lines) - 1
    content = shorten_for_hook("\n".join(lines))
    about = {"numLines": len(lines), "startLine": first, "totalLines": total}
    return {"type": "text", "file": {"filePath": place, "content": content, **about}}


def _make_change_response(use: ToolUse, place: str, before: str | None, after: str | None) -> Json:
    patch = make_patch(before, after) if before is not None and after is not None else []
    told = None if before is None else shorten_for_hook(before)
    about: Json = {"filePath": place, "originalFile": told, "structuredPatch": patch, "userModified": False}
    asked = use.input
    if use.name == "Write":
        kind = "create" if before is None else "update"
        return {"type": kind, "content": shorten_for_hook(str(asked.get("content", ""))), **about}
    old, new = (shorten_for_hook(str(asked.get(name, ""))) for name in ("old_string", "new_string"))
    return {"oldString": old, "newString": new, "replaceAll": asked.get("replace_all", False), **about}


def make_patch(before: str, after: str) -> list[Json]:
    """The changed places of a text, each with three lines around it; none for a text over the limit."""
    if max(len(before), len(after)) > MOST_TOLD:
        return []
    from difflib import SequenceMatcher

    old, new = before.splitlines(), after.splitlines()
    hunks: list[Json] = []
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(3):
        lines: list[str] = []
        for kind, i1, i2, j1, j2 in group:
            if kind == "equal":
                lines += [f" {line}" for line in old[i1:i2]]
            else:
                lines += [*(f"-{line}" for line in old[i1:i2]), *(f"+{line}" for line in new[j1:j2])]
        (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
        starts = {"oldStart": i1 + 1, "oldLines": i2 - i1, "newStart": j1 + 1, "newLines": j2 - j1}
        hunks.append({**starts, "lines": lines})
    return hunks
