"""A list at the terminal from which the user picks one row; typing filters it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import BufferControl, FormattedTextControl, HSplit, Layout, VSplit, Window
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style

from sevenfold.cli.chat.completion import score_match
from sevenfold.cli.output import CommandMenu, MenuRow, fit_line

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples

MOST_SHOWN: Final = 10  # Rows on the screen at a time; fewer on a low one
NARROW: Final = 40  # Columns that a label needs; with fewer, what stands beside it goes below
KEYS: Final = "↑ ↓ choose · type to filter · Enter takes it · Esc leaves"
FEW_KEYS: Final = "↑ ↓ · Enter takes it · Esc leaves"


def _draw_keys() -> StyleAndTextTuples:
    wide = shutil.get_terminal_size().columns > len(KEYS) + 2
    return [("class:about", f"  {KEYS if wide else FEW_KEYS}")]


class RowPicker:
    """Shows the rows of a menu. `run` returns the line of the row that was picked, or nothing."""

    def __init__(self, menu: CommandMenu, *, plain: bool) -> None:
        self._menu, self._rows, self._at, self._top = menu, list(menu.rows), 0, 0
        self._query = Buffer(on_text_changed=lambda _: self._move_to(0), multiline=False)
        self.app: Application[str] = Application(
            layout=self._make_layout(),
            key_bindings=self._make_key_bindings(),
            erase_when_done=True,
            style=Style.from_dict({"chosen": "reverse", "about": "dim" if not plain else ""}),
            color_depth=ColorDepth.DEPTH_1_BIT if plain else None,
        )
        self.app.ttimeoutlen = self.app.timeoutlen = 0.1  # Esc alone leaves at once

    async def run(self) -> str:
        return await self.app.run_async(handle_sigint=False)

    @property
    def _found(self) -> list[MenuRow]:
        if not (query := self._query.text.strip()):
            return self._rows
        scores = [score_match(query.casefold(), f"{r.label} {r.about}".casefold()) for r in self._rows]
        found = sorted((score, at) for at, score in enumerate(scores) if score is not None)
        return [self._rows[at] for _, at in found]

    @property
    def _height(self) -> int:
        lines = 2 if any(row.about or row.beside for row in self._rows) else 1
        return max(1, min(MOST_SHOWN, (shutil.get_terminal_size().lines - 4) // lines))

    def _move_to(self, at: int) -> None:
        self._at = max(0, min(at, len(self._found) - 1))
        self._top = min(max(self._top, self._at - self._height + 1), self._at)

    def _make_layout(self) -> Layout:
        typed = VSplit(
            [
                Window(
                    FormattedTextControl(lambda: f"{self._menu.title}: "), dont_extend_width=True, height=1
                ),
                Window(BufferControl(self._query), height=1),
            ]
        )
        rows = Window(FormattedTextControl(self._draw_rows), dont_extend_height=True, wrap_lines=False)
        keys = Window(FormattedTextControl(_draw_keys), height=1)
        return Layout(HSplit([typed, rows, keys]))

    def _draw_rows(self) -> StyleAndTextTuples:
        columns, found = shutil.get_terminal_size().columns, self._found
        if not found:
            return [("class:about", "  nothing fits; Backspace takes letters back")]
        drawn: StyleAndTextTuples = []
        for at, row in list(enumerate(found))[self._top : self._top + self._height]:
            chosen = at == self._at
            narrow = columns - len(row.beside) < NARROW
            beside = "" if narrow else row.beside
            label = fit_line(f"{'› ' if chosen else '  '}{row.label}", columns - 1 - len(beside))
            drawn.append(("class:chosen" if chosen else "", f"{label}{beside}"))
            below = [row.beside.strip(" ·"), row.about] if narrow else [row.about]
            if about := " · ".join(filter(None, below)):
                drawn.append(("class:about", f"\n{fit_line(f'    {about}', columns - 1)}"))
            drawn.append(("", "\n"))
        more = len(found) - self._top - self._height
        notes = [f"… {more} more" if more > 0 else "", self._menu.note]
        drawn.append(("class:about", fit_line(f"    {' · '.join(filter(None, notes))}", columns - 1)))
        return drawn

    def _make_key_bindings(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("up")
        @keys.add("c-p")
        @keys.add("s-tab")
        def move_up(event: KeyPressEvent) -> None:
            self._move_to(self._at - 1)

        @keys.add("down")
        @keys.add("c-n")
        @keys.add("tab")
        def move_down(event: KeyPressEvent) -> None:
            self._move_to(self._at + 1)

        @keys.add("pagedown")
        def move_page_down(event: KeyPressEvent) -> None:
            self._move_to(self._at + self._height)

        @keys.add("pageup")
        def move_page_up(event: KeyPressEvent) -> None:
            self._move_to(self._at - self._height)

        @keys.add("enter")
        def take(event: KeyPressEvent) -> None:
            found = self._found
            event.app.exit(result=found[self._at].line if found else "")

        @keys.add("escape")
        @keys.add("c-d")
        @keys.add("c-c")
        def leave(event: KeyPressEvent) -> None:
            event.app.exit(result="")

        return keys
