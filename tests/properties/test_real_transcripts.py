"""The laws over real sessions: every request they made extends the one before, whole, resumable."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sevenfold.core.messages import Message
from sevenfold.core.request import Frame, Request, encode_prefix, encode_view, has_paired_tools
from sevenfold.core.transcript import Edit, Reply, Transcript, View
from sevenfold.recordings.claude_code import read_session
from sevenfold.recordings.recorded_session import convert_recording

SESSIONS = sorted((Path(__file__).parents[2] / "../shared/data/sessions").glob("*.jsonl.gz"))
FRAME = Frame("claude-opus-4-5", ("system",))


@pytest.mark.skipif(not SESSIONS, reason="the shared sessions are not beside this checkout")
@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.name[:8])
def test_every_request_of_a_real_session_obeys_the_laws(path: Path) -> None:
    source = convert_recording(read_session(path))
    disk: list[bytes] = []
    t = Transcript(lambda: 0.0, disk.append)
    last, edited, requests = View(), False, 0
    for entry in source.entries:
        if isinstance(entry.what, Reply) and len(t.view):
            requests += 1
            assert has_paired_tools(t.view)
            assert edited or encode_view(t.view)[: len(last)] == encode_view(last)
            last, edited = t.view, False
        edited = edited or isinstance(entry.what, Edit)
        t.add(entry.what, by=entry.by)

    assert requests > 10
    assert t.view.messages == source.view.messages
    _resumes_to_the_same_bytes(t, disk)


def _resumes_to_the_same_bytes(t: Transcript, disk: list[bytes]) -> None:
    rng = random.Random(len(disk))
    for cut in sorted(rng.sample(range(1, len(disk)), 5)):
        again = Transcript.load(b"".join(disk[:cut]), lambda: 0.0)
        fresh = Transcript(lambda: 0.0)
        for entry in t.entries[: len(again.entries)]:
            fresh.add(entry.what, by=entry.by)
        assert encode_prefix(Request(FRAME, again.view)) == encode_prefix(Request(FRAME, fresh.view))
        assert again.view.tokens == fresh.view.tokens


@pytest.mark.skipif(not SESSIONS, reason="the shared sessions are not beside this checkout")
def test_what_the_user_said_is_in_the_log_for_ever() -> None:
    """Append-only: whatever a compaction took out of the view is still in the transcript."""
    gone = 0
    for path in SESSIONS:
        t = convert_recording(read_session(path))
        said = [e.what for e in t.entries if isinstance(e.what, Message) and e.by == "user"]
        shown = {m.text for m in t.view.messages}
        gone += sum(m.text not in shown for m in said)
    assert gone > 50, "compactions removed user messages from views, and none from the logs"
