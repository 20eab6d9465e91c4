"""Which memories are one: the same fact, news about it, or only a neighbour."""

from __future__ import annotations

import pytest

from sevenfold.memory.similarity import extract_statement, find_similar
from sevenfold.memory.topic_file import Topic, Type, encode_new_topic, read_topic


def memory(text: str, name: str = "", *, type: Type = "project", body: str = "") -> Topic:
    file = f"{name or abs(hash(text))}.md"
    data = encode_new_topic(file, name=name or file, description=text, type=type, body=body or text)
    return read_topic(data, file)


AUDIT = "The audit of the billing system ends on 2026-09-30."

SAME = [
    (AUDIT, "The audit of the billing system ends on 2026-11-15."),
    ("Deploys happen on Fridays.", "Deploys never happen on Mondays."),
    ("Always squash commits before merging.", "Do not squash commits before merging."),
    ("发布在周五进行", "发布不在周一进行"),
]


@pytest.mark.parametrize(("old", "new"), SAME)
def test_another_date_or_the_opposite_is_news_about_the_same(old: str, new: str) -> None:
    found = find_similar(memory(new), [memory("Something else entirely, about cats."), memory(old)])
    assert found is not None
    assert (found.topic.description, found.same, found.known) == (old, True, False)


def test_what_is_said_again_is_known() -> None:
    again = memory("the audit of the billing system ends: on 2026-09-30", "again")
    found = find_similar(again, [memory(AUDIT, "audit")])
    assert found is not None
    assert found.known


CLOSE = [
    ("The staging server of the shop runs on host alpha in Frankfurt.",
     "The production server of the shop runs on host alpha in Frankfurt."),
    ("The staging database of the shop listens on port 5432 of host alpha.",
     "The staging database of the shop listens on port 5433 of host alpha."),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), CLOSE)
def test_another_name_or_number_may_be_another_thing(old: str, new: str) -> None:
    found = find_similar(memory(new), [memory(old)])
    assert found is not None
    assert not found.same
    assert not found.known


def test_a_memory_of_the_same_name_is_never_passed_over() -> None:
    found = find_similar(memory("Written in Rust.", "Engine"), [memory("Bought in 2019.", "engine")])
    assert found is not None
    assert not found.same


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Indent with tabs.", "Tests use a real database."),
        ("Frontend builds take long.", "Backend builds take long on the old runner."),
        ("Is a radiologist.", "Is a photographer."),
    ],
)
def test_other_facts_are_other_facts(old: str, new: str) -> None:
    assert find_similar(memory(new), [memory(old)]) is None


def test_one_kind_does_not_take_the_place_of_another() -> None:
    found = find_similar(memory(AUDIT, type="user"), [memory(AUDIT, "audit", type="project")])
    assert found is not None
    assert not found.same
    assert not found.known


def test_the_words_a_memory_rests_on_are_no_part_of_what_it_states() -> None:
    topic = memory("Tabs", body="Indent with tabs.\n\n> “use tabs, will you”")
    assert extract_statement(topic) == "Tabs\nIndent with tabs."


def test_a_memory_does_not_resemble_itself() -> None:
    one = memory(AUDIT, "audit")
    assert find_similar(one, [one]) is None
