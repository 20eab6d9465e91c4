"""`/agents` and `/send` in the chat: who works beside the conversation, and writing to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sevenfold.cli.outcomes import Doing, Next, Said
from sevenfold.cli.wording import count, one_line, printable, tokens
from sevenfold.errors import Mistake
from sevenfold.layers.l7_agents.members import Listed
from sevenfold.protocols import ToolFailed
from sevenfold.session import Session

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
