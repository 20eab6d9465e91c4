"""What a frontmatter block holds, key by key, and where in the text each value stands.

Two readers produce these: `strict_yaml` for blocks that are YAML, `loose_yaml` for those that only
look like it. The places are kept so that one value can be replaced without touching the others.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Entry(msgspec.Struct, frozen=True):
    """One `key: value`, with its places as offsets into the text it was read from."""

    key: str
    value: str | None
    """The text of a plain value; None for a list, a mapping or an alias."""
    colon: int
    """Just behind the colon."""
    start: int
    end: int
    """The value, without the line break behind it."""
    line: int
    """Where the line begins on which the key stands."""
    after: int
    """Just behind the line on which the value ends."""
    inner: tuple[Entry, ...] = ()
    items: tuple[str, ...] = ()
    flow: bool = False
    """Whether the value is written with brackets: `{type: user}`."""

    def moved(self, by: int) -> Entry:
        """The same entry, read from a text that begins `by` characters earlier."""
        return msgspec.structs.replace(
            self,
            colon=self.colon + by,
            start=self.start + by,
            end=self.end + by,
            line=self.line + by,
            after=self.after + by,
            inner=tuple(one.moved(by) for one in self.inner),
        )


def last(entries: Iterable[Entry], key: str) -> Entry | None:
    """The entry with this key, in whatever case; written twice, the last one counts."""
    found = None
    for entry in entries:
        if entry.key.casefold() == key:
            found = entry
    return found


def line_start(text: str, at: int) -> int:
    """Where the line begins that holds this place."""
    return max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1


def line_end(text: str, at: int) -> int:
    """Just behind the line break that ends the line of this place, or the end of the text."""
    for here in range(at, len(text)):
        if text[here] == "\n":
            return here + 1
        if text[here] == "\r":
            return here + (2 if text[here + 1 : here + 2] == "\n" else 1)
    return len(text)
