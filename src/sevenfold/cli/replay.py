"""`sevenfold replay`: the command and its options; the body is in `cli/commands/replay.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from sevenfold.cli.options import SharedOptions, add_shared_options

Paths = Annotated[
    list[Path],
    Argument(
        metavar="PATH...",
        help="Recorded sessions, or folders of them: Sevenfold, Claude Code, Codex or lists of messages; "
        "also gzipped.",
        show_default=False,
    ),
]
PolicyNames = Annotated[
    list[str] | None,
    Option(
        "--policy",
        metavar="NAME|FILE",
        help="append-only, lifetimes, clear-every-10, summarise-at-80, specified, balanced (without this "
        "option), thrifty, or a TOML file. May be given several times.",
    ),
]
Without = Annotated[
    list[str] | None,
    Option(
        "--without",
        metavar="LAYER",
        help="Leave a layer out: tool_results, micro, notes, compaction, keep_warm, extraction, or a flag. "
        "May be given several times; with --compare each is a policy of its own.",
    ),
]
Compare = Annotated[
    bool,
    Option(
        "--compare", help="Policies side by side: those named, or all that we have; append-only always."
    ),
]
PriceModel = Annotated[
    str | None,
    Option(
        "--price",
        metavar="MODEL",
        help="Count with the prices of this model, whatever model a session was with.",
    ),
]
HtmlFile = Annotated[
    Path | None, Option("--html", metavar="FILE", help="Write a report that a browser shows offline.")
]
Host = Annotated[
    Literal["proxy"] | None,
    Option(
        "--as",
        metavar="proxy",
        help="What 'sevenfold proxy' would have done beside the client that was recorded, compared with "
        "nothing.",
    ),
]
Jobs = Annotated[
    int | None,
    Option("--jobs", metavar="N", min=1, help="So many sessions at a time; one for each core without it."),
]


@add_shared_options
def replay(
    shared: SharedOptions,
    paths: Paths,
    policy: PolicyNames = None,
    without: Without = None,
    compare: Compare = False,
    price: PriceModel = None,
    html: HtmlFile = None,
    jobs: Jobs = None,
    host: Host = None,
) -> int:
    """What recorded sessions would have cost and forgotten.

    The recorded words and times go through the layers again, without a key and without a network. What
    cannot be read is said for each file, the rest goes on, and the exit code is 1 then.
    """
    from sevenfold.cli.commands.replay import ReplayOptions, run_replay

    return run_replay(
        shared,
        ReplayOptions(
            paths=tuple(paths),
            policies=tuple(policy or ()),
            without=tuple(without or ()),
            compare=compare,
            price=price,
            html=html,
            jobs=jobs,
            host=host,
        ),
    )
