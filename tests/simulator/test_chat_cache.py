"""Chat completions without a wire: the automatic cache, the conversion, the refusals."""

from __future__ import annotations

from typing import Any

import pytest
from simulator.wire import api

from sevenfold.simulator import Api, ApiOutcome
from sevenfold.simulator.chat_completions import ChatCompletions, to_messages_request

Json = dict[str, Any]


def ask(chat: ChatCompletions, *messages: Json, **more: Any) -> ApiOutcome:
    pending = chat.prepare({"model": "gpt-4o", "messages": list(messages), **more})
    if isinstance(pending, ApiOutcome):
        return pending
    return chat.finish(pending, chat.reply_to(pending))


def chat(**options: Any) -> tuple[ChatCompletions, Api, Any]:
    sim, clock = api(**options)
    return ChatCompletions(sim), sim, clock


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def cached(outcome: ApiOutcome) -> int:
    assert outcome.status == 200, outcome.body
    return int(outcome.body["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_a_prompt_of_1024_tokens_is_cached_without_anyone_asking() -> None:
    completions, _, _ = chat()
    assert cached(ask(completions, user("x" * 4 * 1_024))) == 0
    assert cached(ask(completions, user("x" * 4 * 1_024))) == 1_024


def test_a_shorter_prompt_is_not() -> None:
    completions, _, _ = chat()
    ask(completions, user("x" * 4 * 1_000))
    assert cached(ask(completions, user("x" * 4 * 1_000))) == 0


@pytest.mark.parametrize(("same", "read"), [(1_030, 1_024), (1_200, 1_152), (2_000, 1_920)])
def test_what_is_read_is_the_common_beginning_in_steps_of_128(same: int, read: int) -> None:
    completions, _, _ = chat()
    ask(completions, user("x" * 4 * same + "a" * 4_000))
    assert cached(ask(completions, user("x" * 4 * same + "b" * 4_000))) == read


def test_a_growing_conversation_reads_what_came_before() -> None:
    completions, _, _ = chat()
    start = [{"role": "system", "content": "s" * 4_000}, user("x" * 4_000)]
    ask(completions, *start)
    reply = {"role": "assistant", "content": "fine"}
    outcome = ask(completions, *start, reply, user("next"))
    assert cached(outcome) == 1_920
    usage = outcome.body["usage"]
    assert usage["prompt_tokens"] == 2_002
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_a_changed_beginning_loses_everything() -> None:
    completions, _, _ = chat()
    ask(completions, user("x" * 8_000))
    assert cached(ask(completions, user("y" + "x" * 7_999))) == 0


def test_ten_idle_minutes_end_it_and_a_day_where_that_was_asked_for() -> None:
    completions, _, clock = chat()
    request = user("x" * 8_000)
    ask(completions, request)
    clock.advance(599)
    assert cached(ask(completions, request)) == 1_920
    clock.advance(601)
    assert cached(ask(completions, request, prompt_cache_retention="24h")) == 0
    clock.advance(80_000)
    assert cached(ask(completions, request)) == 1_920


def test_models_that_bill_cache_writes_report_them() -> None:
    completions, sim, _ = chat()
    request = user("x" * 4 * 1_100)
    first = ask(completions, request, model="gpt-6.1-sol").body["usage"]["prompt_tokens_details"]
    assert first["cache_write_tokens"] == 1_024
    assert sim.ledger[0].tokens.cache_write_5m == 1_024
    older = ask(completions, request).body["usage"]["prompt_tokens_details"]
    assert "cache_write_tokens" not in older


def test_the_ledger_has_a_row_with_a_price() -> None:
    completions, sim, _ = chat()
    ask(completions, user("x" * 8_000))
    ask(completions, user("x" * 8_000))
    row = sim.ledger[1]
    assert row.endpoint == "/v1/chat/completions"
    assert (row.tokens.input, row.tokens.cache_read) == (80, 1_920)
    assert row.cost == pytest.approx((80 * 2.5 + 1_920 * 1.25 + row.tokens.output * 10) / 1e6)
    assert row.shared is not None
    assert row.shared.diverged is None


def test_a_conversation_with_tools_is_turned_into_the_messages_form() -> None:
    form = to_messages_request(
        {
            "model": "m",
            "stop": "END",
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": 1}}}],
            "messages": [
                {"role": "developer", "content": "be brief"},
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "c1", "function": {"name": "f", "arguments": '{"x": 1}'}},
                        {"id": "c2", "function": {"name": "f", "arguments": "not json"}},
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "one"},
                {"role": "tool", "tool_call_id": "c2", "content": "two"},
                {"role": "user", "content": "go on"},
            ],
        }
    )
    assert form["system"] == [{"type": "text", "text": "be brief"}]
    assert form["tools"] == [{"name": "f", "description": "", "input_schema": {"a": 1}}]
    assert form["stop_sequences"] == ["END"]
    picture, calls, results = form["messages"]
    assert picture["content"] == [{"type": "image", "source": {"type": "url", "url": "u"}}]
    assert [b["input"] for b in calls["content"]] == [{"x": 1}, {"arguments": "not json"}]
    assert [b["type"] for b in results["content"]] == ["tool_result", "tool_result", "text"]


CALLS = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "f"}}]}


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "Invalid value for 'messages'"),
        ([{"content": "x"}], "missing required field `role`"),
        ([{"role": "tool", "tool_call_id": "c1"}], "must be a response to a preceding message"),
        ([CALLS], "did not have response messages: c1"),
        ([CALLS, user("x")], "did not have response messages: c1"),
    ],
)
def test_a_broken_conversation_is_refused(messages: list[Json], said: str) -> None:
    outcome = ask(chat()[0], *messages)
    assert outcome.status == 400
    assert said in outcome.body["error"]["message"]


def test_a_prompt_over_the_window_is_refused_as_that_api_says_it() -> None:
    error = ask(chat()[0], user("x" * 4 * 130_000)).body["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["message"].startswith(
        "This model's maximum context length is 128000 tokens. However, your messages resulted in "
        "130000 tokens."
    )


def test_scripts_work_here_too() -> None:
    from sevenfold.simulator import Script, parse_steps

    steps = parse_steps('{"reply": {"text": "scripted"}}\n{"error": 429}')
    completions, _, _ = chat(script=Script(steps))
    first = ask(completions, user("a")).body["choices"][0]
    assert (first["message"]["content"], first["finish_reason"]) == ("scripted", "stop")
    assert ask(completions, user("a")).status == 429
