"""How the caller's messages looked when they were last here, to see at a glance what is new.

A conversation comes whole with every request. Comparing it with what came before is the only work that
grows with its length, so it is one comparison of lists: texts are shared and not looked into.
"""

from __future__ import annotations

from typing import Any

from sevenfold.foreign.formats import Format
from sevenfold.foreign.heard import Heard, looks_now


class Remembered:
    """One `Heard` for each group of the history; None where only the log knows it so far."""

    def __init__(self, length: int = 0) -> None:
        self.heard: list[Heard | None] = [None] * length
        self._known = 0
        """So many groups at the beginning can be compared."""
        self._flat: list[Any] = []
        self._starts: list[int] = []
        self.special: set[int] = set()
        """Groups that are not sent as the objects the caller has."""

    def __len__(self) -> int:
        return len(self.heard)

    def __getitem__(self, at: int) -> Heard:
        heard = self.heard[at]
        assert heard is not None, "asked for what was not heard in this process"
        return heard

    def start(self, at: int) -> int:
        """Where in the caller's list this group begins."""
        return self._starts[at] if at < len(self._starts) else len(self._flat)

    # --- looking ----------------------------------------------------------------------------------------

    def same(self, messages: list[Any], form: Format, first: int) -> int:
        """How many groups at the beginning are what they were; the first message is number `first`."""
        if messages[: len(self._flat)] == self._flat:
            return self._known
        for at in range(self._known):
            start, end = self._starts[at], self.start(at + 1)
            now = messages[start:end]
            if now == self._flat[start:end]:
                continue
            heard = self[at]
            looks = looks_now(now, heard, form, first + start) if len(now) == end - start else None
            if looks is None:
                return at
            self._put(at, looks)
        return self._known

    def _put(self, at: int, heard: Heard) -> None:
        start = self._starts[at]
        self.heard[at] = heard
        self._flat[start : start + len(heard.seen)] = heard.seen
        self.special.discard(at)
        if heard.own is not None:
            self.special.add(at)

    # --- keeping up -------------------------------------------------------------------------------------

    def append(self, heard: Heard) -> None:
        """The newest group of the history."""
        self.heard.append(heard)
        self._index(len(self.heard) - 1)

    def set(self, at: int, heard: Heard) -> None:
        """How a group looks, or what stands in its place; `reindex` when all is set."""
        self.heard[at] = heard

    def remove(self, first: int, last: int) -> None:
        """Forget the groups from `first` up to before `last`; `reindex` when all is done."""
        del self.heard[first:last]

    def reindex(self) -> None:
        self._known, self._flat, self._starts, self.special = 0, [], [], set()
        for at, heard in enumerate(self.heard):
            if heard is None:
                break
            self._index(at)

    def _index(self, at: int) -> None:
        heard = self[at]
        self._starts.append(len(self._flat))
        self._flat.extend(heard.seen)
        self._known = at + 1
        if heard.own is not None:
            self.special.add(at)
