"""What of a recorded session a later reply went back to, and where it stood.

A reply needs something when a trace in it can only have come from there: a line that an Edit replaces, or
a rare word (an identifier, a path, a number with a shape of its own). Every place in the session that holds
the trace is a source, and one that is in view is enough:

    toolu_1      the result of a tool use
    toolu_1<     what the model put into the call: the text of a file it wrote
    @12          words of the user or the model, by the entry
    ~12          what the model thought, by the entry; only for what stands nowhere else

Needs of meaning, without such a trace, are not seen.

What has left the view of a session that is driven again, what it was, and what of it is missed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from sevenfold.core.messages import Json, Message, Text, Thinking, ToolResult, ToolUse
from sevenfold.core.transcript import Entry, Id, PlacedMessage, Replace, Reply, View
from sevenfold.replay.costs import estimate_message

SHORTEST_LINE: Final = 12
"""A shorter line (a bracket, a return) could have come from anywhere."""
SHORTEST_WORD: Final = 5
MOST_SOURCES: Final = 3
"""A word that stands in more places than this is not rare."""
NEWEST_LINES: Final = 6
"""Of a line, so many places are remembered, the newest ones."""
ROBUST: Final = 2
"""So many rare words of one result in one reply are no accident."""
INPUT, SAID, THOUGHT = "<", "@", "~"
"""How the names of sources that are no results end or begin."""

_NUMBERED: Final = re.compile(r"^\s*\d+[→\t:-]")
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[./-][A-Za-z0-9_]+)*|\d[\d.]{3,}\d")
_SHAPED: Final = re.compile(r"[_\d./]|-.*-|[a-z][A-Z]")
"""One hyphen makes no name: line-based, re-run."""
_SCHEMA: Final = frozenset({"output_mode", "status", "type", "subagent_type", "model", "priority"})
"""Arguments whose values a tool itself names: nobody has to look them up."""


class ReplyNeed(msgspec.Struct, frozen=True):
    """A trace in a reply, and every place that could have told it, oldest first."""

    sources: tuple[str, ...]
    line: bool
    """A line that an Edit replaces; else a rare word."""
    part: str = ""

    @property
    def of_results(self) -> bool:
        """Whether it stands in results alone."""
        return all(is_result_source(source) for source in self.sources)


class MissedSource(msgspec.Struct, frozen=True):
    """What a reply needed of one source that was not in the view."""

    use_id: str
    """The source: a tool use, or what was put into one."""
    robust: bool


def is_result_source(source: str) -> bool:
    return not source.endswith(INPUT) and not source.startswith((SAID, THOUGHT))


def is_recoverable(source: str) -> bool:
    """Whether reading it back is something an agent could do: words that are gone are gone."""
    return not source.startswith(SAID)


def find_needs(entries: Sequence[Entry], *, resets: bool = True) -> dict[Id, tuple[ReplyNeed, ...]]:
    """By the id of the reply that needed them.

    `resets`: a compaction of the recording takes everything before it out of every view. Without it, the
    recorded compaction is none: for a policy that compacts by itself.
    """
    found: dict[Id, tuple[ReplyNeed, ...]] = {}
    wanted = _TraceFilter(entry.what.message for entry in entries if isinstance(entry.what, Reply))
    seen = _TraceIndex(wanted)
    for entry in entries:
        match entry.what:
            case Reply(message):
                if needs := tuple(seen.needs(message)):
                    found[entry.id] = needs
                seen.take(message, entry.id)
            case Message() as message:
                seen.take(message, entry.id)
            case Replace(by=messages) if resets:
                seen = _TraceIndex(wanted)
                for message in messages:
                    seen.take(message, entry.id)
            case _:
                pass
    return found


def find_missed(
    needs: Sequence[ReplyNeed], gone: AbstractSet[str], told: Callable[[str], bool] = lambda part: False
) -> list[MissedSource]:
    """The sources among `gone` that these needs go back to; of several the newest would do.

    `told`: whether a trace stands in something else that is in view, such as a summary.
    """
    words: dict[str, int] = {}
    lines: set[str] = set()
    for need in needs:
        if not all(source in gone for source in need.sources) or told(need.part):
            continue
        newest = next((s for s in reversed(need.sources) if is_recoverable(s)), None)
        if newest is not None:
            words[newest] = words.get(newest, 0) + 1
            if need.line:
                lines.add(newest)
    return [MissedSource(use, use in lines or count >= ROBUST) for use, count in words.items()]


class _TraceFilter:
    """The traces that any reply has: nothing else of a long session need be remembered."""

    def __init__(self, replies: Iterable[Message]) -> None:
        self.lines: set[str] = set()
        self.words: set[str] = set()
        for message in replies:
            self.lines.update(*(find_long_lines(old) for u in message.tool_uses for old in _replaced(u)))
            self.words.update(*map(find_rare_words, _own_words(message)))


class _TraceIndex:
    """Where each line and each rare word stands."""

    def __init__(self, wanted: _TraceFilter) -> None:
        self._wanted = wanted
        self._lines: dict[str, list[str]] = {}
        self._words: dict[str, list[str]] = {}
        self._thought: dict[str, list[str]] = {}

    def take(self, message: Message, id: Id) -> None:
        for result in message.results:
            self._note(result.text, result.tool_use_id)
        for block in message.content:
            if isinstance(block, Text):
                self._note(block.text, f"{SAID}{id}")
            elif isinstance(block, ToolUse):
                self._note("\n".join(iterate_strings(block.input)), block.id + INPUT)
            elif isinstance(block, Thinking):
                for word in find_rare_words(block.thinking) & self._wanted.words:
                    _put(self._thought, word, f"{THOUGHT}{id}", MOST_SOURCES)

    def needs(self, message: Message) -> Iterator[ReplyNeed]:
        for use in message.tool_uses:
            for old in _replaced(use):
                for line in sorted(find_long_lines(old)):
                    if sources := self._lines.get(line):
                        yield ReplyNeed(tuple(sources), True, line)
        for word in sorted({w for text in _own_words(message) for w in find_rare_words(text)}):
            sources = self._words.get(word) or self._thought.get(word)
            if sources and len(sources) <= MOST_SOURCES:
                yield ReplyNeed(tuple(sources), False, word)

    def _note(self, text: str, source: str) -> None:
        for line in find_long_lines(text) & self._wanted.lines:
            _put(self._lines, line, source, NEWEST_LINES)
            del self._lines[line][:-NEWEST_LINES]
        for word in find_rare_words(text) & self._wanted.words:
            _put(self._words, word, source, MOST_SOURCES)


def _put(known: dict[str, list[str]], part: str, source: str, most: int) -> None:
    """One more than `most` says that there are too many."""
    sources = known.setdefault(part, [])
    if source not in sources and len(sources) <= most:
        sources.append(source)


def _replaced(use: ToolUse) -> Iterator[str]:
    """The texts that a call to an editor puts others in place of."""
    edits = use.input.get("edits") if use.name == "MultiEdit" else None
    for edit in (use.input, *(edits if isinstance(edits, list) else ())):
        if use.name in ("Edit", "MultiEdit") and isinstance(edit, dict):
            yield str(edit.get("old_string", ""))


def _own_words(message: Message) -> Iterator[str]:
    for block in message.content:
        if isinstance(block, Text):
            yield block.text
        elif isinstance(block, ToolUse):
            yield from iterate_strings(block.input)


def iterate_strings(value: Json | list[object] | object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in _SCHEMA:
                yield from iterate_strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from iterate_strings(inner)


def find_long_lines(text: str) -> set[str]:
    """The lines of a text that are long enough to be recognised, without line numbers and margins."""
    stripped = (_NUMBERED.sub("", line).strip() for line in text.splitlines())
    return {line for line in stripped if len(line) >= SHORTEST_LINE}


def find_rare_words(text: str) -> set[str]:
    """Identifiers, paths and numbers; plain words of a language say nothing about where they are from."""
    return {word for word in _WORD.findall(text) if len(word) >= SHORTEST_WORD and _SHAPED.search(word)}


class LostItem(msgspec.Struct, frozen=True):
    """Something that is not in the view any more."""

    tokens: int
    layer: str
    """Who took it away."""


class AbsenceTracker:
    """Follows what is gone. Tokens are the provider's own count."""

    def __init__(
        self, rate: Callable[[Id], float], known: Mapping[Id, Id], view: Callable[[], View]
    ) -> None:
        """`rate`: real tokens for an estimated one, by entry of the recording. `known`: entries of the
        recording by those of ours.
        """
        self._rate, self._known, self._view = rate, known, view
        self.gone: dict[str, LostItem] = {}
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

    def results_went(self, use_ids: Iterable[str], layer: str) -> list[LostItem]:
        """Results are shown otherwise from now on."""
        return [self._went(self._first.get(use, use), self._weight(use), layer) for use in use_ids]

    def messages_went(self, placed: Sequence[PlacedMessage], layer: str) -> list[LostItem]:
        """Whole messages left the view. A call counts once, whatever of it was still there."""
        lost: list[LostItem] = []
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

    def _words_went(self, one: PlacedMessage, layer: str) -> None:
        id = self._known.get(one.id)
        if id is not None and any(isinstance(block, Text) for block in one.message.content):
            self._went(f"{SAID}{id}", 0, layer)

    def thoughts_went(self, ids: Iterable[Id], layer: str) -> None:
        """What was thought in these entries of ours."""
        for id in ids:
            if (source := f"{THOUGHT}{self._known.get(id)}") in self._thoughts:
                self._went(source, self._weight(source), layer)

    def _went(self, source: str, tokens: int, layer: str) -> LostItem:
        lost = self.gone.get(source)
        if lost is None:
            lost = self.gone[source] = LostItem(tokens, layer)
        return lost

    def _weight(self, source: str) -> int:
        if is_result_source(source) and source in self._results:
            result, rate = self._results[source]
            return round(estimate_message(Message("user", (result,))) * rate)
        return round(estimate_message(Message("user", (Text(self._text(source)),))) * self._rate(-1))

    def as_shown(self, results: Iterable[ToolResult]) -> int:
        """Tokens of what stands in the view for these results."""
        weights = (
            estimate_message(Message("user", (shown,))) * self._results[shown.tool_use_id][1]
            for shown in results
        )
        return sum(map(round, weights))

    def _text(self, source: str) -> str:
        if source in self._thoughts:
            return self._thoughts[source]
        use = self._uses.get(source.removesuffix(INPUT))
        return "\n".join(iterate_strings(use.input)) if use else ""

    # --- what is missed ---------------------------------------------------------------------------------

    def missed(self, needs: Sequence[ReplyNeed]) -> list[MissedSource]:
        if not self.gone or not needs:
            return []
        found = find_missed(needs, self.gone.keys(), self._is_told)
        return [one for one in found if is_recoverable(one.use_id)]

    def _is_told(self, part: str) -> bool:
        """Whether it stands anywhere in the view: in a summary, or as part of a longer path."""
        return any(part in text for placed in self._view() for text in _texts(placed.message))

    def read_back(self, missed: Sequence[MissedSource]) -> Iterator[tuple[ToolUse, ToolResult]]:
        """A call for each, and what it gives. They are in the view from then on."""
        for one in missed:
            source, again = one.use_id, f"{one.use_id}.again{len(self._first) + 1}"
            del self.gone[source]
            use = self._uses.get(source.removesuffix(INPUT))
            if is_result_source(source) and source in self._results:
                result, rate = self._results[source]
            else:
                result, rate = ToolResult(again, self._text(source)), self._rate(-1)
            name, given = (use.name, use.input) if use and is_result_source(source) else ("Read", {})
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
                yield from iterate_strings(block.input)
            case _:
                pass
