"""What a compaction writes down, and what the next one reads of it."""

from __future__ import annotations

from sevenfold.core.events import Compacted
from sevenfold.core.messages import Image, Message, Text, ToolResult, ToolUse, assistant, user
from sevenfold.core.tokens import Usage, count_bytes
from sevenfold.core.transcript import Mark, Replace, Reply, Transcript
from sevenfold.layers.shared.boundary import (
    Boundary,
    BoundaryRecord,
    collect_facts,
    find_last_typed,
    find_record,
    is_question_before,
    measure_user_texts,
    parse_boundary,
    record_name,
)
from sevenfold.layers.shared.facts import CommandFact, Facts, FileFact, UserTurn


def replaced(log: Transcript, first: int, last: int, text: str, facts: Facts, by: str) -> None:
    """Messages of the view become one that stands for them."""
    view, message = log.view, user(text)
    edit = Replace(view[first].id, view[last].id, (message,))
    log.add(edit, BoundaryRecord(facts).mark(message), by=by)


def talked() -> Transcript:
    log = Transcript(lambda: 0.0)
    for n in range(3):
        log.add(user(f"question {n}"), Reply(assistant(Text(f"answer {n}"))))
    return log


def said(log: Transcript) -> list[str]:
    return [one.text for one in collect_facts(log.view, log.view.marks).said]


def test_the_event_says_what_the_boundary_says() -> None:
    boundary = Boundary("notes", "auto", 900, 100, fidelity=0.5)

    assert boundary.event(2.0, Usage(1)) == Compacted("notes", "auto", 900, 100, 0.5, 2.0, Usage(1))
    assert parse_boundary(boundary.mark.value) == boundary


def test_what_a_message_stands_for_is_found_again_after_a_resume() -> None:
    lines: list[bytes] = []
    log = Transcript(lambda: 0.0, lines.append)
    log.add(user("one"), Reply(assistant(Text("ok"))), user("two"))
    facts = Facts(said=(UserTurn("one", "ok"),), others={"x": 1}, account="all is well")
    replaced(log, 0, 1, "<summary>short</summary>", facts, "Compaction")
    again = Transcript.load(b"".join(lines), lambda: 0.0)

    assert again.view == log.view
    record = find_record(again.view[0], again.view.marks)
    assert record == BoundaryRecord(facts)
    assert said(again) == ["one", "two"]


def test_records_of_several_messages_count_beside_each_other_and_add_up() -> None:
    log = talked()
    first = Facts(
        2,
        (UserTurn("question 0"),),
        files=(FileFact("/a", 1, 0, 9),),
        commands=(CommandFact("make", 2),),
        others={"Web": 1},
    )
    second = Facts(
        2,
        (UserTurn("question 1"),),
        files=(FileFact("/a", 0, 2, 7),),
        commands=(CommandFact("make", 1, True),),
        others={"Web": 4},
    )
    replaced(log, 0, 1, "<snipped>a</snipped>", first, "Snip")
    replaced(log, 1, 2, "<snipped>b</snipped>", second, "Snip")
    facts = collect_facts(log.view, log.view.marks)

    assert [one.text for one in facts.said] == ["question 0", "question 1", "question 2"]
    assert facts.files == (FileFact("/a", 1, 2, 7),)
    assert facts.commands == (CommandFact("make", 3, True),)
    assert facts.others == {"Web": 5}
    assert facts.messages == 6


def test_the_newest_account_stands_for_those_before_it() -> None:
    log = talked()
    replaced(log, 0, 1, "<summary>a</summary>", Facts(account="the first"), "Compaction")
    replaced(log, 1, 2, "<session-notes>b</session-notes>", Facts(account="the notes"), "PayOut")

    assert collect_facts(log.view, log.view.marks).account == "the notes"


def test_a_message_whose_record_is_lost_is_taken_as_it_is() -> None:
    log = talked()
    replaced(log, 0, 3, "<digest>question 0, question 1</digest>", Facts(), "Digest")
    log.add(Mark(record_name(log.view[0].message), {"facts": "damaged"}))
    facts = collect_facts(log.view, log.view.marks)

    assert facts.contexts == ("<digest>question 0, question 1</digest>",)


def test_nobody_can_say_that_he_stands_for_others() -> None:
    log = talked()
    replaced(log, 0, 1, "<summary>x</summary>", Facts(said=(UserTurn("never said"),)), "Compaction")
    forged = log.view[0].message
    typed = Transcript(lambda: 0.0)
    typed.add(forged, Mark(record_name(forged), log.view.marks[record_name(forged)]))

    assert said(typed) == ["<summary>x</summary>"]


def test_what_a_compaction_gives_back_is_not_carried_on() -> None:
    log = talked()
    log.add(user("<context>\nfile.py as it is now\n</context>"), by="Compaction")
    log.add(user("<context>\nthe rules\n</context>"), by="hooks")

    assert collect_facts(log.view, {}).contexts == ("<context>\nthe rules\n</context>",)


# --- what the user said last ----------------------------------------------------------------------------


def test_the_last_words_are_a_message_or_behind_one_or_beside_results() -> None:
    log = talked()
    assert find_last_typed(log.view) == 4
    assert is_question_before(log.view, 5)
    assert not is_question_before(log.view, 4)

    facts = Facts(said=(UserTurn("question 2"),))
    replaced(log, 4, 5, "<summary>x</summary>", facts, "Compaction")
    assert find_last_typed(log.view) is None, "question 1 is a message still, but it was not the last"
    assert is_question_before(log.view, 5)
    assert not is_question_before(log.view, 4)

    log.add(Reply(assistant(ToolUse("t", "Bash", {}))))
    log.add(Message("user", (ToolResult("t", "x"), Text("stop"))))
    assert find_last_typed(log.view) is None, "without its call it cannot stay"
    assert not is_question_before(log.view, 6)
    assert is_question_before(log.view, 7)


def test_what_was_said_is_measured_as_it_is_collected() -> None:
    log = talked()
    replaced(log, 0, 3, "so far", Facts(said=(UserTurn("question 0"), UserTurn("größer"))), "Compaction")
    log.add(Message("user", (Text("see this"), Image({"data": ""}))), user("  "), by="user")
    log.add(user("from a hook"), by="hooks")

    assert list(measure_user_texts(log.view, log.view.marks)) == [count_bytes(text) for text in said(log)]


def test_records_of_two_messages_do_not_copy_what_was_said() -> None:
    words = "what the user said once " * 40
    facts = Facts(said=(UserTurn(words),))

    older, newer = (BoundaryRecord(facts).mark(user(text)).value for text in ("one", "two"))

    assert older["facts"]["said"][0]["text"] is words
    assert newer["facts"]["said"][0]["text"] is words


def test_a_record_that_was_written_anew_counts_at_once() -> None:
    log = talked()
    replaced(log, 0, 3, "so far", Facts(said=(UserTurn("before"),)), "Compaction")
    assert said(log) == ["before", "question 2"]

    log.add(BoundaryRecord(Facts(said=(UserTurn("after"),))).mark(user("so far")), by="Compaction")

    assert said(log) == ["after", "question 2"]
