"""What a summary by rule or from a record loses against the main model's, as a small real model judges it.

python -m benchmarks.fidelity.judged --weights FILE.gguf [--most N] [--json]

At a recorded compaction the model is shown one summary, and is asked how likely what the agent really said
and did next is as its answer (`answer_scores`). What a summary leaves out makes that less likely.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

import msgspec

from benchmarks.answer_scores import AnswerScorer, draw_interval, open_scorer, run_measure
from benchmarks.fidelity.cases import Case, cases
from benchmarks.fidelity.contenders import budget, offline, offline_reply, within
from benchmarks.fidelity.lean import NOTHING, RECORD, RECORDED, SETTINGS, WHOLE, list_lean_files
from benchmarks.report import Table
from sevenfold.core.messages import Text, user
from sevenfold.core.request import Frame, Request
from sevenfold.core.tokens import TEXT_RATE
from sevenfold.core.transcript import Reply, Transcript
from sevenfold.layers.l4_compaction import summary
from sevenfold.layers.shared.facts import format_record
from sevenfold.layers.shared.fidelity import extract_user_text, iterate_strings

WINDOW: Final = 8_192
LONGEST: Final = 6_500  # Tokens of a prompt
LONGEST_ANSWER: Final = 120
ANSWERS: Final = 4  # Things that the agent said or did next, and as many of another session
LEAST: Final = 40  # Characters of one
CASES: Final = 24
SYSTEM: Final = "You are a coding agent. You work in the user's repository with tools."
ABOVE: Final = "This session goes on from an earlier conversation. What it was about:"
GO_ON: Final = "Go on from there."


def write_in_words(case: Case) -> str:
    """Our form by rule on the whole conversation, without the user's words that are put in."""
    asked = summary.format_directive("Summarise all of the conversation above.")
    return within(offline(case, summary.KIND, asked, int(budget(case) * TEXT_RATE)), budget(case))


def write_record_in_words(case: Case) -> str:
    record = user(format_record(case.removed, SETTINGS.record_characters))
    asked = summary.format_directive(summary.ABOVE)
    reply = offline_reply((record,), summary.PLAIN, asked, room=int(budget(case) * TEXT_RATE))
    return within(reply, budget(case))


WRITERS: Final[dict[str, Callable[[Case], str]]] = {
    RECORDED: lambda case: case.summary,
    WHOLE: write_in_words,
    RECORD: write_record_in_words,
    NOTHING: lambda case: "",
}


class Judged(msgspec.Struct, frozen=True):
    """Something that an agent said or did, and the nats a token that it takes behind each summary."""

    case: str
    is_next: bool  # False: it is of another session
    nats: dict[str, float]

    def gain(self, way: str) -> float:
        """The nats a token that the summary spares."""
        return self.nats[NOTHING] - self.nats[way]


def list_next(case: Case) -> list[str]:
    """What the agent said and did after the compaction, until the user spoke again."""
    found: list[str] = []
    for entry in case.after:
        if entry.by == "user" and found:
            break
        if isinstance(entry.what, Reply):
            message = entry.what.message
            said = [block.text for block in message.content if isinstance(block, Text)]
            done = (" ".join(iterate_strings(use.input)) for use in message.tool_uses)
            found += [text for text in (*said, *done) if len(text) >= LEAST and text.isascii()]
    return found[:ANSWERS]


def make_request(text: str, question: str) -> Request:
    log = Transcript(lambda: 0.0)
    log.add(user(f"{ABOVE}\n\n{text}\n\n{question}" if text else question), by="user")
    return Request(Frame("local", (SYSTEM,)), log.view)


def find_question(case: Case) -> str:
    """What the user said last before the compaction: it stands in the view whatever the summary says."""
    said = (text for placed in reversed(case.removed) if (text := extract_user_text(placed)))
    return next(said, "")[-1_500:] or GO_ON


def choose_cases(most: int) -> Iterator[Case]:
    """The first compaction of each recording that has one, and things said behind it."""
    found = 0
    for path in list_lean_files():
        case = next((one for one in cases(path) if len(list_next(one)) == ANSWERS), None)
        if case is not None and found < most:
            found += 1
            yield case


async def measure(weights: Path, most: int) -> list[Judged]:
    chosen, found = list(choose_cases(most)), list[Judged]()
    async with open_scorer(weights, WINDOW) as scorer:
        for at, case in enumerate(chosen):
            other = chosen[(at + len(chosen) // 2) % len(chosen)]
            question = find_question(case)
            asked = {
                way: await scorer.read_prompt(make_request(write(case), question))
                for way, write in WRITERS.items()
            }
            if max(map(len, asked.values())) <= LONGEST:
                found += await _judge(scorer, case, other, asked)
                print(f"{case.name}: {len(found)} answers judged", file=sys.stderr)
    return found


async def _judge(
    scorer: AnswerScorer, case: Case, other: Case, asked: dict[str, list[int]]
) -> list[Judged]:
    texts = [(text, True) for text in list_next(case)] + [(text, False) for text in list_next(other)]
    answers = [(await scorer.read_tokens(text))[:LONGEST_ANSWER] for text, _ in texts]
    nats: list[dict[str, float]] = [{} for _ in texts]
    for way, prompt in asked.items():
        for answer, told in zip(answers, nats, strict=True):
            told[way] = fmean(await scorer.score(prompt, answer))
    return [Judged(case.name, is_next, told) for (_, is_next), told in zip(texts, nats, strict=True)]


def make_table(judged: Sequence[Judged], weights: Path) -> Table:
    own = [one for one in judged if one.is_next]
    others = [one for one in judged if not one.is_next]
    table = Table(
        f"{weights.name}: what the agent said and did next as the answer, "
        f"{len({one.case for one in own})} compactions, {len(own)} answers",
        *("summary", "nats a token", "spared", "spared of another session's", "against recorded"),
        "90 % of draws",
    )
    for way in WRITERS:
        low, high = draw_interval((one.case, one.gain(way) - one.gain(RECORDED)) for one in own)
        table.add(
            way,
            f"{fmean(one.nats[way] for one in own):.3f}",
            f"{fmean(one.gain(way) for one in own):+.3f}",
            f"{fmean(one.gain(way) for one in others):+.3f}",
            f"{fmean(one.gain(way) - one.gain(RECORDED) for one in own):+.3f}",
            f"{low:+.3f} to {high:+.3f}",
        )
    table.notes += [
        "nats a token: what the model lacks of what the agent said and did next; fewer is better",
        "spared: against no summary; of another session's: what any text about code would spare",
        "recorded: the main model's; whole and record: ours by rule, of the whole conversation and of the "
        "record that the small model gets; all without the user's words that are put in, and what the "
        "user said last behind them",
    ]
    return table


if __name__ == "__main__":
    run_measure(__doc__, CASES, measure, make_table)
