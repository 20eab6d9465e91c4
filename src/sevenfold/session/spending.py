"""The day's limit for background work: one small file that all sessions of a user share.

Money is reserved before it is spent, so that two sessions together do not go over the limit. What is
reserved is what the work is expected to cost. Each reply is recorded at what it did cost, and that counts
in the end, also when the process was killed: the next one finds it. Work of many steps is stopped when the
limit is reached. A ledger that cannot be read or written lets nothing be spent.

What the layers ask a model beside the conversation, held to the day's money for background work. A
request that only keeps the provider's cache warm: the same prefix, and one word of answer.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Final

import anyio
import msgspec
from msgspec.structs import replace

from sevenfold.cache.prefix import choose_breakpoints, count_kept_tokens
from sevenfold.cache.prices import Prices
from sevenfold.core.clock import format_date
from sevenfold.core.errors import Refused, SevenfoldError, StorageFailure
from sevenfold.core.events import Emit, Failed, Notice, Replied
from sevenfold.core.messages import Message, assistant, user, write_directive
from sevenfold.core.protocols import Accounts, Clock, Forker, ForkReply, Tools
from sevenfold.core.request import Request
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Reply, Transcript
from sevenfold.layers.parts import Conversation
from sevenfold.memory.dreams.lock import LockProcess, read_current_process
from sevenfold.storage.files import read_if_there, write_atomic
from sevenfold.storage.locks import hold_file_lock
from sevenfold.streaming import read_reply

NAME: Final = "spending.json"
_LARGEST: Final = 100_000


class SpendingReservation(msgspec.Struct, frozen=True):
    """Money that is set aside for work that goes on, and what the work has cost so far."""

    by: str
    expected: float
    owner: LockProcess
    cost: float = 0.0

    @property
    def amount(self) -> float:
        return max(self.expected, self.cost)


class SpendingDay(msgspec.Struct, frozen=True):
    """A calendar day and what was spent on it, in the currency of the price table."""

    day: str
    spent: float = 0.0
    by: dict[str, float] = {}  # The same by who spent it
    open: dict[str, SpendingReservation] = {}  # Work that goes on, by id

    def add(self, by: str, amount: float) -> SpendingDay:
        return replace(self, spent=self.spent + amount, by={**self.by, by: self.by.get(by, 0.0) + amount})

    def close(self, id: str, cost: float | None = None) -> SpendingDay:
        """The day when this work is over; `cost` is what it cost in all, if that is not recorded."""
        if (one := self.open.get(id)) is None:
            return self
        left = {other: work for other, work in self.open.items() if other != id}
        return replace(self, open=left).add(one.by, one.cost if cost is None else cost)

    @property
    def total(self) -> float:
        return self.spent + sum(one.amount for one in self.open.values())


class SpendingFile:
    """`<home>/spending.json`: today's sum. Days before today are forgotten."""

    def __init__(self, home: Path, limit: float | None, clock: Clock) -> None:
        """`limit` is for one day; None: there is none, and the sum is kept all the same."""
        self._file, self._limit, self._clock = home / NAME, limit, clock

    def reserve(self, by: str, amount: float, *, first: bool = False) -> str | None:
        """Set money aside before it is spent; None when the day's limit would be passed by it.

        Returns an id for `charge` and `settle`. With `first` the day's first work may be expected to cost
        more than the limit: the caller stops it when the limit is reached. Raises `StorageFailure` when
        the ledger cannot be kept: then nothing may be spent.
        """
        id = os.urandom(6).hex()
        with hold_file_lock(self._file):
            today = self._today()
            allowed = self._limit is None or today.total + amount <= self._limit
            if first and self._limit and not today.total:
                allowed, amount = True, min(amount, self._limit)
            if allowed:
                work = SpendingReservation(by, amount, read_current_process())
                today = replace(today, open={**today.open, id: work})
            self._write(today)
        return id if allowed else None

    def charge(self, id: str, by: str, cost: float) -> bool:
        """Record what a part of the work has cost; False when the day's limit is passed by now."""
        with hold_file_lock(self._file):
            today = self._today()
            if (one := today.open.get(id)) is None:  # another day has begun
                today = today.add(by, cost)
            else:
                today = replace(today, open={**today.open, id: replace(one, cost=one.cost + cost)})
            self._write(today)
        return self._limit is None or today.total <= self._limit

    def settle(self, id: str, cost: float | None = None) -> None:
        """Put what it really cost in place of what was reserved; without `cost` what was recorded."""
        with hold_file_lock(self._file):
            self._write(self._today().close(id, cost))

    @property
    def today(self) -> SpendingDay:
        """The money spent today, with what is set aside."""
        today = self._today()
        for id, one in today.open.items():
            today = today.close(id, one.amount)
        return today

    def _today(self) -> SpendingDay:
        """Today as it is recorded. Work whose process died has cost what was recorded."""
        day = format_date(self._clock.now())
        data = read_if_there(self._file, _LARGEST)
        if data is None:
            return SpendingDay(day)
        try:
            known = msgspec.json.decode(data, type=SpendingDay)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return SpendingDay(day, self._limit or 0.0)  # unknown: nothing more today
        if known.day != day:
            return SpendingDay(day)
        for id, one in known.open.items():
            known = known if one.owner.lives() else known.close(id)
        return known

    def _write(self, day: SpendingDay) -> None:
        write_atomic(self._file, msgspec.json.encode(day) + b"\n", nofollow=True)


ANSWER: Final = 1_500  # Tokens of a reply without a limit
CALL: Final = 1_000  # Tokens of a reply that calls tools, on average
STEPS_USED: Final = 1 / 3  # The part of its steps that work of many steps is expected to need
SPENT: Final = "background work may cost no more today"


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
        counted: Callable[[Usage], None] | None = None,
    ) -> ForkReply:
        price = self.prices.of(request.frame.model)
        replies = math.ceil(steps * STEPS_USED) if steps > 1 else 1
        expected = _expected(request, replies, max_tokens, cached=self.cached)
        amount = price.cost(expected) if price else 0.0
        if not price or not amount:
            return await self.fork(
                *(request, directive),
                kind=kind,
                steps=steps,
                tools=tools,
                max_tokens=max_tokens,
                counted=counted,
            )
        id = self._reserve(kind, amount, first=steps > 1)

        limit = anyio.CancelScope()

        def count(usage: Usage) -> None:
            if counted is not None:
                counted(usage)
            if not self.spending.charge(id, kind, price.cost(usage)) and steps > 1:
                limit.cancel()

        try:
            with limit:
                return await self.fork(
                    *(request, directive),
                    kind=kind,
                    steps=steps,
                    tools=tools,
                    max_tokens=max_tokens,
                    counted=count,
                )
        except SevenfoldError:
            raise
        except BaseException:  # a reply that was cut off may have been paid for
            with contextlib.suppress(StorageFailure):
                self.spending.charge(id, kind, amount / replies)
            raise
        finally:
            self._settle(kind, id)
        raise Refused(f"{kind} was stopped: {SPENT}")

    def _reserve(self, kind: str, amount: float, *, first: bool) -> str:
        if (id := self.spending.reserve(kind, amount, first=first)) is not None:
            return id
        if not self._said:
            self._said = True
            self.emit(Notice(f"{SPENT}; raise dailyBackgroundLimit in the settings to allow it"))
        raise Refused(f"{SPENT} ({kind})")

    def _settle(self, kind: str, id: str) -> None:
        try:
            self.spending.settle(id)
        except StorageFailure as error:
            self.emit(Failed(kind, str(error)))


def _expected(request: Request, replies: int, max_tokens: int, *, cached: bool) -> Usage:
    """The usage of so many replies, of a single one the most that it may have.

    The prefix is sent for every reply, mostly from the cache, and each is read again by the next.
    """
    output = max_tokens or ANSWER
    if replies > 1:
        output = min(output, CALL)
    prefix, new = replies * request.tokens, 100 + output * (replies - 1)
    if not cached:
        return Usage(input=prefix + new, output=output * replies)
    return Usage(input=new, cache_read=prefix, output=output * replies)


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
        reserved = price.cost(estimate_warm_usage(small, keeps_thinking=price.keeps_thinking))
        if (id := self._reserve(reserved)) is None:
            return None
        self.accounts.before(small)
        began = perf_counter()
        try:
            reply = await read_reply(self.conversation.model, small)
        except SevenfoldError as error:
            self.emit(Failed(SOURCE, str(error)))
            self._settle(id, 0.0)
            return None
        cost = self.accounts.after(small, reply) if reply else None
        if reply:
            took, usage = perf_counter() - began, reply.usage
            self.emit(Replied(assistant(), usage, reply.stop, took, cost, reply.model, small.source))
        self._settle(id, reserved if cost is None else cost)
        return reply

    def _reserve(self, amount: float) -> str | None:
        try:
            id = self.spending.reserve(SOURCE, amount)
        except StorageFailure as error:
            self.emit(Failed(SOURCE, f"nothing is spent without a ledger: {error}"))
            return None
        if id is None and not self._said:
            self._said = True
            self.emit(
                Notice(
                    f"the cache was not kept warm: {SPENT}; raise dailyBackgroundLimit in the settings to "
                    "allow it"
                )
            )
        return id

    def _settle(self, id: str, cost: float) -> None:
        try:
            self.spending.settle(id, cost)
        except StorageFailure as error:
            self.emit(Failed(SOURCE, str(error)))


def make_minimal_request(request: Request) -> Request:
    """The same prefix, marked where it ends, and a question behind it that needs no answer."""
    beside = Transcript.on(request.view, lambda: 0.0)
    beside.add(user(write_directive(SOURCE, f"k-{len(request.view)}", ASK)), by=SOURCE)
    last, known = request.view[-1].id, choose_breakpoints(beside.view, writes=False)
    return replace(
        request,
        view=beside.view,
        warm=None,
        breakpoints=(*known, *({last} - {*known})),
        max_tokens=1,
        source=SOURCE,
    )


def estimate_warm_usage(request: Request, *, keeps_thinking: bool) -> Usage:
    """The usage that it is charged for. What a forgetful model forgets is not read from the cache."""
    thinking = (request.frame.params.get("thinking") or {}).get("budget_tokens") or 0
    kept = count_kept_tokens(request, keeps_thinking=keeps_thinking)
    return Usage(input=100 + request.tokens - kept, cache_read=kept, output=1 + int(thinking))
