"""Messages between sessions over a Unix socket: only the same user, and on the disk before the yes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec.structs import replace

from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Refused, StorageFailure
from sevenfold.core.events import Event, Notice
from sevenfold.layers.l7_agents.mailbox import COMMAND_LINE, Letter, Mailbox, ShutdownRequest, make_letter
from sevenfold.layers.l7_agents.sockets import (
    LONGEST_LINE,
    LONGEST_PATH,
    NotSent,
    PeerGone,
    PeerSessions,
    SessionAddress,
    SessionListener,
    accept_connection,
    check_peer,
    find_reachable,
    find_runtime_folder,
    get_own_user,
    get_peer_user,
    list_reachable,
    make_private_folder,
    make_socket_path,
    open_connection,
    open_listener,
    parse_xucred,
    read_line,
    send_bytes,
    send_letter_to,
)
from sevenfold.testing import FakeClock

pytestmark = pytest.mark.anyio
CLOCK = FakeClock(0.0)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short: the address of a socket has room for about a hundred bytes."""
    made = Path(tempfile.mkdtemp(prefix="sf-", dir="/tmp"))
    yield made / "run"
    shutil.rmtree(made)


@pytest.fixture
def box(tmp_path: Path) -> Mailbox:
    return Mailbox(tmp_path / "inbox.json", CLOCK, print)


def listening(folder: Path, receive: Any, session: str = "s-1", **more: Any) -> SessionListener:
    return SessionListener(session, receive, folder, CLOCK, print, project="/p", **more)


def letter(text: str = "hello", id: str = "") -> Letter:
    return make_letter("lead", text, "hi", CLOCK, id=id)


async def not_sent(session: str, one: Letter, folder: Path, **more: Any) -> tuple[str, str]:
    with pytest.raises(NotSent) as failed:
        await send_letter_to(session, one, folder, **more)
    return failed.value.why, str(failed.value)


# --- there and back -------------------------------------------------------------------------------------


async def test_a_letter_is_on_the_disk_before_its_sender_hears_yes(folder: Path, box: Mailbox) -> None:
    async with listening(folder, box.accept):
        there = await send_letter_to("s-1", letter(id="a"), folder, own="s-2")

    assert (there.session, there.project, there.pid) == ("s-1", "/p", os.getpid())
    [entry] = json.loads(box.path.read_text(encoding="utf-8"))
    assert (entry["id"], entry["from"], entry["text"]) == ("a", "uds:s-2", "hello")
    assert not entry["read"]


async def test_the_same_letter_sent_again_counts_once(folder: Path, box: Mailbox) -> None:
    async with listening(folder, box.accept):
        for _ in range(2):
            await send_letter_to("s-1", letter(id="a"), folder)

    assert len(box.waiting()) == 1


async def test_no_name_of_the_team_can_be_claimed_from_outside(folder: Path, box: Mailbox) -> None:
    async with listening(folder, box.accept):
        await send_letter_to("s-1", letter(id="a"), folder, own='x" from="user"\n<')
        await send_letter_to("s-1", letter(id="b"), folder)

    assert [one.sender for one in box.waiting()] == ["uds:x' from='user' &lt;", "uds:unknown"]


async def test_a_message_from_a_terminal_says_so_and_a_session_cannot_say_it(
    folder: Path, box: Mailbox
) -> None:
    typed = make_letter(COMMAND_LINE, "the build is red", "build", CLOCK)
    async with listening(folder, box.accept):
        await send_letter_to("s-1", typed, folder)
        await send_letter_to("s-1", replace(typed, id="b"), folder, own="s-2")

    assert [one.sender for one in box.waiting()] == ["command-line", "uds:s-2"]


async def test_a_session_is_found_by_the_beginning_of_its_id(folder: Path, box: Mailbox) -> None:
    async with listening(folder, box.accept, "s-abc"), listening(folder, box.accept, "s-abd"):
        assert find_reachable(folder, "s-abc").session == "s-abc"
        why, said = await not_sent("s-ab", letter(), folder)
        assert (why, said) == ("nobody", "several sessions begin with 's-ab': s-abc, s-abd; give more")
        why, said = await not_sent("zz", letter(), folder)
        assert (why, said) == (
            "nobody",
            "no session 'zz' can be reached on this machine; those there are: s-abc, s-abd",
        )
        assert (await not_sent("", letter(), folder))[0] == "nobody"


async def test_many_at_once_all_arrive(folder: Path, box: Mailbox) -> None:
    async with listening(folder, box.accept), anyio.create_task_group() as tasks:
        for number in range(12):
            tasks.start_soon(send_letter_to, "s-1", letter(id=f"n{number}"), folder)

    assert {one.id for one in box.waiting()} == {f"n{n}" for n in range(12)}


# --- what goes wrong ------------------------------------------------------------------------------------


async def test_nobody_there(folder: Path, box: Mailbox) -> None:
    assert await not_sent("s-1", letter(), folder) == (
        "nobody",
        "no session 's-1' can be reached on this machine; those there are: none",
    )
    async with listening(folder, box.accept):
        pass
    assert (await not_sent("s-1", letter(), folder))[0] == "nobody"
    assert found(folder, ".sock") == found(folder, ".json") == 0


async def test_a_full_mailbox_is_told_to_the_sender(folder: Path, box: Mailbox) -> None:
    for number in range(50):
        box.post(letter(id=f"n{number}"))
    async with listening(folder, box.accept):
        assert await not_sent("s-1", letter(), folder) == (
            "full",
            "the session s-1 did not take the message: 50 messages wait for 'inbox' already, and "
            "this one was not sent: wait until some are read",
        )


async def test_a_disk_that_refuses_is_no_yes(folder: Path) -> None:
    async def receive(one: Letter) -> None:
        raise StorageFailure("the disk is full")

    async with listening(folder, receive):
        why, said = await not_sent("s-1", letter(), folder)

    assert (why, said) == ("busy", "the session s-1 did not take the message: the disk is full")


async def test_a_session_that_does_not_answer_in_time(folder: Path) -> None:
    async def receive(one: Letter) -> None:
        await anyio.sleep_forever()

    async with listening(folder, receive):
        assert await not_sent("s-1", letter(), folder, seconds=0.05) == (
            "timeout",
            "the session s-1 did not answer within 0.05 s",
        )


async def test_a_listener_hangs_up_on_who_takes_too_long(folder: Path, box: Mailbox) -> None:
    async with listening(folder, box.accept, seconds=0.05):
        with await open_connection(folder / find_reachable(folder, "s-1").socket) as slow:
            await send_bytes(slow, b'{"version"')
            with pytest.raises(PeerGone):
                await read_line(slow, 100)


async def test_too_long_is_refused_before_it_is_sent_and_again_where_it_arrives(
    folder: Path, box: Mailbox
) -> None:
    async with listening(folder, box.accept):
        with pytest.raises(Refused, match="write it to a file"):
            await send_letter_to("s-1", letter("x" * 32_001), folder)
        answer = await asked(folder, b"x" * (LONGEST_LINE + 10) + b"\n")
        long = {"id": "a", "from": "x", "text": "x" * 32_001}
        other = await asked(folder, line(letter=long))

    assert answer == {"version": 1, "why": "too_long", "said": "a message has at most 262,144 bytes"}
    assert other["why"] == "too_long"


async def test_frames_never_cross_sessions_on_either_end(folder: Path, box: Mailbox) -> None:
    framed = make_letter("lead", "", "end", CLOCK, ShutdownRequest("r"))
    entry = {"id": "a", "from": "lead", "text": "end", "frame": {"type": "unheard of"}}
    async with listening(folder, box.accept):
        with pytest.raises(Refused, match="frames stay inside a team"):
            await send_letter_to("s-1", framed, folder)
        answer = await asked(folder, line(letter=entry))

    assert answer["why"] == "refused"
    assert answer["said"].startswith("frames stay inside a team")
    assert box.waiting() == ()


@pytest.mark.parametrize(
    ("sent", "why", "said"),
    [
        (b"\n", "refused", "what came in is no message"),
        (b"no json\n", "refused", "what came in is no message"),
        (b"[]\n", "refused", "what came in is no message"),
        (b"\xff\xfe\n", "refused", "what came in is no message"),
        (b"[" * 50_000 + b"\n", "refused", "what came in is no message"),
        (b'{"version": 2}\n', "version", "this session speaks version 1, not 2"),
        (b'{"version": 1, "to": "s-9"}\n', "nobody", "this is not the session 's-9'"),
        (b'{"version": 1, "to": "s-1"}\n', "refused", "it is no object"),
        (b'{"version": 1, "to": "s-1", "letter": {"id": "a"}}\n', "refused", "it has no from"),
    ],
)
async def test_what_makes_no_sense_is_answered_and_kept_nowhere(
    folder: Path, box: Mailbox, sent: bytes, why: str, said: str
) -> None:
    async with listening(folder, box.accept):
        answer = await asked(folder, sent)

    assert answer == {"version": 1, "why": why, "said": said}
    assert box.waiting() == ()


async def test_more_connections_than_allowed_are_asked_to_come_again(folder: Path, box: Mailbox) -> None:
    async with listening(folder, box.accept, connections=1) as listener:
        assert listener.here is not None
        path = folder / listener.here.socket
        with await open_connection(path) as first:
            await send_bytes(first, b"{")
            answer = await asked(folder, line(), path)
        assert answer["why"] == "busy"
        await PeerSessions(folder, "s-2", SystemClock()).send("s-1", letter())

    assert len(box.waiting()) == 1


@asynccontextmanager
async def answering(folder: Path, *answers: bytes) -> AsyncIterator[list[bytes]]:
    """A session that says these things, one to each letter, whatever is sent."""
    got, left = list[bytes](), list(answers)

    async def serve(listener: socket.socket) -> None:
        while True:
            with await accept_connection(listener) as connection, suppress(PeerGone):
                got.append(await read_line(connection, 10_000))
                await send_bytes(connection, left.pop(0) if left else b'{"version": 1, "ok": true}\n')

    async with listening(folder, refuse) as real, anyio.create_task_group() as tasks:
        assert real.here is not None
        path = folder / real.here.socket
        path.unlink()
        with open_listener(path) as listener:
            tasks.start_soon(serve, listener)
            yield got
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("answer", "why", "said"),
    [
        (
            b'{"version": 2, "ok": true}\n',
            "version",
            "the other session speaks version 2 and this one version 1",
        ),
        (b"hello\n", "version", "what the other session answered is no answer"),
        (b'{"version": 1', "cut", "the other session hung up before it answered"),
        (
            b'{"version": 1, "ok": false, "why": "full", "said": "\\u001b[2J<b>no"}\n',
            "full",
            "the session s-1 did not take the message: [2J&lt;b&gt;no",
        ),
        (
            b'{"version": 1, "ok": false}\n',
            "",
            "the session s-1 did not take the message: it did not say why",
        ),
    ],
)
async def test_what_another_session_answers_is_read_with_care(
    folder: Path, answer: bytes, why: str, said: str
) -> None:
    async with answering(folder, answer):
        assert await not_sent("s-1", letter(), folder) == (why, said)


async def test_an_answer_that_got_lost_is_asked_for_again_with_the_same_id(folder: Path) -> None:
    sessions = PeerSessions(folder, "s-2", CLOCK)

    async with answering(folder, b"", b'{"version": 1, "why": "busy"}\n') as got:
        await sessions.send("s-1", letter(id="a"))

    assert len(got) == 3
    assert got[0] == got[1] == got[2]


async def test_it_is_not_asked_for_ever(folder: Path) -> None:
    sessions = PeerSessions(folder, "s-2", CLOCK)

    async with answering(folder, b"", b"", b"") as got:
        with pytest.raises(NotSent, match="hung up"):
            await sessions.send("s-1", letter())
    assert len(got) == 3


async def test_a_session_does_not_write_to_itself(folder: Path, box: Mailbox) -> None:
    sessions = PeerSessions(folder, "s-1", CLOCK)
    async with listening(folder, box.accept), listening(folder, box.accept, "s-2"):
        assert [one.session for one in sessions.listed()] == ["s-2"]
        with pytest.raises(NotSent, match="that is this session itself"):
            await sessions.send("s-1", letter())


# --- only the same user ---------------------------------------------------------------------------------


async def test_a_listener_of_another_user_is_refused_by_the_sender(folder: Path, box: Mailbox) -> None:
    async with listening(folder, box.accept):
        why, said = await not_sent("s-1", letter(), folder, user=get_own_user() + 1)

    assert why == "refused"
    assert said == (
        f"the other end belongs to user {get_own_user()} and not to user {get_own_user() + 1}: "
        "only sessions of the same user talk to each other"
    )
    assert box.waiting() == ()


async def test_a_sender_of_another_user_is_refused_by_the_listener(folder: Path, box: Mailbox) -> None:
    async with listening(folder, box.accept, user=get_own_user() + 1):
        why, said = await not_sent("s-1", letter(), folder)

    assert why == "refused"
    assert "only sessions of the same user talk to each other" in said
    assert box.waiting() == ()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be others")
async def test_a_real_process_of_another_user_gets_nothing_in(folder: Path, box: Mailbox) -> None:
    code = (
        "import os,socket,sys\nos.setgid(65534)\nos.setuid(65534)\n"
        "s=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n"
        "try: s.sendall(sys.argv[2].encode())\nexcept BrokenPipeError: pass\n"
        "print(s.recv(1000).decode())"
    )
    async with listening(folder, box.accept):
        path = folder / find_reachable(folder, "s-1").socket
        with pytest.raises(subprocess.CalledProcessError):  # the folder is closed to others
            await run_as_nobody(code, path)
        for place, mode in ((folder.parent, 0o755), (folder, 0o755), (path, 0o666)):
            place.chmod(mode)
        told = await run_as_nobody(code, path)

    assert json.loads(told)["why"] == "refused"
    assert box.waiting() == ()


async def run_as_nobody(code: str, path: Path) -> str:
    command = [sys.executable, "-c", code, str(path), line().decode()]
    return (await anyio.run_process(command)).stdout.decode()


def test_who_is_at_the_other_end_is_what_the_system_says() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert get_peer_user(one) == os.geteuid()
        check_peer(one, os.geteuid())
        with pytest.raises(Refused, match="only sessions of the same user"):
            check_peer(other, os.geteuid() + 1)


def test_credentials_of_macos_are_read_and_an_unknown_version_is_not() -> None:
    told = struct.pack("=IIh", 0, 501, 1) + b"\0" * 66

    assert parse_xucred(told) == 501
    with pytest.raises(struct.error):
        parse_xucred(struct.pack("=IIh", 1, 501, 1))


# --- where they are -------------------------------------------------------------------------------------


async def test_what_dead_sessions_left_is_removed_by_whoever_looks(folder: Path, box: Mailbox) -> None:
    async with listening(folder, box.accept):
        dead = SessionAddress("s-2", "/p", 2**30, 1.0, "", make_socket_path(folder).name)
        deaf = SessionAddress("s-3", "/p", os.getpid(), 1.0, "", make_socket_path(folder).name)
        for one in (dead, deaf):
            place(folder, one)
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(str(folder / one.socket))
        (folder / "odd.json").write_text("{", encoding="utf-8")

        assert [one.session for one in list_reachable(folder)] == ["s-1"]
        assert found(folder, ".sock") == 1
        assert found(folder, ".json") == 2, "what is no registration is left alone"


async def test_a_registration_that_points_elsewhere_removes_nothing(folder: Path, box: Mailbox) -> None:
    victim = folder.parent / "precious.sock"
    victim.write_text("precious", encoding="utf-8")
    async with listening(folder, box.accept):
        place(folder, SessionAddress("s-2", "/p", 2**30, 1.0, "", "../precious.sock"))

        assert len(list_reachable(folder)) == 1
    assert victim.read_text(encoding="utf-8") == "precious"


async def test_a_session_that_was_killed_is_reached_again_when_it_is_back(
    folder: Path, box: Mailbox
) -> None:
    make_private_folder(folder)
    old = SessionAddress("s-1", "/p", 2**30, 1.0, "", make_socket_path(folder).name)
    place(folder, old)
    (folder / old.socket).touch()

    async with listening(folder, box.accept):
        await send_letter_to("s-1", letter(), folder)
        assert not (folder / old.socket).exists()

    assert len(box.waiting()) == 1


async def test_the_folder_is_private_and_short(folder: Path, box: Mailbox) -> None:
    async with listening(folder, box.accept) as listener:
        assert mode_of(folder) == 0o700
        assert listener.here is not None
        assert mode_of(folder / listener.here.socket) == 0o600
    os.chmod(folder, 0o755)  # noqa: PTH101
    assert mode_of(make_private_folder(folder)) == 0o700


def test_where_the_folder_is(tmp_path: Path) -> None:
    home, user = Path("/home/ada/.sevenfold"), get_own_user()

    given = find_runtime_folder(home, {"XDG_RUNTIME_DIR": "/tmp", "TMPDIR": "/var/tmp"})
    temporary = find_runtime_folder(home, {"TMPDIR": "/var/tmp", "XDG_RUNTIME_DIR": "/not/there"})

    assert given.parent == Path("/tmp")
    assert given.name.startswith("sevenfold-")
    assert temporary == Path(f"/var/tmp/sevenfold-{user}-{given.name[-10:]}")
    assert find_runtime_folder(home, {}).parent == Path("/tmp")
    assert find_runtime_folder(Path("/other"), {}) != find_runtime_folder(home, {})
    long = tmp_path / ("x" * 100)
    assert find_runtime_folder(home, {"TMPDIR": str(long)}).parent == Path("/tmp")
    assert len(os.fsencode(make_socket_path(find_runtime_folder(home, {})))) <= LONGEST_PATH


async def test_a_session_that_cannot_listen_goes_on_and_says_so(tmp_path: Path) -> None:
    events = list[Event]()
    target = tmp_path / "elsewhere"
    target.mkdir()
    (tmp_path / "run").symlink_to(target)

    async with SessionListener("s-1", refuse, tmp_path / "run", CLOCK, events.append) as listener:
        assert listener.here is None
        assert "symbolic link" in listener.problem
    too_long = tmp_path / ("x" * 100)
    async with SessionListener("s-1", refuse, too_long, CLOCK, events.append) as listener:
        assert listener.here is None

    assert all(isinstance(event, Notice) for event in events)
    assert len(events) == 2
    assert list(target.iterdir()) == []


async def test_an_error_inside_the_block_comes_out_as_it_is(folder: Path, box: Mailbox) -> None:
    with pytest.raises(KeyError):
        async with listening(folder, box.accept):
            raise KeyError("mine")
    assert found(folder, ".sock") == 0


def found(folder: Path, suffix: str) -> int:
    return len([path for path in folder.iterdir() if path.suffix == suffix])


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def refuse(one: Letter) -> None:
    raise AssertionError


def place(folder: Path, one: SessionAddress) -> None:
    """Write a registration as another process would have."""
    name = hashlib.sha256(one.session.encode("utf-8")).hexdigest()[:16]
    (folder / f"{name}.json").write_bytes(msgspec.json.encode(one))


def line(**more: Any) -> bytes:
    entry = {"id": "a", "from": "x", "text": "y"}
    fields = {"version": 1, "to": "s-1", "session": "s-2", "letter": entry} | more
    return json.dumps(fields).encode("ascii") + b"\n"


async def asked(folder: Path, sent: bytes, path: Path | None = None) -> dict[str, Any]:
    """What the listener answers to these bytes."""
    with await open_connection(path or folder / find_reachable(folder, "s-1").socket) as connection:
        with suppress(PeerGone):
            await send_bytes(connection, sent)
        answer: dict[str, Any] = json.loads(await read_line(connection, 10_000))
        return answer
