"""Layer 1: what goes to disk, what the model sees instead, and that it never changes its mind."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kit
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import make_parts

from sevenfold.core.events import Event, Failed, Stored
from sevenfold.core.messages import (
    Block,
    Document,
    Image,
    Message,
    Opaque,
    Text,
    ToolResult,
    ToolUse,
    assistant,
    user,
)
from sevenfold.core.protocols import Capabilities, Layers
from sevenfold.core.transcript import Transcript, View
from sevenfold.layers.l1_tool_results.preview import (
    CLOSING,
    OPENING,
    WITH_READ_RESULT,
    make_envelope,
    parse_envelope,
    take_head,
    take_tail,
)
from sevenfold.layers.l1_tool_results.tool_results import (
    TOO_LONG_FOR_ANY_WINDOW,
    ToolResults,
    count_characters,
    is_storable,
)
from sevenfold.layers.parts import PlainConversation
from sevenfold.settings.layers import Switches, ToolResultSettings
from sevenfold.settings.schema import Settings
from sevenfold.storage.results import ResultStore
from sevenfold.testing import FakeTools, ScriptedModel

DEFAULTS = ToolResultSettings()


class Arriving:
    """Layer 1 over a folder, and views in which the last reply called some tools."""

    def __init__(self, folder: Path, window: int = 200_000, **settings: Any) -> None:
        self.events: list[Event] = []
        self.store = ResultStore(lambda: folder)
        self.layer = ToolResults(
            make_parts(
                able=Capabilities(window=window),
                results=self.store,
                events=self.events,
                settings=Settings(tool_results=ToolResultSettings(**settings)),
            )
        )

    def take(self, *results: ToolResult, tools: Sequence[str], before: Any = ()) -> list[ToolResult]:
        return list(self.layer.intake(results, asked(results, tools, before)))

    def one(self, content: str | tuple[Block, ...], tool: str, failed: bool = False) -> ToolResult:
        return self.take(ToolResult("u", content, failed), tools=[tool])[0]

    @property
    def stored(self) -> list[str]:
        return [event.use_id for event in self.events if isinstance(event, Stored)]

    @property
    def failed(self) -> list[str]:
        return [event.cause for event in self.events if isinstance(event, Failed)]


def asked(results: Sequence[ToolResult], tools: Sequence[str], before: Sequence[Message] = ()) -> View:
    """A view that ends with the calls these results answer, and what answered them already."""
    log = Transcript(lambda: 0.0)
    uses = [ToolUse(r.tool_use_id, tool, {}) for r, tool in zip(results, tools, strict=True)]
    old = [
        ToolUse(r.tool_use_id, "Read" if r.tool_use_id.startswith("read") else "Web", {})
        for message in before
        for r in message.results
    ]
    log.add(user("go"), assistant(*old, *uses), *before)
    return log.view


@pytest.fixture
def here(tmp_path: Path) -> Arriving:
    return Arriving(tmp_path / "tool-results")


def sha(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def on_disk(result: ToolResult) -> str:
    """The whole text that an envelope points to."""
    pointer = parse_envelope(result.text)
    assert pointer is not None
    return Path(pointer.path).read_bytes().decode("utf-8")


# --- which ones ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "limit"),
    [("Bash", 30_000), ("Grep", 20_000), ("Glob", 50_000), ("mcp__x__y", 50_000), ("", 50_000)],
)
def test_a_result_goes_to_disk_when_it_is_longer_than_its_tool_may_be(
    here: Arriving, tool: str, limit: int
) -> None:
    at_the_limit = ToolResult("u", "x" * limit)
    assert here.take(at_the_limit, tools=[tool]) == [at_the_limit]
    assert here.events == []
    beyond = here.one("x" * (limit + 1), tool)
    assert parse_envelope(beyond.text)
    assert sha(on_disk(beyond)) == sha("x" * (limit + 1))


@pytest.mark.parametrize("tool", ["Read", "ReadResult"])
def test_what_reads_files_bounds_itself_and_counts_for_nothing(here: Arriving, tool: str) -> None:
    long = ToolResult("a", "x" * 300_000)
    other = ToolResult("b", "y" * 49_000)
    assert here.take(long, other, tools=[tool, "Web"]) == [long, other]
    assert here.events == []
    others = [ToolResult(f"u{n}", "y" * 45_000) for n in range(5)]
    shown = here.take(long, *others, tools=[tool, *["Web"] * 5])
    assert shown[0] == long
    assert here.stored == ["u0"]


def test_a_limit_of_its_own_replaces_the_rule_for_a_tool(tmp_path: Path) -> None:
    here = Arriving(tmp_path, limits={"Bash": 100, "Read": 1_000, "Web": 150_000})
    assert parse_envelope(here.one("x" * 101, "Bash").text)
    assert parse_envelope(here.one("x" * 1_001, "Read").text)
    assert here.one("x" * 150_000, "Web").text == "x" * 150_000


def test_a_lower_limit_for_all_holds_for_every_tool(tmp_path: Path) -> None:
    here = Arriving(tmp_path, most_characters=10_000)
    assert parse_envelope(here.one("x" * 10_001, "Bash").text)
    assert here.one("x" * 10_000, "Bash").text == "x" * 10_000


@pytest.mark.parametrize(
    ("window", "bash", "other"),
    [(8_000, 2_800, 2_800), (32_000, 4_800, 8_000), (128_000, 19_200, 32_000), (1_000_000, 30_000, 50_000)],
)
def test_in_a_small_window_limits_are_small_too_but_never_shorter_than_an_envelope(
    tmp_path: Path, window: int, bash: int, other: int
) -> None:
    here = Arriving(tmp_path, window)

    assert (here.layer.limit("Bash"), here.layer.limit("mcp__x")) == (bash, other)
    assert here.one("x" * bash, "Bash").text == "x" * bash
    assert count_characters(here.one("x" * (bash + 1), "Bash")) < 2_800


def test_a_limit_that_somebody_set_for_a_tool_holds_in_every_window(tmp_path: Path) -> None:
    here = Arriving(tmp_path, 8_000, limits={"Bash": 10_000}, most_characters=500)

    assert (here.layer.limit("Bash"), here.layer.limit("Grep")) == (10_000, 500)


def test_in_a_small_window_a_message_holds_less(tmp_path: Path) -> None:
    here = Arriving(tmp_path, 32_000)
    results = [ToolResult(f"u{i}", "x" * 7_000) for i in range(5)]
    here.take(*results, tools=["Edit"] * 5)

    assert len(here.stored) == 1, "35,000 characters, and 32,000 are allowed"


def test_images_documents_and_unknown_blocks_are_never_stored(here: Arriving) -> None:
    for block in (Image({"data": "x"}), Document({"data": "x"}), Opaque("new", '{"type":"new"}')):
        result = ToolResult("u", (Text("x" * 60_000), block))
        assert here.take(result, tools=["Web"]) == [result]
        assert here.take(*[result] * 4, tools=["Web"] * 4) == [result] * 4
    assert here.events == []


def test_blocks_of_text_alone_go_to_a_json_file_with_all_they_hold(here: Arriving) -> None:
    blocks = (Text("a" * 30_000), Text("b" * 30_000, {"citations": [1]}))
    shown = here.one(blocks, "Web")
    pointer = parse_envelope(shown.text)
    assert pointer is not None
    assert (pointer.characters, Path(pointer.path).suffix) == (60_000, ".json")
    assert "JSON array of blocks" in shown.text
    assert "b" * 30_000 in on_disk(shown)
    assert "citations" in on_disk(shown)


@pytest.mark.parametrize("content", ["", " \n\t ", (), (Text(""),), (Text(" "), Text("\n"))])
def test_an_empty_result_becomes_a_line_that_names_its_tool(
    here: Arriving, content: str | tuple[Block, ...]
) -> None:
    assert here.one(content, "mcp__db__query").content == "[mcp__db__query returned nothing]"
    failed = here.one(content, "Read", failed=True)
    assert (failed.content, failed.is_error) == ("[Read failed and said nothing]", True)
    assert here.one(content, "").content == "[the tool returned nothing]"


def test_an_image_alone_is_not_nothing(here: Arriving) -> None:
    result = ToolResult("u", (Text(""), Image({"data": "x"})))
    assert here.take(result, tools=["Web"]) == [result]


def test_what_else_a_result_carries_stays(here: Arriving) -> None:
    stored = here.take(ToolResult("u", "x" * 60_000, True, {"note": 1}), tools=["Web"])[0]
    assert (stored.tool_use_id, stored.is_error, stored.extra) == ("u", True, {"note": 1})


# --- all of a message ---------------------------------------------------------------------------------


def test_the_largest_go_first_until_the_message_is_within_its_limit(here: Arriving) -> None:
    sizes = [49_000, 30_000, 48_000, 20_000, 47_000, 46_000]
    batch = [ToolResult(f"u{n}", chr(97 + n) * many) for n, many in enumerate(sizes)]
    shown = here.take(*batch, tools=["Web"] * 6)
    assert here.stored == ["u0"]  # 240,000 - 49,000 + an envelope
    assert shown[1:] == batch[1:]
    assert sum(count_characters(r) for r in shown) <= DEFAULTS.most_per_message
    assert sha(on_disk(shown[0])) == sha(batch[0].text)


def test_results_already_in_the_view_count_but_stay(here: Arriving) -> None:
    """Consecutive user messages are one message to the provider."""
    before = [
        Message("user", (ToolResult("f1", "x" * 90_000),)),
        Message("user", (ToolResult("read1", "x" * 90_000),)),
        Message("user", (ToolResult("f2", "x" * 80_000),)),
    ]
    small = ToolResult("u1", "y" * 30_000)
    assert here.take(small, tools=["Web"], before=before) == [small]
    large = ToolResult("u2", "y" * 30_001)
    assert parse_envelope(here.take(large, tools=["Web"], before=before)[0].text)


def test_an_overage_of_what_is_frozen_is_accepted(here: Arriving) -> None:
    before = [Message("user", (ToolResult("f1", "x" * 300_000),))]
    small = ToolResult("u1", "a short answer")
    assert here.take(small, tools=["Web"], before=before) == [small]
    assert here.events == []


def test_what_lies_before_the_last_reply_is_another_message(here: Arriving) -> None:
    log = Transcript(lambda: 0.0)
    log.add(user("go"), kit.use("a", "Web"))
    log.add(Message("user", (ToolResult("a", "x" * 190_000),)), kit.use("b", "Web"))
    fresh = (ToolResult("b", "x" * 40_000),)
    assert here.layer.intake(fresh, log.view) == fresh


def test_the_limit_of_a_message_can_be_switched_off(tmp_path: Path) -> None:
    events: list[Event] = []
    store = ResultStore(lambda: tmp_path)
    layer = ToolResults(make_parts(results=store, events=events, switches=Switches(aggregate_budget=False)))
    batch = tuple(ToolResult(f"u{n}", "x" * 49_000) for n in range(9))
    assert layer.intake(batch, asked(batch, ["Web"] * 9)) == batch
    assert events == []


def test_nothing_is_stored_that_would_be_no_shorter_for_it(here: Arriving) -> None:
    batch = [ToolResult(f"u{n}", "x" * 2_000) for n in range(150)]
    assert here.take(*batch, tools=["Web"] * 150) == batch


contents = st.one_of(
    st.integers(20_000, 60_000).map(lambda n: "x" * n),
    st.integers(0, 60_000).map(lambda n: "y" * n),
    st.sampled_from(["", " \n", "short", "行\n" * 15_000, "\0" * 31_000]),
    st.integers(1, 60_000).map(lambda n: (Text("a" * n), Text("b"))),
    st.integers(1, 60_000).map(lambda n: (Text("a" * n), Image({"data": "x"}))),
)
fresh_result = st.tuples(contents, st.sampled_from(["Bash", "Grep", "Read", "Web"]), st.booleans())


@given(st.lists(fresh_result, max_size=20), st.lists(st.integers(0, 150_000), max_size=3))
def test_a_message_is_within_its_limit_or_only_by_what_cannot_be_stored(
    tmp_path: Path, drawn: list[tuple[Any, str, bool]], frozen: list[int]
) -> None:
    here = Arriving(tmp_path / "tool-results")
    batch = [ToolResult(f"u{i}", c, failed) for i, (c, _, failed) in enumerate(drawn)]
    tools = [tool for _, tool, _ in drawn]
    before = [Message("user", (ToolResult(f"f{i}", "x" * n),)) for i, n in enumerate(frozen)]
    shown = here.take(*batch, tools=tools, before=before)

    assert [r.tool_use_id for r in shown] == [r.tool_use_id for r in batch]
    assert len(here.stored) == len(set(here.stored))
    counted = sum(count_characters(r) for r, tool in zip(shown, tools, strict=True) if tool != "Read")
    left_over = []
    for old, new, tool in zip(batch, shown, tools, strict=True):
        if new.tool_use_id in here.stored:
            assert is_storable(old)
            assert tool != "Read"
            assert count_characters(new) < count_characters(old)
            if isinstance(old.content, str):
                assert sha(on_disk(new)) == sha(old.content)
        elif not old.text.strip() and not old.has_media:
            assert new.text.count("\n") == 0
            assert new.text.startswith("[")
        else:
            assert new == old  # to the byte
            limit = here.layer.limit(tool)
            assert limit is None or count_characters(old) <= limit or not is_storable(old)
            worth_it = count_characters(old) > DEFAULTS.preview_bytes + 800
            left_over += [old] if tool != "Read" and is_storable(old) and worth_it else []
    if sum(frozen) + counted > DEFAULTS.most_per_message:
        assert left_over == []


# --- what is shown ------------------------------------------------------------------------------------


def test_an_envelope_says_how_long_where_how_it_begins_and_how_to_read_on(here: Arriving) -> None:
    text = "".join(f"line {n}\n" for n in range(1, 10_001))
    shown = here.one(text, "Web").text
    lines = shown.split("\n")
    assert lines[0] == OPENING
    assert "98,894 characters, 10,000 lines" in lines[1]
    assert lines[2] == str(here.store.find("u"))
    assert "Read" in lines[3]
    assert "Grep" in lines[3]
    first = lines.index("line 1")
    assert lines[first - 1] == f"The first {len(lines) - first - 2} lines:"
    assert lines[-2:] == ["…", CLOSING]
    preview = "\n".join(lines[first:-2])
    assert text.startswith(preview + "\n")
    assert 1_900 < len(preview) <= 2_000
    stored = here.events[0]
    assert isinstance(stored, Stored)
    assert (stored.tool, stored.path, stored.characters) == ("Web", lines[2], 98_894)
    assert stored.tokens == pytest.approx(98_894 / 4 - len(shown) / 4, abs=2)
    assert "50,000" in stored.why


def test_an_envelope_is_recognised_and_nothing_else_is(tmp_path: Path) -> None:
    path = tmp_path / "with a space" / "résult.txt"
    for text in ("x" * 60_000, "a\nb\n" * 20_000, f"{CLOSING}\n{OPENING}\n" * 3_000):
        for with_tail in (False, True):
            shown = make_envelope(text, path, WITH_READ_RESULT, 2_000, with_tail=with_tail)
            pointer = parse_envelope(shown)
            assert pointer is not None
            assert (pointer.characters, pointer.path) == (len(text), str(path))
            assert shown.count(CLOSING) == 1
            assert parse_envelope(shown[:-1]) is None
            assert parse_envelope(shown + "\n") is None
            assert parse_envelope("see: " + shown) is None
    assert parse_envelope("") is None
    assert parse_envelope(f"{OPENING}\nsomething else\n{CLOSING}") is None


def test_the_preview_ends_with_a_line_only_if_half_of_it_is_left() -> None:
    assert take_head("a" * 1_500 + "\n" + "b" * 5_000, 2_000) == "a" * 1_500
    assert take_head("a" * 900 + "\n" + "b" * 5_000, 2_000) == "a" * 900 + "\n" + "b" * 1_099
    assert take_tail("a" * 5_000 + "\n" + "b" * 1_500, 2_000) == "b" * 1_500
    assert take_tail("a" * 5_000 + "\n" + "b" * 900, 2_000) == "a" * 1_099 + "\n" + "b" * 900


@given(st.text(st.sampled_from("a行é🧵\n"), max_size=200), st.integers(0, 250))
def test_a_cut_is_never_inside_a_character(text: str, budget: int) -> None:
    head, tail = take_head(text, budget), take_tail(text, budget)
    assert text.startswith(head)
    assert text.endswith(tail)
    for part in (head, tail):
        assert len(part.encode("utf-8")) <= budget
    if len(text.encode("utf-8")) <= budget:
        assert head == tail == text


def test_chinese_at_the_cut_is_whole(here: Arriving) -> None:
    shown = here.one("漢" * 60_000, "Web").text
    assert shown.count("漢") == 666  # of 2,000 bytes
    assert "\ufffd" not in shown


def test_halves_of_characters_and_nuls_do_no_harm(here: Arriving) -> None:
    text = "\ud800\0" * 30_000
    shown = here.one(text, "Web")
    assert shown.text.encode("utf-8")
    assert on_disk(shown) == "?\0" * 30_000


def test_a_failing_command_keeps_both_ends_within_the_same_budget(here: Arriving) -> None:
    text = "Exit code 1\n" + "middle\n" * 10_000 + "AssertionError: 1 != 2\n"
    shown = here.one(text, "Bash", failed=True).text
    assert "Exit code 1\n" in shown
    assert "AssertionError: 1 != 2\n" in shown
    assert shown.count("middle") * len("middle\n") < 2_000
    assert "characters between …]" in shown
    other = here.one(text, "Bash").text
    assert "AssertionError" not in other


def test_a_preview_of_nothing_leaves_the_pointer(tmp_path: Path) -> None:
    shown = Arriving(tmp_path, preview_bytes=0).one("x" * 60_000, "Web").text
    assert "xx" not in shown
    assert parse_envelope(shown)


def test_how_to_read_more_is_asked_for_each_time(tmp_path: Path) -> None:
    conversation = PlainConversation(reading_hint="first way")
    layer = ToolResults(make_parts(conversation=conversation, folder=tmp_path))
    batch = (ToolResult("u", "x" * 60_000),)
    view = asked(batch, ["Web"])
    assert "first way" in layer.intake(batch, view)[0].text
    conversation.reading_hint = "second way"
    assert "second way" in layer.intake(batch, view)[0].text


# --- the disk refuses ---------------------------------------------------------------------------------


def test_when_the_disk_refuses_the_result_stays_as_it_is_and_an_event_says_why(tmp_path: Path) -> None:
    (tmp_path / "tool-results").touch()
    here = Arriving(tmp_path / "tool-results")
    batch = [ToolResult(f"u{n}", "x" * 60_000) for n in range(4)]
    assert here.take(*batch, tools=["Web"] * 4) == batch
    assert here.stored == []
    [cause] = here.failed  # said once for all of them
    assert "tool-results could not be made" in cause
    assert "move that file away" in cause
    assert "shown whole" in cause


def test_a_symlinked_folder_is_refused_and_nothing_is_written_there(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "tool-results").symlink_to(tmp_path / "elsewhere")
    here = Arriving(tmp_path / "tool-results")
    result = ToolResult("u", "x" * 60_000)
    assert here.take(result, tools=["Web"]) == [result]
    assert "symbolic link" in here.failed[0]
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_no_window_can_hold_is_cut_when_it_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "tool-results").touch()
    here = Arriving(tmp_path / "tool-results")
    whole = "x" * TOO_LONG_FOR_ANY_WINDOW
    assert here.one(whole, "Bash").text == whole
    lines = "".join(f"line {n}\n" for n in range(60_000))
    for content in (lines, (Text(lines),)):
        shown = here.one(content, "Bash").text
        assert shown.startswith("line 0\n")
        assert shown.endswith("line 59999\n")
        assert len(shown) < 31_000
        assert "characters are missing here" in shown
        assert "move that file away" in shown
        assert parse_envelope(shown) is None
    assert "only the beginning and the end" in here.failed[-1]


def test_a_folder_deleted_while_the_session_runs_is_made_again(here: Arriving) -> None:
    first = here.one("x" * 60_000, "Web")
    for path in here.store.folder.iterdir():
        path.unlink()
    here.store.folder.rmdir()
    again = here.one("y" * 60_000, "Web")
    assert on_disk(again) == "y" * 60_000
    assert first.text != again.text


def test_64_megabytes_go_to_disk_and_come_back(here: Arriving) -> None:
    text = "0123456789abcde\n" * (64 << 16)
    shown = here.one(text, "Bash")
    assert len(shown.text) < 3_000
    assert sha(on_disk(shown)) == sha(text)


# --- in a conversation --------------------------------------------------------------------------------

HOSTILE = ["", "../../etc/passwd", "x" * 10_000, "a\0b", "工具", "CON", "same", "SAME", "dot."]


def conversation(folder: Path, lines: list[bytes], **settings: Any) -> tuple[Layers, Transcript]:
    known = Settings(tool_results=ToolResultSettings(**settings))
    layer = ToolResults(make_parts(folder=folder, settings=known))
    return Layers(intake=(layer,)), Transcript(lambda: 0.0, lines.append)


@pytest.mark.anyio
async def test_eight_of_29000_and_one_of_200000_with_hostile_ids(tmp_path: Path) -> None:
    texts = {id: f"{n}" * 29_000 for n, id in enumerate(HOSTILE)}
    texts["CON"] = "".join(f"{n:09}\n" for n in range(20_000))
    uses = assistant(*[ToolUse(id, "Bash", {}) for id in HOSTILE])
    layers, log = conversation(tmp_path / "tool-results", [])
    tools = FakeTools({"Bash": lambda use: texts[use.id]})
    turn = kit.make([uses, "done"], layers, transcript=log, tools=tools)
    await turn.run(user("go"))

    shown = {r.tool_use_id: r for r in log.view[2].message.results}
    stored = [id for id in HOSTILE if parse_envelope(shown[id].text)]
    assert stored == ["", "../../etc/passwd", "CON"]  # one by itself, then the first of the largest
    for id in HOSTILE:
        text = on_disk(shown[id]) if id in stored else shown[id].text
        assert sha(text) == sha(texts[id])
    assert sum(len(r.text) for r in shown.values()) <= DEFAULTS.most_per_message
    assert {p.parent for p in (tmp_path / "tool-results").rglob("*")} == {tmp_path / "tool-results"}


@pytest.mark.anyio
async def test_after_resume_with_changed_limits_what_was_decided_stands(tmp_path: Path) -> None:
    lines: list[bytes] = []
    layers, log = conversation(tmp_path / "tool-results", lines)
    tools = FakeTools({"Bash": "x" * 31_000, "Web": "y" * 49_000})
    before = ScriptedModel([kit.use("a", "Bash"), kit.use("b", "Web"), "done"])
    await kit.make(before, layers, transcript=log, tools=tools).run(user("go"))
    assert parse_envelope(log.view[2].message.results[0].text)

    for settings in ({"most_characters": 100}, {"limits": {"Bash": 99_999_999}}):
        layers, _ = conversation(tmp_path / "tool-results", [], **settings)
        again = Transcript.load(b"".join(lines), lambda: 0.0)
        assert again.view == log.view
        after = ScriptedModel([kit.use("c", "Bash"), "done"])
        await kit.make(after, layers, transcript=again, tools=tools).run(user("more"))
        assert kit.extends(before.seen[-1], after.seen[-1])
        is_stored = parse_envelope(again.view[-2].message.results[0].text) is not None
        assert is_stored == ("most_characters" in settings)  # the fresh one goes by the new rule


@pytest.mark.anyio
async def test_a_fork_sees_the_same_bytes_and_decides_on_its_own(tmp_path: Path) -> None:
    layers, log = conversation(tmp_path / "tool-results", [])
    tools = FakeTools({"Bash": "x" * 31_000})
    parent = ScriptedModel([kit.use("a", "Bash"), "done"])
    await kit.make(parent, layers, transcript=log, tools=tools).run(user("go"))
    (tmp_path / "tool-results" / "a.txt").unlink()  # nothing is read or written to see it again

    fork = Transcript.on(log.view, lambda: 0.0)
    child = ScriptedModel([kit.use("a2", "Bash"), "done"])
    await kit.make(child, layers, transcript=fork, tools=tools).run(user("aside"))
    assert kit.extends(parent.seen[-1], child.seen[-1])
    assert not (tmp_path / "tool-results" / "a.txt").exists()
    assert parse_envelope(fork.view[-2].message.results[0].text)
    assert len(log.view) == 4


@pytest.mark.anyio
async def test_a_damaged_record_is_reported_and_the_turn_goes_on(tmp_path: Path) -> None:
    lines: list[bytes] = []
    layers, log = conversation(tmp_path / "tool-results", lines)
    tools = FakeTools({"Bash": "x" * 31_000})
    await kit.make([kit.use("a", "Bash"), "done"], layers, transcript=log, tools=tools).run(user("go"))
    at = next(i for i, line in enumerate(lines) if b"persisted-output" in line)
    lines[at] = lines[at][:-300] + b"\n"
    again = Transcript.load(b"".join(lines[: at + 1]), lambda: 0.0)
    assert len(again.problems) == 1
    turn = kit.make([kit.use("b", "Bash"), "done"], layers, transcript=again, tools=tools)
    reply = await turn.run(user("more"))
    assert reply.message.text == "done"
    assert "persisted-output" not in again.view[2].message.results[0].text
    assert sha(on_disk(again.view[-2].message.results[0])) == sha("x" * 31_000)
