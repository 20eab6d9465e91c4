"""A process that dies while old results are being cleared: what it leaves is as good as before or after."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sevenfold.cache.ledger import Ledger
from sevenfold.cache.prices import Prices
from sevenfold.core.events import CacheBroke, Event
from sevenfold.core.messages import THOUGHTS, Message, Text, Thinking, ToolResult, ToolUse, assistant, user
from sevenfold.core.request import Frame, Request, complete_changes, encode_message
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Mark, Replace, Reply, Results, Transcript, What
from sevenfold.testing import FakeClock

FRAME = Frame("claude-opus-4-5", ("rules",))
USED = Usage(cache_read=90_000, cache_write=10_000, output=10)
CLEARING = (Results({"u": "[cleared]"}), Mark("cache.frontier", 0))


def conversation(disk: list[bytes]) -> Transcript:
    """A result that could be cleared, and behind it thinking that is bound to it."""
    log = Transcript(lambda: 1_000.0, disk.append)
    log.add(user("look"))
    log.add(Reply(assistant(ToolUse("u", "Read", {})), USED), by="model")
    log.add(Message("user", (ToolResult("u", "x" * 9_000),)), by="tools")
    log.add(Reply(assistant(Thinking("so that is it", "signed"), Text("done")), USED), by="model")
    log.add(user("and now?"))
    return log


@pytest.mark.parametrize("edits", [CLEARING, (Replace(0, 2, (user("a summary"),)), Mark("compacted", {}))])
def test_no_part_of_an_edit_leaves_thinking_on_a_prefix_it_was_not_made_on(edits: Sequence[What]) -> None:
    disk: list[bytes] = []
    log = conversation(disk)
    before = [encode_message(placed.message) for placed in log.view]
    whole = complete_changes(edits, log, binds_thinking=True)
    assert whole is not None
    log.add(*whole, by="a layer")
    *earlier, batch = disk
    records = batch.splitlines(keepends=True)
    assert len(records) == 3

    for written in range(len(records) + 1):
        left = Transcript.load(b"".join([*earlier, *records[:written]]), lambda: 0.0).view
        now = [encode_message(placed.message) for placed in left]
        thinks = any(isinstance(b, THOUGHTS) for p in left for b in p.message.content)
        assert now == before or not thinks, f"after {written} records"


def test_a_break_that_was_announced_to_a_process_now_dead_is_not_blamed_on_the_server() -> None:
    """The edit is in the log, the request went out, and the reply to it was never written."""
    disk: list[bytes] = []
    conversation(disk).add(*CLEARING, by="Microcompaction")
    events: list[Event] = []
    ledger = Ledger(Prices.load(), FakeClock(1_010.0), events.append)
    log = Transcript.load(b"".join(disk), lambda: 1_010.0)
    ledger.recall(FRAME, log)
    request = Request(FRAME, log.view)
    ledger.before(request)
    ledger.after(request, Reply(assistant(Text("done")), Usage(cache_read=20_000, output=5)))

    [broke] = [event for event in events if isinstance(event, CacheBroke)]
    assert broke.expected
    assert broke.why == "the view was changed before the session was resumed"
