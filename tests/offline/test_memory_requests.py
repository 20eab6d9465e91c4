"""What the offline engine does when it is told to remember something."""

from __future__ import annotations

from pathlib import Path

import pytest
from offline.offline_project import ALL_TOOLS, Project, Talk

from sevenfold.core.messages import ToolUse, user
from sevenfold.core.request import Frame, Request
from sevenfold.core.transcript import Reply, Transcript
from sevenfold.layers.l5_durable_memory.prompt import format_memory_prompt
from sevenfold.memory.folder.names import explain_bad_file
from sevenfold.memory.topic_file import Topic, read_topic
from sevenfold.offline import OfflineEngine
from sevenfold.offline.conversation import OfflineConversation
from sevenfold.offline.memory_requests import find_memory_folder
from sevenfold.offline.reply import RULES, make_reply

FOLDER = "/home/me/.sevenfold/projects/p/memory"
SYSTEM = "You are an agent.\n\n" + format_memory_prompt(Path(FOLDER), Path(FOLDER).parent)


def talk() -> Talk:
    return Talk(rules=RULES, system=SYSTEM)


def kept(text: str) -> Topic:
    """The one memory that comes of these words."""
    conversation = talk()
    conversation.ask(text)
    [(name, given)] = conversation.calls
    assert name == "Write"
    file = given["file_path"].removeprefix(FOLDER + "/")
    assert explain_bad_file(file) == ""
    topic = read_topic(given["content"].encode(), file)
    assert topic.problems == ()
    return topic


def test_the_folder_is_the_one_that_the_rules_of_memory_name() -> None:
    assert find_memory_folder(SYSTEM) == FOLDER
    assert find_memory_folder("You are an agent.") is None


@pytest.mark.parametrize(
    ("said", "file", "kind", "body"),
    [
        (
            "remember that we never mock the database in tests",
            "never-mock-database-tests.md",
            "feedback",
            "we never mock the database in tests",
        ),
        ("Remember: use tabs, not spaces", "use-tabs-not-spaces.md", "feedback", "use tabs, not spaces"),
        (
            "please don't forget to run make lint before pushing",
            "run-make-lint-before-pushing.md",
            "feedback",
            "run make lint before pushing",
        ),
        (
            "remember I'm a data scientist and new to Go",
            "data-scientist-new-go.md",
            "user",
            "I'm a data scientist and new to Go",
        ),
        (
            "remember that the dashboards are at https://grafana.example.com/d/abc",
            "dashboards.md",
            "reference",
            "the dashboards are at https://grafana.example.com/d/abc",
        ),
        (
            "remember that the release is on 2026-03-01",
            "release-2026-03-01.md",
            "project",
            "the release is on 2026-03-01",
        ),
        ("记住：不要在周五发布", "不要在周五发布.md", "feedback", "不要在周五发布"),
        ("请记住我是放射科医生", "我是放射科医生.md", "user", "我是放射科医生"),
        (
            "记住生产数据库是 Postgres 14",
            "生产数据库是-postgres-14.md",
            "project",
            "生产数据库是 Postgres 14",
        ),
        (
            "记住文档在 https://wiki.example.cn/rig",
            "文档在.md",
            "reference",
            "文档在 https://wiki.example.cn/rig",
        ),
    ],
)
def test_it_becomes_a_memory_with_a_name_a_type_and_the_words_as_they_were_said(
    said: str, file: str, kind: str, body: str
) -> None:
    topic = kept(said)

    assert (topic.file, topic.type, topic.body) == (file, kind, body)
    assert topic.name == file.removesuffix(".md")
    assert topic.description == body


def test_the_reason_that_follows_belongs_to_it() -> None:
    topic = kept(
        "Remember that we never mock the database. Why: it broke in 2024. How to apply: use the container."
    )

    assert topic.description == "we never mock the database."
    assert topic.body.splitlines()[1:] == ["Why: it broke in 2024.", "How to apply: use the container."]


def test_a_request_that_follows_is_done_and_not_remembered() -> None:
    conversation = talk()
    text = conversation.ask("Remember that the port is 8080. Read config.toml.")

    assert conversation.rounds == [["Write"], ["Read"]]
    assert "I have saved this to memory: " in text
    assert "Read" not in conversation.calls[0][1]["content"]


def test_it_is_said_that_it_was_saved_in_the_language_of_the_person() -> None:
    assert f"I have saved this to memory: {FOLDER}/port-8080.md." in talk().ask(
        "remember that the port is 8080"
    )
    assert "已存入记忆" in talk().ask("记住端口是八零八零")


@pytest.mark.parametrize(
    "said",
    [
        "note that it is late",
        "keep in mind that it is late",
        "remember what I said about ports",
        "remember this",
        "do you remember the port?",
        "remember when we met?",
        "你还记得端口吗？",
    ],
)
def test_what_is_no_statement_to_keep_is_not_written(said: str) -> None:
    conversation = talk()
    conversation.ask(said)

    assert conversation.calls == []


def test_without_memory_it_only_stays_in_view_and_says_so() -> None:
    assert "not written to any memory file" in Talk(rules=RULES).ask("remember that it is late now")
    bare = Talk(rules=RULES, system=SYSTEM, tools={"Read": ALL_TOOLS["Read"]})
    assert "not written to any memory file" in bare.ask("remember that it is late now")


def test_a_key_does_not_become_part_of_a_file_name() -> None:
    [write] = [
        block
        for block in make_reply(
            OfflineConversation(
                (user("remember that the key is AKIAIOSFODNN7EXAMPLZ for deploys"),), ALL_TOOLS, SYSTEM
            )
        )
        if isinstance(block, ToolUse)
    ]

    assert write.input["file_path"] == f"{FOLDER}/key-deploys.md"


def test_what_the_guard_refuses_is_told_and_not_tried_again() -> None:
    class Guarded(Project):
        def _write(self, file_path: str, content: str) -> str:
            raise LookupError("refused: line 7 looks like an AWS access key")

    conversation = Talk(Guarded(), rules=RULES, system=SYSTEM)
    text = conversation.ask("remember that the key is AKIAIOSFODNN7EXAMPLZ")

    assert len(conversation.calls) == 1
    assert "refused: line 7 looks like an AWS access key" in text
    assert "saved this to memory" not in text


def test_the_same_subject_is_the_same_file() -> None:
    assert kept("remember that the staging port is 1").file != kept("remember we use tabs here").file
    assert kept("Remember that the staging port is 1").file == kept("remember: staging port is 1").file


@pytest.mark.anyio
async def test_the_engine_does_it_for_a_request_as_a_session_sends_it() -> None:
    log = Transcript(lambda: 0.0)
    log.add(user("remember that the port is 8080"), by="user")
    tools = tuple({"name": name, "input_schema": schema} for name, schema in ALL_TOOLS.items())
    request = Request(Frame("offline", (SYSTEM,), tools), log.view)

    said = [each async for each in OfflineEngine().stream(request)]

    reply = said[-1]
    assert isinstance(reply, Reply)
    assert [use.name for use in reply.message.tool_uses] == ["Write"]
