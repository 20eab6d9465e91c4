"""The records of a compaction, in one form for every kind: its boundary, and what its messages stand for.

    compacted        the boundary: who, why, how much, up to where. The event has the same numbers.
    stands_for:…     one for each message that stands for others: the facts behind it, and among them all
                     that the user said, word for word, however little of that the message shows

The next compaction goes on from these records (`collect_facts`) and takes nothing from a text, so the
user's words outlive any chain of compactions. The functions below say where a view may be cut.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from sevenfold.core.events import Compacted
from sevenfold.core.messages import THOUGHTS, Message, Text, ToolResult, user
from sevenfold.core.protocols import Capabilities
from sevenfold.core.request import (
    Request,
    find_open_loop,
    find_unbound_thinking,
    is_loop_broken,
    is_safe_cut,
    measure_pressure,
)
from sevenfold.core.tokens import TAIL_PADDING, MessageSize, Pressure, Usage, add_sizes, count_bytes
from sevenfold.core.transcript import Entry, Id, Mark, PlacedMessage, Replace, View
from sevenfold.layers.shared.facts import TYPED, FactCollector, Facts, IdentityCache, extract_words_beside

BOUNDARY: Final = "compacted"  # The name of the mark. The last one counts; the log has them all.
STANDS_FOR: Final = "stands_for"
"""The first part of the names of records; the rest is the fingerprint of the message."""
SPOKEN: Final = frozenset({"user", "", "model", "tools", "turn", "session", "hooks", "system"})
"""Authors that are no layers."""
COMPACTIONS: Final = frozenset(
    {*("Snip", "Collapse", "PayOut", "Compaction", "Digest"), *("OnDemand", "ServerCompaction", "PreCold")}
)
"""The layers that put messages in place of others."""
TITLES: Final = (
    "Primary request and intent",
    "Key technical concepts",
    "Files and code",
    "Errors and fixes",
    "Problem solving",
    "All user messages",
    "Pending tasks",
    "Current work",
    "Next step",
)
"""The headings of a summary, in their order."""
STAND_INS: Final = 8  # Messages and their records that are remembered; a view has a handful of them
_GIVEN_BACK: Final = "<context>"
"""The first word of a message that a compaction adds: files as they are now, repeated texts."""


# --- the boundary ---------------------------------------------------------------------------------------


class Boundary(msgspec.Struct, frozen=True, omit_defaults=True):
    """One compaction: who made it, why, how much it took away, and up to where."""

    by: str  # summary, notes, digest, snip, collapse, server, or what another tool recorded
    trigger: str  # auto, price, manual, refused, from, up_to, ahead
    tokens_before: int = 0
    tokens_after: int = 0
    last: Id = -1  # The last entry that it covers
    kept_from: Id = -1  # The first message that stayed word for word; -1 when none did
    fidelity: float | None = None  # The share of what was said that can still be found; see `fidelity`
    instructions: str = ""
    model: str = ""  # The model that wrote the summary, and ...
    usage: Usage | None = None  # ... the usage of all that was asked for it

    @property
    def mark(self) -> Mark:
        return Mark(BOUNDARY, msgspec.to_builtins(self))

    def event(self, seconds: float = 0.0, usage: Usage | None = None) -> Compacted:
        """The event, with the seconds that it took and the usage of asking for it."""
        usage = usage or Usage()
        return Compacted(
            self.by, self.trigger, self.tokens_before, self.tokens_after, self.fidelity, seconds, usage
        )


def find_last_boundary(view: View) -> Boundary | None:
    """The newest one of this conversation, as far as its record can be read."""
    return parse_boundary(view.marks.get(BOUNDARY))


def parse_boundary(value: Any) -> Boundary | None:
    try:
        return msgspec.convert(value, Boundary, strict=False)
    except msgspec.ValidationError:
        return None


# --- what a message stands for --------------------------------------------------------------------------


class BoundaryRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The facts that a message stands for."""

    facts: Facts
    rounds: int = 0  # Replies of the model among it, where they can be put back
    tokens: int = 0  # ... and what they would take then.

    def mark(self, message: Message) -> Mark:
        """A name of its own for each message: they all count."""
        value = msgspec.to_builtins(self)
        facts = value["facts"].items()  # as they will be read back; the words themselves are not copied
        value["facts"] = {k: list(v) if isinstance(v, tuple) else v for k, v in facts}
        return Mark(_named(message), value)


def record_name(message: Message) -> str:
    return _NAMES.of(message)


def find_record(placed: PlacedMessage, marks: Mapping[str, Any]) -> BoundaryRecord | None:
    """The record of this message, if a compaction has put it in place of others."""
    if placed.by in SPOKEN or (value := marks.get(record_name(placed.message))) is None:
        return None
    return _RECORDS.of(value)


def _named(message: Message) -> str:
    digest = hashlib.sha256(msgspec.json.encode(message)).hexdigest()
    return f"{STANDS_FOR}:{digest[:32]}"


def _read(value: Any) -> BoundaryRecord | None:
    try:
        return msgspec.convert(value, BoundaryRecord)
    except msgspec.ValidationError:  # another version wrote it: its text is left
        return None


_NAMES, _RECORDS = IdentityCache(_named, STAND_INS), IdentityCache(_read, STAND_INS)


def collect_facts(
    stretch: Iterable[PlacedMessage],
    marks: Mapping[str, Any],
    wanted: Callable[[PlacedMessage], bool] = lambda placed: True,
) -> Facts:
    """The facts of these messages, and of those for which some of them stand.

    What a compaction gave back beside its message is left out: it is given back anew. `wanted`: which of
    the messages that stand for themselves are taken in.
    """
    collector, said = FactCollector(), set[str]()
    for placed in stretch:
        given_back = placed.by in COMPACTIONS and placed.message.text
        if (record := find_record(placed, marks)) is not None:
            collector.go_on(record.facts)
            said.update(one.text for one in record.facts.said[-1:])
        elif given_back and (given_back.startswith(_GIVEN_BACK) or given_back in said):
            continue
        elif wanted(placed):
            collector.take(placed)
    return collector.facts


def measure_user_texts(stretch: Iterable[PlacedMessage], marks: Mapping[str, Any]) -> Sequence[int]:
    """Bytes of each thing that the user said in these messages, or in those that they stand for."""
    bytes_: list[int] = []
    for placed in stretch:
        if (record := find_record(placed, marks)) is not None:
            bytes_ += _SAID.of(record)
        elif has_typed_text(placed):
            bytes_ += _lengths(BoundaryRecord(collect_facts((placed,), {})))
    return bytes_


def _lengths(record: BoundaryRecord) -> list[int]:
    return [count_bytes(one.text) for one in record.facts.said]


_SAID = IdentityCache(_lengths, STAND_INS)


# --- what the user said last ----------------------------------------------------------------------------


def has_typed_text(placed: PlacedMessage) -> bool:
    """True if a person said something in it; results of tools may stand beside that."""
    if placed.by == "tools":
        return bool(extract_words_beside(placed.message))
    return placed.by in TYPED and any(not isinstance(block, ToolResult) for block in placed.message.content)


def find_last_typed(view: View) -> int | None:
    """The place of the user's last message, if it can stay alone when others go."""
    last = find_last_said(view)
    if last is None or not has_typed_text(view[last]) or view[last].message.results:
        return None
    beside = [view[at].id for at in (last - 1, last + 1) if 0 <= at < len(view)]
    return None if view[last].id in beside else last


def find_apart(view: View, first: int, cut: int, *, words: bool) -> int | None:
    """The place of the user's last message among these, if it stays as it is: a text can be repeated, and
    a picture cannot. `words`: a text stays too, unless nothing could stand before it.
    """
    last = find_last_typed(view)
    if last is None or not first <= last < cut:
        return None
    plain = all(isinstance(block, Text) for block in view[last].message.content)
    return None if plain and (last == first or not words) else last


def repeat_question(facts: Facts) -> tuple[Message, ...]:
    """What the user said last, to be put behind the message that stands for it, so that it stands last."""
    return (user(facts.said[-1].text),) if facts.said else ()


def is_question_before(view: View, cut: int) -> bool:
    """True if what the user said last stands before the cut, in whatever form."""
    last = find_last_said(view)
    return last is None or last < cut


def find_last_said(view: View) -> int | None:
    """The place of the user's last words, or of the message that stands for them."""
    marks = view.marks
    for at, placed in enumerate(reversed(list(view)), 1):
        if placed.by == "model":
            continue
        if has_typed_text(placed) or ((record := find_record(placed, marks)) and record.facts.said):
            return len(view) - at
    return None


UNKNOWN_GAP: Final = 0.2  # The part to free when the provider says "too long" and not by how much


# --- how much -------------------------------------------------------------------------------------------


def count_context_tokens(request: Request, pressure: Pressure) -> int:
    """Tokens by our own count, whatever the provider said."""
    return measure_pressure(request, pressure.thresholds, 0.0).tokens


def count_fixed_tokens(request: Request, total: int) -> int:
    """Tokens that no replacement can free: system, tools, and what our estimate of messages misses."""
    view = request.view
    return max(0, total - view.calibration.tokens(view.size))


def compute_target_tokens(before: int, pressure: Pressure) -> int:
    """Tokens that the request should come to, as we count them."""
    limit = pressure.thresholds.auto_compact
    if not pressure.refused:
        return limit
    really = pressure.tokens + pressure.over  # at least the window, and we had counted less
    gap = pressure.over * 1.1 or before * UNKNOWN_GAP
    return int(min(limit * min(1.0, before / really), before - gap))


def sum_sizes(placed: Iterable[PlacedMessage]) -> MessageSize:
    return add_sizes(one.size for one in placed)


def estimate_padded_tokens(view: View, size: MessageSize) -> int:
    """Tokens of what would be kept, measured larger than they are: no estimate may keep too much."""
    return int(view.calibration.tokens(size) * TAIL_PADDING)


# --- where ----------------------------------------------------------------------------------------------


def can_cut_at(view: View, at: int) -> bool:
    """No pair, no response and no replacement is split before this message."""
    if not 0 < at < len(view):
        return True
    here, before = view[at], view[at - 1]
    together = here.message.role == before.message.role == "assistant" or here.id == before.id
    return is_safe_cut(view, at) and not together


def can_begin_at(view: View, at: int, loop: int) -> bool:
    """True if what is kept may begin here: nothing is split, and a tool loop that is going on, from
    `loop` on (`find_thinking_loop`), keeps the thinking it began with.
    """
    return can_cut_at(view, at) and (at <= loop or at >= len(view) or has_thinking(view[at]))


def find_thinking_loop(view: View) -> int:
    """The place where a tool loop with thinking begins that is still going on; else the end."""
    loop = find_open_loop(view)
    return loop if any(has_thinking(view[at]) for at in range(loop, len(view))) else len(view)


def has_thinking(placed: PlacedMessage) -> bool:
    return any(isinstance(block, THOUGHTS) for block in placed.message.content)


# --- what comes of it -----------------------------------------------------------------------------------


def make_replacements(
    view: View, first: int, cut: int, apart: int | None, message: Message, question: Sequence[Message] = ()
) -> tuple[Replace, ...]:
    """The message in place of all from `first` to before `cut`, but for the one that stays apart. Behind it
    `question`: nothing stands behind what the user said last but the work on it.
    """
    if apart is None:
        return (Replace(view[first].id, view[cut - 1].id, (message, *question)),)
    before = (Replace(view[first].id, view[apart - 1].id, (message,)),) if apart > first else ()
    if apart + 1 == cut:
        return before
    return (*before, Replace(view[apart + 1].id, view[cut - 1].id, () if before else (message,)))


def add_restored(edits: Sequence[Replace], restored: Sequence[Message]) -> tuple[Replace, ...]:
    """The edits, with `restored` before the message that stands for the older part."""
    return tuple(replace(edit, by=(*restored, *edit.by)) if edit.by else edit for edit in edits)


def apply_edits(view: View, whats: Iterable[Replace | Message], by: str) -> View:
    """The view as it will be; nothing is written."""
    for id, what in enumerate(whats, max(placed.id for placed in view) + 1):
        view = view.after(Entry(id, 0.0, what, by))
    return view


def is_thinking_allowed(view: View, after: View, able: Capabilities) -> bool:
    """Thinking that is bound goes with any change before it, and a loop that needs it as a whole."""
    first = find_unbound_thinking(view, after) if able.loses_thinking else None
    return first is None or not is_loop_broken(after, first)
