"""What a lean extraction misses against a fork, for a small real model.

python -m benchmarks.extraction.local --weights FILE.gguf [--most N] [--json]

A model of this size writes no memory of its own, so it is not asked for one: it is asked how likely the
gold memories are as its answer (`answer_scores`), behind the fork, behind the lean request, and behind a
lean request in which nothing was said.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

import msgspec

from benchmarks.answer_scores import AnswerScorer, draw_interval, open_scorer, run_measure
from benchmarks.extraction.coding import read_log
from benchmarks.extraction.learning import STEPS, Day, make_first_request, make_frame, make_log
from benchmarks.extraction.personas import Session, names, sessions
from benchmarks.policy.samples import session_files
from benchmarks.report import Table
from sevenfold.core.request import Request
from sevenfold.core.transcript import PlacedMessage, Reply, Transcript
from sevenfold.layers.l4_compaction.plan import split_rounds
from sevenfold.layers.l5_durable_memory.extraction import format_extraction_request
from sevenfold.layers.l5_durable_memory.prompt import format_memory_prompt
from sevenfold.layers.shared.boundary import sum_sizes
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.store import MemoryStore

FORK: Final = "fork"
LEAN: Final = "lean"
BLIND: Final = "nothing said"
WAYS: Final = (FORK, LEAN, BLIND)
TALK: Final = "as recorded"
WORK: Final = "in the midst of work"
WINDOW: Final = 8_192
LONGEST_ANSWER: Final = 200
WORK_TOKENS: Final = 1_800
MEMORIES: Final = 3
"""Of a session, and as many of another session of the persona."""
SESSIONS: Final = 16


class Scored(msgspec.Struct, frozen=True):
    """A memory, and how many nats a token it takes behind each request: fewer is better told."""

    kind: str
    session: int
    is_gold: bool
    nats: dict[str, float]

    def gain(self, way: str) -> float:
        """The nats a token that the conversation spares."""
        return self.nats[BLIND] - self.nats[way]


class Prompts:
    """What extraction would send for a conversation, each way."""

    def __init__(self, folder: Path) -> None:
        self._store = MemoryStore(FolderBackend(folder / "memory", folder / "state"), Day())
        self._frame = make_frame("local", format_memory_prompt(self._store.path_of(), folder))

    def make(self, log: Transcript, session: Session) -> dict[str, Request]:
        nothing = make_log(msgspec.structs.replace(session, turns=()))
        logs = {FORK: log, LEAN: log, BLIND: nothing}
        at = log.entries[-1].at
        body = format_extraction_request([], self._store.path_of(), session.name, at, 0, STEPS)
        return {way: make_first_request(self._frame, logs[way], body, lean=way != FORK) for way in WAYS}


def put_into_work(session: Session, work: Sequence[PlacedMessage]) -> Transcript:
    """The conversation between two halves of recorded work with tools."""
    talk = make_log(session)
    at = talk.entries[-1].at
    log, rounds = Transcript(lambda: at), split_rounds(work)
    half = len(rounds) // 2
    before, after = ([one for part in some for one in part] for some in (rounds[:half], rounds[half:]))
    for one in (*before, *talk.view, *after):
        log.add(one.message if one.by != "model" else Reply(one.message), by=one.by)
    return log


def list_work(files: Sequence[Path]) -> list[list[PlacedMessage]]:
    """The beginning of each recorded session that has this much of it: whole rounds, with tools."""
    found = []
    for path in files:
        part: list[PlacedMessage] = []
        for one in split_rounds(list(read_log(path).view)):
            if sum_sizes([*part, *one]).tokens() > WORK_TOKENS:
                break
            part += one
        if sum(bool(one.message.results) for one in part) > 2:
            found.append(part)
    return found


def choose_sessions(most: int) -> Iterator[tuple[Session, Session]]:
    """Sessions of every persona with gold memories of the user's own words, each with another one."""
    per_persona = -(-most // max(1, len(names())))
    for name in names():
        fit = [one for one in sessions(name) if len(list_gold(one)) >= MEMORIES]
        step = max(1, len(fit) // per_persona)
        for at in range(0, per_persona * step, step):
            if at < len(fit):
                yield fit[at], fit[(at + len(fit) // 2) % len(fit)]


def list_gold(session: Session) -> list[str]:
    """Only ASCII: llama.cpp tells no probability of a token that is a part of a character."""
    return [one.text for one in session.gold if one.by_user and one.text.isascii()][:MEMORIES]


async def measure(weights: Path, most: int) -> list[Scored]:
    work, found = list_work(session_files()), list[Scored]()
    with tempfile.TemporaryDirectory() as folder:
        prompts = Prompts(Path(folder))
        async with open_scorer(weights, WINDOW) as scorer:
            for at, (session, other) in enumerate(choose_sessions(most)):
                logs = {TALK: make_log(session)}
                if work:
                    logs[WORK] = put_into_work(session, work[at % len(work)])
                for kind, log in logs.items():
                    requests = prompts.make(log, session)
                    asked = {way: await scorer.read_prompt(one) for way, one in requests.items()}
                    if max(map(len, asked.values())) <= WINDOW - LONGEST_ANSWER:
                        found += await score_session(scorer, (kind, at), asked, session, other)
                        print(f"{session.name}, {kind}: {len(found)} memories scored", file=sys.stderr)
    return found


async def score_session(
    scorer: AnswerScorer,
    where: tuple[str, int],
    prompts: dict[str, list[int]],
    session: Session,
    other: Session,
) -> list[Scored]:
    asked = [(text, True) for text in list_gold(session)] + [(text, False) for text in list_gold(other)]
    answers = [(await scorer.read_tokens(text))[:LONGEST_ANSWER] for text, _ in asked]
    nats: list[dict[str, float]] = [{} for _ in asked]
    for way, prompt in prompts.items():
        for answer, told in zip(answers, nats, strict=True):
            told[way] = fmean(await scorer.score(prompt, answer))
    return [Scored(*where, is_gold, told) for (_, is_gold), told in zip(asked, nats, strict=True)]


def tell_apart(scored: Sequence[Scored], way: str) -> float:
    """Of pairs of a gold memory and one of another session, how often the gold one gains more."""
    by_session: dict[int, tuple[list[float], list[float]]] = {}
    for one in scored:
        by_session.setdefault(one.session, ([], []))[not one.is_gold].append(one.gain(way))
    wins = [gold > other for golds, others in by_session.values() for gold in golds for other in others]
    return fmean(wins)


def make_table(scored: Sequence[Scored], weights: Path) -> Table:
    table = Table(
        f"{weights.name}: gold memories of the user's words as the answer",
        *("conversation", "sessions", "memories", "nats a token, nothing said", "fork", "lean"),
        *("lean - fork", "90 % of draws", "told apart by fork %", "by lean %"),
    )
    for kind in (TALK, WORK):
        some = [one for one in scored if one.kind == kind]
        gold = [one for one in some if one.is_gold]
        if not gold:
            continue
        low, high = draw_interval((one.session, one.gain(LEAN) - one.gain(FORK)) for one in gold)
        means = {way: fmean(one.nats[way] for one in gold) for way in WAYS}
        table.add(
            kind,
            len({one.session for one in gold}),
            len(gold),
            *(f"{means[way]:.3f}" for way in (BLIND, FORK, LEAN)),
            f"{means[FORK] - means[LEAN]:+.3f}",
            f"{low:+.3f} to {high:+.3f}",
            *(f"{100 * tell_apart(some, way):.1f}" for way in (FORK, LEAN)),
        )
    table.notes += [
        "nats a token: what the model lacks of a memory that it is made to write; fewer is better",
        "lean - fork: what a token of the memory gains (+) or loses (-) by the lean request",
        "told apart: of a gold memory and one of another session of the same persona, the gold one gains "
        "more from the conversation",
        "sessions: those whose requests fit the model's window, either way",
    ]
    return table


if __name__ == "__main__":
    run_measure(__doc__, SESSIONS, measure, make_table)
