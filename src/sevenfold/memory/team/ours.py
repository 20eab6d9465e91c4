"""The folder of the team as it is now, read under the store's lock; and what of it cannot be read."""

from __future__ import annotations

from dataclasses import dataclass, field

from sevenfold.errors import Refused, StorageFailure
from sevenfold.memory.folder.desk import Desk
from sevenfold.memory.folder.files import HEAD
from sevenfold.memory.folder.ledger import A_SECRET
from sevenfold.memory.folder.naming import INDEX_NAME
from sevenfold.memory.parts import SHARED, TEAM
from sevenfold.memory.repository.objects import BLOB, id_of


@dataclass(slots=True)
class Ours:
    """Files are named relative to the folder of the team."""

    files: dict[str, bytes] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    """What is there and cannot be shared as it is: it is left alone, on both sides."""
    names: dict[str, str] = field(default_factory=dict)
    """The names of the memories, by file."""
    times: dict[str, float] = field(default_factory=dict)
    """When they were written."""
    secret: set[str] = field(default_factory=set)
    """What the store keeps out of its history."""

    @property
    def index(self) -> str:
        return self.files.get(INDEX_NAME, b"").decode("utf-8", "surrogateescape")

    def blocked(self, file: str) -> str:
        """Why this name cannot be used: it, or a folder above it, is something that is left alone."""
        parts = file.split("/")
        tries = ("/".join(parts[:at]) for at in range(1, len(parts) + 1))
        return next((self.held[one] for one in tries if one in self.held), "")


def id_of_text(data: bytes) -> str:
    """The name git gives to a text."""
    return id_of(BLOB, data).hex()


def read_ours(desk: Desk) -> Ours:
    """Everything in the folder; `Refused` when the folder itself cannot be trusted."""
    found = Ours()
    for odd in desk.listing.odd:
        if odd.file in (".", TEAM.rstrip("/")):
            raise Refused(f"{desk.folder / odd.file} is not synchronised: {odd.why}")
        if odd.file.startswith(TEAM):
            found.held[odd.file.removeprefix(TEAM)] = odd.why
    for file, stamp in desk.listing.files.items():
        if not file.startswith(TEAM):
            continue
        inner = file.removeprefix(TEAM)
        if stamp.size > HEAD:
            found.held[inner] = f"it has {stamp.size:,} bytes, and a memory has at most {HEAD:,}"
        else:
            _read(desk, file, inner, found)
    return found


def _read(desk: Desk, file: str, inner: str, found: Ours) -> None:
    try:
        data, stamp = desk.at.read(file, HEAD + 1)
    except (StorageFailure, Refused) as error:
        found.held[inner] = str(error)
        return
    if stamp.size > HEAD:
        found.held[inner] = "it is being written"
        return
    found.files[inner] = data
    found.ids[inner] = id_of_text(data)
    found.times[inner] = stamp.modified / 1e9
    row = desk.ledger.rows.get(file)
    if row is not None and row.held == A_SECRET:
        found.secret.add(inner)
    if row is not None and SHARED.lists(file):
        found.names[inner] = row.name
