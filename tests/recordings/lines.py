"""Lines of transcripts as other programs write them."""

from __future__ import annotations

from typing import Any


def make_claude_code_line(number: int, role: str, text: str) -> dict[str, Any]:
    return {
        "type": role,
        "uuid": f"u-{number}",
        "parentUuid": f"u-{number - 1}" if number else None,
        "sessionId": "s-1",
        "timestamp": f"2026-11-02T10:00:{number:02}.000Z",
        "cwd": "/work/shop",
        "version": "2.1.325",
        "message": {"role": role, "content": text if role == "user" else [{"type": "text", "text": text}]},
    }
