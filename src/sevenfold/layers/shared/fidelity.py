"""Measures how much of what left the view can still be found, and what is missing.

    share of            what counts                                                          weight
    said                every message of the user, whole                                         50
    paths               files that a tool was pointed at, or the user named                      15
    identifiers         names with a shape of their own, flags, hashes                           15
    errors              the line of a failed result that says what went wrong                    10
    numbers             of two digits and more, in what was said                                  5
    urls                all                                                                       5

The score is the weighted mean over the kinds there are. The user's words weigh as much as all the rest: a
list of all names without one sentence of theirs cannot beat their sentences alone. Names, numbers and paths
count when the user said them or two messages used them; what stands only in tool output or written files
does not. Words are compared in their order, and a message that is quoted in part is found in part.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Final

import msgspec

from sevenfold.core.messages import Json, Message, Text, ToolResult, ToolUse
from sevenfold.core.transcript import PlacedMessage, View
from sevenfold.layers.shared.facts import (
    TYPED,
    WORD,
    extract_words_beside,
    find_error_line,
    summarise_call,
    to_bounded_line,
)

WEIGHTS: Final = {"said": 50, "paths": 15, "identifiers": 15, "errors": 10, "numbers": 5, "urls": 5}
RUN: Final = 5  # So many words in the same order are a quotation; fewer are a coincidence
TWICE: Final = 2  # Messages that have to use a thing before it counts, if the user did not say it
SHORT: Final = 300  # Characters; a longer argument of a tool is the text of a file, or as good as one
MOST_NAMES: Final = 20_000
"""Words of which it is remembered whether they are names: a conversation repeats its own."""
EXAMPLES: Final = 4  # Missing things that are named, of each kind

_APART: Final = bytes(n if chr(n).isalnum() or n == ord("_") else 32 for n in range(128)).ljust(256)
"""Spaces between the words of an ASCII text."""
_NAME: Final = (
    r"(?a)(?:[A-Za-z][a-z]*+(?!\w)[^\w-]*+)++"
    r"|(--[a-z][a-z0-9-]{2,}|[A-Z]{2,}-\d+|[A-Za-z_]\w*|\d[0-9a-f]{6,39}(?!\w))"
)
"""The group is a possible name; words of a language are passed over, many at a time."""
_SHAPED: Final = r"[A-Za-z0-9]_[A-Za-z0-9]|[a-z][A-Z]|^--|[A-Za-z].*\d|\d.*[a-z]"
_NUMBER: Final = r"(?a)\d(?<![\w.,:/#-]\d)(?:\d{3}-\d\d-\d\d|[\d.,:]*\d)(?![\w-])"
_URL: Final = r"https?://[^\s<>\"'`)\]}|\\]+"
_PATH: Final = r"(?a)(?<![\w/.:@+-])(?:[A-Za-z]:[\\/]|~/|\.{1,2}/|/)?[\w@+-][\w.@+-]*(?:[\\/][\w.@+-]+)+"
_ENDING: Final = r"\.[A-Za-z]\w{0,9}$"


class FoundShare(msgspec.Struct, frozen=True):
    """The number of items, and of those still found; one found in part counts in part."""

    found: float
    of: int

    @property
    def part(self) -> float:
        return self.found / self.of if self.of else 1.0


class Fidelity(msgspec.Struct, frozen=True):
    score: float  # From 0, nothing can be found, to 1
    kinds: dict[str, FoundShare]
    missing: tuple[str, ...] = ()  # Some of what cannot be found, what matters most first


def measure_fidelity(
    removed: Iterable[Message | PlacedMessage], present: Iterable[Message | PlacedMessage | str]
) -> Fidelity:
    """Measures what of `removed` is still in `present`: summary, tail, restored context, memory.

    Given as `PlacedMessage`, only what the user typed counts as said by them. A plain message has no
    author: every text in the role of the user counts then, unless it is marked as context.
    """
    counted, there = count_items(removed), ItemFinder(present)
    found = {
        "said": there.quoted(counted.said),
        "paths": there.paths(counted.paths),
        "identifiers": there.names(counted.identifiers),
        "errors": there.quoted(counted.errors),
        "numbers": there.numbers(counted.numbers),
        "urls": there.urls(counted.urls),
    }
    shares = {kind: FoundShare(sum(parts.values()), len(parts)) for kind, parts in found.items()}
    weight = sum(WEIGHTS[kind] for kind, share in shares.items() if share.of)
    got = sum(WEIGHTS[kind] * share.part for kind, share in shares.items() if share.of)
    missing: list[str] = []
    for parts in found.values():
        gone = sorted((t for t, part in parts.items() if part < 1.0), key=parts.__getitem__)
        missing += [to_bounded_line(text, 160) for text in gone[:EXAMPLES]]
    return Fidelity(got / weight if weight else 1.0, shares, tuple(missing))


def score_compaction(before: View, after: View, added: Iterable[Message | str] = ()) -> float:
    """The score of a compaction that makes `after` of `before` and adds these messages."""
    gone = (placed for placed in before if after.where(placed.id) is None)
    return round(measure_fidelity(gone, [*after, *added]).score, 4)


# --- what counts --------------------------------------------------------------------------------------


class StretchItems(msgspec.Struct, frozen=True):
    """The items of a stretch of conversation, by kind; those used most come first."""

    said: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()


def count_items(messages: Iterable[Message | PlacedMessage]) -> StretchItems:
    counting = _ItemCounter()
    for one in messages:
        counting.take(one)
    return counting.counted


class _ItemCounter:
    def __init__(self) -> None:
        self._said: list[str] = []
        self._paths: Counter[str] = Counter()
        self._identifiers: Counter[str] = Counter()
        self._numbers: Counter[str] = Counter()
        self._urls: Counter[str] = Counter()
        self._errors: dict[str, None] = {}

    def take(self, one: Message | PlacedMessage) -> None:
        message = one.message if isinstance(one, PlacedMessage) else one
        said = extract_user_text(one)
        if said:
            self._said.append(said)
        for call in map(summarise_call, message.tool_uses):
            if call.kind in ("read", "change"):
                self._paths[call.about] += TWICE
        texts = (text for use in message.tool_uses for text in iterate_strings(use.input))
        short = [text for text in texts if len(text) <= SHORT]
        for result in message.results:
            if error := find_error_line(result):
                self._errors[error] = None
        self._note(message.text, short, TWICE if said else 1)

    def _note(self, text: str, short: Sequence[str], times: int) -> None:
        """Each thing once a message, however often the message says it."""
        whole = "\n".join([text, *short]) if short else text
        if not whole or whole.isspace():
            return
        if urls := find_urls(whole):
            self._urls.update(urls)
            whole, text = re.sub(_URL, " ", whole), re.sub(_URL, " ", text)
        paths, rest = _parted(whole)
        names = find_names(rest)
        if short:  # the flags of a command are its own affair, unless someone speaks of them
            names -= {name for name in names if name.startswith("--") and name not in text}
        for kind, things in (
            (self._paths, paths),
            (self._identifiers, names),
            (self._numbers, find_numbers(text)),
        ):
            for thing in things:
                kind[thing] += times

    @property
    def counted(self) -> StretchItems:
        return StretchItems(
            tuple(reversed(self._said)),
            tuple(_distinct(_used(self._paths, TWICE))),
            tuple(_used(self._identifiers, TWICE)),
            tuple(reversed(self._errors)),
            tuple(_used(self._numbers, TWICE)),
            tuple(_used(self._urls, 1)),
        )


def extract_user_text(one: Message | PlacedMessage) -> str:
    """The words of a person in a message, or nothing."""
    message, by = (one.message, one.by) if isinstance(one, PlacedMessage) else (one, "")
    if by == "tools":
        return extract_words_beside(message)
    if message.role != "user" or by not in TYPED:
        return ""
    text = message.text
    return "" if text.startswith("<context>") or not re.search(WORD, text) else text


def iterate_strings(value: Json | object) -> Iterator[str]:
    """Every text in the arguments of a tool."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            if isinstance(inner, str):  # most are, and a generator for each takes a while
                yield inner
            else:
                yield from iterate_strings(inner)


def _used(things: Counter[str], least: int) -> list[str]:
    return [thing for thing, times in things.most_common() if times >= least]


def _distinct(paths: Sequence[str]) -> Iterator[str]:
    """Without those that are the end of another: the same file, named in short."""
    ends = {end for path in paths for end in _ends_of(path)[1:]}
    return (path for path in paths if _plain(path) not in ends)


# --- kinds of things ------------------------------------------------------------------------------------


def find_names(text: str) -> set[str]:
    """Identifiers, flags and hashes: words that no language has. What is longer is data."""
    return {name for name in set(re.findall(_NAME, text)) if 5 <= len(name) <= 100 and _shaped(name)}


@lru_cache(maxsize=MOST_NAMES)
def _shaped(word: str) -> bool:
    return re.search(_SHAPED, word) is not None


def find_numbers(text: str) -> set[str]:
    return {number.replace(",", "") for number in re.findall(_NUMBER, text)}


def find_urls(text: str) -> set[str]:
    return {url.rstrip(".,;:!?") for url in re.findall(_URL, text)} if "://" in text else set()


def find_paths(text: str) -> set[str]:
    """Paths in running text: those that end like a file, or begin at a root."""
    return _parted(text)[0]


def _parted(text: str) -> tuple[set[str], str]:
    """The paths in a text, and the text without them. Only words with a slash are looked at closely."""
    paths: set[str] = set()
    if "/" not in text and "\\" not in text:
        return paths, text

    def without(found: re.Match[str]) -> str:
        path = found[0].rstrip(".")
        rooted = path[0] in "/~" or path[1:2] == ":"
        if path == "/dev/null" or not (rooted or re.search(_ENDING, path)):
            return found[0]
        paths.add(path)
        return " "

    lines = text.split("\n")
    for at, one in enumerate(lines):
        if "/" in one or "\\" in one:
            words = (re.sub(_PATH, without, w) if "/" in w or "\\" in w else w for w in one.split(" "))
            lines[at] = " ".join(words)
    return paths, "\n".join(lines)


def _plain(path: str) -> str:
    return path.replace("\\", "/").removeprefix("./").rstrip("/")


def _ends_of(path: str) -> list[str]:
    """The path, then what is left of it without its first part, and so on."""
    parts = [part for part in _plain(path).split("/") if part]
    return [_plain(path), *("/".join(parts[i:]) for i in range(1, len(parts)))]


# --- what is there --------------------------------------------------------------------------------------


class ItemFinder:
    """Texts in which things are looked for. Each answer says how much of each thing is there."""

    def __init__(self, texts: Iterable[Message | PlacedMessage | str]) -> None:
        self._text = "\n".join(part for one in texts for part in _parts(one))

    def quoted(self, texts: Iterable[str]) -> dict[str, float]:
        """The share of each text that is there in runs of the same words in the same order."""
        wanted = {text: re.findall(WORD, text) for text in texts}
        runs = {run for words in wanted.values() for run in _runs(words)}
        there = runs.intersection(_runs(self._all_words)) if runs else runs
        return {
            text: _covered(words, there) if len(words) >= RUN else float(_row(words) in self._in_order)
            for text, words in wanted.items()
        }

    def names(self, names: Iterable[str]) -> dict[str, float]:
        wanted = dict.fromkeys(names, 0.0)
        if wanted:
            wanted.update(dict.fromkeys(wanted.keys() & set(re.findall(_NAME, self._text)), 1.0))
        return wanted

    def numbers(self, numbers: Iterable[str]) -> dict[str, float]:
        wanted = dict.fromkeys(numbers, 0.0)
        if wanted:
            wanted.update(dict.fromkeys(wanted.keys() & find_numbers(self._text), 1.0))
        return wanted

    def urls(self, urls: Iterable[str]) -> dict[str, float]:
        return {url: float(_stands(self._text, url)) for url in urls}

    def paths(self, paths: Iterable[str]) -> dict[str, float]:
        """A path is there when the shortest end of two parts is that only this one of them has."""
        wanted = list(paths)
        shared = Counter(end for path in wanted for end in _ends_of(path))
        text = self._text.replace("\\", "/") if "\\" in self._text else self._text
        return {path: float(_stands(text, _telling_end(path, shared))) for path in wanted}

    @cached_property
    def _all_words(self) -> list[str]:
        """As `WORD` finds them. Most lines are ASCII, and those are taken apart faster."""
        words: list[str] = []
        for plain, lines in groupby(self._text.split("\n"), str.isascii):
            part = "\n".join(lines)
            words += part.encode().translate(_APART).decode().split() if plain else re.findall(WORD, part)
        return words

    @cached_property
    def _in_order(self) -> str:
        return _row(self._all_words)


def _parts(one: Message | PlacedMessage | str) -> Iterator[str]:
    if isinstance(one, str):
        yield one
        return
    message = one.message if isinstance(one, PlacedMessage) else one
    for block in message.content:
        if type(block) is Text or type(block) is ToolResult:
            yield block.text
        elif type(block) is ToolUse:
            yield from iterate_strings(block.input)


def _row(words: Sequence[str]) -> str:
    return "\n".join(["", *words, ""]) if words else ""


def _runs(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return zip(*(words[i:] for i in range(RUN)), strict=False)


def _covered(words: Sequence[str], there: set[tuple[str, ...]]) -> float:
    covered = until = 0
    for at, run in enumerate(_runs(words)):
        if run in there:
            covered += at + RUN - max(at, until)
            until = at + RUN
    return covered / len(words)


def _telling_end(path: str, shared: Mapping[str, int]) -> str:
    ends = _ends_of(path)
    alone = [end for end in ends if shared[end] == 1 and "/" in end]
    return alone[-1] if alone else ends[0]


def _stands(text: str, thing: str) -> bool:
    """True if it is there by itself, not inside a longer name."""
    at = text.find(thing)
    while at >= 0:
        end = at + len(thing)
        before, after = text[at - 1 : at] if at else "", text[end : end + 1]
        if not (_joins(before) or _joins(after)):
            return True
        at = text.find(thing, at + 1)
    return False


def _joins(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")
