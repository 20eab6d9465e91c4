"""`sevenfold memory recall`, `search`, `history`, `diff` and `undo`; the memories of kinds of agents."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Final

import anyio
from msgspec.structs import replace

from sevenfold.cache.ledger import Ledger
from sevenfold.cache.prices import Prices
from sevenfold.cli.commands.agents import find_agent_kinds
from sevenfold.cli.commands.memory_display import open_memory, resolve_memory_place
from sevenfold.cli.options import SharedOptions
from sevenfold.cli.output import format_time, print_message, print_result, print_warning, to_one_line
from sevenfold.cli.startup import CommandContext, read_command_context, read_environment
from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Mistake, SevenfoldError, StorageFailure
from sevenfold.core.events import Event, Failed, Notice
from sevenfold.core.protocols import Model
from sevenfold.layers.l5_durable_memory.selection import (
    ByModel,
    ModelSelector,
    RecallQuery,
    Selection,
    select_by_search,
)
from sevenfold.layers.l7_agents.forks import ForkRunner
from sevenfold.layers.parts import PlainConversation, RecallParts
from sevenfold.memory.errors import NoSuchMemory
from sevenfold.memory.folder.agent_folders import AgentFolder, list_agent_folders, make_folder_name
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.folder.folder import Saved
from sevenfold.memory.history.revisions import Revision
from sevenfold.memory.recall_results import Recalled, count_days_ago, format_age
from sevenfold.memory.search.word_search import ScoredMemory, search_memories
from sevenfold.memory.store import QUARANTINE, Memory, MemoryStore
from sevenfold.models import connect_model
from sevenfold.models.capabilities import OFFLINE
from sevenfold.session.frame import make_thresholds
from sevenfold.session.project import Project
from sevenfold.settings.layers import SelectorName
from sevenfold.settings.place import MemoryPlace
from sevenfold.storage.transcript_search import GrepHit, grep_transcripts, parse_search_words

BUILD: Final = 0.2  # Seconds that a command builds on at the search index after its answer
BUILD_AT_TERMINAL: Final = 1.0
SHOWN_LINES: Final = 12  # Most lines of a recalled memory that are shown


class RecallRow(ScoredMemory, frozen=True):
    text: str


def run_recall(
    shared: SharedOptions, query: str, limit: int, selector: SelectorName | None, wait: float | None = None
) -> int:
    if not query.strip():
        raise Mistake("there is nothing to recall: ask something")
    with open_memory(shared) as memory:
        settings = read_command_context(shared).load_settings().settings
        began = perf_counter()
        if (selector or settings.recall.selector) == "hybrid":
            found, by = memory.recall(query, limit, wait=wait), "hybrid"
        else:
            chosen = select_memories(shared, memory, query, limit, selector)
            found, by = list(chosen.memories), chosen.selector
        _print_recalled(shared, query, found, by, 1_000 * (perf_counter() - began))
        _build_a_while(shared, memory)
    return 0


def _print_recalled(
    shared: SharedOptions, query: str, found: Sequence[Recalled], by: str, took: float
) -> None:
    now = SystemClock().now()
    if not found:
        print_message(shared, "nothing that is remembered answers that")
    text = "\n\n".join(_format_recalled(one, now) for one in found)
    memories = [
        RecallRow(
            name=one.name,
            path=one.path,
            type=one.type,
            description=one.description,
            age_days=count_days_ago(one.modified, now),
            score=round(one.score, 4),
            text=one.text,
        )
        for one in found
    ]
    value = {"query": query, "took_ms": round(took, 1), "selector": by, "memories": memories}
    print_result(shared, text, value)


def _build_a_while(shared: SharedOptions, memory: MemoryStore) -> None:
    """Build on at the search index after the answer, shortly; the next command goes on from there.

    At a terminal it takes a little longer and shows how far it is.
    """
    sys.stdout.flush()
    watched = sys.stderr.isatty() and not shared.quiet
    until = perf_counter() + (BUILD_AT_TERMINAL if watched else BUILD)
    shown = False
    while not memory.settled(min(0.1, max(0.0, until - perf_counter()))):
        if watched and (line := memory.describe_progress()):
            shown = True
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        if perf_counter() >= until:
            break
    if shown:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    if line := memory.describe_progress():
        print_message(shared, f"by words so far: {line}; the next command goes on")


def _format_recalled(one: Recalled, now: float) -> str:
    head = f"{one.name}  {one.type or 'untyped'} · {format_age(one.modified, now)} · {one.path}"
    lines = one.text.split("\n")
    if len(lines) > SHOWN_LINES:
        more = f"… {len(lines) - SHOWN_LINES:,} more lines: sevenfold memory show {one.file}"
        lines = [*lines[:SHOWN_LINES], more]
    return "\n".join([head, *(f"  {line}".rstrip() for line in [one.description, "", *lines])])


def run_search(shared: SharedOptions, words: str, limit: int, transcripts: bool) -> int:
    wanted = parse_search_words(words)
    if wanted is None:
        raise Mistake("there is nothing to search for: give a word or a part of one")
    with open_memory(shared) as memory:
        places = search_memories(memory, words, wanted, limit)
    said: list[GrepHit] = []
    if transcripts:
        said = list(grep_transcripts(read_command_context(shared).find_session_places(), wanted, limit))
    if not places and not said:
        more = "" if transcripts else "; --transcripts also searches what was said"
        print_message(shared, f"{words!r} was not found in memory{more}")
    value = {"query": words, "memories": places, **({"transcripts": said} if transcripts else {})}
    lines = [f"{one.path}: {to_one_line(one.line or one.description, 300)}" for one in places]
    lines += [f"{s.session}  {format_time(s.at)}  {s.by}: {to_one_line(s.text, 300)}" for s in said]
    print_result(shared, "\n".join(lines), value)
    return 0


def select_memories(
    shared: SharedOptions, memory: MemoryStore, query: str, limit: int, selector: SelectorName | None
) -> Selection:
    """Choose memories without a session; with None as selector the one of the settings."""
    at = Project.open(shared.project, read_environment(shared), {}, _ignore_event)
    wanted = RecallQuery(query, limit, frozenset())
    name = at.settings.recall.model or at.default_model
    chooses = selector or at.settings.recall.selector
    if chooses != "hybrid" and name == OFFLINE:
        why = f"the selector {chooses!r} needs a model, and there is none without a key"
        if selector is not None:
            raise Mistake(f"{why}: set ANTHROPIC_API_KEY, or use --selector hybrid")
        print_warning(f"{why}: the search alone has chosen")
        chooses = "hybrid"
    if chooses == "hybrid":
        return select_by_search(memory.recall, wanted)
    return anyio.run(_select_by_model, at, memory, wanted, connect_model(name, at.access), chooses)


async def _select_by_model(
    at: Project, memory: MemoryStore, wanted: RecallQuery, model: Model, selector: SelectorName
) -> Selection:
    clock = SystemClock()
    ledger = Ledger(Prices.load(at.settings.prices), clock, _ignore_event)
    conversation = PlainConversation(model, thresholds=make_thresholds(model, at.settings))
    forks = ForkRunner(conversation, ledger, clock, _print_problem)
    sources = RecallParts(memory.path_of(), memory.recall, memory.newest, model=lambda: model.name)
    choose = ModelSelector(forks, sources, at.settings.recall, _print_problem)
    try:
        return await ByModel(sources, choose, selector, _print_problem)(wanted)
    finally:
        if close := getattr(model, "close", None):
            await close()


def _print_problem(event: Event) -> None:
    if isinstance(event, Failed):
        print_warning(event.cause)
    elif isinstance(event, Notice):
        print_warning(event.text)


def _ignore_event(event: Event) -> None:
    return None


_REVISION: Final = re.compile(r"[0-9a-f]{4,40}|(?:HEAD|last|@)(?:~\d*)?", re.IGNORECASE)
_SAME: Final = "nothing has changed"


def show_history(shared: SharedOptions, name: str | None, limit: int, agent: str | None = None) -> int:
    with open_memory(shared, agent) as memory:
        _record_changes(memory)
        revisions = memory.history(name, limit)
    if not revisions:
        print_message(shared, f"the history of {name or memory.path_of()} is empty")
    print_result(shared, format_history(revisions), {"name": name, "revisions": revisions})
    return 0


def format_history(revisions: Sequence[Revision]) -> str:
    """One line for each: when, who, what."""
    kinds = max((len(one.author.kind) for one in revisions), default=0)
    return "\n".join(
        f"{one.id}  {format_time(one.at)}  {one.author.kind:<{kinds}}  "
        f"{to_one_line(_describe_revision(one), 200)}"
        for one in revisions
    )


def _describe_revision(revision: Revision) -> str:
    author = revision.author
    more = [text for text in (author.reason, author.session and f"session {author.session}") if text]
    return f"{revision.summary} ({'; '.join(more)})" if more else revision.summary


def show_diff(
    shared: SharedOptions, name: str | None, revision: str | None, agent: str | None = None
) -> int:
    with open_memory(shared, agent) as memory:
        _record_changes(memory)
        name, revision = _resolve_name(memory, name, revision)
        text = memory.diff(name, revision)
    if not text:
        since = f" since {revision}" if revision else ""
        print_message(shared, f"{_SAME}{since}: {name or memory.path_of()}")
    print_result(shared, text.rstrip("\n"), {"name": name, "revision": revision, "diff": text})
    return 0


def _resolve_name(memory: Memory, name: str | None, revision: str | None) -> tuple[str | None, str | None]:
    """`diff a1b2c3` is about a revision, unless there is a memory of that name."""
    if name is None or revision is not None or not _REVISION.fullmatch(name):
        return name, revision
    try:
        memory.get(name)
    except NoSuchMemory:
        return None, name
    return name, None


def run_undo(shared: SharedOptions, name: str | None, to: str | None, agent: str | None = None) -> int:
    with open_memory(shared, agent) as memory:
        saved = memory.undo(name, to)
        done = memory.history(limit=1)[0]
    for line in describe_steps(done, saved):
        print_message(shared, line)
    print_result(shared, "", {"name": name, "to": to, "revision": done.id, "memories": saved})
    return 0


def run_redo(shared: SharedOptions, name: str | None, agent: str | None = None) -> int:
    with open_memory(shared, agent) as memory:
        saved = memory.redo(name)
        done = memory.history(limit=1)[0]
    for line in describe_steps(done, saved):
        print_message(shared, line)
    print_result(shared, "", {"name": name, "revision": done.id, "memories": saved})
    return 0


def describe_steps(done: Revision, saved: Sequence[Saved]) -> list[str]:
    """The result of an undo or a redo: what it took back, and a line for each memory."""
    lines = [describe_step(one) for one in saved] or ["the index is as it was; no memory has changed"]
    return [done.summary, *lines]


def describe_step(saved: Saved) -> str:
    """One line about what undoing did to a memory."""
    done = {"created": "brought back", "removed": "removed again"}.get(saved.action, "as before")
    return f"{saved.name}: {done} ({saved.path})"


def _record_changes(memory: Memory) -> None:
    """Add files that were edited by hand since to the history."""
    try:
        memory.take_in()
    except StorageFailure as error:
        print_warning(f"what changed since the last revision is not listed: {error}")


def find_agent_memory(shared: SharedOptions, agent: str) -> MemoryPlace:
    """The place of the memory of this agent; `Mistake` names the agents that have one."""
    own, place = resolve_memory_place(shared), _choose_agent_folder(read_command_context(shared), agent)
    return replace(own, folder=place.folder, state=place.state, owner=None)


def count_held_texts(around: CommandContext) -> Iterator[tuple[str, int]]:
    """The agents from which texts are held back, and how many."""
    for one in _list_agent_folders(around):
        if number := _count_quarantined(one):
            yield one.folder.name, number


def _choose_agent_folder(around: CommandContext, agent: str) -> AgentFolder:
    wanted, every = make_folder_name(agent).casefold(), _list_agent_folders(around)
    fitting = [one for one in every if one.folder.name.casefold() == wanted]
    if not fitting:
        names = ", ".join(dict.fromkeys(one.folder.name for one in every)) or "none"
        unseen = "" if around.trusted else f"; those in {around.places.tree} wait for its trust"
        raise Mistake(f"no agent {agent!r} has a memory here; those that have one: {names}{unseen}")
    kinds = find_agent_kinds(around).definitions.values()
    scopes = {one.memory for one in kinds if make_folder_name(one.name).casefold() == wanted}
    return min(fitting, key=lambda one: (one.scope not in scopes, not _count_quarantined(one)))


def _list_agent_folders(around: CommandContext) -> list[AgentFolder]:
    home = around.environment.shared or around.home
    return [*list_agent_folders(home, around.places.tree if around.trusted else None, around.home)]


def _count_quarantined(place: AgentFolder) -> int:
    from sevenfold.memory.guard.guard import Quarantine

    try:
        return len(Quarantine(FolderBackend.at(place).state(QUARANTINE), SystemClock()).list())
    except SevenfoldError as error:
        print_warning(str(error))
        return 0
