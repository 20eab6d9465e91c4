"""Whole sessions with the user's hooks: what they say is heard, what they end has ended, who is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flows.test_session import Place, hooks

from sevenfold.core.errors import Refused
from sevenfold.core.events import Closed, Ended, Notice
from sevenfold.core.messages import ToolUse, assistant
from sevenfold.core.transcript import Transcript
from sevenfold.storage.jsonl import read_log
from sevenfold.testing import ScriptedModel
from sevenfold.tools.toolbox import PermissionQuestion

pytestmark = pytest.mark.anyio
LS = assistant(ToolUse("t1", "Bash", {"command": "ls"}))


@pytest.fixture
def here(tmp_path: Path) -> Place:
    return Place(tmp_path)


def says(**answer: Any) -> str:
    return f"echo '{json.dumps(answer)}'"


def ends(why: str) -> str:
    return says(**{"continue": False, "stopReason": why})


def told(here: Place) -> list[str]:
    return [event.text for event in here.of(Notice)]


async def test_what_a_hook_says_to_the_user_is_heard_at_every_moment(here: Place) -> None:
    moments = ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd"]
    settings = hooks(**{moment: says(systemMessage=f"at {moment}") for moment in moments})
    async with here.session(ScriptedModel([LS, "done"]), settings=settings) as session:
        await session.ask("look")

    assert told(here) == [f"at {moment}" for moment in moments]


async def test_hooks_of_one_prompt_share_its_id_and_the_last_is_told_the_reply(
    here: Place, tmp_path: Path
) -> None:
    moments = ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"]
    kept = tmp_path / "told.jsonl"
    settings = hooks(**dict.fromkeys(moments, f"cat >> {kept}; echo >> {kept}; echo '{{}}'"))
    async with here.session(ScriptedModel([LS, "done", "and again"]), settings=settings) as session:
        await session.ask("look")
        await session.ask("again")

    lines = [json.loads(line) for line in kept.read_text("utf-8").splitlines() if line]
    start, *first = lines[:5]
    second = lines[5:]
    assert "prompt_id" not in start
    assert len({line["prompt_id"] for line in first}) == 1
    assert {line["prompt_id"] for line in first}.isdisjoint(line["prompt_id"] for line in second)
    assert [line["last_assistant_message"] for line in lines if line["hook_event_name"] == "Stop"] == [
        "done",
        "and again",
    ]


async def test_what_a_hook_says_is_heard_also_when_it_refuses_the_prompt(here: Place) -> None:
    refusal = says(decision="block", reason="no", systemMessage="ask Anna")
    async with here.session(ScriptedModel([]), settings=hooks(UserPromptSubmit=refusal)) as session:
        with pytest.raises(Refused):
            await session.ask("one")

    assert "ask Anna" in told(here)


async def test_a_hook_may_end_a_session_before_it_begins(here: Place) -> None:
    settings = hooks(SessionStart=ends("the licence has run out"))
    with pytest.raises(Refused, match="a hook ended the session: the licence has run out"):
        async with here.session(ScriptedModel([]), settings=settings):
            pytest.fail("it is not open")

    async with here.session(ScriptedModel(["hello"])) as session:
        assert (await session.ask("hi")).message.text == "hello", "nothing is locked"


@pytest.mark.parametrize("moment", ["PreToolUse", "PostToolUse"])
async def test_a_turn_that_a_hook_ended_says_so_and_why(here: Place, moment: str) -> None:
    settings = hooks(**{moment: ends("enough for today")})
    async with here.session(ScriptedModel([LS, "never said", "hello"]), settings=settings) as one:
        with pytest.raises(Refused, match="a hook ended the turn: enough for today"):
            await one.ask("look")
        path = one.path
    stored = Transcript.load(read_log(path), lambda: 0.0)

    assert [event.stop for event in here.of(Ended)] == ["interrupted"]
    assert len(stored.view[-1].message.results) == 1, "every call is answered"
    assert here.of(Closed)


async def test_a_turn_that_was_stopped_by_hand_later_is_not_blamed_on_a_hook(here: Place) -> None:
    model = ScriptedModel([LS, "never said", "hello"])
    async with here.session(model, settings=hooks(PostToolUse=ends("enough"))) as session:
        with pytest.raises(Refused):
            await session.ask("look")

        def stops(request: object) -> str:
            session.stop()
            return "words that nobody waits for"

        session.turn.model = ScriptedModel([stops])
        assert (await session.ask("again")).stop == "interrupted"


async def test_hooks_that_never_agree_are_given_up_on_and_the_user_is_told(here: Place) -> None:
    settings = hooks(Stop="echo the tests still fail >&2; exit 2")
    model = ScriptedModel([f"reply {i}" for i in range(20)])
    async with here.session(model, settings=settings) as session:
        await session.ask("fix it")

    (said,) = [text for text in told(here) if "8 times" in text]
    assert said.startswith("Stop hooks sent the model back to work 8 times in a row")


async def test_a_hook_that_agrees_at_last_is_no_reason_for_a_notice(here: Place) -> None:
    counting = "echo x >> count; [ $(wc -l < count) -gt 3 ] || { echo not yet >&2; exit 2; }"
    model = ScriptedModel([f"reply {i}" for i in range(20)])
    async with here.session(model, settings=hooks(Stop=counting)) as session:
        await session.ask("fix it")

    assert len(model.requests) == 4
    assert told(here) == []


# --- notifications -----------------------------------------------------------------------------------


async def test_the_user_is_told_when_they_are_asked_and_when_it_waits_for_them(here: Place) -> None:
    heard = here.home / "heard"
    asked: list[str] = []

    async def ask(question: PermissionQuestion) -> bool:
        asked.append(question.use.name)
        return True

    here.home.mkdir()
    touch = assistant(ToolUse("t1", "Bash", {"command": "touch new"}))
    options: dict[str, Any] = {"ask": ask, "interactive": True}
    options["settings"] = hooks(Notification=f"cat > $(mktemp {heard}.XXXXXX)")  # two may run at once
    async with here.session(ScriptedModel([touch, "done"]), **options) as session:
        await session.ask("make it")
        await session.tray.drain(30)

    notes = [json.loads(path.read_text(encoding="utf-8")) for path in here.home.glob("heard.*")]
    assert asked == ["Bash"]
    assert sorted(note["notification_type"] for note in notes) == ["idle_prompt", "permission_prompt"]
    assert {note["hook_event_name"] for note in notes} == {"Notification"}
    (question,) = [n["message"] for n in notes if n["notification_type"] == "permission_prompt"]
    assert "Bash" in question


async def test_a_script_is_not_told_that_it_is_waited_for(here: Place) -> None:
    settings = hooks(Notification="touch told")
    async with here.session(ScriptedModel(["done"]), settings=settings) as session:
        await session.ask("go")
        await session.tray.drain(30)

    assert not (here.project / "told").exists()
