"""Whole tool results on disk: any id, any content, never through a link, verified before it is told."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.core.errors import StorageFailure
from sevenfold.core.messages import Opaque, Text
from sevenfold.storage.results import ResultStore, make_file_stem

HOSTILE = [
    "",
    ".",
    "..",
    "../../etc/passwd",
    "/etc/passwd",
    "..\\..\\windows\\system32",
    "x" * 10_000,
    "a\0b",
    "line\nbreak",
    "工具调用",
    "crème brûlée",
    "\udc80 half a character",
    "CON",
    "nul",
    "com1",
    "trailing.",
    "trailing ",
    ".hidden",
    "-rf",
    "C:drive",
    "id?*<>|",
    "a.txt",
    "toolu_01AbCdEf",
    "toolu_01aBcDeF",
]


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(lambda: tmp_path / "session" / "tool-results")


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def in_a_child(script: str, *args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, args)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


# --- names --------------------------------------------------------------------------------------------


def test_an_ordinary_id_is_the_name_of_its_file(store: ResultStore) -> None:
    path = store.keep("toolu_01AbC-9", "text")
    assert path == store.folder / "toolu_01AbC-9.txt"
    assert store.keep("toolu_02", (Text("a"), Text("b"))).name == "toolu_02.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_hostile_ids_each_have_a_file_of_their_own_in_the_folder(store: ResultStore) -> None:
    paths = {}
    for id in HOSTILE:
        content = f"content of {id[:50]!r}"
        paths[id] = store.keep(id, content), content
    assert len({path for path, _ in paths.values()}) == len(HOSTILE)
    for path, content in paths.values():
        assert path.parent == store.folder
        assert path.read_text(encoding="utf-8") == content
        assert path.name.isascii()
        assert len(path.name) < 120
    assert len(list(store.folder.iterdir())) == len(HOSTILE)
    fresh = ResultStore(lambda: store.folder)  # as after a restart
    for id, (path, _) in paths.items():
        assert store.find(id) == fresh.find(id) == path


def test_names_are_safe_where_case_does_not_count_and_devices_have_names(store: ResultStore) -> None:
    stems = [make_file_stem(id) for id in HOSTILE]
    for stem in stems:
        assert stem.lower().partition(".")[0] not in {"con", "nul", "com1"}
        assert not stem.startswith(("-", "."))
        assert not stem.endswith((".", " "))
        assert not set(stem) & set('/\\:*?"<>|\0\n')
    # Where case does not count, the second of these finds its name taken by the first, and takes
    # another, as any id does that comes again with other content.
    assert make_file_stem("toolu_a").lower() == make_file_stem("TOOLU_A").lower()
    first, second = store.keep("toolu_a", "one"), store.keep("toolu_a", "two")
    assert first.name.lower() != second.name.lower()


@given(st.text(st.characters(), max_size=300), st.text(st.characters(), max_size=300))
def test_no_two_ids_share_a_stem_and_no_stem_leaves_the_folder(one: str, other: str) -> None:
    for id in (one, other):
        assert Path(make_file_stem(id)).name == make_file_stem(id)
        assert "." not in make_file_stem(id)
        assert 0 < len(make_file_stem(id)) <= 80
    assert (make_file_stem(one) == make_file_stem(other)) == (one == other)


def test_an_id_that_comes_again_with_other_content_overwrites_nothing(store: ResultStore) -> None:
    first = store.keep("call_1", "first")
    second = store.keep("call_1", "second")
    assert first != second
    assert (first.read_bytes(), second.read_bytes()) == (b"first", b"second")
    assert store.find("call_1") == second
    assert store.keep("call_1", "first") == first
    assert store.keep("call_1", "second") == second
    assert len(list(store.folder.iterdir())) == 2
    assert store.find("call_1") == second


def test_the_same_content_again_is_the_same_path_also_after_a_restart(store: ResultStore) -> None:
    path = store.keep("call_1", "text")
    before = path.stat().st_mtime_ns
    assert store.keep("call_1", "text") == path
    assert ResultStore(lambda: store.folder).keep("call_1", "text") == path
    assert path.stat().st_mtime_ns == before


def test_one_id_never_finds_the_files_of_another(store: ResultStore) -> None:
    store.keep("call_1", "first")
    reused = store.keep("call_1", "second")
    assert store.find(reused.stem) is None
    assert store.find("call") is None
    assert store.find("CALL_1") is None
    assert store.find("") is None


# --- content ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["", "\0\0", "a\r\nb\rc\n", "工具" * 5_000, "🧵" * 3_000, "x" * 100_000, "\ufeffbom", "\x85\u2028"],
)
def test_what_is_kept_comes_back_to_the_byte(store: ResultStore, text: str) -> None:
    assert sha(store.keep("id", text).read_bytes()) == sha(text.encode("utf-8"))


def test_halves_of_characters_become_question_marks(store: ResultStore) -> None:
    assert store.keep("id", "a\ud800b").read_bytes() == b"a?b"
    blocks = (Text("a\ud800b", {"note": "\udfff"}), Opaque("new", '{"type":"new","n":[1]}'))
    kept = json.loads(store.keep("id", blocks).read_bytes())
    assert kept == [{"type": "text", "text": "a?b", "note": "?"}, {"type": "new", "n": [1]}]


def test_blocks_are_kept_as_the_wire_has_them(store: ResultStore) -> None:
    blocks = (Text("one\n"), Text("two", {"citations": [{"n": 1}]}))
    assert json.loads(store.keep("id", blocks).read_bytes()) == [
        {"type": "text", "text": "one\n"},
        {"type": "text", "text": "two", "citations": [{"n": 1}]},
    ]


def test_64_megabytes_come_back_whole(store: ResultStore) -> None:
    text = "0123456789abcdef" * (64 << 16)
    path = store.keep("big", text)
    assert path.stat().st_size == 64 << 20
    assert sha(path.read_bytes()) == sha(text.encode("ascii"))
    assert store.keep("big", text) == path


# --- the folder ---------------------------------------------------------------------------------------


def test_a_folder_deleted_meanwhile_is_made_again(store: ResultStore) -> None:
    first = store.keep("a", "one")
    shutil.rmtree(store.folder.parent)
    assert store.find("a") is None
    assert store.keep("b", "two").read_bytes() == b"two"
    assert store.keep("a", "one") == first
    assert first.read_bytes() == b"one"


def test_a_folder_that_is_a_link_is_neither_written_nor_read(tmp_path: Path) -> None:
    outside, link = tmp_path / "outside", tmp_path / "tool-results"
    outside.mkdir()
    (outside / "a.txt").write_bytes(b"theirs")
    link.symlink_to(outside)
    store = ResultStore(lambda: link)
    with pytest.raises(StorageFailure, match=r"tool-results.*symbolic link"):
        store.keep("b", "text")
    assert [p.name for p in outside.iterdir()] == ["a.txt"]
    assert store.find("a") is None
    with pytest.raises(StorageFailure, match="no tool result"):
        store.open(link / "a.txt")


def test_a_folder_replaced_by_a_link_while_the_session_runs_is_refused(
    store: ResultStore, tmp_path: Path
) -> None:
    kept = store.keep("a", "one")
    moved = tmp_path / "moved"
    store.folder.rename(moved)
    store.folder.symlink_to(moved)
    with pytest.raises(StorageFailure, match="symbolic link"):
        store.keep("b", "two")
    assert [p.name for p in moved.iterdir()] == ["a.txt"]
    assert store.find("a") is None
    assert not store.owns(kept)


def test_a_file_where_the_folder_should_be_is_named(store: ResultStore) -> None:
    store.folder.parent.mkdir()
    store.folder.touch()
    with pytest.raises(StorageFailure, match=r"tool-results could not be made.*move that file"):
        store.keep("a", "text")
    assert store.find("a") is None


def test_a_link_or_a_pipe_with_the_name_of_a_result_is_left_alone(store: ResultStore) -> None:
    store.folder.mkdir(parents=True)
    victim = store.folder.parent / "victim"
    victim.write_bytes(b"text")
    (store.folder / "a.txt").symlink_to(victim)
    os.mkfifo(store.folder / "b.txt")
    (store.folder / "c.txt").mkdir()
    for id in "abc":
        path = store.keep(id, "text")
        assert path.name != f"{id}.txt"
        assert path.read_bytes() == b"text"
        assert store.find(id) == path
    assert (store.folder / "a.txt").is_symlink()
    assert victim.read_bytes() == b"text"


def test_a_file_left_half_written_by_a_crash_is_not_taken_for_the_result(store: ResultStore) -> None:
    store.folder.mkdir(parents=True)
    (store.folder / "a.txt").write_bytes(b"the who")
    path = store.keep("a", "the whole")
    assert path.read_bytes() == b"the whole"
    assert path.name != "a.txt"
    path.write_bytes(b"the hole!")  # the same length, changed later
    again = store.keep("a", "the whole")
    assert again not in (path, store.folder / "a.txt")
    assert again.read_bytes() == b"the whole"


def test_when_every_name_is_taken_it_says_so_and_overwrites_nothing(store: ResultStore) -> None:
    def spoil() -> None:
        for _ in range(100):
            store.keep("a", "text").write_bytes(b"else")

    with pytest.raises(StorageFailure, match=r"tool-results.*names for it are taken.*move them"):
        spoil()
    taken = list(store.folder.iterdir())
    assert 1 < len(taken) < 100
    assert {path.read_bytes() for path in taken} == {b"else"}


def test_a_disk_that_takes_no_more_leaves_nothing_behind(tmp_path: Path) -> None:
    ran = in_a_child(
        """
        import resource, sys
        from pathlib import Path
        from sevenfold.core.errors import StorageFailure
        from sevenfold.storage.results import ResultStore
        store = ResultStore(lambda: Path(sys.argv[1]) / "tool-results")
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            store.keep("big", "x" * 5000)
        except StorageFailure as error:
            print(error)
        print(store.keep("small", "x" * 500).read_text(encoding="utf-8") == "x" * 500)
        """,
        tmp_path,
    )
    refused, kept = ran.stdout.splitlines()
    assert "big.txt could not be written: the file would be larger" in refused
    assert kept == "True"
    assert [p.name for p in (tmp_path / "tool-results").iterdir()] == ["small.txt"]


def test_a_folder_without_permission_says_so_with_the_fix(tmp_path: Path) -> None:
    """Run as somebody else where we are root, since root may do everything."""
    ran = in_a_child(
        """
        import os, tempfile
        from pathlib import Path
        from sevenfold.core.errors import StorageFailure
        from sevenfold.storage.results import ResultStore
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "tool-results"
            folder.mkdir()
            folder.chmod(0o555)
            Path(name).chmod(0o755)
            if os.getuid() == 0:
                os.seteuid(65534)
            try:
                ResultStore(lambda: folder).keep("a", "text")
                print("it worked")
            except StorageFailure as error:
                print(error)
            if os.getuid() == 0:
                os.seteuid(0)
            folder.chmod(0o755)
        """
    )
    assert "a.txt could not be written: permission denied; give this user access" in ran.stdout


def test_a_file_that_does_not_read_back_as_written_is_removed_and_not_told(tmp_path: Path) -> None:
    """A disk that forgets is played by a hook of the interpreter: it shortens the file unseen."""
    ran = in_a_child(
        """
        import os, sys
        from pathlib import Path
        from sevenfold.core.errors import StorageFailure
        from sevenfold.storage.results import ResultStore
        folder = Path(sys.argv[1]) / "tool-results"

        def forget(event, args):
            if event == "open" and str(args[0]) == str(folder / "a.txt"):
                os.truncate(args[0], 2)

        sys.addaudithook(forget)
        try:
            print(ResultStore(lambda: folder).keep("a", "text"))
        except StorageFailure as error:
            print(error)
        print(list(folder.iterdir()))
        """,
        tmp_path,
    )
    refused, left = ran.stdout.splitlines()
    assert "a.txt could not be kept: what was read back is not what was written" in refused
    assert left == "[]"


def test_a_folder_swapped_for_a_link_in_the_middle_of_a_write_leads_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    ran = in_a_child(
        """
        import os, sys
        from pathlib import Path
        from sevenfold.core.errors import StorageFailure
        from sevenfold.storage.results import ResultStore
        place = Path(sys.argv[1])
        folder = place / "tool-results"
        swapped = []

        def swap(event, args):
            if event == "open" and args[0] == sys.argv[2] and not swapped:
                swapped.append(True)
                folder.rename(place / "moved")
                folder.symlink_to(place / "outside")

        sys.addaudithook(swap)
        folder.mkdir()
        try:
            print(ResultStore(lambda: folder).keep("a", "text"))
        except StorageFailure as error:
            print(error)
        """,
        tmp_path,
        "a.txt",
    )
    assert "could not be" in ran.stdout, ran.stderr
    assert list(outside.iterdir()) == []
    assert (tmp_path / "tool-results").is_symlink()


# --- reading ------------------------------------------------------------------------------------------


def test_only_results_of_this_store_are_opened(store: ResultStore, tmp_path: Path) -> None:
    path = store.keep("a", "text")
    with store.open(path) as file:
        assert file.read() == b"text"
    (tmp_path / "secret.txt").write_bytes(b"secret")
    (store.folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (store.folder / "other.md").write_bytes(b"x")
    (store.folder / "deeper").mkdir()
    (store.folder / "deeper" / "b.txt").write_bytes(b"x")
    for wrong in (
        tmp_path / "secret.txt",
        store.folder / ".." / ".." / "secret.txt",
        store.folder / "link.txt",
        store.folder / "other.md",
        store.folder / "deeper" / "b.txt",
        store.folder / "missing.txt",
        store.folder,
        Path("a.txt"),
        Path("nul\0.txt"),
    ):
        assert not store.owns(wrong)
        with pytest.raises(StorageFailure, match="could not be read"):
            store.open(wrong)


def test_the_folder_may_change_while_the_store_lives(tmp_path: Path) -> None:
    at = [tmp_path / "one"]
    store = ResultStore(lambda: at[0])
    first = store.keep("a", "text")
    at[0] = tmp_path / "two"
    assert store.find("a") is None
    assert store.keep("a", "text") == tmp_path / "two" / "a.txt"
    at[0] = tmp_path / "one"
    assert store.find("a") == first
