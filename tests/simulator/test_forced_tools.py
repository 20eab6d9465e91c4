"""A request can insist on a tool, in the words of either API; and who gives the ids."""

from __future__ import annotations

from typing import Any

import pytest
from simulator.wire import api, body, user

from sevenfold.offline import encode_reply
from sevenfold.simulator import Replies, make_echo
from sevenfold.simulator.chat_completions import ChatCompletions

SCHEMA = {
    "type": "object",
    "properties": {"place": {"type": "string"}, "unit": {"enum": ["C", "F"]}},
    "required": ["place", "unit"],
}
TOOL = {"name": "get_weather", "input_schema": SCHEMA}
FUNCTION = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
BASH = {"name": "Bash", "input_schema": {"type": "object"}}


def completion(replies: Replies, choice: Any, said: str = "hello") -> Any:
    sim, _ = api(replies=replies)
    chat = ChatCompletions(sim)
    request = {
        "model": "gpt-5.5",
        "messages": [{"role": "user", "content": said}],
        "tools": [FUNCTION],
        "tool_choice": choice,
    }
    pending: Any = chat.prepare(request)
    return chat.finish(pending, chat.reply_to(pending)).body["choices"][0]


@pytest.mark.parametrize("replies", [make_echo, encode_reply])
def test_a_tool_that_is_insisted_on_is_called(replies: Replies) -> None:
    sim, _ = api(replies=replies)
    choice = {"type": "tool", "name": "get_weather"}
    message = sim.answer(body(user("hello"), tools=[BASH, TOOL], tool_choice=choice)).body
    assert message["stop_reason"] == "tool_use"
    (use,) = message["content"]
    assert (use["name"], use["input"]) == ("get_weather", {"place": "text", "unit": "C"})


@pytest.mark.parametrize("replies", [make_echo, encode_reply])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_function_that_is_insisted_on_is_called(replies: Replies, choice: Any) -> None:
    answer = completion(replies, choice)
    assert answer["finish_reason"] == "tool_calls"
    (call,) = answer["message"]["tool_calls"]
    assert call["function"] == {"name": "get_weather", "arguments": '{"place":"text","unit":"C"}'}


@pytest.mark.parametrize("choice", [None, "auto", "none"])
def test_a_function_that_is_not_insisted_on_is_not_called(choice: Any) -> None:
    assert completion(encode_reply, choice)["finish_reason"] == "stop"


def test_the_offline_engine_brings_ids_of_its_own() -> None:
    sim, _ = api(replies=encode_reply)
    request = body(user("run ls"), tools=[BASH])
    used = [b for b in sim.answer(request).body["content"] if b["type"] == "tool_use"]
    assert used[0]["id"].startswith("toolu_off_")
    forced = {"tools": [TOOL], "tool_choice": {"type": "any"}}
    (use,) = sim.answer(body(user("hello"), **forced)).body["content"]
    assert use["id"].startswith("toolu_off_")
