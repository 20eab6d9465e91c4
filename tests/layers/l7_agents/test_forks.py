"""A fork sends its parent's bytes and one message more, and nothing of it reaches the parent."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest
from kit import FRAME, make, use
from layers.simulated import Conversation, conversation, reading

from sevenfold.core.errors import Refused
from sevenfold.core.events import Delta, Event, Forked
from sevenfold.core.messages import (
    Json,
    Message,
    Text,
    ToolResult,
    ToolUse,
    assistant,
    user,
    write_directive,
)
from sevenfold.core.request import Request, encode_prefix
from sevenfold.core.tokens import Thresholds, Usage
from sevenfold.core.transcript import Reply, Transcript
from sevenfold.layers.l7_agents.forks import PLACEHOLDER, ForkRunner, PermittedTools
from sevenfold.layers.parts import PlainConversation
from sevenfold.testing import FakeClock, FakeTools, NoAccounts, ScriptedModel

pytestmark = pytest.mark.anyio
DIRECTIVE = user(write_directive("notes", "n-1", "write down what happened"))


def first_difference(parent: list[bytes], child: list[bytes]) -> str:
    """Where a fork leaves its parent's prefix, in words; nothing when it extends it."""
    for n, (a, b) in enumerate(zip(parent, child, strict=False)):
        if a != b:
            at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
            return f"part {n}, byte {at}: {a[at : at + 40]!r} became {b[at : at + 40]!r}"
    return "" if len(child) >= len(parent) else f"{len(parent) - len(child)} parts are missing"


def forks(model: ScriptedModel, events: list[Event] | None = None) -> ForkRunner:
    told = (events if events is not None else []).append
    able = model.capabilities
    return ForkRunner(
        PlainConversation(model, thresholds=Thresholds.of(able.window, able.max_output)),
        NoAccounts(),
        FakeClock(),
        told,
    )


def request(*messages: Message) -> Request:
    t = Transcript(lambda: 0.0)
    for message in messages:
        t.add(message, by="model" if message.role == "assistant" else "user")
    return Request(FRAME, t.view)


async def test_a_fork_extends_its_parent_byte_for_byte_and_leaves_it_alone() -> None:
    model = ScriptedModel(["hello", "noted"])
    turn = make(model)
    await turn.run(user("hi"))
    before, entries = encode_prefix(turn.request), len(turn.transcript.entries)

    said = await forks(model)(turn.request, DIRECTIVE, kind="notes")

    assert said.reply.message.text == "noted"
    assert first_difference(before, model.seen[-1]) == ""
    assert len(model.seen[-1]) == len(before) + 1, "one message more, and nothing else"
    assert len(turn.transcript.entries) == entries
    assert encode_prefix(turn.request) == before
    assert model.requests[-1].source == "fork:notes"


@pytest.mark.parametrize("most", [0, 100])
async def test_a_reply_that_runs_away_is_paid_for_once(most: int) -> None:
    cut = Reply(assistant(Text("word word")), Usage(input=10, output=100), "max_tokens")
    model = ScriptedModel([cut, cut, cut, cut, cut])

    said = await forks(model)(request(user("hi")), DIRECTIVE, kind="notes", max_tokens=most)

    assert [r.max_tokens for r in model.requests] == [most]
    assert said.reply.stop == "max_tokens"


async def test_a_changed_byte_is_found_and_named() -> None:
    old = encode_prefix(request(user("hi"), assistant(Text("hello"))))
    new = encode_prefix(request(user("hi"), assistant(Text("hullo"))))

    assert first_difference(old, new).startswith("part 3, byte ")
    assert "ello" in first_difference(old, new)


async def test_tools_are_denied_unless_they_are_allowed_and_denials_are_counted() -> None:
    calls = assistant(ToolUse("a", "Edit", {"p": 1}), ToolUse("b", "Bash", {"p": 2}))
    model, tools = ScriptedModel([calls, "done"]), FakeTools()
    permitted = PermittedTools(tools, lambda u: None if u.name == "Edit" else "only Edit is allowed")

    said = await forks(model)(request(user("hi")), DIRECTIVE, kind="notes", steps=3, tools=permitted)

    assert tools.log == ["start a", "end a"]
    assert (said.steps, said.denied) == (2, 1)
    answers = model.requests[-1].view[-1].message.results
    assert answers[1] == ToolResult("b", "not allowed here: only Edit is allowed", is_error=True)


async def test_the_tools_of_the_last_step_still_run() -> None:
    model, tools = ScriptedModel([use("a", "Edit")]), FakeTools()

    said = await forks(model)(request(user("hi")), DIRECTIVE, kind="notes", tools=tools)

    assert tools.log == ["start a", "end a"]
    assert said.reply.message.tool_uses[0].id == "a"
    assert said.steps == 1


async def test_a_fork_cannot_fork() -> None:
    fork = forks(ScriptedModel(["never"]))
    inside = Request(FRAME, request(user("hi")).view, source="fork:notes")

    with pytest.raises(Refused, match="cannot fork again"):
        await fork(inside, DIRECTIVE, kind="compact")


async def test_what_a_fork_says_is_its_own_and_what_it_used_is_told() -> None:
    events: list[Event] = []
    model = ScriptedModel(["a secret"])

    await forks(model, events)(request(user("hi")), DIRECTIVE, kind="notes")

    assert not [e for e in events if isinstance(e, Delta)]
    [told] = [e for e in events if isinstance(e, Forked)]
    assert (told.kind, told.steps) == ("notes", 1)


async def test_a_cancelled_fork_leaves_nothing_behind() -> None:
    model = ScriptedModel(["a very long story indeed, told slowly"], pause=10)
    parent = request(user("hi"))
    before = encode_prefix(parent)

    with anyio.move_on_after(0.01) as scope:
        await forks(model)(parent, DIRECTIVE, kind="notes")

    assert scope.cancelled_caught
    assert encode_prefix(parent) == before


async def test_parallel_forks_share_everything_but_their_directive() -> None:
    """Each sees the same placeholder for a tool of the parent that has not answered."""
    model = ScriptedModel(["one", "two", "three"])
    parent = request(user("hi"), use("open"))
    directives = [user(write_directive("agent", f"a-{n}", f"task {n}")) for n in range(3)]
    fork = forks(model)

    async with anyio.create_task_group() as tasks:
        for directive in directives:
            tasks.start_soon(partial(fork, parent, directive, kind="agent"))

    heads = {tuple(seen[:-1]) for seen in model.seen}
    assert len(heads) == 1, "the prefix is one, whoever asks"
    assert len({seen[-1] for seen in model.seen}) == 3
    answered = model.requests[0].view[-2].message.results
    assert [r.content for r in answered] == [PLACEHOLDER]


def on(talk: Conversation) -> ForkRunner:
    able = talk.model.capabilities
    return ForkRunner(
        PlainConversation(talk.model, thresholds=Thresholds.of(able.window, able.max_output)),
        talk.ledger,
        talk.clock,
        talk.events.append,
    )


def answering(body: Json) -> Any:
    last = body["messages"][-1]["content"][-1]
    if last.get("type") == "text" and last["text"].startswith("<directive"):
        return [{"type": "text", "text": "noted"}]
    return reading(6)(body)


async def test_on_the_wire_a_fork_reads_all_that_its_parent_had_cached() -> None:
    async with conversation(answering) as talk:
        turn = talk.turn()
        await turn.run(user("look around"))
        parent = talk.sim.ledger.rows[-1].tokens
        cached = parent.cache_read + parent.cache_write_5m

        said = await on(talk)(turn.request, DIRECTIVE, kind="notes")
        async with anyio.create_task_group() as tasks:
            for n in range(3):
                directive = user(write_directive("agent", f"a-{n}", f"task {n}"))
                tasks.start_soon(partial(on(talk), turn.request, directive, kind="agent"))

    rows = list(talk.sim.ledger.rows)[-4:]
    assert said.reply.message.text == "noted"
    for row in rows:
        assert row.tokens.cache_read >= 0.99 * cached
        assert row.tokens.cache_write_5m == 0, "a prefix that nobody reads again is not written"
    assert talk.ledger.accounts["fork:agent"].requests == 3
    told = [e for e in talk.of(Forked) if e.kind == "notes"]
    assert told[0].hit_rate > 0.9
