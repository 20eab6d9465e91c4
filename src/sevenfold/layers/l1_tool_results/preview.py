"""Shows part of a long text within a limit: the envelope of a stored result, a page, or matching lines."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from sevenfold.core.messages import strip_half_characters
from sevenfold.core.protocols import ToolFailed
from sevenfold.storage.results import BLOCKS

OPENING: Final = "<persisted-output>"
CLOSING: Final = "</persisted-output>"
WITH_READ_RESULT: Final = (
    "To see more, call ReadResult with that path and an offset, or with a pattern to find lines."
)
_AS_BLOCKS: Final = 'The file is a JSON array of blocks, each with its words under "text".'
_HEAD: Final = (
    rf"{OPENING}\nToo long to show here: ([\d,]+) characters, [\d,]+ lines?\."
    r" The whole result is in\n([^\n]+)\n"
)


class ResultPointer(msgspec.Struct, frozen=True):
    """The target of an envelope."""

    characters: int
    path: str


def make_envelope(text: str, path: Path, how: str, preview: int, *, with_tail: bool = False) -> str:
    """The envelope of a text that is in this file whole, showing at most `preview` bytes of it.

    `with_tail` spends half of them on the end, where a command that failed says why.
    """
    parts = [
        OPENING,
        f"Too long to show here: {len(text):,} characters, {_lines(text)}. The whole result is in",
        strip_half_characters(str(path)),
    ]
    if path.suffix == BLOCKS:
        parts.append(_AS_BLOCKS)
    if how:
        parts.append(how)
    if preview:
        parts += ["", *(_both_ends if with_tail else _beginning)(text, preview)]
    return "\n".join([*parts, CLOSING])


def parse_envelope(text: str) -> ResultPointer | None:
    """The target of this text, if it looks like one of our envelopes.

    Anyone can write such a text: ask the store whether the path is one of its own.
    """
    if not text.startswith(OPENING) or not text.endswith("\n" + CLOSING):
        return None
    found = re.match(_HEAD, text)
    return ResultPointer(int(found[1].replace(",", "")), found[2]) if found else None


def cut_middle(text: str, budget: int, why: str) -> str:
    """Both ends of a text that is too long for any window and could not be kept either."""
    head, tail = take_head(text, budget // 2), take_tail(text, budget // 2)
    gone = len(text) - len(head) - len(tail)
    return (
        f"{head}\n[… {gone:,} characters are missing here: the result is too long to show whole,"
        f" and {why} …]\n{tail}"
    )


def take_head(text: str, budget: int) -> str:
    """The first bytes as whole characters, up to a line's end if one is past half-way."""
    data = text[:budget].encode("utf-8", "replace")
    if len(text) <= budget and len(data) <= budget:
        return data.decode("utf-8")
    data = data[:budget]
    end = data.rfind(b"\n")
    return (data[:end] if end > budget // 2 else data).decode("utf-8", "ignore")


def take_tail(text: str, budget: int) -> str:
    """The last bytes as whole characters, from a line's beginning if one is before half-way."""
    if budget <= 0:
        return ""
    data = text[-budget:].encode("utf-8", "replace")
    if len(text) <= budget and len(data) <= budget:
        return data.decode("utf-8")
    data = data[-budget:]
    start = data.find(b"\n", 0, budget // 2)
    return data[start + 1 :].decode("utf-8", "ignore")


def _beginning(text: str, preview: int) -> list[str]:
    head = take_head(text, preview)
    if len(head) == len(text):
        return ["All of it:", _harmless(head)]
    return [_title("first", head, text[len(head)] == "\n"), _harmless(head), "…"]


def _both_ends(text: str, preview: int) -> list[str]:
    head, tail = take_head(text, preview // 2), take_tail(text, preview // 2)
    between = len(text) - len(head) - len(tail)
    if between <= 0:
        return _beginning(text, preview)
    return [
        _title("first", head, text[len(head)] == "\n"),
        _harmless(head),
        f"[… {between:,} characters between …]",
        _title("last", tail, text[-len(tail) - 1] == "\n"),
        _harmless(tail),
    ]


def _title(which: str, part: str, whole_lines: bool) -> str:
    """Says so where the part is whole lines: then the reader knows which line comes next."""
    return f"The {which} {_lines(part)}:" if whole_lines else f"The {which} part:"


def _lines(text: str) -> str:
    n = count_lines(text)
    return f"{n:,} line{'s' if n != 1 else ''}"


def _harmless(part: str) -> str:
    """Without anything that would end the envelope before its end."""
    return part.replace(CLOSING, CLOSING.replace("/", "\\/"))


MOST: Final = 25_000  # Characters of one answer, in a window of 200,000 tokens
LEAST: Final = 2_000  # Characters of one answer in the smallest window
LONGEST_PATTERN: Final = 1_000
SECONDS: Final = 10.0  # Longest search for a pattern, in seconds
_NOTES: Final = 300  # Characters of the answer that are kept free for saying how to go on
_SHORT: Final = 1_000
"""Lines up to this length are shown whole when they match; of longer ones, the places that do."""
_BEFORE: Final = 100
_AROUND: Final = 400


@dataclass(slots=True)
class NumberedLines:
    """Numbered lines as far as there is room for them."""

    lines: list[str] = field(default_factory=list)
    room: int = MOST - _NOTES

    def add(self, label: str, line: str) -> bool:
        """False: it does not fit any more."""
        line = f"{label}\t{line.removesuffix(chr(13))}"
        if len(line) >= self.room:
            return False
        self.lines.append(line)
        self.room -= len(line) + 1
        return True

    def told(self, note: str = "") -> str:
        return "\n".join([*self.lines, f"[{note}]"] if note else self.lines)


def format_page(text: str, first: int, count: int, character: int = 1, most: int = MOST) -> str:
    """So many lines from this one on, or from a character of it; and how to go on."""
    at, end = _place(text, first, character)
    answer, number = NumberedLines(room=most - _NOTES), first
    while len(answer.lines) < count:
        if not answer.add(str(number), text[at:end]):
            if answer.lines:
                return answer.told(f"there is no room for more; go on with offset={number}")
            label = f"{number}:{character}"  # The line is longer than an answer: a part of it
            shown = answer.room - len(label) - 2
            answer.add(label, text[at : at + shown])
            return answer.told(
                f"line {number} has {end - at - shown:,} more characters; go on with offset={number},"
                f" character={character + shown}"
            )
        number += 1
        if end + 1 >= len(text):
            return answer.told()
        at, end = end + 1, _line_end(text, end + 1)
    return answer.told(f"lines {first}-{number - 1} of {count_lines(text):,}; go on with offset={number}")


def _place(text: str, line: int, character: int) -> tuple[int, int]:
    """The place of this character of this line, and the end of the line."""
    at = 0
    for passed in range(line - 1):
        if not (at := text.find("\n", at) + 1) or at == len(text):
            raise ToolFailed(f"the result has {passed + 1:,} lines; offset {line:,} is past its end")
    end = _line_end(text, at)
    if at + character - 1 > end:
        raise ToolFailed(
            f"line {line:,} has {end - at:,} characters; character {character:,} is past its end"
        )
    return at + character - 1, end


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def count_lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


# --- looking for something ---------------------------------------------------------------------------


class LinePattern:
    """Plain text in any case, `a|b` for either, `a.*b` for both in this order. No other expression:
    so it takes time in proportion to the text, whatever it is.
    """

    def __init__(self, pattern: str) -> None:
        if len(pattern) > LONGEST_PATTERN:
            raise ToolFailed(f"the pattern is longer than {LONGEST_PATTERN:,} characters; shorten it")
        if "\n" in pattern:
            raise ToolFailed("the pattern is looked for within a line; leave out the line break")
        either = (_in_order(part) for part in re.split(r"(?<!\\)\|", pattern))
        self.either = [pieces for pieces in either if pieces]
        if not self.either:
            raise ToolFailed("the pattern is empty; leave it out to read the result as it is")


def _in_order(part: str) -> list[re.Pattern[str]]:
    """A backslash before a sign is how models say that it is meant as it stands."""
    plain = (re.sub(r"\\([^\w\s])", r"\1", piece) for piece in re.split(r"(?<!\\)\.\*", part))
    return [re.compile(re.escape(piece), re.IGNORECASE) for piece in plain if piece]


class PatternSearch:
    """Goes through a text from match to match; each alternative remembers where it is."""

    def __init__(self, text: str, wanted: LinePattern, seconds: float) -> None:
        self._text, self._wanted = text, wanted
        self._until = monotonic() + seconds
        self._next: list[int | None] = [-1] * len(wanted.either)
        self.stopped: int | None = None  # The line reached when the time was up

    def after(self, at: int) -> int | None:
        """The first match from here on; None: there is none, or the time is up."""
        for i, known in enumerate(self._next):
            if known is not None and known < at:
                self._next[i] = self._find(self._wanted.either[i], at)
        found = [place for place in self._next if place is not None]
        return min(found) if found and self.stopped is None else None

    def _find(self, pieces: list[re.Pattern[str]], at: int) -> int | None:
        while (begin := pieces[0].search(self._text, at)) and self.stopped is None:
            end, last = _line_end(self._text, begin.end()), begin
            for piece in pieces[1:]:
                if not (more := piece.search(self._text, last.end(), end)):
                    break
                last = more
            else:
                return begin.start()
            at = end
            if monotonic() > self._until:
                self.stopped = at
        return None


def format_matches(
    text: str,
    wanted: LinePattern,
    first: int,
    character: int,
    limit: int,
    seconds: float = SECONDS,
    most: int = MOST,
) -> str:
    """The lines that hold what is wanted, from this place on; of long lines the places that do."""
    at, _ = _place(text, first, character)
    search, answer = PatternSearch(text, wanted, seconds), NumberedLines(room=most - _NOTES)
    line, start = first, at - character + 1
    while (found := search.after(at)) is not None:
        line += text.count("\n", start, found)
        start = text.rfind("\n", 0, found) + 1
        end = _line_end(text, found)
        long = end - start > _SHORT
        begin = max(start, found - _BEFORE) if long else start
        at = min(end, begin + _AROUND) if long else end
        label = f"{line}:{begin - start + 1}" if long else str(line)
        if len(answer.lines) == limit or not answer.add(label, text[begin:at]):
            here = f", character={found - start + 1}" if long else ""
            return answer.told(f"there are more; go on with offset={line}{here}")
        at = max(at, found + 1)
    if search.stopped is not None:
        line += text.count("\n", start, search.stopped)
        return answer.told(f"stopped after {seconds:g} seconds; go on with offset={line}")
    return answer.told() or "No line holds that; it is looked for as plain text, | and .* apart."
