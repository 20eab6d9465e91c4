"""Old thinking leaves the view when the cache is cold, and only then."""

from __future__ import annotations

import pytest
from kit import make_parts
from msgspec.structs import replace

from sevenfold.core.events import Cleared, Event
from sevenfold.core.messages import Message, Text, Thinking, ToolResult, ToolUse, assistant, user
from sevenfold.core.protocols import Capabilities
from sevenfold.core.request import Frame, Request, has_paired_tools
from sevenfold.core.tokens import Pressure, Thresholds
from sevenfold.core.transcript import Entry, Reply, Transcript, Unthink, View
from sevenfold.layers.l2_microcompaction.microcompaction import OldThinking
from sevenfold.settings.layers import MicroSettings
from sevenfold.settings.schema import Settings

pytestmark = pytest.mark.anyio
KEPT = MicroSettings().thinking_replies
FRAME = Frame("claude-opus-4-5")


def thoughtful(turns: int, *, calling: bool = False) -> Transcript:
    """So many questions, each answered with thinking; at last the user speaks, or a tool has run."""
    log = Transcript(lambda: 0.0)
    for n in range(turns):
        log.add(user(f"question {n}"))
        log.add(Reply(assistant(Thinking(f"thought {n} " * 50, "signed"), Text(f"answer {n}"))), by="model")
    log.add(user("and now?"))
    if calling:
        for n in range(turns):
            use = ToolUse(f"t{n}", "Bash", {"command": "ls"})
            log.add(Reply(assistant(Thinking(f"step {n}", "signed"), use)), by="model")
            log.add(Message("user", (ToolResult(use.id, "a.py"),)), by="tools")
    return log


async def dropped(
    log: Transcript,
    *,
    warm: bool = False,
    able: Capabilities | None = None,
    model: str = FRAME.model,
    keep: int = KEPT,
) -> tuple[list[Unthink], list[Event]]:
    events: list[Event] = []
    settings = Settings(micro=MicroSettings(thinking_replies=keep))
    layer = OldThinking(make_parts(able=able or Capabilities(), events=events, settings=settings))
    pressure = Pressure(50_000, Thresholds.of(200_000, 32_000), 600.0, warm=warm)
    handed = await layer.fit(Request(replace(FRAME, model=model), log.view), pressure)
    return [one for one in handed if isinstance(one, Unthink)], events


def thoughts(view: View) -> list[str]:
    blocks = (block for placed in view for block in placed.message.content)
    return [block.thinking.strip() for block in blocks if isinstance(block, Thinking)]


async def test_on_a_cold_cache_thinking_older_than_the_newest_replies_goes() -> None:
    log = thoughtful(KEPT + 4)
    [edit], [event] = await dropped(log)
    after = log.view.after(Entry(999, 0.0, edit, OldThinking.label))

    assert len(thoughts(log.view)) == KEPT + 4
    assert [one.split()[1] for one in thoughts(after)] == [str(n) for n in range(4, KEPT + 4)]
    assert [m.text for m in after.messages] == [m.text for m in log.view.messages], "words stay"
    assert isinstance(event, Cleared)
    assert event.tokens == log.view.calibration.tokens(log.view.size - after.size)


async def test_a_tool_loop_that_is_going_on_keeps_all_its_thinking() -> None:
    log = thoughtful(KEPT + 4, calling=True)
    [edit], _ = await dropped(log)
    after = log.view.after(Entry(999, 0.0, edit, OldThinking.label))

    assert [one for one in thoughts(after) if one.startswith("step")] == [
        f"step {n}" for n in range(KEPT + 4)
    ]
    assert not [one for one in thoughts(after) if one.startswith("thought")]
    assert has_paired_tools(after)


@pytest.mark.parametrize(
    "fields",
    [
        {"warm": True},
        {"able": Capabilities(binds_thinking=True)},
        {"model": "claude-sonnet-4"},
        {"keep": 0},
    ],
    ids=["warm", "bound", "left out by the provider", "off"],
)
async def test_else_every_thought_stays(fields: dict[str, object]) -> None:
    assert await dropped(thoughtful(KEPT + 4), **fields) == ([], [])  # type: ignore[arg-type]


async def test_a_provider_that_drops_unreadable_thinking_lets_it_go() -> None:
    able = Capabilities(binds_thinking=True, drops_thinking=True)
    assert (await dropped(thoughtful(KEPT + 4), able=able))[0]
