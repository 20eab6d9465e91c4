"""The official anthropic SDK against the simulator: everything it does, and every error it knows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from sevenfold.simulator import ManualClock, Simulator, parse_steps, run_in_thread

anthropic = pytest.importorskip("anthropic")
pytestmark = pytest.mark.real

MODEL = "claude-opus-5-5"
HELLO: Any = [{"role": "user", "content": "hello"}]
WEATHER: Any = {
    "name": "get_weather",
    "description": "The weather in a place.",
    "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}},
}
LONG = "x" * 8_000


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with run_in_thread(clock=ManualClock()) as simulator:
        yield simulator


@pytest.fixture
def client(sim: Simulator) -> Iterator[Any]:
    with anthropic.Anthropic(base_url=sim.url, api_key="any", max_retries=0) as made:
        yield made


def script(sim: Simulator, *lines: str) -> None:
    sim.api.script.extend(parse_steps("\n".join(lines)))


def test_create(client: Any) -> None:
    message = client.messages.create(model=MODEL, max_tokens=100, messages=HELLO)
    assert message.content[0].text == "You said: hello"
    assert (message.stop_reason, message.usage.input_tokens) == ("end_turn", 2)
    assert message._request_id == "req_sim_000001"


def test_create_with_raw_events(client: Any) -> None:
    stream = client.messages.create(model=MODEL, max_tokens=100, messages=HELLO, stream=True)
    kinds = [event.type for event in stream]
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"


def test_stream(client: Any) -> None:
    with client.messages.stream(model=MODEL, max_tokens=100, messages=HELLO) as stream:
        assert "".join(stream.text_stream) == "You said: hello"
        final = stream.get_final_message()
    assert final.stop_reason == "end_turn"
    assert final.usage.output_tokens == 4


def test_a_tool_round(client: Any, sim: Simulator) -> None:
    script(
        sim,
        '{"reply": {"thinking": "where?", "content":'
        ' [{"type": "tool_use", "name": "get_weather", "input": {"place": "Rome"}}]}}',
        '{"reply": {"text": "It is sunny."}}',
    )
    with client.messages.stream(model=MODEL, max_tokens=500, messages=HELLO, tools=[WEATHER]) as stream:
        first = stream.get_final_message()
    assert first.stop_reason == "tool_use"
    thinking, call = first.content
    assert (thinking.thinking, bool(thinking.signature)) == ("where?", True)
    assert (call.name, call.input) == ("get_weather", {"place": "Rome"})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    messages = [
        *HELLO,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    second = client.messages.create(model=MODEL, max_tokens=500, messages=messages, tools=[WEATHER])
    assert second.content[0].text == "It is sunny."


def test_cache_usage(client: Any) -> None:
    def ask() -> Any:
        return client.messages.create(
            model=MODEL,
            max_tokens=100,
            cache_control={"type": "ephemeral", "ttl": "1h"},
            system=LONG,
            messages=HELLO,
        ).usage

    first, second = ask(), ask()
    assert first.cache_creation.ephemeral_1h_input_tokens == 2_002
    assert first.cache_creation_input_tokens == 2_002
    assert (second.cache_read_input_tokens, second.cache_creation_input_tokens) == (2_002, 0)


def test_context_management_and_diagnostics_of_the_beta_client(client: Any) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": LONG}
    edit = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": 100},
        "keep": {"type": "tool_uses", "value": 0},
    }
    message = client.beta.messages.create(
        model=MODEL,
        max_tokens=100,
        betas=["context-management-2025-06-27"],
        context_management={"edits": [edit]},
        diagnostics={"previous_message_id": "msg_nobody"},
        messages=[*HELLO, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}],
    )
    assert message.context_management.applied_edits[0].cleared_tool_uses == 1
    assert message.diagnostics.cache_miss_reason.type == "previous_message_not_found"


def test_count_tokens(client: Any) -> None:
    counted = client.messages.count_tokens(model=MODEL, messages=HELLO, system=LONG)
    assert counted.input_tokens == 2_002


def test_models(client: Any) -> None:
    names = [model.id for model in client.models.list(limit=5)]
    assert MODEL in names
    assert len(names) == len(set(names)) > 20
    assert client.models.retrieve(MODEL).max_tokens == 128_000


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('{"error": 400}', "BadRequestError"),
        ('{"error": 401}', "AuthenticationError"),
        ('{"error": 403}', "PermissionDeniedError"),
        ('{"error": 404}', "NotFoundError"),
        ('{"error": 409}', "ConflictError"),
        ('{"error": 413}', "RequestTooLargeError"),
        ('{"error": 422}', "UnprocessableEntityError"),
        ('{"error": 429}', "RateLimitError"),
        ('{"error": 500}', "InternalServerError"),
        ('{"error": 503}', "ServiceUnavailableError"),
        ('{"error": 504}', "DeadlineExceededError"),
        ('{"error": 529}', "OverloadedError"),
        ('{"cut": {"after_events": 0}}', "APIConnectionError"),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_every_class_of_error(client: Any, sim: Simulator, line: str, error: str, streaming: bool) -> None:
    script(sim, line)
    from anthropic import _exceptions

    with pytest.raises(getattr(_exceptions, error)) as caught:
        client.messages.create(model=MODEL, max_tokens=9, messages=HELLO, stream=streaming)
    assert isinstance(caught.value, anthropic.APIError)
    assert client.messages.create(model=MODEL, max_tokens=9, messages=HELLO).type == "message"


def test_the_errors_that_need_no_script(client: Any, sim: Simulator) -> None:
    def ask(**more: Any) -> Any:
        return client.messages.create(**{"model": MODEL, "max_tokens": 9, "messages": HELLO, **more})

    with pytest.raises(anthropic.BadRequestError, match="at least one message"):
        ask(messages=[])
    with pytest.raises(anthropic.NotFoundError, match="model: unknown-1"):
        ask(model="unknown-1")
    with pytest.raises(anthropic.APIStatusError) as caught:
        ask(messages=[{"role": "user", "content": "x" * (33 * 1024 * 1024)}])
    assert caught.value.status_code == 413
    with (
        anthropic.Anthropic(base_url=sim.url, api_key="sk-wrong", max_retries=0) as wrong,
        pytest.raises(anthropic.AuthenticationError, match="invalid x-api-key"),
    ):
        wrong.messages.create(model=MODEL, max_tokens=9, messages=HELLO)


def test_an_error_in_the_middle_of_a_stream(client: Any, sim: Simulator) -> None:
    script(sim, '{"error": {"status": 529, "after_events": 3}}')
    with (
        pytest.raises(anthropic.APIStatusError) as caught,
        client.messages.stream(model=MODEL, max_tokens=9, messages=HELLO) as stream,
    ):
        stream.until_done()
    assert caught.value.body["error"]["type"] == "overloaded_error"


def test_a_stream_cut_in_the_middle_is_an_error_of_its_transport(client: Any, sim: Simulator) -> None:
    script(sim, '{"cut": {"after_events": 4}}')
    seen: list[str] = []
    with pytest.raises(Exception, match="peer closed connection"):
        seen.extend(
            event.type
            for event in client.messages.create(model=MODEL, max_tokens=9, messages=HELLO, stream=True)
        )
    assert seen[0] == "message_start"
    assert sim.ledger[-1].fault == "cut"


def test_the_sdk_tries_again_after_an_overload(sim: Simulator) -> None:
    script(sim, '{"error": {"status": 529, "retry_after": 0.01}}')
    with anthropic.Anthropic(base_url=sim.url, api_key="any", max_retries=1) as client:
        message = client.messages.create(model=MODEL, max_tokens=9, messages=HELLO)
    assert message.content[0].text.startswith("You said")
    assert [row.status for row in sim.ledger.rows] == [529, 200]


# --- the asynchronous client, in the same event loop -----------------------------------------------------


@pytest.fixture
async def loop_sim() -> AsyncIterator[Simulator]:
    async with Simulator(clock=ManualClock()) as simulator:
        yield simulator


@pytest.mark.anyio
async def test_the_asynchronous_client(loop_sim: Simulator) -> None:
    async with anthropic.AsyncAnthropic(base_url=loop_sim.url, api_key="any", max_retries=0) as client:
        message = await client.messages.create(model=MODEL, max_tokens=100, messages=HELLO)
        assert message.content[0].text == "You said: hello"
        async with client.messages.stream(
            model=MODEL, max_tokens=100, messages=HELLO, tools=[WEATHER]
        ) as stream:
            text = "".join([part async for part in stream.text_stream])
        assert text == "You said: hello"
        counted = await client.messages.count_tokens(model=MODEL, messages=HELLO)
        assert counted.input_tokens == 2
        assert MODEL in [model.id async for model in client.models.list()]
        loop_sim.api.script.extend(parse_steps('{"error": 429}\n{"cut": {"after_events": 0}}'))
        with pytest.raises(anthropic.RateLimitError):
            await client.messages.create(model=MODEL, max_tokens=9, messages=HELLO)
        with pytest.raises(anthropic.APIConnectionError):
            await client.messages.create(model=MODEL, max_tokens=9, messages=HELLO)
