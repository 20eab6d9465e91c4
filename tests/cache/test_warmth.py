"""Until when the provider keeps the prefix."""

from __future__ import annotations

from sevenfold.cache.ledger import CacheWarmth
from sevenfold.core.messages import Message, Text, Thinking, ToolResult, ToolUse, assistant, user
from sevenfold.core.request import Frame, Request
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Reply, Transcript, View
from sevenfold.session.spending import estimate_warm_usage, make_minimal_request

FRAME = Frame("claude-opus-4-8", ("rules",))
WRITTEN = Usage(cache_write=50_000)
READ = Usage(cache_read=50_000)


def sent(warmth: CacheWarmth, at: float, usage: Usage, source: str = "main", frame: Frame = FRAME) -> None:
    warmth.begin(source, at)
    warmth.record_usage(Request(frame, View(), source=source), usage, at + 60)


def test_what_is_kept_is_found_by_a_model_that_forgets_its_thinking() -> None:
    log = Transcript(lambda: 0.0)
    log.add(user("begin"))
    for n in range(30):  # more messages than the provider looks back
        log.add(
            Reply(assistant(Thinking("hm", "s"), ToolUse(f"t{n}", "Bash", {"command": "ls"}))), by="model"
        )
        log.add(Message("user", (ToolResult(f"t{n}", "x" * 400),)), by="tools")
    log.add(Reply(assistant(Thinking("hm", "s"), Text("Done."))), by="model")
    request = Request(FRAME, log.view)
    asked = make_minimal_request(request)

    assert [asked.view.where(id) for id in asked.breakpoints] == [0, 60, 61]
    kept = estimate_warm_usage(asked, keeps_thinking=True)
    found = estimate_warm_usage(asked, keeps_thinking=False)
    assert found.cache_read < 200 < kept.cache_read
    assert found.total == kept.total


def test_a_life_counts_from_the_start_of_the_request() -> None:
    warmth = CacheWarmth()
    assert warmth.until(FRAME) is None
    sent(warmth, 1_000, WRITTEN)
    assert warmth.until(FRAME) == 1_300
    sent(warmth, 1_100, READ)
    assert warmth.until(FRAME) == 1_400


def test_an_hour_is_an_hour() -> None:
    warmth, frame = CacheWarmth(), Frame("m", ttl="1h")
    sent(warmth, 0, WRITTEN, frame=frame)
    assert warmth.until(frame) == 3_600


def test_whoever_reads_the_prefix_keeps_it() -> None:
    warmth = CacheWarmth()
    sent(warmth, 1_000, WRITTEN)
    sent(warmth, 1_200, READ, "fork")
    assert warmth.until(FRAME) == 1_500


def test_a_request_that_reads_only_the_beginning_keeps_nothing() -> None:
    warmth = CacheWarmth()
    sent(warmth, 1_000, WRITTEN)
    sent(warmth, 1_200, Usage(cache_read=10_000, cache_write=10_000), "fork")
    sent(warmth, 1_250, READ, "agent", Frame("claude-opus-4-8", ("other rules",)))
    assert warmth.until(FRAME) == 1_300


def test_what_is_written_for_an_hour_behind_it_is_kept_for_an_hour() -> None:
    warmth, hour = CacheWarmth(), Frame("claude-opus-4-8", ("rules",), ttl="1h")
    sent(warmth, 1_000, WRITTEN)
    sent(warmth, 1_200, READ, "keep-warm", hour)
    assert warmth.until(FRAME) == 1_500  # nothing was written, so nothing lives longer
    new = Usage(cache_read=50_000, cache_write=500, cache_write_1h=500)
    sent(warmth, 1_250, new, "keep-warm", hour)
    assert warmth.until(FRAME) == 1_250 + 3_600


def test_the_conversation_goes_on_and_ends_in_five_minutes_again() -> None:
    warmth, hour = CacheWarmth(), Frame("claude-opus-4-8", ("rules",), ttl="1h")
    sent(warmth, 1_000, WRITTEN)
    new = Usage(cache_read=50_000, cache_write=500, cache_write_1h=500)
    sent(warmth, 1_250, new, "keep-warm", hour)
    sent(warmth, 2_000, READ)
    assert warmth.until(FRAME) == 2_300


def test_another_model_and_a_provider_that_keeps_nothing_have_nothing_to_keep() -> None:
    warmth = CacheWarmth()
    sent(warmth, 1_000, WRITTEN)
    assert warmth.until(Frame("claude-sonnet-5-5", ("rules",))) is None
    sent(warmth, 1_100, Usage(input=50_000))
    assert warmth.until(FRAME) is None


def test_a_resumed_session_knows_when_it_was_last_sent() -> None:
    warmth = CacheWarmth()
    warmth.recall(FRAME, 1_000, 50_000)
    assert warmth.until(FRAME) == 1_300
