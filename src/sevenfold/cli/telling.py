"""What happens, told in one line each. Which events are worth a line is decided here."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from sevenfold.cli.wording import (
    call,
    count,
    money,
    one_line,
    outcome,
    percent,
    span,
    tokens,
)
from sevenfold.events import (
    Acted,
    AgentEnded,
    AgentStarted,
    CacheBroke,
    Cleared,
    Compacted,
    Denied,
    Event,
    Failed,
    HookRan,
    Mail,
    Notice,
    Progress,
    ReadAgain,
    Remembered,
    Retrying,
    Sending,
    Started,
    Stored,
    Surfaced,
    ToolStarted,
)
from sevenfold.messages import ToolUse

WORTH_SAYING = 0.01
"""A rebuilt cache that costs more than this, in the currency of the price table, is announced."""
BY_HAND = ("manual", "from", "up_to")
"""Compactions that somebody asked for: what came of them is the answer."""
TELL_THEMSELVES = ("digest", "notes")
"""Those that say more about themselves, in a notice."""
Level: TypeAlias = Literal["progress", "info", "warning"]


class Line(msgspec.Struct, frozen=True):
    """`progress` is for terminals only; `warning` is said wherever somebody may read it."""

    text: str
    level: Level = "info"


class Teller:
    """Remembers the tool calls that are going on, so that a result can be told with its call."""

    def __init__(self, currency: str = "USD", *, chat: bool = False) -> None:
        """`chat`: what is told can be answered with a command of the chat, else only in a shell."""
        self._undo = "/memory undo" if chat else "sevenfold memory undo"
        self.running: dict[str, ToolUse] = {}
        self._denied: set[str] = set()
        self._announced: dict[str, str] = {}
        self.currency = currency

    def tell(self, event: Event) -> list[Line]:
        match event:
            case ToolStarted(use):
                self.running[use.id] = use
            case Denied(use, reason):
                self._denied.add(use.id)
                return [Line(f"✗ {call(use)} · not allowed: {one_line(reason, 400)}", "warning")]
            case Acted():
                return self._acted(event)
            case Sending() | CacheBroke():
                return self._cache(event)
            case Remembered(name, _, action, _, by) if by not in ("user", "extraction"):
                undo = f"({self._undo} takes it back)"
                return [Line(f"memory {action}: {one_line(name, 100)} {undo}")]
        line = _told(event)
        return [line] if line else []

    def _acted(self, event: Acted) -> list[Line]:
        lines = []
        for result in event.results:
            use = self.running.pop(result.tool_use_id, None)
            if result.tool_use_id in self._denied:
                self._denied.discard(result.tool_use_id)
                continue
            what = call(use) if use else "a tool"
            lines.append(Line(f"→ {what} · {outcome(result)}", "progress"))
        return lines

    def _cache(self, event: Sending | CacheBroke) -> list[Line]:
        price = money(event.cost, self.currency)
        if isinstance(event, Sending):
            self._announced.pop(event.source, None)
            if event.cost <= WORTH_SAYING:
                return []
            self._announced[event.source] = event.why
            return [Line(f"the cache will be rebuilt: {event.why}, about {price}")]
        announced = self._announced.pop(event.source, None) == event.why
        if event.expected or announced or event.cost <= WORTH_SAYING:
            return []
        lost = tokens(max(0, event.before - event.after))
        return [Line(f"the cache broke: {event.why}; {lost} tokens are paid for again, {price}")]


def _told(event: Event) -> Line | None:
    match event:
        case Started(session, _, "resume", messages):
            return Line(f"resumed {session}: {count(messages, 'message')}", "progress")
        case Stored(_, tool, path, characters):
            return Line(f"{tool} gave {characters:,} characters, kept in {path}", "progress")
        case Cleared(why=why):
            return Line(why, "progress")
        case Compacted() if event.trigger not in BY_HAND and event.by not in TELL_THEMSELVES:
            sizes = f"{tokens(event.tokens_before)} → {tokens(event.tokens_after)} tokens"
            score = "" if event.fidelity is None else f", fidelity {percent(event.fidelity)}"
            why = ", because it pays (compaction.byPrice turns it off)"
            why = why if event.trigger == "price" else ""
            return Line(f"the older part was compacted ({event.by}): {sizes}{score}{why}")
        case ReadAgain(_, what):
            return Line(f"asked for again after it was cleared: {one_line(what, 120)}", "progress")
        case Notice(text, level):
            return Line(text, "warning" if level != "info" else "info")
        case Failed(by, cause) if by != "dream":
            return Line(f"{by} failed and was passed over: {one_line(cause, 200)}", "warning")
        case Retrying(cause, attempt, wait):
            again = f"trying again in {span(wait)} (attempt {attempt + 1})"
            return Line(f"{one_line(_without_advice(cause), 160)}; {again}", "warning")
        case HookRan():
            return _of_hook(event)
        case _:
            return _of_memory(event)


def _of_hook(event: HookRan) -> Line:
    text = f"hook {event.hook} ({one_line(event.command, 40)}): {event.outcome}"
    if event.outcome != "blocked":  # what it says to the user comes in a notice, whole
        return Line(text, "progress")
    return Line(f"{text}: {one_line(event.message, 120)}" if event.message else text, "warning")


def _of_memory(event: Event) -> Line | None:
    match event:
        case Surfaced(names):
            return Line(f"recalled: {one_line(', '.join(names), 200)}", "progress")
        case Progress("dream", said, True):
            return Line(one_line(said, 300))
        case Failed("dream", cause):
            return Line(f"the dream failed: {one_line(cause, 500)}", "warning")
        case _:
            return _of_agents(event)


def _of_agents(event: Event) -> Line | None:
    match event:
        case AgentStarted(_, name, kind, description, background):
            where = " in the background" if background else ""
            about = f": {one_line(description, 100)}" if description else ""
            return Line(f"agent {name} ({kind}) begins{where}{about}", "progress")
        case AgentEnded(_, name, _, status, _, steps, usage):
            did = f"{count(steps, 'request')}, {tokens(usage.total)} tokens"
            return Line(
                f"agent {name} is {status}: {did}", "info" if status != "idle" else "progress"
            )
        case Mail(sender, summary):
            return Line(f"a message from {one_line(sender, 60)}: {one_line(summary, 200)}")
        case _:
            return None


def _without_advice(cause: str) -> str:
    """What happened: what to do about it, which stands last, is being done already."""
    happened, _, advice = cause.rpartition("; ")
    return happened or advice
