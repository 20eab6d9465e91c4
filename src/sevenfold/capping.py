"""What the layers ask a model beside the conversation, held to the day's money for background work.

Each question reserves what it will probably cost before it is asked, and gives back what it did not use.
Only what nobody waits for is held to the limit: a summary that the next request needs is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sevenfold.cache.prices import Prices
from sevenfold.errors import Refused, SevenfoldError, StorageFailure
from sevenfold.events import Emit, Failed, Notice
from sevenfold.messages import Message
from sevenfold.protocols import Forker, ForkReply, Tools
from sevenfold.request import Request
from sevenfold.spending import Spending
from sevenfold.tokens import Usage

ANSWER: Final = 1_500
"""Tokens of a reply where nobody said how long it may get."""


@dataclass(slots=True)
class Capped:
    """A `Forker` that asks only while the day's money lasts."""

    fork: Forker
    prices: Prices
    spending: Spending
    emit: Emit
    _said: bool = False

    async def __call__(
        self,
        request: Request,
        directive: Message,
        *,
        kind: str,
        steps: int = 1,
        tools: Tools | None = None,
        max_tokens: int = 0,
    ) -> ForkReply:
        price = self.prices.of(request.frame.model)
        expected = _expected(request, steps, max_tokens)
        reserved = price.cost(expected) if price else 0.0
        self._reserve(kind, reserved)
        try:
            answer = await self.fork(
                request, directive, kind=kind, steps=steps, tools=tools, max_tokens=max_tokens
            )
        except SevenfoldError:  # what was cut off by anything else may have been paid for
            self._settle(kind, reserved, 0.0)
            raise
        self._settle(kind, reserved, price.cost(answer.usage) if price else 0.0)
        return answer

    def _reserve(self, kind: str, amount: float) -> None:
        if not amount or self.spending.reserve(kind, amount):
            return
        why = "background work may cost no more today"
        if not self._said:
            self._said = True
            self.emit(Notice(f"{why}; raise dailyBackgroundLimit in the settings to allow it"))
        raise Refused(f"{why} ({kind})")

    def _settle(self, kind: str, reserved: float, cost: float) -> None:
        if not reserved:
            return
        try:
            self.spending.settle(kind, reserved, cost)
        except StorageFailure as error:
            self.emit(Failed(kind, str(error)))


def _expected(request: Request, steps: int, max_tokens: int) -> Usage:
    """The prefix is read from the cache at every step, and each reply is read again by the next."""
    fixed = request.frame.tokens if request.view.reported is None else 0
    output = max_tokens or ANSWER
    prefix = steps * (request.view.tokens + fixed)
    return Usage(input=100 + output * (steps - 1), cache_read=prefix, output=output * steps)


_check: type[Forker] = Capped
