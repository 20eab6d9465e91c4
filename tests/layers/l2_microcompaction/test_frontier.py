"""On the simulator's prompt cache: a clear writes again only what stands behind its frontier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from kit import extends, make_parts
from layers.l2_microcompaction.talks import PLAIN_SUMS, need_file, text_of
from layers.simulated import Conversation, conversation
from msgspec.structs import replace

from sevenfold.cache.prefix import FRONTIER
from sevenfold.core.errors import StepLimitReached
from sevenfold.core.events import CacheBroke, Cleared, Failed, Sending
from sevenfold.core.messages import Json, user
from sevenfold.core.protocols import Change, Fit, Layers
from sevenfold.core.request import Request, encode_prefix
from sevenfold.core.tokens import Pressure
from sevenfold.core.transcript import Mark, Transcript
from sevenfold.layers.l2_microcompaction.microcompaction import Microcompaction
from sevenfold.settings.layers import MicroSettings
from sevenfold.settings.schema import Settings
from sevenfold.simulator.ledger import LedgerRow
from sevenfold.testing import FakeTools
from sevenfold.turn import Turn

pytestmark = pytest.mark.anyio
KEPT, GOES, LARGE, NEEDED = "mcp__notes__get", "Bash", "Grep", "Read"


def script(*tools: str, at_once: int = 1, of_these: Sequence[int] | None = None) -> Callable[[Json], Any]:
    """A model that calls these tools one after the other, or so many at once in (some of) the steps."""
    steps = iter(enumerate(tools))

    def reply(request: Json) -> list[Json]:
        n, tool = next(steps, (0, ""))
        if not tool:
            return [{"type": "text", "text": "Done with all of them."}]
        return [
            {"type": "tool_use", "id": f"t{n}_{i}", "name": tool, "input": {"command": f"{n}.{i}"}}
            for i in range(at_once if of_these is None or n in of_these else 1)
        ]

    return reply


class WithoutFrontier:
    """The same layer, whose frontier nobody marks."""

    def __init__(self, layer: Fit) -> None:
        self._layer = layer

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        handed = await self._layer.fit(request, pressure)
        return [w for w in handed if not (isinstance(w, Mark) and w.name == FRONTIER)]


def clearing(
    talk: Conversation, folder: Path, weights: dict[str, float] | None = None, **changes: Any
) -> Microcompaction:
    need = need_file(folder, **weights or {})
    settings: MicroSettings = replace(PLAIN_SUMS, need_model=need, **changes)
    return Microcompaction(
        make_parts(
            talk.model,
            folder=folder / "tool-results",
            events=talk.events,
            expect=talk.ledger.expect,
            settings=Settings(micro=settings),
        )
    )


def turn_of(
    talk: Conversation,
    layer: Fit,
    size: int = 12_000,
    transcript: Transcript | None = None,
    kept: int = 6_000,
) -> Turn:
    turn = talk.turn(Layers(fit=(layer,)), transcript, max_steps=200)
    sizes = {KEPT: kept, GOES: size, LARGE: 40_000, NEEDED: size}
    turn.tools = FakeTools(
        {name: lambda use, n=n: text_of(use.id, n) for name, n in sizes.items()}  # type: ignore[misc]
    )
    return turn


def clears(talk: Conversation) -> list[tuple[Cleared, LedgerRow, LedgerRow]]:
    """Each clear with the request before it and the one that sent it."""
    found, sent = list[tuple[Cleared, LedgerRow, LedgerRow]](), 0
    rows = list(talk.sim.ledger.rows)
    for event in talk.events:
        if isinstance(event, Sending):
            sent += 1
        elif isinstance(event, Cleared):
            found.append((event, rows[sent - 1], rows[sent]))
    return found


def reads_all_that_is_the_same(row: LedgerRow) -> bool:
    """All but the last call before the change: no request has ended behind that."""
    assert row.shared is not None
    assert row.shared.diverged, "something did change"
    return 0.96 * row.shared.tokens < row.tokens.cache_read <= row.shared.tokens


def prompt_of(row: LedgerRow) -> int:
    return row.tokens.input + row.tokens.cache_write_5m + row.tokens.cache_read


LONG_TALK = [KEPT] * 25 + [GOES] * 17
"""About 40,000 tokens that stay, then results that go; 28 blocks lie between the first and the end."""


@pytest.mark.parametrize("at_once", [1, 30])
async def test_a_clear_reads_all_before_its_frontier_and_writes_only_what_is_behind(
    tmp_path: Path, at_once: int
) -> None:
    goes, stays_of = (12_000, 6_000) if at_once == 1 else (800, 200)
    async with conversation(script(*LONG_TALK, at_once=at_once)) as talk:
        turn = turn_of(talk, clearing(talk, tmp_path), goes, kept=stays_of)
        await turn.run(user("look at all of it"))

        (event, before, after), *_ = clears(talk)
        whole = prompt_of(after)
        assert reads_all_that_is_the_same(after)
        assert after.tokens.cache_read + after.tokens.cache_write_5m == whole
        assert after.tokens.cache_read < 0.9 * prompt_of(before)
        if at_once == 1:
            assert whole - after.tokens.cache_read == pytest.approx(event.rewritten, rel=0.1)
            assert prompt_of(before) - whole == pytest.approx(event.tokens, rel=0.2)


async def test_without_the_mark_nearly_everything_would_be_written_again(tmp_path: Path) -> None:
    read, written = {}, {}
    for name, wrap in (("with", lambda layer: layer), ("without", WithoutFrontier)):
        (tmp_path / name).mkdir()
        async with conversation(script(*LONG_TALK)) as talk:
            turn = turn_of(talk, wrap(clearing(talk, tmp_path / name)))
            await turn.run(user("look at all of it"))
            (_, _, after), *_ = clears(talk)
            read[name] = after.tokens.cache_read
            written[name] = after.tokens.cache_write_5m
            system = in_front(talk)

    assert read["without"] <= system, "only the system prompt is found"
    assert read["with"] > 8 * read["without"]
    assert written["without"] > 2.5 * written["with"]
    whole = read["without"] + written["without"]
    assert read["with"] + written["with"] == pytest.approx(whole, rel=0.001)


async def test_so_does_every_clear_that_follows(tmp_path: Path) -> None:
    """What the first clear wrote again has none of its old entries in it: one is left for the next."""
    async with conversation(script(*[KEPT] * 10, *[GOES] * 90)) as talk:
        turn = turn_of(talk, clearing(talk, tmp_path))
        await turn.run(user("look at all of it"))

        found = clears(talk)
        assert len(found) >= 5
        for event, before, after in found:
            behind = prompt_of(after) - after.tokens.cache_read
            assert behind == pytest.approx(event.rewritten, rel=0.12)
            assert behind < 0.55 * prompt_of(before)
            assert reads_all_that_is_the_same(after)
        reads = [after.tokens.cache_read for _, _, after in found]
        assert reads == sorted(reads)


async def test_a_clear_among_what_the_last_one_wrote_again_reads_up_to_the_frontier_of_that(
    tmp_path: Path,
) -> None:
    """Far from both marks: what was needed in the first turn is not in the second, and goes too."""
    first = [KEPT] * 10 + [LARGE] + [KEPT] * 15 + [NEEDED] * 8 + [GOES] * 25
    async with conversation(script(*first, "", *[GOES] * 3)) as talk:
        weights = {"read": 60.0, "turns": -100.0}
        turn = turn_of(talk, clearing(talk, tmp_path, weights, margin=1.0))
        await turn.run(user("look at all of it"))
        found = clears(talk)
        assert found
        assert not any(use.startswith("t26_") for event, _, _ in found for use in event.use_ids)
        await turn.run(user("and now something else"))
        *_, last = clears(talk)

        assert last[0].use_ids[0] == "t26_0", "the first that was needed"
        frontier = found[0][2].tokens.cache_read
        assert last[2].tokens.cache_read == pytest.approx(frontier, rel=0.02)
        assert frontier > 3 * in_front(talk)


async def test_a_clear_behind_all_that_was_written_again_begins_there(tmp_path: Path) -> None:
    """What the last one left stays for ever: the next one is not bound to where it stands."""
    tools = [KEPT] * 5 + [LARGE] * 4 + [NEEDED] * 12 + [GOES] * 20
    async with conversation(script(*tools)) as talk:
        layer = clearing(talk, tmp_path, {"read": 60.0}, margin=1.0, keep_recent=1)
        turn = turn_of(talk, layer)
        await turn.run(user("look at all of it"))

        found = clears(talk)
        assert len(found) >= 2
        assert [event.use_ids[0] for event, _, _ in found[:2]] == ["t5_0", "t21_0"]
        assert all(reads_all_that_is_the_same(after) for _, _, after in found)


def in_front(talk: Conversation) -> int:
    """Tokens of what stands before the messages, and of the first message."""
    return prompt_of(talk.sim.ledger.rows[0])


async def test_the_break_is_announced_and_nothing_else_breaks(tmp_path: Path) -> None:
    async with conversation(script(*LONG_TALK, *[GOES] * 30)) as talk:
        turn = turn_of(talk, clearing(talk, tmp_path))
        await turn.run(user("look at all of it"))

        found = clears(talk)
        broke = talk.of(CacheBroke)
        assert len(found) >= 2
        assert [b.why for b in broke] == [event.why for event, _, _ in found]
        assert all(b.expected for b in broke)
        announced = [s for s in talk.of(Sending) if s.lost]
        assert [s.why for s in announced] == [event.why for event, _, _ in found]
        assert all(s.expected for s in announced)
        assert not talk.of(Failed)
        breaks = [row for row in talk.sim.ledger.rows if row.shared and row.shared.diverged]
        assert len(breaks) == len(found)


async def test_a_request_never_carries_more_than_four_marks(tmp_path: Path) -> None:
    async with conversation(script(*[KEPT] * 5, *[GOES] * 30, at_once=25)) as talk:
        turn = turn_of(talk, clearing(talk, tmp_path), 1_600)
        await turn.run(user("look at all of it"))

        assert len(clears(talk)) >= 2
        marks = [row.breakpoints for row in talk.sim.ledger.rows]
        assert max(marks) == 4
        assert all(reads_all_that_is_the_same(after) for _, _, after in clears(talk))
        assert all(row.status == 200 for row in talk.sim.ledger.rows)


async def test_a_step_of_many_blocks_does_not_push_the_frontier_out(tmp_path: Path) -> None:
    """Its own mark and that of the request before would make one too many."""
    for last in range(13, 17):  # whichever step it is that clears
        (tmp_path / f"{last}").mkdir()
        tools = [KEPT] * 8 + [GOES] * last
        steps = range(8 + last - 1, 8 + last)
        async with conversation(script(*tools, at_once=25, of_these=steps)) as talk:
            turn = turn_of(talk, clearing(talk, tmp_path / f"{last}", margin=1.0))
            await turn.run(user("look at all of it"))
            for _, _, after in clears(talk):
                assert reads_all_that_is_the_same(after)


async def test_a_process_that_comes_after_reads_the_same_prefix(tmp_path: Path) -> None:
    lines: list[bytes] = []
    async with conversation(script(*LONG_TALK, *[GOES] * 3)) as talk:
        log = Transcript(talk.clock.now, lines.append)
        turn = turn_of(talk, clearing(talk, tmp_path), transcript=log)
        turn.max_steps = len(LONG_TALK) + 2
        with pytest.raises(StepLimitReached):
            await turn.run(user("look at all of it"))
        assert clears(talk)
        before = encode_prefix(turn.request)
        again = Transcript.load(b"".join(lines), talk.clock.now, lines.append)
        turn = turn_of(talk, clearing(talk, tmp_path), transcript=again)
        assert extends(before, encode_prefix(turn.request))
        await turn.run(user("go on"))

        last, one_before = talk.sim.ledger[-1].tokens, talk.sim.ledger[-2].tokens
        assert last.cache_read >= one_before.cache_read + one_before.cache_write_5m


async def test_when_cold_all_is_written_once_and_the_frontier_is_marked_anew(tmp_path: Path) -> None:
    async with conversation(script(*[KEPT] * 12, *[GOES] * 9)) as talk:
        turn = turn_of(talk, clearing(talk, tmp_path))
        await turn.run(user("look at all of it"))
        assert not clears(talk)
        talk.clock.advance(301)
        await turn.run(user("and now?"))

        [(event, _, after)] = clears(talk)
        assert event.price == 0
        assert after.tokens.cache_read == 0
        await turn.run(user("thanks"))
        assert talk.sim.ledger[-1].tokens.cache_read >= after.tokens.cache_write_5m
