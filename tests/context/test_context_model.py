"""A `Context` that was given a model: what it asks in `rest`, what `prepare` makes of it, and refusals."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from context.conversing import Json, answered, assert_paired, called, extends, result
from context.conversing import results as in_message
from layers.l4_compaction.summaries import summary
from models.asking import remove_cache_marks

from sevenfold.context.context import Context
from sevenfold.core.errors import KeyRefused, Mistake, PromptTooLong
from sevenfold.core.events import CacheBroke, Compacted, Event, Failed, Forked, Notice
from sevenfold.core.messages import Block, Text, assistant
from sevenfold.core.protocols import Capabilities
from sevenfold.core.request import Request, has_paired_tools
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Reply
from sevenfold.layers.shared.boundary import find_last_boundary
from sevenfold.offline import OfflineEngine
from sevenfold.simulator import ManualClock, Simulator, parse_steps, run_in_thread
from sevenfold.testing import FakeClock, ScriptedModel

WINDOW = 16_000
"""Tokens. The threshold of auto-compact is at 13,360, and 80 % of it are 10,688."""
SYSTEM = "You keep a list of what you are told. " * 20
PLAIN: Json = {"micro_api": False, "micro_cost": False}
NO_NOTES: Json = {**PLAIN, "notes": False}


def said(text: str) -> Json:
    """In blocks, as a message with a cache mark on it is sent."""
    return {"role": "user", "content": [{"type": "text", "text": text}]}


class Asked(OfflineEngine):
    """The offline engine, which remembers what it was asked."""

    def __init__(self, window: int = WINDOW) -> None:
        super().__init__(window)
        self.requests: list[Request] = []

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        self.requests.append(request)
        async for item in super().stream(request):
            yield item


class Loop:
    """A caller's loop, whose own model just says yes."""

    def __init__(self, folder: Path, model: Any = None, *, flags: Json = PLAIN, **more: Any) -> None:
        self.model = model if model is not None else Asked()
        self.events: list[Event] = []
        self.ctx = Context(
            self.model, settings={"flags": flags}, environ={"HOME": str(folder)}, clock=FakeClock(), **more
        )
        self.ctx.subscribe(self.events.append)
        self.history: list[Json] = []
        self.sent: list[list[Json]] = []

    def step(self, text: str, reply: str = "Noted.") -> list[Json]:
        self.history.append(said(text))
        out = self.send()
        self.ctx.record(answered(reply))
        self.history.append(answered(reply))
        return out

    def grow(self) -> None:
        """About 400 tokens, few of them the user's."""
        n = len(self.history)
        self.step(f"item {n}: please", f"Item {n} is done. " + f"w{n} " * 400)

    def send(self) -> list[Json]:
        out: list[Json] = remove_cache_marks(self.ctx.prepare(self.history, system=SYSTEM)["messages"])
        assert_paired(out)
        self.sent.append(out)
        return out

    def talk(self, tokens: int) -> None:
        """Say things until the conversation has so many tokens."""
        while self.ctx.view.tokens < tokens:
            self.grow()

    def fill(self, rest: bool = True) -> None:
        """Go on until something stands in place of the older part."""
        for _ in range(60):
            if find_last_boundary(self.ctx.view) is not None:
                return
            asked = len(self.asked)
            self.grow()
            assert len(self.asked) == asked, "prepare and record ask nothing"
            if rest:
                self.ctx.rest_sync()
        raise AssertionError("the window never filled up")

    @property
    def asked(self) -> list[str]:
        return [request.source.removeprefix("fork:") for request in self.model.requests]

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


# --- notes ------------------------------------------------------------------------------------------------


def test_notes_are_taken_while_the_caller_rests(tmp_path: Path) -> None:
    loop = Loop(tmp_path, state=tmp_path / "state", id="one")
    loop.talk(1_500)
    notes = tmp_path / "state" / "one" / "session-memory" / "summary.md"
    assert not notes.exists()
    loop.ctx.rest_sync()

    assert "item 0:" in notes.read_text(encoding="utf-8")
    assert loop.asked == ["notes"]
    assert loop.of(Forked)[0].kind == "notes"
    loop.ctx.rest_sync()
    assert loop.asked == ["notes"], "nothing has happened since"


def test_the_notes_stand_in_when_the_window_is_full(tmp_path: Path) -> None:
    loop = Loop(tmp_path, state=tmp_path / "state")
    loop.fill()

    boundary = find_last_boundary(loop.ctx.view)
    assert boundary is not None
    assert boundary.by == "notes"
    assert "item 0: please" in loop.sent[-1][0]["content"][0]["text"]
    assert loop.sent[-1][-1] == loop.history[-2]
    assert not loop.of(Failed)


def test_without_a_folder_there_are_no_notes_and_the_summary_is_prepared_all_the_same(
    tmp_path: Path,
) -> None:
    loop = Loop(tmp_path)
    loop.fill()

    assert set(loop.asked) == {"compact"}
    assert loop.of(Compacted)[0].trigger == "ahead"


# --- the summary ------------------------------------------------------------------------------------------


def test_the_summary_that_was_prepared_at_rest_is_put_in_place_and_all_else_is_sent_as_it_was(
    tmp_path: Path,
) -> None:
    loop = Loop(tmp_path, flags=NO_NOTES | {"precompute": False})
    loop.fill()

    assert loop.asked == ["compact"]
    [event] = loop.of(Compacted)
    assert (event.by, event.trigger) == ("summary", "ahead")
    *before, full = loop.sent
    for earlier, later in pairwise(before):
        assert extends(earlier, later)
    first, *kept = full
    assert first["content"][0]["text"].startswith("<summary>")
    assert "item 0:" in first["content"][0]["text"], "what the user said is there word for word"
    assert kept == loop.history[:-1][-len(kept) :], "the rest as the caller wrote it"
    assert len(kept) >= 3

    loop.step("and another one")
    loop.step("and one more")
    assert extends(loop.sent[-3], loop.sent[-2])
    assert extends(loop.sent[-2], loop.sent[-1])
    assert all(broke.expected for broke in loop.of(CacheBroke))
    assert loop.of(Failed) == []


def test_resting_changes_nothing_of_what_is_sent(tmp_path: Path) -> None:
    quiet, resting = Loop(tmp_path, flags=NO_NOTES), Loop(tmp_path, flags=NO_NOTES)
    for _ in range(35):
        for loop in (quiet, resting):
            loop.grow()
        resting.ctx.rest_sync()
        if resting.asked:
            break

    assert resting.asked == ["compact"]
    assert find_last_boundary(resting.ctx.view) is None
    assert resting.sent == quiet.sent


def test_while_a_tool_of_the_caller_runs_it_may_rest_as_well(tmp_path: Path) -> None:
    loop = Loop(tmp_path, flags=NO_NOTES)
    loop.talk(11_000)
    loop.history.append(said("look it up"))
    loop.send()
    loop.ctx.record(called("t1", name="Read"))
    loop.ctx.rest_sync()
    assert loop.asked == ["compact"]

    loop.history += [called("t1", name="Read"), in_message(result("t1", "found " * 2_000))]
    out = loop.send()
    assert out[0]["content"][0]["text"].startswith("<summary>")
    assert out[-2:] == loop.history[-2:]
    assert loop.asked == ["compact"]


def test_a_caller_who_never_rests_gets_the_digest_and_nothing_is_asked(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.fill(rest=False)

    assert loop.asked == []
    assert loop.sent[-1][0]["content"][0]["text"].startswith("<digest>")
    assert [event.by for event in loop.of(Compacted)] == ["digest"]


def test_a_name_is_no_model_and_the_digest_is_all_there_is(tmp_path: Path) -> None:
    ctx = Context("my-own", settings={"window": WINDOW}, environ={"HOME": str(tmp_path)})
    history = [said(f"item {n}: " + "w " * 1_000) for n in range(40)]
    out = ctx.prepare([m for item in history for m in (item, answered("yes"))][:-1])
    ctx.rest_sync()

    assert out["messages"][0]["content"][0]["text"].startswith("<digest>")
    ctx.close()


def test_a_model_that_fails_at_rest_costs_the_caller_nothing(tmp_path: Path) -> None:
    model = ScriptedModel([KeyRefused("no")] * 9, Capabilities(window=WINDOW, max_output=2_000), "m")
    loop = Loop(tmp_path, model, flags=NO_NOTES)
    loop.fill()

    assert loop.asked == ["compact"], "once, until the next compaction"
    assert [failed.by for failed in loop.of(Failed)] == ["Ahead"]
    assert loop.sent[-1][0]["content"][0]["text"].startswith("<digest>")


def test_the_users_words_outlive_summaries_and_digests_in_any_order(tmp_path: Path) -> None:
    loop = Loop(tmp_path, flags=NO_NOTES)
    loop.step("never touch the file LICENSE")
    kinds = []
    for rest in (True, False, True):
        count = len(loop.of(Compacted))
        for n in range(80):
            if len(loop.of(Compacted)) > count:
                break
            loop.step(f"item {n}", "done " * 300)
            if rest:
                loop.ctx.rest_sync()
        kinds.append(loop.of(Compacted)[-1].by)
        assert any("never touch the file LICENSE" in str(m) for m in loop.sent[-1])
        assert has_paired_tools(loop.ctx.view)

    assert kinds == ["summary", "digest", "summary"]


def test_another_process_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    loop = Loop(tmp_path, flags=NO_NOTES, state=tmp_path / "state", id="one")
    loop.fill()
    loop.step("what now?")
    loop.ctx.close()

    again = Loop(tmp_path, flags=NO_NOTES, state=tmp_path / "state", id="one")
    again.history = [*loop.history, said("and then?")]
    assert extends(loop.sent[-1], again.send())
    assert again.asked == []
    again.ctx.close()


@pytest.mark.anyio
async def test_all_of_it_works_inside_a_running_loop(tmp_path: Path) -> None:
    loop = Loop(tmp_path, flags=NO_NOTES)
    for _ in range(60):
        loop.grow()
        await loop.ctx.rest()
        if find_last_boundary(loop.ctx.view):
            break

    [event] = loop.of(Compacted)
    assert event.trigger == "ahead"


# --- refused as too long ----------------------------------------------------------------------------------


def test_after_a_refusal_the_next_request_is_shorter_by_what_was_too_much(tmp_path: Path) -> None:
    loop = Loop(tmp_path, flags=NO_NOTES)
    loop.talk(8_000)
    loop.history.append(said("and now?"))
    loop.send()
    tokens = loop.ctx.view.tokens

    assert loop.ctx.refused(PromptTooLong("too long", tokens=18_000, limit=16_000))
    out = loop.send()
    assert out[0]["content"][0]["text"].startswith("<digest>")
    assert out[-1] == loop.history[-1]
    assert loop.ctx.view.tokens <= tokens - 2_000
    assert loop.of(Compacted)[0].trigger == "refused"
    assert extends(out, loop.send()), "once"


def test_after_a_refusal_the_prepared_summary_is_used_too(tmp_path: Path) -> None:
    loop = Loop(tmp_path, flags=NO_NOTES)
    loop.talk(11_000)
    loop.ctx.rest_sync()
    loop.history.append(said("and now?"))
    loop.send()
    assert loop.ctx.refused(PromptTooLong("too long"))
    out = loop.send()

    assert out[0]["content"][0]["text"].startswith("<summary>")
    assert loop.asked == ["compact"]


def test_what_is_about_something_else_is_no_refusal_of_ours(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.step("hello")
    before = loop.ctx.view

    assert not loop.ctx.refused(ValueError("x"))
    assert not loop.ctx.refused(KeyRefused("the prompt is too long a story"))
    loop.send()
    assert loop.ctx.view.messages == before.messages


def test_words_alone_are_understood_as_well(tmp_path: Path) -> None:
    loop = Loop(tmp_path, flags=NO_NOTES)
    loop.talk(8_000)

    assert loop.ctx.refused(RuntimeError("400: prompt is too long: 20000 tokens > 16000 maximum"))
    loop.history.append(said("go on"))
    assert loop.send()[0]["content"][0]["text"].startswith("<digest>")


def test_before_anything_was_asked_nothing_can_be_refused(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="nothing was asked yet"):
        Loop(tmp_path).ctx.refused(PromptTooLong("too long"))


def test_what_cannot_be_made_shorter_is_raised_instead_of_sent_again(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.history.append(said("hello"))
    loop.send()
    error = PromptTooLong("too long", tokens=20_000, limit=16_000)
    assert loop.ctx.refused(error)

    with pytest.raises(PromptTooLong):
        loop.send()
    assert loop.send() == [said("hello")], "said once: after that it is the caller's to decide"


def test_a_caller_who_shortens_the_history_itself_is_not_helped_twice(tmp_path: Path) -> None:
    loop = Loop(tmp_path, flags=NO_NOTES)
    loop.talk(8_000)
    assert loop.ctx.refused(PromptTooLong("too long", tokens=17_000, limit=16_000))
    loop.history = [*loop.history[10:], said("go on")]

    assert loop.send() == loop.history
    assert loop.of(Compacted) == []


# --- with the real SDKs -----------------------------------------------------------------------------------


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with run_in_thread(clock=ManualClock()) as simulator:
        simulator.api.window = 4_000
        simulator.api.script.extend(parse_steps('{"reply": {"text": "yes"}, "times": 9}'))
        yield simulator


def long_talk() -> list[Json]:
    items = [(said(f"item {n}"), answered(f"w{n} " * 300)) for n in range(20)]
    return [*(message for pair in items for message in pair), said("go on")]


@pytest.mark.real
def test_the_anthropic_sdk_is_refused_by_the_simulator_and_then_is_not(
    sim: Simulator, tmp_path: Path
) -> None:
    anthropic = pytest.importorskip("anthropic")
    client = anthropic.Anthropic(base_url=sim.url, api_key="any", max_retries=0)
    with client, Context("claude-sonnet-5", environ={"HOME": str(tmp_path)}) as ctx:
        request = ctx.prepare(long_talk(), max_tokens=100)
        with pytest.raises(anthropic.BadRequestError) as caught:
            client.messages.create(**request)
        assert ctx.refused(caught.value)
        response = client.messages.create(**ctx.prepare(long_talk(), max_tokens=100))
        ctx.record(response)

        assert response.content[0].text == "yes"
        assert [row.status for row in sim.ledger.rows][-1] == 200
        with pytest.raises(anthropic.NotFoundError) as other:
            client.get("/nothing", cast_to=object)
        assert not ctx.refused(other.value)


@pytest.mark.real
def test_the_openai_sdk_is_refused_by_the_simulator_and_then_is_not(sim: Simulator, tmp_path: Path) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{sim.url}/v1", api_key="any", max_retries=0)
    history = [{**message, "content": message["content"][0]["text"]} for message in long_talk()]
    with client, Context("gpt-5.4", format="openai", environ={"HOME": str(tmp_path)}) as ctx:
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**ctx.prepare(history))
        assert ctx.refused(caught.value)
        response = client.chat.completions.create(**ctx.prepare(history))
        ctx.record(response)

        assert response.choices[0].message.content == "yes"


@pytest.mark.real
def test_plain_code_rests_many_times_over_one_connection_and_pays_for_each_summary_once(
    tmp_path: Path,
) -> None:
    anthropic = pytest.importorskip("anthropic")
    from sevenfold.models import ModelAccess
    from sevenfold.models.anthropic import AnthropicModel

    events: list[Event] = []
    history: list[Any] = []
    settings = {"flags": NO_NOTES, "autoCompactPercent": 1}
    with (
        run_in_thread(clock=ManualClock(), replies=answering) as sim,
        anthropic.Anthropic(base_url=sim.url, api_key="any", max_retries=0) as client,
    ):
        reached = ModelAccess(anthropic_base_url=sim.url, anthropic_key="any")
        model = AnthropicModel("claude-sonnet-5", reached)
        with Context(model, settings=settings, environ={"HOME": str(tmp_path)}) as ctx:
            ctx.subscribe(events.append)
            for n in range(50):
                history.append(said(f"item {n}"))
                request = ctx.prepare(history, system=SYSTEM, max_tokens=500)
                response = client.messages.create(**request)
                ctx.record(response)
                history.append({"role": "assistant", "content": response.content})
                ctx.rest_sync()
        forks = [row for row in sim.ledger.rows if row.source == "fork:compact"]

    done = [event for event in events if isinstance(event, Compacted)]
    assert [event.trigger for event in done] == ["ahead"] * len(done)
    assert len(done) >= 2
    assert len(forks) <= len(done) + 1, "at most one is still waiting to be needed"
    assert not [event for event in events if isinstance(event, Failed)]


@pytest.mark.anyio
async def test_plain_rest_inside_a_loop_is_a_mistake_that_says_what_to_do(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.step("hello")
    with pytest.raises(Mistake, match="await rest"):
        loop.ctx.rest_sync()


def answering(body: Json) -> list[Json]:
    """Says yes, and a summary when asked for one."""
    last = body["messages"][-1]["content"]
    text = last if isinstance(last, str) else last[-1].get("text", "")
    about = summary() if text.startswith('<directive kind="compact"') else "yes " * 400
    return [{"type": "text", "text": about}]


def calling(body: Json) -> list[Json]:
    """The same with a call behind it."""
    answer = answering(body)
    use = {"type": "tool_use", "id": f"t{len(body['messages'])}", "name": "look_up", "input": {}}
    return answer if "<summary>" in str(answer) else [*answer, use]


@pytest.mark.real
@pytest.mark.anyio
@pytest.mark.parametrize("calls", [False, True], ids=["answered", "while a tool runs"])
async def test_on_the_wire_preparing_reads_what_the_callers_own_requests_had_cached(
    tmp_path: Path, calls: bool
) -> None:
    anthropic = pytest.importorskip("anthropic")
    from sevenfold.models.anthropic import AnthropicSdk

    tool = {"name": "look_up", "description": "Looks up.", "input_schema": {"type": "object"}}
    events: list[Event] = []
    history: list[Any] = []
    async with (
        Simulator(clock=ManualClock(), replies=calling if calls else answering) as sim,
        anthropic.AsyncAnthropic(base_url=sim.url, api_key="any", max_retries=0) as client,
    ):
        settings = {"flags": {**NO_NOTES, "micro_cost": False}, "autoCompactPercent": 3}
        model = AnthropicSdk(client, "claude-sonnet-5")
        ctx = Context(model, settings=settings, environ={"HOME": str(tmp_path)})
        ctx.subscribe(events.append)
        for n in range(120):
            open = history[-1]["content"][-1] if calls and history else None
            history.append(in_message(result(open.id, "found " * 300)) if open else said(f"item {n}"))
            request = ctx.prepare(history, system=SYSTEM * 5, tools=[tool], max_tokens=500)
            response = await client.messages.create(**request)
            ctx.record(response)
            history.append({"role": "assistant", "content": response.content})
            await ctx.rest()
            if find_last_boundary(ctx.view):
                break
        ctx.close()

    rows = list(sim.ledger.rows)
    [at] = [i for i, row in enumerate(rows) if row.source == "fork:compact"]
    parent, fork = rows[at - 1].tokens, rows[at].tokens
    cached = parent.cache_read + parent.cache_write_5m
    assert cached > 20_000
    assert fork.cache_read >= 0.99 * cached
    [event] = [event for event in events if isinstance(event, Compacted)]
    assert event.trigger == "ahead"
    assert not [event for event in events if isinstance(event, Notice)]


# --- a name ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "name", "percent"), [("anthropic", "claude-sonnet-5", 1), ("openai", "gpt-4o", 10)]
)
def test_a_name_whose_key_is_set_is_asked_at_rest_and_the_connection_is_closed(
    tmp_path: Path, format: Any, name: str, percent: int
) -> None:
    with run_in_thread(clock=ManualClock(), replies=answering) as sim:
        urls = {"ANTHROPIC_BASE_URL": sim.url, "OPENAI_BASE_URL": f"{sim.url}/v1"}
        keys = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}
        settings = {"flags": NO_NOTES, "autoCompactPercent": percent}
        environ = {"HOME": str(tmp_path), **urls, **keys}
        ctx = Context(name, format=format, settings=settings, environ=environ)
        history: list[Json] = []
        for n in range(40):
            history.append({"role": "user", "content": f"item {n}: " + "w " * 800})
            ctx.prepare(history, system=SYSTEM)
            ctx.record(Reply(assistant(Text("yes " * 200)), Usage(input=1_000 * (n + 1))))
            history.append({"role": "assistant", "content": "yes " * 200})
            ctx.rest_sync()
            if sim.ledger.rows:
                break
        ctx.close()
        rows = list(sim.ledger.rows)

    assert rows, "the summary was asked for by the model of this name"


def test_a_name_without_its_key_says_once_why_nobody_is_asked(tmp_path: Path) -> None:
    loop = Loop(tmp_path, "claude-sonnet-4-5")
    for n in range(3):
        loop.step(f"item {n}")
        loop.ctx.rest_sync()

    [notice] = loop.of(Notice)
    assert notice.text == (
        "rest() asks nobody: claude-sonnet-4-5 needs a key: set ANTHROPIC_API_KEY, "
        "or use the model 'offline'"
    )
