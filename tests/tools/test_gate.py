"""The gate asks who is there, one question at a time, and says what would help when nobody is."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tools.conftest import names

from sevenfold.core.events import Denied, Event
from sevenfold.core.messages import ToolUse
from sevenfold.tools.permission_settings import PermissionRules
from sevenfold.tools.permissions import Permissions
from sevenfold.tools.toolbox import (
    PermissionAnswer,
    PermissionQuestion,
    RefusalReason,
    Toolbox,
    ToolGate,
    make_standard_tools,
)
from sevenfold.tools.workspace import Workspace

pytestmark = pytest.mark.anyio


class Person:
    """Gives the answers it was given, and remembers the questions."""

    def __init__(self, *answers: PermissionAnswer) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, str]] = []
        self.offered: list[tuple[str, ...]] = []
        self.most_at_once = 0
        self._now = 0

    async def __call__(self, question: PermissionQuestion) -> PermissionAnswer:
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        await anyio.lowlevel.checkpoint()
        self._now -= 1
        self.asked.append((question.use.id, question.reason))
        self.offered.append(question.always)
        return self._answers.pop(0)


def bash(command: str, id: str = "u") -> ToolUse:
    return ToolUse(id, "Bash", {"command": command})


def gate(workspace: Workspace, person: Person | None = None, **rules: tuple[str, ...]) -> ToolGate:
    settings = PermissionRules(**rules)  # type: ignore[arg-type]
    return ToolGate(Permissions(settings), workspace, person)


async def test_what_is_allowed_passes_and_nobody_is_asked(workspace: Workspace) -> None:
    person = Person()

    assert await gate(workspace, person)(bash("ls")) is None
    assert person.asked == []


async def test_the_person_decides_what_is_to_be_asked(workspace: Workspace) -> None:
    person = Person(True, False)
    asking = gate(workspace, person)

    assert await asking(bash("npm test")) is None
    assert await asking(bash("npm test")) == "the person said no to it"
    assert len(person.asked) == 2
    assert person.asked[0][1].startswith("it may change something: ")


async def test_always_holds_for_the_same_thing_in_this_session(workspace: Workspace) -> None:
    person = Person("always", False)
    asking = gate(workspace, person)

    assert await asking(bash("npm test && make")) is None
    assert await asking(bash("make")) is None
    assert await asking(bash("npm test | tail -3")) is None
    assert await asking(bash("npm test --other")) is not None
    assert len(person.asked) == 2
    assert person.offered[0] == ("Bash(npm test)", "Bash(make)"), "the person sees what it grants"


async def test_no_with_a_reason_tells_the_reason(workspace: Workspace) -> None:
    said = await gate(workspace, Person(RefusalReason("it takes an hour")))(bash("make"))

    assert said == "the person said no to it, because: it takes an hour"


@pytest.mark.parametrize(
    ("command", "again", "other"),
    [
        ("make", "ls && make", "make all"),
        ("npm test && rm -rf build", "npm test && rm -rf build", "npm test"),
        ("echo $(date) > x", "echo $(date) > x", "touch x"),
    ],
)
async def test_never_holds_for_the_same_thing_and_nothing_else(
    workspace: Workspace, command: str, again: str, other: str
) -> None:
    person = Person("never", True)
    asking = gate(workspace, person)

    assert await asking(bash(command)) == "the person said never to it: do not try it again"
    assert await asking(bash(again)) == f"the rule Bash({command}) denies it"
    assert await asking(bash(other)) is None
    assert len(person.asked) == 2


async def test_a_rule_that_denies_is_never_asked_about(workspace: Workspace) -> None:
    person = Person()

    said = await gate(workspace, person, deny=("Bash(rm:*)",))(bash("rm x"))

    assert said == "the rule Bash(rm:*) denies it"
    assert person.asked == []


async def test_with_nobody_there_the_answer_names_the_rule_that_would_help(workspace: Workspace) -> None:
    said = await gate(workspace)(bash("npm test"))
    quoted = await gate(workspace)(bash("echo 'a' > x"))

    assert said is not None
    assert said.endswith(
        "nobody is here to be asked. To allow it, start with --allow 'Bash(npm test)', "
        "or name it in permissions.allow of the settings"
    )
    assert quoted is not None
    assert """--allow 'Bash(echo '\\''a'\\'' > x)',""" in quoted


async def test_questions_are_put_one_at_a_time_and_an_answer_may_settle_the_next(
    workspace: Workspace,
) -> None:
    person = Person("always")
    asking = gate(workspace, person)
    said: list[str | None] = []

    async def ask(id: str) -> None:
        said.append(await asking(bash("make", id)))

    async with anyio.create_task_group() as tasks:
        for id in "abc":
            tasks.start_soon(ask, id)

    assert said == [None, None, None]
    assert len(person.asked) == 1
    assert person.most_at_once == 1


async def test_a_call_approved_elsewhere_is_not_asked_about_but_still_denied_by_rules(
    workspace: Workspace,
) -> None:
    asking = gate(workspace, deny=("Bash(rm:*)",))
    for id in ("a", "b"):
        asking.approve(id)

    assert await asking(bash("npm test", "a")) is None
    assert await asking(bash("rm x", "b")) == "the rule Bash(rm:*) denies it"
    assert await asking(bash("npm test", "a")) is not None  # approved once, not for ever


async def test_a_call_to_be_confirmed_is_asked_about_even_if_rules_allow_it(workspace: Workspace) -> None:
    person = Person(True)
    asking, alone = gate(workspace, person), gate(workspace)
    asking.confirm("u", "a hook wants it confirmed")
    alone.confirm("u", "a hook wants it confirmed")
    alone.approve("u")

    assert await asking(bash("ls")) is None
    assert person.asked == [("u", "a hook wants it confirmed")]
    assert await alone(bash("ls")) == (
        "a hook wants it confirmed; it must be confirmed, and nobody is here to be asked"
    )


async def test_a_search_leaves_out_what_may_not_be_read(workspace: Workspace, project: Path) -> None:
    for name in ("a.txt", "private.txt", ".env", "key.pem"):
        (project / name).write_text("needle\n", "utf-8")
    events: list[Event] = []
    asking = gate(workspace, deny=("Read(./private.txt)",), allow=("Read(*.pem)",))
    toolbox = Toolbox(make_standard_tools(workspace), asking, events.append)

    found = await toolbox.call(ToolUse("u", "Grep", {"pattern": "needle"}))
    named = await toolbox.call(ToolUse("u", "Grep", {"pattern": "needle", "path": "private.txt"}))

    assert found.text == (
        "a.txt\nkey.pem\n[left out because they may hold secrets or are denied: .env, private.txt]"
    )
    assert named.text == "Grep was not run: the rule Read(./private.txt) denies it"
    assert [type(event) for event in events] == [Denied]


async def test_a_denied_write_leaves_no_trace(workspace: Workspace, project: Path) -> None:
    toolbox = Toolbox(make_standard_tools(workspace), gate(workspace), lambda event: None)

    result = await toolbox.call(ToolUse("u", "Write", {"file_path": "a/b.txt", "content": "x"}))

    assert result.is_error
    assert names(project) == []
