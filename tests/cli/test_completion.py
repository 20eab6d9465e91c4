"""Matching, mentions in a line, and what is left of a status line: without a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from sevenfold.cli.chat.attachments import find_mentions, is_prefix_command, shorten_output
from sevenfold.cli.chat.completion import CompletionRow, ProjectFiles, rank_candidates
from sevenfold.cli.chat.line_editor import is_history
from sevenfold.cli.chat.status_line import clean_status_text
from sevenfold.cli.output import format_elapsed
from sevenfold.core.clock import SystemClock
from sevenfold.tools.workspace import Workspace


def rank(query: str, *texts: str) -> list[str]:
    return [one.text for one in rank_candidates(query, map(CompletionRow, texts))]


def test_a_name_that_begins_so_comes_before_one_that_holds_it_and_one_with_gaps() -> None:
    found = rank("inv", "x/i_n_v.py", "shop/reinvest.py", "shop/invoice.py", "inv.py", "other.py")

    assert found == ["inv.py", "shop/invoice.py", "shop/reinvest.py", "x/i_n_v.py"]


def test_letters_in_their_order_are_enough_and_case_does_not_count() -> None:
    assert rank("SHBINV", "shop/billing/invoices.py", "shop/binary.py") == ["shop/billing/invoices.py"]
    assert rank("zz", "shop/billing.py") == []
    assert rank("", "b", "a") == ["b", "a"]


def test_words_about_a_row_are_searched_too() -> None:
    rows = [CompletionRow("20260101", "the tax question"), CompletionRow("20260102", "hello")]

    assert [one.text for one in rank_candidates("tax", rows)] == ["20260101"]


def test_files_are_listed_with_their_folders_as_seen_from_where_one_is(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "src" / "deep").mkdir(parents=True)
    for name in ("src/a.py", "src/deep/b.py", "src/x.log"):
        (tmp_path / name).write_text("")

    files = ProjectFiles()

    root = str(tmp_path)
    assert {one.text for one in files.list(root, root)} >= {
        "src/a.py",
        "src/deep/b.py",
        "src/",
        "src/deep/",
    }
    assert not any("x.log" in one.text for one in files.list(root, root))
    assert "../src/a.py" not in {one.text for one in files.list(root, root)}
    assert {"a.py", "deep/", "../.gitignore"} <= {one.text for one in files.list(root, f"{root}/src")}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    for name in ("a.py", "b c.txt", "dot.PNG", "odd,name.py"):
        (tmp_path / name).write_text("x")
    (tmp_path / "sub").mkdir()
    return Workspace(tmp_path, tmp_path, {}, tmp_path / "out", SystemClock(), trusted=False)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("see @a.py.", ["a.py"]),
        ("(@a.py)", []),
        ("me@a.py", []),
        ("@a.py @a.py", ["a.py"]),
        ('@"b c.txt" and @b\\ c.txt', ["b c.txt"]),
        ("@sub/", ["sub"]),
        ("@odd,name.py, please", ["odd,name.py"]),
        ("what is dot.PNG?", ["dot.PNG"]),
        ("what is 'dot.PNG'", ["dot.PNG"]),
        ("missing.png", []),
        ("a.py is no image", []),
        ("@app.route is a decorator", []),
        ("@" + "x" * 5000, []),
        ("@\0", []),
    ],
)
def test_mentions(workspace: Workspace, line: str, names: list[str]) -> None:
    found, _ = find_mentions(line, workspace)

    assert [one.path.name for one in found] == names


def test_a_mention_may_name_lines_and_an_image_may_be_an_address(workspace: Workspace) -> None:
    [one], missing = find_mentions("@a.py#L3-L9 @no/such.py", workspace)
    assert (one.first, one.last) == (3, 9)
    assert missing == ["no/such.py"]
    [image], _ = find_mentions(f"file://{workspace.root}/dot.PNG", workspace)
    assert image.path == workspace.root / "dot.PNG"


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("!ls", True),
        ("! ls", True),
        ("!", False),
        ("#note", True),
        ("# note", True),
        ("#", False),
        ("#1 is a ticket", False),
        ("## Heading", False),
        ("#!/bin/sh", False),
        ("# Heading\n\ntext", False),
        ("hello", False),
    ],
)
def test_prefixes(line: str, is_one: bool) -> None:
    assert is_prefix_command(line) is is_one


def test_of_a_status_line_only_colours_are_left() -> None:
    said = "\x1b[1;32mok\x1b[0m\x1b[2J\x1b]0;t\x07\x01x\x02\nsecond\nthird\nfourth"

    shown = clean_status_text(said, plain=False)

    assert shown.startswith("\x1b[1;32mok\x1b[0m")
    assert shown.count("\x1b") == 2
    assert not set("\x01\x02\x07") & set(shown)
    assert shown.count("\n") == 2
    assert "\x1b" not in clean_status_text(said, plain=True)


def test_a_long_output_keeps_both_ends() -> None:
    short = shorten_output("a" * 60 + "b" * 60, 40)

    assert short == "a" * 20 + "\n[… 80 characters left out …]\n" + "b" * 20


@pytest.mark.parametrize(
    ("head", "ours"),
    [
        (b"", True),
        (b"\n# 2026-01-01 10:00:00\n+hello\n", True),
        (b"\n# 2026-01-01 10:00:00\n+hello\n+again", True),
        (b"ls -la\n", False),
        (b"#1700000000\nls\n", False),
        (b"\x00\x01\x02", False),
        (b": 1700000000:0;ls\n", False),
    ],
)
def test_a_history_of_ours_is_told_from_others(head: bytes, ours: bool) -> None:
    assert is_history(head) is ours


def test_ages() -> None:
    times = (5, 70, 7300, 90_000, 200_000)

    assert [format_elapsed(s) for s in times] == [
        "just now",
        "1 min ago",
        "2 h ago",
        "1 day ago",
        "2 days ago",
    ]
