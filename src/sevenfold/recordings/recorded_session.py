"""A session that some tool recorded: what was said, on which branch, and what was compacted.

Readers produce these values; nothing here knows any one format. `convert_recording` makes a transcript of
the active branch, with its compactions as edits; `retell_recording` makes its entries alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from sevenfold.core.messages import Message, ToolResult, ToolUse
from sevenfold.core.tokens import Usage, measure_message
from sevenfold.core.transcript import (
    Entry,
    Id,
    Mark,
    Pin,
    Problem,
    Replace,
    Reply,
    Results,
    Transcript,
    Unthink,
    View,
    What,
)


class RecordedCompaction(msgspec.Struct, frozen=True):
    """What was said before this, or a part of it, was replaced by a summary."""

    trigger: str = ""
    tokens_before: int = 0
    summary: Message | None = None  # Empty where that part left the view without one
    kept_from: str = ""  # The first thing said before it that stayed in the view behind the summary
    replaced_from: str = ""  # The first thing that it replaced, where something before that stayed
    restored: tuple[Message, ...] = ()  # Put beside the summary, and not written for it
    asked: bool = True  # False for one made by rule: no model was asked
    model: str = ""  # The model that wrote the summary, and ...
    usage: Usage | None = None  # ... the usage of asking it, where the file says so


class RecordedClearing(msgspec.Struct, frozen=True):
    """The results of these tool uses were cleared from the view."""

    tool_use_ids: tuple[str, ...]
    trigger: str = ""
    tokens_before: int = 0
    tokens_saved: int = 0
    in_cache: bool = False  # The provider deleted them from its cached prefix, which stayed


class RecordedThoughtDrop(msgspec.Struct, frozen=True):
    """The thinking of the replies between these two left the view."""

    first: str
    last: str


RecordedChange: TypeAlias = RecordedCompaction | RecordedClearing | RecordedThoughtDrop
RecordedPayload: TypeAlias = Message | Reply | RecordedChange


class RecordedEvent(msgspec.Struct, frozen=True):
    """One thing that happened in a recorded session."""

    uuid: str
    parent: str | None  # The event it follows; None at the beginning of a branch
    line: int  # The line where it begins in the file
    at: float
    what: RecordedPayload
    request_id: str = ""
    model: str = ""
    meta: bool = False  # Put in by the tool, not typed by the user
    made_up: bool = False  # A reply that no model gave: the tool wrote it itself
    failed: bool = False  # It reports that a request failed, and was never shown to a model
    counted: bool = True
    """True if the usage is final; a reply noted while it streamed counts too little output."""

    @property
    def message(self) -> Message | None:
        if isinstance(self.what, Reply):
            return self.what.message
        return self.what if isinstance(self.what, Message) else None


class ToolNote(msgspec.Struct, frozen=True):
    """A tool's notes beside a result, and facts from the result itself."""

    tool: str
    line: int
    is_error: bool = False
    interrupted: bool = False
    path: str = ""  # The file that was read or changed
    persisted: str = ""  # The file with the whole output, if only its beginning was shown
    cleared: bool = False  # The result had been cleared before it was recorded
    agent: str = ""
    agent_tokens: int = 0


class RecordedApiError(msgspec.Struct, frozen=True):
    """A request that failed and was tried again."""

    line: int
    at: float
    status: int = 0
    why: str = ""
    attempt: int = 0


class RecordedSession(msgspec.Struct, frozen=True):
    format: str
    session: str = ""
    agent: str = ""
    """Of the sub-agent whose conversation this is; `session` is then the one that it worked for."""
    version: str = ""
    folder: str = ""
    git_branch: str = ""
    title: str = ""
    windows: tuple[int, ...] = ()
    """The windows of the client, the most frequent first, where the file says or shows them."""
    continues: str = ""  # The event before the first one, if that is in another file
    entries: tuple[RecordedEvent, ...] = ()
    """All branches of the main conversation, in the order of the file."""
    tip: str = ""  # The end of the active branch
    sidechains: dict[str, tuple[RecordedEvent, ...]] = {}
    """Conversations of sub-agents, by their id or by the first thing said in them."""
    undone: tuple[RecordedEvent, ...] = ()
    """Replies that the user went back behind, where they are on no branch; the reader names them."""
    results: dict[str, ToolNote] = {}  # By tool-use id
    api_errors: tuple[RecordedApiError, ...] = ()
    skipped: dict[str, int] = {}  # The number of records of each kind that no model saw
    problems: tuple[Problem, ...] = ()

    @property
    def active(self) -> tuple[RecordedEvent, ...]:
        return self.branch(self.tip)

    @property
    def tips(self) -> tuple[str, ...]:
        """The ends of all branches, in the order of the file."""
        followed = {said.parent for said in self.entries}
        return tuple(said.uuid for said in self.entries if said.uuid not in followed)

    @property
    def compactions(self) -> tuple[RecordedEvent, ...]:
        return tuple(s for s in self.entries if isinstance(s.what, RecordedCompaction))

    @property
    def requests(self) -> tuple[RecordedEvent, ...]:
        """The replies that a model gave, each of them once."""
        return tuple(s for s in self.entries if isinstance(s.what, Reply))

    @property
    def all_requests(self) -> tuple[RecordedEvent, ...]:
        """The same and those that were undone, in the order of the file; those of sub-agents come last."""
        own = sorted((*self.requests, *self.undone), key=lambda said: said.line)
        sides = (s for said in self.sidechains.values() for s in said if isinstance(s.what, Reply))
        return (*own, *sides)

    @property
    def abandoned(self) -> tuple[RecordedEvent, ...]:
        """The replies that are not on the active branch: the user went back and on from there."""
        active = {said.uuid for said in self.active}
        return (*(said for said in self.requests if said.uuid not in active), *self.undone)

    def branch(self, tip: str) -> tuple[RecordedEvent, ...]:
        """From the beginning to this one, following what each of them follows."""
        return trace_branch(tip, self.entries)


def name_requests(recorded: RecordedSession) -> RecordedSession:
    """The session with a name for each request that has none: a digest of all up to it, as in any copy."""
    sides = {agent: _name_events(said) for agent, said in recorded.sidechains.items()}
    return replace(recorded, entries=_name_events(recorded.entries), sidechains=sides)


def _name_events(events: tuple[RecordedEvent, ...]) -> tuple[RecordedEvent, ...]:
    if all(said.request_id for said in events if isinstance(said.what, Reply)):
        return events
    digests, named = dict[str, bytes](), list[RecordedEvent]()
    for said in events:
        upto = digests.get(said.parent or "", b"") + _encode((said.at, said.what))
        digest = digests[said.uuid] = blake2b(upto, digest_size=16).digest()
        asked = isinstance(said.what, Reply) and not said.request_id
        named.append(replace(said, request_id=digest.hex()) if asked else said)
    return tuple(named)


def trace_branch(tip: str, entries: Iterable[RecordedEvent]) -> tuple[RecordedEvent, ...]:
    by_uuid = {said.uuid: said for said in entries}
    path: list[RecordedEvent] = []
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
        """True if a file that begins like this has this format."""
        ...

    def read(self, source: Path | bytes) -> RecordedSession: ...


_encode: Final = msgspec.json.Encoder().encode
LEFT: Final = "left"  # The mark of a request on a branch that was left
INTERRUPTED: Final = "interrupted: there is no result of this in the recording"
CLEARED: Final = "[this result was cleared from the view when the session was recorded]"
BY_RULE: Final = "recorded by rule"
"""The author of a recorded compaction that no model was asked for; of all others it is "recorded"."""


def convert_recording(recorded: RecordedSession, tip: str | None = None) -> Transcript:
    """The branch that ends at `tip` (the active one unless told) as a transcript, kept in memory."""
    retold, at = retell_recording(recorded, tip), 0.0
    transcript = Transcript(lambda: at)
    transcript.problems.extend(retold.problems)
    for entry in retold.entries:
        at = entry.at
        transcript.add(entry.what, by=entry.by)
    return transcript


class RetoldSession(msgspec.Struct, frozen=True):
    """The entries of a recorded branch, and what was wrong with it."""

    entries: list[Entry]
    problems: list[Problem]


def retell_recording(recorded: RecordedSession, tip: str | None = None) -> RetoldSession:
    """Makes the entries of that branch. To work out its view as well takes as long as all the rest."""
    retelling = _SessionRetelling(recorded)
    left = sorted(recorded.abandoned, key=lambda said: -said.at)
    for said in recorded.branch(recorded.tip if tip is None else tip):
        while left and left[-1].at <= said.at:
            retelling.note_left(left.pop())
        retelling.tell(said)
    return RetoldSession(retelling.entries, retelling.problems)


class _SessionRetelling:
    def __init__(self, recorded: RecordedSession) -> None:
        self.at = 0.0
        self.entries: list[Entry] = []
        self.problems = list(recorded.problems)
        self._view, self._seen = View(), 0
        self.placed: dict[str, Id] = {}
        self.answers = {
            said.parent: said
            for said in recorded.entries
            if isinstance(said.what, Message) and said.what.results
        }
        self.told: set[str] = set()
        self._prompt = 0  # Tokens of the last request
        self._parted = False  # True if a branch that was left since then was compacted

    def tell(self, said: RecordedEvent) -> None:
        self.at = max(self.at, said.at)
        match said.what:
            case Reply() as reply:
                self._reply(said, reply)
            case Message() as message:
                if said.uuid not in self.told and not said.failed:
                    self._message(said, message)
            case RecordedCompaction() as compaction:
                self._compacted(said, compaction)
            case RecordedClearing(ids):
                view = self._get_view()
                shown = {id: CLEARED for id in ids if view.result_at(id) is not None}
                if shown and said.what.in_cache:
                    self._append(Pin(view[-1].id, {"delete": list(shown)}), "recorded")
                elif shown:
                    self._append(Results(shown), "recorded")
            case RecordedThoughtDrop(first, last):
                view = self._get_view()
                places = self._find(view, first), self._find(view, last)
                if None not in places:
                    self._append(Unthink(self.placed[first], self.placed[last]), "recorded")

    def note_left(self, said: RecordedEvent) -> None:
        """Mark a request on a branch that was left, while that holds all that both have in common."""
        prompt = said.what.usage.prompt if isinstance(said.what, Reply) else 0
        self._parted = self._parted or prompt < self._prompt
        if 0 < self.at < said.at and not self._parted:
            self.at = said.at
            self._append(Mark(LEFT, None), "recorded")

    def _reply(self, said: RecordedEvent, reply: Reply) -> None:
        if not reply.message.content:
            return
        self._prompt, self._parted = reply.usage.prompt, False
        diagnostics = {"request_id": said.request_id} if said.request_id else {}
        if not said.counted:  # noted while it streamed: what it says of its output is too little
            output = max(reply.usage.output, measure_message(reply.message).tokens())
            reply = replace(reply, usage=replace(reply.usage, output=output))
            diagnostics["output"] = "estimated"
        self._add(said, replace(reply, diagnostics=diagnostics), "model")
        self._answered(said, reply.message)

    def _message(self, said: RecordedEvent, message: Message) -> None:
        kept = tuple(b for b in message.content if not isinstance(b, ToolResult))
        if len(kept) < len(message.content):
            self._problem(said, "its tool results answer nothing on this branch: dropped")
        if kept:
            by = "session" if said.meta else "user"  # what a tool put in is not what a person said
            self._add(said, Message(message.role, kept), "model" if said.made_up else by)
            self._answered(said, message)

    def _answered(self, said: RecordedEvent, asking: Message) -> None:
        """The results of what this message asks for, each use answered once."""
        uses = [use.id for use in asking.tool_uses]
        if not uses:
            return
        answer = self.answers.get(said.uuid)
        content = answer.what.content if answer and isinstance(answer.what, Message) else ()
        given = {b.tool_use_id: b for b in content if isinstance(b, ToolResult)}
        results = [given.get(u) or ToolResult(u, INTERRUPTED, is_error=True) for u in uses]
        rest = [b for b in content if not isinstance(b, ToolResult)]
        by = answer or said
        self.at = max(self.at, by.at)
        self._add(by, Message("user", (*results, *rest)), "tools")
        self.told.add(by.uuid)

    def _compacted(self, said: RecordedEvent, compaction: RecordedCompaction) -> None:
        if compaction.summary is None:
            self._problem(said, "a compaction without its summary: the view is left as it was")
            return
        view = self._get_view()
        facts = {"trigger": compaction.trigger, "tokens_before": compaction.tokens_before}
        if compaction.usage is not None:
            facts |= {"model": compaction.model, "usage": msgspec.to_builtins(compaction.usage)}
        self._append(Mark("compacted", facts), "recorded")
        first, end = (self._find(view, uuid) for uuid in (compaction.replaced_from, compaction.kept_from))
        first, end = first or 0, len(view) if end is None else end
        # A summary calls no tool and answers none, whatever the file says.
        words = tuple(b for b in compaction.summary.content if not isinstance(b, ToolUse | ToolResult))
        summary = Message(compaction.summary.role, words)
        by = tuple(message for message in (summary, *compaction.restored) if message.content)
        edit = Replace(view[first].id, view[end - 1].id, by) if end > first else summary
        self._add(said, edit, "recorded" if compaction.asked else BY_RULE)

    def _find(self, view: View, uuid: str) -> int | None:
        """The place of what was said, if it is in the view."""
        id = self.placed.get(uuid)
        return None if id is None else view.where(id)

    def _add(self, said: RecordedEvent, what: Message | Reply | Replace, by: str) -> None:
        self.placed[said.uuid] = self._append(what, by)

    def _append(self, what: What, by: str) -> Id:
        entry = Entry(len(self.entries), self.at, what, by)
        self.entries.append(entry)
        return entry.id

    def _get_view(self) -> View:
        """The view so far. Few recordings need it, and none for most of its entries."""
        for entry in self.entries[self._seen :]:
            self._view = self._view.after(entry)
        self._seen = len(self.entries)
        return self._view

    def _problem(self, said: RecordedEvent, why: str) -> None:
        self.problems.append(Problem(said.line, why))
