"""Agents of one project on different machines write to each other by name."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import psycopg
import pytest

from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Refused
from sevenfold.fleet.database import FleetDatabase
from sevenfold.fleet.mail import FleetMail, FleetPost
from sevenfold.fleet.membership import join_fleet
from sevenfold.fleet.memories import FleetMemories, find_space
from sevenfold.layers.l7_agents.mailbox import LEAD, make_letter
from sevenfold.session.session import Session
from sevenfold.settings.place import MemoryPlace
from sevenfold.storage.places import find_places

pytest_plugins = ["fleet.fixtures"]
pytestmark = [pytest.mark.real, pytest.mark.xdist_group("postgres")]
CLOCK = SystemClock()


def find_memories(address: str) -> FleetMemories:
    database = FleetDatabase(address, "acme")
    return FleetMemories(database, find_space(database, "project", "x"), "m")


@pytest.fixture
def posts(address: str) -> tuple[FleetPost, FleetPost]:
    """The mail of two sessions on two machines."""
    ann, bob = (FleetPost(find_memories(address), f"s-{name}") for name in ("ann", "bob"))
    ann.announce([])
    bob.announce(["ada"])
    return ann, bob


def write(post: FleetPost, to: str, text: str, sender: str = LEAD) -> str:
    return post.send(to, make_letter(sender, text, "about it", CLOCK))


def test_a_session_and_its_agents_are_written_to_by_address_and_by_name(
    posts: tuple[FleetPost, FleetPost],
) -> None:
    ann, bob = posts
    assert [write(ann, to, to) for to in ("bridge:s-bob", "bridge:s-bob/ada", "bridge:ada", "Ada")] == [
        "bridge:s-bob",
        "bridge:s-bob/ada",
        "bridge:s-bob/ada",
        "bridge:s-bob/ada",
    ]
    write(ann, "bridge:s-bob", "from a teammate", "eve")

    taken = bob.take()
    assert [one.agent for one in taken] == [LEAD, "ada", "ada", "ada", LEAD]
    assert {one.letter.sender for one in taken} == {"bridge:s-ann", "bridge:s-ann/eve"}
    with pytest.raises(Refused, match="nobody is called so on other machines; there are: bridge:s-bob"):
        write(ann, "bridge:nobody", "x")
    bob.withdraw()
    with pytest.raises(Refused, match="there are: none"):
        write(ann, "bridge:s-bob", "x")


def test_a_letter_that_is_sent_again_arrives_once_and_in_order(posts: tuple[FleetPost, FleetPost]) -> None:
    ann, bob = posts
    letters = [make_letter(LEAD, f"letter {n}", "s", CLOCK) for n in range(3)]
    for letter in (*letters, *letters):
        ann.send("bridge:s-bob", letter)

    taken = bob.take()
    assert [one.letter.text for one in taken] == ["letter 0", "letter 1", "letter 2"]
    bob.keep(*(one.id for one in taken))
    assert bob.take() == []


def test_no_letter_overtakes_one_that_is_on_its_way(address: str) -> None:
    mail = FleetMail(FleetDatabase(address, "acme"))
    mail.send("ann", "bob", b"1", "a1")
    mail.send("eve", "bob", b"1", "e1")
    assert len(mail.take("bob")) == 2, "a process that dies now has both"
    mail.send("ann", "bob", b"2", "a2")
    mail.send("joe", "bob", b"1", "j1")

    assert [one.sender for one in mail.take("bob")] == ["joe"]
    with psycopg.connect(address) as connection:
        connection.execute("update sevenfold.mail set lease_until = now() - interval '1 s'")
    assert [(one.sender, one.body) for one in mail.take("bob")] == [
        ("ann", b"1"),
        ("eve", b"1"),
        ("ann", b"2"),
        ("joe", b"1"),
    ]


@asynccontextmanager
async def open_session(root: Path, address: str) -> AsyncIterator[Session]:
    home, tree = root / "home", root / "project-x"
    tree.mkdir(parents=True, exist_ok=True)
    places = find_places(tree, home)
    join_fleet(MemoryPlace(places.memory, places.project / "memory-state", root / "w"), address, "x")
    environ = {"HOME": str(home), "PATH": os.defpath, "XDG_RUNTIME_DIR": ""}
    settings = {"agents": {"reachable": True}, "flags": {"dream": False}}
    async with Session("offline", tree, home=home, environ=environ, settings=settings) as session:
        yield session


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_message_of_one_session_is_read_by_a_session_on_another_machine(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEVENFOLD_FLEET_URL", address)
    async with (
        open_session(tmp_path / "one", address) as one,
        open_session(tmp_path / "two", address) as two,
    ):
        told = ""
        with anyio.fail_after(60):
            there = FleetPost(find_memories(address), "")
            while two.id not in there.list_sessions() or not two.company.heard:
                await anyio.sleep(0.05)
                if two.id in there.list_sessions() and not told:
                    told = await one.company.send(f"bridge:{two.id}", "The build is green.")
        assert told.startswith(f"The message was sent to bridge:{two.id} on another machine")
        await two.go_on()
        said = "\n".join(placed.message.text for placed in two.view)
    assert "The build is green." in said
    assert f'from="bridge:{one.id}"' in said
