"""A project that belongs to a fleet: which tenant and space, under which name; never an address.

`backend.json` in the state folder makes every program open the memory through this package.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.core.errors import Mistake, StorageFailure
from sevenfold.fleet.database import VARIABLE, FleetDatabase
from sevenfold.fleet.jobs import ClaimedJob
from sevenfold.fleet.memories import FleetMemories, find_space
from sevenfold.fleet.replica import FleetSync, PostgresBackend
from sevenfold.memory.backend import SHARED_BY
from sevenfold.memory.store import MemoryStore
from sevenfold.settings.environment import Environment
from sevenfold.settings.place import STATE, MemoryPlace
from sevenfold.storage.files import make_private_dir, read_if_there, write_atomic
from sevenfold.storage.locks import hold_lock
from sevenfold.storage.places import make_path_slug

KIND: Final = "fleet"
_LARGEST: Final = 1 << 16
_REMOTE: Final = re.compile(
    r"^\s*url\s*=\s*(?:\w+://)?(?:[^@/\s]*@)?([^\s]+?)(?:\.git)?/?\s*$", re.MULTILINE
)


class FleetMembership(msgspec.Struct, frozen=True):
    """The place of a project in a fleet."""

    tenant: str
    space: int
    slug: str
    machine: str  # Made up when the project joined
    name: str
    kind: str = KIND
    inode: int = 0  # Of the state folder: a copy has another, and becomes a machine of its own
    job: ClaimedJob | None = None  # Of a worker: what is written here is sent with the end of this job


def find_membership(state: Path) -> FleetMembership | None:
    """The membership that a state folder notes; None if there is none."""
    data = read_if_there(state / SHARED_BY, _LARGEST)
    try:
        return msgspec.json.decode(data, type=FleetMembership) if data else None
    except msgspec.MsgspecError as error:
        raise StorageFailure(f"{state / SHARED_BY} cannot be understood; join the fleet again") from error


def open_backend(place: MemoryPlace) -> PostgresBackend:
    """The memory of a project that joined a fleet. Without an address it works, and what is new waits."""
    member = find_membership(place.state)
    if member is None:
        raise Mistake(f"{place.folder} belongs to no fleet; join one with 'sevenfold fleet join'")
    note = ""
    if member.inode != place.state.stat().st_ino:
        member = write_membership(place, msgspec.structs.replace(member, machine=secrets.token_hex(8)))
        note = "this folder is a copy of one that joined the fleet; it is a machine of its own now"
    environment = Environment.read()
    database = FleetDatabase(environment.fleet_url, member.tenant)
    memories = FleetMemories(database, member.space, member.machine)
    backend = PostgresBackend(place.folder, place.state, memories, note)
    backend.outbox.job = member.job
    backend.workers = environment.home / KIND / member.machine
    return backend


def write_membership(place: MemoryPlace, member: FleetMembership) -> FleetMembership:
    """Write down that this place belongs to a fleet."""
    make_private_dir(place.state)
    member = msgspec.structs.replace(member, inode=place.state.stat().st_ino)
    write_atomic(place.state / SHARED_BY, msgspec.json.encode(member))
    return member


def join_fleet(place: MemoryPlace, address: str, slug: str, tenant: str = "") -> FleetMembership:
    """Make this project a replica of a space; what it has and what the space has become one."""
    if find_membership(place.state) is not None:
        raise Mistake(f"{place.folder} belongs to a fleet already; leave it first: sevenfold fleet leave")
    database = FleetDatabase(address, tenant)
    own, space = database.tenant, find_space(database, "project", slug)
    member = FleetMembership(own.name, space, slug, secrets.token_hex(8), socket.gethostname())
    return write_membership(place, member)


def end_membership(place: MemoryPlace, store: MemoryStore, now: bool = False) -> None:
    """Make the folder a plain one again, with all memories and their history; `now`: as it is."""
    backend = store.backend
    if isinstance(backend, PostgresBackend):
        if not now:
            FleetSync(store, backend).run()
            backend.fetch_past()
        replicas = backend.drop_replicas()
        if not now:
            backend.memories.forget_machines(backend.memories.machine, *replicas)
        backend.state("fleet").clear()
    (place.state / SHARED_BY).unlink(missing_ok=True)


def drop_replicas(workers: Path, is_kept: Callable[[str], bool] = lambda machine: False) -> list[str]:
    """Remove the replicas that workers have in a folder, but for those in use; returns their ids."""
    gone = list[str]()
    for lock in workers.glob("*.lock"):
        with hold_lock(lock, wait=0.0) as mine:
            for replica in (workers / lock.stem).glob("*") if mine else ():
                slug = make_path_slug((replica / "memory").resolve())
                # Of workers that take extractions it is where a session looks.
                states = [home / STATE / slug for home in (workers, workers.parents[1])]
                ids = [(read_if_there(state / "machine", _LARGEST) or b"").decode() for state in states]
                if not any(map(is_kept, filter(None, ids))):
                    gone += filter(None, ids)
                    for left in (replica, *states):
                        shutil.rmtree(left, ignore_errors=True)
    return gone


def make_slug(tree: Path) -> str:
    """A name that a project has on every machine: the address of its git remote, or its folder's name."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        text = (tree / ".git" / "config").read_text(encoding="utf-8")
        if found := _REMOTE.search(text[max(text.find('[remote "origin"]'), 0) :]):
            return found[1].replace(":", "/").lower()
    return tree.name.lower() or "project"


def choose_address(given: str | None, known: str) -> str:
    """The address to use; `Mistake` says where it may come from."""
    if given or known:
        return given or known
    raise Mistake(
        f"no database was named: set {VARIABLE}, for instance to 'service=fleet' of a service file"
    )
