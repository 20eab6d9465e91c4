"""Give your session an agent of your own, and ask for it. Works without a key.

python examples/agents.py
"""

import tempfile
from pathlib import Path

from sevenfold import Event, Session, run_sync
from sevenfold.core.events import AgentEnded, AgentStarted

FINDER = """\
---
name: finder
description: Finds where something stands in the project, and changes nothing.
tools: Read, Grep, Glob
---
You find things in a project for another agent. Say in which file and line each of them stands.
"""


def show(event: Event) -> None:
    match event:
        case AgentStarted(name=name, kind=kind, description=description):
            print(f"{name} ({kind}) begins: {description}")
        case AgentEnded(name=name, status=status, steps=steps, usage=usage):
            print(f"{name} is {status}: {steps} requests, {usage.total:,} tokens")


async def main(folder: Path) -> None:
    home, project = folder / "home", folder / "project"
    (home / "agents").mkdir(parents=True)  # or .sevenfold/agents in a project that you trust
    (home / "agents" / "finder.md").write_text(FINDER, encoding="utf-8")
    project.mkdir()
    (project / "plan.txt").write_text("Paint the door.\nTODO: buy paint\n", encoding="utf-8")
    async with Session("offline", project, home=home) as session:
        session.subscribe(show)
        reply = await session.ask("ask the finder agent to find TODO in plan.txt")
        print(reply.message.text)
        for agent in session.agents.agents:
            print(f"{agent.name} has its own transcript: {agent.path.name if agent.path else '-'}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        run_sync(main, Path(folder))
