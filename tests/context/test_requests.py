"""What `prepare` returns: ready for the SDK, with our cache marks and no others, and nothing of ours."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from context.conversing import (
    LARGE,
    MODEL,
    Caller,
    Json,
    answered,
    called,
    chat_called,
    chat_result,
    extends,
    marked,
    result,
    results,
    said,
)
from models.asking import remove_cache_marks
from msgspec.structs import replace

from sevenfold.context.context import Context
from sevenfold.core.errors import Mistake
from sevenfold.core.events import Closed, Event, Replied, Sending, Started, Stored
from sevenfold.core.messages import Text, assistant
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Reply
from sevenfold.simulator.validation import check_marks, check_pairs

MARK = {"type": "ephemeral"}
TOOL: Json = {"name": "Bash", "description": "runs", "input_schema": {"type": "object"}}
FUNCTION: Json = {"type": "function", "function": {"name": "Bash", "parameters": {"type": "object"}}}
SMALL: Json = {"toolResults": {"mostCharacters": 500, "previewBytes": 20}}
LONG = "a long line of output\n" * 100
HISTORY = [said("go"), called("a"), results(result("a", LONG)), answered("so"), said("more")]


def plain_context(folder: Path, model: str = MODEL, **more: Any) -> Context:
    return Context(model, environ={"HOME": str(folder)}, **more)


# --- the Messages API -------------------------------------------------------------------------------------


def test_a_request_is_ready_for_the_sdk(tmp_path: Path) -> None:
    request = Caller(tmp_path).ctx.prepare(
        [said("go")], system="be brief", tools=[TOOL], temperature=0.5, stream=True
    )
    assert request == {
        "model": MODEL,
        "max_tokens": 16_000,
        "system": [{"type": "text", "text": "be brief", "cache_control": MARK}],
        "tools": [TOOL],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "go", "cache_control": MARK}]}],
        "temperature": 0.5,
        "stream": True,
    }


@pytest.mark.parametrize(
    ("model", "params", "expected"),
    [
        (MODEL, {}, 16_000),
        ("claude-3-haiku-20240307", {}, 4_096),
        (MODEL, {"max_tokens": 50}, 50),
        ("claude-sonnet-4-5", {"thinking": {"type": "enabled", "budget_tokens": 20_000}}, 36_000),
    ],
)
def test_the_longest_reply_is_what_the_model_can_and_the_caller_wants(
    tmp_path: Path, model: str, params: Json, expected: int
) -> None:
    with plain_context(tmp_path, model) as ctx:
        assert ctx.prepare([said("go")], **params)["max_tokens"] == expected


def test_the_settings_say_how_long_a_reply_may_be(tmp_path: Path) -> None:
    with plain_context(tmp_path, settings={"maxOutputTokens": 777}) as ctx:
        assert ctx.prepare([said("go")])["max_tokens"] == 777


def test_marks_of_the_caller_give_way_to_ours(tmp_path: Path) -> None:
    system = [
        {"type": "text", "text": "a", "cache_control": {**MARK, "ttl": "1h"}},
        {"type": "text", "text": "b"},
        {"type": "text", "text": "c", "cache_control": MARK},
    ]
    tools = [TOOL, {**TOOL, "name": "Other", "cache_control": MARK}]
    inner = [{"type": "text", "text": "x", "cache_control": MARK}]
    history = [
        marked(said("go")),
        marked(called("a")),
        results(result("a", inner, cache_control=MARK)),
        said("more"),
    ]
    before = copy.deepcopy((system, tools, history))

    request = Caller(tmp_path).ctx.prepare(history, system=system, tools=tools, cache_control=MARK)

    check_marks(request)
    assert "cache_control" not in request
    assert [("cache_control" in part) for part in request["system"]] == [True, False, True]
    assert json.dumps(request["system"]).count("1h") == 0
    assert json.dumps([request["tools"], request["messages"][:-1]]).count("cache_control") == 0
    assert "cache_control" in request["messages"][-1]["content"][-1]
    assert (system, tools, history) == before


def test_a_mark_stays_at_the_old_end_when_much_was_added(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    ids = [f"u{n}" for n in range(12)]
    history = [said("go"), called(*ids), results(*(result(id) for id in ids))]
    caller.send(history[:1])
    request = caller.ctx.prepare(history, system="s")
    marks = ["cache_control" in json.dumps(message) for message in request["messages"]]
    assert marks == [True, False, True]
    check_marks(request)


def test_the_lifetime_of_marks_is_a_setting(tmp_path: Path) -> None:
    request = Caller(tmp_path, settings={"cacheTtl": "1h"}).ctx.prepare([said("go")], system="s")
    assert request["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert request["messages"][0]["content"][0]["cache_control"]["ttl"] == "1h"


@pytest.mark.parametrize("system", [None, "", []])
def test_no_system_prompt_is_none(tmp_path: Path, system: Any) -> None:
    assert "system" not in Caller(tmp_path).ctx.prepare([said("go")], system=system)


def test_fields_of_a_system_block_that_we_do_not_know_are_kept(tmp_path: Path) -> None:
    blocks = [{"type": "text", "text": "a", "citations": [{"x": 1}]}, {"type": "new", "y": 2}]
    out = Caller(tmp_path).ctx.prepare([said("go")], system=blocks)["system"]
    assert remove_cache_marks(out) == blocks
    assert "cache_control" not in out[1], "of what we do not know we cannot tell whether it may"


def test_the_providers_context_management_goes_out_past_the_sdks_parameters(tmp_path: Path) -> None:
    with plain_context(tmp_path, settings={"micro": {"policy": "plain"}}) as ctx:
        request = ctx.prepare(
            [said("go")],
            tools=[TOOL],
            extra_headers={"Anthropic-Beta": "mine", "x-own": "1"},
            extra_body={"own": 1},
        )
    assert request["extra_headers"] == {
        "Anthropic-Beta": "mine,context-management-2025-06-27",
        "x-own": "1",
    }
    assert request["extra_body"]["own"] == 1
    edits = request["extra_body"]["context_management"]["edits"]
    assert edits[0]["type"] == "clear_tool_uses_20250919"


def test_context_management_of_the_caller_is_passed_on_as_it_is(tmp_path: Path) -> None:
    own: Json = {"edits": []}
    with plain_context(tmp_path) as ctx:
        request = ctx.prepare([said("go")], context_management=own)
        assert request["context_management"] == own
        assert "extra_body" not in request
    with plain_context(tmp_path, settings={"flags": {"micro_api": False}}) as ctx:
        assert {"extra_body", "extra_headers"}.isdisjoint(ctx.prepare([said("go")]))


def test_a_million_tokens_are_asked_for_by_their_header(tmp_path: Path) -> None:
    settings = {"flags": {"micro_api": False}}
    with plain_context(tmp_path, "claude-sonnet-4-5[1m]", settings=settings) as ctx:
        request = ctx.prepare([said("go")])
    assert request["model"] == "claude-sonnet-4-5"
    assert request["extra_headers"] == {"anthropic-beta": "context-1m-2025-08-07"}


def test_deletions_in_the_providers_cache_stay_where_they_were_made(tmp_path: Path) -> None:
    able = replace(LARGE, edits_cache=True)
    settings = {"micro": {"cacheEditTrigger": 3, "keepRecent": 1}}
    caller = Caller(tmp_path, settings=settings, able=able)
    history = [said("go")]
    before: list[Any] = []
    for n in range(12):
        history += [called(f"u{n}"), results(result(f"u{n}", f"output {n} " * 90))]
        out = caller.send(history)
        check_pairs(out)
        assert extends(before, out)
        before = out
    edits = [m for m in before if "cache_edits" in str(m)]
    assert edits[0]["content"][0]["delete"][0] == "u0"
    assert [m for m in before if m in history] == history
    assert "To make room" in str(before), "a message of the layer stands among the caller's"


# --- chat completions -------------------------------------------------------------------------------------


def test_a_chat_request_is_ready_for_the_sdk(tmp_path: Path) -> None:
    history = [
        {"role": "developer", "content": "rules"},
        said("go"),
        {"role": "system", "content": "now in French"},
        {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": MARK}]},
    ]
    request = Caller(tmp_path, "openai").ctx.prepare(
        history, system="be brief", tools=[FUNCTION], temperature=0.5, max_completion_tokens=9
    )
    assert request == {
        "model": MODEL,
        "tools": [FUNCTION],
        "messages": [{"role": "system", "content": "be brief"}, *history],
        "temperature": 0.5,
        "max_completion_tokens": 9,
    }


def test_other_instructions_and_tools_are_a_break_that_the_ledger_explains(tmp_path: Path) -> None:
    caller = Caller(tmp_path, "openai")
    first, second = {"role": "system", "content": "a"}, {"role": "system", "content": "b"}
    usage = {"prompt_tokens": 5_000, "prompt_tokens_details": {"cached_tokens": 4_000}}

    def step(leading: Json, **more: Any) -> str:
        caller.ctx.prepare([leading, said("go")], **more)
        message = {"role": "assistant", "content": "yes"}
        caller.ctx.record({"choices": [{"message": message}], "usage": usage})
        return str(caller.told(Sending)[-1].why)

    assert step(first, tools=[FUNCTION]) == ""
    assert step(first, tools=[FUNCTION]) == ""
    assert step(second, tools=[FUNCTION]) == "the system prompt changed in part 1"
    renamed = {"type": "function", "function": {"name": "Shell"}}
    assert step(second, tools=[renamed]) == "the tools changed: +Shell, -Bash"
    assert step(second, tools=[renamed], temperature=1) == ""
    shape = {"response_format": {"type": "json_object"}}
    assert step(second, tools=[renamed], **shape) == "request parameters changed: response_format"
    assert step(second, tools=[renamed], **shape, model="gpt-9").startswith("the model changed")


# --- whose objects ----------------------------------------------------------------------------------------


def test_nothing_that_is_done_to_a_request_reaches_us(tmp_path: Path) -> None:
    caller = Caller(tmp_path, settings=SMALL)
    tools, system = [copy.deepcopy(TOOL)], [{"type": "text", "text": "s"}]
    request = caller.ctx.prepare(copy.deepcopy(HISTORY), system=system, tools=tools)
    expected = copy.deepcopy(request)

    ruin(request)

    again = caller.ctx.prepare(
        copy.deepcopy(HISTORY), system=[{"type": "text", "text": "s"}], tools=[copy.deepcopy(TOOL)]
    )
    assert again == expected
    assert "<persisted-output>" in again["messages"][2]["content"][0]["content"]


def ruin(value: Any) -> None:
    """Change everything that can be changed."""
    inside = list(value.values()) if isinstance(value, dict) else list(value)
    for item in inside:
        if isinstance(item, dict | list):
            ruin(item)
    if isinstance(value, dict):
        value["ruined"] = True
    else:
        value.append("ruined")


def test_the_input_is_read_and_never_written(tmp_path: Path) -> None:
    for format, history in (
        ("anthropic", [marked(m) for m in HISTORY]),
        ("openai", [said("go"), chat_called("a"), chat_result("a", LONG), said("more")]),
    ):
        caller = Caller(tmp_path, format, settings=SMALL)  # type: ignore[arg-type]
        before = copy.deepcopy(history)
        for _ in range(3):
            caller.ctx.prepare(history, tools=[TOOL if format == "anthropic" else FUNCTION])
        assert history == before
        caller.ctx.prepare(tuple(history))


def test_the_same_input_gives_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    code = (
        "import json, sys; from sevenfold import Context\n"
        "history, folder = json.loads(sys.argv[1]), sys.argv[2]\n"
        "ctx = Context('claude-sonnet-5', state=folder + '/state', id='one', environ={'HOME': folder})\n"
        "print(json.dumps(ctx.prepare(history, system='s', tools=[{'name': 'Bash'}])))"
    )
    out = set()
    for seed in ("0", "1", "77"):
        command = [sys.executable, "-c", code, json.dumps(HISTORY), str(tmp_path)]
        env = {"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
        out.add(done.stdout)
        (tmp_path / "state" / "one.jsonl").unlink()
    assert len(out) == 1


# --- reading back -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tools", "said_how"),
    [
        (["Read", "Grep", "Bash"], "Read that file with offset and limit"),
        (["ReadResult", "Bash"], "call ReadResult with that path"),
        (["Bash"], None),
    ],
)
def test_the_model_is_told_how_to_read_on_with_the_tools_it_has(
    tmp_path: Path, tools: list[str], said_how: str | None
) -> None:
    caller = Caller(tmp_path, settings=SMALL)
    offered = [{**TOOL, "name": name} for name in tools]
    out = caller.send(HISTORY, tools=offered)
    shown = out[2]["content"][0]["content"]
    assert caller.told(Stored)[0].path in shown
    assert (said_how in shown) if said_how else ("To see more" not in shown)


def test_an_agent_without_file_tools_reads_back_with_ours(tmp_path: Path) -> None:
    caller = Caller(tmp_path, settings=SMALL)
    assert caller.ctx.read_back_tool["name"] == "ReadResult"
    caller.send(HISTORY, tools=[caller.ctx.read_back_tool])
    path = caller.told(Stored)[0].path

    assert "a long line of output" in caller.ctx.read_back({"path": path, "offset": 99})
    assert "100\ta long line" in caller.ctx.read_back(json.dumps({"path": path, "offset": 100}))
    assert "did not work" in caller.ctx.read_back({"path": "/etc/passwd"})
    assert "there is no field file" in caller.ctx.read_back({"file": path})
    assert "offset takes an integer" in caller.ctx.read_back({"path": path, "offset": "x"})
    assert "did not work" in caller.ctx.read_back("{not json")


def test_the_tool_to_read_back_is_defined_in_the_callers_format(tmp_path: Path) -> None:
    with plain_context(tmp_path, "gpt-5.4", format="openai") as ctx:
        tool = ctx.read_back_tool
        assert tool["type"] == "function"
        assert tool["function"]["name"] == "ReadResult"
        assert tool["function"]["parameters"]["type"] == "object"
        tool["function"]["parameters"].clear()
        assert ctx.read_back_tool["function"]["parameters"]


# --- beside the loop --------------------------------------------------------------------------------------


def test_everything_that_happens_is_an_event(tmp_path: Path) -> None:
    events: list[Event] = []
    ctx = plain_context(tmp_path)
    end = ctx.subscribe(events.append)
    ctx.prepare([said("go")])
    ctx.record(Reply(assistant(Text("yes")), Usage(input=1_000, output=10), model=MODEL))
    ctx.close()
    end()
    ctx.emit(Closed("x", "y"))
    assert [type(event) for event in events] == [Started, Sending, Replied, Closed]
    replied = events[2]
    assert isinstance(replied, Replied)
    assert replied.cost is not None
    assert replied.cost > 0
    assert ctx.ledger.total.requests == 1


def test_rest_does_nothing_where_no_layer_works_in_the_background(tmp_path: Path) -> None:
    with plain_context(tmp_path) as ctx:
        ctx.rest_sync()
        ctx.prepare([said("go")])
        ctx.record(Reply(assistant(Text("yes"))))
        before = ctx.view
        ctx.rest_sync()
        assert ctx.view is before


def test_a_name_is_looked_up_and_nothing_is_connected(tmp_path: Path) -> None:
    with plain_context(tmp_path, "claude-opus-4-5") as ctx:
        assert ctx.model.capabilities.window == 200_000
        with pytest.raises(Mistake, match="only knows the name of claude-opus-4-5"):
            ctx.model.stream(None)  # type: ignore[arg-type]
    with plain_context(tmp_path, "my-own", format="openai", settings={"window": 32_000}) as ctx:
        assert ctx.model.capabilities.window == 32_000


def test_settings_of_the_user_hold_and_those_of_a_project_are_not_read(tmp_path: Path) -> None:
    home, project = tmp_path / ".sevenfold", tmp_path / "project"
    (project / ".sevenfold").mkdir(parents=True)
    home.mkdir()
    (home / "settings.json").write_text('{"maxOutputTokens": 99}', encoding="utf-8")
    (project / ".sevenfold" / "settings.json").write_text('{"maxSteps": "x"}', encoding="utf-8")
    with plain_context(tmp_path) as ctx:
        assert ctx.prepare([said("go")])["max_tokens"] == 99
    with plain_context(tmp_path, home=tmp_path / "elsewhere") as ctx:
        assert ctx.prepare([said("go")])["max_tokens"] == 16_000
