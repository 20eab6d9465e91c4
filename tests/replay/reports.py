"""A report of small sessions, one of them with a title that means harm."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace
from replay import sessions

from sevenfold.recordings.finder import ReplayFile
from sevenfold.replay.policies import load_policy
from sevenfold.replay.report.page import format_page
from sevenfold.replay.runner import ReplayJob, ReplayResult, replay_file

HOSTILE = '</title><script>document.title="owned"</script><img src=x onerror=alert(1)>"\'&\u202egnp.exe'
POLICIES = ("append-only", "specified", "balanced")


def replayed(folder: Path) -> list[ReplayResult]:
    chosen = tuple(load_policy(name) for name in POLICIES)
    done = []
    for n, rounds in enumerate((3, 30)):
        path = folder / f"{n}.jsonl"
        path.write_bytes(sessions.claude_code(rounds))
        done.append(replay_file(ReplayJob(n, ReplayFile(str(path)), chosen, drawn=True)))
    done[0] = replace(done[0], title=HOSTILE, model=HOSTILE)
    broken = ReplayResult(number=2, path=f"/{HOSTILE}.jsonl", errors=(HOSTILE,) * 9)
    return [*done, broken]


def written(folder: Path) -> Path:
    """The page, on disk."""
    path = folder / "report.html"
    chosen = [load_policy(name) for name in POLICIES]
    path.write_text(format_page(replayed(folder), chosen, sessions.BEGAN), encoding="utf-8")
    return path
