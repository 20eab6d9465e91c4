"""What has left the view of a session that is driven again, what it was, and what of it is missed.

The names of sources are those of `needs`. Nothing is missed that stands anywhere in the view: in a summary,
in notes, in a file that was read again, in the beginning of a stored result.

Words that a compaction took, said or thought, are not asked for again: nobody could read them back. What
is missed of them has no price here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from sevenfold.messages import Message, Text, Thinking, ToolResult, ToolUse
from sevenfold.replay.counting import estimated
from sevenfold.replay.needs import (
    INPUT,
    SAID,
    THOUGHT,
    Missed,
    Need,
    can_be_asked_for,
    is_result,
    missed,
    strings,
)
from sevenfold.transcript import Id, Placed, View


class Lost(msgspec.Struct, frozen=True):
    """Something that is not in the view any more."""

    tokens: int
    layer: str
    """Who took it away."""


class Absence:
    """Follows what is gone. Tokens are the provider's own count."""

    def __init__(
        self, rate: Callable[[Id], float], known: Mapping[Id, Id], view: Callable[[], View]
    ) -> None:
        """`rate`: real tokens for an estimated one, by entry of the recording. `known`: entries of the
        recording by those of ours.
        """
        self._rate, self._known, self._view = rate, known, view
        self.gone: dict[str, Lost] = {}
        self._first: dict[str, str] = {}
        """Whose result a result that was read back repeats."""
        self._uses: dict[str, ToolUse] = {}
        self._results: dict[str, tuple[ToolResult, float]] = {}
        self._thoughts: dict[str, str] = {}

    # --- what comes -------------------------------------------------------------------------------------

    def came(self, message: Message, id: Id) -> None:
        """A message of the recording, by its entry there."""
        rate = self._rate(id)
        for block in message.content:
            match block:
                case ToolUse():
                    self._uses[block.id] = block
                case ToolResult():
                    self._results[block.tool_use_id] = block, rate
                case Thinking():
                    self._thoughts[f"{THOUGHT}{id}"] = block.thinking
                case _:
                    pass

    def use_of(self, use_id: str) -> ToolUse | None:
        return self._uses.get(use_id)

    # --- what goes --------------------------------------------------------------------------------------

    def results_went(self, use_ids: Iterable[str], layer: str) -> list[Lost]:
        """Results are shown otherwise from now on."""
        return [self._went(self._first.get(use, use), self._weight(use), layer) for use in use_ids]

    def messages_went(self, placed: Sequence[Placed], layer: str) -> list[Lost]:
        """Whole messages left the view. A call counts once, whatever of it was still there."""
        lost: list[Lost] = []
        for one in placed:
            message = one.message
            for result in message.results:
                source = self._first.get(result.tool_use_id, result.tool_use_id)
                if source in self._results and source not in self.gone:
                    lost.append(self._went(source, self._weight(source), layer))
            for use in message.tool_uses:
                if use.id not in self._first:
                    self._went(use.id + INPUT, self._weight(use.id + INPUT), layer)
            self._words_went(one, layer)
        return lost

    def _words_went(self, one: Placed, layer: str) -> None:
        id = self._known.get(one.id)
        if id is not None and any(isinstance(block, Text) for block in one.message.content):
            self._went(f"{SAID}{id}", 0, layer)

    def thoughts_went(self, ids: Iterable[Id], layer: str) -> None:
        """What was thought in these entries of ours."""
        for id in ids:
            if (source := f"{THOUGHT}{self._known.get(id)}") in self._thoughts:
                self._went(source, self._weight(source), layer)

    def _went(self, source: str, tokens: int, layer: str) -> Lost:
        lost = self.gone.get(source)
        if lost is None:
            lost = self.gone[source] = Lost(tokens, layer)
        return lost

    def _weight(self, source: str) -> int:
        if is_result(source) and source in self._results:
            result, rate = self._results[source]
            return round(estimated(Message("user", (result,))) * rate)
        return round(estimated(Message("user", (Text(self._text(source)),))) * self._rate(-1))

    def as_shown(self, results: Iterable[ToolResult]) -> int:
        """Tokens of what stands in the view for these results."""
        weights = (
            estimated(Message("user", (shown,))) * self._results[shown.tool_use_id][1]
            for shown in results
        )
        return sum(map(round, weights))

    def _text(self, source: str) -> str:
        if source in self._thoughts:
            return self._thoughts[source]
        use = self._uses.get(source.removesuffix(INPUT))
        return "\n".join(strings(use.input)) if use else ""

    # --- what is missed ---------------------------------------------------------------------------------

    def missed(self, needs: Sequence[Need]) -> list[Missed]:
        if not self.gone or not needs:
            return []
        found = missed(needs, self.gone.keys(), self._is_told)
        return [one for one in found if can_be_asked_for(one.use_id)]

    def _is_told(self, part: str) -> bool:
        """Whether it stands anywhere in the view: in a summary, or as part of a longer path."""
        return any(part in text for placed in self._view() for text in _texts(placed.message))

    def read_back(self, missed: Sequence[Missed]) -> Iterator[tuple[ToolUse, ToolResult]]:
        """A call for each, and what it gives. They are in the view from then on."""
        for one in missed:
            source, again = one.use_id, f"{one.use_id}.again{len(self._first) + 1}"
            del self.gone[source]
            use = self._uses.get(source.removesuffix(INPUT))
            if is_result(source) and source in self._results:
                result, rate = self._results[source]
            else:
                result, rate = ToolResult(again, self._text(source)), self._rate(-1)
            name, given = (use.name, use.input) if use and is_result(source) else ("Read", {})
            self._uses[again] = ToolUse(again, name, given)
            self._results[again] = msgspec.structs.replace(result, tool_use_id=again), rate
            self._first[again] = source
            yield self._uses[again], self._results[again][0]


def _texts(message: Message) -> Iterator[str]:
    for block in message.content:
        match block:
            case Text():
                yield block.text
            case ToolResult():
                yield block.text
            case ToolUse():
                yield from strings(block.input)
            case _:
                pass
