"""When a recorded session would have been looked through for what is worth remembering, and at what cost.

The layer's own rules say when. No model says what would be found: where something lasting was said it is
charged as when it is written down, else as when there is nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from sevenfold.cache.prices import Price
from sevenfold.layers.l5_durable_memory.pacing import at_once, lasts
from sevenfold.layers.l5_durable_memory.questions import typed
from sevenfold.messages import Message
from sevenfold.replay.policies import Policy
from sevenfold.replay.tallying import Tally
from sevenfold.testing import FakeClock
from sevenfold.tokens import Usage

ASKED: Final = 900
"""Tokens of the question what should be remembered."""
NOTHING, SOMETHING = 150, 600
"""Tokens of the answer that there is nothing, and of a memory that is written."""
WRITING: Final = 1
"""Requests more when something is written: the list of memories is in the question, and one says that it is
done."""


class Extracting:
    """The extraction of one session. `ask`: one request on the prefix as it is now."""

    def __init__(
        self,
        policy: Policy,
        price: Price,
        ask: Callable[[], Usage],
        tally: Tally,
        clock: FakeClock,
    ) -> None:
        self._on, self._every = policy.flags.extraction, policy.extraction.every
        self._patient = policy.extraction.patient and price.input > 0
        self._ask, self._tally, self._clock = ask, tally, clock
        self._said: list[str] = []

    def said(self, message: Message) -> None:
        if self._on and (text := typed(message)):
            self._said.append(text)

    def rested(self) -> None:
        """A turn has ended."""
        if len(self._said) >= self._every and (not self._patient or at_once(self._said)):
            self._look()

    def catch_up(self) -> bool:
        """The user is silent, or the session is over: what waits is looked at. Whether anything did."""
        waited = bool(self._said)
        if waited:
            self._look()
        return waited

    def _look(self) -> None:
        found = any(map(lasts, self._said))
        self._said.clear()
        for n in range(1 + WRITING * found):
            used = self._ask()
            output = SOMETHING if found and n < WRITING else NOTHING
            self._tally.asked(
                "extraction",
                self._clock.time,
                replace(used, input=used.input + ASKED + n * SOMETHING, output=output),
            )
