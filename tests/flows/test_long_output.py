"""A command that prints a megabyte: with layer 1 all of it is kept, without it only both ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from flows.test_session import Place

from sevenfold.core.messages import Message, ToolResult, ToolUse, assistant
from sevenfold.core.request import Request
from sevenfold.layers.l1_tool_results.preview import parse_envelope
from sevenfold.session.session import Session
from sevenfold.testing import ScriptedModel
from sevenfold.testing.doubles import Line
from sevenfold.tools.processes import MOST_KEPT

pytestmark = [pytest.mark.anyio, pytest.mark.real]

COMMAND = "seq -f '%09.0f' 1 100000"
PRINTED = "\n".join(f"{n:09}" for n in range(1, 100_001))
BASH = assistant(ToolUse("toolu_1", "Bash", {"command": COMMAND}))
ALLOWED = {"permissions": {"allow": ["Bash(seq:*)"]}}
OFF = ALLOWED | {"flags": {"tool_results": False}}


@pytest.fixture
def here(tmp_path: Path) -> Place:
    return Place(tmp_path)


def shown(session: Session) -> ToolResult:
    [*_, result] = [result for p in session.view for result in p.message.results]
    return result


def stored(session: Session) -> list[Path]:
    return sorted((session.folder / "tool-results").glob("*"))


async def test_with_layer_1_a_megabyte_of_output_is_stored_whole(here: Place) -> None:
    async with here.session(ScriptedModel([BASH, "ok"]), settings=ALLOWED) as session:
        await session.ask("count")

        [file] = stored(session)
        assert file.read_text(encoding="utf-8") == PRINTED
        assert len(shown(session).text) < 5_000
        assert str(file) in shown(session).text


async def test_without_layer_1_the_middle_is_left_out(here: Place) -> None:
    async with here.session(ScriptedModel([BASH, "ok"]), settings=OFF) as session:
        await session.ask("count")

        text = shown(session).text
        assert MOST_KEPT < len(text) < MOST_KEPT + 100
        assert f"[… {len(PRINTED) + 1 - MOST_KEPT:,} bytes left out …]" in text
        assert stored(session) == []


async def test_a_resumed_session_stores_what_comes_after_the_switch_was_turned(here: Place) -> None:
    """What was shown before stays as it was."""
    async with here.session(ScriptedModel([BASH, "ok"]), settings=OFF) as session:
        await session.ask("count")
        id, before = session.id, shown(session).text
    again = assistant(ToolUse("toolu_2", "Bash", BASH.tool_uses[0].input))
    async with here.session(ScriptedModel([again, "ok"]), settings=ALLOWED, resume=id) as session:
        await session.ask("count again")

        texts = [result.text for placed in session.view for result in placed.message.results]
        assert texts[0] == before
        assert parse_envelope(texts[1])
        assert len(stored(session)) == 1


async def test_grep_finds_the_last_line_of_a_stored_result_of_many_megabytes(here: Place) -> None:
    command = "seq -f 'line %09.0f of many' 1 400000"

    def grep(request: Request) -> Message:
        [result] = request.view[len(request.view) - 1].message.results
        pointer = parse_envelope(result.text)
        assert pointer
        args = {"pattern": "0400000 of", "path": pointer.path, "output_mode": "content"}
        return assistant(ToolUse("toolu_2", "Grep", args))

    script: list[Line] = [assistant(ToolUse("toolu_1", "Bash", {"command": command})), grep, "ok"]
    async with here.session(ScriptedModel(script), settings=ALLOWED) as session:
        await session.ask("count, and look at the end")

        [file] = stored(session)
        assert file.stat().st_size > 9_000_000
        assert shown(session).text == f"{file}\n400000: line 000400000 of many"
