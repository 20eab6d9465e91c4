"""Compaction by the provider, where it offers that. A session has one of two ways, fixed when it begins:

    threshold    a parameter of every request: the provider sums up by itself when the prompt passes the
                 trigger, and ignores what stands before its block from then on
    on demand    a request of its own before ours would be too long; its block replaces what it sums up

The blocks are the provider's: we keep every byte. What the user said and the summary does not repeat
follows it word for word, in a message of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, Final

from msgspec.structs import replace

from sevenfold.cache.prefix import choose_breakpoints
from sevenfold.core.errors import BadReply, SevenfoldError
from sevenfold.core.events import Emit, Failed, Replied
from sevenfold.core.messages import Json, Message, Opaque, assistant, user
from sevenfold.core.protocols import Accounts, BackgroundStep, Capabilities, Change, Fit
from sevenfold.core.request import Frame, Request
from sevenfold.core.tokens import TEXT_RATE, Pressure, Thresholds, Usage, scale_constant
from sevenfold.core.transcript import Mark, PlacedMessage, Replace, Reply, View
from sevenfold.layers.l4_compaction.fold import SERVER_SUMMARY, find_visible_start, read_server_summary
from sevenfold.layers.l4_compaction.plan import find_tail_starts, make_view_before
from sevenfold.layers.parts import Conversation, LayerParts, ServerSummaries
from sevenfold.layers.shared.boundary import (
    Boundary,
    BoundaryRecord,
    apply_edits,
    collect_facts,
    count_context_tokens,
    is_question_before,
    is_thinking_allowed,
)
from sevenfold.layers.shared.facts import Facts, enclose_in_tag, format_quotes, number_turns
from sevenfold.layers.shared.fidelity import measure_fidelity, score_compaction
from sevenfold.layers.shared.restore import CompactionCut, CompactionRefused
from sevenfold.streaming import read_reply

EDIT: Final = "compact_20260112"
ON_DEMAND_BETA: Final = "compact-2026-09-04"
PARAMETER: Final = "context_management"
LEAST_TRIGGER: Final = 50_000  # The provider accepts no smaller one: in a smaller window it is not asked
SUMMARY_TOKENS: Final = 20_000
"""The longest summary asked for on demand; scaled down for windows below 200,000."""
WORDS_TOKENS: Final = 20_000
"""At most so much of what the user said is repeated behind a summary; scaled down likewise."""
SOURCE: Final = "server-compaction"  # The column of the ledger for what the provider used to sum up
FAILURES: Final = 3  # So many in a row, and this model is not asked again
RECORDED: Final = "server.compacted"
BREAKER: Final = "server.failures"
PROMPT: Final = Path(__file__).with_name("server.md")
BY: Final = "ServerCompaction"

_WORDS: Final = "What the user said before the summary and it does not repeat, word for word, oldest first:"
_UNWANTED: Final = (PARAMETER, "tool_choice", "stop_sequences")
"""Parameters that may not stand in a request for a summary."""

# --- what is asked for --------------------------------------------------------------------------------


def add_server_compaction(frame: Frame, able: Capabilities, thresholds: Thresholds) -> Frame:
    """The frame of a session whose provider compacts at a threshold, before we would have to."""
    if not able.server_compaction or thresholds.warning < LEAST_TRIGGER:
        return frame
    managed = dict(frame.params.get(PARAMETER) or {})
    edits = list(managed.get("edits") or ())
    if any(edit.get("type") == EDIT for edit in edits):
        return frame
    trigger = {"type": "input_tokens", "value": thresholds.warning}
    edit: Json = {"type": EDIT, "trigger": trigger, "instructions": read_instructions()}
    managed["edits"] = [*edits, edit]
    return replace(frame, params={**frame.params, PARAMETER: managed})


def add_requested_compaction(frame: Frame, able: Capabilities) -> Frame:
    """The frame of a session that may hold signed blocks: each of its requests has to say so."""
    betas = list(frame.params.get("betas") or ())
    if not able.server_compaction or ON_DEMAND_BETA in betas:
        return frame
    return replace(frame, params={**frame.params, "betas": [*betas, ON_DEMAND_BETA]})


def read_instructions() -> str:
    return PROMPT.read_text(encoding="utf-8").strip()


def remove_server_summaries(view: View) -> tuple[Replace, ...]:
    """The edits that take the provider's blocks out, for a model that cannot read them."""
    edits: list[Replace] = []
    for placed in view:
        kept = tuple(block for block in placed.message.content if not _is_summary(block))
        if len(kept) < len(placed.message.content):
            text = read_server_summary(placed.message)
            instead = Message(placed.message.role, kept) if kept else user(text or "[no summary]")
            edits.append(Replace(placed.id, placed.id, (instead,)))
    return tuple(edits)


def _is_summary(block: object) -> bool:
    return isinstance(block, Opaque) and block.kind == SERVER_SUMMARY


# --- what comes back ----------------------------------------------------------------------------------


class SummaryAccounts:
    """Accounts that note the summaries of the provider before the ledger sees the shorter prompt.

    `session.wiring.wrap_ledger` puts them around the ledger.
    """

    def __init__(
        self, accounts: Accounts, summaries: ServerSummaries, expect: Callable[[str], object], emit: Emit
    ) -> None:
        self._accounts, self._summaries, self._expect, self._emit = accounts, summaries, expect, emit

    def before(self, request: Request) -> None:
        self._accounts.before(request)

    def after(self, request: Request, reply: Reply) -> float | None:
        summed_up = any(_is_summary(block) for block in reply.message.content)
        if summed_up and request.source == "main":
            self._summaries.spent[read_server_summary(reply.message)] = read_summary_usage(reply)
            self._expect("the provider summed up the older part of the conversation")
            if not read_server_summary(reply.message):
                self._emit(Failed(BY, "the provider made no summary; the conversation goes on whole"))
        return _with_its_cost(self._accounts, request, reply)


class ServerCompaction:
    """The `replied` moment: records a summary that came with the reply, and restores what it took out."""

    label: ClassVar[str] = "ServerCompaction"

    def __init__(self, parts: LayerParts) -> None:
        self._parts, self._summaries = parts, parts.server or ServerSummaries()

    async def __call__(self, request: Request) -> Sequence[Change]:
        view = request.view
        at = find_visible_start(view)
        summary = read_server_summary(view[at].message) if len(view) else ""
        known = max(self._summaries.recorded, _count(view.marks.get(RECORDED)))
        if not summary or not at or view[at].id <= known:
            return ()
        self._summaries.recorded = view[at].id
        spent = self._summaries.spent.pop(summary, Usage())
        reported = view.reported
        now = reported.tokens if reported and reported.id >= view[at].id else 0
        words = quote_missing_words(_before(view, at), summary, WORDS_TOKENS, is_question_before(view, at))
        seen: list[Message | PlacedMessage | str] = [*view.since(view[at].id), *words, summary]
        boundary = Boundary(
            by="server",
            trigger="auto",
            tokens_before=spent.prompt,
            tokens_after=now,
            last=view[at - 1].id,
            kept_from=view[at].id,
            fidelity=round(measure_fidelity((view[i] for i in range(at)), seen).score, 4),
        )
        window = self._parts.window
        room = max(0, window - now)
        again = self._parts.restorer(CompactionCut(view, range(at), window), room, room)
        said = await self._parts.hooks.told(boundary, summary)
        self._parts.emit(boundary.event(usage=spent))
        return *words, Mark(RECORDED, view[at].id), boundary.mark, *again, *said


def read_summary_usage(reply: Reply) -> Usage:
    """The usage of the provider's summary, which is not in the usage of the reply."""
    total = Usage()
    listed = reply.diagnostics.get("iterations")
    for used in listed if isinstance(listed, list) else ():
        if isinstance(used, dict) and used.get("type") == SERVER_SUMMARY:
            hour = used.get("cache_creation")
            total += Usage(
                _count(used.get("input_tokens")),
                _count(used.get("cache_creation_input_tokens")),
                _count(used.get("cache_read_input_tokens")),
                _count(used.get("output_tokens")),
                _count(hour.get("ephemeral_1h_input_tokens")) if isinstance(hour, dict) else 0,
            )
    return total


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _with_its_cost(accounts: Accounts, request: Request, reply: Reply) -> float | None:
    """The cost of the reply and of its summary, which the ledger counts under a source of its own."""
    spent = read_summary_usage(reply)
    own = accounts.after(request, reply)
    if not spent.total:
        return own
    other = replace(request, source=SOURCE)
    extra = accounts.after(other, Reply(assistant(), spent, model=reply.model))
    return own if extra is None else (own or 0.0) + extra


def quote_missing_words(
    before: Facts, summary: str, most: int, asking: bool = False
) -> tuple[Message, ...]:
    """A message with the user's words before a summary that does not repeat them; or nothing.

    `asking`: what they said last is not said again behind it.
    """
    known, all_said = " ".join(summary.split()), number_turns(before.said)
    said = [one for one in all_said if " ".join(one[1].split()) not in known]
    last_whole = asking and said[-1:] == all_said[-1:]
    quoted = format_quotes(said, int(most / TEXT_RATE), last_whole=last_whole)
    return (user(enclose_in_tag("context", [_WORDS, *quoted])),) if quoted else ()


def _before(view: View, end: int) -> Facts:
    """The facts of the messages before `end`."""
    return collect_facts((view[at] for at in range(end)), view.marks)


# --- on demand ----------------------------------------------------------------------------------------


class RequestedCompaction:
    """Asks the provider for a summary when the window is nearly full, and puts its block in place."""

    label: ClassVar[str] = "OnDemand"

    def __init__(self, parts: LayerParts) -> None:
        self._parts, self._emit, self._hooks = parts, parts.emit, parts.hooks

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        due = pressure.tokens > pressure.thresholds.auto_compact and not pressure.refused
        signed = ON_DEMAND_BETA in (request.frame.params.get("betas") or ())
        failed = _failures(request)
        able, send = self._parts.conversation.capabilities, self._parts.send
        if not due or not signed or not able.server_compaction or send is None or failed >= FAILURES:
            return ()  # what was refused as too long cannot be summed up like this either
        if (cut := self._cut(request.view)) is None:
            return ()
        try:
            wanted = await self._hooks.ask(request.view)
            reply = await send(make_summary_request(request, cut, pressure.window, wanted))
            block = read_compaction_block(reply)
        except CompactionRefused as refused:
            self._hooks.decline(str(refused), self._emit)
            return ()
        except SevenfoldError as error:
            self._emit(Failed(BY, f"the provider made no summary: {error}"))
            return (_breaker(request, failed + 1),)
        return await self._put_in(request, pressure, cut, block, reply, wanted)

    def _cut(self, view: View) -> int | None:
        """The place where the kept part begins: at the newest round, or behind its results."""
        for at in find_tail_starts(view):
            if 0 < at < len(view) and view[at - 1].message.tool_uses == ():
                trial = apply_edits(view, (Replace(view[0].id, view[at - 1].id, (user("-"),)),), BY)
                if is_thinking_allowed(view, trial, self._parts.conversation.capabilities):
                    return at
        return None

    async def _put_in(
        self, request: Request, pressure: Pressure, cut: int, block: Opaque, reply: Reply, wanted: str
    ) -> Sequence[Change]:
        view, before = request.view, count_context_tokens(request, pressure)
        summary = read_server_summary(assistant(block))
        facts = replace(_before(view, cut), account=summary)
        most = int(scale_constant(WORDS_TOKENS, pressure.window))
        words = quote_missing_words(facts, summary, most, is_question_before(view, cut))
        edit = Replace(view[0].id, view[cut - 1].id, (assistant(block), *words))
        after = apply_edits(view, (edit,), BY)
        now = count_context_tokens(replace(request, view=after), pressure)
        if now >= before:
            self._emit(Failed(BY, "the provider's summary is not smaller than what it sums up"))
            return (_breaker(request, _failures(request) + 1),)
        room = max(0, pressure.thresholds.auto_compact - now)
        gone = CompactionCut(view, range(cut), pressure.window)
        again = tuple(self._parts.restorer(gone, room, room))
        now = count_context_tokens(replace(request, view=apply_edits(after, again, BY)), pressure)
        boundary = Boundary(
            by="server",
            trigger="auto",
            tokens_before=before,
            tokens_after=now,
            last=edit.last,
            kept_from=view[cut].id,
            fidelity=score_compaction(view, after, (summary, *again)),
            instructions=wanted,
        )
        again += (*(await self._hooks.told(boundary, summary)),)
        record = BoundaryRecord(facts).mark(edit.by[-1])
        edit = replace(edit, by=(*edit.by, *again))  # the provider ignores what stands before its summary
        self._parts.expect("the older part of the conversation was replaced by the provider's summary")
        self._emit(boundary.event(usage=read_summary_usage(reply)))
        recorded = _breaker(request, 0), Mark(RECORDED, edit.last), boundary.mark
        return edit, record, *recorded


class SideRequestSender:
    """Sends a request beside the conversation and hands back the reply; the ledger sees what it used."""

    def __init__(self, conversation: Conversation, accounts: Accounts, emit: Emit) -> None:
        self._conversation, self._accounts, self._emit = conversation, accounts, emit

    async def __call__(self, request: Request) -> Reply:
        self._accounts.before(request)
        began = perf_counter()
        reply = await read_reply(self._conversation.model, request)
        if reply is None:
            raise BadReply("the provider closed the connection without a reply; try again")
        used = reply.usage + read_summary_usage(reply)
        cost, took = (self._accounts.after(request, replace(reply, usage=used)), perf_counter() - began)
        self._emit(Replied(assistant(), used, reply.stop, took, cost, reply.model, request.source))
        return reply


def make_summary_request(request: Request, cut: int, window: int, more: str = "") -> Request:
    """The request for a summary of what stands before message `cut`: the same prefix, another question."""
    params = {k: v for k, v in request.frame.params.items() if k not in _UNWANTED}
    config = {k: v for k, v in (params.get("output_config") or {}).items() if k != "format"}
    if config or "output_config" in params:
        params["output_config"] = config
    told = "\n\n".join(filter(None, (read_instructions(), more)))
    params["compaction"] = {"type": "summarize", "instructions": told}
    view = make_view_before(request.view, cut)
    return replace(
        request,
        frame=replace(request.frame, params=params),
        view=view,
        warm=None,
        breakpoints=choose_breakpoints(view, writes=False),
        max_tokens=int(scale_constant(SUMMARY_TOKENS, window)),
        source=SOURCE,
    )


def read_compaction_block(reply: Reply) -> Opaque:
    """The block that was asked for; `BadReply` when there is none."""
    blocks = [b for b in reply.message.content if isinstance(b, Opaque) and _is_summary(b)]
    if reply.stop == SERVER_SUMMARY and len(blocks) == 1 and read_server_summary(reply.message):
        return blocks[0]
    raise BadReply(f"it stopped with {reply.stop} and without a summary; the next layer goes on")


def _failures(request: Request) -> int:
    """The failures of this model in a row."""
    value = request.view.marks.get(BREAKER)
    if not isinstance(value, dict) or value.get("model") != request.frame.model:
        return 0
    return _count(value.get("failures"))


def _breaker(request: Request, failures: int) -> Mark:
    return Mark(BREAKER, {"model": request.frame.model, "failures": failures})


_accounts: type[Accounts] = SummaryAccounts
_after: type[BackgroundStep] = ServerCompaction
_fit: type[Fit] = RequestedCompaction
