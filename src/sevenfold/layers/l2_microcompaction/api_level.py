"""The provider's own context management: one parameter, set when a session begins, and its reports.

The parameter is part of the frame, which is stored with the session and sent again on resume: a session
that began without it goes on without it. What the server clears stays in the transcript as it was; the
server says only how much it took out, and clears anew for each request from the whole history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from sevenfold.events import Cleared, Emit
from sevenfold.layers.l2_microcompaction.settings import MicroSettings
from sevenfold.layers.switches import Switches
from sevenfold.messages import Json
from sevenfold.protocols import Accounts, Capabilities
from sevenfold.request import Frame, Request
from sevenfold.tokens import scaled
from sevenfold.transcript import Entry, Reply, View

PARAMETER: Final = "context_management"
TOOL_USES: Final = "clear_tool_uses_20250919"
THINKING: Final = "clear_thinking_20251015"
TRIGGER: Final = 180_000
"""Input tokens from which the provider clears."""
AT_LEAST: Final = 140_000
"""Less than this is not worth the cache that is lost by it."""
SPARED: Final = ("Edit", "Write")
"""What the model itself changed is short, and it must not do it twice."""


def wanted(switches: Switches, settings: MicroSettings) -> bool:
    """Where our own cost model clears, the provider does not: it would clear anew at every request."""
    ours = switches.micro_cost and settings.policy == "cost"
    return switches.micro_api and not ours


def managed(frame: Frame, able: Capabilities, settings: MicroSettings) -> Frame:
    """The frame with the provider's context management, where there is any and none was asked for."""
    if not able.context_management or PARAMETER in frame.params:
        return frame
    clear: Json = {
        "type": TOOL_USES,
        "trigger": _tokens(TRIGGER, able.window),
        "keep": {"type": "tool_uses", "value": settings.keep_recent},
        "clear_at_least": _tokens(AT_LEAST, able.window),
        "exclude_tools": _excluded(frame, settings),
    }
    edits = [clear]
    if _thinks(frame):  # first, or it is refused; thinking that stays keeps the prefix as it was
        edits.insert(0, {"type": THINKING, "keep": "all"})
    return replace(frame, params={**frame.params, PARAMETER: {"edits": edits}})


def clears(frame: Frame) -> bool:
    """Whether the provider was asked to clear results: then we do not clear beside it."""
    edits = (frame.params.get(PARAMETER) or {}).get("edits") or ()
    return any(isinstance(edit, dict) and edit.get("type") == TOOL_USES for edit in edits)


def _tokens(constant: int, window: int) -> Json:
    return {"type": "input_tokens", "value": int(scaled(constant, window))}


def _excluded(frame: Frame, settings: MicroSettings) -> list[str]:
    """Results of other tools are not cleared by us, so not by the provider either."""
    names = (str(tool.get("name")) for tool in frame.tools)
    return [*SPARED, *(n for n in names if n not in settings.tools and n not in SPARED)]


def _thinks(frame: Frame) -> bool:
    thinking = frame.params.get("thinking") or {}
    return thinking.get("type") in ("enabled", "adaptive")


class ProviderEdits:
    """Accounts that also take down what the provider cleared, before the ledger wonders at the break."""

    def __init__(
        self,
        accounts: Accounts,
        expect: Callable[[str], object],
        emit: Emit,
        entries: Iterable[Entry] = (),
    ) -> None:
        """`entries` are those of a transcript that goes on: what they report is not told again."""
        self._accounts, self._expect, self._emit = accounts, expect, emit
        replies = [e.what for e in entries if isinstance(e.what, Reply)]
        self._known = cleared_in(replies[-1]) if replies else (0, 0)

    def before(self, request: Request) -> None:
        self._accounts.before(request)

    def after(self, request: Request, reply: Reply) -> float | None:
        if request.source == "main" and reply.usage.total:
            told = newly_cleared(request, reply, self._known)
            self._known = cleared_in(reply)
            if told is not None:
                self._expect(told.why)
                self._emit(told)
        return self._accounts.after(request, reply)


def cleared_in(reply: Reply) -> tuple[int, int]:
    """How many results, and how many tokens, the provider reports to have cleared for this reply."""
    edits = [edit for edit in reply.applied if edit.get("type") == TOOL_USES]
    return _sum(edits, "cleared_tool_uses"), _sum(edits, "cleared_input_tokens")


def _sum(edits: Iterable[Json], key: str) -> int:
    values = (edit.get(key) for edit in edits)
    return sum(value for value in values if isinstance(value, int) and value > 0)


def newly_cleared(
    request: Request, reply: Reply, known: tuple[int, int] = (0, 0)
) -> Cleared | None:
    """What the provider has cleared beyond what is known already; None when that is nothing."""
    results, tokens = cleared_in(reply)
    if results <= known[0]:
        return None
    came = results - known[0]
    freed = max(0, tokens - known[1])
    return Cleared(
        by="provider",
        use_ids=_oldest(request)[known[0] : results],
        tokens=freed,
        rewritten=reply.usage.cache_write,
        saving=0.0,
        price=0.0,
        why=f"the provider cleared {came} tool results of {freed:,} tokens, as its context management "
        f"says; {results} of {tokens:,} tokens in all",
    )


def _oldest(request: Request) -> tuple[str, ...]:
    """The results in the order in which the provider clears them; it does not say which they were."""
    spared = _spared(request.frame)
    uses = {use.id: use.name for placed in request.view for use in placed.message.tool_uses}
    return tuple(id for id in _answered(request.view) if uses.get(id) not in spared)


def _answered(view: View) -> Iterable[str]:
    return (result.tool_use_id for placed in view for result in placed.message.results)


def _spared(frame: Frame) -> frozenset[str]:
    edits = (frame.params.get(PARAMETER) or {}).get("edits") or ()
    return frozenset(name for edit in edits for name in edit.get("exclude_tools") or ())


_check: type[Accounts] = ProviderEdits
