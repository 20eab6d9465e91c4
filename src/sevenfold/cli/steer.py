"""`/compact`, `/rewind`, `/expand` and `/notes`: commands that shorten a conversation or go back in it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from typing import Final

from sevenfold.boundary import Boundary
from sevenfold.cli.outcomes import Doing, Next, Offer, Said
from sevenfold.cli.window import shortened
from sevenfold.cli.wording import (
    count,
    fitted,
    moment,
    money,
    one_line,
    percent,
    printable,
    span,
    tokens,
)
from sevenfold.errors import Mistake
from sevenfold.fidelity import WEIGHTS, Fidelity
from sevenfold.session import Session
from sevenfold.steering import Folded, PastTurn, Report, chosen, folded, notes_of, past_turns
from sevenfold.tokens import estimate, scaled

_PART: Final = re.compile(r"(from|up_to|up to)(?:\s+([0-9]{1,9}))?(?:\s+(.*))?", re.DOTALL)
_NUMBER: Final = re.compile("[0-9]{1,9}")
LONGEST_DRAFT: Final = 2_000
"""Characters of what was said that are brought back to be edited."""
_KINDS: Final = {
    "paths": "paths",
    "identifiers": "names",
    "errors": "errors",
    "numbers": "numbers",
    "urls": "addresses",
}


# --- /compact -------------------------------------------------------------------------------------------


def compact(session: Session, rest: str, currency: str) -> Next:
    """`/compact [instructions]`, `/compact from N [instructions]`, `/compact up_to N [instructions]`."""
    since, up_to, instructions = part(rest)

    async def work() -> Said:
        report = await session.compact(instructions, since=since, up_to=up_to)
        if report.stopped:
            return Said("  stopped; the conversation is as it was", "interrupted")
        if report.boundary is None:
            return Said("  nothing was changed", "declined")
        return Said(f"  {told(report.boundary, report, currency)}")

    return Doing("compacting", work)


def part(rest: str) -> tuple[int | None, int | None, str]:
    """From which turn on, up to which turn, and what else was said."""
    found = _PART.fullmatch(rest.strip())
    if found is None:
        return None, None, rest.strip()
    word, number, instructions = found[1].replace(" ", "_"), found[2], (found[3] or "").strip()
    if number is None and word == "from" and len(instructions.split()) > 1:
        return None, None, rest.strip()  # it begins a sentence
    if number is None:
        raise Mistake(f"which turn? /compact {word} N; /rewind lists the turns")
    return (
        (int(number), None, instructions) if word == "from" else (None, int(number), instructions)
    )


def told(boundary: Boundary, report: Report, currency: str) -> str:
    """The result in one line."""
    parts = [shortened(boundary)]
    if report.fidelity is not None and (missed := most_missed(report.fidelity)):
        parts.append(f"misses most: {missed}")
    parts.append(span(report.seconds))
    if report.usage.total:
        hit = f" ({percent(report.usage.hit_rate)} of it from the cache)"
        parts.append(f"{money(report.cost, currency)}{hit if report.usage.cache_read else ''}")
    return " · ".join(parts)


def most_missed(found: Fidelity) -> str:
    """The kind of thing that lowers the score most, `3 of 12 paths`; empty when all is there."""
    lost = {kind: WEIGHTS[kind] * (1 - share.part) for kind, share in found.kinds.items()}
    kind = max(lost, key=lambda one: lost[one], default="")
    if not kind or not lost[kind]:
        return ""
    share = found.kinds[kind]
    if kind == "said":
        return f"{percent(1 - share.part)} of your words"
    gone = max(1, round(share.of - share.found))  # a part of one counts: some of it is missing
    return f"{gone:,} of {share.of:,} {_KINDS[kind]}"


# --- /rewind --------------------------------------------------------------------------------------------


def rewind(session: Session, rest: str) -> Next:
    """`/rewind` lists the turns, `/rewind N` says what can be done, `/rewind N back` goes back."""
    words = rest.split()
    if not words:
        return Said(listed(past_turns(session.turn.transcript)))
    if not _NUMBER.fullmatch(words[0]) or words[1:] not in ([], ["back"]):
        raise Mistake("/rewind lists the turns, and /rewind N says what can be done at one of them")
    past = chosen(past_turns(session.turn.transcript), int(words[0]))
    if len(words) == 1:
        return offer(past)
    session.rewind(past.number)
    text = (
        f"  back to before turn {past.number}; the transcript keeps what came after, and files are "
        "as they are now"
    )
    return Said(text, draft=printable(past.said) if len(past.said) <= LONGEST_DRAFT else "")


def listed(turns: tuple[PastTurn, ...]) -> str:
    if not turns:
        return "  nothing has been said yet"
    columns = shutil.get_terminal_size().columns
    rows = [
        f"  {past.number:>4}  {moment(past.at)}  {tokens(past.tokens):>7}  "
        f"{'' if past.in_view else '(summarised) '}{one_line(past.said, 200)}"
        for past in turns
    ]
    head = f"  turn  {'when':<16}   tokens  first words"
    lines = [fitted(line, columns) for line in (head, *rows)]
    return "\n".join([*lines, "  /rewind N goes back to before a turn, or summarises around it"])


def offer(past: PastTurn) -> Offer:
    n = past.number
    options = {"b": ("go back to before it; what follows leaves the view", f"/rewind {n} back")}
    if past.in_view:
        options["f"] = ("summarise it and what follows", f"/compact from {n}")
    if past.in_view and n > 1:
        options["u"] = ("summarise what comes before it", f"/compact up_to {n}")
    width = max(len(text) for text, _ in options.values())
    rows = [f"    {key}  {text:<{width}}  {line}" for key, (text, line) in options.items()]
    head = f"  turn {n}, {moment(past.at)}: {one_line(past.said, 80)}"
    keys = "/".join(options)
    return Offer(
        "\n".join([head, *rows]),
        f"  {keys}, or Enter for nothing: ",
        {"": "", **{key: line for key, (_, line) in options.items()}},
    )


# --- /expand --------------------------------------------------------------------------------------------


def expand(session: Session, rest: str) -> Next:
    """`/expand` lists what was collapsed or snipped, `/expand N` puts one stretch back."""
    if not rest:
        return Said(_foldings(folded(session.turn.transcript)))
    if not _NUMBER.fullmatch(rest):
        raise Mistake("/expand lists what was folded, and /expand N puts one of them back")
    one = session.steering.expand(int(rest))
    return Said(f"  put back: {count(one.fold.rounds, 'round')}, {tokens(one.fold.tokens)} tokens")


def _foldings(found: Sequence[Folded]) -> str:
    if not found:
        return "  nothing is folded: this is what the flags collapse and snip do"
    rows = [
        f"  {number:>4}  {moment(one.fold.at)}  {count(one.fold.rounds, 'round'):>10}  "
        f"{tokens(one.fold.tokens):>7} tokens  by {one.by.lower()}"
        for number, one in enumerate(found, 1)
    ]
    return "\n".join([*rows, "  /expand N puts one of them back into the view"])


# --- /notes ---------------------------------------------------------------------------------------------


def notes(session: Session, rest: str) -> Next:
    found = notes_of(session.path)
    if found is None and not session.flags.notes:
        return Said("  no notes are kept on this session: the flag notes is off")
    if found is None:
        first = scaled(session.settings.notes.first_at, session.turn.thresholds.window)
        begun = f"they are begun when the context reaches {tokens(int(first))} tokens"
        return Said(f"  there are no notes on this session yet: {begun}")
    return Said(
        f"{found.path} · about {tokens(estimate(found.text))} tokens\n\n"
        f"{printable(found.text).rstrip()}"
    )
