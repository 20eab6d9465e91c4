"""The needs of recorded replies: the earlier parts of the session they used; and what a view lacks of them.

A reply needs something if a trace in it can only come from there: a line that an Edit replaces, or a rare
word (an identifier, a path, a number with a shape of its own). Every place in the session that holds the
trace is a source, and one source in view is enough:

    toolu_1      the result of a tool use
    toolu_1<     the input of the call: the text of a file it wrote
    @12          text of the user or the model, by the entry
    ~12          thinking of the model, by the entry; only for what stands nowhere else

Needs of meaning, without such a trace, are not found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final

import msgspec

from sevenfold.core.messages import Block, Json, Message, Text, Thinking, ToolResult, ToolUse
from sevenfold.core.transcript import Entry, Id, PlacedMessage, Replace, Reply, View
from sevenfold.replay.costs import estimate_message
from sevenfold.replay.outcome import LARGE

SHORTEST_LINE: Final = 12  # A shorter line (a bracket, a return) could come from anywhere
SHORTEST_WORD: Final = 5
MOST_WORDS: Final = 20_000  # Words of which it is remembered whether they are rare
MOST_SOURCES: Final = 3  # A word that stands in more places than this is not rare
NEWEST_LINES: Final = 6  # Newest sources that are kept of a line
ROBUST: Final = 2  # Rare words of one result in one reply that are no accident
INPUT, SAID, THOUGHT = "<", "@", "~"  # Suffix and prefixes of sources that are not results

_NUMBERED: Final = re.compile(r"^\d+[→\t:-]")
_WORD: Final = re.compile(
    r"(?:[A-Za-z][a-z]*+(?![A-Za-z0-9_]|[./-][A-Za-z0-9_])[^A-Za-z_0-9]*+)++"
    r"|([A-Za-z_0-9](?:(?<![0-9])[A-Za-z0-9_]*+(?:[./-][A-Za-z0-9_]++)*+|[\d.]{3,}\d))"
)
"""The group is a possible word; words of a language are passed over, many at a time. It begins with one set
of characters for both its kinds: a search skips to them."""
_SHAPED: Final = re.compile(r"[_\d./]|-.*-|[a-z][A-Z]")  # One hyphen makes no name: line-based, re-run
_SCHEMA: Final = frozenset({"output_mode", "status", "type", "subagent_type", "model", "priority"})
"""Arguments whose values the tool's schema names."""


class ReplyNeed(msgspec.Struct, frozen=True):
    """A trace in a reply, and all its sources, oldest first."""

    sources: tuple[str, ...]
    line: bool  # A line that an Edit replaces; else a rare word
    part: str = ""

    @property
    def is_results_only(self) -> bool:
        return all(is_result_source(source) for source in self.sources)


class MissedSource(msgspec.Struct, frozen=True):
    """A source that a reply needed and that was not in the view."""

    use_id: str  # The source: a tool use, or the input of one
    robust: bool


def is_result_source(source: str) -> bool:
    return not source.endswith(INPUT) and not source.startswith((SAID, THOUGHT))


def is_recoverable(source: str) -> bool:
    """True if an agent could read it back; text that is gone cannot be."""
    return not source.startswith(SAID)


def find_needs(entries: Sequence[Entry], *, resets: bool = True) -> dict[Id, tuple[ReplyNeed, ...]]:
    """The needs by reply. `resets`: recorded compactions count; False if the policy compacts by itself."""
    found: dict[Id, tuple[ReplyNeed, ...]] = {}
    wanted = _TraceFilter(entry.what.message for entry in entries if isinstance(entry.what, Reply))
    seen = _TraceIndex(wanted)
    for entry in entries:
        match entry.what:
            case Reply(message):
                if needs := tuple(seen.find_needs_of(message)):
                    found[entry.id] = needs
                seen.add_message(message, entry.id)
            case Message() as message:
                seen.add_message(message, entry.id)
            case Replace(by=messages) if resets:
                seen = _TraceIndex(wanted)
                for message in messages:
                    seen.add_message(message, entry.id)
            case _:
                pass
    return found


def find_missed(
    needs: Sequence[ReplyNeed], gone: AbstractSet[str], in_view: Callable[[str], bool] = lambda part: False
) -> list[MissedSource]:
    """The newest sources of these needs that are gone, unless something else in view has the trace."""
    words: dict[str, int] = {}
    lines: set[str] = set()
    for need in needs:
        if not all(source in gone for source in need.sources) or in_view(need.part):
            continue
        newest = next((s for s in reversed(need.sources) if is_recoverable(s)), None)
        if newest is not None:
            words[newest] = words.get(newest, 0) + 1
            if need.line:
                lines.add(newest)
    return [MissedSource(use, use in lines or count >= ROBUST) for use, count in words.items()]


class _TraceFilter:
    """The traces that any reply has; the rest of a long session is not indexed."""

    def __init__(self, replies: Iterable[Message]) -> None:
        self.lines: set[str] = set()
        self.words: set[str] = set()
        self._own: dict[int, set[str]] = {}  # The rare words of each block of a reply, by its identity
        for message in replies:
            self.lines.update(
                *(find_long_lines(old) for u in message.tool_uses for old in _list_replaced_texts(u))
            )
            for block in message.content:
                if (text := _get_own_text(block)) is not None:
                    self._own[id(block)] = words = find_rare_words(text)
                    self.words |= words
        self._ends = {line[-SHORTEST_LINE:] for line in self.lines}

    def get_own_words(self, reply: Message) -> set[str]:
        return set().union(*(self._own.get(id(block), ()) for block in reply.content))

    def find_lines(self, text: str) -> set[str]:
        """The lines of a text that a reply has; only those that end like one are looked at closely."""
        lines, ends = text.splitlines() if self._ends else (), self._ends
        near = [line for line in map(str.rstrip, lines) if line[-SHORTEST_LINE:] in ends]
        return self.lines & _strip_lines(near) if near else set()

    def find_words(self, text: str, block: Block | None = None) -> set[str]:
        """The rare words of a text that a reply has; `block`: that whose text it is."""
        own = self._own.get(id(block))
        return self.words.intersection(_WORD.findall(text)) if own is None else own


class _TraceIndex:
    """The sources of each line and each rare word."""

    def __init__(self, wanted: _TraceFilter) -> None:
        self._wanted = wanted
        self._lines: dict[str, list[str]] = {}
        self._words: dict[str, list[str]] = {}
        self._thought: dict[str, list[str]] = {}

    def add_message(self, message: Message, id: Id) -> None:
        for result in message.results:
            self._index_text(result.text, result.tool_use_id)
        for block in message.content:
            if (text := _get_own_text(block)) is not None:
                source = block.id + INPUT if isinstance(block, ToolUse) else f"{SAID}{id}"
                self._index_text(text, source, block)
            elif isinstance(block, Thinking):
                for word in self._wanted.find_words(block.thinking):
                    _add_source(self._thought, word, f"{THOUGHT}{id}", MOST_SOURCES)

    def find_needs_of(self, message: Message) -> Iterator[ReplyNeed]:
        for use in message.tool_uses:
            for old in _list_replaced_texts(use):
                for line in sorted(find_long_lines(old)):
                    if sources := self._lines.get(line):
                        yield ReplyNeed(tuple(sources), True, line)
        for word in sorted(self._wanted.get_own_words(message)):
            sources = self._words.get(word) or self._thought.get(word)
            if sources and len(sources) <= MOST_SOURCES:
                yield ReplyNeed(tuple(sources), False, word)

    def _index_text(self, text: str, source: str, block: Block | None = None) -> None:
        for line in self._wanted.find_lines(text):
            _add_source(self._lines, line, source, NEWEST_LINES)
            del self._lines[line][:-NEWEST_LINES]
        for word in self._wanted.find_words(text, block):
            _add_source(self._words, word, source, MOST_SOURCES)


def _add_source(known: dict[str, list[str]], part: str, source: str, most: int) -> None:
    """Add a source; one more than `most` means that there are too many."""
    sources = known.get(part)
    if sources is None:
        known[part] = [source]
    elif len(sources) <= most and source not in sources:
        sources.append(source)


def _list_replaced_texts(use: ToolUse) -> Iterator[str]:
    """The texts that a call of an edit tool replaces."""
    edits = use.input.get("edits") if use.name == "MultiEdit" else None
    for edit in (use.input, *(edits if isinstance(edits, list) else ())):
        if use.name in ("Edit", "MultiEdit") and isinstance(edit, dict):
            yield str(edit.get("old_string", ""))


def _get_own_text(block: Block) -> str | None:
    """The text that a block says, or puts into a call; None for one that does neither."""
    if isinstance(block, Text):
        return block.text
    return "\n".join(iterate_strings(block.input)) if isinstance(block, ToolUse) else None


def iterate_strings(value: Json | list[object] | object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, str):  # most are, and a generator for each takes a while
                if key not in _SCHEMA:
                    yield inner
            elif key not in _SCHEMA:
                yield from iterate_strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from iterate_strings(inner)


def find_long_lines(text: str) -> set[str]:
    """The lines of a text that are long enough to be recognised, without line numbers and margins."""
    return {line for line in _strip_lines(text.splitlines()) if len(line) >= SHORTEST_LINE}


def _strip_lines(given: Iterable[str]) -> set[str]:
    lines = set(map(str.strip, given))
    first = {line: _NUMBERED.match(line) for line in lines if line[:1].isdecimal()}
    numbered = {line: line[found.end() :].strip() for line, found in first.items() if found}
    return lines.difference(numbered).union(numbered.values()) if numbered else lines


def find_rare_words(text: str) -> set[str]:
    """Identifiers, paths and numbers; plain words do not show where they come from."""
    return {word for word in set(_WORD.findall(text)) if len(word) >= SHORTEST_WORD and _is_shaped(word)}


@lru_cache(maxsize=MOST_WORDS)
def _is_shaped(word: str) -> bool:
    return _SHAPED.search(word) is not None


class LostItem(msgspec.Struct, frozen=True):
    """Something that has left the view."""

    source: str
    tokens: int
    layer: str  # The layer that removed it

    @property
    def is_large(self) -> bool:
        """True for a tool result that is worth removing."""
        return self.tokens >= LARGE and is_result_source(self.source)


class AbsenceTracker:
    """Tracks what is gone from the view. Tokens are the provider's own count."""

    def __init__(
        self, rate: Callable[[Id], float], known: Mapping[Id, Id], view: Callable[[], View]
    ) -> None:
        """`rate`: real tokens per estimated one, by recorded entry. `known`: recorded entries by ours."""
        self._rate, self._known, self._view = rate, known, view
        self.gone: dict[str, LostItem] = {}
        self._original: dict[str, str] = {}  # The original use of each result that was read back
        self._uses: dict[str, ToolUse] = {}
        self._results: dict[str, tuple[ToolResult, float]] = {}
        self._thoughts: dict[str, str] = {}

    def add_message(self, message: Message, id: Id) -> None:
        """Add a message of the recording, with its entry there."""
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

    def find_use(self, use_id: str) -> ToolUse | None:
        return self._uses.get(use_id)

    def remove_results(self, use_ids: Iterable[str], layer: str) -> list[LostItem]:
        """Mark results as gone; the view shows something else for them."""
        return self._mark_gone((self._original.get(use, use) for use in use_ids), layer)

    def remove_messages(self, placed: Sequence[PlacedMessage], layer: str) -> list[LostItem]:
        """Mark whole messages as gone."""
        return self._mark_gone((source for one in placed for source in self._list_sources(one)), layer)

    def _list_sources(self, one: PlacedMessage) -> Iterator[str]:
        for result in one.message.results:
            yield self._original.get(result.tool_use_id, result.tool_use_id)
        for use in one.message.tool_uses:
            if use.id not in self._original:
                yield use.id + INPUT
        id = self._known.get(one.id)
        if id is not None and any(isinstance(block, Text) for block in one.message.content):
            yield f"{SAID}{id}"

    def remove_thoughts(self, ids: Iterable[Id], layer: str) -> list[LostItem]:
        """Mark the thinking of these entries of ours as gone."""
        sources = (f"{THOUGHT}{self._known.get(id)}" for id in ids)
        return self._mark_gone(filter(self._thoughts.get, sources), layer)

    def _mark_gone(self, sources: Iterable[str], layer: str) -> list[LostItem]:
        """What can be read back and was not gone before: it is lost, and can be needed, once."""
        lost: list[LostItem] = []
        for source in sources:
            if source not in self.gone:
                one = self.gone[source] = LostItem(source, self._count_tokens(source), layer)
                lost += [one] if is_recoverable(source) else []
        return lost

    def _count_tokens(self, source: str) -> int:
        if is_result_source(source) and source in self._results:
            result, rate = self._results[source]
            return round(estimate_message(Message("user", (result,))) * rate)
        return round(estimate_message(Message("user", (Text(self._find_text(source)),))) * self._rate(-1))

    def count_shown_tokens(self, results: Iterable[ToolResult]) -> int:
        """Tokens of what the view shows for these results."""
        weights = (
            estimate_message(Message("user", (shown,))) * self._results[shown.tool_use_id][1]
            for shown in results
        )
        return sum(map(round, weights))

    def _find_text(self, source: str) -> str:
        if source in self._thoughts:
            return self._thoughts[source]
        use = self._uses.get(source.removesuffix(INPUT))
        return "\n".join(iterate_strings(use.input)) if use else ""

    def find_missed(self, needs: Sequence[ReplyNeed]) -> list[MissedSource]:
        if not self.gone or not needs:
            return []
        found = find_missed(needs, self.gone.keys(), self._is_in_view)
        return [one for one in found if is_recoverable(one.use_id)]

    def _is_in_view(self, part: str) -> bool:
        """True if it stands anywhere in the view: in a summary, or as part of a longer path."""
        return any(part in text for placed in self._view() for text in _iterate_texts(placed.message))

    def read_back(self, missed: Sequence[MissedSource]) -> Iterator[tuple[ToolUse, ToolResult]]:
        """A call for each source, and its result. They count as in view from then on."""
        for one in missed:
            source, again = one.use_id, f"{one.use_id}.again{len(self._original) + 1}"
            del self.gone[source]
            use = self._uses.get(source.removesuffix(INPUT))
            if is_result_source(source) and source in self._results:
                result, rate = self._results[source]
            else:
                result, rate = ToolResult(again, self._find_text(source)), self._rate(-1)
            name, given = (use.name, use.input) if use and is_result_source(source) else ("Read", {})
            self._uses[again] = ToolUse(again, name, given)
            self._results[again] = msgspec.structs.replace(result, tool_use_id=again), rate
            self._original[again] = source
            yield self._uses[again], self._results[again][0]


def _iterate_texts(message: Message) -> Iterator[str]:
    for block in message.content:
        if type(block) is Text or type(block) is ToolResult:
            yield block.text
        elif type(block) is ToolUse:
            yield from iterate_strings(block.input)
