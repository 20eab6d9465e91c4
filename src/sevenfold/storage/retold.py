"""A recorded session as a transcript of ours: the active branch, with its compactions as edits.

The view of the result is what the model saw at the end, and it keeps every rule a view must keep: a
tool use that was never answered is answered as interrupted, and nothing is answered twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from sevenfold.messages import Message, ToolResult, ToolUse
from sevenfold.storage.recorded import Clearing, Compaction, Recorded, Said
from sevenfold.tokens import measure
from sevenfold.transcript import Mark, Problem, Replace, Reply, Results, Transcript

INTERRUPTED: Final = "interrupted: there is no result of this in the recording"
CLEARED: Final = "[this result was cleared from the view when the session was recorded]"


def to_transcript(recorded: Recorded, tip: str | None = None) -> Transcript:
    """The branch that ends at `tip` (the active one unless told) as a transcript, kept in memory."""
    retelling = _Retelling(recorded)
    for said in recorded.branch(recorded.tip if tip is None else tip):
        retelling.tell(said)
    return retelling.transcript


class _Retelling:
    def __init__(self, recorded: Recorded) -> None:
        self.at = 0.0
        self.transcript = Transcript(lambda: self.at)
        self.transcript.problems.extend(recorded.problems)
        self.placed: dict[str, int] = {}
        self.answers = {
            said.parent: said
            for said in recorded.entries
            if isinstance(said.what, Message) and said.what.results
        }
        self.told: set[str] = set()

    def tell(self, said: Said) -> None:
        self.at = max(self.at, said.at)
        match said.what:
            case Reply() as reply:
                self._reply(said, reply)
            case Message() as message:
                if said.uuid not in self.told and not said.failed:
                    self._message(said, message)
            case Compaction() as compaction:
                self._compacted(said, compaction)
            case Clearing(ids):
                view = self.transcript.view
                shown = {id: CLEARED for id in ids if view.result_at(id) is not None}
                if shown:
                    self.transcript.add(Results(shown), by="recorded")

    def _reply(self, said: Said, reply: Reply) -> None:
        if not reply.message.content:
            return
        diagnostics = {"request_id": said.request_id} if said.request_id else {}
        if not said.counted:  # noted while it streamed: what it says of its output is too little
            output = max(reply.usage.output, measure(reply.message).tokens())
            reply = replace(reply, usage=replace(reply.usage, output=output))
            diagnostics["output"] = "estimated"
        self._add(said, replace(reply, diagnostics=diagnostics), "model")
        self._answered(said, reply.message)

    def _message(self, said: Said, message: Message) -> None:
        kept = tuple(b for b in message.content if not isinstance(b, ToolResult))
        if len(kept) < len(message.content):
            self._problem(said, "its tool results answer nothing on this branch: dropped")
        if kept:
            self._add(said, Message(message.role, kept), "model" if said.made_up else "user")
            self._answered(said, message)

    def _answered(self, said: Said, asking: Message) -> None:
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

    def _compacted(self, said: Said, compaction: Compaction) -> None:
        view = self.transcript.view
        if compaction.summary is None:
            self._problem(said, "a compaction without its summary: the view is left as it was")
            return
        facts = {"trigger": compaction.trigger, "tokens_before": compaction.tokens_before}
        self.transcript.add(Mark("compacted", facts), by="recorded")
        end, summary = self._end_of_removed(compaction), _words(compaction.summary)
        if end == 0:
            self._add(said, summary, "recorded")
        else:
            edit = Replace(view[0].id, view[end - 1].id, (summary,))
            self._add(said, edit, "recorded")

    def _end_of_removed(self, compaction: Compaction) -> int:
        kept = self.placed.get(compaction.kept_from)
        at = None if kept is None else self.transcript.view.where(kept)
        return len(self.transcript.view) if at is None else at

    def _add(self, said: Said, what: Message | Reply | Replace, by: str) -> None:
        ids: Sequence[int] = self.transcript.add(what, by=by)
        self.placed[said.uuid] = ids[-1]

    def _problem(self, said: Said, why: str) -> None:
        self.transcript.problems.append(Problem(said.line, why))


def _words(summary: Message) -> Message:
    """A summary calls no tool and answers none, whatever the file says."""
    kept = tuple(b for b in summary.content if not isinstance(b, ToolUse | ToolResult))
    return Message(summary.role, kept)
