"""SIGKILL in the middle of recording and purging: the history is whole and nothing is lost."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import pytest
from faults.recording import SECRET, last_step, state

from sevenfold.memory.history.history import MemoryHistory
from sevenfold.memory.history.revisions import Author
from sevenfold.storage.locks import hold_file_lock

WORKER = Path(__file__).with_name("recording.py")


def killed(folder: Path, rng: random.Random) -> list[tuple[str, int]]:
    """Let the worker do a few things, kill it at some moment, and hand back what it said was done."""
    command = [sys.executable, str(WORKER), str(folder), str(rng.randrange(1 << 30))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout
        said = [worker.stdout.readline() for _ in range(rng.randint(1, 40))]
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.wait(timeout=rng.uniform(0, 0.03))
        worker.kill()
        said += worker.stdout.readlines()
    whole = [line.split() for line in said if line.endswith("\n")]
    return [(what, int(step)) for what, step in whole]


def on_disk(path: Path) -> bytes:
    """All that is in the files, unpacked where it is packed."""
    out = bytearray()
    for file in path.rglob("*"):
        if not file.is_file():
            continue
        data = file.read_bytes()
        out += data
        at = 0
        while (at := data.find(b"\x78", at)) >= 0:
            with contextlib.suppress(zlib.error):
                out += zlib.decompressobj().decompress(data[at:], 10_000)
            at += 1
    return bytes(out)


def campaign(folder: Path, kills: int, seed: int) -> int:
    """Kill the worker again and again on one history; returns how many revisions it has in the end."""
    rng = random.Random(seed)
    path = folder / "history.sqlite"
    purged = set[int]()
    for _ in range(kills):
        said = killed(folder, rng)
        assert {what for what, _ in said} <= {"recorded", "purged"}, "nothing was damaged"
        acknowledged = max(step for _, step in said)
        history = MemoryHistory(path)
        newest = last_step(history)
        assert newest >= acknowledged, "what was said to be recorded is there"
        with hold_file_lock(folder / ".memory"):
            assert history.mend(1.0) == ""
        assert history.at("last") == state(newest)
        assert history.check() == []
        purged |= {step for what, step in said if what == "purged"}
    assert not [step for step in purged if f"{SECRET}{step}.".encode() in on_disk(folder)]
    assert purged
    return len(MemoryHistory(path).log(limit=1_000_000))


@pytest.mark.real
def test_a_history_killed_again_and_again_is_whole(tmp_path: Path) -> None:
    assert campaign(tmp_path, kills=12, seed=20261115) > 60


@pytest.mark.soak
def test_hundreds_of_kills(tmp_path: Path) -> None:
    for seed in range(20):
        folder = tmp_path / str(seed)
        folder.mkdir()
        assert campaign(folder, kills=25, seed=seed) > 60


@pytest.mark.real
def test_others_read_at_any_time_while_one_writes_and_purges(tmp_path: Path) -> None:
    command = [sys.executable, str(WORKER), str(tmp_path), "7"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout
        lines = worker.stdout
        lines.readline()
        drain = threading.Thread(target=lambda: [None for _ in lines])
        drain.start()
        history = MemoryHistory(tmp_path / "history.sqlite")
        seen = 0
        while seen < 60:
            files = history.at("last")
            seen = int(files["MEMORY.md"].split()[-1])
            assert files == state(seen)
            assert history.log(limit=1_000)
        worker.kill()
        drain.join()


@pytest.mark.real
def test_several_processes_write_one_history(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from sevenfold.memory.history.history import MemoryHistory\n"
        "from sevenfold.memory.history.revisions import Author\n"
        "from sevenfold.storage.locks import hold_file_lock\n"
        "folder, me = Path(sys.argv[1]), sys.argv[2]\n"
        "history = MemoryHistory(folder / 'history.sqlite')\n"
        "for n in range(30):\n"
        "    with hold_file_lock(folder / '.memory'):\n"
        "        author = Author('agent', me)\n"
        "        history.record({}, author, '', float(n), {f'{me}.md': b'%d' % n})\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), f"w{n}"]) for n in range(4)]
    assert [worker.wait() for worker in workers] == [0, 0, 0, 0]
    history = MemoryHistory(tmp_path / "history.sqlite")
    assert history.at("last") == {f"w{n}.md": b"29" for n in range(4)}
    for n in range(4):
        mine = history.log(f"w{n}.md", limit=100)
        assert [r.author for r in mine] == [Author("agent", f"w{n}")] * 30
    assert history.check() == []
