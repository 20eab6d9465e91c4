"""What recall takes for a word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.memory.search.words import LIGHT, emphasis, names, stem, tokens, written


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
    assert stem(one) == stem(other)


@pytest.mark.parametrize(("one", "other"), [("bus", "bu"), ("string", "str"), ("need", "ne")])
def test_words_that_only_look_alike_stay_apart(one: str, other: str) -> None:
    assert stem(one) != stem(other)


def test_words_without_a_subject_are_left_out() -> None:
    assert tokens("Can you please tell me what the thing was?") == []


def test_a_question_made_of_nothing_else_has_no_words_in_chinese_either() -> None:
    assert tokens("请告诉我这是什么？") == []


def test_chinese_is_found_by_pairs_of_signs() -> None:
    asked, said = set(tokens("测试数据库在哪里？")), set(tokens("我们用真实的数据库做集成测试"))
    assert {"测试", "数据", "据库"} <= asked & said


def test_a_single_sign_is_a_word() -> None:
    assert tokens("我的猫") == ["猫"]


def test_an_identifier_is_found_by_its_parts_and_as_a_whole() -> None:
    found = tokens("useMemoryStore snake_case kebab-case")
    assert {stem("usememorystore"), stem("memory"), stem("store")} <= set(found)
    assert {stem("snake"), stem("kebab")} <= set(found)


def test_accents_and_wide_letters_do_not_matter() -> None:
    assert tokens("Café ＡＰＩ") == tokens("cafe api")


def test_an_apostrophe_ends_the_word() -> None:
    assert tokens("Caroline's") == tokens("Caroline")


def test_numbers_are_words() -> None:
    assert tokens("port 18789") == ["port", "18789"]


def test_words_that_ask_for_a_sum_or_a_time_count_less() -> None:
    (week,) = tokens("weeks")
    (bicycle,) = tokens("bicycle")
    assert emphasis(week) == LIGHT < emphasis(bicycle) == 1.0


def test_names_are_what_is_written_large_inside_a_sentence() -> None:
    assert names("When did Caroline meet Anna in Berlin?") == tokens("Caroline Anna Berlin")
    assert names("Where is the database?") == []
    assert names("All Words Of This Headline") == []


def test_written_tells_chinese_from_the_rest() -> None:
    assert list(written("用 docker 部署")) == [("用", True), ("docker", False), ("部署", True)]


@given(st.text())
def test_any_text_becomes_words_that_are_not_empty(text: str) -> None:
    assert all(tokens(text))


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyzäéß", min_size=1, max_size=30))
def test_a_stem_is_never_empty(word: str) -> None:
    assert stem(word)
