"""On a real inference server an extraction reads the prefix of its conversation from the cache.

llama.cpp compares token by token and says what it read; so small a model saves nothing that is founded.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from flows.test_forks_on_llama import shares
from kit import make_parts
from layers.l5_durable_memory.learning import SESSION, Learner
from llama import LETTER, talking, weights_or_fail
from msgspec.structs import replace

from sevenfold.core.events import Failed, Forked, Replied, Sending
from sevenfold.core.transcript import Mark
from sevenfold.layers.l5_durable_memory.extraction import Extraction
from sevenfold.layers.l5_durable_memory.extraction_tools import make_fork_tools
from sevenfold.layers.l7_agents.forks import ForkRunner
from sevenfold.layers.parts import ExtractionParts, PlainConversation
from sevenfold.storage.waiting_notes import CURSOR
from sevenfold.tools.file_tools import EDIT_SCHEMA, WRITE_SCHEMA

pytestmark = [pytest.mark.anyio, pytest.mark.real, pytest.mark.xdist_group("llama")]


async def test_an_extraction_reads_the_prefix_of_its_conversation(tmp_path: Path) -> None:
    learner = Learner(tmp_path)
    async with talking(weights_or_fail(), window=8_192) as talk:
        turn, tell = talk.turn, talk.events.append
        turn.frame = replace(turn.frame, tools=(WRITE_SCHEMA, EDIT_SCHEMA))
        known = PlainConversation(talk.model, thresholds=talk.thresholds, entries=turn.transcript.entries)
        learning = ExtractionParts(
            learner.store,
            SESSION,
            lambda: make_fork_tools(learner.workspace, learner.permissions),
            learner.tray.start,
            learner.workspace.locate,
        )
        parts = make_parts(
            conversation=known,
            clock=talk.clock,
            events=talk.events,
            fork=ForkRunner(known, talk.ledger, talk.clock, tell),
            extraction=learning,
        )
        layer = Extraction(parts)

        await talk.say(LETTER * 8 + "Where was that?")
        parent = await talk.say("And please note that I walk along this river on Sundays.")
        assert parent.prompt > 300

        (mark,) = await layer(turn.request)
        assert isinstance(mark, Mark)
        assert mark.name == CURSOR
        (forked,) = [event for event in talk.events if isinstance(event, Forked)]
        assert forked.kind == "extract"
        asked = [line.usage for line in talk.ledger.lines if line.source == "fork:extract"]
        assert len(asked) == forked.steps
        assert all(shares(parent.prompt, usage) for usage in asked)
        went_on = await talk.say("With whom?")
        assert shares(parent.prompt, went_on), "and the conversation reads on from where it was"
    assert not [event for event in talk.events if isinstance(event, Failed)]
    assert [event.source for event in talk.events if isinstance(event, Sending)].count("main") == 3
    replied = [event for event in talk.events if isinstance(event, Replied)]
    assert [event.source for event in replied].count("main") == 3
    assert learner.saved() == []
