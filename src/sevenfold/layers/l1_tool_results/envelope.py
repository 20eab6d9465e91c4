"""What the model sees in place of a stored result: how long it is, where it is, and how it begins."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.messages import whole_characters
from sevenfold.storage.results import BLOCKS

OPENING: Final = "<persisted-output>"
CLOSING: Final = "</persisted-output>"
WITH_FILE_TOOLS: Final = "To see more, Read that file with offset and limit, or Grep in it."
WITH_READ_RESULT: Final = (
    "To see more, call ReadResult with that path and an offset, or with a pattern to find lines."
)
_AS_BLOCKS: Final = 'The file is a JSON array of blocks, each with its words under "text".'
_HEAD: Final = re.compile(
    rf"{OPENING}\nToo long to show here: ([\d,]+) characters, [\d,]+ lines?\."
    r" The whole result is in\n([^\n]+)\n"
)


class Pointer(msgspec.Struct, frozen=True):
    """What an envelope points to."""

    characters: int
    path: str


def envelope(text: str, path: Path, how: str, preview: int, *, with_tail: bool = False) -> str:
    """The envelope of a text that is in this file whole, showing at most `preview` bytes of it.

    `with_tail` spends half of them on the end, where a command that failed says why.
    """
    parts = [
        OPENING,
        f"Too long to show here: {len(text):,} characters, {_lines(text)}. The whole result is in",
        whole_characters(str(path)),
    ]
    if path.suffix == BLOCKS:
        parts.append(_AS_BLOCKS)
    if how:
        parts.append(how)
    if preview:
        parts += ["", *(_both_ends if with_tail else _beginning)(text, preview)]
    return "\n".join([*parts, CLOSING])


def recognised(text: str) -> Pointer | None:
    """What this text points to, if it looks like one of our envelopes.

    Anyone can write such a text: ask the store whether the path is one of its own.
    """
    if not text.startswith(OPENING) or not text.endswith("\n" + CLOSING):
        return None
    found = _HEAD.match(text)
    return Pointer(int(found[1].replace(",", "")), found[2]) if found else None


def without_middle(text: str, budget: int, why: str) -> str:
    """Both ends of a text that is too long for any window and could not be kept either."""
    head, tail = head_of(text, budget // 2), tail_of(text, budget // 2)
    gone = len(text) - len(head) - len(tail)
    return (
        f"{head}\n[… {gone:,} characters are missing here: the result is too long to show whole,"
        f" and {why} …]\n{tail}"
    )


def head_of(text: str, budget: int) -> str:
    """The first bytes as whole characters, up to a line's end if one is past half-way."""
    data = text[:budget].encode("utf-8", "replace")
    if len(text) <= budget and len(data) <= budget:
        return data.decode("utf-8")
    data = data[:budget]
    end = data.rfind(b"\n")
    return (data[:end] if end > budget // 2 else data).decode("utf-8", "ignore")


def tail_of(text: str, budget: int) -> str:
    """The last bytes as whole characters, from a line's beginning if one is before half-way."""
    if budget <= 0:
        return ""
    data = text[-budget:].encode("utf-8", "replace")
    if len(text) <= budget and len(data) <= budget:
        return data.decode("utf-8")
    data = data[-budget:]
    start = data.find(b"\n", 0, budget // 2)
    return data[start + 1 :].decode("utf-8", "ignore")


def _beginning(text: str, preview: int) -> list[str]:
    head = head_of(text, preview)
    if len(head) == len(text):
        return ["All of it:", _harmless(head)]
    return [_title("first", head, text[len(head)] == "\n"), _harmless(head), "…"]


def _both_ends(text: str, preview: int) -> list[str]:
    head, tail = head_of(text, preview // 2), tail_of(text, preview // 2)
    between = len(text) - len(head) - len(tail)
    if between <= 0:
        return _beginning(text, preview)
    return [
        _title("first", head, text[len(head)] == "\n"),
        _harmless(head),
        f"[… {between:,} characters between …]",
        _title("last", tail, text[-len(tail) - 1] == "\n"),
        _harmless(tail),
    ]


def _title(which: str, part: str, whole_lines: bool) -> str:
    """Says so where the part is whole lines: then the reader knows which line comes next."""
    return f"The {which} {_lines(part)}:" if whole_lines else f"The {which} part:"


def _lines(text: str) -> str:
    n = text.count("\n") + (not text.endswith("\n"))
    return f"{n:,} line{'s' if n != 1 else ''}"


def _harmless(part: str) -> str:
    """Without anything that would end the envelope before its end."""
    return part.replace(CLOSING, CLOSING.replace("/", "\\/"))
