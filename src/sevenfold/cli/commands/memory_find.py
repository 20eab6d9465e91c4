"""`sevenfold memory recall` and `search`: what is remembered about something, and where it was said.

Lets a model choose memories for a question that is asked on the command line, without a session.
`sevenfold memory history`, `diff` and `undo`: who changed what, and taking it back. Whose memory a
command is about: that of the project, or with --agent that of a kind of agent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final

import anyio
import msgspec
from msgspec.structs import replace

from sevenfold.cache.ledger import Ledger
from sevenfold.cache.prices import Prices
from sevenfold.cli.commands.agents import found
from sevenfold.cli.commands.memory_read import opened, place_of, warn
from sevenfold.cli.commands.sessions import Said, Sought, said_in, sought
from sevenfold.cli.options import Shared
from sevenfold.cli.output import moment, one_line, result, say
from sevenfold.cli.surroundings import Surroundings, environment_of, look
from sevenfold.clock import SystemClock
from sevenfold.context.memory import Memory
from sevenfold.errors import Mistake, SevenfoldError, StorageFailure
from sevenfold.events import Event, Failed, Notice
from sevenfold.layers.l5_durable_memory.selection import (
    ByModel,
    Found,
    ModelSelector,
    Sources,
    Wanted,
    by_search,
)
from sevenfold.layers.l7_agents.forks import Forks
from sevenfold.layers.settings import SelectorName
from sevenfold.memory.errors import NoSuchMemory
from sevenfold.memory.folder.folder import AgentPlace, Saved, agent_places, folder_name
from sevenfold.memory.history.revisions import Revision
from sevenfold.memory.recalled import Recalled, age, days_ago
from sevenfold.memory.store import QUARANTINE, MemoryStore
from sevenfold.memory.topic_file import Topic
from sevenfold.models import connect
from sevenfold.models.capabilities import OFFLINE
from sevenfold.protocols import Model
from sevenfold.session.frame import thresholds
from sevenfold.session.place import MemoryPlace
from sevenfold.session.project import Workplace

SHOWN_LINES: Final = 12
"""Lines of a recalled memory that people are shown; the rest is named."""


class Remembered(msgspec.Struct, frozen=True):
    """One memory that was found."""

    name: str
    path: Path
    type: str | None
    description: str
    age_days: int
    score: float
    text: str


def _remembered(one: Recalled, now: float) -> Remembered:
    return Remembered(
        name=one.name,
        path=one.path,
        type=one.type,
        description=one.description,
        age_days=days_ago(one.modified, now),
        score=round(one.score, 4),
        text=one.text,
    )


# --- recall -------------------------------------------------------------------------------------------


def recall(shared: Shared, query: str, limit: int, selector: SelectorName | None) -> int:
    if not query.strip():
        raise Mistake("there is nothing to recall: ask something")
    with opened(shared) as memory:
        began = perf_counter()
        if selector == "hybrid" or (selector is None and _settled(shared) == "hybrid"):
            found, by = memory.recall(query, limit), "hybrid"
        else:
            chosen = select(shared, memory, query, limit, selector)
            found, by = list(chosen.memories), chosen.selector
        took = 1_000 * (perf_counter() - began)
    now = SystemClock().now()
    if not found:
        say(shared, "nothing that is remembered answers that")
    text = "\n\n".join(_drawn(one, now) for one in found)
    memories = [_remembered(one, now) for one in found]
    value = {"query": query, "took_ms": round(took, 1), "selector": by, "memories": memories}
    result(shared, text, value)
    return 0


def _settled(shared: Shared) -> SelectorName:
    return look(shared).settings().settings.recall.selector


def _drawn(one: Recalled, now: float) -> str:
    head = f"{one.name}  {one.type or 'untyped'} · {age(one.modified, now)} · {one.path}"
    lines = one.text.split("\n")
    if len(lines) > SHOWN_LINES:
        more = f"… {len(lines) - SHOWN_LINES:,} more lines: sevenfold memory show {one.file}"
        lines = [*lines[:SHOWN_LINES], more]
    return "\n".join([head, *(f"  {line}".rstrip() for line in [one.description, "", *lines])])


# --- search -------------------------------------------------------------------------------------------


class Place(msgspec.Struct, frozen=True):
    """One memory with the words in it, or about them."""

    name: str
    path: Path
    type: str | None
    description: str
    age_days: int
    score: float
    line: str
    """Where the words stand; empty when it only means the same."""


def search(shared: Shared, words: str, limit: int, transcripts: bool) -> int:
    wanted = sought(words)
    if wanted is None:
        raise Mistake("there is nothing to search for: give a word or a part of one")
    with opened(shared) as memory:
        places = _places(memory, words, wanted, limit)
    said: list[Said] = []
    if transcripts:
        said = list(said_in(look(shared).scoped(), wanted, limit))
    if not places and not said:
        more = "" if transcripts else "; --transcripts also searches what was said"
        say(shared, f"{words!r} was not found in memory{more}")
    value = {"query": words, "memories": places, **({"transcripts": said} if transcripts else {})}
    result(shared, "\n".join([*map(_memory_line, places), *map(_said_line, said)]), value)
    return 0


def _places(memory: MemoryStore, words: str, wanted: Sought, limit: int) -> list[Place]:
    """The memories that hold all the words first, then those that the search finds."""
    now, ranked = SystemClock().now(), memory.search(words, limit)
    scores = {one.file: one.score for one in ranked}
    topics, modified = {topic.file: topic for topic in memory.topics()}, memory.modified()
    lines = {file: _line(topic, wanted) for file, topic in topics.items()}
    order = sorted(
        (file for file in topics if lines[file] or file in scores),
        key=lambda file: (not lines[file], -scores.get(file, 0.0), file),
    )
    return [
        Place(
            name=topics[file].name,
            path=memory.folder / file,
            type=topics[file].type,
            description=topics[file].description,
            age_days=days_ago(modified.get(file, now), now),
            score=round(scores.get(file, 0.0), 4),
            line=lines[file],
        )
        for file in order[:limit]
    ]


def _line(topic: Topic, wanted: Sought) -> str:
    """The best line: one with all the words, else one with any, if all of them are in the file."""
    lines = [topic.name, topic.description, *topic.body.split("\n")]
    if whole := next((line for line in lines if wanted.all_in(line)), ""):
        return wanted.around(whole)
    if not wanted.all_in("\n".join(lines)):
        return ""
    return wanted.around(next((line for line in _last_first(lines) if wanted.any_in(line)), ""))


def _last_first(lines: Sequence[str]) -> Iterable[str]:
    """The text before the name and the description: they are shown anyway."""
    return [*lines[2:], *lines[:2]]


def _memory_line(place: Place) -> str:
    said = place.line or place.description
    return f"{place.path}: {one_line(said, 300)}"


def _said_line(said: Said) -> str:
    return f"{said.session}  {moment(said.at)}  {said.by}: {one_line(said.text, 300)}"


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


_REVISION: Final = re.compile(r"[0-9a-f]{4,40}|(?:HEAD|last|@)(?:~\d*)?", re.IGNORECASE)
_SAME: Final = "nothing has changed"


def show_history(shared: Shared, name: str | None, limit: int, agent: str | None = None) -> int:
    with opened(shared, agent) as memory:
        _take_in(memory)
        revisions = memory.history(name, limit)
    if not revisions:
        say(shared, f"the history of {name or memory.folder} is empty")
    result(shared, lines(revisions), {"name": name, "revisions": revisions})
    return 0


def lines(revisions: Sequence[Revision]) -> str:
    """One line for each: when, who, what."""
    kinds = max((len(one.author.kind) for one in revisions), default=0)
    return "\n".join(
        f"{one.id}  {moment(one.at)}  {one.author.kind:<{kinds}}  {one_line(_what(one), 200)}"
        for one in revisions
    )


def _what(revision: Revision) -> str:
    author = revision.author
    more = [
        text for text in (author.reason, author.session and f"session {author.session}") if text
    ]
    return f"{revision.summary} ({'; '.join(more)})" if more else revision.summary


def show_diff(
    shared: Shared, name: str | None, revision: str | None, agent: str | None = None
) -> int:
    with opened(shared, agent) as memory:
        _take_in(memory)
        name, revision = _meant(memory, name, revision)
        text = memory.diff(name, revision)
    if not text:
        since = f" since {revision}" if revision else ""
        say(shared, f"{_SAME}{since}: {name or memory.folder}")
    result(shared, text.rstrip("\n"), {"name": name, "revision": revision, "diff": text})
    return 0


def _meant(memory: Memory, name: str | None, revision: str | None) -> tuple[str | None, str | None]:
    """`diff a1b2c3` is about a revision, unless there is a memory of that name."""
    if name is None or revision is not None or not _REVISION.fullmatch(name):
        return name, revision
    try:
        memory.get(name)
    except NoSuchMemory:
        return None, name
    return name, None


def undo(shared: Shared, name: str | None, to: str | None, agent: str | None = None) -> int:
    with opened(shared, agent) as memory:
        saved = memory.undo(name, to)
    for one in saved:
        say(shared, told(one))
    if not saved:
        say(shared, f"the index of {memory.folder} is as it was before; no memory has changed")
    revision = saved[0].revision if saved else ""
    result(shared, "", {"name": name, "to": to, "revision": revision, "memories": saved})
    return 0


def told(saved: Saved) -> str:
    """What undoing has done to one memory."""
    done = {"created": "brought back", "removed": "removed again"}.get(saved.action, "as before")
    return f"{saved.name}: {done} ({saved.path})"


def _take_in(memory: Memory) -> None:
    """What somebody wrote by hand since is part of the history, too."""
    try:
        memory.take_in()
    except StorageFailure as error:
        warn(f"what changed since the last revision is not listed: {error}")


def place_of_agent(shared: Shared, agent: str) -> MemoryPlace:
    """Where the memory of this agent is; `Mistake` names the agents that have one."""
    own, place = place_of(shared), _place(look(shared), agent)
    return replace(own, folder=place.folder, state=place.state, owner=None)


def held_back(around: Surroundings) -> Iterator[tuple[str, int]]:
    """How many texts are held back from which agents."""
    for one in _places_memory_agents(around):
        if number := _held(one):
            yield one.folder.name, number


def _place(around: Surroundings, agent: str) -> AgentPlace:
    wanted, every = folder_name(agent).casefold(), _places_memory_agents(around)
    fitting = [one for one in every if one.folder.name.casefold() == wanted]
    if not fitting:
        names = ", ".join(dict.fromkeys(one.folder.name for one in every)) or "none"
        unseen = "" if around.trusted else f"; those in {around.places.tree} wait for its trust"
        raise Mistake(f"no agent {agent!r} has a memory here; those that have one: {names}{unseen}")
    kinds = found(around).definitions.values()
    scopes = {one.memory for one in kinds if folder_name(one.name).casefold() == wanted}
    return min(fitting, key=lambda one: (one.scope not in scopes, not _held(one)))


def _places_memory_agents(around: Surroundings) -> list[AgentPlace]:
    home = around.environment.shared or around.home
    tree = around.places.tree if around.trusted else None
    return [*agent_places(home, tree, around.home)]


def _held(place: AgentPlace) -> int:
    from sevenfold.memory.guard.guard import Quarantine

    try:
        return len(Quarantine(place.state / QUARANTINE, SystemClock()).list())
    except SevenfoldError as error:
        warn(str(error))
        return 0
