"""A conversation is found again by its id: in another process, after a kill, never by two at once."""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from context.conversing import Caller, Json, answered, called, extends, result, results, said

from sevenfold.context.context import Context
from sevenfold.core.errors import FromTheFuture, Mistake, SessionBusy, StorageFailure
from sevenfold.core.events import Added, Notice, Sending, Started, Stored
from sevenfold.core.messages import Text, ToolUse, assistant
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Reply

WORKER = Path(__file__).with_name("loop_that_lasts.py")
SMALL: Json = {"toolResults": {"mostCharacters": 500, "previewBytes": 20}}
LONG = "a long line of output\n" * 100


def worker(folder: Path, steps: int) -> list[list[str]]:
    command = [sys.executable, str(WORKER), str(folder), str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def killed(folder: Path, after: int) -> list[list[str]]:
    """Let the worker announce so many requests, then kill it."""
    command = [sys.executable, str(WORKER), str(folder), "1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(after)]
        process.kill()
        lines += [line for line in process.stdout if line.endswith("\n")]
    return [json.loads(line) for line in lines]


def assert_each_extends(requests: list[list[str]]) -> None:
    for before, after in pairwise(requests):
        assert after[: len(before)] == before


@pytest.mark.real
def test_another_process_goes_on_with_the_same_bytes(tmp_path: Path) -> None:
    requests = worker(tmp_path, 6) + worker(tmp_path, 6) + worker(tmp_path, 1)
    assert len(requests) == 13
    assert_each_extends(requests)
    assert len(list((tmp_path / "state" / "one" / "tool-results").iterdir())) == 8


@pytest.mark.real
def test_the_same_conversation_is_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    first = worker(tmp_path, 8)
    for path in sorted((tmp_path / "state").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    (tmp_path / "history.json").unlink()
    assert worker(tmp_path, 8) == first


@pytest.mark.real
def test_a_process_that_is_killed_again_and_again_goes_on_where_it_was(tmp_path: Path) -> None:
    rng = random.Random(20261115)
    requests: list[list[str]] = []
    for _ in range(6):
        requests += killed(tmp_path, rng.randint(1, 12))
    requests += worker(tmp_path, 2)
    assert len(requests) > 20
    # A request whose results were not written down by the caller is asked again: it may be shorter.
    longest: list[str] = []
    for request in requests:
        shared = min(len(longest), len(request))
        assert request[:shared] == longest[:shared]
        longest = max(longest, request, key=len)


# --- in one process ---------------------------------------------------------------------------------


def test_a_changed_limit_does_not_change_what_was_decided(tmp_path: Path) -> None:
    history = [said("go"), called("a"), results(result("a", LONG))]
    first = Caller(tmp_path, state=tmp_path / "s", id="one", settings=SMALL)
    sent = first.send(history)
    first.ctx.close()

    limits = {"toolResults": {"mostCharacters": 1_000_000}}
    again = Caller(tmp_path, state=tmp_path / "s", id="one", settings=limits)
    history += [called("b"), results(result("b", LONG))]
    out = again.send(history)

    assert extends(sent, out)
    assert out[4]["content"][0]["content"] == LONG
    assert not again.told(Stored)
    assert not again.told(Added)
    assert again.told(Started)[0].source == "resume"
    again.ctx.close()


def test_a_reply_that_was_recorded_just_before_the_end_is_waited_for(tmp_path: Path) -> None:
    first = Caller(tmp_path, state=tmp_path / "s", id="one")
    first.send([said("go")])
    first.ctx.record(
        Reply(assistant(Text("so"), ToolUse("a", "Bash", {"of": "a"})), Usage(input=500, output=20))
    )
    first.ctx.close()

    again = Caller(tmp_path, state=tmp_path / "s", id="one")
    text = {"type": "text", "text": "so"}
    reply = {"role": "assistant", "content": [text, *called("a")["content"]]}
    again.send([said("go"), reply, results(result("a"))])

    assert [p.by for p in again.ctx.view] == ["user", "model", "tools"]
    assert again.ctx.view.reported is not None
    assert again.ctx.view.reported.tokens == 520
    again.ctx.close()


def test_the_first_request_after_a_resume_says_what_changed_around_the_messages(tmp_path: Path) -> None:
    def one() -> Caller:
        return Caller(tmp_path, state=tmp_path / "s", id="one")

    first = one()
    first.send([said("go")], system="be brief")
    usage = Usage(input=10, cache_write=5_000, output=5)
    first.ctx.record(Reply(assistant(Text("yes")), usage))
    first.ctx.close()

    again = one()
    again.send([said("go"), answered("yes"), said("more")], system="be long")

    assert again.told(Sending)[0].why == "the system prompt changed in part 1"
    assert again.told(Sending)[0].lost > 4_900
    again.ctx.close()


def test_one_conversation_is_written_by_one_at_a_time(tmp_path: Path) -> None:
    first = Caller(tmp_path, state=tmp_path / "s", id="one")
    first.send([said("go")])
    with pytest.raises(SessionBusy, match=f"is being written by process {os.getpid()}"):
        Caller(tmp_path, state=tmp_path / "s", id="one")
    first.ctx.close()
    Caller(tmp_path, state=tmp_path / "s", id="one").ctx.close()


def test_a_context_that_nobody_holds_any_more_lets_go_of_its_file(tmp_path: Path) -> None:
    Caller(tmp_path, state=tmp_path / "s", id="one").send([said("go")])
    gc.collect()
    again = Caller(tmp_path, state=tmp_path / "s", id="one")
    assert [p.message.text for p in again.ctx.view] == ["go"]
    again.ctx.close()


def test_a_closed_context_says_so(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    caller.ctx.close()
    caller.ctx.close()
    with pytest.raises(Mistake, match="is closed"):
        caller.send([said("go")])


def test_nothing_is_written_before_something_is_said(tmp_path: Path) -> None:
    Caller(tmp_path, state=tmp_path / "s", id="one").ctx.close()
    assert list((tmp_path / "s").iterdir()) == []


def test_a_line_that_is_damaged_costs_only_what_it_held(tmp_path: Path) -> None:
    history = [said("go")]
    for n in range(4):
        history += [called(f"u{n}"), results(result(f"u{n}", f"{n} {LONG}"))]
    caller = Caller(tmp_path, state=tmp_path / "s", id="one", settings=SMALL)
    sent = caller.send(history)
    caller.ctx.close()
    file = tmp_path / "s" / "one.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if b'"tool_use_id":"u2"' in line)
    lines[at] = b'{"id":9,"what":{"typ\n'
    file.write_bytes(b"".join(lines))

    again = Caller(tmp_path, state=tmp_path / "s", id="one", settings=SMALL)
    out = again.send(history)

    assert out == sent, "the caller has it, and it is stored again under the same name"
    assert any("cannot be read" in notice.text for notice in again.told(Notice))
    assert again.told(Sending)[-1].why == "the caller changed messages[6]"
    again.ctx.close()


def test_a_transcript_of_a_newer_version_is_not_touched(tmp_path: Path) -> None:
    file = tmp_path / "s" / "one.jsonl"
    file.parent.mkdir()
    what = {"type": "mark", "name": "session", "value": {"format": 99}}
    line = json.dumps({"id": 0, "at": 0.0, "what": what}) + "\n"
    file.write_text(line, encoding="utf-8")
    with pytest.raises(FromTheFuture, match="format 99"):
        Caller(tmp_path, state=tmp_path / "s", id="one")
    assert file.read_text("utf-8") == line


def test_the_transcript_of_a_session_is_not_taken_for_a_callers(tmp_path: Path) -> None:
    file = tmp_path / "s" / "one.jsonl"
    file.parent.mkdir()
    what = {"type": "mark", "name": "session", "value": {"format": 1, "id": "one"}}
    file.write_text(json.dumps({"id": 0, "at": 0.0, "what": what}) + "\n", encoding="utf-8")
    for _ in range(2):  # and it is let go of
        with pytest.raises(Mistake, match=r"one\.jsonl is the transcript of a session"):
            Caller(tmp_path, state=tmp_path / "s", id="one")


# --- folders that will not do -----------------------------------------------------------------------


def open_in(state: Path, folder: Path) -> Context:
    return Context("claude-sonnet-5", state=state, id="one", environ={"HOME": str(folder)})


def test_a_state_folder_that_is_a_file_is_refused_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(StorageFailure, match=r"could not be made: a part of the path is a file"):
        open_in(tmp_path / "file", tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_state_folder_that_may_not_be_written_is_refused_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(StorageFailure, match="permission denied"):
        open_in(tmp_path / "locked" / "state", tmp_path)


def test_a_transcript_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "elsewhere").write_text("", encoding="utf-8")
    (tmp_path / "s" / "one.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageFailure, match="symbolic link"):
        open_in(tmp_path / "s", tmp_path)


def test_results_that_the_disk_refuses_stay_in_the_request(tmp_path: Path) -> None:
    caller = Caller(tmp_path, state=tmp_path / "s", id="one", settings=SMALL)
    (tmp_path / "s" / "one").write_text("in the way", encoding="utf-8")
    history = [said("go"), called("a"), results(result("a", LONG))]
    out = caller.send(history)
    assert out[2]["content"][0]["content"] == LONG
    caller.ctx.close()


@contextmanager
def disk_full_after(size: int) -> Iterator[None]:
    """No file of this process may become larger than this, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_said_and_afterwards_everything_goes_on(tmp_path: Path) -> None:
    history = [said("it is 12:00"), answered("hm"), said("go"), called("a"), results(result("a"))]
    later = [said("it is 12:01"), *history[1:], answered("so"), said("x" * 400), answered("y")]
    caller = Caller(tmp_path, state=tmp_path / "s", id="one")
    caller.send(history)
    file = tmp_path / "s" / "one.jsonl"

    for room in (0, 100, 200, 300, 500, 700):
        longer = [*later, called("b"), results(result("b", "z" * 900)), said("b")]
        with (
            disk_full_after(file.stat().st_size + room),
            pytest.raises(StorageFailure, match="larger than this system allows"),
        ):
            caller.send(longer)

    final = [*later, said("c")]
    out = caller.send(final)
    assert out == Caller(tmp_path).send(final)
    caller.ctx.close()
    again = Caller(tmp_path, state=tmp_path / "s", id="one")
    assert again.send(final) == out
    again.ctx.close()


@pytest.mark.parametrize("id", ["", "../x", "a/b", "a\0b", "CON", "x" * 200, "."])
def test_an_id_that_could_not_be_a_file_name_is_refused(tmp_path: Path, id: str) -> None:
    with pytest.raises(Mistake, match="cannot be the id of a Context"):
        Context("claude-sonnet-5", id=id, environ={"HOME": str(tmp_path)})


def test_an_id_is_made_up_where_none_is_given(tmp_path: Path) -> None:
    environ: dict[str, Any] = {"HOME": str(tmp_path)}
    with Context("claude-sonnet-5", environ=environ) as a, Context("gpt-5", environ=environ) as b:
        assert a.id != b.id


def test_whole_results_go_to_the_folder_that_the_caller_names(tmp_path: Path) -> None:
    long = "a line of a long result\n" * 5_000
    use = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
    history = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": long}]},
    ]
    for named in (tmp_path / "given", lambda: tmp_path / "given"):
        environ, state = {"HOME": str(tmp_path)}, tmp_path / "state"
        with Context("claude-sonnet-5", state=state, results=named, environ=environ) as ctx:
            ctx.prepare(history)

    (kept,) = (tmp_path / "given").iterdir()
    assert kept.read_text("utf-8") == long
    assert not list((tmp_path / "state").rglob("*.txt"))
