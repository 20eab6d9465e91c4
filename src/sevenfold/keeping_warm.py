"""A request that only keeps the provider's cache warm: the same prefix, and one word of answer.

It goes beside the conversation: not into the transcript, into the ledger under a name of its own, and only
for as long as the day's money for background work lasts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from msgspec.structs import replace

from sevenfold.cache.breakpoints import place
from sevenfold.cache.prices import Prices
from sevenfold.errors import ModelFailure, StorageFailure
from sevenfold.events import Emit, Failed, Notice, Replied
from sevenfold.messages import Message, assistant, user
from sevenfold.models.directives import write_directive
from sevenfold.protocols import Accounts, Model
from sevenfold.request import Request
from sevenfold.spending import Spending
from sevenfold.tokens import Usage
from sevenfold.transcript import Reply, Transcript

SOURCE: Final = "keep-warm"
ASK: Final = "There is nothing to do: this only keeps the cache warm. Answer with one word."


@dataclass(slots=True)
class KeepingWarm:
    """Sends such a request, or says why it did not."""

    model: Callable[[], Model]
    """The model of the moment."""
    accounts: Accounts
    prices: Prices
    spending: Spending
    emit: Emit
    _said: bool = False

    async def __call__(self, request: Request) -> Reply | None:
        """The reply; None when it was not sent, or failed. An event says why."""
        price = self.prices.of(request.frame.model)
        if price is None:  # what cannot be priced cannot be held to a limit
            return None
        small = minimal(request)
        reserved = price.cost(expected(small))
        if not self._may_spend(reserved):
            return None
        self.accounts.before(small)
        began = perf_counter()
        try:
            reply = await self._sent(small)
        except ModelFailure as error:
            self.emit(Failed(SOURCE, str(error)))
            self._settle(reserved, 0.0)
            return None
        cost = self.accounts.after(small, reply) if reply else None
        if reply:
            took = perf_counter() - began
            said = (assistant(), reply.usage, reply.stop)
            self.emit(Replied(*said, took, cost, reply.model, small.source))
        self._settle(reserved, reserved if cost is None else cost)
        return reply

    async def _sent(self, request: Request) -> Reply | None:
        reply: Reply | None = None
        async with aclosing(self.model().stream(request)) as stream:
            async for item in stream:
                if isinstance(item, Reply):
                    reply = item
        return reply

    def _may_spend(self, amount: float) -> bool:
        try:
            allowed = self.spending.reserve(SOURCE, amount)
        except StorageFailure as error:
            self.emit(Failed(SOURCE, f"nothing is spent without a ledger: {error}"))
            return False
        if not allowed and not self._said:
            self._said = True
            self.emit(
                Notice(
                    "the cache was not kept warm: background work may cost no more today; raise "
                    "dailyBackgroundLimit in the settings to allow it"
                )
            )
        return allowed

    def _settle(self, reserved: float, cost: float) -> None:
        try:
            self.spending.settle(SOURCE, reserved, cost)
        except StorageFailure as error:
            self.emit(Failed(SOURCE, str(error)))


def minimal(request: Request) -> Request:
    """The same prefix, marked where it ends, and a question behind it that needs no answer."""
    beside = Transcript.on(request.view, lambda: 0.0)
    beside.add(asking(request), by=SOURCE)
    return replace(
        request,
        view=beside.view,
        warm=None,
        breakpoints=place(request.view),
        max_tokens=1,
        source=SOURCE,
    )


def asking(request: Request) -> Message:
    return user(write_directive(SOURCE, f"k-{len(request.view)}", ASK))


def expected(request: Request) -> Usage:
    """What it will be charged for: all of the prefix read, and what a model that thinks may think."""
    thinking = (request.frame.params.get("thinking") or {}).get("budget_tokens") or 0
    fixed = request.frame.tokens if request.view.reported is None else 0
    return Usage(input=100, cache_read=request.view.tokens + fixed, output=1 + int(thinking))
