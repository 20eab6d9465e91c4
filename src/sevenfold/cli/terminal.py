"""The terminal during a turn: Markdown replies as they are written, and one line for each event."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
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
from sevenfold.cli.themes import DEFAULT_THEME, THEMES, Theme
from sevenfold.core.events import (
    Asked,
    Delta,
    Ended,
    Event,
    Progress,
    Replied,
    Retrying,
    Sending,
    ToolStarted,
)
from sevenfold.layers.l3_session_memory.notes_update import NotesUpdater
from sevenfold.layers.l5_durable_memory.extraction import EARLIER, Extraction, LateExtraction
from sevenfold.layers.l6_dreaming.dreaming import Dreaming

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, Group, RenderResult
    from rich.live import Live
    from rich.markdown import Markdown
    from rich.segment import Segment

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


def measure_first_block(text: str) -> int:
    """The length up to a blank line outside of code fences that nothing indented follows; 0: not yet."""
    at = 0
    fence, begun, blank = "", False, False
    for line in text.splitlines(keepends=True):
        if not fence and blank and not line[0].isspace():
            return at
        fence = _find_open_fence(fence, line)
        blank = begun and not line.strip()
        begun = begun or bool(line.strip())
        at += len(line)
    return 0


def _find_open_fence(fence: str, line: str) -> str:
    """The fence that is open after this line, if one is."""
    found = _FENCE.match(line)
    if found is None:
        return fence
    mark, rest = found.groups()
    if not fence:
        return str(mark)
    closes = mark[0] == fence[0] and len(mark) >= len(fence) and not rest.strip()
    return "" if closes else fence


def render_markdown(text: str, code_theme: str) -> Markdown:
    from rich.markdown import Markdown

    return Markdown(text, code_theme=code_theme, hyperlinks=False)


class MarkdownStream:
    """One reply on its way to the terminal."""

    def __init__(self, console: Console, code_theme: str = THEMES[DEFAULT_THEME].code) -> None:
        self._console, self._code_theme = console, code_theme
        self._tail = ""
        self._begun = False

    @property
    def is_open(self) -> bool:
        """Never: the paragraph that is being written is only drawn, so a line can be printed above it."""
        return False

    def feed(self, text: str) -> None:
        self._tail += make_printable(text)
        while end := measure_first_block(self._tail):
            self._print_block(self._tail[:end])
            self._tail = self._tail[end:]

    def finish(self) -> None:
        """Print what is left and be ready for the next reply."""
        if self._tail.strip():
            self._print_block(self._tail)
        self._tail, self._begun = "", False

    def _print_block(self, text: str) -> None:
        if self._begun:
            self._console.print()
        self._begun = True
        self._console.print(_RenderedLines(self._render_block(self._console.options, text)))

    def _render_block(self, options: ConsoleOptions, text: str) -> list[list[Segment]]:
        """The block without the empty lines that some kinds have around them."""
        lines = self._console.render_lines(render_markdown(text, self._code_theme), options, pad=False)
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
        yield _RenderedLines(self._render_block(options, self._tail)[-most:])


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
    """One reply as plain text, for output without colour or terminal; at a terminal it breaks at words."""

    def __init__(self, console: Console) -> None:
        self._console, self._file = console, console.file
        self._line, self._blanks, self._word, self._fence = "", "", "", ""
        self._used = 0  # Columns of the current row
        self._last = ""

    @property
    def is_open(self) -> bool:
        """True while the reply is not complete: what is printed now would split it."""
        return bool(self._last)

    def feed(self, text: str) -> None:
        text = make_printable(text)
        if self._console.is_terminal:
            for piece in re.findall(r"\n|[^\S\n]+|\S+", text):
                self._add(piece)
        else:
            self._file.write(text)
        self._file.flush()
        self._last = text[-1:] or self._last

    def _add(self, piece: str) -> None:
        """A word is written when it is complete."""
        if not piece.isspace():
            self._word += piece
            return
        self._write_word()
        if piece == "\n":
            self._file.write("\n")
            self._fence = _find_open_fence(self._fence, self._line)
            self._line, self._blanks, self._used = "", "", 0
        else:
            self._blanks += piece

    def _write_word(self) -> None:
        from rich.cells import cell_len

        text = self._blanks + self._word
        fits = self._used + cell_len(text) < self._console.width
        if self._word and self._used and not fits and not self._fence:
            self._file.write("\n")
            self._used, text = 0, self._word
        self._file.write(text)
        self._used += cell_len(text)
        self._line += text
        self._blanks = self._word = ""

    def finish(self) -> None:
        self._write_word()
        if self._last and self._last != "\n":
            self._file.write("\n")
        self._file.flush()
        self._line = self._last = self._fence = ""
        self._used = 0


TICK: Final = 0.1
DREAM: Final = "dream"
# The names that people are shown for background work, by the label of its layer
TASK_NAMES: Final = {
    Dreaming.label: DREAM,
    Extraction.label: "extraction",
    LateExtraction.label: "extraction",
    EARLIER: "extraction",
    NotesUpdater.label: "notes",
}
ASIDE: Final = frozenset({*TASK_NAMES, DREAM})  # Background work, whose progress is in the footer
_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def make_console(no_color: bool, theme: Theme = THEMES[DEFAULT_THEME]) -> tuple[Console, bool]:
    """The console for replies, and True if it cannot be drawn on."""
    from rich.console import Console
    from rich.theme import Theme as RichTheme

    styles = RichTheme({**theme.markdown}) if theme.markdown else None
    out = Console(highlight=False, no_color=no_color or theme.plain or None, theme=styles)
    return out, out.no_color or not out.is_terminal or out.is_dumb_terminal


class Screen:
    """Shows the events of a session: replies go to `out`, status lines to `aside`."""

    def __init__(
        self,
        out: Console,
        aside: SideOutput,
        *,
        plain: bool = False,
        quiet: bool = False,
        footer: Callable[[], str] = str,
        chat: bool = False,
        theme: Theme = THEMES[DEFAULT_THEME],
        write: Callable[[Callable[[], None]], object] = lambda print_line: print_line(),
    ) -> None:
        """`write` is called with a function that prints a line, and says when that may run."""
        self._out, self._aside, self._draws = out, aside, not plain and not quiet
        self._footer, self._write = footer, write
        self._narrator = EventNarrator(chat=chat)
        self._stream = PlainStream(out) if plain else MarkdownStream(out, theme.code)
        self._live: Live | None = None
        self._began = self._drawn_at = 0.0
        self._doing, self._work = "", "working"
        self._streamed = False
        self._delayed: list[Event] | None = None
        self._held: list[StatusLine] = []  # Lines that wait for the end of the reply

    def __call__(self, event: Event) -> None:
        if self._delayed is not None:
            self._delayed.append(event)
        else:
            self._show_event(event)

    def _show_event(self, event: Event) -> None:
        self._draw(event)
        for line in self._narrator.describe_event(event):
            self.say(line)
        if not self._narrator.running and not isinstance(event, Progress | Delta | Sending):
            self._doing = ""

    def _draw(self, event: Event) -> None:
        match event:
            case Asked():
                self._start()
            case Delta(text):
                self._streamed = True
                self._stream.feed(text)
                if monotonic() - self._drawn_at > TICK:  # in case nothing else lets the clock tick
                    self.redraw()
            case Replied(message, source="main"):
                self._finish_reply(message.text)
            case Retrying(beside=False):  # the reply begins anew
                self._finish_stream()
            case ToolStarted(use):
                self._finish_stream()
                self._doing = format_call(use, 60)
            case Progress(by, said, done) if by not in ASIDE:
                self._doing = "" if done else to_one_line(f"{by}: {said}", 60)
            case Ended():
                self._stop()

    def _finish_reply(self, text: str) -> None:
        if not self._streamed and text.strip():  # a model that does not stream
            self._stream.feed(text)
        self._finish_stream()
        self._streamed = False

    def _finish_stream(self) -> None:
        """End the reply, and print the lines that waited for its end."""
        self._stream.finish()
        held, self._held = self._held, []
        for line in held:
            self.say(line)

    def show_earlier_reply(self, text: str) -> None:
        """Show a reply of an earlier time as it was shown then."""
        self._stream.feed(text)
        self._stream.finish()

    def set_currency(self, currency: str) -> None:
        self._narrator.currency = currency

    def say(self, line: StatusLine) -> None:
        """Print a status line, never in the middle of a paragraph of the reply."""
        if not self._aside.is_shown(line):
            return
        if self._stream.is_open:
            self._held.append(line)
        else:
            self._write(partial(self._print_line, line))

    def _print_line(self, line: StatusLine) -> None:
        with self.pause():
            self._aside.say(line)

    def _start(self) -> None:
        self._began = monotonic()
        if self._draws:
            self._live = self._start_live()

    def _start_live(self) -> Live:
        """A new one each time: one that was stopped remembers lines which are no longer its own."""
        from rich.live import Live

        live = Live(
            self._make_drawing(),
            console=self._out,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        live.start(refresh=True)
        return live

    def _stop(self) -> None:
        self._finish_stream()
        if self._live is not None:
            self._live.stop()
        self._live, self._doing = None, ""
        self._narrator.running.clear()

    @contextmanager
    def show_work(self, what: str) -> Iterator[None]:
        """Show that something other than a turn is going on."""
        self._work = what
        self._start()
        try:
            yield
        finally:
            self._stop()
            self._work = "working"

    def redraw(self) -> None:
        if self._live is not None:
            self._drawn_at = monotonic()
            self._live.update(self._make_drawing(), refresh=True)

    async def keep_drawing(self) -> None:
        while True:
            await anyio.sleep(TICK)
            self.redraw()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Stop drawing while other code writes to the terminal."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()
        try:
            yield
        finally:
            if live is not None:
                self._live = self._start_live()

    @contextmanager
    def pause_for_question(self) -> Iterator[None]:
        """Stop drawing; events of the meantime are shown when the question is answered."""
        with self.pause():
            self._finish_stream()
            self._delayed = []
            try:
                yield
            finally:
                waiting, self._delayed = self._delayed, None
        for event in waiting:
            self._show_event(event)

    def _make_drawing(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        took = monotonic() - self._began
        sign = _SPINNER[int(took / TICK) % len(_SPINNER)]
        lines = [
            f"{sign} {self._doing or self._work} {format_duration(took)} · Ctrl-C stops",
            *self._footer().split("\n"),
        ]
        status = [
            Text.from_ansi(line, style="dim", no_wrap=True, overflow="ellipsis") for line in lines if line
        ]
        reply = [self._stream] if isinstance(self._stream, MarkdownStream) else []
        return Group(*reply, *status)
