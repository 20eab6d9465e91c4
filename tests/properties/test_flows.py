"""Random flows: whatever is cut, cancelled, refused, crashed or resumed, the laws hold."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import extends, make

from sevenfold.core.errors import Overloaded, PromptTooLong, SevenfoldError
from sevenfold.core.events import Added, Event
from sevenfold.core.messages import THOUGHTS, Message, Text, Thinking, ToolResult, ToolUse, assistant, user
from sevenfold.core.protocols import Capabilities, Change, Layers
from sevenfold.core.request import Request, find_open_uses, has_paired_tools
from sevenfold.core.tokens import Pressure, Usage
from sevenfold.core.transcript import Edit, Replace, Reply, Results, Transcript, Undo
from sevenfold.testing import FakeTools, ScriptedModel
from sevenfold.testing.doubles import Line


def random_reply(rng: random.Random, n: int) -> Line:
    kind = rng.choice(["text", "text", "tools", "tools", "tools", "overloaded", "long"])
    if kind == "overloaded":
        return Overloaded("busy")
    if kind == "long":
        return PromptTooLong("too long")
    thinking = (Thinking(f"t{n}", "sig"),) if rng.random() < 0.5 else ()
    uses: tuple[ToolUse, ...] = ()
    if kind == "tools":
        uses = tuple(
            ToolUse(f"u{n}_{i}", rng.choice(["Read", "Write"]), {"n": i}) for i in range(rng.randint(1, 3))
        )
    said = assistant(*thinking, Text(f"reply {n}"), *uses)
    return Reply(said, Usage(input=100 + n * 10, output=5), "tool_use" if uses else "end_turn")


@dataclass
class Meddling:
    """A layer that now and then clears a result or replaces a safe part of the view."""

    rng: random.Random

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        view = request.view
        if pressure.refused or self.rng.random() < 0.15:
            return self._summary(request)
        if self.rng.random() < 0.15:
            ids = [r.tool_use_id for p in view for r in p.message.results]
            return (Results({self.rng.choice(ids): "[cleared]"}),) if ids else ()
        return ()

    def _summary(self, request: Request) -> Sequence[Change]:
        view = request.view
        starts = [i for i in range(len(view)) if view[i].by == "user"]
        if len(starts) < 2:
            return ()
        return (Replace(view[0].id, view[starts[-1] - 1].id, (user("summary"),)),)


@dataclass
class Flow:
    model: ScriptedModel
    transcript: Transcript
    disk: list[bytes]
    lost_lines: set[int]
    """How many requests had been sent each time a crash took lines of the log with it."""
    edited: set[int]
    """How many requests had been sent each time an edit was written."""


async def flow(seed: int) -> Flow:
    rng = random.Random(seed)
    disk: list[bytes] = []
    lost_lines: set[int] = set()
    edited: set[int] = set()
    able = Capabilities(binds_thinking=rng.random() < 0.5)
    model = ScriptedModel([random_reply(rng, n) for n in range(60)], able)
    layers = Layers(fit=(Meddling(rng),))
    t = Transcript(lambda: 0.0, disk.append)
    for turn_number in range(rng.randint(1, 6)):
        model.pause = rng.choice([0.0, 0.0, 0.001])
        tools = FakeTools(delays={f"u{n}_0": 0.002 for n in range(0, 60, 3)})
        turn = make(model, layers, transcript=t, tools=tools, max_steps=8)
        turn.emit = lambda event: _note(event, edited, len(model.requests))
        with anyio.move_on_after(rng.choice([None, None, 0.004, 0.012])):
            with suppress(SevenfoldError):
                await turn.run(user(f"turn {turn_number}"))
        if rng.random() < 0.4:  # the process dies somewhere in its last write, and comes back
            torn = rng.choice([0, 0, 1, 17])
            t = resumed(disk, torn)
            if torn:
                lost_lines.add(len(model.requests))
    return Flow(model, t, disk, lost_lines, edited)


def _note(event: Event, edited: set[int], requests: int) -> None:
    if isinstance(event, Added) and any(isinstance(what, Edit) for what in event.whats):
        edited.add(requests)


def resumed(disk: list[bytes], torn: int) -> Transcript:
    whole = b"".join(disk)
    kept = whole[: whole.rfind(b"\n", 0, len(whole) - torn) + 1]
    disk[:] = [kept]
    t = Transcript.load(kept, lambda: 0.0, disk.append)
    if unanswered := find_open_uses(t.view):
        results = tuple(ToolResult(id, "[interrupted]", True) for id in unanswered)
        t.add(Message("user", results), by="resume")
    return t


@settings(max_examples=120)
@given(st.integers(0, 10**9))
def test_every_view_obeys_the_laws_and_every_break_has_an_edit_in_the_log(seed: int) -> None:
    done = anyio.run(flow, seed)
    model, t = done.model, done.transcript

    for request in model.requests:
        assert has_paired_tools(request.view), "no request holds half a pair"
    assert has_paired_tools(t.view)
    assert Transcript.load(b"".join(done.disk), lambda: 0.0).view == t.view
    for n, (a, b) in enumerate(pairwise(model.seen), 1):
        if not extends(a, b):
            assert n in done.edited | done.lost_lines, "a break without an edit in the log"


@settings(max_examples=60)
@given(st.integers(0, 10**9))
def test_thinking_never_stands_behind_a_change_it_was_not_made_on(seed: int) -> None:
    done = anyio.run(flow, seed)
    model, t = done.model, done.transcript
    if done.lost_lines or not model.capabilities.binds_thinking:
        return
    changed = {e.id for e in t.entries if isinstance(e.what, Replace | Results | Undo)}
    for request, seen in zip(model.requests, model.seen, strict=True):
        for i, placed in enumerate(request.view):
            if any(isinstance(b, THOUGHTS) for b in placed.message.content):
                since = {id for id in changed if placed.id < id <= _newest(request)}
                assert not since or _same_before(model, i, placed.id, seen)


def _newest(request: Request) -> int:
    return max(p.id for p in request.view)


def _same_before(model: ScriptedModel, at: int, id: int, seen: list[bytes]) -> bool:
    """What stands before this message now is what stood before it when it was first sent back."""
    for request, earlier in zip(model.requests, model.seen, strict=True):
        if (where := request.view.where(id)) is not None:
            return earlier[: where + 2] == seen[: at + 2]
    return False
