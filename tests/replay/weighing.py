"""Replays large sessions in a process of its own, and says in JSON how much memory each one took it to.

python weighing.py FOLDER BYTES TIMES PROCESSES
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

from sevenfold.core.messages import Message, Text, ToolResult, ToolUse, assistant, user
from sevenfold.core.transcript import Entry, Mark, Reply, What, encode_entry
from sevenfold.recordings.finder import ReplayFile
from sevenfold.replay.policies import load_policy
from sevenfold.replay.runner import ReplayJob, replay_files

BEGAN = 1_780_000_000.0
READ = 30_000
"""Characters of a result, as reading a file gives them: numbered, with an arrow that is not ASCII."""
SPEAKS_EVERY = 3
SAID = 2_500
"""Characters of what the user says then: every compaction has to hand all of it on."""


def write_session(path: Path, size: int) -> None:
    """One of our own transcripts, of about so many bytes; it is never held as a whole here."""
    written = n = id = 0
    with path.open("wb") as file:
        while written < size:
            for by, what in _round(n):
                line = encode_entry(Entry(id, BEGAN + 20 * n, what, by)) + b"\n"
                written += file.write(line)
                id += 1
            n += 1


def _round(n: int) -> list[tuple[str, What]]:
    """A file is read, now and then because the user wants something else."""
    about = {"format": 1, "id": "a-long-one", "root": "/w", "model": "claude-sonnet-4-5"}
    made: list[tuple[str, What]] = [] if n else [("session", Mark("session", about))]
    if n % SPEAKS_EVERY == 0:
        words = " ".join(f"please look at part_{n}_{k} as well" for k in range(SAID // 33))
        made.append(("user", user(f"{words} 🙂")))
    path = f"/w/part_{n}.py"
    use = ToolUse(f"use-{n}", "Read", {"file_path": path})
    made.append(("model", Reply(assistant(Text(f"Reading {path}."), use))))
    lines = (f"{k:6}→def part_{n}_{k}(value): return value + {k}" for k in range(READ // 50))
    result = ToolResult(use.id, "\n".join(lines))
    made.append(("tools", Message("user", (result,))))
    return made


def peak() -> int:
    """The most bytes this process has held. What the one that started it held is not among them."""
    status = Path("/proc/self/status")
    if status.exists():
        [line] = [one for one in status.read_text(encoding="utf-8").splitlines() if one.startswith("VmHWM")]
        return int(line.split()[1]) << 10
    return _largest(resource.RUSAGE_SELF)


def _largest(who: int) -> int:
    used = resource.getrusage(who).ru_maxrss
    return used if sys.platform == "darwin" else used << 10


def weighed(folder: Path, size: int, times: int, processes: int) -> dict[str, object]:
    chosen = (load_policy("balanced"),)
    small, large = folder / "small.jsonl", folder / "large.jsonl"
    write_session(small, READ)
    write_session(large, size)
    first = [ReplayJob(0, ReplayFile(str(small)), chosen)]
    list(replay_files(first, 1))  # everything is imported now, and what is kept for good is there
    before, peaks, requests = peak(), list[int](), 0
    jobs = (ReplayJob(n, ReplayFile(str(large)), chosen) for n in range(times))
    for done in replay_files(jobs, processes):
        assert not [error for error in done.errors if "usage" not in error], done.errors
        requests += done.recorded
        peaks.append(peak())
    return {
        "bytes": large.stat().st_size,
        "requests": requests,
        "before": before,
        "peaks": peaks,
        "others": _largest(resource.RUSAGE_CHILDREN),
    }


if __name__ == "__main__":
    given = [int(one) for one in sys.argv[2:]]
    print(json.dumps(weighed(Path(sys.argv[1]), *given)))
