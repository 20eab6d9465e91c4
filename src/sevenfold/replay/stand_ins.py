"""Stand-ins for the world of a replayed session: a model for notes and summaries, extraction, files.

The offline engine writes notes and summaries by rule, longer than recorded ones (4,700 estimated tokens
against 2,700). Their price is that of the recordings: a summary has 3,000 tokens without the user's words,
which we do not ask for, and four times the analysis that we do ask for; notes cost a little, and for what is
new as much as a recorded summary, and a third more for quoted lines.
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
from sevenfold.recordings.recorded_session import RecordedSession
from sevenfold.replay.bookkeeping import ReplayBooks
from sevenfold.replay.policies import Policy
from sevenfold.testing.doubles import FakeClock

NOTES, SUMMARY = "fork:notes", "fork:compact"
SUMMARY_OUTPUT: Final = 3_300  # Output tokens of a model that writes a summary
NOTES_OUTPUT: Final = 400  # Output tokens of any update of the notes
NOTED: Final = 0.035  # ... and for each token that came since the last one.


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
        output = SUMMARY_OUTPUT
        if request.source == NOTES:
            new, self._noted_at = max(0, used.prompt - self._noted_at), used.prompt
            output = NOTES_OUTPUT + round(NOTED * new)
        used = replace(used, output=output)
        self._answered(request, used)
        for block in blocks:
            yield block
        yield Reply(message, used, "tool_use" if message.tool_uses else "end_turn", model=self.name)


_check: type[Model] = RuleModel


ASKED: Final = 900  # Tokens of the extraction prompt
NOTHING, SOMETHING = 150, 600  # Tokens of an answer without a memory, and of one that writes a memory
WRITING: Final = 1  # Further requests when a memory is written


class ReplayExtraction:
    """The extraction of one session. `ask`: one request on the prefix as it is now."""

    def __init__(
        self, policy: Policy, price: Price, ask: Callable[[], Usage], books: ReplayBooks, clock: FakeClock
    ) -> None:
        self._on, self._every = policy.flags.extraction, policy.extraction.every
        self._patient = policy.extraction.patient and price.input > 0
        self._ask, self._books, self._clock = ask, books, clock
        self._said: list[str] = []

    def note_message(self, message: Message) -> None:
        if self._on and (text := extract_typed_text(message)):
            self._said.append(text)

    def end_turn(self) -> None:
        if len(self._said) >= self._every and (not self._patient or is_urgent(self._said)):
            self._extract()

    def catch_up(self) -> bool:
        """Extract from the messages that wait, in a silence or at the end; True if there were any."""
        waited = bool(self._said)
        if waited:
            self._extract()
        return waited

    def _extract(self) -> None:
        found = any(map(is_lasting, self._said))
        self._said.clear()
        for n in range(1 + WRITING * found):
            used = self._ask()
            output = SOMETHING if found and n < WRITING else NOTHING
            self._books.record_request(
                "extraction",
                self._clock.time,
                replace(used, input=used.input + ASKED + n * SOMETHING, output=output),
            )


UNKNOWN: Final = "the file does not say whether a person talked: extraction is charged as if one did"


def has_person(recorded: RecordedSession) -> bool | None:
    """True if a person talked in the session; None if a file of ours does not say."""
    if recorded.agent:
        return False
    return recorded.interactive if isinstance(recorded, OwnRecordedSession) else True


def adjust_extraction(policy: Policy, person: bool | None) -> Policy:
    """The policy as it applies to a session with a person, or without."""
    if person is not False or policy.extraction.non_interactive:
        return policy
    return replace(policy, flags=replace(policy.flags, extraction=False))


def is_extraction_uncertain(recorded: RecordedSession, policies: tuple[Policy, ...]) -> bool:
    """True if extraction is charged although perhaps no person talked."""
    either = any(p.flags.extraction and not p.extraction.non_interactive for p in policies)
    return has_person(recorded) is None and either


PATH: Final = "file_path"
TOO_LONG: Final = "\n" * 120_000  # A file of which only a part was shown: too long to be restored
_NUMBERED: Final = re.compile(r"^\s*\d+[→\t]", re.M)
_LINE: Final = re.compile(r"^\s*(\d{1,6})[→\t](.*)$", re.M)
_REMINDER: Final = "<system-reminder>"


def _add_lines(text: str, shown: str) -> str:
    """The text of a file with the numbered lines that a call has shown."""
    lines = text.split("\n")
    for number, line in _LINE.findall(shown.partition(_REMINDER)[0]):
        if 0 < int(number) <= len(lines):
            lines[int(number) - 1] = line
    return "\n".join(lines)


class ReplayDisk:
    """The files of a recorded session, as far as its tool calls show them."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._results: dict[str, str] = {}  # Of files that were read and not changed since

    def read(self, path: str) -> str | None:
        result = self._results.get(path)
        if result is None:
            return self._files.get(path)
        return _NUMBERED.sub("", result.partition(_REMINDER)[0].rstrip("\n"))

    def apply_call(self, use: ToolUse, result: ToolResult) -> None:
        """Apply a call and its result."""
        path = use.input.get(PATH)
        if not isinstance(path, str) or result.is_error:
            return
        match use.name:
            case "Read":
                self._apply_read(path, use, result.text)
            case "Write":
                self._keep_text(path, str(use.input.get("content", "")))
            case "Edit":
                self._apply_edit(path, use.input)
            case "MultiEdit":
                edits = use.input.get("edits")
                for edit in edits if isinstance(edits, list) else ():
                    if isinstance(edit, dict):
                        self._apply_edit(path, edit)
            case _:
                pass

    def _apply_read(self, path: str, use: ToolUse, text: str) -> None:
        if use.input.get("offset") or use.input.get("limit"):
            if path not in self._results:
                self._files[path] = _add_lines(self._files.get(path, TOO_LONG), text)
            return
        self._files.pop(path, None)
        self._results[path] = text

    def _apply_edit(self, path: str, edit: dict[str, object]) -> None:
        old, new = str(edit.get("old_string", "")), str(edit.get("new_string", ""))
        if not old or (text := self.read(path)) is None:
            return
        self._keep_text(path, text.replace(old, new, -1 if edit.get("replace_all") else 1))

    def _keep_text(self, path: str, text: str) -> None:
        self._results.pop(path, None)
        self._files[path] = text
