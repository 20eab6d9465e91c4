"""The provider's own context management: one parameter, set when a session begins, and its reports.

The parameter is part of the frame, which is stored and sent again on resume. What the server clears stays
in the transcript; the server says only how much it took out, and clears anew for each request.
`CacheEditing` is for providers that can delete from their cached prefix: the prompt keeps every byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Final

from msgspec.structs import replace

from sevenfold.core.errors import StorageFailure
from sevenfold.core.events import Cleared, Emit, Failed
from sevenfold.core.messages import Json, make_context_message
from sevenfold.core.protocols import Accounts, Capabilities, Change, Fit
from sevenfold.core.request import Frame, Request
from sevenfold.core.tokens import MessageSize, Pressure, scale_constant
from sevenfold.core.transcript import Entry, Pin, Reply, View
from sevenfold.layers.l2_microcompaction.candidates import Candidate, ViewScan, describe_call, find_result
from sevenfold.layers.parts import LayerParts
from sevenfold.settings.layers import MicroSettings, Switches

PARAMETER: Final = "context_management"
TOOL_USES: Final = "clear_tool_uses_20250919"
THINKING: Final = "clear_thinking_20251015"
TRIGGER: Final = 180_000  # Input tokens from which the provider clears
AT_LEAST: Final = 140_000  # Less than this is not worth the cache that is lost by it
SPARED: Final = ("Edit", "Write")
"""Tools whose results stay: they are short, and the model must not repeat its changes."""


def is_wanted(switches: Switches, settings: MicroSettings) -> bool:
    """True if the provider should clear: where our cost model clears, it would clear anew each time."""
    return switches.micro_api and not (switches.micro_cost and settings.policy == "cost")


def add_context_management(frame: Frame, able: Capabilities, settings: MicroSettings) -> Frame:
    """The frame with the provider's context management, where there is any and none was asked for."""
    if not able.context_management or PARAMETER in frame.params:
        return frame
    # Results of other tools are not cleared by us, so not by the provider either.
    names = (str(tool.get("name")) for tool in frame.tools)
    others = (name for name in names if name not in settings.tools and name not in SPARED)
    clear: Json = {
        "type": TOOL_USES,
        "trigger": _tokens(TRIGGER, able.window),
        "keep": {"type": "tool_uses", "value": settings.keep_recent},
        "clear_at_least": _tokens(AT_LEAST, able.window),
        "exclude_tools": [*SPARED, *others],
    }
    edits = [clear]
    if (frame.params.get("thinking") or {}).get("type") in ("enabled", "adaptive"):
        # First, or it is refused; thinking that stays keeps the prefix as it was.
        edits.insert(0, {"type": THINKING, "keep": "all"})
    return replace(frame, params={**frame.params, PARAMETER: {"edits": edits}})


def is_clear_request(frame: Frame) -> bool:
    """True if the provider was asked to clear results: then we do not clear beside it."""
    edits = (frame.params.get(PARAMETER) or {}).get("edits") or ()
    return any(isinstance(edit, dict) and edit.get("type") == TOOL_USES for edit in edits)


def _tokens(constant: int, window: int) -> Json:
    return {"type": "input_tokens", "value": int(scale_constant(constant, window))}


class ProviderEdits:
    """Accounts that also take down what the provider cleared, before the ledger wonders at the break."""

    def __init__(
        self, accounts: Accounts, expect: Callable[[str], object], emit: Emit, entries: Iterable[Entry] = ()
    ) -> None:
        """`entries` are those of a transcript that goes on: what they report is not told again."""
        self._accounts, self._expect, self._emit = accounts, expect, emit
        replies = [e.what for e in entries if isinstance(e.what, Reply)]
        self._known = read_cleared_counts(replies[-1]) if replies else (0, 0)

    def before(self, request: Request) -> None:
        self._accounts.before(request)

    def after(self, request: Request, reply: Reply) -> float | None:
        if request.source == "main" and reply.usage.total:
            told = find_newly_cleared(request, reply, self._known)
            self._known = read_cleared_counts(reply)
            if told is not None:
                self._expect(told.why)
                self._emit(told)
        return self._accounts.after(request, reply)


def read_cleared_counts(reply: Reply) -> tuple[int, int]:
    """The numbers of results and tokens that the provider reports as cleared for this reply."""
    edits = [edit for edit in reply.applied if edit.get("type") == TOOL_USES]
    return _sum(edits, "cleared_tool_uses"), _sum(edits, "cleared_input_tokens")


def _sum(edits: Iterable[Json], key: str) -> int:
    values = (edit.get(key) for edit in edits)
    return sum(value for value in values if isinstance(value, int) and value > 0)


def find_newly_cleared(request: Request, reply: Reply, known: tuple[int, int] = (0, 0)) -> Cleared | None:
    """The event for results that the provider cleared since the last report; None when there are none."""
    results, tokens = read_cleared_counts(reply)
    if results <= known[0]:
        return None
    freed = max(0, tokens - known[1])
    return Cleared(
        by="provider",
        use_ids=_oldest(request)[known[0] : results],
        tokens=freed,
        rewritten=reply.usage.cache_write,
        saving=0.0,
        price=0.0,
        why=f"the provider cleared {results - known[0]} tool results of {freed:,} tokens, as its context "
        f"management says; {results} of {tokens:,} tokens in all",
    )


def _oldest(request: Request) -> tuple[str, ...]:
    """The results in the order in which the provider clears them; it does not say which they were."""
    edits = (request.frame.params.get(PARAMETER) or {}).get("edits") or ()
    spared = {name for edit in edits for name in edit.get("exclude_tools") or ()}
    uses = {use.id: use.name for placed in request.view for use in placed.message.tool_uses}
    ids = (result.tool_use_id for placed in request.view for result in placed.message.results)
    return tuple(id for id in ids if uses.get(id) not in spared)


_check: type[Accounts] = ProviderEdits


KIND: Final = "cache_edits"
LINE: Final = 45  # Tokens of the line by which the model is told about one deleted result
GONE: Final = (
    "To make room, the results of these earlier calls were taken out of what you see. Each is whole in the "
    "file named beside it: read that if you need it again."
)


class CacheEditing:
    """Deletes the oldest results in one batch once there are many. The main conversation only."""

    label: ClassVar[str] = "CacheEditing"

    def __init__(self, parts: LayerParts) -> None:
        self._parts, self._settings, self._emit = parts, parts.settings.micro, parts.emit
        self._scan = ViewScan(self._settings.tools, parts.memory_folders)
        self._seen: tuple[object, object] = (None, None)
        self._gone: frozenset[str] = frozenset()
        self._many, self._deleted = 0, MessageSize()  # Of the results that were deleted
        self._not_before = 0

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        view = request.view
        able = self._parts.conversation.capabilities
        if request.source != "main" or not able.edits_cache or not len(view):
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
            self._seen, self._gone = seen, find_deleted_uses(view)
            gone = [one.size for one in self._scan.found if one.use.id in self._gone]
            self._many, self._deleted = len(gone), sum(gone, MessageSize())

    def _delete(self, request: Request, left: int) -> Sequence[Change]:
        view = request.view
        here = [one for one in self._scan.found if one.use.id not in self._gone]
        unread = self._scan.requests  # nothing is deleted that the model has not had a chance to read
        old = [one for one in here[: -self._settings.keep_recent] if one.request < unread]
        if estimate_freed_tokens(old, view, self._deleted) <= LINE * len(old):
            return ()
        kept = self._kept(old, view)
        if len(kept) < len(old):  # the disk said no, and would say so again at the next step
            self._not_before = left + self._settings.keep_recent
        if not kept:
            return ()
        done = [one for one, _ in kept]
        ids, frees = tuple(one.use.id for one in done), estimate_freed_tokens(done, view, self._deleted)
        self._tell(request, ids, frees)
        lines = (f"- {describe_call(one.use)}: {path}" for one, path in kept)
        # First where they are: a write that is torn between the two deletes nothing.
        return (
            make_context_message(GONE, *lines),
            Pin(view[-1].id, {"type": KIND, "delete": list(ids)}, frees),
        )

    def _kept(self, old: Sequence[Candidate], view: View) -> list[tuple[Candidate, Path]]:
        """Those that are on disk, each with its path. What is not on disk is not deleted."""
        kept: list[tuple[Candidate, Path]] = []
        for one in old:
            try:
                kept.append((one, self._parts.results.keep(one.use.id, find_result(one, view).content)))
            except StorageFailure as error:
                self._emit(Failed("cache editing", f"a result was not deleted: {error}"))
                break
        return kept

    def _tell(self, request: Request, ids: tuple[str, ...], frees: int) -> None:
        price = self._parts.prices.of(request.frame.model)
        saving = frees * (price.read if price else 0.0) * self._settings.requests_ahead
        why = (
            f"{len(ids)} results of {frees:,} tokens were deleted from the provider's cache; "
            "the prefix is unchanged, so nothing is written again"
        )
        self._emit(Cleared("cache edit", ids, frees, 0, saving, 0.0, why))


def find_deleted_uses(view: View) -> frozenset[str]:
    """The tool uses whose results were deleted from the cache."""
    payloads = (pin.payload for pin in view.pins)
    return frozenset(
        str(id) for what in payloads if what.get("type") == KIND for id in what.get("delete") or ()
    )


def estimate_freed_tokens(candidates: Sequence[Candidate], view: View, deleted: MessageSize) -> int:
    """Tokens that the provider will count less, in the measure of its last count. `deleted`: what it has
    not counted then any more. By size, not by what was estimated then: an error would grow each time.
    """
    tokens = view.calibration.tokens(sum((one.size for one in candidates), MessageSize()))
    if view.reported is None:
        return tokens
    counted = view.calibration.tokens(view.reported.size - deleted)
    return int(tokens * min(1.0, view.reported.tokens / max(1, counted)))


_check_cache_editing: type[Fit] = CacheEditing
