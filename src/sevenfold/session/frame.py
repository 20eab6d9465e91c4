"""The frame of a session's requests, and what changes when it goes on with another model.

What a conversation opens with: a message that says where we are.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.clock import date_of
from sevenfold.errors import ContextFull, Mistake
from sevenfold.layers.l2_microcompaction.provider import managed, wanted
from sevenfold.layers.l4_compaction.server import compacting, on_demand, without_summaries
from sevenfold.messages import Message, user
from sevenfold.models.capabilities import default_params
from sevenfold.protocols import Model, Tool
from sevenfold.request import KEPT_WARM, Frame
from sevenfold.session.log import frame_mark
from sevenfold.session.project import Workplace
from sevenfold.settings.flags import Flags
from sevenfold.settings.schema import Settings
from sevenfold.tokens import Calibration, Thresholds, measure
from sevenfold.transcript import Mark, Unthink, View, What

PROMPT: Final = Path(__file__).with_name("system_prompt.md")


def new_frame(
    at: Workplace,
    model: Model,
    tools: Iterable[Tool],
    flags: Flags,
    more: tuple[str, ...] = (),
    *,
    silences: bool = False,
) -> Frame:
    """What every request of a new session has in front of its messages; `more` is of this project.

    `silences`: a person talks to it, and may be silent for longer than the messages are kept.
    """
    caches = model.capabilities.caches_prompts
    frame = Frame(
        model.name,
        (system_prompt(), *more),
        tuple(tool.schema for tool in tools),
        ttl=at.settings.cache_ttl,
        system_ttl=at.settings.system_ttl or ("1h" if silences and caches else None),
    )
    return frame_for(model, frame, at, flags)


def system_prompt() -> str:
    return PROMPT.read_text(encoding="utf-8").strip()


def frame_for(model: Model, frame: Frame, at: Workplace, flags: Flags) -> Frame:
    """The same frame for this model; how it is asked to think, and to clear, is its own."""
    new = replace(frame, model=model.name, params=default_params(model.name, at.access))
    if wanted(flags, at.settings.micro):
        new = managed(new, model.capabilities, at.settings.micro)
    if flags.server_compact and at.settings.compaction.server == "onDemand":
        new = on_demand(new, model.capabilities)
    elif flags.server_compact:
        new = compacting(new, model.capabilities, thresholds(model, at.settings))
    return new


def handover(model: Model, frame: Frame, view: View, learned: Calibration | None) -> list[What]:
    """What another model must not inherit: how tokens were counted, and thoughts bound elsewhere."""
    calibration = Mark("calibration", msgspec.to_builtins(learned or Calibration()))
    cold = Mark(KEPT_WARM, None)  # that was another model's cache
    whats: list[What] = [frame_mark(frame), calibration, cold]
    if len(view) and model.capabilities.loses_thinking:
        whats.append(Unthink(view[0].id))
    if not model.capabilities.server_compaction:
        whats += without_summaries(view)
    return whats


def first_budget(model: Model, settings: Settings) -> int:
    """Tokens of a reply at first; 0, all there is, where asking again could not give more room."""
    asked = settings.max_output_tokens
    return asked if asked < model.capabilities.max_output else 0


def thresholds(model: Model, settings: Settings) -> Thresholds:
    return Thresholds.of(
        model.capabilities.window,
        model.capabilities.max_output,
        compact_percent=settings.auto_compact_percent,
        block_limit=settings.block_limit,
    )


def tool_changes(stored: Frame, tools: Iterable[Tool]) -> Iterator[str]:
    """How the tools at hand differ from those the session began with, in words for people."""
    was = {str(tool.get("name")) for tool in stored.tools}
    now = {tool.name for tool in tools}
    if new := sorted(now - was):
        yield f"this session began without {', '.join(new)}: not offered to it"
    if gone := sorted(was - now):
        yield f"this session had {', '.join(gone)}, which is not here any more"


def context(*lines: str) -> Message:
    """Something we add to the conversation, marked as ours and not the person's."""
    text = "\n".join(lines).replace("</context", "&lt;/context")  # it may come from a hostile file
    return user(f"<context>\n{text}\n</context>")


def surroundings(at: float, cwd: Path, tree: Path) -> dict[str, str]:
    """What the model must know of where it is; said again when any of it has changed."""
    return {
        "Date": date_of(at),
        "Working folder": str(cwd),
        "Project": str(tree),
        "Git branch": _branch(tree) or "none: not a git repository",
        "System": f"{platform.system()} {platform.release()}",
    }


def news(before: dict[str, str], now: dict[str, str]) -> Message | None:
    """A message with what is new, or None."""
    lines = [f"{name}: {value}" for name, value in now.items() if before.get(name) != value]
    if not lines:
        return None
    return context(*lines) if not before else context("This has changed:", *lines)


def next_day(before: dict[str, str], at: float) -> tuple[Message | Mark, ...]:
    """The new date, where midnight has passed since it was last said; else nothing."""
    today = date_of(at)
    if before.get("Date", today) == today:
        return ()
    said = context("This has changed:", f"Date: {today}")
    return said, Mark("surroundings", {**before, "Date": today})


def _branch(tree: Path) -> str:
    """The checked-out branch, read from the file: running git in an unknown folder can run its code."""
    git = tree / ".git"
    if git.is_file():
        git = tree / _first_line(git).removeprefix("gitdir:").strip()
    head = _first_line(git / "HEAD")[:300]
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else head[:12]


def _first_line(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.readline(1_000).strip()
    except OSError:
        return ""


def check(message: Message, room: int) -> None:
    """What no provider would take must not get into the transcript, where it would stay."""
    if not message.says_something:
        raise Mistake("there is nothing to ask: the message is empty")
    if (size := measure(message).tokens()) > room > 0:
        raise ContextFull(
            f"the message alone is about {size:,} tokens and at most {room:,} fit; "
            "put it into a file and ask about that"
        )
