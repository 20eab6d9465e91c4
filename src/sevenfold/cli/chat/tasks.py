"""`/agents` and `/send` in the chat: who works beside the conversation, and writing to them.

`/dream` and `/tasks` in the chat: dreaming by hand, what goes on in the background, stopping it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio.to_thread

from sevenfold.cli.commands.dream_display import describe_dreams, describe_undo, undo_last_dream
from sevenfold.cli.output import (
    DREAM,
    BackgroundTaskRow,
    CommandChoice,
    CommandOutcome,
    CommandReply,
    SlowCommand,
    format_count,
    format_tokens,
    list_tasks,
    make_printable,
    to_one_line,
)
from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Mistake
from sevenfold.core.events import Notice
from sevenfold.core.protocols import Change, ToolFailed
from sevenfold.layers.l6_dreaming.dreaming import Dreaming
from sevenfold.layers.l6_dreaming.gates import DreamGates
from sevenfold.layers.l6_dreaming.progress import DreamSnapshot, read_last_snapshot
from sevenfold.layers.l7_agents.members import AgentRow
from sevenfold.memory.dreams.stage import list_waiting_stages
from sevenfold.memory.history.revisions import Author
from sevenfold.session.session import Session

USAGE: Final = "/agents [show NAME|stop NAME]"


def run_agents(session: Session, rest: str) -> CommandOutcome:
    """`/agents` lists them with their kinds; the other words are about one of them."""
    word, _, name = rest.partition(" ")
    if not rest:
        return CommandReply("\n".join(_listed(session)))
    if word not in ("show", "stop") or not name.strip():
        raise Mistake(USAGE)
    return _show(session, name.strip()) if word == "show" else stop_agent(session, name.strip())


def stop_agent(session: Session, name: str) -> CommandOutcome:
    """What it has done stays, and so does its transcript."""
    if not session.agents.stop(name):
        raise Mistake(f"no agent called {name} is at work; /agents lists them")
    return CommandReply(f"  stopping {name}; its transcript stays, and /send {name} TEXT takes it up again")


def run_send(session: Session, rest: str) -> CommandOutcome:
    """`/send NAME TEXT`: to an agent, a teammate, `*` for all of them, or `uds:SESSION`."""
    name, _, text = rest.partition(" ")
    if not text.strip():
        raise Mistake("/send NAME TEXT; /agents lists who there is, * is all teammates")

    async def work() -> CommandReply:
        try:
            return CommandReply(f"  {make_printable(await session.company.send(name, text.strip()))}")
        except ToolFailed as error:
            raise Mistake(str(error)) from error

    return SlowCommand(f"writing to {name}", work)


def describe_active_agents(session: Session) -> list[str]:
    """A line for each agent that is not over, for `/tasks`."""
    return [_line(one) for one in session.agents.agents if one.status in ("running", "idle")]


def _listed(session: Session) -> Iterator[str]:
    there = session.agents.agents
    if not there:
        yield "  no agents yet; the model starts them, or ask for one"
    yield from (_line(one) for one in there)
    kinds = ", ".join(session.agents.definitions)
    yield f"  kinds: {kinds}, fork ('sevenfold agents show NAME' describes one)"


def _line(one: AgentRow) -> str:
    doing = one.doing or one.description or to_one_line(one.said, 60)
    used = f"{format_count(one.steps, 'request')}, {format_tokens(one.usage.total)} tokens"
    return f"  {one.name} ({one.kind}) {one.status}: {to_one_line(make_printable(doing), 80)} · {used}"


def _show(session: Session, name: str) -> CommandOutcome:
    member = session.agents.find(name)
    if member is None:
        raise Mistake(f"there is no agent {name}; /agents lists them")
    one = member.listed
    lines = [_line(one), *(f"  {text}" for text in _facts(one)), "", one.said or one.why]
    return CommandReply(make_printable("\n".join(lines)).rstrip())


def _facts(one: AgentRow) -> Iterator[str]:
    if one.path is not None:
        yield f"transcript: {one.path}"
    if one.worktree:
        yield f"work tree: {one.worktree}"
    if one.why:
        yield one.why


USAGE_DREAM_CHAT: Final = "/dream [status|review|accept|reject|undo|kill]"
_TURNS: Final = 5


def find_dreaming_layer(session: Session) -> Dreaming | None:
    """The layer that dreams in a session; None where that is switched off."""
    found = (layer for layer in session.turn.layers.rest if isinstance(layer, Dreaming))
    return next(found, None)


def run_dream(session: Session, rest: str) -> CommandOutcome:
    """`/dream` begins one in the background; the other words are about the last, or one that waits."""
    layer = find_dreaming_layer(session)
    if layer is None:
        return CommandReply("  nothing dreams in this session: memory or the flag dream is off")
    does = {
        "": _begin,
        "status": _status,
        "review": _review,
        "accept": _accept,
        "reject": _reject,
        "undo": _undo,
        "kill": _kill,
    }.get(rest)
    if does is None:
        raise Mistake(USAGE_DREAM_CHAT)
    return does(session, layer)


def _begin(session: Session, layer: Dreaming) -> CommandOutcome:
    if (running := layer.dreams.running) is not None:
        return CommandReply(_shown(running))

    async def work() -> Sequence[Change]:
        ended = await layer.asked(session.request, by_hand=True)
        if ended.status == "skipped":
            session.emit(Notice(f"no dream now: {ended.why}"))
        return ()

    session.tray.start(DREAM, work)
    return CommandReply(
        "  dreaming in the background; /tasks shows how it goes, /tasks kill dream stops it"
    )


def _status(session: Session, layer: Dreaming) -> CommandOutcome:
    dreams = layer.dreams
    known = dreams.transcripts, dreams.session, dreams.settings, SystemClock(), lambda: True
    lines, _ = describe_dreams(dreams.store, DreamGates(dreams.lock, *known), "/dream review")
    return CommandReply("\n".join(f"  {make_printable(line)}" for line in lines))


def _waits(state: Path) -> str | None:
    """The dream that is ready for review; of several the newest."""
    found = list_waiting_stages(state)
    return found[-1] if found else None


def _review(session: Session, layer: Dreaming) -> CommandOutcome:
    from sevenfold.layers.l6_dreaming.review import preview_review

    store = layer.dreams.store
    if (id := _waits(store.local)) is None:
        return CommandReply("  no dream waits for review")
    diff = make_printable(preview_review(store, id).diff).rstrip() or "  nothing would change any more"
    choices = {"": "", "a": "/dream accept", "r": "/dream reject"}
    return CommandChoice(diff, "  a takes it over, r drops it, Enter decides later: ", choices)


def _accept(session: Session, layer: Dreaming) -> CommandOutcome:
    from sevenfold.layers.l6_dreaming.review import accept_review

    store = layer.dreams.store
    if (id := _waits(store.local)) is None:
        return CommandReply("  no dream waits for review")

    async def work() -> CommandReply:
        done = await anyio.to_thread.run_sync(partial(accept_review, store, id))
        return CommandReply(f"  taken over: {len(done.files)} files changed (/dream undo takes it back)")

    return SlowCommand("taking it over", work)


def _reject(session: Session, layer: Dreaming) -> CommandOutcome:
    from sevenfold.layers.l6_dreaming.review import reject_review

    store = layer.dreams.store
    if (id := _waits(store.local)) is None:
        return CommandReply("  no dream waits for review")
    reject_review(store, id)
    return CommandReply("  dropped; nothing is changed")


def _undo(session: Session, layer: Dreaming) -> CommandOutcome:
    return CommandReply(
        f"  {describe_undo(undo_last_dream(layer.dreams.store, Author('user', session.id)))}"
    )


def _kill(session: Session, layer: Dreaming) -> CommandOutcome:
    if not layer.dreams.kill():
        return CommandReply(
            "  no dream is going on in this session; 'sevenfold dream kill' stops any other"
        )
    return CommandReply("  stopping it; the memories stay as they were")


# --- /tasks ---------------------------------------------------------------------------------------------


def run_tasks(session: Session, rest: str) -> CommandOutcome:
    """`/tasks` lists what goes on in the background, `/tasks kill NAME` stops the dream or an agent."""
    layer = find_dreaming_layer(session)
    if rest:
        word, _, name = rest.partition(" ")
        if word != "kill" or not name.strip():
            raise Mistake("/tasks lists what goes on; /tasks kill NAME stops the dream or an agent")
        if name.strip() != DREAM:
            return stop_agent(session, name.strip())
        return _kill(session, layer) if layer else CommandReply("  no dream is going on")
    lines = [_line_dream_chat(task) for task in list_tasks(session)] + describe_active_agents(session)
    lines = lines or ["  nothing is going on"]
    if layer is not None:
        lines += _of_dreams(layer)
    return CommandReply("\n".join(lines))


def _line_dream_chat(task: BackgroundTaskRow) -> str:
    return f"  {task.name}: {task.said}" if task.said else f"  {task.name}"


def _of_dreams(layer: Dreaming) -> list[str]:
    if (running := layer.dreams.running) is not None:
        return [f"    {turn}" for turn in running.turns[-_TURNS:]]
    state = layer.dreams.store.local
    if _waits(state) is not None:
        return ["  dream: ready for review (/dream review)"]
    known = read_last_snapshot(state)
    return [f"  last dream: {known.said}"] if known is not None and known.said else []


def _shown(running: DreamSnapshot) -> str:
    rows = [f"    {turn}" for turn in running.turns[-_TURNS:]]
    touched = ", ".join(running.touched)
    head = f"  dreaming: {running.phase}{f' {touched}' if touched else ''}; /dream kill stops it"
    return "\n".join([head, *rows])
