"""One recorded file under some policies: read it, drive it, and say what came of it or what is wrong."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from time import monotonic, perf_counter
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from sevenfold.cache.prices import Prices
from sevenfold.errors import SevenfoldError
from sevenfold.replay.attending import UNKNOWN, learns, talked, unknown
from sevenfold.replay.driving import drive
from sevenfold.replay.figures import Figures, Left, costs, figures
from sevenfold.replay.policies import Policy
from sevenfold.replay.pricing import Priced, priced
from sevenfold.replay.reading.agents import sessions_in
from sevenfold.replay.reading.finding import Found, read
from sevenfold.replay.reading.messages import FORMAT as MESSAGES
from sevenfold.replay.reading.steadying import ALWAYS
from sevenfold.storage.recorded import Recorded
from sevenfold.storage.retold import to_transcript
from sevenfold.transcript import Entry, Problem, Reply

MOST_ERRORS: Final = 20
"""That are listed of one file; the rest is counted."""
TELL_EVERY: Final = 0.2
"""Seconds between two words on how far a file is."""
BROKEN: Final = (ValueError, LookupError, ArithmeticError, RecursionError, MemoryError)
"""What a file that nobody has thought of may lead to: it ends this session, and the others go on."""


class Job(msgspec.Struct, frozen=True):
    """A file, and what to do with it. It goes to another process as it is."""

    number: int
    found: Found
    policies: tuple[Policy, ...]
    price: str | None = None
    """Count with the price of this model, whatever the file says."""
    prices: Path | None = None
    """The user's own price table."""
    drawn: bool = False
    """Whether each request is wanted, for a drawing."""
    scratch: Path | None = None
    """A folder for what layers write; whoever made it takes it away."""


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a file."""

    number: int
    path: str
    format: str = ""
    session: str = ""
    agent: str = ""
    """Of the sub-agent whose conversation it is; `session` is then the one that it worked for."""
    title: str = ""
    model: str = ""
    began: float = 0.0
    recorded: int = 0
    """Requests in the recording."""
    by_policy: dict[str, Figures] = {}
    left: Left = Left()
    """What is not replayed, since the user went back behind it."""
    errors: tuple[str, ...] = ()
    """What could not be read, known or believed: the figures are not the whole truth."""
    notes: tuple[str, ...] = ()
    """What files of this kind do not say."""
    passed_over: bool = False
    """Something else that lay in a folder."""
    agents: tuple[Replayed, ...] = ()
    """The sub-agents whose conversations are in the same file."""

    @property
    def called(self) -> str:
        """What it is called where many stand below each other."""
        name = Path(self.path).name
        for end in (".gz", ".jsonl", ".json", ".ndjson"):
            name = name.removesuffix(end)
        return f"{self.agent[:8]} of {(self.session or name)[:8]}" if self.agent else name


class Underway(msgspec.Struct, frozen=True):
    """How far a file is."""

    number: int
    share: float
    requests: int


Tell: TypeAlias = Callable[[Underway], None]


def nobody(so_far: Underway) -> None:
    """Nobody wants to know."""


def run(job: Job, tell: Tell = nobody) -> Replayed:
    """Replay one file. Whatever is wrong with it is in the answer, never raised."""
    path, began = job.found.path, perf_counter()
    try:
        recorded = read(job.found)
    except (SevenfoldError, OSError, *BROKEN) as error:
        return failed(job, _sentence(error, path))
    if recorded is None:
        return Replayed(number=job.number, path=path, passed_over=True)
    done: list[Replayed] = []
    for one in sessions_in(recorded):
        done.append(_session(job, one, began, tell if not done else nobody))
        began = perf_counter()
    return replace(done[0], agents=tuple(done[1:]))


def _session(job: Job, recorded: Recorded, began: float, tell: Tell) -> Replayed:
    """One conversation of a file; its reading began then."""
    try:
        transcript = to_transcript(recorded)
    except (SevenfoldError, *BROKEN) as error:
        why = _sentence(error, job.found.path)
        return replace(failed(job, why), session=recorded.session, agent=recorded.agent)
    entries = transcript.entries
    errors = _problems(transcript.problems)
    notes, more = _silences(recorded, entries)
    took = perf_counter() - began
    return _driven(job, recorded, entries, (*errors, *more), notes, took, tell)


def failed(job: Job, why: str) -> Replayed:
    return Replayed(number=job.number, path=job.found.path, errors=(why,))


def _driven(
    job: Job,
    recorded: Recorded,
    entries: Sequence[Entry],
    errors: tuple[str, ...],
    notes: tuple[str, ...],
    parsing: float,
    tell: Tell,
) -> Replayed:
    at = priced(entries, _prices(job.prices), job.price)
    done: dict[str, Figures] = {}
    answered = any(isinstance(entry.what, Reply) for entry in entries)
    unnamed = recorded.format == MESSAGES and not at.model  # such files mostly name none
    if answered and unknown(recorded, job.policies):
        notes += (UNKNOWN,)
    for n, policy in enumerate(job.policies if answered else ()):
        told = _telling(job, entries, n, tell)
        try:
            under = learns(policy, talked(recorded))
            done[policy.name] = _under(under, job, entries, at, parsing, told)
        except (SevenfoldError, *BROKEN) as error:
            errors += (f"{policy.name}: {_sentence(error, job.found.path)}",)
        gc.collect()  # what drove it refers to itself in circles, and holds the texts of a view
    return Replayed(
        number=job.number,
        path=job.found.path,
        format=recorded.format,
        session=recorded.session,
        agent=recorded.agent,
        title=recorded.title,
        model=at.model,
        began=entries[0].at if entries else 0.0,
        recorded=sum(isinstance(entry.what, Reply) for entry in entries),
        by_policy=done,
        left=_left(recorded, at),
        errors=(*errors, at.error) if at.error and answered and not unnamed else errors,
        notes=(*notes, at.error) if at.error and answered and unnamed else notes,
    )


def _under(
    policy: Policy,
    job: Job,
    entries: Sequence[Entry],
    at: Priced,
    parsing: float,
    told: Callable[[int], None],
) -> Figures:
    """What came of it under one policy."""
    outcome = drive(
        entries,
        policy,
        at.model,
        at.price,
        window=at.window,
        prices=at.prices,
        scratch=job.scratch,
        told=told,
    )
    outcome = replace(outcome, spent=replace(outcome.spent, parsing=parsing))
    return figures(
        outcome,
        at.price,
        priced=at.known,
        drawn=job.drawn,
        others=at.others,
        paid_at=job.price or "",
    )


def _telling(job: Job, entries: Sequence[Entry], before: int, tell: Tell) -> Callable[[int], None]:
    """Tells how far the file is, now and then; `before`: so many policies are done."""
    last = monotonic()
    replies = list(accumulate((isinstance(e.what, Reply) for e in entries), initial=0))

    def told(done: int) -> None:
        nonlocal last
        if (now := monotonic()) - last >= TELL_EVERY:
            last = now
            share = (before + done / len(entries)) / len(job.policies)
            tell(Underway(job.number, share, before * replies[-1] + replies[done]))

    return told


def _left(recorded: Recorded, at: Priced) -> Left:
    """What was asked on branches that were left, and what is known of its price."""
    left = recorded.abandoned
    used = [(r.model, replace(r.usage, output=0)) for r in left if r.usage.prompt]
    if not used:
        return Left(len(left))
    return Left(len(left), costs(used, at.price, priced=at.known, others=at.others))


@cache
def _prices(override: Path | None) -> Prices:
    return Prices.load(override)


def _silences(
    recorded: Recorded, entries: Sequence[Entry]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the file does not say: (as such files do not, although such files do)."""
    replies = [entry.what for entry in entries if isinstance(entry.what, Reply)]
    notes, errors = list[str](), list[str]()
    if not replies:
        errors.append("no model answered in it: there is nothing to replay")
        return (), tuple(errors)
    used = sum(bool(reply.usage.prompt) for reply in replies)
    told = notes if recorded.format == MESSAGES else errors
    if not used:
        told.append("no usage is recorded: tokens are estimated, what was paid is not known")
    elif used < len(replies):
        told.append(
            f"usage is recorded for {used:,} of {len(replies):,} requests: what was paid is known for "
            "those, and only they are compared with it"
        )
    if not any(said.at for said in recorded.entries):
        told = errors if recorded.format in ALWAYS else notes
        told.append(
            "no times are recorded that can be read: no idle time is counted, and no cache expires"
        )
    return tuple(notes), tuple(errors)


def _problems(problems: Sequence[Problem]) -> tuple[str, ...]:
    said = [f"line {problem.line}: {problem.why}" for problem in problems[:MOST_ERRORS]]
    if len(problems) > MOST_ERRORS:
        said.append(f"and {len(problems) - MOST_ERRORS:,} more lines that cannot be read")
    return tuple(said)


def _sentence(error: BaseException, path: str) -> str:
    said = " ".join(str(error).split()) or type(error).__name__
    return said.removeprefix(f"{path}: ")
