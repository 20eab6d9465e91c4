"""A damaged transcript: the view is whole again, the file keeps everything, and it is said once."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import FRAME, use

from sevenfold.core.events import Event, Notice
from sevenfold.core.messages import (
    THOUGHTS,
    Block,
    Message,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    assistant,
    make_wire_message,
    user,
)
from sevenfold.core.request import has_paired_tools
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import (
    Mark,
    Replace,
    Reply,
    Results,
    Transcript,
    Undo,
    View,
    What,
    encode_entry,
)
from sevenfold.recordings.claude_code import read_session
from sevenfold.recordings.recorded_session import convert_recording
from sevenfold.session.log import RESULTS, TranscriptFile
from sevenfold.simulator.validation import check_pairs
from sevenfold.storage.results import ResultStore
from sevenfold.testing import FakeClock

SESSIONS = sorted((Path(__file__).parents[2] / "../shared/data/sessions").glob("*.jsonl.gz"))


class Kept:
    """A session on disk that can be damaged and resumed."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "s.jsonl"
        self.events: list[Event] = []

    def write(self, *said: tuple[str, What]) -> Kept:
        recording = TranscriptFile(self.path, FakeClock(), self.events.append)
        recording.begin({"id": "s"}, FRAME, None)
        for by, what in said:
            recording.transcript.add(what, by=by)
        recording.close()
        return self

    @property
    def lines(self) -> list[bytes]:
        return self.path.read_bytes().splitlines(keepends=True)

    def damage(self, holding: str, how: Callable[[bytes], bytes] = lambda line: line[:40]) -> int:
        """Damage the one line that holds this; returns its number."""
        lines = self.lines
        [at] = [i for i, line in enumerate(lines) if holding.encode() in line]
        lines[at] = how(lines[at].rstrip(b"\n")) + b"\n"
        self.path.write_bytes(b"".join(lines))
        return at + 1

    def delete(self, holding: str) -> None:
        self.path.write_bytes(b"".join(x for x in self.lines if holding.encode() not in x))

    def resume(self) -> View:
        self.events.clear()
        recording = TranscriptFile(self.path, FakeClock(), self.events.append)
        recording.resume(FakeClock())
        recording.close()
        return recording.transcript.view

    @property
    def told(self) -> list[str]:
        return [e.text for e in self.events if isinstance(e, Notice)]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def results(id: str, text: str) -> tuple[str, Message]:
    return "tools", Message("user", (ToolResult(id, text),))


def called(id: str) -> tuple[str, Reply]:
    return "model", Reply(use(id, command=f"command {id}"), Usage(input=100))


TALK: list[tuple[str, What]] = [
    ("user", user("first question")),
    called("a"),
    results("a", "result of a"),
    called("b"),
    results("b", "result of b"),
    ("model", Reply(assistant(Text("first answer")))),
    ("user", user("second question")),
    ("model", Reply(assistant(Text("second answer")))),
]


def sendable(view: View) -> None:
    """No provider refuses it: our own rule, the simulator's, and no two assistants in a row."""
    assert has_paired_tools(view)
    check_pairs([make_wire_message(m) for m in view.messages])
    roles = [m.role for m in view.messages]
    assert not roles or roles[0] == "user"
    assert ("assistant", "assistant") not in pairwise(roles)


def said(view: View) -> list[Block]:
    """All that is not a result of a tool, and no thinking."""
    blocks = (b for m in view.messages for b in m.content)
    return [b for b in blocks if not isinstance(b, (ToolResult, *THOUGHTS))]


# --- one line ----------------------------------------------------------------------------------------


def test_a_lost_result_is_answered_as_damaged_with_its_line(kept: Kept) -> None:
    line = kept.write(*TALK).damage("result of a")
    before = kept.path.read_bytes()
    view = kept.resume()

    sendable(view)
    [result] = view[2].message.results
    assert f"line {line} of the transcript is damaged" in result.text
    assert result.is_error
    assert said(view) == [b for _, w in TALK for b in _blocks(w) if not isinstance(b, ToolResult)]
    assert kept.path.read_bytes().startswith(before), "nothing in the file was changed"


def _blocks(what: What) -> tuple[Block, ...]:
    message = what.message if isinstance(what, Reply) else what
    assert isinstance(message, Message)
    return message.content


def test_a_lost_result_that_is_stored_names_its_file(kept: Kept) -> None:
    kept.write(*TALK).damage("result of a")
    path = ResultStore(lambda: kept.path.with_suffix("") / RESULTS).keep("a", "result of a")
    view = kept.resume()

    assert str(path) in view[2].message.results[0].text


def test_a_lost_reply_takes_its_results_with_it_and_a_note_says_so(kept: Kept) -> None:
    line = kept.write(*TALK).damage("command b")
    view = kept.resume()

    sendable(view)
    assert f"line {line} of the transcript is damaged" in view[3].message.text
    assert [r.text for m in view.messages for r in m.results] == ["result of a"]
    assert view[4].message.text == "first answer"


def test_a_lost_question_leaves_a_note_between_the_answers(kept: Kept) -> None:
    line = kept.write(*TALK).damage("second question")
    view = kept.resume()

    sendable(view)
    assert f"line {line}" in view[-2].message.text
    assert view[-2].by != "user", "nobody said that"
    assert view[-1].message.text == "second answer"


def test_a_conversation_whose_beginning_is_lost_begins_with_a_note(kept: Kept) -> None:
    kept.write(*TALK).damage("first question")
    view = kept.resume()

    sendable(view)
    assert view[0].message.text.startswith("[something that was said here")


def test_a_lost_last_result_is_lost_and_not_interrupted(kept: Kept) -> None:
    line = kept.write(*TALK[:5]).damage("result of b")
    view = kept.resume()

    sendable(view)
    assert f"line {line}" in view[-1].message.results[0].text


def test_uses_that_a_crash_left_open_are_still_interrupted(kept: Kept) -> None:
    view = kept.write(*TALK[:4]).resume()

    sendable(view)
    assert "interrupted" in view[-1].message.results[0].text
    assert kept.told == []


def test_a_line_that_is_gone_without_a_trace_is_missed_too(kept: Kept) -> None:
    kept.write(*TALK).delete("result of a")
    view = kept.resume()

    sendable(view)
    assert "the place before line 5 of the transcript" in view[2].message.results[0].text
    assert any("s.jsonl:5: 1 record is missing" in text for text in kept.told)


def test_a_record_that_is_json_and_makes_no_sense_is_damaged(kept: Kept) -> None:
    line = kept.write(*TALK).damage("result of a", lambda x: x.replace(b'"user"', b'"uzer"'))
    view = kept.resume()

    sendable(view)
    assert any(f"s.jsonl:{line}: this line is damaged" in text for text in kept.told)


def test_who_said_it_stays_beside_what_was_said(kept: Kept) -> None:
    kept.write(*TALK).damage("result of a")
    view = kept.resume()

    assert [p.message.text for p in view if p.by == "user"] == ["first question", "second question"]
    assert {p.by for p in view if p.message.role == "assistant"} == {"model"}


def test_ids_that_damage_made_the_same_do_not_hide_what_is_broken(kept: Kept) -> None:
    kept.write(*TALK).damage("second question", lambda x: x.replace(b'"id":8', b'"id":3'))
    kept.damage("result of a")
    view = kept.resume()

    sendable(view)
    assert said(view) == [b for _, w in TALK for b in _blocks(w) if not isinstance(b, ToolResult)]
    assert [p.message.text for p in view if p.by == "user"] == ["first question", "second question"]
    assert kept.resume() == view


# --- edits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edit", [Results({"a": "[cleared]"}), Replace(2, 4, (user("a summary"),))], ids=["results", "replace"]
)
def test_a_damaged_edit_shows_what_it_had_taken_out_and_says_what_that_costs(
    kept: Kept, edit: Results | Replace
) -> None:
    kept.write(*TALK, ("layer", edit), ("user", user("more")))
    whole = kept.resume()
    line = kept.damage('"by":"layer"', lambda x: x[: len(x) * 3 // 4])
    view = kept.resume()

    sendable(view)
    assert "result of a" in {r.text for m in view.messages for r in m.results}
    assert "result of a" not in {r.text for m in whole.messages for r in m.results}
    [told] = kept.told
    assert told.startswith(f"s.jsonl:{line}: ")
    assert "shown again, so the next request is paid for anew" in told


def test_an_edit_whose_beginning_is_lost_is_told_not_to_apply(kept: Kept) -> None:
    kept.write(*TALK, ("layer", Replace(2, 4, (user("a summary"),)))).damage("first question")
    view = kept.resume()

    sendable(view)
    assert "a summary" not in "".join(m.text for m in view.messages)
    assert any(
        "edits that began or ended at what is lost (1) no longer apply" in text for text in kept.told
    )


def test_a_damaged_mark_changes_nothing_that_is_sent(kept: Kept) -> None:
    kept.write(*TALK, ("layer", Mark("cursor", "here it is")))
    before = kept.resume()
    kept.damage("here it is", lambda x: x[:-3])
    view = kept.resume()

    assert view.messages == before.messages
    assert "what was noted there is forgotten" in kept.told[0]


def test_thinking_after_a_loss_goes_because_it_was_made_on_something_else(kept: Kept) -> None:
    thought = Thinking("hm", "sig")
    talk = [*TALK, ("user", user("third")), ("model", Reply(assistant(thought, Text("yes"))))]
    talk.insert(1, ("model", Reply(assistant(thought, Text("well"), ToolUse("z", "Read", {})))))
    talk.insert(2, results("z", "result of z"))
    kept.write(*talk).damage("second question")
    view = kept.resume()

    sendable(view)
    assert thought in view[1].message.content, "before the loss nothing has changed"
    assert view[-1].message.content == (Text("yes"),)


def test_thinking_goes_too_where_a_loss_leaves_nothing_to_mend(kept: Kept) -> None:
    thought = Thinking("hm", "sig")
    first = ("model", Reply(assistant(thought, Text("well"))))
    last = ("model", Reply(assistant(thought, Text("yes"))))
    between = (("hooks", user("beside")), ("user", user("two")))
    kept.write(("user", user("one")), first, *between, last).damage("beside")
    view = kept.resume()

    assert [m.text for m in view.messages] == ["one", "well", "two", "yes"]
    assert thought in view[1].message.content
    assert thought not in view[3].message.content


def test_after_a_damaged_edit_no_thinking_is_trusted(kept: Kept) -> None:
    answer = Reply(assistant(Thinking("hm", "s"), Text("yes")))
    edit = Results({"a": "[cleared]"})
    kept.write(("user", user("one")), ("model", answer), ("layer", edit))
    kept.damage("[cleared]", lambda line: line[:-9])

    assert kept.resume().messages == (user("one"), assistant(Text("yes")))


def test_a_frame_that_is_damaged_inside_is_told_and_replaced(kept: Kept) -> None:
    kept.write(*TALK).damage('"frame"', lambda x: x.replace(b'"model":"m"', b'"model":123'))
    kept.events.clear()
    recording = TranscriptFile(kept.path, FakeClock(), kept.events.append)

    assert recording.resume(FakeClock()) is None
    assert any("system prompt and tools are damaged" in text for text in kept.told)
    recording.close()


# --- once --------------------------------------------------------------------------------------------


def test_it_is_mended_and_told_once(kept: Kept) -> None:
    kept.write(*TALK).damage("result of a")
    first = kept.resume()
    assert len(kept.told) == 2
    assert "made whole again (tool calls answered as lost: 1)" in kept.told[1]
    after = kept.path.read_bytes()
    again = kept.resume()

    assert again == first
    assert kept.told == []
    assert kept.path.read_bytes() == after


def test_an_undamaged_session_is_not_touched(kept: Kept) -> None:
    kept.write(*TALK)
    before = kept.path.read_bytes()
    kept.resume()

    assert kept.path.read_bytes() == before
    assert kept.told == []


# --- whatever is damaged -----------------------------------------------------------------------------


def random_talk(rng: random.Random) -> list[tuple[str, What]]:
    """What the turn and its layers write: pairs, thinking, edits, undone replies, marks."""
    t = Transcript(lambda: 0.0)
    out: list[tuple[str, What]] = []

    def add(by: str, what: What) -> None:
        out.append((by, what))
        t.add(what, by=by)

    add("session", Mark("session", {}))  # in the place of what `begin` writes
    add("session", Mark("frame", {}))
    for n in range(rng.randint(1, 5)):
        add("user", user(f"question {n}"))
        for _ in range(rng.randint(0, 3)):
            _round(add, rng)
        if rng.random() < 0.2:
            add("model", Reply(assistant(Text("cut off"))))
            add("model", Undo(frozenset({len(t.entries) - 1})))
        add("model", Reply(assistant(*_thoughts(rng), Text(f"answer {n}"))))
        if rng.random() < 0.4:
            _edit(add, rng, t)
    return out[2:]


def _round(add: Callable[[str, What], None], rng: random.Random) -> None:
    # Ids so different that one does not become another by damage: that could not be seen.
    uses = [ToolUse(rng.randbytes(6).hex(), "Read", {"n": k}) for k in range(rng.randint(1, 3))]
    add("model", Reply(assistant(*_thoughts(rng), *uses), Usage(input=10)))
    add("tools", Message("user", tuple(ToolResult(u.id, f"result {u.id}") for u in uses)))
    if rng.random() < 0.2:
        add("layer", Mark("cursor", uses[0].id))


def _edit(add: Callable[[str, What], None], rng: random.Random, t: Transcript) -> None:
    ids = [r.tool_use_id for p in t.view for r in p.message.results]
    if ids and rng.random() < 0.5:
        add("layer", Results({rng.choice(ids): "[cleared]"}))
    else:
        by = (user("summary"), assistant(Text("restored")), user("go on"))
        last = t.view[-1]
        add("layer", Replace(t.view[0].id, last.id, rng.choice([by[:1], by])))


def _thoughts(rng: random.Random) -> tuple[Thinking, ...]:
    return (Thinking("hm", "sig"),) if rng.random() < 0.3 else ()


def damaged(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    out = list(lines)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out))
        line = bytearray(out[at].rstrip(b"\n"))
        match rng.choice(["delete", "cut", "flip", "flip", "noise", "blank"]):
            case "delete":
                out[at] = b""
                continue
            case "cut":
                del line[rng.randrange(len(line) + 1) :]
            case "flip" if line:
                line[rng.randrange(len(line))] ^= 1 << rng.randrange(7)
            case "noise":
                line = bytearray(rng.randbytes(30))
            case _:
                line = bytearray(b" ")
        out[at] = bytes(line).replace(b"\n", b"?") + b"\n"
    return out


def check_damaged(path: Path) -> None:
    """All that is promised of a session whose file is damaged."""
    kept = Kept(path.parent)
    before = path.read_bytes()
    loaded = Transcript.load(before, lambda: 0.0).view
    view = kept.resume()
    after = path.read_bytes()

    sendable(view)
    assert after.startswith(before), "nothing in the file was changed"
    assert _without_notes(view) == said(loaded)
    answered = [r for m in view.messages for r in m.results]
    assert [r for r in _answers(loaded) if r not in answered] == []
    assert kept.resume() == view
    assert path.read_bytes() == after
    assert kept.told == []


def _without_notes(view: View) -> list[Block]:
    return [
        b
        for b in said(view)
        if not (isinstance(b, Text) and b.text.startswith("[something that was said here"))
    ]


def _answers(view: View) -> list[ToolResult]:
    """Results that stand right behind their uses."""
    found: list[ToolResult] = []
    asked: set[str] = set()
    for m in view.messages:
        found += [r for r in m.results if r.tool_use_id in asked]
        asked = {u.id for u in m.tool_uses}
    return found


@settings(max_examples=400)
@given(st.integers(0, 10**9))
def test_whatever_lines_are_damaged_the_view_is_whole_and_stays_so(seed: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        kept = Kept(Path(folder)).write(*random_talk(rng))
        kept.path.write_bytes(b"".join(damaged(rng, kept.lines)))
        check_damaged(kept.path)


@pytest.mark.skipif(not SESSIONS, reason="the shared sessions are not beside this checkout")
@pytest.mark.parametrize("path", SESSIONS[:12], ids=lambda path: path.name[:8])
def test_real_sessions_survive_damage(path: Path, tmp_path: Path) -> None:
    source = convert_recording(read_session(path))
    rng = random.Random(path.name)
    whole = [encode_entry(entry) + b"\n" for entry in source.entries]
    kept = Kept(tmp_path)
    for _ in range(3):
        kept.path.write_bytes(b"".join(damaged(rng, whole)))
        check_damaged(kept.path)
