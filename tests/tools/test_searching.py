"""Grep and Glob find what is there, leave out what nobody means, and always end."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from tools.conftest import Run

from sevenfold.core.messages import ToolUse
from sevenfold.storage import walk
from sevenfold.tools.toolbox import Toolbox
from sevenfold.tools.workspace import Workspace

pytestmark = pytest.mark.anyio


def fill(folder: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))


@pytest.fixture
def sample(project: Path) -> Path:
    fill(
        project,
        {
            ".gitignore": "build/\n*.log\n!keep.log\n/only_here.txt\n",
            ".git/config": "needle",
            "a.py": "one\nneedle = 1\nthree\nfour\nNEEDLE = 2\n",
            "src/b.py": "needle\n",
            "src/deep/c.ts": "x needle y\nneedle needle\n",
            "src/only_here.txt": "needle\n",
            "only_here.txt": "needle\n",
            "build/out.py": "needle\n",
            "x.log": "needle\n",
            "keep.log": "needle\n",
            "node_modules/m/index.js": "needle\n",
            ".github/flow.yml": "needle\n",
            "binary.bin": b"\0\1needle\n",
            "latin.txt": b"caf\xe9 needle\n",
            "huge.txt": b"needle\n" + b"x" * walk.LARGEST,
        },
    )
    return project


async def test_files_with_matches_are_listed_without_what_nobody_means(run: Run, sample: Path) -> None:
    result = await run("Grep", pattern="needle")

    assert result.text.split("\n") == [
        ".github/flow.yml",
        "a.py",
        "keep.log",
        "latin.txt",
        "src/b.py",
        "src/deep/c.ts",
        "src/only_here.txt",
        "[1 file over 5 MB was left out: huge.txt; to search one, name it in path]",
    ]


async def test_content_comes_by_file_with_line_numbers(run: Run, sample: Path) -> None:
    result = await run("Grep", pattern=r"needle\b", output_mode="content", glob="*.{py,ts}")

    assert result.text == (
        "a.py\n2: needle = 1\n\nsrc/b.py\n1: needle\n\nsrc/deep/c.ts\n1: x needle y\n2: needle needle"
    )


async def test_context_lines_are_told_apart_and_gaps_are_marked(run: Run, project: Path) -> None:
    fill(project, {"a.txt": "".join(f"{n}\n" for n in range(1, 21))})

    result = await run("Grep", pattern="^(3|5|15)$", output_mode="content", context=2)

    assert result.text == (
        "a.txt\n1- 1\n2- 2\n3: 3\n4- 4\n5: 5\n6- 6\n7- 7\n--\n13- 13\n14- 14\n15: 15\n16- 16\n17- 17"
    )


async def test_counts_are_of_matching_lines(run: Run, sample: Path) -> None:
    result = await run("Grep", pattern="needle", output_mode="count", path="src", ignore_case=True)

    assert sorted(result.text.split("\n")) == ["src/b.py: 1", "src/deep/c.ts: 2", "src/only_here.txt: 1"]


async def test_case_is_ignored_on_request(run: Run, sample: Path) -> None:
    exact = await run("Grep", pattern="needle", path="a.py", output_mode="count")
    either = await run("Grep", pattern="needle", path="a.py", output_mode="count", ignore_case=True)

    assert (exact.text, either.text) == ("a.py: 1", "a.py: 2")


async def test_matches_cross_lines_on_request(run: Run, project: Path) -> None:
    fill(project, {"a.txt": "start\nmiddle\nend\nstart\n"})

    within = await run("Grep", pattern="start.+end", output_mode="content")
    across = await run("Grep", pattern="start.+end", output_mode="content", multiline=True)

    assert within.text == "No matches."
    assert across.text == "a.txt\n1: start\n2: middle\n3: end"


async def test_a_limit_says_how_much_is_left_out(run: Run, project: Path) -> None:
    fill(project, {f"{n:03}.txt": "x\nx\n" for n in range(150)})

    files = (await run("Grep", pattern="x")).text.split("\n")
    lines = (await run("Grep", pattern="x", output_mode="content", limit=3)).text.split("\n")

    assert files[0] == "000.txt"
    assert files[99:] == ["099.txt", "[the first 100 of 150 files; narrow the search, or raise limit]"]
    assert lines == [
        "000.txt",
        "1: x",
        "2: x",
        "",
        "001.txt",
        "1: x",
        "[the first 3 of 300 matches; narrow the search, or raise limit]",
    ]


async def test_a_long_line_is_shown_around_its_match(run: Run, project: Path) -> None:
    fill(project, {"min.js": "ü" * 100_000 + "needle" + "y" * 100_000})

    text = (await run("Grep", pattern="needle", output_mode="content")).text

    assert len(text) < 500
    assert "ü" * 50 + "needle" + "y" * 50 in text
    assert text.startswith("min.js\n1: …")
    assert text.endswith("…")


async def test_an_invalid_expression_is_told_with_the_fix(run: Run, sample: Path) -> None:
    result = await run("Grep", pattern="foo(")

    assert result.is_error
    assert result.text.startswith("the pattern is not a valid regular expression: ")
    assert result.text.endswith("put a backslash before a character that is meant literally")


async def test_a_pattern_that_looks_like_an_option_is_a_pattern(run: Run, project: Path) -> None:
    fill(project, {"a.txt": "--files\n"})

    assert (await run("Grep", pattern="--files")).text == "a.txt"


async def test_files_that_may_hold_secrets_are_left_out_and_named(run: Run, project: Path) -> None:
    fill(project, {".env": "KEY=needle", "a.txt": "needle"})

    folder = await run("Grep", pattern="needle", output_mode="content")
    named = await run("Grep", pattern="needle", path=".env", output_mode="content")

    assert folder.text == ("a.txt\n1: needle\n[left out because they may hold secrets or are denied: .env]")
    assert named.text == ".env\n1: KEY=needle"


async def test_links_are_not_followed_out_of_the_folder(run: Run, project: Path, tmp_path: Path) -> None:
    fill(tmp_path / "outside", {"a.txt": "needle"})
    (project / "folder").symlink_to(tmp_path / "outside")
    (project / "file").symlink_to(tmp_path / "outside/a.txt")
    (project / "circle").symlink_to(".")

    grep = await run("Grep", pattern="needle")
    glob = await run("Glob", pattern="**/*.txt")

    assert grep.text == "No matches."
    assert glob.text == "No file matches **/*.txt."


async def test_pipes_in_a_folder_are_passed_by(run: Run, project: Path) -> None:
    os.mkfifo(project / "pipe")
    fill(project, {"a.txt": "needle"})

    with anyio.fail_after(20):
        assert (await run("Grep", pattern="needle")).text == "a.txt"
        refused = await run("Grep", pattern="needle", path="pipe")

    assert refused.text == "pipe is a pipe or a device; it is not searched"


async def test_a_missing_path_is_told_with_the_names_nearby(run: Run, sample: Path) -> None:
    result = await run("Grep", pattern="x", path="scr")

    assert result.is_error
    assert result.text == "scr does not exist; did you mean src?"


def searchers(pattern: str) -> list[int]:
    """The children of this process that search; tests in other processes have their own."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text("utf-8").rpartition(")")[2].split()[1])
            words = (folder / "cmdline").read_bytes()
        except OSError:  # it has just ended
            continue
        if parent == os.getpid() and pattern.encode() in words:
            found.append(int(folder.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
async def test_an_expression_that_takes_for_ever_is_cancelled_with_its_process(
    toolbox: Toolbox, project: Path, workspace: Workspace
) -> None:
    fill(project, {"a.txt": "a" * 40 + "!\n"})
    workspace.environment = {"PATH": "/nonexistent"}  # our own search: rg knows no such patterns
    before = set(searchers(walk.__file__))
    use = ToolUse("u", "Grep", {"pattern": "^(a+)+$"})

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(toolbox.call, use)
        for _ in range(1000):  # the loop is free while the expression is not
            if began := set(searchers(walk.__file__)) - before:
                break
            await anyio.sleep(0.02)
        assert began
        tasks.cancel_scope.cancel()

    assert not set(searchers(walk.__file__)) - before


@pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is optional")
@pytest.mark.parametrize(
    "args",
    [
        {"pattern": "needle"},
        {"pattern": "needle", "output_mode": "content", "context": 1},
        {"pattern": "NEEDLE", "output_mode": "count", "ignore_case": True},
        {"pattern": "one.+three", "output_mode": "content", "multiline": True},
        {"pattern": "^x", "glob": "src/**/*.ts"},
        {"pattern": "needle", "path": "build"},
        {"pattern": "needle", "path": "a.py", "output_mode": "content"},
        {"pattern": "needle", "path": "huge.txt", "output_mode": "content", "context": 1},
        {"pattern": "needle", "path": "binary.bin", "output_mode": "content"},
        {"pattern": "needle", "path": "latin.txt", "output_mode": "count"},
        {"pattern": "needle", "glob": "*.ts"},
        {"pattern": "nee(?=dle)"},
        {"pattern": "nothing like it"},
    ],
    ids=str,
)
async def test_ripgrep_and_our_own_search_give_the_same_answer(
    run: Run, sample: Path, workspace: Workspace, args: dict[str, str | int | bool]
) -> None:
    theirs = await run("Grep", **args)
    workspace.environment = {"PATH": "/nonexistent"}
    ours = await run("Grep", **args)

    assert theirs == ours


# --- Glob ---------------------------------------------------------------------------------------------


async def test_files_are_found_newest_first(run: Run, project: Path) -> None:
    fill(project, {"old.py": "", "new.py": "", "src/middle.py": "", "x.txt": ""})
    for at, name in enumerate(("old.py", "src/middle.py", "new.py"), 1):
        os.utime(project / name, (at, at))

    assert (await run("Glob", pattern="**/*.py")).text == "new.py\nsrc/middle.py\nold.py"
    assert (await run("Glob", pattern="*.py")).text == "new.py\nold.py"
    assert (await run("Glob", pattern="*.py", path="src")).text == "src/middle.py"
    assert (await run("Glob", pattern="./src/m?ddle.{py,ts}")).text == "src/middle.py"


async def test_more_than_a_hundred_files_are_counted(run: Run, project: Path) -> None:
    fill(project, {f"{n}.txt": "" for n in range(130)})

    lines = (await run("Glob", pattern="*.txt")).text.split("\n")

    assert len(lines) == 101
    assert lines[-1] == "[the newest 100 of 130; narrow the pattern to see others]"


async def test_ignored_files_are_found_only_when_nothing_else_fits(run: Run, sample: Path) -> None:
    assert (await run("Glob", pattern="**/*.js")).text == "No file matches **/*.js."
    assert (await run("Glob", pattern="build/*")).text == "build/out.py\n[git ignores these]"
    assert (await run("Glob", pattern="**/index.js", path="node_modules")).text == (
        "node_modules/m/index.js"
    )


async def test_nothing_found_says_how_to_look_deeper(run: Run, sample: Path) -> None:
    assert (await run("Glob", pattern="c.ts")).text == (
        "No file matches c.ts; **/c.ts looks in folders below too."
    )


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "src/../../*", "~/x"])
async def test_a_pattern_does_not_leave_its_folder(run: Run, sample: Path, pattern: str) -> None:
    result = await run("Glob", pattern=pattern)

    assert result.is_error
    assert result.text == "the pattern is below path; name another folder in path"


async def test_files_above_are_ignored_as_git_ignores_them(run: Run, sample: Path) -> None:
    fill(sample, {"src/y.log": "needle"})

    assert (await run("Glob", pattern="*", path="src")).text.split("\n") == sorted(
        ["src/b.py", "src/only_here.txt"], key=lambda name: -(sample / name).stat().st_mtime_ns
    )


# --- patterns -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("*.py", "a.py", True),
        ("*.py", "src/a.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "a/b/c.py", True),
        ("src/**", "src/a/b", True),
        ("src/**", "src2/a", False),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("[ab].txt", "a.txt", True),
        ("[!ab].txt", "a.txt", False),
        ("[!ab].txt", "c.txt", True),
        ("[^ab].txt", "a.txt", False),
        ("[^ab].txt", "c.txt", True),
        ("[z-a].txt", "[z-a].txt", True),
        ("*.{ts,tsx}", "x.tsx", True),
        ("*.{ts,tsx}", "x.js", False),
        ("a,b", "a,b", True),
        ("a{b", "a{b", True),
        (r"\*.py", "*.py", True),
        (r"\*.py", "a.py", False),
        ("[", "[", True),
        ("a.b", "axb", False),
        ("**", "a/b/c", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
    ],
)
def test_a_glob_means_what_people_expect(glob: str, path: str, fits: bool) -> None:
    assert (re.fullmatch(walk.translate_glob(glob), path, re.DOTALL) is not None) is fits


def test_the_walk_agrees_with_git_about_what_is_ignored(sample: Path) -> None:
    shutil.rmtree(sample / ".git")
    fill(
        sample,
        {
            "src/.gitignore": "*.tmp\n!important.tmp\n/rooted\ndeep/**/z\nfoo/*\n!foo/bar\n# no\n\n",
            "src/a.tmp": "",
            "src/important.tmp": "",
            "src/rooted": "",
            "src/deep/rooted": "",
            "src/deep/q/z": "",
            "src/foo/bar": "",
            "src/foo/baz": "",
            "src/build/inner.txt": "",
        },
    )
    subprocess.run(["git", "init", "-q", str(sample)], check=True)
    listed = subprocess.run(
        ["git", "-C", str(sample), "ls-files", "-co", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\n")
    theirs = {name for name in listed if name and "node_modules" not in name}

    ours = {walk.find_relative_path(entry.path, str(sample)) for entry in walk.walk_files(str(sample))}

    assert ours == theirs


def test_the_walk_needs_nothing_but_the_standard_library() -> None:
    asked = '{"do": "files", "root": "/nonexistent", "pattern": "*", "every": false, "limit": 1}'
    argv = [sys.executable, "-I", "-S", walk.__file__]

    answer = subprocess.run(argv, input=asked, capture_output=True, text=True, check=True)

    assert answer.stdout == '{"type": "total", "data": {"files": 0}}\n'
