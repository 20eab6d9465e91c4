"""The tokens that each layer kept out of the window, and what that saved, from the transcript alone.

Every request is compared with the one there would have been without the layer: what is kept out would have
been written to the provider's cache once and read from it later. Against that stands the break: what an
edit leaves behind itself is written again. Tokens are estimates, so the money is simulated.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from sevenfold.cache.prices import MILLION, Price
from sevenfold.core.messages import Message, ToolResult
from sevenfold.core.request import TTL_SECONDS, Ttl
from sevenfold.core.tokens import Calibration, MessageSize, Usage, count_bytes, measure_message
from sevenfold.core.transcript import (
    Edit,
    Entry,
    Id,
    Mark,
    Pin,
    PlacedMessage,
    Replace,
    Reply,
    Results,
    Undo,
    Unthink,
    View,
)
from sevenfold.layers.l1_tool_results.preview import CLOSING, ResultPointer, parse_envelope
from sevenfold.layers.l2_microcompaction.microcompaction import REREAD
from sevenfold.layers.l2_microcompaction.provider import CacheEditing, read_cleared_counts
from sevenfold.layers.shared.boundary import COMPACTIONS
from sevenfold.storage.results import BLOCKS

STORED, CLEARED, COMPACTED = 1, 2, 4
WHAT: Final = {
    STORED: "large tool results kept on disk",
    CLEARED: "old tool results cleared",
    COMPACTED: "the older part replaced",
}
OTHERS: Final = frozenset({"", "user", "model", "tools", "turn", "session", "resume", "recorded"})
"""Authors of changes that are no layers: their changes count as no one's saving."""
_JSON: Final = re.compile(r'\s*(?:\{\s*["}]|\[\s*[\[{"])')
_TITLE: Final = re.compile(r"\n\n(?:The first [^\n]*|All of it):\n")


class LayerSavings(msgspec.Struct, frozen=True):
    """The savings of one layer in a conversation so far."""

    layer: int
    what: str
    times: int  # Results stored or cleared, or times that the older part was replaced
    tokens_now: int  # Kept out of the window as it is now
    tokens_so_far: int  # Not sent, summed over all requests
    cost: float | None  # The saving, less the cost of the breaks, in the currency of the price table
    breaks: float | None  # The cost of the breaks: part of `cost`


def compute_savings(
    entries: Sequence[Entry], calibration: Calibration, price: Price | None
) -> tuple[LayerSavings, ...]:
    """For every layer that acted, what it saved. `calibration` is that of the transcript's view."""
    shown, sums = _ShownView(calibration.tokens), _SavingsSums(price)
    for at, entry in enumerate(entries):
        if isinstance(entry.what, Reply):
            sums.request(shown, entry.what)
        if isinstance(entry.what, Undo):
            shown = shown.anew(entries[: at + 1])
        else:
            shown.take(entry)
    return tuple(sums.of(layer, shown) for layer in WHAT if sums.times[layer] or shown.times[layer])


def count_rereads(view: View) -> int:
    """The number of cleared results that the model asked for again."""
    known = view.marks.get(REREAD)
    count = known.get("count") if isinstance(known, dict) else known
    return count if isinstance(count, int) else 0


# --- what is shown, and what is not -------------------------------------------------------------------


@dataclass(slots=True)
class _ShownView:
    """The view as it grows, and the tokens that each layer keeps out of it."""

    weigh: Callable[[MessageSize], int]
    view: View = field(default_factory=View)
    sent: View | None = None  # The view of the last request
    replied: Id = -1  # The last reply: what has a lower id was sent already
    replied_at: float = 0.0
    last_at: float = 0.0
    frame: Any = None
    reframed: bool = False
    """True if the frame has changed since the last request, so that nothing is read from the cache."""
    stand_ins: set[Id] = field(default_factory=set)  # Edits since then that stand in for what was sent
    behind: int = 0  # Tokens of what was sent that now stand behind a change
    broken: Counter[int] = field(default_factory=Counter)  # The same by the layer that made the change
    kept: dict[tuple[int, Id, bool], int] = field(default_factory=dict)
    """Tokens by layer, by message, and by whether they were new when the layer acted."""
    out: Counter[int] = field(default_factory=Counter)
    fresh: Counter[int] = field(default_factory=Counter)  # The part of `out` that no request has held yet
    pinned: int = 0
    times: Counter[int] = field(default_factory=Counter)

    def take(self, entry: Entry) -> None:
        what, self.last_at = entry.what, entry.at
        if isinstance(what, Edit):
            self._edit(entry, self._layer_of(entry))
            for message in what.by if isinstance(what, Replace) else ():
                self._spare(entry.id, message)  # a change of a message may hold envelopes
        else:
            self.view = self.view.after(entry)
        if isinstance(what, Message):
            self.times[STORED] += self._spare(entry.id, what)
            if entry.by == CacheEditing.label:  # tells the model what was deleted
                self._keep_out(CLEARED, entry.id, -self.weigh(measure_message(what)), True)
        elif isinstance(what, Reply):
            self._reply(entry)
        elif isinstance(what, Pin):
            self.pinned = _pinned(self.view)
            self.times[CLEARED] += len(_deleted(what))
        elif isinstance(what, Mark) and what.name == "frame":
            self.reframed = self.reframed or self.frame not in (None, what.value)
            self.frame = what.value

    def anew(self, entries: Sequence[Entry]) -> _ShownView:
        """As if what was undone had never been; what was sent was sent all the same."""
        new = _ShownView(self.weigh)
        for entry in _standing(entries):
            new.take(entry)
        new.sent, new.replied, new.replied_at = self.sent, self.replied, self.replied_at
        new.frame, new.reframed, new.last_at = self.frame, self.reframed, entries[-1].at
        new.fresh = Counter()
        for (layer, id, was_new), tokens in new.kept.items():
            if was_new and new._is_new(id):
                new.fresh[layer] += tokens
        new.behind, new.broken = new._behind(), Counter()
        return new

    def _spare(self, id: Id, message: Message) -> int:
        """Take note of the envelopes in a message; returns how many there are."""
        found = 0
        for result in message.results:
            if (pointer := parse_envelope(result.text)) is not None:
                shown = measure_message(Message("user", (result,)))
                spared = self.weigh(_whole(result, pointer)) - self.weigh(shown)
                self._keep_out(STORED, id, spared, True)
                found += 1
        return found

    def _reply(self, entry: Entry) -> None:
        sent = msgspec.structs.replace(self.view, length=len(self.view) - 1)
        self.sent, self.replied, self.replied_at = sent, entry.id, entry.at
        self.behind, self.reframed = 0, False
        self.stand_ins.clear()
        self.broken.clear()
        self.fresh.clear()

    def _layer_of(self, entry: Entry) -> int:
        match entry.what:
            case Results(shown) if entry.by not in OTHERS:
                layer, times = CLEARED, len(shown)
            case Replace() if entry.by in COMPACTIONS:
                layer, times = COMPACTED, 1
            case Unthink() if entry.by not in OTHERS:  # it goes with an edit of the same layer
                return COMPACTED if entry.by in COMPACTIONS else CLEARED
            case _:
                return 0
        self.times[layer] += times
        return layer

    def _edit(self, entry: Entry, layer: int) -> None:
        """Whatever kind of edit: what was there by id, what is there now, and who made the change."""
        old, pinned = _sizes(self.view), self.pinned
        self.view = self.view.after(entry)
        new, self.pinned = _sizes(self.view), _pinned(self.view)
        gone = old.keys() - new.keys()
        self._drop(gone)
        if gone:
            sent = sum(self.weigh(old[id]) for id in gone if not self._is_new(id))
            unsent = sum(self.weigh(old[id]) for id in gone if self._is_new(id))
            added = self.weigh(new.get(entry.id, MessageSize())) + pinned - self.pinned
            if sent:
                self.stand_ins.add(entry.id)
            self._keep_out(layer, entry.id, sent - added if sent else 0, False)
            self._keep_out(layer, entry.id, unsent if sent else unsent - added, True)
        for id in old.keys() & new.keys():
            if old[id] != new[id]:
                tokens = self.weigh(old[id]) - self.weigh(new[id])
                self._keep_out(layer, id, tokens, self._is_new(id))
        behind = self._behind()
        self.broken[layer] += behind - self.behind
        self.behind = behind

    def _keep_out(self, layer: int, id: Id, tokens: int, new: bool) -> None:
        self.kept[layer, id, new] = self.kept.get((layer, id, new), 0) + tokens
        self.out[layer] += tokens
        if new:
            self.fresh[layer] += tokens

    def _drop(self, gone: set[Id]) -> None:
        """Drops savings on messages that have left the view: they would have left it anyway."""
        for key in [key for key in self.kept if key[1] in gone] if gone else ():
            layer, id, new = key
            tokens = self.kept.pop(key)
            self.out[layer] -= tokens
            if new and self._is_new(id):
                self.fresh[layer] -= tokens

    def _is_new(self, id: Id) -> bool:
        return id >= self.replied and id not in self.stand_ins

    def _behind(self) -> int:
        """Tokens that stand behind the first change of what was sent, and are not new."""
        if self.sent is None or self.sent.buffer is self.view.buffer:
            return 0
        same = 0
        for a, b in zip(self.sent, self.view, strict=False):
            if a is not b and a.message != b.message:
                break
            same += 1
        rest = list(self.view)[same:]
        return self.weigh(sum((p.size for p in rest if not self._is_new(p.id)), MessageSize()))


def _standing(entries: Sequence[Entry]) -> Iterator[Entry]:
    """The entries that count after every undo, without the undos."""
    undone: set[Id] = set()
    for entry in reversed(entries):
        if isinstance(entry.what, Undo) and entry.id not in undone:
            undone |= entry.what.ids
    return (e for e in entries if e.id not in undone and not isinstance(e.what, Undo))


def _sizes(view: View) -> dict[Id, MessageSize]:
    sizes: dict[Id, MessageSize] = {}
    placed: PlacedMessage
    for placed in view:  # those that stand for one edit share its id
        sizes[placed.id] = sizes[placed.id] + placed.size if placed.id in sizes else placed.size
    return sizes


def _deleted(pin: Pin) -> list[str]:
    uses = pin.payload.get("delete")
    return [str(use) for use in uses] if isinstance(uses, list) else []


def _pinned(view: View) -> int:
    """Tokens that pins keep out: as long as what they deleted would still be there."""
    total = 0
    for pin in view.pins:
        uses = _deleted(pin)
        there = sum(view.result_at(use) is not None for use in uses)
        total += pin.frees * there // len(uses) if uses else pin.frees
    return total


def _whole(result: ToolResult, pointer: ResultPointer) -> MessageSize:
    """The size of a stored result, judged by its length and by the part that is shown."""
    title = _TITLE.search(result.text)
    preview = result.text[title.end() :] if title else ""
    preview = preview.removesuffix(f"\n{CLOSING}").removesuffix("\n…")
    width = count_bytes(preview) / len(preview) if preview else 1.0
    size = int(pointer.characters * width)
    as_json = not pointer.path.endswith(BLOCKS) and _JSON.match(preview) is not None
    return MessageSize(json=size, frames=1) if as_json else MessageSize(text=size, frames=1)


# --- what it saved ------------------------------------------------------------------------------------


class _SavingsSums:
    """Tokens and money, request by request; money in base-price input tokens until the end."""

    def __init__(self, price: Price | None) -> None:
        self._price = price
        self._so_far: Counter[int] = Counter()
        self._units: defaultdict[int, float] = defaultdict(float)
        self._breaks: defaultdict[int, float] = defaultdict(float)
        self._cleared, self._cached = 0, 0
        self.times: Counter[int] = Counter()

    def request(self, shown: _ShownView, reply: Reply) -> None:
        usage = reply.usage
        write, read = self._rates(shown, usage)
        results, cleared = read_cleared_counts(reply)
        came, self._cleared = cleared - self._cleared, cleared
        self.times[CLEARED] = max(self.times[CLEARED], results)
        for layer in WHAT:
            tokens, broken = shown.out[layer], shown.broken[layer]
            if layer == CLEARED:
                tokens += shown.pinned + cleared
                broken += max(0, self._cached - usage.cache_read - came) if came > 0 else 0
            fresh = shown.fresh[layer]
            cost = broken * (write - read)
            self._so_far[layer] += tokens
            self._units[layer] += (tokens - fresh) * read + fresh * write - cost
            self._breaks[layer] += cost
        self._cached = usage.cache_read + usage.cache_write

    def _rates(self, shown: _ShownView, usage: Usage) -> tuple[float, float]:
        """The price of a new token and of one that was sent before, in this request."""
        price = self._price
        if price is None or (usage.prompt and not usage.cache_read + usage.cache_write):
            return 1.0, 1.0  # not cached: every token costs the same
        frame = shown.frame if isinstance(shown.frame, dict) else {}
        ttl: Ttl = "1h" if frame.get("ttl") == "1h" else "5m"
        write = price.write_1h if ttl == "1h" else price.write_5m
        idle = shown.last_at - shown.replied_at
        cold = shown.reframed or shown.sent is None or idle > TTL_SECONDS[ttl]
        return write, write if cold else price.read

    def of(self, layer: int, shown: _ShownView) -> LayerSavings:
        now = shown.out[layer] + (shown.pinned + self._cleared if layer == CLEARED else 0)
        return LayerSavings(
            layer,
            WHAT[layer],
            shown.times[layer] + self.times[layer],
            now,
            self._so_far[layer],
            self._money(self._units[layer]),
            self._money(self._breaks[layer]),
        )

    def _money(self, units: float) -> float | None:
        return None if self._price is None else units * self._price.input / MILLION
