"""Mailboxes: letters that were put in are there, whatever else lies in the file."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import StorageFailure
from sevenfold.core.events import Event, Notice
from sevenfold.layers.l7_agents.mailbox import (
    MOST_WAITING,
    REMEMBERED,
    RETRIES,
    Busy,
    Letter,
    Mailbox,
    MailboxFull,
    TooLong,
    choose_retry_delay,
    hold_mail_lock,
    make_letter,
)
from sevenfold.testing import FakeClock

CLOCK = FakeClock()


class Place:
    """A mailbox, what it said, and how long it waited."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "inboxes" / "ada.json"
        self.events: list[Event] = []
        self.slept: list[float] = []
        self.box = self.opened()

    def opened(self, sleep: Callable[[float], object] | None = None) -> Mailbox:
        return Mailbox(self.path, CLOCK, self.events.append, sleep=sleep or self.slept.append)

    def holds(self, *entries: Any) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(entries), encoding="utf-8")

    @property
    def entries(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.path.read_text(encoding="utf-8"))
        return found

    @property
    def notices(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Notice)]

    @property
    def beside(self) -> list[str]:
        return sorted(path.name for path in self.path.parent.iterdir())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def letter(text: str = "hello", id: str = "", sender: str = "lead") -> Letter:
    return make_letter(sender, text, f"about {text[:20]}", CLOCK, id=id)


def good(id: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "from": "lead", "text": f"text of {id}", "timestamp": "", "read": False} | more


def test_what_is_posted_waits_in_order_until_it_is_settled(place: Place) -> None:
    for text in ("one", "two", "three"):
        assert place.box.post(letter(text))
    other = place.opened()
    first, *rest = other.waiting()

    assert [one.text for one in (first, *rest)] == ["one", "two", "three"]
    assert other.settle([first.id])
    assert place.box.waiting() == tuple(rest)
    assert [entry["read"] for entry in place.entries] == [True, False, False]


def test_the_file_is_this_users_alone_and_readable_by_people(place: Place) -> None:
    place.box.post(letter())

    assert stat.S_IMODE(place.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.path.parent.stat().st_mode) == 0o700
    assert set(place.entries[0]) == {"id", "from", "text", "timestamp", "read", "summary"}


def test_an_empty_mailbox_is_no_file_and_makes_none(place: Place) -> None:
    assert place.box.waiting() == ()
    assert not place.path.parent.exists()


def test_a_letter_that_is_sent_again_counts_once_also_when_it_was_read(place: Place) -> None:
    one = letter(id="again")

    assert place.box.post(one)
    assert not place.box.post(one)
    assert len(place.box.waiting()) == 1
    place.box.settle(["again"])
    assert not place.box.post(one)
    assert place.box.waiting() == ()


def test_letters_that_were_read_are_remembered_for_a_while_and_not_for_ever(place: Place) -> None:
    place.holds(*(good(f"n{n}", read=True) for n in range(REMEMBERED)))
    place.box.post(letter("long " * 200, id="new"))

    place.box.settle(["new"])

    assert [entry["id"] for entry in place.entries] == [*(f"n{n}" for n in range(1, 256)), "new"]
    assert not place.box.post(letter(id="n1"))
    assert place.box.post(letter(id="n0")), "forgotten"
    assert len(place.entries[-2]["text"]) == 200, "the transcript has all of it"


def test_the_fifty_first_waiting_message_is_refused_to_its_sender(place: Place) -> None:
    for number in range(MOST_WAITING):
        place.box.post(letter(id=f"n{number}"))

    with pytest.raises(MailboxFull) as full:
        place.box.post(letter(id="one too many"[:3]))
    assert str(full.value) == (
        "50 messages wait for 'ada' already, and this one was not sent: wait until some are read"
    )
    assert not place.box.post(letter(id="n7")), "what is there already is no new one"
    place.box.settle(["n0"])
    assert place.box.post(letter(id="n50"))
    assert [one.id for one in place.box.waiting()] == [f"n{n}" for n in range(1, 51)]


def test_a_message_that_is_too_long_is_refused(place: Place) -> None:
    with pytest.raises(TooLong, match="write it to a file"):
        place.box.post(letter("x" * 32_001))
    assert not place.path.exists()


def test_keys_that_nobody_here_knows_stay(place: Place) -> None:
    place.holds(good("a", color="blue", nested={"deep": [1, 2.5, None]}), good("b"))

    place.box.settle(["a", "b"])
    place.box.post(letter(id="c"))

    first, second, third = place.entries
    assert first == good("a", color="blue", nested={"deep": [1, 2.5, None]}, read=True)
    assert second == good("b", read=True)
    assert third["id"] == "c"


@pytest.mark.parametrize(
    "bad",
    [
        "words",
        17,
        None,
        [],
        {},
        {"id": "x", "from": "y"},
        {"id": "x", "text": "y"},
        {"from": "x", "text": "y"},
        {"id": 5, "from": "x", "text": "y"},
        {"id": "", "from": "x", "text": "y"},
        {"id": "../../x", "from": "x", "text": "y"},
        {"id": "x" * 100, "from": "x", "text": "y"},
        {"id": "x", "from": "", "text": "y"},
        {"id": "x", "from": "y", "text": ""},
        {"id": "x", "from": "y", "text": "z" * 40_000},
        {"id": "x", "from": "y", "text": "z", "read": "no"},
    ],
)
def test_an_entry_that_is_no_letter_is_set_aside_and_the_others_are_delivered(
    place: Place, bad: Any
) -> None:
    place.holds(good("a"), bad, good("b"))

    assert [one.id for one in place.box.waiting()] == ["a", "b"]

    assert [entry["id"] for entry in place.entries] == ["a", "b"]
    aside = place.path.with_name("ada.damaged.jsonl")
    assert [json.loads(line) for line in aside.read_text("utf-8").splitlines()] == [bad]
    assert stat.S_IMODE(aside.stat().st_mode) == 0o600
    assert place.notices == [
        f"1 entry of the mailbox {place.path} could not be read as a message and went to "
        "ada.damaged.jsonl; the others are delivered"
    ]
    assert len(place.box.waiting()) == 2
    assert len(place.notices) == 1, "said once"


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b'{"id": "a"}',
        b"null",
        b"7",
        b"\xff\xfe\x00",
        b'[{"id": "a", "from": "x", "te',
        b"[" * 100_000,
        b"not json at all",
    ],
)
def test_a_file_that_is_no_mailbox_is_set_aside_whole_and_said(place: Place, data: bytes) -> None:
    place.holds()
    place.path.write_bytes(data)

    assert place.box.waiting() == ()
    assert place.box.post(letter(id="new"))

    assert [entry["id"] for entry in place.entries] == ["new"]
    assert place.path.with_name("ada.damaged-1.json").read_bytes() == data
    assert place.notices == [
        f"the mailbox {place.path} could not be read as one and was set aside as "
        "ada.damaged-1.json; messages in it were not delivered"
    ]


def test_a_second_damaged_file_takes_no_place_of_the_first(place: Place) -> None:
    for data in (b"one", b"two"):
        place.holds()
        place.path.write_bytes(data)
        assert place.box.post(letter())

    assert place.path.with_name("ada.damaged-1.json").read_bytes() == b"one"
    assert place.path.with_name("ada.damaged-2.json").read_bytes() == b"two"


@pytest.mark.parametrize("data", [b"", b"\0\0\0", b" \n"])
def test_an_empty_file_is_an_empty_mailbox(place: Place, data: bytes) -> None:
    place.holds()
    place.path.write_bytes(data)

    assert place.box.waiting() == ()
    assert place.box.post(letter())
    assert place.notices == []


def test_half_a_character_costs_one_character_and_no_message(place: Place) -> None:
    place.holds()
    entry = '{"id":"a","from":"x","text":"half \\ud83d of it","read":false}'
    place.path.write_text(f"[{entry}]", encoding="utf-8")

    [one] = place.box.waiting()

    assert one.text == "half ? of it"
    assert place.box.settle(["a"])


def test_the_same_id_twice_in_a_file_is_one_letter(place: Place) -> None:
    place.holds(good("a"), good("a", text="again"), good("b", read=True), good("b"))

    assert [one.text for one in place.box.waiting()] == ["text of a"]


@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "pipe"])
def test_what_is_no_plain_file_is_neither_read_nor_written(place: Place, kind: str, tmp_path: Path) -> None:
    place.path.parent.mkdir(parents=True)
    secret = tmp_path / "secret.json"
    if kind == "link":
        secret.write_text("[]", encoding="utf-8")
    if kind in ("link", "dangling"):
        place.path.symlink_to(secret)
    elif kind == "folder":
        place.path.mkdir()
    else:
        os.mkfifo(place.path)

    with pytest.raises(StorageFailure, match=r"ada\.json"):
        place.box.waiting()
    with pytest.raises(StorageFailure, match=r"ada\.json"):
        place.box.post(letter())
    if kind == "link":
        assert secret.read_text(encoding="utf-8") == "[]"


def test_a_link_in_place_of_the_lock_or_of_the_folder_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.path.parent.mkdir(parents=True)
    place.path.with_name("ada.json.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageFailure, match="symbolic link"):
        place.box.post(letter())
    assert not (tmp_path / "elsewhere").exists()

    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    box = Mailbox(tmp_path / "linked" / "ada.json", CLOCK, place.events.append)
    with pytest.raises(StorageFailure, match="symbolic link"):
        box.post(letter())


def test_a_lock_that_is_held_is_tried_ten_times_more_and_then_said(place: Place) -> None:
    with hold_mail_lock(place.path, place.slept.append), pytest.raises(Busy) as busy:
        place.box.post(letter())

    assert str(busy.value) == (f"{place.path} is being changed by another process; try again in a moment")
    assert len(place.slept) == RETRIES == 10
    assert all(0.005 <= seconds <= 0.1 for seconds in place.slept)
    assert not place.path.exists()


def test_the_waits_grow_from_five_to_a_hundred_milliseconds() -> None:
    assert [choose_retry_delay(n, lambda: 1.0) for n in range(10)] == pytest.approx(
        [0.01, 0.02, 0.04, 0.08] + [0.1] * 6
    )
    assert choose_retry_delay(9, lambda: 0.0) == 0.005


def test_a_lock_that_is_let_go_meanwhile_is_taken(place: Place) -> None:
    holding = hold_mail_lock(place.path, place.slept.append)
    holding.__enter__()

    def sleep(seconds: float) -> None:
        place.slept.append(seconds)
        if len(place.slept) == 3:
            holding.__exit__(None, None, None)

    assert place.opened(sleep).post(letter())
    assert len(place.slept) == 3


def test_settling_waits_for_nobody_and_is_done_later(place: Place) -> None:
    place.box.post(letter(id="a"))

    with hold_mail_lock(place.path, place.slept.append):
        assert not place.box.settle(["a"])
    assert place.slept == []
    assert [one.id for one in place.box.waiting()] == ["a"]
    assert place.box.settle(["a"])
    assert place.box.waiting() == ()


def test_damage_is_read_past_while_somebody_else_writes(place: Place) -> None:
    place.holds(good("a"), "damaged")

    with hold_mail_lock(place.path, place.slept.append):
        assert [one.id for one in place.box.waiting()] == ["a"]
    assert place.notices == []


def test_many_threads_that_post_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "inboxes" / "ada.json"

    def post(name: str) -> None:
        box = Mailbox(path, SystemClock(), lambda event: None)
        for number in range(10):
            while True:
                try:
                    box.post(letter(f"{number}", f"{name}-{number}", name))
                    break
                except Busy:
                    continue

    threads = [threading.Thread(target=post, args=(name,)) for name in "abcde"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    waiting = Mailbox(path, SystemClock(), lambda event: None).waiting()
    assert len(waiting) == 50
    for name in "abcde":
        assert [one.text for one in waiting if one.sender == name] == [str(n) for n in range(10)]


def test_a_mailbox_that_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    clock = FakeClock(4_000_000_000.0)  # long after the file was written
    box = Mailbox(tmp_path / "ada.json", clock, lambda event: None)
    box.post(letter(id="a"))
    first = box.waiting()

    assert box.waiting() is first
    box.post(letter(id="b"))
    assert [one.id for one in box.waiting()] == ["a", "b"]


def test_a_file_that_has_just_been_written_is_not_trusted_to_look_changed(tmp_path: Path) -> None:
    path = tmp_path / "ada.json"
    clock = FakeClock()
    box = Mailbox(path, clock, lambda event: None)
    box.post(letter(id="a"))
    was = path.stat()
    clock.time = was.st_mtime  # the same tick of the clock
    first = box.waiting()

    again = box.waiting()

    assert again == first
    assert again is not first


@pytest.mark.anyio
async def test_posting_beside_the_event_loop_tells_what_was_damaged_on_it(place: Place) -> None:
    place.holds(good("a"), "damaged")
    told_in: list[int] = []
    box = Mailbox(place.path, CLOCK, lambda event: told_in.append(threading.get_ident()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(box.accept, letter(id="b"))

    assert [entry["id"] for entry in place.entries] == ["a", "b"]
    assert told_in == [threading.get_ident()]
