"""What a sync did and how a team memory stands, as values; and the ways in which it cannot be had."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from sevenfold.errors import Failure, Mistake
from sevenfold.memory.team.addresses import hidden

Side: TypeAlias = Literal["here", "remote"]
SHOWN: Final = 50
"""Refusals that are named one by one; the others are counted."""
_LONG: Final = 120


class NoTeam(Mistake):
    """This memory is not shared with a team."""

    def __init__(self) -> None:
        super().__init__(
            "this memory is not shared with a team: 'sevenfold team init REMOTE' begins one and "
            "'sevenfold team join REMOTE' joins one"
        )


class GitFailed(Failure):
    """Git, or the repository that it was sent to, said no: one sentence, without any credential."""

    said = ""
    """What git itself printed, for us to recognise; not for people."""


class Behind(GitFailed):
    """Somebody else pushed meanwhile: fetch, merge and push again."""


class Refusal(msgspec.Struct, frozen=True):
    """A file that did not go the way of the others, and why. It stays where it is."""

    file: str
    why: str
    side: Side
    """`here`: it was not sent; `remote`: it was not taken."""


class Synced(msgspec.Struct, frozen=True):
    """What one sync did. The files are named as in the folder of the team."""

    pulled: tuple[str, ...] = ()
    """Files that have the team's text now."""
    pushed: tuple[str, ...] = ()
    """Files whose text was sent."""
    conflicts: tuple[str, ...] = ()
    """Copies that were made because both sides changed the same lines."""
    refused: tuple[Refusal, ...] = ()
    more_refused: int = 0
    """Refusals beyond those that are named."""
    offline: str | None = None
    """Why what is here could not be sent, or what is there not be had; None when all went well."""
    note: str = ""
    """Something to know about it: a repository that was made, a folder that was brought back."""
    removed_here: tuple[str, ...] = ()
    """Files that the team removed, and that went here too."""
    removed_there: tuple[str, ...] = ()
    """Files that were removed here, and went for the team too."""
    fresh: tuple[Refusal, ...] = ()
    """Those refusals that the sync before did not name."""

    @property
    def left_out(self) -> int:
        return len(self.refused) + self.more_refused


class Last(msgspec.Struct, frozen=True):
    """How the last sync went, and when one went well."""

    synced: float | None = None
    offline: str | None = None


class Status(msgspec.Struct, frozen=True):
    """How a team memory stands."""

    remote: str
    branch: str
    ahead: tuple[str, ...] = ()
    """Files that changed here and were not sent yet."""
    behind: tuple[str, ...] = ()
    """Files that changed there and were not taken yet."""
    conflicts: tuple[str, ...] = ()
    """Copies that wait for somebody to put them together with their original."""
    refused: tuple[Refusal, ...] = ()
    more_refused: int = 0
    synced: float | None = None
    offline: str | None = None


def bounded(refused: list[Refusal]) -> tuple[tuple[Refusal, ...], int]:
    """The refusals that are named, those of files that are here first, and how many there are more."""
    first: dict[tuple[str, str], Refusal] = {}
    for one in refused:
        first.setdefault((one.side, one.file), one)
    ordered = [first[key] for key in sorted(first)]
    named = tuple(Refusal(shown_name(one.file), one.why, one.side) for one in ordered[:SHOWN])
    return named, max(0, len(ordered) - SHOWN)


def shown_name(file: str) -> str:
    """A name that somebody else chose: short, plain, and without a secret in it."""
    plain = "".join(c if c.isprintable() else "?" for c in file)
    return hidden(plain if len(plain) <= _LONG else f"{plain[:_LONG]}…")
