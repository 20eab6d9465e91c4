"""A machine that was away for long takes the newest texts, and loses nothing that it has of its own."""

from __future__ import annotations

import contextlib
import random
import re
from pathlib import Path

import pytest
from fleet.machines import Machine, away
from fleet.test_join import ShortPages, count_revisions, join, reopen
from fleet.test_replica import ORDER, write_around_the_guard

from sevenfold.core.errors import SevenfoldError
from sevenfold.fleet.database import FleetAway
from sevenfold.fleet.memories import NewRevision
from sevenfold.memory.history.history import MemoryHistory
from sevenfold.memory.history.revisions import Author

pytest_plugins = ["fleet.fixtures"]
pytestmark = [pytest.mark.real, pytest.mark.xdist_group("postgres")]
COUNT, EDITS = 30, 8
LINES = "The first line of {n}.\n\nIt listens on port {port}.\n\nThe last line of {n}."


def text_of(n: int, port: int) -> str:
    return LINES.format(n=n, port=port)


def edit_all(machine: Machine, edits: int, names: range = range(COUNT)) -> None:
    """Many revisions, as the outbox of a machine sends them; this machine has the last of them."""
    memories, wanted = machine.backend.memories, {f"m{n}.md" for n in names}
    for _ in range(edits):
        rows = []
        for head in memories.read_heads():
            if head.name in wanted and head.body is not None:
                port = f"port {8000 + 100 * head.rev}".encode()
                body, author = re.sub(rb"port \d+", port, head.body), Author("agent", reason="moved")
                id, said = f"far-{head.name}-{head.rev}", f"moved to {port.decode()}"
                rows.append(NewRevision(id, head.name, head.rev, body, author, said, 1e9 + head.rev))
        memories.write(rows)
    machine.sync()


@pytest.fixture
def ann(tmp_path: Path, address: str) -> Machine:
    """A machine with many memories."""
    ann = Machine(tmp_path, address, "ann")
    for n in range(COUNT):
        ann.add(f"m{n}", text_of(n, n))
    return ann


def check_history(machine: Machine) -> None:
    assert MemoryHistory(machine.root / "state" / "history.sqlite").check() == []


def test_the_newest_texts_come_as_one_revision(ann: Machine) -> None:
    bob = join(ann, "bob")
    edit_all(ann, EDITS)
    before = len(bob.backend.own_revisions().log())
    bob.sync()

    assert bob.texts() == ann.texts()
    newest, *rest = bob.backend.own_revisions().log()
    assert (len(rest), len(newest.files)) == (before, COUNT)
    assert newest.author == Author("other", reason="caught up with the fleet")
    assert bob.store.recall(f"who listens on port {8000 + 100 * EDITS}?")[0].name == "m0"
    assert bob.sync() == 0
    assert bob.backend.outbox.list_waiting() == []


def test_a_few_changes_come_one_by_one(ann: Machine) -> None:
    bob = join(ann, "bob")
    edit_all(ann, 2, range(3))
    before = len(bob.backend.own_revisions().log())
    bob.sync()

    assert len(bob.backend.own_revisions().log()) == before + 6


def test_what_a_memory_was_meanwhile_is_fetched_and_can_be_undone(ann: Machine) -> None:
    bob = join(ann, "bob")
    bob.store.edit("m1", body=text_of(1, 7))
    edit_all(ann, EDITS)
    bob.sync()
    edit_all(ann, EDITS)
    bob.sync()
    sent = count_revisions(ann)
    pasts = {f"m{n}": ann.backend.memories.read_past(f"m{n}.md") for n in range(3)}

    for name, past in pasts.items():
        known = [(one.author.kind, one.summary) for one in reversed(past)]
        assert [(one.author.kind, one.summary) for one in bob.store.history(name)] == known
        for one, ours in zip(reversed(past), bob.store.history(name), strict=True):
            assert bob.backend.own_revisions().file_at(ours.id, f"{name}.md") == one.body
    check_history(bob)
    for name, past in pasts.items():
        bob.store.undo(name)
        bob.store.undo(name)
        assert bob.texts()[f"{name}.md"] == past[-3].body
    ann.sync()
    assert ann.texts() == bob.texts()
    assert count_revisions(ann) == sent + 6, "what was fetched is not sent back"
    check_history(bob)


def test_without_a_name_nothing_that_came_meanwhile_is_undone(ann: Machine) -> None:
    bob = join(ann, "bob")
    edit_all(ann, EDITS)
    bob.sync()
    with pytest.raises(SevenfoldError, match="nothing to undo"):
        bob.store.undo()
    assert bob.texts() == ann.texts()


def test_what_was_changed_here_meanwhile_is_merged_and_sent(ann: Machine) -> None:
    bob = join(ann, "bob")
    bob.store.history("m2")
    with away(bob):
        bob.store.edit("m0", body=text_of(0, 0).replace("The first line", "Bob's first line"))
        bob.store.remove("m1")
        bob.store.edit("m2", body="Bob was here.")
        bob.store.undo("m2")
        bob.store.edit("m3", body=text_of(3, 4711))
        bob.store.remove("m29")
        bob.add("own", "Only bob knows that the cellar is locked.")
        (bob.root / "memory" / "m4.md").write_bytes(bob.texts()["m4.md"].replace(b"first", b"own"))
    edit_all(ann, EDITS, range(COUNT - 1))
    bob = join(ann, "bob")
    ann.sync()
    bob.sync()

    assert bob.texts() == ann.texts()
    assert bob.backend.outbox.list_waiting() == []
    every, port = ann.texts(), f"port {8000 + 100 * EDITS}".encode()
    assert b"Bob's first line" in every["m0.md"]
    assert port in every["m0.md"]
    assert b"The first line of 1." in every["m1.md"], "a change outlives a removal"
    assert b"Bob was here" not in b"".join(every.values())
    assert b"4711" in b"".join(every.values())
    assert b"The own line of 4." in every["m4.md"]
    assert port in every["m4.md"]
    assert "m29.md" not in every
    assert "own.md" in every
    assert len(every) == COUNT + 1, "one beside m3, one of bob's own, one removed"
    check_history(bob)


def test_a_purge_meanwhile_leaves_nothing_also_if_the_name_is_used_again(ann: Machine) -> None:
    ann.add("gone", "The zebra sleeps in the cellar.")
    ann.add("again", "The zebra eats the cable.")
    bob = join(ann, "bob")
    assert "gone.md" in bob.texts()
    ann.store.purge("gone")
    ann.store.purge("again")
    ann.add("again", "The giraffe is harmless.")
    edit_all(ann, EDITS)
    bob.sync()
    bob.backend.fetch_past()

    assert bob.texts() == ann.texts()
    assert "gone.md" not in bob.texts()
    assert bob.body("again") == "The giraffe is harmless."
    for path in bob.root.rglob("*"):
        assert b"zebra" not in (path.read_bytes() if path.is_file() else b"")


def test_a_look_that_was_interrupted_goes_on(ann: Machine) -> None:
    def fall_away(page: int) -> None:
        if page == 3:
            raise FleetAway("the cable was pulled")

    bob = join(ann, "bob")
    texts, known = bob.texts(), {name: bob.backend.outbox.read_known(name) for name in bob.texts()}
    edit_all(ann, EDITS)
    with pytest.raises(FleetAway):
        reopen(bob, ShortPages(bob.backend.memories, fall_away)).sync()
    assert 0 < sum(data != texts[file] for file, data in bob.texts().items()) < COUNT
    assert bob.backend.outbox.read_state().catching_up
    for file in ("m0.md", "m1.md", "m10.md", "m12.md"):  # and what was noted of some was lost
        bob.backend.state("fleet").remove(f"file:{file}")
        bob.backend.outbox.write_known(file, known[file])
    ann.store.purge("m20")
    edit_all(ann, 1, range(5))
    bob = join(ann, "bob")
    ann.sync()

    assert bob.texts() == ann.texts()
    assert len(ann.texts()) == COUNT - 1, "what came before is no change of bob's"
    assert bob.backend.outbox.list_waiting() == []
    check_history(bob)


def test_what_is_written_meanwhile_is_not_lost(ann: Machine) -> None:
    def write(page: int) -> None:
        ann.add(f"a-first-{page}", f"The first word of page {page} is {page * 7919}.")
        ann.add(f"z-last-{page}", f"The last word of page {page} is {page * 104_729}.")
        ann.store.edit("m0", body=f"Changed at page {page}.")
        if page == 3:
            ann.store.remove("m2")
            ann.store.purge("m1")
            ann.add("m1", "The name is used again.")

    bob = join(ann, "bob")
    edit_all(ann, EDITS)
    busy = ShortPages(bob.backend.memories, write)
    reopen(bob, busy).sync()
    bob.sync()

    assert busy.pages > 4
    assert bob.texts() == ann.texts()
    assert bob.body("m1") == "The name is used again."


def test_what_the_guard_refuses_is_not_taken_in(ann: Machine) -> None:
    bob = join(ann, "bob")
    edit_all(ann, EDITS, range(1, COUNT))
    write_around_the_guard(ann, "m0", ORDER, 1)
    bob.sync()

    assert bob.body("m0") == text_of(0, 0)
    assert len(bob.store.quarantine.list()) == 1
    bob.store.edit("m0", body="It goes on from there.")
    ann.sync()
    assert ann.body("m0") == "It goes on from there."


def change_something(machine: Machine, name: str, word: str, chance: random.Random) -> None:
    if f"{name}.md" not in machine.texts():
        machine.add(name, f"The first of {name}.\n\nMiddle.\n\n{word} begins.")
        return
    match chance.randrange(8):
        case 0:
            machine.store.remove(name)
        case 1:
            machine.store.undo(name)
        case 2:
            text = machine.texts()[f"{name}.md"].rstrip() + f"\n\nBy hand {word}.\n".encode()
            (machine.root / "memory" / f"{name}.md").write_bytes(text)
        case _:
            machine.store.edit(name, body=f"{machine.body(name)}\n\nLine {word}.")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_machines_that_catch_up_in_either_way_are_alike(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    names = ("ann", "bob", "cy")
    for step in range(80):
        machine = Machine(tmp_path, address, chance.choice(names))
        monkeypatch.setattr("sevenfold.fleet.replica.MANY", chance.choice((0, 2, 200)))
        if chance.random() < 0.3:
            machine.sync()
        elif chance.random() < 0.1:
            machine.backend.fetch_past()
        else:
            unreached = away(machine) if chance.random() < 0.5 else contextlib.nullcontext()
            with unreached, contextlib.suppress(SevenfoldError):  # there is nothing to undo
                change_something(machine, f"m{chance.randrange(6)}", f"{machine.name}-{step}", chance)
    for _ in range(3):
        for machine in [Machine(tmp_path, address, name) for name in names]:
            machine.store.take_in()
            machine.sync()
    machines = [Machine(tmp_path, address, name) for name in names]
    for machine in machines:
        assert machine.texts() == machines[0].texts()
        assert machine.backend.outbox.list_waiting() == []
        machine.backend.fetch_past()
        check_history(machine)
