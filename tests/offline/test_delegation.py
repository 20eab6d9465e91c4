"""The offline engine hands work to agents and forks, and writes to them, when it is plainly asked to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from offline.offline_project import ALL_TOOLS, Project, Talk, first_calls
from offline.test_phrasings import FOUND
from offline.test_requests import FILES, READ, RUN, SEARCH, WRITE

from sevenfold.core.messages import (
    Json,
    Message,
    Text,
    ToolResult,
    ToolUse,
    assistant,
    user,
    write_directive,
)
from sevenfold.layers.l7_agents.forks import PLACEHOLDER
from sevenfold.layers.l7_agents.members import AgentOrder, make_first_message
from sevenfold.offline import encode_reply
from sevenfold.offline.conversation import OfflineConversation
from sevenfold.offline.reply import RULES, EngineRules, make_reply

KINDS = "Starts an agent.\n\nTypes:\n- general-purpose: anything\n- explorer: looks things up\n"
TOOLS: dict[str, Json] = {**ALL_TOOLS, "Agent": {"type": "object"}, "SendMessage": {"type": "object"}}
GENERAL = "general-purpose"


def asked(text: str, *before: Message, tools: dict[str, Json] = TOOLS) -> list[tuple[str, Json]]:
    """The calls of the first reply."""
    blocks = make_reply(OfflineConversation((*before, user(text)), tools, told={"Agent": KINDS}))
    return [(b.name, b.input) for b in blocks if isinstance(b, ToolUse)]


AGENTS: list[tuple[str, dict[str, Any]]] = [
    ("ask an agent to find TODO in src", {"prompt": "find TODO in src"}),
    (
        "Please have the explorer agent find TAX_RATE in till.py.",
        {"prompt": "find TAX_RATE in till.py", "subagent_type": "explorer"},
    ),
    ("have the `explorer` agent do: list files", {"subagent_type": "explorer"}),
    ("ask the explorer to list files", {"prompt": "list files", "subagent_type": "explorer"}),
    ("ask the painter agent to list files", {"prompt": "list files"}),
    ("in the background, read a.py", {"prompt": "read a.py", "run_in_background": True}),
    (
        "run `make test` in the background with an agent",
        {"prompt": "run `make test`", "run_in_background": True},
    ),
    (
        "start an agent called tester to run `pytest -q` in the background",
        {"prompt": "run `pytest -q`", "name": "tester", "run_in_background": True},
    ),
    ("ask a background agent to read a.py", {"prompt": "read a.py", "run_in_background": True}),
    ("fork: read a.py and count it", {"prompt": "read a.py and count it", "subagent_type": "fork"}),
    ("fork this and read a.py", {"prompt": "read a.py", "subagent_type": "fork"}),
    (
        "start a teammate called scout to read README.md",
        {"prompt": "read README.md", "name": "scout", "teammate": True},
    ),
    ("ask an agent in its own worktree to run `make`", {"prompt": "run `make`", "isolation": "worktree"}),
    ('ask an agent to "read a.py. Then count it."', {"prompt": "read a.py. Then count it."}),
    ("让一个代理查找 TODO", {"prompt": "查找 TODO"}),
    ("请让 explorer 代理在 src 中查找 TODO", {"prompt": "在 src 中查找 TODO", "subagent_type": "explorer"}),
    ("在后台运行 `make test`", {"prompt": "运行 `make test`", "run_in_background": True}),
    ("分叉：读取 till.py", {"prompt": "读取 till.py", "subagent_type": "fork"}),
    (
        "让一个叫 tester 的后台代理读取 a.py",
        {"prompt": "读取 a.py", "name": "tester", "run_in_background": True},
    ),
]
SEVERAL: list[tuple[str, list[str], str]] = [
    ("ask two agents: find A in src; read b.py", ["find A in src", "read b.py"], GENERAL),
    ("ask two agents:\n- find A in src\n- read b.py", ["find A in src", "read b.py"], GENERAL),
    ("ask two forks: read a.py; read b.py", ["read a.py", "read b.py"], "fork"),
    ("fork twice: read a.py; read b.py", ["read a.py", "read b.py"], "fork"),
    ("have 2 explorer agents in parallel: find A; find B.", ["find A", "find B"], "explorer"),
    ("让两个代理分别：查找 A；读取 b.py", ["查找 A", "读取 b.py"], GENERAL),
]
LETTERS = [
    ("tell tester that the port is 8471", "tester", "the port is 8471"),
    ("send tester: stop after the first failure", "tester", "stop after the first failure"),
    ("send a message to tester: `make` first", "tester", "`make` first"),
    ("let tester know that we are done", "tester", "we are done"),
    ("tell the tester agent to stop", "tester", "stop"),
    ("tell everyone that the build is green", "*", "the build is green"),
    ("send uds:4f2a: hello there", "uds:4f2a", "hello there"),
    ("告诉 tester：端口是 8471", "tester", "端口是 8471"),
    ("给 tester 发消息：停下", "tester", "停下"),
    ("通知大家：构建通过了", "*", "构建通过了"),
]


@pytest.mark.parametrize(("text", "wanted"), AGENTS, ids=[text for text, _ in AGENTS])
def test_work_is_handed_to_an_agent_as_it_was_asked_for(text: str, wanted: dict[str, Any]) -> None:
    [(name, args)] = asked(text)

    assert name == "Agent"
    rest = {k: v for k, v in args.items() if k not in ("description", "prompt")}
    expected = {"subagent_type": GENERAL, **wanted}
    assert args["prompt"] == expected.pop("prompt", args["prompt"])
    assert rest == expected


@pytest.mark.parametrize("text", [text for text, _ in AGENTS if text.isascii()])
def test_what_an_agent_is_for_is_said_in_three_to_five_words(text: str) -> None:
    [(_, args)] = asked(text)

    assert 3 <= len(args["description"].split()) <= 5


@pytest.mark.parametrize(("text", "prompts", "kind"), SEVERAL, ids=[text for text, *_ in SEVERAL])
def test_several_are_asked_in_one_reply(text: str, prompts: list[str], kind: str) -> None:
    made = asked(text)

    assert [name for name, _ in made] == ["Agent"] * len(prompts)
    assert [args["prompt"] for _, args in made] == prompts
    assert {args["subagent_type"] for _, args in made} == {kind}


@pytest.mark.parametrize(("text", "to", "message"), LETTERS, ids=[text for text, *_ in LETTERS])
def test_a_message_is_sent_to_whom_it_is_for(text: str, to: str, message: str) -> None:
    [(name, args)] = asked(text)

    assert (name, args["to"], args["message"]) == ("SendMessage", to, message)
    assert args["summary"]


def test_whom_an_agent_was_named_for_can_be_asked_again_by_that_name() -> None:
    use = ToolUse("t1", "Agent", {"prompt": "run pytest", "name": "Tester"})
    before = (user("go"), assistant(use), Message("user", (ToolResult("t1", "started"),)))

    assert asked("ask tester to stop", *before) == [
        ("SendMessage", {"to": "Tester", "message": "stop", "summary": "stop as asked"})
    ]
    assert asked("ask tester to stop") == [], "nobody is called so here"


def test_an_agent_can_be_asked_again_by_the_name_that_it_was_given() -> None:
    use = ToolUse("t1", "Agent", {"prompt": "run pytest"})
    told = "Agent a-1f2e (explorer-1) works in the background. You will be told when it is done."
    before = (user("go"), assistant(use), Message("user", (ToolResult("t1", told),)))

    [(name, args)] = asked("ask explorer-1 to stop", *before)

    assert (name, args["to"], args["message"]) == ("SendMessage", "explorer-1", "stop")


UNCHANGED = [
    *(text for text, *_ in (*READ, *RUN, *SEARCH, *FILES, *WRITE, *FOUND)),
    "run `make test` in the background",
    "tell me which port it is",
    "write a.txt: hello",
    "write to a.txt: hello",
    "create an agent.py with `x = 1`",
    "find agent in src",
    "have a look at the agent code",
    "run the agent tests",
    "read fork.py",
    "what does the agent do?",
    "告诉我端口是多少",
]


@pytest.mark.parametrize("text", UNCHANGED)
def test_what_other_tools_are_asked_for_stays_theirs(text: str) -> None:
    assert asked(text) == first_calls(text)


@pytest.mark.parametrize("text", [*(t for t, _ in AGENTS), *(t for t, *_ in LETTERS)])
def test_nobody_is_asked_where_the_request_offers_nobody(text: str) -> None:
    assert not {name for name, _ in asked(text, tools=ALL_TOOLS)} & {"Agent", "SendMessage"}


def test_arguments_that_the_tool_does_not_take_are_left_out() -> None:
    schema = {"type": "object", "properties": {"description": {}, "prompt": {}}}

    [(_, args)] = asked("in the background, read a.py", tools={"Agent": schema})

    assert args == {"description": "read a.py as asked", "prompt": "read a.py"}


# --- what comes back --------------------------------------------------------------------------------------


@dataclass
class Staffed(Project):
    """A project with agents: what they say is scripted by their prompt."""

    says: dict[str, str] = field(default_factory=dict)

    def _agent(self, description: str, prompt: str, **how: Any) -> str:
        if prompt not in self.says:
            raise LookupError(f"no agent can {prompt}")
        return self.says[prompt]

    def _sendmessage(self, to: str, message: str, summary: str) -> str:
        return f"queued for {to}"


def staffed(**says: str) -> Talk:
    said = {prompt.replace("_", " "): text for prompt, text in says.items()}
    return Talk(Staffed(says=said), dict(TOOLS))


def test_what_agents_found_is_reported_and_can_be_asked_for() -> None:
    talk = staffed(find_A="A stands in a.py:3", find_B="B stands nowhere")

    said = talk.ask("ask two agents: find A; find B")

    assert talk.rounds == [["Agent", "Agent"]]
    assert "A stands in a.py:3" in said
    assert "B stands nowhere" in said
    assert "B stands nowhere" in talk.ask("what did the agent find?")
    both = talk.ask("what did the agents find?")
    assert "a.py:3" in both
    assert "nowhere" in both


def test_an_agent_that_failed_is_reported_as_such() -> None:
    assert "no agent can fly" in staffed().ask("ask an agent to fly")


def test_a_message_that_was_sent_is_reported_with_what_became_of_it() -> None:
    said = staffed().ask("tell tester that the port is 8471")

    assert "tester" in said
    assert "queued for tester" in said


def test_an_agents_call_can_stand_behind_another_step() -> None:
    talk = staffed(find_port="it is 8080")

    said = talk.ask("read config.toml and then ask an agent to find port")

    assert talk.rounds == [["Read"], ["Agent"]]
    assert "it is 8080" in said


# --- in an agent, and in a fork ---------------------------------------------------------------------------


def test_an_agent_does_what_its_prompt_says() -> None:
    talk = Talk(tools=dict(TOOLS), system="You are an agent that another agent has handed a task.")

    said = talk.ask("read config.toml and tell me the name of the db")

    assert talk.calls == [("Read", {"file_path": "config.toml"})]
    assert "ledger" in said


def forked(task: str, *, worktree: Path | None = None) -> Talk:
    """A fork as it begins: the parent's calls are open, and the task is a directive."""
    order = AgentOrder(description="d", prompt=task, kind="fork")
    uses = [ToolUse(f"t{n}", "Agent", {"prompt": task, "subagent_type": "fork"}) for n in (1, 2)]
    talk = Talk(tools=dict(TOOLS), rules=RULES)
    talk.messages = [
        user("The till listens on port 8471. Delete nothing."),
        assistant(Text("I will remember that.")),
        user(f"fork twice: {task}; read b.py"),
        assistant(*uses),
        Message("user", tuple(ToolResult(use.id, PLACEHOLDER) for use in uses)),
        make_first_message(order, "a-1", worktree),
    ]
    return talk


def ran(talk: Talk) -> str:
    blocks = talk.step()
    while any(isinstance(block, ToolUse) for block in blocks):
        blocks = talk.step()
    return "".join(block.text for block in blocks if isinstance(block, Text))


@pytest.mark.parametrize("worktree", [None, Path("/trees/a-1")])
def test_a_fork_does_its_task_and_no_other(worktree: Path | None) -> None:
    talk = forked("read config.toml and tell me the name of the db", worktree=worktree)

    said = ran(talk)

    assert talk.calls[2:] == [("Read", {"file_path": "config.toml"})]
    assert "ledger" in said
    assert "You are now a fork" not in said


def test_a_fork_knows_what_was_said_before_it() -> None:
    said = ran(forked("which port does the till listen on?"))

    assert "you said: “The till listens on port 8471.”" in said.replace("You said", "you said")


def test_a_fork_on_the_wire_does_the_same() -> None:
    talk = forked("read config.toml")
    content = [{"role": m.role, "content": [_wire(block) for block in m.content]} for m in talk.messages]

    blocks = encode_reply({"messages": content, "tools": [{"name": "Read"}, {"name": "Agent"}]})

    assert [b["input"] for b in blocks if b["type"] == "tool_use"] == [{"file_path": "config.toml"}]


def _wire(block: Any) -> Json:
    if isinstance(block, ToolUse):
        return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}
    if isinstance(block, ToolResult):
        return {"type": "tool_result", "tool_use_id": block.tool_use_id, "content": block.text}
    return {"type": "text", "text": block.text}


def test_a_task_may_stand_in_a_directive_without_words_about_forks() -> None:
    talk = Talk(rules=EngineRules())
    talk.messages = [user(write_directive("agent", "a-1", "read config.toml"))]

    assert "Read config.toml" in ran(talk)


STATUS: list[tuple[str, Json, str]] = [
    ("Read", {"file_path": "src/deep/config.toml"}, "Reading the file config.toml"),
    ("Read", {"file_path": "my notes.md"}, "Reading the file my_notes.md"),
    ("Bash", {"command": "/usr/bin/pytest -q tests"}, "Running the command pytest"),
    ("Grep", {"pattern": "TAX_RATE"}, "Searching the files for TAX_RATE"),
    ("Glob", {"pattern": "**/*.py"}, "Looking for files like **/*.py"),
    ("Edit", {"file_path": "a.py"}, "Editing the file a.py"),
    ("Agent", {"prompt": "x"}, "Waiting for another agent"),
    ("Weather", {"city": "Bergen"}, "Calling the tool Weather"),
    ("Read", {}, "Reading the file something"),
]


@pytest.mark.parametrize(("name", "args", "said"), STATUS, ids=[said for *_, said in STATUS])
def test_the_status_says_in_three_to_five_words_what_is_done(name: str, args: Json, said: str) -> None:
    use = ToolUse("t1", name, args)
    before = (user("go"), assistant(use), Message("user", (ToolResult("t1", "text"),)))
    directive = user(write_directive("status", "s-1", "What is being done?"))

    [block] = make_reply(OfflineConversation((*before, directive), TOOLS))

    assert block == Text(said)
    assert 3 <= len(said.split()) <= 5


def test_the_status_of_what_has_not_begun_or_is_done() -> None:
    directive = user(write_directive("status", "s-1", "What is being done?"))
    begun = (user("go"), assistant(Text("It is done.")))

    assert make_reply(OfflineConversation((user("go"), directive))) == (Text("Beginning with the task"),)
    assert make_reply(OfflineConversation((*begun, directive))) == (Text("Writing up the results"),)
