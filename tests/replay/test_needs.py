"""Which results a recorded session went back to: by lines that were edited and words that are rare."""

from __future__ import annotations

import pytest

from sevenfold.core.messages import Message, Text, ToolResult, ToolUse, assistant, user
from sevenfold.core.transcript import Entry, Id, Mark, Replace, Reply, Transcript
from sevenfold.replay.needs import (
    MOST_SOURCES,
    MissedSource,
    ReplyNeed,
    find_long_lines,
    find_missed,
    find_needs,
    find_rare_words,
)

LINE = "return compute_total(order)"


class Recorded:
    """A session written by hand."""

    def __init__(self) -> None:
        self.log = Transcript(lambda: 0.0)

    def says(self, text: str) -> Id:
        return self.log.add(user(text))[0]

    def replies(self, text: str = "", *uses: ToolUse) -> Id:
        said = assistant(*([Text(text)] if text else []), *uses)
        return self.log.add(Reply(said), by="model")[0]

    def result(self, id: str, text: str, tool: str = "Read") -> Id:
        """A call for it, and what came."""
        asked = self.replies("", ToolUse(id, tool, {}))
        self.log.add(Message("user", (ToolResult(id, text),)), by="tools")
        return asked

    def edits(self, old: str, id: str = "e") -> Id:
        new = {"file_path": "/x", "old_string": old, "new_string": "pass"}
        return self.replies("", ToolUse(id, "Edit", new))

    def needs(self, reply: Id) -> tuple[ReplyNeed, ...]:
        """Of results alone: what stands elsewhere too is not needed from them."""
        found = find_needs(self.log.entries).get(reply, ())
        return tuple(need for need in found if need.is_results_only)


@pytest.fixture
def session() -> Recorded:
    recorded = Recorded()
    recorded.says("please mend it")
    return recorded


def lines(needs: tuple[ReplyNeed, ...]) -> list[tuple[str, ...]]:
    return [need.sources for need in needs if need.line]


def words(needs: tuple[ReplyNeed, ...]) -> list[tuple[str, ...]]:
    return [need.sources for need in needs if not need.line]


# --- a line that is edited ------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["", "   12→", "12\t", "12:", "7-"])
def test_a_line_that_is_replaced_was_needed_from_where_it_was_read(session: Recorded, number: str) -> None:
    session.result("r1", f"{number}    {LINE}\n13→}}")
    session.result("r2", "something else altogether")
    edit = session.edits(f"    {LINE}")

    assert lines(session.needs(edit)) == [("r1",)]


def test_every_line_of_an_edit_counts_and_short_ones_could_come_from_anywhere(session: Recorded) -> None:
    session.result("r1", "    first_line_of_it()\n}\nreturn x")
    session.result("r2", "    second_line_of_it()\n}")
    edit = session.edits("first_line_of_it()\nsecond_line_of_it()\n}\nreturn x")

    assert sorted(lines(session.needs(edit))) == [("r1",), ("r2",)]


def test_an_edit_of_many_places_needs_what_each_of_them_replaces(session: Recorded) -> None:
    session.result("r1", LINE)
    session.result("r2", "another_line = of_some(length)")
    edits = [{"old_string": LINE}, {"old_string": "another_line = of_some(length)"}, "broken", None]
    edit = session.replies("", ToolUse("e", "MultiEdit", {"file_path": "/x", "edits": edits}))
    strange = session.replies("", ToolUse("f", "MultiEdit", {"edits": "broken"}))

    assert sorted(lines(session.needs(edit))) == [("r1",), ("r2",)]
    assert session.needs(strange) == ()


def test_what_a_write_says_is_its_own(session: Recorded) -> None:
    session.result("r1", LINE)
    write = session.replies("", ToolUse("w", "Write", {"old_string": LINE, "content": "x"}))

    assert lines(session.needs(write)) == []


def test_a_line_that_the_user_said_too_is_not_needed_from_the_file(session: Recorded) -> None:
    session.result("r1", LINE)
    session.says(f"replace this:\n{LINE}")
    edit = session.edits(LINE)

    assert session.needs(edit) == ()


def test_a_line_that_the_model_wrote_itself_is_not_needed(session: Recorded) -> None:
    session.replies("", ToolUse("w", "Write", {"file_path": "/x", "content": LINE}))
    session.result("r1", LINE)
    edit = session.edits(LINE)

    assert session.needs(edit) == ()


# --- a word that is rare --------------------------------------------------------------------------------


def test_a_rare_word_in_a_reply_was_needed_from_where_it_stands(session: Recorded) -> None:
    session.result("r1", "the retry_after_limit is 30", "Bash")
    session.result("r2", "nothing of that kind", "Bash")
    reply = session.replies("It is governed by retry_after_limit, which is plain to see.")

    assert words(session.needs(reply)) == [("r1",)]


def test_words_in_the_arguments_of_a_call_count_however_deep_they_are(session: Recorded) -> None:
    session.result("r1", "see src/deep/hidden.py")
    call = session.replies("", ToolUse("c", "Any", {"a": [{"b": "src/deep/hidden.py"}], "n": 5}))

    assert words(session.needs(call)) == [("r1",)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a plain sentence about nothing", set()),
        ("snake_case camelCase CONST_NAME", {"snake_case", "camelCase", "CONST_NAME"}),
        ("src/a.py and 12345 and 3.14159", {"src/a.py", "12345", "3.14159"}),
        ("a_b i1 x.y", set()),
        ("Capitalised words Only", set()),
    ],
)
def test_only_words_with_a_shape_of_their_own_are_rare(text: str, found: set[str]) -> None:
    assert find_rare_words(text) == found


def test_a_word_that_stands_in_many_results_is_not_rare(session: Recorded) -> None:
    for n in range(MOST_SOURCES):
        session.result(f"r{n}", "common_name")
    few = session.replies("common_name")
    other = Recorded()
    for n in range(MOST_SOURCES + 1):
        other.result(f"r{n}", "common_name")
    many = other.replies("common_name")

    assert words(session.needs(few)) == [tuple(f"r{n}" for n in range(MOST_SOURCES))]
    assert other.needs(many) == ()


def test_what_was_said_once_is_known_from_then_on(session: Recorded) -> None:
    session.result("r1", "the retry_after_limit is 30")
    first = session.replies("retry_after_limit")
    second = session.replies("retry_after_limit, again")

    assert words(session.needs(first)) == [("r1",)]
    assert session.needs(second) == ()


def test_a_call_does_not_need_its_own_result(session: Recorded) -> None:
    asked = session.result("r1", "the retry_after_limit is 30")
    assert session.needs(asked) == ()


# --- what is missed -------------------------------------------------------------------------------------


def test_an_older_copy_is_not_missed_while_a_newer_one_is_there(session: Recorded) -> None:
    session.result("r1", LINE)
    session.result("r2", LINE)
    needs = session.needs(session.edits(LINE))

    assert lines(needs) == [("r1", "r2")]
    assert find_missed(needs, {"r1"}) == []
    assert find_missed(needs, {"r2"}) == [], "the older one will do"
    assert [one.use_id for one in find_missed(needs, {"r1", "r2"})] == ["r2"], "of both, the newest"


def test_one_word_may_be_an_accident_and_two_or_a_line_are_none() -> None:
    word, line = ReplyNeed(("r1",), False), ReplyNeed(("r1",), True)

    assert find_missed([word], {"r1"}) == [MissedSource("r1", False)]
    assert find_missed([word, word], {"r1"}) == [MissedSource("r1", True)]
    assert find_missed([line], {"r1"}) == [MissedSource("r1", True)]
    assert find_missed([word, ReplyNeed(("r2",), False)], {"r1", "r2", "r3"}) == [
        MissedSource("r1", False),
        MissedSource("r2", False),
    ]
    assert find_missed([word, line], set()) == []


def test_a_compaction_begins_anew(session: Recorded) -> None:
    first = session.result("r1", LINE)
    last = session.log.entries[-1].id
    session.log.add(Replace(first, last, (user("the summary names kept_in_summary"),)))
    edit = session.edits(LINE)
    reply = session.replies("kept_in_summary")
    session.result("r2", LINE)
    later = session.edits(LINE, "e2")

    assert session.needs(edit) == (), "it has left every view alike"
    assert session.needs(reply) == (), "the summary says it"
    assert session.needs(later) == (), "the model has said it since"


def test_marks_and_other_records_say_nothing() -> None:
    entries = [Entry(0, 0.0, Mark("m", LINE)), Entry(1, 0.0, Reply(assistant(Text("some_word"))))]
    assert find_needs(entries) == {}


def test_lines_are_compared_without_numbers_and_margins() -> None:
    assert find_long_lines("  1→\tdef some_function():  \r\n short\n\n") == {"def some_function():"}
