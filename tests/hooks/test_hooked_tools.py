"""Hooks around the tools: before a call they may refuse or change it, after it they may add."""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sevenfold.core.clock import SystemClock
from sevenfold.core.events import Denied, Event, HookRan
from sevenfold.core.messages import Image, Text, ToolResult, ToolUse
from sevenfold.hooks.events import HookCommand, HookEvents, HookMatcher
from sevenfold.hooks.hooks import HookedTools, Hooks
from sevenfold.hooks.tool_responses import MOST_TOLD
from sevenfold.tools.toolbox import Toolbox, make_standard_tools
from sevenfold.tools.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.real]


@dataclass
class Recorder:
    """Tools that do nothing but remember what they were asked."""

    result: ToolResult = field(default_factory=lambda: ToolResult("t1", "3 files"))
    asked: list[ToolUse] = field(default_factory=list)

    def safe(self, use: ToolUse) -> bool:
        return use.name == "Read"

    async def call(self, use: ToolUse) -> ToolResult:
        self.asked.append(use)
        return self.result


@dataclass
class Scene:
    folder: Path
    inner: Recorder = field(default_factory=Recorder)
    events: list[Event] = field(default_factory=list)
    approved: list[str] = field(default_factory=list)
    confirmed: list[tuple[str, str]] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)

    def tools(
        self, before: str = "", after: str = "", failed: str = "", *, asks: bool = True
    ) -> HookedTools:
        moments = HookEvents(
            pre_tool_use=_on(before), post_tool_use=_on(after), post_tool_use_failure=_on(failed)
        )
        hooks = Hooks(
            moments,
            session_id="s",
            transcript_path=self.folder / "s.jsonl",
            project=self.folder,
            cwd_of=lambda: self.folder,
            environment={"PATH": os.environ["PATH"]},
            emit=self.events.append,
        )
        confirm = (lambda use, why: self.confirmed.append((use, why))) if asks else None
        return HookedTools(self.inner, hooks, self.approved.append, confirm, self.stopped.append)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def _on(command: str) -> tuple[HookMatcher, ...]:
    return (HookMatcher(hooks=(HookCommand(command=command),)),) if command else ()


def says(event: str = "PreToolUse", top: dict[str, Any] | None = None, **more: Any) -> str:
    answer = {**(top or {}), "hookSpecificOutput": {"hookEventName": event, **more}}
    return f"printf %s {shlex.quote(json.dumps(answer))}"


USE = ToolUse("t1", "Bash", {"command": "ls"})


async def test_without_hooks_the_tools_are_just_the_tools(scene: Scene) -> None:
    tools = scene.tools()

    assert await tools.call(USE) is scene.inner.result
    assert scene.inner.asked == [USE]
    assert (tools.safe(USE), tools.safe(ToolUse("t2", "Read", {}))) == (False, True)
    assert scene.events == []


@pytest.mark.parametrize(
    "refuses",
    [
        "echo not today >&2; exit 2",
        says(permissionDecision="deny", permissionDecisionReason="not today"),
        says(top={"decision": "block", "reason": "not today"}),
    ],
)
async def test_a_refused_call_does_not_run_and_the_model_reads_why(scene: Scene, refuses: str) -> None:
    result = await scene.tools(refuses, "touch after").call(USE)

    assert result == ToolResult("t1", "A hook refused this call: not today", True)
    assert scene.inner.asked == []
    assert [e for e in scene.events if not isinstance(e, HookRan)] == [Denied(USE, "not today")]
    assert not (scene.folder / "after").exists()


async def test_an_allowed_call_is_approved_by_its_id(scene: Scene) -> None:
    await scene.tools(says(permissionDecision="allow")).call(USE)

    assert (scene.approved, scene.inner.asked) == (["t1"], [USE])


async def test_no_word_from_a_hook_is_no_approval(scene: Scene) -> None:
    await scene.tools("true").call(USE)

    assert (scene.approved, scene.confirmed, scene.inner.asked) == ([], [], [USE])


async def test_a_call_that_must_be_asked_about_is_passed_on_as_such(scene: Scene) -> None:
    asks = says(permissionDecision="ask", permissionDecisionReason="it costs money")

    await scene.tools(asks).call(USE)

    assert (scene.confirmed, scene.approved) == ([("t1", "it costs money")], [])


async def test_a_call_that_must_be_asked_about_is_refused_where_nobody_can_be_asked(scene: Scene) -> None:
    result = await scene.tools(says(permissionDecision="ask"), asks=False).call(USE)

    assert result.is_error
    assert "nobody can be asked here" in result.text
    assert scene.inner.asked == []


async def test_a_changed_input_is_what_runs_and_what_the_next_hook_sees(scene: Scene) -> None:
    changed = {"command": "ls -l"}

    await scene.tools(says(updatedInput=changed), "cat > told").call(USE)

    told = json.loads((scene.folder / "told").read_text(encoding="utf-8"))
    assert scene.inner.asked == [ToolUse("t1", "Bash", changed)]
    assert told["tool_input"] == changed
    assert told["tool_use_id"] == "t1"
    assert told["tool_response"] == {
        "stdout": "3 files",
        "stderr": "",
        "interrupted": False,
        "isImage": False,
    }


async def test_what_a_hook_adds_after_a_call_stands_below_the_result(scene: Scene) -> None:
    after = says("PostToolUse", {"decision": "block", "reason": "lint fails"}, additionalContext="see log")

    result = await scene.tools(says(additionalContext="careful"), after).call(USE)

    assert result.text == (
        "3 files\n\n[said by a hook] careful\n\n[said by a hook] lint fails\n\n[said by a hook] see log"
    )
    assert not result.is_error


async def test_exit_2_after_a_call_tells_the_model(scene: Scene) -> None:
    result = await scene.tools(after="echo format it >&2; exit 2").call(USE)

    assert result.text == "3 files\n\n[said by a hook] format it"


async def test_added_words_go_beside_an_image(scene: Scene) -> None:
    image = Image({"type": "base64"})
    scene.inner.result = ToolResult("t1", (image,))

    result = await scene.tools(after="echo blurred >&2; exit 2").call(USE)

    assert result.content == (image, Text("[said by a hook] blurred"))


async def test_a_call_that_failed_is_not_followed_by_hooks_for_success(scene: Scene) -> None:
    scene.inner.result = ToolResult("t1", "no such file", True)

    result = await scene.tools(after="touch after").call(USE)

    assert result == scene.inner.result
    assert not (scene.folder / "after").exists()


async def test_a_call_that_failed_is_told_with_its_error_and_the_model_reads_what_is_said(
    scene: Scene,
) -> None:
    scene.inner.result = ToolResult("t1", "no such file", True)
    failed = says("PostToolUseFailure", additionalContext="look in src")

    result = await scene.tools(failed=f"cat > told; {failed}").call(USE)

    told = json.loads((scene.folder / "told").read_text(encoding="utf-8"))
    assert (told["hook_event_name"], told["tool_name"], told["tool_use_id"]) == (
        "PostToolUseFailure",
        "Bash",
        "t1",
    )
    assert (told["error"], told["is_interrupt"]) == ("no such file", False)
    assert isinstance(told["duration_ms"], int)
    assert "tool_response" not in told
    assert (result.text, result.is_error) == ("no such file\n\n[said by a hook] look in src", True)


async def test_a_call_that_was_refused_has_neither_worked_nor_failed(scene: Scene) -> None:
    async def closed(use: ToolUse) -> str:
        return "the person said no to it"

    tools = scene.tools(after="touch after", failed="touch failed")
    toolbox = Toolbox(make_standard_tools(workspace_in(scene.folder)), closed, scene.events.append)
    tools.inner, tools.take_seconds = toolbox, toolbox.take_seconds

    result = await tools.call(USE)

    assert result.is_error
    assert not (scene.folder / "after").exists()
    assert not (scene.folder / "failed").exists()


def workspace_in(folder: Path) -> Workspace:
    return Workspace(folder, folder, {"PATH": os.environ["PATH"]}, folder / "shells", SystemClock())


async def test_file_tools_answer_in_the_shape_that_scripts_read(scene: Scene) -> None:
    async def open_gate(use: ToolUse) -> None:
        return None

    tools = scene.tools(after="cat > told")
    toolbox = Toolbox(make_standard_tools(workspace_in(scene.folder)), open_gate, scene.events.append)
    tools.inner, tools.take_seconds = toolbox, toolbox.take_seconds

    async def tell_response(use: ToolUse) -> Any:
        assert not (await tools.call(use)).is_error
        return json.loads((scene.folder / "told").read_text(encoding="utf-8"))["tool_response"]

    file = scene.folder / "a.txt"
    place = str(file)
    created = await tell_response(ToolUse("t1", "Write", {"file_path": place, "content": "one\n"}))
    assert created == {
        "type": "create",
        "filePath": place,
        "content": "one\n",
        "structuredPatch": [],
        "originalFile": None,
        "userModified": False,
    }

    file.write_text("one\ntwo\nthree\n", "utf-8")
    read = await tell_response(ToolUse("t2", "Read", {"file_path": "a.txt", "offset": 2, "limit": 1}))
    about = {"filePath": place, "content": "two", "numLines": 1, "startLine": 2, "totalLines": 3}
    assert read == {"type": "text", "file": about}

    edit = {"old_string": "two", "new_string": "TWO"}
    edited = await tell_response(ToolUse("t3", "Edit", {"file_path": place, **edit}))
    lines = [" one", "-two", "+TWO", " three"]
    patch = [{"oldStart": 1, "oldLines": 3, "newStart": 1, "newLines": 3, "lines": lines}]
    assert edited == {
        "filePath": place,
        "oldString": "two",
        "newString": "TWO",
        "originalFile": "one\ntwo\nthree\n",
        "structuredPatch": patch,
        "userModified": False,
        "replaceAll": False,
    }


async def test_the_answer_of_a_servers_tool_is_a_list_of_texts(scene: Scene) -> None:
    scene.inner.result = ToolResult("t1", (Text("a"), Image({"type": "base64"}), Text("b")))

    await scene.tools(after="cat > told").call(ToolUse("t1", "mcp__x__say", {}))

    told = json.loads((scene.folder / "told").read_text(encoding="utf-8"))
    assert told["tool_response"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


@pytest.mark.parametrize("part", ["x", "ü", "漢", "😀", "a\r\n"])
async def test_of_a_long_answer_a_hook_gets_both_ends_and_how_much_is_between(
    scene: Scene, part: str
) -> None:
    long = "begin\n" + part * (4_000_000 // len(part)) + "\nend"
    scene.inner.result = ToolResult("t1", long)

    result = await scene.tools(after="cat > told").call(USE)

    payload = (scene.folder / "told").read_bytes()
    told = json.loads(payload)["tool_response"]
    head, note, tail = re.split(r"\n\[… ([\d,]+) characters left out …\]\n", told["stdout"])
    between = int(note.replace(",", ""))
    assert MOST_TOLD - 100 < len(told["stdout"]) <= MOST_TOLD
    assert (long[: len(head)], long[len(head) + between :]) == (head, tail)
    assert len(payload) < 3_000_000
    assert result is scene.inner.result, "the model's own copy is whole"


async def test_an_answer_that_just_fits_is_told_as_it_is(scene: Scene) -> None:
    whole = "é" * MOST_TOLD
    scene.inner.result = ToolResult("t1", (Text(whole[:10]), Text(whole[10:])))

    await scene.tools(after="cat > told").call(ToolUse("t1", "Grep", {}))

    told = json.loads((scene.folder / "told").read_bytes())
    assert told["tool_response"] == {"success": True, "content": whole}


async def test_an_input_is_never_cut_because_what_is_not_seen_cannot_be_refused(scene: Scene) -> None:
    use = ToolUse("t1", "Write", {"file_path": "/a", "content": "x" * 300_000 + "SECRET"})
    refuses = "grep -q SECRET && { echo there is a secret >&2; exit 2; }"

    refused = await scene.tools(refuses).call(use)
    await scene.tools(after="cat > told").call(use)

    told = json.loads((scene.folder / "told").read_bytes())
    assert refused.text == "A hook refused this call: there is a secret"
    assert told["tool_input"] == use.input


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_hook_can_end_everything(scene: Scene, when: str) -> None:
    ends = f"printf %s {shlex.quote(json.dumps({'continue': False, 'stopReason': 'enough'}))}"

    tools = scene.tools(before=ends) if when == "before" else scene.tools(after=ends)
    result = await tools.call(USE)

    assert scene.stopped == ["enough"]
    assert result.is_error is (when == "before")
    assert len(scene.inner.asked) == (0 if when == "before" else 1)
