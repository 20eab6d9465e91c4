"""Requests that mean no good: odd bodies, broken HTTP, web pages. The simulator goes on."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx
import pytest
from simulator.wire import SMALL, assistant, body, result, text, use, user

from sevenfold.simulator import ManualClock, Simulator

pytestmark = pytest.mark.anyio
ODD: list[Any] = [None, True, 0, -1, 1.5, 1e308, 10**30, "", "x", "\ud800", [], {}, [[]], [{}], {"type": 1}]
ODD += [{"type": "text"}, {"type": "text", "text": None}, ["x", 1, None], {"a": {"b": []}}, "x" * 2_000]
PATHS = ["/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions", "/sevenfold/script"]
PATHS += [
    "/sevenfold/clock",
    "/v1/responses",
    "/v1/models?limit=x",
    "/v1/models/%00",
    "/",
    "//",
    "/é",
    "*",
    "/sevenfold/ledger",
]
SAMPLES = [
    body(user("hello")),
    body(
        user("hi", text(5, mark=SMALL)),
        assistant(use("t1", a=1)),
        user(result("t1")),
        system="s",
        stream=True,
    ),
    body(
        user("x"),
        tools=[{"name": "T", "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}}}],
        tool_choice={"type": "any"},
        thinking={"type": "enabled", "budget_tokens": 1024},
        context_management={
            "edits": [{"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens"}}]
        },
        diagnostics={"previous_message_id": "msg"},
        metadata={"user_id": "u"},
    ),
    {
        "model": "gpt-x",
        "messages": [{"role": "user", "content": "x"}],
        "stream": True,
        "stream_options": {},
    },
    {
        "model": "gpt-x",
        "messages": [
            {"role": "system", "content": "s"},
            {
                "role": "assistant",
                "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "y"}]},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
        "max_completion_tokens": 5,
    },
    {"items": [{"reply": {"text": "x"}, "match": {"regex": "a"}, "times": 2}], "replace": True},
    {"items": [{"error": {"status": 429, "retry_after": 1}}, {"slow": {"first_byte_ms": 1}}]},
    {"advance": 3},
]
SCHEMA = {
    "type": "object",
    "properties": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, {"type": "null"}]}},
    "required": ["a"],
    "$defs": {"b": {"type": "array", "items": {"enum": ["x"]}, "minItems": 1}},
}
THREADED = [
    body(user("x"), thread={"type": "create"}, system=[text(3)], output_config={"format": None}),
    body(user("x"), thread={"type": "continue", "previous_message_id": "msg_sim_000001"}),
    body(user("x"), output_config={"format": {"type": "json_schema", "schema": SCHEMA}}),
]
RESPONSES = [
    {"model": "gpt-x", "input": "x", "previous_response_id": "resp_sim_000001"},
    {
        "model": "gpt-x",
        "instructions": "i",
        "input": [
            {"role": "developer", "content": "d"},
            {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "e"},
            {"type": "function_call", "call_id": "c", "name": "f", "namespace": "n", "arguments": "{}"},
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": [{"type": "input_text", "text": "y"}],
            },
            {"type": "item_reference", "id": "msg_sim_000001_0"},
        ],
        "tools": [
            {
                "type": "namespace",
                "name": "n",
                "tools": [{"type": "function", "name": "f", "parameters": {}}],
            },
            {"type": "custom", "name": "p", "format": {"type": "text"}},
        ],
        "tool_choice": {"type": "custom", "name": "p"},
        "include": ["reasoning.encrypted_content"],
        "text": {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}},
        "max_output_tokens": 5,
        "stream": True,
    },
]
FITTING: dict[str, list[Any]] = {
    "/v1/messages": [*SAMPLES[:3], *THREADED],
    "/v1/messages/count_tokens": SAMPLES[:3],
    "/v1/chat/completions": SAMPLES[3:5],
    "/v1/responses": RESPONSES,
    "/sevenfold/script": SAMPLES[5:7],
    "/sevenfold/clock": SAMPLES[7:],
}


@pytest.fixture
async def sim() -> AsyncIterator[Simulator]:
    async with Simulator(clock=ManualClock()) as running:
        yield running


def list_places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything inside a value."""
    inside = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [at, *(place for key, item in inside for place in list_places(item, (*at, key)))]


def change(chance: random.Random, sample: Any) -> Any:
    """The same value, with something else at one to three places of it."""
    value = json.loads(json.dumps(sample))
    for _ in range(chance.randint(1, 3)):
        *above, name = chance.choice(list_places(value)[1:] or [("x",)])
        holder = value
        for part in above:
            holder = holder[part]
        if chance.random() < 0.2 and isinstance(holder, dict):
            holder.pop(name, None)
        elif not isinstance(holder, str):
            holder[name] = json.loads(json.dumps(chance.choice(ODD)))
    return value


def make_body(chance: random.Random, path: str) -> bytes:
    kind = chance.random()
    if kind < 0.75:
        fitting = SAMPLES if chance.random() < 0.1 else FITTING.get(path, SAMPLES)
        return json.dumps(change(chance, chance.choice(fitting))).encode()
    if kind < 0.85:
        depth = chance.choice([50, 500, 5_000, 100_000])
        inner = chance.choice(["[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth])
        return json.dumps(SAMPLES[0]).replace('"hello"', inner).encode()
    return bytes(chance.choices(range(256), k=chance.randint(0, 200)))


def make_request(chance: random.Random, token: str) -> bytes:
    path = chance.choice(PATHS[:6] if chance.random() < 0.85 else PATHS)
    sent = make_body(chance, path)
    method = chance.choice(["POST"] * 40 + ["GET", "HEAD", "PUT", "OPTIONS", "FOO"])
    headers = ["host: 127.0.0.1", "x-api-key: k", "connection: close"]
    headers += [f"x-sevenfold-token: {token}"] if chance.random() < 0.9 else []
    headers += chance.choices(
        [
            "anthropic-beta: message-threads-2026-08-12",
            "anthropic-beta: x, y",
            "x-sevenfold-source: \xe9",
            "expect: 100-continue",
            "x-a:",
            "accept: *",
        ],
        k=chance.randint(0, 3),
    )
    if chance.random() < 0.05:
        headers[0] = chance.choice(["host: evil.example", "x-no: host", "host: [", "host: 127.0.0.1:x"])
    length = len(sent) if chance.random() < 0.97 else chance.choice([-1, 0, 3, 10**12, "x"])
    head = [f"{method} {path} HTTP/1.1", *headers, f"content-length: {length}"]
    if chance.random() < 0.03:
        head = ["".join(chance.choices("GET /\r\n:\0é1", k=30))]
    return "\r\n".join([*head, "", ""]).encode("latin-1", "replace") + sent


async def exchange(sim: Simulator, request: bytes) -> bytes:
    """The answer, all of it or as much as comes before a client would lose patience."""
    answer = b""
    with anyio.move_on_after(5):
        async with await anyio.connect_tcp("127.0.0.1", sim.port) as stream:
            try:
                await stream.send(request)
                if b"content-length: 1000000000000" in request or b"HTTP/1.1" not in request:
                    await stream.send_eof()
                while True:
                    answer += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass
    return answer


async def survive(sim: Simulator, count: int) -> Counter[str]:
    chance, seen = random.Random(18), Counter[str]()
    for _ in range(count):
        request = make_request(chance, sim.token)
        answer = await exchange(sim, request)
        found = re.match(rb"HTTP/1\.1 (\d{3})", answer)
        status = found[1].decode() if found else "none"
        seen[status] += 1
        assert b"simulator failed" not in answer, (request.partition(b"\r\n\r\n")[2][:3_000], answer[-300:])
    async with httpx.AsyncClient(base_url=sim.url, headers=headers(sim), trust_env=False) as client:
        await client.post("/sevenfold/script", json={"items": [], "replace": True})
        assert (await client.post("/v1/messages", json=body(user("hello")))).status_code == 200
    return seen


def headers(sim: Simulator) -> dict[str, str]:
    return {"x-api-key": "k", "x-sevenfold-token": sim.token}


async def test_fuzzed_requests_are_survived(sim: Simulator) -> None:
    seen = await survive(sim, 600)

    assert {"200", "400", "403", "404", "405"} <= set(seen)


@pytest.mark.soak
async def test_ten_thousand_fuzzed_requests_are_survived(sim: Simulator) -> None:
    await survive(sim, 10_000)


@pytest.mark.parametrize("depth", [200, 5_000, 100_000])
async def test_a_body_that_is_nested_too_deeply_is_refused(sim: Simulator, depth: int) -> None:
    async with httpx.AsyncClient(base_url=sim.url, headers=headers(sim), trust_env=False) as client:
        for path in PATHS[:4]:
            answer = await client.post(path, content=b"[" * depth + b"]" * depth)
            assert answer.status_code == 400
        assert (await client.post("/v1/messages", json=body(user("hello")))).status_code == 200


@pytest.mark.parametrize(
    "sent",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"host": "evil.example"},
        {"host": "evil.example:80"},
        {"host": "127.0.0.1.evil.example"},
    ],
)
@pytest.mark.parametrize("path", ["/sevenfold/script", "/v1/messages"])
async def test_a_web_page_cannot_talk_to_it(sim: Simulator, path: str, sent: dict[str, str]) -> None:
    """Also not by a name of its own that leads here."""
    async with httpx.AsyncClient(base_url=sim.url, headers=headers(sim), trust_env=False) as client:
        answer = await client.post(path, json={"items": [], **body(user("x"))}, headers=sent)

    assert answer.status_code == 403


async def test_its_own_pages_and_other_names_of_this_machine_are_welcome(sim: Simulator) -> None:
    async with httpx.AsyncClient(base_url=sim.url, headers=headers(sim), trust_env=False) as client:
        for sent in ({"origin": sim.url}, {"host": f"localhost:{sim.port}"}, {"host": "[::1]"}):
            assert (
                await client.post("/v1/messages", json=body(user("x")), headers=sent)
            ).status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/sevenfold/ledger"),
        ("GET", "/sevenfold/clock"),
        ("POST", "/sevenfold/clock"),
        ("POST", "/sevenfold/script"),
    ],
)
@pytest.mark.parametrize("token", [None, "", "wrong", "é"])
async def test_steering_it_needs_its_token(
    sim: Simulator, method: str, path: str, token: str | None
) -> None:
    sent = [] if token is None else [(b"x-sevenfold-token", token.encode())]
    async with httpx.AsyncClient(base_url=sim.url, trust_env=False) as client:
        answer = await client.request(method, path, headers=sent, json={"items": [], "advance": 1})

    assert answer.status_code == 401
    assert "x-sevenfold-token" in answer.text


async def test_the_token_may_be_given_and_is_else_another_each_time() -> None:
    assert Simulator(token="mine").token == "mine"
    assert Simulator().token != Simulator().token


@pytest.mark.parametrize("status", [0, 42, 199, 600, 99_999])
async def test_a_script_cannot_ask_for_a_status_that_is_no_error(sim: Simulator, status: int) -> None:
    async with httpx.AsyncClient(base_url=sim.url, headers=headers(sim), trust_env=False) as client:
        answer = await client.post("/sevenfold/script", json={"items": [{"error": status}]})

    assert answer.status_code == 400
