"""The one door to the tools: every call is checked, gated and answered."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tools.conftest import Run, names

from sevenfold.core.events import Denied, Event
from sevenfold.core.messages import Block, Image, Json, Text, ToolResult, ToolUse
from sevenfold.core.protocols import ToolFailed
from sevenfold.testing import FakeClock
from sevenfold.tools.toolbox import Toolbox, make_standard_tools
from sevenfold.tools.workspace import Workspace

pytestmark = pytest.mark.anyio


class Echo:
    """Says what it is told to say, or raises it."""

    name = "Echo"

    def __init__(self, says: str | tuple[Block, ...] | Exception) -> None:
        self.schema: Json = {"name": "Echo", "input_schema": {"type": "object"}}
        self._says = says

    def safe(self, args: Json) -> bool:
        return False

    async def run(self, args: Json, use_id: str) -> str | tuple[Block, ...]:
        if isinstance(self._says, Exception):
            raise self._says
        return self._says


async def open_gate(use: ToolUse) -> str | None:
    return None


async def answer(says: str | tuple[Block, ...] | Exception) -> ToolResult:
    return await Toolbox([Echo(says)], open_gate, print).call(ToolUse("u", "Echo", {}))


# --- what the model sees of the tools -----------------------------------------------------------------


def schemas(folder: Path) -> bytes:
    made = Workspace(folder, folder, {}, folder, FakeClock())
    toolbox = Toolbox(make_standard_tools(made), open_gate, print)
    return msgspec.json.encode(toolbox.schemas)


def test_all_schemas_together_stay_within_two_thousand_tokens(tmp_path: Path) -> None:
    assert len(schemas(tmp_path)) <= 4_000


def test_the_schemas_never_change(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()

    assert schemas(tmp_path) == schemas(tmp_path / "other")


async def test_the_tools_and_their_fields_are_those_that_models_know(toolbox: Toolbox) -> None:
    fields = {schema["name"]: list(schema["input_schema"]["properties"]) for schema in toolbox.schemas}

    assert fields == {
        "Read": ["file_path", "offset", "limit"],
        "Write": ["file_path", "content"],
        "Edit": ["file_path", "old_string", "new_string", "replace_all"],
        "Bash": ["command", "timeout", "run_in_background", "description"],
        "Grep": ["pattern", "path", "glob", "output_mode", "ignore_case", "context", "limit", "multiline"],
        "Glob": ["pattern", "path"],
    }


# --- input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        ("Read", {}, "file_path is missing; it takes a string"),
        ("Read", {"file_path": 5}, "file_path takes a string, not 5"),
        ("Read", {"file_path": None}, "file_path takes a string, not None"),
        ("Read", {"offset": "3"}, "offset takes an integer of at least 1, not '3'"),
        ("Read", {"offset": 0}, "offset takes an integer of at least 1, not 0"),
        ("Read", {"limit": True}, "limit takes an integer of at least 1, not True"),
        ("Read", {"limit": 2.0}, "limit takes an integer of at least 1, not 2.0"),
        ("Edit", {"old_string": "b"}, "new_string is missing; it takes a string"),
        ("Bash", {"command": ["ls"]}, "command takes a string, not ['ls']"),
        ("Bash", {"run_in_background": "yes"}, "run_in_background takes a boolean, not 'yes'"),
        ("Grep", {"output_mode": "all"}, "output_mode takes one of content, files_with_matches, "),
        ("Write", {"content": {"x": "y" * 99}}, "content takes a string, not {'x': '"),
    ],
)
async def test_wrong_input_is_refused_by_field(
    toolbox: Toolbox, name: str, args: dict[str, Any], said: str
) -> None:
    fine = {"Bash": {"command": "x"}, "Grep": {"pattern": "x"}}.get(name, {"file_path": "x"})
    use = ToolUse("u", name, fine | args if args else {})

    result = await toolbox.call(use)

    assert result.is_error
    assert result.text.startswith(f"{name} was not run: the field {said}")
    assert len(result.text) < 200
    assert toolbox.safe(use)


async def test_a_field_that_is_not_there_brings_those_that_are(run: Run) -> None:
    result = await run("Read", file_path="a", pages=1)

    assert result.text == (
        "Read was not run: there is no field pages; the fields are file_path, offset, limit"
    )


async def test_an_unknown_tool_brings_the_names_of_those_there_are(run: Run) -> None:
    result = await run("WebSearch", query="x")

    assert result.is_error
    assert result.text == ("there is no tool WebSearch; the tools are: Read, Write, Edit, Bash, Grep, Glob")


async def test_a_schema_that_does_not_forbid_other_fields_allows_them() -> None:
    toolbox = Toolbox([Echo("ok")], open_gate, print)

    assert (await toolbox.call(ToolUse("u", "Echo", {"any": 1}))).text == "ok"


async def test_reading_tools_run_beside_others_and_writing_ones_do_not(toolbox: Toolbox) -> None:
    def safe(name: str, **args: str) -> bool:
        return toolbox.safe(ToolUse("u", name, dict(args)))

    assert safe("Read", file_path="a")
    assert safe("Grep", pattern="a")
    assert safe("Glob", pattern="a")
    assert not safe("Write", file_path="a", content="b")
    assert not safe("Edit", file_path="a", old_string="b", new_string="c")


# --- the gate -----------------------------------------------------------------------------------------


async def test_the_gate_is_asked_with_clean_input_and_its_no_is_final(
    workspace: Workspace, project: Path, events: list[Event]
) -> None:
    asked: list[ToolUse] = []

    async def closed(use: ToolUse) -> str | None:
        asked.append(use)
        return "not today"

    toolbox = Toolbox(make_standard_tools(workspace), closed, events.append)
    result = await toolbox.call(ToolUse("u", "Write", {"file_path": "a\ud800", "content": "x"}))

    clean = ToolUse("u", "Write", {"file_path": "a?", "content": "x"})
    assert result == ToolResult("u", "Write was not run: not today", True)
    assert asked == [clean]
    assert events == [Denied(clean, "not today")]
    assert names(project) == []


# --- answers ------------------------------------------------------------------------------------------


async def test_a_tool_that_failed_is_an_error_with_its_words() -> None:
    assert await answer(ToolFailed("no such thing")) == ToolResult("u", "no such thing", True)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "permission denied: /x"),
        (OSError(errno.ENOSPC, "No space left on device"), "no space left on device"),
        (OSError("odd"), "odd"),
        (OSError(), "oserror"),
    ],
)
async def test_the_systems_refusal_becomes_one_sentence(error: OSError, said: str) -> None:
    assert await answer(error) == ToolResult("u", f"Echo did not work: {said}", True)


async def test_a_bug_is_not_taken_for_a_failure() -> None:
    with pytest.raises(ZeroDivisionError):
        await answer(ZeroDivisionError())


async def test_answers_hold_only_what_a_request_can_carry() -> None:
    image = Image({"type": "base64"})

    assert (await answer("a\0b\ud83d")).content == "a␀b?"
    assert (await answer((Text("\0"), image))).content == (Text("␀"), image)
    assert (await answer(ToolFailed("\udcff"))).content == "?"
