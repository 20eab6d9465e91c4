"""What somebody wants an agent to do, and the words that it is begun with."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from itertools import count
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.errors import Refused
from sevenfold.layers.l7_agents.definitions import GENERAL, Definition
from sevenfold.layers.l7_agents.frames import LEAD
from sevenfold.layers.l7_agents.names import checked_name, poses, same_name
from sevenfold.layers.l7_agents.parents import FORK, Parent
from sevenfold.messages import Json, Message, user, whole_characters
from sevenfold.models.directives import write_directive
from sevenfold.protocols import ToolFailed

DIRECTIVE: Final = "agent"
"""The kind of the directive that a fork begins with."""
_DESCRIBED: Final = 80
_OTHER: Final = re.compile(r"[^A-Za-z0-9]+")
_PLACE: Final = re.compile(r"\{\{(\w+)\}\}")


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What the Agent tool was called with."""

    description: str
    prompt: str
    kind: str = GENERAL
    name: str = ""
    background: bool = False
    worktree: bool = False
    model: str | None = None
    teammate: bool = False

    @property
    def forks(self) -> bool:
        return self.kind == FORK

    def by(self, definition: Definition) -> Order:
        """With what its definition says besides."""
        return replace(
            self,
            kind=definition.name,
            background=self.background or definition.background,
            worktree=self.worktree or definition.isolation == "worktree",
        )


def read_order(args: Json) -> Order:
    """What is asked for; `ToolFailed` with the reason when it cannot be had."""
    kind = args.get("subagent_type", "").strip() or GENERAL
    order = Order(
        description=" ".join(args["description"].split())[:_DESCRIBED],
        prompt=args["prompt"].strip(),
        kind=FORK if kind.casefold() == FORK else kind,
        name=args.get("name", "").strip(),
        background=bool(args.get("run_in_background") or args.get("teammate")),
        worktree=args.get("isolation") == "worktree",
        model=args.get("model", "").strip() or None,
        teammate=bool(args.get("teammate")),
    )
    if not order.prompt:
        raise ToolFailed("the prompt is empty: say what the agent is to do")
    if order.name:
        _check_name(order.name)
    elif order.teammate:
        raise ToolFailed("a teammate needs a name: others write to it by that")
    if order.forks and (order.teammate or order.model):
        what = "be a teammate" if order.teammate else "have another model"
        raise ToolFailed(f"a fork goes on from this very conversation and cannot {what}")
    return order


def _check_name(name: str) -> None:
    if name == LEAD:
        raise ToolFailed(f"the name {name} means somebody else: choose another")
    try:
        checked_name(name)
    except Refused as error:
        raise ToolFailed(str(error)) from None


def check_depth(order: Order, parent: Parent, deepest: int) -> None:
    """Agents do not start agents for ever."""
    if order.forks and parent.is_fork:
        raise ToolFailed("a fork cannot fork: do this yourself, or start another type of agent")
    if parent.depth >= deepest:
        raise ToolFailed(
            f"agents go {deepest} deep at most (agents.depth), and this one is at {parent.depth}: "
            "do it yourself"
        )


def free_name(kind: str, taken: Collection[str]) -> str:
    """A name made from its type that nobody has."""
    stem = _OTHER.sub("-", kind).strip("-").lower()[:40]
    if not stem or poses(f"{stem}-1"):
        stem = "agent"
    numbered = (f"{stem}-{n}" for n in count(1))
    return next(name for name in numbered if not any(same_name(name, one) for one in taken))


def system_of(definition: Definition, name: str, *, teammate: bool) -> tuple[str, ...]:
    """What its requests begin with. Agents of one kind share it, and so its cache."""
    said = definition.prompt.strip()
    if definition.path is not None:  # what is built in says it itself
        said += "\n\n" + _text("agent")
    if not teammate:
        return (whole_characters(said),)
    return (whole_characters(said), _filled("teammate", name=name, lead=LEAD))


def first_words(order: Order, id: str, folder: Path | None) -> Message:
    """What the agent is asked. Of a fork it is all that differs from its siblings."""
    where = _filled("worktree", folder=str(folder)) if folder else ""
    if not order.forks:
        return user("\n\n".join(text for text in (where, order.prompt) if text))
    body = _filled("fork", folder=f" {where}" if where else "", task=order.prompt)
    return user(write_directive(DIRECTIVE, id, body))


def _filled(text: str, **values: str) -> str:
    return whole_characters(_PLACE.sub(lambda found: values[found[1]], _text(text)))


@cache
def _text(name: str) -> str:
    return Path(__file__).with_name(f"{name}.md").read_text(encoding="utf-8").strip()
