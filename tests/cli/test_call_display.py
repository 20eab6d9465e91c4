"""A call before it runs: its lines, its diff, its pages, and rules in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from sevenfold.cli.chat.call_display import CallLine, compare_lines, describe_question, describe_rules
from sevenfold.cli.chat.permission_prompt import LEAST_SHOWN, CallPages
from sevenfold.cli.output import break_line, wrap_text
from sevenfold.core.messages import ToolUse
from sevenfold.testing import FakeClock
from sevenfold.tools.permission_settings import PermissionRules
from sevenfold.tools.permissions import Permissions, find_refusal_rules
from sevenfold.tools.toolbox import PermissionQuestion
from sevenfold.tools.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "project" / "sub").mkdir(parents=True)
    return Workspace(tmp_path / "project", tmp_path, {}, tmp_path / "outputs", FakeClock())


def question(workspace: Workspace, name: str, **args: Any) -> PermissionQuestion:
    use = ToolUse("u", name, args)
    decision = Permissions(PermissionRules()).decide(use, workspace)
    never = find_refusal_rules(use, workspace)
    return PermissionQuestion(use, decision.reason, workspace, decision.remedies, never)


# --- lines ----------------------------------------------------------------------------------------------


@given(st.text(st.sampled_from("ab \u65e5-é"), max_size=200), st.integers(2, 30))
def test_the_pieces_of_a_line_are_the_line_and_fit(line: str, columns: int) -> None:
    pieces = list(break_line(line, columns))

    assert "".join(pieces) == line
    assert all(cell_len(piece) <= columns for piece in pieces)


def test_lines_break_at_words_and_keep_their_indent() -> None:
    assert wrap_text("  one two three four\nshort", 12) == "  one two\n  three four\nshort"
    assert wrap_text("abcdefghijkl", 5) == "abcde\nfghij\nkl"
    assert wrap_text("fits", 4) == "fits"


LINES = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=25)


@given(LINES, LINES)
def test_a_diff_leads_from_one_text_to_the_other(before: list[str], after: list[str]) -> None:
    found = compare_lines(before, after)

    removed = {line.number: line.text for line in found if line.kind == "removed"}
    added = {line.number: line.text for line in found if line.kind == "added"}
    assert all(before[number - 1] == text for number, text in removed.items())
    assert all(after[number - 1] == text for number, text in added.items())
    stayed = [text for number, text in enumerate(before, 1) if number not in removed]
    assert stayed == [text for number, text in enumerate(after, 1) if number not in added]


def test_a_diff_of_very_many_lines_shows_all_of_them() -> None:
    before, after = [f"old {n}" for n in range(3_000)], [f"new {n}" for n in range(3_000)]

    found = compare_lines(["same", *before], ["same", *after])

    assert [line.text for line in found] == ["same", *before, *after]


@given(
    st.lists(st.sampled_from(["", "cause"]), min_size=1, max_size=80), st.integers(0, 30), st.integers(0, 9)
)
def test_every_line_is_on_a_page_once(kinds: list[Any], last: int, more: int) -> None:
    lines = tuple(CallLine(f"line {n}", kind) for n, kind in enumerate(kinds))
    pages = CallPages(lines, last, last + more)
    shown = pages.take_first()
    assert shown[0] == lines[0], "the head"
    assert shown[-1] == lines[-1], "the tail"
    if pages.unseen_count and "cause" in kinds:
        assert any(line.kind == "cause" for line in shown)
    while pages.unseen_count:
        page = pages.take_next()
        assert page
        assert pages.unseen_count or len(page) <= max(last, LEAST_SHOWN) * 2, "notes and lines"
        shown += page

    assert sorted(line.text for line in shown if line.kind != "note") == sorted(line.text for line in lines)


def test_the_cause_in_the_middle_is_on_the_first_page() -> None:
    lines = tuple(CallLine(f"line {n}", "cause" if n == 500 else "") for n in range(1_000))

    shown = [line.text for line in CallPages(lines, 15, 20).take_first()]

    assert "line 500" in shown
    assert len(shown) <= 20


# --- calls ----------------------------------------------------------------------------------------------


def test_a_command_is_shown_with_its_folder_and_what_was_asked_about(workspace: Workspace) -> None:
    workspace.cwd = workspace.root / "sub"
    asked = question(
        workspace,
        "Bash",
        command="ls -l\nmake all",
        timeout=90_000,
        run_in_background=True,
        description="x",
    )

    text = describe_question(asked, 80)

    assert text.title == f"Run this command in {workspace.cwd}"
    assert text.lines == (CallLine("    ls -l"), CallLine("  > make all", "cause"))
    assert text.notes == (
        "it goes on running in the background",
        "it is stopped after 90 s",
        "the model says: x",
    )


def test_a_path_that_caused_the_question_is_marked(workspace: Workspace) -> None:
    (workspace.root.parent / "secret.txt").touch()
    asked = question(workspace, "Bash", command="cat a.txt\ncat ../secret.txt")

    assert asked.reason.endswith("secret.txt is outside the project")
    assert [line.kind for line in describe_question(asked, 80).lines] == ["", "cause"]


def test_an_agent_is_described_in_a_sentence(workspace: Workspace) -> None:
    asked = question(workspace, "Agent", description="find the tests", prompt="Look in tests/.\nReport.")

    text = describe_question(asked, 80)

    assert text.title == "Start a general-purpose agent: find the tests"
    assert [line.text for line in text.lines] == ["  prompt: Look in tests/.", "    Report."]

    asked = question(
        workspace, "SendMessage", to="scout", summary="done?", message="x", frame={"type": "t"}
    )
    text = describe_question(asked, 80)
    assert text.title == "Tell scout: done?"
    assert [line.text for line in text.lines] == ["  message: x", '  frame: {"type":"t"}'], (
        "nothing is hidden"
    )


def test_another_tool_is_shown_with_all_its_arguments(workspace: Workspace) -> None:
    text = describe_question(question(workspace, "Odd", text="a\x1b[2J", of=[1, {"b": 2}]), 80)

    assert text.title == "Odd"
    assert [line.text for line in text.lines] == ["  text: a�[2J", '  of: [1,{"b":2}]']


def test_line_ends_that_change_can_be_seen(workspace: Workspace) -> None:
    path = workspace.root / "dos.txt"
    path.write_bytes(b"one\r\ntwo\r\n")

    same = describe_question(question(workspace, "Write", file_path="dos.txt", content="one\r\n2\r\n"), 80)
    other = describe_question(question(workspace, "Write", file_path="dos.txt", content="one\n2\n"), 80)

    assert [line.text for line in same.lines] == ["    1   one", "    2 - two", "    2 + 2"]
    assert "its lines end with CR LF" in same.notes
    assert [line.text for line in other.lines][:2] == ["    1 - one�", "    2 - two�"]


# --- rules in words -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "always", "never"),
    [
        (
            "npm test",
            "this very command, also as a part of another",
            "this very command, also as a part of another",
        ),
        ("ls && npm test", "exactly this command: npm test", "this very command"),
        ("make && npm test", "exactly these commands: make, npm test", "this very command"),
        (
            "echo $(date) > x",
            "this very command",
            "this very command, and others with echo that cannot be taken apart with certainty",
        ),
        (
            "rm *.o",
            "this very command, also as a part of another",
            "this very command, also as a part of another",
        ),
    ],
)
def test_rules_about_commands_are_said_in_words(
    workspace: Workspace, command: str, always: str, never: str
) -> None:
    asked = question(workspace, "Bash", command=command)

    assert describe_rules(asked.always, asked.use) == always
    assert describe_rules(asked.never, asked.use, denies=True) == never
    rules = Permissions(PermissionRules(deny=asked.never))
    assert rules.decide(asked.use, workspace).behaviour == "deny", "never is what it says"
    assert rules.decide(ToolUse("o", "Bash", {"command": "make"}), workspace).behaviour == "ask"


@pytest.mark.parametrize(
    ("name", "path", "always", "never"),
    [
        (
            "Write",
            "sub/a.py",
            "changes to any file of the project but those that other programs act on",
            "changes to sub/a.py",
        ),
        ("Edit", ".git/config", "changes to .git/config", "changes to .git/config"),
        ("Read", ".env", "reading .env", "reading .env"),
        ("Read", "../b/c.txt", "reading {top}/b and everything below it", "reading {top}/b/c.txt"),
        ("Odd", "a", "every use of Odd", "every use of Odd"),
    ],
)
def test_rules_about_files_and_tools_are_said_in_words(
    workspace: Workspace, name: str, path: str, always: str, never: str
) -> None:
    asked = question(workspace, name, file_path=path, content="", old_string="a", new_string="b")
    top = str(workspace.root.parent)

    assert describe_rules(asked.always, asked.use) == always.format(top=top)
    assert describe_rules(asked.never, asked.use, denies=True) == never.format(top=top)
    rules = Permissions(PermissionRules(deny=asked.never))
    assert rules.decide(asked.use, workspace).behaviour == "deny"
