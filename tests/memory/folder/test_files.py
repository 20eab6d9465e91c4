"""The files of a memory folder: names, listing, reading, replacing, the lock."""

from __future__ import annotations

import os
import stat
import threading
import unicodedata
from pathlib import Path

import pytest

from sevenfold.core.errors import Refused, StorageFailure
from sevenfold.memory.backend import HEAD, ConcurrentWrite
from sevenfold.memory.folder.files import UNFINISHED, MemoryFiles
from sevenfold.memory.folder.names import (
    check_file_path,
    check_memory_name,
    choose_file,
    explain_bad_file,
    make_file_key,
    make_slug,
)
from sevenfold.storage.locks import hold_file_lock


@pytest.fixture(params=["held", "by path"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryFiles:
    """The folder, reached in the way of this system and in the way of those that lack it."""
    return MemoryFiles(tmp_path / "memory", hold=request.param == "held")


@pytest.fixture
def made(files: MemoryFiles) -> MemoryFiles:
    files.folder.mkdir()
    return files


# --- names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("no-db-mocks", "no-db-mocks"),
        ("Prefers tabs, not spaces!", "prefers-tabs-not-spaces"),
        ("用户 偏好：简短", "用户-偏好-简短"),
        ("プロジェクト_メモ", "プロジェクト-メモ"),
        ("Ｆｕｌｌ ｗｉｄｔｈ", "full-width"),
        ("Größe", "größe"),
        ("हिन्दी", "हिन्दी"),
        ("CI/CD pipeline", "ci-cd-pipeline"),
        ("--- a ---", "a"),
        ("🎉", ""),
    ],
)
def test_a_slug_keeps_the_letters_of_every_script(name: str, expected: str) -> None:
    assert make_slug(name) == unicodedata.normalize("NFC", expected)


def test_a_file_for_a_name_is_one_that_every_system_can_have() -> None:
    awkward = ["con", "NUL", "COM1", "memory", "MEMORY", "🎉", "…", "a" * 500, "字" * 500, "x."]
    for name in awkward:
        file = choose_file(name, ())
        assert not explain_bad_file(file), file
        assert len(file.encode("utf-8")) < 200


def test_two_names_never_share_a_file() -> None:
    taken: set[str] = set()
    names = ["a b", "a-b", "A b", "a  b", "a/b", "ａ b", "a_b", "memory", "Memory", "🎉", "🎈"]
    for name in names:
        file = choose_file(name, taken)
        assert make_file_key(file) not in taken
        taken.add(make_file_key(file))
    assert len(taken) == len(names)


def test_the_same_name_finds_the_same_file_again() -> None:
    assert choose_file("a-b", {make_file_key("a-b.md")}) == choose_file("a-b", {make_file_key("A-B.md")})


def test_case_and_composition_do_not_make_another_file() -> None:
    assert make_file_key("Café.md") == make_file_key(unicodedata.normalize("NFD", "CAFÉ.md"))


@pytest.mark.parametrize(
    "name", ["Zwei Wörter", "a/b testing", "C: the language", "部署（生产）", "⚠️ care"]
)
def test_ordinary_names_are_fine(name: str) -> None:
    assert check_memory_name(f"  {name} ") == unicodedata.normalize("NFC", name)


@pytest.mark.parametrize("file", ["a.md", "sub/b.md", "部署：步骤.md", "a b.md", "x.y.md", "team/a.md"])
def test_ordinary_files_are_fine(file: str) -> None:
    assert check_file_path(file) == file


def test_a_long_name_that_is_refused_is_cut_and_stays_readable() -> None:
    with pytest.raises(Refused) as refused:
        check_memory_name("部署" * 40 + "x" * 200)
    assert str(refused.value).startswith(f"'{'部署' * 30}…' is refused as the name of a memory")
    with pytest.raises(Refused, match=r"'部署\\u202ex' is refused"):
        check_memory_name("部署\u202ex")


def test_a_refused_name_is_shown_without_its_hidden_characters() -> None:
    with pytest.raises(Refused) as refused:
        check_memory_name("safe\u202egnp.md")
    assert "\u202e" not in str(refused.value)
    assert "U+202E" in str(refused.value)


# --- reading and replacing ----------------------------------------------------------------------------


def test_what_is_written_is_read_back_and_is_private(made: MemoryFiles) -> None:
    with made.opened() as at:
        written = at.write("sub/deep/a.md", b"text", None)
        assert at.read("sub/deep/a.md") == (b"text", written)
    path = made.folder / "sub" / "deep" / "a.md"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [one.name for one in path.parent.iterdir()] == ["a.md"]


def test_a_missing_folder_is_said_and_can_be_made(files: MemoryFiles) -> None:
    with pytest.raises(FileNotFoundError), files.opened():
        pass
    with files.opened(make=True) as at:
        assert at.list().files == {}
    assert stat.S_IMODE(files.folder.stat().st_mode) == 0o700


def test_a_file_that_changed_since_it_was_read_is_not_overwritten(made: MemoryFiles) -> None:
    with made.opened() as at:
        first = at.write("a.md", b"ours", None)
        (made.folder / "a.md").write_bytes(b"by hand")
        with pytest.raises(ConcurrentWrite):
            at.write("a.md", b"ours again", first)
        with pytest.raises(ConcurrentWrite):
            at.remove("a.md", first)
    assert (made.folder / "a.md").read_bytes() == b"by hand"


def test_a_new_file_does_not_cover_one_that_came_meanwhile(made: MemoryFiles) -> None:
    (made.folder / "a.md").write_bytes(b"by hand")
    with made.opened() as at, pytest.raises(ConcurrentWrite):
        at.write("a.md", b"ours", None)
    assert (made.folder / "a.md").read_bytes() == b"by hand"
    assert sorted(one.name for one in made.folder.iterdir()) == ["a.md"]


def test_a_file_that_went_away_is_not_written_anew(made: MemoryFiles) -> None:
    with made.opened() as at:
        first = at.write("a.md", b"ours", None)
        (made.folder / "a.md").unlink()
        with pytest.raises(ConcurrentWrite):
            at.write("a.md", b"ours again", first)


def test_a_removed_file_takes_its_empty_folders_along_and_no_others(made: MemoryFiles) -> None:
    with made.opened() as at:
        lone = at.write("one/two/a.md", b"a", None)
        near = at.write("three/b.md", b"b", None)
        (made.folder / "three" / "picture.png").write_bytes(b"")
        at.remove("one/two/a.md", lone)
        at.remove("three/b.md", near)
    assert sorted(one.name for one in made.folder.iterdir()) == ["three"]


def test_of_a_huge_file_the_head_is_read(made: MemoryFiles) -> None:
    with (made.folder / "huge.md").open("wb") as file:
        file.write(b"---\nname: huge\n---\n")
        file.truncate(50 << 20)
    with made.opened() as at:
        data, stamp = at.read("huge.md")
    assert (len(data), stamp.size) == (HEAD, 50 << 20)


def test_what_is_no_regular_file_is_not_read_and_never_waited_for(made: MemoryFiles) -> None:
    os.mkfifo(made.folder / "pipe.md")
    (made.folder / "folder.md").mkdir()
    (made.folder / "loop.md").symlink_to("loop.md")
    (made.folder / "dangling.md").symlink_to("nowhere.md")
    with made.opened() as at:
        for name in ("pipe.md", "folder.md", "loop.md", "dangling.md"):
            with pytest.raises(Refused, match="not a plain folder or file"):
                at.read(name)
            with pytest.raises(Refused):
                at.write(name, b"text", None)
    assert not (made.folder / "nowhere.md").exists()


def test_a_file_that_is_not_there_is_a_storage_failure_with_its_name(made: MemoryFiles) -> None:
    with made.opened() as at, pytest.raises(StorageFailure, match=r"gone\.md could not be read"):
        at.read("gone.md")


# --- listing ------------------------------------------------------------------------------------------


def test_the_listing_has_topics_logs_and_indexes_and_says_what_is_odd(made: MemoryFiles) -> None:
    for file in (
        "b.md",
        "a.md",
        "MEMORY.md",
        "notes.txt",
        ".hidden.md",
        "sub/c.md",
        "sub/.git/d.md",
        "team/MEMORY.md",
        "team/e.md",
        "logs/2026/11/2026-11-15.md",
        "con.md",
        "x\u200b.md",
        "sub/memory.md",
    ):
        (made.folder / file).parent.mkdir(parents=True, exist_ok=True)
        (made.folder / file).write_bytes(b"text")
    (made.folder / "link.md").symlink_to("a.md")
    (made.folder / "way").symlink_to("sub")
    os.mkfifo(made.folder / "pipe.md")
    with made.opened() as at:
        found = at.list()
    assert found.topics == ["a.md", "b.md", "sub/c.md", "team/e.md"]
    assert set(found.files) - set(found.topics) == {
        "MEMORY.md",
        "team/MEMORY.md",
        "logs/2026/11/2026-11-15.md",
    }
    assert {odd.file for odd in found.odd} == {
        "con.md",
        "x\u200b.md",
        "sub/memory.md",
        "link.md",
        "way",
        "pipe.md",
    }


def test_names_that_are_not_utf8_are_odd_and_not_fatal(made: MemoryFiles) -> None:
    Path(os.fsdecode(os.fsencode(made.folder) + b"/caf\xe9.md")).touch()
    with made.opened() as at:
        [odd] = at.list().odd
    assert odd.file == "caf\udce9.md"


def test_what_a_dead_process_left_is_seen_and_swept(made: MemoryFiles) -> None:
    (made.folder / f"{UNFINISHED}1").write_bytes(b"half")
    (made.folder / "sub").mkdir()
    (made.folder / "sub" / f"{UNFINISHED}2").write_bytes(b"half")
    (made.folder / "sub" / "a.md").write_bytes(b"whole")
    with made.opened() as at:
        found = at.list()
        at.sweep(found.unfinished)
        assert at.list().unfinished == ()
    assert found.topics == ["sub/a.md"]


# --- the lock -----------------------------------------------------------------------------------------


def test_the_lock_is_the_one_that_everybody_takes(made: MemoryFiles) -> None:
    order: list[str] = []

    def other() -> None:
        with hold_file_lock(made.folder / ".memory"):
            order.append("other")

    with made.opened() as at, at.alone():
        waiting = threading.Thread(target=other)
        waiting.start()
        waiting.join(0.2)
        order.append("ours")
    waiting.join()
    assert order == ["ours", "other"]


def test_a_lock_file_that_was_removed_while_we_waited_does_not_count(tmp_path: Path) -> None:
    files = MemoryFiles(tmp_path / "memory")
    inside: list[str] = []

    def wait_for_it() -> None:
        with files.opened() as at, at.alone():
            inside.append("second")
            assert (files.folder / ".memory.lock").stat().st_nlink == 1

    with files.opened(make=True) as at, at.alone():
        waiting = threading.Thread(target=wait_for_it)
        waiting.start()
        waiting.join(0.2)
        (files.folder / ".memory.lock").unlink()
        assert inside == []
    waiting.join()
    assert inside == ["second"]
