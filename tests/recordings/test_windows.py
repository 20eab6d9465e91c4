"""The window of a recorded session: one rule, and a word where it is not sure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from replay import sessions

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
        ("claude-opus-4-5", 1_000, 0, 200_000, MODEL),
        ("claude-opus-4-6", 1_000, 0, 1_000_000, MODEL),
        ("claude-opus-4-6", 150_000, 200_000, 200_000, RECORDED),
        ("claude-opus-4-6", 300_000, 200_000, 1_000_000, RECORDED),
        ("claude-opus-4-5", 300_000, 0, 1_000_000, RECORDED),
        ("claude-sonnet-4-5[1m]", 1_000, 0, 1_000_000, MODEL),
        ("gpt-5", 1_000, 258_400, 258_400, RECORDED),
        ("gpt-5", 250_000, 0, 400_000, RECORDED),
        ("gpt-4o", 1_000, 0, 128_000, MODEL),
        ("who", 1_000, 0, 200_000, UNKNOWN),
        ("", 1_000, 0, 200_000, UNKNOWN),
    ],
)
def test_what_is_recorded_counts_else_what_the_model_has(
    model: str, prompt: int, recorded: int, tokens: int, source: WindowSource
) -> None:
    found = find_session_window(answered((model, prompt)), model, recorded=recorded)

    assert (found.tokens, found.source) == (tokens, source)
    assert bool(found.problem) == (source is UNKNOWN)


def test_the_users_own_table_counts_before_ours() -> None:
    assert find_session_window(answered(("who", 10)), "who", own=32_000) == SessionWindow(32_000, MODEL)


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

    assert read_session(data).window == window


def test_the_window_that_codex_records_is_taken() -> None:
    lines = [json.loads(line) for line in sessions.codex(2).splitlines()]
    for line in lines:
        if (info := line["payload"].get("info")) is not None:
            info["model_context_window"] = 258_400

    assert CodexReader().read(sessions.jsonl(lines)).window == 258_400
    assert CodexReader().read(sessions.codex(2)).window == 0


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


def test_a_session_that_shrinks_without_a_mark_is_said(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in sessions.claude_code(3).splitlines()]
    lines[-1]["message"]["usage"]["cache_read_input_tokens"] = 9_000
    [note] = replayed(tmp_path, sessions.jsonl(lines)).notes

    assert "1 request was smaller than the one before (by 11," in note
