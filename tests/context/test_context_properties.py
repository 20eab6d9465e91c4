"""Random conversations with random changes: what goes out is what came in, and every break has a reason."""

from __future__ import annotations

import copy
import json
import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from context.conversing import (
    LARGE,
    Caller,
    Json,
    answered,
    as_said,
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
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.context.context import FormatName
from sevenfold.context.history import LoggedHistory
from sevenfold.core.events import Failed, Sending
from sevenfold.core.protocols import Capabilities
from sevenfold.core.request import has_paired_tools
from sevenfold.core.transcript import Transcript
from sevenfold.storage.jsonl import read_log
from sevenfold.testing import FakeClock

SETTINGS: Json = {
    "toolResults": {"mostCharacters": 300, "previewBytes": 20, "mostPerMessage": 900},
    "micro": {"policy": "plain", "idleMinutes": 10, "keepRecent": 2},
}
IDLE: Json = {
    "flags": dict.fromkeys(("tool_results", "micro_cost", "micro_api", "compact", "reactive"), False)
}
SMALL = Capabilities(window=3_000, max_output=300)
WITHOUT_DIGEST: Json = {"flags": {"micro_api": False, "compact": False, "reactive": False}}
KINDS = [
    "say",
    "work",
    "work",
    "split",
    "reuse",
    "record",
    "record",
    "edit",
    "edit in place",
    "remove",
    "cut",
    "insert",
    "swap",
    "truncate",
    "mark",
    "copy",
    "wait",
    "again",
    "resume",
]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 50), st.integers(0, 3)), max_size=25)


@dataclass
class Host:
    """A caller: its rounds, each of them whole, in one of the two formats."""

    chat: bool
    rounds: list[list[Json]] = field(default_factory=lambda: [[said("begin")]])
    count: int = 0

    @property
    def history(self) -> list[Json]:
        return [message for one in self.rounds for message in one]

    def work(self, size: int, calls: int, split: bool = False, same: bool = False) -> list[Json]:
        self.count += 1
        ids = ["call_0" if same else f"u{self.count}_{i}" for i in range(calls + 1)]
        texts = [f"{self.count} {i} " + "some output " * (size * (i + 1)) for i in range(len(ids))]
        if same:
            ids = ids[:1]
        if self.chat:
            answers = [chat_result(id, text) for id, text in zip(ids, texts, strict=False)]
            return [chat_called(*ids), *answers]
        blocks = [result(id, text) for id, text in zip(ids, texts, strict=False)]
        return [called(*ids), *([results(b) for b in blocks] if split else [results(*blocks)])]

    def change(self, kind: str, a: int, b: int) -> None:  # noqa: C901 - one line per kind of change
        rounds, at = self.rounds, a % len(self.rounds)
        match kind:
            case "say":
                self.count += 1
                rounds.append([{"role": "assistant", "content": f"answer {self.count}"}])
                rounds.append([said(f"question {self.count}")])
            case "work" | "split" | "reuse":
                rounds.append(self.work(a, b, kind == "split", kind == "reuse"))
            case "edit":
                self.count += 1
                rounds[at] = [said(f"edited {self.count}")]
            case "edit in place":
                _edit(rounds[at][-1], f" and {a}")
            case "remove":
                del rounds[at : at + b]
            case "cut":
                del rounds[: min(at, len(rounds) - 1)]
            case "insert":
                rounds.insert(at, [said(f"by the way {a}")])
            case "swap":
                rounds[at], rounds[-1] = rounds[-1], rounds[at]
            case "truncate":
                del rounds[at + 1 :]
            case "mark" if not self.chat:
                rounds[at][-1] = marked(rounds[at][-1])
            case "copy":
                self.rounds = copy.deepcopy(rounds)
        if not self.rounds:
            self.rounds = [[said("afresh")]]


def _edit(message: Json, more: str) -> None:
    content = message["content"]
    if isinstance(content, str):
        message["content"] = content + more
    elif isinstance(content, list) and isinstance(content[-1].get("content"), str):
        content[-1]["content"] += more
    elif isinstance(content, list) and "text" in content[-1]:
        content[-1]["text"] += more


@dataclass
class Play:
    """One run: what went out before, and what must hold now."""

    folder: Path
    format: FormatName
    settings: Json
    able: Capabilities = LARGE
    clock: FakeClock = field(default_factory=FakeClock)
    before: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.host = Host(self.format == "openai")
        self.open()

    def open(self) -> None:
        self.caller = Caller(
            self.folder,
            self.format,
            state=self.folder / "state",
            id="one",
            settings=self.settings,
            able=self.able,
            clock=self.clock,
        )

    def step(self, kind: str, a: int, b: int) -> list[Any]:
        if kind == "wait":
            self.clock.time += 1_200
        elif kind == "record" and self.before:
            self.record(a, b)
        elif kind == "resume":
            self.caller.ctx.close()
            self.open()
        self.host.change(kind, a, b)
        history = self.host.history
        as_it_was = copy.deepcopy(history)
        out = self.caller.send(history)
        assert history == as_it_was, "the input was changed"
        assert not self.caller.told(Failed)
        return out

    def record(self, a: int, b: int) -> None:
        """The model answers, and the caller takes it over: as it is, in other words, or not at all."""
        text = f"reply {a}"
        tokens = max(1, self.caller.ctx.view.tokens)
        usage = {"input_tokens": 0, "cache_read_input_tokens": tokens, "output_tokens": 9}
        chat = {
            "prompt_tokens": tokens,
            "completion_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": tokens},
        }
        message = {"role": "assistant", "content": text}
        self.caller.ctx.record(
            {"choices": [{"message": message, "finish_reason": "stop"}], "usage": chat}
            if self.host.chat
            else {"content": [{"type": "text", "text": text}], "usage": usage}
        )
        if b < 3:
            self.host.rounds.append([message if b else answered(f"{text}, reworded")])
            self.host.rounds.append([said(f"go on {a}")])

    def check_break(self, out: list[Any]) -> None:
        if not extends(self.before, out):
            sending = self.caller.told(Sending)[-1]
            assert sending.why, "a break without a reason"
        self.before = out


def _without_results(messages: list[Any]) -> list[Any]:
    """Everything but what results say."""
    out = []
    for message in messages:
        if message["role"] == "tool":
            out.append({**message, "content": ""})
        elif isinstance(message["content"], list):
            blocks = [
                {**b, "content": ""} if b.get("type") == "tool_result" else b for b in message["content"]
            ]
            out.append({**message, "content": blocks})
        else:
            text = message["content"]
            plain = isinstance(text, str) and message["role"] != "tool"
            out.append({**message, "content": [{"type": "text", "text": text}]} if plain else message)
    return out


def _contents(messages: list[Any]) -> list[str]:
    out = []
    for message in messages:
        if message["role"] == "tool":
            out.append(message["content"])
        elif isinstance(message["content"], list):
            out += [b["content"] for b in message["content"] if b.get("type") == "tool_result"]
    return out


def assert_as_it_came(play: Play, out: list[Any]) -> None:
    history = play.host.history
    assert has_paired_tools(play.caller.ctx.view)
    assert _without_results(out) == _without_results(as_said(history))
    for now, was in zip(_contents(out), _contents(history), strict=True):
        assert now == was or now.startswith(("<persisted-output>", "(cleared: "))


def assert_the_log_knows(play: Play) -> None:
    """What is worked out from the log alone is what the view shows."""
    log = Transcript.load(read_log(play.folder / "state" / "one.jsonl"), play.clock.now)
    assert log.view == play.caller.ctx.view
    history = LoggedHistory()
    history.read(log.entries)
    shown = {group.id: group.shown for group in history.groups}
    assert all(shown.get(p.id, p.message) == p.message for p in log.view)


@pytest.mark.parametrize("format", ["anthropic", "openai"])
@given(steps=STEPS)
@settings(max_examples=50)
def test_what_goes_out_is_what_came_in_but_for_results_that_are_kept_elsewhere(
    format: FormatName, steps: list[tuple[str, int, int]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        play = Play(Path(folder), format, SETTINGS | WITHOUT_DIGEST)
        for step in steps:
            out = play.step(*step)
            assert_as_it_came(play, out)
            play.check_break(out)
        play.caller.ctx.close()


@pytest.mark.parametrize("format", ["anthropic", "openai"])
@given(steps=STEPS)
@settings(max_examples=30)
def test_with_no_layer_at_work_what_goes_out_is_what_came_in(
    format: FormatName, steps: list[tuple[str, int, int]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        play = Play(Path(folder), format, IDLE)
        for step in steps:
            out, history = play.step(*step), as_said(play.host.history)
            if format == "openai":  # no marks are placed, so every byte is the caller's
                assert json.dumps(out) == json.dumps(history)
            assert extends(history, out)
            assert len(out) == len(history)
        play.caller.ctx.close()


def test_the_same_holds_in_long_conversations() -> None:
    assert campaign(range(30)) == 1_200


@pytest.mark.soak
def test_the_same_holds_in_thousands_of_conversations() -> None:
    assert campaign(range(1_000, 6_000)) == 200_000


def campaign(seeds: range) -> int:
    """Long random conversations, half of them in a window that is too small; how many requests it took."""
    return sum(long_conversation(random.Random(seed)) for seed in seeds)


def long_conversation(rng: random.Random) -> int:
    format: FormatName = rng.choice(["anthropic", "openai"])
    small = rng.random() < 0.5
    steps = [(rng.choice(KINDS), rng.randint(0, 50), rng.randint(0, 3)) for _ in range(40)]
    with tempfile.TemporaryDirectory() as folder:
        switches = {"flags": {"micro_api": False}} if small else WITHOUT_DIGEST
        play = Play(Path(folder), format, SETTINGS | switches, SMALL if small else LARGE)
        for step in steps:
            out = play.step(*step)
            assert has_paired_tools(play.caller.ctx.view)
            if not small:
                assert_as_it_came(play, out)
            play.check_break(out)
        assert_the_log_knows(play)
        play.caller.ctx.close()
        play.open()
        assert play.caller.send(play.host.history) == out, "the same bytes after a resume"
        play.caller.ctx.close()
    return len(steps)


@pytest.mark.parametrize("format", ["anthropic", "openai"])
@given(steps=STEPS)
@settings(max_examples=30)
def test_in_a_window_that_is_too_small_every_request_is_still_whole(
    format: FormatName, steps: list[tuple[str, int, int]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        play = Play(Path(folder), format, SETTINGS | {"flags": {"micro_api": False}}, SMALL)
        for step in steps:
            out = play.step(*step)
            assert has_paired_tools(play.caller.ctx.view)
            if "call_0" not in str(out):  # an id that comes again, which not every provider takes
                assert_paired(out)
            last = _without_results(as_said(play.host.history))[-1]
            assert last["role"] != "user" or _without_results(out)[-1] == last
        play.caller.ctx.close()
