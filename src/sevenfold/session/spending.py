"""The day's limit for background work: one small file that all sessions of a user share.

Money is reserved before it is spent, so that two sessions together do not go over the limit, and what was
reserved too much is given back. A ledger that cannot be read or written lets nothing be spent.

What the layers ask a model beside the conversation, held to the day's money for background work. A
request that only keeps the provider's cache warm: the same prefix, and one word of answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.cache.prefix import choose_breakpoints
from sevenfold.cache.prices import Prices
from sevenfold.core.clock import format_date
from sevenfold.core.errors import ModelFailure, Refused, SevenfoldError, StorageFailure
from sevenfold.core.events import Emit, Failed, Notice, Replied
from sevenfold.core.messages import Message, assistant, user, write_directive
from sevenfold.core.protocols import Accounts, Clock, Forker, ForkReply, Tools
from sevenfold.core.request import Request
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Reply, Transcript
from sevenfold.layers.parts import Conversation
from sevenfold.storage.files import read_if_there, write_atomic
from sevenfold.storage.locks import hold_file_lock
from sevenfold.streaming import read_reply

NAME: Final = "spending.json"
_LARGEST: Final = 100_000


class SpendingDay(msgspec.Struct, frozen=True):
    """A calendar day and what was spent on it, in the currency of the price table."""

    day: str
    spent: float = 0.0
    by: dict[str, float] = {}  # The same by who spent it


class SpendingFile:
    """`<home>/spending.json`: today's sum. Days before today are forgotten."""

    def __init__(self, home: Path, limit: float | None, clock: Clock) -> None:
        """`limit` is for one day; None: there is none, and the sum is kept all the same."""
        self._file, self._limit, self._clock = home / NAME, limit, clock

    def reserve(self, by: str, amount: float) -> bool:
        """Set money aside before it is spent; False when the day's limit would be passed by it.

        Raises `StorageFailure` when the ledger cannot be kept: then nothing may be spent.
        """
        with hold_file_lock(self._file):
            today = self._today()
            allowed = self._limit is None or today.spent + amount <= self._limit
            self._write(_plus(today, by, amount) if allowed else today)
        return allowed

    def settle(self, by: str, reserved: float, cost: float) -> None:
        """Put what it really cost in place of what was reserved."""
        with hold_file_lock(self._file):
            self._write(_plus(self._today(), by, cost - reserved))

    @property
    def today(self) -> SpendingDay:
        """The money spent today."""
        return self._today()

    def _today(self) -> SpendingDay:
        day = format_date(self._clock.now())
        data = read_if_there(self._file, _LARGEST)
        if data is None:
            return SpendingDay(day)
        try:
            known = msgspec.json.decode(data, type=SpendingDay)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return SpendingDay(day, self._limit or 0.0)  # unknown: nothing more today
        return known if known.day == day else SpendingDay(day)

    def _write(self, day: SpendingDay) -> None:
        write_atomic(self._file, msgspec.json.encode(day) + b"\n", nofollow=True)


def _plus(day: SpendingDay, by: str, amount: float) -> SpendingDay:
    before = day.by.get(by, 0.0)
    return SpendingDay(day.day, max(0.0, day.spent + amount), {**day.by, by: max(0.0, before + amount)})


ANSWER: Final = 1_500  # Tokens of a reply without a limit


@dataclass(slots=True)
class CappedForker:
    """A `Forker` that asks only while the day's money lasts."""

    fork: Forker
    prices: Prices
    spending: SpendingFile
    emit: Emit
    cached: bool = True  # False: what is asked has no cached prefix
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
        expected = _expected(request, steps, max_tokens, cached=self.cached)
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


def _expected(request: Request, steps: int, max_tokens: int, *, cached: bool) -> Usage:
    """The prefix is sent at every step, mostly from the cache, and each reply is read again by the next."""
    output = max_tokens or ANSWER
    prefix, new = steps * request.tokens, 100 + output * (steps - 1)
    if not cached:
        return Usage(input=prefix + new, output=output * steps)
    return Usage(input=new, cache_read=prefix, output=output * steps)


_check: type[Forker] = CappedForker


SOURCE: Final = "keep-warm"
ASK: Final = "There is nothing to do: this only keeps the cache warm. Answer with one word."


@dataclass(slots=True)
class CacheWarmer:
    """Sends such a request, or says why it did not."""

    conversation: Conversation
    accounts: Accounts
    prices: Prices
    spending: SpendingFile
    emit: Emit
    _said: bool = False

    async def __call__(self, request: Request) -> Reply | None:
        """The reply; None when it was not sent, or failed. An event says why."""
        price = self.prices.of(request.frame.model)
        if price is None:  # what cannot be priced cannot be held to a limit
            return None
        small = make_minimal_request(request)
        reserved = price.cost(estimate_warm_usage(small))
        if not self._may_spend(reserved):
            return None
        self.accounts.before(small)
        began = perf_counter()
        try:
            reply = await read_reply(self.conversation.model, small)
        except ModelFailure as error:
            self.emit(Failed(SOURCE, str(error)))
            self._settle(reserved, 0.0)
            return None
        cost = self.accounts.after(small, reply) if reply else None
        if reply:
            took, usage = perf_counter() - began, reply.usage
            self.emit(Replied(assistant(), usage, reply.stop, took, cost, reply.model, small.source))
        self._settle(reserved, reserved if cost is None else cost)
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


def make_minimal_request(request: Request) -> Request:
    """The same prefix, marked where it ends, and a question behind it that needs no answer."""
    beside = Transcript.on(request.view, lambda: 0.0)
    beside.add(make_warm_question(request), by=SOURCE)
    return replace(
        request,
        view=beside.view,
        warm=None,
        breakpoints=choose_breakpoints(request.view),
        max_tokens=1,
        source=SOURCE,
    )


def make_warm_question(request: Request) -> Message:
    return user(write_directive(SOURCE, f"k-{len(request.view)}", ASK))


def estimate_warm_usage(request: Request) -> Usage:
    """The usage that the request is charged for: the whole prefix read, and any thinking."""
    thinking = (request.frame.params.get("thinking") or {}).get("budget_tokens") or 0
    return Usage(input=100, cache_read=request.tokens, output=1 + int(thinking))
