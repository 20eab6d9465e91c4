"""How much of what left the view can still be found."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.core.messages import Message, Text, Thinking, ToolResult, ToolUse, assistant, user
from sevenfold.core.tokens import MessageSize
from sevenfold.core.transcript import PlacedMessage
from sevenfold.layers.shared.facts import WORD
from sevenfold.layers.shared.fidelity import (
    EXAMPLES,
    WEIGHTS,
    FoundShare,
    ItemFinder,
    count_items,
    find_names,
    find_numbers,
    find_paths,
    measure_fidelity,
)


def said(text: str, by: str = "user") -> PlacedMessage:
    return PlacedMessage(0, user(text), by, MessageSize())


def call(name: str, **args: object) -> Message:
    return assistant(ToolUse("t", name, args))


def gave(text: str, *, is_error: bool = False) -> Message:
    return Message("user", (ToolResult("t", text, is_error),))


WORK: list[Message | PlacedMessage] = [
    said("Please make `load_rows` in src/store/rows.py read at most 4,500 rows, see ENT-109"),
    call("Read", file_path="/work/app/src/store/rows.py"),
    gave("def load_rows(limit): ...\n" * 50 + "class RowCursor: ..."),
    call("Bash", command="pytest -q tests/test_rows.py"),
    gave("Exit code 1\ncollected 3 items\nE   TypeError: load_rows() got no argument 'limit'\n"),
    assistant(Text("`load_rows` has no limit yet; https://example.org/spec?page=2 says 4,500.")),
    said("Never touch the database itself."),
]


def test_what_is_kept_word_for_word_is_found_and_what_is_gone_is_not() -> None:
    assert measure_fidelity(WORK, WORK).score == 1.0
    nothing = measure_fidelity(WORK, [])
    assert nothing.score == 0.0
    assert {kind: share.of for kind, share in nothing.kinds.items()} == {
        "said": 2,
        "paths": 1,
        "identifiers": 2,
        "errors": 1,
        "numbers": 1,
        "urls": 1,
    }
    assert "Never touch the database itself." in nothing.missing


def test_a_conversation_that_said_nothing_that_counts_has_lost_nothing() -> None:
    lost = measure_fidelity([call("Bash", command="ls"), gave("a\nb")], [])
    assert (lost.score, lost.missing) == (1.0, ())
    assert all(share == FoundShare(0.0, 0) for share in lost.kinds.values())


def test_spaces_line_breaks_and_quotation_marks_do_not_matter_but_words_and_their_order_do() -> None:
    text = "keep the old endpoint alive for two releases"
    assert ItemFinder(['- "keep the old\n   endpoint alive,  for two releases"']).quoted([text]) == {
        text: 1.0
    }
    mixed = " ".join(reversed(text.split()))
    assert ItemFinder([mixed]).quoted([text]) == {text: 0.0}


def test_half_a_quotation_is_half_found() -> None:
    first, second = "one two three four five", "six seven eight nine ten"
    found = measure_fidelity([user(f"{first} {second}")], [f"they said: {first}"])
    assert found.kinds["said"] == FoundShare(0.5, 1)


def test_a_short_message_must_stand_there_whole() -> None:
    assert measure_fidelity([user("push it now")], ["push it when it is done"]).kinds["said"].found == 0
    assert measure_fidelity([user("push it now")], ["then: 'Push', 'push it now'"]).kinds["said"].found == 1


def test_the_words_alone_beat_a_list_of_every_name() -> None:
    names = "load_rows src/store/rows.py 4500 ENT-109 https://example.org/spec?page=2 TypeError"
    words = [text for one in WORK if isinstance(one, PlacedMessage) and (text := one.message.text)]
    dump, sentences = measure_fidelity(WORK, [names]), measure_fidelity(WORK, words)
    assert dump.kinds["identifiers"].part == dump.kinds["paths"].part == 1.0
    assert dump.score < 0.5 <= sentences.score
    assert 2 * WEIGHTS["said"] >= sum(WEIGHTS.values())


def test_only_what_a_person_typed_counts_as_said() -> None:
    assert measure_fidelity([said("Working folder: somewhere", "session")], []).kinds["said"].of == 0
    assert measure_fidelity([said("a summary of it all", "Compaction")], []).kinds["said"].of == 0
    assert measure_fidelity([user("<context>\nDate: today\n</context>")], []).kinds["said"].of == 0
    assert measure_fidelity([user("plain words")], []).kinds["said"].of == 1
    assert measure_fidelity([user("👍")], []).kinds["said"].of == 0


def test_names_that_only_tool_output_or_a_written_file_has_do_not_count() -> None:
    noise = " ".join(f"some_name_{n} /var/lib/file_{n}.txt {n}000" for n in range(1, 2_000))
    counted = count_items(
        [call("Bash", command="cat log"), gave(noise), call("Write", file_path="a.py", content=noise)]
    )
    assert counted.identifiers == counted.numbers == counted.urls == ()
    assert counted.paths == ("a.py",)


def test_a_name_counts_when_the_user_says_it_or_two_messages_use_it() -> None:
    once, again = assistant(Text("I see fooBar there.")), call("Grep", pattern="fooBar")
    assert count_items([once, once]).identifiers == ("fooBar",)
    assert count_items([once, again]).identifiers == ("fooBar",)
    assert count_items([assistant(Text("fooBar fooBar fooBar"))]).identifiers == ()
    assert count_items([user("what is fooBar?")]).identifiers == ("fooBar",)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("the run_all of v2 and MyClass", {"run_all", "MyClass"}),
        ("in 09ea3c1 and e6d2bbd73e25, not 1234567", {"09ea3c1", "e6d2bbd73e25"}),
        ("with --no-verify, for ENT-109", {"--no-verify", "ENT-109"}),
        ("a well-known read-only _emphasis_ on words", set()),
        ("把 load_rows改成异步", {"load_rows"}),
    ],
)
def test_names_are_words_that_no_language_has(text: str, names: set[str]) -> None:
    assert set(count_items([user(text)]).identifiers) == names


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("see src/app.py, and ./tests/t.py.", {"src/app.py", "./tests/t.py"}),
        ("in /etc/hosts or ~/notes/today", {"/etc/hosts", "~/notes/today"}),
        (r"open C:\Users\me\a.txt", {r"C:\Users\me\a.txt"}),
        ("and/or, read/write, 3/4, /dev/null", set()),
        ("打开src/app.py看看", {"src/app.py"}),
        ("请看 src/app.py。", {"src/app.py"}),
    ],
)
def test_paths_end_like_a_file_or_begin_at_a_root(text: str, paths: set[str]) -> None:
    assert set(count_items([user(text)]).paths) == paths


def test_a_path_is_found_by_an_end_that_only_it_has() -> None:
    one, other = "/work/app/src/store/rows.py", "/work/lib/src/store/rows.py"
    alone = ItemFinder(["changed `store/rows.py` twice"])
    assert alone.paths([one]) == {one: 1.0}
    assert alone.paths([one, other]) == {one: 0.0, other: 0.0}
    assert ItemFinder(["app/src/store/rows.py"]).paths([one, other]) == {one: 1.0, other: 0.0}
    assert ItemFinder(["see old_store/rows.py"]).paths([one]) == {one: 0.0}
    assert ItemFinder(["store/rows.pyc"]).paths([one]) == {one: 0.0}
    assert ItemFinder(["rows.py"]).paths([one]) == {one: 0.0}
    assert ItemFinder([r"C:\app\store\rows.py"]).paths([one]) == {one: 1.0}


def test_the_same_file_named_in_short_is_one_file() -> None:
    read = call("Read", file_path="/work/app/src/rows.py")
    assert count_items([read, user("look at src/rows.py")]).paths == ("/work/app/src/rows.py",)


def test_numbers_are_the_same_with_and_without_separators() -> None:
    assert measure_fidelity([user("at most 4,500 of 12")], ["4500 rows; 120"]).kinds[
        "numbers"
    ] == FoundShare(1, 2)


def test_an_error_is_the_line_that_says_what_went_wrong() -> None:
    log = "Exit code 1\n" + "ok\n" * 5_000 + "src/a.go:12: undefined: frobnicate in package b\n\n"
    removed = [gave(log), gave("all fine: 0 errors"), gave("拒绝\n错误：找不到文件", is_error=True)]
    found = measure_fidelity(removed, ["build failed: src/a.go:12: undefined: frobnicate in package b"])
    assert found.kinds["errors"] == FoundShare(1.0, 2)
    assert found.missing == ("错误：找不到文件",)


def test_chinese_words_are_found_character_by_character() -> None:
    text = "请不要修改数据库的结构，只改查询语句"
    whole = measure_fidelity([user(text)], [f"用户说：“{text}”。"])
    half = measure_fidelity([user(text)], ["不要修改数据库的结构"])
    assert whole.kinds["said"].found == 1.0
    assert 0.5 < half.kinds["said"].found < 0.7
    assert measure_fidelity([user(text)], ["查询数据库，修改结构"]).kinds["said"].found == 0.0


def test_tail_and_restored_messages_count_with_their_results_and_arguments_but_not_thinking() -> None:
    removed = [user("about fooBar, barBaz and bazQux")]
    tail = [assistant(Thinking("fooBar"), ToolUse("t", "Grep", {"pattern": ["barBaz"]})), gave("bazQux")]
    assert measure_fidelity(removed, tail).kinds["identifiers"] == FoundShare(2.0, 3)


def test_examples_of_what_is_missing_are_few_short_and_the_users_words_come_first() -> None:
    removed = [user(f"message {'abcdefghij'[n]} " + "and so on " * 100) for n in range(10)]
    missing = measure_fidelity([user("someName " * 3), *removed], []).missing
    assert len(missing) == EXAMPLES + 1
    assert all(len(text.encode()) <= 160 for text in missing)
    assert missing[-1] == "someName"


def test_text_without_end_and_without_spaces_is_gone_through_once() -> None:
    """A pattern that tries again at every character would not come back from this in a lifetime."""
    for unit in ("a+", "aB", "a.", "1,", "a", "/", "a/", "-", "9"):
        whole = unit * 200_000
        assert 0.0 <= measure_fidelity([user(whole)], [whole]).score <= 1.0


# --- the fast way and the plain one -----------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        *("--dry-run", "ENT-109", "load_rows", "rowCursor", "plain", "Words", "a1b2c3d4", "4,500"),
        *("2024-01-02", "src/a.py", "C:\\x.txt", "~/b", "./c.d", "/dev/null", "..", "/", "-", "_"),
        *("é", "用户", "“", "\t", "12"),
    ]
)
TEXTS = st.lists(st.one_of(PIECES, st.text(max_size=4)), max_size=24).flatmap(
    lambda parts: st.sampled_from(["", " ", "\n"]).map(lambda between: between.join(parts))
)
PLAIN_NAME = re.compile(r"--[a-z][a-z0-9-]{2,}|[A-Z]{2,}-\d+|[A-Za-z_]\w*|\d[0-9a-f]{6,39}(?!\w)", re.ASCII)
SHAPED = re.compile(r"[A-Za-z0-9]_[A-Za-z0-9]|[a-z][A-Z]|^--|[A-Za-z].*\d|\d.*[a-z]")
PLAIN_NUMBER = re.compile(r"(?<![\w.,:/#-])(?:\d{4}-\d\d-\d\d|\d[\d.,:]*\d)(?![\w-])", re.ASCII)


@given(TEXTS)
def test_passing_over_plain_words_loses_no_name_and_finds_no_other(text: str) -> None:
    found = PLAIN_NAME.findall(text)

    assert find_names(text) == {n for n in found if 5 <= len(n) <= 100 and SHAPED.search(n)}
    assert find_numbers(text) == {n.replace(",", "") for n in PLAIN_NUMBER.findall(text)}


@given(TEXTS, TEXTS)
def test_a_path_is_the_same_path_whatever_lines_stand_around_it(text: str, other: str) -> None:
    assert find_paths(f"{text}\n{other}") == find_paths(text) | find_paths(other)


@given(TEXTS, TEXTS)
def test_every_text_is_found_whole_in_itself_and_among_others(text: str, other: str) -> None:
    assert ItemFinder([other, text, other]).quoted([text]) == {text: 1.0}


@given(TEXTS, TEXTS)
def test_words_that_are_not_there_in_this_order_are_not_found(text: str, other: str) -> None:
    words, there = re.findall(WORD, text), re.findall(WORD, other)
    run = words[:5]
    stands = any(there[at : at + len(run)] == run for at in range(len(there) + 1))

    assert (ItemFinder([other]).quoted([" ".join(run)])[" ".join(run)] == 1.0) == stands
