"""A machine that joins begins with the newest texts; their past is fetched when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fleet.machines import Machine, make_fleet

from sevenfold.fleet.database import FleetAway
from sevenfold.fleet.memories import FleetMemories, SharedRevision
from sevenfold.fleet.replica import PostgresBackend
from sevenfold.memory.history.history import MemoryHistory
from sevenfold.memory.store import MemoryStore
from sevenfold.testing.postgres import PostgresServer

pytest_plugins = ["fleet.fixtures"]
pytestmark = [pytest.mark.real, pytest.mark.xdist_group("postgres")]


class ShortPages(FleetMemories):
    """Three heads at a time; before each page something happens."""

    def __init__(self, made: FleetMemories, happen: Callable[[int], object] = lambda page: None) -> None:
        super().__init__(made.database, made.space, made.machine)
        self.pages, self.happen = 0, happen

    def read_heads(
        self, after: str = "", limit: int = 3, since: tuple[int, int] = (0, 0)
    ) -> list[SharedRevision]:
        self.pages += 1
        self.happen(self.pages)
        return super().read_heads(after, limit, since)


def reopen(machine: Machine, memories: FleetMemories) -> Machine:
    """The same machine, with another way to the database."""
    machine.backend = PostgresBackend(machine.root / "memory", machine.root / "state", memories)
    machine.store = MemoryStore(machine.backend, emit=machine.told.append)
    return machine


def count_revisions(machine: Machine) -> int:
    query = "select count(*) from sevenfold.revision"
    return int(machine.database.run(lambda connection: connection.execute(query).fetchall())[0][0])


@pytest.fixture
def ann(tmp_path: Path, address: str) -> Machine:
    """A machine whose memories have a past."""
    ann = Machine(tmp_path, address, "ann")
    for n in range(7):
        ann.add(f"port-{n}", f"The service number {n} listens on port {8000 + n}.")
    for text in ("on Tuesdays", "on Wednesdays", "on Fridays at noon"):
        ann.add("deploys", f"We deploy {text}.")
    ann.store.remove("port-6")
    return ann


def join(ann: Machine, name: str) -> Machine:
    machine = Machine(ann.root.parent, ann.database.address, name)
    machine.sync()
    return machine


def test_a_machine_that_joins_has_the_newest_texts_as_one_revision(ann: Machine) -> None:
    bob = Machine(ann.root.parent, ann.database.address, "bob")
    assert bob.sync() == 7
    assert bob.sync() == 0

    assert bob.texts() == ann.texts()
    assert len(bob.backend.own_revisions().log()) == 1
    assert bob.store.recall("when do we deploy?")[0].name == "deploys"
    assert "[deploys](deploys.md)" in bob.store.index_text()
    assert bob.backend.outbox.list_waiting() == []


def test_what_a_memory_was_is_fetched_when_it_is_asked_for_and_can_be_undone(ann: Machine) -> None:
    bob, before = join(ann, "bob"), count_revisions(ann)
    told = [(one.author.kind, one.summary) for one in ann.store.history("deploys")]

    assert [(one.author.kind, one.summary) for one in bob.store.history("deploys")] == told
    bob.store.undo("deploys")
    assert bob.body("deploys") == "We deploy on Wednesdays."
    bob.store.undo("deploys")
    assert bob.body("deploys") == "We deploy on Tuesdays."
    bob.store.redo("deploys")
    bob.store.undo("port-6")
    ann.sync()

    assert ann.body("deploys") == "We deploy on Wednesdays."
    assert ann.texts() == bob.texts()
    assert "port-6.md" in ann.texts()
    assert count_revisions(ann) == before + 4, "what was fetched is not sent back"
    assert MemoryHistory(bob.root / "state" / "history.sqlite").check() == []


def test_without_a_name_nothing_that_came_is_undone(ann: Machine) -> None:
    bob = join(ann, "bob")
    with pytest.raises(Exception, match="nothing to undo"):
        bob.store.undo()

    assert bob.texts() == ann.texts()


def test_a_past_that_cannot_be_fetched_is_said_to_be_in_the_fleet(
    own_server: PostgresServer, tmp_path: Path
) -> None:
    address = make_fleet(own_server)
    ann = Machine(tmp_path, address, "ann")
    for text in ("on Tuesdays", "on Wednesdays"):
        ann.add("deploys", f"We deploy {text}.")
    bob = join(ann, "bob")
    own_server.kill()
    try:
        for ask in (bob.store.undo, bob.store.history):
            with pytest.raises(FleetAway, match=r"what deploys.md was before is in the fleet alone"):
                ask("deploys")
    finally:
        own_server.start()
    assert bob.body("deploys") == "We deploy on Wednesdays."
    bob.store.undo("deploys")
    assert bob.body("deploys") == "We deploy on Tuesdays."


def test_what_is_written_during_the_join_is_not_lost(ann: Machine) -> None:
    def write(page: int) -> None:
        ann.add(f"a-first-{page}", f"The first word of page {page} is {page * 7919}.")
        ann.add(f"z-last-{page}", f"The last word of page {page} is {page * 104_729}.")
        ann.store.edit("deploys", body=f"We deploy on day {page}.")
        if page == 3:
            ann.store.remove("port-0")
            ann.store.purge("port-1")

    bob = Machine(ann.root.parent, ann.database.address, "bob")
    busy = ShortPages(bob.backend.memories, write)
    reopen(bob, busy).sync()

    assert busy.pages > 4
    assert bob.texts() == ann.texts()
    bob.store.edit("deploys", body="We deploy whenever it is green.")
    ann.sync()
    assert bob.texts() == ann.texts()


def test_a_join_that_was_interrupted_goes_on(ann: Machine) -> None:
    def fall_away(page: int) -> None:
        if page == 3:
            raise FleetAway("the cable was pulled")

    bob = Machine(ann.root.parent, ann.database.address, "bob")
    with pytest.raises(FleetAway):
        reopen(bob, ShortPages(bob.backend.memories, fall_away)).sync()
    assert 0 < len(bob.texts()) < 7
    state = bob.root / "state" / "history.sqlite"
    state.unlink()  # and the notes of what came were lost
    for name in ("deploys", "port-0"):
        ann.store.edit(name, body=f"It is not known what is new about {name}.")
    bob = join(ann, "bob")
    ann.sync()

    assert bob.texts() == ann.texts()
    assert len(ann.texts()) == 7, "what came before is no change of bob's"
    bob.store.undo("deploys")
    bob.store.undo("deploys")
    assert bob.body("deploys") == "We deploy on Wednesdays."
    assert bob.backend.outbox.list_waiting() == []


def test_what_lies_here_and_differs_is_merged(ann: Machine) -> None:
    bob = Machine(ann.root.parent, ann.database.address, "bob")
    folder = bob.root / "memory"
    folder.mkdir(parents=True)
    for file, data in ann.texts().items():
        if file in ("port-1.md", "port-2.md", "deploys.md"):
            (folder / file).write_bytes(data.replace(b"Fridays", b"Sundays"))
    bob.add("own", "Only bob knows that the cellar is locked.")
    bob.sync()
    ann.sync()

    assert bob.texts() == ann.texts()
    assert ann.body("own") == "Only bob knows that the cellar is locked."
    every = b"".join(ann.texts().values())
    assert b"Fridays" in every
    assert b"Sundays" in every
    assert {"port-1.md", "port-2.md"} < set(ann.texts())
    assert len(ann.texts()) == 9, "what was the same is there once"


def test_a_folder_that_has_an_older_text_of_a_memory_goes_on_from_there(ann: Machine) -> None:
    bob = Machine(ann.root.parent, ann.database.address, "bob")
    for body in ("We deploy by hand.", "We deploy on Tuesdays."):
        bob.add("deploys", body)
    data = ann.backend.memories.read_body("deploys.md", 2)
    assert data is not None
    (bob.root / "memory" / "deploys.md").write_bytes(data)
    bob.sync()
    ann.sync()

    assert bob.texts() == ann.texts()
    assert bob.body("deploys") == "We deploy on Fridays at noon."
    assert len(ann.texts()) == 7


def test_a_memory_that_is_purged_after_a_join_leaves_nothing(ann: Machine) -> None:
    bob = join(ann, "bob")
    ann.store.purge("deploys")
    bob.sync()
    bob.store.purge("port-1")

    assert "deploys.md" not in bob.texts()
    assert not any(bob.backend.outbox.read_known(file).gaps for file in ("deploys.md", "port-1.md"))
    bob.backend.fetch_past()
    for path in (bob.root / "state").rglob("*"):
        assert b"We deploy" not in (path.read_bytes() if path.is_file() else b"")
