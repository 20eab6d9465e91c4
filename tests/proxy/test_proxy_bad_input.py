"""Whatever is sent or answered: the client's own bytes go through, or the provider's answer comes back."""

from __future__ import annotations

import json
import resource
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from benchmarks.proxy.scripted import SESSION, Json, ScriptedClient, client_of, proxy_to, script_calls
from sevenfold.core.errors import Mistake
from sevenfold.loopback import HttpAnswer, HttpCall, LoopbackServer
from sevenfold.proxy.server import Proxy
from sevenfold.proxy.upstream import Upstream, check_upstream
from sevenfold.simulator import ManualClock, Simulator, parse_steps

pytestmark = pytest.mark.anyio
KEY = "sk-ant-secret-of-a-user"


class Mirror:
    """A provider that keeps what it was sent."""

    def __init__(self, status: int = 200, body: bytes = b'{"type": "odd"}', **headers: str) -> None:
        self.calls: list[HttpCall] = []
        self.status, self.body, self.headers = status, body, headers or {"content-type": "application/json"}

    async def answer(self, call: HttpCall) -> HttpAnswer:
        size = len(call.body)
        if call.rest is not None:
            async for chunk in call.rest:
                size += len(chunk)
        self.calls.append(call)
        return HttpAnswer(self.status, {**self.headers, "x-size": str(size)}, self.body)


@asynccontextmanager
async def mirrored(folder: Path, mirror: Mirror) -> AsyncIterator[tuple[Proxy, ScriptedClient, list[str]]]:
    log: list[str] = []
    async with (
        LoopbackServer(mirror.answer) as server,
        proxy_to(server.url, folder, ManualClock(), log) as proxy,
        client_of(proxy.url) as client,
    ):
        yield proxy, client, log


def make_body(**more: Any) -> Json:
    client = ScriptedClient(httpx.AsyncClient())
    client.messages = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    return {**client.body(), **more}


ODD_BODIES = {
    "unknown fields": json.dumps(make_body(invented={"a": [1, 2.50, None]}, metadata={"user_id": "é"})),
    "odd spaces": json.dumps(make_body(), indent=3).replace("\n", "\r\n"),
    "an unknown block": json.dumps(
        make_body(messages=[{"role": "user", "content": [{"type": "hologram", "of": "a cat", "n": 1e3}]}])
    ),
    "an unknown role": json.dumps(make_body(messages=[{"role": "oracle", "content": "yes"}])),
    "a call without an answer": json.dumps(
        make_body(
            messages=[
                {"role": "user", "content": "hello"},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}],
                },
                {"role": "user", "content": "never mind"},
            ]
        )
    ),
    "half a character": json.dumps(make_body(messages=[{"role": "user", "content": "\ud83d"}])),
    "deep nesting": json.dumps(make_body())[:-1] + ', "deep": ' + "[" * 5_000 + "]" * 5_000 + "}",
    "messages that are none": '{"model": "m", "messages": "hello", "tools": [{"name": "Bash"}]}',
    "no object": "[1, 2, 3]",
    "no JSON": "hello",
    "nothing": "",
}


@pytest.mark.parametrize("name", ODD_BODIES)
async def test_an_odd_body_goes_through_as_it_came(tmp_path: Path, name: str) -> None:
    body = ODD_BODIES[name].encode()
    mirror = Mirror()
    async with mirrored(tmp_path, mirror) as (_, client, log):
        response = await client.post(body)

    assert response.status_code == 200
    assert response.content == mirror.body
    assert [call.body for call in mirror.calls] == [body]
    assert len(log) == response.headers["x-sevenfold"].startswith("passed")


async def test_a_body_of_100_megabytes_streams_through(tmp_path: Path) -> None:
    async def write() -> AsyncIterator[bytes]:
        yield b'{"model": "m", "messages": ["'
        for _ in range(100):
            yield b"x" * 1_000_000
        yield b'"]}'

    mirror = Mirror(413, b'{"type": "error"}')
    async with mirrored(tmp_path, mirror) as (_, client, log):
        response = await client.http.post("/v1/messages", content=write())

    assert (response.status_code, response.content) == (413, mirror.body)
    assert response.headers["x-size"] == str(100_000_000 + len(b'{"model": "m", "messages": [""]}'))
    assert log == ["passed through as it came: the body is over 32 MB"]


async def test_a_client_that_leaves_during_a_large_upload_ends_its_own_connection_alone(
    tmp_path: Path,
) -> None:
    cut = anyio.Event()

    async def read_all(call: HttpCall) -> HttpAnswer:
        assert call.rest is not None
        try:
            async for _ in call.rest:
                pass
        finally:
            cut.set()
        raise AssertionError("the body came whole")

    async with (
        LoopbackServer(read_all) as server,
        proxy_to(server.url, tmp_path, ManualClock()) as proxy,
        client_of(proxy.url) as other,
    ):
        async with await connect_to(proxy.url) as stream:
            await stream.send(b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\n")
            await stream.send(b"content-length: 60000000\r\n\r\n")
            for _ in range(36):
                await stream.send(b"x" * 1_000_000)
        with anyio.fail_after(60):
            await cut.wait()
        for _ in range(2):
            assert (await other.http.get("/sevenfold/ledger")).status_code == 200


async def connect_to(url: str) -> anyio.abc.SocketStream:
    return await anyio.connect_tcp("127.0.0.1", int(url.rpartition(":")[2]))


async def test_a_failure_of_any_kind_ends_one_connection_alone() -> None:
    async def fail(call: HttpCall) -> HttpAnswer:
        if call.path == "/fail":
            raise ExceptionGroup("of a task group", [RuntimeError("unforeseen")])
        return HttpAnswer(200, {}, b"well")

    async with LoopbackServer(fail) as server, client_of(server.url) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.http.get("/fail")
        assert (await client.http.get("/")).content == b"well"


@pytest.mark.parametrize(
    "target", ["@{}/v1/messages", ".evil.example/v1/messages", "http://{}/v1/messages", "0/v1/models", "*"]
)
async def test_a_request_goes_to_no_other_host_than_the_provider(tmp_path: Path, target: str) -> None:
    mirror, other = Mirror(), Mirror()
    async with mirrored(tmp_path, mirror) as (proxy, _, _log), LoopbackServer(other.answer) as elsewhere:
        line = f"GET {target.format(elsewhere.url.removeprefix('http://'))} HTTP/1.1\r\n"
        async with await connect_to(proxy.url) as stream:
            await stream.send(
                f"{line}host: localhost\r\nanthropic-version: 1\r\nx-api-key: {KEY}\r\n\r\n".encode()
            )
            answer = await stream.receive()

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"invalid_request_error" in answer
    assert mirror.calls == other.calls == []


@pytest.mark.parametrize("target", ["@evil.example/x", ".evil.example/x", "0/x", "/\x00"])
def test_an_address_beside_the_provider_is_a_mistake(target: str) -> None:
    upstream = Upstream("https://api.example:44", "https://api.example:44")
    call = HttpCall("GET", "/v1/messages", {}, {}, b"", target=target)

    with pytest.raises(Mistake):
        upstream.locate(call)


async def test_headers_go_through_both_ways_and_the_key_is_kept_nowhere(tmp_path: Path) -> None:
    mirror = Mirror(429, b'{"type": "error"}', **{"retry-after": "7", "request-id": "req_1"})
    async with mirrored(tmp_path, mirror) as (proxy, client, log):
        client.headers = {"anthropic-beta": "one,two", "user-agent": "someone/1.0"}
        response = await client.post(json.dumps(make_body()).encode())
        told = json.dumps(proxy.receipt.as_json())

    got = mirror.calls[0].headers
    assert {got["x-api-key"], got["anthropic-beta"], got["user-agent"]} == {KEY, "one,two", "someone/1.0"}
    assert mirror.calls[0].target == "/v1/messages?beta=true"
    assert (response.status_code, response.headers["retry-after"]) == (429, "7")
    kept = read_everything(tmp_path)
    assert b"hello" in kept
    assert KEY.encode() not in kept
    assert KEY not in told + str(log)


def read_everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 409, 413, 422, 429, 500, 502, 503, 504, 529])
async def test_an_error_of_the_provider_comes_back_as_it_is(tmp_path: Path, status: int) -> None:
    mirror = Mirror(status, b'{"type":"error","error":{"type":"odd_error","message":"no"}}')
    async with mirrored(tmp_path, mirror) as (proxy, client, log):
        response = await client.post(json.dumps(make_body()).encode())

    assert (response.status_code, response.content) == (status, mirror.body)
    assert proxy.receipt.totals.failed == 1
    assert log == []


async def test_a_stream_that_is_cut_is_cut_for_the_client_at_the_same_byte(tmp_path: Path) -> None:
    clock, log = ManualClock(), list[str]()
    step = parse_steps('{"cut": {"after_events": 5}, "reply": {"text": "a long answer"}}')
    async with Simulator(clock=clock) as sim:
        sim.api.script.extend(step)
        direct = await read_until_cut(sim.url)
    async with Simulator(clock=clock) as sim, proxy_to(sim.url, tmp_path, clock, log) as proxy:
        sim.api.script.extend(step)
        through = await read_until_cut(proxy.url)

    assert through == direct
    assert direct.count(b"event:") == 5
    assert log == ["the provider's answer was cut: RemoteProtocolError"]


async def read_until_cut(url: str) -> bytes:
    data = b""
    headers = {"x-api-key": "any"}
    async with (
        httpx.AsyncClient(base_url=url, trust_env=False) as http,
        http.stream("POST", "/v1/messages", json=make_body(), headers=headers) as response,
    ):
        chunks = response.aiter_raw()
        try:
            async for chunk in chunks:
                data += chunk
        except httpx.RemoteProtocolError:
            return data
    raise AssertionError("the stream was not cut")


async def test_a_provider_that_is_gone_is_an_error_in_the_shape_of_the_api(tmp_path: Path) -> None:
    async with LoopbackServer(Mirror().answer) as server:
        gone = server.url
    log: list[str] = []
    async with proxy_to(gone, tmp_path, ManualClock(), log) as proxy, client_of(proxy.url) as client:
        response = await client.post(json.dumps(make_body()).encode())

    assert response.status_code == 502
    assert response.json()["error"]["type"] == "api_error"
    assert response.json()["error"]["message"] == f"sevenfold proxy: T{log[0][1:]}"
    assert log == [f"the provider cannot be reached: ConnectError on the way to {gone}/v1/messages"]


async def test_a_client_that_goes_away_ends_the_request_to_the_provider(tmp_path: Path) -> None:
    clock = ManualClock()
    async with Simulator(clock=clock) as sim, proxy_to(sim.url, tmp_path, clock) as proxy:
        sim.api.script.extend(parse_steps('{"hang": true}'))
        async with client_of(proxy.url) as client:
            client.http.timeout = httpx.Timeout(0.3)
            with pytest.raises(httpx.ReadTimeout):
                await client.post(json.dumps(make_body()).encode())
        async with client_of(proxy.url) as client:
            answer = await client.post(json.dumps(make_body()).encode())

    assert answer.status_code == 200
    assert [row.status for row in sim.ledger.rows][-1] == 200


async def test_a_client_that_leaves_during_a_stream_ends_the_request_to_the_provider(
    tmp_path: Path,
) -> None:
    ended = anyio.Event()

    async def hang() -> AsyncGenerator[bytes, None]:
        try:
            yield b"event: ping\n\n"
            await anyio.sleep_forever()
        finally:
            ended.set()

    async def answer(call: HttpCall) -> HttpAnswer:
        return HttpAnswer(200, {"content-type": "text/event-stream"}, hang())

    async with LoopbackServer(answer) as server, proxy_to(server.url, tmp_path, ManualClock()) as proxy:
        async with await connect_to(proxy.url) as stream:
            body = json.dumps(make_body()).encode()
            await stream.send(b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\n")
            await stream.send(b"content-length: %d\r\n\r\n%b" % (len(body), body))
            received = b""
            while b"ping" not in received:
                received += await stream.receive()
            assert not ended.is_set()
        with anyio.fail_after(60):
            await ended.wait()
            while not proxy.receipt.rows:
                await anyio.lowlevel.checkpoint()

    assert [row.status for row in proxy.receipt.rows] == [200]


async def test_a_request_that_comes_before_the_last_answer_is_answered_after_it(tmp_path: Path) -> None:
    asked, go = anyio.Event(), anyio.Event()

    async def answer(call: HttpCall) -> HttpAnswer:
        asked.set()
        await go.wait()
        return HttpAnswer(200, {}, call.path.encode())

    async with (
        LoopbackServer(answer) as server,
        proxy_to(server.url, tmp_path, ManualClock()) as proxy,
        await connect_to(proxy.url) as stream,
    ):
        await stream.send(b"GET /v1/messages/one HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await asked.wait()
        await stream.send(b"GET /v1/messages/two HTTP/1.1\r\nhost: localhost\r\n\r\n")
        for _ in range(20):  # until the proxy has read it
            await anyio.lowlevel.checkpoint()
        go.set()
        received = b""
        with anyio.fail_after(60):
            while b"/v1/messages/two" not in received:
                received += await stream.receive()

    assert received.index(b"/v1/messages/one") < received.index(b"/v1/messages/two")


def call_tool(id: str, answered: str) -> list[Json]:
    use = {"type": "tool_use", "id": id, "name": "Bash", "input": {}}
    result = {"type": "tool_result", "tool_use_id": answered, "content": "done"}
    return [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]


@pytest.mark.parametrize(
    "body",
    [
        make_body(messages=[{"role": "a SECRET role", "content": "hello"}]),
        make_body(messages=call_tool("t1", "SECRET")),
        make_body(messages=call_tool("SECRET", "t1")),
        make_body(system={"SECRET": 1}),
    ],
    ids=["role", "answer", "call", "system"],
)
async def test_no_word_of_a_body_is_in_the_log_or_the_header(tmp_path: Path, body: Json) -> None:
    async with mirrored(tmp_path, Mirror()) as (proxy, client, log):
        response = await client.post(json.dumps(body).encode())
        told = json.dumps(proxy.receipt.as_json())

    assert response.headers["x-sevenfold"].startswith("passed: ")
    assert len(log) == 1
    assert "SECRET" not in f"{log} {response.headers['x-sevenfold']} {told}"


async def test_a_state_folder_that_is_a_file_passes_everything_through(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "proxy").write_text("in the way", "utf-8")

    await assert_passes(tmp_path)


async def test_a_full_disk_passes_everything_through(tmp_path: Path) -> None:
    """No file of this process may grow any more; room is found again later."""
    clock, log = ManualClock(), list[str]()
    async with (
        Simulator(clock=clock) as sim,
        proxy_to(sim.url, tmp_path, clock, log) as proxy,
        client_of(proxy.url) as client,
    ):
        await client.ask("one")
        (transcript,) = (tmp_path / "home" / "proxy").glob("*.jsonl")
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (transcript.stat().st_size, before[1]))
        try:
            await client.ask("two")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        await client.ask("three")

    rows = list(proxy.receipt.rows)
    assert [row.status for row in rows] == [200, 200, 200]
    assert [bool(row.passed) for row in rows] == [False, True, False]
    assert "could not be written" in rows[1].passed
    assert [row.sent for row in rows] == [row.received for row in rows]
    assert len(log) == 1
    assert not any(row.shared and row.shared.diverged for row in sim.ledger.rows)


async def assert_passes(folder: Path) -> None:
    clock, log = ManualClock(), list[str]()
    async with (
        Simulator(clock=clock) as sim,
        proxy_to(sim.url, folder, clock, log) as proxy,
        client_of(proxy.url) as client,
    ):
        sim.api.script.extend(parse_steps("\n".join(map(json.dumps, script_calls(2)))))
        await client.ask("Make the reports.")

    totals = proxy.receipt.totals
    assert totals.requests == totals.passed == len(log) == 3
    assert totals.sent == totals.received


async def test_a_conversation_that_another_process_has_goes_through(tmp_path: Path) -> None:
    clock, log = ManualClock(), list[str]()
    async with (
        Simulator(clock=clock) as sim,
        proxy_to(sim.url, tmp_path, clock) as first,
        proxy_to(sim.url, tmp_path, clock, log) as second,
        client_of(first.url) as client,
        client_of(second.url) as other,
    ):
        await client.ask("hello")
        other.messages = client.messages
        await other.ask("more")

    (row,) = second.receipt.rows
    assert (row.status, row.sent) == (200, row.received)
    assert "is being written by" in row.passed
    assert len(log) == 1


async def test_twenty_conversations_at_once_are_all_recorded(tmp_path: Path) -> None:
    """More than are kept open: those whose replies are still to come are not closed."""
    clock, log = ManualClock(), list[str]()
    async with (
        Simulator(clock=clock) as sim,
        proxy_to(sim.url, tmp_path, clock, log) as proxy,
        httpx.AsyncClient(base_url=proxy.url, timeout=60, trust_env=False) as http,
        anyio.create_task_group() as group,
    ):
        for n in range(20):
            client = ScriptedClient(http, session=f"session-{n}", stream=False)
            sim.api.script.extend(
                parse_steps('{"slow": {"first_byte_ms": 100}, "reply": {"text": "well"}}')
            )
            group.start_soon(client.ask, f"hello {n}")

    assert log == []
    assert len({row.conversation for row in proxy.receipt.rows}) == 20
    assert all(row.usage.total and not row.passed for row in proxy.receipt.rows)


async def test_two_clients_with_one_session_id_have_a_conversation_each(tmp_path: Path) -> None:
    clock, log = ManualClock(), list[str]()
    async with (
        Simulator(clock=clock) as sim,
        proxy_to(sim.url, tmp_path, clock, log) as proxy,
        client_of(proxy.url) as one,
        client_of(proxy.url) as other,
    ):
        for n in range(4):
            for client in (one, other):
                said = "the same words" if n == 0 else f"more {n}"
                name = "one" if client is one else "other"
                sim.api.script.extend(parse_steps(json.dumps({"reply": {"text": f"{name} {n}"}})))
                await client.ask(said)

    rows = list(proxy.receipt.rows)
    assert one.session == other.session == SESSION
    assert len({row.conversation for row in rows}) == 2
    assert not any(row.broke or row.passed for row in rows)
    assert log == []


async def test_a_web_page_is_not_answered(tmp_path: Path) -> None:
    mirror = Mirror()
    async with mirrored(tmp_path, mirror) as (_, client, _log):
        for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
            answer = await client.http.post("/v1/messages", json=make_body(), headers=headers)
            assert answer.status_code == 403
            ledger = await client.http.get("/sevenfold/ledger", headers=headers)
            assert ledger.status_code == 403

    assert mirror.calls == []


@pytest.mark.parametrize(
    "url", ["http://api.example", "ftp://localhost", "https://", "https://me:pw@x.example"]
)
def test_a_provider_without_encryption_is_refused_beyond_this_machine(url: str) -> None:
    with pytest.raises(Mistake) as raised:
        check_upstream(url)

    assert "pw" not in str(raised.value)
    assert check_upstream("https://api.example/") == "https://api.example"
    assert check_upstream("http://127.0.0.1:9") == "http://127.0.0.1:9"
