"""A git repository and records that an earlier version kept are carried over, whole, and then removed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import StorageFailure
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.history.database import HistoryFile
from sevenfold.memory.history.revisions import Author, RevisionChange, TakenRevisions
from sevenfold.memory.store import MemoryStore

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]


class Earlier:
    """The state folder of an earlier version: its git repository, written with the real git."""

    def __init__(self, root: Path) -> None:
        self.root, self.state, self.folder = root, root / "state", root / "memory"
        self.repository = self.state / "history"
        self.repository.mkdir(parents=True)
        self.git("init", "--quiet", "--bare", "--initial-branch=main", str(self.repository))

    def git(self, *words: str, given: bytes = b"") -> str:
        who = {f"GIT_{a}_{b}": "x@y" for a in ("AUTHOR", "COMMITTER") for b in ("NAME", "EMAIL")}
        dates = {"GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000"}
        done = subprocess.run(
            ["git", *words], cwd=self.repository, input=given, capture_output=True, check=True,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.root), **who, **dates},
        )  # fmt: skip
        return done.stdout.decode().strip()

    def commit(self, message: str, files: dict[str, bytes]) -> str:
        self.git("read-tree", "--empty")
        for name, data in files.items():
            blob = self.git("hash-object", "-w", "--stdin", given=data)
            line = f"100644 {blob}\t{name}\0".encode("utf-8", "surrogateescape")
            self.git("update-index", "-z", "--index-info", given=line)
        tree = self.git("write-tree")
        parent = ["-p", "main"] if (self.repository / "refs/heads/main").exists() else []
        new = self.git("commit-tree", tree, *parent, "-F", "-", given=message.encode())
        self.git("update-ref", "refs/heads/main", new)
        return new

    def backend(self) -> FolderBackend:
        return FolderBackend(self.folder, self.state)


@pytest.fixture
def earlier(tmp_path: Path) -> Earlier:
    return Earlier(tmp_path)


NAMES = {"a.md": b"1\n", "ü b.md": b"2\n", 'q"t.md': b"", "half\udcff.md": b"\xff\0"}


def trailers(number: int, *more: str) -> str:
    lines = [
        "Author-Kind: agent",
        "Session: s-7",
        "Reason: said twice",
        f"Revision: {number}",
        "At: 5.5",
        *more,
    ]
    return "\n".join(lines) + "\n"


def test_every_revision_is_there_with_its_id_and_its_files(earlier: Earlier) -> None:
    first = earlier.commit(f"created a\n\n{trailers(1)}", NAMES)
    second = earlier.commit("by hand", {**NAMES, "a.md": b"changed\n", "sub/c.md": b"3"})
    undoes = 'Undoes: 1-1 "ü b.md"'
    third = earlier.commit(f"undid it\n\n{trailers(3, undoes)}", {"a.md": b"1\n"})

    history = earlier.backend().revisions(lambda sentence: None)
    newest, middle, oldest = history.log()

    assert [newest.id, middle.id, oldest.id] == [id[:12] for id in (third, second, first)]
    assert (oldest.author, oldest.at) == (Author("agent", "s-7", "said twice"), 5.5)
    assert (middle.author.kind, middle.summary, middle.at) == ("other", "by hand", 1_700_000_000.0)
    assert middle.files == (RevisionChange("a.md", "changed"), RevisionChange("sub/c.md", "created"))
    assert newest.takes_back == TakenRevisions(1, 1, "ü b.md")
    assert history.at(first) == NAMES
    assert history.at("last") == {"a.md": b"1\n"}
    assert not earlier.repository.exists()


def test_records_are_carried_over_and_the_folders_go(earlier: Earlier) -> None:
    for room in ("quarantine", "dream-journal"):
        (earlier.state / room).mkdir()
        (earlier.state / room / "1").write_bytes(b"held")
        (earlier.state / room / f"{room}.lock").touch()

    records = earlier.backend().state("quarantine")

    assert records.sizes() == {"1": 4}
    assert records.read("1", 10) == b"held"
    assert earlier.backend().state("dream-journal").exists()
    assert not (earlier.state / "quarantine").exists()


def test_a_repository_that_git_cannot_read_stays_and_a_new_history_begins(earlier: Earlier) -> None:
    earlier.commit("one", {"a.md": b"1"})
    for path in earlier.repository.glob("objects/??/*"):
        path.chmod(0o600)
        path.write_bytes(b"damaged")
    history = earlier.backend().revisions(lambda sentence: None)

    assert history.log() == []
    assert history.record({"a.md": b"2"}, Author("user"), "", 1.0)
    assert earlier.repository.exists(), "nothing is lost"


def test_a_purge_removes_a_repository_that_was_not_carried_over(
    earlier: Earlier, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier.commit("one", {"a.md": b"secret words"})
    monkeypatch.setattr(shutil, "which", lambda name: None)
    store = MemoryStore(earlier.backend(), SystemClock())
    store.add(type="user", name="a", description="d", body="secret words")
    assert earlier.repository.exists()

    store.purge("a")

    assert not earlier.repository.exists()


def test_a_purge_that_cannot_clean_the_file_removes_the_repository_too(
    earlier: Earlier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: HistoryFile) -> None:
        raise StorageFailure("the disk is full")

    earlier.commit("one", {"a.md": b"secret words"})
    monkeypatch.setattr(shutil, "which", lambda name: None)
    history = earlier.backend().revisions(lambda sentence: None)
    history.record({"a.md": b"secret words"}, Author("user"), "", 1.0)
    assert earlier.repository.exists()

    monkeypatch.setattr(HistoryFile, "erase_removed", fail)
    with pytest.raises(StorageFailure, match="disk is full"):
        history.purge("a.md")

    assert not earlier.repository.exists()


def test_a_process_that_died_before_the_folders_went_is_tidied_up_after(
    earlier: Earlier, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier.commit("one", {"a.md": b"1"})
    with monkeypatch.context() as dead:
        dead.setattr(shutil, "rmtree", lambda *given, **named: None)
        earlier.backend().revisions(lambda sentence: None).log()
    assert earlier.repository.exists()

    assert len(earlier.backend().revisions(lambda sentence: None).log()) == 1
    assert not earlier.repository.exists()
