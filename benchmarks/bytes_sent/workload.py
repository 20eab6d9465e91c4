"""The session that is measured: a model that shows 60 files, one a request."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, Final

MODEL: Final = "claude-opus-5-5"
CALLS: Final = 60
SHORT, LONG, LINE = 8_000, 51_000, 60  # Bytes that a call returns
FLAGS: Final = dict.fromkeys(("notes", "payout", "recall", "extraction", "dream"), False)
"""Layers that would send requests of their own: this is about the conversation."""


def write_files(folder: Path, calls: int) -> None:
    """One file for each call: four short ones, then a long one."""
    for n in range(calls):
        size = LONG if n % 5 == 4 else SHORT
        lines = [
            f"{i:04d} a line of file {n:02d} that a tool shows, word after word" for i in range(size // 60)
        ]
        (folder / f"f{n}.txt").write_text("\n".join(islice(lines, size // LINE)), encoding="utf-8")


def make_replies(calls: int) -> Any:
    """A model that shows one file after the other, then is done."""

    def reply(body: dict[str, Any]) -> list[dict[str, Any]]:
        done = sum(b["type"] == "tool_result" for m in body["messages"] for b in m["content"])
        if done >= calls:
            return [{"type": "text", "text": "I have read them all."}]
        args = {"command": f"cat f{done}.txt", "description": "show a file"}
        return [{"type": "tool_use", "id": f"toolu_{done}", "name": "Bash", "input": args}]

    return reply
