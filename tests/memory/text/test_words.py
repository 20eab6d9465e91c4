"""What recall takes for a word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.memory.text.words import (
    LIGHT,
    find_emphasis,
    find_names,
    split_written_words,
    stem_word,
    tokenize_text,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("tests", "testing"),
        ("deployed", "deploys"),
        ("studies", "study"),
        ("running", "ran"),
        ("generation", "generate"),
        ("painted", "painting"),
        ("happily", "happy"),
        ("bought", "buying"),
        ("children", "child"),
        ("classes", "class"),
        ("stopped", "stop"),
        ("organization", "organizing"),
    ],
)
def test_forms_of_one_word_are_one_word(one: str, other: str) -> None:
    assert stem_word(one) == stem_word(other)


@pytest.mark.parametrize(("one", "other"), [("bus", "bu"), ("string", "str"), ("need", "ne")])
def test_words_that_only_look_alike_stay_apart(one: str, other: str) -> None:
    assert stem_word(one) != stem_word(other)


def test_words_without_a_subject_are_left_out() -> None:
    assert tokenize_text("Can you please tell me what the thing was?") == []


def test_a_question_made_of_nothing_else_has_no_words_in_chinese_either() -> None:
    assert tokenize_text("请告诉我这是什么？") == []


def test_chinese_is_found_by_pairs_of_signs() -> None:
    asked, said = (
        set(tokenize_text("测试数据库在哪里？")),
        set(tokenize_text("我们用真实的数据库做集成测试")),
    )
    assert {"测试", "数据", "据库"} <= asked & said


def test_a_single_sign_is_a_word() -> None:
    assert tokenize_text("我的猫") == ["猫"]


def test_an_identifier_is_found_by_its_parts_and_as_a_whole() -> None:
    found = tokenize_text("useMemoryStore snake_case kebab-case")
    assert {stem_word("usememorystore"), stem_word("memory"), stem_word("store")} <= set(found)
    assert {stem_word("snake"), stem_word("kebab")} <= set(found)


def test_accents_and_wide_letters_do_not_matter() -> None:
    assert tokenize_text("Café ＡＰＩ") == tokenize_text("cafe api")


def test_an_apostrophe_ends_the_word() -> None:
    assert tokenize_text("Caroline's") == tokenize_text("Caroline")


def test_numbers_are_words() -> None:
    assert tokenize_text("port 18789") == ["port", "18789"]


def test_words_that_ask_for_a_sum_or_a_time_count_less() -> None:
    (week,) = tokenize_text("weeks")
    (bicycle,) = tokenize_text("bicycle")
    assert find_emphasis(week) == LIGHT < find_emphasis(bicycle) == 1.0


def test_names_are_what_is_written_large_inside_a_sentence() -> None:
    assert find_names("When did Caroline meet Anna in Berlin?") == tokenize_text("Caroline Anna Berlin")
    assert find_names("Where is the database?") == []
    assert find_names("All Words Of This Headline") == []


def test_written_tells_chinese_from_the_rest() -> None:
    assert list(split_written_words("用 docker 部署")) == [("用", True), ("docker", False), ("部署", True)]


@given(st.text())
def test_any_text_becomes_words_that_are_not_empty(text: str) -> None:
    assert all(tokenize_text(text))


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyzäéß", min_size=1, max_size=30))
def test_a_stem_is_never_empty(word: str) -> None:
    assert stem_word(word)
