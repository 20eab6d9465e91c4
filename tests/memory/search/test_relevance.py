"""When the best memory is an answer, and when silence is better."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sevenfold.memory.search.relevance import (
    BY_MEANING,
    BY_WORDS,
    QuestionTraits,
    RecallEvidence,
    RelevanceRule,
    find_traits,
    is_worth_showing,
)
from sevenfold.memory.text.words import tokenize_text

GOOD = RecallEvidence(share=0.3, covered=0.8, near=0.55, passages=500)
WEAK = RecallEvidence(share=0.05, covered=0.2, near=0.3, passages=500)


def traits(text: str, seen: str = "") -> QuestionTraits:
    known = set(tokenize_text(seen))
    return find_traits(text, {word: word in known for word in tokenize_text(text)})


@pytest.mark.parametrize(
    "text",
    [
        "fix all",
        "post it",
        "go ahead",
        "do 1,2 and 5",
        "yes, commit this",
        "ok now it works",
        "what is it?",
        "can you push it?",
    ],
)
def test_a_prompt_that_the_conversation_explains_is_never_answered(text: str) -> None:
    assert traits(text).is_empty
    assert not is_worth_showing(traits(text), replace(GOOD, share=1.0, covered=1.0, near=1.0))


@pytest.mark.parametrize(
    "text",
    [
        "Zanzibar",
        "how do we deploy?",
        "on which day do we release?",
        "do we release on Fridays?",
        "is it released?",
        "deploy freeze",
        "数据库怎么测试？",
    ],
)
def test_a_short_question_is_still_a_question(text: str) -> None:
    assert not traits(text).is_empty
    assert is_worth_showing(traits(text), replace(GOOD, covered=1.0, share=0.6))


def test_a_question_about_oneself_needs_less_than_an_order() -> None:
    between = replace(WEAK, covered=0.35, near=0.35)
    mine, order = (
        traits("What bicycle did I buy in the spring?"),
        traits("Rename the bicycle class in spring"),
    )
    assert (mine.asks, mine.personal, mine.orders) == (True, True, False)
    assert (order.asks, order.personal, order.orders) == (False, False, True)
    assert is_worth_showing(mine, between)
    assert not is_worth_showing(order, between)


def test_asking_for_advice_is_a_question_and_no_order() -> None:
    found = traits("Can you suggest a hotel for my trip to the sea?")
    assert (found.asks, found.orders) == (True, False)
    assert traits("can you fix the test?").orders


def test_a_known_name_speaks_for_an_answer_and_an_unknown_one_against_it() -> None:
    known = traits("what did Caroline paint?", "Caroline likes to paint")
    unknown = traits("what did Caroline paint?", "Melanie likes to paint")
    assert (known.known, known.unknown) == (True, False)
    assert (unknown.known, unknown.unknown) == (False, True)
    assert BY_WORDS.weigh(known, WEAK) > BY_WORDS.weigh(unknown, WEAK)
    nobody = traits("what did she paint?", "Caroline")
    assert (nobody.known, nobody.unknown) == (False, False)


def test_names_of_code_are_names() -> None:
    assert traits("why does getSessionState fail here?").unknown
    assert traits("why does session_state fail here?", "session state").known


def test_nothing_is_shown_without_evidence_however_it_is_asked() -> None:
    none = RecallEvidence(share=0.0, covered=0.05, near=0.1, passages=20)
    assert not is_worth_showing(traits("What did I buy for my garden in the spring?"), none)
    assert not is_worth_showing(
        traits("What did I buy for my garden in the spring?"), replace(none, near=None)
    )


def test_the_same_evidence_counts_for_less_among_more_passages() -> None:
    asked = traits("where is the pre-production machine hosted?")
    few, many = (BY_MEANING.weigh(asked, replace(WEAK, passages=count)) for count in (20, 200_000))
    assert few > many


def test_a_memory_without_vectors_is_judged_by_its_words_alone() -> None:
    asked = traits("where is the pre-production machine hosted?")
    assert is_worth_showing(asked, replace(GOOD, near=None))
    assert not is_worth_showing(asked, replace(WEAK, near=None, covered=0.1))


def test_talk_about_code_needs_more_than_a_question_about_oneself() -> None:
    between = replace(WEAK, share=0.16, covered=0.36, near=0.36, passages=2_000, around=0.25)
    assert traits("why are the integration tests of the parser so slow?").technical
    assert traits("move `find_file` into src/search/files.py of this project").technical
    assert not traits("deploy freeze").technical
    assert not traits("which restaurant in Lisbon did Anna like so much?").technical
    assert is_worth_showing(traits("why were the guests of the wedding so late?"), between)
    assert not is_worth_showing(traits("why are the integration tests of the parser so slow?"), between)


def test_a_short_question_about_oneself_needs_no_more_words() -> None:
    """ "What was my previous occupation?" has one word that names a subject."""
    found = RecallEvidence(share=0.06, covered=0.14, near=0.29, passages=2_400, around=0.2)
    assert is_worth_showing(traits("What was my previous occupation?"), found)
    assert not is_worth_showing(traits("What about the occupation?"), found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "But why do you think old backups shouldn't be overwritten?",
            RecallEvidence(0.06, 0.16, 0.33, 139, 0.31),
        ),
        ("no, we removed the export buttons on purpose", RecallEvidence(0.11, 0.34, 0.38, 758, 0.34)),
        (
            "how does that look if two users were part of the meeting and one is gone",
            RecallEvidence(0.0, 0.0, 0.41, 139, 0.32),
        ),
    ],
)
def test_a_small_folder_answers_no_prompt_of_another_project(text: str, found: RecallEvidence) -> None:
    assert not is_worth_showing(traits(text), found)


def test_a_memory_must_be_nearer_than_the_others_are() -> None:
    """To talk about code every memory of a coder is near; a question in other words to one alone."""
    asked, near = traits("variables inside the lists of that file are refused"), replace(WEAK, near=0.42)
    assert is_worth_showing(asked, replace(near, around=0.25))
    assert not is_worth_showing(asked, replace(near, around=0.4))
    assert BY_WORDS.weigh(asked, replace(near, around=0.4)) == BY_WORDS.weigh(asked, near)


def test_the_same_share_of_a_longer_message_is_more_evidence() -> None:
    short, long = "the meals of the trip", "the meals, hotels, flights and trains of the trip to Lisbon"
    found = replace(WEAK, share=0.15, covered=0.5, near=0.4)
    for rule in (BY_MEANING, BY_WORDS):
        plain = [
            replace(traits(text), known=False, unknown=False, words=n)
            for text, n in ((short, 4), (long, 8))
        ]
        assert rule.weigh(plain[1], found) > rule.weigh(plain[0], found)


@pytest.mark.parametrize("rule", [BY_MEANING, BY_WORDS])
def test_evidence_never_speaks_against_an_answer(rule: RelevanceRule) -> None:
    for words in (1, 4, 40):
        asked = replace(traits("what did Caroline paint?"), words=words)
        for field in ("share", "covered", "near"):
            assert rule.weigh(asked, replace(WEAK, **{field: 0.9})) >= rule.weigh(asked, WEAK)
