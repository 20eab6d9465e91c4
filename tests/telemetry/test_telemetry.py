"""Events as spans and metrics, read back from the real SDK; and never what was said."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from sevenfold.core.events import (
    Acted,
    Asked,
    CacheBroke,
    Cleared,
    Closed,
    Compacted,
    Declined,
    Delta,
    Denied,
    Ended,
    Event,
    Failed,
    HookRan,
    Notice,
    Progress,
    ReadAgain,
    Replied,
    Retrying,
    Sending,
    Started,
    Stored,
    ToolStarted,
)
from sevenfold.core.messages import Text, ToolResult, ToolUse, assistant
from sevenfold.core.tokens import Usage
from sevenfold.telemetry import Telemetry, guess_provider

MODEL = "claude-sonnet-4-5"
USAGE = Usage(input=10, cache_write=20, cache_read=70, output=5)
SECRET = "the launch code is 1234"
READ = ToolUse("t1", "Read", {"file_path": SECRET})
WRITE = ToolUse("t2", "Write", {"content": SECRET})


@dataclass
class Recording:
    telemetry: Telemetry
    spans_out: InMemorySpanExporter
    reader: InMemoryMetricReader

    def see(self, *events: Event) -> None:
        for event in events:
            self.telemetry(event)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.spans_out.get_finished_spans()

    def span(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def metrics(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def recording() -> Recording:
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    meters = MeterProvider([reader], shutdown_on_exit=False)
    return Recording(Telemetry(tracer_provider=tracers, meter_provider=meters), spans, reader)


def sending(source: str = "main") -> Sending:
    return Sending(source, 100, 90, 0, SECRET, 0.0, True)


def replied(source: str = "main", **more: Any) -> Replied:
    message = assistant(Text(SECRET), READ)
    return Replied(message, USAGE, "tool_use", 1.5, 0.02, MODEL, source, **more)


TURN: tuple[Event, ...] = (
    Started("s1", MODEL, "startup"),
    Asked(SECRET),
    sending(),
    Delta(SECRET),
    ToolStarted(READ),
    replied(),
    ToolStarted(WRITE),
    Denied(WRITE, SECRET),
    HookRan("PreToolUse", SECRET, "blocked", SECRET),
    Acted((ToolResult("t1", SECRET), ToolResult("t2", SECRET, True))),
    Failed("notes", SECRET),
    Declined("notes", ()),
    CacheBroke("main", 90, 0, SECRET, 0.1, False),
    Retrying(SECRET, 1, 0.5),
    Notice(SECRET),
    Ended("end_turn", 1, USAGE, 2.0),
    Closed("s1", "exit"),
)


def test_a_turn_holds_its_requests_and_its_tools(recording: Recording) -> None:
    recording.see(*TURN)

    turn, chat = recording.span("invoke_agent sevenfold"), recording.span(f"chat {MODEL}")
    read, write = recording.span("execute_tool Read"), recording.span("execute_tool Write")
    assert len(recording.spans) == 4
    assert turn.parent is None
    for inner in (chat, read, write):
        assert inner.parent is not None
        assert turn.context is not None
        assert inner.parent.span_id == turn.context.span_id
    assert (chat.kind, turn.kind) == (SpanKind.CLIENT, SpanKind.INTERNAL)
    assert turn.status.status_code is StatusCode.UNSET


def test_a_request_is_told_by_the_conventions(recording: Recording) -> None:
    recording.see(*TURN)

    assert dict(recording.span(f"chat {MODEL}").attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.conversation.id": "s1",
        "gen_ai.request.model": MODEL,
        "gen_ai.response.model": MODEL,
        "gen_ai.response.finish_reasons": ("tool_use",),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 70,
        "gen_ai.usage.cache_creation.input_tokens": 20,
        "sevenfold.source": "main",
    }


def test_tools_are_told_by_name_and_how_they_ended(recording: Recording) -> None:
    recording.see(*TURN)

    read, write = recording.span("execute_tool Read"), recording.span("execute_tool Write")
    assert (read.attributes or {})["gen_ai.tool.call.id"] == "t1"
    assert read.status.status_code is StatusCode.UNSET
    assert (write.attributes or {})["error.type"] == "denied"
    assert write.status.status_code is StatusCode.ERROR


def test_a_tool_that_failed_is_an_error(recording: Recording) -> None:
    recording.see(Asked("x"), ToolStarted(READ), Acted((ToolResult("t1", SECRET, True),)))

    assert (recording.span("execute_tool Read").attributes or {})["error.type"] == "tool_error"


def test_tokens_time_price_and_hit_rate_are_measured(recording: Recording) -> None:
    recording.see(*TURN)

    metrics = recording.metrics()
    tokens = {p.attributes["gen_ai.token.type"]: p.sum for p in metrics["gen_ai.client.token.usage"]}
    assert tokens == {"input": 100, "output": 5}
    assert metrics["gen_ai.client.operation.duration"][0].sum == 1.5
    assert metrics["sevenfold.cache_hit_rate"][0].sum == 0.7
    assert metrics["sevenfold.cost"][0].value == 0.02
    assert metrics["sevenfold.cost"][0].attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": MODEL,
    }


def test_what_goes_wrong_is_counted(recording: Recording) -> None:
    recording.see(*TURN)

    metrics = recording.metrics()
    counted = {
        name: (points[0].value, dict(points[0].attributes))
        for name, points in metrics.items()
        if name.startswith("sevenfold.") and name not in ("sevenfold.cost", "sevenfold.cache_hit_rate")
    }
    assert counted == {
        "sevenfold.denials": (1, {"gen_ai.tool.name": "Write"}),
        "sevenfold.failures": (1, {"sevenfold.by": "notes"}),
        "sevenfold.declined": (1, {"sevenfold.by": "notes"}),
        "sevenfold.cache_breaks": (1, {"sevenfold.source": "main", "sevenfold.expected": False}),
        "sevenfold.retries": (1, {}),
        "sevenfold.hooks": (1, {"sevenfold.hook": "PreToolUse", "sevenfold.outcome": "blocked"}),
    }


def test_what_layers_do_to_results_is_counted(recording: Recording) -> None:
    recording.see(
        Stored("u1", "Bash", "/x/u1.txt", 90_000, 22_000),
        Cleared("cost", ("u2", "u3"), 5_000, 2_000, 9_000.0, 2_300.0, "it pays"),
        ReadAgain("Read", "Read a.py", 2_500, 1),
    )

    counted = {name: points[0].value for name, points in recording.metrics().items()}
    assert counted == {"sevenfold.results_stored": 1, "sevenfold.results_cleared": 2, "sevenfold.regret": 1}


def test_compactions_are_counted_by_kind_and_their_fidelity_is_measured(recording: Recording) -> None:
    recording.see(
        Compacted("summary", "manual", 90_000, 9_000, 0.9),
        Compacted("summary", "manual", 90_000, 9_000, 0.7),
        Compacted("snip", "auto", 90_000, 60_000),
    )

    metrics = recording.metrics()
    counted = {p.attributes["sevenfold.by"]: p.value for p in metrics["sevenfold.compactions"]}
    assert counted == {"summary": 2, "snip": 1}
    (measured,) = metrics["sevenfold.fidelity"]
    assert (measured.count, measured.min, measured.max) == (2, 0.7, 0.9), "unmeasured is not zero"
    assert measured.attributes["sevenfold.trigger"] == "manual"


def test_what_was_said_is_never_told(recording: Recording) -> None:
    recording.see(*TURN)

    told = "".join(span.to_json() for span in recording.spans) + str(recording.metrics())
    assert "1234" not in told


def test_without_a_price_no_cost_and_without_a_prompt_no_hit_rate(recording: Recording) -> None:
    recording.see(Replied(assistant(), Usage(), "end_turn"))

    assert recording.metrics().keys().isdisjoint({"sevenfold.cost", "sevenfold.cache_hit_rate"})


def test_a_fork_beside_the_turn_has_its_own_span(recording: Recording) -> None:
    recording.see(Started("s1", MODEL, "startup"), Asked("x"), sending(), sending("notes"))
    recording.see(replied("notes"), replied(), Ended("end_turn", 1, USAGE))

    sources = [(span.attributes or {}).get("sevenfold.source") for span in recording.spans]
    assert sources == ["notes", "main", None]


def test_a_request_that_never_came_back_ends_with_its_turn(recording: Recording) -> None:
    recording.see(Started("s1", MODEL, "startup"), Asked("x"), sending(), Ended("failed", 0, Usage()))

    chat, turn = recording.span(f"chat {MODEL}"), recording.span("invoke_agent sevenfold")
    for span in (chat, turn):
        assert (span.attributes or {})["error.type"] == "failed"
        assert span.status.status_code is StatusCode.ERROR


def test_a_fork_that_outlives_the_turn_is_no_failure(recording: Recording) -> None:
    recording.see(Started("s1", MODEL, "startup"), Asked("x"), sending(), sending("notes"))
    recording.see(replied(), Ended("end_turn", 1, USAGE), Asked("y"), replied("notes"))
    recording.see(Ended("end_turn", 1, USAGE), Closed("s1", "exit"))

    assert {span.status.status_code for span in recording.spans} == {StatusCode.UNSET}


def test_of_a_request_sent_twice_the_first_is_the_one_that_failed(recording: Recording) -> None:
    recording.see(Started("s1", MODEL, "startup"), Asked("x"), sending(), sending())
    recording.see(replied(), Ended("end_turn", 1, USAGE))

    chats = [span for span in recording.spans if span.name.startswith("chat")]
    first, second = sorted(chats, key=lambda span: span.start_time or 0)
    assert first.status.status_code is StatusCode.ERROR
    assert second.status.status_code is StatusCode.UNSET


def test_a_reply_nobody_announced_is_counted_all_the_same(recording: Recording) -> None:
    recording.see(Started("s1", MODEL, "startup"), replied())

    assert [span.name for span in recording.spans] == [f"chat {MODEL}"]


def test_dreams_are_counted_and_the_state_of_memory_is_told(recording: Recording) -> None:
    recording.see(
        Progress("dream", "dreaming: starting"),
        Progress("dream", SECRET, done=True, outcome="completed"),
        Progress("dream", SECRET, done=True, outcome="killed"),
        Progress("extraction", SECRET, done=True),
        Failed("dream", SECRET),
    )
    recording.telemetry.record_memory(0.25, 3)
    metrics = recording.metrics()

    dreams = {one.attributes["sevenfold.outcome"]: one.value for one in metrics["sevenfold.dreams"]}
    assert dreams == {"completed": 1, "killed": 1, "failed": 1}
    assert [one.value for one in metrics["sevenfold.failures"]] == [1]
    assert [one.value for one in metrics["sevenfold.memory_pollution"]] == [0.25]
    assert [one.value for one in metrics["sevenfold.memory_quarantine"]] == [3]


def test_a_session_that_closes_in_the_middle_leaves_no_span_open(recording: Recording) -> None:
    recording.see(Started("s1", MODEL, "startup"), Asked("x"), sending(), ToolStarted(READ))
    recording.see(Closed("s1", "interrupted"))

    assert {span.name for span in recording.spans} == {
        "invoke_agent sevenfold",
        f"chat {MODEL}",
        "execute_tool Read",
    }


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("claude-sonnet-4-5", "anthropic"),
        ("anthropic.claude-x-v1:0", "anthropic"),
        ("anthropic:their-own", "anthropic"),
        ("openai:gpt-5", "openai"),
        ("local:model.gguf", "local"),
        ("offline", "sevenfold"),
        ("", "unknown"),
    ],
)
def test_the_provider_is_known_by_the_name_of_the_model(model: str, name: str) -> None:
    assert guess_provider(model) == name


def test_without_opentelemetry_around_nothing_is_imported_and_nothing_happens() -> None:
    code = (
        "import sys; from sevenfold.telemetry import Telemetry; from sevenfold.core.events import Asked;"
        "Telemetry('s')(Asked('x')); print('opentelemetry' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


def test_with_the_api_alone_events_go_nowhere_quietly() -> None:
    code = (
        "import opentelemetry.trace; from sevenfold.telemetry import Telemetry;"
        "from sevenfold.core.events import *; from sevenfold.core.tokens import Usage;"
        "t = Telemetry('s'); t(Asked('x')); t(Failed('a', 'b')); t(Ended('end_turn', 1, Usage()))"
    )

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )

    assert (done.stdout, done.stderr) == ("", "")
