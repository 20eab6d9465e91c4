"""Every way we know to lead memory out of its folder, and none of them does.

Around the folder lies a tree of canaries. After each attack it is byte for byte what it was, nothing
was added to it, and its secret was in nothing that came back.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sevenfold.core.errors import Mistake, Refused, SevenfoldError
from sevenfold.memory.backend import ConcurrentWrite
from sevenfold.memory.folder.files import FolderBackend, MemoryFiles
from sevenfold.memory.history.history import MemoryHistory
from sevenfold.memory.store import MemoryStore
from sevenfold.testing import FakeClock

SECRET = "the-canary-sings"

TRAVERSAL = [
    "../outside/secret.md",
    "../../outside/secret.md",
    "sub/../../outside/secret.md",
    "./../outside/secret.md",
    "sub/../../outside/new.md",
    "../memory-other/secret.md",
    "..",
    ".",
    "../",
    "/",
    "a/./../../outside/secret.md",
    "sub//../..//outside/secret.md",
    "/etc/passwd",
    "/etc/passwd.md",
    "//server/share/x.md",
    "~/secret.md",
    "~root/secret.md",
    "file:///etc/passwd.md",
    " ../outside/secret.md",
    "../outside/secret.md ",
]
ENCODED = [
    "%2e%2e%2foutside%2fsecret.md",
    "..%2foutside%2fsecret.md",
    "%2e%2e/outside/secret.md",
    "%252e%252e%252foutside%252fsecret.md",
    "..%c0%afoutside%c0%afsecret.md",
    "..%e0%80%afoutside/secret.md",
    "%u002e%u002e/outside/secret.md",
    "..%5coutside%5csecret.md",
    "a%00.md",
    "a.md%3astream",
]
LOOK_ALIKES = [
    "．．／outside／secret.md",
    "．．/outside/secret.md",
    "..／outside／secret.md",
    "‥/outside/secret.md",
    "․․/outside/secret.md",
    "…/outside/secret.md",
    "..∕outside∕secret.md",
    "..⁄outside⁄secret.md",
    "..⧸outside⧸secret.md",
    "..＼outside＼secret.md",
    "..﹨outside﹨secret.md",
    "..∖outside∖secret.md",
    "︰/outside/secret.md",
    "﹒﹒/outside/secret.md",
]
HIDDEN = [
    ".\u200b./outside/secret.md",
    "..\u200d/outside/secret.md",
    "..\ufeff/outside/secret.md",
    "safe\u202edm.secret.md",
    "\u2066../outside\u2069/secret.md",
    "sec\u00adret.md",
    "sec\u034fret.md",
    "sec\u3164ret.md",
    "a\ufe0f.md",
    "a\U000e0041.md",
    "a\0.md",
    "../outside/secret.md\0.md",
    "a\n../outside/secret.md",
    "a\r.md",
    "a\x1b[31m.md",
    "a\x7f.md",
    "a\u2028.md",
    "a\udc80.md",
]
WINDOWS = [
    "..\\outside\\secret.md",
    "sub\\..\\..\\outside\\secret.md",
    "C:\\outside\\secret.md",
    "C:/outside/secret.md",
    "C:secret.md",
    "\\\\server\\share\\x.md",
    "\\\\?\\C:\\secret.md",
    "\\secret.md",
    "a.md:stream",
    "a.md::$DATA",
    "CON.md",
    "nul.md",
    "aux.old.md",
    "COM1.md",
    "com¹.md",
    "LPT9.md",
    "CONIN$.md",
    "sub./a.md",
    "sub /a.md",
    "a.md.",
    "a.md ",
    " a.md",
]
MISNAMED = [
    "",
    ".hidden.md",
    ".memory.lock",
    ".git/config.md",
    "sub/.ssh/key.md",
    "memory.md",
    "Memory.MD",
    "sub/Memory.md",
    "notes.txt",
    "run.sh",
    "noending",
    ".md",
    "x" * 300 + ".md",
    "字" * 120 + ".md",
    "/".join(["d"] * 20) + "/a.md",
    "x" * 5000,
]
NAMES = TRAVERSAL + ENCODED + LOOK_ALIKES + HIDDEN + WINDOWS + MISNAMED


LOST = (SevenfoldError, FileNotFoundError, ConcurrentWrite)
"""How a write or a read ends that met the swapped folder."""


def shown(name: str) -> str:
    return ascii(name[:40])


@dataclass
class World:
    """A memory folder among things that are none of its business."""

    root: Path
    store: MemoryStore
    before: dict[str, bytes | str]

    @property
    def folder(self) -> Path:
        return self.root / "home" / "memory"

    @property
    def outside(self) -> Path:
        return self.root / "home" / "outside"

    def untouched(self) -> None:
        assert canaries(self.root) == self.before

    def kept_quiet(self, answer: object) -> None:
        assert SECRET not in repr(answer)


def canaries(root: Path) -> dict[str, bytes | str]:
    """All that is around the memory folder and its state, with what is in it."""
    found: dict[str, bytes | str] = {}
    ours = {str(root / "home" / "memory"), str(root / "state")}
    for place, folders, files in os.walk(root):
        folders[:] = [name for name in folders if str(Path(place, name)) not in ours]
        for name in (*folders, *files):
            path = Path(place, name)
            if str(path) in ours:
                continue
            kind: bytes | str = "folder"
            if path.is_symlink():
                kind = f"-> {path.readlink()}"
            elif path.is_file():
                kind = path.read_bytes()
            found[str(path.relative_to(root))] = kind
    return found


def world(root: Path) -> World:
    home = root / "home"
    for file in (
        "outside/secret.md",
        "outside/MEMORY.md",
        "outside/sub/secret.md",
        "outside/a.md",
        "memory-other/secret.md",
        "secret.md",
        "memory.md",
        "etc/passwd.md",
    ):
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        text = f"---\nname: {SECRET}\ndescription: {SECRET}\n---\n{SECRET}\n"
        (home / file).write_text(text, encoding="utf-8")
    store = MemoryStore(FolderBackend(home / "memory", root / "state"), FakeClock())
    store.add(type="user", name="a", description="an innocent memory", body="nothing to see")
    (home / "memory" / "sub").mkdir()
    (home / "memory" / "sub" / "b.md").write_text("below", encoding="utf-8")
    store.take_in()
    return World(root, store, canaries(root))


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> World:
    """One for all attacks by name: none of them leaves anything behind that another could trip over."""
    return world(tmp_path_factory.mktemp("names"))


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> World:
    """One in whose history no attack has left a name."""
    return world(tmp_path_factory.mktemp("pristine"))


@pytest.fixture
def own(tmp_path: Path) -> World:
    return world(tmp_path)


# --- attacks by name ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES, ids=shown)
def test_adding_under_a_hostile_name_stays_inside(common: World, name: str) -> None:
    try:
        saved = common.store.add(type="user", name=name, description="d", body="b")
    except Refused:
        pass
    else:
        assert saved.path.parent == common.folder, "a name never makes a folder"
        assert saved.path.read_bytes().endswith(b"b\n")
        common.store.remove(saved.path.name)
    common.untouched()


@pytest.mark.parametrize("name", sorted(set(TRAVERSAL + ENCODED) - {"file:///etc/passwd.md"}), ids=shown)
def test_a_name_that_is_a_way_out_is_refused_and_not_quietly_changed(common: World, name: str) -> None:
    with pytest.raises(Refused):
        common.store.add(type="user", name=name, description="d", body="b")


@pytest.mark.parametrize("name", NAMES, ids=shown)
def test_asking_for_a_hostile_name_finds_nothing(common: World, name: str) -> None:
    for ask in (common.store.get, common.store.history, common.store.diff):
        answer: object = None
        try:
            answer = ask(name)
        except Mistake as error:
            answer = error
        common.kept_quiet(answer)
    common.untouched()


@pytest.mark.parametrize("name", NAMES, ids=shown)
def test_changing_under_a_hostile_name_changes_nothing(pristine: World, name: str) -> None:
    before = {file: (pristine.folder / file).read_bytes() for file in ("a.md", "sub/b.md")}
    changes: list[Callable[[], object]] = [
        lambda: pristine.store.edit(name, body="changed"),
        lambda: pristine.store.remove(name),
        lambda: pristine.store.undo(name),
    ]
    if name.strip() != "a.md":  # spaces around a name are no attack
        for change in changes:
            with pytest.raises(Mistake):
                change()
    assert {file: (pristine.folder / file).read_bytes() for file in before} == before
    pristine.untouched()


@pytest.mark.parametrize("name", NAMES, ids=shown)
def test_a_tool_may_not_write_to_a_hostile_path(common: World, name: str) -> None:
    paths = [Path(name)]
    if not name.startswith("/"):  # behind a folder that is an ordinary path
        paths += [Path(f"{common.folder}/{name}"), Path(f"{common.folder}/sub/{name}")]
    for path in paths:
        with pytest.raises(Refused):
            common.store.before_write(path, b"text")
    common.untouched()


@pytest.mark.parametrize("name", NAMES, ids=shown)
@pytest.mark.parametrize("hold", [True, False], ids=["held", "by path"])
def test_no_file_is_reached_by_a_hostile_path(common: World, name: str, hold: bool) -> None:
    with MemoryFiles(common.folder, hold=hold).opened() as at:
        with contextlib.suppress(SevenfoldError, ValueError):
            data, _ = at.read(name)
            common.kept_quiet(data)
        with pytest.raises((Refused, ValueError)):
            at.write(name, b"text", None)
        with contextlib.suppress(SevenfoldError, ValueError):
            assert at.stamp(name) is None or name in (".memory.lock",)
    common.untouched()


# --- links in every position --------------------------------------------------------------------------


def lead(path: Path, target: Path | str) -> None:
    """Put a link where something else was."""
    if path.is_dir() and not path.is_symlink():
        path.rename(path.with_name(path.name + ".real"))
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def chain(w: World) -> None:
    lead(w.folder / "x.md", w.outside / "secret.md")
    lead(w.folder / "a.md", "x.md")


def above(w: World) -> None:
    (w.root / "home").rename(w.root / "real")
    (w.root / "home").symlink_to("real/outside")


LINKS: dict[str, Callable[[World], None]] = {
    "a topic file": lambda w: lead(w.folder / "a.md", w.outside / "secret.md"),
    "a topic file, relative": lambda w: lead(w.folder / "a.md", "../outside/secret.md"),
    "a topic file, dangling": lambda w: lead(w.folder / "a.md", w.outside / "new.md"),
    "a topic file, in a circle": lambda w: lead(w.folder / "a.md", "a.md"),
    "a chain": chain,
    "a new topic file": lambda w: lead(w.folder / "new.md", w.outside / "new.md"),
    "the index": lambda w: lead(w.folder / "MEMORY.md", w.outside / "MEMORY.md"),
    "the index, dangling": lambda w: lead(w.folder / "MEMORY.md", w.outside / "new.md"),
    "a folder below": lambda w: lead(w.folder / "sub", w.outside),
    "a folder below, relative": lambda w: lead(w.folder / "sub", "../outside"),
    "a folder deeper": lambda w: lead(w.folder / "sub" / "sub", w.outside / "sub"),
    "the folder of the team": lambda w: lead(w.folder / "team", w.outside),
    "the folder of the logs": lambda w: lead(w.folder / "logs", w.outside),
    "the lock": lambda w: lead(w.folder / ".memory.lock", w.outside / "lock"),
    "the folder itself": lambda w: lead(w.folder, w.outside),
    "the folder above": above,
}

DEEDS: dict[str, Callable[[World], object]] = {
    "add": lambda w: w.store.add(type="user", name="new", description="d", body="b"),
    "add again": lambda w: w.store.add(type="user", name="a", description="d", body="b"),
    "get": lambda w: w.store.get("a"),
    "get a file": lambda w: w.store.get("sub/secret.md"),
    "edit": lambda w: w.store.edit("a", body="changed"),
    "edit below": lambda w: w.store.edit("sub/b.md", body="changed"),
    "edit through": lambda w: w.store.edit("sub/secret.md", body="changed"),
    "remove": lambda w: w.store.remove("a"),
    "remove through": lambda w: w.store.remove("sub/secret.md"),
    "purge": lambda w: w.store.purge("a"),
    "undo": lambda w: w.store.undo(),
    "take in": lambda w: w.store.take_in(),
    "topics": lambda w: w.store.topics(),
    "index": lambda w: (w.store.index_text(), w.store.loaded_index()),
    "recall": lambda w: w.store.recall(SECRET),
    "write a file": lambda w: w.store.before_write(w.folder / "a.md", b"text"),
    "write below": lambda w: w.store.before_write(w.folder / "sub" / "secret.md", b"text"),
    "write the index": lambda w: w.store.before_write(w.folder / "MEMORY.md", b"text"),
    "write for the team": lambda w: w.store.before_write(w.folder / "team" / "a.md", b"text"),
}


@pytest.mark.parametrize("where", LINKS)
def test_a_link_leads_nowhere(own: World, where: str) -> None:
    LINKS[where](own)
    before = canaries(own.root)
    for name, deed in DEEDS.items():
        try:
            answer = deed(own)
        except SevenfoldError as error:
            answer = error
        own.kept_quiet(answer)
        assert canaries(own.root) == before, name
    own.kept_quiet(past(own))


@pytest.mark.parametrize("where", ["a folder below", "the folder of the team", "a topic file"])
def test_a_tool_is_told_that_there_is_a_link_on_its_way(own: World, where: str) -> None:
    LINKS[where](own)
    paths = {
        "a folder below": "sub/secret.md",
        "the folder of the team": "team/a.md",
        "a topic file": "a.md",
    }
    with pytest.raises(Refused, match="symbolic link"):
        own.store.before_write(own.folder / paths[where], b"text")


def test_a_folder_that_is_a_link_is_refused_with_the_reason(own: World) -> None:
    LINKS["the folder itself"](own)
    for deed in (own.store.topics, own.store.take_in, own.store.index_text):
        with pytest.raises(Refused, match="symbolic link"):
            deed()


def test_links_above_the_folder_that_the_user_made_are_fine(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "home").symlink_to("disk")
    store = MemoryStore(FolderBackend(tmp_path / "home" / "memory", tmp_path / "state"), FakeClock())
    saved = store.add(type="user", name="a", description="d", body="b")
    assert saved.path == tmp_path / "home" / "memory" / "a.md"
    assert (tmp_path / "disk" / "memory" / "a.md").is_file()


def past(w: World) -> list[dict[str, bytes]]:
    """All that was ever recorded."""
    history = MemoryHistory(w.root / "state" / "history.sqlite")
    return [history.at(revision.id) for revision in history.log(limit=1000)]


# --- races --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def swapped(path: Path, target: Path) -> Iterator[None]:
    """Meanwhile another process swaps this path for a link to the target, and back, and again."""
    script = Path(__file__).with_name("swapping.py")
    command = [sys.executable, str(script), str(path), str(target)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            yield
        finally:
            process.kill()


RACES: dict[str, tuple[str, str]] = {
    "a folder below": ("home/memory/sub", "home/outside"),
    "the folder itself": ("home/memory", "home/outside"),
    "a topic file": ("home/memory/a.md", "home/outside/secret.md"),
    "the index": ("home/memory/MEMORY.md", "home/outside/MEMORY.md"),
    "the lock": ("home/memory/.memory.lock", "home/outside/lock"),
}


def deeds(store: MemoryStore, text: str) -> list[Callable[[], object]]:
    return [
        lambda: store.edit("sub/b.md", body=text),
        lambda: store.edit("a", body=text),
        lambda: store.add(type="user", name="n", description="d", body=text),
        store.topics,
        store.index_text,
        lambda: store.get("sub/secret.md"),
        lambda: store.recall(SECRET),
    ]


@pytest.mark.parametrize("where", RACES)
def test_a_link_swapped_in_at_any_moment_leads_nowhere(own: World, where: str) -> None:
    path, target = (own.root / each for each in RACES[where])
    with swapped(path, target):
        for number in range(15):
            for deed in deeds(own.store, str(number)):
                with contextlib.suppress(SevenfoldError):
                    own.kept_quiet(deed())
    now = canaries(own.root)
    for name, content in own.before.items():
        assert now[name] == content, name
    for name in now.keys() - own.before.keys():
        assert not name.startswith("home/outside/"), f"{name} was written outside"
    own.kept_quiet(past(own))


def test_thousands_of_bare_writes_against_a_swapped_folder_stay_inside(own: World) -> None:
    """The same without the store on top: many more moments."""
    files = MemoryFiles(own.folder)
    inside = 0
    with swapped(own.folder / "sub", own.outside):
        for number in range(1_500):
            with contextlib.suppress(*LOST), files.opened() as at:
                name = f"sub/n{number % 7}.md"
                at.write(name, b"text", at.stamp(name), lasting=False)
                inside += 1
            with contextlib.suppress(*LOST), files.opened() as at:
                own.kept_quiet(at.read("sub/secret.md")[0])
            with contextlib.suppress(*LOST), files.opened() as at:
                assert "sub/secret.md" not in at.list().files
    assert inside > 0, "some of them had a folder to write to"
    own.untouched()


def test_there_are_at_least_two_hundred_cases() -> None:
    assert len(NAMES) * 6 + len(LINKS) * len(DEEDS) + len(RACES) > 800
