"""The slash commands of the chat."""

from __future__ import annotations

import difflib
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from sevenfold.cache.ledger import MAIN, LedgerLine, SourceAccount
from sevenfold.cache.prices import Price, Prices
from sevenfold.cli.chat.project_commands import (
    run_config,
    run_export,
    run_init,
    run_permissions,
    run_status,
)
from sevenfold.cli.chat.tasks import run_agents, run_dream, run_send, run_tasks
from sevenfold.cli.commands.memory_display import (
    format_memory_detail,
    format_memory_table,
    list_memories,
    read_memory_detail,
)
from sevenfold.cli.commands.memory_search import describe_steps
from sevenfold.cli.commands.sessions import format_session_table, list_conversations
from sevenfold.cli.commands.window import (
    describe_boundary,
    format_savings,
    format_window,
    measure_savings,
    measure_window,
)
from sevenfold.cli.output import (
    CommandChoice,
    CommandMenu,
    CommandOutcome,
    CommandReply,
    ExitChat,
    MenuRow,
    OpenSession,
    SlowCommand,
    fit_line,
    format_bytes,
    format_count,
    format_duration,
    format_elapsed,
    format_money,
    format_percent,
    format_time,
    format_tokens,
    make_printable,
    to_one_line,
    wrap_line,
)
from sevenfold.core.errors import Mistake, SessionNotFound
from sevenfold.core.tokens import estimate_tokens, scale_constant
from sevenfold.core.transcript import Reply
from sevenfold.layers.l3_session_memory.notes_update import can_take_notes
from sevenfold.layers.savings import count_rereads
from sevenfold.layers.shared.boundary import Boundary
from sevenfold.layers.shared.fidelity import WEIGHTS, Fidelity
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.store import MemoryStore
from sevenfold.session.commands import (
    CompactionReport,
    ExpandableFold,
    PastTurn,
    choose_turn,
    list_folds,
    list_past_turns,
    read_notes,
)
from sevenfold.session.session import Session
from sevenfold.storage.places import ProjectPaths, find_session

_PART: Final = re.compile(r"(from|up_to|up to)(?:\s+([0-9]{1,9}))?(?:\s+(.*))?", re.DOTALL)
_NUMBER: Final = re.compile("[0-9]{1,9}")
_SIGNS, _RULES = r"[`*#]+", r"\||-{3,}"  # Signs of Markdown within words, and between them
LONGEST_DRAFT: Final = 2_000  # A longer message (characters) is not brought back to be edited
_KINDS: Final = {"identifiers": "names", "urls": "addresses"}  # Other kinds of facts have their own names


# --- /compact -------------------------------------------------------------------------------------------


def run_compact(session: Session, rest: str) -> CommandOutcome:
    """`/compact [instructions]`, `/compact from N [instructions]`, `/compact up_to N [instructions]`."""
    since, up_to, instructions = parse_compact_range(rest)

    async def work() -> CommandReply:
        report = await session.compact(instructions, since=since, up_to=up_to)
        if report.stopped:
            return CommandReply("  stopped; the conversation is as it was", "interrupted")
        if report.boundary is None:
            return CommandReply("  nothing was changed", "declined")
        currency = find_session_currency(session)
        return CommandReply(f"  {describe_compaction(report.boundary, report, currency)}")

    return SlowCommand("compacting", work)


def parse_compact_range(rest: str) -> tuple[int | None, int | None, str]:
    """The first turn, the turn to end before, and the instructions."""
    found = _PART.fullmatch(rest.strip())
    if found is None:
        return None, None, rest.strip()
    word, number, instructions = found[1].replace(" ", "_"), found[2], (found[3] or "").strip()
    if number is None and word == "from" and len(instructions.split()) > 1:
        return None, None, rest.strip()  # it begins a sentence
    if number is None:
        raise Mistake(f"which turn? /compact {word} N; /rewind lists the turns")
    return (int(number), None, instructions) if word == "from" else (None, int(number), instructions)


def describe_compaction(boundary: Boundary, report: CompactionReport, currency: str) -> str:
    """The result in one line."""
    parts = [describe_boundary(boundary)]
    if report.fidelity is not None and (missed := describe_worst_loss(report.fidelity)):
        parts.append(f"misses most: {missed}")
    parts.append(format_duration(report.seconds))
    if report.usage.total:
        hit = f" ({format_percent(report.usage.hit_rate)} of it from the cache)"
        parts.append(f"{format_money(report.cost, currency)}{hit if report.usage.cache_read else ''}")
    return " · ".join(parts)


def describe_worst_loss(found: Fidelity) -> str:
    """The kind of fact that lowers the score most, `3 of 12 paths`; empty if none is missing."""
    lost = {kind: WEIGHTS[kind] * (1 - share.part) for kind, share in found.kinds.items()}
    kind = max(lost, key=lambda one: lost[one], default="")
    if not kind or not lost[kind]:
        return ""
    share = found.kinds[kind]
    if kind == "said":
        return f"{format_percent(1 - share.part)} of your words"
    gone = max(1, round(share.of - share.found))  # a part of one counts as one
    return f"{gone:,} of {share.of:,} {_KINDS.get(kind, kind)}"


# --- /rewind --------------------------------------------------------------------------------------------


def run_rewind(session: Session, rest: str) -> CommandOutcome:
    """`/rewind` lists the turns, `/rewind N` says what can be done, `/rewind N back` goes back."""
    words = rest.split()
    if not words:
        return offer_turns(list_past_turns(session.turn.transcript))
    if not _NUMBER.fullmatch(words[0]) or words[1:] not in ([], ["back"]):
        raise Mistake("/rewind lists the turns, and /rewind N says what can be done at one of them")
    past = choose_turn(list_past_turns(session.turn.transcript), int(words[0]))
    if len(words) == 1:
        return offer_rewind(past)
    session.rewind(past.number)
    text = (
        f"  back to before turn {past.number}; the transcript keeps what came after, and files are "
        "as they are now"
    )
    return CommandReply(text, draft=make_printable(past.said) if len(past.said) <= LONGEST_DRAFT else "")


def offer_turns(turns: tuple[PastTurn, ...]) -> CommandMenu | CommandReply:
    """The turns to go back to, the newest first."""
    if not turns:
        return CommandReply(format_turns(turns))
    rows = tuple(
        MenuRow(
            f"{past.number:>3}  {'' if past.in_view else '(summarised) '}{to_one_line(past.said, 200)}",
            f"/rewind {past.number}",
            f" · {format_time(past.at)}{f' · {format_tokens(past.tokens)} tokens' if past.tokens else ''}",
        )
        for past in reversed(turns)
    )
    return CommandMenu(format_turns(turns), "go back to before a turn", rows)


def format_turns(turns: tuple[PastTurn, ...]) -> str:
    if not turns:
        return "  nothing has been said yet"
    columns = shutil.get_terminal_size().columns
    rows = [
        f"  {past.number:>4}  {format_time(past.at)}  {format_tokens(past.tokens):>7}  "
        f"{'' if past.in_view else '(summarised) '}{to_one_line(past.said, 200)}"
        for past in turns
    ]
    lines = [fit_line(line, columns) for line in (f"  turn  {'when':<16}   tokens  first words", *rows)]
    return "\n".join([*lines, "  /rewind N goes back to before a turn, or summarises around it"])


def offer_rewind(past: PastTurn) -> CommandChoice:
    n = past.number
    options = {"b": ("go back to before it; what follows leaves the view", f"/rewind {n} back")}
    if past.in_view:
        options["f"] = ("summarise it and what follows", f"/compact from {n}")
    if past.in_view and n > 1:
        options["u"] = ("summarise what comes before it", f"/compact up_to {n}")
    width = max(len(text) for text, _ in options.values())
    rows = [f"    {key}  {text:<{width}}  {line}" for key, (text, line) in options.items()]
    head = f"  turn {n}, {format_time(past.at)}: {to_one_line(past.said, 80)}"
    choices = {"": "", **{key: line for key, (_, line) in options.items()}}
    return CommandChoice(
        "\n".join([head, *rows]), f"  {'/'.join(options)}, or Enter for nothing: ", choices
    )


# --- /expand --------------------------------------------------------------------------------------------


def run_expand(session: Session, rest: str) -> CommandOutcome:
    """`/expand` lists what was collapsed or snipped, `/expand N` puts one stretch back."""
    if not rest:
        return CommandReply(_format_folds(list_folds(session.turn.transcript)))
    if not _NUMBER.fullmatch(rest):
        raise Mistake("/expand lists what was folded, and /expand N puts one of them back")
    one = session.steering.expand(int(rest))
    return CommandReply(
        f"  put back: {format_count(one.fold.rounds, 'round')}, {format_tokens(one.fold.tokens)} tokens"
    )


def _format_folds(found: Sequence[ExpandableFold]) -> str:
    if not found:
        return "  nothing is folded: this is what the flags collapse and snip do"
    rows = [
        f"  {number:>4}  {format_time(one.fold.at)}  {format_count(one.fold.rounds, 'round'):>10}  "
        f"{format_tokens(one.fold.tokens):>7} tokens  by {one.by.lower()}"
        for number, one in enumerate(found, 1)
    ]
    return "\n".join([*rows, "  /expand N puts one of them back into the view"])


# --- /notes ---------------------------------------------------------------------------------------------


def run_notes(session: Session, rest: str) -> CommandOutcome:
    found = read_notes(session.path)
    if found is None and not session.flags.notes:
        return CommandReply("  no notes are kept on this session: the flag notes is off")
    if found is None and not can_take_notes(session.parts, session.model.name):
        return CommandReply(
            "  no notes are kept on this session: its model costs money; the setting notes.priced allows it"
        )
    if found is None:
        first = scale_constant(session.settings.notes.first_at, session.turn.thresholds.window)
        begun = f"they are begun when the conversation reaches {format_tokens(int(first))} tokens"
        return CommandReply(f"  there are no notes on this session yet: {begun}")
    return CommandReply(
        f"{found.path} · about {format_tokens(estimate_tokens(found.text))} tokens\n\n"
        f"{make_printable(found.text).rstrip()}"
    )


MOST_MEMORIES: Final = 30
USAGE: Final = (
    "/memory lists what is remembered; /memory show NAME, /memory undo [NAME], /memory redo [NAME], "
    "/memory path"
)


def run_memory(session: Session, rest: str) -> CommandOutcome:
    """`/memory`, `/memory show NAME`, `/memory undo [NAME]`, `/memory redo [NAME]`, `/memory path`."""
    word, _, more = rest.partition(" ")
    more = more.strip()
    if word == "path" and not more:
        return CommandReply(f"  {session.at.memory.folder}{_describe_memory_off(session)}")
    store = session.knowledge.store
    if store is None:
        return CommandReply(f"  there is no memory in this session{_describe_memory_off(session)}")
    if word in ("", "list") and not more:
        return CommandReply(_format_memories(store, session.clock.now()))
    if word == "show" and more:
        now = session.clock.now()
        one = read_memory_detail(store, more, now)
        return CommandReply("\n\n".join(filter(None, [format_memory_detail(one, now), one.caveat])))
    if word in ("undo", "redo"):
        work = store.undo if word == "undo" else store.redo
        saved = work(more or None, author=Author("user", session.id))
        lines = describe_steps(store.history(limit=1)[0], saved)
        return CommandReply("\n".join(f"  {line}" for line in lines))
    raise Mistake(USAGE)


def _describe_memory_off(session: Session) -> str:
    off = session.at.memory.off
    return f" (memory is off: {off})" if off else ""


def _format_memories(store: MemoryStore, now: float) -> str:
    memories = list_memories(store, now)
    if not memories:
        return f"  nothing is remembered yet in {store.path_of()}; say 'remember that …'"
    lines = format_memory_table(memories[:MOST_MEMORIES], now, terminal=sys.stdout.isatty()).split("\n")
    if len(memories) > MOST_MEMORIES:
        lines.append(f"… and {len(memories) - MOST_MEMORIES:,} more: sevenfold memory list")
    return "\n".join([*(f"  {line}" for line in lines), f"  {USAGE.partition('; ')[2]}"])


QUARANTINE_USAGE: Final = (
    "/quarantine lists what waits for your word; /quarantine show N, /quarantine release N, "
    "/quarantine drop N"
)


def run_quarantine(session: Session, rest: str) -> CommandOutcome:
    """`/quarantine`, `/quarantine show N`, `/quarantine release N`, `/quarantine drop N`."""
    from sevenfold.cli.commands.memory_changes import describe_held_text, format_quarantine

    store = session.knowledge.store
    if store is None:
        return CommandReply(f"  there is no memory in this session{_describe_memory_off(session)}")
    word, _, more = rest.partition(" ")
    if word in ("", "list") and not more:
        held = store.quarantine.list()
        return CommandReply(format_quarantine(held) if held else "  nothing waits for your word")
    if not more.strip().isdecimal():
        raise Mistake(QUARANTINE_USAGE)
    number = int(more)
    if word == "show":
        return CommandReply(make_printable(describe_held_text(store.quarantine.show(number))))
    if word == "release":
        saved = store.release(number)
        return CommandReply(f"  {saved.action} {saved.name}: {saved.path}")
    if word == "drop":
        store.quarantine.drop(number)
        return CommandReply(f"  number {number} is deleted")
    raise Mistake(QUARANTINE_USAGE)


MOST_SESSIONS: Final = 15


def run_slash_command(session: Session, line: str) -> CommandOutcome:
    """Run a line that begins with a slash; raises `Mistake` if there is no such command."""
    name, *more = line.split(maxsplit=1)
    rest = more[0] if more else ""
    command = COMMANDS.get(name.lower())
    if command is None:
        near = difflib.get_close_matches(name.lower(), COMMANDS, 1, 0.6)
        hint = f"did you mean {near[0]}?" if near else "/help lists what there is"
        raise Mistake(f"there is no command {name}; {hint}")
    return command[0](session, rest.strip())


KEYS: Final = (
    "@path attaches a file or folder (@path#L10-20: some lines), and the path of an image the image.",
    "!command runs in the shell; its output goes with your next message. #text is remembered.",
    "Ctrl-V attaches the image in the clipboard.",
    "Tab completes commands, @paths, sessions, models and names of memories. Ctrl-R searches history.",
    "Shift-Tab: ask, accept edits, plan (nothing is changed). Esc twice: rewind, or clear the line.",
    "Enter sends, Esc then Enter begins a new line, ↑ brings back what was said before.",
    "Esc on an empty line, or while a reply is written, brings back your last words to edit.",
    "Ctrl-C stops the turn or the command, twice leaves; Ctrl-D leaves.",
    "Enter on an empty line lets agents and other sessions have their say, when they have one.",
)


def _show_help(session: Session, rest: str) -> CommandOutcome:
    forms = {f"{name} {argument}": about for name, (_, argument, about) in COMMANDS.items()}
    width = min(40, max(map(len, forms)))
    lines = [f"  {form:<{width}}  {about}" for form, about in forms.items()]
    return CommandReply("\n".join(map(wrap_line, [*lines, *(f"  {line}" for line in KEYS)])))


def _show_context(session: Session, rest: str) -> CommandOutcome:
    turn = session.turn
    saved, currency = measure_savings(turn.transcript, _find_price(session)), find_session_currency(session)
    window = measure_window(session.id, turn.frame, session.view, turn.thresholds, saved, currency)
    found = read_notes(session.path)
    return CommandReply(format_window(replace(window, notes=str(found.path) if found else None)))


def _find_price(session: Session) -> Price | None:
    return Prices.load(session.settings.prices).of(session.model.name)


def find_session_currency(session: Session) -> str:
    price = _find_price(session)
    return price.currency if price else "USD"


def _show_cost(session: Session, rest: str) -> CommandOutcome:
    price = _find_price(session)
    currency = price.currency if price else "USD"
    accounts = session.ledger.accounts
    known = any(line.cost is not None for line in session.ledger.lines)
    dated = f"prices as of {price.as_of}" if price else f"no price is known for {session.model.name}"
    lines = [_format_account("all", session.ledger.total, currency, known)]
    if len(accounts) > 1:
        lines += [_format_account(name, one, currency, known) for name, one in accounts.items()]
    lines.append(f"  since this session was opened; {dated}")
    if not accounts:
        lines = [f"  nothing was asked yet since this session was opened; {dated}"]
    recorded, all_known = _sum_recorded(session)
    if recorded.requests > accounts.get(MAIN, SourceAccount()).requests:
        lines.append(_format_account("the conversation as recorded", recorded, currency, all_known))
    if saved := measure_savings(session.turn.transcript, price):
        lines.append("  from its beginning on:")
        lines += format_savings(saved, currency, count_rereads(session.view))
    return CommandReply("\n".join(lines))


def _sum_recorded(session: Session) -> tuple[SourceAccount, bool]:
    """The usage of the whole transcript, without agents and background work; True if all has a price."""
    prices, account, known = session.ledger.prices, SourceAccount(), True
    for entry in session.turn.transcript.entries:
        if isinstance(entry.what, Reply) and entry.by == "model":
            model = entry.what.model or session.model.name
            price, usage = prices.of(model), entry.what.usage
            known = known and price is not None
            cost = price.cost(usage) if price else None
            account = account.add_line(LedgerLine(entry.at, MAIN, model, usage, cost))
    return account, known


def _format_account(name: str, account: SourceAccount, currency: str, known: bool) -> str:
    used = account.usage
    return (
        f"  {name}: {format_count(account.requests, 'request')} · input {format_tokens(used.input)} · "
        f"cache written {format_tokens(used.cache_write)} · cache read {format_tokens(used.cache_read)} · "
        f"output {format_tokens(used.output)} · hit rate {format_percent(used.hit_rate)} · "
        f"{format_money(account.cost if known else None, currency)}"
    )


def _clear_session(session: Session, rest: str) -> CommandOutcome:
    session.ended_by = "clear"
    return OpenSession()


def _resume_session(session: Session, rest: str) -> CommandOutcome:
    if not rest:
        return offer_sessions(session.places, session.clock.now(), besides=session.id)
    try:
        wanted = find_session(session.places, rest).stem
    except SessionNotFound as error:
        raise SessionNotFound(str(error).replace("'sevenfold sessions'", "/resume")) from error
    if wanted == session.id:
        return CommandReply(f"  {wanted} is this session")
    session.ended_by = "resume"
    return OpenSession(wanted)


def offer_sessions(places: ProjectPaths, now: float, *, besides: str = "") -> CommandMenu | CommandReply:
    """The conversations to go on with; one-shot runs are only counted."""
    known, hidden = list_conversations(places, besides=besides)
    left = f"{format_count(hidden, 'one-shot run')} not shown; 'sevenfold sessions' lists all"
    if not known:
        note = f"; {left}" if hidden else ""
        return CommandReply(
            f"  there is no {'other ' if besides else ''}conversation in this project{note}"
        )
    rows = tuple(
        MenuRow(
            one.first_words or "(nothing said)",
            f"/resume {one.id}",
            f" · {format_elapsed(now - one.at)} · {format_bytes(one.bytes)}",
            " ".join(re.sub(_RULES, " ", re.sub(_SIGNS, "", one.last_words)).split()),
        )
        for one in known
    )
    listed = format_session_table(known[:MOST_SESSIONS], terminal=sys.stdout.isatty())
    lines = [listed, *([f"  {left}"] if hidden else []), "  /resume ID goes on with one of them"]
    return CommandMenu("\n".join(lines), "go on with", rows, left if hidden else "")


def _use_model(session: Session, rest: str) -> CommandOutcome:
    if not rest:
        return CommandReply(f"  {session.model.name}; /model NAME changes it")
    session.use_model(rest)
    return CommandReply(f"  now with {session.model.name}")


COMMANDS: Final[dict[str, tuple[Callable[[Session, str], CommandOutcome], str, str]]] = {
    "/help": (_show_help, "", "what can be typed here"),
    "/context": (_show_context, "", "what is in the window"),
    "/cost": (_show_cost, "", "requests, tokens, cache and money"),
    "/compact": (
        run_compact,
        "[from|up_to N] [TEXT]",
        "summarise, or only from turn N on, or what is before it; TEXT: what matters",
    ),
    "/rewind": (
        run_rewind,
        "[N [back]]",
        "the turns; go back to before one, or summarise from it or up to it",
    ),
    "/expand": (run_expand, "[N]", "what was collapsed or snipped; put one of them back"),
    "/notes": (run_notes, "", "the notes on this session"),
    "/memory": (
        run_memory,
        "[show NAME|undo [NAME]|redo [NAME]|path]",
        "what is remembered; one memory, or take the last change back, or bring it again",
    ),
    "/quarantine": (
        run_quarantine,
        "[show N|release N|drop N]",
        "memories that wait for your word; read one, save it, or drop it",
    ),
    "/dream": (
        run_dream,
        "[review|accept|reject|undo|kill]",
        "put the memories in order, in the background; look at what it did",
    ),
    "/tasks": (run_tasks, "[kill NAME]", "what goes on in the background; stop the dream or an agent"),
    "/agents": (run_agents, "[show NAME|stop NAME]", "who works beside the conversation"),
    "/send": (run_send, "NAME TEXT", "write to an agent, * for all teammates"),
    "/init": (run_init, "[FILE]", "write AGENTS.md, or CLAUDE.md, from what the project holds"),
    "/export": (run_export, "[FILE]", "write the conversation to a file: Markdown, or .json"),
    "/permissions": (
        run_permissions,
        "[mode MODE|allow RULE|ask RULE|deny RULE]",
        "what may run without a question; change it for this session",
    ),
    "/config": (run_config, "[KEY [VALUE]]", "the settings that are not as usual; look one up, or set it"),
    "/status": (run_status, "", "version, session, model, folders, settings files"),
    "/clear": (_clear_session, "", "begin anew; this session stays on disk"),
    "/resume": (_resume_session, "[ID]", "pick a conversation to go on with, or name it"),
    "/model": (_use_model, "[NAME]", "which model answers, or another one"),
    "/exit": (lambda session, rest: ExitChat(), "", "leave"),
}
