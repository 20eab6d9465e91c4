"""The demo's second half: what one conversation teaches, the next day's knows; then a dream tidies up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from sevenfold.clock import SystemClock
from sevenfold.events import Event, Forked, Remembered, Surfaced
from sevenfold.layers.l6_dreaming.running import Dreams
from sevenfold.layers.l6_dreaming.thinking import ByRule
from sevenfold.session import Session

TAUGHT: Final = (
    "No, never round the prices: keep them in whole cents, because the bookkeeping needs exact sums.",
    "The audit of the till is next Friday, so nothing may change after that.",
)
ASKED: Final = ("do we round the prices, or keep them in whole cents?",)
DAY: Final = 86_400.0


class Later(SystemClock):
    """The same clock, so many days on."""

    def __init__(self, days: int) -> None:
        self._ahead = days * DAY

    def now(self) -> float:
        return super().now() + self._ahead


async def two_days(
    line: Callable[[str], None], model: str, folder: Path, project: Path, environ: Mapping[str, str]
) -> dict[str, Any]:
    """Teach something on one day, ask about it on the next, and dream in between."""

    async def talk(prompts: tuple[str, ...], days: int) -> tuple[list[Event], str]:
        heard: list[Event] = []
        said = ""
        options: dict[str, Any] = {"home": folder, "environ": environ, "clock": Later(days)}
        async with Session(model, project, interactive=True, **options) as session:
            session.subscribe(heard.append)
            for prompt in prompts:
                line(f"  > {prompt}")
                said = (await session.ask(prompt)).message.text.strip()
                line(f"    {said.splitlines()[0]}")
                await session.tray.drain(30)
            store, places = session.knowledge.store, session.places
        assert store is not None
        dreams[0] = Dreams(store, places.project, Later(days), lambda event: None)
        return heard, said

    dreams: list[Dreams | None] = [None]
    line("Another conversation, in which something is said that should last:\n")
    learned, _ = await talk(TAUGHT, 0)
    saved = [one.name for one in learned if isinstance(one, Remembered)]
    forks = [one for one in learned if isinstance(one, Forked) and one.kind == "extract"]
    sent = sum(one.usage.prompt for one in forks)
    read = sum(one.usage.cache_read for one in forks)
    line(f"    saved to memory by itself: {', '.join(saved)}")
    line(f"    [{sent:,} tokens sent for that, {read / max(sent, 1):.0%} from the cache]\n")
    line("The next day, a new conversation that has seen none of this:\n")
    asked, said = await talk(ASKED, 1)
    found = [name for one in asked if isinstance(one, Surfaced) for name in one.names]
    line(f"    recalled: {', '.join(found)}\n")
    assert dreams[0] is not None
    dreamt = await dreams[0].dream(ByRule(Later(1), lambda: 0.0), by_hand=True)
    line(
        f"  > sevenfold dream --now\n    {dreamt.status}: {dreamt.files_before} memories before, "
        f"{dreamt.files_after} after, {len(dreamt.lost)} facts lost\n"
    )
    return {"saved": saved, "recalled": found, "reply": said, "dream": dreamt.status}
