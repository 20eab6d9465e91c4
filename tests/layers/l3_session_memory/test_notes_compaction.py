"""The notes stand in for the older part: what stays, what is quoted, and when they decline."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import make, make_parts
from layers.l3_session_memory.noting import LOG, Noting, noted

from sevenfold.core.clock import run_without_waiting
from sevenfold.core.errors import PromptTooLong
from sevenfold.core.events import Declined, Event, Failed, Notice, Progress
from sevenfold.core.messages import (
    THOUGHTS,
    Image,
    Message,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    assistant,
    user,
)
from sevenfold.core.protocols import Capabilities, Change, Layers
from sevenfold.core.request import (
    Frame,
    Request,
    complete_changes,
    find_last_loop_thinking,
    has_paired_tools,
    measure_pressure,
)
from sevenfold.core.tokens import MessageSize, Thresholds, estimate_tokens
from sevenfold.core.transcript import Mark, Replace, Reply, Transcript, View
from sevenfold.layers.l3_session_memory.notes import NOTES
from sevenfold.layers.l3_session_memory.notes_compaction import (
    NotesCompaction,
    TailSize,
    find_boundary_end,
    find_tail_start,
    make_notes_message,
)
from sevenfold.layers.l4_compaction.digest import Digest
from sevenfold.layers.shared.boundary import (
    Boundary,
    estimate_padded_tokens,
    find_last_boundary,
    find_thinking_loop,
)
from sevenfold.layers.shared.facts import Facts, UserTurn
from sevenfold.layers.shared.restore import CompactionCut
from sevenfold.recordings.claude_code import read_session
from sevenfold.recordings.recorded_session import convert_recording
from sevenfold.settings.layers import NotesSettings
from sevenfold.testing import FakeClock, ScriptedModel

SESSIONS = sorted((Path(__file__).parents[3] / "../shared/data/sessions").glob("*.jsonl.gz"))
SMALL = Capabilities(window=32_000)
"""Auto-compact at 26,720 tokens; a tail of 1,600 and 5 messages, at most 6,400."""
NOTED = noted(Session_title="Parser rewrite", Current_state="Fixing src/f7.py.", Worklog="- read f0 to f9")


def covers(talk: Noting, at: int) -> None:
    """The notes go up to this message."""
    id = talk.view[at].id
    talk.log.add(Mark(NOTES, {"tokens": 1, "size": 1, "last": id, "anchor": id}), by="NotesKeeping")


def full(folder: Path, text: str = NOTED, **more: Any) -> Noting:
    """A conversation that fills its window, and notes on all but the last few messages."""
    talk = Noting(folder, able=SMALL, **more)
    talk.log.add(user("<context>\nDate: today\n</context>"), by="session")
    talk.say("Rewrite the parser, and never touch the file LICENSE.")
    for n in range(20):
        talk.call(n, 0, 4_000)
        talk.answer(f"Done with part {n}.")
    talk.say("Now the tests, please.")
    for n in range(20, 25):
        talk.call(n, 0, 2_000)
    covers(talk, 50)
    talk.write(text)
    return talk


async def paid(talk: Noting, binds: bool = False) -> str:
    """Write what is handed back as the turn would; returns the text of the message with the notes."""
    handed = await talk.pay()
    assert handed, [e.said for e in talk.of(Progress)]
    whole = complete_changes(handed, talk.log, binds)
    assert whole is not None, "the turn would decline it"
    talk.log.add(*whole, by="PayOut")
    [text] = [m.text for m in talk.view.messages if m.text.startswith("<session-notes>")]
    return text


# --- what it hands back ---------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_the_older_part_becomes_the_notes_and_no_model_is_asked(tmp_path: Path) -> None:
    talk = full(tmp_path)
    before = measure_pressure(talk.request, talk.thresholds, 0.0).tokens
    assert before > talk.thresholds.auto_compact
    text = await paid(talk)

    assert "# Current state\nFixing src/f7.py.\n\n# Worklog\n" in text, "without empty sections"
    assert str(LOG) in text
    assert text.endswith("</session-notes>")
    assert measure_pressure(talk.request, talk.thresholds, 0.0).tokens < before / 2
    assert has_paired_tools(talk.view)
    assert talk.model.requests == []


@pytest.mark.anyio
async def test_the_ledger_and_the_user_are_told_and_the_boundary_says_what_was_done(tmp_path: Path) -> None:
    talk = full(tmp_path)
    old = talk.view
    before = measure_pressure(talk.request, talk.thresholds, 0.0).tokens
    await paid(talk)

    boundary = find_last_boundary(talk.view)
    assert boundary
    assert (boundary.by, boundary.trigger, boundary.tokens_before) == ("notes", "auto", before)
    assert boundary.tokens_after == measure_pressure(talk.request, talk.thresholds, 0.0).tokens
    kept = old.where(boundary.kept_from)
    assert kept is not None
    assert old[kept - 1].id == boundary.last
    assert talk.view.messages[-(len(old) - kept) :] == old.messages[kept:]
    assert boundary.fidelity is not None
    assert 0 < boundary.fidelity <= 1
    assert len(talk.expected) == len(talk.of(Notice)) == 1


@pytest.mark.anyio
async def test_what_the_user_said_is_there_word_for_word(tmp_path: Path) -> None:
    talk = full(tmp_path)
    text = await paid(talk)

    assert "Rewrite the parser, and never touch the file LICENSE." in text
    assert [p.message.text for p in talk.view if p.by == "user"] == ["Now the tests, please."]
    assert "Now the tests, please." not in text, "it stands as a message of its own"
    assert "Date: today" in text


@pytest.mark.anyio
async def test_what_the_notes_quote_whole_is_not_quoted_twice(tmp_path: Path) -> None:
    said = "Rewrite the parser, and never\ntouch the file LICENSE."
    talk = full(tmp_path, noted(Current_state="x", Task_specification=said))
    text = await paid(talk)

    assert text.count("never") == 1


@pytest.mark.anyio
async def test_a_picture_in_the_last_question_stays(tmp_path: Path) -> None:
    talk = Noting(tmp_path, able=SMALL)
    picture = Image({"type": "base64", "media_type": "image/png", "data": "AA=="})
    talk.log.add(Message("user", (Text("as in this picture"), picture)))
    for n in range(40):
        talk.call(n, 0, 4_000)
    covers(talk, 70)
    talk.write(NOTED)
    await paid(talk)

    assert talk.view[0].message.content[1] == picture
    assert talk.view[0].by == "user", "and the cached prefix stays up to it"


@pytest.mark.anyio
async def test_sections_are_cut_to_size(tmp_path: Path) -> None:
    talk = full(tmp_path, noted(Current_state="here", Worklog="w " * 4_000))
    text = await paid(talk)

    assert "here" in text
    assert f"bytes left out; all of it is in {talk.path}" in text
    assert estimate_tokens(text) < 2_000


@pytest.mark.anyio
async def test_a_closing_tag_in_the_notes_or_in_what_was_said_closes_nothing(tmp_path: Path) -> None:
    talk = full(tmp_path, noted(Current_state="x </session-notes> y"))
    text = await paid(talk)

    assert text.count("</session-notes>") == 1


@pytest.mark.anyio
async def test_a_second_one_still_has_every_word_of_the_user(tmp_path: Path) -> None:
    talk = full(tmp_path)
    first = await paid(talk)
    for n in range(30, 60):
        talk.call(n, 0, 4_000)
        talk.answer(f"Done with part {n}.")
        if n % 10 == 0:
            talk.say(f"And then number {n}.")
    talk.resume()
    covers(talk, len(talk.view) - 4)
    talk.write(noted(Current_state="Much later."))
    second = await paid(talk)

    assert first not in second
    assert "Fixing src/f7.py." not in second, "notes are not carried inside notes"
    everything = "\n".join(m.text for m in talk.view.messages)
    for said in ("never touch the file LICENSE.", "Now the tests, please.", "And then number 30."):
        assert everything.count(said) == 1


@pytest.mark.anyio
async def test_after_a_digest_the_words_that_it_quoted_are_not_lost(tmp_path: Path) -> None:
    talk = full(tmp_path)
    digest = Digest(make_parts(able=SMALL, path=LOG, events=talk.events, expected=talk.expected))
    turn = make(ScriptedModel((), SMALL), Layers(fit=(digest,)), transcript=talk.log)
    await turn.fit()
    assert find_last_boundary(talk.view)
    for n in range(30, 60):
        talk.call(n, 0, 4_000)
    covers(talk, len(talk.view) - 4)
    text = await paid(talk)

    assert "never touch the file LICENSE." in text
    assert "<digest>" not in text


@pytest.mark.anyio
async def test_restored_context_comes_before_what_is_kept_if_there_is_room(tmp_path: Path) -> None:
    seen: list[tuple[View, int, int]] = []

    def restore(cut: CompactionCut, room: int) -> Message:
        seen.append((cut.view, cut.gone.stop, room))
        return user("the plan as it is now")

    talk = full(tmp_path, restore=restore)
    old = talk.view
    await paid(talk)
    boundary = find_last_boundary(talk.view)
    assert boundary

    assert user("the plan as it is now") in talk.view.messages
    assert talk.view[-1] == old[len(old) - 1], "what was said last stays last"
    [(view, cut, room)] = seen
    assert view is old
    assert old[cut].id == boundary.kept_from
    assert 0 < room < talk.thresholds.auto_compact
    assert boundary.tokens_after == measure_pressure(talk.request, talk.thresholds, 0.0).tokens


@pytest.mark.anyio
async def test_restored_context_that_would_fill_the_window_again_is_left_out(tmp_path: Path) -> None:
    talk = full(tmp_path, restore=lambda cut, room: user("x" * 4 * 26_000))
    await paid(talk)

    assert not any("xxxx" in message.text for message in talk.view.messages)


@pytest.mark.anyio
async def test_a_fifth_of_the_window_is_free_after_it_whatever_is_restored(tmp_path: Path) -> None:
    talk = full(tmp_path, restore=lambda cut, room: user("x" * 4 * (room - 500)))
    before = measure_pressure(talk.request, talk.thresholds, 0.0).tokens
    await paid(talk)

    assert any("xxxx" in placed.message.text for placed in talk.view)
    freed = before - measure_pressure(talk.request, talk.thresholds, 0.0).tokens
    assert freed >= NotesSettings().least_freed * SMALL.window


@pytest.mark.anyio
async def test_in_a_turn_it_relieves_the_pressure_before_the_digest_has_to(tmp_path: Path) -> None:
    talk = full(tmp_path)
    events: list[Event] = []
    digest = Digest(make_parts(able=SMALL, path=LOG, events=events, expected=talk.expected))
    model = ScriptedModel(["the tests are fine"], SMALL)
    layers = Layers(fit=(talk.payout, digest))
    turn = make(model, layers, transcript=talk.log, events=events)
    await turn.run()

    boundary = find_last_boundary(talk.view)
    assert boundary
    assert boundary.by == "notes"
    assert [e for e in events if isinstance(e, Declined | Failed | Notice)] == []
    assert talk.view[-1].message.text == "the tests are fine"


def test_plain_code_can_have_it_too(tmp_path: Path) -> None:
    talk = full(tmp_path)

    assert run_without_waiting(talk.pay())


# --- when it declines -----------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_nothing_happens_while_there_is_room_or_after_a_refusal(tmp_path: Path) -> None:
    talk = full(tmp_path)
    large = Thresholds.of(200_000, 32_000)
    refused = PromptTooLong("too long", tokens=40_000, limit=32_000)

    for pressure in (
        measure_pressure(talk.request, large, 0.0),
        measure_pressure(talk.request, talk.thresholds, 0.0, refused),
    ):
        assert await talk.payout.fit(talk.request, pressure) == ()
    assert talk.events == []


def none(talk: Noting) -> None:
    talk.path.unlink()


def empty(talk: Noting) -> None:
    talk.write(noted())


def no_anchor(talk: Noting) -> None:
    talk.log.add(Mark(NOTES, {"tokens": 1, "last": 1}))


def anchor_gone(talk: Noting) -> None:
    talk.log.add(Mark(NOTES, {"anchor": 9_999}))


def much_since(talk: Noting) -> None:
    covers(talk, 6)


def little_before(talk: Noting) -> None:
    covers(talk, 20)


def nothing_before(talk: Noting) -> None:
    covers(talk, 0)


def linked(talk: Noting) -> None:
    talk.path.unlink()
    talk.path.symlink_to(talk.folder / "elsewhere.md")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (none, "there are none"),
        (empty, "nothing is in them yet"),
        (no_anchor, "not in view"),
        (anchor_gone, "not in view"),
        (much_since, "still too much"),
        (little_before, "less than 20% is not worth it"),
        (nothing_before, "not get smaller"),
        (linked, "symbolic link"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_it_declines_with_the_reason(tmp_path: Path, spoil: Any, why: str) -> None:
    talk = full(tmp_path)
    spoil(talk)
    before = talk.view

    assert await talk.pay() == []
    assert talk.view is before
    [told] = talk.of(Progress)
    assert why in told.said
    assert talk.expected == []


@pytest.mark.anyio
async def test_damaged_notes_are_put_back_before_they_are_used(tmp_path: Path) -> None:
    talk = full(tmp_path)
    assert talk.book.read() == NOTED
    talk.path.write_bytes(b"\xff\xfe\0")
    text = await paid(talk)

    assert "Fixing src/f7.py." in text
    assert "put back" in talk.of(Notice)[0].text
    assert talk.text == NOTED


@pytest.mark.anyio
async def test_a_loop_whose_thinking_is_bound_is_told_in_words(tmp_path: Path) -> None:
    def thinking(able: Capabilities) -> Noting:
        talk = full(tmp_path)
        talk.able = able
        talk.open()
        for n in range(70, 75):
            talk.call(n, 0, 1_000, Thinking("hm", "signed"))
        covers(talk, len(talk.view) - 5)
        return talk

    bound = thinking(Capabilities(window=32_000, binds_thinking=True))
    newest = bound.view[-1].message.results[0].text
    text = await paid(bound, binds=True)
    record = text[text.index("## What came after these notes") :]
    assert record.count("[calls ") == record.count("[result: ") >= 2
    assert newest in record, "what nobody has read yet is there whole"
    assert not any(isinstance(b, THOUGHTS) for m in bound.view.messages for b in m.content)
    assert not any(message.tool_uses for message in bound.view.messages)

    dropped = Capabilities(window=32_000, binds_thinking=True, drops_thinking=True)
    assert "What came after" not in await paid(thinking(dropped))


@pytest.mark.anyio
async def test_thinking_that_is_bound_goes_when_the_loop_has_ended(tmp_path: Path) -> None:
    talk = full(tmp_path)
    talk.able = Capabilities(window=32_000, binds_thinking=True)
    talk.open()
    for n in range(70, 75):
        talk.call(n, 0, 1_000, Thinking("hm", "signed"))
    talk.answer("Done.")
    talk.say("next")
    covers(talk, len(talk.view) - 5)
    assert "What came after" not in await paid(talk, binds=True)
    assert not any(isinstance(b, THOUGHTS) for m in talk.view.messages for b in m.content)


# --- an update on its way -------------------------------------------------------------------------------


class Patient(FakeClock):
    """Never gives up by itself."""

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep_forever()


@pytest.mark.anyio
async def test_an_update_on_its_way_is_waited_for_and_its_result_is_used(tmp_path: Path) -> None:
    talk = full(tmp_path, noted(Worklog="old"), clock=Patient())
    talk.model.pause = 0.001
    talk.says(talk.edits(Current_state="brand new"))
    handed: list[Change] = []
    before = msgspec.structs.replace(talk.request, view=talk.view.upto(len(talk.view) - 10))

    async def pay() -> None:
        handed.extend(await talk.pay())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk.keeping, before)
        await anyio.lowlevel.checkpoint()
        while not talk.book.busy:
            await anyio.lowlevel.checkpoint()
        tasks.start_soon(pay)

    [edit] = [what for what in handed if isinstance(what, Replace) and what.by]
    assert "brand new" in edit.by[0].text


@pytest.mark.anyio
@pytest.mark.parametrize("age", [0.0, 70.0])
async def test_one_that_takes_too_long_is_not_waited_for_any_longer(tmp_path: Path, age: float) -> None:
    talk = full(tmp_path)
    with talk.book.updating():
        talk.clock.time += age
        began = talk.clock.now()
        handed = await talk.pay()

    assert handed, "the notes as they are will do"
    waited = talk.clock.now() - began
    assert waited == (NotesSettings().wait_seconds if not age else 0.0)


# --- how what was said is quoted ------------------------------------------------------------------------


@given(st.lists(st.text(max_size=3_000), max_size=30), st.integers(200, 4_000), st.booleans())
def test_what_was_said_is_whole_or_cut_where_it_says_so_and_within_its_room(
    texts: list[str], room: int, asking: bool
) -> None:
    facts = Facts(said=tuple(UserTurn(f"{n}: {text}") for n, text in enumerate(texts)))
    alone = estimate_tokens(make_notes_message("n", Facts(), None, room, asking=False).text)
    text = make_notes_message("n", facts, None, room, asking=asking).text
    quoted = facts.said[: -1 if asking else None]  # the last one is repeated behind the notes

    assert estimate_tokens(text) <= alone + room + 60
    whole = sum(estimate_tokens(one.text) + 20 for one in quoted)
    for one in quoted:
        kept = one.text.replace("</said>", "<\\/said>")
        assert kept in text or whole > room


# --- the tail -------------------------------------------------------------------------------------------


def grown(seed: int) -> tuple[Transcript, random.Random]:
    """A random conversation: questions, rounds of calls, cut replies, thinking, compactions."""
    rng = random.Random(seed)
    t = Transcript(lambda: 0.0)
    t.add(user("begin"))
    for n in range(rng.randint(2, 60)):
        what = rng.random()
        if what < 0.5:
            uses = [ToolUse(f"u{n}.{i}", "Read", {"p": n}) for i in range(rng.randint(1, 3))]
            thought = (Thinking("hm", "s"),) if rng.random() < 0.3 else ()
            words = (Text("I look."),) if rng.random() < 0.5 else ()
            t.add(Reply(assistant(*thought, *words, *uses)), by="model")
            size = rng.choice((10, 500, 5_000, 30_000))
            t.add(Message("user", tuple(ToolResult(u.id, "r" * size) for u in uses)), by="tools")
        elif what < 0.7:
            t.add(Reply(assistant(Text("w" * rng.choice((5, 400, 9_000))))), by="model")
        elif what < 0.93:
            t.add(user("q" * rng.choice((5, 300, 6_000))))
        elif len(t.view) > 6:
            compacted(t, rng)
    return t, rng


def compacted(t: Transcript, rng: random.Random) -> None:
    cuts = [at for at in range(2, len(t.view)) if not splits(t.view, at)]
    if cuts:
        at = rng.choice(cuts)
        edit = Replace(t.view[0].id, t.view[at - 1].id, (user("a summary"),))
        kept = t.view[at].id if rng.random() < 0.5 else -1
        t.add(edit, Boundary("summary", "auto", last=edit.last, kept_from=kept).mark, by="Summary")


def splits(view: View, at: int) -> bool:
    """Said anew and plainly: whether a cut here tears a pair or a response."""
    here, before = view[at].message, view[at - 1].message
    asked = {use.id for use in before.tool_uses}
    answered = {result.tool_use_id for result in here.results}
    return bool(asked or answered) or (here.role == before.role == "assistant")


def tail_tokens(view: View, at: int) -> int:
    return estimate_padded_tokens(view, sum((view[n].size for n in range(at, len(view))), MessageSize()))


def words(view: View, at: int) -> int:
    return sum(bool(view[n].message.text.strip()) for n in range(at, len(view)))


@settings(max_examples=300)
@given(st.integers(0, 10**9), st.sampled_from([8_000, 32_000, 200_000]))
def test_the_tail_has_all_after_the_anchor_enough_and_not_too_much_and_tears_nothing(
    seed: int, window: int
) -> None:
    t, rng = grown(seed)
    view = t.view
    anchor = rng.randrange(len(view))
    chosen = NotesSettings()
    share = window / 200_000
    keep = TailSize(int(chosen.keep_tokens * share), chosen.keep_messages, int(chosen.keep_at_most * share))
    strict, bound = rng.random() < 0.5, rng.choice((-1, rng.randrange(len(view))))
    loop = find_thinking_loop(view) if strict else len(view)
    cut = find_tail_start(view, anchor, keep, loop, bound)
    first = min(anchor + 1, len(view) - 1)
    allowed = [at for at in range(first, max(0, bound), -1) if not splits(view, at)]
    allowed = [at for at in allowed if not strict or thought_stays(view, at)]
    if cut is None:
        assert not allowed
        return

    assert cut in allowed
    nearest, floor = allowed[0], find_boundary_end(view)
    enough = [
        at for at in allowed if tail_tokens(view, at) >= keep.tokens and words(view, at) >= keep.messages
    ]
    if cut != nearest:
        assert tail_tokens(view, cut) <= keep.most
        assert cut >= floor
        assert all(cut <= at for at in enough if at >= cut), "no shorter tail would have been enough"
    if cut not in enough:
        longer = [at for at in allowed if at < cut]
        assert not longer or tail_tokens(view, longer[0]) > keep.most or longer[0] < floor


def thought_stays(view: View, at: int) -> bool:
    """A loop that is going on is not cut between its thinking and the calls that go with it."""
    start = len(view)
    while start and view[start - 1].by != "user":
        start -= 1
    loop = range(start, len(view))
    spoken = [n for n in loop if view[n].message.role == "assistant"]
    if not spoken or not view[spoken[-1]].message.tool_uses or at <= start:
        return True
    thinks = [n for n in loop if any(isinstance(b, THOUGHTS) for b in view[n].message.content)]
    return not thinks or at in thinks


def test_the_tail_does_not_reach_behind_the_last_compaction() -> None:
    t = Transcript(lambda: 0.0)
    for n in range(6):
        t.add(user(f"q{n}"), Reply(assistant(Text(f"a{n}"))))
    for kept in (True, False):
        log = Transcript.on(t.view, lambda: 0.0)
        last = log.view[5].id
        boundary = Boundary("summary", "auto", last=last, kept_from=log.view[6].id if kept else -1)
        log.add(Replace(log.view[0].id, last, (user("summary"),)), boundary.mark, by="Summary")
        assert find_boundary_end(log.view) == 1
        assert find_tail_start(log.view, 5, TailSize(10**6, 10**6, 10**6), len(log.view)) == 1


@settings(max_examples=150)
@given(seed=st.integers(0, 10**9))
def test_whatever_the_conversation_the_view_obeys_the_laws_afterwards(kept: Noting, seed: int) -> None:
    t, rng = grown(seed)
    able = Capabilities(window=8_000, binds_thinking=rng.random() < 0.5)
    anchor = t.view[rng.randrange(len(t.view))].id
    t.add(Mark(NOTES, {"anchor": anchor}))
    request = Request(Frame("m"), t.view)
    pressure = measure_pressure(request, Thresholds.of(able.window, 32_000), 0.0)
    handed = run_without_waiting(payout_of(kept, able).fit(request, pressure))
    if not handed:
        return
    whole = complete_changes(handed, t, able.loses_thinking)
    assert whole is not None, "the turn would decline it"
    old = t.view
    t.add(*whole, by="PayOut")
    tokens = measure_pressure(Request(Frame("m"), t.view), pressure.thresholds, 0.0).tokens

    assert has_paired_tools(t.view)
    assert tokens <= pressure.thresholds.auto_compact < pressure.tokens
    at = old.where(anchor)
    assert at is not None
    ids = {placed.id for placed in t.view}
    later = [old[n] for n in range(at + 1, len(old))]
    if lost := [placed for placed in later if placed.id not in ids]:
        assert able.loses_thinking
        assert find_last_loop_thinking(old) >= 0, "no cut spares bound thinking"
        told = "\n".join(placed.message.text for placed in t.view if placed.by == "PayOut")
        assert all(one.text[:200] in told for placed in lost for one in placed.message.results)
    typed = [placed for placed in old if placed.by == "user"]
    said = [placed.message.text for placed in t.view]
    assert not typed or typed[-1].id in ids or typed[-1].message.text in said, "it is a message still"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Noting:
    """Notes that are there whatever the conversation."""
    talk = Noting(tmp_path_factory.mktemp("kept"))
    talk.write(NOTED)
    return talk


def payout_of(kept: Noting, able: Capabilities) -> NotesCompaction:
    kept.open()
    parts = make_parts(able=able, path=LOG, events=kept.events, expected=kept.expected)
    return NotesCompaction(parts, kept.book)


@pytest.mark.skipif(not SESSIONS, reason="needs the shared sessions")
def test_on_real_sessions_the_view_obeys_the_laws_afterwards(kept: Noting) -> None:
    done = 0
    for path in SESSIONS[:8]:
        t = convert_recording(read_session(path))
        view = t.view
        if len(view) < 20:
            continue
        t.add(Mark(NOTES, {"anchor": view[len(view) * 9 // 10].id}))
        request = Request(Frame("m"), t.view)
        window = min(200_000, view.tokens)
        pressure = measure_pressure(request, Thresholds.of(window, 32_000), 0.0)
        handed = run_without_waiting(payout_of(kept, Capabilities(window=window)).fit(request, pressure))
        if handed:
            whole = complete_changes(handed, t, False)
            assert whole is not None
            t.add(*whole, by="PayOut")
            assert has_paired_tools(t.view)
            assert t.view.tokens < pressure.thresholds.auto_compact < pressure.tokens
            done += 1
    assert done
