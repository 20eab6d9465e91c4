"""Times that cannot be: clocks that went back, years that no session is from.

A replay takes idle time from the file, so one wrong time would be a silence of years. A time that cannot
be counts as the one before it, and the file is said to have had such times.
"""

from __future__ import annotations

from statistics import median
from typing import Final

from msgspec.structs import replace

from sevenfold.replay.reading.parsing import unreadable
from sevenfold.storage.recorded import Recorded, Said
from sevenfold.transcript import Problem

FIRST, LAST = 1_420_070_400.0, 4_102_444_800.0
"""The years 2015 to 2100: no session is older, and none can be younger."""
FARTHEST: Final = 400 * 86_400.0
"""A time so far from the middle of its session is a mistake."""
ALWAYS: Final = frozenset({"claude-code"})
"""Formats that date everything; readers of others say themselves which times they could not read."""
JITTER: Final = 3_600.0
"""What is typed while the model works is dated when it was typed: so much earlier is no mistake."""


def steadied(recorded: Recorded) -> Recorded:
    """The session with times that only go forward; what had to be changed is among its problems."""
    known = [said.at for said in recorded.entries if FIRST <= said.at <= LAST]
    if not known:
        return _without_times(recorded)
    middle = median(known)
    good = [at for at in known if abs(at - middle) <= FARTHEST]
    first = next(at for at in known if at in set(good))
    wrong, back, unread = list[int](), list[int](), list[int]()
    told, entries = {problem.line for problem in recorded.problems}, list[Said]()
    before: dict[str, float] = {}
    """The time of each thing said, so that branches are not held against each other."""
    for said in recorded.entries:
        earlier = before.get(said.parent or "", first)
        at = said.at
        if not (FIRST <= at <= LAST and abs(at - middle) <= FARTHEST):
            if at:
                wrong.append(said.line)
            elif said.line not in told:
                unread.append(said.line)
            at = earlier
        elif at < earlier - JITTER:
            back.append(said.line)
        before[said.uuid] = at = max(at, earlier)
        entries.append(said if at == said.at else replace(said, at=at))
    problems = [
        Problem(lines[0], f"{_times(len(lines))} {what}: each counts as the one before it")
        for lines, what in ((wrong, "cannot be"), (back, "before what came earlier"))
        if lines
    ]
    if unread and recorded.format in ALWAYS:
        problems.append(Problem(unread[0], unreadable(len(unread))))
    return replace(
        recorded,
        entries=tuple(entries),
        problems=tuple(sorted((*recorded.problems, *problems), key=lambda p: p.line)),
    )


def _without_times(recorded: Recorded) -> Recorded:
    """No time in it can be: nobody was ever idle, as far as can be known."""
    wrong = [said.line for said in recorded.entries if said.at]
    if not wrong:
        return recorded
    problem = Problem(wrong[0], f"{_times(len(wrong))} cannot be: no idle time is counted")
    return replace(
        recorded,
        entries=tuple(replace(said, at=0.0) for said in recorded.entries),
        problems=(*recorded.problems, problem),
    )


def _times(number: int) -> str:
    return "1 time" if number == 1 else f"{number:,} times"
