"""What a summary loses that is written from a record in which tool texts are cut short, by rule.

All ways write as much as the recorded model did, and the user's words are then put in as layer 4 does it:

    recorded   the summary that the recorded model wrote, from the whole conversation
    whole      the offline engine on the whole conversation, as a fork sees it
    record     the offline engine on the record that `balanced` gives to the small model
    nothing    no summary at all: the least that any writer can leave
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

import msgspec

from benchmarks.fidelity.cases import SESSIONS, Case, cases
from benchmarks.fidelity.contenders import WHERE, budget, offline, offline_reply
from benchmarks.fidelity.needs import CALLS, KINDS, Needs, needs_of
from benchmarks.report import Table
from sevenfold.core.messages import Message, user
from sevenfold.core.tokens import REFERENCE_WINDOW, TEXT_RATE, count_bytes
from sevenfold.core.transcript import PlacedMessage, Transcript
from sevenfold.layers.l4_compaction import summary
from sevenfold.layers.shared.facts import format_record
from sevenfold.layers.shared.fidelity import (
    WEIGHTS,
    FoundShare,
    ItemFinder,
    extract_user_text,
    measure_fidelity,
)
from sevenfold.layers.shared.restore import CompactionCut, RestoredFiles, RestoredNames, Restorer
from sevenfold.replay.stand_ins import ReplayDisk
from sevenfold.settings.layers import CompactionSettings

MORE_SESSIONS: Final = SESSIONS.with_name("sessions_2")
SETTINGS: Final = CompactionSettings()
FELT: Final = 0.02
"""A difference in fidelity that counts as a loss."""
RECORDED, WHOLE, UNCUT, RECORD, NOTHING = "recorded", "whole", "record, uncut", "record", "nothing"
WAYS: Final = (RECORDED, WHOLE, UNCUT, RECORD)
AGAIN: Final = (RECORDED, WHOLE, RECORD, NOTHING)
"""The ways that are shown with what is restored, too."""
THERE: Final = "in the record at all"
SAID: Final = "said"
NOTES: Final = (
    "fidelity from 0 to 1 as the library measures it; the user's words are put in verbatim whatever wrote "
    "the summary, so they are never lost, and they make half of a score",
    "recorded: the recorded model, whole conversation; whole: our form by rule on the whole conversation; "
    f"record: the same on the record with {SETTINGS.record_characters:,} characters of each thing that a "
    "tool was given or answered; uncut: a record with all of them",
    "restored: followed by the names and the parts of files that `balanced` gives back, the same for all; "
    "nothing, restored: the same without a summary, so no writer can lose more",
)


class LeanResult(msgspec.Struct, frozen=True):
    """One recorded compaction: what can be found after each way of summing it up."""

    repository: str
    case: str
    kinds: dict[str, dict[str, FoundShare]]
    """By way, and by way with what is restored; then by kind."""
    needs: dict[str, dict[str, FoundShare]]
    """The same for what the agent needed in its next calls."""
    sizes: tuple[int, int]
    """Tokens of the whole record, and of the one that is cut."""

    def score(self, way: str, *, restored: bool = False, leaving_out: str = "") -> float:
        shares = self.kinds[with_restored(way) if restored else way]
        counted = {k: s for k, s in shares.items() if s.of and k != leaving_out}
        weight = sum(WEIGHTS[kind] for kind in counted)
        return sum(WEIGHTS[k] * s.part for k, s in counted.items()) / weight if weight else 1.0


def with_restored(way: str) -> str:
    return f"{way}, restored"


# --- the ways -------------------------------------------------------------------------------------------


def put_words_in(answer: summary.SummarySections, removed: Sequence[PlacedMessage]) -> str:
    """A written summary with the user's words, as it would stand in the view."""
    said = [text for placed in removed if (text := extract_user_text(placed))]
    return summary.format_summary(answer, said, summary.SummaryForm(WHERE, tail=False))


def write_recorded(case: Case) -> str:
    """All that the recorded model wrote, its analysis too, and the user's words."""
    return f"{case.summary}\n{put_words_in(summary.SummarySections(), case.removed)}"


def write_whole(case: Case) -> str:
    asked = summary.format_directive("Summarise all of the conversation above.")
    reply = offline(case, summary.KIND, asked, int(budget(case) * TEXT_RATE))
    return put_words_in(summary.parse_summary(reply), case.removed)


def write_from_record(case: Case, most: int) -> str:
    record = user(format_record(case.removed, most))
    asked = summary.format_directive(summary.ABOVE)
    reply = offline_reply((record,), summary.PLAIN, asked, room=int(budget(case) * TEXT_RATE))
    return put_words_in(summary.parse_summary(reply), case.removed)


_WRITE: Final[dict[str, Callable[[Case], str]]] = {
    RECORDED: write_recorded,
    WHOLE: write_whole,
    UNCUT: lambda case: write_from_record(case, 0),
    RECORD: lambda case: write_from_record(case, SETTINGS.record_characters),
    NOTHING: lambda case: put_words_in(summary.SummarySections(), case.removed),
}


def list_restored(removed: Sequence[PlacedMessage]) -> list[Message]:
    """The names and parts of files that `balanced` gives back, files as far as these messages show them."""
    log, disk = Transcript(lambda: 0.0), ReplayDisk()
    uses = {use.id: use for placed in removed for use in placed.message.tool_uses}
    for placed in removed:
        log.add(placed.message, by=placed.by)
        for result in placed.message.results:
            if result.tool_use_id in uses:
                disk.apply_call(uses[result.tool_use_id], result)
    files = RestoredFiles(
        disk.read, most=SETTINGS.files, each=SETTINGS.file_tokens, excerpts=SETTINGS.excerpts
    )
    cut = CompactionCut(log.view, range(len(log.view)), REFERENCE_WINDOW)
    room = REFERENCE_WINDOW // 2
    return Restorer((files, RestoredNames(SETTINGS.names)))(cut, room, room)


# --- measuring ------------------------------------------------------------------------------------------


def measure_lean(path: Path) -> list[LeanResult]:
    repository = path.parent.name.partition("+")[2] or "cli"
    return [measure_case(repository, case) for case in cases(path)]


def measure_case(repository: str, case: Case) -> LeanResult:
    restored = list_restored(case.removed)
    records = [format_record(case.removed, most) for most in (0, SETTINGS.record_characters)]
    texts: dict[str, list[Message | str]] = {THERE: [records[1]]}
    for way, write in _WRITE.items():
        text = write(case)
        texts |= {way: [text], with_restored(way): [text, *restored]}
    needs = needs_of(case.removed, case.after)
    whole, cut = (int(count_bytes(record) * TEXT_RATE) for record in records)
    return LeanResult(
        repository,
        case.name,
        {way: measure_fidelity(case.removed, there).kinds for way, there in texts.items()},
        {way: _find_needs(needs, there) for way, there in texts.items()},
        (whole, cut),
    )


def _find_needs(needs: Needs, texts: Iterable[Message | str]) -> dict[str, FoundShare]:
    there = ItemFinder(texts)
    found = {kind: look(there, needs) for kind, look in KINDS}
    return {kind: FoundShare(sum(parts.values()), len(parts)) for kind, parts in found.items()}


def list_lean_files() -> list[Path]:
    return [*sorted(SESSIONS.glob("*.jsonl*")), *sorted(MORE_SESSIONS.glob("*/*.jsonl*"))]


def make_lean_tables(results: Sequence[LeanResult]) -> list[Table]:
    if not results:
        return []
    kinds = _make_kind_table("The same by kind of fact: which share can still be found")
    needs = _make_kind_table(
        f"The same for what the agent needed in its next {CALLS} calls, tool output included"
    )
    for kind in WEIGHTS:
        _add_kind(kinds, kind, [one.kinds for one in results])
    _add_rest(kinds, results)
    for kind, _ in KINDS:
        _add_kind(needs, kind, [one.needs for one in results])
    kinds.notes.append(
        "what stands in tool output alone is not counted here; the next table counts what was needed of it"
    )
    return [_make_score_table(results), kinds, needs]


def _make_score_table(results: Sequence[LeanResult]) -> Table:
    table = Table(
        f"A summary from a short record against one from the whole: fidelity, {len(results)} compactions",
        "repository",
        "cases",
        "tokens whole",
        "tokens record",
        *WAYS,
        "record - whole",
        f"cases that lose > {FELT}",
        *map(with_restored, AGAIN),
        "record - whole, restored",
    )
    for name in dict.fromkeys(one.repository for one in results):
        _add_scores(table, name, [one for one in results if one.repository == name])
    _add_scores(table, "all", results)
    table.notes += NOTES
    return table


def _add_scores(table: Table, name: str, some: Sequence[LeanResult]) -> None:
    scores = {way: [one.score(way) for one in some] for way in WAYS}
    again = {way: [one.score(way, restored=True) for one in some] for way in AGAIN}
    lost = sum(a - b > FELT for a, b in zip(scores[WHOLE], scores[RECORD], strict=True))
    table.add(
        name,
        len(some),
        *(f"{fmean(one.sizes[at] for one in some):,.0f}" for at in (0, 1)),
        *(_mean(scores[way]) for way in WAYS),
        f"{fmean(scores[RECORD]) - fmean(scores[WHOLE]):+.3f}",
        lost,
        *(_mean(again[way]) for way in AGAIN),
        f"{fmean(again[RECORD]) - fmean(again[WHOLE]):+.3f}",
    )


def _make_kind_table(title: str) -> Table:
    return Table(
        title, "kind", "facts", THERE, *WAYS, "record - whole", "facts lost", *map(with_restored, AGAIN)
    )


def _add_kind(table: Table, kind: str, found: Iterable[dict[str, dict[str, FoundShare]]]) -> None:
    some = [shares for shares in found if shares[WHOLE][kind].of]
    if not some:
        return
    ways = (THERE, *WAYS, *map(with_restored, AGAIN))
    means = {way: fmean(shares[way][kind].part for shares in some) for way in ways}
    table.add(
        kind,
        sum(shares[WHOLE][kind].of for shares in some),
        *(f"{means[way]:.3f}" for way in (THERE, *WAYS)),
        f"{means[RECORD] - means[WHOLE]:+.3f}",
        f"{sum(shares[WHOLE][kind].found - shares[RECORD][kind].found for shares in some):.0f}",
        *(f"{means[with_restored(way)]:.3f}" for way in AGAIN),
    )


def _add_rest(table: Table, results: Iterable[LeanResult]) -> None:
    """The score without the user's words, which every way has."""
    some = list(results)
    means = {way: fmean(one.score(way, leaving_out=SAID) for one in some) for way in (THERE, *WAYS)}
    again = [fmean(one.score(way, restored=True, leaving_out=SAID) for one in some) for way in AGAIN]
    table.add(
        "all but what was said",
        "",
        *(f"{mean:.3f}" for mean in means.values()),
        f"{means[RECORD] - means[WHOLE]:+.3f}",
        "",
        *(f"{mean:.3f}" for mean in again),
    )


def _mean(scores: Iterable[float]) -> str:
    return f"{fmean(scores):.3f}"
