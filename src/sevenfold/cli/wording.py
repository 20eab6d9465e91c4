"""Numbers, moments and tool calls in words short enough for one line of a terminal."""

from __future__ import annotations

import datetime
import re
import unicodedata
from typing import Final

import msgspec

from sevenfold.messages import Image, ToolResult, ToolUse

_MAIN_ARGUMENT: Final = ("file_path", "path", "command", "pattern", "query", "url", "name")
"""What a tool call is mostly about: the first of these that it has."""
_MOVES: Final = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs"})
"""Kinds of characters that can move the cursor, turn the text round or hide something."""


def printable(text: str) -> str:
    """Text that cannot control the terminal it is printed on; line breaks and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in _MOVES else "�" for c in text)


def one_line(text: str, most: int = 100) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def fitted(line: str, columns: int) -> str:
    """A line that a terminal of this width does not have to break; some characters take two columns."""
    from rich.cells import cell_len

    if cell_len(line) <= columns:
        return line
    line = line[:columns]
    while line and cell_len(line) >= columns:
        line = line[:-1]
    return f"{line}…"


def count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def tokens(number: int) -> str:
    """12345 -> 12.3k"""
    if number < 1_000:
        return str(number)
    if number < 999_950:
        short = f"{number / 1_000:.1f}".removesuffix(".0")
        return f"{short}k"
    short = f"{number / 1_000_000:.2f}".rstrip("0").removesuffix(".")
    return f"{short}M"


def amount(number: int) -> str:
    """12345 -> 12.3 kB"""
    for size, unit in ((1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} bytes"


def percent(share: float) -> str:
    if 0 < share < 0.01:
        return "<1%"
    return f"{share:.0%}"


def money(amount: float | None, currency: str = "USD") -> str:
    if amount is None:
        return "no price known"
    sign = "$" if currency == "USD" else f"{currency} "
    return f"{sign}{amount:.2f}" if amount >= 1 or amount == 0 else f"{sign}{amount:.4f}"


def span(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"


def moment(at: float) -> str:
    return datetime.datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")


def call(use: ToolUse, most: int = 100) -> str:
    """`Read src/a.py`"""
    for name in _MAIN_ARGUMENT:
        if isinstance(value := use.input.get(name), str) and value:
            return one_line(f"{use.name} {value}", most)
    rest = msgspec.json.encode(use.input).decode("utf-8") if use.input else ""
    return one_line(f"{use.name} {rest}", most)


def outcome(result: ToolResult) -> str:
    """`120 lines`, or what went wrong."""
    text = result.text.strip()
    if result.is_error:
        return f"failed: {one_line(text, 80)}"
    if not isinstance(result.content, str) and any(isinstance(b, Image) for b in result.content):
        return "an image"
    lines = text.count("\n") + 1 if text else 0
    if lines <= 1:
        return one_line(text, 60) or "nothing"
    return count(lines, "line")


def work_name(name: str) -> str:
    """The name of work in the background, as one says it: LateExtraction is late extraction."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
