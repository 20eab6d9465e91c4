"""How a memory is cut into the pieces that are scored."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.memory.search.scoring import ASSISTANT, MOST, SIZE, split_passages


@given(st.text(max_size=3_000))
def test_pieces_are_bounded_in_order_and_leave_out_nothing_but_space(text: str) -> None:
    found = split_passages(text)
    assert all(piece.end - piece.start <= SIZE for piece in found)
    assert all(piece.text == text[piece.start : piece.end] for piece in found)
    assert all(a.end <= b.start for a, b in pairwise(found))
    if len(found) < MOST:
        rest = text
        for piece in reversed(found):
            rest = rest[: piece.start] + rest[piece.end :]
        assert not rest.strip()


def test_an_empty_text_has_no_pieces() -> None:
    assert split_passages(" \n\n ") == []


def test_short_paragraphs_stay_together() -> None:
    text = "# Title\n\nOne line.\n\nAnother line."
    assert [piece.text for piece in split_passages(text)] == [text]


def test_a_long_paragraph_is_cut_after_a_sentence() -> None:
    text = "This is a sentence of some length. " * 20
    assert all(piece.text.endswith(". ") for piece in split_passages(text))


@pytest.mark.parametrize(
    "form",
    [
        "{who}: {said}",
        "**{who}:** {said}",
        "**{who}**: {said}",
        "## {who}\n\n{said}",
        "[{who}] {said}",
        "{who} (2023/05/20): {said}",
        '{{"role": "{who}", "content": "{said}"}}',
    ],
)
@pytest.mark.parametrize(("user", "assistant"), [("user", "assistant"), ("Human", "Assistant")])
def test_what_an_assistant_said_counts_less(form: str, user: str, assistant: str) -> None:
    turns = [
        form.format(who=user, said="I adopted a cat."),
        form.format(who=assistant, said="Cats are lovely."),
        form.format(who=user, said="Her name is Miso."),
    ]
    found = split_passages("\n\n".join(turns))
    weights = {word: p.weight for p in found for word in ("adopted", "lovely", "Miso") if word in p.text}
    assert weights == {"adopted": 1.0, "lovely": ASSISTANT, "Miso": 1.0}
    assert len(found) == 3


def test_a_memory_about_assistants_is_no_conversation() -> None:
    text = "Assistant: the word we use for the program.\n\nModel: the thing behind it."
    assert {piece.weight for piece in split_passages(text)} == {1.0}


def test_a_conversation_of_people_counts_in_full() -> None:
    text = "Anna: We moved to Kyoto.\n\nBen: How nice!"
    assert {piece.weight for piece in split_passages(text)} == {1.0}


def test_a_long_text_has_a_bounded_number_of_pieces() -> None:
    assert len(split_passages("A sentence of words. " * 100_000)) == MOST
