"""`sevenfold team`: begin, join, look, sync and release, for people and as JSON."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.conftest import Here
from cli.world import Ran, World
from memory.team.clones import SECRET, topic

pytestmark = pytest.mark.real


@pytest.fixture
def remote(world: World) -> Path:
    return world.top / "remote.git"


def folder(here: Here) -> Path:
    return Path(here("memory", "path").out.rstrip("\n")) / "team"


def begun(here: Here, remote: Path) -> Path:
    assert here("team", "init", str(remote)).code == 0
    return folder(here)


def other(here: Here, world: World, *words: str) -> Ran:
    """Another member, at home elsewhere."""
    return here("team", *words, "--home", str(world.top / "other"))


def test_a_team_is_begun_joined_and_kept_the_same(here: Here, world: World, remote: Path) -> None:
    ran = here("team", "init", str(remote))
    assert f"others come in with: sevenfold team join {remote}" in ran.err
    assert ran.code == 0
    assert f"made the repository {remote}" in ran.err
    words = ("--type", "project", "--name", "deploys", "--description", "When", "--body", "Friday")
    assert here("memory", "add", *words, "--team").code == 0

    sent = here("team", "sync", "--json").json

    assert sent["pushed"] == ["deploys.md"]
    assert sent["offline"] is None
    joined = other(here, world, "join", str(remote), "--json").json
    assert joined["pulled"] == ["deploys.md"]
    again = other(here, world, "sync")
    assert again.err == "sevenfold: both sides are the same\n"


def test_the_status_says_where_it_is_and_what_waits(here: Here, remote: Path) -> None:
    where = begun(here, remote)
    (where / "a.md").write_text(topic("a", "x"), "utf-8")
    known = here("team", "--json").json
    assert known["remote"] == str(remote)
    assert (known["branch"], known["ahead"], known["behind"]) == ("main", ["a.md"], [])
    text = here("team", "status").out.splitlines()
    assert text[0] == f"remote: {remote}, branch main"
    assert text[1].startswith("last sync: 2")
    assert text[2:] == ["not sent yet: a.md", "not taken yet: nothing"]


def test_without_a_team_every_command_says_how_to_get_one(here: Here) -> None:
    for words in (("status",), ("sync",), ("release", "a.md", "--yes")):
        ran = here("team", *words)
        assert ran.code == 2
        assert "sevenfold team join REMOTE" in ran.err


def test_a_secret_is_refused_by_name_and_goes_only_when_it_is_released(
    here: Here, world: World, remote: Path
) -> None:
    where = begun(here, remote)
    (where / "key.md").write_text(topic("key", f"token = {SECRET}"), "utf-8")
    ran = here("team", "sync")
    assert ran.code == 0
    assert "not sent: key.md: it looks like a secret (GitHub token, line 7)" in ran.err
    assert SECRET not in ran.err
    missing = here("team", "release", "nope.md")
    assert missing.code == 2
    assert "nothing to release in nope.md" in missing.err
    asked = here("team", "release", "key.md")
    assert (asked.code, "add --yes" in asked.err) == (2, True)
    assert here("team", "release", "key.md", "--yes", "--json").json == {"file": "key.md", "released": True}
    assert here("team", "sync", "--json").json["pushed"] == ["key.md"]


def test_a_clash_says_where_both_texts_are(here: Here, world: World, remote: Path) -> None:
    where = begun(here, remote)
    (where / "a.md").write_text(topic("a", "one"), "utf-8")
    here("team", "sync")
    other(here, world, "join", str(remote))
    theirs = next((world.top / "other").rglob("team/a.md"))
    theirs.write_text(topic("a", "two"), "utf-8")
    other(here, world, "sync")
    (where / "a.md").write_text(topic("a", "three"), "utf-8")
    ran = here("team", "sync")
    assert "theirs keeps the name, yours is in team/a.conflict-" in ran.err
    typed = ran.err.partition("remove the copy: sevenfold ")[2].splitlines()[0]
    assert here(*typed.split()).code == 0
    assert not list(where.glob("*conflict*"))
    assert "two" in (where / "a.md").read_text("utf-8")


def test_a_remote_that_is_gone_is_exit_code_1_and_one_sentence(here: Here, remote: Path) -> None:
    begun(here, remote)
    remote.rename(remote.with_name("away.git"))
    ran = here("team", "sync", "--json")
    assert ran.code == 1
    assert ran.json["offline"] == f"{remote}: there is no git repository"
    assert "goes with the next sync" in ran.err
    assert "offline:" in here("team", "status").out


def test_bad_addresses_are_refused_without_showing_a_password(here: Here, world: World) -> None:
    for address, code in (("ext::sh -c x", 3), ("--upload-pack=x", 2), ("", 2)):
        assert here("team", "join", address).code == code
    missing = here("team", "join", str(world.top / "nowhere.git"))
    assert missing.code == 1
    assert "there is no git repository" in missing.err
    ran = here("team", "join", "https://ann:tok3n@127.0.0.1:1/x.git")
    assert ran.code == 1
    assert "tok3n" not in ran.err
    assert "https://127.0.0.1:1/x.git" in ran.err


def test_the_list_of_memories_says_which_ones_a_team_shares(here: Here, remote: Path) -> None:
    here("team", "init", str(remote))
    words = ("--type", "project", "--description", "When we deploy", "--body", "On Fridays.")
    here("memory", "add", *words, "--name", "deploys", "--team")
    here("memory", "add", "--type", "user", "--name", "me", "--description", "Me", "--body", "Ada")

    told = here("memory", "list")
    listed = here("memory", "list", "--json").json["memories"]

    assert {one["name"]: one["team"] for one in listed} == {"deploys": True, "me": False}
    assert "project, team" in told.out
    assert "· team ·" in here("memory", "show", "deploys").out
