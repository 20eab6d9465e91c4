"""The parts of a memory folder that have an index of their own: one's own memories, and the team's.

    MEMORY.md               lists what is one's own, here and in folders below
    team/MEMORY.md          lists what the team shares; its links are relative to `team/`, as each
                            member has that folder somewhere else

What is known about a person belongs to that person: a memory of type `user` is never the team's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from sevenfold.errors import Mistake, Refused
from sevenfold.memory.folder.listing import Listing, is_topic
from sevenfold.memory.folder.naming import INDEX_NAME, TEAM
from sevenfold.memory.topic import Topic, read_topic

__all__ = [
    "ARCHIVE",
    "INDEXES",
    "OWN",
    "PARTS",
    "SHARED",
    "TEAM",
    "Part",
    "check_private",
    "check_team",
    "is_listed",
    "is_personal",
    "names_in",
    "part_of",
]

ARCHIVE: Final = "archive/"
"""What a dream took out of the index because it is stale; recall still finds it."""


class Part(msgspec.Struct, frozen=True):
    """One of them. A file has one name in the memory folder, and another in its part's index."""

    folder: str
    """Empty, or with a slash at its end."""

    @property
    def index(self) -> str:
        return f"{self.folder}{INDEX_NAME}"

    def holds(self, file: str) -> bool:
        """Whether a file of the memory folder is in this part."""
        return file.startswith(self.folder) and (bool(self.folder) or not file.startswith(TEAM))

    def lists(self, file: str) -> bool:
        """Whether a file should have a line in this part's index."""
        return is_topic(file) and self.holds(file) and not self.inner(file).startswith(ARCHIVE)

    def inner(self, file: str) -> str:
        """The file as the index of this part calls it."""
        return file.removeprefix(self.folder)

    def outer(self, inner: str) -> str:
        """The file as the memory folder calls it."""
        return f"{self.folder}{inner}"


OWN: Final = Part("")
SHARED: Final = Part(TEAM)
PARTS: Final = (OWN, SHARED)
INDEXES: Final = tuple(part.index for part in PARTS)


def part_of(file: str) -> Part:
    """The part that a file of the memory folder is in."""
    return SHARED if SHARED.holds(file) else OWN


def is_listed(file: str) -> bool:
    """Whether a file should have a line in the index of one's own memories."""
    return OWN.lists(file)


def names_in(part: Part, names: Mapping[str, str]) -> dict[str, str]:
    """Of the names of all memories, by file, those in one part."""
    return {file: name for file, name in names.items() if part.holds(file)}


def check_team(listing: Listing) -> None:
    """`Mistake` with what to do when there is no team memory."""
    if TEAM.rstrip("/") not in listing.folders:
        raise Mistake(
            "there is no team memory here: 'sevenfold team init REMOTE' makes one and 'sevenfold team "
            "join REMOTE' brings in that of others; until then save it as your own"
        )


def check_private(data: bytes | None, file: str) -> None:
    """`Refused` when this would share with the team what is known about a person."""
    if data is not None and SHARED.holds(file) and is_personal(read_topic(data, file)):
        raise Refused(
            f"{file} is refused: a memory of type 'user' is about a person and is never shared with the "
            "team; save it as your own, outside team/, or give it another type if it is a rule or a "
            "fact of the project"
        )


def is_personal(topic: Topic) -> bool:
    """Whether it is about a person and lies with the team."""
    return topic.type == "user" and SHARED.lists(topic.file)
