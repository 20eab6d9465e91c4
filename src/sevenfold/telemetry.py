"""Events as OpenTelemetry spans and metrics, by the conventions for generative AI.

Only the API is used: if the program around us has not set up an SDK, nothing is recorded and nothing is
sent. Names, counts, durations and prices are recorded; texts of messages, tool calls and results never.

    invoke_agent   one turn
      chat           one request to the model, with its tokens
      execute_tool   one call of a tool
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from sevenfold.cache.ledger import MAIN
from sevenfold.core.events import (
    Acted,
    Asked,
    CacheBroke,
    Cleared,
    Closed,
    Compacted,
    Declined,
    Denied,
    Ended,
    Event,
    Failed,
    HookRan,
    Progress,
    ReadAgain,
    Remembered,
    Replied,
    Retrying,
    Sending,
    Started,
    Stored,
    Surfaced,
    ToolStarted,
)
from sevenfold.core.tokens import Usage

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, SpanKind, TracerProvider

SCOPE: Final = "sevenfold"
AGENT: Final = "sevenfold"
_DREAM: Final = "dream"
"""The author of a dream's events."""
_GOOD_ENDS: Final = frozenset({"end_turn", "stop", "stop_sequence", "tool_use", "max_tokens"})
_TOKEN_STEPS: Final = [4**n for n in range(14)]
_SECOND_STEPS: Final = [0.01 * 2**n for n in range(14)]
_SHARE_STEPS: Final = [n / 10 for n in range(11)]
_COUNTERS: Final = {
    "sevenfold.cost": ("{currency}", "What requests cost, in the currency of the price table."),
    "sevenfold.cache_breaks": ("{break}", "How often the provider read less from its cache than due."),
    "sevenfold.denials": ("{call}", "Calls of tools that were not allowed."),
    "sevenfold.failures": ("{failure}", "Layers and background work that failed."),
    "sevenfold.declined": ("{handback}", "What layers handed back too late to be written."),
    "sevenfold.retries": ("{request}", "Requests that were sent again."),
    "sevenfold.hooks": ("{run}", "Runs of user hooks."),
    "sevenfold.results_stored": ("{result}", "Tool results that went to disk."),
    "sevenfold.results_cleared": ("{result}", "Old tool results that left the view."),
    "sevenfold.compactions": ("{compaction}", "How often the older part of the view was replaced."),
    "sevenfold.memories_recalled": ("{memory}", "Memories attached to what the user said."),
    "sevenfold.memory_writes": ("{memory}", "Memories saved, changed or removed."),
    "sevenfold.dreams": ("{dream}", "Dreams that ended, by how they did."),
    "sevenfold.regret": ("{result}", "Cleared results that the model asked for again."),
}


class Telemetry:
    """Subscribe it to a session's events. Without OpenTelemetry around, it does nothing."""

    def __init__(
        self,
        session: str = "",
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        given = tracer_provider is not None or meter_provider is not None
        self._on = given or "opentelemetry" in sys.modules
        self._session, self._model = session, ""
        if not self._on:
            return  # there is nothing that could record, and the import takes time
        self._turn: Span | None = None
        self._chats: dict[str, list[Span]] = {}
        self._tools: dict[str, Span] = {}
        self._open_instruments(tracer_provider, meter_provider)
        self._by_event: dict[type[Event], Callable[[Any], None]] = {
            Started: self._note_session,
            Asked: self._begin_turn,
            Sending: self._begin_request,
            Replied: self._end_request,
            ToolStarted: self._begin_tool,
            Acted: self._end_tools,
            Denied: self._deny_tool,
            Ended: self._finish_turn,
            Closed: self._close_spans,
            Failed: self._count_failure,
            Progress: self._count_dream,
            Declined: lambda e: self._count("sevenfold.declined", {"sevenfold.by": e.by}),
            Retrying: lambda e: self._count("sevenfold.retries", {}),
            CacheBroke: lambda e: self._count(
                "sevenfold.cache_breaks", {"sevenfold.source": e.source, "sevenfold.expected": e.expected}
            ),
            HookRan: lambda e: self._count(
                "sevenfold.hooks", {"sevenfold.hook": e.hook, "sevenfold.outcome": e.outcome}
            ),
            Stored: lambda e: self._count("sevenfold.results_stored", {"gen_ai.tool.name": e.tool}),
            Cleared: lambda e: self._count(
                "sevenfold.results_cleared", {"sevenfold.by": e.by}, len(e.use_ids)
            ),
            Surfaced: lambda e: self._count("sevenfold.memories_recalled", {}, len(e.files)),
            Remembered: lambda e: self._count(
                "sevenfold.memory_writes", {"sevenfold.action": e.action, "sevenfold.author": e.by}
            ),
            ReadAgain: lambda e: self._count("sevenfold.regret", {"gen_ai.tool.name": e.tool}),
            Compacted: self._count_compaction,
        }

    def record_memory(self, pollution: float, quarantined: int) -> None:
        """Record the rate of `memory.pollution`, and the number of texts in quarantine."""
        if self._on:
            self._pollution.set(pollution, {"gen_ai.conversation.id": self._session})
            self._quarantined.set(quarantined, {"gen_ai.conversation.id": self._session})

    def __call__(self, event: Event) -> None:
        if self._on and (taken := self._by_event.get(type(event))):
            taken(event)

    def _open_instruments(
        self, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None
    ) -> None:
        from opentelemetry import metrics, trace

        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._counters = {
            name: meter.create_counter(name, unit, said) for name, (unit, said) in _COUNTERS.items()
        }
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of a request, in and out.",
            explicit_bucket_boundaries_advisory=_TOKEN_STEPS,
        )
        self._seconds = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "How long a request took.",
            explicit_bucket_boundaries_advisory=_SECOND_STEPS,
        )
        self._hit_rate = meter.create_histogram(
            "sevenfold.cache_hit_rate",
            "1",
            "The part of a prompt that came from the provider's cache.",
            explicit_bucket_boundaries_advisory=_SHARE_STEPS,
        )
        self._pollution = meter.create_gauge(
            "sevenfold.memory_pollution",
            "1",
            "The part of the memories saved in 30 days that were undone, contradicted or quarantined.",
        )
        self._quarantined = meter.create_gauge(
            "sevenfold.memory_quarantine", "{text}", "Texts that the guard of memory holds back."
        )
        self._fidelity = meter.create_histogram(
            "sevenfold.fidelity",
            "1",
            "The part of what a compaction removed that can still be found.",
            explicit_bucket_boundaries_advisory=_SHARE_STEPS,
        )

    # --- spans ------------------------------------------------------------------------------------------

    def _note_session(self, event: Started) -> None:
        self._session, self._model = event.session, event.model

    def _begin_turn(self, event: Asked) -> None:
        self._end_turn("cut")  # one without an end
        self._turn = self._start_span("invoke_agent", AGENT, {"gen_ai.agent.name": AGENT})

    def _begin_request(self, event: Sending) -> None:
        more = {"gen_ai.request.model": self._model, "sevenfold.source": event.source}
        span = self._start_span("chat", self._model, more, client=True)
        self._chats.setdefault(event.source, []).append(span)

    def _end_request(self, event: Replied) -> None:
        waiting = self._chats.get(event.source)
        if not waiting:
            self._begin_request(Sending(event.source, 0, 0, 0, "", 0.0, True))
        span = self._chats[event.source].pop()  # one sent before it and not answered was refused
        model = event.model or self._model
        span.set_attributes(
            {
                "gen_ai.response.model": model,
                "gen_ai.response.finish_reasons": [event.stop],
                **_describe_usage(event.usage),
            }
        )
        span.end()
        self._measure(event, self._model or model)

    def _measure(self, event: Replied, model: str) -> None:
        usage = event.usage
        about = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": guess_provider(model),
            "gen_ai.request.model": model,
        }
        self._tokens.record(usage.prompt, {**about, "gen_ai.token.type": "input"})
        self._tokens.record(usage.output, {**about, "gen_ai.token.type": "output"})
        self._seconds.record(event.seconds, about)
        if usage.prompt:
            self._hit_rate.record(usage.hit_rate, {**about, "sevenfold.source": event.source})
        if event.cost is not None:
            self._counters["sevenfold.cost"].add(event.cost, about)

    def _begin_tool(self, event: ToolStarted) -> None:
        more = {"gen_ai.tool.name": event.use.name, "gen_ai.tool.call.id": event.use.id}
        more["gen_ai.tool.type"] = "function"
        self._tools[event.use.id] = self._start_span("execute_tool", event.use.name, more)

    def _end_tools(self, event: Acted) -> None:
        for result in event.results:
            if span := self._tools.pop(result.tool_use_id, None):
                if result.is_error:
                    _mark_failed(span, "tool_error")
                span.end()

    def _count_failure(self, event: Failed) -> None:
        self._count("sevenfold.failures", {"sevenfold.by": event.by})
        if event.by == _DREAM:
            self._count("sevenfold.dreams", {"sevenfold.outcome": "failed"})

    def _count_dream(self, event: Progress) -> None:
        if event.by == _DREAM and event.done:
            how = event.outcome or "ended"
            self._count("sevenfold.dreams", {"sevenfold.outcome": how})

    def _deny_tool(self, event: Denied) -> None:
        self._count("sevenfold.denials", {"gen_ai.tool.name": event.use.name})
        if span := self._tools.pop(event.use.id, None):
            _mark_failed(span, "denied")
            span.end()

    def _count_compaction(self, event: Compacted) -> None:
        about = {"sevenfold.by": event.by, "sevenfold.trigger": event.trigger}
        self._count("sevenfold.compactions", about)
        if event.fidelity is not None:
            self._fidelity.record(event.fidelity, about)

    def _finish_turn(self, event: Ended) -> None:
        if self._turn is not None:
            self._turn.set_attributes({**_describe_usage(event.usage), "sevenfold.steps": event.steps})
        self._end_turn(event.stop)

    def _close_spans(self, event: Closed) -> None:
        self._end_turn("cut")
        self._give_up(*(span for spans in self._chats.values() for span in spans), stop="cut")
        self._chats.clear()

    def _end_turn(self, stop: str) -> None:
        """End the turn, and the tools and requests in it that are still open; forks go on."""
        self._give_up(*self._tools.values(), *self._chats.pop(MAIN, ()), stop=stop)
        self._tools.clear()
        if self._turn is not None:
            self._turn.set_attribute("gen_ai.response.finish_reasons", [stop])
            if stop not in _GOOD_ENDS:
                _mark_failed(self._turn, stop)
            self._turn.end()
            self._turn = None

    def _give_up(self, *spans: Span, stop: str) -> None:
        for span in spans:
            _mark_failed(span, stop)
            span.end()

    def _start_span(self, operation: str, name: str, more: dict[str, Any], client: bool = False) -> Span:
        from opentelemetry.trace import SpanKind, set_span_in_context

        kind: SpanKind = SpanKind.CLIENT if client else SpanKind.INTERNAL
        return self._tracer.start_span(
            f"{operation} {name}".strip(),
            set_span_in_context(self._turn) if self._turn is not None else None,
            kind,
            {
                "gen_ai.operation.name": operation,
                "gen_ai.provider.name": guess_provider(self._model),
                "gen_ai.conversation.id": self._session,
                **more,
            },
        )

    def _count(self, name: str, about: dict[str, Any], many: int = 1) -> None:
        self._counters[name].add(many, about)


def _describe_usage(usage: Usage) -> dict[str, int]:
    """The usage as attributes; the conventions count cached tokens as input, too."""
    return {
        "gen_ai.usage.input_tokens": usage.prompt,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
    }


def _mark_failed(span: Span, kind: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


def guess_provider(model: str) -> str:
    """The provider, as far as the name of a model shows it."""
    before, colon, _ = model.partition(":")
    if colon and before in ("anthropic", "openai", "local"):
        return before
    return "anthropic" if "claude" in model else "sevenfold" if model == "offline" else "unknown"
