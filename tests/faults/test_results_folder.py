"""Layer 1 and 2 on a bad day: what the user is told, and that the turn goes on with nothing lost."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
from flows.test_session import Place

from sevenfold.core.events import Cleared, Failed, Notice, Stored
from sevenfold.core.messages import Json, Message, ToolResult, ToolUse, assistant
from sevenfold.core.request import Request, encode_prefix, has_paired_tools
from sevenfold.core.transcript import Entry, Results, Transcript
from sevenfold.layers.l1_tool_results.preview import parse_envelope
from sevenfold.layers.l2_microcompaction.candidates import CLEARED
from sevenfold.session.session import Session
from sevenfold.storage.jsonl import read_log
from sevenfold.testing import ScriptedModel
from sevenfold.testing.doubles import Line

pytestmark = pytest.mark.anyio
SETTINGS: Json = {
    "permissions": {"allow": ["Bash"]},
    "flags": {"notes": False},
    "micro": {"margin": 1, "leastFreed": 1_000, "keepRecent": 1},
}

GIVING: Json = {**SETTINGS, "permissions": {"allow": ["Give"]}}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def bash(id: str, command: str) -> Line:
    return assistant(ToolUse(id, "Bash", {"command": command}))


def shown(session: Session) -> dict[str, ToolResult]:
    return {r.tool_use_id: r for p in session.view for r in p.message.results}


def pointed_to(result: ToolResult) -> Path:
    pointer = parse_envelope(result.text)
    assert pointer is not None
    return Path(pointer.path)


def kept(result: ToolResult) -> bytes:
    """All of what an envelope stands for."""
    return pointed_to(result).read_bytes()


@pytest.fixture
def here(tmp_path: Path) -> Place:
    return Place(tmp_path)


class Give:
    """A tool of somebody else's, which gives what it was made with."""

    name = "Give"
    schema: ClassVar[Json] = {
        "name": "Give",
        "description": "Gives something.",
        "input_schema": {"type": "object"},
    }

    def __init__(self, what: str) -> None:
        self._what = what

    def safe(self, args: Json) -> bool:
        return True

    async def run(self, args: Json, use_id: str) -> str:
        return self._what


# --- what a result may hold -----------------------------------------------------------------------------


async def test_a_result_of_64_megabytes_is_on_disk_whole_and_short_in_the_view(here: Place) -> None:
    what = "0123456789abcde\n" * (4 << 20)
    model = ScriptedModel([assistant(ToolUse("huge", "Give", {})), "fine"])
    async with here.session(model, settings=GIVING, tools=[Give(what)]) as session:
        reply = await session.ask("give")
        result = shown(session)["huge"]

    assert reply.message.text == "fine"
    assert sha(kept(result)) == sha(what.encode())
    assert "67,108,864 characters, 4,194,304 lines" in result.text
    assert session.path.stat().st_size < 100_000, "nor is it in the transcript"


@pytest.mark.real
async def test_a_command_that_prints_64_megabytes_keeps_16_and_says_what_is_missing(here: Place) -> None:
    command = f"head -c {64 << 20} /dev/zero | tr '\\0' x"
    model = ScriptedModel([bash("huge", command), "fine"])
    async with here.session(model, settings=SETTINGS) as session:
        await session.ask("print")
        whole = kept(shown(session)["huge"])

    assert whole.count(b"x") == 16 << 20
    assert f"[… {48 << 20:,} bytes left out …]".encode() in whole


@pytest.mark.real
@pytest.mark.parametrize(
    ("printed", "line"),
    [(r"a\xff\xe4b\n", "a��b\n"), (r"a\x00b\x01\n", "a␀b\x01\n")],
    ids=["invalid UTF-8", "NUL bytes"],
)
async def test_bytes_that_are_no_text_are_stored_as_they_are_shown(
    here: Place, printed: str, line: str
) -> None:
    command = f"for n in $(seq 9000); do printf '{printed}'; done"

    def read_back(request: Request) -> Message:
        path = str(pointed_to(shown(session)["odd"]))
        return assistant(ToolUse("back", "Read", {"file_path": path, "offset": 9_000}))

    model = ScriptedModel([bash("odd", command), read_back, "fine"])
    async with here.session(model, settings=SETTINGS) as session:
        await session.ask("print")
        results, before = shown(session), encode_prefix(session.request)

    assert kept(results["odd"]).decode("utf-8") == (line * 9_000).rstrip("\n")
    assert line * 10 in results["odd"].text
    assert results["back"].text == f"9000\t{line}".rstrip("\n")
    async with here.session(ScriptedModel([]), settings=SETTINGS, resume=session.id) as session:
        assert encode_prefix(session.request) == before


async def test_halves_of_characters_from_a_tool_are_gone_before_they_are_kept(here: Place) -> None:
    what = "x\ud800y\udc00\n" * 20_000
    model = ScriptedModel([assistant(ToolUse("half", "Give", {})), "fine"])
    async with here.session(model, settings=GIVING, tools=[Give(what)]) as session:
        await session.ask("give")
        result = shown(session)["half"]

    assert kept(result).decode("utf-8") == "x?y?\n" * 20_000
    assert Transcript.load(read_log(session.path), lambda: 0.0).problems == []


@pytest.mark.real
@pytest.mark.parametrize("ahead", range(4))
async def test_no_character_is_cut_in_half_where_the_preview_ends(here: Place, ahead: int) -> None:
    """Three bytes each: whatever stands before them, one end of the preview falls into one."""
    command = f"printf '{'x' * ahead}'; for n in $(seq 20000); do printf 漢字; done; exit 3"
    model = ScriptedModel([bash("cjk", command), "fine"])
    async with here.session(model, settings=SETTINGS) as session:
        await session.ask("print")
        result = shown(session)["cjk"]

    assert "�" not in result.text
    assert kept(result).decode("utf-8") == f"Exit code 3\n{'x' * ahead}{'漢字' * 20_000}"
    head, tail = result.text.split("characters between …]")
    assert head.rstrip("\n[… 0123456789,").endswith(("漢", "字"))
    assert "字\n</persisted-output>" in tail, "a command that failed shows its end, too"


# --- where it is to be kept -------------------------------------------------------------------------------


class Spoilt:
    """A session whose folder for results is no folder to write to from its second turn on."""

    def __init__(self, here: Place, spoil: Callable[[Path], object]) -> None:
        self.here, self._spoil = here, spoil

    async def ask(self, *lines: Line) -> Session:
        model = ScriptedModel(["hello", *lines, "done"])
        async with self.here.session(model, settings=SETTINGS) as session:
            await session.ask("hello")
            session.folder.mkdir(parents=True, exist_ok=True)
            self.folder = session.folder / "tool-results"
            self._spoil(self.folder)
            assert (await session.ask("go on")).message.text == "done"
            assert has_paired_tools(session.view)
        return session

    @property
    def said(self) -> list[str]:
        return [event.cause for event in self.here.of(Failed)]


def a_file(folder: Path) -> None:
    folder.write_text("not a folder", encoding="utf-8")


async def test_where_nothing_can_be_written_a_long_result_is_shown_whole(here: Place) -> None:
    spoilt = Spoilt(here, a_file)
    session = await spoilt.ask(bash("long", "seq 1 20000"))

    assert shown(session)["long"].text == "\n".join(str(n) for n in range(1, 20_001))
    assert spoilt.said == [
        f"{spoilt.folder} could not be made: a part of the path is a file where a folder is needed; "
        "move that file away; until then the result is shown whole"
    ]
    assert here.of(Stored) == []


async def test_what_no_window_could_hold_is_cut_and_says_so(here: Place) -> None:
    spoilt = Spoilt(here, a_file)
    session = await spoilt.ask(bash("long", "seq 1 200000"))

    text = shown(session)["long"].text
    assert text.startswith("1\n2\n3\n")
    assert text.endswith("\n199999\n200000")
    assert len(text) < 31_000
    assert f"too long to show whole, and {spoilt.folder} could not be made: " in text
    assert spoilt.said[0].endswith("only the beginning and the end of the result are shown")


async def test_nothing_is_cleared_that_cannot_be_kept(here: Place) -> None:
    spoilt = Spoilt(here, a_file)
    counting = [bash(f"u{n}", f"seq {n} {n + 3_000}") for n in range(12)]
    session = await spoilt.ask(*counting)

    assert all(result.text.startswith(f"{n}\n") for n, result in enumerate(shown(session).values()))
    assert here.of(Cleared) == []
    assert spoilt.said
    assert all(text.startswith(f"nothing was cleared: {spoilt.folder} could") for text in spoilt.said)
    await Spoilt(here, lambda folder: None).ask(*counting)
    assert here.of(Cleared), "else it would have been"


async def test_nothing_is_written_through_a_symlink(here: Place, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    spoilt = Spoilt(here, lambda folder: folder.symlink_to(elsewhere))
    session = await spoilt.ask(bash("long", "seq 1 20000"))

    assert list(elsewhere.iterdir()) == []
    assert shown(session)["long"].text.endswith("\n20000")
    [said] = spoilt.said
    assert f"{spoilt.folder} could not be made: it is or contains a symbolic link" in said


@pytest.mark.real
def test_a_disk_that_takes_no_more_is_said_and_the_next_result_tried_again(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    worker = Path(__file__).with_name("storing.py")
    command = [sys.executable, str(worker), str(tmp_path / "project"), str(tmp_path / "home")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    failed, stored, long, short, reply = ran.stdout.splitlines()

    assert "long.txt could not be written: the file would be larger than this system" in failed
    assert stored.endswith("short.txt")
    assert long.split() == ["shown", long.split()[1], "9", "200000"]
    assert int(long.split()[1]) < 31_000
    assert short.endswith("-output>")
    assert reply == "reply done"
    [folder] = (tmp_path / "home").rglob("tool-results")
    assert [path.name for path in folder.iterdir()] == ["short.txt"], "no half of the other is left"


async def test_a_folder_that_is_deleted_is_made_again_and_what_was_shown_stays(here: Place) -> None:
    def look(request: Request) -> Message:
        return assistant(ToolUse("look", "Read", {"file_path": str(path)}))

    model = ScriptedModel([bash("one", "seq 1 20000"), "fine", look, bash("two", "seq 1 30000"), "fine"])
    async with here.session(model, settings=SETTINGS) as session:
        await session.ask("count")
        before, path = encode_prefix(session.request), pointed_to(shown(session)["one"])
        shutil.rmtree(path.parent)
        await session.ask("look at it, and count further")
        results = shown(session)

    assert encode_prefix(session.request)[: len(before)] == before
    assert results["look"].is_error
    assert str(path) in results["look"].text
    assert kept(results["two"]).endswith(b"\n30000")
    assert here.of(Failed) == []


# --- what was written down about it -----------------------------------------------------------------


def damage(path: Path, which: Callable[[Entry], bool]) -> int:
    """Overwrite the middle of the first record of this kind; returns its line."""
    lines = path.read_bytes().split(b"\n")
    entries = Transcript.load(path.read_bytes(), lambda: 0.0).entries
    at = next(n for n, entry in enumerate(entries) if which(entry))
    half = len(lines[at]) // 2
    lines[at] = lines[at][:half] + b"\xff\x00\xff" + lines[at][half + 3 :]
    path.write_bytes(b"\n".join(lines))
    return at + 1


def answers(entry: Entry) -> bool:
    return isinstance(entry.what, Message) and bool(entry.what.results)


def clears(entry: Entry) -> bool:
    return isinstance(entry.what, Results)


async def test_a_damaged_record_of_a_stored_result_still_says_where_the_result_is(here: Place) -> None:
    model = ScriptedModel([bash("one", "seq 1 20000"), "fine"])
    async with here.session(model, settings=SETTINGS) as session:
        await session.ask("count")
        path = pointed_to(shown(session)["one"])
    line = damage(session.path, answers)
    model = ScriptedModel(["still fine"])
    async with here.session(model, settings=SETTINGS, resume=session.id) as session:
        assert (await session.ask("go on")).message.text == "still fine"
        assert has_paired_tools(session.view)
        result = shown(session)["one"]

    assert result.is_error
    assert f"line {line} of the transcript is damaged" in result.text
    assert str(path) in result.text
    assert path.read_bytes().endswith(b"\n20000")
    told = [notice.text for notice in here.of(Notice)]
    assert f"{session.path.name}:{line}: this line cannot be read" in told[0]
    assert "made whole again" in told[1]
    assert len(told) == 2


async def test_a_damaged_record_of_a_clearing_shows_again_what_was_cleared(here: Place) -> None:
    counting = [bash(f"u{n}", f"seq {n} {n + 3_000}") for n in range(12)]
    async with here.session(ScriptedModel([*counting, "fine"]), settings=SETTINGS) as session:
        await session.ask("count")
        first, *later = [event.use_ids for event in here.of(Cleared)]
    line = damage(session.path, clears)
    model = ScriptedModel(["still fine"])
    async with here.session(model, settings=SETTINGS, resume=session.id) as session:
        results = shown(session)
        assert (await session.ask("go on")).message.text == "still fine"

    for id in first:
        n = int(id.removeprefix("u"))
        assert results[id].text == "\n".join(str(i) for i in range(n, n + 3_001))
    assert later
    assert all(results[id].text.startswith(CLEARED) for ids in later for id in ids)
    [told] = [notice.text for notice in here.of(Notice)]
    assert f"{session.path.name}:{line}: this line cannot be read" in told
    assert "shown again" in told
