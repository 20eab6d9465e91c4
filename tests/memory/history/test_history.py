"""Every change to the memory folder is a revision: listed, compared, undone, and purged for good."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.core.errors import Mistake, Refused, StorageFailure
from sevenfold.memory.export import export_to_git
from sevenfold.memory.history.database import HistoryFile
from sevenfold.memory.history.history import MemoryHistory
from sevenfold.memory.history.revisions import Author, RevisionChange, TakenRevisions

USER = Author("user")
AGENT = Author("agent", "session-7", "said twice")
GIT = shutil.which("git")
needs_git = pytest.mark.skipif(GIT is None, reason="git is not installed")


@pytest.fixture
def history(tmp_path: Path) -> MemoryHistory:
    return MemoryHistory(tmp_path / "state" / "history.sqlite")


class Folder:
    """A memory folder in memory, and its history."""

    def __init__(self, history: MemoryHistory) -> None:
        self.history = history
        self.files: dict[str, bytes] = {}
        self.now = 1_000.0

    def write(self, summary: str = "", /, **changes: bytes | str | None) -> str:
        named = {f"{name}.md": data for name, data in changes.items()}
        return self.put(named, summary)

    def put(self, named: Mapping[str, bytes | str | None], summary: str = "") -> str:
        self.now += 1
        changed = {n: d.encode() if isinstance(d, str) else d for n, d in named.items()}
        for name, data in changed.items():
            if data is None:
                self.files.pop(name, None)
            else:
                self.files[name] = data
        revision = self.history.record(self.files, USER, summary, self.now, changed)
        return revision.id if revision else ""


@pytest.fixture
def folder(history: MemoryHistory) -> Folder:
    return Folder(history)


def git(repository: Path, *args: str) -> str:
    assert GIT
    done = subprocess.run(
        [GIT, "-C", str(repository), *args],
        capture_output=True,
        check=True,
        text=True,
        env={"HOME": str(repository.parent), "PATH": "/usr/bin:/bin"},
    )
    return done.stdout


def everything_on_disk(root: Path) -> bytes:
    """Each file below as it is, and every zlib stream in it unpacked as far as it goes."""
    out = bytearray()
    for file in root.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            out += data + file.name.encode()
            at = 0
            while (at := data.find(b"\x78", at)) >= 0:
                with contextlib.suppress(zlib.error):
                    out += zlib.decompressobj().decompress(data[at : at + 10_000])
                at += 1
    return bytes(out)


# --- recording ----------------------------------------------------------------------------------------


def test_nothing_is_made_before_the_first_change(history: MemoryHistory) -> None:
    assert history.log() == []
    assert history.check() == []
    assert history.mend(1.0) == ""
    assert history.record({}, USER, "nothing", 1.0) is None
    assert history.log() == []


def test_a_change_is_a_revision_that_says_who_when_why_and_what(history: MemoryHistory) -> None:
    made = history.record({"no-db-mocks.md": b"x"}, AGENT, "created no-db-mocks", 1234.5)
    assert made is not None
    assert made.author == AGENT
    assert (made.at, made.summary) == (1234.5, "created no-db-mocks")
    assert made.files == (RevisionChange("no-db-mocks.md", "created"),)
    assert history.log() == [made]
    assert MemoryHistory(history.path).log() == [made]


def test_the_folders_of_the_history_are_for_this_user_alone(folder: Folder) -> None:
    folder.write(a="x")
    state = folder.history.path.parent
    assert state.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o077 for path in state.iterdir()} == {0}


def test_what_did_not_change_makes_no_revision(folder: Folder) -> None:
    folder.write(a="x", b="y")
    assert folder.history.record(folder.files, USER, "again", 5.0) is None
    assert folder.history.record(folder.files, USER, "again", 5.0, {"a.md": b"x"}) is None
    assert folder.history.record(folder.files, USER, "again", 5.0, {"gone.md": None}) is None
    assert len(folder.history.log()) == 1


def test_the_whole_folder_and_only_what_changed_give_the_same(tmp_path: Path) -> None:
    one, other = MemoryHistory(tmp_path / "one.sqlite"), MemoryHistory(tmp_path / "other.sqlite")
    first = {"a.md": b"1", "sub/b.md": b"2", "sub/deep/c.md": b"3"}
    second = {"a.md": b"1", "sub/b.md": b"new", "d.md": b"4"}
    changed = {"sub/b.md": b"new", "sub/deep/c.md": None, "d.md": b"4"}
    for history in (one, other):
        history.record(first, USER, "first", 1.0)
    whole = one.record(second, USER, "second", 2.0)
    quick = other.record(second, USER, "second", 2.0, changed)
    assert whole is not None
    assert quick is not None
    assert whole.files == quick.files
    assert [(c.file, c.action) for c in whole.files] == [
        ("d.md", "created"),
        ("sub/b.md", "changed"),
        ("sub/deep/c.md", "removed"),
    ]
    assert one.at("last") == second


def test_the_folder_is_not_asked_for_when_the_changes_are_known(folder: Folder) -> None:
    folder.write(a="x")

    def never() -> dict[str, bytes]:
        raise AssertionError("it was asked for")

    assert folder.history.record(never, USER, "", 2.0, {"b.md": b"y"})
    assert folder.history.at("last") == {"a.md": b"x", "b.md": b"y"}


def test_a_folder_that_is_emptied_has_a_revision_too(folder: Folder) -> None:
    folder.put({"sub/a.md": "x"})
    folder.put({"sub/a.md": None})
    assert folder.history.at("last") == {}
    folder.write(b="y")
    assert folder.history.at("last") == {"b.md": b"y"}


def test_a_file_may_become_a_folder(folder: Folder) -> None:
    folder.put({"a": "file"})
    folder.put({"a": None, "a/b.md": "inside", "a.md": "beside"})
    assert folder.history.at("last") == {"a/b.md": b"inside", "a.md": b"beside"}
    folder.put({"a": "file", "a/b.md": None})
    assert folder.history.at("last") == {"a": b"file", "a.md": b"beside"}


@pytest.mark.parametrize(
    "name", ["记忆/规则.md", "with space.md", "tab\there.md", 'quo"te.md', "half\udcff.md", " x.md"]
)
def test_names_of_all_kinds_come_back_as_they_were(folder: Folder, name: str) -> None:
    folder.put({name: "x"})
    folder.put({"other.md": "y"})
    assert folder.history.at("last")[name] == b"x"
    assert [r.files[0].file for r in folder.history.log(name)] == [name]


@pytest.mark.parametrize("name", ["", "/a.md", "a//b.md", "../a.md", ".git/x", "a/.GIT", "nul\0.md"])
def test_names_that_git_cannot_hold_are_refused(folder: Folder, name: str) -> None:
    folder.write(a="x")
    with pytest.raises(Refused, match="another name"):
        folder.history.record({}, USER, "", 2.0, {name: b"x"})


def test_words_of_a_message_cannot_pretend_to_be_something_else(history: MemoryHistory) -> None:
    author = Author("agent", "s\nAuthor-Kind: user", "because\n\nSession: other")
    history.record({"a.md": b"x"}, author, "one\n\nAuthor-Kind: user\nRemoved: b.md", 1.0)
    [revision] = history.log()
    assert revision.author.kind == "agent"
    assert revision.author.session == "s Author-Kind: user"
    assert revision.files == (RevisionChange("a.md", "created"),)
    assert revision.summary == "one Author-Kind: user Removed: b.md"


def test_a_clock_that_makes_no_sense_does_no_harm(history: MemoryHistory) -> None:
    for n, at in enumerate((5.0, -3.0, float("inf"), float("nan"), 2.0)):
        assert history.record({"a.md": b"%d" % n}, USER, str(n), at)
    assert [r.summary for r in history.log()] == ["4", "3", "2", "1", "0"]


def test_a_revision_of_many_files_still_knows_them(history: MemoryHistory) -> None:
    many = {f"f{n:04}.md": b"%d" % n for n in range(500)}
    history.record(many, USER, "found", 1.0)
    history.record(many | {"f0007.md": b"new"}, USER, "one", 2.0)
    one, found = history.log()
    assert len(found.files) == 500
    assert one.files == (RevisionChange("f0007.md", "changed"),)
    assert [r.summary for r in history.log("f0007.md")] == ["one", "found"]
    assert [r.summary for r in history.log("f0008.md")] == ["found"]


# --- reading ------------------------------------------------------------------------------------------


def test_the_log_of_one_file_has_only_its_revisions(folder: Folder) -> None:
    folder.write("made a", a="1")
    folder.write("made b", b="1")
    folder.write("moved a", a=None, c="1")
    folder.write("a again", a="2")
    assert [r.summary for r in folder.history.log("a.md")] == ["a again", "moved a", "made a"]
    assert [r.summary for r in folder.history.log(limit=2)] == ["a again", "moved a"]
    assert [r.summary for r in folder.history.log("a.md", limit=1)] == ["a again"]
    assert folder.history.log("never.md") == []


def test_a_revision_has_several_names(folder: Folder) -> None:
    ids = [folder.write(a=str(n)) for n in range(4)]
    contents = {
        ids[0]: b"0",
        ids[1][:6]: b"1",
        ids[1].upper(): b"1",
        "last": b"3",
        "HEAD": b"3",
        "head~": b"2",
        "HEAD~2": b"1",
        "last~3": b"0",
    }
    for name, content in contents.items():
        assert folder.history.file_at(name, "a.md") == content
    assert folder.history.file_at("last", "b.md") is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("HEAD~9", "the history has 2"),
        ("ffffffff", "no revision 'ffffffff'"),
        ("yesterday", "is no revision"),
        ("ab", "four digits or more"),
        ("", "is no revision"),
        ("--help", "is no revision"),
    ],
)
def test_a_wrong_name_of_a_revision_is_explained(folder: Folder, name: str, says: str) -> None:
    folder.write(a="1")
    folder.write(a="2")
    with pytest.raises(Mistake, match=says):
        folder.history.at(name)


def test_a_diff_reads_like_one(folder: Folder) -> None:
    first = folder.put({"a.md": "one\ntwo\nthree\n", "sub/old.md": "x\n"})
    folder.put({"a.md": "one\n2\nthree\n", "sub/old.md": None, "新.md": "完"})
    assert folder.history.diff(first, "last") == (
        "--- a.md\n+++ a.md\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
        "--- sub/old.md\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        "--- /dev/null\n+++ 新.md\n@@ -0,0 +1 @@\n+完\n\\ No newline at end of file\n"
    )
    assert folder.history.changes("last") == folder.history.diff(first, "last")
    assert folder.history.diff(first, "last", "a.md").count("\n") == 7
    assert folder.history.diff("last", "last") == ""
    assert folder.history.diff(None, first, "sub/old.md").startswith("--- /dev/null\n+++ sub/old.md")


def test_a_diff_of_what_is_no_text_says_so(folder: Folder) -> None:
    folder.put({"a.md": b"\0\1\2", "empty.md": b""})
    folder.put({"a.md": b"\0\1\3", "empty.md": None})
    text = folder.history.changes()
    assert "a.md\n(not text" in text
    assert "--- empty.md\n+++ /dev/null\n(empty)" in text
    assert "\0" not in text


# --- what a revision takes back -----------------------------------------------------------------------


def test_a_revision_says_what_it_takes_back(folder: Folder) -> None:
    folder.write(a="1")
    taken = [TakenRevisions(1, 1), TakenRevisions(2, 2, redo=True), TakenRevisions(1, 3, "ä b.md")]
    for number, one in enumerate(taken):
        folder.history.record({}, USER, "", float(number), {"a.md": b"%d" % (number + 2)}, one)
    assert [one.takes_back for one in reversed(folder.history.log())] == [None, *taken]
    assert [one.number for one in folder.history.log()] == [4, 3, 2, 1]
    assert folder.history.find("HEAD~1") == folder.history.log()[1]


def test_a_purge_forgets_what_was_taken_back_of_the_file(folder: Folder) -> None:
    folder.write(gone="1")
    folder.write(a="1")
    folder.history.record({}, USER, "", 3.0, {"a.md": None}, TakenRevisions(2, 2))
    folder.history.record({}, USER, "", 4.0, {"b.md": b"", "gone.md": None}, TakenRevisions(1, 1))
    folder.history.record({}, USER, "", 5.0, {"b.md": b"1"}, TakenRevisions(1, 4, "gone.md"))
    folder.history.purge("gone.md")
    kept = [(one.number, one.takes_back) for one in folder.history.log()]
    assert kept == [(5, None), (4, None), (3, TakenRevisions(2, 2)), (2, None)]


# --- room and readers ---------------------------------------------------------------------------------


def test_small_changes_of_a_large_file_take_little_room(folder: Folder) -> None:
    lines = [f"{n} {zlib.crc32(b'%d' % n)}\n" for n in range(1_000)]
    states = []
    for n in range(100):
        lines[n * 7] = f"changed {n}\n"
        states.append("".join(lines))
        folder.write(a=states[-1])
    kept = [folder.history.file_at(f"HEAD~{n}", "a.md") for n in range(100)]
    assert kept == [text.encode() for text in reversed(states)]
    folder.history.purge("never.md")  # leaves one file on the disk, without a log beside it
    assert folder.history.path.stat().st_size < 20 * len(zlib.compress(states[0].encode()))


def test_readers_see_one_state_while_others_write_and_purge(folder: Folder) -> None:
    for n in range(20):
        folder.write(a=str(n), b=str(n))
    reader, failed = MemoryHistory(folder.history.path), list[BaseException]()
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                files = reader.at("last")
                assert files["a.md"] == files["b.md"]
        except BaseException as error:
            failed.append(error)
            raise

    thread = threading.Thread(target=read)
    thread.start()
    for n in range(20, 80):
        folder.write(a=str(n), b=str(n), vault=str(n))
        if n % 10 == 0:
            folder.history.purge("vault.md")
            folder.files.pop("vault.md")
    done.set()
    thread.join()
    assert not failed


# --- whatever happens in whatever order ---------------------------------------------------------------

_name = st.sampled_from(["a.md", "b.md", "MEMORY.md", "s/a.md", "s/t/b.md", "s.md"])
_step = st.tuples(
    st.dictionaries(_name, st.none() | st.sampled_from([b"", b"1", b"2\n" * 30]), min_size=1),
    st.sampled_from(["", "", "", "purge", "reopen"]),
)


@settings(max_examples=50)
@given(st.lists(_step, max_size=12))
def test_every_state_is_kept(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[dict[str, bytes | None], str]]
) -> None:
    history = MemoryHistory(tmp_path_factory.mktemp("any") / "h.sqlite")
    files: dict[str, bytes] = {}
    states: list[tuple[str, dict[str, bytes]]] = []
    for n, (changed, also) in enumerate(steps):
        before = dict(files)
        files |= {k: v for k, v in changed.items() if v is not None}
        files = {k: v for k, v in files.items() if changed.get(k, v) is not None}
        made = history.record(files, USER, "", float(n), changed if n % 2 else None)
        assert (made is None) == (files == before)
        if made:
            touched = {k for k in files.keys() | before.keys() if files.get(k) != before.get(k)}
            assert {c.file for c in made.files} == touched
            states.append((made.id, dict(files)))
        if also == "purge":
            history.purge("never.md")
        elif also == "reopen":
            history = MemoryHistory(history.path)
    assert [r.id for r in history.log()] == [id for id, _ in reversed(states)]
    for id, state in states:
        assert history.at(id) == state


# --- purging ------------------------------------------------------------------------------------------

SECRET = b"correct-horse-battery-staple"


def with_secret(folder: Folder) -> None:
    folder.put({"keep.md": "keep\n", "MEMORY.md": "- [Keep](keep.md) - k\n"})
    index = "- [Keep](keep.md) - k\n- [Vault](./my%20vault.md) - hook-of-the-vault\n"
    folder.put({"my vault.md": SECRET + b" 1\n", "MEMORY.md": index}, "created my vault")
    folder.put({"my vault.md": b"now: " + SECRET + b" 2\n" * 30}, "changed my vault")
    folder.put({"my vault.md": None, "vault2.md": SECRET, "keep.md": "kept\n"}, "moved my vault")
    folder.put({"vault2.md": None, "MEMORY.md": "- [Keep](keep.md) - k\n"}, "removed vault2")
    folder.put({"keep.md": "keep on\n"}, "changed keep")


def test_what_is_purged_is_nowhere_on_the_disk(folder: Folder) -> None:
    with_secret(folder)
    path = folder.history.path.parent
    assert SECRET in everything_on_disk(path)
    old = [r.id for r in folder.history.log()]
    purged = folder.history.purge("my vault.md", "vault2.md")
    left = everything_on_disk(path)
    for word in (SECRET, b"hook-of-the-vault", b"vault"):
        assert word not in left
    assert folder.history.check() == []
    assert [r.summary for r in folder.history.log()] == [
        "changed keep",
        "changed keep",
        "created MEMORY and 1 more file",
    ]
    assert [folder.history.file_at(f"HEAD~{n}", "keep.md") for n in range(3)] == [
        b"keep on\n",
        b"kept\n",
        b"keep\n",
    ]
    assert folder.history.at("last") == folder.files
    assert set(purged.ids) == set(old) - {one.id for one in folder.history.log()}
    assert old[1] in purged.ids, "nothing is left of it"


def test_others_see_the_purged_history_and_go_on(folder: Folder) -> None:
    with_secret(folder)
    other = MemoryHistory(folder.history.path)
    assert other.at("last") == folder.files
    folder.history.purge("my vault.md", "vault2.md")
    assert other.at("last") == folder.files
    folder.history = other
    folder.put({"my vault.md": SECRET + b" 1\n"}, "again")
    assert MemoryHistory(other.path).file_at("last", "my vault.md") == SECRET + b" 1\n"
    assert MemoryHistory(other.path).check() == []


def test_purging_all_there_is_leaves_an_empty_history(folder: Folder) -> None:
    folder.write(a=SECRET)
    folder.write(a=None)
    folder.history.purge("a.md")
    assert folder.history.log() == []
    assert SECRET not in everything_on_disk(folder.history.path.parent)
    folder.write(b="1")
    assert folder.history.at("last") == {"b.md": b"1"}


def test_purging_again_or_what_was_never_there_changes_no_id(folder: Folder) -> None:
    folder.write(a="1")
    folder.write(b="1")
    before = folder.history.log()
    assert folder.history.purge("never.md").ids == {}
    assert folder.history.log() == before
    folder.history.purge("b.md")
    once = folder.history.log()
    assert folder.history.purge("b.md").ids == {}
    assert folder.history.log() == once


def test_a_purge_that_was_cut_off_is_finished_by_the_next_writer(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_secret(folder)
    state = folder.history.path.parent
    with monkeypatch.context() as dead:
        dead.setattr(HistoryFile, "erase_removed", lambda self: None)
        folder.history.purge("my vault.md", "vault2.md")
    assert SECRET in everything_on_disk(state), "or else this test shows nothing"
    MemoryHistory(folder.history.path).record({}, USER, "", 1.0, {"other.md": b"x"})
    assert SECRET not in everything_on_disk(state)
    assert folder.history.at("last") == folder.files | {"other.md": b"x"}


def test_a_history_that_was_set_aside_is_removed_by_a_purge(folder: Folder) -> None:
    folder.write(a=SECRET)
    folder.history.path.rename(folder.history.path.with_name("history.sqlite.damaged-1"))
    folder.write(b="1")
    assert folder.history.purge("a.md").removed == ("history.sqlite.damaged-1",)
    assert SECRET not in everything_on_disk(folder.history.path.parent)


def test_a_folder_that_was_in_the_way_is_removed_by_a_purge_too(folder: Folder) -> None:
    (folder.history.path / "inside").mkdir(parents=True)
    folder.write(a=SECRET)
    (aside,) = folder.history.path.parent.glob("*.damaged-*")
    assert folder.history.purge("a.md").removed == (aside.name,)
    folder.write(b="1")
    assert not aside.exists()


def fail_to_erase(file: HistoryFile) -> None:
    raise StorageFailure("the disk is full")


def test_a_purge_that_cannot_clean_the_file_still_removes_the_copies(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write(a=SECRET)
    aside = folder.history.path.rename(folder.history.path.with_name("history.sqlite.damaged-1"))
    folder.write(b="1")
    monkeypatch.setattr(HistoryFile, "erase_removed", fail_to_erase)
    with pytest.raises(StorageFailure, match="disk is full"):
        folder.history.purge("a.md")
    assert not aside.exists()


def test_the_next_writer_removes_the_copies_that_a_purge_left(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write(a=SECRET)
    aside = folder.history.path.rename(folder.history.path.with_name("history.sqlite.damaged-1"))
    folder.write(b="1")
    copy = aside.read_bytes()
    with monkeypatch.context() as dead:
        dead.setattr(HistoryFile, "erase_removed", lambda self: None)
        folder.history.purge("a.md")
    aside.write_bytes(copy)  # as if the process had died before it came to this
    MemoryHistory(folder.history.path).record({}, USER, "", 1.0, {"other.md": b"x"})
    assert not aside.exists()


# --- damage -------------------------------------------------------------------------------------------


def no_database(path: Path) -> None:
    path.write_text("not a history", encoding="utf-8")


def cut_in_half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2 - 100])


def zeros_inside(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + bytes(len(data) - 4096))


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


def damage(history: MemoryHistory, how: Callable[[Path], None]) -> None:
    history.purge("never.md")  # all of it is in the one file then
    for beside in ("-wal", "-shm"):
        Path(f"{history.path}{beside}").unlink(missing_ok=True)
    how(history.path)


@pytest.mark.parametrize("how", [no_database, cut_in_half, zeros_inside, folder_instead])
def test_a_damaged_history_is_set_aside_and_a_new_one_begins(
    folder: Folder, how: Callable[[Path], None]
) -> None:
    folder.write(a="1")
    folder.write(b="2")
    damage(folder.history, how)
    told: list[str] = []
    folder.history = MemoryHistory(folder.history.path, told.append)
    folder.write(c="3")
    [sentence] = told
    assert "set aside as history.sqlite.damaged-19700101T001643Z" in sentence
    assert folder.history.path.with_name("history.sqlite.damaged-19700101T001643Z").exists()
    assert folder.history.at("last") == folder.files, "the new one begins with the whole folder"
    assert folder.history.check() == []
    assert folder.history.mend(2_000.0) == ""


def test_damage_in_the_past_is_an_error_that_names_the_fix(folder: Folder) -> None:
    folder.write(a="1")
    folder.write(a="2")
    folder.write(b="3")
    with HistoryFile(folder.history.path).write() as db:
        db.execute("update change set data = x'00' where file = ? and number = 2", (b"a.md",))
    history = MemoryHistory(folder.history.path)
    assert len(history.log()) == 3
    with pytest.raises(StorageFailure, match="move it away and a new history begins"):
        history.at("HEAD~1")
    assert len(history.check()) == 1
    assert history.file_at("HEAD~2", "a.md") == b"1"
    assert "set aside" in history.mend(9.0, deep=True)
    assert history.log() == []


def test_a_history_of_a_newer_version_is_left_alone(folder: Folder) -> None:
    folder.write(a="1")
    with HistoryFile(folder.history.path).write() as db:
        db.execute("pragma user_version = 99")
    with pytest.raises(StorageFailure, match="newer version of Sevenfold; update this one"):
        MemoryHistory(folder.history.path).log()


def test_a_file_that_was_begun_and_never_filled_is_no_damage(history: MemoryHistory) -> None:
    history.path.parent.mkdir()
    history.path.touch()
    assert history.log() == []
    assert history.mend(1.0) == ""
    assert history.record({"a.md": b"x"}, USER, "", 1.0)


def test_where_nothing_can_be_written_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    history = MemoryHistory(tmp_path / "file" / "history.sqlite")
    assert history.log() == []
    with pytest.raises(StorageFailure, match="a file where a folder is needed"):
        history.record({"a.md": b"x"}, USER, "", 1.0)
    assert history.mend(1.0) == ""


# --- with the real git --------------------------------------------------------------------------------


@pytest.mark.real
@needs_git
def test_git_reads_the_exported_history_and_finds_nothing_wrong(folder: Folder, tmp_path: Path) -> None:
    for n in range(30):
        folder.put({f"sub/f{n % 9}.md": f"{n}\n" * 20, "MEMORY.md": f"{n}"}, f"step {n}")
    folder.put({'q"ü\nx.md': "x", "sub": None}, "an odd name")
    folder.put({"a": "file"}, "a file")
    folder.put({"a": None, "a/b.md": "inside"}, "becomes a folder")
    folder.history.record(folder.files, AGENT, "by an agent", 1_700_000_000.0, {"a/b.md": b"new"})
    folder.files["a/b.md"] = b"new"
    out = tmp_path / "out"
    assert export_to_git(folder.history, out) == 34
    assert git(out, "fsck", "--full", "--strict", "--no-dangling") == ""
    shown = git(out, "log", "-1", "--format=%an|%at|%s|%(trailers:key=Session,valueonly)")
    assert shown.split("|") == ["agent", "1700000000", "by an agent", "session-7\n\n"]
    assert "step 29" in git(out, "log", "--format=%s", "--", "MEMORY.md")
    names = git(out, "ls-tree", "-r", "-z", "--name-only", "HEAD").split("\0")[:-1]
    assert set(names) == set(folder.files)
    assert {name: (out / name).read_bytes() for name in names} == folder.files
