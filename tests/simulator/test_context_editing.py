"""Context editing by the provider: what is cleared, what is reported, what it does to the cache."""

from __future__ import annotations

from typing import Any

from simulator.wire import SMALL, Json, api, assistant, body, refusal, result, split, text, use, user

PLACEHOLDER = 12
"""Tokens of what stands where a result was."""


def rounds(n: int, size: int = 1_000, name: str = "Read") -> list[Json]:
    out = [user("begin")]
    for i in range(n):
        out += [assistant(use(f"t{i}", name, path=f"f{i}")), user(result(f"t{i}", "x" * 4 * size))]
    return out


def clearing(**more: Any) -> Json:
    return {"edits": [{"type": "clear_tool_uses_20250919", **more}]}


def trigger(tokens: int) -> Json:
    return {"type": "input_tokens", "value": tokens}


BINDS = "claude-opus-5-5"
WITH_BETA = {"x-api-key": "k", "anthropic-beta": "thinking-binding-controls-2026-08-01"}
DROPS = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}


def answer_with_thought(sim: Any, model: str) -> tuple[Json, Json]:
    """A question, and the reply to it: it begins with thinking."""
    asked = user("where?")
    outcome = sim.answer({**body(asked), "model": model})
    return asked, {"role": "assistant", "content": outcome.body["content"]}


def think(body: Json) -> list[Json]:
    return [{"type": "thinking", "thinking": "hm " * 40}, {"type": "text", "text": "there"}]


def test_thinking_that_is_bound_is_refused_on_another_prefix() -> None:
    sim, _ = api(replies=think)
    asked, said = answer_with_thought(sim, BINDS)
    same = {**body(asked, said, user("and then?")), "model": BINDS}
    assert sim.answer(same).status == 200
    other = {**body(user("where else?"), said, user("and then?")), "model": BINDS}
    assert "does not match the conversation before it" in refusal(sim.answer(other))


def test_thinking_that_is_not_bound_goes_with_any_prefix() -> None:
    sim, _ = api(replies=think)
    _, said = answer_with_thought(sim, "claude-opus-4-8")
    assert sim.answer(body(user("where else?"), said, user("and then?"))).status == 200


def test_a_request_may_ask_that_thinking_on_another_prefix_is_dropped() -> None:
    sim, _ = api(replies=think)
    _, said = answer_with_thought(sim, BINDS)
    other = {**body(user("where else?"), said, user("and then?")), "model": BINDS, "thinking": DROPS}
    assert "Extra inputs are not permitted" in refusal(sim.answer(other))
    bare = {**other, "messages": [user("where else?"), assistant("there"), user("and then?")]}

    assert split(sim.answer(other, WITH_BETA)) == split(sim.answer(bare, WITH_BETA))


def test_below_the_trigger_nothing_is_cleared() -> None:
    sim, _ = api()
    outcome = sim.answer(body(*rounds(5), context_management=clearing(trigger=trigger(10_000))))
    assert outcome.body["context_management"] == {"applied_edits": []}


def test_over_the_trigger_all_but_the_newest_results_are_cleared_and_reported() -> None:
    sim, _ = api()
    request = body(*rounds(5), context_management=clearing(trigger=trigger(3_000)))
    whole = sim.count_tokens({**request, "context_management": None})["input_tokens"]
    outcome = sim.answer(request)
    freed = 2 * (1_000 - PLACEHOLDER)
    assert outcome.body["context_management"] == {
        "applied_edits": [
            {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 2, "cleared_input_tokens": freed}
        ]
    }
    assert sum(split(outcome)) == whole - freed
    assert outcome.row.applied_edits[0]["cleared_tool_uses"] == 2


def test_the_default_trigger_is_a_hundred_thousand_tokens_and_three_uses_stay() -> None:
    sim, _ = api()
    small = sim.answer(body(*rounds(9, 10_000), context_management=clearing()))
    assert small.row.applied_edits == []
    large = sim.answer(body(*rounds(11, 10_000), context_management=clearing()))
    assert large.row.applied_edits[0]["cleared_tool_uses"] == 8


def test_the_trigger_may_count_tool_uses() -> None:
    sim, _ = api()
    setting = clearing(trigger={"type": "tool_uses", "value": 4}, keep={"value": 1})
    assert sim.answer(body(*rounds(4), context_management=setting)).row.applied_edits == []
    edits = sim.answer(body(*rounds(5), context_management=setting)).row.applied_edits
    assert edits[0]["cleared_tool_uses"] == 4


def test_excluded_tools_are_never_cleared() -> None:
    sim, _ = api()
    messages = [*rounds(2, name="Edit"), *rounds(4)[1:]]
    messages[5:] = [assistant(use("u0")), user(result("u0", "x" * 4_000)), *user_rounds()]
    setting = clearing(trigger=trigger(1_000), keep={"value": 1}, exclude_tools=["Edit"])
    outcome = sim.answer(body(*messages, context_management=setting))
    assert outcome.row.applied_edits[0]["cleared_tool_uses"] == 1


def user_rounds() -> list[Json]:
    return [assistant(use("u1")), user(result("u1", "x" * 4_000))]


def test_clearing_that_would_free_too_little_is_not_done() -> None:
    sim, _ = api()
    at_least = {"type": "input_tokens", "value": 5_000}
    setting = clearing(trigger=trigger(1_000), clear_at_least=at_least)
    assert sim.answer(body(*rounds(6), context_management=setting)).row.applied_edits == []
    assert sim.answer(body(*rounds(9), context_management=setting)).row.applied_edits != []


def test_inputs_go_as_well_when_asked() -> None:
    sim, _ = api()
    messages = [
        user("a"),
        assistant(use("t1", "Write", content="y" * 2_000)),
        user(result("t1", "x" * 400)),
    ]
    setting = clearing(trigger=trigger(10), keep={"value": 0})
    kept = sim.answer(body(*messages, context_management=setting)).row.applied_edits[0]
    setting["edits"][0]["clear_tool_inputs"] = True
    gone = sim.answer(body(*messages, context_management=setting)).row.applied_edits[0]
    assert gone["cleared_input_tokens"] - kept["cleared_input_tokens"] > 1_000


def test_clearing_breaks_the_cache_from_the_first_cleared_result_on() -> None:
    sim, _ = api()
    messages = rounds(5)
    messages[0] = user(text(1_500, mark=SMALL))
    messages[-1]["content"][0]["cache_control"] = SMALL
    written = split(sim.answer(body(*messages)))[1]
    setting = clearing(trigger=trigger(1_000))
    _, rewritten, read = split(sim.answer(body(*messages, context_management=setting)))
    assert read == 1_500
    assert rewritten < written
    again = sim.answer(body(*messages, context_management=setting))
    assert split(again) == (0, 0, read + rewritten)


def test_the_callers_messages_are_not_touched() -> None:
    sim, _ = api()
    messages = rounds(5)
    before = str(messages)
    sim.answer(body(*messages, context_management=clearing(trigger=trigger(1_000))))
    assert str(messages) == before


def test_counting_says_what_it_would_be_with_and_without_the_edits() -> None:
    sim, _ = api()
    request = body(*rounds(5), context_management=clearing(trigger=trigger(1_000)))
    whole = sim.count_tokens({**request, "context_management": None})["input_tokens"]
    assert sim.count_tokens(request) == {
        "input_tokens": whole - 2 * (1_000 - PLACEHOLDER),
        "context_management": {"original_input_tokens": whole},
    }


def test_an_edit_of_a_kind_we_do_not_know_is_accepted_and_does_nothing() -> None:
    sim, _ = api()
    setting = {"edits": [{"type": "compact_20260112"}]}
    outcome = sim.answer(body(*rounds(3), context_management=setting))
    assert outcome.body["context_management"] == {"applied_edits": []}


# --- thinking --------------------------------------------------------------------------------------------


def thought(n: int) -> Json:
    return {"type": "thinking", "thinking": "x" * 400, "signature": f"s{n}"}


def conversation(turns: int) -> list[Json]:
    out: list[Json] = []
    for n in range(turns):
        out += [user(f"question {n}"), assistant(thought(n), use(f"t{n}")), user(result(f"t{n}"))]
        out += [assistant(thought(n), "answer")]
    return [*out, user("and now?")]


def keeping(keep: Any) -> Json:
    return {"edits": [{"type": "clear_thinking_20251015", "keep": keep}]}


def test_thinking_of_old_turns_goes_and_that_of_the_newest_stays() -> None:
    sim, _ = api()
    setting = keeping({"type": "thinking_turns", "value": 2})
    outcome = sim.answer(body(*conversation(5), context_management=setting))
    assert outcome.body["context_management"]["applied_edits"] == [
        {"type": "clear_thinking_20251015", "cleared_thinking_turns": 3, "cleared_input_tokens": 600}
    ]


def test_keeping_all_thinking_keeps_the_cache() -> None:
    sim, _ = api()
    messages = conversation(12)
    messages[-1] = user({"type": "text", "text": "and now?", "cache_control": SMALL})
    written = split(sim.answer(body(*messages)))[1]
    assert split(sim.answer(body(*messages, context_management=keeping("all"))))[2] == written > 0


def test_thinking_must_be_cleared_first_when_both_are() -> None:
    sim, _ = api()
    edits = [*clearing()["edits"], *keeping("all")["edits"]]
    said = refusal(sim.answer(body(user("a"), context_management={"edits": edits})))
    assert "must be the first edit" in said
    assert sim.answer(body(user("a"), context_management={"edits": edits[::-1]})).status == 200


def test_older_models_drop_thinking_by_themselves_when_the_user_speaks_again() -> None:
    sim, _ = api()
    request = body(*conversation(3))
    kept = sim.count_tokens(request)["input_tokens"]
    dropped = sim.count_tokens({**request, "model": "claude-haiku-4-5"})["input_tokens"]
    assert kept - dropped == 600


def test_older_models_keep_the_thinking_of_a_tool_round_that_is_still_open() -> None:
    sim, _ = api()
    request = body(user("a"), assistant(thought(1), use("t1")), user(result("t1")))
    assert (
        sim.count_tokens(request)
        == sim.count_tokens({**request, "model": "claude-haiku-4-5"})
    )  # fmt: skip
