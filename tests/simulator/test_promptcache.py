"""The prompt cache, one test for each rule that the provider documents."""

from __future__ import annotations

import pytest
from simulator.wire import HOUR, MODEL, SMALL, api, assistant, body, refusal, result, split, text, use, user

TOOL = {"name": "Read", "description": "x" * 3_000, "input_schema": {"type": "object"}}


def marked_tool(**more: object) -> dict[str, object]:
    return {**TOOL, "cache_control": SMALL, **more}


def test_the_first_request_writes_and_the_second_reads_the_same() -> None:
    sim, _ = api()
    request = body(user(text(2_000, mark=SMALL)))
    assert split(sim.answer(request)) == (0, 2_000, 0)
    assert split(sim.answer(request)) == (0, 0, 2_000)


def test_without_a_mark_nothing_is_kept() -> None:
    sim, _ = api()
    request = body(user(text(2_000)))
    assert split(sim.answer(request)) == (2_000, 0, 0)
    assert split(sim.answer(request)) == (2_000, 0, 0)


def test_what_follows_the_last_mark_is_plain_input() -> None:
    sim, _ = api()
    assert split(sim.answer(body(user(text(2_000, mark=SMALL), text(30))))) == (30, 2_000, 0)
    assert split(sim.answer(body(user(text(2_000, mark=SMALL), text(50, "b"))))) == (50, 0, 2_000)


def test_a_growing_conversation_reads_what_it_wrote_and_writes_only_what_is_new() -> None:
    sim, _ = api()
    first, reply = user(text(2_000, mark=SMALL)), assistant(text(10))
    sim.answer(body(first))
    grown = body(user(text(2_000)), reply, user(text(40, "b", mark=SMALL)))
    assert split(sim.answer(grown)) == (0, 50, 2_000)


def test_the_order_is_tools_then_system_then_messages() -> None:
    sim, _ = api()
    request = body(user(text(1_500, "m", SMALL)), tools=[TOOL], system=[text(1_500, "s")])
    _, written, _ = split(sim.answer(request))
    tools_and_system = written - 1_500
    changed = body(user(text(1_500, "n", SMALL)), tools=[TOOL], system=[text(1_500, "s", SMALL)])
    sim.answer(changed)
    assert split(sim.answer(changed))[2] == written
    other = body(user(text(9, "o")), tools=[TOOL], system=[text(1_500, "s", SMALL)])
    assert split(sim.answer(other)) == (9, 0, tools_and_system)


def test_a_changed_tool_loses_everything_after_it() -> None:
    sim, _ = api()
    request = body(user(text(2_000, mark=SMALL)), tools=[marked_tool()], system=[text(2_000)])
    sim.answer(request)
    changed = {**request, "tools": [marked_tool(description="y" * 3_000)]}
    assert split(sim.answer(changed))[2] == 0


def test_a_changed_system_keeps_the_tools() -> None:
    sim, _ = api()
    tools = [marked_tool()]
    first = split(sim.answer(body(user("hello"), tools=tools, system=[text(2_000, "s")])))
    second = sim.answer(body(user("hello"), tools=tools, system=[text(2_000, "t")]))
    assert split(second)[2] == first[1] > 1_024


@pytest.mark.parametrize(
    "change",
    [
        {"tool_choice": {"type": "any"}},
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        {"thinking": {"type": "adaptive"}},
        {"output_config": {"effort": "low"}},
    ],
)
def test_a_changed_setting_loses_the_messages_and_keeps_tools_and_system(change: dict[str, object]) -> None:
    sim, _ = api()
    request = body(user(text(2_000, mark=SMALL)), system=[text(1_500, "s", SMALL)])
    sim.answer(request)
    assert split(sim.answer({**request, **change})) == (0, 2_000, 1_500)


def test_the_default_tool_choice_is_the_same_as_none_given() -> None:
    sim, _ = api()
    request = body(user(text(2_000, mark=SMALL)))
    sim.answer(request)
    assert split(sim.answer({**request, "tool_choice": {"type": "auto"}})) == (0, 0, 2_000)


def test_the_first_image_loses_the_messages_before_it() -> None:
    sim, _ = api()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aa"}}
    sim.answer(body(user(text(2_000, mark=SMALL))))
    with_image = body(user(text(2_000, mark=SMALL), image))
    assert split(sim.answer(with_image)) == (2_000, 2_000, 0)


def test_another_speed_loses_system_and_messages_and_keeps_the_tools() -> None:
    sim, _ = api()
    request = body(user(text(2_000, mark=SMALL)), tools=[marked_tool()], system=[text(2_000, "s", SMALL)])
    _, written, _ = split(sim.answer(request))
    assert split(sim.answer({**request, "speed": "fast"}))[2] == written - 4_000


def test_a_change_of_one_byte_in_a_block_loses_that_block_and_all_that_follow() -> None:
    sim, _ = api()
    sim.answer(body(user(text(1_500, "a", SMALL), text(500, "b"), text(500, "c", SMALL))))
    changed = body(user(text(1_500, "a", SMALL), text(500, "x"), text(500, "c", SMALL)))
    assert split(sim.answer(changed)) == (0, 1_000, 1_500)


def test_the_role_of_a_block_is_part_of_the_prefix() -> None:
    sim, _ = api()
    sim.answer(body(user(text(1_500)), user(text(10, mark=SMALL))))
    assert split(sim.answer(body(user(text(1_500)), assistant(text(10, mark=SMALL)))))[2] == 0


def test_text_content_is_the_same_as_a_list_of_one_text_block() -> None:
    sim, _ = api()
    sim.answer(body(user(text(1_500)), assistant("yes"), user(text(10, mark=SMALL))))
    plain = body(
        {"role": "user", "content": text(1_500)["text"]},
        {"role": "assistant", "content": "yes"},
        user(text(10, mark=SMALL)),
    )
    assert split(sim.answer(plain))[2] == 1_511


def test_marks_are_no_part_of_the_prefix() -> None:
    sim, _ = api()
    sim.answer(body(user(text(1_500, mark=HOUR), text(10, "b", SMALL))))
    assert split(sim.answer(body(user(text(1_500), text(10, "b", SMALL)))))[2] == 1_510


def test_the_order_of_keys_inside_a_tool_input_is_part_of_the_prefix() -> None:
    sim, _ = api()

    def conversation(**input: int) -> dict[str, object]:
        return body(
            user(text(1_500)), assistant(use("t1", "Read", **input)), user(result("t1", mark=SMALL))
        )

    sim.answer(conversation(a=1, b=2))
    assert split(sim.answer(conversation(a=1, b=2)))[2] > 1_500
    assert split(sim.answer(conversation(b=2, a=1)))[2] == 0


# --- breakpoints -----------------------------------------------------------------------------------------


def test_four_breakpoints_are_accepted_and_a_fifth_is_refused() -> None:
    sim, _ = api()
    blocks = [text(500, seed, SMALL) for seed in "abcde"]
    assert sim.answer(body(user(*blocks[:4]))).status == 200
    assert refusal(sim.answer(body(user(*blocks)))) == (
        "A maximum of 4 blocks with cache_control may be provided. Found 5."
    )


def test_a_prefix_below_the_minimum_is_not_kept_and_nothing_says_so() -> None:
    sim, _ = api()
    short, enough = body(user(text(1_023, mark=SMALL))), body(user(text(1_024, mark=SMALL)))
    assert split(sim.answer(short)) == split(sim.answer(short)) == (1_023, 0, 0)
    assert split(sim.answer(enough)) == (0, 1_024, 0)


@pytest.mark.parametrize(
    ("model", "minimum"),
    [("claude-opus-5", 512), ("claude-opus-4-7", 2_048), ("claude-opus-4-5-20251101", 4_096)],
)
def test_the_minimum_is_the_one_of_the_model(model: str, minimum: int) -> None:
    sim, _ = api()
    below = body(user(text(minimum - 1, mark=SMALL)), model=model)
    assert split(sim.answer(below))[1] == 0
    assert split(sim.answer(body(user(text(minimum, mark=SMALL)), model=model)))[1] == minimum


def test_a_breakpoint_writes_only_where_it_stands() -> None:
    sim, _ = api()
    sim.answer(body(user(text(1_500, "a"), text(100, "b", SMALL))))
    elsewhere = body(user(text(1_500, "a", SMALL), text(100, "c")))
    assert split(sim.answer(elsewhere)) == (100, 1_500, 0)


def test_a_breakpoint_on_what_changes_every_time_never_reads() -> None:
    sim, _ = api()
    for n in range(3):
        request = body(user(text(1_500), text(20, str(n), SMALL)))
        assert split(sim.answer(request)) == (0, 1_520, 0)


def test_the_lookback_sees_twenty_positions_with_the_breakpoint_as_the_first() -> None:
    def turn(extra: int) -> int:
        sim, _ = api()
        sim.answer(body(user(text(1_500, mark=SMALL))))
        grown = [text(1_500), *(text(5, chr(97 + n)) for n in range(extra - 1)), text(5, "z", SMALL)]
        return split(sim.answer(body(user(*grown))))[2]

    assert turn(19) == 1_500
    assert turn(20) == 0


def test_a_second_breakpoint_starts_a_lookback_of_its_own() -> None:
    sim, _ = api()
    sim.answer(body(user(text(1_500, mark=SMALL))))
    grown = [text(1_500, mark=SMALL), *(text(5, chr(97 + n)) for n in range(25)), text(5, "z", SMALL)]
    assert split(sim.answer(body(user(*grown))))[2] == 1_500


def test_a_run_of_parallel_tool_uses_and_a_run_of_their_results_are_one_position_each() -> None:
    sim, _ = api()
    sim.answer(body(user(text(1_500, mark=SMALL))))
    ids = [f"t{n}" for n in range(30)]
    results = [result(id) for id in ids]
    results[-1]["cache_control"] = SMALL
    grown = body(user(text(1_500)), assistant(*(use(id) for id in ids)), user(*results))
    assert split(sim.answer(grown))[2] == 1_500


def test_the_longest_prefix_that_is_kept_is_the_one_that_is_read() -> None:
    sim, _ = api()
    sim.answer(body(user(text(1_500, "a", SMALL), text(500, "b", SMALL), text(500, "c", SMALL))))
    again = body(user(text(1_500, "a"), text(500, "b"), text(500, "d", SMALL)))
    assert split(sim.answer(again)) == (0, 500, 2_000)


def test_a_mark_inside_a_tool_result_counts_for_the_result() -> None:
    sim, _ = api()
    inner = [{"type": "text", "text": "x" * 8_000, "cache_control": SMALL}]
    request = body(user("go"), assistant(use("t1")), user(result("t1", inner)))
    written = split(sim.answer(request))[1]
    assert split(sim.answer(request)) == (0, 0, written)


# --- time ------------------------------------------------------------------------------------------------


def test_five_minutes_after_the_last_use_the_prefix_is_gone() -> None:
    sim, clock = api()
    request = body(user(text(2_000, mark=SMALL)))
    sim.answer(request)
    clock.advance(299)
    assert split(sim.answer(request))[2] == 2_000
    clock.advance(301)
    assert split(sim.answer(request)) == (0, 2_000, 0)


def test_every_read_starts_the_five_minutes_again() -> None:
    sim, clock = api()
    request = body(user(text(2_000, mark=SMALL)))
    sim.answer(request)
    for _ in range(10):
        clock.advance(290)
        assert split(sim.answer(request))[2] == 2_000


def test_an_hour_mark_lasts_an_hour() -> None:
    sim, clock = api()
    request = body(user(text(2_000, mark=HOUR)))
    sim.answer(request)
    clock.advance(3_599)
    assert split(sim.answer(request))[2] == 2_000
    clock.advance(3_601)
    assert split(sim.answer(request))[2] == 0


def test_reading_a_long_prefix_keeps_the_shorter_ones_inside_it() -> None:
    sim, clock = api()
    request = body(user(text(1_500, "a", SMALL), text(500, "b", SMALL)))
    sim.answer(request)
    clock.advance(200)
    sim.answer(body(user(text(1_500, "a"), text(500, "b", SMALL))))
    clock.advance(200)
    assert split(sim.answer(body(user(text(1_500, "a", SMALL), text(9, "x")))))[2] == 1_500


def test_the_life_of_an_entry_is_counted_from_the_start_of_its_request() -> None:
    sim, clock = api()
    request = body(user(text(2_000, mark=SMALL)))
    pending = sim.prepare(request)
    clock.advance(200)  # a slow reply
    sim.finish(pending, "done")  # type: ignore[arg-type]
    clock.advance(101)
    assert split(sim.answer(request))[2] == 0


def test_an_hour_before_five_minutes_splits_the_bill() -> None:
    sim, _ = api()
    outcome = sim.answer(body(user(text(1_500, "a", HOUR), text(600, "b", SMALL), text(7))))
    usage = outcome.body["usage"]
    assert usage["cache_creation"] == {"ephemeral_5m_input_tokens": 600, "ephemeral_1h_input_tokens": 1_500}
    assert usage["cache_creation_input_tokens"] == 2_100
    assert usage["input_tokens"] == 7


def test_five_minutes_before_an_hour_is_refused() -> None:
    sim, _ = api()
    said = refusal(sim.answer(body(user(text(1_500, "a", SMALL), text(600, "b", HOUR)))))
    assert "a ttl='1h' cache_control block must not come after a ttl='5m'" in said
    assert said.startswith("messages.0.content.1")


def test_what_was_written_for_five_minutes_stays_that_way_when_it_is_read_with_an_hour_mark() -> None:
    sim, clock = api()
    sim.answer(body(user(text(2_000, mark=SMALL))))
    assert split(sim.answer(body(user(text(2_000, mark=HOUR))))) == (0, 0, 2_000)
    clock.advance(400)
    assert split(sim.answer(body(user(text(2_000, mark=HOUR)))))[2] == 0


# --- whose cache -----------------------------------------------------------------------------------------


def test_each_model_has_its_own_cache() -> None:
    sim, _ = api()
    request = body(user(text(2_000, mark=SMALL)))
    sim.answer(request)
    assert split(sim.answer({**request, "model": "claude-opus-5"}))[2] == 0
    assert split(sim.answer({**request, "model": MODEL}))[2] == 2_000


def test_each_key_has_its_own_cache() -> None:
    sim, _ = api()
    request = body(user(text(2_000, mark=SMALL)))
    sim.answer(request, {"x-api-key": "one"})
    assert split(sim.answer(request, {"x-api-key": "two"}))[2] == 0
    assert split(sim.answer(request, {"Authorization": "Bearer one"}))[2] == 2_000


def test_an_entry_can_be_read_only_after_the_response_that_wrote_it_began() -> None:
    sim, _ = api()
    request = body(user(text(2_000, mark=SMALL)))
    first, second = sim.prepare(request), sim.prepare(request)
    assert split(sim.finish(first, "one")) == (0, 2_000, 0)  # type: ignore[arg-type]
    assert split(sim.finish(second, "two")) == (0, 2_000, 0)  # type: ignore[arg-type]
    assert split(sim.answer(request)) == (0, 0, 2_000)


def test_a_request_that_fails_writes_nothing() -> None:
    from sevenfold.simulator import Script, parse_steps

    sim, _ = api(script=Script(parse_steps('{"error": 529}')))
    request = body(user(text(2_000, mark=SMALL)))
    assert sim.answer(request).status == 529
    assert split(sim.answer(request)) == (0, 2_000, 0)


# --- automatic -------------------------------------------------------------------------------------------


def test_the_automatic_mark_stands_on_the_last_block_and_moves_with_the_conversation() -> None:
    sim, _ = api()
    sim.answer(body(user(text(2_000)), cache_control=SMALL))
    grown = body(user(text(2_000)), assistant("ok"), user(text(30, "b")), cache_control=SMALL)
    assert split(sim.answer(grown)) == (0, 31, 2_000)


def test_the_automatic_mark_may_last_an_hour() -> None:
    sim, _ = api()
    outcome = sim.answer(body(user(text(2_000)), cache_control=HOUR))
    assert outcome.body["usage"]["cache_creation"]["ephemeral_1h_input_tokens"] == 2_000


def test_the_automatic_mark_passes_over_thinking() -> None:
    sim, _ = api()
    thinking = {"type": "thinking", "thinking": "x" * 400, "signature": "s"}
    request = body(user(text(2_000)), assistant(text(10, "b"), thinking), cache_control=SMALL)
    assert split(sim.answer(request)) == (100, 2_010, 0)


def test_the_automatic_mark_takes_one_of_the_four_places() -> None:
    sim, _ = api()
    blocks = [text(500, seed, SMALL) for seed in "abcd"]
    said = refusal(sim.answer(body(user(*blocks, text(5)), cache_control=SMALL)))
    assert said == "A maximum of 4 blocks with cache_control may be provided. Found 5."
    assert sim.answer(body(user(*blocks[:3], text(5)), cache_control=SMALL)).status == 200


def test_the_automatic_mark_does_nothing_where_the_same_mark_already_stands() -> None:
    sim, _ = api()
    blocks = [text(500, seed, SMALL) for seed in "abcd"]
    assert split(sim.answer(body(user(*blocks), cache_control=SMALL))) == (0, 2_000, 0)


def test_the_automatic_mark_is_refused_where_a_mark_of_another_life_stands() -> None:
    sim, _ = api()
    said = refusal(sim.answer(body(user(text(2_000, mark=HOUR)), cache_control=SMALL)))
    assert said == (
        "Top-level cache_control has ttl='5m' but the target block already has cache_control with ttl='1h'"
    )


def test_an_automatic_hour_after_five_minutes_is_refused() -> None:
    sim, _ = api()
    said = refusal(sim.answer(body(user(text(1_500, mark=SMALL), text(5)), cache_control=HOUR)))
    assert "must not come after" in said


# --- what is not marked, and what is not in the prompt ---------------------------------------------------


def test_thinking_cannot_be_marked() -> None:
    sim, _ = api()
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s", "cache_control": SMALL}
    said = refusal(sim.answer(body(user("a"), assistant(thinking, "b"), user("c"))))
    assert said == "messages.1.content.0.thinking.cache_control: Extra inputs are not permitted"


def test_thinking_is_kept_with_what_surrounds_it() -> None:
    sim, _ = api()
    thinking = {"type": "thinking", "thinking": "x" * 4_000, "signature": "s"}
    request = body(user(text(500)), assistant(thinking, use("t1")), user(result("t1", "ok", SMALL)))
    written = split(sim.answer(request))[1]
    assert written > 1_500
    assert split(sim.answer(request))[2] == written


def test_empty_text_cannot_be_marked() -> None:
    sim, _ = api()
    empty = {"type": "text", "text": "", "cache_control": SMALL}
    said = refusal(sim.answer(body(user(text(9), empty))))
    assert said == "messages.0.content.1.text: cache_control cannot be set for empty text blocks"


def test_a_deferred_tool_is_not_in_the_prefix() -> None:
    sim, _ = api()
    tools = [TOOL, {"name": "Later", "defer_loading": True, "input_schema": {}}]
    request = body(user(text(2_000, mark=SMALL)), tools=[TOOL])
    written = split(sim.answer(request))[1]
    assert split(sim.answer({**request, "tools": tools})) == (0, 0, written)


def test_a_deferred_tool_cannot_be_marked() -> None:
    sim, _ = api()
    tool = {"name": "Later", "defer_loading": True, "cache_control": SMALL, "input_schema": {}}
    said = refusal(sim.answer(body(user("hi"), tools=[TOOL, tool])))
    assert "cannot have both defer_loading=true and cache_control" in said


def test_a_warm_up_with_no_output_writes_the_cache() -> None:
    sim, _ = api()
    request = body(user(text(2_000, mark=SMALL)))
    warm = sim.answer({**request, "max_tokens": 0})
    assert split(warm) == (0, 2_000, 0)
    assert (warm.body["content"], warm.body["stop_reason"]) == ([], "max_tokens")
    assert warm.body["usage"]["output_tokens"] == 0
    assert split(sim.answer(request))[2] == 2_000


# --- our extension: cache edits --------------------------------------------------------------------------


def test_a_deleted_result_is_worth_nothing_and_the_prefix_stays() -> None:
    sim, _ = api()
    start = [user(text(1_500)), assistant(use("t1")), user(result("t1", "x" * 4_000, SMALL))]
    written = split(sim.answer(body(*start)))[1]
    edit = {"type": "cache_edits", "delete": ["t1"]}
    after = body(
        *start[:2], user(result("t1", "x" * 4_000)), assistant("ok"), user(edit, text(9, "b", SMALL))
    )
    plain, new, read = split(sim.answer(after))
    assert read == written - 1_000
    assert (plain, new) == (0, 10)
    assert split(sim.answer(after)) == (0, 0, read + 10)


def test_an_edit_stays_in_force_as_long_as_its_block_is_sent() -> None:
    sim, _ = api()
    edit = {"type": "cache_edits", "delete": ["t1"]}
    start = [user(text(1_500)), assistant(use("t1")), user(result("t1", "x" * 4_000), edit)]
    more = [assistant("ok"), user(text(9, "b", SMALL))]
    small = sim.count_tokens(body(*start, *more))["input_tokens"]
    whole = [start[0], start[1], user(result("t1", "x" * 4_000))]
    assert sim.count_tokens(body(*whole, *more))["input_tokens"] == small + 1_000


def test_an_edit_can_only_delete_what_was_there() -> None:
    sim, _ = api()
    edit = {"type": "cache_edits", "delete": ["t9"]}
    said = refusal(sim.answer(body(user("a", edit))))
    assert "no `tool_result` with `tool_use_id` t9" in said
