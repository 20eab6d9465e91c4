"""The editor of prompts: its keys, its history, its completion and its colours."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.filters import Condition, has_completions, is_searching
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style

from sevenfold.cli.themes import Theme
from sevenfold.core.errors import StorageFailure
from sevenfold.storage.files import make_private_dir, read_head, write_new

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.formatted_text import AnyFormattedText
    from prompt_toolkit.history import History as AnyHistory

REFRESH: Final = 1.0  # Seconds between updates of the footer
REWIND: Final = "/rewind"  # The line that Esc twice stands for
_PEEK: Final = 1 << 16
Footer: TypeAlias = "Callable[[], AnyFormattedText]"


class InputHistory(FileHistory):
    """`<home>/history`, private to the user; without a writable disk there is no history."""

    @classmethod
    def open(cls, home: Path) -> tuple[AnyHistory, str]:
        """The history, and a message if the file is not used: what another program wrote stays as it is."""
        path = home / "history"
        try:
            make_private_dir(home)
            write_new(path, b"")
            ours = path.is_file() and is_history(read_head(path, _PEEK))
        except (StorageFailure, OSError):
            return InMemoryHistory(), ""
        if not ours:
            left = "it is left as it is, and what you type is not kept; move it away to change that"
            return InMemoryHistory(), f"{path} is no history of ours: {left}"
        return cls(str(path)), ""

    def store_string(self, string: str) -> None:
        with contextlib.suppress(OSError):
            super().store_string(string)


def is_history(head: bytes) -> bool:
    """True for the beginning of a file that `InputHistory` has written."""
    *lines, _ = head.split(b"\n")
    return all(line[:1] in (b"", b"#", b"+") for line in lines) and head[:1] in (b"", b"\n", b"#")


@dataclass(frozen=True, slots=True)
class EditorActions:
    """What keys of the editor do beside editing."""

    cycle_mode: Callable[[], object]
    paste_image: Callable[[], Awaitable[str]]  # Gives the text to insert


def make_line_editor(
    history: AnyHistory, foot: Footer, theme: Theme, actions: EditorActions, completer: Completer
) -> PromptSession[str]:
    """The editor of prompts: Esc and Enter begin a new line, Tab completes, Ctrl-R searches."""
    return PromptSession(
        history=history,
        key_bindings=_make_key_bindings(actions),
        multiline=True,
        completer=completer,
        complete_while_typing=False,
        complete_in_thread=True,
        bottom_toolbar=lambda: foot() or None,
        refresh_interval=REFRESH,
        enable_history_search=False,
        style=Style.from_dict(theme.editor),
        color_depth=ColorDepth.DEPTH_1_BIT if theme.plain else None,
    )


def make_answer_editor(foot: Footer, theme: Theme) -> PromptSession[str]:
    """The editor of one-line answers to our questions; they are not kept."""
    return PromptSession(
        history=InMemoryHistory(),
        bottom_toolbar=lambda: foot() or None,
        refresh_interval=REFRESH,
        style=Style.from_dict(theme.editor),
        color_depth=ColorDepth.DEPTH_1_BIT if theme.plain else None,
    )


def _is_empty() -> bool:
    return not get_app().current_buffer.text


def _has_chosen() -> bool:
    state = get_app().current_buffer.complete_state
    return state is not None and state.current_completion is not None


def _make_key_bindings(actions: EditorActions) -> KeyBindings:
    keys = KeyBindings()
    empty, chosen = Condition(_is_empty), Condition(_has_chosen)

    @keys.add("enter", filter=~is_searching & ~chosen)
    def send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("enter", filter=chosen)
    def take_completion(event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None

    @keys.add("escape", "enter", filter=~is_searching)
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("escape", filter=empty & ~is_searching)
    def last_words(event: KeyPressEvent) -> None:
        event.current_buffer.history_backward()

    @keys.add("escape", "escape", filter=empty & ~is_searching)
    def rewind(event: KeyPressEvent) -> None:
        event.app.exit(result=REWIND)

    @keys.add("escape", "escape", filter=~empty & ~is_searching)
    def clear_line(event: KeyPressEvent) -> None:
        event.current_buffer.append_to_history()  # ↑ brings it back
        event.current_buffer.reset()

    @keys.add("s-tab", filter=~has_completions)
    def cycle_mode(event: KeyPressEvent) -> None:
        actions.cycle_mode()
        event.app.invalidate()

    @keys.add("escape", filter=has_completions & ~is_searching, eager=True)
    def close_menu(event: KeyPressEvent) -> None:
        event.current_buffer.cancel_completion()

    @keys.add("c-v", filter=~is_searching)
    def paste_image(event: KeyPressEvent) -> None:
        async def insert() -> None:
            event.current_buffer.insert_text(await actions.paste_image())

        event.app.create_background_task(insert())

    return keys
