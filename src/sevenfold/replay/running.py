"""One recorded file under some policies: read it, drive it, and say what came of it or what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.cache.prices import Prices
from sevenfold.errors import SevenfoldError
from sevenfold.replay.driving import drive
from sevenfold.replay.figures import Figures, figures
from sevenfold.replay.policies import Policy
from sevenfold.replay.pricing import priced
from sevenfold.replay.reading.finding import Found, read
from sevenfold.replay.reading.messages import FORMAT as MESSAGES
from sevenfold.storage.recorded import Recorded
from sevenfold.storage.retold import to_transcript
from sevenfold.transcript import Entry, Problem, Reply

MOST_ERRORS: Final = 20
"""That are listed of one file; the rest is counted."""
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


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a file."""

    number: int
    path: str
    format: str = ""
    session: str = ""
    title: str = ""
    model: str = ""
    began: float = 0.0
    recorded: int = 0
    """Requests in the recording."""
    by_policy: dict[str, Figures] = {}
    errors: tuple[str, ...] = ()
    """What could not be read, known or believed: the figures are not the whole truth."""
    notes: tuple[str, ...] = ()
    """What files of this kind do not say."""
    passed_over: bool = False
    """Something else that lay in a folder."""


def run(job: Job) -> Replayed:
    """Replay one file. Whatever is wrong with it is in the answer, never raised."""
    path, began = job.found.path, perf_counter()
    try:
        recorded = read(job.found)
        if recorded is None:
            return Replayed(number=job.number, path=path, passed_over=True)
        transcript = to_transcript(recorded)
    except (SevenfoldError, OSError, *BROKEN) as error:
        return failed(job, _sentence(error, path))
    entries = transcript.entries
    errors = _problems(transcript.problems)
    notes, more = _silences(recorded, entries)
    return _driven(job, recorded, entries, (*errors, *more), notes, perf_counter() - began)


def failed(job: Job, why: str) -> Replayed:
    return Replayed(number=job.number, path=job.found.path, errors=(why,))


def _driven(
    job: Job,
    recorded: Recorded,
    entries: Sequence[Entry],
    errors: tuple[str, ...],
    notes: tuple[str, ...],
    parsing: float,
) -> Replayed:
    at = priced(entries, _prices(job.prices), job.price)
    done: dict[str, Figures] = {}
    answered = any(isinstance(entry.what, Reply) for entry in entries)
    for policy in job.policies if answered else ():
        try:
            outcome = drive(entries, policy, at.model, at.price, window=at.window, prices=at.prices)
        except (SevenfoldError, *BROKEN) as error:
            errors += (f"{policy.name}: {_sentence(error, job.found.path)}",)
            continue
        outcome = replace(outcome, spent=replace(outcome.spent, parsing=parsing))
        done[policy.name] = figures(outcome, at.price, priced=at.known, drawn=job.drawn)
    return Replayed(
        number=job.number,
        path=job.found.path,
        format=recorded.format,
        session=recorded.session,
        title=recorded.title,
        model=at.model,
        began=entries[0].at if entries else 0.0,
        recorded=sum(isinstance(entry.what, Reply) for entry in entries),
        by_policy=done,
        errors=(*errors, at.error) if at.error and answered else errors,
        notes=notes,
    )


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
    if not any(reply.usage.prompt for reply in replies):
        told = notes if recorded.format == MESSAGES else errors
        told.append("no usage is recorded: tokens are estimated, what was paid is not known")
    if not any(said.at for said in recorded.entries):
        notes.append("no times are recorded: no idle time is counted, and no cache expires")
    return tuple(notes), tuple(errors)


def _problems(problems: Sequence[Problem]) -> tuple[str, ...]:
    said = [f"line {problem.line}: {problem.why}" for problem in problems[:MOST_ERRORS]]
    if len(problems) > MOST_ERRORS:
        said.append(f"and {len(problems) - MOST_ERRORS:,} more lines that cannot be read")
    return tuple(said)


def _sentence(error: BaseException, path: str) -> str:
    said = " ".join(str(error).split()) or type(error).__name__
    return said.removeprefix(f"{path}: ")
