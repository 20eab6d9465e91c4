"""Input at the terminal beside the prompt: keys while a turn runs, Ctrl-C, and questions to the user."""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec

from sevenfold.cli.output import make_printable
from sevenfold.cli.startup import list_changed_lines, list_ignored_settings
from sevenfold.settings.schema import NotificationSettings
from sevenfold.storage.files import make_private_dir, read_if_there, write_atomic

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

ESCAPE: Final = b"\x1b"
SHIFT_TAB: Final = b"\x1b[Z"
_SEQUENCE: Final = r"(?s)\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O.|.)?"  # Arrow keys, marks around pasted text


class KeyListener:
    """Listens to a terminal without showing what is typed. Ctrl-C is still a signal."""

    def __init__(
        self, fd: int, on_escape: Callable[[], object], on_shift_tab: Callable[[], object] = int
    ) -> None:
        self._fd, self._on_escape, self._on_shift_tab = fd, on_escape, on_shift_tab
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._typed = ""
        self._scope: anyio.CancelScope | None = None
        self._may_listen = anyio.Event()
        self._may_listen.set()
        self._paused = anyio.Event()
        self._paused.set()
        self._restore: Callable[[], None] | None = None

    def restore_terminal(self) -> None:
        """Undo the changes to the terminal at once: the process is about to end."""
        if self._restore is not None:
            self._restore()

    def take_typed(self) -> str:
        """The text typed since the last call."""
        text, self._typed = self._typed, ""
        text = re.sub(_SEQUENCE, "", text).replace("\r", "\n")
        return "".join(c for c in text if c == "\n" or c.isprintable()).strip("\n")

    async def listen(self) -> None:
        """Until cancelled, or until the terminal is gone."""
        gone = False
        while not gone:
            await self._may_listen.wait()
            self._paused = anyio.Event()
            try:
                with anyio.CancelScope() as self._scope, disable_echo(self._fd) as self._restore:
                    gone = await self._read_keys()
            finally:
                self._restore = None
                self._paused.set()

    async def _read_keys(self) -> bool:
        """Read until the terminal is gone."""
        while True:
            await anyio.wait_readable(self._fd)
            try:
                data = os.read(self._fd, 4096)
            except OSError:
                return True
            if not data:
                return True
            if data == ESCAPE:
                self._on_escape()
            elif data == SHIFT_TAB:
                self._on_shift_tab()
            else:
                self._typed += self._decode(data)

    @asynccontextmanager
    async def pause(self) -> AsyncIterator[None]:
        """Stop listening while a question is read from the terminal."""
        self._may_listen = anyio.Event()
        if self._scope is not None:
            self._scope.cancel()
        await self._paused.wait()
        try:
            yield
        finally:
            self._may_listen.set()


if sys.platform == "win32":

    @contextmanager
    def disable_echo(fd: int) -> Iterator[Callable[[], None]]:
        yield lambda: None

else:
    import termios
    import tty

    @contextmanager
    def disable_echo(fd: int) -> Iterator[Callable[[], None]]:
        """Deliver each key at once and show none; signals as usual. Yields the function that undoes it."""
        before = termios.tcgetattr(fd)

        def restore() -> None:
            with contextlib.suppress(termios.error):  # the terminal may be gone
                termios.tcsetattr(fd, termios.TCSANOW, before)

        tty.setcbreak(fd, termios.TCSANOW)
        try:
            yield restore
        finally:
            restore()


TWICE: Final = 2.0  # Seconds within which a second Ctrl-C means: leave


class InterruptCounter:
    """Counts Ctrl-C: the first stops what is going on, a second within two seconds leaves."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._last: float | None = None
        self.leaving = False

    def count_interrupt(self) -> bool:
        """Count one more; True if it is the second in a short time."""
        now, last = self._now(), self._last
        self._last = now
        self.leaving = self.leaving or (last is not None and now - last <= TWICE)
        return self.leaving


class TurnSignal:
    """Calls the user when a turn took long, by a bell or a message of the terminal."""

    def __init__(self, settings: NotificationSettings, now: Callable[[], float] = monotonic) -> None:
        self._settings, self._now = settings, now
        self._began = now()

    def begin(self) -> None:
        """A turn begins, or the user has just answered."""
        self._began = self._now()

    def call_user(self, why: str) -> None:
        """Ring if the user has waited for long; `why` is shown where the terminal shows messages."""
        if self._now() - self._began < self._settings.after_seconds or not sys.stdout.isatty():
            return
        signs = {"bell": "\a", "desktop": f"\x1b]9;sevenfold: {make_printable(why)}\a"}
        sys.stdout.write(signs.get(self._settings.how, ""))
        sys.stdout.flush()


_ANSWERS: Final = {"y": True, "yes": True, "n": False, "no": False}


async def ask_choice(prompts: PromptSession[str], text: str, answers: dict[str, Any]) -> Any:
    """Ask until one of the answers is given; None at the end of the input."""
    while True:
        try:
            said = await prompts.prompt_async(text, handle_sigint=False)
        except EOFError:
            return None
        if (word := said.strip().lower()) in answers:
            return answers[word]


class TrustQuestions:
    """The folders whose trust the user was asked about, as they were then: none is asked about twice."""

    def __init__(self, home: Path) -> None:
        self._path = home / "trust-asked.json"

    def has_asked(self, root: Path, changes: Sequence[str]) -> bool:
        return _name_question(root, changes) in self._read_asked()

    def add(self, root: Path, changes: Sequence[str]) -> None:
        make_private_dir(self._path.parent)
        known = {*self._read_asked(), _name_question(root, changes)}
        write_atomic(self._path, msgspec.json.encode(sorted(known)))

    def _read_asked(self) -> list[str]:
        try:
            data = read_if_there(self._path, 10_000_000)
            return msgspec.json.decode(data, type=list[str]) if data else []
        except (msgspec.DecodeError, UnicodeDecodeError):
            return []


def _name_question(root: Path, changes: Sequence[str]) -> str:
    digest = hashlib.sha256("\n".join(changes).encode("utf-8", "surrogateescape")).hexdigest()
    return f"{root} {digest[:16]}"


async def ask_trust(
    prompts: PromptSession[str], root: Path, ignored: tuple[str, ...], tree: Path, changes: Sequence[str]
) -> bool:
    """Default no, also at the end of the input and after Ctrl-C. `changes`: since it was trusted before."""
    if changes:
        listed = "\n".join(list_changed_lines(changes))
        said = f"{root} is not as you trusted it. What came (+) and went (-):\n{listed}\n"
    else:
        listed = "\n".join(f"  {line}" for line in list_ignored_settings(ignored, tree))
        said = f"{root} has settings that could run commands or widen what is allowed:\n{listed}\n"
    print(f"{said}They are ignored unless you trust this folder and everything that is in it.", flush=True)
    try:
        return bool(await ask_choice(prompts, "Trust it? [y/N] ", {**_ANSWERS, "": False}))
    except KeyboardInterrupt:
        return False
