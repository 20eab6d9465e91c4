"""User hooks are real commands here: what they are told, and what becomes of what they say."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from sevenfold.core.events import Event, HookRan, Notice
from sevenfold.hooks.events import HookCommand, HookEvents, HookMatcher
from sevenfold.hooks.hooks import MOST_OUTPUT, HookOutcome, Hooks

pytestmark = [pytest.mark.anyio, pytest.mark.real]

BASH: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "t1"}


class Scene:
    """A project folder in which hooks run, and everything they caused."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self.environment = {"PATH": os.environ["PATH"], "COLOUR": "blue"}

    def hooks(self, **events: tuple[HookMatcher, ...]) -> Hooks:
        return Hooks(
            HookEvents(**events),
            session_id="s1",
            transcript_path=self.folder / "s1.jsonl",
            project=self.folder,
            cwd_of=lambda: self.folder,
            environment=self.environment,
            emit=self.events.append,
            mode_of=lambda: "plan",
        )

    def script(self, body: str) -> str:
        """A command that runs this Python text."""
        path = self.folder / f"hook-{len(list(self.folder.iterdir()))}.py"
        path.write_text(body, encoding="utf-8")
        return shlex.join([sys.executable, str(path)])

    @property
    def outcomes(self) -> list[str]:
        return [event.outcome for event in self.events if isinstance(event, HookRan)]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def on(*commands: str, matcher: str = "", timeout: float = 60.0) -> tuple[HookMatcher, ...]:
    hooks = tuple(HookCommand(command=command, timeout=timeout) for command in commands)
    return (HookMatcher(matcher=matcher, hooks=hooks),)


def says(**fields: Any) -> str:
    return f"printf %s {shlex.quote(json.dumps(fields))}"


# --- what a hook is told --------------------------------------------------------------------------------


async def test_a_hook_gets_the_event_as_json_and_the_project_in_its_environment(scene: Scene) -> None:
    hooks = scene.hooks(
        pre_tool_use=on('cat > told; echo "$CLAUDE_PROJECT_DIR|$SEVENFOLD_PROJECT_DIR|$COLOUR|$HOME" > env')
    )

    await hooks.run("PreToolUse", BASH)

    assert json.loads((scene.folder / "told").read_text(encoding="utf-8")) == {
        "session_id": "s1",
        "transcript_path": str(scene.folder / "s1.jsonl"),
        "cwd": str(scene.folder),
        "permission_mode": "plan",
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "ls"},
        "tool_use_id": "t1",
    }
    told = (scene.folder / "env").read_text(encoding="utf-8").strip()
    assert told == f"{scene.folder}|{scene.folder}|blue|"


async def test_without_hooks_nothing_happens_at_once(scene: Scene) -> None:
    outcome = await scene.hooks().run("PreToolUse", BASH)

    assert outcome == HookOutcome()
    assert scene.events == []


@pytest.mark.parametrize(
    ("matcher", "name", "runs"),
    [
        ("", "Bash", True),
        ("*", "Bash", True),
        ("Bash", "Bash", True),
        ("Edit|Write", "Write", True),
        ("mcp__.*", "mcp__memory__read", True),
        ("^mcp__", "mcp__memory__read", True),
        ("as.", "Bash", True),
        ("Edit, Bash", "Bash", True),
        ("Task", "Agent", True),
        ("Bash", "BashOutput", False),
        ("bash", "Bash", False),
        ("Edit|Write", "NotebookEdit", False),
        ("^as.", "Bash", False),
    ],
)
async def test_a_matcher_is_a_list_of_names_or_a_regular_expression(
    scene: Scene, matcher: str, name: str, runs: bool
) -> None:
    hooks = scene.hooks(pre_tool_use=on("touch ran", matcher=matcher))

    await hooks.run("PreToolUse", BASH | {"tool_name": name})

    assert (scene.folder / "ran").exists() is runs


async def test_a_session_start_is_matched_on_its_source_and_a_stop_on_nothing(scene: Scene) -> None:
    hooks = scene.hooks(
        session_start=(*on("echo resumed", matcher="resume"), *on("echo new", matcher="startup")),
        stop=on("touch stopped", matcher="Bash"),
    )

    outcome = await hooks.run("SessionStart", {"source": "resume"})
    await hooks.run("Stop", {"stop_hook_active": False})

    assert outcome.contexts == ("resumed",)
    assert (scene.folder / "stopped").exists()


async def test_the_same_command_runs_once_however_often_it_matches(scene: Scene) -> None:
    hooks = scene.hooks(pre_tool_use=(*on("echo x >> ran", matcher="Bash"), *on("echo x >> ran")))

    await hooks.run("PreToolUse", BASH)

    assert (scene.folder / "ran").read_text(encoding="utf-8") == "x\n"


async def test_hooks_of_another_type_are_not_run(scene: Scene) -> None:
    matcher = HookMatcher(hooks=(HookCommand(type="prompt", command="touch ran"),))

    await scene.hooks(stop=(matcher,)).run("Stop", {})

    assert not (scene.folder / "ran").exists()


async def test_hooks_of_one_moment_run_side_by_side(scene: Scene) -> None:
    # Each waits for the other's file: one after the other, both would wait in vain.
    wait = "touch {}; while [ ! -e {} ]; do sleep 0.01; done; echo {}"
    hooks = scene.hooks(session_start=on(wait.format("a", "b", "first"), wait.format("b", "a", "second")))

    outcome = await hooks.run("SessionStart", {"source": "startup"})

    assert outcome.contexts == ("first", "second")


# --- what a hook says -----------------------------------------------------------------------------------


async def test_plain_output_is_context_where_context_can_be_added(scene: Scene) -> None:
    hooks = scene.hooks(
        session_start=on("echo ' on main, 2 files changed '"),
        user_prompt_submit=on("echo today is Friday"),
        pre_tool_use=on("echo only for the eye"),
    )

    start = await hooks.run("SessionStart", {"source": "startup"})
    prompt = await hooks.run("UserPromptSubmit", {"prompt": "hello"})
    tool = await hooks.run("PreToolUse", BASH)

    assert start.contexts == ("on main, 2 files changed",)
    assert prompt.contexts == ("today is Friday",)
    assert tool == HookOutcome()
    assert scene.outcomes == ["ok", "ok", "ok"]


@pytest.mark.parametrize(
    "event", ["UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "PreCompact", "Stop", "SubagentStop"]
)
async def test_exit_2_refuses_with_stderr_as_the_reason(scene: Scene, event: str) -> None:
    field = "".join(f"_{c.lower()}" if c.isupper() else c for c in event).lstrip("_")
    hooks = scene.hooks(**{field: on('echo \'{"decision": "approve"}\'; echo tests fail >&2; exit 2')})

    outcome = await hooks.run(event, {})

    (ran,) = scene.events
    assert outcome == HookOutcome(block=True, reason="tests fail")
    assert isinstance(ran, HookRan)
    assert (ran.hook, ran.outcome, ran.message) == (event, "blocked", "tests fail")


async def test_exit_2_before_a_tool_denies_it(scene: Scene) -> None:
    outcome = await scene.hooks(pre_tool_use=on("echo no rm >&2; exit 2")).run("PreToolUse", BASH)

    assert (outcome.block, outcome.permission, outcome.permission_reason) == (True, "deny", "no rm")


@pytest.mark.parametrize("event", ["SessionStart", "SessionEnd", "Notification", "PostCompact"])
async def test_what_cannot_be_refused_is_only_shown(scene: Scene, event: str) -> None:
    field = "".join(f"_{c.lower()}" if c.isupper() else c for c in event).lstrip("_")
    hooks = scene.hooks(**{field: on("echo too late >&2; exit 2")})

    outcome = await hooks.run(event, {})

    assert outcome == HookOutcome(messages=(f"{event} hook: too late",))
    assert Notice(f"{event} hook: too late", "warning") in scene.events


async def test_any_other_exit_code_is_shown_and_changes_nothing(scene: Scene) -> None:
    outcome = await scene.hooks(pre_tool_use=on("echo oh no >&2; exit 1")).run("PreToolUse", BASH)

    assert outcome == HookOutcome(messages=("PreToolUse hook failed with exit code 1: oh no",))
    assert scene.outcomes == ["failed"]


@pytest.mark.parametrize("decision", ["allow", "ask", "deny"])
async def test_a_decision_about_a_tool_as_json(scene: Scene, decision: str) -> None:
    answer = says(
        hookSpecificOutput={
            "hookEventName": "PreToolUse",
            "permissionDecision": decision,
            "permissionDecisionReason": "because",
            "updatedInput": {"command": "ls -l"},
        },
        systemMessage="look here",
        suppressOutput=True,
    )

    outcome = await scene.hooks(pre_tool_use=on(answer)).run("PreToolUse", BASH)

    assert (outcome.permission, outcome.permission_reason) == (decision, "because")
    assert outcome.block is (decision == "deny")
    assert outcome.updated_input == {"command": "ls -l"}
    assert outcome.messages == ("look here",)
    assert Notice("look here") in scene.events, "whoever runs hooks need not pass it on"


@pytest.mark.parametrize(("older", "meant"), [("approve", "allow"), ("block", "deny")])
async def test_the_older_words_for_a_decision_still_work(scene: Scene, older: str, meant: str) -> None:
    hooks = scene.hooks(pre_tool_use=on(says(decision=older, reason="why not")))

    outcome = await hooks.run("PreToolUse", BASH)

    assert (outcome.permission, outcome.permission_reason) == (meant, "why not")


async def test_a_stop_can_be_refused_as_json(scene: Scene) -> None:
    hooks = scene.hooks(stop=on(says(decision="block", reason="run the tests first")))

    outcome = await hooks.run("Stop", {"stop_hook_active": False})

    assert outcome == HookOutcome(block=True, reason="run the tests first")


async def test_continue_false_ends_everything_and_beats_a_decision(scene: Scene) -> None:
    answer = says(**{"continue": False, "stopReason": "budget used up", "decision": "approve"})

    outcome = await scene.hooks(pre_tool_use=on(answer)).run("PreToolUse", BASH)

    assert outcome == HookOutcome(stop=True, reason="budget used up")


async def test_added_context_as_json(scene: Scene) -> None:
    more = {"hookEventName": "UserPromptSubmit", "additionalContext": "the build is red"}

    outcome = await scene.hooks(user_prompt_submit=on(says(hookSpecificOutput=more))).run(
        "UserPromptSubmit", {"prompt": "go"}
    )

    assert outcome.contexts == ("the build is red",)


async def test_what_is_meant_for_another_event_is_not_taken(scene: Scene) -> None:
    more = {"hookEventName": "UserPromptSubmit", "permissionDecision": "allow"}

    outcome = await scene.hooks(pre_tool_use=on(says(hookSpecificOutput=more))).run("PreToolUse", BASH)

    assert outcome == HookOutcome()


@pytest.mark.parametrize(
    "output",
    ['{"decision": ', '{"decision": 5}', '{"hookSpecificOutput": []}', '{"continue": "no"}', "{" * 5000],
)
async def test_malformed_json_is_reported_and_ignored(scene: Scene, output: str) -> None:
    hooks = scene.hooks(user_prompt_submit=on(f"printf %s {shlex.quote(output)}"))

    outcome = await hooks.run("UserPromptSubmit", {"prompt": "go"})

    assert (outcome.block, outcome.stop, outcome.contexts) == (False, False, ())
    assert scene.outcomes == ["malformed"]
    assert "cannot be used" in outcome.messages[0]


def decides(decision: str | None = None, **more: Any) -> str:
    if decision:
        more |= {"permissionDecision": decision, "permissionDecisionReason": f"said {decision}"}
    return says(hookSpecificOutput={"hookEventName": "PreToolUse", **more})


@pytest.mark.parametrize(
    ("said", "counts"),
    [
        (("allow", "deny", "ask"), "deny"),
        (("allow", "ask"), "ask"),
        (("allow", None), "allow"),
        ((None, None), None),
        (("defer", "allow"), "allow"),
    ],
)
async def test_deny_beats_ask_beats_allow(
    scene: Scene, said: tuple[str | None, ...], counts: str | None
) -> None:
    commands = [f"{decides(decision)}; : {n}" for n, decision in enumerate(said)]

    outcome = await scene.hooks(pre_tool_use=on(*commands)).run("PreToolUse", BASH)

    assert outcome.permission == counts
    assert outcome.permission_reason == (f"said {counts}" if counts else "")


async def test_a_changed_input_is_only_allowed_by_who_changed_it(scene: Scene) -> None:
    changed = {"command": "rm -r build"}
    one = scene.hooks(pre_tool_use=on(decides("allow", updatedInput=changed)))
    two = scene.hooks(pre_tool_use=on(decides("allow"), decides(updatedInput=changed)))

    together = await one.run("PreToolUse", BASH)
    apart = await two.run("PreToolUse", BASH)

    assert (together.permission, together.updated_input) == ("allow", changed)
    assert (apart.permission, apart.updated_input) == (None, changed)


# --- hooks that misbehave -------------------------------------------------------------------------------


async def comes_true(condition: Callable[[], bool]) -> bool:
    for _ in range(2_000):
        if condition():
            return True
        await anyio.sleep(0.01)
    return False


def dead(file: Path) -> bool:
    """Whether the process whose id is in this file has ended, buried or not."""
    try:
        state = Path(f"/proc/{int(file.read_text(encoding='utf-8'))}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state.rsplit(b")", 1)[1].split()[0] in (b"Z", b"X")


def written(file: Path) -> bool:
    return file.exists() and file.read_bytes().endswith(b"\n")


proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here")


@proc
async def test_a_hook_that_never_ends_is_ended_with_all_it_started(scene: Scene) -> None:
    body = "sleep 1000 & echo $! > child; echo $$ > parent; wait"
    hooks = scene.hooks(pre_tool_use=on(body, timeout=1.5))

    outcome = await hooks.run("PreToolUse", BASH)

    assert outcome.permission is None
    assert outcome.messages[0].startswith("PreToolUse hook was ended after 1.5 s")
    assert scene.outcomes == ["timeout"]
    for file in (scene.folder / "parent", scene.folder / "child"):
        assert written(file)
        assert await comes_true(partial(dead, file))


@proc
async def test_a_cancelled_turn_takes_its_hooks_with_it(scene: Scene) -> None:
    hooks = scene.hooks(stop=on("sleep 1000 & echo $! > child; echo $$ > parent; wait"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hooks.run, "Stop", {})
        assert await comes_true(partial(written, scene.folder / "parent"))
        tasks.cancel_scope.cancel()

    for file in (scene.folder / "parent", scene.folder / "child"):
        assert written(file)
        assert await comes_true(partial(dead, file))


def running(mark: str) -> list[str]:
    """The living processes that have this in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (process / "environ").read_bytes():
                found.append(process.name)
    return found


@proc
async def test_wherever_a_turn_is_stopped_nothing_of_a_hook_is_left(scene: Scene) -> None:
    mark = f"MARK={scene.folder}"
    scene.environment |= {"MARK": str(scene.folder)}
    hooks = scene.hooks(stop=on("sleep 1000 & sleep 1000 & wait"))

    for ticks in range(25):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hooks.run, "Stop", {})
            for _ in range(ticks):
                await anyio.sleep(0.0005)
            tasks.cancel_scope.cancel()

    assert await comes_true(lambda: running(mark) == [])


async def test_a_hook_that_talks_for_ever_is_cut_and_ended(scene: Scene) -> None:
    outcome = await scene.hooks(user_prompt_submit=on("yes", timeout=0.5)).run("UserPromptSubmit", {})

    assert outcome.contexts == ()
    assert scene.outcomes == ["timeout"]


async def test_huge_output_is_kept_up_to_the_limit_and_the_hook_runs_to_its_end(scene: Scene) -> None:
    script = scene.script("print('x' * 3_000_000); open('end', 'w').close()")

    outcome = await scene.hooks(user_prompt_submit=on(script)).run("UserPromptSubmit", {})

    assert len(outcome.contexts[0]) == MOST_OUTPUT
    assert (scene.folder / "end").exists()


async def test_huge_json_is_malformed_and_says_why(scene: Scene) -> None:
    script = scene.script("print('{\"reason\": \"' + 'x' * 3_000_000 + '\"}')")

    outcome = await scene.hooks(user_prompt_submit=on(script)).run("UserPromptSubmit", {})

    assert "longer than 1,000,000 bytes" in outcome.messages[0]


async def test_a_hook_that_reads_nothing_of_a_huge_input_is_fine(scene: Scene) -> None:
    fields = BASH | {"tool_input": {"content": "x" * 5_000_000}}

    outcome = await scene.hooks(pre_tool_use=on(decides("allow"))).run("PreToolUse", fields)

    assert outcome.permission == "allow"


async def test_what_a_hook_leaves_running_does_not_hold_up_the_turn(scene: Scene) -> None:
    hooks = scene.hooks(user_prompt_submit=on("echo ready; sleep 1000 & echo $! > child"))

    with anyio.fail_after(30):
        outcome = await hooks.run("UserPromptSubmit", {})

    os.kill(int((scene.folder / "child").read_text(encoding="utf-8")), 9)
    assert outcome.contexts == ("ready",)


def vanished(scene: Scene) -> Hooks:
    hooks = scene.hooks(stop=on("true"))
    hooks.cwd_of = lambda: scene.folder / "gone"
    return hooks


def with_nul(scene: Scene) -> Hooks:
    return scene.hooks(stop=on("true\0"))


@pytest.mark.parametrize("make", [vanished, with_nul])
async def test_a_hook_that_cannot_be_started_is_reported(
    scene: Scene, make: Callable[[Scene], Hooks]
) -> None:
    outcome = await make(scene).run("Stop", {})

    assert not outcome.block
    assert outcome.messages[0].startswith("Stop hook could not be started")
    assert scene.outcomes == ["failed"]


async def test_output_that_is_not_utf8_and_input_with_half_characters_pass(scene: Scene) -> None:
    hooks = scene.hooks(user_prompt_submit=on("printf '\\377ok'; cat > told"))

    outcome = await hooks.run("UserPromptSubmit", {"prompt": "\ud800 hello"})

    assert outcome.contexts == ("\ufffdok",)
    assert json.loads((scene.folder / "told").read_bytes())["prompt"] == "\ud800 hello"


async def test_an_existing_script_that_guards_commands_works_unchanged(scene: Scene) -> None:
    script = scene.script(
        "import json, sys\n"
        "told = json.load(sys.stdin)\n"
        "if told['tool_name'] == 'Bash' and 'rm -rf' in told['tool_input'].get('command', ''):\n"
        "    print('rm -rf is not allowed here', file=sys.stderr)\n"
        "    sys.exit(2)\n"
    )
    hooks = scene.hooks(pre_tool_use=on(script, matcher="Bash"))

    fine = await hooks.run("PreToolUse", BASH)
    bad = await hooks.run("PreToolUse", BASH | {"tool_input": {"command": "rm -rf /"}})

    assert fine == HookOutcome()
    assert (bad.permission, bad.reason) == ("deny", "rm -rf is not allowed here")
