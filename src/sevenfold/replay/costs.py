"""Simulated charges of a provider: its prompt cache, prices, and the real token counts of a recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.cache.prices import Price, Prices
from sevenfold.core.errors import Mistake
from sevenfold.core.messages import THOUGHTS, Block, Message, Text, ToolResult, ToolUse
from sevenfold.core.request import TTL_SECONDS, Request, Ttl, strip_unsigned_thinking
from sevenfold.core.tokens import FRAME, MessageSize, Usage, measure_message
from sevenfold.core.transcript import Entry, Id, Pin, PlacedMessage, Replace, Reply, Results, Unthink
from sevenfold.models.anthropic_wire import MOST_MARKS
from sevenfold.replay.policies import format_suggestion
from sevenfold.simulator.cache import CachedPrompt, PromptCache

SCOPE: Final = ("replay", "model")
MINIMUM: Final = 1_024
SLACK: Final = 100  # Tokens by which parts of the first request may be off
SYSTEM: Final = ("system", 0, 0, "text")
_encode: Final = msgspec.json.Encoder().encode


class CacheProvider:
    """Answers what a request would read from the cache, write to it, and send plain."""

    def __init__(self, unseen: int, weigh: Callable[[PlacedMessage], int], known: int = 0) -> None:
        self._unseen, self._weigh = unseen, weigh
        self._known = known  # Tokens of `unseen` that were cached before the first request
        self._cache = PromptCache()
        self._last: CachedPrompt | None = None
        self._placed: list[PlacedMessage] = []
        self._buffer: object = None
        self._blocks: list[int] = []  # The index of the first block of each message
        self._prompt = CachedPrompt()
        self._reset_prompt()
        self.seconds = 0.0

    @property
    def unseen(self) -> int:
        """Tokens before the first message."""
        return self._unseen

    @unseen.setter
    def unseen(self, tokens: int) -> None:
        if tokens != self._unseen:
            self._unseen = tokens
            self._reset_prompt()

    def reweigh(self, since: Id, changed: Callable[[Message], bool]) -> None:
        """Count the tokens of such messages since that entry anew; the cache keeps what it has."""
        first: int | None = None
        for n in range(len(self._placed) - 1, -1, -1):
            if (placed := self._placed[n]).id < since:
                break
            if changed(placed.message):
                first = n
        if first is not None:
            self._cut_to(first)

    def ask(self, request: Request, now: float) -> Usage:
        """The usage of this request, without its output; the prefixes it marks are cached from then on."""
        began = perf_counter()
        prompt = self._make_prompt(request)
        if self._last is None:
            self._cache.write(SCOPE, self._cut_to_known(prompt), MINIMUM, now)
        verdict = self._cache.look(SCOPE, prompt, MINIMUM, now)
        self._cache.write(SCOPE, prompt, MINIMUM, now)
        self._last = prompt
        self.seconds += perf_counter() - began
        return verdict.usage()

    def lose_cache(self, read: int, of: int) -> None:
        """Lose as much of the last request as the recording lost, which read `read` tokens of `of`.

        Beyond the part before the messages the share counts: the views need not have the same length.
        """
        if self._last is None:
            return
        if read > self._unseen:
            share = (read - self._unseen) / max(1, of - self._unseen)
            read = self._unseen + int(share * (self._last.tokens - self._unseen))
        self._cache.forget(SCOPE, self._last, read)

    def note_reply_end(self, now: float) -> None:
        """Count the lifetime of the prefix from the end of the reply, as recorded sessions show."""
        if self._last is not None:
            self._cache.read(SCOPE, self._last, now)

    def _cut_to_known(self, prompt: CachedPrompt) -> CachedPrompt:
        """The part of the first request that other sessions had sent before."""
        most = self._known + SLACK
        end = max((n for n, tokens in enumerate(prompt.upto, 1) if tokens <= most), default=1)
        ttl = prompt.marks[0][1]
        return CachedPrompt(prompt.digests[:end], prompt.upto[:end], prompt.places[:end], [(end - 1, ttl)])

    def _reset_prompt(self) -> None:
        """Begin anew with what stands before the messages."""
        stable = min(self._known, self._unseen)
        self._placed.clear()
        self._blocks.clear()
        digests = [b"system", b"%d" % self._unseen]
        self._prompt = CachedPrompt(digests, [stable, self._unseen], [SYSTEM, SYSTEM])

    def _make_prompt(self, request: Request) -> CachedPrompt:
        self._follow_view(request)
        ttl, head = (int(TTL_SECONDS[t]) for t in (request.frame.ttl, request.frame.head_ttl))
        known, view = self._prompt, request.view
        places = sorted(at for id in request.breakpoints if (at := view.where(id)) is not None)
        marks = [(0, head), (1, head)] if len(places) + 2 <= MOST_MARKS else [(1, head)]
        for at in places[len(marks) - MOST_MARKS :]:
            end = self._blocks[at + 1] if at + 1 < len(self._blocks) else len(known)
            marks.append((end - 1, ttl))
        return CachedPrompt(known.digests, known.upto, known.places, marks)

    def _follow_view(self, request: Request) -> None:
        """Bring hashes and token counts up to this view; only what differs is computed."""
        view = request.view
        same = min(len(self._placed), len(view))
        if view.buffer is not self._buffer:  # a buffer only grows
            self._buffer = view.buffer
            pairs = enumerate(zip(self._placed, view, strict=False))
            same = next((at for at, (old, new) in pairs if old is not new), same)
        if same < len(self._placed):
            self._cut_to(same)
        prompt = self._prompt
        for at in range(same, len(view)):
            placed = view[at]
            digest = _hash_prefix(prompt.digests[-1], placed.message)
            tokens, weight = prompt.upto[-1], self._weigh(placed)
            self._placed.append(placed)
            self._blocks.append(len(prompt))
            for n, block in enumerate(placed.message.content):
                prompt.digests.append(digest + b"%d" % n)
                prompt.upto.append(tokens)
                prompt.places.append(("messages", at, 0, _name_kind(block)))
            prompt.upto[-1] = tokens + weight

    def _cut_to(self, same: int) -> None:
        """Cut to these first messages, in new lists: an earlier request holds the old ones."""
        end, old = self._blocks[same], self._prompt
        del self._placed[same:], self._blocks[same:]
        self._prompt = CachedPrompt(old.digests[:end], old.upto[:end], old.places[:end])


def _hash_prefix(before: bytes, message: Message) -> bytes:
    """The hash of a prefix that ends with this message; equal for equal bytes on the wire."""
    blocks = strip_unsigned_thinking(message).content
    return b"%d:" % hash((before, message.role, *map(_hash_block, blocks)))


def _hash_block(block: Block) -> int:
    """A text keeps its own hash; to encode it would make a second copy of it."""
    if type(block) is Text:
        return hash((block.text, _encode(block.extra) if block.extra else b""))
    if type(block) is ToolResult and isinstance(block.content, str):
        rest = _encode(block.extra) if block.extra else b""
        return hash((block.tool_use_id, block.content, block.is_error, rest))
    return hash(_encode(block))


def _name_kind(block: object) -> str:
    if type(block) is ToolUse:
        return "tool_use"
    return "tool_result" if type(block) is ToolResult else "text"


UNKNOWN: Final = Price(
    model="unknown", input=0.0, output=0.0, output_units=5.0, window=200_000, max_output=32_000, as_of=""
)  # The usual multiples for cache and output, and no price


class SessionPrice(msgspec.Struct, frozen=True):
    """The model of a session, and the price it is counted at."""

    model: str
    price: Price
    known: bool  # True for a real price; without one only base-price units are known
    error: str = ""
    others: dict[str, Price] = {}  # The prices of the other models that answered, by name
    small: Price | None = None  # The price of the small model that side work is asked of

    @property
    def prices(self) -> Prices:
        """A table that gives the layers this price for every model name but that of the small model."""
        price = self.price
        small = {self.small.model: self.small} if self.small is not None else {}
        return Prices({**small, price.model: price}, {self.model: price.model, "*": price.model})


def find_session_price(entries: Sequence[Entry], prices: Prices, wanted: str | None) -> SessionPrice:
    """The price of the session's own model, or of the one that was asked for."""
    model = find_main_model(entries)
    found = prices.of(wanted or model) if wanted or model else None
    if found is None:
        what = f"no price is known for {model}" if model else "it names no model"
        error = (
            f"{what}: costs are in base-price tokens alone, and nothing is compacted by price; "
            "--price MODEL gives them a price"
        )
        return SessionPrice(model, replace(UNKNOWN, model=model or "unknown"), False, error)
    small = prices.of(found.small) if found.small else None
    if wanted:
        return SessionPrice(model or found.model, found, True, small=small)
    others, error = _find_other_prices(model, found, entries, prices)
    return SessionPrice(model, found, True, error, others, small)


def _find_other_prices(
    model: str, main: Price, entries: Sequence[Entry], prices: Prices
) -> tuple[dict[str, Price], str]:
    """The prices of other models that answered, and an error about those without one."""
    replies = [e.what for e in entries if isinstance(e.what, Reply) and e.what.usage.prompt]
    times = Counter(reply.model for reply in replies if reply.model not in ("", model))
    found, unknown = dict[str, Price](), list[str]()
    for name in times:
        price = prices.of(name)
        if price is None or price.currency != main.currency or not main.input:
            unknown.append(name)
        elif price.model != main.model:
            found[name] = price
    if not unknown:
        return found, ""
    number = sum(times[name] for name in unknown)
    return found, (
        f"no price is known for {', '.join(unknown)}, which answered {number:,} of {len(replies):,} "
        f"requests: they are counted at the price of {main.model}"
    )


def find_wanted_model(prices: Prices, wanted: str) -> str:
    """A model whose price is known; `Mistake` with a suggestion when it is not."""
    if prices.of(wanted) is None:
        near = format_suggestion(wanted, [price.model for price in prices])
        raise Mistake(
            f"no price is known for {wanted!r}: {near or 'the price table does not have it'}; "
            "the setting 'prices' names a table of your own"
        )
    return wanted


def find_main_model(entries: Sequence[Entry]) -> str:
    """The model that answered most."""
    known = Counter(e.what.model for e in entries if isinstance(e.what, Reply) and e.what.model)
    return known.most_common(1)[0][0] if known else ""


LEAST, MOST = 0.4, 4.0  # Real tokens per estimated one; other rates have other causes, such as a hook
USUAL: Final = 1.25  # Real tokens per estimated token, where nothing better is known
SHRANK: Final = 0.97  # A request smaller than this part of the one before has lost something
LARGEST_FIXED: Final = 45_000  # Largest system prompt with tools (tokens); more is inherited history
LEAST_INHERITED: Final = 2_000  # Fewer tokens of inherited history cannot be told from wrong estimates
STILL_READ: Final = 0.95  # A request that reads less than this part of the prompt before it broke the cache
REMOVALS: Final = (Replace, Results, Unthink, Pin)  # Entries that mark what left the view
LEAST_BREAK: Final = 2_000  # Tokens; a smaller difference is the end of the prompt, which was not marked


@dataclass
class TokenRates:
    """A rate for each entry: real tokens for one estimated token."""

    unseen: int = 0
    known: int = 0  # Tokens of it that the first request read from the cache: other sessions had sent them
    resets: dict[Id, int] = field(default_factory=dict)  # `unseen` after each compaction
    rates: dict[Id, float] = field(default_factory=dict)
    usual: float = USUAL
    shrank: dict[Id, int] = field(default_factory=dict)  # Tokens that the recording itself had cleared
    breaks: dict[Id, int] = field(default_factory=dict)
    """Replies whose request broke the cache before it could expire, and the tokens it still read."""
    freed: dict[Id, int] = field(default_factory=dict)  # Estimated tokens that each compaction took out
    largest_fixed: int = LARGEST_FIXED

    def rate(self, id: Id) -> float:
        return self.rates.get(id, self.usual)

    @property
    def inherited(self) -> int:
        """Tokens of conversation before the first message: the session continued another."""
        return self.unseen - self.fixed

    @property
    def fixed(self) -> int:
        """Tokens of system prompt and tools: at most what a recorded compaction left over."""
        left = min(self.unseen, *(list(self.resets.values()) or [self.largest_fixed]))
        return self.unseen if self.unseen - left < LEAST_INHERITED else left


def estimate_message(message: Message) -> int:
    return estimate_size(measure_message(message))


def estimate_size(size: MessageSize) -> int:
    return size.tokens() + size.frames * FRAME


def has_thinking(message: Message) -> bool:
    return any(isinstance(block, THOUGHTS) for block in message.content)


def remove_thinking(message: Message) -> Message:
    if not has_thinking(message):
        return message
    return Message(message.role, tuple(b for b in message.content if not isinstance(b, THOUGHTS)))


def find_ttl(entries: Sequence[Entry]) -> Ttl:
    """The lifetime that most of the recorded cache writes were paid for."""
    usages = [e.what.usage for e in entries if isinstance(e.what, Reply)]
    hour = sum(used.cache_write_1h for used in usages)
    return "1h" if 2 * hour > sum(used.cache_write for used in usages) else "5m"


def compute_token_rates(entries: Sequence[Entry], fixed: int = LARGEST_FIXED) -> TokenRates:
    """Rates from the differences between requests; entries without one get the session's usual rate.

    `fixed` is the largest system prompt with tools that the session can have had.
    """
    known, added, before = TokenRates(largest_fixed=fixed), dict[Id, int](), None
    view = dict[Id, int]()  # The estimate of each message that the recording showed to its model
    compacted: Id | None = None  # The compaction since the last request that took away the beginning
    replaced = False
    for entry in entries:
        message = entry.what.message if isinstance(entry.what, Reply) else entry.what
        if isinstance(entry.what, Reply) and (prompt := entry.what.usage.prompt):
            if before is None:
                known.unseen = max(0, prompt - round(sum(added.values()) * USUAL))
                known.known = entry.what.usage.cache_read
            elif compacted is not None:
                usual = median(known.rates.values()) if known.rates else USUAL
                seen = sum(tokens * known.rates.get(id, usual) for id, tokens in view.items())
                known.resets[compacted] = max(0, prompt - round(seen))
            elif not replaced:
                _share_out(known, prompt - before, added)
                if prompt < SHRANK * before:
                    known.shrank[entry.id] = before - prompt
            added, before, compacted, replaced = {}, prompt, None, False
        if isinstance(entry.what, Replace):
            whole, view = sum(view.values()), _replace_estimates(view, entry.id, entry.what)
            known.freed[entry.id] = whole - sum(view.values())
            compacted = entry.id if next(iter(view)) == entry.id else compacted
            added, replaced = {}, True
        elif isinstance(message, Message):
            added[entry.id] = view[entry.id] = estimate_message(message)
    if known.rates:
        known.usual = median(known.rates.values())
    fixed = known.fixed
    for id, left in known.resets.items():
        known.resets[id] = fixed if abs(left - fixed) < LEAST_INHERITED else left
    known.breaks = _find_recorded_breaks(entries, known.shrank)
    return known


def _replace_estimates(view: dict[Id, int], id: Id, edit: Replace) -> dict[Id, int]:
    """The estimates after a compaction: the summary, and the messages that stayed around it."""
    ids = list(view)
    before = ids[: ids.index(edit.first)] if edit.first in view else []
    kept = ids[ids.index(edit.last) + 1 :] if edit.last in view else []
    summary = {id: sum(map(estimate_message, edit.by))}
    return {one: view[one] for one in before} | summary | {one: view[one] for one in kept}


def _find_recorded_breaks(entries: Sequence[Entry], shrank: Container[Id]) -> dict[Id, int]:
    """The replies that broke the cache inside its lifetime, and the tokens that they still read.

    A compaction or a prompt that shrank changed the prefix by design; those are no such breaks.
    """
    life, found = TTL_SECONDS[find_ttl(entries)], dict[Id, int]()
    before: Usage | None = None
    replied = sent = 0.0
    for entry in entries:
        if isinstance(entry.what, REMOVALS):
            before = None
        elif not isinstance(entry.what, Reply):
            sent = entry.at
        elif (used := entry.what.usage).prompt:
            if before is not None and sent - replied <= life and entry.id not in shrank:
                lost = before.prompt - used.cache_read
                if lost >= LEAST_BREAK and used.cache_read < STILL_READ * before.prompt:
                    found[entry.id] = used.cache_read
            before, replied, sent = used, entry.at, entry.at
    # A client that never read a cache did not use one: nothing of its could break.
    used_cache = any(e.what.usage.cache_read for e in entries if isinstance(e.what, Reply))
    return found if used_cache else {}


def find_largest_fixed(entries: Sequence[Entry], shared_reads: Container[int]) -> int:
    """The largest system prompt with tools that a session can have had.

    A first request that read as much as those of other sessions began with their fixed prefix: there is no
    inherited history in it, however long it is.
    """
    used = (e.what.usage for e in entries if isinstance(e.what, Reply) and e.what.usage.prompt)
    first = next(used, Usage())
    return max(LARGEST_FIXED, first.prompt) if first.cache_read in shared_reads else LARGEST_FIXED


def find_unmarked_losses(entries: Sequence[Entry]) -> list[int]:
    """Tokens by which requests were smaller than the one before, with no compaction or clearing between."""
    found, before = list[int](), 0
    for entry in entries:
        if isinstance(entry.what, REMOVALS):
            before = 0
        elif isinstance(entry.what, Reply) and (prompt := entry.what.usage.prompt):
            if prompt < SHRANK * before:
                found.append(before - prompt)
            before = prompt
    return found


def _share_out(known: TokenRates, tokens: int, added: dict[Id, int]) -> None:
    whole = sum(added.values())
    if whole and LEAST <= tokens / whole <= MOST:
        known.rates.update(dict.fromkeys(added, tokens / whole))
