"""Write and Edit change what was seen, all or nothing, and stay inside the project."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from tools.conftest import Run, names

from sevenfold.tools.workspace import Workspace

pytestmark = pytest.mark.anyio


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.name.startswith(".writing")]


# --- Write --------------------------------------------------------------------------------------------


async def test_a_new_file_is_written_with_its_folders(run: Run, project: Path) -> None:
    result = await run("Write", file_path="a/b/c.txt", content="one\ntwo")

    assert result.text == "Created a/b/c.txt (2 lines)."
    assert (project / "a/b/c.txt").read_text("utf-8") == "one\ntwo"
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((project / "a/b/c.txt").stat().st_mode) == 0o666 & ~umask


async def test_a_file_that_was_not_read_is_not_overwritten(run: Run, project: Path) -> None:
    (project / "a.txt").write_text("precious", "utf-8")

    result = await run("Write", file_path="a.txt", content="new")

    assert result.is_error
    assert result.text == "a.txt has not been read in this session; Read it before overwriting it"
    assert (project / "a.txt").read_text("utf-8") == "precious"


async def test_a_file_that_was_read_is_replaced_and_keeps_its_mode(run: Run, project: Path) -> None:
    path = project / "run.sh"
    path.write_text("old\n", "utf-8")
    path.chmod(0o750)
    await run("Read", file_path="run.sh")

    result = await run("Write", file_path="run.sh", content="new\n")
    again = await run("Write", file_path="run.sh", content="newer\n")

    assert result.text == "Replaced run.sh (1 line)."
    assert again.text == "Replaced run.sh (1 line)."
    assert path.read_text("utf-8") == "newer\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert leftovers(project) == []


async def test_a_file_that_changed_since_it_was_read_is_not_overwritten(run: Run, project: Path) -> None:
    path = project / "a.txt"
    path.write_text("aaaa", "utf-8")
    await run("Read", file_path="a.txt")
    before = path.stat()
    path.write_text("bbbb", "utf-8")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # same size and time, other content

    result = await run("Write", file_path="a.txt", content="new")

    assert result.text == "a.txt has changed since it was read; Read it again before overwriting it"
    assert path.read_text("utf-8") == "bbbb"


async def test_a_file_that_was_only_touched_counts_as_unchanged(run: Run, project: Path) -> None:
    path = project / "a.txt"
    path.write_text("same", "utf-8")
    await run("Read", file_path="a.txt")
    os.utime(path, ns=(1, 1))

    assert not (await run("Write", file_path="a.txt", content="new")).is_error


async def test_no_write_leaves_the_project_through_a_link(run: Run, project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("theirs", "utf-8")
    (project / "folder").symlink_to(outside)
    (project / "file.txt").symlink_to(outside / "a.txt")
    (project / "dangling.txt").symlink_to(outside / "new.txt")
    await run("Read", file_path="file.txt")
    await run("Read", file_path="folder/a.txt")

    said = [
        (await run("Write", file_path=name, content="mine")).text
        for name in ("folder/b.txt", "folder/a.txt", "file.txt", "dangling.txt")
    ]
    edited = await run("Edit", file_path="file.txt", old_string="theirs", new_string="mine")

    assert said[0] == (
        f"folder/b.txt leads through a link to {outside}/b.txt, outside the project;"
        " if that is meant, name that path itself"
    )
    assert "outside the project" in said[1]
    assert "outside the project" in said[2]
    assert "nothing is there" in said[3]
    assert "outside the project" in edited.text
    assert sorted(path.name for path in outside.iterdir()) == ["a.txt"]
    assert (outside / "a.txt").read_text("utf-8") == "theirs"


async def test_no_write_leaves_a_project_that_was_itself_reached_through_a_link(
    run: Run, project: Path, workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "short").symlink_to(project)
    (project / "folder").symlink_to(tmp_path / "other")
    workspace.cwd = tmp_path / "short"

    by_name = await run("Write", file_path=f"{tmp_path}/short/folder/a.txt", content="x")
    from_here = await run("Write", file_path="folder/a.txt", content="x")
    inside = await run("Write", file_path=f"{tmp_path}/short/a.txt", content="x")

    assert "outside the project" in by_name.text
    assert "outside the project" in from_here.text
    assert not inside.is_error
    assert names(tmp_path / "other") == []
    assert workspace.cwd == project


async def test_a_link_inside_the_project_stays_a_link(run: Run, project: Path) -> None:
    (project / "AGENTS.md").write_text("old", "utf-8")
    (project / "CLAUDE.md").symlink_to("AGENTS.md")
    await run("Read", file_path="CLAUDE.md")

    result = await run("Edit", file_path="CLAUDE.md", old_string="old", new_string="new")

    assert not result.is_error
    assert (project / "CLAUDE.md").is_symlink()
    assert (project / "AGENTS.md").read_text("utf-8") == "new"


async def test_a_read_only_file_is_not_replaced_behind_its_back(run: Run, project: Path) -> None:
    path = project / "a.txt"
    path.write_text("old", "utf-8")
    path.chmod(0o444)
    await run("Read", file_path="a.txt")

    result = await run("Write", file_path="a.txt", content="new")

    assert result.text == "a.txt is read-only; change its mode first if it should be written"
    assert path.read_text("utf-8") == "old"


async def test_a_file_where_a_folder_is_needed_is_told_in_one_sentence(run: Run, project: Path) -> None:
    (project / "a").write_text("x", "utf-8")

    below = await run("Write", file_path="a/b.txt", content="x")
    folder = await run("Write", file_path=".", content="x")

    assert below.is_error
    assert "\n" not in below.text
    assert folder.text == ". is a folder; list it with Glob, or with ls in Bash"


async def test_a_pipe_is_not_written_to(run: Run, project: Path) -> None:
    os.mkfifo(project / "pipe")

    result = await run("Write", file_path="pipe", content="x")

    assert result.text == "pipe is a pipe, not an ordinary file; it is not opened"


async def test_halves_of_characters_do_not_reach_the_disk(run: Run, project: Path) -> None:
    result = await run("Write", file_path="a.txt", content="x\ud83dy 😀")

    assert not result.is_error
    assert (project / "a.txt").read_text("utf-8") == "x?y 😀"


# --- Edit ---------------------------------------------------------------------------------------------


async def edited(run: Run, path: Path, old: str, new: str, **more: bool) -> str:
    """Read, then edit; the text of the answer."""
    await run("Read", file_path=str(path))
    result = await run("Edit", file_path=str(path), old_string=old, new_string=new, **more)
    return result.text


async def test_an_exact_piece_is_replaced(run: Run, project: Path) -> None:
    path = project / "a.py"
    path.write_text("a = 1\nb = 2\nc = 3\n", "utf-8")

    assert await edited(run, path, "b = 2", "b = 20") == "Edited a.py at line 2."
    assert path.read_text("utf-8") == "a = 1\nb = 20\nc = 3\n"


async def test_signs_of_regular_expressions_and_templates_mean_nothing(run: Run, project: Path) -> None:
    path = project / "a.txt"
    path.write_text(r"x = (a|b)*[c] \1 $1", "utf-8")

    await edited(run, path, r"(a|b)*[c] \1 $1", r"\g<0> \\1 $& {}")

    assert path.read_text("utf-8") == r"x = \g<0> \\1 $& {}"


async def test_a_piece_that_occurs_twice_is_refused_unless_all_are_meant(run: Run, project: Path) -> None:
    path = project / "a.txt"
    path.write_text("x\ny\nx\n", "utf-8")

    refused = await edited(run, path, "x", "z")
    allowed = await edited(run, path, "x", "z", replace_all=True)

    assert refused == (
        "old_string occurs 2 times in a.txt (lines 1, 3); add lines around it, or set replace_all"
    )
    assert allowed == "Edited a.txt: 2 replacements, the first at line 1."
    assert path.read_text("utf-8") == "z\ny\nz\n"


async def test_a_file_must_be_read_before_it_is_edited(run: Run, project: Path) -> None:
    (project / "a.txt").write_text("x", "utf-8")

    result = await run("Edit", file_path="a.txt", old_string="x", new_string="y")

    assert result.text == "a.txt has not been read in this session; Read it before editing it"
    assert (project / "a.txt").read_text("utf-8") == "x"


async def test_a_file_changed_by_a_command_must_be_read_again(run: Run, project: Path) -> None:
    (project / "a.txt").write_text("x", "utf-8")
    await run("Read", file_path="a.txt")
    await run("Bash", command="echo more >> a.txt")

    result = await run("Edit", file_path="a.txt", old_string="x", new_string="y")

    assert result.text == "a.txt has changed since it was read; Read it again before editing it"


async def test_what_was_written_may_be_edited_at_once(run: Run, project: Path) -> None:
    await run("Write", file_path="a.txt", content="one")

    first = await run("Edit", file_path="a.txt", old_string="one", new_string="two")
    second = await run("Edit", file_path="a.txt", old_string="two", new_string="three")

    assert not first.is_error
    assert not second.is_error
    assert (project / "a.txt").read_text("utf-8") == "three"


async def test_an_edit_that_changes_nothing_is_refused(run: Run, project: Path) -> None:
    path = project / "a.txt"
    path.write_text("x", "utf-8")

    assert "nothing would change" in await edited(run, path, "x", "x")
    assert "old_string is empty" in await edited(run, path, "", "x")


async def test_dos_line_ends_are_matched_and_kept(run: Run, project: Path) -> None:
    path = project / "a.txt"
    path.write_bytes(b"one\r\ntwo\r\nthree\r\n")

    said = await edited(run, path, "one\ntwo\n", "1\n2\n2b\n")

    assert said == "Edited a.txt at line 1."
    assert path.read_bytes() == b"1\r\n2\r\n2b\r\nthree\r\n"


async def test_mixed_line_ends_stay_as_they_are_around_an_edit(run: Run, project: Path) -> None:
    path = project / "a.txt"
    path.write_bytes(b"one\r\ntwo\nthree\nfour\n")

    await edited(run, path, "two\nthree", "2\n3")
    await edited(run, path, "one\n", "1\n1b\n")

    assert path.read_bytes() == b"1\r\n1b\r\n2\n3\nfour\n"


async def test_encoding_and_byte_order_mark_are_kept(run: Run, project: Path) -> None:
    wide, marked, odd = project / "wide.txt", project / "marked.txt", project / "odd.txt"
    wide.write_bytes("\ufeffgrün\r\nrot\r\n".encode("utf-16-be"))
    marked.write_bytes(b"\xef\xbb\xbfone")
    odd.write_bytes(b"caf\xe9 one\n")

    await edited(run, wide, "grün\n", "blau\n")
    await edited(run, marked, "one", "two")
    await edited(run, odd, "one", "two")

    assert wide.read_bytes() == "\ufeffblau\r\nrot\r\n".encode("utf-16-be")
    assert marked.read_bytes() == b"\xef\xbb\xbftwo"
    assert odd.read_bytes() == b"caf\xe9 two\n"


@pytest.mark.parametrize(
    ("text", "old", "said"),
    [
        (
            "def f():\n\treturn 1\n",
            "def f():\n    return 1",
            ", but lines 1-2 differ only in blanks:\ndef f():\n\treturn 1",
        ),
        ("    x = 1\n", "x  =  1", ", but line 1 differs only in blanks:\n    x = 1"),
        ("alpha\nbeta\n", "1\talpha\n2\tbeta", "; it holds the line numbers that Read puts in front"),
        ("say “hello”\n", 'say "hello"', "differs only in quotes, dashes or special blanks"),
        ("first line\nother\n", "first line\nsecond", "'first line' is there (line 1), but what follows"),
        ("nothing alike\n", "entirely different", "; Read it again and copy the text exactly"),
        ("the replacement was made here\n", "gone", "new_string is there already, at line 1"),
    ],
)
async def test_what_is_not_found_comes_with_a_hint(
    run: Run, project: Path, text: str, old: str, said: str
) -> None:
    path = project / "a.txt"
    path.write_text(text, "utf-8")

    answer = await edited(run, path, old, "the replacement was made here")

    assert answer.startswith("a.txt does not contain old_string")
    assert said in answer
    assert path.read_text("utf-8") == text


async def test_an_edit_cannot_blow_a_file_up_without_bound(run: Run, project: Path) -> None:
    path = project / "a.txt"
    path.write_text("a" * 1_000_000, "utf-8")

    said = await edited(run, path, "a", "b" * 1000, replace_all=True)

    assert said == "the result would be larger than 64.0 MB"
    assert path.stat().st_size == 1_000_000


async def test_what_was_seen_is_remembered_by_time_most_recent_last(
    run: Run, project: Path, workspace: Workspace
) -> None:
    for name in ("a", "b", "a"):
        (project / name).write_text("x", "utf-8")
        await run("Read", file_path=name)

    assert list(workspace.seen) == [project / "b", project / "a"]
    assert workspace.seen[project / "a"].at == workspace.clock.now()
