"""`sevenfold fleet`: one memory for many machines, in a PostgreSQL database."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option, Typer

from sevenfold.cli.options import PLAIN, SharedOptions, add_shared_options

fleet = Typer(
    name="fleet",
    help="One memory for many machines, in a PostgreSQL database. Without a command: status.",
    **PLAIN,
)
Address = Annotated[
    str | None,
    Argument(
        metavar="URL",
        help="The database; without it SEVENFOLD_FLEET_URL. It is never kept on this machine.",
    ),
]
TenantName = Annotated[str, Option("--tenant", metavar="NAME", help="The tenant, if there are several.")]
SpaceName = Annotated[
    str | None,
    Option("--space", metavar="NAME", help="The project's name in the fleet; as a rule its git remote."),
]
Times = Annotated[int | None, Option("--jobs", metavar="N", help="End after so many jobs.")]
Kinds = Annotated[
    str,
    Option(
        "--kinds",
        metavar="LIST",
        help="The kinds of jobs to take, such as 'dream,extract'. Extractions ask a model, which may cost.",
    ),
]
ModelName = Annotated[str | None, Option("--model", metavar="NAME", help="The model for extractions.")]
Limit = Annotated[str, Argument(metavar="AMOUNT", help="The most that jobs may cost in a day, or 'none'.")]
Now = Annotated[
    bool, Option("--now", help="Do not ask the database: what it alone has, and what waits here, stays so.")
]
Once = Annotated[bool, Option("--once", help="Do what waits now, and end.")]


@fleet.command("init")
@add_shared_options
def init(shared: SharedOptions, url: Address = None, tenant: TenantName = "default") -> int:
    """Make a fleet in a database, and a tenant for this login."""
    from sevenfold.cli.commands.fleet import run_init

    return run_init(shared, url, tenant)


@fleet.command("join")
@add_shared_options
def join(
    shared: SharedOptions, url: Address = None, tenant: TenantName = "", space: SpaceName = None
) -> int:
    """Make this project a replica. What it has and what the fleet has become one."""
    from sevenfold.cli.commands.fleet import run_join

    return run_join(shared, url, tenant, space)


@fleet.command("status")
@add_shared_options
def status(shared: SharedOptions) -> int:
    """Read what is new; show machines, jobs, spending and what waits."""
    from sevenfold.cli.commands.fleet import show_status

    return show_status(shared)


@fleet.command("migrate")
@add_shared_options
def migrate(shared: SharedOptions, url: Address = None) -> int:
    """Bring the tables of a fleet up to date."""
    from sevenfold.cli.commands.fleet import run_migrate

    return run_migrate(shared, url)


@fleet.command("work")
@add_shared_options
def work(
    shared: SharedOptions,
    once: Once = False,
    jobs: Times = None,
    kinds: Kinds = "dream",
    model: ModelName = None,
) -> int:
    """Take jobs of the fleet, one by one: dreams, extractions."""
    from sevenfold.cli.commands.fleet import run_work

    return run_work(shared, once, jobs, kinds, model)


@fleet.command("limit")
@add_shared_options
def limit(shared: SharedOptions, amount: Limit) -> int:
    """Set what all workers of the tenant together may spend in a day."""
    from sevenfold.cli.commands.fleet import set_limit

    return set_limit(shared, amount)


@fleet.command("leave")
@add_shared_options
def leave(shared: SharedOptions, now: Now = False) -> int:
    """Leave the fleet. The memories stay here as plain files, with their history."""
    from sevenfold.cli.commands.fleet import run_leave

    return run_leave(shared, now)
