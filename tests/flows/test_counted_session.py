"""Whole sessions with telemetry beside them: what runs beside the conversation is counted too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flows.test_pre_cold_session import Driven, away
from flows.test_session import Place
from flows.wire import SteadySimulator
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from sevenfold.core.events import Replied
from sevenfold.offline import encode_reply
from sevenfold.session.session import Session
from sevenfold.simulator import ManualClock
from sevenfold.telemetry import Telemetry

pytestmark = pytest.mark.anyio


class Counted:
    """A session's telemetry, read back from the real SDK."""

    def __init__(self, session: Session) -> None:
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        meters = MeterProvider([self._reader], shutdown_on_exit=False)
        told = Telemetry(session.id, tracer_provider=tracers, meter_provider=meters)
        session.events.overhear(told)

    @property
    def chats(self) -> list[ReadableSpan]:
        return [s for s in self._spans.get_finished_spans() if s.name.startswith("chat")]

    @property
    def sources(self) -> set[str]:
        return {str((span.attributes or {})["sevenfold.source"]) for span in self.chats}

    def failed(self) -> list[dict[str, Any]]:
        spans = self._spans.get_finished_spans()
        return [dict(s.attributes or {}) for s in spans if s.status.status_code is StatusCode.ERROR]

    def sum(self, name: str) -> float:
        data = self._reader.get_metrics_data()
        assert data is not None
        points = [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]
        return sum(float(getattr(p, "value", 0.0) or getattr(p, "sum", 0.0)) for p in points)


async def test_forks_and_agents_are_counted_and_none_of_them_is_called_failed(tmp_path: Path) -> None:
    async with SteadySimulator(replies=encode_reply, clock=ManualClock()) as simulator:
        here = Place(tmp_path, simulator.url)
        simulator.events = here.events
        async with here.session(interactive=True) as session:
            counted = Counted(session)
            await session.ask("remember that I prefer tabs")
            await session.ask("ask an agent called scout to find port in config.toml")
            await session.ask("what is the port?")
            await session.compact()
        total = session.ledger.total

    assert {"main", "agent:scout", "fork:compact"} <= counted.sources
    assert counted.failed() == []
    assert len(counted.chats) == total.requests
    assert counted.sum("sevenfold.cost") == pytest.approx(total.cost)
    assert counted.sum("gen_ai.client.token.usage") == total.usage.total
    beside = [event for event in here.of(Replied) if event.source != "main"]
    assert not any(event.message.content for event in beside), "what they say stays their own"


async def test_a_request_that_keeps_the_cache_warm_is_counted(tmp_path: Path) -> None:
    clock = Driven()
    async with SteadySimulator(replies=encode_reply, clock=clock) as simulator:
        here = Place(tmp_path, simulator.url)
        simulator.events = here.events
        settings = {"flags": {"pre_cold": True, "notes": False}}
        async with here.session(clock=clock, settings=settings) as session:
            counted = Counted(session)
            await session.ask("x " * 90_000)
            await away(clock, session, 6)

    assert counted.sources == {"main", "keep-warm"}
    assert counted.failed() == []
    assert counted.sum("sevenfold.cost") == pytest.approx(session.ledger.total.cost)
