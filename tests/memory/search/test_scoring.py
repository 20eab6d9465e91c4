"""One ranking from words and meaning."""

from __future__ import annotations

import numpy as np
import pytest

from sevenfold.memory.search.scoring import (
    CLEAR,
    KINSHIP,
    NAMED,
    add_kinship,
    add_word_scores,
    compute_nearness,
    is_long,
    scale_scores,
    weigh_meaning,
    weigh_question,
)
from sevenfold.memory.text.words import LIGHT, tokenize_text


def scores(*numbers: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array(numbers, np.float32)


def test_scores_become_shares_of_the_best_and_an_empty_folder_is_not_divided_by() -> None:
    assert scale_scores(scores(1, 4, 2)).tolist() == [0.25, 1.0, 0.5]
    assert scale_scores(scores(0, 0)).tolist() == [0.0, 0.0]
    assert len(scale_scores(scores())) == 0


def test_a_memory_that_says_a_thing_in_several_passages_comes_before_one_that_says_it_once() -> None:
    once, often = add_word_scores(scores(2, 2), scores(3, 3), scores(0.75, 2)).tolist()
    assert often > once


def test_of_a_long_question_words_decide_more_than_meaning() -> None:
    assert weigh_meaning(0) == weigh_meaning(CLEAR) == 1.0
    assert weigh_meaning(2 * CLEAR) == 0.5


def test_a_message_is_long_when_it_has_more_words_than_say_what_it_is_about() -> None:
    assert not is_long(CLEAR)
    assert is_long(CLEAR + 1)


def test_what_shares_words_with_the_best_rises_by_as_much_as_the_best_leads() -> None:
    half = KINSHIP / 2  # of a message twice as long as meaning is clear
    assert add_kinship([1.0, 0.6, 0.5], 2 * CLEAR, lambda _: [9.0, 1.0, 4.0]) == pytest.approx(
        [1.0 + half * 0.4, 0.6 + half * 0.1, 0.5 + half * 0.4]
    )
    assert add_kinship([0.5, 1.0], 2 * CLEAR, lambda best: [0.0, float(best)]) == pytest.approx(
        [0.5, 1.0 + half * 0.5]
    ), "nothing is shared"


def test_nothing_rises_for_a_short_question_or_where_two_are_equally_good_or_there_is_one() -> None:
    assert add_kinship([1.0, 0.5], CLEAR, lambda _: [1.0, 1.0]) == [1.0, 0.5]
    assert add_kinship([1.0, 1.0, 0.5], 99, lambda _: [1.0, 1.0, 1.0]) == [1.0, 1.0, 0.5]
    assert add_kinship([1.0], 99, lambda _: [1.0]) == [1.0]
    assert add_kinship([], 99, lambda _: []) == []


def test_nearness_is_mostly_the_nearest_passage() -> None:
    assert compute_nearness(scores(0.9, 0.3, 0.3)) > compute_nearness(scores(0.6, 0.6, 0.6))
    assert compute_nearness(scores(0.6, 0.6, 0.6)) > compute_nearness(scores(0.6, 0.1, 0.1))
    assert compute_nearness(scores(0.5)) == pytest.approx(0.5)
    assert compute_nearness(scores()) == compute_nearness(scores(-0.3)) == 0.0


def test_names_weigh_more_than_other_words_of_the_question() -> None:
    asked = "yesterday we spoke about the trip with Melanie and about `tide_table` once more"
    weights = weigh_question(dict.fromkeys(tokenize_text(asked), 2.0), asked)
    assert weights["melani"] == weights["tid"] == pytest.approx(NAMED * weights["trip"])
    assert set(weigh_question({"melani": 2.0, "trip": 2.0}).values()) == {2.0}


def test_words_that_ask_for_a_time_or_a_number_weigh_less_than_the_subject() -> None:
    words = tokenize_text("How many weeks ago did I buy bicycle 5?")
    weights = weigh_question(dict.fromkeys(words, 2.0))
    (bicycle,), (week,) = tokenize_text("bicycle"), tokenize_text("weeks")
    assert weights[week] == weights["5"] == pytest.approx(LIGHT * weights[bicycle])
