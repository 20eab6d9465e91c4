"""Earlier messages are known by what they say; what the caller changes is a change, never an error."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from context.conversing import (
    Caller,
    Json,
    answered,
    assert_paired,
    called,
    chat_called,
    chat_result,
    extends,
    marked,
    result,
    results,
    said,
)

from sevenfold.context.context import FormatName
from sevenfold.context.history import IN_TURN, NEWEST
from sevenfold.core.events import Added, Cleared, Sending, Stored
from sevenfold.core.messages import Text, Thinking, ToolUse, assistant
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Replace, Reply, Undo

SMALL: Json = {"toolResults": {"mostCharacters": 500, "previewBytes": 20}}
CLEARING: Json = {"micro": {"policy": "plain", "idleMinutes": 10, "keepRecent": 1}}
LONG = "a long line of output\n" * 100
OTHER = "another line of output\n" * 100


def shown(messages: list[Json], at: int, block: int = 0) -> str:
    return str(messages[at]["content"][block]["content"])


def lines_of(folder: Path) -> int:
    return (folder / "state" / "one.jsonl").read_bytes().count(b"\n")


# --- nothing changed ----------------------------------------------------------------------------------


def test_what_no_layer_touches_goes_out_as_it_was_written(tmp_path: Path) -> None:
    history = [
        said("go"),
        {"role": "assistant", "content": [{"type": "brand_new", "x": 1.5}, *called("a")["content"]]},
        results(result("a", [{"type": "text", "text": "ok", "new": [1]}], is_error=False, own="yes")),
        {"role": "assistant", "content": "done", "field": {"of": "its own"}},
        said("thanks"),
    ]
    before = copy.deepcopy(history)
    caller = Caller(tmp_path)

    out = caller.ctx.prepare(history)["messages"]

    assert out[:-1] == history[:-1]
    assert out[-1]["content"][0]["text"] == "thanks"
    assert history == before
    assert caller.send(history)[:-1] == history[:-1]


def test_asked_twice_nothing_grows(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    history = [said("go"), called("a"), results(result("a"))]
    first = caller.send(history)
    entries = len(caller.ctx.view)

    assert caller.send(copy.deepcopy(history)) == first
    assert len(caller.ctx.view) == entries == 3
    assert not caller.told(Added)


def test_the_marks_of_a_caller_come_and_go_without_changing_anything(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    history = [said("go"), called("a"), results(result("a", LONG)), answered("so"), said("more")]

    first = caller.send([*history[:-1], marked(history[-1])])
    second = caller.send([*history, answered("yes"), marked(said("and?"))])
    third = caller.send([marked(history[0]), *history[1:3], marked(history[3]), history[4]])

    assert extends(first, second)
    assert extends(first, third)
    assert [type(e) for e in caller.told(Added)] == [Added]  # the two that were taken away again


def test_a_result_is_shown_the_same_way_for_ever(tmp_path: Path) -> None:
    caller = Caller(tmp_path, settings=SMALL)
    history = [said("go"), called("a"), results(result("a", LONG))]
    first = caller.send(history)
    assert shown(first, 2).startswith("<persisted-output>")

    for n in range(20):
        history += [called(f"n{n}"), results(result(f"n{n}", f"small {n}"))]
        assert extends(first, caller.send(history))
    assert len(caller.told(Stored)) == 1


# --- the caller changes something ---------------------------------------------------------------------


def test_an_edited_message_is_a_break_with_a_reason_and_what_stands_before_it_stays(tmp_path: Path) -> None:
    caller = Caller(tmp_path, settings=SMALL)
    history = [
        said("go"),
        called("a"),
        results(result("a", LONG)),
        called("b"),
        results(result("b", LONG)),
        answered("so"),
    ]
    before = caller.send(history)

    changed = [*history[:4], results(result("b", OTHER)), history[5]]
    after = caller.send(changed)

    assert after[:4] == before[:4]
    assert "another line" in shown(after, 4)
    assert after[5] == before[5]
    assert caller.told(Sending)[-1].why == "the caller changed messages[4]"
    assert caller.told(Sending)[-1].expected
    assert isinstance(caller.told(Added)[-1].whats[0], Undo)

    back = caller.send(history)
    assert back == before
    assert len(caller.told(Stored)) == 3, "what was decided before was found again"


def test_a_change_inside_an_object_that_we_have_seen_is_noticed(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    history = [said("go"), called("a", path="x"), results(result("a"))]
    caller.send(history)

    history[1]["content"][0]["input"]["path"] = "y"
    out = caller.send(history)

    assert out[1]["content"][0]["input"]["path"] == "y"
    assert caller.ctx.view[1].message.tool_uses[0].input["path"] == "y"
    assert caller.told(Sending)[-1].why == "the caller changed messages[1]"


def test_a_change_inside_an_old_object_of_a_long_conversation_is_noticed_in_a_few_requests(
    tmp_path: Path,
) -> None:
    caller = Caller(tmp_path)
    history = [turn(n) for n in range(2 * IN_TURN + NEWEST)]
    for _ in range(2):
        caller.send(history)

    history[-NEWEST]["content"] = "one of the newest"
    caller.send(history)
    assert caller.ctx.view[len(history) - NEWEST].message.text == "one of the newest"

    history[0]["content"] = "the oldest"
    seen = [(caller.send(history), caller.ctx.view[0].message.text) for _ in range(2)]
    assert all(out[0]["content"] == "the oldest" for out, _ in seen), "it is sent as it is from the first"
    assert seen[-1][1] == "the oldest"

    history[IN_TURN]["content"] = "in the middle"  # this caller does such things
    caller.send(history)
    assert caller.ctx.view[IN_TURN].message.text == "in the middle"


def test_a_new_object_in_place_of_an_old_one_of_a_long_conversation_is_noticed(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    history = [turn(n) for n in range(4 * IN_TURN)]
    for _ in range(2):
        caller.send(history)

    history[IN_TURN + 1] = answered("otherwise")
    caller.send(history)

    assert caller.ctx.view[IN_TURN + 1].message.text == "otherwise"


def turn(number: int) -> Json:
    return answered(f"answer {number}") if number % 2 else said(f"question {number}")


def test_what_the_caller_does_to_a_request_is_not_in_the_next_one(tmp_path: Path) -> None:
    caller = Caller(tmp_path, settings=SMALL)
    history = [said("go"), called("a"), results(result("a", LONG))]
    before = copy.deepcopy(caller.send(history))

    for block in caller.ctx.prepare(history)["messages"][2]["content"]:
        block["content"] = "spoiled"

    assert caller.send(history) == before


def test_a_plain_message_changed_in_its_place_leaves_the_rest_of_the_log_alone(tmp_path: Path) -> None:
    caller = Caller(tmp_path, state=tmp_path / "state", id="one", settings=SMALL)
    history = [said("it is 12:00"), answered("ok"), said("go"), called("a"), results(result("a", LONG))]
    caller.send(history)
    entries = lines_of(tmp_path)

    for minute in range(1, 30):
        history[0] = said(f"it is 12:{minute:02}")
        out = caller.send(history)
        assert out[0]["content"] in (
            f"it is 12:{minute:02}",
            [{"type": "text", "text": f"it is 12:{minute:02}"}],
        )
        assert shown(out, 4).startswith("<persisted-output>")

    assert lines_of(tmp_path) == entries + 29
    assert isinstance(caller.told(Added)[-1].whats[0], Replace)


@pytest.mark.parametrize("format", ["anthropic", "openai"])
def test_a_sliding_window_costs_one_line_a_step(tmp_path: Path, format: FormatName) -> None:
    chat = format == "openai"
    state = tmp_path / "state"
    caller = Caller(tmp_path, format, state=state, id="one", settings=SMALL)
    history: list[Json] = []
    lines = 0
    for n in range(40):
        history += [
            said(f"question {n}"),
            chat_called(f"u{n}") if chat else called(f"u{n}"),
            chat_result(f"u{n}", LONG) if chat else results(result(f"u{n}", LONG)),
            {"role": "assistant", "content": f"answer {n}"},
        ]
        window = [*history[-40:], said("go on")]
        out = caller.send(window)
        assert_paired(out)
        assert len(out) == len(window) == len(caller.ctx.view)
        assert "<persisted-output>" in str(out[2]["content"])
        grown, lines = lines_of(tmp_path) - lines, lines_of(tmp_path)
        assert grown <= 7
    assert len(caller.told(Stored)) == 40


def test_a_history_that_starts_over_shorter_is_taken_as_it_comes(tmp_path: Path) -> None:
    caller = Caller(tmp_path, settings=SMALL)
    history = [said("go"), called("a"), results(result("a", LONG)), answered("so"), said("more")]
    first = caller.send(history)

    assert [m["content"] for m in caller.send([said("something else")])] == [
        [{"type": "text", "text": "something else"}]
    ]
    assert extends(caller.send(history[:1]), first)
    assert caller.send(history) == first


def test_messages_in_another_order_are_sent_in_that_order(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    a, b, c = said("a"), answered("b"), said("c")
    caller.send([a, b, c, answered("d"), said("e")])

    out = caller.send([c, b, a, answered("d"), said("e")])

    assert out[:-1] == [c, b, a, answered("d")]
    assert [p.message.text for p in caller.ctx.view] == ["c", "b", "a", "d", "e"]


def test_a_message_put_in_between_is_sent_in_between(tmp_path: Path) -> None:
    caller = Caller(tmp_path, settings=SMALL)
    history = [said("go"), called("a"), results(result("a", LONG)), answered("so"), said("more")]
    before = caller.send(history)

    after = caller.send([history[0], said("by the way"), *history[1:]])

    assert after[1]["content"] == "by the way"
    assert after[2:] == before[1:], "what was shown once is shown the same way again"
    assert len(caller.told(Stored)) == 1


# --- what layer 2 did ---------------------------------------------------------------------------------


def cleared_history(caller: Caller) -> list[Json]:
    history = [said("go")]
    for n in range(4):
        history += [called(f"u{n}"), results(result(f"u{n}", f"output {n} " * 60))]
    caller.send(history)
    caller.ctx.record(Reply(assistant(Text("so")), Usage(input=100, output=5)))
    history.append(answered("so"))
    caller.clock.time += 3_600
    return [*history, said("and now?")]


def test_what_layer_2_cleared_stays_cleared_when_the_caller_edits_before_or_behind_it(
    tmp_path: Path,
) -> None:
    caller = Caller(tmp_path, settings=CLEARING)
    history = cleared_history(caller)
    first = caller.send(history)
    assert shown(first, 2).startswith("(cleared: ")
    assert caller.told(Cleared)

    behind = caller.send([*history[:-1], said("something else?")])
    assert behind[:-1] == first[:-1]
    before = caller.send([said("do go"), said("please"), *history[1:]])
    assert before[2:] == first[1:]
    assert len(caller.told(Cleared)) == 1


def test_a_result_that_was_cleared_and_is_asked_for_again_under_the_same_id_is_shown(
    tmp_path: Path,
) -> None:
    caller = Caller(tmp_path, settings=CLEARING)
    history = [said("go")]
    for n in range(3):
        history += [called("call_0"), results(result("call_0", f"output {n} " * 60))]
    caller.send(history)
    caller.ctx.record(Reply(assistant(Text("so")), Usage(input=100, output=5)))
    caller.clock.time += 3_600
    history += [answered("so"), said("read the first one again")]
    out = caller.send(history)
    assert [shown(out, at)[:8] for at in (2, 4, 6)] == ["(cleared", "(cleared", "output 2"]

    history += [called("call_0"), results(result("call_0", "output 0 " * 60))]
    assert shown(caller.send(history), len(history) - 1) == "output 0 " * 60


# --- replies ------------------------------------------------------------------------------------------


def test_a_recorded_reply_and_the_callers_copy_of_it_are_one(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    history = [said("go")]
    caller.send(history)
    caller.ctx.record(Reply(assistant(Text("yes"), ToolUse("a", "Bash", {"of": "a"}))))
    copy_of_it = {
        "role": "assistant",
        "content": [{"type": "text", "text": "yes"}, *called("a")["content"]],
    }
    history += [copy_of_it, results(result("a"))]

    out = caller.send(history)

    assert out[:2] == history[:2]
    assert [p.by for p in caller.ctx.view] == ["user", "model", "tools"]
    assert not caller.told(Added)


def test_a_copy_without_its_thinking_is_what_the_view_shows_and_the_usage_stays(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    caller.send([said("go")])
    reply = assistant(Thinking("hm " * 50, "signed"), Text("yes"))
    caller.ctx.record(Reply(reply, Usage(input=900, output=60)))
    with_thoughts = caller.ctx.view.tokens

    caller.send([said("go"), answered("yes"), said("more")])

    assert [p.message.text for p in caller.ctx.view] == ["go", "yes", "more"]
    assert not any(isinstance(b, Thinking) for p in caller.ctx.view for b in p.message.content)
    assert 850 < caller.ctx.view.tokens < with_thoughts == 960
    assert not caller.told(Added)


def test_a_reply_that_the_caller_put_in_other_words_is_the_callers(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    caller.send([said("go")])
    caller.ctx.record(Reply(assistant(Text("  yes, of course\n"))))

    out = caller.send([said("go"), answered("yes, of course"), said("more")])

    assert out[1] == answered("yes, of course")
    assert [p.message.text for p in caller.ctx.view] == ["go", "yes, of course", "more"]
    assert not caller.told(Added), "what was never sent cannot break anything"


def test_a_reply_that_the_caller_does_without_is_gone(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    caller.send([said("go")])
    caller.ctx.record(Reply(assistant(Text("nonsense"))))
    caller.ctx.record(Reply(assistant(Text("better"))))
    assert [p.message.text for p in caller.ctx.view] == ["go", "better"]

    caller.send([said("go")])

    assert [p.message.text for p in caller.ctx.view] == ["go"]
    assert not caller.told(Added)
    assert caller.ctx.ledger.total.requests == 2


def test_a_caller_who_never_records_is_understood_all_the_same(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    history = [said("go"), called("a"), results(result("a")), answered("so"), said("more")]
    caller.send(history)
    assert [p.by for p in caller.ctx.view] == ["user", "model", "tools", "model", "user"]


# --- groups and ids -----------------------------------------------------------------------------------


def test_answers_in_several_messages_are_one_message_of_the_view(tmp_path: Path) -> None:
    caller = Caller(tmp_path, settings=SMALL)
    history = [
        said("go"),
        called("a", "b", "c"),
        results(result("b", LONG)),
        results(result("a")),
        {"role": "user", "content": [result("c", OTHER), {"type": "text", "text": "and be quick"}]},
        said("now"),
    ]

    out = caller.send(history)

    assert len(out) == 6
    assert [len(p.message.content) for p in caller.ctx.view] == [1, 3, 4, 1]
    assert shown(out, 2).startswith("<persisted-output>")
    assert out[3] == history[3]
    assert shown(out, 4).startswith("<persisted-output>")
    assert out[4]["content"][1] == history[4]["content"][1]
    assert_paired(out)


def test_a_run_of_tool_messages_is_one_message_of_the_view(tmp_path: Path) -> None:
    caller = Caller(tmp_path, "openai", settings=SMALL)
    history = [
        said("go"),
        chat_called("a", "b"),
        chat_result("b", LONG),
        chat_result("a", "short"),
        said("now"),
    ]

    out = caller.send(history)

    assert len(caller.ctx.view) == 4
    assert out[2]["content"].startswith("<persisted-output>")
    assert out[2] == {**history[2], "content": out[2]["content"]}
    assert [out[i] for i in (0, 1, 3, 4)] == [history[i] for i in (0, 1, 3, 4)]


def test_calls_in_several_assistant_messages_are_answered_together(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    history = [said("go"), called("a"), called("b"), results(result("a"), result("b"))]
    out = caller.send(history)
    assert out == [*history[:3], out[3]]
    assert len(caller.ctx.view) == 3

    later = [said("go"), called("a"), called("c"), called("b"), results(*map(result, "abc"))]
    assert len(caller.send(later)) == 5
    assert len(caller.ctx.view) == 3


def test_ids_that_come_again_and_again_do_not_mix_results(tmp_path: Path) -> None:
    caller = Caller(tmp_path, settings=SMALL)
    history = [said("go")]
    for n in range(5):
        history += [called("call_0", "call_0"), results(result("call_0", f"{n} {LONG}"), result("call_0"))]
        out = caller.send(history)

    ids = [use.id for p in caller.ctx.view for use in p.message.tool_uses]
    assert len(set(ids)) == 10
    for n in range(5):
        assert f"{n} a long line" in shown(out, 2 * n + 2, 0)
        assert shown(out, 2 * n + 2, 1) == "ok"
        assert out[2 * n + 1] == history[2 * n + 1], "the caller's own ids go out"
    assert len({event.path for event in caller.told(Stored)}) == 5
