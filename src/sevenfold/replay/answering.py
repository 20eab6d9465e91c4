"""Who writes notes and summaries when a session is driven again: the offline engine, charged as a model is.

It writes by rule what a model would write in its own words: longer than the summaries of the recordings
(about 4,700 estimated tokens against 2,700), so the room they take is not understated. What writing them
costs is taken from the recordings: a summary has 3,000 tokens whatever it was of, and half as much of
analysis before them. Notes cost what a model that edits lines would write: a little in any
case, and as much for what is new as a recorded summary has for what it replaced, a third more for
the lines that an edit quotes. (The rules write whole sections anew each time, which no model would.)
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from time import process_time
from typing import Final

from msgspec.structs import replace

from sevenfold.messages import Block, Message
from sevenfold.models.offline import Conversation, answer
from sevenfold.protocols import Capabilities, Model
from sevenfold.request import Request
from sevenfold.tokens import Usage
from sevenfold.transcript import Reply

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
        blocks = answer(Conversation.of(request))
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
