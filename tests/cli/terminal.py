"""A terminal with a program in it: type, read what it shows, with time to spare."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

PATIENCE = 40.0
WIDTH = 300  # Paths of tests are long: a sentence with one should stand on one line
KIND = "xterm-256color"
PROMPT = "›"
ENTER, ESCAPE, CTRL_C, CTRL_D = "\r", "\x1b", "\x03", "\x04"
TAB, SHIFT_TAB, CTRL_R, CTRL_V, BACKSPACE = "\t", "\x1b[Z", "\x12", "\x16", "\x7f"
UP, DOWN = "\x1b[A", "\x1b[B"
_CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[()].|[=>NOM78]|\][^\x07]*\x07)")


def plain(text: str) -> str:
    """What a person would read, without colours and moves of the cursor."""
    return _CONTROL.sub("", text).replace("\r", "")


class Glass:
    """What stands on the screen and has scrolled away: as much of a terminal as our programs use."""

    def __init__(self, width: int) -> None:
        self.rows: list[list[str]] = [[]]
        self._width, self._x, self._y = width, 0, 0

    @property
    def text(self) -> str:
        return "\n".join("".join(row).rstrip() for row in self.rows)

    def show(self, data: str) -> None:
        at = 0
        while at < len(data):
            if data[at] == "\x1b":
                found = _CONTROL.match(data, at)
                if found is None:
                    at += 1
                    continue
                self._control(found.group())
                at = found.end()
                continue
            self._character(data[at])
            at += 1

    def _character(self, char: str) -> None:
        if char == "\r":
            self._x = 0
        elif char == "\n":
            self._down()
        elif char == "\b":
            self._x = max(0, self._x - 1)
        elif char >= " ":
            if self._x >= self._width:
                self._x = 0
                self._down()
            row = self.rows[self._y]
            row.extend(" " * (self._x + 1 - len(row)))
            row[self._x] = char
            self._x += 1

    def _down(self) -> None:
        self._y += 1
        if self._y == len(self.rows):
            self.rows.append([])

    def _control(self, sequence: str) -> None:
        if not sequence.startswith("\x1b[") or sequence[2:3] == "?":
            return
        kind, digits = sequence[-1], sequence[2:-1].split(";")[0]
        number = int(digits) if digits.isdigit() else 0
        if kind == "A":
            self._y = max(0, self._y - max(1, number))
        elif kind == "B":
            for _ in range(max(1, number)):
                self._down()
        elif kind == "C":
            self._x += max(1, number)
        elif kind == "D":
            self._x = max(0, self._x - max(1, number))
        elif kind == "G":
            self._x = max(0, number - 1)
        elif kind == "K":
            row = self.rows[self._y]
            del row[0 if number == 2 else self._x :]
        elif kind == "J" and number == 0:
            del self.rows[self._y][self._x :]
            del self.rows[self._y + 1 :]


def _name_model(words: Sequence[str], env: dict[str, str]) -> Sequence[str]:
    """A chat without a key begins with the offer of models, which most tests are not about."""
    chats = not words or words[0] == "chat" or words[0].startswith("-")
    named = {"--model", "--resume", "--continue"}.intersection(words) or "ANTHROPIC_API_KEY" in env
    return words if named or not chats else [*words, "--model", "offline"]


class Terminal:
    """Runs `sevenfold` with a pseudo-terminal of its own as its controlling terminal."""

    def __init__(
        self,
        words: Sequence[str],
        env: dict[str, str],
        cwd: Path,
        columns: int = WIDTH,
        kind: str = KIND,
        *,
        offers_models: bool = False,
    ) -> None:
        self._columns = columns
        if not offers_models:
            words = _name_model(words, env)
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sevenfold", *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**env, "TERM": kind},
            cwd=cwd,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.raw = ""
        self._read_up_to = 0

    @property
    def text(self) -> str:
        return plain(self.raw)

    @property
    def screen(self) -> str:
        """What can be seen now, with what has scrolled away above it."""
        glass = Glass(self._columns)
        glass.show(self.raw)
        return glass.text

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def line(self, text: str) -> None:
        self.press(text + ENTER)

    def wait_for(self, *wanted: str) -> str:
        """Read until these have been shown, in this order, since the last call; returns it all."""
        deadline = time.monotonic() + PATIENCE
        while (end := self._end_of(wanted)) is None:
            if time.monotonic() > deadline or not self._read(deadline):
                new = self.text[self._read_up_to :]
                raise AssertionError(f"{wanted} was not shown; instead:\n{new[-3000:]}")
        new = self.text[self._read_up_to : end]
        self._read_up_to = end
        return new

    def wait_until(self, is_shown: Callable[[], bool]) -> None:
        """Read until the screen shows it: a question may be drawn again while a page comes in."""
        deadline = time.monotonic() + PATIENCE
        while not is_shown():
            more = time.monotonic() < deadline and self._read(deadline)
            assert more, f"it was not shown; instead:\n{self.screen[-3000:]}"

    def _end_of(self, wanted: Sequence[str]) -> int | None:
        text, at = self.text, self._read_up_to
        for one in wanted:
            found = text.find(one, at)
            if found < 0:
                return None
            at = found + len(one)
        return at

    def ask(self, text: str, *wanted: str) -> str:
        """Type a line, wait for what it must show and for the next prompt."""
        self.line(text)
        return self.wait_for(text, *wanted, PROMPT)

    def wait_for_end(self) -> int:
        """Read until the program has ended; returns its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):
            assert time.monotonic() < deadline, f"it did not end:\n{self.text[-3000:]}"
        return self.process.wait(PATIENCE)

    def _read(self, deadline: float) -> bool:
        if not select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # how Linux says that nobody has the other end open any more
            return False
        if b"\x1b[6n" in data:  # "where is the cursor?"
            self.press("\x1b[1;1R")
        self.raw += data.decode("utf-8", "replace")
        return bool(data)

    def hang_up(self) -> None:
        """As when the window is closed."""
        if self._master >= 0:
            os.close(self._master)
        self._master = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.hang_up()
