"""`/agents` and `/send` in the chat: who works beside the conversation, and writing to them.

`/dream` and `/tasks` in the chat: dreaming by hand, what goes on in the background, stopping it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio.to_thread

from sevenfold.cli.commands.dream_show import standing, taken_back, told
from sevenfold.cli.output import (
    DREAM,
    Doing,
    Next,
    Offer,
    Said,
    Task,
    count,
    one_line,
    printable,
    tasks_of,
    tokens,
)
from sevenfold.clock import SystemClock
from sevenfold.errors import Mistake
from sevenfold.events import Notice
from sevenfold.layers.l6_dreaming.dreaming import Dreaming
from sevenfold.layers.l6_dreaming.gates import Gates
from sevenfold.layers.l6_dreaming.progress import Snapshot, last_known
from sevenfold.layers.l7_agents.members import Listed
from sevenfold.memory.dreams.stage import waiting
from sevenfold.memory.history.revisions import Author
from sevenfold.protocols import Handback, ToolFailed
from sevenfold.session.session import Session

USAGE: Final = "/agents [show NAME|stop NAME]"


def agents(session: Session, rest: str) -> Next:
    """`/agents` lists them with their kinds; the other words are about one of them."""
    word, _, name = rest.partition(" ")
    if not rest:
        return Said("\n".join(_listed(session)))
    if word not in ("show", "stop") or not name.strip():
        raise Mistake(USAGE)
    return _show(session, name.strip()) if word == "show" else stop(session, name.strip())


def stop(session: Session, name: str) -> Next:
    """What it has done stays, and so does its transcript."""
    if not session.agents.stop(name):
        raise Mistake(f"no agent called {name} is at work; /agents lists them")
    return Said(f"  stopping {name}; its transcript stays, and /send {name} TEXT takes it up again")


def send(session: Session, rest: str) -> Next:
    """`/send NAME TEXT`: to an agent, a teammate, `*` for all of them, or `uds:SESSION`."""
    name, _, text = rest.partition(" ")
    if not text.strip():
        raise Mistake("/send NAME TEXT; /agents lists who there is, * is all teammates")

    async def work() -> Said:
        try:
            return Said(f"  {printable(await session.company.send(name, text.strip()))}")
        except ToolFailed as error:
            raise Mistake(str(error)) from error

    return Doing(f"writing to {name}", work)


def at_work(session: Session) -> list[str]:
    """A line for each agent that is not over, for `/tasks`."""
    return [_line(one) for one in session.agents.agents if one.status in ("running", "idle")]


def _listed(session: Session) -> Iterator[str]:
    there = session.agents.agents
    if not there:
        yield "  no agents yet; the model starts them, or ask for one"
    yield from (_line(one) for one in there)
    kinds = ", ".join(session.agents.definitions)
    yield f"  kinds: {kinds}, fork ('sevenfold agents show NAME' describes one)"


def _line(one: Listed) -> str:
    doing = one.doing or one.description or one_line(one.said, 60)
    used = f"{count(one.steps, 'request')}, {tokens(one.usage.total)} tokens"
    return f"  {one.name} ({one.kind}) {one.status}: {one_line(printable(doing), 80)} · {used}"


def _show(session: Session, name: str) -> Next:
    member = session.agents.find(name)
    if member is None:
        raise Mistake(f"there is no agent {name}; /agents lists them")
    one = member.listed
    lines = [_line(one), *(f"  {text}" for text in _facts(one)), "", one.said or one.why]
    return Said(printable("\n".join(lines)).rstrip())


def _facts(one: Listed) -> Iterator[str]:
    if one.path is not None:
        yield f"transcript: {one.path}"
    if one.worktree:
        yield f"work tree: {one.worktree}"
    if one.why:
        yield one.why


USAGE_DREAM_CHAT: Final = "/dream [status|review|accept|reject|undo|kill]"
_TURNS: Final = 5


def dreaming_of(session: Session) -> Dreaming | None:
    """The layer that dreams in a session; None where that is switched off."""
    found = (layer for layer in session.turn.layers.rest if isinstance(layer, Dreaming))
    return next(found, None)


def dream(session: Session, rest: str) -> Next:
    """`/dream` begins one in the background; the other words are about the last, or one that waits."""
    layer = dreaming_of(session)
    if layer is None:
        return Said("  nothing dreams in this session: memory or the flag dream is off")
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


def _begin(session: Session, layer: Dreaming) -> Next:
    if (running := layer.dreams.running) is not None:
        return Said(_shown(running))

    async def work() -> Sequence[Handback]:
        ended = await layer.asked(session.request, by_hand=True)
        if ended.status == "skipped":
            session.emit(Notice(f"no dream now: {ended.why}"))
        return ()

    session.tray.start(DREAM, work)
    return Said(
        "  dreaming in the background; /tasks shows how it goes, /tasks kill dream stops it"
    )


def _status(session: Session, layer: Dreaming) -> Next:
    dreams = layer.dreams
    known = dreams.transcripts, dreams.session, dreams.settings, SystemClock(), lambda: True
    lines, _ = standing(dreams.store, Gates(dreams.lock, *known), "/dream review")
    return Said("\n".join(f"  {printable(line)}" for line in lines))


def _waits(state: Path) -> str | None:
    """The dream that is ready for review; of several the newest."""
    found = waiting(state)
    return found[-1] if found else None


def _review(session: Session, layer: Dreaming) -> Next:
    from sevenfold.layers.l6_dreaming.review import shown

    store = layer.dreams.store
    if (id := _waits(store.state)) is None:
        return Said("  no dream waits for review")
    diff = printable(shown(store, id).diff).rstrip() or "  nothing would change any more"
    choices = {"": "", "a": "/dream accept", "r": "/dream reject"}
    return Offer(diff, "  a takes it over, r drops it, Enter decides later: ", choices)


def _accept(session: Session, layer: Dreaming) -> Next:
    from sevenfold.layers.l6_dreaming.review import accept

    store = layer.dreams.store
    if (id := _waits(store.state)) is None:
        return Said("  no dream waits for review")

    async def work() -> Said:
        done = await anyio.to_thread.run_sync(partial(accept, store, id))
        return Said(f"  taken over: {len(done.files)} files changed (/dream undo takes it back)")

    return Doing("taking it over", work)


def _reject(session: Session, layer: Dreaming) -> Next:
    from sevenfold.layers.l6_dreaming.review import reject

    store = layer.dreams.store
    if (id := _waits(store.state)) is None:
        return Said("  no dream waits for review")
    reject(store, id)
    return Said("  dropped; nothing is changed")


def _undo(session: Session, layer: Dreaming) -> Next:
    return Said(f"  {told(taken_back(layer.dreams.store, Author('user', session.id)))}")


def _kill(session: Session, layer: Dreaming) -> Next:
    if not layer.dreams.kill():
        return Said(
            "  no dream is going on in this session; 'sevenfold dream kill' stops any other"
        )
    return Said("  stopping it; the memories stay as they were")


# --- /tasks ---------------------------------------------------------------------------------------------


def tasks(session: Session, rest: str) -> Next:
    """`/tasks` lists what goes on in the background, `/tasks kill NAME` stops the dream or an agent."""
    layer = dreaming_of(session)
    if rest:
        word, _, name = rest.partition(" ")
        if word != "kill" or not name.strip():
            raise Mistake("/tasks lists what goes on; /tasks kill NAME stops the dream or an agent")
        if name.strip() != DREAM:
            return stop(session, name.strip())
        return _kill(session, layer) if layer else Said("  no dream is going on")
    lines = [_line_dream_chat(task) for task in tasks_of(session)] + at_work(session)
    lines = lines or ["  nothing is going on"]
    if layer is not None:
        lines += _of_dreams(layer)
    return Said("\n".join(lines))


def _line_dream_chat(task: Task) -> str:
    return f"  {task.name}: {task.said}" if task.said else f"  {task.name}"


def _of_dreams(layer: Dreaming) -> list[str]:
    if (running := layer.dreams.running) is not None:
        return [f"    {turn}" for turn in running.turns[-_TURNS:]]
    state = layer.dreams.store.state
    if _waits(state) is not None:
        return ["  dream: ready for review (/dream review)"]
    known = last_known(state)
    return [f"  last dream: {known.said}"] if known is not None and known.said else []


def _shown(running: Snapshot) -> str:
    rows = [f"    {turn}" for turn in running.turns[-_TURNS:]]
    touched = ", ".join(running.touched)
    head = f"  dreaming: {running.phase}{f' {touched}' if touched else ''}; /dream kill stops it"
    return "\n".join([head, *rows])
