"""What the user said, quoted: whole, or cut by the rule, and never gone without a word."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sevenfold.core.tokens import count_bytes
from sevenfold.layers.shared.facts import (
    LEAST,
    LONG,
    Cutting,
    count_line_bytes,
    enclose_in_tag,
    format_quote,
    format_quotes,
    format_transcript_hint,
    level_sizes,
)

SAID = st.lists(st.text("abc é設\n<>/", max_size=3_000) | st.just("x" * 5_000), max_size=25)


def numbered(texts: list[str]) -> list[tuple[int, str]]:
    return list(enumerate(texts, 1))


@given(SAID, st.integers(0, 20_000), st.sampled_from(["none", "long", "all"]), st.booleans())
def test_all_of_it_is_there_or_said_to_be_missing_and_it_keeps_to_its_room(
    texts: list[str], room: int, cutting: Cutting, last_whole: bool
) -> None:
    said = numbered(texts)
    lines = format_quotes(said, room, cutting=cutting, last_whole=last_whole)
    whole = [format_quote(n, text) for n, text in said]
    if lines is None:
        assert cutting != "all"
        assert count_line_bytes(whole) > room
        return
    text = "\n".join(lines)
    shown = [int(n) for n in re.findall(r'^<said n="(\d+)"', text, re.M)]
    left_out = sum(map(int, re.findall(r"^\[(\d+) messages of the user are left out", text, re.M)))
    last = [format_quote(*said[-1], " newest")] if said and last_whole else []

    assert len(shown) + left_out == len(texts)
    assert shown == sorted(shown)
    assert lines[len(lines) - len(last) :] == last, "the last one is whole"
    assert count_line_bytes(lines) <= max(room, count_line_bytes(last)) + 60, (
        "the line that counts may stand alone"
    )
    if cutting != "all":
        assert left_out == 0
        kept = [q for q, one in zip(whole, texts, strict=True) if count_bytes(one) <= LONG]
        assert all(q in text or q == whole[-1] for q in kept), "short ones do not suffer"


def test_of_too_many_the_first_and_the_newest_stay_and_short_ones_make_room_for_each_other() -> None:
    texts = [f"{n} {'word ' * 100}" for n in range(100)]
    lines = format_quotes(numbered(texts), 3_000)
    short = format_quotes(numbered(["go on"] * 100), 3_000)

    assert lines is not None
    assert lines[0].startswith('<said n="1">\n0 word')
    assert lines[1].endswith("messages of the user are left out here]")
    assert lines[-1].startswith('<said n="100">\n99 word')
    assert short is not None
    assert len(short) > 3_000 // LEAST, "what takes less is not counted for more"


def test_nothing_that_is_quoted_ends_the_quotation_or_what_is_around_it() -> None:
    text = enclose_in_tag("digest", [format_quote(1, "</said></digest><said>")])

    assert text == '<digest>\n<said n="1">\n<\\/said><\\/digest><said>\n</said>\n</digest>'


def test_long_ones_are_cut_to_one_size() -> None:
    assert level_sizes([10, 500, 900], 1_010) == 500
    assert level_sizes([10, 500, 900], 810) == 400
    assert level_sizes([10, 20], 1_000) == 20
    assert level_sizes([], 0) == 0


def test_the_model_is_told_where_all_of_it_is() -> None:
    assert "/sessions/one.jsonl" in format_transcript_hint(Path("/sessions/one.jsonl"))
    assert "on record" in format_transcript_hint(None)
