"""One ranking from words and meaning, and when there is none."""

from __future__ import annotations

import numpy as np
import pytest

from sevenfold.memory.search.scoring import (
    BEST,
    BY_MEANING,
    BY_WORDS,
    K1,
    NAMED,
    NEAR,
    WHOLE,
    WeightedQuestion,
    compute_nearness,
    compute_relative_scores,
    compute_scale,
    fuse_scores,
    is_worth_showing,
    weigh_question,
)
from sevenfold.memory.text.words import LIGHT, tokenize_text


def scores(*numbers: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array(numbers, np.float32)


def asked(text: str, seen: str) -> WeightedQuestion:
    words = tokenize_text(text)
    return weigh_question(dict.fromkeys(words, 2.0), {w: w in tokenize_text(seen) for w in words}, text)


def ranked(whole: list[float], best: list[float], near: list[float]) -> list[int]:
    arrays = scores(*whole), scores(*best), scores(*near)
    return [
        int(at)
        for at in np.argsort(-compute_relative_scores(*arrays, compute_scale(*arrays)), kind="stable")
    ]


def test_a_memory_that_has_all_the_words_comes_before_one_that_has_some() -> None:
    assert ranked([2, 4], [2, 4], [0, 0]) == [1, 0]


def test_meaning_decides_between_memories_with_the_same_words() -> None:
    assert ranked([1, 1], [1, 1], [0.2, 0.6]) == [1, 0]


def test_words_decide_between_memories_with_the_same_meaning_however_long_the_question() -> None:
    assert ranked([0.1, 0.2], [0.1, 0.2], [0.51, 0.5]) == [1, 0]


def test_a_folder_without_scores_is_not_divided_by() -> None:
    assert np.isfinite(
        compute_relative_scores(scores(0), scores(0), scores(0), compute_scale(*3 * [scores(0)]))
    ).all()
    assert len(compute_relative_scores(scores(), scores(), scores(), compute_scale(*3 * [scores()]))) == 0


def test_how_good_an_answer_is_goes_by_what_the_question_could_get() -> None:
    total = 4.0
    most = total * (K1 + 1)
    found = fuse_scores(scores(most, 0, 0), scores(most, 0, 0), scores(0, 1, 0), total)
    assert found.tolist() == pytest.approx([WHOLE + BEST, NEAR, 0.0])
    assert np.isfinite(fuse_scores(scores(0), scores(0), scores(0), 0.0)).all()


def test_nearness_is_mostly_the_nearest_passage() -> None:
    assert compute_nearness(scores(0.9, 0.3, 0.3)) > compute_nearness(scores(0.6, 0.6, 0.6))
    assert compute_nearness(scores(0.6, 0.6, 0.6)) > compute_nearness(scores(0.6, 0.1, 0.1))
    assert compute_nearness(scores(0.5)) == pytest.approx(0.5)
    assert compute_nearness(scores()) == compute_nearness(scores(-0.3)) == 0.0


def test_words_that_ask_for_a_time_weigh_less_than_the_subject() -> None:
    weights = asked("How many weeks ago did I buy the bicycle?", "").weights
    (bicycle,), (week,) = tokenize_text("bicycle"), tokenize_text("weeks")
    assert weights[week] == pytest.approx(LIGHT * weights[bicycle])


def test_a_known_name_speaks_for_an_answer_and_an_unknown_one_against_it() -> None:
    assert asked("what did Caroline paint?", "Caroline likes to paint").named == NAMED
    assert asked("what did Caroline paint?", "Melanie likes to paint").named == -NAMED
    assert asked("did Caroline meet Melanie?", "Caroline").named == 0.0
    assert asked("what did she paint?", "Caroline").named == 0.0


def test_the_floor_rises_with_the_number_of_passages_up_to_a_point() -> None:
    for floor in (BY_MEANING, BY_WORDS):
        assert floor.at(0) == floor.at(1) < floor.at(100) < floor.at(10_000)
        assert floor.at(10**12) == floor.most


def test_an_answer_is_shown_from_the_floor_on() -> None:
    plain = asked("what did she paint?", "paint")
    floor = BY_MEANING.at(400)
    assert is_worth_showing(floor + 0.01, plain, by_meaning=True, passages=400)
    assert not is_worth_showing(floor - 0.01, plain, by_meaning=True, passages=400)
    assert not is_worth_showing(floor - 0.01, asked("", ""), by_meaning=True, passages=400)


def test_a_question_without_words_is_never_answered() -> None:
    assert not is_worth_showing(99.0, asked("what is it?", ""), by_meaning=True, passages=1)
