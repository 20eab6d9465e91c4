"""What the simulated model says, and where it is cut off."""

from __future__ import annotations

from typing import Any

import pytest
from simulator.wire import api, body, user

from sevenfold.simulator import ScriptReply

CALL = {"type": "tool_use", "name": "Bash", "input": {"command": "x" * 400}}


def reply(answer: Any, **more: Any) -> dict[str, Any]:
    sim, _ = api(replies=lambda _: answer)
    return sim.answer(body(user("a"), **more)).body


def test_without_anything_better_it_repeats_what_the_user_said() -> None:
    sim, _ = api()
    message = sim.answer(body(user("hello"))).body
    assert message["content"] == [{"type": "text", "text": "You said: hello"}]
    assert message["stop_reason"] == "end_turn"
    assert message["id"] == "msg_sim_000001"


def test_an_answer_may_be_text_blocks_or_a_reply() -> None:
    block = {"type": "text", "text": "hi"}
    assert reply("hi")["content"] == reply([block])["content"] == [block]
    assert reply(ScriptReply([block], "pause_turn"))["stop_reason"] == "pause_turn"


def test_a_tool_call_gets_an_id_and_the_right_stop_reason() -> None:
    message = reply([CALL, {**CALL, "id": "mine"}], max_tokens=1_000)
    assert [b["id"] for b in message["content"]] == ["toolu_sim_000001", "mine"]
    assert message["stop_reason"] == "tool_use"


def test_output_is_counted_like_input() -> None:
    assert reply("x" * 41)["usage"]["output_tokens"] == 11


def test_text_is_cut_at_the_output_limit() -> None:
    message = reply("é" * 400, max_tokens=10)
    assert message["content"][0]["text"] == "é" * 20
    assert message["stop_reason"] == "max_tokens"
    assert message["usage"]["output_tokens"] == 10


def test_a_tool_call_over_the_output_limit_is_left_out_whole() -> None:
    message = reply([{"type": "text", "text": "so"}, CALL], max_tokens=50)
    assert [b["type"] for b in message["content"]] == ["text"]
    assert message["stop_reason"] == "max_tokens"


def test_a_stop_sequence_ends_the_text() -> None:
    message = reply("one two three", stop_sequences=["three", "two"])
    assert message["content"][0]["text"] == "one "
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "two")


def test_an_asynchronous_reply_function_cannot_be_used_without_a_server() -> None:
    async def later(_: Any) -> str:
        return "late"

    sim, _ = api(replies=later)
    with pytest.raises(TypeError, match="cannot wait") as caught:
        sim.answer(body(user("a")))
    assert caught.value is not None
