"""What is known of the team between two syncs: where it is, and what both sides had in common last.

One file beside the repository, written whole. `agreed` is the heart of it: for each file the version that
was the same here and there. It is written only after the folder was, so that a sync which dies is simply
done again.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.errors import StorageFailure
from sevenfold.memory.team.values import NoTeam, Refusal
from sevenfold.storage.files import make_private_dir, read_if_there, write_atomic

STATE: Final = "team"
"""The folder in the memory's state: the bare repository and what is known of the team."""
FILE: Final = "team.json"
_LIMIT: Final = 64 << 20


class Left(msgspec.Struct, frozen=True):
    """A version in the remote that was looked at and not taken, and why."""

    id: str
    why: str


class Planned(msgspec.Struct, frozen=True):
    """A text that was put together of both sides and is about to be written."""

    merged: str
    theirs: str


class TeamState(msgspec.Struct):
    """All of it."""

    remote: str
    path: str = ""
    branch: str = "main"
    tip: str = ""
    """The newest commit of the remote that was seen."""
    agreed: dict[str, str] = {}
    left: dict[str, Left] = {}
    planned: dict[str, Planned] = {}
    released: set[str] = set()
    """Digests of what the user lets pass although it looks like a secret."""
    synced: float | None = None
    offline: str | None = None
    refused: tuple[Refusal, ...] = ()
    more_refused: int = 0


class StateFile:
    """Where it is kept."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def there(self) -> bool:
        return self.path.exists()

    def load(self) -> TeamState:
        """`NoTeam` when there is none."""
        data = read_if_there(self.path, _LIMIT, nofollow=True)
        if data is None:
            raise NoTeam
        try:
            return msgspec.json.decode(data, type=TeamState)
        except msgspec.MsgspecError as error:
            raise StorageFailure(
                f"{self.path} is damaged; move it away and join the team again, nothing is lost by that"
            ) from error

    def save(self, state: TeamState) -> None:
        make_private_dir(self.path.parent)
        write_atomic(self.path, msgspec.json.encode(state), nofollow=True)


def release_of(data: bytes) -> str:
    """By what a release is known: the text itself is kept nowhere."""
    return hashlib.sha256(data).hexdigest()
