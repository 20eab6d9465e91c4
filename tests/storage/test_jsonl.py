"""The log on disk: what was acknowledged is there, whatever happened to the process or the disk."""

from __future__ import annotations

import contextlib
import json
import os
import random
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.core.errors import SessionBusy, SessionNotFound, StorageFailure
from sevenfold.storage.jsonl import JsonlLog, read_log

LINES = b'{"id":0,"text":"one"}\n{"id":1,"text":"z\xc3\xbcrich"}\n{"id":2,"n":{"a":[1,2]}}\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "project" / "session.jsonl"


def reopened(path: Path) -> tuple[bytes, str | None]:
    with JsonlLog(path) as log:
        return log.read(), log.repaired


def test_a_log_is_made_private_and_reads_back_what_was_appended(path: Path) -> None:
    with JsonlLog(path) as log:
        log.append(b'{"a":1}\n')
        log.append(b'{"b":2}\n{"c":3}\n')
        log.sync()
        assert log.read() == b'{"a":1}\n{"b":2}\n{"c":3}\n'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [p.name for p in path.parent.iterdir()] == ["session.jsonl"]
    assert reopened(path) == (b'{"a":1}\n{"b":2}\n{"c":3}\n', None)


def test_a_line_is_on_its_way_to_the_disk_when_append_returns(path: Path) -> None:
    with JsonlLog(path) as log:
        log.append(b"{}\n")
        assert path.read_bytes() == b"{}\n"


def test_half_a_line_is_refused(path: Path) -> None:
    with JsonlLog(path) as log, pytest.raises(ValueError, match="whole lines"):
        log.append(b'{"a":1}')
    assert path.read_bytes() == b""


def test_a_closed_log_says_so(path: Path) -> None:
    log = JsonlLog(path)
    log.close()
    log.close()
    with pytest.raises(ValueError, match="closed"):
        log.append(b"{}\n")


def test_a_second_writer_is_told_who_has_it_and_changes_nothing(path: Path) -> None:
    with JsonlLog(path) as log:
        log.append(LINES)
        with path.open("ab") as file:
            file.write(b'{"half')
        with pytest.raises(SessionBusy, match=f"is being written by process {os.getpid()};"):
            JsonlLog(path)
        assert path.read_bytes() == LINES + b'{"half'
    assert reopened(path)[0] == LINES


def test_a_second_process_is_told_too_and_death_frees_the_log(path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin
    assert child.stdout
    with child.stdin, child.stdout:
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(SessionBusy, match=f"process {child.pid};"):
            JsonlLog(path)
        child.kill()
        child.wait()
    assert reopened(path) == (b'{"child":1}\n', None)


_HOLD = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from sevenfold.storage.jsonl import JsonlLog
    log = JsonlLog(Path(sys.argv[1]))
    log.append(b'{"child":1}\\n')
    print("held", flush=True)
    sys.stdin.read()
    """
)


# --- removed while it is opened ---------------------------------------------------------------------

_OPEN_SLOWLY = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from sevenfold.core.errors import SevenfoldError
    from sevenfold.storage.jsonl import JsonlLog, hold_closed_log

    def wait_before_the_lock(event, args):
        if event == "fcntl.flock":
            print("opened", flush=True)
            sys.stdin.readline()

    sys.addaudithook(wait_before_the_lock)
    path = Path(sys.argv[2])
    try:
        if sys.argv[1] == "closed":
            with hold_closed_log(path):
                print("it was mine")
        else:
            with JsonlLog(path) as log:
                log.append(b'{"child":1}\\n')
                print("written")
    except SevenfoldError as error:
        print(type(error).__name__, error, sep="|")
    """
)


@contextlib.contextmanager
def opened_slowly(path: Path, how: str = "log") -> Iterator[list[str]]:
    """Another process that has opened the log and locks it after the block; then what it said."""
    said: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-c", _OPEN_SLOWLY, how, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as child:
        assert child.stdout
        assert child.stdout.readline() == "opened\n"
        yield said
        said += child.communicate("go\n", timeout=60)[0].strip().split("|")


def test_a_log_that_another_process_removed_while_we_opened_it_is_refused(path: Path) -> None:
    with JsonlLog(path) as log:
        log.append(LINES)
    with opened_slowly(path) as said:
        path.unlink()
    assert said == [
        "SessionNotFound",
        f"{path} was removed while it was being opened; 'sevenfold sessions' lists those there are",
    ]
    assert list(path.parent.iterdir()) == []


def test_a_log_with_another_in_its_place_is_refused_and_the_other_is_left_alone(path: Path) -> None:
    JsonlLog(path).close()
    with opened_slowly(path) as said:
        path.unlink()
        other = JsonlLog(path)
        other.append(LINES)
    assert said[0] == "SessionNotFound"
    assert sorted(p.name for p in path.parent.iterdir()) == ["session.jsonl", "session.jsonl.lock"]
    other.append(b'{"more":1}\n')
    other.close()
    assert path.read_bytes() == LINES + b'{"more":1}\n'


def test_a_log_that_stays_is_opened_however_long_that_takes(path: Path) -> None:
    with JsonlLog(path) as log:
        log.append(LINES)
    with opened_slowly(path) as said:
        assert read_log(path) == LINES
    assert said == ["written"]
    assert path.read_bytes() == LINES + b'{"child":1}\n'


def test_whoever_keeps_a_log_closed_learns_that_it_has_gone(path: Path) -> None:
    JsonlLog(path).close()
    with opened_slowly(path, "closed") as said:
        path.unlink()
        path.touch()
    assert said == ["StorageFailure", f"{path} could not be opened: it does not exist; check the path"]
    with opened_slowly(path, "closed") as said:
        pass
    assert said == ["it was mine"]


def test_a_log_that_must_be_there_is_not_made(path: Path) -> None:
    with pytest.raises(SessionNotFound, match="was removed while it was being opened"):
        JsonlLog(path, create=False)
    assert not path.parent.exists()
    JsonlLog(path).close()
    with JsonlLog(path, create=False) as log:
        log.append(LINES)
    assert reopened(path) == (LINES, None)


@pytest.mark.parametrize("cut", range(len(LINES) + 1))
def test_torn_at_any_byte_the_lines_before_stay_and_the_fragment_is_kept(path: Path, cut: int) -> None:
    path.parent.mkdir()
    path.write_bytes(LINES[:cut])
    whole, _, fragment = LINES[:cut].rpartition(b"\n")
    whole = whole + b"\n" if whole else b""
    data, repaired = reopened(path)
    torn = path.with_name("session.jsonl.torn")
    if LINES[cut - 1 : cut] == b"\n" or cut == 0:
        assert (data, repaired, torn.exists()) == (LINES[:cut], None, False)
    elif LINES[cut : cut + 1] == b"\n":
        assert (data, torn.exists()) == (LINES[: cut + 1], False)
        assert repaired
        assert "added" in repaired
    else:
        assert (data, torn.read_bytes()) == (whole, fragment + b"\n")
        assert repaired
        assert "session.jsonl.torn" in repaired
    assert path.read_bytes() == data
    assert reopened(path) == (data, None)


@given(
    lines=st.lists(st.dictionaries(st.text(max_size=5), st.text() | st.integers(), max_size=3), max_size=6),
    cut=st.integers(0, 10_000),
    nuls=st.sampled_from([0, 1, 511, 70_000]),
)
def test_after_any_cut_and_any_zeros_nothing_whole_is_lost_and_appending_goes_on(
    tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, object]], cut: int, nuls: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "x.jsonl"
    written = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    cut = min(cut, len(written))
    path.write_bytes(written[:cut] + b"\0" * nuls)
    with JsonlLog(path) as log:
        log.append(b'{"next":1}\n')
    got = [json.loads(line) for line in path.read_bytes().splitlines()]
    whole = written[:cut].count(b"\n")
    assert got[:whole] == lines[:whole]
    assert got[-1] == {"next": 1}
    torn = path.with_name("x.jsonl.torn")
    kept = torn.read_bytes()[:-1] if torn.exists() else b""
    body = path.read_bytes().removesuffix(b'{"next":1}\n')
    assert body + kept in (written[:cut], written[:cut] + b"\n")


def test_zeros_that_a_crash_left_are_removed_and_said(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(LINES + b"\0" * 8192)
    assert reopened(path) == (LINES, "8,192 empty bytes at the end removed")
    path.write_bytes(LINES + b'{"half' + b"\0" * 100)
    data, repaired = reopened(path)
    assert data == LINES
    assert repaired
    assert "torn" in repaired
    assert "100 empty bytes" in repaired
    assert path.with_name("session.jsonl.torn").read_bytes() == b'{"half\n'
    path.write_bytes(b"\0" * 5)
    assert reopened(path)[0] == b""


def test_fragments_of_several_crashes_are_all_kept(path: Path) -> None:
    path.parent.mkdir()
    for fragment in (b'{"first', b'{"second'):
        path.write_bytes(LINES + fragment)
        assert reopened(path)[0] == LINES
    assert path.with_name("session.jsonl.torn").read_bytes() == b'{"first\n{"second\n'


def test_a_last_line_longer_than_any_buffer_is_found_whole(path: Path) -> None:
    path.parent.mkdir()
    long = b'{"text":"' + b"x" * 300_000 + b'"}'
    path.write_bytes(LINES + long)
    assert reopened(path)[0] == LINES + long + b"\n"
    path.write_bytes(LINES + long[:-1])
    assert reopened(path)[0] == LINES


def test_reading_beside_a_writer_sees_whole_lines_only(path: Path) -> None:
    with JsonlLog(path) as log:
        log.append(LINES)
        assert read_log(path) == LINES
        with path.open("ab") as file:
            file.write(b'{"half')
            file.flush()
            assert read_log(path) == LINES
            file.write(b'":1}')
            file.flush()
            assert read_log(path) == LINES + b'{"half":1}\n'


def test_a_link_or_a_folder_is_no_log(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageFailure, match="symbolic link"):
        JsonlLog(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(StorageFailure, match="folder where a file is needed"):
        JsonlLog(path)
    assert not (tmp_path / "elsewhere").exists()


# --- death ------------------------------------------------------------------------------------------

_WRITER = textwrap.dedent(
    """
    import random, sys
    from pathlib import Path
    from sevenfold.storage.jsonl import JsonlLog
    seed, start = int(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(seed)
    with JsonlLog(Path(sys.argv[1])) as log:
        n = start
        while True:
            batch = chance.randint(1, 4)
            size = chance.choice([1, 100, 5_000, 400_000])
            log.append(b"".join(b'{"n":%d,"x":"%s"}\\n' % (n + i, b"x" * size) for i in range(batch)))
            n += batch
            print(n - 1, flush=True)
            if chance.random() < 0.1:
                log.sync()
    """
)


def kill_while_writing(path: Path, seed: int) -> None:
    """Several lives of one log; each is killed at a random moment."""
    chance = random.Random(seed)
    start = 0
    for life in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path), str(seed + life), str(start)], stdout=subprocess.PIPE
        ) as child:
            assert child.stdout
            acknowledged = start - 1
            for _ in range(chance.randint(1, 120)):
                acknowledged = int(child.stdout.readline())
            child.kill()
            rest = child.stdout.read().split(b"\n")[:-1]
        acknowledged = int(rest[-1]) if rest else acknowledged
        with JsonlLog(path) as log:
            numbers = [json.loads(line)["n"] for line in log.read().splitlines()]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > acknowledged
        start = len(numbers)
    torn = path.with_name(path.name + ".torn")
    if torn.exists():
        assert torn.read_bytes().startswith(b'{"n":')


@pytest.mark.parametrize("seed", range(3))
def test_what_was_acknowledged_is_there_after_a_kill(path: Path, seed: int) -> None:
    kill_while_writing(path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 400))
def test_what_was_acknowledged_is_there_after_many_kills(path: Path, seed: int) -> None:
    kill_while_writing(path, seed)


# --- a full disk ------------------------------------------------------------------------------------

_FILL = textwrap.dedent(
    """
    import resource, sys
    from pathlib import Path
    from sevenfold.core.errors import StorageFailure
    from sevenfold.storage.jsonl import JsonlLog
    path, limit = Path(sys.argv[1]), int(sys.argv[2])
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    line = b'{"x":"' + b"y" * 991 + b'"}\\n'
    with JsonlLog(path) as log:
        written = 0
        try:
            while written < 1000:
                log.append(line * 3)
                written += 3
        except StorageFailure as error:
            print(written, error, sep="|")
        print(len(log.read()) == path.stat().st_size == written * 1000)
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        else:
            (path.parent / "ballast").unlink()
        log.append(b'{"after":1}\\n')
    """
)


def fill(path: Path, limit: int) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", _FILL, str(path), str(limit)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    refused, clean = ran.stdout.splitlines()
    written, _, message = refused.partition("|")
    assert clean == "True", ran.stderr
    assert ran.returncode == 0, ran.stderr
    lines = path.read_bytes().splitlines()
    assert len(lines) == int(written) + 1 > 1
    assert all(isinstance(json.loads(line), dict) for line in lines)
    assert reopened(path)[1] is None
    return message


def test_a_write_cut_short_by_a_limit_leaves_no_half_line_and_appending_goes_on(path: Path) -> None:
    """The system writes up to the limit and only then refuses: the half batch must go again."""
    message = fill(path, 50_500)
    assert message.startswith(f"{path} could not be written: ")


@contextlib.contextmanager
def small_disk(at: Path) -> Iterator[Path]:
    at.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(at)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small disk can only be mounted by root")
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True)


def test_a_full_disk_is_said_and_the_log_stays_whole(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        (disk / "ballast").write_bytes(b"x" * 100_000)
        message = fill(disk / "session.jsonl", 0)
        assert message.endswith("the disk is full; free some space and try again")


def test_a_disk_too_full_to_keep_the_torn_line_loses_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        path = disk / "session.jsonl"
        before = LINES + b'{"half'
        path.write_bytes(before)
        with contextlib.suppress(OSError), (disk / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        with pytest.raises(StorageFailure, match="could not be repaired: the disk is full"):
            JsonlLog(path)
        assert path.read_bytes() == before
        (disk / "ballast").unlink()
        assert reopened(path)[0] == LINES
