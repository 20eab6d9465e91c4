"""Lets a model choose memories for a question that is asked on the command line, without a session."""

from __future__ import annotations

import anyio

from sevenfold.cache.ledger import Ledger
from sevenfold.cache.prices import Prices
from sevenfold.cli.memory_showing import warn
from sevenfold.cli.options import Shared
from sevenfold.cli.surroundings import environment_of
from sevenfold.clock import SystemClock
from sevenfold.errors import Mistake
from sevenfold.events import Event, Failed, Notice
from sevenfold.framing import thresholds
from sevenfold.layers.l5_durable_memory.model_selector import ModelSelector
from sevenfold.layers.l5_durable_memory.selecting import ByModel, Found, Sources, Wanted, by_search
from sevenfold.layers.l5_durable_memory.settings import SelectorName
from sevenfold.layers.l7_agents.forking import Forks
from sevenfold.memory.store import MemoryStore
from sevenfold.models import OFFLINE, connect
from sevenfold.protocols import Model
from sevenfold.workplace import Workplace


def select(
    shared: Shared, memory: MemoryStore, query: str, limit: int, selector: SelectorName | None
) -> Found:
    """What was chosen, and by whom; `None` as selector: whatever the settings say."""
    at = Workplace.open(shared.project, environment_of(shared), {}, _ignore)
    wanted = Wanted(query, limit, frozenset())
    name = at.settings.recall.model or at.default_model
    chooses = selector or at.settings.recall.selector
    if chooses != "hybrid" and name == OFFLINE:
        why = f"the selector {chooses!r} needs a model, and there is none without a key"
        if selector is not None:
            raise Mistake(f"{why}: set ANTHROPIC_API_KEY, or use --selector hybrid")
        warn(f"{why}: the search alone has chosen")
        chooses = "hybrid"
    if chooses == "hybrid":
        return by_search(memory.recall, wanted)
    return anyio.run(_by_model, at, memory, wanted, connect(name, at.access), chooses)


async def _by_model(
    at: Workplace, memory: MemoryStore, wanted: Wanted, model: Model, selector: SelectorName
) -> Found:
    clock = SystemClock()
    ledger = Ledger(Prices.load(at.settings.prices), clock, _ignore)
    forks = Forks(lambda: model, ledger, clock, _told, lambda: thresholds(model, at.settings))
    choose = ModelSelector(forks, lambda: model.name, at.settings.recall)
    sources = Sources(memory.folder, memory.recall, newest=memory.newest)
    try:
        return await ByModel(sources, choose, selector, _told)(wanted)
    finally:
        if close := getattr(model, "close", None):
            await close()


def _told(event: Event) -> None:
    if isinstance(event, Failed):
        warn(event.cause)
    elif isinstance(event, Notice):
        warn(event.text)


def _ignore(event: Event) -> None:
    return None
