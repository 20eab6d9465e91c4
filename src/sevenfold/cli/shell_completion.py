"""Completion in the user's shell: what stands behind `sevenfold --install-completion`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from sevenfold.cli.startup import CommandContext


def _read_context(ctx: typer.Context) -> CommandContext:
    from sevenfold.cli.options import SharedOptions
    from sevenfold.cli.startup import read_command_context

    home, project = ctx.params.get("home"), ctx.params.get("project")
    return read_command_context(SharedOptions(home=home, project=project or Path()))


def _describe(text: str) -> str:
    """A text of the user as a remark beside a completion, where brackets would be taken for markup."""
    from sevenfold.cli.output import to_one_line

    return to_one_line(text.translate({ord("["): "(", ord("]"): ")"}), 60)


def complete_session(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """The ids of the project's sessions, with their titles."""
    from sevenfold.core.errors import SevenfoldError
    from sevenfold.storage.places import list_sessions

    try:
        known = list_sessions(_read_context(ctx).find_session_places())
    except SevenfoldError:  # there is nothing to offer; the command itself says why
        return
    yield from ((one.id, _describe(one.title)) for one in known if one.id.startswith(incomplete))


def complete_model(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    from sevenfold.cache.prices import Prices
    from sevenfold.models.capabilities import list_model_names

    names = list_model_names(price.model for price in Prices.load())
    return (name for name in names if name.startswith(incomplete))


def complete_memory(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """The names of the project's memories, with their descriptions."""
    from sevenfold.core.errors import SevenfoldError
    from sevenfold.memory.store import Memory

    try:
        shared = _read_context(ctx)
        with Memory.open(shared.start, home=shared.home) as memory:
            topics = memory.topics()
    except SevenfoldError:
        return
    yield from ((one.name, _describe(one.description)) for one in topics if one.name.startswith(incomplete))
