"""The frame of a session's requests, and what changes when it goes on with another model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.flags import Flags
from sevenfold.layers.l2_microcompaction.api_level import managed, wanted
from sevenfold.layers.l4_compaction.server import compacting, on_demand, without_summaries
from sevenfold.models import default_params
from sevenfold.protocols import Model, Tool
from sevenfold.recording import frame_mark
from sevenfold.request import KEPT_WARM, Frame
from sevenfold.settings import Settings
from sevenfold.tokens import Calibration, Thresholds
from sevenfold.transcript import Mark, Unthink, View, What
from sevenfold.workplace import Workplace

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
