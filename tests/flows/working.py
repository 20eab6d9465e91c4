"""A process that reads and counts without end and says what each request begins with: to be killed."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from sevenfold.core.clock import run_sync
from sevenfold.core.messages import Message, Text, ToolUse, assistant
from sevenfold.core.request import Request, encode_prefix
from sevenfold.session.session import Session
from sevenfold.testing import ScriptedModel
from sevenfold.testing.doubles import Line

SETTINGS = {
    "permissions": {"allow": ["Bash(seq:*)"]},
    "flags": {"notes": False},
    "micro": {"keepRecent": 1, "margin": 1, "leastFreed": 4_000},
}


def beginnings(request: Request) -> list[str]:
    """A hash of the whole beginning of a request up to each of its parts."""
    chain, found = hashlib.sha256(), []
    for part in encode_prefix(request):
        chain.update(b"%d:" % len(part) + part)
        found.append(chain.hexdigest()[:12])
    return found


def script(session: list[Session]) -> Iterator[Line]:
    """Each request is told before it is answered: by then all it holds is on disk."""
    n = 0

    def answer(request: Request) -> Message:
        last = session[0].turn.transcript.entries[-1].id
        print(session[0].id, last, *beginnings(request), flush=True)
        id = f"u{os.getpid()}_{n}"
        if n % 12 == 0:
            return assistant(Text("so far, so good"))
        if n % 4 == 0:
            return assistant(ToolUse(id, "Bash", {"command": f"seq {n} {n + 8_000}"}))
        return assistant(ToolUse(id, "Read", {"file_path": f"notes_{n % 9}.txt"}))

    while True:
        n += 1
        yield answer


async def work(project: str, home: str, resume: str) -> None:
    environ = {"HOME": home, "PATH": "/usr/bin:/bin"}
    here: list[Session] = []
    model = ScriptedModel(script(here))
    async with Session(
        model, project, home=home, environ=environ, settings=SETTINGS, resume=resume or None
    ) as session:
        here.append(session)
        while True:
            await session.ask("go on")


if __name__ == "__main__":
    for number in range(9):
        notes = f"note {number} is a line like any other\n" * 250
        Path(sys.argv[1], f"notes_{number}.txt").write_text(notes, encoding="utf-8")
    run_sync(work, *sys.argv[1:])
