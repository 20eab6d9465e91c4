"""Message threads: the simulator holds a conversation, and the client sends what is new."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulator.wire import MODEL, SMALL, Json, api, assistant, body, refusal, result, split, text, use, user

from sevenfold.simulator import Api, ApiOutcome, ManualClock, Simulator, parse_steps, run_in_thread

anthropic = pytest.importorskip("anthropic")

BETA = "message-threads-2026-08-12"
HEADERS = {"x-api-key": "any", "anthropic-beta": BETA}
CREATE: Json = {"type": "create"}


def continuing(id: str) -> Json:
    return {"type": "continue", "previous_message_id": id}


def create(sim: Api, *messages: Json, **more: Any) -> str:
    outcome = sim.answer(body(*messages, thread=CREATE, **more), HEADERS)
    assert outcome.status == 200, outcome.body
    return str(outcome.body["id"])


def go_on(sim: Api, id: str, *messages: Json, **more: Any) -> ApiOutcome:
    return sim.answer(body(*messages, thread=continuing(id), **more), HEADERS)


def code(outcome: ApiOutcome) -> str:
    return str(outcome.body["error"]["details"]["error_code"])


def test_a_thread_is_continued_with_the_new_messages_alone() -> None:
    seen: list[Json] = []

    def replies(asked: Json) -> str:
        seen.append(asked)
        return f"reply {len(seen)}"

    sim, _ = api(replies=replies)
    tools = [{"name": "Read", "input_schema": {"type": "object"}}]
    first = create(sim, user("one"), system="Be brief.", tools=tools)
    second = go_on(sim, first, user("two"))
    assert second.status == 200
    assert seen[1]["messages"] == [user("one"), assistant("reply 1"), user("two")]
    assert (seen[1]["system"], seen[1]["tools"]) == ("Be brief.", tools)
    assert [row.thread for row in sim.ledger.rows] == ["create", "continue"]
    assert sim.threads.find_conversation(second.body["id"]) == [
        user("one"), assistant("reply 1"), user("two"), assistant("reply 2"),
    ]  # fmt: skip


def test_the_cache_works_as_without_a_thread() -> None:
    sim, _ = api()
    first = create(sim, user(text(2_000, mark=SMALL)), system=[text(1_500, "s", SMALL)])
    second = go_on(sim, first, user(text(10, "b", SMALL)))
    plain, written, read = split(second)
    assert (plain, read) == (0, 3_500)
    assert written > 0
    assert sim.ledger[1].breakpoints == 2


def test_a_thread_expires_five_minutes_after_its_last_request() -> None:
    sim, clock = api()
    first = create(sim, user("one"))
    clock.advance(299)
    second = go_on(sim, first, user("two")).body["id"]
    clock.advance(300)
    third = go_on(sim, second, user("three")).body["id"]
    clock.advance(301)
    late = go_on(sim, third, user("four"))
    assert (late.status, code(late)) == (404, "thread_not_found")
    assert late.body["error"]["type"] == "not_found_error"
    create(sim, user("another"))
    assert len(sim.threads) == 1


def test_a_response_is_continued_once() -> None:
    sim, _ = api()
    first = create(sim, user("one"))
    assert go_on(sim, first, user("two")).status == 200
    again = go_on(sim, first, user("another two"))
    assert (again.status, code(again)) == (400, "thread_already_continued")


def test_the_thread_of_another_key_is_not_found() -> None:
    sim, _ = api()
    first = create(sim, user("one"))
    asked = body(user("two"), thread=continuing(first))
    outcome = sim.answer(asked, {**HEADERS, "x-api-key": "another"})
    assert code(outcome) == "thread_not_found"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("system", "Another prompt."),
        ("tools", [{"name": "Write", "input_schema": {"type": "object"}}]),
        ("model", "claude-haiku-4-5"),
        ("thinking", {"type": "enabled", "budget_tokens": 2_000}),
        ("tool_choice", {"type": "any"}),
    ],
)
def test_a_field_that_must_stay_the_same_is_named(name: str, value: Any) -> None:
    sim, _ = api()
    tools = [{"name": "Read", "input_schema": {"type": "object"}}]
    first = create(sim, user("one"), system="A prompt.", tools=tools)
    outcome = go_on(sim, first, user("two"), **{name: value}, max_tokens=3_000)
    assert code(outcome) == "thread_fingerprint_mismatch"
    assert refusal(outcome).split("field(s): ")[1].startswith(name + ".")
    assert go_on(sim, first, user("two"), system="A prompt.", tools=tools).status == 200


def test_another_set_of_betas_is_a_mismatch() -> None:
    sim, _ = api()
    first = create(sim, user("one"))
    betas = {**HEADERS, "anthropic-beta": f"{BETA},another-2026-01-01"}
    outcome = sim.answer(body(user("two"), thread=continuing(first)), betas)
    assert "anthropic-beta" in refusal(outcome)


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({"context_management": {"edits": [{"type": "compact_20260112"}]}}, ["context_management"]),
        ({"fallbacks": [{"model": MODEL}]}, ["fallbacks"]),
    ],
)
def test_unsupported_requests_are_named(more: Json, names: list[str]) -> None:
    sim, _ = api()
    outcome = sim.answer(body(user("one"), thread=CREATE, **more), HEADERS)
    assert code(outcome) == "thread_unsupported_request"
    assert outcome.body["error"]["details"]["unsupported"] == names


@pytest.mark.parametrize(
    ("thread", "said"),
    [
        ("create", "thread: Input should be a valid dictionary"),
        ({}, "thread.type: Input should be 'create' or 'continue'"),
        ({"type": "resume"}, "thread.type: Input should be 'create' or 'continue'"),
        ({"type": "continue"}, "thread.continue.previous_message_id: Field required"),
        (continuing(7), "thread.continue.previous_message_id: Input should be a valid string"),  # type: ignore[arg-type]
        ({"type": "create", "id": "x"}, "thread.create.id: Extra inputs are not permitted"),
    ],
)
def test_broken_thread_fields(thread: Any, said: str) -> None:
    sim, _ = api()
    assert refusal(sim.answer(body(user("one"), thread=thread), HEADERS)) == said


def test_the_beta_is_needed_and_null_is_no_thread() -> None:
    sim, _ = api()
    outcome = sim.answer(body(user("one"), thread=CREATE))
    assert refusal(outcome) == "thread: Extra inputs are not permitted"
    assert sim.answer(body(user("one"), thread=None)).status == 200


def test_messages_of_a_continuation_are_checked_with_what_is_held() -> None:
    sim, _ = api(replies=lambda asked: [use("t1")])
    first = create(sim, user("one"))
    assert "without `tool_result`" in refusal(go_on(sim, first, user("two")))
    assert refusal(sim.answer(body(thread=continuing(first), messages=3), HEADERS)).startswith("messages:")
    assert go_on(sim, first, user(result("t1"))).status == 200  # a refusal used nothing up


def test_a_failed_reply_leaves_the_thread_as_it_was() -> None:
    sim, _ = api()
    first = create(sim, user("one"))
    sim.script.extend(parse_steps('{"error": 529}'))
    assert go_on(sim, first, user("two")).status == 529

    def fail(asked: Json) -> str:
        raise LookupError("no reply")

    good, sim.replies = sim.replies, fail
    with pytest.raises(LookupError):
        go_on(sim, first, user("two"))
    sim.replies = good
    assert go_on(sim, first, user("two")).status == 200


def test_two_continuations_at_once() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def replies(asked: Json) -> str:
        if len(asked["messages"]) > 1:
            begun.set()
            await may_end.wait()
        return "done"

    async def ask_twice() -> None:
        async with (
            Simulator(clock=ManualClock(), replies=replies) as sim,
            anthropic.AsyncAnthropic(base_url=sim.url, api_key="any", max_retries=0) as client,
        ):
            ask = client.beta.messages.create
            common: Json = {"model": MODEL, "max_tokens": 100, "messages": [user("hi")], "betas": [BETA]}
            first = await ask(**common, thread=CREATE)
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: ask(**common, thread=continuing(first.id)))
                await begun.wait()
                with pytest.raises(anthropic.BadRequestError) as refused:
                    await ask(**common, thread=continuing(first.id))
                may_end.set()
            assert "thread_continue_in_flight" in str(refused.value.body)

    asyncio.run(ask_twice())


MESSAGES = st.lists(
    st.one_of(
        st.text(min_size=1).filter(str.strip).map(user),
        st.text(min_size=1).filter(str.strip).map(lambda said: {"role": "user", "content": said}),
        st.lists(st.text("ab", min_size=1), min_size=1, max_size=3).map(lambda said: user(*said)),
    ),
    min_size=1,
    max_size=8,
)


@given(MESSAGES, st.lists(st.booleans(), min_size=8, max_size=8))
def test_the_conversation_rebuilt_from_deltas_is_the_whole_history(
    said: list[Json], news: list[bool]
) -> None:
    sim, _ = api()
    history: list[Json] = []
    sent, id = 0, ""
    for message, is_new in zip(said, news, strict=False):
        history.append(message)
        thread = CREATE if is_new or not id else continuing(id)
        outcome = sim.answer(
            body(thread=thread) | {"messages": history[0 if thread is CREATE else sent :]}, HEADERS
        )
        id = outcome.body["id"]
        history.append({"role": "assistant", "content": outcome.body["content"]})
        sent = len(history)
        assert sim.threads.find_conversation(id) == history


# --- the official SDK with its defaults ------------------------------------------------------------------

CALL = '{"reply": {"content": [{"type": "tool_use", "name": "weigh", "input": {"thing": "a stone"}}]}}'


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with run_in_thread(clock=ManualClock()) as simulator:
        yield simulator


@pytest.fixture
def client(sim: Simulator) -> Iterator[Any]:
    with anthropic.Anthropic(base_url=sim.url, api_key="any", max_retries=0) as made:
        yield made


def run_tools(client: Any, **more: Any) -> list[Any]:
    @anthropic.beta_tool  # type: ignore[untyped-decorator]
    def weigh(thing: str) -> str:
        """Weigh a thing."""
        return f"{thing} weighs 3 kg"

    runner = client.beta.messages.tool_runner(
        model=MODEL, max_tokens=500, tools=[weigh], messages=[{"role": "user", "content": "Go."}], **more
    )
    return list(runner)


def test_the_tool_runner_with_its_defaults(client: Any, sim: Simulator) -> None:
    sim.api.script.extend(parse_steps(f"{CALL}\n{CALL}\n" + '{"reply": {"text": "Heavy."}}'))
    replies = run_tools(client, system="Weigh things.")
    assert replies[-1].content[0].text == "Heavy."
    assert [row.thread for row in sim.ledger.rows] == ["create", "continue", "continue"]
    held = sim.api.threads.find_conversation(replies[-1].id)
    assert [message["role"] for message in held] == ["user", "assistant"] * 3
    assert held[2]["content"][0]["content"] == "a stone weighs 3 kg"


def test_the_streaming_tool_runner_with_its_defaults(client: Any, sim: Simulator) -> None:
    sim.api.script.extend(parse_steps(f"{CALL}\n{CALL}\n" + '{"reply": {"text": "Heavy."}}'))
    replies = [stream.get_final_message() for stream in run_tools(client, stream=True)]
    assert replies[-1].content[0].text == "Heavy."
    assert [row.thread for row in sim.ledger.rows] == ["create", "continue", "continue"]


def test_the_ledger_counts_the_bytes_that_were_received(client: Any, sim: Simulator) -> None:
    long = "A long system prompt. " * 500
    for more in ({}, {"thread": False}):
        sim.api.script.extend(parse_steps("\n".join([CALL] * 5)))
        run_tools(client, system=long, **more)
    with_threads, without = (
        sum(r.received_bytes for r in list(sim.ledger.rows)[i : i + 6]) for i in (0, 6)
    )
    assert len(sim.ledger) == 12
    assert with_threads < len(long) + 6 * 600 < 5 * len(long) < without
    assert sim.ledger.total.received_bytes == with_threads + without


def test_the_helper_replays_a_thread_that_expired(client: Any, sim: Simulator) -> None:
    thread = client.beta.messages.thread(model=MODEL, max_tokens=100, system="Be brief.")
    thread.send({"role": "user", "content": "one"})
    sim.api.clock.advance(301)  # type: ignore[attr-defined]
    last = thread.send({"role": "user", "content": "two"})
    rows = [(row.status, row.thread) for row in sim.ledger.rows]
    assert rows == [(200, "create"), (404, None), (200, "create")]
    held = sim.api.threads.find_conversation(last.id)
    assert [m["role"] for m in held] == ["user", "assistant", "user", "assistant"]


def test_the_tool_runner_survives_an_expired_thread(client: Any, sim: Simulator) -> None:
    sim.api.script.extend(parse_steps(f"{CALL}\n{CALL}\n" + '{"reply": {"text": "Heavy."}}'))

    @anthropic.beta_tool  # type: ignore[untyped-decorator]
    def weigh(thing: str) -> str:
        """Weigh a thing, which takes its time."""
        sim.api.clock.advance(301)  # type: ignore[attr-defined]
        return "3 kg"

    runner = client.beta.messages.tool_runner(
        model=MODEL, max_tokens=500, tools=[weigh], messages=[{"role": "user", "content": "Go."}]
    )
    assert list(runner)[-1].content[0].text == "Heavy."
    assert [row.status for row in sim.ledger.rows] == [200, 404, 200, 404, 200]


def test_two_continuations_of_one_response_through_the_sdk(client: Any, sim: Simulator) -> None:
    common: Json = {"model": MODEL, "max_tokens": 100, "betas": [BETA]}
    first = client.beta.messages.create(**common, messages=[user("one")], thread=CREATE)
    client.beta.messages.create(**common, messages=[user("two")], thread=continuing(first.id))
    with pytest.raises(anthropic.BadRequestError) as refused:
        client.beta.messages.create(**common, messages=[user("two")], thread=continuing(first.id))
    assert refused.value.body["error"]["details"] == {"error_code": "thread_already_continued"}


def test_another_system_prompt_through_the_sdk(client: Any, sim: Simulator) -> None:
    common: Json = {"model": MODEL, "max_tokens": 100, "betas": [BETA]}
    first = client.beta.messages.create(**common, messages=[user("one")], system="A.", thread=CREATE)
    with pytest.raises(anthropic.BadRequestError, match=r"field\(s\): system"):
        client.beta.messages.create(
            **common, messages=[user("two")], system="B.", thread=continuing(first.id)
        )
