"""While nobody speaks in a recorded session: what keeps the provider's cache warm, and what that costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from sevenfold.keeping_warm import minimal
from sevenfold.layers.l5_durable_memory.pacing import LULL
from sevenfold.messages import Text, assistant
from sevenfold.replay.provider import Provider
from sevenfold.replay.tallying import EXTRACTION, Tally
from sevenfold.request import KEPT_WARM, TTL_SECONDS, Frame, Request, kept_until
from sevenfold.testing import FakeClock
from sevenfold.transcript import Reply, Transcript, View
from sevenfold.turn import Turn

KEEP_WARM_AT: Final = 0.9
"""Of the cache's lifetime."""


class Silence:
    """Lets time pass. `times`: so many requests in a row keep the cache warm in any silence."""

    def __init__(
        self,
        frame: Frame,
        clock: FakeClock,
        transcript: Transcript,
        provider: Provider,
        tally: Tally,
        times: int,
        catch_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """`catch_up`: looks through the conversation, if there is need to, and so reads the prefix."""
        self._frame, self._clock, self._transcript = frame, clock, transcript
        self._provider, self._tally, self._times = provider, tally, times
        self._life = TTL_SECONDS[frame.ttl]
        self._catch_up = catch_up
        self._read = 0.0
        """When the prefix was last read beside the conversation."""

    def until(self, frame: Frame) -> float | None:
        """When the prefix is lost, if nobody speaks."""
        replied = self._transcript.view.replied_at
        return None if replied is None else max(replied, self._read) + self._life

    async def pass_until(self, then: float, turn: Callable[[], Turn]) -> None:
        """Nobody speaks; the layers that act on silence are asked, as the session's timer would."""
        last = self._transcript.view.replied_at
        rests = last is not None and at_rest(self._transcript.view)
        if last is not None and rests and last + LULL < then:
            self._clock.time = max(self._clock.time, last + LULL)
            if self._catch_up():
                self._read = self._clock.time
                mark = kept_until(self._transcript.view, self._read + self._life)
                self._transcript.add(mark, by=EXTRACTION)
        for n in range(1, self._times + 1):
            at = (last or then) + n * KEEP_WARM_AT * self._life
            if at >= then:
                break
            self._clock.time = at
            await self.kept_warm(turn().request)
        if turn().layers.idle and last is not None and rests:
            await self._watched(last, then, turn())
        self._clock.time = max(self._clock.time, then)

    async def _watched(self, last: float, then: float, turn: Turn) -> None:
        """Each time the cache is about to be lost."""
        ends, life = max(last, self._read) + self._life, self._life
        while (at := ends - (1 - KEEP_WARM_AT) * life + 1.0) < then:
            self._clock.time = at
            request = turn.request
            for layer in turn.layers.idle:
                turn.append(type(layer).__name__, await layer(request, at - last))
            kept = self._transcript.view.marks.get(KEPT_WARM) or {}
            until = kept.get("until", 0.0) if kept.get("since") == last else 0.0
            if until <= ends:
                return
            life, ends = until - at, until

    async def kept_warm(self, request: Request) -> Reply | None:
        """For an hour is as good as not at all: nothing promises that an older prefix lives so long."""
        request = replace(request, frame=self._frame)
        usage = replace(self._provider.ask(minimal(request), self._clock.time), output=1)
        self._tally.asked("keep warm", self._clock.time, usage)
        return Reply(assistant(Text("yes")), usage)


def at_rest(view: View) -> bool:
    """Whether the model has answered, and no tool is at work."""
    return bool(len(view)) and view[-1].by == "model" and not view[-1].message.tool_uses
