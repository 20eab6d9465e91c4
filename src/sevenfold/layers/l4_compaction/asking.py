"""Getting a summary out of a model: on the prefix it has in its cache, else as a plain request.

    on the prefix   the conversation's own request, one directive more; almost all of it is in the cache
    a nudge         once, when the reply has no summary in it
    plain           the record as text under a system prompt of its own, where the first way is closed:
                    the request was not accepted, was too long, or the model would only call tools
    shortened       too long again: the oldest rounds go, as many as the provider's numbers ask for

Whatever comes of it, the conversation is not touched here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio
import msgspec
from msgspec.structs import replace

from sevenfold.cutting import UNKNOWN_GAP, size_of
from sevenfold.errors import BadRequest, ModelFailure, PromptTooLong
from sevenfold.events import Emit, Progress
from sevenfold.invariants import open_uses
from sevenfold.layers.l4_compaction.settings import CompactionSettings
from sevenfold.layers.l4_compaction.stretch import rounds
from sevenfold.layers.l4_compaction.summary import (
    KIND,
    Answer,
    directive_text,
    nudge_text,
    parse,
    prompt,
    record_text,
)
from sevenfold.messages import Message, ToolResult, user
from sevenfold.models.directives import write_directive
from sevenfold.protocols import Forker
from sevenfold.request import Request
from sevenfold.tokens import Usage
from sevenfold.transcript import Placed, Transcript, View

PLAIN: Final = "compact-plain"
"""The kind of a plain request: a column of its own in the ledger, as it shares no prefix."""
LATER: Final = "[its result comes later: it is not needed for this]"
"""What stands for the result of a call that the request before ended with."""
DENIED: Final = "tools are not run here: answer in words"
ABOVE: Final = "Summarise the record above, all of it."
SHORTENED: Final = "[the oldest part of the record is left out here: it is too long]"


class NoSummary(Exception):
    """There is no summary to be had; the message says why, for people."""

    def __init__(self, why: str, used: Usage | None = None) -> None:
        super().__init__(why)
        self.used = used or Usage()
        """What asking for it used all the same."""


class _OnlyCalls(NoSummary):
    """The model called tools instead."""


class Wanted(msgspec.Struct, frozen=True):
    """What a summary is wanted of, and how it is to be asked for."""

    request: Request
    on: View | None
    """The view to fork from; None when the provider has just refused it."""
    scope: str
    stretch: Sequence[Placed]
    """What is summarised, for a plain request."""
    instructions: str
    max_tokens: int
    gap: int = 0
    """By how many tokens the stretch is known to be too long."""


class Written(msgspec.Struct, frozen=True):
    answer: Answer
    usage: Usage


class Summariser:
    """Asks until there is a summary with all its headings, or raises `NoSummary`."""

    def __init__(self, fork: Forker, settings: CompactionSettings, emit: Emit) -> None:
        self._fork, self._settings, self._emit = fork, settings, emit

    async def __call__(self, wanted: Wanted) -> Written:
        asking = _Asking(self._fork, self._settings, self._emit, wanted)
        try:
            return Written(await asking.by_all_means(), asking.used)
        except NoSummary as error:
            raise NoSummary(str(error), asking.used) from error
        except ModelFailure as error:
            raise NoSummary(str(error), asking.used) from error
        except TimeoutError:
            why = f"the model gave no summary within {self._settings.timeout_seconds:g} s"
            raise NoSummary(why, asking.used) from None


class _Asking:
    """One summary: all that is tried for it, and what that used."""

    def __init__(
        self, fork: Forker, settings: CompactionSettings, emit: Emit, wanted: Wanted
    ) -> None:
        self._fork, self._settings, self._emit, self._wanted = fork, settings, emit, wanted
        self.used = Usage()

    async def by_all_means(self) -> Answer:
        wanted, gap = self._wanted, self._wanted.gap
        if wanted.on is not None:
            request = replace(wanted.request, view=wanted.on)
            try:
                return await self._asked(request, KIND, wanted.scope)
            except PromptTooLong as error:
                gap = _gap(error, wanted.stretch)
            except (BadRequest, _OnlyCalls) as error:
                self._say(f"asking again without tools and history, because {error}")
        left = self._shortened(wanted.stretch, gap)
        for _ in range(self._settings.tries):
            try:
                return await self._asked(_plain(wanted, left), PLAIN, ABOVE)
            except PromptTooLong as error:
                was, left = left, self._shortened(left, _gap(error, left))
                if len(left) == len(was):
                    break
        raise NoSummary("the conversation is too long to be summarised, even in part")

    async def _asked(self, request: Request, kind: str, scope: str) -> Answer:
        """One question and at most one nudge."""
        body = directive_text(scope, self._wanted.instructions)
        first = await self._once(request, kind, body)
        if not first.answer.missing:
            return first.answer
        self._say("the reply has no whole summary: asking once more")
        nudge = nudge_text(first.answer.missing)
        nudged = _after(request, kind, body, first.message)
        if nudged is None:  # it said nothing: there is nothing to point at
            second = await self._once(request, kind, f"{body}\n\n{nudge}")
        else:
            second = await self._once(nudged, kind, nudge)
        if not (missing := second.answer.missing):
            return second.answer
        if second.message.tool_uses and request.frame.tools:
            raise _OnlyCalls("the model called tools instead of writing a summary")
        if not second.message.text.strip():
            raise NoSummary("the model's reply was empty")
        raise NoSummary(f"the model's reply had no whole summary: no “{missing[0]}”")

    async def _once(self, request: Request, kind: str, body: str) -> _Heard:
        directive, most = _directive(request, kind, body), self._wanted.max_tokens
        with anyio.fail_after(self._settings.timeout_seconds):
            said = await self._fork(request, directive, kind=kind, max_tokens=most)
        self.used += said.usage
        message = said.reply.message
        return _Heard(message, parse(message.text))

    def _shortened(self, left: Sequence[Placed], gap: int) -> Sequence[Placed]:
        """Without its oldest rounds, as many as cover the gap; the newest one stays in any case."""
        kept, gone = rounds(left), 0
        calibration = self._wanted.request.view.calibration
        while gap > 0 and len(kept) > 1:
            gap -= calibration.tokens(size_of(kept.pop(0)))
            gone += 1
        if gone:
            self._say(f"too long for one request: summarising without the oldest {gone:,} rounds")
        return [placed for one in kept for placed in one]

    def _say(self, text: str) -> None:
        self._emit(Progress("compaction", text))


class _Heard(msgspec.Struct, frozen=True):
    message: Message
    answer: Answer


def _directive(request: Request, kind: str, body: str) -> Message:
    last = request.view[-1].id if len(request.view) else 0
    return user(write_directive(kind, f"c-{last}", body))


def _after(request: Request, kind: str, body: str, reply: Message) -> Request | None:
    """The same request with the question and this reply behind it, its calls answered."""
    if not reply.says_something:
        return None
    log = Transcript.on(request.view, lambda: 0.0)
    if waiting := tuple(ToolResult(id, LATER) for id in open_uses(request.view)):
        log.add(Message("user", waiting), by="fork")
    log.add(_directive(request, kind, body), reply, by="fork")
    if uses := reply.tool_uses:
        denied = tuple(ToolResult(use.id, DENIED, is_error=True) for use in uses)
        log.add(Message("user", denied), by="fork")
    return replace(request, view=log.view)


def _plain(wanted: Wanted, left: Sequence[Placed]) -> Request:
    """A request that shares nothing with the conversation: no tools, no thinking, words only."""
    frame = wanted.request.frame
    betas = {k: v for k, v in frame.params.items() if k == "betas"}  # the size of the window
    text = record_text(left)
    log = Transcript(lambda: 0.0)
    log.add(user(text if len(left) == len(wanted.stretch) else f"{SHORTENED}\n{text}"))
    bare = replace(frame, system=(prompt("plain"),), tools=(), params=betas)
    return replace(wanted.request, frame=bare, view=log.view, warm=None, breakpoints=())


def _gap(error: PromptTooLong, sent: Sequence[Placed]) -> int:
    return error.over or max(1, int(size_of(sent).tokens() * UNKNOWN_GAP))
