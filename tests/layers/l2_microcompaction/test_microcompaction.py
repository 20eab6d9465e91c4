"""Old tool results leave the view in batches, each on disk first, and only when it pays."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit import extends, make, make_parts
from layers.l2_microcompaction.talks import MODEL, PLAIN_SUMS, PRICES, Talk, need_file, text_of
from msgspec.structs import replace

from sevenfold.cache.ledger import Ledger
from sevenfold.core.events import (
    Added,
    CacheBroke,
    Cleared,
    Declined,
    Event,
    Failed,
    Notice,
    ReadAgain,
    Sending,
)
from sevenfold.core.messages import THOUGHTS, Image, Text, Thinking, ToolUse, assistant, user
from sevenfold.core.protocols import Capabilities, Layers
from sevenfold.core.request import Frame, encode_prefix, has_paired_tools
from sevenfold.core.tokens import Usage, scale_constant
from sevenfold.core.transcript import Mark, Replace, Reply, Results, Transcript, Unthink
from sevenfold.layers.l2_microcompaction.candidates import CLEARED, OFTEN, parse_marker
from sevenfold.layers.l2_microcompaction.microcompaction import (
    BREAKER_LEAST,
    BREAKER_SHARE,
    REREAD,
    Microcompaction,
)
from sevenfold.layers.ladder import LayerRole, make_standard_layers
from sevenfold.settings.layers import CLEARABLE, MicroSettings, Switches
from sevenfold.settings.schema import Settings
from sevenfold.testing import FakeClock, FakeTools, ScriptedModel
from sevenfold.tools.file_tools import ReadTool
from sevenfold.tools.workspace import Workspace

pytestmark = pytest.mark.anyio
HOUR = 3_600.0
ROLES: tuple[LayerRole, ...] = ("main", "agent", "fork")


@pytest.fixture
def eager(tmp_path: Path) -> MicroSettings:
    """Nothing is ever needed again, so clearing pays soon."""
    return replace(PLAIN_SUMS, least_freed=5_000, margin=1.0, need_model=need_file(tmp_path))


def filled(talk: Talk, many: int = 12, size: int = 8_000) -> Talk:
    """So many commands, and a user who speaks after them."""
    for _ in range(many):
        talk.call("Bash", size)
    talk.answer()
    talk.say("and now?")
    return talk


# --- when, and what -------------------------------------------------------------------------------------


def test_all_but_the_newest_go_in_one_batch_with_one_event(tmp_path: Path, eager: MicroSettings) -> None:
    talk = filled(Talk(tmp_path, eager))
    whole = dict(talk.shown)

    assert talk.fit() == [f"t{n}" for n in range(1, 8)]
    assert {id: talk.shown[id] for id in ("t8", "t9", "t10", "t11", "t12")} == {
        id: whole[id] for id in ("t8", "t9", "t10", "t11", "t12")
    }
    [event] = talk.of(Cleared)
    assert event.use_ids == tuple(f"t{n}" for n in range(1, 8))
    assert has_paired_tools(talk.view)
    [[results, frontier]] = list(talk.writes())
    assert isinstance(results.what, Results)
    assert isinstance(frontier.what, Mark)
    assert [event.whats for event in talk.of(Added)] == [(results.what, frontier.what)]


def test_nothing_is_touched_while_it_does_not_pay(tmp_path: Path, eager: MicroSettings) -> None:
    talk = filled(Talk(tmp_path, replace(eager, margin=1_000.0)))
    before, buffer = encode_prefix(talk.turn.request), talk.view.buffer

    assert talk.fit() == []
    assert encode_prefix(talk.turn.request) == before
    assert talk.view.buffer is buffer
    assert not talk.events
    assert not talk.expected
    assert not (tmp_path / "tool-results").exists()


@pytest.mark.parametrize("seed", range(3))
def test_over_300_steps_it_clears_seldom_and_much_at_a_time(
    tmp_path: Path, eager: MicroSettings, seed: int
) -> None:
    """Complaint 1: a rolling clear re-bills the prompt every few calls."""
    rng = random.Random(seed)
    settings = replace(eager, margin=4.0, least_freed=30_000)
    memory = tmp_path / "memory"
    talk = Talk(tmp_path, settings, memory=(memory,))
    batches, spared, steps = list[list[str]](), dict[str, str](), 300
    for _ in range(steps):
        tool = rng.choice(["Read", "Bash", "Grep", "Edit", "mcp__web__get", "Agent"])
        args = {"file_path": f"{memory}/x.md"} if rng.random() < 0.1 else {"command": "x"}
        id = talk.call(tool, rng.randrange(16_000), **args)
        if tool not in CLEARABLE or "file_path" in args:
            spared[id] = talk.shown[id]
        if rng.random() < 0.1:
            talk.answer()
            talk.say("go on")
        if batch := talk.fit():
            batches.append(batch)
        newest = [r for r in talk.shown if r not in spared][-5:]
        assert not set(newest) & set(talk.cleared)

    assert 2 <= len(batches) <= steps // 20
    assert len(talk.of(Cleared)) == len(batches)
    for event in talk.of(Cleared):
        assert event.tokens >= 30_000
        assert event.saving >= 4 * event.price > 0
    assert {id: talk.shown[id] for id in spared} == spared
    assert not talk.of(Failed)
    assert not talk.of(Declined)


@pytest.mark.parametrize("window", [8_000, 32_000, 128_000, 1_000_000])
def test_a_small_window_clears_smaller_batches(tmp_path: Path, window: int) -> None:
    settings = replace(PLAIN_SUMS, need_model=need_file(tmp_path))
    able = Capabilities(window=window, max_output=window // 8)
    talk = Talk(tmp_path, settings, able)
    least = scale_constant(30_000, window)
    for _ in range(120):
        talk.call("Bash", int(least))
        talk.fit()

    events = talk.of(Cleared)
    assert events
    assert all(least <= event.tokens < 3 * least for event in events)


def test_a_cold_cache_is_used_to_clear_what_alone_would_not_pay(
    tmp_path: Path, eager: MicroSettings
) -> None:
    talk = filled(Talk(tmp_path, replace(eager, least_freed=10**9)), 7, 4_000)
    assert talk.fit() == []
    talk.clock.time += 299
    assert talk.fit() == []
    talk.clock.time += 2

    assert talk.fit() == ["t1", "t2"]
    [event] = talk.of(Cleared)
    assert event.price == 0
    assert "cold" in event.why


def test_a_cache_for_an_hour_is_warm_for_an_hour(tmp_path: Path, eager: MicroSettings) -> None:
    talk = filled(Talk(tmp_path, replace(eager, least_freed=10**9), ttl="1h"), 7, 4_000)
    talk.clock.time += 3_599
    assert talk.fit() == []
    talk.clock.time += 2
    assert talk.fit() == ["t1", "t2"]


def test_what_has_been_cleared_is_not_cleared_again(tmp_path: Path, eager: MicroSettings) -> None:
    talk = filled(Talk(tmp_path, eager))
    talk.fit()
    markers = {id: talk.shown[id] for id in talk.cleared}
    for _ in range(3):
        talk.clock.time += 400
        filled(talk, 12)
        talk.fit()

    assert {id: talk.shown[id] for id in markers} == markers
    ids = [id for event in talk.of(Cleared) for id in event.use_ids]
    assert len(ids) == len(set(ids)) > 30


def test_pictures_stay(tmp_path: Path, eager: MicroSettings) -> None:
    talk = Talk(tmp_path, eager)
    picture = (Text("a picture"), Image({"type": "base64", "data": "AAAA"}))
    talk.call("Read", picture, file_path="/a.png")
    filled(talk)
    talk.fit()

    assert talk.cleared
    assert talk.view[2].message.results[0].content == picture


def test_results_that_came_together_go_on_their_own(tmp_path: Path, eager: MicroSettings) -> None:
    """One message may hold results that go and results that stay."""
    talk = Talk(tmp_path, eager)
    talk.calls_at_once([("Bash", 40_000, {}), ("mcp__x", 40_000, {}), ("Bash", 40_000, {"command": "b"})])
    filled(talk, 5)
    talk.fit()

    assert talk.cleared == ["t1", "t3"]
    assert [r.tool_use_id for r in talk.view[2].message.results] == ["t1", "t2", "t3"]
    assert talk.shown["t2"] == text_of("t2", 40_000)


def test_errors_stay_errors(tmp_path: Path, eager: MicroSettings) -> None:
    talk = Talk(tmp_path, eager)
    id = talk.call("Bash", 8_000)
    last = talk.view[-1]
    failed = replace(last.message.results[0], is_error=True, extra={"x": 1})
    talk.log.add(Replace(last.id, last.id, (replace(last.message, content=(failed,)),)), by="x")
    filled(talk)
    talk.fit()

    [result] = talk.view[talk.view.result_at(id) or 0].message.results
    assert result.text.startswith(CLEARED)
    assert (result.is_error, result.extra) == (True, {"x": 1})


# --- on disk first --------------------------------------------------------------------------------------

NASTY = [
    "plain\nlines\n\nand an empty one" * 20,
    "ends with a line\n" * 20,
    "\n\nbegins with nothing" * 20,
    "\ttabs\t\tand 中文, العربية, 🎉\n" * 40,
    "form\x0cfeed \x0b \x1c \x85 \u2028 are no lines\n" * 40,
    "=== Bash x (t1)\nlooks like a heading\n" * 30,
    "[lines 1-2 of 3; go on with offset=4]\n" * 30,
    "x" * 1_900 + "\n" + "y" * 1_900,
]


async def read_back(folder: Path, path: Path, first: int, last: int) -> str:
    """With the real tool, as a model would after reading a marker."""
    workspace = Workspace(folder, folder, {}, folder / "out", FakeClock())
    args = {"file_path": str(path), "offset": first, "limit": last - first + 1}
    shown = await ReadTool(workspace).run(args, "x")
    assert isinstance(shown, str)
    lines = shown.split("\n")
    if re.fullmatch(r"\[lines \d+-\d+ of [\d,]+; go on with offset=\d+\]", lines[-1]):
        del lines[-1]
    numbers, texts = zip(*(line.split("\t", 1) for line in lines), strict=True)
    assert [int(number) for number in numbers] == list(range(first, first + len(lines)))
    return "\n".join(texts)


async def test_each_marker_leads_to_its_result_byte_for_byte_with_the_real_tool(tmp_path: Path) -> None:
    talk = Talk(tmp_path, by_cost=False, by_time=True)
    for n, text in enumerate(NASTY):
        # a name as long and as nasty as can be, in the heading of each
        talk.call("Bash", text, id=f"call\n{n}\r\n/../é", command=f"echo {n}\nrm\x0b\u2028x" * 9)
    filled(talk, 5, 400)
    whole = dict(talk.shown)
    talk.clock.time += HOUR
    assert len(talk.fit()) == len(NASTY)

    folder = tmp_path / "tool-results"
    [file] = list(folder.iterdir())
    lines = file.read_bytes().split(b"\n")
    for id in talk.cleared:
        kept = parse_marker(talk.shown[id])
        assert kept is not None
        assert kept.file == file.name
        assert b"\n".join(lines[kept.first - 1 : kept.last]) == whole[id].encode()
        shown = await read_back(tmp_path, folder / kept.file, kept.first, kept.last)
        assert shown.rstrip("\n") == whole[id].rstrip("\n")
    assert any(str(file) in text for text in talk.shown.values()), "one says where the folder is"


def test_what_is_kept_is_there_before_anything_is_written_to_the_transcript(
    tmp_path: Path, eager: MicroSettings
) -> None:
    talk = filled(Talk(tmp_path, eager))
    found: list[bool] = []

    def look(line: bytes) -> None:
        if b'"results"' in line and b'"shown"' in line:
            found.append(len(list((tmp_path / "tool-results").iterdir())) == 1)

    log = Transcript(talk.clock.now, look)
    for entry in talk.log.entries:
        log.add(entry.what, by=entry.by)
    talk.log = log
    talk.open()
    talk.fit()

    assert found == [True]
    assert talk.expected == [event.why for event in talk.of(Cleared)]


def test_two_batches_are_two_files_and_neither_changes(tmp_path: Path, eager: MicroSettings) -> None:
    talk = filled(Talk(tmp_path, eager))
    talk.fit()
    [first] = list((tmp_path / "tool-results").iterdir())
    before = first.read_bytes()
    filled(talk)
    talk.fit()

    files = {path.name: path.read_bytes() for path in (tmp_path / "tool-results").iterdir()}
    assert len(files) == 2
    assert files[first.name] == before
    for id in talk.cleared:
        kept = parse_marker(talk.shown[id])
        assert kept is not None
        lines = files[kept.file].decode().split("\n")
        assert "\n".join(lines[kept.first - 1 : kept.last]) == text_of(id, 8_000)


def spoil_with_a_file(folder: Path) -> None:
    folder.write_text("I was here first", encoding="utf-8")


def spoil_with_a_link(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir()
    folder.symlink_to(folder.parent / "elsewhere")


@pytest.mark.parametrize("spoil", [spoil_with_a_file, spoil_with_a_link])
async def test_a_disk_that_refuses_clears_nothing_and_the_turn_goes_on(
    tmp_path: Path, eager: MicroSettings, spoil: Callable[[Path], None]
) -> None:
    spoil(tmp_path / "tool-results")
    talk = filled(Talk(tmp_path, eager))
    before = encode_prefix(talk.turn.request)
    talk.turn.model = ScriptedModel(["fine"], talk.able)
    reply = await talk.turn.run(user("go on"))

    assert reply.message.text == "fine"
    assert talk.cleared == []
    assert extends(before, encode_prefix(talk.turn.request))
    [failed] = talk.of(Failed)
    assert failed.by == "microcompaction"
    assert failed.cause.startswith("nothing was cleared: ")
    assert str(tmp_path / "tool-results") in failed.cause
    assert not talk.of(Cleared)
    assert not talk.expected
    elsewhere = tmp_path / "elsewhere"
    assert not elsewhere.exists() or not list(elsewhere.iterdir())


def test_when_the_disk_takes_it_again_clearing_goes_on(tmp_path: Path, eager: MicroSettings) -> None:
    spoil_with_a_file(tmp_path / "tool-results")
    talk = filled(Talk(tmp_path, eager))
    for _ in range(40):
        talk.call("Bash", 800)
        talk.fit()
    assert len(talk.of(Failed)) < 20, "not at every step"
    (tmp_path / "tool-results").unlink()
    filled(talk)

    assert len(talk.fit()) > 40


# --- the plain rule -------------------------------------------------------------------------------------


def test_the_plain_rule_clears_all_but_five_after_an_hour_of_silence(tmp_path: Path) -> None:
    talk = filled(Talk(tmp_path, by_cost=False, by_time=True), 9)
    talk.clock.time += HOUR - 1
    assert talk.fit() == []
    talk.clock.time += 1

    assert talk.fit() == ["t1", "t2", "t3", "t4"]
    [event] = talk.of(Cleared)
    assert event.by == "plain"
    assert event.price == 0
    assert event.tokens == pytest.approx(4 * 2_000, rel=0.05)
    assert talk.fit() == []


def test_how_long_and_how_many_are_settings(tmp_path: Path) -> None:
    settings = MicroSettings(idle_minutes=2.0, keep_recent=1)
    talk = filled(Talk(tmp_path, settings, by_cost=False, by_time=True), 4)
    talk.clock.time += 119
    assert talk.fit() == []
    talk.clock.time += 1

    assert talk.fit() == ["t1", "t2", "t3"]
    [event] = talk.of(Cleared)
    assert event.price == pytest.approx(1.15 * event.rewritten, rel=0.001), "it is warm for five"
    assert event.price > 0


def by_ladder(
    folder: Path, settings: MicroSettings, switches: Switches, able: Capabilities | None = None
) -> Talk:
    """A talk whose layers are wired as those of a session."""
    talk = Talk(folder, settings, able or Capabilities())
    parts = make_parts(
        able=talk.able,
        folder=folder / "tool-results",
        events=talk.events,
        expected=talk.expected,
        settings=Settings(micro=settings),
        switches=switches,
    )
    talk.turn.layers = make_standard_layers("main", parts)
    return talk


@pytest.mark.parametrize(
    ("policy", "switches", "warm", "cold"),
    [
        ("cost", Switches(), "cost", "cost"),
        ("plain", Switches(), "", "plain"),
        ("cost", Switches(micro_cost=False), "", ""),
        ("plain", Switches(micro_cost=False), "", "plain"),
        ("cost", Switches(micro_time=True), "cost", "plain"),
        ("cost", Switches(micro_cost=False, micro_time=True), "", "plain"),
    ],
)
def test_settings_and_switches_say_which_rule_holds(
    tmp_path: Path, eager: MicroSettings, policy: Any, switches: Switches, warm: str, cold: str
) -> None:
    rules = []
    for name, silence in (("warm", 0.0), ("cold", HOUR)):
        (tmp_path / name).mkdir()
        talk = by_ladder(tmp_path / name, replace(eager, policy=policy), switches)
        filled(talk)
        talk.clock.time += silence
        talk.fit()
        rules.append("".join(event.by for event in talk.of(Cleared)))

    assert rules == [warm, cold]


def test_only_the_main_conversation_is_cleared(tmp_path: Path, eager: MicroSettings) -> None:
    parts = make_parts(folder=tmp_path, settings=Settings(micro=eager))
    clearing = {
        role: any(isinstance(layer, Microcompaction) for layer in make_standard_layers(role, parts).fit)
        for role in ROLES
    }
    assert clearing == {"main": True, "agent": False, "fork": False}


def test_where_the_provider_deletes_from_its_cache_nothing_is_cleared_here(
    tmp_path: Path, eager: MicroSettings
) -> None:
    able = Capabilities(edits_cache=True)
    talk = by_ladder(tmp_path, eager, Switches(), able)
    filled(talk)
    talk.fit()
    off = by_ladder(tmp_path, eager, Switches(micro_cache_edit=False), able)
    filled(off)
    off.fit()

    assert talk.cleared == []
    assert off.cleared != []


# --- asked for again ------------------------------------------------------------------------------------


def test_what_is_asked_for_again_is_counted_told_once_and_survives_a_resume(
    tmp_path: Path, eager: MicroSettings
) -> None:
    talk = Talk(tmp_path, eager)
    for n in range(12):
        talk.call("Read", 8_000, file_path=f"/f{n}")
    talk.fit()
    talk.call("Read", 8_000, file_path="/f0")
    talk.call("Bash", 8_000, command="ls")
    talk.call("Read", 8_000, file_path="/f11")  # was never cleared
    talk.fit()
    talk.fit()
    [told] = talk.of(ReadAgain)
    assert (told.tool, told.what, told.times) == ("Read", "Read /f0", 1)
    assert told.tokens == pytest.approx(2_020, abs=10)
    assert talk.view.marks[REREAD]["count"] == 1

    talk.resume()
    talk.fit()
    assert len(talk.of(ReadAgain)) == 1, "what was told is not told again"
    talk.call("Read", 8_000, file_path="/f1")
    talk.fit()
    assert [event.times for event in talk.of(ReadAgain)] == [1, 2]


def test_what_was_asked_for_again_twice_stays_also_after_a_resume(
    tmp_path: Path, eager: MicroSettings
) -> None:
    talk = Talk(tmp_path, replace(eager, keep_recent=1))
    for n in range(OFTEN + 1):
        last = talk.call("Read", 30_000, file_path="/a")
        filled(talk, 8)
        talk.clock.time += 400
        talk.fit()
        if n == OFTEN - 1:
            talk.resume()
            talk.fit()

    assert len(talk.of(ReadAgain)) == OFTEN
    assert talk.shown[last] == text_of(last, 30_000)
    assert len(talk.cleared) > 20


@pytest.mark.parametrize("damaged", [None, 5, "x", [], {"count": "many"}, {"often": [[1]]}])
def test_a_damaged_count_is_begun_anew(tmp_path: Path, eager: MicroSettings, damaged: object) -> None:
    talk = Talk(tmp_path, eager)
    talk.log.add(Mark(REREAD, damaged), Mark("cache.frontier", damaged), by="Microcompaction")
    talk.resume()
    filled(talk)

    assert talk.fit()
    assert not talk.of(Failed)


def stubborn(talk: Talk, steps: int, again: Callable[[str], dict[str, Any]]) -> None:
    """A model that wants everything it has read, and reads again whatever is gone."""
    for step in range(steps):
        shown = talk.shown
        missing = [what for what, id in here(talk).items() if shown[id].startswith(CLEARED)]
        if missing:
            what = missing[0]
            args = again(here(talk)[what])
            talk.call("Read", 12_000, what=what, **args)
        else:
            talk.call("Read", 12_000, what=f"/f{step}", file_path=f"/f{step}")
        talk.fit()


def here(talk: Talk) -> dict[str, str]:
    """The newest result of each thing that is wanted."""
    uses = [use for placed in talk.view for use in placed.message.tool_uses]
    return {use.input["what"]: use.id for use in uses}


@pytest.mark.parametrize("by_marker", [False, True])
def test_a_model_that_reads_again_whatever_is_cleared_is_left_alone_soon(
    tmp_path: Path, eager: MicroSettings, by_marker: bool
) -> None:
    """Complaint 17: one file was read 66 times."""
    talk = Talk(tmp_path, replace(eager, least_freed=10_000))

    def again(id: str) -> dict[str, Any]:
        kept = parse_marker(talk.shown[id])
        assert kept is not None
        if not by_marker:
            first = next(u for p in talk.view for u in p.message.tool_uses if u.id == id)
            return {"file_path": first.input["file_path"]}
        path = str(tmp_path / "tool-results" / kept.file)
        return {"file_path": path, "offset": kept.first, "limit": kept.last - kept.first + 1}

    stubborn(talk, 200, again)

    times = dict[str, int]()
    for placed in talk.view:
        for use in placed.message.tool_uses:
            times[use.input["what"]] = times.get(use.input["what"], 0) + 1
    assert max(times.values()) <= 1 + OFTEN
    assert len(talk.of(ReadAgain)) == sum(times.values()) - len(times)
    assert len(talk.of(ReadAgain)) >= BREAKER_LEAST, "it did ask again"
    assert len(talk.cleared) < 60
    [said] = talk.of(Notice)
    assert "microcompaction stops" in said.text
    assert said.level == "warning"
    assert len(talk.of(Cleared)) < 10


def test_that_clearing_stops_is_said_once_in_a_session_however_often_it_is_resumed(
    tmp_path: Path, eager: MicroSettings
) -> None:
    talk = Talk(tmp_path, replace(eager, least_freed=10_000))

    def again(id: str) -> dict[str, Any]:
        first = next(u for p in talk.view for u in p.message.tool_uses if u.id == id)
        return {"file_path": first.input["file_path"]}

    stubborn(talk, 120, again)
    assert len(talk.of(Notice)) == 1
    for n in range(3):
        talk.resume()
        for m in range(20):
            talk.call("Bash", 20_000, command=f"make {n}.{m}")
            talk.fit()

    assert len(talk.of(Notice)) == 1
    assert talk.view.marks[REREAD]["stopped"]


def test_the_breaker_compares_with_all_that_was_ever_cleared(tmp_path: Path, eager: MicroSettings) -> None:
    """A compaction takes the cleared ones out of the view: they were cleared all the same."""
    talk = Talk(tmp_path, eager)
    many = int(BREAKER_LEAST / BREAKER_SHARE) + 30
    for n in range(many):
        talk.call("Read", 8_000, file_path=f"/f{n}")
    talk.fit()
    for n in range(BREAKER_LEAST):
        talk.call("Read", 8_000, file_path=f"/f{n}")
        talk.fit()
    assert len(talk.of(ReadAgain)) == BREAKER_LEAST
    first, last = talk.view[0].id, talk.view[-1].id
    talk.log.add(Replace(first, last, (user("a summary"),)), by="compaction")
    cleared_before = len(talk.of(Cleared))
    filled(talk)
    talk.fit()

    assert not talk.of(Notice)
    assert len(talk.of(Cleared)) == cleared_before + 1
    talk.resume()
    filled(talk)
    assert talk.fit()
    assert not talk.of(Notice)


def read_all(talk: Talk, many: int, name: str = "f") -> int:
    """So many files; returns how many of all that were ever read are cleared then."""
    for n in range(many):
        talk.call("Read", 8_000, file_path=f"/{name}{n}")
    talk.fit()
    return sum(len(event.use_ids) for event in talk.of(Cleared))


def test_the_breaker_adds_what_was_cleared_after_a_compaction(tmp_path: Path, eager: MicroSettings) -> None:
    talk = Talk(tmp_path, eager)
    read_all(talk, 45)
    summary = Replace(talk.view[0].id, talk.view[-1].id, (user("a summary"),))
    talk.log.add(summary, by="compaction")
    talk.fit()
    ever = read_all(talk, 45, "g")
    assert ever == 80
    again = int(BREAKER_SHARE * ever) - 4
    assert again > max(BREAKER_LEAST, BREAKER_SHARE * 40)
    for n in range(again):
        talk.call("Read", 8_000, file_path=f"/g{n}")
        talk.fit()

    assert len(talk.of(ReadAgain)) == again
    assert not talk.of(Notice)


def test_the_breaker_knows_after_a_resume_what_had_been_cleared(
    tmp_path: Path, eager: MicroSettings
) -> None:
    talk = Talk(tmp_path, replace(eager, least_freed=10**6))
    talk.settings = eager
    talk.open()
    assert read_all(talk, 85) == 80
    talk.settings = replace(eager, least_freed=10**6)
    talk.resume()
    talk.fit()
    for n in range(BREAKER_LEAST + 2):
        talk.call("Read", 8_000, file_path=f"/f{n}")
        talk.fit()

    assert len(talk.of(ReadAgain)) == BREAKER_LEAST + 2
    assert not talk.of(Notice)


# --- thinking that is bound to what stands before it ----------------------------------------------------

BINDS = Capabilities(binds_thinking=True)


def thoughts(talk: Talk) -> int:
    blocks = [block for placed in talk.view for block in placed.message.content]
    return sum(isinstance(block, THOUGHTS) for block in blocks)


def test_bound_thinking_in_an_open_loop_is_waited_for_and_goes_at_the_next_turn(
    tmp_path: Path, eager: MicroSettings
) -> None:
    talk = Talk(tmp_path, eager, BINDS)
    for _ in range(40):
        talk.think_and_call("Bash", 8_000)
        assert talk.fit() == [], "the provider would refuse it"
    talk.answer("Done.", Thinking("so", "signed"))
    talk.say("and now?")
    before = thoughts(talk)
    cleared = talk.fit()

    assert len(cleared) == 35
    [written] = list(talk.writes())
    assert {type(entry.what) for entry in written} == {Results, Mark, Unthink}
    assert before == 41
    assert thoughts(talk) == 1, "what stands before the first change is still bound to the same"
    assert not talk.of(Declined)
    assert len(talk.of(Cleared)) == 1
    assert talk.expected == [talk.of(Cleared)[0].why]


def test_every_turn_of_a_thinking_model_clears_what_the_last_one_left(
    tmp_path: Path, eager: MicroSettings
) -> None:
    talk = Talk(tmp_path, replace(eager, margin=4.0, least_freed=30_000), BINDS)
    for turn in range(5):
        for _ in range(30):
            talk.think_and_call("Bash", 8_000)
            talk.fit()
        talk.answer("Done.", Thinking("so", "signed"))
        talk.say("and now?")
        talk.fit()
        assert len(talk.of(Cleared)) == turn + 1
    assert not talk.of(Declined)
    assert not talk.of(Failed)


def test_a_loop_without_thoughts_is_no_reason_to_wait(tmp_path: Path, eager: MicroSettings) -> None:
    talk = Talk(tmp_path, eager, BINDS)
    talk.think_and_call("Bash", 8_000)
    talk.answer()
    talk.say("go on, without thinking")
    for _ in range(12):
        talk.call("Bash", 8_000)

    assert len(talk.fit()) == 8
    assert thoughts(talk) == 1


def test_a_result_behind_the_last_thought_of_the_loop_may_go(tmp_path: Path, eager: MicroSettings) -> None:
    talk = Talk(tmp_path, replace(eager, keep_recent=1), BINDS)
    talk.think_and_call("mcp__x", 400)
    for _ in range(12):
        talk.call("Bash", 8_000)

    assert len(talk.fit()) == 11
    assert thoughts(talk) == 1


def test_what_bound_thinking_holds_does_not_keep_the_rest_of_a_loop_from_going(
    tmp_path: Path, eager: MicroSettings
) -> None:
    talk = Talk(tmp_path, eager, BINDS)
    held = [talk.think_and_call("Bash", 8_000) for _ in range(6)]
    for _ in range(14):
        talk.call("Bash", 8_000)

    cleared = talk.fit()
    assert len(cleared) == 15 - eager.keep_recent, "from the result of the last thought on"
    assert not set(cleared) & set(held[:-1])
    assert thoughts(talk) == 6
    assert not talk.of(Declined)

    talk.answer()
    talk.say("and now?")
    assert set(talk.fit()) >= set(held[:-1]), "the loop is over"


def test_a_provider_that_drops_thinking_itself_is_cleared_in_the_middle_of_a_loop(
    tmp_path: Path, eager: MicroSettings
) -> None:
    talk = Talk(tmp_path, eager, Capabilities(binds_thinking=True, drops_thinking=True))
    for _ in range(12):
        talk.think_and_call("Bash", 8_000)

    assert len(talk.fit()) == 7
    assert thoughts(talk) == 12
    [[_, _]] = list(talk.writes())


async def test_a_whole_turn_with_bound_thinking_is_never_declined(
    tmp_path: Path, eager: MicroSettings
) -> None:
    def step(n: int) -> Callable[[Any], Any]:
        def reply(request: Any) -> Any:
            if n % 12 == 11:
                return assistant(Thinking("so", "s"), Text("done"))
            return assistant(Thinking("hm", "s"), ToolUse(f"c{n}", "Bash", {"command": f"{n}"}))

        return reply

    events: list[Event] = []
    model = ScriptedModel([step(n) for n in range(48)], BINDS)
    layer = Microcompaction(
        make_parts(able=BINDS, folder=tmp_path / "r", events=events, settings=Settings(micro=eager))
    )
    tools = FakeTools({"Bash": lambda use: text_of(use.id, 8_000)})
    turn = make(model, Layers(fit=(layer,)), events=events, tools=tools)
    for n in range(4):
        await turn.run(user(f"part {n}"))

    kinds = [type(event) for event in events]
    assert kinds.count(Cleared) == 3
    assert Declined not in kinds
    assert Failed not in kinds


# --- the same bytes afterwards --------------------------------------------------------------------------


def test_a_fork_and_a_resume_after_a_clear_send_the_same_bytes(
    tmp_path: Path, eager: MicroSettings
) -> None:
    talk = filled(Talk(tmp_path, eager))
    early = talk.view
    was = list(early)
    assert talk.fit()
    here = encode_prefix(talk.turn.request)
    child = Transcript.on(talk.view, talk.clock.now)
    assert encode_prefix(replace(talk.turn.request, view=child.view)) == here
    child.add(user("of the child only"))
    again = Transcript.load(b"".join(talk.lines), talk.clock.now)

    assert encode_prefix(replace(talk.turn.request, view=again.view)) == here
    assert encode_prefix(talk.turn.request) == here
    assert list(early) == was
    assert encode_prefix(replace(talk.turn.request, view=early)) != here
    assert again.view.marks == msgspec.json.decode(msgspec.json.encode(talk.view.marks))
    talk.resume()
    talk.call("Bash", 400)
    assert talk.fit() == [], "a new process has nothing to clear that the old one left"
    assert extends(here, encode_prefix(talk.turn.request))


def test_everything_before_the_first_result_that_went_is_the_same_object(
    tmp_path: Path, eager: MicroSettings
) -> None:
    talk = Talk(tmp_path, eager)
    talk.call("mcp__x", 8_000)
    filled(talk)
    before = list(talk.view)
    talk.fit()
    changed = [at for at, placed in enumerate(talk.view) if placed is not before[at]]

    assert [talk.view[at].message.results[0].tool_use_id for at in changed] == talk.cleared


# --- the ledger is told before --------------------------------------------------------------------------


def test_the_break_is_expected_by_a_real_ledger(tmp_path: Path, eager: MicroSettings) -> None:
    talk = filled(Talk(tmp_path, eager))
    events: list[Event] = []
    ledger = Ledger(PRICES, talk.clock, events.append)
    first = talk.turn.request
    ledger.before(first)
    ledger.after(first, Reply(assistant(Text("so")), Usage(cache_write=30_000)))
    assert talk.fit()
    for why in talk.expected:
        ledger.expect(why)
    second = talk.turn.request
    ledger.before(second)
    ledger.after(second, Reply(assistant(Text("so")), Usage(cache_read=500, cache_write=12_000)))

    [why] = talk.expected
    sending = [event for event in events if isinstance(event, Sending)][-1]
    [broke] = [event for event in events if isinstance(event, CacheBroke)]
    assert sending.expected
    assert sending.why == broke.why == why == talk.of(Cleared)[0].why
    assert broke.expected


def test_the_model_of_the_frame_is_priced(tmp_path: Path, eager: MicroSettings) -> None:
    """A model whose price nobody knows is cleared by the usual ones, and one with a price by its own."""
    known, unknown = (tmp_path / "a", tmp_path / "b")
    for folder in (known, unknown):
        folder.mkdir()
    one = filled(Talk(known, eager, model=MODEL))
    other = filled(Talk(unknown, eager, model="nobody-knows-this-one"))
    one.fit()
    other.fit()
    [a], [b] = one.of(Cleared), other.of(Cleared)

    assert PRICES.of(other.turn.frame.model) is None
    assert (a.saving, a.price) == (b.saving, b.price)
    assert one.turn.frame == Frame(MODEL)
