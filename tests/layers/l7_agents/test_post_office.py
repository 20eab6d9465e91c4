"""Post offices: who is in a team, and that each member has one mailbox."""

from __future__ import annotations

import json
import stat
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from sevenfold.core.errors import Refused, StorageFailure
from sevenfold.core.events import Event, Notice
from sevenfold.core.messages import Json
from sevenfold.layers.l7_agents.mail import (
    MOST,
    MailStore,
    MemberInfo,
    MemoryInbox,
    PostOffice,
    TeamInbox,
    Teammate,
)
from sevenfold.layers.l7_agents.mailbox import make_letter
from sevenfold.testing import FakeClock

pytestmark = pytest.mark.anyio
CLOCK = FakeClock(0.0)
THEN = "1970-01-01T00:00:00.000Z"


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def post(tmp_path: Path, events: list[Event]) -> PostOffice:
    return PostOffice(tmp_path, "alpha", CLOCK, events.append)


def test_who_joins_is_listed_in_order_until_it_leaves(post: PostOffice, tmp_path: Path) -> None:
    post.join("boss", MemberInfo("lead", "s-1"))
    post.join("ada", MemberInfo("researcher", "s-1", "running"))
    post.join("bob")
    post.say("ada", "idle")

    assert post.members() == (
        Teammate("boss", "lead", "s-1", "running", THEN),
        Teammate("ada", "researcher", "s-1", "idle", THEN),
        Teammate("bob", joined=THEN),
    )
    assert [one.name for one in post.others("ada")] == ["boss", "bob"]
    assert post.lead == "boss"
    post.leave("boss")
    assert [one.name for one in post.members()] == ["ada", "bob"]
    assert post.lead == "lead"
    file = tmp_path / "teams" / "alpha" / "members.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_nothing_is_written_before_somebody_joins(post: PostOffice, tmp_path: Path) -> None:
    assert post.members() == ()
    assert post.inbox("ada").waiting() == ()
    assert list(tmp_path.iterdir()) == []


async def test_a_letter_goes_into_the_mailbox_of_a_member(post: PostOffice, tmp_path: Path) -> None:
    post.join("ada")
    letter = make_letter("lead", "hello", "hi", CLOCK)

    assert await post.send("ada", letter)
    assert not await post.send("ada", letter)

    other = PostOffice(tmp_path, "alpha", CLOCK, print)
    assert other.inbox("ada").waiting() == (letter,)
    assert (tmp_path / "teams" / "alpha" / "inboxes" / "ada.json").is_file()
    assert post.inbox("ada") is post.inbox("ada")


async def test_a_letter_to_nobody_says_who_is_there(post: PostOffice) -> None:
    letter = make_letter("lead", "hello", "hi", CLOCK)

    with pytest.raises(Refused, match="in the team 'alpha': nobody has joined it yet"):
        await post.send("eve", letter)
    post.join("ada")
    post.join("bob")
    with pytest.raises(Refused, match="called 'eve' in the team 'alpha': its members are ada, bob"):
        await post.send("eve", letter)


@pytest.mark.parametrize("name", ["..", "a/b", "../../x", "a\0", "x" * 300, "uds:a", "*", ""])
def test_names_that_lead_elsewhere_reach_no_file(post: PostOffice, name: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be the name of an agent"):
        post.inbox(name)
    with pytest.raises(Refused, match="cannot be the name of an agent"):
        post.join(name)
    with pytest.raises(Refused, match="cannot be the name of a team"):
        PostOffice(tmp_path, name, CLOCK, print)
    assert list(tmp_path.iterdir()) == []


def test_two_names_that_are_one_file_somewhere_cannot_both_join(post: PostOffice) -> None:
    post.join("Ada")

    with pytest.raises(Refused, match="'ada' cannot join the team 'alpha': 'Ada' is in it"):
        post.join("ada")


def test_a_team_has_only_so_many_members(post: PostOffice, tmp_path: Path) -> None:
    file = tmp_path / "teams" / "alpha" / "members.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps([{"name": f"n{n}"} for n in range(MOST)]), encoding="utf-8")

    with pytest.raises(Refused, match="has 200 members"):
        post.join("one-more")
    assert post.join("n7", MemberInfo("again")).kind == "again"


def test_damaged_members_are_set_aside_and_said(
    post: PostOffice, tmp_path: Path, events: list[Event]
) -> None:
    file = tmp_path / "teams" / "alpha" / "members.json"
    file.parent.mkdir(parents=True)
    file.write_text(
        json.dumps([{"name": "ada", "hat": "red"}, 7, {"name": "../x"}, {"kind": "x"}]), encoding="utf-8"
    )

    assert [one.name for one in post.members()] == ["ada"]
    post.join("bob")

    kept = json.loads(file.read_text(encoding="utf-8"))
    assert [entry["name"] for entry in kept] == ["ada", "bob"]
    assert kept[0]["hat"] == "red", "what we do not know stays"
    assert len(file.with_name("members.damaged.jsonl").read_text("utf-8").splitlines()) == 3
    assert events == [
        Notice(f"{file} was damaged; what could not be read went to members.damaged.jsonl", "warning")
    ]


def test_a_members_file_that_is_none_is_set_aside_whole(
    post: PostOffice, tmp_path: Path, events: list[Event]
) -> None:
    file = tmp_path / "teams" / "alpha" / "members.json"
    file.parent.mkdir(parents=True)
    file.write_text("{broken", encoding="utf-8")

    assert post.members() == ()
    post.join("ada")

    assert [one.name for one in post.members()] == ["ada"]
    assert file.with_name("members.damaged-1.json").read_text("utf-8") == "{broken"
    assert len(events) == 1


def test_a_members_file_that_is_a_link_is_refused(post: PostOffice, tmp_path: Path) -> None:
    file = tmp_path / "teams" / "alpha" / "members.json"
    file.parent.mkdir(parents=True)
    (tmp_path / "other").write_text("[]", encoding="utf-8")
    file.symlink_to(tmp_path / "other")

    with pytest.raises(StorageFailure, match="symbolic link"):
        post.join("ada")


def test_what_killed_processes_left_unfinished_is_swept_after_an_hour(tmp_path: Path) -> None:
    folder = tmp_path / "teams" / "alpha" / "inboxes"
    folder.mkdir(parents=True)
    left = folder / ".writing-0123456789abcdef"
    left.touch()
    clock = FakeClock(left.stat().st_mtime + 3_500)
    post = PostOffice(tmp_path, "alpha", clock, print)

    post.join("ada")
    assert left.exists(), "somebody may be writing it"
    clock.time += 200
    post.join("bob")
    assert not left.exists()


class MailInMemory:
    """A store of one's own: members and letters in dictionaries."""

    def __init__(self) -> None:
        self._entries: list[Json] = []
        self._inboxes = defaultdict[str, MemoryInbox](MemoryInbox)

    def inbox(self, agent: str) -> TeamInbox:
        return self._inboxes[agent]

    def members(self) -> list[Teammate]:
        return msgspec.convert(self._entries, list[Teammate])

    def change_members(self, change: Callable[[list[Json]], list[Json]]) -> None:
        self._entries = change(self._entries)

    def clear(self) -> bool:
        return not any(inbox.waiting() for inbox in self._inboxes.values())


async def test_mail_can_be_kept_elsewhere_and_the_rules_stay(tmp_path: Path, events: list[Event]) -> None:
    mail: MailStore = MailInMemory()
    post = PostOffice(tmp_path, "alpha", CLOCK, events.append, mail=mail)
    post.join("boss", MemberInfo("lead"))
    post.join("ada")
    post.say("ada", "idle")
    letter = make_letter("boss", "hello", "hi", CLOCK)

    assert await post.send("ada", letter)
    assert not await post.send("ada", letter)
    assert post.inbox("ada").waiting() == (letter,)
    assert post.members() == [Teammate("boss", "lead", joined=THEN), Teammate("ada", "", "", "idle", THEN)]
    with pytest.raises(Refused, match="both would be one file"):
        post.join("ADA")
    with pytest.raises(Refused, match="there is nobody called 'bob'"):
        await post.send("bob", letter)

    post.leave("ada")
    post.leave("boss")
    assert not post.clear(), "a letter waits"
    post.inbox("ada").settle([letter.id])
    assert post.clear()
    assert not (tmp_path / "teams").exists(), "no file is written"
