"""A process that may write no large files asks for a large result; it prints what happens."""

from __future__ import annotations

import resource
import sys

from sevenfold.core.clock import run_sync
from sevenfold.core.events import Event, Failed, Stored
from sevenfold.core.messages import ToolUse, assistant
from sevenfold.session.session import Session
from sevenfold.testing import ScriptedModel

LIMIT = 1 << 20
"""Bytes: beyond it the system refuses to write on, as a full disk does."""
SETTINGS = {"permissions": {"allow": ["Bash(seq:*)"]}, "flags": {"notes": False}}


async def work(project: str, home: str) -> None:
    environ = {"HOME": home, "PATH": "/usr/bin:/bin"}
    long = assistant(ToolUse("long", "Bash", {"command": "seq 1 200000"}))
    short = assistant(ToolUse("short", "Bash", {"command": "seq 1 20000"}))
    model = ScriptedModel([long, short, "done"])
    async with Session(model, project, home=home, environ=environ, settings=SETTINGS) as session:

        def tell(event: Event) -> None:
            if isinstance(event, Failed):
                print("failed", event.cause)
            if isinstance(event, Stored):
                print("stored", event.path)

        session.subscribe(tell)
        reply = await session.ask("count")
        for placed in session.view:
            for result in placed.message.results:
                print("shown", len(result.text), result.text[-8:].replace("\n", " "))
        print("reply", reply.message.text)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))
    run_sync(work, *sys.argv[1:])
