"""Memories that a team shares: their own index, what goes there, and what never does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sevenfold.core.errors import Mistake, Refused
from sevenfold.core.events import Event
from sevenfold.memory.dreams.commit import commit_dream
from sevenfold.memory.dreams.stage import stage_folder
from sevenfold.memory.errors import Ambiguous, Guarded
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.history.history import MemoryHistory
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.store import Memory, MemoryStore
from sevenfold.memory.topic_file import Type, encode_new_topic
from sevenfold.testing import FakeClock

KEY = "AKIA" + "QYLPMN5HFIQR7XYA"  # shaped like one, and nobody's
AGENT = Author("agent", "s1")


class Shared:
    """A memory folder with a team in it."""

    def __init__(self, root: Path) -> None:
        self.folder, self.state = root / "memory", root / "state"
        self.events: list[Event] = []
        (self.folder / "team").mkdir(parents=True)
        self.store = MemoryStore(
            FolderBackend(self.folder, self.state), FakeClock(), emit=self.events.append
        )

    def add(self, name: str, description: str = "d", type: Type = "project") -> str:
        saved = self.store.add(
            type=type, name=name, description=description, body=f"About {name}.", team=True
        )
        return saved.path.relative_to(self.folder).as_posix()

    def hand(self, file: str, text: str) -> None:
        (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / file).write_text(text, encoding="utf-8")

    def topic(self, file: str, description: str = "d", type: Type = "project") -> bytes:
        name = Path(file).stem
        body = f"About {name}."
        return encode_new_topic(file, name=name, description=description, type=type, body=body)

    def put(self, file: str, description: str = "d", type: Type = "project") -> None:
        (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / file).write_bytes(self.topic(file, description, type))

    @property
    def team(self) -> str:
        return self.store.index_text(team=True)


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    return Shared(tmp_path)


# --- the index of the team ----------------------------------------------------------------------------


def test_a_memory_for_the_team_has_its_line_in_the_index_of_the_team_alone(shared: Shared) -> None:
    shared.store.add(type="project", name="mine", description="own", body="b")
    assert shared.add("Release Train", "Releases leave on Tuesdays") == "team/release-train.md"
    assert shared.team == "- [Release Train](release-train.md) — Releases leave on Tuesdays\n"
    assert shared.store.index_text() == "- [mine](mine.md) — own\n"
    last = shared.store.history(limit=1)[0]
    assert {one.file for one in last.files} == {"team/release-train.md", "team/MEMORY.md"}


def test_edit_remove_undo_and_purge_keep_the_index_of_the_team_in_step(shared: Shared) -> None:
    shared.add("a", "old hook")
    shared.store.edit("team/a", description="new hook")
    assert shared.team == "- [a](a.md) — new hook\n"
    shared.store.undo("team/a")
    assert shared.team == "- [a](a.md) — old hook\n"
    shared.store.remove("team/a.md")
    assert (shared.team, shared.store.topics()) == ("", [])
    shared.store.undo("team/a")
    assert shared.team == "- [a](a.md) — old hook\n"
    shared.store.purge("team/a")
    assert shared.team == ""
    assert (shared.folder / "team").is_dir()


def test_a_purged_memory_leaves_no_line_in_any_past_index_of_the_team(shared: Shared) -> None:
    shared.put("team/deep/affair.md", "about Zanzibar")
    shared.add("kept")
    shared.hand("MEMORY.md", "- [x](team/deep/affair.md) — about Zanzibar\n")
    shared.store.take_in()
    assert "Zanzibar" in shared.team
    shared.store.purge("team/deep/affair.md")
    history = MemoryHistory(shared.state / "history.sqlite")
    past = [history.at(one.id) for one in history.log()]
    assert past
    assert all(b"Zanzibar" not in data for files in past for data in files.values())
    assert shared.team == "- [kept](kept.md) — d\n"


def test_a_folder_of_a_team_without_memories_stays_when_the_last_one_goes(shared: Shared) -> None:
    shared.add("a")
    (shared.folder / "team" / "MEMORY.md").unlink()
    shared.store.remove("team/a")
    (shared.folder / "team" / "MEMORY.md").unlink(missing_ok=True)
    shared.add("b")
    shared.store.remove("team/b")
    assert shared.store.has_team


def test_what_others_wrote_is_taken_into_both_indexes(shared: Shared) -> None:
    shared.hand("MEMORY.md", "# Mine\n- [gone](gone.md) — x\n- [see](team/b.md) — ours\n")
    shared.hand("team/MEMORY.md", "# Ours\nAsk Ann first.\n\n* [gone](gone.md) — x\n* [B](b.md)\n")
    shared.put("a.md")
    for file in ("team/b.md", "team/c.md", "team/deep/d.md"):
        shared.put(file)
    shared.store.take_in()
    assert shared.store.index_text() == "# Mine\n- gone — x\n- [see](team/b.md) — ours\n- [a](a.md) — d\n"
    assert shared.team == ("# Ours\nAsk Ann first.\n\n* [B](b.md)\n* [c](c.md) — d\n* [d](deep/d.md) — d\n")
    (shared.folder / "team/b.md").unlink()
    shared.store.take_in()
    assert shared.store.index_text() == "# Mine\n- gone — x\n- [a](a.md) — d\n"
    assert "b.md" not in shared.team


def test_a_memory_of_the_team_that_is_removed_leaves_no_line_in_ones_own_index(shared: Shared) -> None:
    shared.add("b")
    shared.hand("MEMORY.md", "- [see](team/b.md) — ours\n")
    shared.store.take_in()
    shared.store.remove("team/b")
    assert shared.store.index_text() == ""


def test_a_private_memory_is_no_target_for_the_index_of_the_team(shared: Shared) -> None:
    shared.put("mine.md")
    shared.hand("team/MEMORY.md", "- [mine](mine.md) — told to everybody\n")
    shared.store.take_in()
    assert shared.team == ""


def test_the_index_of_the_team_has_its_own_limit_and_refuses_no_memory(shared: Shared) -> None:
    mine = "# Mine\n" * 200
    shared.hand("MEMORY.md", mine)
    shared.hand("team/MEMORY.md", "".join(f"- line {n}\n" for n in range(199)))
    shared.store.take_in()
    shared.add("fits")
    assert shared.team.endswith("- line 198\n- [fits](fits.md) — d\n")
    shared.add("one more")
    shared.store.before_write(shared.folder / "team/x.md", shared.topic("team/x.md"))
    shared.store.add(type="user", name="x", description="d", body="b")
    assert shared.team.endswith("- line 198\n- 2 more memories are not listed here; recall finds them\n")
    assert shared.store.index_text().startswith(mine)
    assert {one.file for one in shared.store.topics()} == {"team/fits.md", "team/one-more.md", "x.md"}


def test_the_oldest_lines_of_the_team_make_room_and_what_is_mine_has_its_own(shared: Shared) -> None:
    for n in range(230):
        shared.put(f"team/m{n:03}.md")
    shared.put("mine.md")
    shared.store.take_in()
    assert shared.team.endswith("\n- 31 more memories are not listed here; recall finds them\n")
    assert shared.store.index_text() == "- [mine](mine.md) — d\n"
    shared.add("newest")
    assert "(newest.md)" in shared.team
    assert shared.team.endswith("\n- 32 more memories are not listed here; recall finds them\n")
    assert len(shared.team.splitlines()) == 200


def test_a_session_sees_each_index_within_its_own_limits(shared: Shared) -> None:
    shared.put("mine.md")
    shared.put("team/ours.md")
    shared.store.take_in()
    shared.hand("team/MEMORY.md", shared.team + "x\n" * 300)
    assert shared.store.loaded_index() == "- [mine](mine.md) — d\n"
    seen = shared.store.loaded_index(team=True)
    assert "- [ours](ours.md) — d\n" in seen
    assert "Warning: team/MEMORY.md has 301 lines" in seen
    assert len(seen.splitlines()) == 200


def test_recall_and_search_find_what_the_team_knows(shared: Shared) -> None:
    shared.add("release train", "Releases leave the station on Tuesdays")
    assert [one.file for one in shared.store.search("releases tuesdays")] == ["team/release-train.md"]
    assert shared.store.recall("When do releases leave?")[0].file == "team/release-train.md"


def test_the_same_name_may_be_mine_and_the_teams(shared: Shared) -> None:
    shared.store.add(type="feedback", name="tabs", description="I like tabs", body="b")
    shared.add("tabs", "The project has spaces")
    assert {one.file for one in shared.store.topics()} == {"tabs.md", "team/tabs.md"}
    with pytest.raises(Ambiguous, match=r"team/tabs\.md"):
        shared.store.edit("tabs", body="which?")
    assert shared.store.get("team/tabs").description == "The project has spaces"
    shared.add("tabs", "The project has tabs now")
    assert "has tabs now" in shared.team
    assert shared.store.get("tabs.md").description == "I like tabs"


def test_check_looks_at_the_index_of_the_team(shared: Shared) -> None:
    shared.add("a")
    shared.hand("team/MEMORY.md", "- [gone](gone.md)\n")
    found = {(one.kind, one.file) for one in shared.store.check()}
    assert {("dangling", "team/MEMORY.md"), ("missing", "team/a.md")} <= found
    shared.store.take_in()
    assert not [one for one in shared.store.check() if one.kind in ("dangling", "missing")]


# --- what goes there ----------------------------------------------------------------------------------


def test_without_a_team_nothing_can_be_shared(tmp_path: Path) -> None:
    store = MemoryStore(FolderBackend(tmp_path / "memory", tmp_path / "state"), FakeClock())
    data = encode_new_topic("team/a.md", name="a", description="d", type="project", body="b")
    with pytest.raises(Mistake, match="sevenfold team init REMOTE"):
        store.add(type="project", name="a", description="d", body="b", team=True)
    for _ in range(2):  # before there is a folder, and after
        with pytest.raises(Mistake, match="sevenfold team join"):
            store.before_write(store.path_of() / "team" / "a.md", data)
        store.add(type="project", name="mine", description="d", body="b")
    assert not store.has_team


def test_a_link_in_the_place_of_the_team_is_no_team(shared: Shared, tmp_path: Path) -> None:
    (shared.folder / "team").rmdir()
    (tmp_path / "elsewhere").mkdir()
    (shared.folder / "team").symlink_to(tmp_path / "elsewhere")
    assert not shared.store.has_team
    with pytest.raises(Mistake, match="no team memory"):
        shared.add("a")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_is_about_a_person_is_refused_on_every_path(shared: Shared) -> None:
    shared.add("rule")
    path = shared.folder / "team" / "ann.md"
    about = shared.topic("team/ann.md", type="user")
    nested = b"---\nname: ann\nmetadata:\n  type: user\ndescription: d\n---\nAnn lives in Ulm.\n"
    number = shared.store.quarantine.put("team/ann.md", about, "web", (), author="agent")
    for attempt in (
        lambda: shared.add("ann", type="user"),
        lambda: shared.store.edit("team/rule", type="user"),
        lambda: shared.store.before_write(path, about, author=AGENT),
        lambda: shared.store.before_write(path, nested, author=AGENT),
        lambda: shared.store.release(number),
    ):
        with pytest.raises(Refused, match="is about a person and is never shared with the team"):
            attempt()
    assert not path.exists()
    assert [one.file for one in shared.store.topics()] == ["team/rule.md"]
    with pytest.raises(Refused, match="lower case"):
        shared.store.before_write(shared.folder / "Team" / "ann.md", about, author=AGENT)


def test_what_a_hand_put_there_about_a_person_is_found_and_not_brought_back(shared: Shared) -> None:
    shared.put("team/ann.md", type="user")
    shared.store.take_in()
    found = [one for one in shared.store.check() if one.kind == "team"]
    assert [(one.file, "never shared" in one.text) for one in found] == [("team/ann.md", True)]
    shared.store.edit("team/ann.md", type="project")
    assert not [one for one in shared.store.check() if one.kind == "team"]
    with pytest.raises(Refused, match="about a person"):
        shared.store.undo("team/ann.md")


def test_a_file_of_the_team_as_somebody_left_it_in_an_editor_is_checked_too(tmp_path: Path) -> None:
    (tmp_path / "memory" / "team").mkdir(parents=True)
    with Memory(FolderBackend(tmp_path / "memory", tmp_path / "state"), FakeClock()) as memory:
        memory.add(type="project", name="a", description="d", body="b", team=True)
        changed = memory.get("team/a").data.replace(b"type: project", b"type: user")
        with pytest.raises(Refused, match="about a person"):
            memory.rewrite("team/a", changed)


@pytest.mark.parametrize("way", ["add", "edit", "write", "index"])
def test_a_secret_is_refused_for_the_team_too_and_kept_nowhere(shared: Shared, way: str) -> None:
    shared.add("a")
    text = f"The key is {KEY}."
    team = shared.folder / "team"
    store = shared.store
    ways: dict[str, Callable[[], object]] = {
        "add": lambda: store.add(type="project", name="k", description="d", body=text, team=True),
        "edit": lambda: store.edit("team/a", body=text),
        "write": lambda: store.before_write(team / "k.md", text.encode(), author=AGENT),
        "index": lambda: store.before_write(team / "MEMORY.md", text.encode(), author=AGENT),
    }
    with pytest.raises(Guarded) as refused:
        ways[way]()
    assert refused.value.findings[0].kind == "secret"
    for path in [*shared.folder.rglob("*"), *shared.state.rglob("*")]:
        assert not path.is_file() or KEY.encode() not in path.read_bytes()


def test_a_secret_that_came_from_the_team_stays_out_of_index_and_history(shared: Shared) -> None:
    shared.hand("team/key.md", f"---\ndescription: it is {KEY}\n---\n{KEY}\n")
    shared.store.take_in(Author("team"))
    assert shared.team == ""
    history = MemoryHistory(shared.state / "history.sqlite")
    assert all("team/key.md" not in history.at(one.id) for one in history.log())
    assert ("secret", "team/key.md") in {(one.kind, one.file) for one in shared.store.check()}


# --- dreams -------------------------------------------------------------------------------------------


def test_a_dream_never_moves_what_is_private_to_the_team(shared: Shared) -> None:
    shared.hand(
        "plan.md",
        "---\nname: plan\ndescription: Ann's plan\ntype: project\n---\nAnn leaves on 2026-12-01.\n",
    )
    shared.add("rule")
    before = (shared.folder / "team" / "rule.md").read_bytes()
    staged = stage_folder(shared.store)
    (staged.folder / "team" / "plan.md").write_bytes((staged.folder / "plan.md").read_bytes())
    (staged.folder / "plan.md").unlink()
    with (staged.folder / "team" / "rule.md").open("ab") as file:
        file.write(b"\nAnn leaves on 2026-12-01.\n")
    index = staged.folder / "team" / "MEMORY.md"
    index.write_text("- [plan](plan.md) — Ann leaves on 2026-12-01\n", encoding="utf-8")
    outcome = commit_dream(shared.store, staged, Author("dream", "s1"))
    assert {one.file for one in outcome.conflicts} >= {"team/plan.md", "team/rule.md"}
    assert "Ann leaves on 2026-12-01." in (shared.folder / "plan.md").read_text(encoding="utf-8")
    assert not (shared.folder / "team" / "plan.md").exists()
    assert (shared.folder / "team" / "rule.md").read_bytes() == before
    assert shared.team == "- [rule](rule.md) — d\n"
