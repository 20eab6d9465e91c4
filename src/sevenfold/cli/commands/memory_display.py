"""`sevenfold memory list`, `path`, `check` and `show`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from sevenfold.cli.options import SharedOptions
from sevenfold.cli.output import (
    fit_line,
    format_count,
    print_message,
    print_result,
    print_warning,
    to_one_line,
)
from sevenfold.cli.startup import read_command_context
from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import StorageFailure
from sevenfold.core.events import Event, Notice
from sevenfold.memory.folder.folder import SHARED
from sevenfold.memory.recall_results import count_days_ago, format_age, format_caveat
from sevenfold.memory.store import Memory
from sevenfold.memory.topic_file import Topic
from sevenfold.settings.place import MemoryPlace, find_memory_place

if TYPE_CHECKING:
    from sevenfold.memory.check import CheckFinding
    from sevenfold.memory.pollution import Pollution
    from sevenfold.memory.store import MemoryStore

UNTYPED = "-"


def resolve_memory_place(shared: SharedOptions) -> MemoryPlace:
    """Find the memory of the project; prints the notes about its place."""
    around = read_command_context(shared)
    places = around.find_session_places()
    place = find_memory_place(places, around.environment, around.load_settings().settings)
    for text in filter(None, (places.note, place.note)):
        print_warning(text)
    return place


def open_memory(shared: SharedOptions, agent: str | None = None) -> Memory:
    """The memory of the project or of a kind of agent, for one command; `MemoryOff` when it is off."""
    return Memory.at(_find_place(shared, agent), emit=_print_notice)


def _find_place(shared: SharedOptions, agent: str | None) -> MemoryPlace:
    if agent is None:
        return resolve_memory_place(shared)
    from sevenfold.cli.commands.memory_search import find_agent_memory

    return find_agent_memory(shared, agent)


def format_agent_option(agent: str | None) -> str:
    """The option that a hint repeats."""
    return f" --agent {agent}" if agent else ""


def _print_notice(event: Event) -> None:
    if isinstance(event, Notice):
        print_warning(event.text)


class MemoryRow(msgspec.Struct, frozen=True):
    """One memory in a list."""

    name: str
    file: str
    path: Path
    type: str | None
    description: str
    age_days: int
    modified: float
    team: bool  # True if it is shared with a team


def list_memories(memory: MemoryStore, now: float) -> list[MemoryRow]:
    """Every memory, the newest first."""
    modified = memory.modified()
    found = [_make_row(memory.path_of(), topic, modified, now) for topic in memory.topics()]
    return sorted(found, key=lambda one: (-one.modified, one.file))


def _make_row(folder: Path, topic: Topic, modified: dict[str, float], now: float) -> MemoryRow:
    at = modified.get(topic.file, now)
    return MemoryRow(
        name=topic.name,
        file=topic.file,
        path=folder / topic.file,
        type=topic.type,
        description=topic.description,
        age_days=count_days_ago(at, now),
        modified=at,
        team=SHARED.holds(topic.file),
    )


def format_memory_kind(one: MemoryRow) -> str:
    """Its type, and whether a team shares it."""
    return f"{one.type or UNTYPED}{', team' if one.team else ''}"


def format_memory_table(memories: Sequence[MemoryRow], now: float, *, terminal: bool = False) -> str:
    """The list for people; at a terminal it has a header, and no line is broken."""
    cells = [
        (
            to_one_line(one.name, 40),
            format_memory_kind(one),
            format_age(one.modified, now),
            to_one_line(one.description, 200),
        )
        for one in memories
    ]
    rows = [("name", "type", "changed", "description"), *cells] if terminal and cells else cells
    widths = [max((_measure_width(row[at]) for row in rows), default=0) for at in range(3)]
    padded = [[row[n] + " " * (widths[n] - _measure_width(row[n])) for n in range(3)] for row in rows]
    lines = ["  ".join([*cells, row[3]]).rstrip() for cells, row in zip(padded, rows, strict=True)]
    columns = shutil.get_terminal_size().columns
    return "\n".join(fit_line(line, columns) if terminal else line for line in lines)


def _measure_width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def show_list(shared: SharedOptions, agent: str | None = None) -> int:
    now = SystemClock().now()
    with open_memory(shared, agent) as memory:
        memories = list_memories(memory, now)
        odd = memory.listing().odd
    if not memories:
        how = "" if agent else "; 'sevenfold memory add' saves"
        print_message(shared, f"nothing is remembered yet in {memory.path_of()}{how}")
    if odd:
        some = format_count(len(odd), "file or folder", "files and folders")
        print_message(shared, f"{some} there cannot be memories; --json says which and why")
    text = format_memory_table(memories, now, terminal=sys.stdout.isatty())
    print_result(shared, text, {"folder": memory.path_of(), "memories": memories, "unused": odd})
    return 0


def show_path(shared: SharedOptions, agent: str | None = None) -> int:
    place = _find_place(shared, agent)
    if place.off is not None:
        print_message(shared, f"memory is off: {place.off}")
    value = {
        "path": place.folder,
        "exists": place.folder.is_dir(),
        "on": place.off is None,
        "off": place.off,
        "state": place.state,
    }
    print_result(shared, str(place.folder), value)
    return 0


_EXAMPLES: Final = 3  # Findings of one kind that are named


def show_check(shared: SharedOptions, every: bool = False, agent: str | None = None) -> int:
    with open_memory(shared, agent) as memory:
        findings = memory.check()
        memories = len(memory.listing().topics)
        since = _measure_pollution(memory)
    good = f"{format_count(memories, 'memory', 'memories')} in {memory.path_of()}: nothing to mend"
    lines = list(map(describe_finding, findings)) if every else describe_problems(findings)
    text = "\n".join(filter(None, [*(lines or [good]), _describe_pollution(since)]))
    value = {"folder": memory.path_of(), "memories": memories, "findings": findings, "pollution": since}
    print_result(shared, text, {"ok": not findings, **value})
    return 1 if findings else 0


def _measure_pollution(memory: MemoryStore) -> Pollution | None:
    """The fate of the memories of the last 30 days; None if the history cannot be read."""
    from sevenfold.memory.pollution import measure_pollution

    try:
        return measure_pollution(memory, SystemClock().now())
    except StorageFailure as error:
        print_warning(f"how many memories went wrong is not known: {error}")
        return None


def _describe_pollution(since: Pollution | None) -> str:
    if since is None or not since.saved:
        return ""
    ways = (
        f"{since.undone} undone, {since.contradicted} contradicted, {since.quarantined} with a later "
        "text in quarantine"
    )
    saved = format_count(since.saved, "memory", "memories")
    return f"of {saved} saved in 30 days {since.rate:.0%} went wrong: {ways}"


def describe_finding(finding: CheckFinding) -> str:
    """One finding and its fix, in a line."""
    said = to_one_line(f"{finding.file}: {finding.text}", 300)
    return f"{finding.kind}: {said} → {to_one_line(finding.fix, 300)}"


def describe_problems(findings: Sequence[CheckFinding]) -> list[str]:
    """A line for each kind of problem, with how often it is there; `findings` are sorted by kind."""
    lines: list[str] = []
    for kind, group in groupby(findings, key=lambda one: one.kind):
        found = list(group)
        if len(found) == 1:
            lines.append(describe_finding(found[0]))
            continue
        more = f" and {len(found) - _EXAMPLES:,} more" if len(found) > _EXAMPLES else ""
        if len({one.text for one in found}) == 1:
            said = f"{found[0].text}: {', '.join(one.file for one in found[:_EXAMPLES])}"
        else:
            said = "; ".join(to_one_line(f"{one.file}: {one.text}", 120) for one in found[:_EXAMPLES])
        fix = to_one_line(found[0].fix, 300)
        lines.append(f"{kind} ({len(found):,}): {to_one_line(said, 400)}{more} → {fix}")
    if len(lines) < len(findings):
        lines.append("(--all lists each of them)")
    return lines


class MemoryDetail(MemoryRow, frozen=True):
    """One memory, all of it."""

    text: str = ""
    links: tuple[str, ...] = ()
    origin: dict[str, object] | None = None
    problems: tuple[str, ...] = ()
    caveat: str = ""


def read_memory_detail(memory: MemoryStore, name: str, now: float) -> MemoryDetail:
    topic = memory.get(name)
    one = _make_row(memory.path_of(), topic, memory.modified(), now)
    origin = topic.origin
    return MemoryDetail(
        **msgspec.structs.asdict(one),
        text=topic.body,
        links=topic.links,
        origin=msgspec.structs.asdict(origin) if origin else None,
        problems=topic.problems,
        caveat=format_caveat(one.modified, now),
    )


def format_memory_detail(one: MemoryDetail, now: float) -> str:
    """The memory for people: a line about it, then its text."""
    team = " · team" if one.team else ""
    head = f"{one.name}  {one.type or 'untyped'}{team} · {format_age(one.modified, now)} · {one.path}"
    parts = ["\n".join(filter(None, [head, one.description])), one.text]
    return "\n\n".join(filter(None, parts)).rstrip()


def show_memory(shared: SharedOptions, name: str, agent: str | None = None) -> int:
    now = SystemClock().now()
    with open_memory(shared, agent) as memory:
        one = read_memory_detail(memory, name, now)
    for problem in one.problems:
        print_message(shared, f"{one.file}: {problem}")
    if one.caveat:
        print_message(shared, one.caveat)
    print_result(shared, format_memory_detail(one, now), one)
    return 0
