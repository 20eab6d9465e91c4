"""On a real inference server a fork reads its parent's prefix from the cache, as the server counts.

llama.cpp compares token by token, so nothing is lost to rounding: what is not read is the directive.
"""

from __future__ import annotations

import anyio
import pytest
from llama import LETTER, Talk, talking, weights_or_fail
from msgspec.structs import replace

from sevenfold.core.events import Forked
from sevenfold.core.protocols import ForkReply
from sevenfold.core.request import Request
from sevenfold.core.tokens import Usage

pytestmark = [pytest.mark.anyio, pytest.mark.real, pytest.mark.xdist_group("llama")]
SHARE = 0.99


def shares(prefix: int, usage: Usage) -> bool:
    """Whether a request found a prefix of this many tokens in the cache."""
    return usage.cache_read >= SHARE * prefix


def with_one_byte_changed(request: Request) -> Request:
    first, *rest = request.frame.system
    changed = first.replace("You", "Yon", 1)
    return replace(request, frame=replace(request.frame, system=(changed, *rest)))


async def at_once(talk: Talk, *kinds: str) -> list[ForkReply]:
    said: list[ForkReply] = []

    async def one(kind: str) -> None:
        said.append(await talk.fork(kind))

    async with anyio.create_task_group() as tasks:
        for kind in kinds:
            tasks.start_soon(one, kind)
    return said


async def test_forks_read_the_prefix_of_their_parent_and_one_changed_byte_loses_it() -> None:
    async with talking(weights_or_fail()) as talk:
        first = await talk.say(LETTER * 8 + "Where was that?")
        second = await talk.say("And what came into sight?")
        parent = await talk.say("With whom?")
        prefix = parent.prompt
        assert first.cache_read == 0, "nothing was there to be read"
        assert shares(first.prompt, second)
        assert prefix > 300, "one in a hundred must be more than a token or two"

        for kind in ("notes", "compact"):
            assert shares(prefix, (await talk.fork(kind)).usage), kind
        beside = await at_once(talk, "agent", "recall")
        assert [shares(prefix, fork.usage) for fork in beside] == [True, True]

        went_on = await talk.say("When?")
        assert shares(prefix, went_on), "the parent reads on from where it was"

        lost = await talk.fork("notes", with_one_byte_changed(talk.turn.request))
        assert not shares(prefix, lost.usage), "the same measure sees one changed byte"
        assert lost.usage.cache_read < 0.1 * prefix

        assert shares(went_on.prompt, await talk.say("Why?")), "another prompt has not evicted it"

    kinds = [event.kind for event in talk.events if isinstance(event, Forked)]
    assert sorted(kinds) == ["agent", "compact", "notes", "notes", "recall"]
    assert talk.ledger.accounts["fork:compact"].usage.hit_rate > 0.9
    assert talk.ledger.accounts["fork:notes"].cost == 0.0
