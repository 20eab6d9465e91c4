"""`/agents`, `/send`, `/dream` and `/tasks`: agents, dreams and other work in the background."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

import anyio.to_thread
import msgspec

from sevenfold.cli.commands.dream_display import describe_dreams, describe_undo, undo_last_dream
from sevenfold.cli.output import (
    CommandChoice,
    CommandOutcome,
    CommandReply,
    SlowCommand,
    format_count,
    format_tokens,
    format_work_name,
    make_printable,
    to_one_line,
)
from sevenfold.cli.terminal import DREAM, TASK_NAMES
from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Mistake
from sevenfold.core.events import Event, Notice, Progress
from sevenfold.core.protocols import Change, ToolFailed
from sevenfold.layers.l6_dreaming.dreaming import DreamGates, Dreaming
from sevenfold.layers.l6_dreaming.progress import DreamSnapshot, read_last_snapshot
from sevenfold.layers.l7_agents.members import AgentRow
from sevenfold.memory.dreams.stage import list_waiting_stages
from sevenfold.memory.history.revisions import Author
from sevenfold.session.session import Session

USAGE: Final = "/agents [show NAME|stop NAME]"
MOST_NAMED: Final = 3  # Agents, tasks or commands that the footer names


def run_agents(session: Session, rest: str) -> CommandOutcome:
    """`/agents` lists the agents and their kinds; `show` and `stop` are about one of them."""
    word, _, name = rest.partition(" ")
    if not rest:
        kinds = ", ".join(session.agents.definitions)
        lines = [_format_agent(one) for one in session.agents.agents]
        lines = lines or ["  no agents yet; the model starts them, or ask for one"]
        lines.append(f"  kinds: {kinds}, fork ('sevenfold agents show NAME' describes one)")
        return CommandReply("\n".join(lines))
    if word not in ("show", "stop") or not name.strip():
        raise Mistake(USAGE)
    return _show_agent(session, name.strip()) if word == "show" else stop_agent(session, name.strip())


def stop_agent(session: Session, name: str) -> CommandOutcome:
    """Stop an agent; its work and its transcript stay."""
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


def _format_agent(one: AgentRow) -> str:
    doing = one.doing or one.description or to_one_line(one.said, 60)
    used = f"{format_count(one.steps, 'request')}, {format_tokens(one.usage.total)} tokens"
    return f"  {one.name} ({one.kind}) {one.status}: {to_one_line(make_printable(doing), 80)} · {used}"


def _show_agent(session: Session, name: str) -> CommandOutcome:
    member = session.agents.find(name)
    if member is None:
        raise Mistake(f"there is no agent {name}; /agents lists them")
    one = member.listed
    lines = [_format_agent(one)]
    lines += [f"  transcript: {one.path}"] if one.path is not None else []
    lines += [f"  work tree: {one.worktree}"] if one.worktree else []
    lines += [f"  {one.why}"] if one.why else []
    return CommandReply(make_printable("\n".join([*lines, "", one.said or one.why])).rstrip())


DREAM_USAGE: Final = "/dream [status|review|accept|reject|undo|kill]"
_TURNS: Final = 5  # Last turns of a running dream that are shown
_NO_REVIEW: Final = "  no dream waits for review"


def find_dreaming_layer(session: Session) -> Dreaming | None:
    """The layer that dreams in a session; None where that is switched off."""
    return next((layer for layer in session.turn.layers.rest if isinstance(layer, Dreaming)), None)


def run_dream(session: Session, rest: str) -> CommandOutcome:
    """`/dream` starts a dream in the background; the other words are about the last, or a waiting one."""
    layer = find_dreaming_layer(session)
    if layer is None:
        return CommandReply("  nothing dreams in this session: memory or the flag dream is off")
    run = {
        "": _start_dream,
        "status": _show_status,
        "review": _review_dream,
        "accept": _accept_dream,
        "reject": _reject_dream,
        "undo": _undo_dream,
        "kill": _kill_dream,
    }.get(rest)
    if run is None:
        raise Mistake(DREAM_USAGE)
    return run(session, layer)


def _start_dream(session: Session, layer: Dreaming) -> CommandOutcome:
    if (running := layer.dreams.running) is not None:
        touched = ", ".join(running.touched)
        head = f"  dreaming: {running.phase}{f' {touched}' if touched else ''}; /dream kill stops it"
        return CommandReply("\n".join([head, *_format_turns(running)]))

    async def work() -> Sequence[Change]:
        ended = await layer.asked(session.request, by_hand=True)
        if ended.status == "skipped":
            session.emit(Notice(f"no dream now: {ended.why}"))
        return ()

    session.tray.start(DREAM, work)
    return CommandReply(
        "  dreaming in the background; /tasks shows how it goes, /tasks kill dream stops it"
    )


def _show_status(session: Session, layer: Dreaming) -> CommandOutcome:
    dreams = layer.dreams
    gates = DreamGates(
        dreams.lock, dreams.transcripts, dreams.session, dreams.settings, SystemClock(), lambda: True
    )
    lines, _ = describe_dreams(dreams.store, gates, "/dream review")
    return CommandReply("\n".join(f"  {make_printable(line)}" for line in lines))


def _review_dream(session: Session, layer: Dreaming) -> CommandOutcome:
    from sevenfold.layers.l6_dreaming.review import find_newest_review, preview_review

    store = layer.dreams.store
    if (id := find_newest_review(store.local)) is None:
        return CommandReply(_NO_REVIEW)
    diff = make_printable(preview_review(store, id).diff).rstrip() or "  nothing would change any more"
    choices = {"": "", "a": "/dream accept", "r": "/dream reject"}
    return CommandChoice(diff, "  a takes it over, r drops it, Enter decides later: ", choices)


def _accept_dream(session: Session, layer: Dreaming) -> CommandOutcome:
    from sevenfold.layers.l6_dreaming.review import accept_review, find_newest_review

    store = layer.dreams.store
    if (id := find_newest_review(store.local)) is None:
        return CommandReply(_NO_REVIEW)

    async def work() -> CommandReply:
        done = await anyio.to_thread.run_sync(partial(accept_review, store, id))
        return CommandReply(f"  taken over: {len(done.files)} files changed (/dream undo takes it back)")

    return SlowCommand("taking it over", work)


def _reject_dream(session: Session, layer: Dreaming) -> CommandOutcome:
    from sevenfold.layers.l6_dreaming.review import find_newest_review, reject_review

    store = layer.dreams.store
    if (id := find_newest_review(store.local)) is None:
        return CommandReply(_NO_REVIEW)
    reject_review(store, id)
    return CommandReply("  dropped; nothing is changed")


def _undo_dream(session: Session, layer: Dreaming) -> CommandOutcome:
    undone = describe_undo(undo_last_dream(layer.dreams.store, Author("user", session.id)))
    return CommandReply(f"  {undone}")


def _kill_dream(session: Session, layer: Dreaming) -> CommandOutcome:
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
        return _kill_dream(session, layer) if layer else CommandReply("  no dream is going on")
    lines = [
        f"  {task.name}: {task.said}" if task.said else f"  {task.name}" for task in list_tasks(session)
    ]
    lines += [_format_agent(one) for one in session.agents.agents if one.status in ("running", "idle")]
    lines = lines or ["  nothing is going on"]
    lines += _describe_waiting(session)
    if layer is not None:
        lines += _describe_last_dream(layer)
    return CommandReply("\n".join(lines))


def _describe_waiting(session: Session) -> list[str]:
    """The words that no extraction has looked at yet."""
    if (layer := session.extraction) is None:
        return []
    lines: list[str] = []
    if own := layer.count_waiting(session.view):
        lines.append(f"  waits for extraction: {format_count(own, 'message')} of this session")
    if earlier := len(layer.list_earlier()):
        lines.append(f"  waits for extraction: words of {format_count(earlier, 'other session')}")
    return lines


def _describe_last_dream(layer: Dreaming) -> list[str]:
    if (running := layer.dreams.running) is not None:
        return _format_turns(running)
    state = layer.dreams.store.local
    if list_waiting_stages(state):
        return ["  dream: ready for review (/dream review)"]
    known = read_last_snapshot(state)
    return [f"  last dream: {known.said}"] if known is not None and known.said else []


def _format_turns(running: DreamSnapshot) -> list[str]:
    return [f"    {turn}" for turn in running.turns[-_TURNS:]]


class BackgroundTaskRow(msgspec.Struct, frozen=True):
    """One background task and its last progress."""

    name: str
    said: str = ""


class _LastProgress:
    """Keeps the last progress of each background task."""

    def __init__(self) -> None:
        self.last: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, Progress):
            self.last[_name_task(event.by)] = "" if event.done else event.said


_progress: WeakKeyDictionary[Session, _LastProgress] = WeakKeyDictionary()


def list_tasks(session: Session) -> list[BackgroundTaskRow]:
    """The background tasks of now. Progress is known from the first call on."""
    if (progress := _progress.get(session)) is None:
        progress = _progress[session] = _LastProgress()
        session.subscribe(progress)
    names = [_name_task(label) for label in session.tray.running]
    return [
        BackgroundTaskRow(name, progress.last.get(name, "").removeprefix("dreaming: ")) for name in names
    ]


def describe_background(session: Session) -> str:
    """The agents, tasks and commands that are at work now, in one line; empty if there are none."""
    agents = [one for one in session.agents.agents if one.status == "running"]
    session.tools.workspace.forget_ended()
    parts = [
        _list_work("agent", [(one.name, one.doing or one.description) for one in agents]),
        _list_work("task", [(task.name, task.said) for task in list_tasks(session)]),
        _list_work("command", [(f"process {one.pid}", "") for one in session.tools.workspace.background]),
    ]
    return " · ".join(filter(None, parts))


def describe_stops(session: Session) -> str:
    """The agents and commands that the end of a session stops; empty: none."""
    stops = [f"agent {name}" for name in session.agents.busy]
    session.tools.workspace.forget_ended()
    if commands := len(session.tools.workspace.background):
        stops.append(format_count(commands, "background command"))
    return f"stopping {', '.join(stops)}" if stops else ""


def describe_wait(session: Session) -> str:
    """What the end of a session waits for, and how to leave at once; empty: nothing."""
    if not (waits := dict.fromkeys(_name_task(label) for label in session.tray.running)):
        return ""
    most = session.settings.extraction.drain_seconds
    return (
        f"waiting for {', '.join(waits)}, at most {most:g} s; Ctrl-C leaves now, and what was said is kept"
    )


def _list_work(kind: str, rows: list[tuple[str, str]]) -> str:
    """`2 agents: scout (reads the tests), tidy`; empty without any."""
    shown = [f"{name} ({to_one_line(doing, 40)})" if doing else name for name, doing in rows[:MOST_NAMED]]
    more = [f"{len(rows) - MOST_NAMED} more"] if len(rows) > MOST_NAMED else []
    return f"{format_count(len(rows), kind)}: {', '.join(shown + more)}" if rows else ""


def _name_task(label: str) -> str:
    return TASK_NAMES.get(label, format_work_name(label))
