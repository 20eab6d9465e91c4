"""A dream as a process of its own: it goes on when the client does not wait, and when the server ends.

The first answer comes when the dream is over, or after 20 seconds with the job to ask about.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec

from sevenfold.core.errors import Failure, Mistake
from sevenfold.layers.l6_dreaming.progress import read_last_snapshot
from sevenfold.mcp.client_calls import ClientCall
from sevenfold.mcp.memory_tools import ServedMemory, ToolAnswer
from sevenfold.mcp.protocol import Json
from sevenfold.mcp.tools import DreamArguments
from sevenfold.storage.files import make_private_dir, read_if_there

if TYPE_CHECKING:
    from sevenfold.memory.store import Memory

FOLDER: Final = "mcp-dreams"
PATIENCE: Final = 20.0  # Seconds after which the answer is a job
LOOK: Final = 0.1
LARGEST: Final = 4 << 20
KEPT: Final = 10  # Reports that are kept for a client that asks late
_JOB: Final = re.compile(r"[0-9a-f]{8}")
_RUNNING: Final[dict[str, subprocess.Popen[bytes]]] = {}


def run_dream_job(served: ServedMemory, given: DreamArguments, call: ClientCall) -> ToolAnswer:
    """Begin a dream and wait for it a while, or look after one that was begun."""
    with served.lock:
        memory = served.open(call)
        if memory.exists():
            memory.claim()
        folder = memory.local / FOLDER
    if given.job:
        return _report(folder, given.job, memory)
    job = _begin(served, folder, given.dry_run)
    began, step, told = monotonic(), 0, ""
    while not _is_over(job) and monotonic() - began < PATIENCE and not call.is_cancelled():
        phase = _describe_phase(memory)
        if phase != told:
            step, told = step + 1, phase
            call.report_progress(step, phase)
        _wait(job)
    return _report(folder, job, memory)


def _begin(served: ServedMemory, folder: Path, dry_run: bool) -> str:
    import secrets

    make_private_dir(folder)
    for old in sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)[:-KEPT]:
        old.unlink(missing_ok=True)
    job, around = secrets.token_hex(4), served.environment
    words = [sys.executable, "-m", "sevenfold", "dream", "run", "--json", "--quiet"]
    words += ["--project", str(served.places.tree), "--home", str(around.shared or around.home)]
    words.append("--dry-run" if dry_run else "--now")
    with (folder / f"{job}.json").open("xb") as out:
        _RUNNING[job] = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL, start_new_session=True
        )
    return job


def _wait(job: str) -> None:
    try:
        _RUNNING[job].wait(LOOK)
    except subprocess.TimeoutExpired:
        return


def _is_over(job: str) -> bool:
    return job not in _RUNNING or _RUNNING[job].poll() is not None


def _describe_phase(memory: Memory) -> str:
    known = read_last_snapshot(memory.local)
    if known is None or not known.running:
        return "starting"
    return f"{known.phase}: {known.turns[-1]}" if known.turns else known.phase


def _report(folder: Path, job: str, memory: Memory) -> ToolAnswer:
    data = read_if_there(folder / f"{job}.json", LARGEST) if _JOB.fullmatch(job) else None
    if data is None:
        raise Mistake(f"there is no dream {job!r} to ask about")
    if not data.strip():
        known = read_last_snapshot(memory.local)
        if _is_over(job) and not (known is not None and known.running):
            raise Failure(f"the dream {job} ended without a report; 'sevenfold dream status' says more")
        phase = _describe_phase(memory)
        text = f"the dream goes on ({phase}); ask again with job {job}"
        return ToolAnswer(text, {"status": "running", "job": job, "phase": phase})
    _RUNNING.pop(job, None)
    report: Json = msgspec.json.decode(data)
    if "error" in report:
        raise Mistake(str(report.get("reason", report["error"])))
    return ToolAnswer(_describe(report), {"job": job, **report})


def _describe(report: Json) -> str:
    why, diff = str(report.get("why") or ""), str(report.get("diff") or "")
    head = f"dream {report.get('status')}" + (f": {why}" if why else "")
    return "\n".join(filter(None, [head, diff.rstrip("\n")]))
