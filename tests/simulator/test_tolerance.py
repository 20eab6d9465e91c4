"""Clients we have never seen: what the simulator does not know, it lets through."""

from __future__ import annotations

from typing import Any

import pytest
from simulator.wire import SMALL, api, assistant, body, result, split, text, use, user

HEADERS = {
    "x-api-key": "k",
    "anthropic-version": "2029-01-01",
    "anthropic-beta": "something-nobody-knows-2030-01-01,claude-code-20250219",
    "anthropic-dangerous-direct-browser-access": "true",
    "x-stainless-lang": "js",
    "user-agent": "another-vendor/9.9",
}


@pytest.mark.parametrize(
    "more",
    [
        {"a_field_of_tomorrow": {"deeply": [1, 2]}},
        {"mcp_servers": [{"type": "url", "url": "https://example.com/mcp", "name": "m"}]},
        {"container": {"id": "c", "skills": [{"type": "anthropic", "skill_id": "pdf"}]}},
        {"metadata": {"user_id": "u"}, "service_tier": "auto", "inference_geo": "us"},
        {"temperature": 1, "top_p": 0.9, "top_k": 5, "speed": "fast"},
        {"thinking": {"type": "adaptive", "display": "summarized"}},
        {"output_config": {"effort": "high", "format": {"type": "json_schema", "schema": {}}}},
        {"fallbacks": "default", "compaction": {"type": "summarize"}},
        {"tools": [{"type": "web_search_20260209", "name": "web_search", "max_uses": 5}]},
        {"tools": [{"type": "mcp_toolset", "mcp_server_name": "m"}]},
        {"tools": [{"type": "tool_search_tool_regex_20251119", "name": "tool_search"}]},
        {"tools": [{"type": "a_tool_type_of_tomorrow", "name": "x", "anything": True}]},
        {
            "tools": [
                {"name": "Now", "input_schema": {}, "cache_control": SMALL},
                {"name": "Later", "input_schema": {}, "defer_loading": True},
            ]
        },
        {"system": "plain text"},
        {"system": [{"type": "text", "text": "a block", "citations": None}]},
        {"system": []},
        {"context_management": {"edits": [{"type": "an_edit_of_tomorrow", "x": 1}]}},
    ],
)
def test_a_request_with_fields_nobody_told_us_about_is_answered(more: dict[str, Any]) -> None:
    sim, _ = api()
    outcome = sim.answer(body(user("hello"), **more), HEADERS)
    assert outcome.status == 200, outcome.body


def test_system_messages_may_stand_among_the_messages() -> None:
    sim, _ = api()
    note = {"role": "system", "content": "Plan mode is on."}
    turn_note = {
        "role": "system",
        "content": [{"type": "text", "text": "Be brief."}],
        "clear_at": "next_user_message",
    }
    request = body(
        {"role": "system", "content": "You are terse."},
        user(text(2_000)), note, assistant(use("t1")), user(result("t1")), turn_note,
        cache_control=SMALL,
    )  # fmt: skip
    outcome = sim.answer(request, HEADERS)
    plain, written, _ = split(outcome)
    assert plain == 3  # the note for this turn only is behind the breakpoint
    assert written > 2_000


def test_a_system_message_that_is_appended_keeps_the_prefix() -> None:
    sim, _ = api()
    sim.answer(body(user(text(2_000)), cache_control=SMALL))
    note = {"role": "system", "content": [text(10, "n", SMALL)]}
    assert split(sim.answer(body(user(text(2_000)), note))) == (0, 10, 2_000)


def test_blocks_of_kinds_we_do_not_know_are_counted_and_kept() -> None:
    sim, _ = api()
    server_use = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"url": "u"}]}
    strange = {"type": "a_block_of_tomorrow", "payload": "x" * 8_000}
    request = body(user(strange), assistant(server_use, found, "done"), user("next"), cache_control=SMALL)
    written = split(sim.answer(request, HEADERS))[1]
    assert written > 4_000
    assert split(sim.answer(request, HEADERS))[2] == written


def test_tool_results_may_hold_anything() -> None:
    sim, _ = api()
    contents: list[Any] = [
        None,
        "",
        "text",
        [],
        [{"type": "image", "source": {"type": "base64", "data": ""}}],
        [{"type": "tool_reference", "tool_name": "Later"}],
    ]
    for content in contents:
        request = body(user("a"), assistant(use("t1")), user(result("t1", content)))
        assert sim.answer(request, HEADERS).status == 200


def test_any_model_name_is_taken() -> None:
    sim, _ = api()
    for model in ("claude-of-tomorrow-9", "local:/models/x.gguf", "anthropic/claude-opus-5-5"):
        assert sim.answer(body(user("a"), model=model), HEADERS).body["model"] == model


def test_a_client_with_a_token_instead_of_a_key_is_let_in() -> None:
    sim, _ = api()
    assert sim.answer(body(user("a")), {"Authorization": "Bearer oauth-token"}).status == 200
