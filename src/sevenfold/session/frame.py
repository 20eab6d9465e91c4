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

from sevenfold.core.clock import format_date
from sevenfold.core.errors import ContextFull, Mistake
from sevenfold.core.messages import Message, make_context_message
from sevenfold.core.protocols import Model, Tool
from sevenfold.core.request import KEPT_WARM, Frame
from sevenfold.core.tokens import Calibration, Thresholds, measure_message
from sevenfold.core.transcript import Mark, Unthink, View, What
from sevenfold.layers.l2_microcompaction.provider import add_context_management, is_wanted
from sevenfold.layers.l4_compaction.server import (
    add_requested_compaction,
    add_server_compaction,
    remove_server_summaries,
)
from sevenfold.models.capabilities import make_default_params
from sevenfold.session.log import make_frame_mark
from sevenfold.session.project import Project
from sevenfold.settings.layers import Flags
from sevenfold.settings.schema import Settings

PROMPT: Final = Path(__file__).with_name("system_prompt.md")


def make_frame(
    at: Project,
    model: Model,
    tools: Iterable[Tool],
    flags: Flags,
    more: tuple[str, ...] = (),
    *,
    silences: bool = False,
) -> Frame:
    """Makes the frame of a new session. `more` is the part of the system prompt about this project.

    `silences`: a person talks to it, and may be silent for longer than the messages are kept.
    """
    caches = model.capabilities.caches_prompts
    frame = Frame(
        model.name,
        (read_system_prompt(), *more),
        tuple(tool.schema for tool in tools),
        ttl=at.settings.cache_ttl,
        system_ttl=at.settings.system_ttl or ("1h" if silences and caches else None),
    )
    return adapt_frame(model, frame, at, flags)


def read_system_prompt() -> str:
    return PROMPT.read_text(encoding="utf-8").strip()


def adapt_frame(model: Model, frame: Frame, at: Project, flags: Flags) -> Frame:
    """The same frame for this model; how it is asked to think, and to clear, is its own."""
    new = replace(frame, model=model.name, params=make_default_params(model.name, at.access))
    if is_wanted(flags, at.settings.micro):
        new = add_context_management(new, model.capabilities, at.settings.micro)
    if flags.server_compact and at.settings.compaction.server == "onDemand":
        new = add_requested_compaction(new, model.capabilities)
    elif flags.server_compact:
        new = add_server_compaction(new, model.capabilities, make_thresholds(model, at.settings))
    return new


def plan_model_change(model: Model, frame: Frame, view: View, learned: Calibration | None) -> list[What]:
    """The changes for another model: its own token count, and no thinking that is bound elsewhere."""
    calibration = Mark("calibration", msgspec.to_builtins(learned or Calibration()))
    cold = Mark(KEPT_WARM, None)  # that was another model's cache
    whats: list[What] = [make_frame_mark(frame), calibration, cold]
    if len(view) and model.capabilities.loses_thinking:
        whats.append(Unthink(view[0].id))
    if not model.capabilities.server_compaction:
        whats += remove_server_summaries(view)
    return whats


def choose_first_budget(model: Model, settings: Settings) -> int:
    """Tokens of a reply at first; 0, all there is, where asking again could not give more room."""
    asked = settings.max_output_tokens
    return asked if asked < model.capabilities.max_output else 0


def make_thresholds(model: Model, settings: Settings) -> Thresholds:
    return Thresholds.of(
        model.capabilities.window,
        model.capabilities.max_output,
        compact_percent=settings.auto_compact_percent,
        block_limit=settings.block_limit,
    )


def describe_tool_changes(stored: Frame, tools: Iterable[Tool]) -> Iterator[str]:
    """Says how the tools at hand differ from those the session began with."""
    was = {str(tool.get("name")) for tool in stored.tools}
    now = {tool.name for tool in tools}
    if new := sorted(now - was):
        yield f"this session began without {', '.join(new)}: not offered to it"
    if gone := sorted(was - now):
        yield f"this session had {', '.join(gone)}, which is not here any more"


def describe_surroundings(at: float, cwd: Path, tree: Path) -> dict[str, str]:
    """The model's surroundings: date, folders, branch, system. They are told again when they change."""
    return {
        "Date": format_date(at),
        "Working folder": str(cwd),
        "Project": str(tree),
        "Git branch": _branch(tree) or "none: not a git repository",
        "System": f"{platform.system()} {platform.release()}",
    }


def make_news_message(before: dict[str, str], now: dict[str, str]) -> Message | None:
    """A message with what is new, or None."""
    lines = [f"{name}: {value}" for name, value in now.items() if before.get(name) != value]
    if not lines:
        return None
    return make_context_message(*lines) if not before else make_context_message("This has changed:", *lines)


def make_date_news(before: dict[str, str], at: float) -> tuple[Message | Mark, ...]:
    """The new date, where midnight has passed since it was last said; else nothing."""
    today = format_date(at)
    if before.get("Date", today) == today:
        return ()
    said = make_context_message("This has changed:", f"Date: {today}")
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


def check_message(message: Message, room: int) -> None:
    """Raises if a message is empty or too long. No provider would take it, and it would stay in the log."""
    if not message.says_something:
        raise Mistake("there is nothing to ask: the message is empty")
    if (size := measure_message(message).tokens()) > room > 0:
        raise ContextFull(
            f"the message alone is about {size:,} tokens and at most {room:,} fit; "
            "put it into a file and ask about that"
        )
