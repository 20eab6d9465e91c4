"""What a provider would refuse is a mistake with the number of the message; what it takes is taken."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any, get_args

import pytest
from context.conversing import (
    Caller,
    Json,
    answered,
    called,
    chat_called,
    chat_result,
    result,
    results,
    said,
)

from sevenfold.context.context import Context, FormatName
from sevenfold.core.errors import Mistake, SettingsError
from sevenfold.core.messages import Text, assistant
from sevenfold.core.transcript import Reply

NESTED: list[Any] = []
NESTED.append(NESTED)


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "there are no messages"),
        (["hello"], r"messages\[0\] is a str: give each message as an object"),
        ([said("a"), None], r"messages\[1\] is a NoneType"),
        ([{"role": "robot", "content": "x"}], r"messages\[0\] has the role 'robot'"),
        ([{"content": "x"}], r"messages\[0\] has the role None"),
        ([{"role": "user"}], r"messages\[0\] has no content"),
        ([{"role": "user", "content": 7}], r"messages\[0\] has no content"),
        ([{"role": "user", "content": ["x"]}], r"messages\[0\] has no content"),
        ([said("a"), {"role": "user", "content": NESTED}], r"messages\[1\] is nested too deeply"),
        (
            [said("a"), {"role": "user", "content": [{"type": "text", "at": datetime.date.min}]}],
            r"messages\[1\] holds a date, and JSON has no place for it",
        ),
        ([{"role": "user", "content": [{("a",): 1}]}], "has a tuple for a key"),
        (
            [said("a"), called("x", "y"), results(result("x"))],
            r"messages\[1\] makes the tool call 'y' of 'Bash' and no message after it answers",
        ),
        ([said("a"), called("x")], r"messages\[1\] makes the tool call 'x'"),
        (
            [said("a"), called("x"), said("next"), answered("so"), said("b")],
            r"messages\[1\] makes the tool call 'x'",
        ),
        ([results(result("x")), answered("so")], r"messages\[0\] answers the tool call 'x'"),
        (
            [said("a"), called("x"), results(result("x")), results(result("x"))],
            r"messages\[3\] answers the tool call 'x'",
        ),
    ],
)
def test_a_mistake_names_the_message(tmp_path: Path, messages: list[Any], why: str) -> None:
    with pytest.raises(Mistake, match=why):
        Caller(tmp_path).send(messages)


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([{"role": "tool", "content": "x"}], r"messages\[0\] has no tool_call_id"),
        ([chat_result("x")], r"messages\[0\] answers the tool call 'x'"),
        ([said("a"), chat_called("x", "y"), chat_result("y")], r"messages\[1\] makes the .* 'x'"),
        ([{"role": "robot", "content": "x"}], r"messages\[0\] has the role 'robot'"),
        ([{"role": "user", "content": {"a": 1}}], r"messages\[0\] has content that is neither"),
        ([{"role": "user", "content": [1]}], r"messages\[0\] has a part that is no object"),
        ([{"role": "assistant", "tool_calls": ["x"]}], r"messages\[0\] has a tool call that is no"),
        ([{"role": "assistant", "tool_calls": [{"id": "x"}]}], r"messages\[0\] has a tool call"),
        (
            [{"role": "system", "content": "s"}, said("a"), chat_called("x")],
            r"messages\[2\] makes the tool call 'x'",
        ),
    ],
)
def test_a_mistake_in_chat_messages_names_the_message(
    tmp_path: Path, messages: list[Any], why: str
) -> None:
    with pytest.raises(Mistake, match=why):
        Caller(tmp_path, "openai").send(messages)


def test_after_a_mistake_nothing_has_changed(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    history = [said("a"), called("x"), results(result("x")), answered("so"), said("b")]
    sent = caller.send(history)
    events = len(caller.events)
    for wrong in ([*history, called("y")], [said("other"), *history[2:]], [*history, "text"]):
        with pytest.raises(Mistake):
            caller.send(wrong)
    assert len(caller.events) == events
    assert caller.send(history) == sent


# --- what providers take --------------------------------------------------------------------------------


def test_an_answer_that_is_begun_for_the_model_may_end_the_list(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    out = caller.send([said("a haiku"), {"role": "assistant", "content": "Autumn"}])
    assert [m["role"] for m in out] == ["user", "assistant"]
    caller.ctx.record(Reply(assistant(Text(" leaves"))))
    out = caller.send([said("a haiku"), answered("Autumn leaves"), said("more")])
    assert out[1] == answered("Autumn leaves")


@pytest.mark.parametrize(
    "history",
    [
        [{"role": "system", "content": "be brief"}],
        [{"role": "assistant", "content": "hello, how can I help?"}, said("hm")],
        [said("a"), said("b"), {"role": "developer", "content": "c"}, said("d")],
        [said("a"), {"role": "assistant", "content": "b", "tool_calls": []}, said("c")],
        [said("a"), chat_called("x", "y"), chat_result("y"), chat_result("x")],
        [said("a"), chat_called("", ""), chat_result(""), chat_result(""), said("b")],
        [
            said("a"),
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "1"},
        ],
        [{"role": "user", "name": "ann", "content": [{"type": "text", "text": "a"}, {"type": "x"}]}],
        [
            said("a"),
            {"role": "assistant", "content": None, "refusal": "no", "audio": {"id": "audio_1"}},
            said("b"),
        ],
        [
            said("a"),
            {
                "role": "assistant",
                "reasoning_content": "hm",
                "tool_calls": [
                    {"id": "x", "type": "custom", "custom": {"name": "f", "input": "raw"}},
                    {"id": "y", "type": "function", "function": {"name": "g", "arguments": "{bro"}},
                    {"id": "z", "function": {"name": "g", "arguments": {"as": "object"}}},
                ],
            },
            chat_result("x", [{"type": "text", "text": "part"}]),
            chat_result("y"),
            chat_result("z"),
        ],
        [
            {"role": "developer", "content": "first"},
            {"role": "system", "content": [{"type": "text", "text": "second"}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,x"}}]},
        ],
    ],
)
def test_chat_messages_of_every_kind_go_out_as_they_came(tmp_path: Path, history: list[Json]) -> None:
    caller = Caller(tmp_path, "openai")
    assert caller.ctx.prepare(history)["messages"] == history
    assert caller.ctx.prepare([*history, said("z")])["messages"] == [*history, said("z")]


def test_instructions_among_the_messages_of_the_messages_api_pass(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    history = [
        said("a"),
        called("x"),
        {"role": "system", "content": "the user is in a hurry"},
        results(result("x")),
        answered("so"),
        {"role": "system", "content": "the user has left"},
        said("b"),
    ]
    assert caller.send(history)[:-1] == history[:-1]
    assert [p.by for p in caller.ctx.view] == ["user", "model", "tools", "model", "system", "user"]


def test_halves_of_characters_are_mended_on_the_way(tmp_path: Path) -> None:
    caller = Caller(tmp_path, state=tmp_path / "s", id="one")
    half = "bad \udc80 byte \0 and NUL"
    history = [said("a"), called("x"), results(result("x", half)), said(half)]

    out = caller.send(history)
    again = caller.send([*history, answered("so"), said("b")])

    assert out[2]["content"][0]["content"] == "bad ? byte \0 and NUL"
    assert history[3]["content"] == half
    assert again[:3] == out[:3]
    caller.ctx.close()
    resumed = Caller(tmp_path, state=tmp_path / "s", id="one")
    assert resumed.send(history)[:3] == out[:3]
    resumed.ctx.close()


def test_a_result_of_64_megabytes_is_stored_and_not_sent(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    text = "0123456789abcdef" * (4 << 20)
    out = caller.send([said("a"), called("x"), results(result("x", text))])
    assert len(out[2]["content"][0]["content"]) < 5_000
    caller.ctx.close()


# --- what is given beside the messages --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "more", "why"),
    [
        ("anthropic", {"system": [1]}, "system must be a text or a list of text blocks"),
        ("anthropic", {"tools": ["x"]}, r"tools\[0\] is a str: give each tool as an object"),
        ("anthropic", {"tools": [{"name": object()}]}, r"tools\[0\] holds a object"),
        ("openai", {"tools": [1]}, r"tools\[0\] is a int"),
        ("openai", {"system": ["x"]}, "system must be a text here"),
    ],
)
def test_a_mistake_beside_the_messages_is_named(
    tmp_path: Path, format: FormatName, more: Json, why: str
) -> None:
    with pytest.raises(Mistake, match=why):
        Caller(tmp_path, format).send([said("a")], **more)


def test_a_context_that_cannot_be_is_refused_at_once(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    with pytest.raises(Mistake, match="there is no format 'cohere': use 'anthropic' or 'openai'"):
        Context("m", format="cohere", environ=environ)  # type: ignore[arg-type]
    with pytest.raises(Mistake, match="needs the name of a model"):
        Context("  ", environ=environ)
    with pytest.raises(SettingsError, match="toolResults"):
        Context("m", settings={"toolResults": {"mostCharacters": "many"}}, environ=environ)


@pytest.mark.parametrize(
    "response", [None, "text", 7, [], {}, {"type": "error", "error": {}}, {"content": "text"}, object()]
)
def test_what_is_no_reply_is_not_recorded(tmp_path: Path, response: Any) -> None:
    for format in get_args(FormatName):
        caller = Caller(tmp_path, format)
        caller.send([said("a")])
        with pytest.raises(Mistake, match="is no reply in this format: give it the whole response"):
            caller.ctx.record(response)
        assert len(caller.ctx.view) == 1


def test_nothing_can_be_recorded_before_something_was_asked(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="nothing was asked yet"):
        Caller(tmp_path).ctx.record(Reply(assistant(Text("x"))))


def test_a_reply_without_words_is_counted_and_not_shown(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    caller.send([said("a")])
    caller.ctx.record({"content": [], "usage": {"input_tokens": 7}, "stop_reason": "end_turn"})
    assert len(caller.ctx.view) == 1
    assert caller.ctx.ledger.total.usage.input == 7
