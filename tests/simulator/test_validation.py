"""What the API refuses, in the words people will find when they search for them."""

from __future__ import annotations

from typing import Any

import pytest
from simulator.wire import api, assistant, body, refusal, result, use, user

from sevenfold.simulator import ApiOutcome

THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}


def answered(request: Any, headers: dict[str, str] | None = None, **options: Any) -> ApiOutcome:
    sim, _ = api(**options)
    return sim.answer(request, headers)


@pytest.mark.parametrize(
    ("request_body", "said"),
    [
        ([], "The request body must be a JSON object"),
        ({"messages": [], "max_tokens": 1}, "model: Field required"),
        ({"model": "m", "max_tokens": 1}, "messages: Field required"),
        ({"model": "m", "messages": [user("a")]}, "max_tokens: Field required"),
        (body(), "messages: at least one message is required"),
        (body(assistant("a")), 'messages: first message must use the "user" role'),
        (body(user("a"), {"role": "assistant"}), "messages.1.content: Field required"),
        (body(user(), user("a")), "messages.0: all messages must have non-empty content except "
         "for the optional final assistant message"),
        (body(user("")), "messages: text content blocks must be non-empty"),
        (body(user(" \n")), "messages: text content blocks must contain non-whitespace text"),
        (body(user("a"), assistant("b ")),
         "messages: final assistant content cannot end with trailing whitespace"),
        (body(user("a"), tools=[{"name": "T"}, {"name": "T"}]), "tools: Tool names must be unique."),
    ],
)  # fmt: skip
def test_a_request_of_the_wrong_shape_is_refused(request_body: Any, said: str) -> None:
    assert refusal(answered(request_body)) == said


def test_messages_of_the_same_role_in_a_row_are_one_turn() -> None:
    request = body(
        user("a"), user("b"), assistant(use("t1")), assistant(use("t2")),
        user(result("t1")), user(result("t2")), user("go on"),
    )  # fmt: skip
    assert answered(request).status == 200


def test_an_empty_final_assistant_message_is_allowed() -> None:
    assert answered(body(user("a"), {"role": "assistant", "content": []})).status == 200


# --- tool uses and their results -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rest", [[], [user("no result")], [user("text first", result("t1"), result("t2"))]]
)
def test_a_use_without_its_result_in_the_next_message_is_refused(rest: list[Any]) -> None:
    said = refusal(answered(body(user("a"), assistant(use("t1"), use("t2")), *rest)))
    assert said == (
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: "
        "t1, t2. Each `tool_use` block must have a corresponding `tool_result` block in the next "
        "message."
    )


def test_only_the_unanswered_uses_are_named() -> None:
    said = refusal(answered(body(user("a"), assistant(use("t1"), use("t2")), user(result("t2")))))
    assert "immediately after: t1. Each" in said


def test_a_result_without_its_use_is_refused() -> None:
    said = refusal(answered(body(user("a"), assistant("b"), user("c", result("t9")))))
    assert said == (
        "messages.2.content.1: unexpected `tool_use_id` found in `tool_result` blocks: t9. Each "
        "`tool_result` block must have a corresponding `tool_use` block in the previous message."
    )


def test_a_use_that_comes_twice_is_refused() -> None:
    request = body(
        user("a"), assistant(use("t1")), user(result("t1")), assistant(use("t1")), user(result("t1"))
    )
    assert refusal(answered(request)) == "messages.3.content.0: `tool_use` ids must be unique"


def test_a_result_that_comes_twice_is_refused() -> None:
    said = refusal(answered(body(user("a"), assistant(use("t1")), user(result("t1"), result("t1")))))
    assert "each tool_use must have a single result" in said


def test_uses_and_results_stand_in_messages_of_their_own_role() -> None:
    assert "can only be in `assistant` messages" in refusal(answered(body(user(use("t1")))))
    said = refusal(answered(body(user("a"), assistant(result("t1")))))
    assert "can only be in `user` messages" in said


# --- output, window, thinking ----------------------------------------------------------------------------


def test_more_output_than_the_model_can_give_is_refused() -> None:
    said = refusal(answered(body(user("a"), max_tokens=200_000, model="claude-opus-4-5-20251101")))
    assert said == (
        "max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens for "
        "claude-opus-4-5-20251101"
    )


def test_a_model_without_an_entry_in_the_table_has_no_output_limit() -> None:
    assert answered(body(user("a"), max_tokens=10_000_000, model="my-own-model")).status == 200


def test_a_prompt_over_the_window_is_refused_with_both_numbers() -> None:
    said = refusal(answered(body(user("x" * 40_000)), window=8_000))
    assert said == "prompt is too long: 10000 tokens > 8000 maximum"


@pytest.mark.parametrize(
    ("more", "headers", "fits"),
    [
        ({"model": "claude-sonnet-4-5"}, {}, False),
        ({"model": "claude-sonnet-4-5[1m]"}, {}, True),
        ({"model": "claude-sonnet-4-5"}, {"anthropic-beta": "context-1m-2025-08-07"}, True),
        ({"model": "claude-opus-4-6"}, {}, True),
        ({"model": "nobody-knows-it"}, {}, False),
    ],
)
def test_the_window_is_that_of_the_model_the_suffix_or_the_beta(
    more: dict[str, str], headers: dict[str, str], fits: bool
) -> None:
    outcome = answered(body(user("x" * 900_000), **more), {"x-api-key": "k", **headers})
    assert outcome.status == (200 if fits else 400)


def test_older_models_refuse_a_prompt_that_leaves_too_little_room() -> None:
    request = body(user("x" * 4 * 195_000), max_tokens=8_192, model="claude-sonnet-4-20250514")
    assert refusal(answered(request)) == (
        "input length and `max_tokens` exceed context limit: 195000 + 8192 > 200000, decrease "
        "input length or `max_tokens` and try again"
    )


def test_newer_models_stop_where_the_window_ends() -> None:
    request = body(user("x" * 4 * 195_000), max_tokens=8_192, model="claude-opus-4-5")
    outcome = answered(request, replies=lambda _: "y" * 4 * 6_000)
    assert outcome.body["stop_reason"] == "model_context_window_exceeded"
    assert outcome.body["usage"]["output_tokens"] == 5_000


@pytest.mark.parametrize(
    ("thinking", "said"),
    [
        ({"type": "enabled"}, "thinking.enabled.budget_tokens: Field required"),
        (
            {"type": "enabled", "budget_tokens": 500},
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        ),
        (
            {"type": "enabled", "budget_tokens": 4_000},
            "`max_tokens` must be greater than `thinking.budget_tokens`.",
        ),
    ],
)
def test_a_thinking_budget_out_of_bounds_is_refused(thinking: dict[str, Any], said: str) -> None:
    assert refusal(answered(body(user("a"), max_tokens=4_000, thinking=thinking))) == said


def test_a_budget_over_the_output_is_fine_when_thinking_is_interleaved() -> None:
    request = body(user("a"), thinking={"type": "enabled", "budget_tokens": 4_000})
    headers = {"x-api-key": "k", "anthropic-beta": "interleaved-thinking-2025-05-14"}
    assert answered(request, headers).status == 200


def test_thinking_without_its_signature_is_refused() -> None:
    bare = {"type": "thinking", "thinking": "hm"}
    said = refusal(answered(body(user("a"), assistant(bare, "b"), user("c"))))
    assert said == "messages.1.content.0.thinking.signature: Field required"
    unsigned = {**bare, "signature": ""}
    said = refusal(answered(body(user("a"), assistant(unsigned, "b"), user("c"))))
    assert said == "messages.1.content.0: Invalid `signature` in `thinking` block"
    assert answered(body(user("a"), assistant(THINKING, "b"), user("c"))).status == 200


# --- keys and models -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, "x-api-key header is required"),
        ({"x-api-key": "sk-wrong"}, "invalid x-api-key"),
        ({"authorization": "Bearer sk-wrong"}, "invalid x-api-key"),
    ],
)
def test_a_missing_or_wrong_key_is_refused(headers: dict[str, str], said: str) -> None:
    outcome = answered(body(user("a")), headers)
    assert outcome.status == 401
    assert outcome.body == {
        "type": "error",
        "error": {"type": "authentication_error", "message": said},
        "request_id": "req_sim_000001",
    }


def test_an_unknown_model_is_not_found() -> None:
    outcome = answered(body(user("a"), model="unknown-model"))
    assert outcome.status == 404
    assert outcome.body["error"] == {"type": "not_found_error", "message": "model: unknown-model"}


def test_a_closed_list_of_models_finds_no_other() -> None:
    assert answered(body(user("a"), model="a-model"), models=["a-model"]).status == 200
    assert answered(body(user("a"), model="b-model"), models=["a-model"]).status == 404
