"""How the offline engine works through a request of several steps, and where it stops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from offline.offline_project import CONFIG, Project, Talk, said

from sevenfold.core.messages import Json, Message, Text, ToolResult, ToolUse, assistant, user
from sevenfold.offline.conversation import OfflineConversation
from sevenfold.offline.plan import MOST_CALLS, SAME_CALL
from sevenfold.offline.reply import EngineRules, make_reply
from sevenfold.offline.steps import ToolCallsStep, ToolCallStep


@pytest.mark.parametrize(
    "text",
    [
        "read config.toml, then run make, and then find port in the project",
        "1. read config.toml\n2. run make\n3. find port in the project",
        "Please do this:\n- read config.toml\n- run make\n- find port in the project",
        "read config.toml\nrun make\nfind port in the project",
        "Read config.toml. Run make. Find port in the project.",
        "read config.toml and run make and find port in the project",
        "先读取 config.toml，然后运行 make，再查找 port",
        "1、读取 config.toml\n2、运行 make\n3、查找 port",
    ],
)
def test_steps_are_done_one_after_the_other(text: str) -> None:
    talk = Talk(Project(outputs={"make": "built"}))
    talk.ask(text)
    assert talk.rounds == [["Read"], ["Bash"], ["Grep"]]


def test_each_step_waits_for_the_results_of_the_one_before() -> None:
    talk = Talk(Project(outputs={"make": "built"}))
    talk.messages.append(user("read config.toml then run make"))
    first, second, last = talk.step(), talk.step(), talk.step()
    assert [b.name for b in first if isinstance(b, ToolUse)] == ["Read"]
    assert [b.name for b in second if isinstance(b, ToolUse)] == ["Bash"]
    assert [type(b) for b in last] == [Text]


def test_what_was_found_is_said_briefly() -> None:
    talk = Talk(Project(outputs={"make": "compiling\nlinking", "true": ""}))
    text = talk.ask("read config.toml then run make then run true")
    assert "Read config.toml: 7 lines." in text
    assert 'host = "0.0.0.0"' in text
    assert "Ran `make`: 2 lines of output." in text
    assert "Ran `true`: no output." in text


def test_what_is_shown_of_a_result_is_its_beginning_as_it_stands() -> None:
    text = Talk(Project({"a.md": "one\n\n```\ntwo\n" + "more\n" * 20})).ask("read a.md")
    assert text == "Read a.md: 24 lines.\n\n````\none\n\n```\ntwo\n" + "more\n" * 4 + "…\n````"


def test_of_a_failure_the_beginning_and_the_end_are_shown() -> None:
    class Broken(Project):
        def _bash(self, command: str, run_in_background: bool = False) -> str:
            raise LookupError("Exit code 2\n" + "\n".join(f"line {n}" for n in range(1, 21)))

    text = Talk(Broken()).ask("run make")
    assert "failed with exit code 2." in text
    assert "line 4\n…\nline 17" in text


def test_a_question_beside_a_request_is_answered_from_what_was_fetched() -> None:
    talk = Talk()
    text = talk.ask("read config.toml and tell me which port the server uses")
    assert talk.rounds == [["Read"]]
    assert "In the output of Read config.toml: “[server] … port = 8080”" in text


def test_a_question_in_chinese_is_answered_in_chinese() -> None:
    text = Talk().ask("读取 config.toml 并告诉我 host 是多少")
    assert "在 Read config.toml 的输出中" in text
    assert 'host = "0.0.0.0"' in text


def test_it_means_the_file_that_was_spoken_of_last() -> None:
    talk = Talk()
    talk.ask('write "a = 1" to new.toml, then read it, then replace 1 with 2 in it')
    assert talk.project.files["new.toml"] == "a = 2"
    talk.ask("read it")
    assert talk.calls[-1] == ("Read", {"file_path": "new.toml"})


def test_it_means_nothing_when_no_file_was_spoken_of() -> None:
    talk = Talk()
    assert "does not say which file" in talk.ask("read it")
    assert talk.calls == []


def test_a_file_that_was_read_before_is_edited_at_once() -> None:
    talk = Talk()
    talk.ask("read config.toml")
    talk.ask("replace 8080 with 9090 in ./config.toml")
    assert talk.rounds == [["Read"], ["Edit"]]


def test_a_failed_read_does_not_count_as_having_read() -> None:
    talk = Talk()
    talk.ask("read late.toml")
    talk.project.files["late.toml"] = "port = 1"
    talk.ask("replace 1 with 2 in late.toml")
    assert talk.rounds == [["Read"], ["Read"], ["Edit"]]


def test_a_failure_is_reported_and_ends_the_plan() -> None:
    talk = Talk()
    text = talk.ask("read missing.txt then run make")
    assert talk.rounds == [["Read"]]
    assert "Read missing.txt failed: missing.txt does not exist" in text
    assert "Not done because of this: Bash `make`." in text


def test_an_exit_code_is_reported() -> None:
    text = Talk().ask("run frobnicate")
    assert "Bash `frobnicate` failed with exit code 127." in text
    assert "frobnicate: command not found" in text


def test_a_failed_step_is_tried_once_more_when_told_to_continue_and_then_no_more() -> None:
    talk = Talk(Project(outputs={"make": "built"}))
    talk.ask("read late.txt then run make")
    talk.ask("continue")
    talk.ask("continue")
    assert talk.rounds == [["Read"], ["Read"]]


def test_a_plan_goes_on_after_a_failure_was_mended() -> None:
    talk = Talk(Project(outputs={"make": "built"}))
    talk.ask("read late.txt then run make")
    talk.project.files["late.txt"] = "here"
    text = talk.ask("continue")
    assert talk.rounds == [["Read"], ["Read"], ["Bash"]]
    assert "built" in text


def test_a_plan_that_was_stopped_goes_on_where_it_stopped() -> None:
    talk = Talk(Project(outputs={"make": "built"}))
    talk.messages.append(user("read config.toml then run make then find port in the project"))
    talk.step()
    talk.ask("go on")
    assert talk.rounds == [["Read"], ["Bash"], ["Grep"]]


def test_there_is_nothing_to_continue_when_nothing_was_asked() -> None:
    assert said(user("continue")) == "Nothing is left to continue."
    assert said(user("继续")) == "没有可以继续的内容了。"


def test_the_same_call_is_made_at_most_twice_for_one_request() -> None:
    talk = Talk(Project(outputs={"date": "today"}))
    text = talk.ask("run date then run date then run date then run date")
    assert len(talk.calls) == SAME_CALL
    assert "will not make it again" in text


def test_a_request_without_end_is_bounded() -> None:
    names = [f"c{n}" for n in range(200)]
    talk = Talk(Project(outputs=dict.fromkeys(names, "ok")))
    text = talk.ask(" then ".join(f"run {name}" for name in names[:60]))
    assert len(talk.calls) == MOST_CALLS
    assert "more than I do for one request" in text


def test_a_client_that_rewrites_the_calls_does_not_make_the_engine_loop() -> None:
    messages = [user("read a.txt then run make")]
    for n in range(20):
        blocks = make_reply(OfflineConversation(tuple(messages), {"Read": {}, "Bash": {}}))
        uses = [b for b in blocks if isinstance(b, ToolUse)]
        if not uses:
            break
        changed = [ToolUse(f"other_{n}", u.name, {"path": "/elsewhere"}) for u in uses]
        messages.append(assistant(*changed))
        messages.append(Message("user", tuple(ToolResult(u.id, "ok") for u in changed)))
    assert n <= 2


def test_a_call_that_lost_its_neighbour_is_not_made_again() -> None:
    done = ToolUse("t1", "Read", {"file_path": "a.py"})
    messages = (user("open a.py and b.py"), assistant(done), Message("user", (ToolResult("t1", "1\tx"),)))
    blocks = make_reply(OfflineConversation(messages, {"Read": {}}))
    assert [b.input for b in blocks if isinstance(b, ToolUse)] == [{"file_path": "b.py"}]


def test_a_tool_that_is_not_offered_is_named() -> None:
    text = said(user("run make"), Read={})
    assert (
        text == "I cannot do this here: Bash `make` needs the tool Bash, which this request does not offer."
    )


def test_what_comes_before_a_missing_tool_is_still_done() -> None:
    talk = Talk(tools={"Read": {}})
    text = talk.ask("read config.toml then run make then read config.toml")
    assert talk.rounds == [["Read"]]
    assert "needs the tool Bash" in text
    assert "Not done because of this: Read config.toml." in text


def test_text_that_was_only_described_is_not_invented() -> None:
    assert "only write text that is given word for word" in said(user("write a poem to poem.txt"))
    assert "does not say what the file is to hold" in said(user("create x.txt"))
    assert "does not say which command" in said(user("run the tests"))
    assert "I cannot search the web" in said(user("search the web for cats"))


def test_ids_of_calls_differ_from_place_to_place() -> None:
    talk = Talk()
    for _ in range(3):
        talk.ask("read config.toml and read config.toml")
    ids = [u.id for m in talk.messages for u in m.tool_uses]
    assert len(set(ids)) == len(ids) == 6


def test_ids_differ_after_the_view_was_shortened_to_the_same_length() -> None:
    tools: dict[str, Json] = {"Read": {}}
    long = (user("one"), assistant(Text("1")), user("read a.py"))
    short = (user("summary of one"), assistant(Text("2")), user("read a.py"))
    (first,) = [b for b in make_reply(OfflineConversation(long, tools)) if isinstance(b, ToolUse)]
    (second,) = [b for b in make_reply(OfflineConversation(short, tools)) if isinstance(b, ToolUse)]
    assert first.id != second.id


def test_remembering_keeps_it_in_view_and_says_so() -> None:
    talk = Talk()
    text = talk.ask("remember that the codename is bluebird")
    assert "“the codename is bluebird”" in text
    assert "not written to any memory file" in text
    assert "bluebird" in talk.ask("what is the codename?")
    assert "蓝鸟" in talk.ask("请记住：代号是蓝鸟")
    assert "蓝鸟" in talk.ask("代号是什么？")
    assert talk.calls == []


def test_remembering_saves_in_two_steps_where_a_rule_knows_the_place() -> None:
    def save(conversation: OfflineConversation, text: str) -> tuple[ToolCallsStep, ...]:
        place = conversation.system.removeprefix("memory: ")
        topic = ToolCallStep("Write", {"file_path": f"{place}/topic.md", "content": text})
        index = ToolCallStep("Write", {"file_path": f"{place}/INDEX.md", "content": "- topic.md"})
        return (ToolCallsStep((topic,)), ToolCallsStep((index,))) if place else ()

    talk = Talk(rules=EngineRules(save=save), system="memory: /m")
    text = talk.ask("remember that the codename is bluebird")
    assert talk.rounds == [["Write"], ["Write"]]
    assert talk.project.files["/m/topic.md"] == "the codename is bluebird"
    assert "Wrote /m/INDEX.md." in text
    talk.system = ""
    assert "not written to any memory file" in talk.ask("remember that the port is 1")


STEPS = st.sampled_from(
    [
        "read config.toml",
        "read missing.txt",
        "run make",
        "run nothing",
        "replace 8080 with 9090 in config.toml",
        "write x to a.txt",
        "find port in the project",
        "list files",
        "what is the port?",
        "tell me the result",
        "remember that it is late",
        "fly to the moon",
        "continue",
        "读取 config.toml",
    ]
)


@given(st.lists(STEPS, min_size=1, max_size=8), st.sampled_from([" then ", "\n", ". ", " and "]))
def test_every_request_comes_to_an_end_with_words(steps: list[str], glue: str) -> None:
    talk = Talk(Project({"config.toml": CONFIG}, {"make": "built"}))
    assert talk.ask(glue.join(steps), most=2 * len(steps) + 1).strip()
    counted = [str(call) for call in talk.calls]
    assert all(counted.count(call) <= SAME_CALL for call in counted)
