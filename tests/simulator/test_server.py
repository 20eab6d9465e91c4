"""The simulator over HTTP: routes, streams, the clock, and the faults a script asks for."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx
import pytest
from simulator.wire import SMALL, body, text, user

from sevenfold.core.errors import Mistake, ScriptError
from sevenfold.simulator import ManualClock, Simulator

pytestmark = pytest.mark.anyio
KEY = {"x-api-key": "k"}


@pytest.fixture
async def sim() -> AsyncIterator[Simulator]:
    async with Simulator(clock=ManualClock()) as running:
        yield running


@pytest.fixture
async def client(sim: Simulator) -> AsyncIterator[httpx.AsyncClient]:
    headers = {**KEY, "x-sevenfold-token": sim.token}
    async with httpx.AsyncClient(base_url=sim.url, headers=headers, trust_env=False) as http:
        yield http


async def scripted(client: httpx.AsyncClient, *items: dict[str, Any], **more: Any) -> None:
    response = await client.post("/sevenfold/script", json={"items": list(items), **more})
    assert response.status_code == 200, response.text


def events(raw: str) -> list[tuple[str, dict[str, Any]]]:
    out = []
    for chunk in raw.strip().split("\n\n"):
        name, data = chunk.split("\n")
        out.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return out


async def test_it_listens_on_this_machine_only(sim: Simulator) -> None:
    assert sim.url.startswith("http://127.0.0.1:")


async def test_it_says_that_it_is_well(client: httpx.AsyncClient) -> None:
    assert (await client.get("/")).json()["name"] == "sevenfold simulator"
    assert (await client.head("/")).status_code == 200


async def test_a_message_is_answered(client: httpx.AsyncClient) -> None:
    response = await client.post("/v1/messages?beta=true", json=body(user("hello")))
    assert response.status_code == 200
    assert response.headers["request-id"] == "req_sim_000001"
    assert response.json()["content"][0]["text"] == "You said: hello"


async def test_a_stream_has_the_events_of_the_messages_api_in_their_order(
    client: httpx.AsyncClient,
) -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "let me see, this takes a moment"},
        {"type": "text", "text": "I will look into the folder now."},
        {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls", "n": 1}},
    ]
    await scripted(client, {"reply": {"content": blocks}})
    response = await client.post("/v1/messages", json=body(user("go"), stream=True))
    assert response.headers["content-type"].startswith("text/event-stream")
    stream = events(response.text)
    assert all(name == data["type"] for name, data in stream)
    assert [name for name, _ in stream[:3]] == ["message_start", "ping", "content_block_start"]
    assert [name for name, _ in stream[-3:]] == ["content_block_stop", "message_delta", "message_stop"]
    thinking, said, call = assembled(stream)
    assert thinking.pop("signature").startswith("sim-")
    assert [thinking, said, call] == blocks
    start, end = stream[0][1]["message"], stream[-2][1]
    assert start["content"] == []
    assert start["stop_reason"] is None
    assert end["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert end["usage"]["output_tokens"] > start["usage"]["output_tokens"]


def assembled(stream: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """What a client puts together from the events."""
    blocks: list[dict[str, Any]] = []
    partial = ""
    for name, data in stream:
        if name == "content_block_start":
            assert data["index"] == len(blocks)
            blocks.append(data["content_block"])
            partial = ""
        elif name == "content_block_delta":
            delta = data["delta"]
            for kind, key in (("text", "text"), ("thinking", "thinking"), ("signature", "signature")):
                if delta["type"] == f"{kind}_delta":
                    blocks[-1][key] += delta[key]
            if delta["type"] == "input_json_delta":
                partial += delta["partial_json"]
        elif name == "content_block_stop" and partial:
            blocks[-1]["input"] = json.loads(partial)
    return blocks


async def test_a_stream_and_a_plain_answer_share_one_cache(client: httpx.AsyncClient) -> None:
    request = body(user(text(2_000, mark=SMALL)))
    await client.post("/v1/messages", json={**request, "stream": True})
    usage = (await client.post("/v1/messages", json=request)).json()["usage"]
    assert usage["cache_read_input_tokens"] == 2_000


async def test_applied_edits_come_with_the_last_delta_of_a_stream(client: httpx.AsyncClient) -> None:
    request = body(user("a"), stream=True, context_management={"edits": []})
    stream = events((await client.post("/v1/messages", json=request)).text)
    assert stream[-2][1]["context_management"] == {"applied_edits": []}
    assert "context_management" not in stream[0][1]["message"]


async def test_the_clock_can_be_driven_from_outside(client: httpx.AsyncClient) -> None:
    request = body(user(text(2_000, mark=SMALL)))
    await client.post("/v1/messages", json=request)
    before = (await client.get("/sevenfold/clock")).json()
    moved = (await client.post("/sevenfold/clock", json={"advance": 301})).json()
    assert (moved["now"] - before["now"], moved["manual"]) == (301, True)
    usage = (await client.post("/v1/messages", json=request)).json()["usage"]
    assert usage["cache_read_input_tokens"] == 0


async def test_a_real_clock_cannot_be_driven() -> None:
    async with Simulator(token="t") as sim, httpx.AsyncClient(base_url=sim.url, trust_env=False) as client:
        response = await client.post(
            "/sevenfold/clock", json={"advance": 1}, headers={"x-sevenfold-token": "t"}
        )
    assert response.status_code == 409
    assert "Start the simulator with a manual clock" in response.text


@pytest.mark.parametrize("asked", [{}, {"advance": "a"}, {"advance": -1}, []])
async def test_the_clock_takes_seconds_only(client: httpx.AsyncClient, asked: Any) -> None:
    assert (await client.post("/sevenfold/clock", json=asked)).status_code == 400


async def test_the_ledger_is_there_to_read(client: httpx.AsyncClient) -> None:
    await client.post("/v1/messages", json=body(user("a")), headers={"x-sevenfold-source": "notes"})
    ledger = (await client.get("/sevenfold/ledger")).json()
    assert [row["source"] for row in ledger["requests"]] == ["notes"]
    assert ledger["total"]["requests"] == 1


async def test_a_script_can_be_extended_and_replaced(client: httpx.AsyncClient) -> None:
    await scripted(client, {"error": 500}, {"error": 529})
    assert (await client.post("/v1/messages", json=body(user("a")))).status_code == 500
    await scripted(client, {"reply": {"text": "new"}}, replace=True)
    assert (await client.post("/v1/messages", json=body(user("a")))).json()["content"][0]["text"] == "new"
    wrong = await client.post("/sevenfold/script", json={"items": [{"error": 500}, {"x": 1}]})
    assert wrong.status_code == 400
    assert "step 2: Object contains unknown field `x`" in wrong.text


async def test_tokens_are_counted(client: httpx.AsyncClient) -> None:
    request = {"model": "m", "messages": [user(text(123))]}
    response = await client.post("/v1/messages/count_tokens", json=request)
    assert response.json() == {"input_tokens": 123}


async def test_models_are_listed_page_by_page(client: httpx.AsyncClient) -> None:
    first = (await client.get("/v1/models?limit=2")).json()
    assert (len(first["data"]), first["has_more"]) == (2, True)
    second = (await client.get(f"/v1/models?limit=1000&after_id={first['last_id']}")).json()
    assert second["has_more"] is False
    assert first["last_id"] not in [m["id"] for m in second["data"]]
    one = (await client.get("/v1/models/claude-opus-4-5-20251101")).json()
    assert (one["max_input_tokens"], one["max_tokens"]) == (200_000, 64_000)
    assert (await client.get("/v1/models/unknown-model")).status_code == 404
    assert (await client.get("/v1/models?limit=0")).status_code == 400


async def test_a_client_that_wants_a_websocket_is_told_to_use_http(client: httpx.AsyncClient) -> None:
    asked = await client.get("/v1/responses", headers={"connection": "Upgrade", "upgrade": "websocket"})
    assert asked.status_code == 426
    assert (await client.get("/v1/models")).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/nothing", 404), ("GET", "/v1/messages", 405), ("DELETE", "/sevenfold/ledger", 405)],
)
async def test_other_addresses_and_methods_are_refused(
    client: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    response = await client.request(method, path)
    assert response.status_code == status
    assert response.json()["type"] == "error"


async def test_a_body_that_is_not_json_is_refused_and_in_the_ledger(
    client: httpx.AsyncClient, sim: Simulator
) -> None:
    response = await client.post("/v1/messages", content=b"{oops")
    assert response.status_code == 400
    assert "not valid JSON" in response.json()["error"]["message"]
    assert sim.ledger[-1].status == 400


async def test_a_body_over_32_megabytes_is_too_large(client: httpx.AsyncClient, sim: Simulator) -> None:
    response = await client.post("/v1/messages", content=b" " * (32 * 1024 * 1024 + 1))
    assert response.status_code == 413
    assert response.json()["error"]["type"] == "request_too_large"
    assert sim.ledger[-1].status == 413
    assert (await client.get("/")).status_code == 200


async def test_bytes_that_are_not_http_are_told_so(sim: Simulator) -> None:
    async with await anyio.connect_tcp("127.0.0.1", sim.port) as stream:
        await stream.send(b"hello there\r\n\r\n")
        assert b"400" in await stream.receive()


@pytest.mark.parametrize("target", ["//[", "//[::1", "http://[x", "//[/v1/messages?a=b"])
async def test_an_address_that_cannot_be_read_is_told_so_and_harms_nobody(
    sim: Simulator, client: httpx.AsyncClient, target: str
) -> None:
    async with await anyio.connect_tcp("127.0.0.1", sim.port) as stream:
        await stream.send(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert (await stream.receive()).startswith(b"HTTP/1.1 400")

    assert (await client.post("/v1/messages", json=body(user("a")))).status_code == 200


async def test_a_client_that_waits_for_leave_to_send_gets_it(sim: Simulator) -> None:
    raw = json.dumps(body(user("a"))).encode()
    head = (
        "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nx-api-key: k\r\nExpect: 100-continue\r\n"
        f"Content-Length: {len(raw)}\r\n\r\n"
    )
    async with await anyio.connect_tcp("127.0.0.1", sim.port) as stream:
        await stream.send(head.encode())
        assert (await stream.receive()).startswith(b"HTTP/1.1 100")
        await stream.send(raw)
        assert (await stream.receive()).startswith(b"HTTP/1.1 200")


# --- faults ----------------------------------------------------------------------------------------------


async def test_a_rate_limit_says_when_to_come_back(client: httpx.AsyncClient) -> None:
    await scripted(client, {"error": {"status": 429, "retry_after": 7}})
    response = await client.post("/v1/messages", json=body(user("a")))
    assert (response.status_code, response.headers["retry-after"]) == (429, "7")


async def test_a_stream_can_be_cut_after_so_many_events(client: httpx.AsyncClient, sim: Simulator) -> None:
    await scripted(client, {"cut": {"after_events": 3}})
    raw = ""

    async def read() -> None:
        nonlocal raw
        async with client.stream("POST", "/v1/messages", json=body(user("a"), stream=True)) as got:
            async for part in got.aiter_text():
                raw += part

    with pytest.raises(httpx.RemoteProtocolError):
        await read()
    assert [name for name, _ in events(raw)] == ["message_start", "ping", "content_block_start"]
    assert (sim.ledger[-1].status, sim.ledger[-1].fault) == (200, "cut")


@pytest.mark.parametrize("after", [0, 1])
async def test_a_plain_answer_can_be_cut(client: httpx.AsyncClient, after: int) -> None:
    await scripted(client, {"cut": {"after_events": after}})
    with pytest.raises(httpx.RemoteProtocolError):
        await client.post("/v1/messages", json=body(user("a")))
    assert (await client.post("/v1/messages", json=body(user("a")))).status_code == 200


async def test_an_answer_can_be_malformed(client: httpx.AsyncClient) -> None:
    await scripted(client, {"malformed": True}, {"malformed": {"after_events": 2}})
    plain = await client.post("/v1/messages", json=body(user("a")))
    assert plain.status_code == 200
    with pytest.raises(json.JSONDecodeError):
        plain.json()
    stream = await client.post("/v1/messages", json=body(user("a"), stream=True))
    assert stream.text.startswith("event: message_start")
    with pytest.raises(json.JSONDecodeError):
        events(stream.text)


async def test_a_stream_can_end_in_an_error_event(client: httpx.AsyncClient) -> None:
    await scripted(client, {"error": {"status": 529, "after_events": 2}})
    stream = events((await client.post("/v1/messages", json=body(user("a"), stream=True))).text)
    assert [name for name, _ in stream] == ["message_start", "ping", "error"]
    assert stream[-1][1]["error"]["type"] == "overloaded_error"


@pytest.mark.parametrize("hang", [True, {"after_events": 2}])
async def test_an_answer_can_hang_until_the_client_goes_away(
    client: httpx.AsyncClient, sim: Simulator, hang: Any
) -> None:
    await scripted(client, {"hang": hang})
    with pytest.raises(httpx.ReadTimeout):
        await client.post("/v1/messages", json=body(user("a"), stream=True), timeout=0.2)
    for _ in range(1_000):
        if len(sim.ledger):
            break
        await anyio.sleep(0.01)
    assert sim.ledger[-1].status == (499 if hang is True else 200)
    assert (await client.post("/v1/messages", json=body(user("a")))).status_code == 200


async def test_a_slow_answer_arrives_whole(client: httpx.AsyncClient, sim: Simulator) -> None:
    await scripted(client, {"slow": {"first_byte_ms": 5, "chunk_delay_ms": 1}})
    stream = events((await client.post("/v1/messages", json=body(user("a"), stream=True))).text)
    assert stream[-1][0] == "message_stop"
    assert sim.ledger[-1].fault == "slow"


async def test_a_client_that_leaves_in_the_middle_of_a_stream_does_no_harm(
    client: httpx.AsyncClient, sim: Simulator
) -> None:
    await scripted(client, {"reply": {"text": "word " * 400}, "slow": {"chunk_delay_ms": 1}})
    request = body(user("a"), stream=True, max_tokens=1_000)
    async with client.stream("POST", "/v1/messages", json=request) as response:
        await anext(response.aiter_bytes())
    assert (await client.post("/v1/messages", json=body(user("b")))).status_code == 200


async def test_two_requests_at_once_both_write_because_neither_has_begun(
    client: httpx.AsyncClient, sim: Simulator
) -> None:
    both = anyio.Event()
    arrived = 0

    async def wait_for_the_other(_: Any) -> str:
        nonlocal arrived
        arrived += 1
        if arrived == 2:
            both.set()
        await both.wait()
        return "done"

    sim.api.replies = wait_for_the_other
    request = body(user(text(2_000, mark=SMALL)))
    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(lambda: client.post("/v1/messages", json=request))
    assert [row.tokens.cache_write_5m for row in sim.ledger.rows] == [2_000, 2_000]


# --- life ------------------------------------------------------------------------------------------------


async def test_an_error_in_the_callers_block_passes_as_it_is() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with Simulator(clock=ManualClock()):
            raise KeyError("mine")


async def test_a_port_that_is_taken_is_named(sim: Simulator) -> None:
    with pytest.raises(Mistake, match=f"cannot listen on 127.0.0.1:{sim.port}"):
        async with Simulator(port=sim.port):
            pass


async def test_serving_says_where_and_lasts_until_it_is_cancelled() -> None:
    addresses: list[str] = []

    async with anyio.create_task_group() as group:

        def ready(url: str) -> None:
            addresses.append(url)
            group.cancel_scope.cancel()

        group.start_soon(Simulator(clock=ManualClock()).serve, ready)
    assert addresses[0].startswith("http://127.0.0.1:")


async def test_a_model_that_fails_on_purpose_is_an_error_of_the_api(
    client: httpx.AsyncClient, sim: Simulator
) -> None:
    def broken(_: Any) -> str:
        raise ScriptError("the script is used up")

    sim.api.replies = broken
    response = await client.post("/v1/messages", json=body(user("a")))
    assert response.status_code == 500
    assert "the script is used up" in response.text
    assert sim.ledger[-1].status == 500
