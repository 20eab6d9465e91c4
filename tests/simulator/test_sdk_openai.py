"""The official openai SDK against the simulator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sevenfold.simulator import ManualClock, Simulator, parse_steps, run_in_thread

openai = pytest.importorskip("openai")
pytestmark = pytest.mark.real

MODEL = "gpt-4o"
HELLO: Any = [{"role": "user", "content": "hello"}]
WEATHER: Any = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}},
}
CALL = (
    '{"reply": {"text": "Looking.", "content":'
    ' [{"type": "tool_use", "name": "get_weather", "input": {"place": "Rome"}}]}}'
)


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with run_in_thread(clock=ManualClock()) as simulator:
        yield simulator


@pytest.fixture
def client(sim: Simulator) -> Iterator[Any]:
    with openai.OpenAI(base_url=sim.url + "/v1", api_key="any", max_retries=0) as made:
        yield made


def script(sim: Simulator, *lines: str) -> None:
    sim.api.script.extend(parse_steps("\n".join(lines)))


def test_create(client: Any) -> None:
    completion = client.chat.completions.create(model=MODEL, messages=HELLO)
    choice = completion.choices[0]
    assert (choice.message.content, choice.finish_reason) == ("You said: hello", "stop")
    assert completion.usage.total_tokens == 6


def test_stream_with_usage(client: Any) -> None:
    chunks = list(
        client.chat.completions.create(
            model=MODEL, messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "You said: hello"
    assert [c.usage for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].usage.prompt_tokens == 2


def test_stream_without_usage(client: Any) -> None:
    chunks = list(client.chat.completions.create(model=MODEL, messages=HELLO, stream=True))
    assert all(c.choices for c in chunks)
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_a_tool_round(client: Any, sim: Simulator) -> None:
    script(sim, CALL, '{"reply": {"text": "Sunny."}}')
    first = client.chat.completions.create(model=MODEL, messages=HELLO, tools=[WEATHER]).choices[0]
    assert first.finish_reason == "tool_calls"
    call = first.message.tool_calls[0]
    assert json.loads(call.function.arguments) == {"place": "Rome"}
    answer = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    messages = [*HELLO, first.message, answer]
    second = client.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER])
    assert second.choices[0].message.content == "Sunny."


def test_a_streamed_tool_call(client: Any, sim: Simulator) -> None:
    script(sim, CALL)
    with client.chat.completions.stream(model=MODEL, messages=HELLO, tools=[WEATHER]) as stream:
        message = stream.get_final_completion().choices[0].message
    assert message.content == "Looking."
    call = message.tool_calls[0]
    assert (call.id, call.function.name) == ("call_sim_000001", "get_weather")
    assert json.loads(call.function.arguments) == {"place": "Rome"}


def test_cached_tokens(client: Any) -> None:
    long: Any = [{"role": "user", "content": "x" * 8_000}]
    client.chat.completions.create(model=MODEL, messages=long)
    usage = client.chat.completions.create(model=MODEL, messages=long).usage
    assert usage.prompt_tokens_details.cached_tokens == 1_920


def test_models(client: Any) -> None:
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).owned_by == "sevenfold"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('{"error": 400}', "BadRequestError"),
        ('{"error": 401}', "AuthenticationError"),
        ('{"error": 403}', "PermissionDeniedError"),
        ('{"error": 404}', "NotFoundError"),
        ('{"error": 409}', "ConflictError"),
        ('{"error": 422}', "UnprocessableEntityError"),
        ('{"error": 429}', "RateLimitError"),
        ('{"error": 500}', "InternalServerError"),
        ('{"error": 529}', "InternalServerError"),
        ('{"cut": {"after_events": 0}}', "APIConnectionError"),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_every_class_of_error(client: Any, sim: Simulator, line: str, error: str, streaming: bool) -> None:
    script(sim, line)
    with pytest.raises(getattr(openai, error)):
        client.chat.completions.create(model=MODEL, messages=HELLO, stream=streaming)
    assert client.chat.completions.create(model=MODEL, messages=HELLO).object == "chat.completion"


def test_the_errors_that_need_no_script(client: Any, sim: Simulator) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "x" * 600_000}])
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="unknown-1", messages=HELLO)
    assert missing.value.code == "model_not_found"
    with (
        openai.OpenAI(base_url=sim.url + "/v1", api_key="sk-wrong", max_retries=0) as wrong,
        pytest.raises(openai.AuthenticationError) as refused,
    ):
        wrong.chat.completions.create(model=MODEL, messages=HELLO)
    assert refused.value.code == "invalid_api_key"


@pytest.mark.anyio
async def test_the_asynchronous_client() -> None:
    async with (
        Simulator(clock=ManualClock()) as sim,
        openai.AsyncOpenAI(base_url=sim.url + "/v1", api_key="any", max_retries=0) as client,
    ):
        completion = await client.chat.completions.create(model=MODEL, messages=HELLO)
        assert completion.choices[0].message.content == "You said: hello"
        stream = await client.chat.completions.create(model=MODEL, messages=HELLO, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert text == "You said: hello"
