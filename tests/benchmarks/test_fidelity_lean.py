"""What a summary from a short record loses, on cases worked out by hand."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from benchmarks.fidelity.cases import Case
from benchmarks.fidelity.lean import (
    RECORD,
    RECORDED,
    UNCUT,
    WAYS,
    WHOLE,
    list_lean_files,
    list_restored,
    make_lean_tables,
    measure_case,
)
from benchmarks.fidelity.local import HEADINGS, make_model_table, measure_model
from sevenfold.core.messages import Message, Text, ToolResult, ToolUse, assistant, user
from sevenfold.core.tokens import MessageSize
from sevenfold.core.transcript import Entry, PlacedMessage, Reply
from sevenfold.layers.shared.fidelity import FoundShare

FILE = "/work/app/src/rows.py"
ASKED = "Let load_rows take a limit, and never ever change the table layout."
CAUSE = "ERROR: relation ledger_rows has no column called weight"


def placed(message: Message, by: str) -> PlacedMessage:
    return PlacedMessage(0, message, by, MessageSize())


def make_case(shown: str = "    pass", *after: Entry) -> Case:
    """A file is read, of which this is shown; the agent speaks once of a name, and a command fails."""
    removed = (
        placed(user(ASKED), "user"),
        placed(assistant(Text("I read it first."), ToolUse("r", "Read", {"file_path": FILE})), "model"),
        placed(Message("user", (ToolResult("r", f"def load_rows():\n{shown}"),)), "tools"),
        placed(
            assistant(
                Text("This file does two things with each row. One is weigh_rows."),
                ToolUse("b", "Bash", {"command": "make check"}),
            ),
            "model",
        ),
        placed(Message("user", (ToolResult("b", CAUSE, is_error=True),)), "tools"),
        placed(assistant(Text("The check fails, as the table has no such column.")), "model"),
    )
    return Case("by hand", removed, "They want it. " * 200, after)


def test_what_stands_in_the_middle_of_a_long_result_is_lost_with_the_record_and_comes_back() -> None:
    filler = "    # nothing to see in this line\n" * 100
    call = assistant(ToolUse("g", "Grep", {"pattern": "weigh_rows"}))
    after = Entry(9, 0.0, Reply(call), "model")
    lost = measure_case("here", make_case(f"{filler}def weigh_rows():\n{filler}", after))

    used = {way: shares["names, used"].found for way, shares in lost.needs.items()}
    assert used[WHOLE] == used[UNCUT] == 1
    assert used[RECORD] == 0
    assert used["record, restored"] == 1
    assert lost.sizes[1] < lost.sizes[0] / 2
    _, _, needs = make_lean_tables([lost])
    [row] = [dict(zip(needs.columns, row, strict=True)) for row in needs.rows if row[0] == "names, used"]
    assert (row["facts"], row["record - whole"], row["facts lost"]) == (1, "-1.000", "1")


def test_a_lost_fact_is_a_lower_score() -> None:
    kept = measure_case("here", make_case())
    shares = {**kept.kinds, RECORD: {**kept.kinds[RECORD], "errors": FoundShare(0.0, 1)}}
    scores, kinds, _ = make_lean_tables([replace(kept, kinds=shares)])

    assert dict(zip(scores.columns, scores.rows[-1], strict=True))["record - whole"] == "-0.111"
    [row] = [dict(zip(kinds.columns, row, strict=True)) for row in kinds.rows if row[0] == "errors"]
    assert row["facts lost"] == "1"


def test_short_results_are_in_the_record_as_they_are() -> None:
    kept = measure_case("here", make_case())

    assert kept.score(RECORD) == kept.score(WHOLE) == 1.0
    assert kept.sizes[0] == kept.sizes[1]


def test_the_users_words_are_there_whoever_wrote_it_and_the_rest_is_not_made_up() -> None:
    result = measure_case("here", make_case())

    assert {way: result.kinds[way]["said"].part for way in WAYS} == dict.fromkeys(WAYS, 1.0)
    assert result.kinds[RECORDED]["paths"].found == 0
    assert result.kinds["recorded, restored"]["paths"].found == 1


def test_the_files_that_come_back_are_those_that_tools_have_shown() -> None:
    files, *_ = list_restored(make_case().removed)

    assert f'<file path="{FILE}">\ndef load_rows():\n    pass\n</file>' in files.text


def test_a_model_is_asked_both_ways_and_the_engine_without_one_writes_all_headings() -> None:
    found = list_lean_files()
    if not found:
        pytest.skip("the shared sessions are not beside this checkout")
    results = measure_model("offline", found, most=1, seconds=60.0)

    asked = [one for one in results if one.way in (WHOLE, RECORD)]
    assert [(one.way, one.headings, one.why) for one in asked] == [
        (WHOLE, HEADINGS, ""),
        (RECORD, HEADINGS, ""),
    ]
    assert asked[1].characters < asked[0].characters
    assert len(make_model_table("offline", results).rows) == len(results) == 4
