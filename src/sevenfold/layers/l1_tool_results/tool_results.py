"""Decides once, when results arrive, how each is shown: whole, as a note, or as where it is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from msgspec.structs import replace

from sevenfold.core.errors import StorageFailure
from sevenfold.core.events import Failed, Stored
from sevenfold.core.messages import Text, ToolResult, strip_half_characters
from sevenfold.core.protocols import Intake
from sevenfold.core.tokens import estimate_tokens, scale_constant
from sevenfold.core.transcript import View
from sevenfold.layers.l1_tool_results.preview import cut_middle, make_envelope
from sevenfold.layers.parts import LayerParts

NAME: Final = "tool results"
CAPS: Final[dict[str, int]] = {"Bash": 30_000, "Grep": 20_000}
"""Characters that a tool's result may have at most, in a window of 200,000 tokens."""
OTHER_CAP: Final = 100_000
UNLIMITED: Final = frozenset({"Read", "ReadResult"})
"""They bound themselves and are how a stored result is read: to store it again leads nowhere."""
TOO_LONG_FOR_ANY_WINDOW: Final = 400_000
"""Characters above which a result is cut even though the rest of it is lost; fewer in a small window."""
_WORDS: Final = 800  # About what an envelope says beside its preview: less than that is not worth storing


class ToolResults:
    """Implements `protocols.Intake`. What it hands back is what the transcript holds from then on."""

    label: ClassVar[str] = "ToolResults"

    def __init__(self, parts: LayerParts) -> None:
        self._parts, self._settings, self._emit = parts, parts.settings.tool_results, parts.emit

    def intake(self, batch: tuple[ToolResult, ...], view: View) -> tuple[ToolResult, ...]:
        if not batch:
            return batch
        arrival = _ResultBatch(batch, view)
        for i, result in enumerate(batch):
            tool = arrival.tools[i]
            if is_empty(result):
                said = "failed and said nothing" if result.is_error else "returned nothing"
                name = strip_half_characters(tool) or "the tool"
                arrival.shown[i] = replace(result, content=f"[{name} {said}]")
            elif (limit := self.limit(tool)) is not None and count_characters(result) > limit:
                self._store_one(arrival, i, f"over {limit:,} characters")
        if self._parts.switches.aggregate_budget:
            self._within_message(arrival)
        return tuple(arrival.shown)

    def limit(self, tool: str) -> int | None:
        """The characters that a result of this tool may have; None: it sees to that itself."""
        if (own := self._settings.limits.get(tool)) is not None:
            return own
        if tool in UNLIMITED:
            return None
        return self._scaled(min(CAPS.get(tool, OTHER_CAP), self._settings.most_characters))

    def _scaled(self, characters: int) -> int:
        """The limit in this window; never so low that an envelope is longer than what it stands for."""
        return min(characters, max(int(scale_constant(characters, self._parts.window)), self._least))

    @property
    def _least(self) -> int:
        return self._settings.preview_bytes + _WORDS

    def _within_message(self, arrival: _ResultBatch) -> None:
        """Bring a message within its limit: the largest go first, what was shown before stays."""
        most, total = self._scaled(self._settings.most_per_message), arrival.total()
        if total <= most:
            return
        why = f"the results of one message were {total:,} characters"
        for i in arrival.untouched(self._least):
            if total <= most:
                return
            before = count_characters(arrival.shown[i])
            self._store_one(arrival, i, why)
            total += count_characters(arrival.shown[i]) - before

    def _store_one(self, arrival: _ResultBatch, i: int, why: str) -> None:
        result, tool = arrival.batch[i], arrival.tools[i]
        if not is_storable(result):
            return
        try:
            path = self._parts.results.keep(result.tool_use_id, result.content)
        except StorageFailure as refusal:
            self._refused(arrival, i, str(refusal))
            return
        text, how = result.text, self._parts.conversation.reading_hint
        with_tail = tool == "Bash" and result.is_error
        shown = make_envelope(text, path, how, self._settings.preview_bytes, with_tail=with_tail)
        arrival.shown[i] = replace(result, content=shown)
        where, spared = strip_half_characters(str(path)), estimate_tokens(text) - estimate_tokens(shown)
        self._emit(Stored(result.tool_use_id, tool, where, len(text), max(0, spared), why))

    def _refused(self, arrival: _ResultBatch, i: int, cause: str) -> None:
        """The disk said no: the result is shown as it came, unless no window could hold it."""
        result = arrival.batch[i]
        arrival.refused.add(i)
        ending = "the result is shown whole"
        if count_characters(result) > self._scaled(TOO_LONG_FOR_ANY_WINDOW):
            ending = "only the beginning and the end of the result are shown"
            budget = min(self.limit(arrival.tools[i]) or self._scaled(OTHER_CAP), OTHER_CAP)
            cut = cut_middle(result.text, budget, strip_half_characters(cause))
            arrival.shown[i] = replace(result, content=cut)
        if (said := f"{cause}; until then {ending}") not in arrival.said:
            arrival.said.add(said)
            self._emit(Failed(NAME, said))


class _ResultBatch:
    """One batch of results on its way into the view."""

    __slots__ = ("_frozen", "batch", "refused", "said", "shown", "tools")

    def __init__(self, batch: tuple[ToolResult, ...], view: View) -> None:
        names, before = find_answered_calls(view)
        self.batch = batch
        self.shown = list(batch)
        self.tools = [names.get(result.tool_use_id, "") for result in batch]
        self.refused: set[int] = set()
        self.said: set[str] = set()
        self._frozen = sum(
            count_characters(r) for r in before if names.get(r.tool_use_id, "") not in UNLIMITED
        )

    def total(self) -> int:
        """Characters of this message that count: what stands in the view already, and the new."""
        new = zip(self.tools, self.shown, strict=True)
        return self._frozen + sum(count_characters(shown) for tool, shown in new if tool not in UNLIMITED)

    def untouched(self, least: int) -> list[int]:
        """Those that may still be stored and are worth it, the largest first."""
        left = [
            i
            for i, result in enumerate(self.batch)
            if self.shown[i] is result
            and i not in self.refused
            and self.tools[i] not in UNLIMITED
            and count_characters(result) > least
        ]
        return sorted(left, key=lambda i: -count_characters(self.batch[i]))


def find_answered_calls(view: View) -> tuple[dict[str, str], Sequence[ToolResult]]:
    """The tools that the last reply called, by use id, and which results stand after it already."""
    before: list[ToolResult] = []
    for at in range(len(view) - 1, -1, -1):
        message = view[at].message
        if message.role == "assistant":
            return {use.id: use.name for use in message.tool_uses}, before
        before += message.results
    return {}, before


def count_characters(result: ToolResult) -> int:
    """Characters of what it says."""
    content = result.content
    if isinstance(content, str):
        return len(content)
    return sum(len(block.text) for block in content if isinstance(block, Text))


def is_storable(result: ToolResult) -> bool:
    """Text through and through: images, documents and what we do not know stay where they are."""
    content = result.content
    return isinstance(content, str) or all(isinstance(block, Text) for block in content)


def is_empty(result: ToolResult) -> bool:
    content = result.content
    if isinstance(content, str):
        return not content or content.isspace()
    return all(isinstance(b, Text) and (not b.text or b.text.isspace()) for b in content)


_check: type[Intake] = ToolResults
