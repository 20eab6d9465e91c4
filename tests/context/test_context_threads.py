"""`Context(threads=True)`: requests say what is new, and all of it when what was sent has changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from context.conversing import OFF, Json, called, result, results, said
from hypothesis import given, settings
from hypothesis import strategies as st
from models.asking import remove_cache_marks

from sevenfold.context.context import Context
from sevenfold.core.errors import Mistake
from sevenfold.core.protocols import Capabilities
from sevenfold.simulator import Api, ManualClock, Simulator, parse_steps, run_in_thread
from sevenfold.testing import FakeClock, ScriptedModel

anthropic = pytest.importorskip("anthropic")

MODEL = "claude-sonnet-5"
BETA = "message-threads-2026-08-12"
READ: Json = {"name": "Read", "input_schema": {"type": "object"}}
CALL = '{"reply": {"content": [{"type": "tool_use", "name": "Read", "input": {"file_path": "a"}}]}}'
CLEARS: Json = {
    "flags": {"micro_api": False, "micro_cost": False, "micro_time": True},
    "micro": {"keepRecent": 1},
}
IDLE: Json = {"flags": {"micro_api": False, "tool_results": False}}


def make_context(folder: Path, clock: FakeClock | None = None, **more: Any) -> Context:
    more = {"settings": OFF, "threads": True, **more}
    model = ScriptedModel(capabilities=Capabilities(window=1_000_000), name=MODEL)
    return Context(model, environ={"HOME": str(folder)}, clock=clock or FakeClock(), **more)


def thread_of(request: Json) -> Json:
    found: Json = request["extra_body"]["thread"]
    return found


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with run_in_thread(clock=ManualClock()) as simulator:
        yield simulator


@pytest.fixture
def client(sim: Simulator) -> Iterator[Any]:
    with anthropic.Anthropic(base_url=sim.url, api_key="any", max_retries=0) as made:
        yield made


class Loop:
    """A caller's loop with the official SDK; every request is answered with a call of Read, until told."""

    def __init__(self, ctx: Context, client: Any, sim: Simulator, **params: Any) -> None:
        self.ctx, self.sim, self.params = ctx, sim, params
        self.create = (client.beta if "betas" in params else client).messages.create
        self.history: list[Any] = [said("Begin.")]
        self.last = ""

    def step(self, text: str = "x" * 800) -> Json:
        self.sim.api.script.extend(parse_steps(CALL))
        request = self.ctx.prepare(self.history, system="Read files.", tools=[READ], **self.params)
        response = self.create(**request)
        self.ctx.record(response)
        self.last = response.id
        blocks = [block.model_dump(exclude_none=True) for block in response.content]
        answers = [result(b["id"], text) for b in blocks if b["type"] == "tool_use"]
        self.history += [{"role": "assistant", "content": blocks}, results(*answers)]
        return request

    @property
    def held(self) -> list[Json]:
        return self.sim.api.threads.find_conversation(self.last)

    def kinds(self) -> list[str | None]:
        return [row.thread for row in self.sim.ledger.rows]


@pytest.mark.parametrize("params", [{}, {"betas": ["some-beta-2026-01-01"]}])
def test_only_what_is_new_is_sent(tmp_path: Path, client: Any, sim: Simulator, params: Json) -> None:
    loop = Loop(make_context(tmp_path), client, sim, **params)
    first = loop.step()
    assert thread_of(first) == {"type": "create"}
    assert first["system"]
    for _ in range(6):
        request = loop.step()
        assert thread_of(request)["type"] == "continue"
        assert len(request["messages"]) == 1
        assert "system" not in request
        assert "tools" not in request
        assert plain(loop.held) == plain(loop.history[:-1])
    assert loop.kinds() == ["create"] + ["continue"] * 6
    assert all(row.shared and row.shared.diverged is None for row in list(sim.ledger.rows)[1:])


def test_the_cache_is_read_as_without_threads(tmp_path: Path) -> None:
    rows = []
    for threads in (True, False):
        with run_in_thread(clock=ManualClock()) as sim:
            ctx = make_context(tmp_path, threads=threads)
            with anthropic.Anthropic(base_url=sim.url, api_key="any", max_retries=0) as client:
                loop = Loop(ctx, client, sim)
                for _ in range(8):
                    loop.step("x" * 9_000)
            rows.append([row.tokens for row in sim.ledger.rows])
    assert rows[0] == rows[1]


def test_a_layer_that_changes_what_was_sent_makes_the_next_request_a_create(
    tmp_path: Path, client: Any, sim: Simulator
) -> None:
    clock = FakeClock()
    loop = Loop(make_context(tmp_path, clock, settings=CLEARS), client, sim)
    for _ in range(3):
        loop.step("a line\n" * 2_000)
    clock.time += 7_200
    request = loop.step("a line\n" * 2_000)
    assert thread_of(request) == {"type": "create"}
    assert "(cleared: " in str(request["messages"])
    assert thread_of(loop.step())["type"] == "continue"
    assert loop.kinds() == ["create", "continue", "continue", "create", "continue"]


@pytest.mark.parametrize("change", ["edit", "remove", "reply", "tools"])
def test_a_change_of_the_caller_makes_it_a_create(
    tmp_path: Path, client: Any, sim: Simulator, change: str
) -> None:
    loop = Loop(make_context(tmp_path), client, sim)
    loop.step()
    loop.step()
    match change:
        case "edit":
            loop.history[0] = said("Begin, please.")
        case "remove":
            del loop.history[1:3]
        case "reply":
            loop.history[-2]["content"].insert(0, {"type": "text", "text": "Let me see."})
        case "tools":
            loop.params["tool_choice"] = {"type": "any"}
    assert thread_of(loop.step()) == {"type": "create"}
    assert thread_of(loop.step())["type"] == "continue"


def test_a_thread_that_the_provider_lost_is_sent_whole(tmp_path: Path, client: Any, sim: Simulator) -> None:
    loop = Loop(make_context(tmp_path), client, sim)
    loop.step()
    sim.api.clock.advance(301)  # type: ignore[attr-defined]
    with pytest.raises(anthropic.NotFoundError) as lost:
        loop.step()
    assert loop.ctx.refused(lost.value) is True
    assert thread_of(loop.step()) == {"type": "create"}
    assert plain(loop.held) == plain(loop.history[:-1])


def test_where_threads_are_not_supported_they_are_left_out(
    tmp_path: Path, client: Any, sim: Simulator
) -> None:
    loop = Loop(make_context(tmp_path), client, sim, extra_body={"fallbacks": [{"model": MODEL}]})
    with pytest.raises(anthropic.BadRequestError) as refused:
        loop.step()
    assert loop.ctx.refused(refused.value) is True
    assert "thread" not in loop.step()["extra_body"]


def test_a_reply_that_was_not_recorded_is_not_continued(tmp_path: Path) -> None:
    ctx = make_context(tmp_path)
    ctx.prepare([said("one")])
    assert thread_of(ctx.prepare([said("one"), said("two")])) == {"type": "create"}
    ctx.record({"id": "msg_1", "content": [{"type": "text", "text": "ok"}], "stop_reason": "refusal"})
    answered = {"role": "assistant", "content": "ok"}
    assert thread_of(ctx.prepare([said("one"), said("two"), answered, said("on")])) == {"type": "create"}


def test_deltas_come_in_and_go_out(tmp_path: Path, client: Any, sim: Simulator) -> None:
    ctx = make_context(tmp_path)
    response = client.messages.create(**ctx.prepare([said("one")]))
    for n in range(3):
        ctx.record(response)
        request = ctx.prepare([said(f"more {n}")], after=response.id)
        assert len(request["messages"]) == 1
        response = client.messages.create(**request)
    assert len(sim.api.threads.find_conversation(response.id)) == 8


def test_threads_are_of_the_messages_api() -> None:
    with pytest.raises(Mistake, match="threads are a feature of the Messages API"):
        Context("gpt-5.5", format="responses", threads=True)


def test_a_thread_of_the_callers_own_is_not_continued_in_part(tmp_path: Path) -> None:
    ctx = make_context(tmp_path)
    thread = {"type": "continue", "previous_message_id": "msg_1"}
    for params in ({"thread": thread}, {"extra_body": {"thread": thread}}):
        with pytest.raises(Mistake, match="threads=True"):
            ctx.prepare([said("two")], **params)


STEPS = st.lists(st.sampled_from(["say", "work", "edit", "drop", "reword", "again"]), max_size=12)


@given(STEPS)
@settings(max_examples=40, deadline=None)
def test_what_the_provider_rebuilds_is_the_whole_history(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    """Whatever the caller does to its history: deltas put together are what a whole request would be."""
    ctx = make_context(tmp_path_factory.mktemp("home"), settings=IDLE)
    sim = Api(ManualClock(), replies=lambda body: f"reply to {len(body['messages'])}")
    history: list[Json] = [said("begin")]
    for n, kind in enumerate(steps):
        match kind:
            case "work":
                history += [called(f"t{n}"), results(result(f"t{n}", f"found {n}"))]
            case "edit":
                history[0] = said(f"begin, edited {n}")
            case "drop" if len(history) > 3:
                del history[1:]
            case "reword" if history[-1]["role"] == "assistant":
                history[-1] = {"role": "assistant", "content": f"reworded {n}"}
        if history[-1]["role"] == "assistant":
            history.append(said(f"and {n}"))
        request = ctx.prepare(history)
        headers = {"x-api-key": "any", **request.pop("extra_headers")}
        outcome = sim.answer({**request, **request.pop("extra_body")}, headers)
        assert outcome.status == 200, outcome.body
        ctx.record(outcome.body)
        history.append({"role": "assistant", "content": outcome.body["content"]})
        assert plain(sim.threads.find_conversation(outcome.body["id"])) == plain(history)
    ctx.close()


def plain(messages: list[Json]) -> list[Json]:
    """Content as a list, without marks: a mark makes a list of a text."""
    texts = [m["content"] for m in messages]
    blocks = [[{"type": "text", "text": t}] if isinstance(t, str) else t for t in texts]
    return [{**m, "content": remove_cache_marks(b)} for m, b in zip(messages, blocks, strict=True)]
