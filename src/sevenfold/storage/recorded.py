"""A session that some tool recorded: what was said, on which branch, and what was compacted.

Readers of other tools' files produce these values; nothing here knows any one format.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from sevenfold.messages import Message
from sevenfold.transcript import Problem, Reply


class Compaction(msgspec.Struct, frozen=True):
    """Everything before this was replaced by a summary."""

    trigger: str = ""
    tokens_before: int = 0
    summary: Message | None = None
    kept_from: str = ""
    """The first thing said before it that stayed in the view behind the summary."""


class Clearing(msgspec.Struct, frozen=True):
    """The results of these tool uses were cleared from the view."""

    tool_use_ids: tuple[str, ...]
    trigger: str = ""
    tokens_before: int = 0
    tokens_saved: int = 0


Event: TypeAlias = Message | Reply | Compaction | Clearing


class Said(msgspec.Struct, frozen=True):
    """One thing that happened in a recorded session."""

    uuid: str
    parent: str | None
    """What it follows; None at the beginning of a branch."""
    line: int
    """Where it begins in the file."""
    at: float
    what: Event
    request_id: str = ""
    model: str = ""
    meta: bool = False
    """Put in by the tool, not typed by the user."""
    made_up: bool = False
    """A reply that no model gave: the tool wrote it itself."""
    failed: bool = False
    """It reports that a request failed, and was never shown to a model."""
    counted: bool = True
    """Whether the usage is final; a reply noted while it streamed says too little output."""

    @property
    def message(self) -> Message | None:
        if isinstance(self.what, Reply):
            return self.what.message
        return self.what if isinstance(self.what, Message) else None


class ToolFacts(msgspec.Struct, frozen=True):
    """What the tool noted beside a tool result, and what the result itself gives away."""

    tool: str
    line: int
    is_error: bool = False
    interrupted: bool = False
    path: str = ""
    """The file that was read or changed."""
    persisted: str = ""
    """Where the whole output was kept, when only its beginning was shown."""
    cleared: bool = False
    """The result had been cleared before it was recorded."""
    agent: str = ""
    agent_tokens: int = 0


class ApiError(msgspec.Struct, frozen=True):
    """A request that failed and was tried again."""

    line: int
    at: float
    status: int = 0
    why: str = ""
    attempt: int = 0


class Recorded(msgspec.Struct, frozen=True):
    format: str
    session: str = ""
    agent: str = ""
    """Of the sub-agent whose conversation this is; `session` is then the one that it worked for."""
    version: str = ""
    folder: str = ""
    git_branch: str = ""
    title: str = ""
    continues: str = ""
    """What the first thing said follows, when that is in another file."""
    entries: tuple[Said, ...] = ()
    """All branches of the main conversation, in the order of the file."""
    tip: str = ""
    """The end of the active branch."""
    sidechains: dict[str, tuple[Said, ...]] = {}
    """Conversations of sub-agents, by their id or by the first thing said in them."""
    undone: tuple[Reply, ...] = ()
    """Replies that the user went back behind, where they are on no branch."""
    results: dict[str, ToolFacts] = {}
    """By tool-use id."""
    api_errors: tuple[ApiError, ...] = ()
    skipped: dict[str, int] = {}
    """How many records of which kind say nothing that a model saw."""
    problems: tuple[Problem, ...] = ()

    @property
    def active(self) -> tuple[Said, ...]:
        return self.branch(self.tip)

    @property
    def tips(self) -> tuple[str, ...]:
        """The ends of all branches, in the order of the file."""
        followed = {said.parent for said in self.entries}
        return tuple(said.uuid for said in self.entries if said.uuid not in followed)

    @property
    def compactions(self) -> tuple[Said, ...]:
        return tuple(s for s in self.entries if isinstance(s.what, Compaction))

    @property
    def clearings(self) -> tuple[Said, ...]:
        return tuple(s for s in self.entries if isinstance(s.what, Clearing))

    @property
    def requests(self) -> tuple[Said, ...]:
        """The replies that a model gave, each of them once."""
        return tuple(s for s in self.entries if isinstance(s.what, Reply))

    @property
    def abandoned(self) -> tuple[Reply, ...]:
        """The replies that are not on the active branch: the user went back and on from there."""
        active = {said.uuid for said in self.active}
        left = (s.what for s in self.entries if s.uuid not in active)
        return (*(what for what in left if isinstance(what, Reply)), *self.undone)

    def branch(self, tip: str) -> tuple[Said, ...]:
        """From the beginning to this one, following what each of them follows."""
        return path_to(tip, self.entries)


def path_to(tip: str, entries: Iterable[Said]) -> tuple[Said, ...]:
    by_uuid = {said.uuid: said for said in entries}
    path: list[Said] = []
    at: str | None = tip
    while at is not None and (said := by_uuid.pop(at, None)):  # each once: no circle can trap us
        path.append(said)
        at = said.parent
    return tuple(reversed(path))


class SessionReader(Protocol):
    """Reads the session files of one tool."""

    @property
    def format(self) -> str: ...

    def recognises(self, head: bytes) -> bool:
        """Whether a file that begins like this is one of theirs."""
        ...

    def read(self, source: Path | bytes) -> Recorded: ...
