"""Delivery: each letter once in a transcript, whatever happens in between."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import make, use

from sevenfold.core.errors import Refused, StorageFailure
from sevenfold.core.events import Event, Failed, Mail
from sevenfold.core.messages import Message, ToolUse, user
from sevenfold.core.protocols import Layers
from sevenfold.core.transcript import Mark, Replace, Transcript, Undo
from sevenfold.layers.l7_agents.mail import (
    BY,
    MARK,
    MOST_AT_ONCE,
    REMEMBERED,
    MailDelivery,
    MemoryInbox,
    find_letter_id,
    render_letter,
)
from sevenfold.layers.l7_agents.mailbox import Letter, Mailbox, MailboxFull, ShutdownRequest, make_letter
from sevenfold.testing import FakeClock, FakeTools

CLOCK = FakeClock()


def letter(id: str, text: str = "", sender: str = "ada") -> Letter:
    return make_letter(sender, text or f"text of {id}", f"about {id}", CLOCK, id=id)


def post(box: Mailbox | MemoryInbox, *ids: str) -> None:
    for id in ids:
        box.post(letter(id))


class Receiver:
    """A mailbox on disk and a transcript on disk, which can be opened again as after a crash."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ada.json"
        self.lines = b""
        self.events: list[Event] = []
        self.open()

    def open(self) -> None:
        self.box = Mailbox(self.path, CLOCK, self.events.append)
        self.transcript = Transcript.load(self.lines, CLOCK.now, self._write)
        self.delivery = MailDelivery([self.box], self.events.append)

    def _write(self, lines: bytes) -> None:
        self.lines += lines

    def step(self) -> int:
        handed = self.delivery.attach(self.transcript.view)
        if handed:
            self.transcript.add(*handed, by=BY)
        return len([what for what in handed if isinstance(what, Message)])

    @property
    def delivered(self) -> list[str]:
        return [id for placed in self.transcript.view if (id := find_letter_id(placed))]

    @property
    def waiting(self) -> list[str]:
        return [one.id for one in Mailbox(self.path, CLOCK, print).waiting()]


@pytest.fixture
def receiver(tmp_path: Path) -> Receiver:
    return Receiver(tmp_path)


def test_letters_are_appended_in_order_and_settled_once_the_transcript_has_them(receiver: Receiver) -> None:
    post(receiver.box, "a", "b")

    assert receiver.step() == 2
    assert receiver.delivered == ["a", "b"]
    assert receiver.waiting == ["a", "b"], "not before the ids are in the view's marks"
    assert receiver.step() == 0
    assert receiver.waiting == []
    assert receiver.events == [Mail("ada", f"about {id}", id) for id in ("a", "b")]


def test_what_was_handed_over_and_not_written_comes_again(receiver: Receiver) -> None:
    post(receiver.box, "a")
    assert receiver.delivery.attach(receiver.transcript.view)

    assert receiver.step() == 1
    assert receiver.delivered == ["a"]
    assert len(receiver.events) == 1, "said once"


def test_a_crash_before_the_write_loses_nothing(receiver: Receiver) -> None:
    post(receiver.box, "a")
    receiver.delivery.attach(receiver.transcript.view)
    receiver.open()

    assert receiver.step() == 1
    assert receiver.delivered == ["a"]


def test_a_crash_after_the_write_delivers_nothing_twice(receiver: Receiver) -> None:
    post(receiver.box, "a", "b")
    receiver.step()
    receiver.open()

    assert receiver.step() == 0
    assert receiver.delivered == ["a", "b"]
    assert receiver.waiting == []


@pytest.mark.parametrize("lines", [0, 1, 2, 3])
def test_a_crash_in_the_middle_of_the_write_delivers_each_once(receiver: Receiver, lines: int) -> None:
    post(receiver.box, "a", "b")
    receiver.step()
    receiver.lines = b"".join(receiver.lines.splitlines(keepends=True)[:lines])
    receiver.open()

    for _ in range(3):
        receiver.step()
    post(receiver.box, "c")
    receiver.step()
    receiver.step()

    assert receiver.delivered == ["a", "b", "c"]
    assert receiver.waiting == []


def test_a_letter_that_its_sender_sends_again_is_not_delivered_again(receiver: Receiver) -> None:
    post(receiver.box, "a")
    receiver.step()
    post(receiver.box, "a")
    receiver.step()
    receiver.path.unlink()  # and with it what the mailbox remembered
    post(receiver.box, "a", "b")
    for _ in range(3):
        receiver.step()

    assert receiver.delivered == ["a", "b"]
    assert receiver.waiting == []


def test_ids_outlive_compaction(receiver: Receiver) -> None:
    post(receiver.box, "a", "b")
    receiver.step()
    view = receiver.transcript.view
    receiver.transcript.add(Replace(view[0].id, view[-1].id, (user("summary"),)), by="Compaction")
    receiver.open()

    assert receiver.step() == 0
    assert receiver.delivered == []
    assert receiver.waiting == []


def test_going_back_in_the_conversation_brings_no_letter_twice_if_the_mark_stays(
    receiver: Receiver,
) -> None:
    post(receiver.box, "a")
    receiver.step()
    messages = [e.id for e in receiver.transcript.entries if not isinstance(e.what, Mark)]
    receiver.transcript.add(Undo(frozenset(messages)), by="rewind")

    assert receiver.step() == 0
    assert receiver.delivered == []
    assert receiver.waiting == []


def test_the_mark_stays_short_and_lists_whatever_is_not_settled(tmp_path: Path) -> None:
    class Stuck(MemoryInbox):
        """Never gets round to settling."""

        def settle(self, ids: Collection[str]) -> None:
            return None

    stuck, queue = Stuck("ada"), MemoryInbox("ada", most=1_000)
    transcript = Transcript(CLOCK.now)
    delivery = MailDelivery([stuck, queue], lambda event: None)
    post(stuck, "s1", "s2")
    for number in range(3 * REMEMBERED):
        post(queue, f"q{number}")
        transcript.add(*delivery.attach(transcript.view), by=BY)

    marked = transcript.view.marks[MARK]
    assert marked[:2] == ["s1", "s2"]
    assert marked[2:] == [f"q{n}" for n in range(2 * REMEMBERED, 3 * REMEMBERED)]
    assert [find_letter_id(p) for p in transcript.view].count("s1") == 1


def test_the_same_letter_in_two_inboxes_is_one(tmp_path: Path) -> None:
    queue, other = MemoryInbox("ada"), MemoryInbox("ada")
    post(queue, "a")
    post(other, "a", "b")
    transcript = Transcript(CLOCK.now)
    delivery = MailDelivery([queue, other], lambda event: None)

    transcript.add(*delivery.attach(transcript.view), by=BY)
    assert delivery.attach(transcript.view) == ()

    assert [find_letter_id(placed) for placed in transcript.view] == ["a", "b"]
    assert (queue.waiting(), other.waiting()) == ((), ())


def test_a_mark_that_makes_no_sense_stops_nothing(receiver: Receiver) -> None:
    receiver.transcript.add(Mark(MARK, {"odd": 1}), by=BY)
    post(receiver.box, "a")

    assert receiver.step() == 1
    assert receiver.transcript.view.marks[MARK] == ["a"]


def test_more_than_a_request_can_take_in_waits_for_the_next(receiver: Receiver) -> None:
    each = MOST_AT_ONCE // 2 - 100
    for id in "abcde":
        receiver.box.post(letter(id, "x" * min(each, 31_000)))

    steps = [receiver.step() for _ in range(4)]

    assert steps == [2, 2, 1, 0]
    assert receiver.delivered == list("abcde")


def test_arrived_is_told_of_each_letter_once() -> None:
    queue, told = MemoryInbox("ada"), list[Letter]()
    queue.post(make_letter("lead", "", "end", CLOCK, ShutdownRequest("r1"), id="a"))
    delivery = MailDelivery([queue], lambda event: None, told.append)
    view = Transcript(CLOCK.now).view

    delivery.attach(view)
    delivery.attach(view)

    assert [one.frame for one in told] == [ShutdownRequest("r1")]


def test_an_inbox_that_fails_stops_neither_the_turn_nor_the_others() -> None:
    class Broken:
        def waiting(self) -> tuple[Letter, ...]:
            raise StorageFailure("ada.json could not be read: the disk is gone")

        def settle(self, ids: Collection[str]) -> None:
            raise AssertionError

    queue, events = MemoryInbox("ada"), list[Event]()
    post(queue, "a")
    delivery = MailDelivery([Broken(), queue], events.append)
    transcript = Transcript(CLOCK.now)

    transcript.add(*delivery.attach(transcript.view), by=BY)
    delivery.attach(transcript.view)

    assert [find_letter_id(placed) for placed in transcript.view] == ["a"]
    assert [e for e in events if isinstance(e, Failed)] == [
        Failed(BY, "ada.json could not be read: the disk is gone")
    ]


def test_an_inbox_that_cannot_be_settled_is_said_once_and_delivers_once() -> None:
    class Unsettled(MemoryInbox):
        def settle(self, ids: Collection[str]) -> None:
            raise Refused("not now")

    queue, events = Unsettled("ada"), list[Event]()
    post(queue, "a")
    delivery, transcript = MailDelivery([queue], events.append), Transcript(CLOCK.now)

    for _ in range(3):
        transcript.add(*delivery.attach(transcript.view), by=BY)

    assert [find_letter_id(placed) for placed in transcript.view] == ["a"]
    assert events == [Mail("ada", "about a", "a"), Failed(BY, "not now")]


def test_a_queue_takes_so_many_and_each_once() -> None:
    queue = MemoryInbox("ada", most=2)
    post(queue, "a", "b")

    with pytest.raises(MailboxFull, match="2 messages wait for 'ada' already"):
        queue.post(letter("c"))
    assert not queue.post(letter("a"))
    queue.settle(["a"])
    assert not queue.post(letter("a")), "it was there"
    assert queue.post(letter("c"))
    assert [one.id for one in queue.waiting()] == ["b", "c"]


@settings(max_examples=50)
@given(
    st.lists(
        st.sampled_from(["post", "post again", "step", "lose", "crash", "tear"]), min_size=1, max_size=25
    )
)
def test_any_order_of_posts_steps_and_crashes_delivers_each_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, deeds: list[str]
) -> None:
    receiver = Receiver(tmp_path_factory.mktemp("mail"))
    sent = 0
    for deed in deeds:
        if deed == "post":
            sent += 1
        if deed.startswith("post") and sent:
            receiver.box.post(letter(f"n{sent}"))
        elif deed == "step":
            receiver.step()
        elif deed == "lose":  # handed over, and the process dies before it is written
            receiver.delivery.attach(receiver.transcript.view)
            receiver.open()
        elif deed == "crash":
            receiver.open()
        elif deed == "tear":  # the last write of a step loses its end
            before = receiver.lines
            receiver.step()
            new = receiver.lines.removeprefix(before).splitlines(keepends=True)
            receiver.lines = before + b"".join(new[: len(new) // 2])
            receiver.open()
    for _ in range(3):
        receiver.step()

    assert receiver.delivered == [f"n{n}" for n in range(1, sent + 1)]
    assert receiver.waiting == []


@pytest.mark.anyio
async def test_a_letter_arrives_at_the_next_tool_round_of_a_turn() -> None:
    queue = MemoryInbox("ada")

    def write(call: ToolUse) -> str:
        queue.post(letter("a", "stop and look at test_b"))
        return "ok"

    tools = FakeTools({"Read": write})
    layers = Layers(attach=(MailDelivery([queue], lambda event: None),))
    turn = make([use("u1"), "done"], layers, tools=tools)

    await turn.run(user("go"))

    assert [placed.by for placed in turn.transcript.view] == ["user", "model", "tools", BY, "model"]
    assert queue.waiting() != ()
    turn.attach()
    assert queue.waiting() == ()


def test_only_what_delivery_appended_counts_as_delivered(receiver: Receiver) -> None:
    receiver.transcript.add(render_letter(letter("a")), by="user")  # pasted by a person
    post(receiver.box, "a")

    assert receiver.step() == 1
