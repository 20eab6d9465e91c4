"""The frame of a session's requests, and what changes when it goes on with another model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.models import default_params
from sevenfold.protocols import Model, Tool
from sevenfold.recording import frame_mark
from sevenfold.request import Frame
from sevenfold.settings import Settings
from sevenfold.tokens import Calibration, Thresholds
from sevenfold.transcript import Mark, Unthink, View, What
from sevenfold.workplace import Workplace

PROMPT: Final = Path(__file__).with_name("system_prompt.md")


def new_frame(at: Workplace, model: Model, tools: Iterable[Tool]) -> Frame:
    """What every request of a new session has in front of its messages."""
    return Frame(
        model.name,
        (system_prompt(),),
        tuple(tool.schema for tool in tools),
        default_params(model.name, at.access),
        at.settings.cache_ttl,
    )


def system_prompt() -> str:
    return PROMPT.read_text(encoding="utf-8").strip()


def frame_for(model: Model, frame: Frame, at: Workplace) -> Frame:
    """The same frame for another model; how a model is asked to think is its own."""
    return replace(frame, model=model.name, params=default_params(model.name, at.access))


def handover(model: Model, frame: Frame, view: View, learned: Calibration | None) -> list[What]:
    """What another model must not inherit: how tokens were counted, and thoughts bound elsewhere."""
    calibration = Mark("calibration", msgspec.to_builtins(learned or Calibration()))
    whats: list[What] = [frame_mark(frame), calibration]
    able = model.capabilities
    if len(view) and able.binds_thinking and not able.drops_thinking:
        whats.append(Unthink(view[0].id))
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
