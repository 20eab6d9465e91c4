"""The texts of a repository by their ids, read in one go where it is known which will be needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

Read = Callable[[Sequence[str]], Mapping[str, bytes]]


class Texts:
    """Reads each text once."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._known: dict[str, bytes | None] = {"": None}

    def want(self, ids: Iterable[str]) -> None:
        """Have these at hand."""
        new = [id for id in dict.fromkeys(ids) if id not in self._known]
        if new:
            found = self._read(new)
            self._known |= {id: found.get(id) for id in new}

    def get(self, id: str) -> bytes | None:
        """A text; None when the repository does not have it."""
        self.want([id])
        return self._known[id]
