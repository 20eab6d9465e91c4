"""Markdown that is shown while it is still being written.

Blocks that are complete are printed for good; only the last one is drawn again as it grows. So what
scrolls away is final, and nothing flickers, however long the reply.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sevenfold.cli.wording import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.markdown import Markdown
    from rich.segment import Segment

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


def first_block(text: str) -> int:
    """How long the first block is, if it is certain that nothing more belongs to it; 0: not yet.

    A block ends at a blank line outside of code fences, if what follows is not indented.
    """
    at = 0
    fence, begun, blank = "", False, False
    for line in text.splitlines(keepends=True):
        if not fence and blank and not line[0].isspace():
            return at
        fence = _fence_after(fence, line)
        blank = begun and not line.strip()
        begun = begun or bool(line.strip())
        at += len(line)
    return 0


def _fence_after(fence: str, line: str) -> str:
    """The fence that is open after this line, if one is."""
    found = _FENCE.match(line)
    if found is None:
        return fence
    mark, rest = found.groups()
    if not fence:
        return str(mark)
    closes = mark[0] == fence[0] and len(mark) >= len(fence) and not rest.strip()
    return "" if closes else fence


def rendered(text: str) -> Markdown:
    from rich.markdown import Markdown

    return Markdown(text, code_theme="ansi_dark", hyperlinks=False)


class MarkdownStream:
    """One reply on its way to the terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tail = ""
        self._begun = False

    def feed(self, text: str) -> None:
        self._tail += printable(text)
        while end := first_block(self._tail):
            self._print(self._tail[:end])
            self._tail = self._tail[end:]

    def finish(self) -> None:
        """Print what is left and be ready for the next reply."""
        if self._tail.strip():
            self._print(self._tail)
        self._tail, self._begun = "", False

    def _print(self, text: str) -> None:
        if self._begun:
            self._console.print()
        self._begun = True
        self._console.print(_Lines(self._lines(self._console.options, text)))

    def _lines(self, options: ConsoleOptions, text: str) -> list[list[Segment]]:
        """The block without the empty lines that some kinds have around them."""
        lines = self._console.render_lines(rendered(text), options, pad=False)
        full = [i for i, line in enumerate(lines) if "".join(s.text for s in line).strip()]
        return lines[full[0] : full[-1] + 1] if full else []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The unfinished block: as many of its last lines as fit."""
        from rich.segment import Segment

        if not self._tail.strip():
            return
        if self._begun:
            yield Segment.line()
        most = max(1, options.size.height - 4)
        yield _Lines(self._lines(options, self._tail)[-most:])


class _Lines:
    """Lines that are rendered already."""

    def __init__(self, lines: list[list[Segment]]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        for line in self._lines:
            yield from line
            yield Segment.line()


class PlainStream:
    """The same for terminals without colour, and for none: text as it comes."""

    def __init__(self, console: Console) -> None:
        self._file = console.file
        self._last = ""

    def feed(self, text: str) -> None:
        text = printable(text)
        self._file.write(text)
        self._file.flush()
        self._last = text[-1:] or self._last

    def finish(self) -> None:
        if self._last and self._last != "\n":
            self._file.write("\n")
            self._file.flush()
        self._last = ""
