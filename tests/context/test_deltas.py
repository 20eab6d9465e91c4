"""Histories that arrive in parts: `prepare(messages, after=...)`; and texts that are more than a `str`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from context.conversing import Caller, Json, answered, said
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.context.context import FormatName
from sevenfold.core.errors import Mistake
from sevenfold.core.messages import Text, assistant
from sevenfold.core.transcript import Reply

FORMATS: tuple[FormatName, ...] = ("anthropic", "openai", "responses")


def respond(format: str, n: int) -> tuple[Json, list[Json]]:
    """A response, and what a caller appends to its history for it."""
    text = f"reply {n}"
    if format == "anthropic":
        return {"id": f"r{n}", **answered(text)}, [answered(text)]
    if format == "openai":
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"id": f"r{n}", "choices": [{"message": message, "finish_reason": "stop"}]}, [message]
    parts = [{"type": "output_text", "text": text, "annotations": []}]
    item = {"id": f"m{n}", "type": "message", "role": "assistant", "status": "completed", "content": parts}
    thought = {"id": f"rs{n}", "type": "reasoning", "summary": []}
    return {"id": f"r{n}", "output": [thought, item]}, [thought, item]


@pytest.mark.parametrize("format", FORMATS)
@given(rounds=st.lists(st.tuples(st.text(min_size=1), st.booleans()), min_size=1, max_size=6))
@settings(max_examples=20, deadline=None)
def test_a_history_in_parts_is_the_whole_history(
    tmp_path_factory: pytest.TempPathFactory, format: FormatName, rounds: list[tuple[str, bool]]
) -> None:
    caller = Caller(tmp_path_factory.mktemp("home"), format)
    history: list[Json] = []
    after = None
    for n, (text, in_parts) in enumerate(rounds):
        new = [said(text)]
        history += new
        is_part = in_parts and after is not None
        out = caller.send(new, after=after) if is_part else caller.send(history)
        whole = msgspec.json.encode(caller.send(history))
        assert msgspec.json.encode(out) == whole
        response, appended = respond(format, n)
        caller.ctx.record(response)
        history += appended
        after = response["id"]
    caller.ctx.close()


@pytest.mark.parametrize("format", FORMATS)
def test_an_unknown_response_is_said_and_changes_nothing(tmp_path: Path, format: FormatName) -> None:
    caller = Caller(tmp_path, format)
    with pytest.raises(Mistake, match="no history is known up to the response 'r0'"):
        caller.send([said("two")], after="r0")
    caller.send([said("one")])
    caller.ctx.record(respond(format, 0)[0])
    with pytest.raises(Mistake, match="give the whole conversation"):
        caller.send([said("two")], after="another")
    assert len(caller.send([said("two")], after="r0")) >= 3
    assert "two, said otherwise" in str(caller.send([said("two, said otherwise")], after="r0")[-1])


def test_a_caller_may_append_the_reply_before_it_is_recorded(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    history = [said("one")]
    caller.send(history)
    history.append(answered("reply"))
    caller.ctx.record({"id": "r1", **answered("reply")})
    roles = [message["role"] for message in caller.send([said("two")], after="r1")]
    assert roles == ["user", "assistant", "user"]


def test_a_reply_of_our_own_kind_can_be_gone_on_from(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    caller.send([said("one")])
    caller.ctx.record(Reply(assistant(Text("reply")), diagnostics={"message_id": "r1"}))
    assert caller.send([said("two")], after="r1")[1] == answered("reply")
    caller.ctx.record(Reply(assistant(Text("again"))))
    with pytest.raises(Mistake, match="no history is known"):
        caller.send([said("three")], after="r1")


class Accessor(str):
    """A text that can be called, as some frameworks have them."""

    __slots__ = ()

    def __call__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return "something else"


@pytest.mark.parametrize("format", FORMATS)
def test_subclasses_of_str_are_texts(tmp_path: Path, format: FormatName) -> None:
    caller = Caller(tmp_path, format)
    tool: Any = {"name": Accessor("look"), "input_schema": {"type": "object"}, "description": Accessor("x")}
    if format != "anthropic":
        tool = {"type": "function", "function": {"name": Accessor("look")}, "name": Accessor("look")}
    message: Any = {Accessor("role"): "user", "content": Accessor("hello")}
    lead: list[Any] = [] if format == "anthropic" else [{"role": "system", "content": Accessor("first")}]
    request = caller.ctx.prepare(
        [*lead, message], system=Accessor("be brief"), tools=[tool], model=Accessor("m"), user=Accessor("u")
    )
    plain = Caller(tmp_path, format).ctx.prepare(
        [*({**one, "content": "first"} for one in lead), {"role": "user", "content": "hello"}],
        system="be brief",
        tools=[tool],
        model="m",
        user="u",
    )
    assert request == plain
    caller.ctx.record(respond(format, 1)[0])
    assert caller.ctx.view[0].message.text == "hello"


def test_a_text_with_methods_is_read_back(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    assert "did not work" in caller.ctx.read_back(Accessor("no json"))
