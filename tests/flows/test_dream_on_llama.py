"""On a real inference server a dream reads its parent's prefix from the cache, as the server counts.

llama.cpp compares token by token, so nothing is lost to rounding: what is not read is the directive.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from layers.l6_dreaming.sleeping import Bed
from llama import LETTER, talking, weights_or_fail

from sevenfold.layers.l6_dreaming.workers import DreamContext, ModelDreamer
from sevenfold.layers.l7_agents.forks import ForkRunner
from sevenfold.layers.parts import PlainConversation

pytestmark = [pytest.mark.anyio, pytest.mark.real, pytest.mark.xdist_group("llama")]
SHARE = 0.99
WINDOW = 8_192
"""Of the model; the directive of a dream alone has some 1,500 tokens."""


async def test_a_dream_reads_the_prefix_of_its_parent(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    bed.save("river", "Where we walked", "We walked along the river.")
    before = bed.files()
    async with talking(weights_or_fail(), WINDOW) as talk:
        await talk.say(LETTER * 8 + "Where was that?")
        parent = await talk.say("And what came into sight?")
        limits = talk.thresholds
        told = talk.events.append
        forks = ForkRunner(PlainConversation(talk.model, thresholds=limits), talk.ledger, talk.clock, told)
        known = DreamContext(transcripts=bed.transcripts, now=bed.clock.now(), steps=1)
        think = ModelDreamer(forks, talk.turn.request, bed.confined, bed.clock, lambda: known, 64)
        ended = await bed.dreams.dream(think, by_hand=True)
        went_on = await talk.say("With whom?")
    assert ended.status == "completed", ended.why
    assert parent.prompt > 300, "one in a hundred must be more than a token or two"
    assert ended.usage.cache_read >= SHARE * parent.prompt
    assert ended.usage.prompt > parent.prompt + 800, "the directive was sent"
    assert went_on.cache_read >= SHARE * parent.prompt, "the parent reads on from where it was"
    assert {f: t for f, t in bed.files().items() if f in before} == before
