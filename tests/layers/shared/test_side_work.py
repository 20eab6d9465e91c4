"""Side work is asked for the cheaper way, and the event says which and why."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any

import pytest
from kit import PRICES, make_forks
from msgspec.structs import replace

from sevenfold.cache.ledger import SIDE
from sevenfold.cache.prefix import count_kept_tokens
from sevenfold.core.errors import ModelFailure, ModelNotFound, PromptTooLong
from sevenfold.core.events import Event, SideWorkChosen
from sevenfold.core.messages import (
    Message,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    assistant,
    user,
    write_directive,
)
from sevenfold.core.protocols import Forker, ForkReply
from sevenfold.core.request import TTL_SECONDS, Frame, Request
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Mark, Reply, Transcript
from sevenfold.layers.shared.side_work import (
    SideQuestion,
    SideWork,
    SmallModel,
    choose_way,
    find_small_model,
    find_told_calls,
    make_lean_messages,
)
from sevenfold.settings.layers import SideWay
from sevenfold.testing import FakeClock, ScriptedModel

pytestmark = pytest.mark.anyio
OPUS, HAIKU = "claude-opus-4-8", "claude-haiku-4-5"
DIRECTIVE = user(write_directive("notes", "n-1", "write down what happened"))
EDIT = {"name": "Edit", "description": "Edits.", "input_schema": {}}
BASH = {"name": "Bash", "description": "Runs.", "input_schema": {}}


def conversation(clock: FakeClock, said: str = "Fix the failing build, please.") -> Transcript:
    t = Transcript(clock.now)
    t.add(user(said))
    uses = (ToolUse("a", "Read", {"file_path": "build.toml"}), ToolUse("b", "Bash", {"command": "make"}))
    t.add(Reply(assistant(Text("I look."), *uses), stop="tool_use"), by="model")
    results = (ToolResult("a", "x = 1\n" * 2_000), ToolResult("b", "make: no rule\nmore", is_error=True))
    t.add(Message("user", results), by="tools")
    t.add(user("<recalled-memories>tabs</recalled-memories>"), by="Recall")
    t.add(Reply(assistant(Text("A rule is missing.")), Usage(cache_read=100_000, output=10)), by="model")
    return t


@pytest.mark.parametrize(
    ("setting", "model", "prefix", "lean", "warm", "way"),
    [
        ("cheapest", OPUS, 100_000, 5_000, True, "lean"),
        ("cheapest", OPUS, 40_000, 40_000, True, "fork"),
        ("cheapest", OPUS, 40_000, 40_000, False, "lean"),
        ("fork", OPUS, 100_000, 5_000, True, "fork"),
        ("small", OPUS, 3_000, 5_000, True, "lean"),
        ("cheapest", "offline", 100_000, 5_000, True, "fork"),
        ("small", "offline", 100_000, 5_000, True, "lean"),
        ("cheapest", "a model that no table knows", 100_000, 5_000, True, "fork"),
    ],
)
def test_the_price_table_decides_unless_the_user_has(
    setting: SideWay, model: str, prefix: int, lean: int, warm: bool, way: str
) -> None:
    question = SideQuestion("notes", (), asked=900, output=500)
    small = PRICES.of(find_small_model(PRICES, model, None))
    chosen = choose_way(
        setting, PRICES.of(model), small, question, prefix=prefix, read=prefix if warm else 0, lean=lean
    )
    assert chosen.way == way
    assert chosen.why


def test_a_prefix_that_is_not_cached_any_more_is_dear() -> None:
    question = SideQuestion("extract", (), asked=900, output=500, steps=5)
    main, small = PRICES.of(OPUS), PRICES.of(HAIKU)
    warm, cold = (
        choose_way(
            "cheapest", main, small, question, prefix=10_000, read=10_000 if hot else 0, lean=40_000
        ).fork
        or 0.0
        for hot in (True, False)
    )
    assert cold > 3 * warm


def test_a_fork_of_a_model_that_forgets_its_thinking_reads_what_stands_before_it() -> None:
    t = Transcript(lambda: 0.0)
    t.add(user("x" * 20_000))
    t.add(Reply(assistant(Thinking("hm", "signed"), ToolUse("a", "Read", {}))), by="model")
    t.add(Message("user", (ToolResult("a", "y" * 40_000),)), by="tools")
    t.add(Reply(assistant(Text("Read."))), by="model")
    for said in ("", "and now?"):
        t.add(user(said)) if said else None
        request = Request(Frame(OPUS), t.view)
        assert count_kept_tokens(request, keeps_thinking=True) == request.tokens
        assert 5_000 <= count_kept_tokens(request, keeps_thinking=False) < 5_100


def test_what_is_new_holds_words_in_full_and_a_line_for_each_call() -> None:
    t = conversation(FakeClock())
    first, second = make_lean_messages(t.view, t.view)
    assert first == user("Fix the failing build, please.")
    assert second.text.splitlines() == [
        "I look.",
        "[Read build.toml: done]",
        "[Bash make: failed: make: no rule more]",
        "A rule is missing.",
    ]


def test_of_a_command_the_last_line_is_told() -> None:
    t = Transcript(lambda: 0.0)
    t.add(user("Run the tests."))
    t.add(Reply(assistant(ToolUse("a", "Bash", {"command": "make test"})), stop="tool_use"), by="model")
    t.add(Message("user", (ToolResult("a", "......\n12 passed in 3 s\n"),)), by="tools")
    told = make_lean_messages(t.view, t.view)[-1].text
    assert told == "[Bash make test: done: 12 passed in 3 s]"
    assert find_told_calls(told) == ["Bash"]


def test_with_the_times_of_the_entries_the_surroundings_and_each_new_day_are_told() -> None:
    clock = FakeClock(1_793_448_000.0)
    t = Transcript(clock.now)
    t.add(Mark("surroundings", {"Date": "a day", "Git branch": "main"}), by="session")
    for text in ("one", "two", "three"):
        t.add(user(text))
        clock.time += 86_400.0 * (text == "two")
    told = make_lean_messages(t.view, t.view, {entry.id: entry.at for entry in t.entries})
    assert [message.text for message in told] == [
        "<context>\nDate: 2026-10-31\nGit branch: main\n</context>",
        "one",
        "two",
        "<context>\nDate: 2026-11-01\n</context>",
        "three",
    ]


def test_a_reader_finds_the_calls_again() -> None:
    t = conversation(FakeClock())
    told = make_lean_messages(t.view, t.view)
    assert find_told_calls(told[1].text) == ["Read", "Bash"]
    assert find_told_calls("[a list of things: done by hand]") == []


@pytest.mark.parametrize(
    ("model", "wanted", "small"),
    [
        (OPUS, None, HAIKU),
        (f"{OPUS}[1m]", None, HAIKU),
        (f"anthropic:{OPUS}", None, f"anthropic:{HAIKU}"),
        (HAIKU, None, HAIKU),
        ("gpt-5", None, "gpt-5-mini"),
        (OPUS, "claude-sonnet-5", "claude-sonnet-5"),
        ("us.anthropic.claude-opus-4-8-v1:0", None, "us.anthropic.claude-opus-4-8-v1:0"),
        ("a-model-of-yours", None, "a-model-of-yours"),
        ("offline", None, "offline"),
    ],
)
def test_the_small_model_is_the_one_of_the_table_or_the_one_that_was_set(
    model: str, wanted: str | None, small: str
) -> None:
    assert find_small_model(PRICES, model, wanted) == small


class Desk:
    """A conversation with side work, and the two models that may be asked."""

    def __init__(self, setting: SideWay = "cheapest", ask: Forker | None = None) -> None:
        self.clock, self.events = FakeClock(), list[Event]()
        self.main, self.small = ScriptedModel(["by a fork"] * 3), ScriptedModel(["by itself"] * 3)
        emit = self.events.append
        self.work = SideWork(
            make_forks(self.main, emit, self.clock),
            PRICES,
            self.clock,
            emit,
            setting,
            SmallModel(
                ask or with_fields(make_forks(self.small, emit, self.clock), source=SIDE),
                lambda model: find_small_model(PRICES, model, None),
                lambda name: 200_000,
            ),
        )

    def request(self, said: str = "Fix the failing build, please.") -> Request:
        frame = Frame(OPUS, ("a long system prompt",), (EDIT, BASH))
        return Request(frame, conversation(self.clock, said).view)

    async def ask(self, request: Request) -> str:
        new = make_lean_messages(request.view, request.view)
        question = SideQuestion("notes", new, tools=("Edit",), asked=500, output=500)
        return (await self.work.choose(request, question)(DIRECTIVE)).reply.message.text

    @property
    def chosen(self) -> SideWorkChosen:
        return [event for event in self.events if isinstance(event, SideWorkChosen)][-1]


async def test_a_lean_request_has_its_own_frame_and_only_what_is_new() -> None:
    desk = Desk()
    assert await desk.ask(replace(desk.request(), source="fork:of-an-agent")) == "by itself"
    [request] = desk.small.requests
    assert request.frame.model == HAIKU
    assert request.frame.tools == (EDIT,)
    assert "a long system prompt" not in request.frame.system
    assert [placed.message.role for placed in request.view] == ["user", "assistant", "user"]
    assert request.view[-1].message == DIRECTIVE
    assert request.breakpoints == (), "nothing of it is kept in the cache"
    told = desk.chosen
    assert (told.kind, told.way, told.model) == ("notes", "lean", HAIKU)
    assert told.fork is not None
    assert told.lean is not None
    assert 0 < told.lean < told.fork


async def test_where_nearly_all_is_new_the_cached_prefix_is_cheaper_while_it_is_cached() -> None:
    desk = Desk()
    request = desk.request("a long log, line by line " * 14_000)
    assert await desk.ask(request) == "by a fork"
    assert desk.chosen.way == "fork"
    assert not desk.small.requests

    desk.clock.time += TTL_SECONDS["5m"] + 1
    assert await desk.ask(request) == "by itself"


async def test_what_is_too_long_for_the_small_model_is_forked() -> None:
    desk = Desk("small")
    log = Transcript(desk.clock.now)
    log.add(user("word " * 200_000))
    assert await desk.ask(Request(Frame(OPUS), log.view)) == "by a fork"
    assert "too many" in desk.chosen.why


GONE = ModelNotFound("there is no such model")


def fail_with(error: ModelFailure) -> Forker:
    async def ask(request: Request, directive: Message, **more: Any) -> ForkReply:
        raise error

    return ask


@pytest.mark.parametrize("error", [GONE, PromptTooLong("there is no such room")])
async def test_a_small_model_that_is_not_there_is_asked_once(error: ModelFailure) -> None:
    desk = Desk(ask=fail_with(error))
    with pytest.raises(type(error)):
        await desk.ask(desk.request())
    assert await desk.ask(desk.request()) == "by a fork"
    assert "no such" in desk.chosen.why


async def test_where_no_fork_could_do_it_the_model_of_the_conversation_is_asked_the_same_at_once() -> None:
    desk = Desk(ask=fail_with(GONE))
    request = desk.request()
    question = SideQuestion("extract", make_lean_messages(request.view, request.view), tools=("Edit",))
    said = await desk.work.choose_lean(request, question)(DIRECTIVE)
    assert said.reply.message.text == "by a fork"
    [sent] = desk.main.requests
    assert (sent.frame.model, sent.frame.tools) == (OPUS, (EDIT,))
    assert "a long system prompt" not in sent.frame.system
    told = [(event.model, event.way) for event in desk.events if isinstance(event, SideWorkChosen)]
    assert told == [(HAIKU, "lean"), (OPUS, "lean")]
    assert "no such model" in desk.chosen.why
