"""The demo's third part: two forks side by side, an agent in the background, and a message to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import anyio

from sevenfold.errors import Mistake
from sevenfold.events import Acted, AgentEnded, Event
from sevenfold.session import Session

BEGUN: Final = "read README.md, config.toml and sales.txt"
FORKED: Final = (
    "fork twice: find TAX_RATE in till.py; read journal.py and tell me how many sales it prints"
)
BEHIND: Final = (
    "in the background, ask an agent called scout to run `python3 -B -m unittest -q` and then "
    "read test_till.py"
)
WRITTEN: Final = "tell scout that the audit of the till is on Friday"
MEANWHILE: Final = "which port does the till listen on?"
ALLOWED: Final = ("Bash(python3 -B -m unittest:*)",)
_ID: Final = re.compile(r"^Agent \S+ \((\S+)\)")
LONGEST: Final = 60.0
"""Seconds that the agent is waited for."""


async def with_agents(
    line: Callable[[str], None], model: str, folder: Path, project: Path, environ: Mapping[str, str]
) -> dict[str, Any]:
    """One session that hands work on. What is told of each agent is what the provider counted for it."""
    ended: list[AgentEnded] = []
    results: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event, AgentEnded):
            ended.append(event)
        elif isinstance(event, Acted):
            results[:] = [one.text for one in event.results]

    async def ask(prompt: str) -> str:
        line(f"  > {prompt}")
        return (await session.ask(prompt)).message.text.strip()

    settings = {"permissions": {"allow": list(ALLOWED)}}
    options: dict[str, Any] = {"home": folder, "environ": environ, "settings": settings}
    line("A conversation that hands work to others:\n")
    async with Session(model, project, **options) as session:
        session.subscribe(hear)
        await ask(BEGUN)
        line("    read\n")
        await ask(FORKED)
        forks = [_fork(line, one) for one in sorted(ended, key=lambda one: one.name)]
        line("    the prefix of both is the conversation, and it was paid for once\n")
        await ask(BEHIND)
        begun = results[0].partition(". ")[0]
        line("    " + _ID.sub(r"\1", begun) + ".\n")
        sent = await ask(WRITTEN)
        written = results[0]
        line(f"    {written}\n")
        answer = await ask(MEANWHILE)
        line(f"    {answer.splitlines()[0]}\n")
        with anyio.move_on_after(LONGEST):
            await session.agents.wait()
        told = await _told(line, session) or f"{sent}\n{answer}"
        scout = session.agents.find("scout")
    return {
        "forks": forks,
        "message": written,
        "meanwhile": answer,
        "told": told,
        "scout": scout.status if scout else "",
        "read": scout.said if scout else "",
    }


def _fork(line: Callable[[str], None], one: AgentEnded) -> dict[str, Any]:
    """What a fork said, and how much of what it sent was in the cache already."""
    used = one.usage
    line(f"    {one.name}: {' '.join(one.said.split())[:70]}")
    line(
        f"      [{used.prompt:,} tokens sent in {one.steps} requests, {used.hit_rate:.0%} from the "
        f"cache, {used.cache_write:,} written to it]"
    )
    return {"name": one.name, "sent": used.prompt, "from_cache": used.hit_rate, "said": one.said}


async def _told(line: Callable[[str], None], session: Session) -> str:
    """The conversation goes on by itself, with what its agent has to say."""
    try:
        said = (await session.go_on()).message.text.strip()
    except Mistake:
        return ""  # it was told along with an answer already
    line("  (scout is done, and the conversation goes on with its notice)")
    first, *rest = said.splitlines()
    for text in (first, "…", *rest[-1:]):
        line(f"    {text}")
    line("")
    return said
