"""A remote that was set back or emptied, and one that is full: nothing is lost and nobody is stuck."""

from __future__ import annotations

from pathlib import Path

import pytest
from memory.team.clones import alike, git, remote_of, settle, still, team_of

from sevenfold.memory.team.files import TOTAL, IncomingFiles, TeamScreen
from sevenfold.memory.team.push import PushPlanner
from sevenfold.memory.team.state import LocalFiles, TeamState, hash_blob

pytestmark = pytest.mark.real
FILES = [f"n{number}.md" for number in range(4)]


def test_a_remote_that_was_set_back_gets_what_it_lost_again(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    remote = remote_of(tmp_path)
    old = git(remote, "rev-parse", "main")
    ann.say("new.md", "It is new")
    ann.say("first.md", "The team goes on.")
    settle([ann, bob])
    git(remote, "update-ref", "refs/heads/main", old)

    synced = bob.sync()

    assert "was set back" in synced.note
    assert "2 files" in synced.note
    assert synced.removed_here == ()
    assert "new.md" in synced.pushed
    assert "goes on" in bob.read("first.md")
    settle([ann, bob])
    still([ann, bob])
    assert "It is new" in ann.read("new.md")
    assert any("The team began." in text for text in ann.files().values())


def test_many_commits_at_once_are_not_taken_for_a_remote_that_was_set_back(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    for number in range(3):
        ann.say("a.md", f"{number}")
        ann.sync()
    ann.remove("first.md")
    ann.sync()
    synced = bob.sync()
    assert (synced.note, synced.removed_here) == ("", ("first.md",))


def test_a_remote_that_was_emptied_at_once_removes_nothing_here(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    for file in FILES:
        ann.say(file, f"About {file}")
    settle([ann, bob])
    remote = remote_of(tmp_path)
    empty = git(remote, "mktree")
    commit = git(remote, "commit-tree", empty, "-p", "main", "-m", "away")
    git(remote, "update-ref", "refs/heads/main", commit)

    synced = ann.sync()

    assert "5 files vanished" in synced.note
    assert set(synced.pushed) == {"first.md", *FILES}
    settle([ann, bob])
    assert ann.topics() == {"first.md", *FILES}


def test_who_renames_everything_is_not_taken_for_an_accident(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    for file in FILES:
        ann.say(file, f"About {file}")
    settle([ann, bob])
    for file in FILES:
        (ann.folder / file).rename(ann.folder / f"m{file}")
    ann.sync()
    synced = bob.sync()
    assert synced.note == ""
    assert bob.topics() == {"first.md", *(f"m{file}" for file in FILES)}


def test_a_full_team_takes_no_new_file_and_goes_on_with_those_it_has(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob", most=4)
    for file in FILES:
        ann.say(file, f"About {file}")
    synced = ann.sync()
    assert synced.pushed == ("n0.md", "n1.md")
    assert all("the team has 4 files" in one.why for one in synced.refused)
    bob.sync()
    bob.say("n0.md", "Another text")
    bob.remove("n1.md")
    assert (bob.sync().pushed, ann.sync().pushed) == (("n0.md",), ("n2.md",))
    assert "Another text" in ann.read("n0.md")


def test_a_team_that_is_too_large_already_loses_nothing_and_can_shrink(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    for file in FILES:
        ann.say(file, f"About {file}")
    settle([ann, bob])
    small = [type(one)(tmp_path, one.name, most=3) for one in (ann, bob)]
    synced = small[0].sync()
    assert (synced.removed_here, synced.refused) == ((), ())
    small[0].remove("n3.md")
    small[0].say("n0.md", "Another text")
    assert small[0].sync().removed_there == ("n3.md",)
    small[1].sync()
    assert alike(small)


def test_what_is_sent_stays_within_the_bytes_that_the_others_take() -> None:
    sizes = {"large.md": TOTAL - 100, "gone.md": 10}
    ids = dict.fromkeys(sizes, "1" * 40)
    incoming = IncomingFiles(files=dict(ids), sizes=sizes)
    texts = {"large.md": b"x" * 100, "new.md": b"y" * 105, "newer.md": b"z" * TOTAL}
    ours = LocalFiles(texts, {file: hash_blob(data) for file, data in texts.items()})
    state = TeamState("/remote", agreed=dict(ids))

    offer = PushPlanner(state, incoming, ours, TeamScreen(())).offer("")

    assert (offer.files, offer.gone) == (("large.md", "new.md"), ("gone.md",))
    [refused] = offer.refused
    assert (refused.file, "more than 67,108,864 bytes" in refused.why) == ("newer.md", True)
