"""Who writes notes and summaries when a session is driven again: the offline engine, charged as a model is.

It writes by rule what a model would write in its own words: longer than the summaries of the recordings
(about 4,700 estimated tokens against 2,700), so the room they take is not understated. What writing them
costs is taken from the recordings: a summary has 3,000 tokens whatever it was of, and half as much of
analysis before them. Notes cost what a model that edits lines would write: a little in any
case, and as much for what is new as a recorded summary has for what it replaced, a third more for
the lines that an edit quotes. (The rules write whole sections anew each time, which no model would.)

When a recorded session would have been looked through for what is worth remembering, and at what
cost. Whether a person talked in a recorded session: where nobody did, nothing is looked for to
remember. What the files of a recorded session held, as far as its own calls show: no disk is looked
at.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from time import process_time
from typing import Final

from msgspec.structs import replace

from sevenfold.cache.prices import Price
from sevenfold.core.messages import Block, Message, ToolResult, ToolUse
from sevenfold.core.protocols import Capabilities, Model
from sevenfold.core.request import Request
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Reply
from sevenfold.layers.l5_durable_memory.extraction import is_lasting, is_urgent
from sevenfold.layers.l5_durable_memory.recall import extract_typed_text
from sevenfold.offline.conversation import OfflineConversation
from sevenfold.offline.reply import make_reply
from sevenfold.recordings.own_sessions import OwnRecordedSession
from sevenfold.recordings.recorded import RecordedSession
from sevenfold.replay.bookkeeping import ReplayBooks
from sevenfold.replay.policies import Policy
from sevenfold.testing.doubles import FakeClock

NOTES, SUMMARY = "fork:notes", "fork:compact"
SUMMARY_OUTPUT: Final = 4_500
"""Tokens that a model answers with when it is asked for a summary."""
NOTES_OUTPUT: Final = 400
"""Tokens that bringing notes up to date takes in any case ..."""
NOTED: Final = 0.035
"""... and for each token that came since the last time."""


class RuleModel:
    """A model for forks: `ask` charges the prompt, the offline engine answers."""

    name = "by rule"

    def __init__(
        self,
        able: Capabilities,
        ask: Callable[[Request], Usage],
        answered: Callable[[Request, Usage], None],
    ) -> None:
        self.capabilities = able
        self._ask, self._answered = ask, answered
        self._noted_at = 0
        self.seconds = 0.0

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        used = self._ask(request)
        began = process_time()
        blocks = make_reply(OfflineConversation.of(request))
        self.seconds += process_time() - began
        message = Message("assistant", blocks)
        used = replace(used, output=self._output(request, used.prompt))
        self._answered(request, used)
        for block in blocks:
            yield block
        yield Reply(message, used, "tool_use" if message.tool_uses else "end_turn", model=self.name)

    def _output(self, request: Request, prompt: int) -> int:
        if request.source == NOTES:
            new, self._noted_at = max(0, prompt - self._noted_at), prompt
            return NOTES_OUTPUT + round(NOTED * new)
        return SUMMARY_OUTPUT


_check: type[Model] = RuleModel


ASKED: Final = 900
"""Tokens of the question what should be remembered."""
NOTHING, SOMETHING = 150, 600
"""Tokens of the answer that there is nothing, and of a memory that is written."""
WRITING: Final = 1
"""Requests more when something is written: the list of memories is in the question, and one says that it is
done."""


class ReplayExtraction:
    """The extraction of one session. `ask`: one request on the prefix as it is now."""

    def __init__(
        self, policy: Policy, price: Price, ask: Callable[[], Usage], tally: ReplayBooks, clock: FakeClock
    ) -> None:
        self._on, self._every = policy.flags.extraction, policy.extraction.every
        self._patient = policy.extraction.patient and price.input > 0
        self._ask, self._tally, self._clock = ask, tally, clock
        self._said: list[str] = []

    def said(self, message: Message) -> None:
        if self._on and (text := extract_typed_text(message)):
            self._said.append(text)

    def rested(self) -> None:
        """A turn has ended."""
        if len(self._said) >= self._every and (not self._patient or is_urgent(self._said)):
            self._look()

    def catch_up(self) -> bool:
        """The user is silent, or the session is over: what waits is looked at. Whether anything did."""
        waited = bool(self._said)
        if waited:
            self._look()
        return waited

    def _look(self) -> None:
        found = any(map(is_lasting, self._said))
        self._said.clear()
        for n in range(1 + WRITING * found):
            used = self._ask()
            output = SOMETHING if found and n < WRITING else NOTHING
            self._tally.asked(
                "extraction",
                self._clock.time,
                replace(used, input=used.input + ASKED + n * SOMETHING, output=output),
            )


UNKNOWN: Final = "the file does not say whether a person talked: extraction is charged as if one did"


def has_person(recorded: RecordedSession) -> bool | None:
    """None where a file of ours does not say; of other tools' sessions only the agents' are told apart."""
    if recorded.agent:
        return False
    return recorded.interactive if isinstance(recorded, OwnRecordedSession) else True


def adjust_extraction(policy: Policy, person: bool | None) -> Policy:
    """The policy as it would have been in a session with a person in it, or without."""
    if person is not False or policy.extraction.non_interactive:
        return policy
    return replace(policy, flags=replace(policy.flags, extraction=False))


def is_extraction_uncertain(recorded: RecordedSession, policies: tuple[Policy, ...]) -> bool:
    """Whether something is charged that perhaps was not done."""
    either = any(p.flags.extraction and not p.extraction.non_interactive for p in policies)
    return has_person(recorded) is None and either


PATH: Final = "file_path"
TOO_LONG: Final = " " * 120_000
"""Stands for a file of which only a part was ever shown: it would not be shown again as a whole."""
_NUMBERED: Final = re.compile(r"^\s*\d+[→\t]", re.M)
_REMINDER: Final = "<system-reminder>"


class ReplayDisk:
    """Files by path, as they are now."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._results: dict[str, str] = {}
        """Of files that were last read: the very texts of the recording, which are there anyway."""

    def read(self, path: str) -> str | None:
        result = self._results.get(path)
        return self._files.get(path) if result is None else _plain(result)

    def take(self, use: ToolUse, result: ToolResult) -> None:
        """A call and what came of it."""
        path = use.input.get(PATH)
        if not isinstance(path, str) or result.is_error:
            return
        match use.name:
            case "Read":
                self._shown(path, use, result.text)
            case "Write":
                self._keep(path, str(use.input.get("content", "")))
            case "Edit":
                self._edited(path, use.input)
            case "MultiEdit":
                edits = use.input.get("edits")
                for edit in edits if isinstance(edits, list) else ():
                    if isinstance(edit, dict):
                        self._edited(path, edit)
            case _:
                pass

    def _shown(self, path: str, use: ToolUse, text: str) -> None:
        if use.input.get("offset") or use.input.get("limit"):
            if path not in self._results:
                self._files.setdefault(path, TOO_LONG)
            return
        self._files.pop(path, None)
        self._results[path] = text

    def _edited(self, path: str, edit: dict[str, object]) -> None:
        old, new = str(edit.get("old_string", "")), str(edit.get("new_string", ""))
        if not old or (text := self.read(path)) is None:
            return
        self._keep(path, text.replace(old, new, -1 if edit.get("replace_all") else 1))

    def _keep(self, path: str, text: str) -> None:
        self._results.pop(path, None)
        self._files[path] = text


def _plain(result: str) -> str:
    """What a file holds, of what reading it showed."""
    return _NUMBERED.sub("", result.partition(_REMINDER)[0].rstrip("\n"))
