"""Notes on a session: their form, when they are brought up to date, and what happens to damaged ones."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import make_forks, make_parts
from layers.l3_session_memory.noting import FORM, FRAME, Noting, described, noted
from layers.simulated import conversation, reading

from sevenfold.core.errors import BadRequest
from sevenfold.core.events import Compacted, Event, Failed, Forked, Notice, Progress
from sevenfold.core.messages import Json, Text, ToolUse, assistant, parse_directive, user
from sevenfold.core.protocols import Capabilities, Layers
from sevenfold.core.request import Frame, Request, encode_prefix
from sevenfold.core.tokens import Thresholds, Usage, estimate_tokens
from sevenfold.core.transcript import Replace, Reply
from sevenfold.layers.l3_session_memory.notes import (
    DAMAGED,
    LARGEST,
    Notebook,
    NotesForm,
    NotesFormError,
    NotesLimits,
    NotesWording,
)
from sevenfold.layers.l3_session_memory.notes_update import NotesEdits, NotesUpdater
from sevenfold.layers.l7_agents.forks import ForkRunner
from sevenfold.layers.parts import PlainConversation
from sevenfold.layers.shared.boundary import Boundary
from sevenfold.offline import OfflineEngine
from sevenfold.settings.layers import NotesSettings
from sevenfold.settings.schema import Settings
from sevenfold.testing import Postponed
from sevenfold.testing.doubles import Line

DEFAULT = NotesSettings()
TITLES = [
    "Session title",
    "Current state",
    "Task specification",
    "Files and functions",
    "Workflow",
    "Errors and corrections",
    "Codebase and system documentation",
    "Learnings",
    "Key results",
    "Worklog",
]


# --- the form -------------------------------------------------------------------------------------------


def test_our_template_has_the_ten_sections_each_with_a_description() -> None:
    assert [section.title for section in FORM.sections] == TITLES
    assert all(section.description.startswith("_") for section in FORM.sections)


BODIES = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\r\0\ufeff"), max_size=80).map(str.strip),
    min_size=10,
    max_size=10,
)


@given(BODIES)
def test_what_is_written_into_the_form_is_read_back_from_it(bodies: list[str]) -> None:
    assert list(FORM.bodies(FORM.written(bodies))) == bodies


def test_a_comment_in_a_section_is_no_heading() -> None:
    text = noted(Workflow="# install first\nmake install\n## then\nmake test")

    assert FORM.bodies(text)[4] == "# install first\nmake install\n## then\nmake test"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("# Workflow\n", "", "'# Workflow' is missing"),
        ("# Workflow", "# Work flow", "'# Workflow' is missing"),
        ("# Workflow", "# Learnings\n\n# Workflow", "more than once"),
        ("_Commands", "_All commands", "description under '# Workflow'"),
        ("# Session title", "Hello\n\n# Session title", "before the first heading"),
    ],
)
def test_a_fixed_line_that_was_changed_is_found_and_named(old: str, new: str, why: str) -> None:
    with pytest.raises(NotesFormError, match=why):
        FORM.bodies(FORM.template.replace(old, new))


def test_a_section_that_was_moved_is_found() -> None:
    start, end = FORM.template.index("# Workflow"), FORM.template.index("# Errors")
    moved = FORM.template[:start] + FORM.template[end:] + "\n" + FORM.template[start:end]

    with pytest.raises(NotesFormError, match="was moved"):
        FORM.bodies(moved)


def test_other_line_ends_and_a_byte_order_mark_change_nothing() -> None:
    text = noted(Worklog="one\ntwo")

    assert FORM.bodies("\ufeff" + text.replace("\n", "\r\n")) == FORM.bodies(text)


@pytest.mark.parametrize("template", ["", "just words\n", "```\n# only in code\n```\n"])
def test_a_template_without_sections_is_none(template: str) -> None:
    with pytest.raises(NotesFormError, match="no sections"):
        NotesForm.of(template)


def test_what_is_too_long_is_named_with_its_size() -> None:
    limits = NotesLimits.of(DEFAULT.section_tokens, DEFAULT.total_tokens, 200_000)
    text = noted(Worklog="w" * 8_400, Workflow="f" * 8_000)

    assert FORM.too_long(text, limits) == ["'Worklog' holds about 2,100 tokens, more than 2,000"]
    assert FORM.too_long(text, NotesLimits(3_000, 4_000)) == [
        "all sections hold about 4,100 tokens, more than 4,000"
    ]


@given(
    st.lists(st.integers(0, 3_000), min_size=10, max_size=10),
    st.sampled_from([8_000, 32_000, 128_000, 200_000]),
)
def test_sections_cut_to_size_are_within_the_limits_and_short_ones_stay_whole(
    sizes: list[int], window: int
) -> None:
    limits = NotesLimits.of(DEFAULT.section_tokens, DEFAULT.total_tokens, window)
    bodies = ["é" * size for size in sizes]
    cut = FORM.cut_to(FORM.written(bodies), limits)

    assert all(estimate_tokens(body) <= limits.section for body in cut)
    assert sum(map(estimate_tokens, cut)) <= limits.total
    short = limits.total // len(bodies)
    for before, after in zip(bodies, cut, strict=True):
        assert after == before or estimate_tokens(before) > min(limits.section, short)


# --- the wording ----------------------------------------------------------------------------------------


def wording(home: Path | None = None) -> tuple[NotesWording, list[Event]]:
    events: list[Event] = []
    return NotesWording.load(home, events.append), events


def own(home: Path, **texts: str) -> None:
    folder = home / "session-memory" / "config"
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")


LIMITS = NotesLimits(2_000, 12_000)


def test_places_are_filled_in_one_pass() -> None:
    ours, _ = wording()
    notes = noted(Learnings="never write {{notesPath}} into a file")
    asked = ours.asking(notes, Path("/n/summary.md"), LIMITS, edits=True)

    assert "never write {{notesPath}} into a file" in asked
    assert "the file /n/summary.md, and" in asked
    assert "{{currentNotes}}" not in asked


def test_the_user_may_have_a_template_and_an_instruction_of_their_own(tmp_path: Path) -> None:
    own(tmp_path, template="## Now\n## Later\n", prompt="Edit {{notesPath}}: {{currentNotes}}")
    theirs, events = wording(tmp_path)

    assert [section.title for section in theirs.form.sections] == ["Now", "Later"]
    asked = theirs.asking(theirs.form.template, Path("/n"), LIMITS, edits=True)
    assert asked.startswith("Edit /n: ## Now\n## Later")
    assert events == []


def test_what_an_instruction_forgets_to_say_is_added(tmp_path: Path) -> None:
    own(tmp_path, prompt="Keep the notes.")
    asked = wording(tmp_path)[0].asking(noted(Worklog="x"), Path("/n"), LIMITS, edits=True)

    assert asked.startswith("Keep the notes.\n\nThe file is /n.\n\nThis is what it holds now:")
    assert noted(Worklog="x").strip() in asked


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"only words", "no sections"),
        (b"# A\n# A\n", "more than once"),
        (b"", "empty"),
        (b"# A\n\xff\xfe", "not UTF-8"),
        (b"# A\n\0", "not text"),
        (b"# A\n" + b"x" * (64 << 10), "larger than"),
    ],
)
def test_a_template_that_cannot_be_used_is_said_once_and_ours_is_used(
    tmp_path: Path, text: bytes, why: str
) -> None:
    talk = Noting(tmp_path)
    folder = talk.home / "session-memory" / "config"
    folder.mkdir(parents=True)
    (folder / "template.md").write_bytes(text)

    assert talk.book.form == FORM
    assert talk.book.form == FORM
    [notice] = talk.of(Notice)
    assert str(folder / "template.md") in notice.text
    assert why in notice.text


# --- the tools of an update -----------------------------------------------------------------------------


def call(name: str = "Edit", **args: Any) -> ToolUse:
    return ToolUse("u", name, args)


@pytest.mark.anyio
async def test_only_edits_of_the_one_file_are_carried_out_and_the_rest_is_denied_with_a_reason() -> None:
    path = Path("/s/summary.md")
    tools = NotesEdits(path, "one two two\n")

    for use, why in [
        (call("Bash", command="rm -rf /"), "only Edit"),
        (call("Write", file_path=str(path), content=""), "only Edit"),
        (call(file_path="/etc/passwd", old_string="one", new_string="x"), "another file"),
    ]:
        answer = await tools.call(use)
        assert answer.is_error
        assert why in answer.text
    assert (tools.text, tools.denied, tools.made) == ("one two two\n", 3, 0)

    ok = {"file_path": "/s/../s/summary.md"}
    assert not (await tools.call(call(**ok, old_string="one", new_string="1"))).is_error
    assert (await tools.call(call(**ok, old_string="two", new_string="2"))).is_error
    every = call(**ok, old_string="two", new_string="2", replace_all=True)
    assert not (await tools.call(every)).is_error
    assert tools.text == "1 2 2\n"


@pytest.mark.anyio
@pytest.mark.parametrize(
    "args",
    [
        {"old_string": "one"},
        {"old_string": 1, "new_string": "x"},
        {"old_string": "", "new_string": "x"},
        {"old_string": "one", "new_string": "one"},
        {"old_string": "absent", "new_string": "x"},
        {"old_string": "one", "new_string": "x" * (1 << 20)},
    ],
)
async def test_an_edit_that_does_not_fit_is_answered_and_changes_nothing(args: Json) -> None:
    tools = NotesEdits(Path("/n"), "one\n")

    assert (await tools.call(call(file_path="/n", **args))).is_error
    assert (tools.text, tools.failed) == ("one\n", 1)


# --- when -----------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("window", [8_000, 32_000, 128_000, 200_000, 1_000_000])
async def test_the_first_update_comes_when_the_context_is_large_enough(tmp_path: Path, window: int) -> None:
    talk = Noting(tmp_path, able=Capabilities(window=window))
    talk.says(talk.edits(Current_state="begun"))
    least = DEFAULT.first_at * min(window, 200_000) // 200_000
    talk.say("go")
    talk.answer("ok", least - 1)
    assert await talk.reply() == []
    talk.answer("ok", least)
    assert len(await talk.reply()) == 1


@pytest.mark.anyio
async def test_later_ones_need_growth_and_calls_or_a_rest(tmp_path: Path) -> None:
    talk = Noting(tmp_path)
    talk.says(talk.edits(Current_state="begun"), talk.edits(Worklog="a"), talk.edits(Learnings="b"))
    first, step = DEFAULT.first_at, DEFAULT.grown_by
    talk.say("go")
    talk.answer("ok", first)
    assert await talk.reply()

    talk.call(1, first + step)
    talk.call(2, first + step + 10)
    assert await talk.reply() == [], "grown, and two calls only"
    talk.call(3, first + step + 20)
    assert await talk.reply(), "three"

    talk.answer("done", first + 2 * step - 2_500)
    assert await talk.reply() == [], "at rest, and not grown enough"
    for n in range(4, 12):
        talk.call(n)
    assert await talk.reply() == [], "calls alone are not enough either"
    talk.answer("done", first + 2 * step + 500)
    assert await talk.reply(), "grown and at rest"


@pytest.mark.anyio
async def test_forks_and_agents_keep_no_notes(tmp_path: Path) -> None:
    talk = Noting(tmp_path)
    talk.say("go")
    talk.answer("ok", 50_000)

    for source in ("fork:notes", "agent:explore"):
        assert await talk.keeping(Request(FRAME, talk.view, source=source)) == ()
    assert talk.model.requests == []


@pytest.mark.anyio
async def test_one_update_at_a_time(tmp_path: Path) -> None:
    talk = Noting(tmp_path)
    talk.model.pause = 0.01
    talk.says(talk.edits(Current_state="begun"))
    talk.say("go")
    talk.answer("ok", 50_000)

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(talk.reply)

    assert len(talk.model.requests) == 1


def test_when_nothing_is_due_no_file_is_looked_at_and_no_old_message_again(tmp_path: Path) -> None:
    class Nowhere(PlainConversation):
        @property
        def transcript_path(self) -> Path:
            raise AssertionError("the file was looked for")

        @transcript_path.setter
        def transcript_path(self, path: Path | None) -> None: ...

    talk = Noting(tmp_path)

    async def fork(*args: object, **more: object) -> Any:
        raise AssertionError("the model was asked")

    parts = make_parts(conversation=Nowhere(), clock=talk.clock, events=talk.events, fork=fork)
    keeping = NotesUpdater(parts, Notebook(parts))
    talk.say("go")
    for n in range(50):
        talk.call(n)
        assert anyio.run(keeping, talk.request) == ()
    assert keeping._calls == 50, "each call was counted once"


PRICED = Frame("claude-opus-4-5", ("static", "of this session"), FRAME.tools)
ASKED_FOR = NotesSettings(priced=True)


def appending(talk: Noting) -> Iterator[Line]:
    """A model that adds a line to the work log at each update."""
    told = described("Worklog")
    for n in count():
        new = f"{told}\n- step {n}"
        yield assistant(talk.edit("Worklog", "", old_string=told, new_string=new))


async def fill(talk: Noting, first: int) -> list[int]:
    """Call after call until the window is full; returns the sizes at which notes were taken."""
    taken = list[int]()
    for n in range(first, first + 400):
        talk.call(n, 0, 4_000)
        taken += [mark.value["tokens"] for mark in await talk.reply() if mark.name == "notes"]
        if talk.request.tokens > talk.thresholds.auto_compact:
            return taken
    raise AssertionError("the window did not get full")


@pytest.mark.anyio
@pytest.mark.parametrize("resumes", [False, True])
@pytest.mark.parametrize("frame", [FRAME, PRICED], ids=["free", "priced"])
async def test_notes_go_on_after_a_pay_out_and_are_paid_out_again_and_again(
    tmp_path: Path, frame: Frame, resumes: bool
) -> None:
    talk = Noting(tmp_path, able=Capabilities(window=50_000), settings=ASKED_FOR, frame=frame)
    talk.answers.lines = appending(talk)
    talk.say("go")
    most = list[int]()
    for cycle in range(4):
        taken = await fill(talk, 1_000 * cycle)
        assert len(taken) >= 4, f"cycle {cycle}: {taken}"
        assert max(taken) > 0.75 * talk.thresholds.auto_compact, "up to the end"
        most.append(min(taken))
        talk.log.add(*await talk.pay(), by="PayOut")
        assert talk.request.tokens < talk.thresholds.auto_compact / 2
        if resumes:
            talk.resume()
            talk.answers.lines = appending(talk)

    assert [event.by for event in talk.of(Compacted)] == ["notes"] * 4
    assert most[1] < talk.thresholds.auto_compact / 2, "growth is counted anew after a pay-out"


@pytest.mark.anyio
async def test_after_a_compaction_growth_is_counted_from_where_it_ended(tmp_path: Path) -> None:
    talk = Noting(tmp_path)
    talk.says(talk.edits(Current_state="begun"), talk.edits(Worklog="more"))
    talk.say("go")
    talk.answer("ok", 150_000)
    assert await talk.reply()

    view = talk.view
    talk.log.add(Replace(view[0].id, view[-1].id, (user("a summary"),)), by="Compaction")
    talk.answer("compacted", 30_000)
    assert await talk.reply() == []
    talk.answer("on", 36_000)
    assert await talk.reply()


@pytest.mark.anyio
async def test_where_tokens_cost_money_notes_are_taken_only_if_asked_for(tmp_path: Path) -> None:
    for settings, frame, asked in [(DEFAULT, FRAME, 1), (DEFAULT, PRICED, 0), (ASKED_FOR, PRICED, 1)]:
        talk = Noting(tmp_path / f"{asked}{frame.model}", settings=settings, frame=frame)
        talk.says(talk.edits(Current_state="begun"))
        talk.say("go")
        talk.answer("ok", 50_000)
        await talk.reply()
        assert len(talk.model.requests) == asked


@pytest.mark.anyio
@pytest.mark.parametrize("window", [8_000, 32_000, 128_000])
async def test_what_stands_in_every_request_is_no_growth(tmp_path: Path, window: int) -> None:
    """System prompt, tools and the memory index fill much of a small window before a word is said."""
    frame = Frame("m", ("rule " * (window // 4), "more"), FRAME.tools)
    talk = Noting(tmp_path, able=Capabilities(window=window), frame=frame)
    talk.says(talk.edits(Current_state="begun"))
    talk.log.add(user("<context>\n" + "index " * (window // 8) + "\n</context>"), by="session")
    talk.log.add(user("<context>\n" + "hook " * (window // 40) + "\n</context>"), by="hooks")
    talk.say("Hello")
    usage = Usage(input=window // 2, output=10)
    talk.log.add(Reply(assistant(Text("Hello, how can I help?")), usage), by="model")
    assert await talk.reply() == []
    assert talk.model.requests == []

    least = DEFAULT.first_at * window // 200_000
    for n in range(3):
        talk.call(n, 0, 2 * least)
    talk.answer("read")
    assert await talk.reply(), "what the conversation itself grows by counts"


@pytest.mark.anyio
async def test_where_no_answer_would_fit_behind_the_conversation_no_model_is_asked(tmp_path: Path) -> None:
    talk = Noting(tmp_path, able=Capabilities(window=8_000))
    talk.says(talk.edits(Current_state="begun"))
    talk.say("Read them all.")
    for n in range(12):
        talk.call(n, 0, 2_400)

    assert await talk.reply() == []
    assert talk.model.requests == []


# --- what -----------------------------------------------------------------------------------------------


async def begun(folder: Path, **more: Any) -> Noting:
    """A conversation whose notes were taken once."""
    talk = Noting(folder, **more)
    talk.says(talk.edits(Current_state="Reading the parser.", Worklog="- began"))
    talk.say("go")
    talk.answer("ok", 10_000)
    assert await talk.reply()
    return talk


@pytest.mark.anyio
async def test_all_edits_of_a_reply_count_and_the_file_is_private(tmp_path: Path) -> None:
    talk = await begun(tmp_path)

    assert talk.text == noted(Current_state="Reading the parser.", Worklog="- began")
    assert stat.S_IMODE(talk.path.stat().st_mode) == 0o600
    assert talk.of(Progress)[-1].done
    assert talk.of(Failed) == []


@pytest.mark.anyio
async def test_the_fork_has_its_tag_the_notes_and_the_path_and_leaves_no_trace(tmp_path: Path) -> None:
    talk = await begun(tmp_path)
    directive = parse_directive(talk.asked)

    assert directive
    assert directive.kind == "notes"
    assert FORM.template.strip() in directive.body
    assert str(talk.path) in directive.body
    assert talk.model.requests[-1].source == "fork:notes"
    assert [p.message.text for p in talk.view if p.message.text] == ["go", "ok"]


@pytest.mark.anyio
async def test_success_marks_the_size_and_the_last_message_covered(tmp_path: Path) -> None:
    talk = await begun(tmp_path)
    last = talk.view[-1].id

    assert talk.view.marks["notes"] == {
        "tokens": 10_000,
        "size": estimate_tokens(talk.text),
        "last": last,
        "anchor": last,
    }


@pytest.mark.anyio
async def test_a_call_that_is_open_still_keeps_the_anchor_before_it(tmp_path: Path) -> None:
    talk = await begun(tmp_path)
    talk.says(talk.edits(Learnings="x"))
    for n in range(3):
        talk.call(n, 20_000)
    anchor = talk.view[-1].id
    talk.log.add(Reply(assistant(ToolUse("open", "Read", {}))), by="model")

    [mark] = await talk.reply()
    assert (mark.value["anchor"], mark.value["last"]) == (anchor, talk.view[-1].id)


@pytest.mark.anyio
async def test_sections_that_are_too_long_are_named_in_the_next_instruction(tmp_path: Path) -> None:
    talk = Noting(tmp_path)
    talk.says(talk.edits(Worklog="w" * 8_400), talk.edits(Learnings="x"))
    talk.say("go")
    talk.answer("ok", 10_000)
    assert await talk.reply()
    talk.answer("ok", 20_000)
    assert await talk.reply()

    assert "'Worklog' holds about 2,100 tokens, more than 2,000" in talk.asked


def broken_heading(talk: Noting) -> Any:
    args = {"file_path": str(talk.path), "old_string": "# Workflow", "new_string": "# How"}
    return assistant(talk.edit("Learnings", "x"), ToolUse("bad", "Edit", args))


def broken_description(talk: Noting) -> Any:
    return assistant(talk.edit("Learnings", "", new_string="no description any more"))


def far_too_large(talk: Noting) -> Any:
    return talk.edits(Learnings="x" * 4 * 25_000)


def words_only(talk: Noting) -> Any:
    return "Nothing to note."


def another_tool(talk: Noting) -> Any:
    return assistant(ToolUse("b", "Bash", {"command": "echo > x"}))


def not_found(talk: Noting) -> Any:
    return assistant(talk.edit("Learnings", "x", old_string="not there"))


def fails(talk: Noting) -> Any:
    return BadRequest("no")


def breaks(talk: Noting) -> Any:
    return RuntimeError("a bug in somebody's model")


BAD = {
    broken_heading: "'# Workflow' is missing or was changed",
    broken_description: "description under '# Learnings'",
    far_too_large: "12,000 is the limit",
    words_only: "it changed nothing",
    another_tool: "none of its 1 calls",
    not_found: "none of its 1 calls",
    fails: "no",
}


@pytest.mark.anyio
@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.__name__)
async def test_an_update_that_is_not_taken_leaves_everything_as_it_was_and_says_why(
    tmp_path: Path, bad: Any
) -> None:
    talk = await begun(tmp_path)
    before, marks = talk.text, talk.view.marks
    talk.says(bad(talk), talk.edits(Learnings="better"))
    talk.answer("ok", 20_000)

    assert await talk.reply() == []
    assert (talk.text, talk.view.marks) == (before, marks)
    [failed] = talk.of(Failed)
    assert BAD[bad] in failed.cause

    talk.answer("ok", 30_000)
    assert await talk.reply()
    assert "The last update was not taken: " in talk.asked
    assert BAD[bad] in talk.asked


@pytest.mark.anyio
@pytest.mark.parametrize("bad", [broken_heading, fails, breaks], ids=lambda bad: bad.__name__)
async def test_after_three_failures_in_a_row_it_stops_until_the_next_compaction(
    tmp_path: Path, bad: Any
) -> None:
    talk = await begun(tmp_path)
    talk.says(*[bad(talk)] * 3, talk.edits(Learnings="x"))
    for n in range(2, 8):
        talk.answer("ok", n * 10_000)
        try:
            assert await talk.reply() == []
        except RuntimeError:  # the background tells the user of this one
            assert bad is breaks
    assert len(talk.model.requests) == 1 + 3
    if bad is not breaks:
        assert talk.of(Failed)[-1].cause.endswith("not tried again before the next compaction")

    talk.log.add(Boundary(by="digest", trigger="auto").mark)
    talk.answer("ok", 90_000)
    assert await talk.reply()


@pytest.mark.anyio
async def test_a_resume_closes_the_breaker_and_goes_on_from_the_marks(tmp_path: Path) -> None:
    talk = await begun(tmp_path)
    talk.says("no", "no", "no", talk.edits(Learnings="x"))
    for n in range(2, 5):
        talk.answer("ok", n * 10_000)
        assert await talk.reply() == []
    talk.resume()

    talk.answer("ok", 41_000)
    assert await talk.reply()
    assert "Reading the parser." in talk.text


@pytest.mark.anyio
async def test_a_resume_counts_growth_from_the_update_that_the_mark_tells_of(tmp_path: Path) -> None:
    talk = await begun(tmp_path)
    talk.says(talk.edits(Learnings="x"))
    talk.answer("ok", 12_000)
    talk.resume()

    talk.answer("ok", 10_000 + DEFAULT.grown_by - 100)
    assert await talk.reply() == []
    talk.answer("ok", 10_000 + DEFAULT.grown_by + 100)
    assert await talk.reply()


@pytest.mark.anyio
async def test_where_there_is_no_edit_tool_the_sections_are_asked_for_in_words(tmp_path: Path) -> None:
    talk = Noting(tmp_path, frame=Frame("m"))
    talk.says(
        'Here:\n<section title="Current state">\nReading.\n</section>\n'
        '<section title="Unheard of">x</section>\n<section title="Worklog">- began\n</section>'
    )
    talk.say("go")
    talk.answer("ok", 10_000)

    assert await talk.reply()
    assert talk.text == noted(Current_state="Reading.", Worklog="- began")
    assert '<section title="Current state">' in talk.asked


@pytest.mark.anyio
@pytest.mark.parametrize("frame", [FRAME, Frame("m")], ids=["edits", "words"])
async def test_the_offline_engine_can_keep_them(tmp_path: Path, frame: Frame) -> None:
    talk = Noting(tmp_path, frame=frame)
    engine = OfflineEngine()
    limits = Thresholds.of(200_000, 8_000)
    forks = make_forks(engine, talk.events.append, talk.clock, thresholds=limits)
    keeping = NotesUpdater(make_parts(engine, events=talk.events, fork=forks), talk.book)
    talk.say("Rewrite the parser, and never touch LICENSE.")
    for n in range(4):
        talk.call(n, 0, 10_000)
    talk.answer("The parser is rewritten.")
    assert await keeping(talk.request)
    first = talk.text
    talk.say("Now the tests.")
    for n in range(4, 8):
        talk.call(n, 0, 10_000)
    talk.answer("The tests are written.")
    assert await keeping(talk.request)

    assert talk.of(Failed) == []
    assert "never touch LICENSE" in first
    assert "src/f7.py" in talk.text
    assert "src/f7.py" not in first


@pytest.mark.anyio
async def test_what_is_not_in_the_cache_yet_is_left_for_the_next_update(tmp_path: Path) -> None:
    """Results that no request has sent would be paid for in full here, and again by the next one."""
    talk = Noting(tmp_path)
    talk.says(talk.edits(Learnings="so far"))
    talk.say("Go.")
    for n in range(6):
        talk.call(n, 0, 12_000)
    [mark] = await talk.reply()

    sent = talk.model.requests[-1].view
    assert len(sent) == len(talk.view) - 1, "the newest call and its results are not in it yet"
    assert mark.value["last"] == talk.view[-3].id


# --- damage ---------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_an_edit_by_hand_that_keeps_the_form_is_kept(tmp_path: Path) -> None:
    talk = await begun(tmp_path)
    talk.write(noted(Current_state="By hand.").replace("\n", "\r\n"))
    talk.says(talk.edits(Learnings="by the model"))
    talk.answer("ok", 20_000)

    assert await talk.reply()
    assert talk.text == noted(Current_state="By hand.", Learnings="by the model")
    assert talk.of(Notice) == []


def without_a_heading(path: Path) -> None:
    path.write_text(noted(Learnings="mine").replace("# Worklog\n", ""), encoding="utf-8")


def binary(path: Path) -> None:
    path.write_bytes(bytes(range(256)))


def with_a_zero(path: Path) -> None:
    path.write_text(noted(Learnings="\0"), encoding="utf-8")


def too_large(path: Path) -> None:
    path.write_text(noted(Learnings="x" * LARGEST), encoding="utf-8")


def emptied(path: Path) -> None:
    path.write_text("", encoding="utf-8")


def deleted(path: Path) -> None:
    path.unlink()


def folder_deleted(path: Path) -> None:
    path.unlink()
    path.parent.rmdir()
    path.parent.mkdir()


DAMAGE = [without_a_heading, binary, with_a_zero, too_large, emptied, deleted, folder_deleted]


@pytest.mark.anyio
@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
async def test_damaged_notes_are_put_back_as_they_were_last_and_the_user_is_told(
    tmp_path: Path, damage: Any
) -> None:
    talk = await begun(tmp_path)
    damage(talk.path)
    gone = talk.path.read_bytes() if talk.path.exists() else None
    talk.says(talk.edits(Learnings="more"))
    talk.answer("ok", 20_000)

    assert await talk.reply()
    assert talk.text == noted(Current_state="Reading the parser.", Worklog="- began", Learnings="more")
    [notice] = talk.of(Notice)
    assert str(talk.path) in notice.text
    assert "put back as they were last" in notice.text
    aside = talk.path.with_name(DAMAGED)
    assert (aside.read_bytes() if aside.exists() else None) == gone, "nothing of theirs is lost"


@pytest.mark.anyio
@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
async def test_notes_damaged_while_nobody_ran_are_begun_anew(tmp_path: Path, damage: Any) -> None:
    talk = await begun(tmp_path)
    damage(talk.path)
    talk.resume()
    talk.says(talk.edits(Learnings="from the conversation"))
    talk.answer("ok", 20_000)

    assert await talk.reply()
    assert talk.text == noted(Learnings="from the conversation")
    [notice] = talk.of(Notice)
    assert "begun anew" in notice.text


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["link", "folder"])
async def test_a_link_or_a_folder_in_place_of_the_notes_is_left_alone_and_no_model_is_asked(
    tmp_path: Path, kind: str
) -> None:
    talk = await begun(tmp_path)
    other = tmp_path / "other.md"
    other.write_text(noted(Learnings="theirs"), encoding="utf-8")
    talk.path.unlink()
    if kind == "link":
        talk.path.symlink_to(other)
    else:
        talk.path.mkdir()
    requests = len(talk.model.requests)
    talk.answer("ok", 20_000)

    assert await talk.reply() == []
    assert len(talk.model.requests) == requests
    assert str(talk.path) in talk.of(Failed)[-1].cause
    assert other.read_text(encoding="utf-8") == noted(Learnings="theirs")
    assert talk.path.is_symlink() == (kind == "link")


@pytest.mark.anyio
async def test_what_somebody_writes_during_an_update_is_not_overwritten(tmp_path: Path) -> None:
    talk = await begun(tmp_path)
    theirs = noted(Learnings="typed just now")

    def meanwhile(request: Request) -> Any:
        talk.write(theirs)
        return talk.edits(Key_results="x")

    talk.says(meanwhile)
    talk.answer("ok", 20_000)

    assert await talk.reply() == []
    assert talk.text == theirs
    assert "changed while" in talk.of(Failed)[-1].cause


@pytest.mark.anyio
@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
async def test_a_folder_that_may_not_be_written_is_a_failure_that_is_told(tmp_path: Path) -> None:
    talk = await begun(tmp_path)
    talk.says(talk.edits(Learnings="x"))
    talk.path.parent.chmod(0o500)
    talk.answer("ok", 20_000)
    try:
        assert await talk.reply() == []
    finally:
        talk.path.parent.chmod(0o700)
    assert "permission denied" in talk.of(Failed)[-1].cause


# --- on the wire ----------------------------------------------------------------------------------------


def first_difference(parent: list[bytes], child: list[bytes]) -> str:
    """Where a fork leaves its parent's prefix, in words; nothing when it extends it."""
    for n, (a, b) in enumerate(zip(parent, child, strict=False)):
        if a != b:
            at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
            return f"part {n}, byte {at}: {a[at : at + 40]!r} became {b[at : at + 40]!r}"
    return "" if len(child) > len(parent) else "nothing was added"


@pytest.mark.anyio
async def test_an_update_sends_the_bytes_of_its_parent_and_one_message_more(tmp_path: Path) -> None:
    talk = Noting(tmp_path)
    talk.says(talk.edits(Current_state="begun"))
    talk.say("go")
    for n in range(5):
        talk.call(n, 12_000)
    await talk.reply()
    parent, child = encode_prefix(talk.request), talk.model.seen[-1]

    assert first_difference(parent, child) == ""
    assert len(child) == len(parent) + 1
    changed = [*child[:4], child[4].replace(b"src/f0", b"src/x0"), *child[5:]]
    assert first_difference(parent, changed).startswith("part 4, byte ")
    assert "f0.py" in first_difference(parent, changed)


def noting_replies(path: Path) -> Any:
    def reply(body: Json) -> Any:
        last = body["messages"][-1]["content"][-1]
        if last.get("type") == "text" and last["text"].startswith('<directive kind="notes"'):
            old = described("Current state")
            args = {"file_path": str(path), "old_string": old, "new_string": f"{old}\nReading."}
            return [{"type": "tool_use", "id": "note", "name": "Edit", "input": args}]
        return reading(12)(body)

    return reply


@pytest.mark.anyio
async def test_on_the_wire_an_update_reads_all_that_its_parent_had_cached(tmp_path: Path) -> None:
    path = tmp_path / "one" / "session-memory" / "summary.md"
    async with conversation(noting_replies(path)) as talk:
        able = talk.model.capabilities
        limits = Thresholds.of(able.window, able.max_output)
        known = PlainConversation(talk.model, thresholds=limits)
        forks = ForkRunner(known, talk.ledger, talk.clock, talk.events.append)
        parts = make_parts(
            conversation=known,
            clock=talk.clock,
            events=talk.events,
            fork=forks,
            settings=Settings(notes=NotesSettings(priced=True)),
        )
        keeping = NotesUpdater(parts, Notebook(parts, path))
        turn = talk.turn(Layers(replied=(keeping,)))
        background = turn.background
        assert isinstance(background, Postponed)
        await turn.run(user("look around"))
        parent = talk.sim.ledger.rows[-1].tokens
        background.work[:-1] = []  # the update after the last reply is the one that is looked at
        await background.run()
        turn.collect()

    row = talk.sim.ledger.rows[-1]
    assert row.tokens.cache_read >= 0.99 * (parent.cache_read + parent.cache_write_5m)
    assert row.tokens.cache_write_5m == 0
    assert talk.ledger.accounts["fork:notes"].requests == 1
    assert talk.of(Forked)[0].hit_rate > 0.9
    assert path.read_text(encoding="utf-8") == noted(Current_state="Reading.")
    assert turn.transcript.view.marks["notes"]["anchor"] == turn.transcript.view[-1].id
    assert isinstance(turn.transcript.view[-1].message.content[0], Text)
