"""The line that is typed: history, keys, and the footer below it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth

from sevenfold.cli.background_tasks import tasks_of
from sevenfold.cli.wording import count, money, percent, tokens
from sevenfold.errors import StorageFailure
from sevenfold.storage.files import make_private_dir, write_new

if TYPE_CHECKING:
    from prompt_toolkit.history import History as AnyHistory

    from sevenfold.session import Session

REFRESH: Final = 1.0
"""Seconds between looks at what goes on in the background."""


class History(FileHistory):
    """`<home>/history`, for this user's eyes; a disk that refuses costs the history and nothing else."""

    @classmethod
    def of(cls, home: Path) -> AnyHistory:
        path = home / "history"
        try:
            make_private_dir(home)
            write_new(path, b"")
        except StorageFailure:
            return InMemoryHistory()
        return cls(str(path))

    def store_string(self, string: str) -> None:
        with contextlib.suppress(OSError):
            super().store_string(string)


def footer(session: Session, currency: str = "USD") -> str:
    """Model, use of the window, money, cache, background: one line."""
    pressure, ledger = session.turn.pressure(), session.ledger
    total = ledger.total
    parts = [
        session.model.name,
        f"{percent(pressure.share)} of {tokens(pressure.window)}",
    ]
    if any(line.cost is not None for line in ledger.lines):
        parts.append(money(total.cost, currency))
    used = total.usage
    if session.model.capabilities.caches_prompts and (used.cache_read or used.cache_write):
        parts.append(f"cache {percent(total.usage.hit_rate)}")
    if running := tasks_of(session):
        shown = ", ".join(
            f"{one.name} ({one.said})" if one.said else one.name for one in running[:3]
        )
        parts.append(f"{count(len(running), 'task')} in the background: {shown}")
    return " · ".join(parts)


def line_editor(
    history: AnyHistory | None, foot: Callable[[], str], plain: bool
) -> PromptSession[str]:
    """Enter sends, Esc and Enter begin a new line, pasted lines stay together.

    Without a history it is for questions: one line, and nothing is brought back.
    """
    return PromptSession(
        history=history or InMemoryHistory(),
        key_bindings=_keys() if history is not None else None,
        multiline=history is not None,
        bottom_toolbar=lambda: foot() or None,
        refresh_interval=REFRESH,
        enable_history_search=False,
        color_depth=ColorDepth.DEPTH_1_BIT if plain else None,
    )


def _keys() -> KeyBindings:
    keys = KeyBindings()

    def empty() -> bool:
        from prompt_toolkit.application import get_app

        return not get_app().current_buffer.text

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("escape", filter=Condition(empty))
    def last_words(event: KeyPressEvent) -> None:
        event.current_buffer.history_backward()

    return keys
