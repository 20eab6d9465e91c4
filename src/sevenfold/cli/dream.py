"""`sevenfold dream`: the commands and their options. What each does is in the module it names."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import typer

from sevenfold.cli.options import ModelName, Shared, shared

_PLAIN: Final[dict[str, Any]] = {
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
dream = typer.Typer(
    name="dream",
    help="Put the memories of this project in order. Without a command: run; 'sevenfold dream run --help' "
    "has its options.",
    **_PLAIN,
)
Now: TypeAlias = Annotated[
    bool, typer.Option("--now", help="Whatever the gates say: also when it is too early.")
]
Preview: TypeAlias = Annotated[
    bool,
    typer.Option("--dry-run", help="Show what would change, and change nothing."),
]
Review: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--review",
        help="Show what would change and ask before it is saved: now, or whenever this is said again.",
    ),
]


@dream.command("run")
@shared
def run(
    shared: Shared,
    now: Now = False,
    dry_run: Preview = False,
    review: Review = False,
    model: ModelName = None,
) -> int:
    """Merge what says the same, and settle what was superseded.

    It also dates, archives and mends the index. It happens by itself once in 24 hours and 5 sessions. A
    fact is gone only when another file says it, or a newer one took its place; 'undo' takes all of it
    back. Without a key it goes by rules alone.
    """
    from sevenfold.cli.commands.dream import run as work

    return work(shared, now=now, dry_run=dry_run, review=review, model=model)


@dream.command("status")
@shared
def status(shared: Shared) -> int:
    """What the dream of now does, and how the last one ended. Also why none begins by itself."""
    from sevenfold.cli.commands.dream_show import status as work

    return work(shared)


@dream.command("kill")
@shared
def kill(shared: Shared) -> int:
    """Stop the dream that goes on, wherever it does. The memories stay as they were."""
    from sevenfold.cli.commands.dream_show import kill as work

    return work(shared)


@dream.command("undo")
@shared
def undo(shared: Shared) -> int:
    """Take the last dream back; what was written since stays."""
    from sevenfold.cli.commands.dream_show import undo as work

    return work(shared)
