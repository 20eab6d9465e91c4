"""Cleaning up: what is too old or too much goes, and nothing that anybody could still need."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.core.events import Event, Notice
from sevenfold.core.messages import Message, Text, ToolResult, ToolUse, assistant
from sevenfold.core.transcript import FORMAT, Mark, Pin, Replace, Reply, Results, Transcript
from sevenfold.session.session import Session
from sevenfold.storage.cleanup import (
    DAY,
    LARGEST,
    STAMP,
    CleanupReport,
    DailyCleanup,
    StorageLimits,
    StoredFile,
    clean_project,
    is_due,
)
from sevenfold.storage.files import TEMPORARY
from sevenfold.storage.jsonl import JsonlLog, read_log
from sevenfold.storage.places import ProjectPaths, find_places, remove_session
from sevenfold.storage.results import ResultStore
from sevenfold.storage.waiting_notes import WaitingFolder
from sevenfold.testing import FakeClock, ScriptedModel

NOW = 1_800_000_000.0
MONTH = StorageLimits(days=30, megabytes=1_000)
UNFINISHED = f"{TEMPORARY}0123456789abcdef"


@dataclass
class Project:
    """A project's folder with sessions in it, written by the parts that really write them."""

    folder: Path

    def session(
        self, n: int = 1, *results: str, days: float = 0, pointing: bool = True, size: int = 1_000
    ) -> str:
        """A session with one stored result for each id, all of it so many days old."""
        session = f"20260101-00000000{n}-aaaaaa"
        store, shown = self.store(session), {}
        for id in results:
            path = store.keep(id, id[:1] * size)
            shown[id] = f"[the output is in {path}]" if pointing else "done"
        with JsonlLog(self.folder / f"{session}.jsonl") as log:
            t = Transcript(lambda: 1.0, log.append)
            t.add(Mark("session", {"format": FORMAT, "id": session}), by="session")
            t.add(Message("user", (Text("look"),)))
            if shown:
                t.add(
                    Reply(assistant(*(ToolUse(id, "Bash", {}) for id in shown)), stop="tool_use"),
                    by="model",
                )
                answers = tuple(ToolResult(id, text) for id, text in shown.items())
                t.add(Message("user", answers), by="tools")
        self.age(session, days)
        return session

    def store(self, session: str) -> ResultStore:
        return ResultStore(lambda: self.folder / session / "tool-results")

    def result(self, session: str, id: str) -> Path:
        found = self.store(session).find(id)
        assert found is not None
        return found

    def transcript(self, session: str) -> Path:
        return self.folder / f"{session}.jsonl"

    def add(self, session: str, *whats: object) -> None:
        """Go on with a session; it looks as old as before."""
        path = self.transcript(session)
        stat = path.stat()
        with JsonlLog(path) as log:
            t = Transcript.load(log.read(), lambda: 2.0, log.append)
            t.add(*whats, by="Digest")  # type: ignore[arg-type]
        os.utime(path, (stat.st_atime, stat.st_mtime))

    def age(self, session: str, days: float) -> None:
        for path in [self.transcript(session), *(self.folder / session).rglob("*")]:
            if path.exists():
                touch(path, days)

    def clean(self, limits: StorageLimits = MONTH, **options: object) -> CleanupReport:
        return clean_project(self.folder, NOW, limits, **options)  # type: ignore[arg-type]

    @property
    def all(self) -> list[str]:
        files = (p for p in self.folder.rglob("*") if not p.is_dir() or p.is_symlink())
        return sorted(str(p.relative_to(self.folder)) for p in files)


def touch(path: Path, days: float) -> None:
    at = NOW - days * DAY
    os.utime(path, (at, at), follow_symlinks=False)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = tmp_path / "projects" / "slug"
    folder.mkdir(parents=True)
    return Project(folder)


def test_words_that_wait_for_an_extraction_are_kept_however_old(project: Project) -> None:
    old, waiting = project.session(1, days=90), project.session(2, "a", days=90)
    notes = WaitingFolder(project.folder)
    notes.write(waiting, 0)

    done = project.clean()

    assert done.sessions == (old,)
    assert done.in_use > 0
    assert project.transcript(waiting).exists()
    notes.remove(waiting)
    assert project.clean().sessions == (waiting,)


def test_a_session_nobody_has_touched_goes_with_all_that_belongs_to_it(project: Project) -> None:
    old, new = project.session(1, "a", "b", days=31), project.session(2, "c", days=29)
    for name in ("shells/shell-abcd1234.txt", "session-memory/summary.md", "agents/x.jsonl"):
        path = project.folder / old / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x", encoding="utf-8")
    for end in (".torn", ".lock"):
        project.transcript(old).with_name(f"{old}.jsonl{end}").write_text("x", encoding="utf-8")
    project.age(old, 31)

    done = project.clean()

    assert project.all == [f"{new}.jsonl", f"{new}/tool-results/c.txt"]
    assert not (project.folder / old).exists()
    assert done.sessions == (old,)
    assert (done.files, done.in_use, done.problems) == (8, 0, ())
    assert done.removed[0] == f"{old}.jsonl", "the transcript goes first"


def test_the_memory_of_a_project_is_never_looked_at(project: Project) -> None:
    for name in ("memory/old.md", f"memory/{UNFINISHED}", "memory/tool-results/a.txt"):
        path = project.folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("x", encoding="utf-8")
        touch(path, 9_999)

    assert project.clean(StorageLimits(days=1, megabytes=0)) == CleanupReport()
    assert len(project.all) == 3


def test_what_a_view_points_to_survives_age_and_quota(project: Project) -> None:
    kept = project.session(1, "a", "b", days=400)
    touch(project.transcript(kept), 1)
    before = project.all

    done = project.clean(StorageLimits(days=30, megabytes=0))

    assert project.all == before
    assert (done.files, done.in_use, done.problems) == (0, 2, ())


def test_what_no_view_points_to_goes_by_age(project: Project) -> None:
    session = project.session(1, "old", "new", pointing=False)
    touch(project.result(session, "old"), 31)
    touch(project.result(session, "new"), 29)

    done = project.clean()

    assert project.all == [f"{session}.jsonl", f"{session}/tool-results/new.txt"]
    assert done.removed == (f"{session}/tool-results/old.txt",)
    assert done.bytes == 1_000
    assert done.sessions == ()


def test_over_the_quota_the_oldest_go_first_whichever_session_they_are_of(project: Project) -> None:
    one = project.session(1, "a", "b", pointing=False, size=400_000)
    two = project.session(2, "c", "d", pointing=False, size=400_000)
    for days, (session, id) in enumerate([(two, "d"), (one, "b"), (two, "c"), (one, "a")]):
        touch(project.result(session, id), days)

    done = project.clean(StorageLimits(megabytes=1))

    assert done.removed == (f"{one}/tool-results/a.txt", f"{two}/tool-results/c.txt")
    assert done.bytes == 800_000


def test_those_that_are_pointed_to_count_for_the_quota_and_the_next_oldest_goes_instead(
    project: Project,
) -> None:
    needed = project.session(1, "a", size=600_000, days=20)
    loose = project.session(2, "b", "c", pointing=False, size=300_000)
    touch(project.result(loose, "b"), 10)
    touch(project.result(loose, "c"), 5)

    done = project.clean(StorageLimits(megabytes=1))

    assert done.removed == (f"{loose}/tool-results/b.txt",)
    assert done.in_use == 1
    assert project.result(needed, "a").exists()


def test_a_pointer_that_was_compacted_away_holds_nothing_any_more(project: Project) -> None:
    session = project.session(1, "a", days=31)
    touch(project.transcript(session), 1)
    view = Transcript.load(read_log(project.transcript(session)), lambda: 0.0).view
    first, last = view[0].id, view[len(view) - 1].id
    summary = Message("user", (Text("what was said so far"),))
    project.add(session, Replace(first, last, (summary,)))

    assert project.clean().removed == (f"{session}/tool-results/a.txt",)


@pytest.mark.parametrize(
    "pointing",
    [
        lambda path, at: Results({"a": f"[cleared; see {path}.]"}),
        lambda path, at: Message("user", (Text(f"it is in ({path})"),)),
        lambda path, at: Message("user", (ToolResult("z", (Text(f"a/{path.name}"),)),)),
        lambda path, at: Pin(at, {"kept": str(path)}),
    ],
    ids=["a marker", "a text", "a block in a result", "a pin"],
)
def test_it_does_not_matter_how_a_pointer_is_written(project: Project, pointing: object) -> None:
    session = project.session(1, "a", pointing=False)
    view = Transcript.load(read_log(project.transcript(session)), lambda: 0.0).view
    project.add(session, pointing(project.result(session, "a"), view[0].id))  # type: ignore[operator]
    project.age(session, 40)
    touch(project.transcript(session), 1)

    assert project.clean().in_use == 1
    assert project.result(session, "a").exists()


def test_what_a_sub_agent_or_the_notes_point_to_stays_too(project: Project) -> None:
    session = project.session(1, "a", "b", "c", pointing=False)
    agents, notes = (project.folder / session / n for n in ("agents", "session-memory"))
    agents.mkdir()
    notes.mkdir()
    with JsonlLog(agents / "helper-1.jsonl") as log:
        t = Transcript(lambda: 1.0, log.append)
        t.add(Message("user", (Text(f"see {project.result(session, 'a')}"),)))
    (notes / "summary.md").write_text("the list is in b.txt", encoding="utf-8")
    project.age(session, 40)
    touch(project.transcript(session), 1)

    assert project.clean().removed == (f"{session}/tool-results/c.txt",)


@given(id=st.text(min_size=1, max_size=120), kind=st.booleans())
def test_every_name_the_store_gives_is_known_as_a_stored_result(
    tmp_path_factory: pytest.TempPathFactory, id: str, kind: bool
) -> None:
    store = ResultStore(lambda: tmp_path_factory.getbasetemp() / "names")
    content = (Text("block"),) if kind else "text"
    for again in range(3):
        path = store.keep(id, f"{content}{again}" if isinstance(content, str) else content)

        one = StoredFile("s", f"tool-results/{path.name}", 1, 0.0)

        assert one.stored
        assert one.ours


# --- what is left alone -------------------------------------------------------------------------------

_HOLD = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from sevenfold.storage.jsonl import JsonlLog
    log = JsonlLog(Path(sys.argv[1]))
    print("held", flush=True)
    sys.stdin.read()
    """
)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Somebody has this session open: another process."""
    child = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin
    assert child.stdout
    try:
        assert child.stdout.readline() == b"held\n"
        yield
    finally:
        child.communicate(timeout=60)


def test_nothing_of_an_open_session_is_touched(project: Project) -> None:
    session = project.session(1, "a", "b", pointing=False, days=400)
    (project.folder / session / UNFINISHED).write_bytes(b"x")
    project.age(session, 400)
    before = project.all
    with held(project.transcript(session)):
        done = project.clean(StorageLimits(days=1, megabytes=0))

        assert [name for name in project.all if not name.endswith(".lock")] == before
        assert (done.files, done.in_use, done.problems) == (0, 4, ())

    assert project.clean(StorageLimits(days=1, megabytes=0)).sessions == (session,)
    assert project.all == []


def test_nothing_of_the_current_session_is_touched(project: Project) -> None:
    session = project.session(1, "a", pointing=False, days=400)
    project.transcript(session).unlink()  # not even begun
    before = project.all

    done = project.clean(StorageLimits(days=1, megabytes=0), current=session)

    assert (project.all, done.files, done.in_use) == (before, 0, 1)


def test_a_damaged_transcript_saves_everything_that_is_its_own(project: Project) -> None:
    session = project.session(1, "a", pointing=False, days=400)
    path = project.transcript(session)
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], b'{"id": 1, "what": {"ty', *lines[2:]]))
    before = project.all
    for days, transcript_days in ((400, 400), (400, 1)):
        project.age(session, days)
        touch(path, transcript_days)

        done = project.clean(StorageLimits(days=30, megabytes=0))

        assert (project.all, done.files) == (before, 0)
        [problem] = done.problems
        assert f"{session}.jsonl:2 cannot be read" in problem
        assert f"nothing of session {session} was removed" in problem


def test_a_line_that_a_crash_left_torn_is_no_damage(project: Project) -> None:
    session = project.session(1, "a", pointing=False, days=400)
    with project.transcript(session).open("ab") as file:
        file.write(b'{"id": 99, "wh')
    touch(project.transcript(session), 400)

    assert project.clean().sessions == (session,)


@pytest.mark.parametrize(
    "first",
    [
        b'{"type":"user","uuid":"1","message":{"role":"user","content":"hi"}}',
        b'{"id":0,"at":1,"what":{"type":"mark","name":"session","value":{"format":99}}}',
        b'{"id":0,"at":1,"what":{"type":"mark","name":"other","value":{"format":1}}}',
        b'{"id":0,"at":1,"what":{"type":"mark","name":"session","value":7}}',
        b"not even JSON",
        b"",
    ],
)
def test_a_transcript_that_is_not_ours_stays_with_its_folder(project: Project, first: bytes) -> None:
    session = project.session(1, "a", pointing=False, days=400)
    project.transcript(session).write_bytes(first + b"\n")
    before = project.all
    for days in (400, 1):
        touch(project.transcript(session), days)

        assert project.clean(StorageLimits(days=30, megabytes=0)).files == 0

    assert project.all == before


def test_unknown_files_stay_and_so_does_their_folder(project: Project) -> None:
    session = project.session(1, "a")
    strange = ["notes.txt", "tool-results/a.txt.bak", "tool-results/.a.txt", "tool-results/x y.txt"]
    for name in strange:
        (project.folder / session / name).write_text("x", encoding="utf-8")
    (project.folder / "README.txt").write_text("x", encoding="utf-8")
    project.age(session, 400)
    touch(project.folder / "README.txt", 400)

    done = project.clean()

    assert project.all == sorted(["README.txt", *(f"{session}/{name}" for name in strange)])
    assert done.sessions == (session,)


def test_a_session_in_whose_folder_somebody_works_is_not_untouched(project: Project) -> None:
    session = project.session(1, days=400)
    (project.folder / session).mkdir()
    (project.folder / session / "todo.txt").write_text("x", encoding="utf-8")
    touch(project.folder / session / "todo.txt", 2)

    assert project.clean().files == 0


def test_results_without_a_transcript_go_only_when_they_cannot_be_new(project: Project) -> None:
    session = project.session(1, "a", "b")
    project.transcript(session).unlink()
    touch(project.result(session, "a"), 2)
    touch(project.result(session, "b"), 0.5)

    done = project.clean(StorageLimits(megabytes=0))

    assert done.removed == (f"{session}/tool-results/a.txt",)
    project.age(session, 31)
    assert project.clean().files == 1
    assert not (project.folder / session).exists()


def test_a_folder_that_only_looks_like_a_session_stays(project: Project) -> None:
    path = project.folder / "not-a-session" / "tool-results" / "a.txt"
    path.parent.mkdir(parents=True)
    path.write_text("x", encoding="utf-8")
    touch(path, 400)

    assert project.clean(StorageLimits(megabytes=0)).files == 0


def test_no_link_is_followed_and_none_is_removed(project: Project, tmp_path: Path) -> None:
    outside = tmp_path / "precious"
    (outside / "tool-results").mkdir(parents=True)
    for name in ("tool-results/p.txt", "q.txt", "r.jsonl"):
        (outside / name).write_text("x", encoding="utf-8")
        touch(outside / name, 400)
    one, two, three = (project.session(n, days=400) for n in (1, 2, 3))
    (project.folder / one).symlink_to(outside)
    (project.folder / two).mkdir()
    (project.folder / two / "tool-results").symlink_to(outside / "tool-results")
    (project.folder / three / "tool-results").mkdir(parents=True)
    link = project.folder / three / "tool-results" / "q.txt"
    link.symlink_to(outside / "q.txt")
    (project.folder / "20260101-000000009-aaaaaa.jsonl").symlink_to(outside / "r.jsonl")
    before = sorted(p.name for p in outside.rglob("*"))

    done = project.clean(StorageLimits(days=1, megabytes=0))

    assert sorted(p.name for p in outside.rglob("*")) == before
    assert set(done.sessions) == {one, two, three}
    assert link.is_symlink()
    assert len([n for n in project.all if (project.folder / n).is_symlink()]) == 4


def test_a_project_folder_that_is_a_link_is_not_cleaned(project: Project, tmp_path: Path) -> None:
    project.session(1, days=400)
    link = tmp_path / "link"
    link.symlink_to(project.folder)

    done = clean_project(link, NOW, MONTH)

    assert done.files == 0
    assert "symbolic link" in done.problems[0]


def test_a_project_that_is_not_there_is_clean(tmp_path: Path) -> None:
    assert clean_project(tmp_path / "none", NOW, MONTH) == CleanupReport()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is refused to root")
def test_what_cannot_be_removed_is_a_problem_and_the_rest_goes(project: Project) -> None:
    session = project.session(1, "a", pointing=False, days=400)
    other = project.session(2, "b", pointing=False, days=400)
    for one in (session, other):
        touch(project.transcript(one), 1)
    (project.folder / session / "tool-results").chmod(0o500)

    done = project.clean()

    (project.folder / session / "tool-results").chmod(0o700)
    assert done.removed == (f"{other}/tool-results/b.txt",)
    [problem] = done.problems
    assert "a.txt could not be removed: permission denied" in problem


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is refused to root")
@pytest.mark.parametrize("what", ["transcript", "folder"])
def test_of_what_cannot_be_read_nothing_is_removed(project: Project, what: str) -> None:
    session = project.session(1, "a", pointing=False, days=400)
    unreadable = project.transcript(session) if what == "transcript" else project.folder / session
    mode = unreadable.stat().st_mode
    before = project.all
    unreadable.chmod(0)

    done = project.clean(StorageLimits(days=1, megabytes=0))

    unreadable.chmod(mode)
    assert (project.all, done.files) == (before, 0)
    assert "permission denied" in done.problems[0]
    assert f"nothing of session {session} was removed" in done.problems[0]


def test_a_folder_that_becomes_a_link_while_we_work_is_not_followed(
    project: Project, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "a.txt").write_text("x", encoding="utf-8")
    session = project.session(1, "a", pointing=False, days=40)
    other = project.session(2, "b", pointing=False, days=40)
    for one in (session, other):
        touch(project.transcript(one), 1)
    results = project.folder / session / "tool-results"

    def stop() -> bool:
        if not results.is_symlink():
            results.rename(tmp_path / "moved")
            results.symlink_to(precious)
        return False

    done = project.clean(stop=stop)

    assert (precious / "a.txt").exists()
    assert done.removed == (f"{other}/tool-results/b.txt",)
    [problem] = done.problems
    assert "a.txt could not be removed" in problem


@pytest.mark.parametrize("what", ["too large", "a folder", "a pipe"])
def test_a_transcript_that_cannot_be_looked_into_saves_all_that_is_its_own(
    project: Project, what: str
) -> None:
    session = project.session(1, "a", pointing=False, days=400)
    path = project.transcript(session)
    if what == "too large":
        os.truncate(path, LARGEST + 1)
    else:
        path.unlink()
        path.mkdir() if what == "a folder" else os.mkfifo(path)
    touch(path, 400)

    done = project.clean(StorageLimits(days=1, megabytes=0))

    assert done.files == 0
    assert project.result(session, "a").exists()
    assert bool(done.problems) == (what == "too large")


def test_a_dry_run_tells_the_same_and_changes_nothing(project: Project) -> None:
    project.session(1, "a", days=400)
    loose = project.session(2, "b", "c", pointing=False, days=40)
    touch(project.transcript(loose), 1)
    (project.folder / UNFINISHED).write_bytes(b"x")
    touch(project.folder / UNFINISHED, 2)
    before = [(name, (project.folder / name).stat().st_mtime_ns) for name in project.all]

    dry = project.clean(dry_run=True)

    assert [(name, (project.folder / name).stat().st_mtime_ns) for name in project.all] == before
    assert dry.files == 5
    assert project.clean() == dry
    assert project.all == [f"{loose}.jsonl"]


def test_what_a_crash_left_unfinished_goes_after_a_day(project: Project) -> None:
    session = project.session(1, "a")
    for folder in (project.folder, project.folder / session / "tool-results"):
        for name, days in ((UNFINISHED, 1.1), (f"{TEMPORARY}{'f' * 16}", 0.9)):
            (folder / name).write_bytes(b"x")
            touch(folder / name, days)
        (folder / f"{TEMPORARY}mine").write_bytes(b"x")
        touch(folder / f"{TEMPORARY}mine", 99)

    done = project.clean()

    assert done.removed == (UNFINISHED, f"{session}/tool-results/{UNFINISHED}")


def test_only_sessions_that_could_lose_something_are_read(project: Project) -> None:
    quiet, loud = project.session(1, "a"), project.session(2, "b", pointing=False, days=40)
    touch(project.transcript(loud), 1)
    # Reading it would be a problem to report.
    data = project.transcript(quiet).read_bytes()
    project.transcript(quiet).write_bytes(data + b'{"id": 1, "wh\n')

    done = project.clean()

    assert (done.files, done.problems) == (1, ())


def test_ten_thousand_files_are_no_trouble(project: Project) -> None:
    sessions = [project.session(n, "a", pointing=False) for n in range(1, 6)]
    for session in sessions:
        folder = project.folder / session / "tool-results"
        for n in range(2_000):
            path = folder / f"toolu_{n:04}.txt"
            path.write_bytes(b"0123456789")
            touch(path, n % 60)

    done = project.clean()

    assert done.files == sum(n % 60 > 30 for n in range(2_000)) * len(sessions)
    assert done.problems == ()


# --- with real sessions -------------------------------------------------------------------------------


class World:
    """Real sessions in a project of their own."""

    def __init__(self, folder: Path, clock: FakeClock) -> None:
        self.root, self.home, self.clock = folder / "work", folder / "home", clock
        self.root.mkdir()
        self.environ = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
        self.events: list[Event] = []

    def session(self, model: ScriptedModel, resume: str | None = None) -> Session:
        return Session(
            model, self.root, resume=resume, home=self.home, environ=self.environ, clock=self.clock
        )

    @property
    def places(self) -> ProjectPaths:
        return find_places(self.root, self.home)

    def cleanup(
        self, current: str = "", limits: StorageLimits = MONTH, others: StorageLimits | None = None
    ) -> DailyCleanup:
        known = self.places.project, current, limits, others
        return DailyCleanup(*known, self.clock, self.events.append)

    def other(self, name: str, *, ours: bool = True) -> Project:
        """A project that nobody opens any more."""
        folder = self.home / "projects" / name
        folder.mkdir(parents=True)
        if ours:
            (folder / "root.json").write_text('{"root": "/gone"}', encoding="utf-8")
        return Project(folder)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, FakeClock(NOW))


@pytest.mark.anyio
async def test_a_session_resumed_after_a_clean_up_works_and_its_pointers_still_read(world: World) -> None:
    whole = "".join(f"line {n}\n" for n in range(9_000))
    async with world.session(ScriptedModel(["Hello."])) as session:
        await session.ask("hello")
        id, store = session.id, ResultStore(lambda: session.folder / "tool-results")
        path = store.keep("toolu_1", whole)
        store.keep("toolu_2", "nobody points here")
        session.turn.transcript.add(Message("user", (Text(f"<kept in {path}>"),)), by="tools")
    for file in path.parent.iterdir():
        touch(file, 99)
    touch(session.path, 1)

    done = clean_project(world.places.project, NOW, StorageLimits(days=30, megabytes=0))

    assert done.removed == (f"{id}/tool-results/toolu_2.txt",)
    read = assistant(ToolUse("r", "Read", {"file_path": str(path), "offset": 8_999, "limit": 1}))
    async with world.session(ScriptedModel([read, "It is line 8998."]), resume=id) as session:
        reply = await session.ask("what is the last line?")
        [result] = session.view[len(session.view) - 2].message.results
    assert reply.message.text == "It is line 8998."
    assert "line 8998" in result.text
    assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(whole.encode()).digest()


@pytest.mark.anyio
async def test_it_runs_once_a_day_and_remembers_across_processes(world: World) -> None:
    project = Project(world.places.project)
    project.folder.mkdir(parents=True)
    for hours, removed in ((0, 1), (1, 0), (23.9, 0), (24.1, 1)):
        session = project.session(1, days=400)
        world.clock.time = NOW + hours * 3600

        assert await world.cleanup()() == ()

        assert project.transcript(session).exists() != bool(removed), hours
    assert (project.folder / STAMP).stat().st_mode & 0o777 == 0o600


@pytest.mark.anyio
async def test_projects_that_nobody_opens_are_cleaned_too_each_once_a_day(world: World) -> None:
    first, second = world.other("a"), world.other("b")
    stranger = world.other("c", ours=False)
    kept = stranger.session(1, days=400)
    for hours, removed in ((0, 1), (23.9, 0), (24.1, 1)):
        sessions = [(one, one.session(1, days=400)) for one in (first, second)]
        world.clock.time = NOW + hours * 3600

        await world.cleanup(others=MONTH)()

        for project, session in sessions:
            assert project.transcript(session).exists() != bool(removed), hours
    assert stranger.transcript(kept).exists(), "nobody has said that this folder is ours"
    assert world.events == []


@pytest.mark.anyio
async def test_what_one_project_keeps_for_a_short_time_others_keep_for_theirs(world: World) -> None:
    own, other = Project(world.places.project), world.other("a")
    own.folder.mkdir(parents=True)
    mine, theirs = own.session(1, days=10), other.session(1, days=10)

    await world.cleanup(limits=StorageLimits(days=7), others=MONTH)()

    assert not own.transcript(mine).exists()
    assert other.transcript(theirs).exists()


@pytest.mark.anyio
async def test_a_session_cleans_other_projects_by_the_users_own_settings(world: World) -> None:
    other = world.other("a")
    (world.home / "settings.json").write_text('{"cleanupDays": 20}', encoding="utf-8")
    old, young = other.session(1, days=25), other.session(2, days=15)
    session = Session(
        ScriptedModel([]),
        world.root,
        home=world.home,
        environ=world.environ,
        clock=world.clock,
        settings={"cleanupDays": 1},
    )
    async with session:
        await session.tray.drain(60)

    assert not other.transcript(old).exists()
    assert other.transcript(young).exists(), "what one session says is said for its project alone"


@pytest.mark.anyio
async def test_beside_a_real_session_it_leaves_that_session_alone(world: World) -> None:
    project = Project(world.places.project)
    async with world.session(ScriptedModel(["Hello."])) as session:
        await session.ask("hello")
        old = project.session(1, days=400)
        touch(session.path, 400)
        await session.tray.drain(60)
        (project.folder / STAMP).unlink(missing_ok=True)  # the session has looked when it began
        session.tray.start("clean-up", world.cleanup(session.id))
        await session.tray.drain(60)

        assert not project.transcript(old).exists()
        assert session.path.exists()
    assert world.events == []


@pytest.mark.anyio
async def test_what_went_wrong_is_said_in_one_sentence(world: World) -> None:
    project = Project(world.places.project)
    project.folder.mkdir(parents=True)
    for n in (1, 2):
        session = project.session(n, days=400)
        with project.transcript(session).open("ab") as file:
            file.write(b"{damaged\n")
        touch(project.transcript(session), 400)

    await world.cleanup()()

    [notice] = world.events
    assert isinstance(notice, Notice)
    assert notice.level == "warning"
    assert "cannot be read" in notice.text
    assert "(and 1 more: 'sevenfold sessions clean' lists them)" in notice.text


@pytest.mark.anyio
async def test_stopped_it_leaves_the_rest_to_the_next_session(world: World) -> None:
    project = Project(world.places.project)
    project.folder.mkdir(parents=True)
    session = project.session(1, days=400)
    cleanup = world.cleanup()
    cleanup.stop()

    await cleanup()

    assert project.transcript(session).exists()
    assert is_due(project.folder, NOW)


@pytest.mark.anyio
async def test_it_can_be_cancelled(world: World) -> None:
    project = Project(world.places.project)
    project.folder.mkdir(parents=True)
    project.session(1, days=400)

    with anyio.CancelScope() as scope:
        scope.cancel()
        await world.cleanup()()

    assert scope.cancelled_caught


def test_a_stamp_from_the_future_does_not_stop_it_for_ever(project: Project) -> None:
    (project.folder / STAMP).touch()
    touch(project.folder / STAMP, -400)

    assert is_due(project.folder, NOW)


def test_a_session_removed_by_hand_while_it_is_being_cleaned_is_no_problem(
    project: Project, tmp_path: Path
) -> None:
    one, two = project.session(1, days=400), project.session(2, days=400)
    places = ProjectPaths(tmp_path, tmp_path, tmp_path, "slug", project.folder)
    asked = iter(range(9))

    def stop() -> bool:
        if next(asked) == 1:  # after the first of them
            remove_session(places, two)
        return False

    done = project.clean(stop=stop)

    assert (done.sessions, done.problems) == ((one,), ())


def test_a_session_that_was_used_since_we_looked_stays(project: Project) -> None:
    one, two = project.session(1, days=400), project.session(2, days=400)
    asked = iter(range(9))

    def stop() -> bool:
        if next(asked) == 1:
            touch(project.transcript(two), 0)
        return False

    done = project.clean(stop=stop)

    assert (done.sessions, done.in_use) == ((one,), 1)
