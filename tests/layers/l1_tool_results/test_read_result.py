"""ReadResult: whatever was stored can be read again, in bounded pieces, and nothing else can."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.core.messages import Text, ToolResult, ToolUse
from sevenfold.core.protocols import ToolFailed
from sevenfold.layers.l1_tool_results.preview import MOST, LinePattern, format_matches, format_page
from sevenfold.layers.l1_tool_results.read_result import ReadResultTool
from sevenfold.storage.results import ResultStore
from sevenfold.tools.toolbox import Toolbox

pytestmark = pytest.mark.anyio
Ask: TypeAlias = Callable[..., Awaitable[ToolResult]]


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(lambda: tmp_path / "tool-results")


@pytest.fixture
def ask(store: ResultStore) -> Ask:
    """The tool behind the door that every call goes through."""

    async def nobody_minds(use: ToolUse) -> str | None:
        return None

    toolbox = Toolbox([ReadResultTool(store)], nobody_minds, print)

    async def call(**args: Any) -> ToolResult:
        return await toolbox.call(ToolUse("r", "ReadResult", args))

    return call


def numbered(n: int) -> str:
    return "".join(f"line {i}\n" for i in range(1, n + 1))


async def test_a_stored_result_is_read_by_path_by_name_or_by_id(store: ResultStore, ask: Ask) -> None:
    path = store.keep("../odd id", "one\ntwo\r\nthree")
    expected = "1\tone\n2\ttwo\n3\tthree"
    for args in ({"path": str(path)}, {"path": path.name}, {"id": "../odd id"}):
        answer = await ask(**args)
        assert (answer.text, answer.is_error) == (expected, False)


async def test_some_lines_say_how_many_there_are_and_how_to_go_on(store: ResultStore, ask: Ask) -> None:
    store.keep("a", numbered(100))
    answer = await ask(id="a", offset=10, limit=2)
    assert answer.text == "10\tline 10\n11\tline 11\n[lines 10-11 of 100; go on with offset=12]"
    assert (await ask(id="a", offset=99)).text == "99\tline 99\n100\tline 100"


async def test_an_answer_is_bounded_and_the_pieces_make_up_the_whole(store: ResultStore, ask: Ask) -> None:
    text = numbered(10_000)
    store.keep("a", text)
    lines, args = [], {"id": "a"}
    while True:
        answer = (await ask(**args)).text
        assert len(answer) <= MOST
        lines += re.findall(r"^\d+\t(.*)$", answer, re.MULTILINE)
        if not (more := re.search(r"offset=(\d+)\]", answer)):
            break
        args = {"id": "a", "offset": int(more[1])}  # type: ignore[dict-item]
    assert "\n".join(lines) + "\n" == text


async def test_one_long_line_is_read_in_pieces(store: ResultStore, ask: Ask) -> None:
    line = "".join(chr(0x4E00 + n % 5_000) for n in range(100_000))
    store.keep("a", f"short\n{line}\nend")
    assert (await ask(id="a")).text == "1\tshort\n[there is no room for more; go on with offset=2]"
    pieces, character = "", 1
    while True:
        answer = (await ask(id="a", offset=2, character=character)).text
        assert len(answer) <= MOST
        label, _, shown = answer.partition("\t")
        assert label in ("2", f"2:{character}")
        pieces += shown.partition("\n")[0]
        if not (more := re.search(r"offset=2, character=(\d+)\]", answer)):
            break
        character = int(more[1])
    assert pieces == line
    assert answer.endswith("\n3\tend")


async def test_blocks_are_shown_as_their_text(store: ResultStore, ask: Ask) -> None:
    store.keep("a", (Text("one\ntwo"), Text("three", {"citations": []})))
    assert (await ask(id="a")).text == "1\tone\n2\ttwo\n3\tthree"
    assert (await ask(id="a", pattern="thr")).text == "3\tthree"


# --- looking for something ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "numbers"),
    [
        ("error", [2, 4]),
        ("ERROR", [2, 4]),
        ("error|warning", [2, 3, 4]),
        ("error.*disk", [4]),
        ("disk.*error", []),
        (".*error.*", [2, 4]),
        (r"f\(x\)", [5]),
        ("f(x)", [5]),
        (r"a\|b", [6]),
        ("(", [5]),
        ("[", []),
        ("\u00c9T\u00c9", [7]),
    ],
)
async def test_a_pattern_is_plain_text_with_alternatives_and_gaps(
    store: ResultStore, ask: Ask, pattern: str, numbers: list[int]
) -> None:
    store.keep("a", "ok\nan Error\nWarning\nerror: disk full\nf(x) = 1\na|b\nété\n")
    answer = await ask(id="a", pattern=pattern)
    assert [int(n) for n in re.findall(r"^(\d+)\t", answer.text, re.MULTILINE)] == numbers
    assert not answer.is_error
    if not numbers:
        assert answer.text.startswith("No line holds that")


async def test_many_matches_are_bounded_and_can_be_gone_through(store: ResultStore, ask: Ask) -> None:
    store.keep("a", numbered(1_000))
    seen, offset = [], 1
    while True:
        answer = (await ask(id="a", pattern="line.*7", offset=offset, limit=50)).text
        seen += [int(n) for n in re.findall(r"^(\d+)\t", answer, re.MULTILINE)]
        if not (more := re.search(r"go on with offset=(\d+)\]", answer)):
            break
        offset = int(more[1])
    assert seen == [n for n in range(1, 1_001) if "7" in str(n)]


async def test_of_a_long_line_the_places_that_match_are_shown(store: ResultStore, ask: Ask) -> None:
    line = "x" * 50_000 + "needle one" + "y" * 50_000 + "needle two"
    store.keep("a", f"first\n{line}\nneedle three")
    answer = (await ask(id="a", pattern="needle")).text
    assert len(answer) < 2_000
    label = re.match(r"2:(\d+)\t(x*)needle one", answer)
    assert label is not None
    assert int(label[1]) + len(label[2]) == 50_001
    assert "needle two" in answer
    assert "\n3\tneedle three" in answer
    first_only = (await ask(id="a", pattern="needle", limit=1)).text
    go_on = re.search(r"offset=(\d+), character=(\d+)\]", first_only)
    assert go_on is not None
    rest = await ask(id="a", pattern="needle", offset=int(go_on[1]), character=int(go_on[2]))
    assert "needle one" not in rest.text
    assert "needle two" in rest.text


def test_no_pattern_takes_longer_than_it_may() -> None:
    """The search gives up when its time is over, and says where it was."""
    answer = format_matches("a\n" * 1_000, LinePattern("a.*b"), 1, 1, 10, seconds=-1.0)
    assert answer.startswith("[stopped after")
    assert "offset=" in answer


def test_what_makes_other_expressions_explode_is_plain_text_here() -> None:
    text = "a" * 200_000
    for pattern in ("(a+)+$", "a.*" * 300 + "b", "|".join("a" * n + "b" for n in range(1, 30))):
        assert format_matches(text, LinePattern(pattern), 1, 1, 10).startswith("No line holds that")


# --- what is wrong ------------------------------------------------------------------------------------


async def test_nothing_outside_the_store_is_read(store: ResultStore, ask: Ask, tmp_path: Path) -> None:
    store.keep("a", "text")
    secret = tmp_path / "secret.txt"
    secret.write_bytes(b"secret")
    (store.folder / "link.txt").symlink_to(secret)
    for path in (
        str(secret),
        "../secret.txt",
        str(store.folder / "link.txt"),
        "link.txt",
        str(store.folder),
        "missing.txt",
        "nul\0.txt",
        "/dev/zero",
        "x" * 10_000,
    ):
        answer = await ask(path=path)
        assert answer.is_error
        assert "is no stored result" in answer.text
        assert "secret\n" not in answer.text
        assert len(answer.text) < 500
    assert (await ask(id="b")).text.startswith("no result of the call 'b' is stored")


async def test_a_folder_that_became_a_link_is_not_read_through(
    store: ResultStore, ask: Ask, tmp_path: Path
) -> None:
    path = store.keep("a", "text")
    store.folder.rename(tmp_path / "moved")
    store.folder.symlink_to(tmp_path / "moved")
    assert (await ask(path=str(path))).is_error
    assert (await ask(id="a")).is_error


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({}, "say which result"),
        ({"path": " ", "id": ""}, "say which result"),
        ({"id": "a", "offset": 0}, "offset takes an integer of at least 1"),
        ({"id": "a", "offset": 4}, "has 3 lines; offset 4 is past its end"),
        ({"id": "a", "offset": 99_999}, "has 3 lines; offset 99,999 is past its end"),
        ({"id": "a", "character": 6}, "line 1 has 4 characters; character 6 is past its end"),
        ({"id": "a", "pattern": ""}, "the pattern is empty"),
        ({"id": "a", "pattern": ".*"}, "the pattern is empty"),
        ({"id": "a", "pattern": "x" * 1_001}, "longer than 1,000"),
        ({"id": "a", "pattern": "a\nb"}, "leave out the line break"),
        ({"id": "a", "lines": 3}, "no field lines"),
    ],
)
async def test_every_mistake_is_told_with_what_to_do(
    store: ResultStore, ask: Ask, args: dict[str, Any], said: str
) -> None:
    store.keep("a", "line\nline\nline\n")
    answer = await ask(**args)
    assert answer.is_error
    assert said in answer.text


async def test_a_damaged_file_is_told_and_not_shown(store: ResultStore, ask: Ask) -> None:
    path = store.keep("a", (Text("text"),))
    path.write_bytes(b'[{"type":"te')
    answer = await ask(id="a")
    assert answer.is_error
    assert "damaged" in answer.text
    path.write_bytes(b"")
    assert (await ask(id="a")).is_error
    text = store.keep("b", "text")
    text.write_bytes(b"not \xff utf-8\0")
    assert (await ask(id="b")).text == "1\tnot \ufffd utf-8\N{SYMBOL FOR NULL}"
    text.write_bytes(b"")
    assert (await ask(id="b")).text == "[the result is empty]"


@given(
    st.lists(st.text(st.sampled_from("ab é行\r"), max_size=40), min_size=1, max_size=40).map("\n".join),
    st.integers(1, 45),
    st.integers(1, 45),
)
def test_a_page_shows_exactly_the_lines_asked_for(text: str, first: int, count: int) -> None:
    lines = text.split("\n")
    if lines[-1] == "" and len(lines) > 1:
        lines.pop()  # what ends with a newline has no line after it
    if first > len(lines):
        with pytest.raises(ToolFailed, match=f"has {len(lines)} lines"):
            format_page(text, first, count)
        return
    shown = format_page(text, first, count).split("\n")
    wanted = lines[first - 1 : first - 1 + count]
    assert shown[: len(wanted)] == [
        f"{first + n}\t{line.removesuffix(chr(13))}" for n, line in enumerate(wanted)
    ]
    more = first - 1 + count < len(lines)
    assert len(shown) == len(wanted) + more


@pytest.mark.parametrize(("window", "most"), [(8_000, 2_000), (32_000, 4_000), (128_000, 16_000)])
def test_in_a_small_window_an_answer_is_as_much_shorter(store: ResultStore, window: int, most: int) -> None:
    store.keep("t1", "a line of some length, so that few of them are many characters\n" * 2_000)
    tool = ReadResultTool(store, window)

    for asked in ({}, {"pattern": "line"}):
        answer = tool.read({"id": "t1", **asked})
        assert min(most, 14_000) * 0.8 < len(answer) <= most
        assert "go on with offset=" in answer
