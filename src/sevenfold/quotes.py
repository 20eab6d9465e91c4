"""What the user said, quoted: word for word where there is room, and by one rule where there is not.

Whole, as long as all of it fits. Else long messages are cut to one size, each with a note of how much is
missing; of too many the first and the newest are shown, and a line says how many are left out. What the
user said last is never cut where it stands nowhere else. Sizes are bytes of UTF-8, which is what tokens
are estimated from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

from sevenfold.facts import Said, clipped
from sevenfold.messages import whole_characters
from sevenfold.tokens import byte_length

LONG: Final = 1_000
"""Bytes: a message that is longer may be cut to this before others have to suffer."""
LEAST: Final = 200
"""Bytes; below this it is better to leave an old message out and say so."""
Cutting: TypeAlias = Literal["none", "long", "all"]
"""Which messages may be cut when all of them do not fit."""
Numbered: TypeAlias = Sequence[tuple[int, str]]

_WHERE: Final = (
    "Nothing is lost. The whole conversation is in {path}, one JSON record a line. Look there before you "
    "guess, ask the user again or do something twice: search the file for a word (Grep), then Read around "
    "the line that is found."
)
_SOMEWHERE: Final = (
    "Nothing is lost: the program that runs this conversation has all of it on record. Ask the user for "
    "what you miss."
)
_LEFT_OUT: Final = "[{:,} messages of the user are left out here]"
_NOTE: Final = byte_length("\n[… 000,000,000 bytes left out …]\n")


def numbered(said: Iterable[Said]) -> Numbered:
    """Counted from the first thing that the user said."""
    return [(n, one.text) for n, one in enumerate(said, 1)]


def quote(n: int, text: str, more: str = "") -> str:
    return f'<said n="{n}"{more}>\n{unquoting(text)}\n</said>'


def unquoting(text: str) -> str:
    """Without anything that would end a quotation before its end."""
    return text.replace("</said>", "<\\/said>")


def quotes(
    said: Numbered, room: int, *, cutting: Cutting = "all", last_whole: bool = False
) -> list[str] | None:
    """At most so many bytes of what was said; None when it does not fit and may not be cut like this.

    `last_whole`: the last of them stands nowhere else. It is not cut, whatever the room.
    """
    last = [quote(*said[-1], " newest")] if said and last_whole else []
    if sum(byte_length(text) for _, text in said) <= room:  # else it is not worth quoting all of it
        whole = [*(quote(n, text) for n, text in said[: len(said) - len(last)]), *last]
        if room_of(whole) <= room:
            return whole
    if cutting == "none":
        return None
    left = room - room_of(last)
    cut = _cut(said[:-1] if last_whole else said, left, LONG if cutting == "long" else LEAST)
    return None if cut is None else [*cut, *last]


def _cut(said: Numbered, room: int, least: int) -> list[str] | None:
    """None when messages would be left out, or cut below `least`, and only long ones may be cut."""
    room -= byte_length(_LEFT_OUT.format(len(said))) + 1
    first, gone = _chosen(said, room)
    shown = [*said[:first], *said[first + gone :]]
    cap = level([byte_length(text) for _, text in shown], room - sum(map(_around, shown)))
    if least > LEAST and (gone or cap < least):
        return None
    out = [quote(n, clipped(text, cap)) for n, text in shown]
    if gone:
        out.insert(first, _LEFT_OUT.format(gone))
    return out


def _chosen(said: Numbered, room: int) -> tuple[int, int]:
    """How many at the beginning are shown, one or none, and how many after that are left out."""
    costs = [_around(one) + min(byte_length(one[1]), LEAST) for one in said]
    first = int(bool(costs) and costs[0] <= room)
    left, newest = room - sum(costs[:first]), 0
    for cost in reversed(costs[first:]):
        if cost > left:
            break
        left, newest = left - cost, newest + 1
    return first, len(said) - first - newest


def _around(one: tuple[int, str]) -> int:
    """Bytes of a quotation besides what is quoted; with a note, where that may have to be cut."""
    n, text = one
    return _TAGS + len(str(n)) + (_NOTE if byte_length(text) > LEAST else 0)


_TAGS: Final = byte_length(quote(0, ""))
"""Of a number with one digit: the digit makes room for the end of the line."""


def level(sizes: Sequence[int], room: int) -> int:
    """The size to which all that are larger must be cut so that together they take this room."""
    left, ordered = room, sorted(sizes)
    for n, size in enumerate(ordered):
        share = left // (len(ordered) - n)
        if size > share:
            return max(0, share)
        left -= size
    return max(sizes, default=0)


def room_of(lines: Iterable[str]) -> int:
    """Bytes that these take, one a line."""
    return sum(byte_length(text) + 1 for text in lines)


# --- the message around it ------------------------------------------------------------------------------


def where_it_is(path: Path | str | None) -> str:
    """Tells the model where all of the conversation is, and how to look for what it misses."""
    return _WHERE.format(path=path) if path else _SOMEWHERE


def enclosed(tag: str, lines: Iterable[str]) -> str:
    """Between tags, which nothing inside can end before its time."""
    text = "\n".join(lines).replace(f"</{tag}>", f"<\\/{tag}>")
    return whole_characters(f"<{tag}>\n{text}\n</{tag}>")
