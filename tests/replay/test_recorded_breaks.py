"""Cache breaks that a recording really had although its cache was still alive."""

from __future__ import annotations

import json
from pathlib import Path

from replay import sessions

from sevenfold.core.messages import Text, assistant, user
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Replace, Reply, Transcript
from sevenfold.recordings.claude_code import read_session
from sevenfold.recordings.finder import find_repeated_reads, find_replay_files, read_first_requests
from sevenfold.recordings.recorded_session import convert_recording
from sevenfold.replay.costs import LARGEST_FIXED, compute_token_rates, find_largest_fixed
from sevenfold.testing import FakeClock


class Talk:
    """A session written by hand: questions, and replies with the usage that was recorded."""

    def __init__(self) -> None:
        self.clock = FakeClock(1_000.0)
        self.log = Transcript(self.clock.now)

    def asks(self, after: float = 5.0) -> None:
        self.clock.time += after
        self.log.add(user("and now?"))

    def replies(self, read: int, write: int, *, hour: bool = False) -> int:
        self.clock.time += 5.0
        usage = Usage(cache_read=read, cache_write=write, cache_write_1h=write if hour else 0)
        [id] = self.log.add(Reply(assistant(Text("so be it")), usage), by="model")
        return id

    def breaks(self) -> dict[int, int]:
        return compute_token_rates(self.log.entries).breaks


def begun(*, hour: bool = False) -> Talk:
    talk = Talk()
    talk.asks()
    talk.replies(10_000, 30_000, hour=hour)
    talk.asks()
    talk.replies(40_000, 1_000, hour=hour)
    return talk


def test_a_request_that_read_less_than_was_sent_before_it_broke_the_cache() -> None:
    talk = begun()
    talk.asks()
    broke = talk.replies(10_000, 32_000)
    talk.asks()
    talk.replies(42_000, 500)

    assert talk.breaks() == {broke: 10_000}


def test_a_cache_that_expired_was_not_broken() -> None:
    talk = begun()
    talk.asks(after=301.0)
    talk.replies(10_000, 32_000)

    assert talk.breaks() == {}


def test_the_lifetime_is_the_one_that_was_paid_for() -> None:
    talk = begun(hour=True)
    talk.asks(after=301.0)
    broke = talk.replies(10_000, 32_000, hour=True)

    assert talk.breaks() == {broke: 10_000}


def test_the_end_of_a_prompt_that_was_not_marked_is_no_break() -> None:
    talk = begun()
    talk.asks()
    talk.replies(39_500, 3_000)

    assert talk.breaks() == {}


def test_a_compaction_or_a_prompt_that_shrank_is_no_break() -> None:
    compacted = begun()
    last = compacted.log.entries[-1].id
    compacted.log.add(Replace(0, last, (user("a summary"),)), by="recorded")
    compacted.asks()
    compacted.replies(10_000, 32_000)
    shrunk = begun()
    shrunk.asks()
    shrunk.replies(10_000, 12_000)

    assert compacted.breaks() == {}
    assert shrunk.breaks() == {}


def test_a_client_that_never_read_a_cache_broke_none() -> None:
    talk = Talk()
    for n in range(3):
        talk.asks()
        talk.replies(0, 30_000 + n)

    assert talk.breaks() == {}


def test_a_first_read_that_other_sessions_had_too_shows_a_fixed_prefix(tmp_path: Path) -> None:
    """Two sessions of 60,000 tokens that begin alike, and one that inherited what it read."""
    for name, read in (("a", 30_000), ("b", 30_000), ("c", 58_000)):
        lines = [json.loads(line) for line in sessions.claude_code(1).splitlines()]
        for line in lines:
            line |= {"sessionId": name, "requestId": f"{name} {line['uuid']}"}
            if (used := line["message"].get("usage")) is not None:
                used |= {"cache_read_input_tokens": read, "cache_creation_input_tokens": 60_000 - read}
        (tmp_path / f"{name}.jsonl").write_bytes(sessions.jsonl(lines))
    shared = find_repeated_reads(read_first_requests(find_replay_files([tmp_path])).values())

    assert shared == {30_000}
    found = {}
    for one in find_replay_files([tmp_path]):
        entries = convert_recording(read_session(Path(one.path))).entries
        found[Path(one.path).stem] = compute_token_rates(entries, find_largest_fixed(entries, shared))
    assert {name: known.inherited > 0 for name, known in found.items()} == {
        "a": False, "b": False, "c": True,
    }  # fmt: skip


def test_a_copy_or_a_fork_of_the_same_session_shows_nothing(tmp_path: Path) -> None:
    for name in ("a", "b", "a-fork"):
        read, id = b'"cache_read_input_tokens": ', b"a-claude-session"
        data = sessions.claude_code(1).replace(read + b"0", read + b"9000")
        (tmp_path / f"{name}.jsonl").write_bytes(data.replace(id, id + name[1:].encode()))

    assert find_repeated_reads(read_first_requests(find_replay_files([tmp_path])).values()) == frozenset()


def test_a_larger_system_prompt_can_be_told_from_inherited_history() -> None:
    talk = Talk()
    talk.asks()
    talk.replies(64_000, 0)
    entries = talk.log.entries

    assert compute_token_rates(entries).fixed == LARGEST_FIXED
    assert compute_token_rates(entries, fixed=70_000).inherited == 0
