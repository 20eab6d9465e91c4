"""Real sessions as if a caller had sent them: the whole history before each reply, and nothing changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from context.conversing import Json
from models.asking import remove_cache_marks

from sevenfold.context.context import Context
from sevenfold.core.events import Cleared, Event, Failed, Sending, Stored
from sevenfold.core.messages import Message, make_wire_message
from sevenfold.core.transcript import Edit, Entry, Reply, Transcript
from sevenfold.recordings.claude_code import read_session
from sevenfold.recordings.recorded_session import convert_recording
from sevenfold.testing import FakeClock

SESSIONS = sorted((Path(__file__).parents[2] / "../shared/data/sessions").glob("*.jsonl.gz"))
SETTINGS: Json = {"flags": {"micro_api": False}, "toolResults": {"mostCharacters": 8_000}}


class Followed:
    """A caller who says what the session says, and checks every request."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, FakeClock()
        self.before: list[bytes] = []
        self.history: list[Any] = []
        self.breaks = 0
        self.events: list[Event] = []
        self.ctx = self.open()

    def open(self) -> Context:
        ctx = Context(
            "claude-opus-4-6",
            state=self.folder / "state",
            id="one",
            settings=SETTINGS,
            environ={"HOME": str(self.folder)},
            clock=self.clock,
        )
        ctx.subscribe(self.events.append)
        return ctx

    def send(self, history: list[Any]) -> None:
        first = len(self.events)
        out = remove_cache_marks(self.ctx.prepare(history)["messages"])
        now = [msgspec.json.encode(message) for message in out]
        new = self.events[first:]
        sending = next(event for event in new if isinstance(event, Sending))
        if now[: len(self.before)] != self.before:
            self.breaks += 1
            assert sending.expected, "a break without a reason"
            edited = history[: len(self.history)] != self.history
            assert edited or any(isinstance(event, Cleared) for event in new)
        self.before, self.history = now, history

    def resume(self) -> None:
        self.ctx.close()
        self.ctx = self.open()


def requests(entries: list[Entry], most: int) -> Iterator[tuple[list[Any], Reply, float]]:
    """What was sent before each of the first replies, with the reply and its time."""
    log, history, told = Transcript(lambda: 0.0), list[Any](), 0
    for entry in entries:
        if isinstance(entry.what, Reply) and len(log.view):
            yield list(history), entry.what, entry.at
            told += 1
            if told == most:
                return
        log.add(entry.what, by=entry.by)
        if isinstance(entry.what, Message | Reply):
            message = entry.what.message if isinstance(entry.what, Reply) else entry.what
            history.append(_wire(message))
        elif isinstance(entry.what, Edit):  # this caller compacts by itself
            history = [_wire(message) for message in log.view.messages]


def _wire(message: Message) -> Any:
    return msgspec.json.decode(msgspec.json.encode(make_wire_message(message)))


@pytest.mark.skipif(not SESSIONS, reason="the shared sessions are not beside this checkout")
@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.name[:8])
def test_every_break_in_a_real_session_has_a_reason(path: Path, tmp_path: Path) -> None:
    source = convert_recording(read_session(path))
    followed = Followed(tmp_path)
    sent = 0
    for n, (history, reply, at) in enumerate(requests(source.entries, 120)):
        followed.clock.time = at
        if n % 25 == 24:
            followed.resume()
        followed.send(history)
        followed.ctx.record(reply)
        sent += 1
    followed.ctx.close()
    assert sent > 10
    assert not [event for event in followed.events if isinstance(event, Failed)]
    acted = [event for event in followed.events if isinstance(event, Stored | Cleared)]
    if acted and isinstance(acted[0], Stored):
        assert Path(acted[0].path).stat().st_size >= acted[0].characters
