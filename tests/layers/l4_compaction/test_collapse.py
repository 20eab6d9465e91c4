"""Collapsing: finished tool rounds become a few lines, what was said stays, and all can be expanded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import make, make_parts, use
from layers.l4_compaction.foldable import (
    BINDS,
    FRAME,
    LOG,
    PLAIN,
    WINDOWS,
    copied,
    expand_snip,
    offered,
    pressed,
    random_talk,
    reloaded,
    rounds,
    sent,
    talked,
    written,
)
from layers.l4_compaction.foldable import expand_collapse as expand

from sevenfold.core.errors import PromptTooLong
from sevenfold.core.events import Added, Compacted, Declined, Event
from sevenfold.core.messages import Message, Opaque, Text, Thinking, ToolResult, ToolUse, assistant, user
from sevenfold.core.protocols import Capabilities, Change, Layers
from sevenfold.core.request import Request, has_paired_tools
from sevenfold.core.tokens import Pressure, Thresholds
from sevenfold.core.transcript import Mark, Replace, Reply, Transcript
from sevenfold.layers.l4_compaction.digest import Digest
from sevenfold.layers.l4_compaction.fold import (
    BLOCK,
    COMMIT,
    KEEP_ROUNDS,
    Collapse,
    Snip,
    UnlessCollapsing,
    find_collapsed,
    find_folds,
    format_projection,
)
from sevenfold.layers.l4_compaction.fold import BY_COLLAPSE as BY
from sevenfold.layers.l4_compaction.fold import LEAST_COLLAPSE as LEAST
from sevenfold.layers.l4_compaction.fold import LOW_COLLAPSE as LOW
from sevenfold.layers.l4_compaction.fold import expand_folds as folding_expand
from sevenfold.layers.shared.boundary import STANDS_FOR, find_last_boundary, find_record
from sevenfold.layers.shared.facts import Facts
from sevenfold.recordings.claude_code import read_session
from sevenfold.recordings.recorded_session import convert_recording
from sevenfold.testing import ScriptedModel

SESSIONS = sorted((Path(__file__).parents[3] / "../shared/data/sessions").glob("*.jsonl.gz"))[::4]


def effective(window: int) -> int:
    return Thresholds.of(window, 32_000).effective


def filled(share: float, window: int = 32_000, tail: int = 6) -> Transcript:
    """Finished turns and one that is going on, together this share of the effective window."""
    log = talked(turns=4, tail=0)
    n = 1_000
    while True:
        rest = Transcript(lambda: 0.0)
        for entry in log.entries:
            rest.add(entry.what, by=entry.by)
        rounds(rest, tail, 2_000, n)
        if pressed(Request(FRAME, rest.view), window).tokens > effective(window) * share:
            return rest
        log.add(Reply(assistant(Text("Yes."))), by="model")
        log.add(user(f"task {n}"))
        rounds(log, 3, 600, n + 100)
        log.add(Reply(assistant(Text("Done."))), by="model")
        log.add(user("go on"))
        n += 1_000


def projections(log: Transcript) -> list[str]:
    return [m.text for m in log.view.messages if m.text.startswith("<collapsed>")]


# --- when -----------------------------------------------------------------------------------------------


def test_below_its_share_nothing_is_collapsed_and_just_above_it_something_is() -> None:
    log = filled(0.88)
    share = pressed(Request(FRAME, log.view), 32_000).tokens / effective(32_000)
    assert share < COMMIT
    assert offered(Collapse, log, 32_000) == []
    assert offered(Collapse, filled(COMMIT), 32_000)


def test_it_comes_down_to_its_low_mark_the_oldest_first() -> None:
    log = filled(COMMIT)
    oldest = next(p.id for p in log.view if p.message.role == "assistant")
    handed = offered(Collapse, log, 32_000)
    written(log, handed, BY)
    folds = find_collapsed(log)
    now = pressed(Request(FRAME, log.view), 32_000).tokens

    assert effective(32_000) * (LOW - 0.1) < now <= effective(32_000) * LOW
    assert folds[0].first == oldest
    assert [f.first for f in folds] == sorted(f.first for f in folds)
    assert offered(Collapse, log, 32_000) == []


def test_a_run_that_is_going_on_is_collapsed_only_when_the_window_is_full() -> None:
    """One request of the user, and nothing but rounds."""
    for share, some in ((COMMIT + 0.01, False), (BLOCK + 0.01, True)):
        log, n = Transcript(lambda: 0.0), 0
        log.add(user("build everything"))
        while pressed(Request(FRAME, log.view), 32_000).tokens < effective(32_000) * share:
            rounds(log, 1, 1_000, n)
            n += 1
        before = log.view.messages
        handed = offered(Collapse, log, 32_000)
        assert bool(handed) == some
        if some:
            written(log, handed, BY)
            assert log.view.messages[-2 * KEEP_ROUNDS :] == before[-2 * KEEP_ROUNDS :]
            assert log.view.messages[0] == before[0]


def test_when_it_cannot_get_below_the_block_it_changes_nothing() -> None:
    log = Transcript(lambda: 0.0)
    log.add(user("look " * 20_000))
    rounds(log, 8, 2_000)
    log.add(Reply(assistant(Text("Done."))), by="model")
    log.add(user("and?"))

    assert pressed(Request(FRAME, log.view), 24_000).tokens > effective(24_000) * BLOCK
    assert offered(Collapse, log, 24_000) == []


def test_after_a_refusal_it_frees_enough_or_nothing() -> None:
    log = talked(turns=12)
    tokens = pressed(Request(FRAME, log.view), 200_000).tokens
    some = PromptTooLong("too long", tokens=tokens + 2_000, limit=tokens)
    impossible = PromptTooLong("too long", tokens=tokens * 20, limit=tokens)
    assert offered(Collapse, log, 200_000, refused=impossible) == []
    written(log, offered(Collapse, log, 200_000, refused=some), BY)
    boundary = find_last_boundary(log.view)

    assert boundary is not None
    assert (boundary.by, boundary.trigger) == ("collapse", "refused")
    assert boundary.tokens_before - boundary.tokens_after >= 2_000


# --- while it is on, compaction waits -------------------------------------------------------------------


class Compaction:
    """A compaction that counts how often it is asked."""

    asked = 0

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        self.asked += 1
        return ()


@pytest.mark.anyio
async def test_compaction_waits_until_the_block_or_a_refusal() -> None:
    inner = Compaction()
    layer = UnlessCollapsing(inner)
    for share, times in ((COMMIT, 0), (0.92, 0), (BLOCK + 0.01, 1)):
        request = Request(FRAME, filled(share).view)
        pressure = pressed(request, 32_000)
        assert (pressure.tokens > effective(32_000) * BLOCK) == bool(times)
        await layer.fit(request, pressure)
        assert inner.asked == times
    request = Request(FRAME, talked().view)
    await layer.fit(request, pressed(request, 32_000, PromptTooLong("too long")))
    assert inner.asked == 2


@pytest.mark.anyio
async def test_what_a_waiting_compaction_writes_is_still_its_own() -> None:
    events: list[Event] = []
    model = ScriptedModel(["done"], Capabilities(window=8_000))
    digest = Digest(make_parts(model, events=events))
    log = talked(turns=4, size=3_000)
    turn = make(model, Layers(fit=(UnlessCollapsing(digest),)), events=events, transcript=log)
    await turn.run()

    assert [e.by for e in events if isinstance(e, Added)] == ["Digest"]


# --- what -----------------------------------------------------------------------------------------------


def test_what_was_said_on_both_sides_stays_word_for_word() -> None:
    log = filled(COMMIT)
    words = [m.text for m in log.view.messages if m.text]
    written(log, offered(Collapse, log, 32_000), BY)
    left = [m.text for m in log.view.messages if m.text and not m.text.startswith("<collapsed>")]

    assert left == words


def test_a_projection_tells_files_commands_errors_and_where_the_rest_is() -> None:
    log = Transcript(lambda: 0.0)
    log.add(user("mend it"))
    calls: list[tuple[ToolUse, str, bool]] = [
        (ToolUse("a", "Read", {"file_path": "/src/a.py"}), "x = 1\n" * 900, False),
        (ToolUse("b", "Edit", {"file_path": "/src/b.py"}), "changed", False),
        (ToolUse("c", "Bash", {"command": "make test"}), "Error: no rule\nstop", True),
        (ToolUse("d", "Bash", {"command": "make test"}), "all good\n3 passed", False),
        (ToolUse("e", "WebFetch", {"url": "https://example.org"}), "page " * 900, False),
    ]
    for call, text, failed in calls:
        log.add(Reply(assistant(call)), by="model")
        log.add(Message("user", (ToolResult(call.id, text, failed),)), by="tools")
    log.add(Reply(assistant(Text("Mended."))), by="model")
    log.add(user("thanks, and now?"))
    refused = PromptTooLong("too long", tokens=4_100, limit=4_000)
    written(log, offered(Collapse, log, 200_000, refused=refused), BY)
    (told,) = projections(log)

    assert "5 rounds of tool calls" in told
    assert str(LOG) in told
    assert "Files changed: /src/b.py" in told
    assert "Files read: /src/a.py" in told
    assert "- make test (2 times): worked; it ended: 3 passed" in told
    assert "the same worked later" in told
    assert "- WebFetch: once" in told


def test_what_the_rounds_did_is_known_to_whoever_compacts_later() -> None:
    log = filled(COMMIT)
    written(log, offered(Collapse, log, 32_000), BY)
    told = next(placed for placed in log.view if placed.message.text.startswith("<collapsed>"))
    record = find_record(told, log.view.marks)

    assert record is not None
    assert [c.text for c in record.facts.commands] == [f"make part{i}" for i in range(4)]


def test_a_projection_cannot_be_ended_by_what_is_quoted_in_it() -> None:
    assert format_projection(["</collapsed> <collapsed>"], Facts()).count("</collapsed>") == 1


def test_rounds_that_are_shorter_than_what_could_be_told_of_them_stay() -> None:
    log = Transcript(lambda: 0.0)
    for n in range(400):
        log.add(user(f"question {n} " + "why " * 20))
        log.add(Reply(use(f"u{n}", "Bash", command="date")), by="model")
        log.add(Message("user", (ToolResult(f"u{n}", "today"),)), by="tools")
        log.add(Reply(assistant(Text("Today."))), by="model")
    log.add(user("and?"))

    assert pressed(Request(FRAME, log.view), 24_000).tokens > effective(24_000) * COMMIT
    assert offered(Collapse, log, 24_000) == []


def test_what_the_provider_does_not_see_any_more_is_not_collapsed() -> None:
    """Before the provider's own summary there is nothing to free."""
    log = filled(COMMIT)
    block = Opaque("compaction", '{"type":"compaction","content":"so far so good"}')
    log.add(Reply(assistant(block, Text("Going on."))), by="model")
    log.add(user("more"))
    assert offered(Collapse, log, 32_000) == []
    assert offered(Snip, log, 32_000) == []


def test_bound_thinking_in_a_loop_that_is_going_on_is_never_touched() -> None:
    """A fold before it would unbind it, and the loop still needs it: nothing is folded until it ends."""
    log = filled(COMMIT)
    log.add(user("go on"))
    asked = assistant(Thinking("hm", "signed"), ToolUse("last", "Read", {"file_path": "a.py"}))
    log.add(Reply(asked, stop="tool_use"), by="model")
    log.add(Message("user", (ToolResult("last", "text"),)), by="tools")

    assert offered(Collapse, log, 32_000, BINDS) == []
    assert offered(Collapse, log, 32_000), "where thinking is not bound there is something to fold"
    log.add(Reply(assistant(Text("Done."))), by="model")
    log.add(user("and now"))
    assert offered(Collapse, log, 32_000, BINDS), "and when the loop is over"


@pytest.mark.parametrize("layer", [Collapse, Snip])
def test_what_stands_behind_it_is_written_before_the_edit(layer: type[Collapse] | type[Snip]) -> None:
    """A write that is torn between the two then loses an edit, and never the words behind one."""
    handed = offered(layer, filled(COMMIT), 32_000)
    records = [n for n, what in enumerate(handed) if _is_record(what)]
    edits = [n for n, what in enumerate(handed) if isinstance(what, Replace)]

    assert records
    assert max(records) < min(edits)


def _is_record(what: object) -> bool:
    return isinstance(what, Mark) and what.name.startswith(STANDS_FOR)


# --- expanding, resume ----------------------------------------------------------------------------------


def test_one_of_many_is_expanded_and_the_others_stay() -> None:
    log = filled(COMMIT)
    before = {p.id: p.message for p in log.view}
    written(log, offered(Collapse, log, 32_000), BY)
    first, *others = find_collapsed(log)
    assert others
    written(log, expand(log, first.id), BY)
    now = {p.id: p.message for p in log.view}

    assert [f.id for f in find_collapsed(log)] == [f.id for f in others]
    inside = [id for id in before if first.first <= id <= first.last]
    assert inside
    assert all(now[id] == before[id] for id in inside)
    assert find_last_boundary(log.view) is not None, "the others are still collapsed"


def test_expanding_all_brings_back_every_byte() -> None:
    log = filled(COMMIT)
    before = sent(log)
    written(log, offered(Collapse, log, 32_000), BY)
    assert sent(log) != before
    for fold in find_collapsed(log):
        written(log, expand(log, fold.id), BY)

    assert sent(log) == before
    assert find_collapsed(log) == []
    assert find_last_boundary(log.view) is None


def test_what_was_expanded_stays_until_the_window_is_full() -> None:
    log = talked(turns=1, each=20, tail=0)
    tokens = pressed(Request(FRAME, log.view), 200_000).tokens
    nearly, full = (int(tokens / (share * 0.9)) for share in (0.92, 0.97))  # 0.9 is effective
    written(log, offered(Collapse, log, nearly), BY)
    written(log, expand(log, find_collapsed(log)[0].id), BY)

    assert pressed(Request(FRAME, log.view), nearly).tokens > effective(nearly) * COMMIT
    assert offered(Collapse, log, nearly) == []
    assert offered(Collapse, log, full)


def test_expanding_what_is_not_there_gives_nothing() -> None:
    log = filled(COMMIT)
    written(log, offered(Collapse, log, 32_000), BY)
    folds = find_collapsed(log)
    log.add(Replace(log.view[0].id, log.view[-2].id, (user("a summary"),)), by="Compaction")

    assert expand(log, folds[0].id) == ()
    assert expand(log, 999_999) == ()
    assert find_collapsed(log) == []


def test_a_resumed_session_sends_the_same_bytes_and_can_still_expand() -> None:
    log, lines = copied(filled(COMMIT))
    before = sent(log)
    written(log, offered(Collapse, log, 32_000), BY)
    resumed = reloaded(lines)

    assert sent(resumed) == sent(log)
    assert resumed.view == log.view
    assert find_collapsed(resumed) == find_collapsed(log)
    for fold in find_collapsed(resumed):
        written(resumed, expand(resumed, fold.id), BY)
    assert sent(resumed) == before


# --- any conversation -----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    window=st.sampled_from(WINDOWS),
    full=st.floats(0.8, 1.05),
    thinks=st.booleans(),
    binds=st.booleans(),
)
def test_whatever_comes_the_laws_hold(
    seed: int, window: int, full: float, thinks: bool, binds: bool
) -> None:
    able = BINDS if binds else PLAIN
    log, lines = copied(random_talk(seed, int(effective(window) * full), thinks=thinks))
    before, entries = sent(log), list(log.entries)
    words = [p.message for p in log.view if p.by in ("user", "Recall")]
    tokens = pressed(Request(FRAME, log.view), window).tokens
    handed = offered(Collapse, log, window, able)
    if tokens <= effective(window) * COMMIT:
        assert handed == []
    if not handed:
        return
    written(log, handed, BY, able)
    now = pressed(Request(FRAME, log.view), window).tokens

    assert now <= effective(window) * BLOCK
    assert tokens - now >= effective(window) * LEAST
    assert [p.message for p in log.view if p.by in ("user", "Recall")] == words
    assert log.entries[: len(entries)] == entries
    assert sent(reloaded(lines)) == sent(log)
    for fold in find_collapsed(log):
        written(log, expand(log, fold.id), BY, able)
    assert has_paired_tools(log.view)
    if not (thinks and binds):
        assert sent(log) == before


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.stem)
@pytest.mark.parametrize("binds", [False, True])
def test_real_sessions_are_folded_and_put_back(path: Path, binds: bool) -> None:
    able = BINDS if binds else PLAIN
    recorded = convert_recording(read_session(path))
    for layer, by in ((Snip, "Snip"), (Collapse, BY)):
        log, lines = copied(recorded)
        before = sent(log)
        handed = offered(layer, log, 128_000, able)
        if not handed:
            continue
        written(log, handed, by, able)
        assert sent(reloaded(lines)) == sent(log)
        for fold in find_folds(log, by):
            if back := folding_expand(log, by, [fold.id]):
                written(log, back, by, able)
        assert binds or sent(log) == before


# --- in a turn, with snipping ---------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_turn_writes_it_and_goes_on() -> None:
    log, events, told = filled(COMMIT), list[Event](), list[str]()
    model = ScriptedModel(["Everything is done."], Capabilities(window=32_000))
    layer = Collapse(make_parts(model, events=events, expected=told))
    turn = make(model, Layers(fit=(layer,)), events=events, transcript=log)
    await turn.run()

    assert not [e for e in events if isinstance(e, Declined)]
    assert [e.by for e in events if isinstance(e, Compacted)] == ["collapse"]
    assert told == ["finished rounds of tool calls were collapsed"]


def test_what_is_collapsed_can_be_snipped_later_and_both_taken_back() -> None:
    log = filled(COMMIT)
    before = sent(log)
    written(log, offered(Collapse, log, 32_000), BY)
    between = sent(log)
    written(log, offered(Snip, log, 24_000), "Snip")
    assert sent(log) != between
    written(log, expand_snip(log), "Snip")
    assert sent(log) == between
    for fold in find_collapsed(log):
        written(log, expand(log, fold.id), BY)
    assert sent(log) == before
