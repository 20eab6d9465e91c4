"""Where the provider can delete from its cached prefix: old results go, and the prompt keeps every byte.

The deletion is a pin: a block that stands in every request from then on, behind the message that was the
last one when it was made. The view stays as it was. What was deleted is on disk, and a message says where.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from sevenfold.cache.prices import Prices
from sevenfold.errors import StorageFailure
from sevenfold.events import Cleared, Emit, Failed
from sevenfold.layers.l2_microcompaction.candidates import Candidate, Scan
from sevenfold.layers.l2_microcompaction.clearing import named
from sevenfold.layers.l2_microcompaction.settings import MicroSettings
from sevenfold.messages import Message, user
from sevenfold.protocols import Capabilities, Fit, Handback
from sevenfold.request import Request
from sevenfold.storage.results import ResultStore
from sevenfold.tokens import Pressure, Size
from sevenfold.transcript import Pin, View

KIND: Final = "cache_edits"
LINE: Final = 45
"""Tokens of the line by which the model is told about one deleted result."""
GONE: Final = (
    "To make room, the results of these earlier calls were taken out of what you see. Each is whole in the "
    "file named beside it: read that if you need it again."
)


class CacheEditing:
    """Deletes the oldest results in one batch once there are many. The main conversation only."""

    def __init__(
        self,
        store: ResultStore,
        settings: MicroSettings,
        prices: Prices,
        able: Callable[[], Capabilities],
        emit: Emit,
        memory: Sequence[Path] = (),
    ) -> None:
        self._store, self._settings, self._prices = store, settings, prices
        self._able, self._emit = able, emit
        self._scan = Scan(settings.tools, memory)
        self._seen: tuple[object, object] = (None, None)
        self._gone: frozenset[str] = frozenset()
        self._many = 0
        self._not_before = 0

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Handback]:
        view = request.view
        if request.source != "main" or not self._able().edits_cache or not len(view):
            return ()
        self._follow(view)
        left = len(self._scan.found) - self._many
        if left <= max(self._settings.cache_edit_trigger, self._not_before):
            return ()
        return self._delete(request, left)

    def _follow(self, view: View) -> None:
        """Look at what is new, and at the deletions only when there is another one."""
        self._scan.follow(view)
        seen = view.pins, view.buffer
        if seen[0] is not self._seen[0] or seen[1] is not self._seen[1]:
            self._seen, self._gone = seen, deleted(view)
            self._many = sum(one.use.id in self._gone for one in self._scan.found)

    def _delete(self, request: Request, left: int) -> Sequence[Handback]:
        view = request.view
        here = [one for one in self._scan.found if one.use.id not in self._gone]
        unread = (
            self._scan.requests
        )  # nothing is deleted that the model has not had a chance to read
        old = [one for one in here[: -self._settings.keep_recent] if one.request < unread]
        if freed(old, view) <= LINE * len(old):
            return ()
        kept = self._kept(old, view)
        if len(kept) < len(old):  # the disk said no, and would say so again at the next step
            self._not_before = left + self._settings.keep_recent
        if not kept:
            return ()
        done = [one for one, _ in kept]
        ids, frees = tuple(one.use.id for one in done), freed(done, view)
        self._tell(request, ids, frees)
        # First where they are: a write that is torn between the two deletes nothing.
        return (note(kept), Pin(view[-1].id, {"type": KIND, "delete": list(ids)}, frees))

    def _kept(self, old: Sequence[Candidate], view: View) -> list[tuple[Candidate, Path]]:
        """Those that are on disk, each with its path. What is not on disk is not deleted."""
        kept: list[tuple[Candidate, Path]] = []
        for one in old:
            results = view[one.at].message.results
            result = next(r for r in results if r.tool_use_id == one.use.id)
            try:
                kept.append((one, self._store.keep(one.use.id, result.content)))
            except StorageFailure as error:
                self._emit(Failed("cache editing", f"a result was not deleted: {error}"))
                break
        return kept

    def _tell(self, request: Request, ids: tuple[str, ...], frees: int) -> None:
        price = self._prices.of(request.frame.model)
        saving = frees * (price.read if price else 0.0) * self._settings.requests_ahead
        why = (
            f"{len(ids)} results of {frees:,} tokens were deleted from the provider's cache; "
            "the prefix is unchanged, so nothing is written again"
        )
        self._emit(Cleared("cache edit", ids, frees, 0, saving, 0.0, why))


def deleted(view: View) -> frozenset[str]:
    """The tool uses whose results were deleted from the cache."""
    payloads = (pin.payload for pin in view.pins)
    return frozenset(
        str(id) for what in payloads if what.get("type") == KIND for id in what.get("delete") or ()
    )


def freed(candidates: Sequence[Candidate], view: View) -> int:
    """What the provider will count less, in the measure of what it has counted last."""
    tokens = view.calibration.tokens(sum((one.size for one in candidates), Size()))
    if view.reported is None:
        return tokens
    counted = view.calibration.tokens(view.reported.size)
    return int(tokens * min(1.0, view.reported.tokens / max(1, counted)))


def note(kept: Sequence[tuple[Candidate, Path]]) -> Message:
    """What the model is told: which results are gone, and where they are."""
    lines = [GONE, *(f"- {named(one.use)}: {path}" for one, path in kept)]
    text = "\n".join(lines).replace("</context", "&lt;/context")  # a call may quote anything
    return user(f"<context>\n{text}\n</context>")


_check: type[Fit] = CacheEditing
