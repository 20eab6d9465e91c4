"""Messages for people, on stderr: what is worth a line while something else is the result."""

from __future__ import annotations

import sys
from typing import Final

from sevenfold.cli.telling import Line, Teller
from sevenfold.cli.wording import printable
from sevenfold.events import Event

_STYLES: Final = {"progress": "\x1b[2m", "info": "\x1b[36m", "warning": "\x1b[33m"}


class Aside:
    """Progress is only for a terminal; a quiet command says only what must not be missed."""

    def __init__(self, *, quiet: bool = False, color: bool = True) -> None:
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()
        self._color = color and self._terminal

    def wants(self, line: Line) -> bool:
        if line.level == "warning":
            return True
        return not self._quiet and (self._terminal or line.level != "progress")

    def say(self, line: Line) -> None:
        if not self.wants(line):
            return
        text = printable(line.text)
        styled = f"{_STYLES[line.level]}{text}\x1b[0m" if self._color else text
        print(styled if self._terminal else f"sevenfold: {text}", file=sys.stderr, flush=True)


class Telling:
    """Subscribe it to a session that is shown nowhere else."""

    def __init__(self, aside: Aside, currency: str = "USD") -> None:
        self._aside, self._teller = aside, Teller(currency)

    def __call__(self, event: Event) -> None:
        for line in self._teller.tell(event):
            self._aside.say(line)
