"""What each layer saved: by hand, and against what the simulator charges with and without the layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import make_parts
from layers.simulated import PRICES, conversation

from sevenfold.cache.prefix import FRONTIER
from sevenfold.cache.prices import Price
from sevenfold.core.messages import (
    Block,
    Json,
    Message,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    assistant,
    user,
)
from sevenfold.core.protocols import Change, Layers
from sevenfold.core.request import Request
from sevenfold.core.tokens import Calibration, Pressure, Thresholds, Usage, measure_message
from sevenfold.core.transcript import (
    Mark,
    Pin,
    Replace,
    Reply,
    Results,
    Transcript,
    Undo,
    Unthink,
    View,
    encode_entry,
)
from sevenfold.layers.l1_tool_results.preview import make_envelope
from sevenfold.layers.l1_tool_results.tool_results import ToolResults
from sevenfold.layers.l2_microcompaction.microcompaction import REREAD, Microcompaction
from sevenfold.layers.l4_compaction.digest import Digest
from sevenfold.layers.savings import LayerSavings, compute_savings, count_rereads
from sevenfold.offline import encode_reply
from sevenfold.session.session import Session
from sevenfold.settings.layers import MicroSettings, ToolResultSettings
from sevenfold.settings.schema import Settings
from sevenfold.simulator import ManualClock, Simulator

PRICE = Price(model="m", input=1_000_000.0, output=5.0, window=200_000, max_output=32_000, as_of="today")
"""A token costs one, so that costs are base-price tokens; a write 1.25, a read 0.1."""
WRITE, READ = PRICE.write_5m, PRICE.read
CACHED = Usage(input=5, cache_write=100, cache_read=1_000, output=10)
HOME = Path("/home/me/.sevenfold/projects/p/s/tool-results")


class Talk:
    """A transcript that grows by tool calls, one reply after another."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.log = Transcript(lambda: self.now)
        self.log.add(Mark("frame", {"model": "m"}), by="session")
        self.log.add(user("begin"))
        self.n = 0

    def reply(self, *texts: str, usage: Usage = CACHED, **fields: Any) -> list[str]:
        """A request is answered by a call for each text, and these are what the calls give."""
        uses = [ToolUse(f"t{self.n + i}", "Bash", {}) for i in range(len(texts))]
        self.n += len(texts)
        said: list[Block] = [*uses] or [Text("so it is")]
        self.log.add(Reply(assistant(*said), usage, **fields), by="model")
        if texts:
            results = zip(uses, texts, strict=True)
            answer = tuple(ToolResult(use.id, text) for use, text in results)
            self.log.add(Message("user", answer), by="tools")
        return [use.id for use in uses]

    def saved(self, price: Price | None = PRICE) -> dict[int, LayerSavings]:
        return {one.layer: one for one in compute_savings(self.log.entries, Calibration(), price)}

    @property
    def view(self) -> View:
        return self.log.view


def stored(text: str) -> tuple[str, int]:
    """An envelope, and the tokens that it spares."""
    shown = make_envelope(text, HOME / "t0.txt", "Read it.", 2_000)
    return shown, tokens(text) - tokens(shown)


def tokens(text: str) -> int:
    return Calibration().tokens(measure_message(Message("user", (ToolResult("t", text),))))


def behind(view: View, first: int, upto: int) -> int:
    return sum(Calibration().tokens(view[i].size) for i in range(first, upto))


# --- by hand ------------------------------------------------------------------------------------------


def test_without_layers_there_is_nothing_to_tell() -> None:
    talk = Talk()
    talk.reply("x" * 4_000)
    talk.reply()

    assert talk.saved() == {}


def test_a_stored_result_would_have_been_written_once_and_read_ever_after() -> None:
    shown, spared = stored("a line of words\n" * 5_000)
    talk = Talk()
    talk.reply(shown)
    assert talk.saved()[1].tokens_so_far == 0, "nobody has sent it yet"
    for _ in range(3):
        talk.reply()

    saved = talk.saved()[1]

    assert (saved.times, saved.tokens_now, saved.tokens_so_far) == (1, spared, 3 * spared)
    assert saved.cost == pytest.approx(spared * (WRITE + 2 * READ))
    assert saved.breaks == 0.0


@pytest.mark.parametrize(
    "text",
    ['{"key": "value", ' + '"k": 1, ' * 9_000 + '"z": 0}', "übergröße und so\n" * 4_000],
    ids=["JSON", "umlauts"],
)
def test_the_size_of_a_stored_result_is_judged_by_what_is_shown_of_it(text: str) -> None:
    shown, spared = stored(text)
    talk = Talk()
    talk.reply(shown)

    assert talk.saved()[1].tokens_now == pytest.approx(spared, rel=0.02)


def test_a_warm_clear_saves_reads_and_costs_the_break() -> None:
    talk = Talk()
    [old] = talk.reply("x" * 40_000)
    talk.reply("y" * 8_000)
    talk.reply("z" * 4_000)
    marker = "[cleared]"
    talk.log.add(Results({old: marker}), by="Microcompaction")
    spared = tokens("x" * 40_000) - tokens(marker)
    # user, reply, result, reply, result | reply, result: the first five were sent before
    broken = behind(talk.view, 2, 5)
    talk.reply()
    talk.reply()

    saved = talk.saved()[2]

    assert (saved.times, saved.tokens_now, saved.tokens_so_far) == (1, spared, 2 * spared)
    assert saved.breaks == pytest.approx(broken * (WRITE - READ))
    assert saved.cost == pytest.approx(2 * spared * READ - broken * (WRITE - READ))


@pytest.mark.parametrize("ttl", ["5m", "1h"])
def test_a_clear_while_the_cache_is_cold_breaks_nothing(ttl: str) -> None:
    talk = Talk()
    talk.log.add(Mark("frame", {"model": "m", "ttl": ttl}), by="session")
    [old] = talk.reply("x" * 40_000)
    talk.reply("y" * 8_000)
    talk.now += 3_700
    talk.log.add(Results({old: "[cleared]"}), by="Microcompaction")
    talk.reply()
    talk.now += 200
    talk.reply()

    saved = talk.saved()[2]

    write = WRITE if ttl == "5m" else PRICE.write_1h
    assert saved.breaks == 0.0
    assert saved.cost == pytest.approx(saved.tokens_now * (write + READ))


def test_an_hour_is_not_cold_after_ten_minutes() -> None:
    talk = Talk()
    talk.log.add(Mark("frame", {"model": "m", "ttl": "1h"}), by="session")
    [old] = talk.reply("x" * 40_000)
    talk.reply("y" * 8_000)
    talk.now += 600
    talk.log.add(Results({old: "[cleared]"}), by="Microcompaction")
    talk.reply()

    assert talk.saved()[2].breaks == pytest.approx(behind(talk.view, 2, 3) * (PRICE.write_1h - READ))


def test_a_pause_makes_everything_dear_that_is_carried() -> None:
    shown, spared = stored("words " * 20_000)
    talk = Talk()
    talk.reply(shown)
    talk.reply()
    talk.now += 301
    talk.log.add(user("are you there?"))
    talk.reply()

    assert talk.saved()[1].cost == pytest.approx(spared * (WRITE + WRITE))


def test_a_clear_that_does_not_pay_is_a_loss() -> None:
    talk = Talk()
    [old] = talk.reply("x" * 4_000)
    for _ in range(5):
        talk.reply("y" * 80_000)
    talk.log.add(Results({old: "[cleared]"}), by="Microcompaction")
    talk.reply()

    cost = talk.saved()[2].cost
    assert cost is not None
    assert cost < -50_000


def test_a_digest_ends_what_the_layers_before_it_kept_out() -> None:
    shown, spared = stored("words " * 20_000)
    talk = Talk()
    [old] = talk.reply(shown)
    talk.reply("y" * 8_000)
    talk.log.add(Results({old: "[cleared]"}), by="Microcompaction")
    talk.reply("z" * 4_000)
    before = talk.view
    assert {layer: s.tokens_now for layer, s in talk.saved().items()} == {
        1: spared,
        2: tokens(shown) - tokens("[cleared]"),
    }
    digest = user("what happened so far")
    talk.log.add(Replace(before[0].id, before[4].id, (digest,)), by="Digest")
    talk.reply()

    saved = talk.saved()

    now = {layer: s.tokens_now for layer, s in saved.items()}
    assert now == {1: 0, 2: 0, 4: behind(before, 0, 5) - Calibration().tokens(measure_message(digest))}
    assert saved[4].breaks == pytest.approx(behind(talk.view, 0, 1) * (WRITE - READ))
    assert saved[4].times == 1
    assert saved[1].tokens_so_far == 2 * spared


def test_two_layers_that_act_before_one_request_share_one_break() -> None:
    talk = Talk()
    [old] = talk.reply("x" * 40_000)
    for letter in "abc":
        talk.reply(letter * 8_000)
    view = talk.view
    talk.log.add(Results({old: "[cleared]"}), by="Microcompaction")
    digest = user("what happened so far")
    talk.log.add(Replace(view[0].id, view[4].id, (digest,)), by="Digest")
    talk.reply()

    saved = talk.saved()

    breaks = [saved[layer].breaks for layer in (2, 4)]
    # the digest and what follows it, but not the last reply and its result, which are new
    whole = behind(talk.view, 0, 3) * (WRITE - READ)
    assert sum(b for b in breaks if b is not None) == pytest.approx(whole)


def test_what_is_replaced_before_it_was_ever_sent_would_have_been_written() -> None:
    talk = Talk()
    talk.reply("x" * 40_000)
    view = talk.view
    spared = behind(view, 0, 3) - Calibration().tokens(measure_message(user("short")))
    talk.log.add(Replace(view[0].id, view[2].id, (user("short"),)), by="Digest")
    talk.reply()
    sent = behind(view, 0, 1)
    added = Calibration().tokens(measure_message(user("short")))

    saved = talk.saved()[4]

    assert saved.tokens_now == spared
    expected = (sent - added) * READ + (spared - sent + added) * WRITE - added * (WRITE - READ)
    assert saved.cost == pytest.approx(expected)


def test_what_is_undone_is_no_longer_kept_out() -> None:
    talk = Talk()
    [old] = talk.reply("x" * 40_000)
    talk.reply("y" * 8_000)
    [edit] = talk.log.add(Results({old: "[cleared]"}), by="Microcompaction")
    talk.reply()
    once = talk.saved()[2]
    talk.log.add(Undo(frozenset({edit})), by="user")
    talk.reply()

    again = {one.layer: one for one in compute_savings(talk.log.entries, Calibration(), PRICE)}

    assert once.tokens_now > 0
    assert 2 not in again, "as if it had never been"


def test_a_reply_asked_for_again_was_a_request_all_the_same() -> None:
    shown, spared = stored("words " * 20_000)
    talk = Talk()
    talk.reply(shown)
    talk.reply()
    cut = talk.log.entries[-1].id
    talk.log.add(Undo(frozenset({cut})), by="model")
    talk.reply()

    saved = talk.saved()[1]

    assert saved.tokens_so_far == 2 * spared
    assert saved.cost == pytest.approx(spared * (WRITE + READ))


def test_deletions_in_the_cache_break_nothing_and_end_with_what_they_deleted() -> None:
    talk = Talk()
    [old] = talk.reply("x" * 40_000)
    talk.reply("y" * 8_000)
    view = talk.view
    note = user("it is in a file")
    talk.log.add(
        Pin(view[-1].id, {"type": "cache_edits", "delete": [old]}, 10_000), note, by="CacheEditing"
    )
    told = Calibration().tokens(measure_message(note))
    talk.reply()
    saved = talk.saved()[2]
    assert (saved.tokens_now, saved.tokens_so_far, saved.breaks) == (10_000 - told, 10_000 - told, 0.0)
    assert saved.cost == pytest.approx(10_000 * READ - told * WRITE)

    talk.log.add(Replace(view[0].id, view[2].id, (user("so far"),)), by="Digest")

    saved_after = talk.saved()
    assert saved_after[2].tokens_now == -told
    added = Calibration().tokens(measure_message(user("so far")))
    assert saved_after[4].tokens_now == behind(view, 0, 3) - 10_000 - added


def test_what_the_provider_cleared_is_counted_as_it_reports_it() -> None:
    edit = {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 3, "cleared_input_tokens": 50_000}
    talk = Talk()
    talk.reply("x" * 8_000, usage=Usage(cache_write=90_000))
    broken = Usage(cache_read=20_000, cache_write=22_000)
    talk.reply("y" * 8_000, usage=broken, applied=(edit,))
    talk.reply(usage=Usage(cache_read=42_000, cache_write=2_000), applied=(edit,))

    saved = talk.saved()[2]

    assert (saved.times, saved.tokens_now, saved.tokens_so_far) == (3, 50_000, 100_000)
    # of the 90,000 in the cache 50,000 went, 20,000 were read and 20,000 had to be written again
    assert saved.breaks == pytest.approx(20_000 * (WRITE - READ))
    assert saved.cost == pytest.approx(100_000 * READ - 20_000 * (WRITE - READ))


def test_thinking_that_goes_with_an_edit_is_part_of_what_it_saved() -> None:
    talk = Talk()
    [old] = talk.reply("x" * 40_000)
    thinking = assistant(Thinking("hm " * 4_000, "signed"), Text("so"))
    talk.log.add(Reply(thinking, CACHED), by="model")
    view = talk.view
    talk.log.add(user("and now?"))
    talk.log.add(Results({old: "[cleared]"}), Unthink(view[3].id), by="Microcompaction")
    thought = tokens("hm " * 4_000) - tokens("")
    talk.reply()
    assert talk.saved()[2].tokens_now == tokens("x" * 40_000) - tokens("[cleared]") + thought

    talk.log.add(Unthink(view[0].id), by="session")
    assert talk.saved()[2].tokens_now == tokens("x" * 40_000) - tokens("[cleared]") + thought


def test_thinking_dropped_for_another_model_is_nobodys_saving() -> None:
    talk = Talk()
    talk.log.add(Reply(assistant(Thinking("hm " * 4_000, "s"), Text("so")), CACHED), by="model")
    talk.log.add(Unthink(talk.view[0].id), by="session")
    talk.reply()

    assert talk.saved() == {}


def test_a_change_that_no_layer_made_is_nobodys_saving() -> None:
    shown, spared = stored("words " * 20_000)
    talk = Talk()
    [old] = talk.reply("x" * 40_000)
    talk.reply(shown)
    at = talk.view[4].id
    mended = Message("user", (ToolResult("t1", shown), Text("said again")))
    talk.log.add(Results({old: "shorter"}), by="recorded")
    talk.log.add(Replace(at, at, (mended,)), by="tools")
    talk.reply()

    assert {layer: s.tokens_now for layer, s in talk.saved().items()} == {1: spared}


def test_another_model_reads_nothing_from_the_cache() -> None:
    shown, spared = stored("words " * 20_000)
    talk = Talk()
    talk.reply(shown)
    talk.reply()
    talk.log.add(Mark("frame", {"model": "other"}), by="session")
    talk.reply()
    talk.reply()

    assert talk.saved()[1].cost == pytest.approx(spared * (WRITE + WRITE + READ))


def test_where_nothing_is_cached_every_token_costs_the_same() -> None:
    plain = Usage(input=20_000, output=10)
    talk = Talk()
    [old] = talk.reply("x" * 40_000, usage=plain)
    talk.reply("y" * 8_000, usage=plain)
    talk.log.add(Results({old: "[cleared]"}), by="Microcompaction")
    talk.reply(usage=plain)
    talk.reply(usage=plain)

    saved = talk.saved()[2]

    assert (saved.cost, saved.breaks) == (2 * saved.tokens_now, 0.0)


def test_without_a_price_the_tokens_are_told_and_the_money_is_not() -> None:
    shown, spared = stored("words " * 20_000)
    talk = Talk()
    talk.reply(shown)
    talk.reply()

    saved = talk.saved(None)[1]

    assert (saved.tokens_so_far, saved.cost, saved.breaks) == (spared, None, None)


def test_a_text_that_only_speaks_of_an_envelope_is_none() -> None:
    shown, _ = stored("words " * 20_000)
    talk = Talk()
    talk.reply(f"cat of a log:\n{shown}", f"{shown} and more", "<persisted-output>\nno\n")

    assert talk.saved() == {}


def test_after_a_resume_it_is_the_same() -> None:
    shown, _ = stored("words " * 20_000)
    talk = Talk()
    [old] = talk.reply("x" * 40_000)
    talk.reply(shown)
    talk.log.add(Results({old: "[cleared]"}), by="Microcompaction")
    talk.reply()
    lines = b"".join(encode_entry(entry) + b"\n" for entry in talk.log.entries)
    resumed = Transcript.load(lines, lambda: 0.0)

    assert compute_savings(resumed.entries, resumed.view.calibration, PRICE) == compute_savings(
        talk.log.entries, talk.view.calibration, PRICE
    )


def test_what_was_asked_for_again_is_counted_by_its_mark() -> None:
    talk = Talk()
    assert count_rereads(talk.view) == 0
    talk.log.add(Mark(REREAD, {"count": 3, "often": []}), by="Microcompaction")
    assert count_rereads(talk.view) == 3
    talk.log.add(Mark(REREAD, 4), Mark("other", 9), by="Microcompaction")
    assert count_rereads(talk.view) == 4
    talk.log.add(Mark(REREAD, {"count": "many"}), by="Microcompaction")
    assert count_rereads(talk.view) == 0


@given(
    sizes=st.lists(st.integers(0, 5_000), min_size=1, max_size=12),
    edits=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=6),
)
def test_what_is_cleared_and_what_is_shown_are_the_whole(
    sizes: list[int], edits: list[tuple[int, int]]
) -> None:
    talk, plain = Talk(), Talk()
    at = dict[int, list[int]]()
    for which, when in edits:
        at.setdefault(when, []).append(which)
    for step, size in enumerate(sizes):
        for each in (talk, plain):
            each.reply("x" * size)
        for which in at.get(step, ()):
            if which <= step:
                talk.log.add(Results({f"t{which}": f"[{which}]"}), by="Microcompaction")

    saved = talk.saved().get(2)

    whole = sum(Calibration().tokens(p.size) for p in plain.view)
    shown = sum(Calibration().tokens(p.size) for p in talk.view)
    assert (saved.tokens_now if saved else 0) == pytest.approx(whole - shown, abs=len(edits))


# --- against the simulator ----------------------------------------------------------------------------


def calling(steps: int) -> Callable[[Json], Any]:
    """A model that makes so many calls for each thing the user says, whatever it is shown."""
    asked = 0

    def reply(body: Json) -> list[Json]:
        nonlocal asked
        asked += 1
        if asked % (steps + 1) == 0:
            return [{"type": "text", "text": "Done with all of them."}]
        path = f"src/f{asked}.py"
        return [{"type": "tool_use", "id": f"t{asked}", "name": "Read", "input": {"file_path": path}}]

    return reply


class ClearOnce:
    """Clears the oldest results while the cache is warm, when there are so many."""

    def __init__(self, when: int, many: int) -> None:
        self._when, self._many = when, many

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        view = request.view
        ids = [r.tool_use_id for placed in view for r in placed.message.results]
        if len(ids) != self._when or any(b.text == "[gone]" for p in view for b in p.message.results):
            return ()
        first = view.result_at(ids[0])
        assert first
        shown = dict.fromkeys(ids[: self._many], "[gone]")
        return Results(shown), Mark(FRONTIER, view[first - 1].id)


async def spent(
    layers: Layers, *, size: int, turns: int = 3, gap: float = 60.0, window: int = 1_000_000
) -> tuple[float, Transcript]:
    """What the simulator charges for input over a whole conversation, and its transcript."""
    async with conversation(calling(8)) as here:
        turn = here.turn(layers, size=size)
        turn.thresholds = Thresholds.of(window, 32_000)
        turn.transcript.add(Mark("frame", {"model": here.frame.model}), by="session")
        for n in range(turns):
            await turn.run(user(f"look at part {n} of it, please"))
            here.clock.advance(gap)
        price = PRICES.of(here.frame.model)
        assert price
        rows = here.sim.ledger.rows
        output = sum(row.tokens.output for row in rows) * price.output / 1_000_000
        return here.sim.ledger.total.cost - output, turn.transcript


async def compare(layers: Layers, layer: int, **fields: Any) -> tuple[float, float, LayerSavings]:
    """The difference the layer makes to the bill, what we say it saved, and all that we say."""
    with_layer, transcript = await spent(layers, **fields)
    without, _ = await spent(Layers(), **fields)
    price = PRICES.of("claude-opus-4-8")
    saved = {s.layer: s for s in compute_savings(transcript.entries, transcript.view.calibration, price)}
    cost = saved[layer].cost
    assert cost is not None
    return without - with_layer, cost, saved[layer]


@pytest.mark.anyio
async def test_what_layer_1_saved_is_what_the_simulator_charges_less(tmp_path: Path) -> None:
    settings = ToolResultSettings(limits={"Read": 10_000})
    intake = ToolResults(make_parts(folder=tmp_path / "r", settings=Settings(tool_results=settings)))

    really, told, saved = await compare(Layers(intake=(intake,)), 1, size=40_000)

    assert saved.times == 24
    assert told == pytest.approx(really, rel=0.05)
    assert really > 0


@pytest.mark.anyio
@pytest.mark.parametrize("when", [4, 12, 20])
async def test_what_a_warm_clear_saved_is_what_the_simulator_charges_less(when: int) -> None:
    layers = Layers(fit=(ClearOnce(when, 3),))

    really, told, saved = await compare(layers, 2, size=12_000)

    assert saved.times == 3
    assert saved.breaks is not None
    assert saved.breaks > 0
    assert told == pytest.approx(really, rel=0.05, abs=saved.breaks * 0.05)


@pytest.mark.anyio
async def test_what_a_cold_clear_saved_is_what_the_simulator_charges_less(tmp_path: Path) -> None:
    settings = Settings(micro=MicroSettings(policy="plain", keep_recent=1))
    plain = Microcompaction(make_parts(folder=tmp_path / "r", settings=settings))

    really, told, saved = await compare(Layers(fit=(plain,)), 2, size=12_000, gap=3_700.0)

    assert saved.times > 10
    assert saved.breaks == 0.0
    assert told == pytest.approx(really, rel=0.05)
    assert really > 0


@pytest.mark.anyio
async def test_what_a_digest_saved_is_what_the_simulator_charges_less() -> None:
    digest = Digest(make_parts())

    really, told, saved = await compare(Layers(fit=(digest,)), 4, size=12_000, turns=4, window=90_000)

    assert saved.times >= 1
    assert told == pytest.approx(really, rel=0.05)


@pytest.mark.anyio
async def test_a_whole_session_tells_what_the_simulator_charged_less(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    price = PRICES.of("claude-opus-4-8")
    assert price
    told, charged = {}, {}
    for on in (True, False):
        async with Simulator(replies=encode_reply, clock=ManualClock()) as sim:
            environ = {
                "HOME": str(tmp_path),
                "PATH": "/usr/bin:/bin",
                "ANTHROPIC_API_KEY": "k",
                "ANTHROPIC_BASE_URL": sim.url,
            }
            session = Session(
                "claude-opus-4-8",
                project,
                home=tmp_path / "home",
                environ=environ,
                settings={
                    "permissions": {"mode": "bypassPermissions"},
                    "flags": {"tool_results": on, "micro_cost": False, "notes": False},
                },
            )
            async with session:
                await session.ask("run `seq 1 9000`")
                for _ in range(4):
                    await session.ask("hello")
                entries, view = session.turn.transcript.entries, session.view
            told[on] = compute_savings(entries, view.calibration, price)
            output = sim.ledger.total.tokens.output * price.output / 1_000_000
            charged[on] = sim.ledger.total.cost - output

    assert told[False] == ()
    [saved] = told[True]
    assert (saved.layer, saved.times) == (1, 1)
    assert saved.cost == pytest.approx(charged[False] - charged[True], rel=0.05)
