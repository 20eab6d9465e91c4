"""What can be typed after a slash in the chat."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from sevenfold.cache.ledger import MAIN, Account, Line
from sevenfold.cache.prices import Price, Prices
from sevenfold.cli import agents_chat, dream_chat, memory_chat, steer
from sevenfold.cli.outcomes import Doing, Leave, Next, Offer, Open, Said
from sevenfold.cli.sessions import summaries, table
from sevenfold.cli.window import drawn, saved_in, saved_lines, window_of
from sevenfold.cli.wording import count, money, percent, tokens
from sevenfold.errors import Mistake, SessionNotFound
from sevenfold.layers.savings import read_again
from sevenfold.session import Session
from sevenfold.steering import notes_of
from sevenfold.storage.places import find_session
from sevenfold.transcript import Reply

__all__ = ["COMMANDS", "Doing", "Leave", "Next", "Offer", "Open", "Said", "is_command", "run"]

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
    return Said(drawn(replace(window, notes=str(found.path) if found else None)))


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
    return steer.compact(session, rest, currency_of(session))


def _clear(session: Session, rest: str) -> Next:
    session.ended_by = "clear"
    return Open()


def _resume(session: Session, rest: str) -> Next:
    if not rest:
        known = [one for one in summaries(session.places) if one.id != session.id][:MOST_LISTED]
        if not known:
            return Said("  there is no other session of this project")
        listed = table(known, terminal=sys.stdout.isatty())
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
        steer.rewind,
        "[N [back]]",
        "the turns; go back to before one, or summarise from it or up to it",
    ),
    "/expand": (steer.expand, "[N]", "what was collapsed or snipped; put one of them back"),
    "/notes": (steer.notes, "", "the notes on this session"),
    "/memory": (
        memory_chat.memory,
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
