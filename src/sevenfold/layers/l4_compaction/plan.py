"""The plan of a compaction: the stretch it replaces, the part it keeps, and the tokens after it.

Three parts: `CompactionPlan` (the stretch, and where a tail may begin), `SummaryWorth` (does a summary pay
although the window is not full? in base-price input tokens) and `CompactionBreaker` (no more summaries
after too many failures in a row, or when the window fills up again at once).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice, pairwise
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.cache.prefix import count_kept_tokens
from sevenfold.cache.prices import Price
from sevenfold.core.errors import Mistake, Refused
from sevenfold.core.messages import Message, Text, user
from sevenfold.core.protocols import Capabilities
from sevenfold.core.request import TTL_SECONDS, Request, Ttl, find_open_uses
from sevenfold.core.tokens import TEXT_RATE, MessageSize, Pressure, Usage, scale_constant
from sevenfold.core.transcript import Id, Mark, PlacedMessage, Replace, View
from sevenfold.layers.shared.boundary import (
    SPOKEN,
    apply_edits,
    can_begin_at,
    can_cut_at,
    collect_facts,
    compute_target_tokens,
    count_context_tokens,
    count_fixed_tokens,
    estimate_padded_tokens,
    find_apart,
    find_last_boundary,
    find_record,
    find_thinking_loop,
    is_question_before,
    is_thinking_allowed,
    make_replacements,
    measure_user_texts,
    repeat_question,
    sum_sizes,
)
from sevenfold.layers.shared.facts import LONG, Facts, summarise_call
from sevenfold.layers.shared.fidelity import iterate_strings
from sevenfold.layers.shared.restore import RestoreEstimate, Stands
from sevenfold.settings.layers import CompactionSettings


def split_rounds(placed: Sequence[PlacedMessage]) -> list[Sequence[PlacedMessage]]:
    """By API round: a reply of the model and all that came until the next one."""
    starts = [
        at
        for at in range(1, len(placed))
        if placed[at].message.role == "assistant" and placed[at - 1].message.role != "assistant"
    ]
    return [placed[a:b] for a, b in pairwise([0, *starts, len(placed)]) if a < b]


def find_tail_starts(view: View) -> Iterator[int]:
    """Yields where a tail may begin, the gentlest first: newest round, after its results, the end."""
    loop = find_thinking_loop(view)
    newest = len(view) - len(split_rounds(list(view))[-1]) if len(view) else 0
    answered = next((at for at in range(newest + 1, len(view)) if can_cut_at(view, at)), len(view))
    for at in dict.fromkeys((newest, answered, len(view))):
        if can_begin_at(view, at, loop):
            yield at


def find_reply_end(view: View, at: int) -> int:
    """The place where the reply that begins here ends; here, if none does."""
    while at < len(view) and view[at].message.role == "assistant":
        at += 1
    return at


def widen_stretch(view: View, first: int, cut: int) -> tuple[int, int]:
    """The same stretch, with what may not be torn from it."""
    while not can_cut_at(view, first):
        first -= 1
    while not can_cut_at(view, cut):
        cut += 1
    return first, cut


def make_view_before(view: View, cut: int) -> View:
    """The view as it was when it ended before this message: the same bytes, so the same cache."""
    here = [view[i] for i in range(cut)]
    ids = {placed.id for placed in here}
    pins = tuple(pin for pin in view.pins if pin.after in ids)
    return replace(view, length=cut, size=sum_sizes(here), pins=pins)


def find_unread_results(view: View) -> tuple[tuple[str, str], ...]:
    """The newest calls and their results, when the model has not answered them yet."""
    if len(view) < 2 or not (results := view[-1].message.results):
        return ()
    uses = {use.id: use for use in view[-2].message.tool_uses}
    return tuple(
        (summarise_call(uses[r.tool_use_id]).name, r.text) for r in results if r.tool_use_id in uses
    )


BY: Final = "Compaction"
AHEAD: Final = "ahead"  # The trigger of a summary that was prepared before it was needed
PRICE: Final = "price"  # The trigger of a summary that pays although the window is not full
AUTOMATIC: Final = ("auto", "refused", AHEAD, PRICE)  # The triggers that are not by hand
ROOMY: Final = 0.2  # The part of a full window that a summary should free, as the notes have to
NEWEST: Final = 0.75  # The most of the room that what is kept may take
LEAST: Final = 500  # Tokens of the smallest summary: what is not larger is not worth one


class CompactionPlan(msgspec.Struct, frozen=True, dict=True):
    """The stretch to replace: from message `first` to before message `cut`, in the view of `request`.

    What has to be looked for in the view is looked for once.
    """

    request: Request
    pressure: Pressure
    trigger: str
    first: int
    cut: int
    before: int  # Tokens of the request as it is
    most: int  # ... and the most that it should come to.
    stands: Stands | None = None  # True for messages that come back after every compaction

    @property
    def view(self) -> View:
        return self.request.view

    @cached_property
    def stretch(self) -> list[PlacedMessage]:
        return [self.view[at] for at in range(self.first, self.cut)]

    @cached_property
    def apart(self) -> int | None:
        return find_apart(self.view, self.first, self.cut, words=False)

    @cached_property
    def facts(self) -> Facts:
        """The facts of what is replaced."""
        apart = self.apart
        gone = (self.view[at] for at in range(self.first, self.cut) if at != apart)
        return collect_facts(gone, self.view.marks)

    @cached_property
    def said(self) -> list[int]:
        """Tokens of each thing that the user said in it, as `facts` has them, without looking for more."""
        apart, rate = self.apart, TEXT_RATE * self.view.calibration.factors[0]
        gone = (self.view[at] for at in range(self.first, self.cut) if at != apart)
        return [int(size * rate) for size in measure_user_texts(gone, self.view.marks)]

    @cached_property
    def asked_within(self) -> bool:
        """True if the user's last words are only in the replacement."""
        return self.apart is None and is_question_before(self.view, self.cut)

    @cached_property
    def question(self) -> tuple[Message, ...]:
        """What the user said last, where only the replacement would have it. By hand nothing is being
        worked on.
        """
        return repeat_question(self.facts) if self.automatic and self.asked_within else ()

    @property
    def removed(self) -> int:
        """Tokens of what is replaced, without what stays apart and what comes back."""
        gone = self._size if self.apart is None else self._size - self.view[self.apart].size
        return max(0, self.view.calibration.tokens(gone) - self.back)

    @cached_property
    def back(self) -> int:
        """Tokens of what is replaced that come back as they were."""
        room = self.most - count_fixed_tokens(self.request, self.before)
        return RestoreEstimate(self.view, self.stands, room).between(self.first, self.cut)

    @cached_property
    def _size(self) -> MessageSize:
        """Worked out from what is not replaced, where that is less: nearly always it is."""
        view, first, cut = self.view, self.first, self.cut
        if 2 * (cut - first) < len(view):
            return sum_sizes(self.stretch)
        rest = chain(range(first), range(cut, len(view)))
        return view.size - sum_sizes(view[at] for at in rest)

    @property
    def automatic(self) -> bool:
        return self.trigger in AUTOMATIC

    @property
    def full(self) -> bool:
        return self.before > self.pressure.thresholds.auto_compact

    @property
    def promising(self) -> bool:
        """True if a summary could help at all: it takes some room itself, and the user's words stay."""
        said = self.said
        if self.removed - sum(said) <= LEAST:
            return False
        whole = len(said) - self.asked_within
        cut = [min(one, int(LONG * TEXT_RATE)) for one in said[:whole]]
        left = self.before - self.removed + LEAST + sum(cut) + sum(said[whole:])
        return not self.automatic or left <= self.most

    def edits(self, text: str) -> tuple[Replace, ...]:
        return make_replacements(self.view, self.first, self.cut, self.apart, user(text), self.question)

    def after(self, edits: tuple[Replace, ...]) -> View:
        return apply_edits(self.view, edits, BY)

    def tokens_with(self, view: View) -> int:
        return count_context_tokens(replace(self.request, view=view), self.pressure)

    def is_roomy(self, after: View) -> bool:
        """True if it would not be full again at once: a full window has to lose a good part of it."""
        freed = self.before - self.tokens_with(after) - self.back
        return not self.full or not self.automatic or freed >= ROOMY * self.pressure.window

    def helped_by(self, after: View, able: Capabilities) -> bool:
        """Smaller than before, small enough if it must be, and allowed; what comes back counts."""
        tokens = self.tokens_with(after) + self.back
        small = tokens < self.before and (tokens <= self.most or not self.automatic)
        return small and is_thinking_allowed(self.view, after, able)


def plan_everything(request: Request, pressure: Pressure, trigger: str) -> CompactionPlan:
    """Nothing is kept."""
    before = count_context_tokens(request, pressure)
    most = compute_target_tokens(before, pressure)
    return CompactionPlan(request, pressure, trigger, 0, len(request.view), before, most)


def make_plan(
    request: Request,
    pressure: Pressure,
    trigger: str,
    able: Capabilities,
    first: Id | None = None,
    last: Id | None = None,
    stands: Stands | None = None,
) -> CompactionPlan | None:
    """From entry `first` to entry `last`; without either, all but the newest round, if there is one.

    `stands`: which messages come back after every compaction.
    """
    view = request.view
    if not len(view):
        return None
    whole = replace(plan_everything(request, pressure, trigger), stands=stands)
    if find_open_uses(view):
        if whole.automatic:
            return None
        raise Refused("tools are still running: wait for them, or stop them, before compacting")
    if first is None and last is None:
        return _keeping_the_newest(whole, able)
    start = 0 if first is None else _place(view, first)
    end = len(view) if last is None else _place(view, last) + 1
    if end <= start:
        raise Mistake(f"message {last} comes before message {first}: give them in their order")
    start, end = widen_stretch(view, start, end)
    return replace(whole, first=start, cut=end)


def _place(view: View, id: Id) -> int:
    if (at := view.where(id)) is None:
        raise Mistake(f"message {id} is not in the view any more: choose one that is")
    return at


def _keeping_the_newest(whole: CompactionPlan, able: Capabilities) -> CompactionPlan:
    """The gentlest cut that leaves room for a summary, and thinking where it must stay."""
    view = whole.view
    room = whole.most - count_fixed_tokens(whole.request, whole.before)
    for cut in find_tail_starts(view):
        kept = sum_sizes([view[at] for at in range(cut, len(view))])
        found = replace(whole, cut=cut)
        small = estimate_padded_tokens(view, kept) <= (room - found.back) * NEWEST
        edits = make_replacements(view, 0, cut, found.apart, user("")) if cut and small else ()
        if edits and is_thinking_allowed(view, found.after(edits), able):
            return found
    return whole


LEFT: Final = 14_000
"""Tokens that take the place: a summary, the user's words, files read again, names. All these shrink with
the window; decisions 8 and 10 say where they come from."""
ANSWER: Final = 3_300  # Tokens of the answer, analysis included
AGAIN: Final = 1.5  # Times that something which left is asked for again
NEEDED: Final = 2_500  # ... and how many tokens it has each time; the call for it costs about 600 more.
CALL: Final = 600


class SummaryRates(msgspec.Struct, frozen=True):
    """Prices of a token, as multiples of the plain input price."""

    write: float
    read: float
    output: float
    keeps_thinking: bool = True

    @classmethod
    def of(cls, price: Price, ttl: Ttl, caches: bool) -> SummaryRates:
        output = price.units(Usage(output=1))
        if not caches:
            return cls(1.0, 1.0, output)
        write = price.write_1h if ttl == "1h" else price.write_5m
        return cls(write, price.read, output, price.keeps_thinking)


class SummaryWorth(msgspec.Struct, frozen=True):
    """The expected saving of a summary now, and its price."""

    saving: float
    price: float
    freed: float  # Tokens by which the request would be smaller

    @property
    def times(self) -> float:
        return self.saving / self.price if self.price > 0 else 0.0


def estimate_worth(
    planned: CompactionPlan, rates: SummaryRates, settings: CompactionSettings, words: int = 0
) -> SummaryWorth:
    """Of exactly what the plan takes out. `words`: tokens of what the user said in it, which stays."""
    view, pressure = planned.view, planned.pressure
    window, tokens, count = pressure.window, pressure.tokens, view.calibration.tokens
    answer = scale_constant(ANSWER, window)
    left = max(scale_constant(LEFT, window), answer + words)
    gone = min(planned.removed, tokens)
    freed = max(0.0, gone - left)
    fresh = min(tokens, count(sum_sizes(find_unsent_messages(view))))
    fixed = count_fixed_tokens(planned.request, tokens)
    kept = max(0, tokens - gone - fixed - fresh)
    after = tokens - freed
    saving = freed * rates.read * settings.requests_ahead
    again = AGAIN * (after * rates.read + scale_constant(CALL + NEEDED * rates.write, window))
    if pressure.warm:
        # What is kept stands behind the summary: it was in the cache, and is written anew.
        lost = (
            0 if rates.keeps_thinking else tokens - count_kept_tokens(planned.request, keeps_thinking=False)
        )
        lost = max(fresh, lost)
        asking = (tokens - lost) * rates.read + lost * rates.write + answer * rates.output
        written = left * rates.write + kept * (rates.write - rates.read)
        return SummaryWorth(saving, asking + written + again, freed)
    # All of the messages have to be written anew in any case: what left need not be.
    asking = answer * rates.output
    if settings.record_characters:
        asking += count(estimate_record_size(planned.stretch, settings.record_characters))
    else:
        head = fixed if pressure.idle < TTL_SECONDS[planned.request.frame.head_ttl] else 0
        asking += tokens - head * (1 - rates.read)
    return SummaryWorth(saving + freed * (rates.write - rates.read), asking + again, freed)


def estimate_record_size(stretch: Iterable[PlacedMessage], most: int) -> MessageSize:
    """The size of these messages in a record that cuts what tools were given and answered."""
    return MessageSize(text=sum(_estimate_recorded(p.message, most) for p in stretch))


def _estimate_recorded(message: Message, most: int) -> int:
    texts = sum(len(block.text) for block in message.content if isinstance(block, Text))
    results = sum(min(most, len(result.text)) for result in message.results)
    return texts + results + sum(min(most, _count_letters(use.input)) for use in message.tool_uses)


def _count_letters(value: object) -> int:
    return sum(len(text) for text in iterate_strings(value))


def find_unsent_messages(view: View) -> Sequence[PlacedMessage]:
    """The messages after the last reply. No request had them yet, so they are not in a cache."""
    at = len(view)
    while at and view[at - 1].by != "model":
        at -= 1
    return [view[i] for i in range(at, len(view))] if at else []


def has_edits(request: Request) -> bool:
    """True if something has left the view in this pass already. Marks alone change nothing."""
    warm, view = request.warm, request.view
    if warm is None or warm is view:
        return False
    return warm.buffer is not view.buffer or (len(warm), warm.pins) != (len(view), view.pins)


def is_turn_start(view: View) -> bool:
    """True if the user has just spoken, or a notice came in after a task was done: less is lost then."""
    for at in range(len(view) - 1, -1, -1):
        message = view[at].message
        if message.role == "assistant":
            return at < len(view) - 1 and not message.tool_uses
        if message.results:
            return False
    return len(view) > 0


BREAKER: Final = "compaction.breaker"  # The name of the mark


class CompactionBreaker(msgspec.Struct, frozen=True, omit_defaults=True):
    """The latest outcomes of compaction with one model, and what the user was told about them."""

    model: str = ""
    failures: int = 0
    refills: int = 0  # Compactions in a row after which the window was full again at once
    at: Id = -1  # The last message when the view was last compacted
    told: str = ""
    tried: Id = -1  # The last message when a summary was last tried because it pays
    unpaid: int = 0  # Such tries in a row that came to nothing

    @classmethod
    def of(cls, view: View, model: str) -> CompactionBreaker:
        """As it stands; another model begins anew."""
        try:
            known = msgspec.convert(view.marks.get(BREAKER), cls)
        except msgspec.ValidationError:
            return cls(model)
        return known if known.model == model else cls(model)

    @property
    def mark(self) -> Mark:
        return Mark(BREAKER, msgspec.to_builtins(self))

    def full_again(self, view: View, settings: CompactionSettings) -> CompactionBreaker:
        """The window is full: was it compacted only just now?"""
        if self.at < 0 or self.refills >= settings.refills:
            return self
        if self.tried > self.at:  # there were replies enough for one that pays
            return replace(self, refills=0)
        replies = sum(placed.by == "model" for placed in view.since(self.at))
        return replace(self, refills=self.refills + 1 if replies <= settings.refilled_within else 0)

    def why_open(self, settings: CompactionSettings) -> str:
        """The reason why no summary is asked for, as a sentence; empty while the breaker is closed."""
        if self.failures >= settings.failures:
            return (
                f"{self.failures} summaries in a row have failed: from now on a full window is "
                "shortened without a model; /compact or another model tries again"
            )
        if self.refills >= settings.refills:
            return (
                f"the window was full again within {settings.refilled_within} replies after each of "
                f"the last {self.refills} compactions, so no more summaries are asked for: what is "
                "read is too large for this window; read it in parts, or use a larger window; "
                "/compact tries again"
            )
        return ""

    def failed(self) -> CompactionBreaker:
        return replace(self, failures=self.failures + 1)

    def compacted(self, view: View) -> CompactionBreaker:
        """The view is about to be shortened; from here on replies are counted."""
        return replace(self, at=view[-1].id)

    def succeeded(self, view: View) -> CompactionBreaker:
        return replace(self.compacted(view), failures=0, told="", unpaid=0)

    # --- because it pays --------------------------------------------------------------------------------

    def rests(self, view: View, settings: CompactionSettings) -> bool:
        """True if it is too early, or of no use, to try one that pays."""
        if self.unpaid >= settings.failures or self.why_open(settings):
            return True
        apart = max(settings.replies_apart, settings.refilled_within + 1)
        if self.tried >= 0 and not _answered(view, self.tried, apart):
            return True
        last = max(self.tried, _last_compacted(view))
        return last >= 0 and not _answered(view, last, apart)

    def unpaying(self, view: View) -> CompactionBreaker:
        """It was tried here and came to nothing."""
        return replace(self, tried=view[-1].id, unpaid=self.unpaid + 1)

    def paid(self, view: View) -> CompactionBreaker:
        """It was made here."""
        return replace(self, tried=view[-1].id, unpaid=0, failures=0, told="")


def _answered(view: View, since: Id, times: int) -> bool:
    """True if the model has replied so many times since then: what is newest says so first."""
    replies = (placed for placed in reversed(view) if placed.by == "model" and placed.id > since)
    return sum(1 for _ in islice(replies, times)) == times


def _last_compacted(view: View) -> Id:
    """The newest message that stands for others; what was said before it has a smaller id."""
    boundary = find_last_boundary(view)
    if boundary is None:
        return -1
    others = [placed for placed in view if placed.by not in SPOKEN]
    stand_ins = (placed.id for placed in others if find_record(placed, view.marks) is not None)
    return max(stand_ins, default=boundary.last)
