"""What can be typed after a slash in the chat.

`/compact`, `/rewind`, `/expand` and `/notes`: commands that shorten a conversation or go back in
it. `/memory` in the chat: what is remembered, one of the memories, and taking the last change back.
"""

from __future__ import annotations

import difflib
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from sevenfold.cache.ledger import MAIN, Account, Line
from sevenfold.cache.prices import Price, Prices
from sevenfold.cli.chat import tasks as agents_chat
from sevenfold.cli.chat import tasks as dream_chat
from sevenfold.cli.commands.memory_find import told as told_memory_chat
from sevenfold.cli.commands.memory_read import drawn, shown, table
from sevenfold.cli.commands.memory_read import listed as listed_memory_chat
from sevenfold.cli.commands.sessions import summaries
from sevenfold.cli.commands.sessions import table as table_commands
from sevenfold.cli.commands.window import drawn as drawn_commands
from sevenfold.cli.commands.window import saved_in, saved_lines, shortened, window_of
from sevenfold.cli.output import (
    Doing,
    Leave,
    Next,
    Offer,
    Open,
    Said,
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
from sevenfold.errors import Mistake, SessionNotFound
from sevenfold.layers.savings import read_again
from sevenfold.layers.shared.boundary import Boundary
from sevenfold.layers.shared.fidelity import WEIGHTS, Fidelity
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.store import MemoryStore
from sevenfold.session.commands import (
    Folded,
    PastTurn,
    Report,
    chosen,
    folded,
    notes_of,
    past_turns,
)
from sevenfold.session.session import Session
from sevenfold.storage.places import find_session
from sevenfold.tokens import estimate, scaled
from sevenfold.transcript import Reply

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


MOST_LISTED_MEMORY_CHAT: Final = 30
USAGE: Final = (
    "/memory lists what is remembered; /memory show NAME, /memory undo [NAME], /memory path"
)


def memory(session: Session, rest: str) -> Next:
    """`/memory`, `/memory show NAME`, `/memory undo [NAME]`, `/memory path`."""
    word, _, more = rest.partition(" ")
    more = more.strip()
    if word == "path" and not more:
        return Said(f"  {session.at.memory.folder}{_off(session)}")
    store = session.knowledge.store
    if store is None:
        return Said(f"  there is no memory in this session{_off(session)}")
    if word in ("", "list") and not more:
        return Said(_listed(store, session.clock.now()))
    if word == "show" and more:
        now = session.clock.now()
        one = shown(store, more, now)
        return Said("\n\n".join(filter(None, [drawn(one, now), one.caveat])))
    if word == "undo":
        return _undone(store, session.id, more or None)
    raise Mistake(USAGE)


def _off(session: Session) -> str:
    off = session.at.memory.off
    return f" (memory is off: {off})" if off else ""


def _listed(store: MemoryStore, now: float) -> str:
    memories = listed_memory_chat(store, now)
    if not memories:
        return f"  nothing is remembered yet in {store.folder}; say 'remember that …'"
    lines = table(memories[:MOST_LISTED_MEMORY_CHAT], now, terminal=sys.stdout.isatty()).split("\n")
    if len(memories) > MOST_LISTED_MEMORY_CHAT:
        more = len(memories) - MOST_LISTED_MEMORY_CHAT
        lines.append(f"… and {more:,} more: sevenfold memory list")
    return "\n".join([*(f"  {line}" for line in lines), f"  {USAGE.partition('; ')[2]}"])


def _undone(store: MemoryStore, session: str, name: str | None) -> Next:
    saved = store.undo(name, author=Author("user", session))
    if not saved:
        return Said("  the index is as it was before; no memory has changed")
    return Said("\n".join(f"  {told_memory_chat(one)}" for one in saved))


MOST_LISTED: Final = 15


def is_command(line: str) -> bool:
    """A slash and a word; a path has another slash in it and is something to talk about."""
    word = line.split(maxsplit=1)[0]
    return word.startswith("/") and "/" not in word[1:]


def run(session: Session, line: str) -> Next:
    """Do what a line that begins with a slash says. A `Mistake` says what is wrong with it."""
    name, *more = line.split(maxsplit=1)
    rest = more[0] if more else ""
    command = COMMANDS.get(name.lower())
    if command is None:
        near = difflib.get_close_matches(name.lower(), COMMANDS, 1, 0.6)
        hint = f"did you mean {near[0]}?" if near else "/help lists what there is"
        raise Mistake(f"there is no command {name}; {hint}")
    does, _, _ = command
    return does(session, rest.strip())


def _help(session: Session, rest: str) -> Next:
    width = max(len(f"{name} {argument}") for name, (_, argument, _) in COMMANDS.items())
    lines = [
        f"  {f'{name} {argument}':<{width}}  {about}"
        for name, (_, argument, about) in COMMANDS.items()
    ]
    keys = (
        "  Enter sends, Esc then Enter begins a new line, ↑ brings back what was said before.\n"
        "  Esc on an empty line, or while a reply is written, brings back your last words to edit.\n"
        "  Ctrl-C stops the turn or the compaction, twice leaves; Ctrl-D leaves.\n"
        "  Enter on an empty line lets agents and other sessions have their say, when they have one."
    )
    return Said("\n".join([*lines, keys]))


def _context(session: Session, rest: str) -> Next:
    turn = session.turn
    saved, currency = saved_in(turn.transcript, _price(session)), currency_of(session)
    window = window_of(session.id, turn.frame, session.view, turn.thresholds, saved, currency)
    found = notes_of(session.path)
    return Said(drawn_commands(replace(window, notes=str(found.path) if found else None)))


def _price(session: Session) -> Price | None:
    return Prices.load(session.settings.prices).of(session.model.name)


def currency_of(session: Session) -> str:
    price = _price(session)
    return price.currency if price else "USD"


def _cost(session: Session, rest: str) -> Next:
    price = _price(session)
    currency = price.currency if price else "USD"
    accounts = session.ledger.accounts
    known = any(line.cost is not None for line in session.ledger.lines)
    dated = (
        f"prices as of {price.as_of}" if price else f"no price is known for {session.model.name}"
    )
    lines = [_account("all", session.ledger.total, currency, known)]
    if len(accounts) > 1:
        lines += [_account(name, one, currency, known) for name, one in accounts.items()]
    lines.append(f"  since this session was opened; {dated}")
    if not accounts:
        lines = [f"  nothing was asked yet since this session was opened; {dated}"]
    recorded, all_known = _recorded(session)
    if recorded.requests > accounts.get(MAIN, Account()).requests:
        lines.append(_account("the conversation as recorded", recorded, currency, all_known))
    if saved := saved_in(session.turn.transcript, price):
        lines.append("  from its beginning on:")
        lines += saved_lines(saved, currency, read_again(session.view))
    return Said("\n".join(lines))


def _recorded(session: Session) -> tuple[Account, bool]:
    """What its transcript says was used, from the beginning on; whether all of it has a price.

    Agents and work in the background have books of their own, and are not in it.
    """
    prices, account, known = session.ledger.prices, Account(), True
    for entry in session.turn.transcript.entries:
        if isinstance(entry.what, Reply) and entry.by == "model":
            model = entry.what.model or session.model.name
            price, usage = prices.of(model), entry.what.usage
            known = known and price is not None
            cost = price.cost(usage) if price else None
            account = account.plus(Line(entry.at, MAIN, model, usage, cost))
    return account, known


def _account(name: str, account: Account, currency: str, known: bool) -> str:
    used = account.usage
    return (
        f"  {name}: {count(account.requests, 'request')} · input {tokens(used.input)} · "
        f"cache written {tokens(used.cache_write)} · cache read {tokens(used.cache_read)} · "
        f"output {tokens(used.output)} · hit rate {percent(used.hit_rate)} · "
        f"{money(account.cost if known else None, currency)}"
    )


def _compact(session: Session, rest: str) -> Next:
    return compact(session, rest, currency_of(session))


def _clear(session: Session, rest: str) -> Next:
    session.ended_by = "clear"
    return Open()


def _resume(session: Session, rest: str) -> Next:
    if not rest:
        known = [one for one in summaries(session.places) if one.id != session.id][:MOST_LISTED]
        if not known:
            return Said("  there is no other session of this project")
        listed = table_commands(known, terminal=sys.stdout.isatty())
        return Said(f"{listed}\n  /resume ID goes on with one of them")
    try:
        wanted = find_session(session.places, rest).stem
    except SessionNotFound as error:
        raise SessionNotFound(str(error).replace("'sevenfold sessions'", "/resume")) from error
    if wanted == session.id:
        return Said(f"  {wanted} is this session")
    session.ended_by = "resume"
    return Open(wanted)


def _model(session: Session, rest: str) -> Next:
    if not rest:
        return Said(f"  {session.model.name}; /model NAME changes it")
    session.use_model(rest)
    return Said(f"  now with {session.model.name}")


def _exit(session: Session, rest: str) -> Next:
    return Leave()


COMMANDS: Final[dict[str, tuple[Callable[[Session, str], Next], str, str]]] = {
    "/help": (_help, "", "what can be typed here"),
    "/context": (_context, "", "what is in the window"),
    "/cost": (_cost, "", "requests, tokens, cache and money"),
    "/compact": (
        _compact,
        "[from|up_to N] [TEXT]",
        "summarise, or only from turn N on, or what is before it; TEXT: what matters",
    ),
    "/rewind": (
        rewind,
        "[N [back]]",
        "the turns; go back to before one, or summarise from it or up to it",
    ),
    "/expand": (expand, "[N]", "what was collapsed or snipped; put one of them back"),
    "/notes": (notes, "", "the notes on this session"),
    "/memory": (
        memory,
        "[show NAME|undo [NAME]|path]",
        "what is remembered; one memory, or take the last change back",
    ),
    "/dream": (
        dream_chat.dream,
        "[review|accept|reject|undo|kill]",
        "put the memories in order, in the background; look at what it did",
    ),
    "/tasks": (
        dream_chat.tasks,
        "[kill NAME]",
        "what goes on in the background; stop the dream or an agent",
    ),
    "/agents": (agents_chat.agents, "[show NAME|stop NAME]", "who works beside the conversation"),
    "/send": (agents_chat.send, "NAME TEXT", "write to an agent, * for all teammates"),
    "/clear": (_clear, "", "begin anew; this session stays on disk"),
    "/resume": (_resume, "[ID]", "list the sessions, or go on with one"),
    "/model": (_model, "[NAME]", "which model answers, or another one"),
    "/exit": (_exit, "", "leave"),
}
