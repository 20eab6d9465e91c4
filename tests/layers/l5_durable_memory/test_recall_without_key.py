"""A model that cannot be asked is to choose memories: the search does, and the user hears of it once."""

from __future__ import annotations

import pytest
from kit import make_forks, make_parts
from layers.l5_durable_memory.test_selection import FOLDER, NOW, memory

from sevenfold.core.errors import NoKey
from sevenfold.core.events import Event, Failed, Notice
from sevenfold.core.messages import Message, Text, assistant, user
from sevenfold.core.transcript import Transcript
from sevenfold.layers.l5_durable_memory.recall import Recall
from sevenfold.layers.parts import RecallParts
from sevenfold.memory.recall_results import BY
from sevenfold.settings.layers import RecallSettings
from sevenfold.settings.schema import Settings
from sevenfold.testing import FakeClock, Postponed, ScriptedModel

pytestmark = pytest.mark.anyio
KEY = "claude-haiku-4-5 needs a key: set ANTHROPIC_API_KEY, or use the model 'offline'"


def no_model() -> str:
    raise NoKey(KEY)


async def test_without_a_key_for_the_model_the_search_chooses_and_it_is_said_once() -> None:
    events, background, log = list[Event](), Postponed(), Transcript(lambda: NOW)
    memories = [memory(0)]
    asked = ScriptedModel(())
    forks = make_forks(asked, events.append, FakeClock(NOW))
    sources = RecallParts(
        FOLDER,
        lambda text, limit, skip: [m for m in memories if m.file not in skip],
        newest=lambda most: memories,
        fork=forks,
        model=no_model,
        start=background.start,
    )
    settings = RecallSettings(selector="model", wait_ms=1_000, first_wait_ms=10_000)
    parts = make_parts(
        clock=FakeClock(NOW), events=events, settings=Settings(recall=settings), recall=sources
    )
    layer = Recall(parts)
    shown = list[str]()
    for question in ("what about subject 0?", "and what else is known of it?"):
        log.add(user(question))
        handed = layer.attach(log.view)
        shown += [one.text for one in handed if isinstance(one, Message)]
        log.add(*handed, by=BY)
        log.add(assistant(Text("so")), by="model")
    layer.stop()

    [text] = shown
    assert "text 0" in text
    [notice] = [event for event in events if isinstance(event, Notice)]
    assert KEY in notice.text
    assert "by search alone" in notice.text
    assert not [event for event in events if isinstance(event, Failed)]
    assert not asked.requests
