"""The change of one file as a unified diff."""

from __future__ import annotations

from typing import Final

_NONE: Final = "/dev/null"
_HEAD: Final = 8_000
"""A zero in so many bytes at the beginning means that the file is no text, as in git."""


def make_unified_diff(file: str, old: bytes | None, new: bytes | None) -> str:
    """The change of one file as a unified diff; None is a file that does not exist."""
    if old == new:
        return ""
    head = f"--- {file if old is not None else _NONE}\n+++ {file if new is not None else _NONE}\n"
    was, now = old or b"", new or b""
    if b"\0" in was[:_HEAD] or b"\0" in now[:_HEAD]:
        return f"{head}(not text: it is not shown)\n"
    if was == now:
        return f"{head}(empty)\n"
    import difflib

    lines = list(difflib.unified_diff(_lines(was), _lines(now), n=3))[2:]
    return head + "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _lines(data: bytes) -> list[str]:
    """The lines as git counts them: only a line feed ends one."""
    parts = data.decode("utf-8", "replace").split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
