"""Grep in large files: one that is named is searched, one that is passed by is mentioned."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tools.conftest import Run

from sevenfold.core.messages import ToolUse
from sevenfold.storage import walk
from sevenfold.tools.toolbox import Toolbox
from sevenfold.tools.workspace import Workspace

pytestmark = pytest.mark.anyio

LINES = 120_000
"""Of 60 bytes each: more than a search over a folder looks into."""


def line(number: int) -> str:
    return f"{number:08} {'needle' if number % 40_000 == 0 else 'x' * 6} {'y' * 43}"


@pytest.fixture(
    params=[
        "ours",
        pytest.param("rg", marks=pytest.mark.skipif(not shutil.which("rg"), reason="ripgrep is optional")),
    ]
)
def either(request: pytest.FixtureRequest, workspace: Workspace) -> None:
    """Without ripgrep, then with it."""
    if request.param == "ours":
        workspace.environment = {"PATH": "/nonexistent"}


@pytest.fixture
def large(project: Path) -> Path:
    path = project / "large.txt"
    path.write_text("".join(f"{line(n)}\n" for n in range(1, LINES + 1)), encoding="utf-8")
    assert path.stat().st_size > walk.LARGEST
    return path


# --- a file that is named ------------------------------------------------------------------------------


@pytest.mark.usefixtures("either")
async def test_a_large_file_that_is_named_is_searched(run: Run, large: Path) -> None:
    content = await run("Grep", pattern="needle", path="large.txt", output_mode="content")
    files = await run("Grep", pattern="needle", path=str(large))
    count = await run("Grep", pattern="NEEDLE", path="large.txt", output_mode="count")
    either = await run("Grep", pattern="NEEDLE", path="large.txt", output_mode="count", ignore_case=True)

    found = "\n--\n".join(f"{n}: {line(n)}" for n in (40_000, 80_000, 120_000))
    assert content.text == f"large.txt\n{found}"
    assert files.text == "large.txt"
    assert (count.text, either.text) == ("No matches.", "large.txt: 3")


@pytest.mark.usefixtures("either")
async def test_lines_around_a_match_in_a_large_file_have_their_numbers(run: Run, large: Path) -> None:
    args = {"path": "large.txt", "output_mode": "content"}

    near = await run("Grep", pattern="^0007999[69]|^00120000", context=2, **args)
    across = await run("Grep", pattern="00000001.*?00000003", multiline=True, context=1, **args)

    shown = [79_994, 79_995, 79_996, 79_997, 79_998, 79_999, 80_000, 80_001]
    shown += [119_998, 119_999, 120_000]
    lines = [f"{n}{':' if n in (79_996, 79_999, 120_000) else '-'} {line(n)}" for n in shown]
    assert near.text.split("\n") == ["large.txt", *lines[:8], "--", *lines[8:]]
    numbers = [text.partition(" ")[0] for text in across.text.split("\n")[1:]]
    assert numbers == ["1:", "2:", "3:", "4-"]


@pytest.mark.usefixtures("either")
async def test_many_matches_in_a_large_file_are_counted_and_the_first_are_shown(
    run: Run, large: Path
) -> None:
    content = await run("Grep", pattern="y", path="large.txt", output_mode="content", limit=2)
    count = await run("Grep", pattern="y", path="large.txt", output_mode="count")

    assert content.text == (
        f"large.txt\n1: {line(1)}\n2: {line(2)}\n"
        "[the first 2 of 120,000 matches; narrow the search, or raise limit]"
    )
    assert count.text == "large.txt: 120000"


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("filler", ["x", "ü", "漢", "😀"])
async def test_a_file_that_is_one_long_line_is_shown_around_its_match(
    run: Run, project: Path, filler: str
) -> None:
    half = filler * (4_000_000 // len(filler.encode()))
    (project / "one.json").write_text(f"{half}needle{half}\nnext", encoding="utf-8")
    args = {"path": "one.json", "output_mode": "content"}

    at = await run("Grep", pattern="needle", **args)
    after = await run("Grep", pattern="next", context=1, **args)

    assert at.text == f"one.json\n1: …{filler * 100}needle{filler * 294}…"
    assert after.text == f"one.json\n1- {filler * 400}…\n2: next"


@pytest.mark.usefixtures("either")
async def test_of_a_match_over_many_lines_the_first_are_shown(run: Run, large: Path) -> None:
    (large.parent / "small.txt").write_text("a\n" * 300 + "end\n", encoding="utf-8")

    for path, last in (("large.txt", f"200: {line(200)}"), ("small.txt", "200: a")):
        result = await run("Grep", pattern=".+", path=path, output_mode="content", multiline=True)

        lines = result.text.split("\n")
        assert len(lines) == 1 + walk.MOST_LINES + 1
        assert lines[-2:] == [last, "[… more lines of this match …]"]


@pytest.mark.usefixtures("either")
async def test_a_file_that_is_named_is_searched_whatever_it_holds(run: Run, project: Path) -> None:
    (project / "mixed").write_bytes(b"\0\xff one\nneedle\0\xe9\n")

    named = await run("Grep", pattern="needle", path="mixed", output_mode="content")
    passed_by = await run("Grep", pattern="needle")

    assert named.text == "mixed\n2: needle␀�"
    assert passed_by.text == "No matches."


@pytest.mark.usefixtures("either")
async def test_a_file_that_is_too_large_even_so_is_refused_with_another_way(
    run: Run, project: Path
) -> None:
    with (project / "my log").open("wb") as file:
        file.truncate(walk.LARGEST_NAMED)
        fits = await run("Grep", pattern="x", path="my log")
        file.truncate(walk.LARGEST_NAMED + (1 << 20))
        refused = await run("Grep", pattern="x", path="my log")

    assert fits.text == "No matches."
    assert refused.is_error
    assert refused.text == (
        "my log has 65.0 MB and Grep searches files up to 64.0 MB; use Bash: grep -n 'pattern' 'my log'"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on memory that holds")
def test_a_large_file_is_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "60MB.txt"
    with path.open("wb") as file:
        for _ in range(60):
            file.write((b"z" * 63 + b"\n") * (1 << 14))
        file.write(b"needle\n")
    limited = (
        "import resource, runpy, sys;"
        "resource.setrlimit(resource.RLIMIT_AS, (60_000_000, 60_000_000));"
        "runpy.run_path(sys.argv[1], run_name='__main__')"
    )
    asked = {"do": "search", "root": str(path), "pattern": "needle", "context": 50}

    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", limited, walk.__file__],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )

    assert ran.returncode == 0, ran.stderr[-500:]
    *around, match = [json.loads(said) for said in ran.stdout.splitlines()]
    assert len(around) == 50
    assert match["data"]["line_number"] == 60 * (1 << 14) + 1


# --- files that are passed by ---------------------------------------------------------------------------


def make_large(path: Path, head: bytes = b"needle\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + b"x" * walk.LARGEST)


@pytest.mark.usefixtures("either")
async def test_files_left_out_of_a_folder_for_their_size_are_mentioned(run: Run, project: Path) -> None:
    make_large(project / "data/one.csv")
    make_large(project / "two.log")
    make_large(project / "image.bin", b"\0\1")
    make_large(project / "ignored.tmp")
    make_large(project / "node_modules/m.js")
    make_large(project / "we\nird ÿ.csv")
    (project / "link.csv").symlink_to("two.log")
    (project / ".gitignore").write_text("*.tmp\n", encoding="utf-8")
    (project / "just.txt").write_bytes(b"needle".ljust(walk.LARGEST, b"\n"))

    found = await run("Grep", pattern="needle")
    below = await run("Grep", pattern="needle", path="data", output_mode="content")
    logs = await run("Grep", pattern="needle", glob="*.log", output_mode="count")
    texts = await run("Grep", pattern="needle", glob="*.txt")

    assert found.text == (
        "just.txt\n[3 files over 5 MB were left out: data/one.csv, two.log, we\nird ÿ.csv;"
        " to search one, name it in path]"
    )
    assert below.text == (
        "No matches.\n[1 file over 5 MB was left out: data/one.csv; to search one, name it in path]"
    )
    assert logs.text == (
        "No matches.\n[1 file over 5 MB was left out: two.log; to search one, name it in path]"
    )
    assert texts.text == "just.txt"


@pytest.mark.usefixtures("either")
async def test_of_many_large_files_some_are_named(run: Run, project: Path) -> None:
    for n in range(7):
        with (project / f"{n}.txt").open("wb") as file:
            file.write(b"text" * 4096)
            file.truncate(walk.LARGEST + 1)

    assert (await run("Grep", pattern="x")).text == (
        "No matches.\n[7 files over 5 MB were left out: 0.txt, 1.txt, 2.txt, 3.txt, 4.txt, …;"
        " to search one, name it in path]"
    )


async def test_what_ripgrep_found_before_it_failed_is_not_counted_twice(
    toolbox: Toolbox, project: Path, workspace: Workspace, tmp_path: Path
) -> None:
    """It ends with 2 when anything at all could not be read; then our own search does it again."""
    (project / "a.txt").write_text("needle\n", encoding="utf-8")
    said = {
        "type": "match",
        "data": {
            "path": {"text": str(project / "a.txt")},
            "lines": {"text": "needle\n"},
            "line_number": 1,
            "submatches": [{"start": 0}],
        },
    }
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/rg").write_text(
        f"#!/bin/sh\ncat <<'END'\n{json.dumps(said)}\nEND\nexit 2\n", encoding="utf-8"
    )
    (tmp_path / "bin/rg").chmod(0o755)
    workspace.environment = {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}

    args = {"pattern": "needle", "output_mode": "content"}
    result = await toolbox.call(ToolUse("u", "Grep", args))

    assert result.text == "a.txt\n1: needle"


# --- one way of reading against another -----------------------------------------------------------------

TEXTS = st.lists(
    st.sampled_from([b"a", b"b", b"\n", b"\n", b"\r\n", "ü".encode(), b"\xff", b"x" * 5_000]), max_size=40
).map(b"".join)
PATTERNS = st.sampled_from(["a", "b$", "^a", "^$", "ü", "a.b", "(?<=a)b", "x{3}a", "�", r"\r"])


def told(root: Path, pattern: str, **options: Any) -> list[Any]:
    """What a search says, with the name of the file left out."""
    said = list(walk.search_files(str(root), pattern, **options))
    return [(each["type"], {**each["data"], "path": None}) for each in said]


@given(text=TEXTS, pattern=PATTERNS, context=st.integers(0, 3), most=st.integers(0, 3))
@example(text=b"", pattern="^$", context=0, most=1)
@example(text=b"a\nb\na\nb\nb\nb\na", pattern="a", context=1, most=2)
def test_a_file_is_read_line_by_line_as_it_is_read_whole(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, pattern: str, context: int, most: int
) -> None:
    folder = tmp_path_factory.mktemp("folder")
    (folder / "file").write_bytes(text)
    options = {"context": context, "most": most}

    assert told(folder / "file", pattern, **options) == told(folder, pattern, **options)


@given(text=TEXTS, pattern=st.sampled_from(["a.b", "a.*b", "\n+", "b\n", "a|b", "ü.*?x", "^a"]))
def test_matches_across_lines_have_the_lines_that_a_naive_count_gives_them(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, pattern: str
) -> None:
    folder = tmp_path_factory.mktemp("folder")
    (folder / "file").write_bytes(text)
    whole = text.decode("utf-8", "replace")
    lines: set[int] = set()
    begun: list[int] = []
    for match in re.finditer(pattern, whole, re.MULTILINE | re.DOTALL):
        if match[0]:
            first = whole[: match.start()].count("\n")
            begun += [first] if first not in lines else []
            lines.update(range(first, whole[: match.end() - 1].count("\n") + 1))

    said = told(folder / "file", pattern, multiline=True)

    assert [data["line_number"] - 1 for _, data in said] == begun
    assert {
        data["line_number"] - 1 + i
        for _, data in said
        for i in range(data["lines"]["text"].count("\n") + 1)
    } == lines
    assert said == told(folder, pattern, multiline=True)
