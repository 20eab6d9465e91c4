"""What the commands of `sevenfold fleet` do."""

from __future__ import annotations

import contextlib
import math
import socket
import time

from sevenfold.cli.commands.memory_display import open_memory, resolve_memory_place
from sevenfold.cli.options import SharedOptions
from sevenfold.cli.output import format_count, print_message, print_result, print_warning
from sevenfold.cli.startup import read_command_context
from sevenfold.core.errors import Failure, Mistake
from sevenfold.fleet.database import VARIABLE, FleetAway, FleetDatabase
from sevenfold.fleet.membership import (
    FleetMembership,
    choose_address,
    end_membership,
    find_membership,
    join_fleet,
    make_slug,
)
from sevenfold.fleet.replica import FleetSync, PostgresBackend
from sevenfold.fleet.status import FleetStatus, read_status
from sevenfold.fleet.words import EXTRACT, Learner
from sevenfold.fleet.worker import KINDS, FleetWorker

_PAUSE = 1.0  # Seconds until a worker that found nothing looks again


def _address(shared: SharedOptions, url: str | None) -> str:
    return choose_address(url, read_command_context(shared).environment.fleet_url)


def run_init(shared: SharedOptions, url: str | None, tenant: str) -> int:
    version = FleetDatabase(_address(shared, url)).migrate(tenant)
    print_message(
        shared, f"the fleet is ready; a project comes in with 'sevenfold fleet join' and {VARIABLE} set"
    )
    print_result(shared, "", {"version": version, "tenant": tenant})
    return 0


def run_migrate(shared: SharedOptions, url: str | None) -> int:
    version = FleetDatabase(_address(shared, url)).migrate()
    print_message(shared, f"the tables of the fleet have version {version}")
    print_result(shared, "", {"version": version})
    return 0


def run_join(shared: SharedOptions, url: str | None, tenant: str, space: str | None) -> int:
    around, place = read_command_context(shared), resolve_memory_place(shared)
    address = _address(shared, url)
    with open_memory(shared) as memory:
        memory.claim()
        memory.take_in()
        before = len(memory.listing().topics)
    member = join_fleet(place, address, space or make_slug(around.places.tree), tenant)
    came = _sync_once(shared, before)
    print_message(shared, f"joined {member.slug}: {format_count(came, 'memory', 'memories')} came")
    if not around.environment.fleet_url:
        print_message(shared, f"set {VARIABLE} for what follows: the address is not kept here")
    print_result(shared, "", {**_describe(member), "came": came})
    return 0


def _sync_once(shared: SharedOptions, before: int) -> int:
    with open_memory(shared) as memory:  # which follows the fleet, too: what came is counted in the folder
        backend = memory.backend
        assert isinstance(backend, PostgresBackend)
        try:
            FleetSync(memory, backend).run(
                lambda _: print_message(shared, f"{len(memory.listing().topics) - before:,} memories came")
            )
        except Failure as error:
            print_warning(str(error))
        return len(memory.listing().topics) - before


def _require_member(shared: SharedOptions) -> FleetMembership:
    member = find_membership(resolve_memory_place(shared).state)
    if member is None:
        raise Mistake("this project belongs to no fleet; join one with 'sevenfold fleet join'")
    return member


def _describe(member: FleetMembership) -> dict[str, str]:
    return {"tenant": member.tenant, "space": member.slug, "machine": member.machine}


def show_status(shared: SharedOptions) -> int:
    member = _require_member(shared)
    with open_memory(shared) as memory:
        backend = memory.backend
        assert isinstance(backend, PostgresBackend)
        known: FleetStatus | None = None
        try:
            FleetSync(memory, backend).run()
            known = read_status(backend.memories.database, member.space, member.slug)
        except Failure as error:
            print_warning(str(error))
        waiting = len(backend.outbox.list_waiting())
    here = {**_describe(member), "waiting": waiting}
    lines = [f"{member.slug} in {member.tenant}; {format_count(waiting, 'revision')} of this machine wait"]
    if known is not None:
        lines += _format_status(known)
    print_result(shared, "\n".join(lines), {**here, "fleet": known})
    return 0 if known is not None else 1


def _format_status(known: FleetStatus) -> list[str]:
    lines = [
        f"{format_count(known.memories, 'memory', 'memories')}, "
        f"{format_count(known.revisions, 'revision')}, "
        f"{format_count(known.letters, 'letter')} not taken, {known.spent:.2f} spent on jobs",
        f"{known.spent_today:.2f} spent or reserved today by all workers"
        + ("" if known.daily_limit is None else f", of {known.daily_limit:.2f}"),
    ]
    lines += [
        f"  {one.name}  {one.id}  seen {one.seen_seconds:.0f} s ago, "
        f"{format_count(one.behind, 'change')} behind"
        + (f", {format_count(one.held, 'text')} in quarantine there" if one.held else "")
        for one in known.machines
    ]
    lines += [
        f"  job {one.id}  {one.kind}  {one.state}, {format_count(one.tries, 'try', 'tries')}"
        + (f": {one.problem}" if one.problem else "")
        for one in known.jobs
    ]
    return lines


def run_work(shared: SharedOptions, once: bool, most: int | None, asked: str, model: str | None) -> int:
    around, member = read_command_context(shared), _require_member(shared)
    kinds = [kind.strip() for kind in asked.split(",")]
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise Mistake(f"there are no jobs of the kind {unknown[0]!r}; there are: {', '.join(KINDS)}")
    name = f"{socket.gethostname()}-{member.machine}"
    database = FleetDatabase(_address(shared, None), member.tenant)
    learner = Learner(around.home, model, around.environment.variables) if EXTRACT in kinds else None
    worker = FleetWorker(database, around.home / "fleet" / member.machine, name, learner=learner)
    done = 0
    while most is None or done < most:
        try:
            worker.schedule()
            worker.forget_purged()
            found = sum(worker.work(kind) for kind in kinds)
        except Failure as error:
            if once:
                raise
            print_warning(str(error))
            found = 0
        done += found
        if not found and once:
            break
        if not found:
            time.sleep(_PAUSE)
    print_message(shared, f"did {format_count(done, 'job')}")
    print_result(shared, "", {"jobs": done})
    return 0


def _parse_amount(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= (amount := float(text)) < math.inf:
            return amount
    raise Mistake(f"{text!r} is no amount; give one such as 5.00, or 'none'")


def set_limit(shared: SharedOptions, amount: str) -> int:
    limit = None if amount == "none" else _parse_amount(amount)
    member = _require_member(shared)
    FleetDatabase(_address(shared, None), member.tenant).set_limit(limit)
    said = "any amount" if limit is None else f"{limit:.2f}"
    print_message(shared, f"the workers of {member.tenant} may spend {said} in a day")
    print_result(shared, "", {"tenant": member.tenant, "daily_limit": limit})
    return 0


def run_leave(shared: SharedOptions, now: bool) -> int:
    member, place = _require_member(shared), resolve_memory_place(shared)
    with open_memory(shared) as memory:
        try:
            end_membership(place, memory, now)
        except FleetAway as error:
            raise FleetAway(f"{error}; 'sevenfold fleet leave --now' leaves without it") from None
        path = memory.path_of()
    print_message(shared, f"left {member.slug}: the memories are plain files in {path}")
    print_result(shared, "", {**_describe(member), "folder": path})
    return 0
