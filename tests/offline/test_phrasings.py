"""The ways in which people say what they want found, listed, run or replaced."""

from __future__ import annotations

from typing import Any

import pytest
from offline.offline_project import Project, Talk, first_calls, said

from sevenfold.core.messages import Message, ToolResult, ToolUse, assistant, user

FOUND: list[tuple[str, str, dict[str, Any]]] = [
    ("find till.py", "Glob", {"pattern": "**/till.py"}),
    ("find till.py in src", "Glob", {"pattern": "**/till.py", "path": "src"}),
    ("find `till.py`", "Grep", {"pattern": r"till\.py", "output_mode": "content"}),
    ("find os.path", "Grep", {"pattern": r"os\.path", "output_mode": "content"}),
    ("find all FIXMEs", "Grep", {"pattern": "FIXME", "output_mode": "content"}),
    ("find FIXME comments", "Grep", {"pattern": "FIXME", "output_mode": "content"}),
    ("find all TODO comments in src", "Grep", {"pattern": "TODO", "output_mode": "content", "path": "src"}),
    ("search for TODO or FIXME", "Grep", {"pattern": "TODO|FIXME", "output_mode": "content"}),
    ("find all TODOs and FIXMEs", "Grep", {"pattern": "TODO|FIXME", "output_mode": "content"}),
    ('search for "a b", c or d.e', "Grep", {"pattern": r"a b|c|d\.e", "output_mode": "content"}),
    ("find user comments", "Grep", {"pattern": "user comments", "output_mode": "content"}),
    ("find bus", "Grep", {"pattern": "bus", "output_mode": "content"}),
    ("which files contain TODOs?", "Grep", {"pattern": "TODO", "output_mode": "files_with_matches"}),
    ("查找所有包含 TAX 的文件", "Grep", {"pattern": "TAX", "output_mode": "files_with_matches"}),
    ("在 src 中查找包含 TAX 的文件", "Grep",
     {"pattern": "TAX", "output_mode": "files_with_matches", "path": "src"}),
    ("在当前目录中搜索“FIXME”", "Grep", {"pattern": "FIXME", "output_mode": "content"}),
    ("查找 till.py", "Glob", {"pattern": "**/till.py"}),
    ("列出当前目录下的 python 文件", "Glob", {"pattern": "**/*.py"}),
    ("列出 src 目录下的所有 python 文件", "Glob", {"pattern": "**/*.py", "path": "src"}),
    ("list docs/reference", "Glob", {"pattern": "*", "path": "docs/reference"}),
    ("list docs/", "Glob", {"pattern": "*", "path": "docs/"}),
    ("list src", "Glob", {"pattern": "*", "path": "src"}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "tool", "wanted"), FOUND)
def test_what_is_looked_for_is_understood(text: str, tool: str, wanted: dict[str, Any]) -> None:
    assert first_calls(text) == [(tool, wanted)]


@pytest.mark.parametrize(
    "command",
    ["git status", "git log --oneline -5", "git diff main", "git diff HEAD~1", "ls -la", "pwd",
     "pytest -q tests/a.py", "wc -l a.py", "make test", "npm run build", "whoami"],
)  # fmt: skip
def test_a_command_everybody_knows_is_run(command: str) -> None:
    assert first_calls(command) == [("Bash", {"command": command})]


@pytest.mark.parametrize(
    "text",
    [
        "git status is clean",
        "git log shows nothing",
        "make it faster",
        "head of the team is Anna",
        "date of the release?",
        "list the reasons",
        "ps: call me",
        "tree of life",
    ],
)
def test_a_sentence_that_begins_like_a_command_is_not_run(text: str) -> None:
    assert first_calls(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "git log " + "a./.b " * 150 + "and so on",
        "git log " + "-a.b " * 150 + "and so on",
        "git log " + "`x` " * 150 + "and so on",
        "find " + '"x", ' * 150 + "and so on",
        "find " + "AB, " * 200 + "and so on",
        "thanks for " + "a b " * 200 + "?",
    ],
)
def test_a_long_sentence_is_understood_without_trying_every_way_to_read_it(text: str) -> None:
    assert all(name != "Bash" for name, _ in first_calls(text))


def test_everything_is_replaced_when_it_says_so_in_the_middle() -> None:
    talk = Talk(Project({"till.py": "TAX_RATE = 1\nx = TAX_RATE\n"}))
    talk.ask("将 till.py 里的 TAX_RATE 全部替换成 RATE")
    assert talk.project.files["till.py"] == "RATE = 1\nx = RATE\n"


def test_what_was_not_found_is_named() -> None:
    assert Talk().ask("find gnu in the project") == "No matches for `gnu`."
    assert Talk().ask("查找 gnu") == "没有找到 `gnu`。"
    assert Talk().ask("find till.py") == "No matches for `**/till.py`."


def test_what_a_search_left_out_is_told_when_nothing_was_found() -> None:
    use = ToolUse("t1", "Grep", {"pattern": "key", "output_mode": "content"})
    result = ToolResult("t1", "No matches.\n[left out because they may hold secrets: .env]")
    text = said(user("find key"), assistant(use), Message("user", (result,)))
    assert text == "No matches for `key`.\n[left out because they may hold secrets: .env]"


def test_of_a_long_file_it_is_said_how_much_was_read() -> None:
    use = ToolUse("t1", "Read", {"file_path": "big.py"})
    lines = "".join(f"{n}\tx\n" for n in range(1, 2001))
    for whole, shown in (("60,000", "60,000"), ("more than 9,000", "more than 9,000")):
        note = f"[lines 1-2000 of {whole}; go on with offset=2001]"
        messages = (user("read big.py"), assistant(use))
        text = said(*messages, Message("user", (ToolResult("t1", lines + note),)))
        assert text.startswith(f"Read big.py: 2,000 of {shown} lines.")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("thanks", "You're welcome."),
        ("Great, thanks a lot!", "You're welcome."),
        ("thank you for the help", "You're welcome."),
        ("谢谢", "不客气。"),
        ("好的，谢谢你！", "不客气。"),
    ],
)
def test_thanks_are_answered_in_a_word(text: str, wanted: str) -> None:
    assert said(user(text)) == wanted


def test_tools_it_does_not_know_are_not_called_none() -> None:
    text = said(user("what can you do?"), get_weather={})
    assert "None of the tools this request offers is one I know" in text
    assert "offers no tools" not in text
