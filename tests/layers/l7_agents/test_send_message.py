"""SendMessage: every way that a message can go, and every rule that it can break."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sevenfold.core.errors import StorageFailure
from sevenfold.core.messages import ToolUse
from sevenfold.core.protocols import ToolFailed
from sevenfold.layers.l7_agents.agent_tools import SCHEMA, SendMessageTool
from sevenfold.layers.l7_agents.mail import MemberInfo, MemoryInbox, PostOffice
from sevenfold.layers.l7_agents.mailbox import Letter, PlanApprovalResponse, ShutdownRequest, make_letter
from sevenfold.layers.l7_agents.sockets import NotSent, PeerSessions, SessionAddress
from sevenfold.testing import FakeClock
from sevenfold.tools.toolbox import Toolbox, find_argument_problem

pytestmark = pytest.mark.anyio
CLOCK = FakeClock(0.0)


class Agents:
    """A directory of one running agent and one that has finished."""

    def __init__(self) -> None:
        self.running, self.resumed = MemoryInbox("runner"), list[Letter]()

    async def deliver(self, name: str, letter: Letter) -> str | None:
        if name == "runner":
            self.running.post(letter)
            return "queued for 'runner'."
        if name == "finisher":
            self.resumed.append(letter)
            return "'finisher' was resumed."
        return None

    def names(self) -> Sequence[str]:
        return ("runner", "finisher")


class Nearby(PeerSessions):
    """One session that takes everything."""

    def __init__(self) -> None:
        self.got: list[Letter] = []

    def listed(self) -> list[SessionAddress]:
        return [SessionAddress("s-77", "/p", 1, 0.0)]

    async def send(self, session: str, letter: Letter) -> SessionAddress:
        if session != "s-77":
            raise NotSent("nobody", f"no session {session!r} can be reached on this machine")
        self.got.append(letter)
        return self.listed()[0]


class Stage:
    def __init__(self, folder: Path) -> None:
        self.agents, self.nearby = Agents(), Nearby()
        self.post = PostOffice(folder, "alpha", CLOCK, print)
        self.post.join("lead", MemberInfo("lead"))
        self.post.join("ada")
        self.post.join("bob")

    async def send(self, sender: str = "lead", **args: Any) -> str:
        lead = sender == "lead"
        tool = SendMessageTool(sender, lead, self.agents, self.post, CLOCK, self.nearby)
        fields = {"message": "hello", "summary": "hi"} | args
        return await tool.run(fields, "u1")

    def waiting(self, name: str) -> list[str]:
        return [letter.text for letter in self.post.inbox(name).waiting()]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_the_tool_is_short_because_every_request_carries_it() -> None:
    assert len(json.dumps(SCHEMA)) < 900  # about 200 tokens
    assert (
        find_argument_problem(SCHEMA["input_schema"], {"to": "a", "message": "b", "summary": "c"}) is None
    )


async def test_a_running_agent_gets_it_queued_and_a_finished_one_is_resumed(stage: Stage) -> None:
    assert await stage.send(to="runner") == "queued for 'runner'."
    assert await stage.send(to="finisher", message="more") == "'finisher' was resumed."

    [queued] = stage.agents.running.waiting()
    assert (queued.sender, queued.text, queued.summary) == ("lead", "hello", "hi")
    assert [letter.text for letter in stage.agents.resumed] == ["more"]


async def test_a_teammate_gets_it_into_the_mailbox(stage: Stage) -> None:
    told = await stage.send(to="ada")

    assert told == "The message lies in the mailbox of 'ada', who reads it at the next step."
    assert stage.waiting("ada") == ["hello"]
    assert stage.waiting("bob") == []


async def test_a_message_to_all_goes_to_all_but_the_sender(stage: Stage) -> None:
    told = await stage.send("ada", to="*")

    assert told == "The message was sent to 2 of 2 teammates: lead, bob."
    assert [stage.waiting(name) for name in ("lead", "ada", "bob")] == [["hello"], [], ["hello"]]
    ids = {stage.post.inbox(name).waiting()[0].id for name in ("lead", "bob")}
    assert len(ids) == 2


async def test_a_message_to_all_reaches_the_lead_who_has_not_joined(stage: Stage) -> None:
    class Led(Agents):
        async def deliver(self, name: str, letter: Letter) -> str | None:
            return "queued for lead" if name == "lead" else None

        def names(self) -> Sequence[str]:
            return ("lead",)

    stage.post.leave("lead")
    stage.agents = Led()

    assert await stage.send("ada", to="*") == ("The message was sent to 2 of 2 teammates: bob, lead.")
    assert await stage.send("lead", to="*") == ("The message was sent to 2 of 2 teammates: ada, bob.")


async def test_a_message_to_all_that_some_cannot_take_says_who(stage: Stage) -> None:
    for number in range(50):
        await stage.post.inbox("bob").accept(make_letter("x", "y", "z", CLOCK, id=f"n{number}"))

    told = await stage.send(to="*")

    assert told.startswith("The message was sent to 1 of 2 teammates: ada. Not to bob: 50 messages")
    stage.post.leave("ada")
    with pytest.raises(ToolFailed, match="nobody got the message; bob: 50 messages wait"):
        await stage.send(to="*")


async def test_a_message_to_all_reaches_those_that_run_here_through_their_own_door(stage: Stage) -> None:
    stage.post.join("runner")

    await stage.send(to="*")

    assert len(stage.agents.running.waiting()) == 1
    assert stage.waiting("runner") == []


async def test_another_session_on_this_machine_gets_it(stage: Stage) -> None:
    told = await stage.send(to="uds:s-77")

    assert told == "The session s-77 has the message and reads it at its next step."
    assert [letter.text for letter in stage.nearby.got] == ["hello"]
    with pytest.raises(ToolFailed, match="no session 's-1' can be reached on this machine"):
        await stage.send(to="uds:s-1")


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"to": " "}, "the message has no receiver: name an agent in `to`"),
        ({"to": "ada", "message": " \n"}, "the message is empty: say something"),
        ({"to": "ada", "summary": " "}, "the message has no summary: say in a few words what it is about"),
        ({"to": "ada", "summary": "x" * 201}, "the summary is longer than 200 characters: say it shorter"),
        (
            {"to": "ada", "message": "x" * 32_001},
            "the message has 32,001 characters and may have 32,000: write it to a file and send the path",
        ),
        (
            {"to": "bridge:elsewhere"},
            "'bridge:elsewhere' is an address on another machine, and messages stay on this one: "
            "write to an agent by name, or to a session as uds:<session>",
        ),
        ({"to": "lead"}, "'lead' is you: nothing was sent"),
        ({"to": " Lead "}, "'Lead' is you: nothing was sent"),
        ({"to": "main"}, "'main' is you: nothing was sent"),
        ({"to": "MAIN"}, "'MAIN' is you: nothing was sent"),
        (
            {"to": "nobody"},
            "there is no agent 'nobody'; you can reach runner, finisher, ada, bob, uds:s-77",
        ),
        (
            {"to": "*", "frame": {"type": "shutdown_request"}},
            "shutdown_request is never sent to all: name one agent",
        ),
        (
            {"to": "uds:s-77", "frame": {"type": "shutdown_request"}},
            "shutdown_request stays inside the team: other sessions take plain messages only",
        ),
        (
            {"to": "ada", "frame": {"type": "shutdown_response", "request_id": "r", "approve": True}},
            "shutdown_response goes to the lead only: send it to 'lead'",
        ),
        (
            {"to": "ada", "frame": {"type": "plan_approval_response", "request_id": "r", "approve": False}},
            "plan_approval_response with approve=false needs feedback",
        ),
        (
            {"to": "ada", "frame": {"type": "dance"}},
            "a frame has one of the types shutdown_request, shutdown_response, "
            "plan_approval_request, plan_approval_response, and not 'dance'",
        ),
    ],
)
async def test_what_the_lead_may_not_send_is_refused_by_its_rule(
    stage: Stage, args: dict[str, Any], why: str
) -> None:
    with pytest.raises(ToolFailed) as failed:
        await stage.send(**args)
    assert str(failed.value) == why
    assert stage.waiting("ada") == stage.waiting("bob") == []


@pytest.mark.parametrize(
    ("frame", "to", "why"),
    [
        (
            {"type": "plan_approval_response", "request_id": "r", "approve": True},
            "bob",
            "only the lead approves plans: 'ada' is not 'lead'",
        ),
        (
            {"type": "shutdown_response", "request_id": "r", "approve": False},
            "lead",
            "shutdown_response with approve=false needs a reason",
        ),
        (
            {"type": "shutdown_response", "request_id": "r", "approve": True},
            "bob",
            "shutdown_response goes to the lead only: send it to 'lead'",
        ),
    ],
)
async def test_what_a_teammate_may_not_send_is_refused_by_its_rule(
    stage: Stage, frame: dict[str, Any], to: str, why: str
) -> None:
    with pytest.raises(ToolFailed) as failed:
        await stage.send("ada", to=to, frame=frame)
    assert str(failed.value) == why


async def test_nobody_writes_to_itself_in_whatever_spelling(stage: Stage) -> None:
    stage.post.join("Zoë")
    for to in ("ada", "Ada", "ADA"):
        with pytest.raises(ToolFailed, match="is you: nothing was sent"):
            await stage.send("ada", to=to)
    with pytest.raises(ToolFailed, match="is you"):
        await stage.send("Zo\u00eb", to="zoe\u0308")
    assert stage.waiting("ada") == []


async def test_a_receiver_is_known_in_any_spelling(stage: Stage) -> None:
    await stage.send("bob", to="ADA")
    await stage.send("ada", to="Main")
    await stage.send("ada", to="Runner")
    answer = {"type": "shutdown_response", "request_id": "r", "approve": True}
    told = await stage.send("ada", to="main", frame=answer)

    assert stage.waiting("ada") == ["hello"]
    assert stage.waiting("lead") == ["hello", "hello"]
    assert len(stage.agents.running.waiting()) == 1
    assert told.endswith("at the next step. The request_id is r.")


async def test_what_was_done_and_the_request_id_are_two_sentences(stage: Stage) -> None:
    class Terse(Agents):
        async def deliver(self, name: str, letter: Letter) -> str | None:
            return "queued for ada: it reads it after its current round of tools"

    stage.agents = Terse()
    told = await stage.send(to="ada", frame={"type": "shutdown_request", "request_id": "r"})

    assert told.endswith("its current round of tools. The request_id is r.")


async def test_frames_travel_inside_the_team_and_get_a_request_id(stage: Stage) -> None:
    asked = await stage.send(to="ada", message="", frame={"type": "shutdown_request"})
    answer = {"type": "plan_approval_response", "request_id": "r7", "approve": True}
    await stage.send(to="bob", message="", frame=answer)

    [first] = stage.post.inbox("ada").waiting()
    [second] = stage.post.inbox("bob").waiting()
    assert isinstance(first.frame, ShutdownRequest)
    assert asked.endswith(f"The request_id is {first.frame.request_id}.")
    assert second.frame == PlanApprovalResponse("r7", True)


async def test_without_a_team_and_without_sessions_it_says_so() -> None:
    tool = SendMessageTool("ada", False, Agents(), None, CLOCK)

    async def failing(to: str) -> str:
        with pytest.raises(ToolFailed) as failed:
            await tool.run({"to": to, "message": "m", "summary": "s"}, "u")
        return str(failed.value)

    assert await failing("*") == "there are no teammates: nothing was sent"
    assert await failing("uds:x") == ("other sessions cannot be reached from here: nothing was sent")
    assert await failing("x") == "there is no agent 'x'; you can reach runner, finisher"


async def test_where_nobody_is_nobody_is_listed() -> None:
    class Nobody(Agents):
        def names(self) -> Sequence[str]:
            return ()

    tool = SendMessageTool("ada", False, Nobody(), None, CLOCK)

    with pytest.raises(ToolFailed) as failed:
        await tool.run({"to": "x", "message": "m", "summary": "s"}, "u")
    assert str(failed.value) == "there is no agent 'x', and nobody else can be reached"


async def test_a_full_mailbox_and_a_broken_one_are_told_to_the_model(stage: Stage, tmp_path: Path) -> None:
    async def let(use: ToolUse) -> str | None:
        return None

    inbox = stage.post.inbox("ada")
    for number in range(50):
        await inbox.accept(make_letter("x", "y", "z", CLOCK, id=f"n{number}"))
    tool = SendMessageTool("lead", True, stage.agents, stage.post, CLOCK)
    box = Toolbox([tool], let, lambda event: None)
    args = {"to": "ada", "message": "m", "summary": "s"}

    full = await box.call(ToolUse("u", "SendMessage", args))
    file = tmp_path / "teams" / "alpha" / "inboxes" / "ada.json"
    file.unlink()
    file.mkdir()
    broken = await box.call(ToolUse("u", "SendMessage", args))

    assert (full.is_error, broken.is_error) == (True, True)
    assert full.text.startswith("50 messages wait for 'ada' already, and this one was not sent")
    assert "ada.json" in broken.text
    assert not box.safe(ToolUse("u", "SendMessage", args)), "messages keep their order"
    with pytest.raises(StorageFailure):
        inbox.waiting()
