"""`sevenfold dream`: the commands and their options; the bodies are in `cli/commands/`."""

from __future__ import annotations

from typing import Annotated

from typer import Option, Typer

from sevenfold.cli.options import PLAIN, ModelName, SharedOptions, add_shared_options

dream = Typer(
    name="dream",
    help="Put the memories of this project in order. Without a command: run; 'sevenfold dream run --help' "
    "has its options.",
    **PLAIN,
)
Now = Annotated[bool, Option("--now", help="Whatever the gates say: also when it is too early.")]
Preview = Annotated[bool, Option("--dry-run", help="Show what would change, and change nothing.")]
Review = Annotated[
    bool,
    Option(
        "--review",
        help="Show what would change and ask before it is saved: now, or whenever this is said again.",
    ),
]


@dream.command("run")
@add_shared_options
def run(
    shared: SharedOptions,
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
    from sevenfold.cli.commands.dream import run_dream as work

    return work(shared, now=now, dry_run=dry_run, review=review, model=model)


@dream.command("status")
@add_shared_options
def status(shared: SharedOptions) -> int:
    """What the dream of now does, and how the last one ended. Also why none begins by itself."""
    from sevenfold.cli.commands.dream_display import show_status as work

    return work(shared)


@dream.command("kill")
@add_shared_options
def kill(shared: SharedOptions) -> int:
    """Stop the dream that goes on, wherever it does. The memories stay as they were."""
    from sevenfold.cli.commands.dream_display import kill_dream as work

    return work(shared)


@dream.command("undo")
@add_shared_options
def undo(shared: SharedOptions) -> int:
    """Take the last dream back; what was written since stays."""
    from sevenfold.cli.commands.dream_display import run_undo as work

    return work(shared)
