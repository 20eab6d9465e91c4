"""`sevenfold simulate`: one ready line, then a provider that any client can talk to."""

from __future__ import annotations

import json
import signal
from typing import Any

import httpx
import pytest
from cli.conftest import Here
from cli.world import World

pytestmark = pytest.mark.real
PATIENCE = 60.0


def message(url: str, text: str, **more: Any) -> httpx.Response:
    body = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 1000,
        "messages": [{"role": "user", "content": text}],
        **more,
    }
    return httpx.post(f"{url}/v1/messages", json=body, headers={"x-api-key": "any"})


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_says_where_it_is_and_serves_until_told_to_stop(
    world: World, number: signal.Signals, code: int
) -> None:
    process = world.start("simulate", "-q")
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = process.stdout.readline().decode().removeprefix("ready: ").strip()
        reply = message(url, "hello").json()
        assert "offline engine" in reply["content"][0]["text"]
        token = {"x-sevenfold-token": process.stdout.readline().decode().removeprefix("token: ").strip()}
        assert httpx.get(f"{url}/sevenfold/ledger", headers=token).json()["requests"]
        assert httpx.get(f"{url}/sevenfold/ledger").status_code == 401
        process.send_signal(number)

        assert process.wait(PATIENCE) == code
        assert process.stdout.read() == b""
        assert process.stderr.read() == b""


def test_ready_as_json_a_script_a_model_and_a_clock_to_drive(world: World) -> None:
    script = world.write("script.jsonl", '{"reply": {"text": "As written."}}\n')
    words = (
        "--script",
        str(script),
        "--model",
        "claude-sonnet-4-5",
        "--clock",
        "manual",
        "--window",
        "2000",
    )
    process = world.start("simulate", "--json", *words)
    with process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        url, token = ready["url"], {"x-sevenfold-token": ready["token"]}
        assert message(url, "hello").json()["content"][0]["text"] == "As written."
        assert message(url, "hello", model="claude-haiku-4-5").status_code == 404
        assert "> 2000 maximum" in message(url, "word " * 2_000).text
        before = httpx.get(f"{url}/sevenfold/clock", headers=token).json()["now"]
        moved = httpx.post(f"{url}/sevenfold/clock", json={"advance": 300}, headers=token).json()
        assert moved["now"] == before + 300
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_a_chat_can_be_held_with_it(world: World, here: Here) -> None:
    process = world.start("simulate")
    with process:
        assert process.stdout is not None
        url = process.stdout.readline().decode().removeprefix("ready: ").strip()
        ran = here("-p", "hello", "--json")
        world.at(url)
        paid = here("-p", "hello", "--json")
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)

    assert paid.json["result"] == ran.json["result"], "the same engine answers on both ways"
    assert paid.json["cost"] > ran.json["cost"] == 0


def test_a_wrong_script_is_wrong_usage(here: Here, world: World) -> None:
    script = world.write("script.jsonl", '{"reply": {"text": "x"}}\n{"replly": 1}\n')

    ran = here("simulate", "--script", str(script))

    assert (ran.code, ran.out) == (2, "")
    assert f"{script}, line 2" in ran.err


def test_a_port_that_is_taken_is_told_with_the_way_out(world: World, here: Here) -> None:
    process = world.start("simulate")
    with process:
        assert process.stdout is not None
        port = process.stdout.readline().decode().strip().rpartition(":")[2]
        ran = here("simulate", "--port", port)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)

    assert (ran.code, ran.out) == (2, "")
    assert f"127.0.0.1:{port}" in ran.err
    assert "choose another port" in ran.err
