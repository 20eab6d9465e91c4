"""Server-sent events, cut into pieces in every way."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sevenfold.models.sse import SseEvent, SseParser

STREAM = (
    b"\xef\xbb\xbf: a comment\r\n"
    b'event: message_start\r\ndata: {"a": 1}\r\n\r\n'
    b"data: first line\ndata: second line\nid: 7\nretry: 3\n\n"
    b"event: nothing\n\n"
    b"data:no space\rdata:  two spaces\r\r"
    b"data: caf\xc3\xa9\n\n"
    b'error: {"code": 500}\n\n'
)
EVENTS = [
    SseEvent("message_start", b'{"a": 1}'),
    SseEvent("", b"first line\nsecond line"),
    SseEvent("", b"no space\n two spaces"),
    SseEvent("", "café".encode()),
    SseEvent("error", b'{"code": 500}'),
]


def parsed(pieces: list[bytes]) -> list[SseEvent]:
    parser = SseParser()
    found = [event for piece in pieces for event in parser.feed(piece)]
    last = parser.rest()
    return [*found, last] if last else found


def test_events_are_read_whole() -> None:
    assert parsed([STREAM]) == EVENTS


def test_every_byte_may_come_alone() -> None:
    assert parsed([STREAM[i : i + 1] for i in range(len(STREAM))]) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_where_the_stream_is_cut_into_pieces_does_not_matter(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    assert parsed([STREAM[a:b] for a, b in pairwise(places)]) == EVENTS


@given(st.binary(max_size=200))
def test_no_bytes_break_the_parser(junk: bytes) -> None:
    whole, alone = parsed([junk]), parsed([junk[i : i + 1] for i in range(len(junk))])
    assert whole == alone


def test_an_event_is_handed_out_as_soon_as_its_blank_line_has_come() -> None:
    parser = SseParser()
    assert parser.feed(b"data: one\r\n\r") == [SseEvent("", b"one")]
    assert parser.feed(b"\ndata: two\n\n") == [SseEvent("", b"two")]


def test_an_event_without_its_blank_line_waits_at_the_end() -> None:
    parser = SseParser()
    assert parser.feed(b"data: [DONE]") == []
    assert parser.rest() == SseEvent("", b"[DONE]")
    assert parser.rest() is None
    assert parser.feed(b"data: ended\n") == []
    assert parser.rest() == SseEvent("", b"ended")
