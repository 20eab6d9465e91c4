"""What a model loses when it sums up a short record instead of the whole conversation.

Both ways are asked for by the summariser of layer 4, with its directive and its nudge: once by a fork on
the conversation, once by a plain request with the record. What the model writes is kept, whole or not.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Final

import anyio
import msgspec
from msgspec.structs import replace

from benchmarks.extraction.run import find_access
from benchmarks.fidelity.cases import Case, cases
from benchmarks.fidelity.lean import (
    RECORD,
    RECORDED,
    SETTINGS,
    WHOLE,
    put_words_in,
    write_recorded,
    write_whole,
)
from benchmarks.report import Table
from sevenfold.core.errors import ModelFailure
from sevenfold.core.messages import Block
from sevenfold.core.protocols import Model
from sevenfold.core.request import Frame, Request
from sevenfold.core.transcript import PlacedMessage, Reply, Transcript
from sevenfold.layers.l4_compaction import summary
from sevenfold.layers.l4_compaction.plan import split_rounds
from sevenfold.layers.l7_agents.forks import ForkRunner
from sevenfold.layers.parts import PlainConversation
from sevenfold.layers.shared.boundary import TITLES, sum_sizes
from sevenfold.layers.shared.facts import format_record
from sevenfold.layers.shared.fidelity import WEIGHTS, FoundShare, extract_user_text, measure_fidelity
from sevenfold.models import connect_model
from sevenfold.testing.doubles import FakeClock, NoAccounts

CASES: Final = 4
PART: Final = 0.4
"""The most of the model's window that a part may take; the least is half of that."""
SHORTER: Final = 0.75
"""The record of a part has at most this share of its characters: else there is nothing to compare."""
FACTS: Final = 3
"""A part has at least so many facts that the user has not said: those need no summary."""
ANSWER: Final = 900
SECONDS: Final = 120.0
SYSTEM: Final = "You are a coding agent. You work in the user's repository with tools."
HEADINGS: Final = len(TITLES) - 1
"""The user's words are put in by the program, whatever the model writes there."""
BY_RULE: Final = "by rule"


class ModelResult(msgspec.Struct, frozen=True):
    """One way of summing up one part."""

    case: str
    way: str
    characters: int = 0  # Of the record that was sent, or of one of the whole part
    written: int = 0  # Characters that the model wrote in its best reply
    seconds: float = 0.0
    headings: int = HEADINGS
    score: float = 0.0
    own: float = 0.0  # The score of the model's own words, without those of the user that are put in
    kinds: dict[str, FoundShare] = {}  # Of the model's own words
    why: str = ""  # Why layer 4 would not have used it


@dataclass
class KeptModel:
    """A model, and all that it has written, also where nobody waited for the end."""

    model: Model
    texts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name, self.capabilities = self.model.name, self.model.capabilities

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        self.texts.append("")
        async for piece in self.model.stream(request):
            if isinstance(piece, str):
                self.texts[-1] += piece
            yield piece


_check: type[Model] = KeptModel


# --- parts ----------------------------------------------------------------------------------------------


def find_parts(files: Sequence[Path], most: int, tokens: int) -> list[Case]:
    """Parts of recorded stretches that fit the window, one a file: from a message of the user on."""
    found: list[Case] = []
    for path in files:
        parts = (part for case in cases(path) for part in _list_parts(case, tokens))
        if (part := next(parts, None)) is not None:
            found.append(part)
        if len(found) == most:
            break
    return found


def _list_parts(case: Case, tokens: int) -> Iterator[Case]:
    for at, placed in enumerate(case.removed):
        if not extract_user_text(placed):
            continue
        part: list[PlacedMessage] = []
        for one in split_rounds(case.removed[at:]):
            if sum_sizes([*part, *one]).tokens() > tokens:
                break
            part += one
        whole, short = (_measure_record(part, most) for most in (0, SETTINGS.record_characters))
        long_enough = sum_sizes(part).tokens() >= tokens / 2
        if long_enough and short <= SHORTER * whole and _count_unsaid(part) >= FACTS:
            yield replace(case, removed=tuple(part))


def _count_unsaid(part: Sequence[PlacedMessage]) -> int:
    said = measure_fidelity(part, [extract_user_text(placed) for placed in part])
    return sum(share.of - int(share.found) for share in said.kinds.values())


def _measure_record(part: Sequence[PlacedMessage], most: int) -> int:
    return len(format_record(part, most))


# --- asking ---------------------------------------------------------------------------------------------


def measure_model(name: str, files: Sequence[Path], most: int, seconds: float) -> list[ModelResult]:
    return anyio.run(partial(_measure, name, files, most, seconds))


async def _measure(name: str, files: Sequence[Path], most: int, seconds: float) -> list[ModelResult]:
    model = connect_model(name, find_access())
    results: list[ModelResult] = []
    try:
        for case in find_parts(files, most, int(model.capabilities.window * PART)):
            results += [await _ask(model, case, way, seconds) for way in (WHOLE, RECORD)]
            results += [
                _judge(case, RECORDED, write_recorded(case)),
                _judge(case, BY_RULE, write_whole(case)),
            ]
    finally:
        if (close := getattr(model, "close", None)) is not None:
            await close()
    return results


async def _ask(model: Model, case: Case, way: str, seconds: float) -> ModelResult:
    log, kept = Transcript(lambda: 0.0), KeptModel(model)
    for placed in case.removed:
        log.add(placed.message, by=placed.by)
    most = SETTINGS.record_characters if way == RECORD else 0
    job = summary.SummaryJob(
        Request(Frame(model.name, (SYSTEM,), ()), log.view),
        log.view if way == WHOLE else None,
        "Summarise all of the conversation above.",
        case.removed,
        "",
        ANSWER,
        most=most,
    )
    fork = ForkRunner(PlainConversation(kept), NoAccounts(), FakeClock(), lambda event: None)
    began, why = perf_counter(), f"not done within {seconds:g} s"
    with anyio.move_on_after(seconds):
        try:
            await summary.Summariser(fork, SETTINGS, lambda event: None)(job)
            why = ""
        except (summary.NoSummary, ModelFailure) as error:
            why = str(error)
    took, answer, text = perf_counter() - began, *_choose_best(kept.texts)
    judged = _judge(case, way, f"{put_words_in(answer, case.removed)}\n{text}", text)
    return replace(
        judged,
        characters=_measure_record(case.removed, most),
        written=len(text),
        seconds=took,
        headings=HEADINGS - len(answer.missing),
        why=why,
    )


def _choose_best(texts: Sequence[str]) -> tuple[summary.SummarySections, str]:
    """The reply with the most headings; they are looked for without the tags, too."""
    tried = [(summary.parse_summary(form.format(t)), t) for t in texts for form in ("{}", "<summary>{}")]
    lacks = [len(answer.missing) for answer, _ in tried]
    return tried[lacks.index(min(lacks))] if tried else (summary.SummarySections(), "")


def _judge(case: Case, way: str, text: str, own: str | None = None) -> ModelResult:
    """`text`: as it would stand in the view; `own`: what the model wrote of it."""
    alone = measure_fidelity(case.removed, [text if own is None else own])
    score = measure_fidelity(case.removed, [text]).score
    return ModelResult(case.name, way, score=score, own=alone.score, kinds=alone.kinds)


# --- showing --------------------------------------------------------------------------------------------


def make_model_table(model: str, results: Sequence[ModelResult]) -> Table:
    table = Table(
        f"The same with {Path(model).name}: {len({r.case for r in results})} parts of recorded sessions",
        "part",
        "way",
        "characters sent",
        "written",
        "s",
        f"headings of {HEADINGS}",
        "whole summary",
        "fidelity",
        "own words alone",
        *(f"{kind} found" for kind in WEIGHTS),
    )
    for one in results:
        asked = one.way in (WHOLE, RECORD)
        table.add(
            one.case,
            one.way,
            *((one.characters, one.written, f"{one.seconds:.0f}") if asked else ("", "", "")),
            *((one.headings, "no" if one.why else "yes") if asked else ("", "")),
            f"{one.score:.3f}",
            f"{one.own:.3f}",
            *(f"{one.kinds[kind].found:.1f} of {one.kinds[kind].of}" for kind in WEIGHTS),
        )
    for way in (WHOLE, RECORD):
        some = [one for one in results if one.way == way]
        done, headings = sum(not one.why for one in some), fmean(one.headings for one in some)
        reasons = sorted({one.why for one in some if one.why})
        table.notes.append(
            f"{way}: {done} of {len(some)} gave a whole summary, {headings:.1f} of {HEADINGS} headings; "
            f"fidelity {fmean(one.score for one in some):.3f}, of the model's own words "
            f"{fmean(one.own for one in some):.3f}; why not: {'; '.join(reasons) or '-'}"
        )
    table.notes += [
        "fidelity: with the user's words put in; own words alone, and the kinds: of what the model wrote",
        "recorded: the recorded model's summary of the whole stretch, of which this is a part; by rule: "
        "our form on the whole part; both with the user's words",
    ]
    return table
