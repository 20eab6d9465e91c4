"""A team on a real bare repository: what goes to whom, what is joined, what is kept twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from memory.team.clones import Clone, alike, git, remote_of, settle, team_of, topic

from sevenfold.core.errors import Mistake
from sevenfold.memory.team.git import NoTeam
from sevenfold.memory.team.state import describe_sync

pytestmark = pytest.mark.real
LINES = "- Deploys are on Friday\n- Carol approves\n- The rig is in room 4\n- Tests run at night"


def test_what_one_member_writes_the_others_get_with_its_line_in_the_index(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    ann.store.add(type="project", name="deploys", description="When", body=LINES, team=True)

    assert ann.sync().pushed == ("deploys.md",)
    assert bob.sync().pulled == ("deploys.md",)

    assert "Carol approves" in bob.read("deploys.md")
    assert "- [deploys](deploys.md) — When\n" in bob.read("MEMORY.md")
    assert alike([ann, bob])
    newest = bob.store.history(limit=1)[0]
    assert newest.author.kind == "team"
    assert bob.store.get("deploys").description == "When"


def test_nothing_of_git_is_in_the_memory_folder_and_the_commit_says_what_changed(tmp_path: Path) -> None:
    [ann] = team_of(tmp_path, "ann")
    hidden = [path.name for path in ann.store.path_of().rglob(".*")]
    assert hidden == [".memory.lock"]
    log = git(remote_of(tmp_path), "log", "--format=%an|%s", "main")
    assert log == "sevenfold|added first.md"


def test_the_commit_bears_the_name_that_the_users_git_has(tmp_path: Path) -> None:
    [ann] = team_of(tmp_path, "ann")
    config = "[user]\n\tname = Ann Lee\n\temail = ann@example.org\n"
    (tmp_path / "person" / ".gitconfig").write_text(config, "utf-8")
    ann.say("a.md", "x")
    ann.sync()
    assert git(remote_of(tmp_path), "log", "-1", "--format=%an <%ae>", "main") == (
        "Ann Lee <ann@example.org>"
    )


def test_changes_of_different_lines_are_joined(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    ann.say("rules.md", LINES)
    ann.sync()
    bob.sync()
    ann.write("rules.md", ann.read("rules.md").replace("Friday", "Monday"))
    bob.write("rules.md", bob.read("rules.md").replace("room 4", "room 9"))

    settle([ann, bob])

    assert "Monday" in bob.read("rules.md")
    assert "room 9" in ann.read("rules.md")
    assert ann.topics() == {"first.md", "rules.md"}


def test_changes_of_the_same_line_are_both_kept_once_and_for_all_members(tmp_path: Path) -> None:
    ann, bob, eve = team_of(tmp_path, "ann", "bob", "eve")
    ann.say("rules.md", LINES)
    settle([ann, bob, eve])
    ann.write("rules.md", ann.read("rules.md").replace("Friday", "Monday"))
    bob.write("rules.md", bob.read("rules.md").replace("Friday", "Sunday"))
    ann.sync()

    [copy] = bob.sync().conflicts

    assert copy.startswith("rules.conflict-")
    settle([ann, bob, eve])
    assert "Monday" in eve.read("rules.md")
    assert "Sunday" in eve.read(copy)
    assert eve.topics() == {"first.md", "rules.md", copy}
    assert f"]({copy})" in eve.read("MEMORY.md")
    assert ann.team.status().conflicts == (copy,)


def test_a_copy_that_clashes_itself_gets_no_longer_name(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    ann.say("a.conflict-01234567.md", LINES)
    settle([ann, bob])
    for clone, day in ((ann, "Monday"), (bob, "Sunday")):
        clone.say("a.conflict-01234567.md", LINES.replace("Friday", day))
    ann.sync()
    [copy] = bob.sync().conflicts
    assert copy.count(".conflict-") == 1


def test_two_new_files_of_one_name_are_both_kept(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    ann.say("new.md", "Ann's words")
    bob.say("new.md", "Bob's words")
    ann.sync()
    [copy] = bob.sync().conflicts
    settle([ann, bob])
    assert "Ann's words" in bob.read("new.md")
    assert "Bob's words" in ann.read(copy)


def test_the_same_file_from_both_sides_is_one_file(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    for clone in (ann, bob):
        clone.say("same.md", "Both know it")
    settle([ann, bob])
    assert bob.topics() == {"first.md", "same.md"}


def test_names_that_differ_only_in_case_are_two_files_for_everybody(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    ann.say("Notes.md", "Ann's words")
    bob.say("notes.md", "Bob's words")
    ann.sync()
    bob.sync()
    settle([ann, bob])
    kept = sorted(ann.topics() - {"first.md"})
    assert len({name.casefold() for name in kept}) == 2
    assert "Ann's words" in bob.read("Notes.md")
    assert any("Bob's words" in text for text in ann.files().values())


def test_a_removal_goes_through(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    ann.say("sub/old.md", "It was so.")
    settle([ann, bob])
    bob.remove("sub/old.md")
    sent = bob.sync()
    assert (sent.pushed, sent.removed_there) == ((), ("sub/old.md",))
    assert describe_sync(sent) == "sent the removal of sub/old.md"
    taken = ann.sync()
    assert (taken.pulled, taken.removed_here) == ((), ("sub/old.md",))
    assert describe_sync(taken) == "removed sub/old.md"
    assert ann.topics() == {"first.md"}
    assert "old" not in ann.read("MEMORY.md")
    ann.store.undo("team/sub/old.md")
    settle([ann, bob])
    assert "It was so." in bob.read("sub/old.md")


@pytest.mark.parametrize("first", ["removal", "edit"])
def test_an_edit_outlives_a_removal(tmp_path: Path, first: str) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    ann.say("rules.md", LINES)
    settle([ann, bob])
    ann.remove("rules.md")
    bob.write("rules.md", bob.read("rules.md").replace("Friday", "Monday"))
    for clone in (ann, bob) if first == "removal" else (bob, ann):
        clone.sync()
    settle([ann, bob])
    assert "Monday" in ann.read("rules.md")


def test_a_rename_is_a_removal_and_a_new_file(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    ann.say("old-name.md", LINES)
    settle([ann, bob])
    (ann.folder / "old-name.md").rename(ann.folder / "new-name.md")
    settle([ann, bob])
    assert bob.topics() == {"first.md", "new-name.md"}


def test_what_was_there_before_joining_goes_to_the_team(tmp_path: Path) -> None:
    [ann] = team_of(tmp_path, "ann")
    bob = Clone(tmp_path, "bob")
    bob.say("mine.md", "I knew this before")
    bob.say("first.md", "Another beginning")
    joined = bob.team.join(str(remote_of(tmp_path)), tmp_path)
    assert len(joined.conflicts) == 1
    settle([ann, bob])
    assert "I knew this before" in ann.read("mine.md")
    assert "The team began." in bob.read("first.md")
    assert any("Another beginning" in text for text in ann.files().values())


def test_what_people_write_into_the_index_is_shared(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    ann.write("MEMORY.md", f"# Our team\n\nBe kind.\n\n{ann.read('MEMORY.md')}")
    ann.say("a.md", "x")
    bob.say("b.md", "y")
    settle([ann, bob])
    text = bob.read("MEMORY.md")
    assert text.startswith("# Our team\n\nBe kind.\n\n")
    assert all(text.count(f"]({file})") == 1 for file in ("first.md", "a.md", "b.md"))


def test_a_folder_that_vanished_is_brought_back_and_not_removed_for_all(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    ann.say("a.md", "x")
    settle([ann, bob])
    for file in bob.files():
        bob.remove(file)
    bob.folder.rmdir()
    synced = bob.sync()
    assert "brought back" in synced.note
    assert alike([ann, bob])
    assert ann.topics() == {"first.md", "a.md"}


def test_many_files_are_joined_in_one_sync(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    for number in range(60):
        ann.say(f"n{number}.md", f"fact {number}")
    assert len(ann.sync().pushed) == 60
    assert len(bob.sync().pulled) == 60
    settle([ann, bob])


# --- begin and join -------------------------------------------------------------------------------------


def test_without_a_team_it_says_how_to_get_one(tmp_path: Path) -> None:
    ann = Clone(tmp_path, "ann")
    assert not ann.team.joined
    for ask in (ann.team.sync, ann.team.status, lambda: ann.team.release("a.md")):
        with pytest.raises(NoTeam, match="sevenfold team init"):
            ask()


def test_a_repository_that_is_not_there_is_made_and_that_is_said(tmp_path: Path) -> None:
    ann = Clone(tmp_path, "ann")
    synced = ann.team.init("new/team.git", tmp_path)
    assert synced.note == f"made the repository {tmp_path}/new/team.git"
    assert git(tmp_path / "new" / "team.git", "rev-parse", "--is-bare-repository") == "true"
    assert ann.folder.is_dir()


def test_an_empty_repository_of_any_kind_is_used(tmp_path: Path) -> None:
    git(remote_of(tmp_path), "init", "--bare", "--initial-branch=master", "-q")
    ann, bob = Clone(tmp_path, "ann"), Clone(tmp_path, "bob")
    address = f"file://{remote_of(tmp_path)}"
    ann.team.init(address, tmp_path)
    ann.say("a.md", "x")
    ann.sync()
    bob.team.join(address, tmp_path)
    assert alike([ann, bob])


def test_a_repository_with_files_is_joined_and_not_begun(tmp_path: Path) -> None:
    team_of(tmp_path, "ann")
    with pytest.raises(Mistake, match="is not empty: 'sevenfold team join'"):
        Clone(tmp_path, "bob").team.init(str(remote_of(tmp_path)), tmp_path)


def test_a_team_that_was_only_begun_can_be_joined_before_anybody_wrote(tmp_path: Path) -> None:
    ann, bob = Clone(tmp_path, "ann"), Clone(tmp_path, "bob")
    ann.team.init(str(remote_of(tmp_path)), tmp_path)
    joined = bob.team.join(str(remote_of(tmp_path)), tmp_path)
    assert "is empty: yours will be the first memory" in str(joined.note)
    bob.say("b.md", "y")
    ann.say("a.md", "x")
    settle([ann, bob])
    assert alike([ann, bob])


def test_joining_twice_is_a_sync_and_another_team_is_refused(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    bob.say("b.md", "y")
    again = bob.team.join(str(remote_of(tmp_path)), tmp_path)
    assert (again.note, again.pushed) == ("you had joined this team already", ("b.md",))
    assert bob.team.init(str(remote_of(tmp_path)), tmp_path).note == "the team is there already"
    with pytest.raises(Mistake, match="is shared already, with the team at"):
        bob.team.join(str(tmp_path / "other.git"), tmp_path)
    settle([ann, bob])


def test_the_memory_itself_is_no_repository_of_the_team(tmp_path: Path) -> None:
    ann = Clone(tmp_path, "ann")
    with pytest.raises(Mistake, match="a part of the memory itself"):
        ann.team.init(str(ann.store.path_of("team")), tmp_path)


def test_a_plain_git_user_is_a_member_too(tmp_path: Path) -> None:
    [ann] = team_of(tmp_path, "ann")
    remote = remote_of(tmp_path)
    blob = git(remote, "hash-object", "-w", "--stdin", given=topic("by-hand", "x").encode())
    tree = git(remote, "mktree", given=f"100644 blob {blob}\tby-hand.md\n".encode())
    commit = git(remote, "commit-tree", tree, "-p", "main", "-m", "by hand")
    git(remote, "update-ref", "refs/heads/main", commit)
    synced = ann.sync()
    assert (synced.pulled, synced.removed_here) == (("by-hand.md",), ("first.md",))
    assert ann.topics() == {"by-hand.md"}
    assert "](by-hand.md)" in ann.read("MEMORY.md")


def test_the_status_names_what_waits_on_both_sides(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    ann.say("a.md", "x")
    ann.sync()
    bob.say("b.md", "y")
    bob.remove("first.md")
    status = bob.team.status()
    assert (status.ahead, status.behind) == (("b.md", "first.md"), ("a.md",))
    assert (status.remote, status.branch) == (str(remote_of(tmp_path)), "main")
    assert status.offline is None
    assert status.synced is not None
    assert bob.topics() == {"b.md"}


def test_what_git_keeps_beside_the_memories_is_for_its_user_alone(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    ann.say("fact.md", "A fact.")
    ann.sync()
    bob.sync()

    every = [one for each in (ann, bob) for one in each.repository.rglob("*")]
    refs = [one for one in every if "refs" in one.parts and one.is_file()]
    assert refs
    assert [one for one in every if one.stat().st_mode & 0o077] == []
    made = [one for one in remote_of(tmp_path).rglob("*") if one.is_file()]
    assert any(one.stat().st_mode & 0o044 for one in made), "the remote is the team's"
