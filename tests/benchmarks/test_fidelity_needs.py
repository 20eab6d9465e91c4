"""What counts as needed after a compaction, on a case worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fidelity.cases import SESSIONS, Case, cases
from benchmarks.fidelity.contenders import CONTENDERS, budget, rarest_names, within
from benchmarks.fidelity.needs import Needs, commands_in, needs_of
from sevenfold.core.messages import Message, Text, ToolResult, ToolUse, assistant, user
from sevenfold.core.tokens import MessageSize, count_bytes
from sevenfold.core.transcript import Entry, PlacedMessage, Reply
from sevenfold.layers.shared.fidelity import ItemFinder

FILE = "/work/app/src/rows.py"
ASKED = "Let load_rows take a limit, and never ever change the table layout."


def placed(message: Message, by: str) -> PlacedMessage:
    return PlacedMessage(0, message, by, MessageSize())


def called(tool: str, words: str = "", **args: object) -> Message:
    return assistant(*([Text(words)] if words else []), ToolUse("t", tool, args))


def gave(text: str) -> Message:
    return Message("user", (ToolResult("t", text),))


REMOVED = (
    placed(user(ASKED), "user"),
    placed(called("Read", file_path=FILE), "model"),
    placed(gave("def load_rows():\n    open_cursor()\n    fetch_many()\n    old_thing()"), "tools"),
    placed(called("Bash", command="cd /work/app && make check-all 2>&1 | tail -5"), "model"),
    placed(gave("ok"), "tools"),
    placed(user("Thanks, that is all for now."), "user"),
)


def after(*messages: Message) -> list[Entry]:
    return [
        Entry(n, 0.0, Reply(m) if m.role == "assistant" else m, "model") for n, m in enumerate(messages)
    ]


def test_what_is_needed_is_what_the_next_calls_use_of_what_was_removed() -> None:
    needs = needs_of(
        REMOVED,
        after(
            called("Read", "First load_rows, and never ever change the layout.", file_path=FILE),
            gave("def load_rows():\n    open_cursor()"),
            called("Edit", file_path=FILE, old_string="open_cursor()", new_string="brand_new()"),
            gave("done"),
            user("and what of fetch_many?"),
            called("Bash", "fetch_many is next", command="make check-all && git status"),
        ),
    )
    assert needs == Needs(
        paths=frozenset([FILE]),
        names_used=frozenset(["load_rows"]),
        names_read=frozenset(["open_cursor"]),
        commands=frozenset(["make check-all"]),
        instructions=(ASKED,),
        said=(ASKED, "Thanks, that is all for now."),
        calls=3,
    )


def test_only_so_many_calls_are_looked_at() -> None:
    later = after(called("Bash", command="ls"), gave(""), called("Grep", pattern="load_rows"))
    assert needs_of(REMOVED, later, calls=1).names_used == frozenset()
    assert needs_of(REMOVED, later, calls=2).names_used == frozenset(["load_rows"])


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("cd /w && go test ./... 2>&1 | tail -20; git status", {"go test ./..."}),
        ('git commit -m "$(cat <<EOF\nmake all done\nEOF\n)"', set()),
        ("make", set()),
        ('mise run lint && echo "done"', {"mise run lint"}),
    ],
)
def test_a_command_is_told_apart_from_what_every_agent_knows(line: str, commands: set[str]) -> None:
    assert commands_in(ToolUse("t", "Bash", {"command": line})) == commands


def test_nobody_gets_more_room_than_the_real_summary_and_a_list_of_names_has_no_instruction() -> None:
    case = Case("by hand", REMOVED, "They want load_rows limited. " * 40, ())
    for contender in CONTENDERS:
        text = within(contender.text(case), budget(case))
        assert 0 < count_bytes(text) <= budget(case)
    names = ItemFinder([rarest_names(case)])
    assert names.names(["load_rows", "fetch_many"]) == {"load_rows": 1.0, "fetch_many": 1.0}
    assert names.quoted([ASKED]) == {ASKED: 0.0}


@pytest.mark.parametrize("name", ["our notes", "our summary", "digest"])
def test_what_is_made_by_rule_has_what_the_user_said_and_the_file(name: str) -> None:
    case = Case("by hand", REMOVED, "x" * 4_000, ())
    text = next(c for c in CONTENDERS if c.name == name).text(case)
    assert ItemFinder([text]).quoted([ASKED]) == {ASKED: 1.0}
    assert ItemFinder([text]).paths([FILE]) == {FILE: 1.0}


@pytest.mark.parametrize("name", ["our notes", "our summary"])
def test_names_that_only_a_tool_has_printed_are_not_listed(name: str) -> None:
    case = Case("by hand", REMOVED, "x" * 4_000, ())
    text = next(c for c in CONTENDERS if c.name == name).text(case)
    assert ItemFinder([text]).names(["load_rows", "old_thing"]) == {"load_rows": 1.0, "old_thing": 0.0}


def test_the_shared_sessions_have_thirty_compactions_and_none_is_empty() -> None:
    files: list[Path] = sorted(SESSIONS.glob("*.jsonl.gz"))
    if not files:
        pytest.skip("the shared sessions are not beside this checkout")
    found = [case for path in files for case in cases(path)]
    assert len(found) == 30
    assert all(case.summary and case.removed for case in found)
    typed = [p.message.text for case in found for p in case.removed if p.by == "user"]
    assert not [text for text in typed if text.startswith(("<command", "<local-command"))]
