"""What dreams without a model keep, merge and resolve, and whether killed ones lose anything.

python -m benchmarks.dreaming.run [--quick] [--json] [--kill]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.dreaming.campaign import KILLED, campaign
from benchmarks.dreaming.folders import NOW, folder, topics
from benchmarks.dreaming.measuring import Found, measured, plain
from benchmarks.dreaming.real import NOW as REAL_NOW
from benchmarks.dreaming.real import Real, plant, real_folders, sentences_in, written
from benchmarks.dreaming.undo import measure_undo
from benchmarks.report import Table, arguments, show
from sevenfold.memory.consolidation.consolidation import consolidate_folder
from sevenfold.memory.consolidation.staged_memories import ConsolidationReport
from sevenfold.memory.dreams.losses import find_lost_facts
from sevenfold.memory.index import HOOK, list_exceeded_limits, read_index

SIZES: Final = {50: 40, 100: 40, 200: 20, 500: 10}
QUICK: Final = {50: 4, 200: 2}
CAMPAIGN: Final = 1_000
EXAMPLES: Final = 12
NOTES: Final = (
    "the synthetic sentences are ours, and so are the rules: the figures say that the rules do what they "
    "promise and harm nothing, not how many contradictions of real people they would find",
    "a contradiction said in other words is planted too, and is left as it is: nothing short of a model "
    "finds it",
    "a fact counts as kept when all its words stand in one file in their order, articles apart",
)


def synthetic(sizes: dict[int, int]) -> list[Table]:
    table = Table(
        "Synthetic folders, English and Chinese",
        *("memories", "folders", "facts", "lost", "copies", "merged", "lookalikes", "wrongly merged"),
        *("changed", "resolved", "left", "wrong", "undecidable", "both kept", "second dream changes"),
    )
    care = Table(
        "The same folders: dates, archive, index, time",
        *("memories", "relative dates", "made absolute", "wrong day", "long past", "archived"),
        *("dead lines", "lines missing", "lines over 150", "over limit", "CPU ms p50", "CPU ms max"),
    )
    examples: list[str] = []
    for size, count in sizes.items():
        total, again, times = _dreamt(size, count)
        table.add(
            *(size, count, total.facts, total.lost, total.twins, total.joined),
            *(total.apart, total.wrongly_joined, total.changes, total.resolved, total.left),
            *(total.reversed, total.open, total.kept_open, again),
        )
        care.add(
            *(size, total.dates, total.dated, total.wrongly_dated, total.over, total.archived),
            *(total.dangling, _missing(total, size), total.long, total.over_limit),
            *(f"{median(times):.0f}", f"{max(times):.0f}"),
        )
        examples += total.examples
    table.notes += NOTES
    table.notes += [f"example: {one}" for one in examples[:EXAMPLES]]
    care.notes.append("of 500 memories not all have room in an index of 200 lines: the oldest go")
    return [table, care]


def _missing(total: Found, size: int) -> str:
    return f"{total.missing} (no room)" if total.missing and size > 250 else str(total.missing)


def _dreamt(size: int, count: int) -> tuple[Found, int, list[float]]:
    total, again = Found(), 0
    times: list[float] = []
    for seed in range(count):
        with tempfile.TemporaryDirectory() as temporary:
            place = Path(temporary) / "memory"
            planted = folder(place, size, seed)
            began = time.process_time()
            consolidate_folder(place, NOW, {})
            times.append(1000 * (time.process_time() - began))
            total.add(measured(place, planted))
            again += len(consolidate_folder(place, NOW, {}).changed)
    return total, again, times


def real() -> list[Table]:
    table = Table(
        "Real folders, as they are",
        *("folder", "files", "sentences", "lost", "merged", "superseded", "dated", "archived"),
        *("lines over 150", "then", "over limit", "then", "second dream changes", "CPU ms"),
    )
    copies = Table(
        "Real folders with copies (a sentence more) and lookalikes (one number changed) planted",
        *("folder", "sentences", "lost", "copies", "merged", "lookalikes", "wrongly merged", "CPU ms"),
    )
    for one in real_folders():
        with tempfile.TemporaryDirectory() as temporary:
            table.add(one.name, *_as_it_is(one, Path(temporary)))
            if len(one.files) > 4:
                copies.add(one.name, *_with_copies(one, Path(temporary)))
    if not table.rows:
        table.notes.append("skipped: the shared memory files are not beside this checkout")
        return [table]
    table.notes.append(
        "nobody has said which of these memories are duplicates or out of date, so that it is not known "
        "whether there was something to merge. Lost would be sentences that no file has afterwards and "
        "that no new date accounts for, and statements that the loss report misses"
    )
    return [table, copies]


def _as_it_is(one: Real, temporary: Path) -> tuple[object, ...]:
    place = temporary / "memory"
    written(one, place)
    before, files = sentences_in(place), _files(place)
    long, over = _index(place)
    began = time.process_time()
    report = consolidate_folder(place, REAL_NOW, {})
    took = 1000 * (time.process_time() - began)
    then = _index(place)
    again = len(consolidate_folder(place, REAL_NOW, {}).changed)
    lost = _lost(before, place, report) + len(find_lost_facts(files, _files(place)))
    return (
        *(len(one.files), len(before), lost, len(report.merged), len(report.superseded)),
        *(len(report.dated), len(report.archived), long, then[0], over, then[1], again),
        f"{took:.0f}",
    )


def _with_copies(one: Real, temporary: Path) -> tuple[object, ...]:
    place = temporary / "copies"
    written(one, place)
    twins, apart = plant(place)
    before = sentences_in(place)
    began = time.process_time()
    report = consolidate_folder(place, REAL_NOW, {})
    took = 1000 * (time.process_time() - began)
    there = {path.relative_to(place).as_posix() for path in topics(place)}
    joined = sum(not {first, second} <= there for first, second in twins)
    wrong = sum(not {first, second} <= there for first, second in apart)
    lost = _lost(before, place, report)
    return len(before), lost, len(twins), joined, len(apart), wrong, f"{took:.0f}"


def _lost(before: set[str], place: Path, report: ConsolidationReport) -> int:
    after = "\n".join(plain(path.read_text("utf-8", "replace")) for path in topics(place))
    told = "\n".join(plain(one.before) for one in report.dated)
    return sum(line not in after and line not in told for line in before)


def _files(place: Path) -> dict[str, bytes]:
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in topics(place)}


def _index(place: Path) -> tuple[int, int]:
    path = place / "MEMORY.md"
    text = path.read_text("utf-8", "replace") if path.exists() else ""
    read = read_index(text)
    long = {one.line for one in read.pointers if len(read.lines[one.line - 1].rstrip()) > HOOK}
    return len(long), int(bool(list_exceeded_limits(text)))


def killed(dreams: int) -> Table:
    counts = campaign(dreams)
    table = Table(
        f"Dreams killed with SIGKILL while others write ({KILLED} of {KILLED + 1} are to be killed)",
        "what",
        "count",
    )
    table.add("dreams", counts.dreams)
    for phase in sorted(counts.killed):
        table.add(f"killed {phase}", counts.killed[phase])
    table.add("came to their end", counts.ended)
    table.add("failed by themselves", counts.failed)
    table.add("folders whose writer died by itself", counts.unattended)
    table.add("facts planted", counts.facts)
    table.add("facts written meanwhile", counts.written)
    table.add("facts lost", len(set(counts.lost)))
    table.add("index over its limits", counts.index)
    table.notes += [f"lost: {fact}" for fact in dict.fromkeys(counts.lost)][:EXAMPLES]
    table.notes.append(
        "the others take the folder's lock, or add files of their own by renaming; a program that "
        "overwrites a file without having read it anew can undo what was written in between, as it can "
        "to any other program"
    )
    return table


def run(quick: bool = False, kill: bool = False) -> list[Table]:
    if kill:
        return [killed(40 if quick else CAMPAIGN)]
    return [*synthetic(QUICK if quick else SIZES), *real(), measure_undo(), killed(12 if quick else 100)]


if __name__ == "__main__":
    only_kill = "--kill" in sys.argv
    sys.argv = [one for one in sys.argv if one != "--kill"]
    options = arguments(__doc__)
    show(run(options.quick, only_kill), as_json=options.json)
    sys.exit(0)
