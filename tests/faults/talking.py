"""A process that talks without end and says on stdout what is safely written: to be killed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from sevenfold.core.clock import run_sync
from sevenfold.core.events import Acted, Event, Replied
from sevenfold.core.messages import Text, ToolUse, assistant
from sevenfold.session.session import Session
from sevenfold.testing import ScriptedModel
from sevenfold.testing.doubles import Line


def script() -> Iterator[Line]:
    n = 0
    while True:
        n += 1
        uses = [ToolUse(f"u{n}_{i}", "Read", {"file_path": "notes.txt"}) for i in range(n % 4)]
        yield assistant(Text(f"reply {n} " + "word " * (n % 50)), *uses)


async def talk(project: str, home: str, resume: str) -> None:
    environ = {"HOME": home, "PATH": "/usr/bin:/bin"}
    model = ScriptedModel(script())
    async with Session(model, project, home=home, environ=environ, resume=resume or None) as session:

        def acknowledge(event: Event) -> None:
            if isinstance(event, Replied | Acted):
                print(session.id, session.view[-1].id, flush=True)

        session.subscribe(acknowledge)
        while True:
            await session.ask("go on")


if __name__ == "__main__":
    Path(sys.argv[1], "notes.txt").write_text("a line\n" * 40, encoding="utf-8")
    run_sync(talk, *sys.argv[1:])
