"""`sevenfold memory list`, `path`, `check` and `show`: what is remembered, and in which state it is."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sevenfold.cli.options import Shared
from sevenfold.cli.output import count, fitted, one_line, printable, result, say
from sevenfold.cli.surroundings import look
from sevenfold.clock import SystemClock
from sevenfold.context.memory import Memory
from sevenfold.errors import StorageFailure
from sevenfold.events import Event, Notice
from sevenfold.memory.folder.folder import SHARED
from sevenfold.memory.recalled import age, caveat, days_ago
from sevenfold.memory.topic_file import Topic
from sevenfold.session.place import MemoryPlace, memory_place

if TYPE_CHECKING:
    from sevenfold.memory.check import Finding
    from sevenfold.memory.pollution import Pollution
    from sevenfold.memory.store import MemoryStore

UNTYPED = "-"


def place_of(shared: Shared) -> MemoryPlace:
    """Where the memory of the project is; what there is to know about that is said."""
    around = look(shared)
    places = around.scoped()
    place = memory_place(places, around.environment, around.settings().settings)
    for text in filter(None, (places.note, place.note)):
        warn(text)
    return place


def opened(shared: Shared, agent: str | None = None) -> Memory:
    """The memory of the project or of a kind of agent, for one command; `MemoryOff` when it is off."""
    return Memory.at(_whose(shared, agent), emit=_told)


def _whose(shared: Shared, agent: str | None) -> MemoryPlace:
    if agent is None:
        return place_of(shared)
    from sevenfold.cli.commands.memory_find import place_of_agent

    return place_of_agent(shared, agent)


def of_agent(agent: str | None) -> str:
    """The option that a hint repeats."""
    return f" --agent {agent}" if agent else ""


def _told(event: Event) -> None:
    if isinstance(event, Notice):
        warn(event.text)


def warn(text: str) -> None:
    """What is said even to those who asked for silence."""
    print(f"sevenfold: {printable(text)}", file=sys.stderr, flush=True)


# --- the list -----------------------------------------------------------------------------------------


class Listed(msgspec.Struct, frozen=True):
    """One memory in a list."""

    name: str
    file: str
    path: Path
    type: str | None
    description: str
    age_days: int
    modified: float
    team: bool
    """Whether it is shared with a team."""


def listed(memory: MemoryStore, now: float) -> list[Listed]:
    """Every memory, the newest first."""
    modified = memory.modified()
    found = [_listed(memory.folder, topic, modified, now) for topic in memory.topics()]
    return sorted(found, key=lambda one: (-one.modified, one.file))


def _listed(folder: Path, topic: Topic, modified: dict[str, float], now: float) -> Listed:
    at = modified.get(topic.file, now)
    return Listed(
        name=topic.name,
        file=topic.file,
        path=folder / topic.file,
        type=topic.type,
        description=topic.description,
        age_days=days_ago(at, now),
        modified=at,
        team=SHARED.holds(topic.file),
    )


def kind_of(one: Listed) -> str:
    """Its type, and whether a team shares it."""
    return f"{one.type or UNTYPED}{', team' if one.team else ''}"


def table(memories: Sequence[Listed], now: float, *, terminal: bool = False) -> str:
    """The list for people; at a terminal it has a header, and no line is broken."""
    cells = [
        (
            one_line(one.name, 40),
            kind_of(one),
            age(one.modified, now),
            one_line(one.description, 200),
        )
        for one in memories
    ]
    head = ("name", "type", "changed", "description")
    rows = [head, *cells] if terminal and cells else cells
    widths = [max((_width(row[at]) for row in rows), default=0) for at in range(3)]
    lines = ["  ".join([*map(_padded, row[:3], widths), row[3]]).rstrip() for row in rows]
    columns = shutil.get_terminal_size().columns
    return "\n".join(fitted(line, columns) if terminal else line for line in lines)


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def show_list(shared: Shared, agent: str | None = None) -> int:
    now = SystemClock().now()
    with opened(shared, agent) as memory:
        memories = listed(memory, now)
        odd = memory.listing().odd
    if not memories:
        how = "" if agent else "; 'sevenfold memory add' saves"
        say(shared, f"nothing is remembered yet in {memory.folder}{how}")
    if odd:
        some = count(len(odd), "file or folder", "files and folders")
        say(shared, f"{some} there cannot be memories; --json says which and why")
    text = table(memories, now, terminal=sys.stdout.isatty())
    result(shared, text, {"folder": memory.folder, "memories": memories, "unused": odd})
    return 0


# --- where, and in which state ------------------------------------------------------------------------


def show_path(shared: Shared, agent: str | None = None) -> int:
    place = _whose(shared, agent)
    if place.off is not None:
        say(shared, f"memory is off: {place.off}")
    value = {
        "path": place.folder,
        "exists": place.folder.is_dir(),
        "on": place.off is None,
        "off": place.off,
        "state": place.state,
    }
    result(shared, str(place.folder), value)
    return 0


def show_check(shared: Shared, agent: str | None = None) -> int:
    with opened(shared, agent) as memory:
        findings = memory.check()
        memories = len(memory.listing().topics)
        since = _pollution(memory)
    good = f"{count(memories, 'memory', 'memories')} in {memory.folder}: nothing to mend"
    text = "\n".join(filter(None, ["\n".join(map(told, findings)) or good, _went_wrong(since)]))
    value = {
        "folder": memory.folder,
        "memories": memories,
        "findings": findings,
        "pollution": since,
    }
    result(shared, text, {"ok": not findings, **value})
    return 1 if findings else 0


def _pollution(memory: MemoryStore) -> Pollution | None:
    """What became of the memories of the last 30 days; None where the history cannot be read."""
    from sevenfold.memory.pollution import pollution

    try:
        return pollution(memory, SystemClock().now())
    except StorageFailure as error:
        warn(f"how many memories went wrong is not known: {error}")
        return None


def _went_wrong(since: Pollution | None) -> str:
    if since is None or not since.saved:
        return ""
    ways = (
        f"{since.undone} undone, {since.contradicted} contradicted, {since.quarantined} with a later "
        "text in quarantine"
    )
    saved = count(since.saved, "memory", "memories")
    return f"of {saved} saved in 30 days {since.rate:.0%} went wrong: {ways}"


def told(finding: Finding) -> str:
    """One finding: where, what, and the fix below it."""
    return f"{finding.file}: {one_line(finding.text, 300)}\n  → {one_line(finding.fix, 300)}"


# --- one of them --------------------------------------------------------------------------------------


class Shown(Listed, frozen=True):
    """One memory, all of it."""

    text: str = ""
    links: tuple[str, ...] = ()
    origin: dict[str, object] | None = None
    problems: tuple[str, ...] = ()
    caveat: str = ""


def shown(memory: MemoryStore, name: str, now: float) -> Shown:
    topic = memory.get(name)
    one = _listed(memory.folder, topic, memory.modified(), now)
    origin = topic.origin
    return Shown(
        **msgspec.structs.asdict(one),
        text=topic.body,
        links=topic.links,
        origin=msgspec.structs.asdict(origin) if origin else None,
        problems=topic.problems,
        caveat=caveat(one.modified, now),
    )


def drawn(one: Shown, now: float) -> str:
    """For people: its name, what it is, where it is, and then what it says."""
    team = " · team" if one.team else ""
    head = f"{one.name}  {one.type or 'untyped'}{team} · {age(one.modified, now)} · {one.path}"
    parts = ["\n".join(filter(None, [head, one.description])), one.text]
    return "\n\n".join(filter(None, parts)).rstrip()


def show_one(shared: Shared, name: str, agent: str | None = None) -> int:
    now = SystemClock().now()
    with opened(shared, agent) as memory:
        one = shown(memory, name, now)
    for problem in one.problems:
        say(shared, f"{one.file}: {problem}")
    if one.caveat:
        say(shared, one.caveat)
    result(shared, drawn(one, now), one)
    return 0
