"""The window of a recorded session: one rule, and a word where it is not sure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from replay import sessions

from sevenfold.cache.prices import ModelLimits
from sevenfold.context.loop import RestModel, find_measuring_model
from sevenfold.core.messages import Text, assistant, user
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Entry, Reply, Transcript
from sevenfold.models.capabilities import LONG_BETA, ModelAccess, find_user_capabilities, find_window
from sevenfold.recordings.claude_code import read_session
from sevenfold.recordings.codex import CodexReader
from sevenfold.recordings.finder import ReplayFile
from sevenfold.recordings.windows import SessionWindow, WindowSource, find_session_window
from sevenfold.replay.policies import load_policy
from sevenfold.replay.runner import ReplayJob, ReplayResult, replay_file
from sevenfold.settings.environment import Environment
from sevenfold.settings.schema import Settings
from sevenfold.simulator import ManualClock
from sevenfold.simulator.api import Api
from sevenfold.testing import FakeClock

RECORDED, MODEL, UNKNOWN = WindowSource.RECORDED, WindowSource.MODEL, WindowSource.UNKNOWN


def answered(*replies: tuple[str, int]) -> list[Entry]:
    """Replies of these models to prompts of so many tokens."""
    log = Transcript(lambda: 1_780_000_000.0)
    for model, prompt in replies:
        log.add(user("and now?"))
        log.add(Reply(assistant(Text("so")), Usage(input=prompt), model=model), by="model")
    return log.entries


@pytest.mark.parametrize(
    ("model", "prompt", "recorded", "tokens", "source"),
    [
        ("claude-opus-4-5", 1_000, (), 200_000, MODEL),
        ("claude-opus-4-6", 1_000, (), 1_000_000, MODEL),
        ("claude-opus-4-6", 150_000, (200_000,), 200_000, RECORDED),
        ("claude-sonnet-4-5[1m]", 1_000, (), 1_000_000, MODEL),
        ("gpt-5", 1_000, (258_400,), 258_400, RECORDED),
        ("gpt-5", 250_000, (), 400_000, MODEL),
        ("gpt-4o", 1_000, (), 128_000, MODEL),
    ],
)
def test_what_is_recorded_counts_else_what_the_model_has(
    model: str, prompt: int, recorded: tuple[int, ...], tokens: int, source: WindowSource
) -> None:
    found = find_session_window(answered((model, prompt)), model, recorded=recorded)

    assert found == SessionWindow(tokens, source)


@pytest.mark.parametrize(
    ("model", "prompt", "recorded", "tokens", "source", "problem"),
    [
        ("who", 1_000, (), 200_000, UNKNOWN, "the window of who is not known"),
        ("", 1_000, (), 200_000, UNKNOWN, "the window is not known"),
        ("claude-opus-9", 1_000, (), 200_000, UNKNOWN, "the window of claude-opus-9 is not known"),
        ("who", 250_000, (), 1_000_000, UNKNOWN, "is not known, and a prompt has 250,000 tokens"),
        ("claude-opus-4-5", 300_000, (), 1_000_000, RECORDED, "larger than the window of claude-opus-4-5"),
        ("claude-opus-4-5", 3_000_000, (), 3_000_000, UNKNOWN, "a prompt of 3,000,000 tokens is larger"),
        ("gpt-4o", 140_000, (), 200_000, UNKNOWN, "larger than the window of gpt-4o (128,000)"),
        ("claude-opus-4-6", 300_000, (200_000,), 1_000_000, MODEL, "than the recorded window (200,000)"),
        ("local:x.gguf", 8_300, (8_192,), 8_300, RECORDED, "than the recorded window (8,192)"),
        ("gpt-5", 280_000, (272_000,), 280_000, RECORDED, "a prompt of 280,000 tokens is larger than"),
        ("gpt-5", 28_000, (16_000,), 400_000, MODEL, "than the recorded window (16,000)"),
        ("who", 28_000, (16_000,), 28_000, RECORDED, "than the recorded window (16,000)"),
        ("gpt-5", 1_000, (128_000, 272_000), 128_000, RECORDED, "names the windows 128,000 and 272,000"),
        ("gpt-5", 200_000, (128_000, 272_000), 272_000, RECORDED, "names the windows 128,000 and 272,000"),
    ],
)
def test_what_is_not_sure_is_said_with_what_is_taken_instead(
    model: str, prompt: int, recorded: tuple[int, ...], tokens: int, source: WindowSource, problem: str
) -> None:
    found = find_session_window(answered((model, prompt)), model, recorded=recorded)

    assert (found.tokens, found.source) == (tokens, source)
    assert problem in found.problem
    assert found.problem.endswith(f"replayed in {tokens:,} tokens")


def test_the_users_own_table_counts_before_ours() -> None:
    def limits_of(model: str) -> ModelLimits:
        return ModelLimits(window=32_000)

    whole = answered(("who", 10), ("claude-haiku-4-5", 10))
    assert find_session_window(whole, "who", limits_of=limits_of) == SessionWindow(32_000, MODEL)


def test_models_with_different_windows_in_one_session_are_said() -> None:
    entries = answered(("claude-opus-4-6", 10), ("claude-opus-4-6", 10), ("claude-haiku-4-5", 10))
    found = find_session_window(entries, "claude-opus-4-6")

    assert found.tokens == 1_000_000
    assert "claude-haiku-4-5 (200,000, 1 requests)" in found.problem


@pytest.mark.parametrize(
    ("trigger", "tokens", "window"),
    [("auto", 155_000, 200_000), ("auto", 178_144, 200_000), ("manual", 155_000, 0), ("auto", 80_000, 0)],
)
def test_a_compaction_by_the_tool_itself_shows_the_usual_window(
    trigger: str, tokens: int, window: int
) -> None:
    facts = {"trigger": trigger, "preTokens": tokens}
    boundary: dict[str, Any] = {
        "type": "system",
        "subtype": "compact_boundary",
        "uuid": "b",
        "sessionId": "s",
    }
    boundary |= {"parentUuid": None, "logicalParentUuid": "end", "compactMetadata": facts}
    data = sessions.claude_code(1, model="claude-opus-4-6") + json.dumps(boundary).encode() + b"\n"

    assert read_session(data).windows == ((window,) if window else ())


def test_the_windows_that_codex_records_are_taken_the_most_frequent_first() -> None:
    lines = [json.loads(line) for line in sessions.codex(2).splitlines()]
    named = iter((128_000, 128_000, 258_400, 258_400, 258_400))
    for line in lines:
        if (info := line["payload"].get("info")) is not None:
            info["model_context_window"] = next(named)

    assert CodexReader().read(sessions.jsonl(lines)).windows == (258_400, 128_000)
    assert CodexReader().read(sessions.codex(2)).windows == ()


@pytest.mark.parametrize("model", ["claude-opus-4-5", "claude-opus-4-6", "claude-new", "gpt-4o", "who"])
def test_the_simulator_has_the_window_that_a_session_reckons_with(model: str) -> None:
    api = Api(ManualClock())
    price = api.price_of(model)

    assert api.window_of(model, price) == find_window(model)
    assert api.window_of(model, price, LONG_BETA) == find_window(f"{model}[1m]") == 1_000_000


@pytest.mark.parametrize("model", ["claude-opus-4-5", "claude-opus-4-5[1m]", "who"])
@pytest.mark.parametrize("betas", [(), (LONG_BETA,)])
@pytest.mark.parametrize("window", [None, 60_000])
def test_a_context_has_the_window_that_a_session_has(
    model: str, betas: tuple[str, ...], window: int | None
) -> None:
    settings = Settings(betas=betas, window=window, anthropic_base_url="http://127.0.0.1:9")
    measured = find_measuring_model(model, settings)
    asked = RestModel.by(model, "anthropic", Environment.read({}), settings, FakeClock()).model

    in_session = find_user_capabilities(model, ModelAccess(betas=betas, window=window))
    assert asked is not None
    assert measured.capabilities.window == asked.capabilities.window == in_session.window


# --- in a replay ------------------------------------------------------------------------------------------


def replayed(folder: Path, data: bytes) -> ReplayResult:
    path = folder / "session.jsonl"
    path.write_bytes(data)
    return replay_file(ReplayJob(0, ReplayFile(str(path)), (load_policy("append-only"),)))


def test_a_replay_says_the_window_of_each_file_and_its_source(tmp_path: Path) -> None:
    done = replayed(tmp_path, sessions.claude_code(2, model="claude-opus-4-6"))
    assert (done.window, done.notes) == (SessionWindow(1_000_000, MODEL), ())

    unknown = replayed(tmp_path, sessions.claude_code(2, model="who"))
    assert unknown.window.source is UNKNOWN
    assert unknown.notes == ("the window of who is not known: replayed in 200,000 tokens",)


def test_a_replay_has_the_limits_that_a_session_has(tmp_path: Path) -> None:
    """Compaction begins where the longest reply of the user's own table leaves no more room."""
    prices = tmp_path / "prices.toml"
    prices.write_text('[models."claude-opus-4-5"]\nmax_output = 1000\n', encoding="utf-8")
    path = tmp_path / "long.jsonl"
    path.write_bytes(sessions.claude_code(195))
    policy = load_policy("append-only")

    ours, own = (
        replay_file(ReplayJob(0, ReplayFile(str(path)), (policy,), prices=table)).by_policy["append-only"]
        for table in (None, prices)
    )

    assert 166_000 < ours.compactions[0].tokens_before < 168_000
    assert ours.compactions[0].tokens_before + 18_000 < own.compactions[0].tokens_before


def test_a_session_that_shrinks_without_a_mark_is_said(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in sessions.claude_code(3).splitlines()]
    lines[-1]["message"]["usage"]["cache_read_input_tokens"] = 9_000
    [note] = replayed(tmp_path, sessions.jsonl(lines)).notes

    assert "1 request was smaller than the one before (by 11," in note
