"""The terminal during a turn: the reply as it is written, one line for each thing that happens.

Markdown that is shown while it is still being written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final

import anyio

from sevenfold.cli.output import (
    EventNarrator,
    SideOutput,
    StatusLine,
    format_call,
    format_duration,
    make_printable,
    to_one_line,
)
from sevenfold.core.events import Asked, Delta, Ended, Event, Progress, Replied, Sending, ToolStarted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, Group, RenderResult
    from rich.live import Live
    from rich.markdown import Markdown
    from rich.segment import Segment

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


def measure_first_block(text: str) -> int:
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


def render_markdown(text: str) -> Markdown:
    from rich.markdown import Markdown

    return Markdown(text, code_theme="ansi_dark", hyperlinks=False)


class MarkdownStream:
    """One reply on its way to the terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tail = ""
        self._begun = False

    def feed(self, text: str) -> None:
        self._tail += make_printable(text)
        while end := measure_first_block(self._tail):
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
        self._console.print(_RenderedLines(self._lines(self._console.options, text)))

    def _lines(self, options: ConsoleOptions, text: str) -> list[list[Segment]]:
        """The block without the empty lines that some kinds have around them."""
        lines = self._console.render_lines(render_markdown(text), options, pad=False)
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
        yield _RenderedLines(self._lines(options, self._tail)[-most:])


class _RenderedLines:
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
        text = make_printable(text)
        self._file.write(text)
        self._file.flush()
        self._last = text[-1:] or self._last

    def finish(self) -> None:
        if self._last and self._last != "\n":
            self._file.write("\n")
            self._file.flush()
        self._last = ""


TICK: Final = 0.1
ASIDE: Final = frozenset({"dream", "Dreaming", "Extraction", "NotesKeeping"})
"""Work that goes on beside the turn: the footer tells of it."""
_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def make_console(no_color: bool) -> tuple[Console, bool]:
    """Where replies go, and whether drawing makes no sense there."""
    from rich.console import Console

    out = Console(highlight=False, no_color=no_color or None)
    return out, out.no_color or not out.is_terminal or out.is_dumb_terminal


class Screen:
    """Subscribe it to a session. `out` has the reply; what is said beside it goes to `aside`."""

    def __init__(
        self,
        out: Console,
        aside: SideOutput,
        *,
        plain: bool = False,
        quiet: bool = False,
        footer: Callable[[], str] = str,
        chat: bool = False,
    ) -> None:
        self._out, self._aside, self._draws = out, aside, not plain and not quiet
        self._footer = footer
        self._teller = EventNarrator(chat=chat)
        self._stream = PlainStream(out) if plain else MarkdownStream(out)
        self._live: Live | None = None
        self._began = self._drawn_at = 0.0
        self._doing, self._work = "", "working"
        self._streamed = False
        self._waiting: list[Event] | None = None

    def __call__(self, event: Event) -> None:
        if self._waiting is not None:
            self._waiting.append(event)
        else:
            self._take(event)

    def _take(self, event: Event) -> None:
        self._draw(event)
        for line in self._teller.tell(event):
            self.say(line)
        if not self._teller.running and not isinstance(event, Progress | Delta | Sending):
            self._doing = ""

    def _draw(self, event: Event) -> None:
        match event:
            case Asked():
                self._start()
            case Delta(text):
                self._streamed = True
                self._stream.feed(text)
                if monotonic() - self._drawn_at > TICK:  # in case nothing else lets the clock tick
                    self.tick()
            case Replied(message, source="main"):
                self._replied(message.text)
            case ToolStarted(use):
                self._stream.finish()
                self._doing = format_call(use, 60)
            case Progress(by, said, done) if by not in ASIDE:
                self._doing = "" if done else to_one_line(f"{by}: {said}", 60)
            case Ended():
                self._stop()

    def _replied(self, text: str) -> None:
        if not self._streamed and text.strip():  # a model that does not stream
            self._stream.feed(text)
        self._stream.finish()
        self._streamed = False

    def show_again(self, text: str) -> None:
        """A reply of an earlier time, as it was shown then."""
        self._stream.feed(text)
        self._stream.finish()

    def speaks_of(self, currency: str) -> None:
        self._teller.currency = currency

    def say(self, line: StatusLine) -> None:
        """A line beside the reply, which is interrupted for it at a line end."""
        if not self._aside.wants(line):
            return
        self._stream.finish()
        with self.paused():
            self._aside.say(line)

    # --- what is drawn again and again ------------------------------------------------------------------

    def _start(self) -> None:
        self._began = monotonic()
        if self._draws:
            self._live = self._started_live()

    def _started_live(self) -> Live:
        """A new one each time: one that was stopped remembers lines which are no longer its own."""
        from rich.live import Live

        live = Live(
            self._drawing(),
            console=self._out,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        live.start(refresh=True)
        return live

    def _stop(self) -> None:
        self._stream.finish()
        if self._live is not None:
            self._live.stop()
        self._live, self._doing = None, ""
        self._teller.running.clear()

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """While something other than a turn is going on."""
        self._work = what
        self._start()
        try:
            yield
        finally:
            self._stop()
            self._work = "working"

    def tick(self) -> None:
        """Draw again."""
        if self._live is not None:
            self._drawn_at = monotonic()
            self._live.update(self._drawing(), refresh=True)

    async def keep_drawing(self) -> None:
        while True:
            await anyio.sleep(TICK)
            self.tick()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The terminal as it was, for somebody else to write on."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()
        try:
            yield
        finally:
            if live is not None:
                self._live = self._started_live()

    @contextmanager
    def given_up(self) -> Iterator[None]:
        """For a question: what happens meanwhile is shown when it is answered."""
        with self.paused():
            self._stream.finish()
            self._waiting = []
            try:
                yield
            finally:
                waiting, self._waiting = self._waiting, None
        for event in waiting:
            self._take(event)

    def _drawing(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        took = monotonic() - self._began
        sign = _SPINNER[int(took / TICK) % len(_SPINNER)]
        lines = [
            f"{sign} {self._doing or self._work} {format_duration(took)} · Ctrl-C stops",
            self._footer(),
        ]
        status = [Text(line, "dim", no_wrap=True, overflow="ellipsis") for line in lines if line]
        reply = [self._stream] if isinstance(self._stream, MarkdownStream) else []
        return Group(*reply, *status)
