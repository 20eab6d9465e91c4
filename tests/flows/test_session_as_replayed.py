"""What is replayed is what runs: one recording through a session on the real wire, and through a replay."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from flows.recorded import RecordedConversation, RequestWatch, describe_view, make_usage, move_files

from sevenfold.core.clock import run_sync
from sevenfold.core.messages import Message, Text, Thinking, ToolResult, ToolUse, assistant, user
from sevenfold.core.transcript import Entry, Reply, Transcript
from sevenfold.recordings.finder import ReplayFile, read_recording
from sevenfold.recordings.recorded_session import convert_recording
from sevenfold.replay.costs import estimate_message
from sevenfold.settings.layers import PolicyName
from sevenfold.testing import FakeClock

pytestmark = pytest.mark.slow
SESSIONS = Path(__file__).parents[2] / "../shared/data/sessions_2"
MODEL = "claude-opus-4-8"
FIXED = 12_000  # Tokens of the recorded system prompt
CALLS, TURNS = 12, 10
CHANGES_EVERY = 6
SILENCES = {4: 400.0, 7: 5_000.0}
"""Before these turns the user is silent for longer than messages, or anything, stay in the cache."""


def make_recording(project: Path) -> list[Entry]:
    """Ten turns of twelve calls: files are read and some of them changed, with a thought before each."""
    clock = FakeClock(1_790_000_000.0)
    log, prompt = Transcript(clock.now), FIXED

    def tell(message: Message, by: str, seconds: float) -> None:
        nonlocal prompt
        clock.time += seconds
        model = by == "model"
        log.add(Reply(message, make_usage(prompt), model=MODEL) if model else message, by=by)
        prompt += estimate_message(message)

    for turn in range(TURNS):
        tell(user(f"Go on with part {turn} of the review."), "user", SILENCES.get(turn, 60.0))
        for call in range(CALLS):
            n = turn * CALLS + call
            changes = n % CHANGES_EVERY == CHANGES_EVERY - 1
            path = str(project / f"module_{n - changes}.py")
            use = ToolUse(f"toolu_{n}", "Read", {"file_path": path})
            text = "\n".join(f"{i:6}→def step_{n}_{i}(value): return value" for i in range(1, 300))
            if changes:
                old, new = f"def step_{n - 1}_9(value)", f"def step_{n}_nine(value)"
                edit = {"file_path": path, "old_string": old, "new_string": new}
                use, text = ToolUse(f"toolu_{n}", "Edit", edit), f"{path} was changed."
            thought = Thinking(f"Part {turn} needs number {n}. " * 20, "signed")
            tell(assistant(thought, Text(f"Now number {n}."), use), "model", 6.0)
            tell(Message("user", (ToolResult(use.id, text),)), "tools", 1.0)
        tell(assistant(Text(f"Part {turn} is done.")), "model", 6.0)
    return log.entries


def check_same(session: RequestWatch, replay: RequestWatch) -> None:
    assert session.actions == replay.actions
    assert len(session.views) == len(replay.views)
    for n, (ours, theirs) in enumerate(zip(session.views, replay.views, strict=True)):
        assert describe_view(ours) == describe_view(theirs), f"request {n}"


@pytest.mark.parametrize(
    ("policy", "window", "expected"),
    [
        ("balanced", 1_000_000, {"summary (price)", "cost", "thinking"}),
        ("balanced", 200_000, {"summary (price)", "cost", "thinking"}),
        ("specified", 200_000, {"notes (auto)", "plain"}),
    ],
)
def test_a_session_sends_what_a_replay_of_it_sends(
    tmp_path: Path, policy: PolicyName, window: int, expected: set[str]
) -> None:
    recorded = RecordedConversation(make_recording(tmp_path / "project"), tmp_path, window)
    session, replay = run_sync(recorded.run_session, policy), recorded.replay(policy)

    assert {action.what for action in session.actions} == expected
    check_same(session, replay)


@pytest.mark.skipif(not SESSIONS.is_dir(), reason="the shared sessions are not beside this checkout")
def test_a_session_of_a_stranger_is_compacted_where_a_replay_says_so() -> None:
    """Only that: a replay reads back what it finds missing, and the recorded model did not.

    One decision is close: paths of stored results have to be about as long as a replay takes them to be.
    """
    path = next(SESSIONS.glob("*/f1681958-*.jsonl.gz"))
    read = read_recording(ReplayFile(str(path)))
    assert read is not None
    with TemporaryDirectory(prefix="s-") as folder:
        entries = move_files(convert_recording(read).entries, Path(folder) / "project")
        recorded = RecordedConversation(entries, Path(folder), 1_000_000)
        session, replay = run_sync(recorded.run_session, "balanced"), recorded.replay("balanced")

    assert {action.what for action in session.actions} == {"summary (price)", "cost", "thinking"}
    assert session.actions == replay.actions
