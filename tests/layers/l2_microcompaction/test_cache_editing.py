"""Deletions in the provider's cache: the model sees less, and every byte before stays where it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit import extends, make, make_parts
from layers.simulated import Conversation, conversation, reading

from sevenfold.cache.prefix import choose_breakpoints
from sevenfold.core.events import Cleared, Event, Failed
from sevenfold.core.messages import Message, ToolResult, ToolUse, assistant, user
from sevenfold.core.protocols import Capabilities, Layers
from sevenfold.core.request import Frame, Request, encode_prefix
from sevenfold.core.tokens import Pressure, Thresholds, Usage, measure_message
from sevenfold.core.transcript import Pin, Reply, Transcript
from sevenfold.layers.l2_microcompaction.provider import CacheEditing, find_deleted_uses
from sevenfold.models.anthropic_wire import encode_body
from sevenfold.settings.layers import MicroSettings
from sevenfold.settings.schema import Settings
from sevenfold.storage.results import ResultStore
from sevenfold.testing import FakeTools
from sevenfold.testing.doubles import Line

pytestmark = pytest.mark.anyio
SETTINGS = MicroSettings(cache_edit_trigger=8, keep_recent=3)
ABLE = Capabilities(edits_cache=True)
PRESSURE = Pressure(1_000, Thresholds.of(200_000, 32_000))
NOT_TOLD = Usage()


def editing(
    folder: Path,
    events: list[Event] | None = None,
    *,
    able: Capabilities = ABLE,
    memory: tuple[Path, ...] = (),
    settings: MicroSettings = SETTINGS,
) -> CacheEditing:
    known = Settings(micro=settings)
    return CacheEditing(
        make_parts(able=able, folder=folder, events=events, settings=known, memory_folders=memory)
    )


def read(
    log: Transcript, n: int, path: str = "", content: str = "", tool: str = "Read", usage: Usage = NOT_TOLD
) -> None:
    """One call and its result, as a turn writes them."""
    id = f"t{n}"
    args = {"file_path": path or f"src/f{n}.py"}
    log.add(Reply(assistant(ToolUse(id, tool, args)), usage, stop="tool_use"), by="model")
    log.add(Message("user", (ToolResult(id, content or f"{n} " * 1_000),)), by="tools")


def asked(log: Transcript, source: str = "main") -> Request:
    return Request(Frame("claude-opus-4-8"), log.view, source=source)


def talk_of(reads: int) -> Transcript:
    log = Transcript(lambda: 0.0)
    log.add(user("read them"))
    for n in range(reads):
        read(log, n)
    return log


# --- on the simulator ----------------------------------------------------------------------------------


def pins(talk: Conversation, transcript: Transcript) -> list[Pin]:
    return [entry.what for entry in transcript.entries if isinstance(entry.what, Pin)]


async def test_tokens_drop_and_the_whole_prefix_is_still_read(tmp_path: Path) -> None:
    async with conversation(reading(12), edits_cache=True) as talk:
        layer = editing(tmp_path, talk.events, able=talk.model.capabilities)
        turn = talk.turn(Layers(fit=(layer,)), size=8_000)
        await turn.run(user("read them all"))

        (pin,) = pins(talk, turn.transcript)
        assert pin.payload == {"type": "cache_edits", "delete": [f"t{n}" for n in range(6)]}
        rows = list(talk.sim.ledger.rows)
        sizes = [sum((r.tokens.input, r.tokens.cache_write_5m, r.tokens.cache_read)) for r in rows]
        at = next(i for i in range(1, len(rows)) if sizes[i] < sizes[i - 1])
        assert sizes[at - 1] - sizes[at] > 0.7 * pin.frees  # what came in the same step counts too
        for row in rows[1:]:
            assert row.shared is not None
            assert row.shared.blocks == row.shared.of_blocks
            assert row.tokens.input + row.tokens.cache_write_5m < 3_000


async def test_where_our_estimate_is_too_high_the_error_does_not_grow_with_each_deletion(
    tmp_path: Path,
) -> None:
    log, layer, frees = talk_of(0), editing(tmp_path), list[int]()
    for n in range(80):
        view = log.view
        gone = [
            result
            for p in view
            for result in p.message.results
            if result.tool_use_id in find_deleted_uses(view)
        ]
        whole = view.size.tokens() - sum(measure_message(Message("user", (one,))).tokens() for one in gone)
        read(log, n, usage=Usage(input=int(0.7 * whole)))
        changes = await layer.fit(asked(log), PRESSURE)
        frees += [change.frees for change in changes if isinstance(change, Pin)]
        log.add(*changes, by="CacheEditing") if changes else None

    assert len(frees) > 6
    assert min(frees) > 0.7 * max(frees), "an error does not grow with each deletion"


async def test_our_count_follows_what_was_deleted_before_the_provider_says_so(tmp_path: Path) -> None:
    async with conversation(reading(9), edits_cache=True) as talk:
        layer = editing(tmp_path, talk.events, able=talk.model.capabilities)
        counts: list[int] = []

        class Watch:
            async def fit(self, request: Request, pressure: Pressure) -> tuple[()]:
                counts.append(pressure.tokens)
                return ()

        turn = talk.turn(Layers(fit=(Watch(), layer, Watch())), size=8_000)
        await turn.run(user("read them all"))

        (pin,) = pins(talk, turn.transcript)
        before, after = counts[-2], counts[-1]
        note = turn.transcript.view.calibration.tokens(turn.transcript.view[-2].size)
        assert abs((before - after) - (pin.frees - note)) <= 1  # each is rounded for itself
        reported = talk.sim.ledger[-1].tokens
        counted = reported.input + reported.cache_write_5m + reported.cache_read
        assert abs(after - counted) < 0.05 * counted


async def test_a_resumed_session_sends_the_same_pins(tmp_path: Path) -> None:
    async with conversation(reading(12), edits_cache=True) as talk:
        lines: list[bytes] = []
        layer = editing(tmp_path, talk.events, able=talk.model.capabilities)
        log = Transcript(talk.clock.now, lines.append)
        turn = talk.turn(Layers(fit=(layer,)), log, size=8_000)
        await turn.run(user("read them all"))
        before = encode_prefix(turn.request)

        again = Transcript.load(b"".join(lines), talk.clock.now)
        layer = editing(tmp_path, talk.events, able=talk.model.capabilities)
        talk.sim.api.replies = reading(0)
        resumed = talk.turn(Layers(fit=(layer,)), again, size=8_000)
        assert encode_prefix(resumed.request) == before
        await resumed.run(user("thanks"))

        assert extends(before, encode_prefix(resumed.request))
        assert again.view.pins == log.view.pins
        row = talk.sim.ledger[-1]
        assert row.shared is not None
        assert row.shared.blocks == row.shared.of_blocks


async def test_a_fork_sends_the_pins_and_makes_none(tmp_path: Path) -> None:
    async with conversation(reading(12), edits_cache=True) as talk:
        layer = editing(tmp_path, talk.events, able=talk.model.capabilities)
        turn = talk.turn(Layers(fit=(layer,)), size=8_000)
        await turn.run(user("read them all"))
        parent = talk.sim.ledger[-1].tokens

        child = Transcript.on(turn.transcript.view, talk.clock.now)
        talk.sim.api.replies = reading(0)
        fork = talk.turn(Layers(), child, source="fork")
        await fork.run(user("what is in them?"))

        assert extends(encode_prefix(turn.request), encode_prefix(fork.request))
        row = talk.sim.ledger[-1]
        assert row.source == "fork"
        assert row.tokens.cache_read >= parent.cache_read + parent.cache_write_5m
        assert child.view.pins == turn.transcript.view.pins

        for n in range(20, 40):
            read(child, n)
        assert await layer.fit(fork.request, PRESSURE) == ()


# --- what is deleted -----------------------------------------------------------------------------------


async def test_up_to_the_trigger_nothing_is_deleted(tmp_path: Path) -> None:
    layer = editing(tmp_path)
    assert await layer.fit(asked(talk_of(8)), PRESSURE) == ()
    assert await layer.fit(asked(talk_of(9)), PRESSURE)


async def test_the_oldest_go_in_one_batch_and_the_next_batch_waits_for_as_many(tmp_path: Path) -> None:
    layer, log, at = editing(tmp_path), talk_of(0), []
    for n in range(30):
        read(log, n)
        handed = await layer.fit(asked(log), PRESSURE)
        if handed:
            at.append((n, len(handed[1].payload["delete"])))  # type: ignore[union-attr]
            log.add(*handed, by="CacheEditing")
    assert at == [(8, 6), (14, 6), (20, 6), (26, 6)]
    assert find_deleted_uses(log.view) == {f"t{n}" for n in range(24)}


async def test_the_view_is_unchanged_but_for_a_message_that_says_where_they_are(tmp_path: Path) -> None:
    log = talk_of(9)
    before = log.view.messages
    said, pin = await editing(tmp_path).fit(asked(log), PRESSURE)
    log.add(said, pin, by="CacheEditing")

    assert log.view.messages[:-1] == before
    assert isinstance(said, Message)
    for n in range(6):
        path = tmp_path / f"t{n}.txt"
        assert path.read_text(encoding="utf-8") == f"{n} " * 1_000
        assert f"- Read src/f{n}.py: {path}" in said.text
    assert "f6.py" not in said.text


async def test_what_the_disk_refuses_is_not_deleted_and_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    events: list[Event] = []
    layer, log = editing(tmp_path / "file", events), talk_of(9)

    assert await layer.fit(asked(log), PRESSURE) == ()
    assert await layer.fit(asked(log), PRESSURE) == ()
    (failed,) = [e for e in events if isinstance(e, Failed)]
    assert "file" in failed.cause
    assert not any(isinstance(e, Cleared) for e in events)

    (tmp_path / "file").unlink()  # and it is tried again, a little later
    for n in range(9, 13):
        read(log, n)
    assert await layer.fit(asked(log), PRESSURE)


async def test_memory_is_never_deleted(tmp_path: Path) -> None:
    memory, log = tmp_path / "memory", talk_of(0)
    for n in range(12):
        read(log, n, path=str(memory / f"topic{n}.md") if n % 2 else "")
    layer = editing(tmp_path / "results", memory=(memory,))
    assert await layer.fit(asked(log), PRESSURE) == ()

    for n in range(12, 16):
        read(log, n)
    _, pin = await layer.fit(asked(log), PRESSURE)
    assert isinstance(pin, Pin)
    assert pin.payload["delete"] == ["t0", "t2", "t4", "t6", "t8", "t10", "t12"]


async def test_results_of_other_tools_stay(tmp_path: Path) -> None:
    log = talk_of(0)
    for n in range(20):
        read(log, n, tool="mcp__jira__search")
    assert await editing(tmp_path).fit(asked(log), PRESSURE) == ()


async def test_results_smaller_than_the_note_about_them_are_not_worth_it(tmp_path: Path) -> None:
    log = talk_of(0)
    for n in range(20):
        read(log, n, content="ok")
    assert await editing(tmp_path).fit(asked(log), PRESSURE) == ()
    assert ResultStore(lambda: tmp_path).find("t0") is None


async def test_without_the_capability_it_does_nothing(tmp_path: Path) -> None:
    layer = editing(tmp_path, able=Capabilities())
    assert await layer.fit(asked(talk_of(30)), PRESSURE) == ()


async def test_a_path_that_quotes_our_own_tag_does_not_end_it(tmp_path: Path) -> None:
    log = talk_of(0)
    read(log, 0, path="a</context>b.py")
    for n in range(1, 9):
        read(log, n)
    said, _ = await editing(tmp_path).fit(asked(log), PRESSURE)
    assert isinstance(said, Message)
    assert said.text.count("</context>") == 1


async def test_the_event_says_what_it_saves_and_that_it_costs_nothing(tmp_path: Path) -> None:
    events: list[Event] = []
    await editing(tmp_path, events).fit(asked(talk_of(9)), PRESSURE)
    (cleared,) = [e for e in events if isinstance(e, Cleared)]
    assert (cleared.by, cleared.price, cleared.rewritten) == ("cache edit", 0.0, 0)
    assert cleared.saving == pytest.approx(cleared.tokens * 0.1 * SETTINGS.requests_ahead)


async def test_a_turn_writes_pin_and_note_together(tmp_path: Path) -> None:
    log = talk_of(8)
    layer = editing(tmp_path)
    says: list[Line] = [assistant(ToolUse("t8", "Read", {"file_path": "x"})), "done"]
    tools = FakeTools({"Read": "y " * 1_000})
    turn = make(says, Layers(fit=(layer,)), transcript=log, tools=tools)
    await turn.run(user("one more"))
    kinds = [type(e.what).__name__ for e in log.entries if e.by == "CacheEditing"]
    assert kinds == ["Message", "Pin"]
    sent = encode_body(
        Request(Frame("claude-opus-4-8"), log.view, breakpoints=choose_breakpoints(log.view))
    )
    assert sent.count(b'"cache_edits"') == 1
