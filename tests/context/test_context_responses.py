"""`Context(format="responses")`: items in, items out; it steps aside where the server has the history."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from context.conversing import Caller, Json
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.context.formats import CallerRequest
from sevenfold.context.responses import ResponsesFormat
from sevenfold.core.errors import Mistake
from sevenfold.core.events import Notice
from sevenfold.core.protocols import Capabilities
from sevenfold.simulator import ManualClock, Simulator, parse_steps, run_in_thread

openai = pytest.importorskip("openai")

READ: Json = {
    "type": "function",
    "name": "Read",
    "parameters": {"type": "object", "properties": {"file_path": {"type": "string"}}},
}
IDLE: Json = {"flags": {"tool_results": False, "micro_api": False}}
CLEARS: Json = {"flags": {"micro_cost": False, "micro_time": True}, "micro": {"keepRecent": 1}}


def said(text: str, role: str = "user") -> Json:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def reasoning(n: int) -> Json:
    return {"type": "reasoning", "id": f"rs_{n}", "summary": [], "encrypted_content": f"secret {n}" * 20}


def called(id: str, name: str = "Read", **more: Any) -> Json:
    arguments = json.dumps({"file_path": f"{id}.txt"})
    return {"type": "function_call", "call_id": id, "name": name, "arguments": arguments, **more}


def output(id: str, text: Any = "fine") -> Json:
    return {"type": "function_call_output", "call_id": id, "output": text}


def work(n: int, text: str = "a line of text\n") -> list[Json]:
    return [reasoning(n), called(f"c{n}"), output(f"c{n}", f"{n} {text}")]


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    return Caller(tmp_path, "responses")


def test_a_request_has_the_fields_of_the_call(caller: Caller) -> None:
    items = [said("Rules.", "developer"), said("hello")]
    request = caller.ctx.prepare(items, system="Be brief.", tools=[READ], store=False, stream=True)
    assert request == {
        "model": "claude-sonnet-5",
        "instructions": "Be brief.",
        "tools": [READ],
        "input": items,
        "store": False,
        "stream": True,
    }


def test_instructions_and_leading_messages_are_the_system_prompt() -> None:
    asked = CallerRequest("gpt-5.5", (said("Rules.", "developer"),), "Be brief.", None, {"text": {"x": 1}})
    frame = ResponsesFormat().make_frame(asked, "5m")
    assert frame.system[0] == "Be brief."
    assert json.loads(frame.system[1]) == said("Rules.", "developer")
    assert frame.params == {"text": {"x": 1}}


def test_a_text_is_one_message(caller: Caller) -> None:
    assert caller.ctx.prepare("hello")["input"] == [{"role": "user", "content": "hello"}]


def test_a_reply_stands_in_one_message_of_the_view(caller: Caller) -> None:
    items: list[Any] = [said("go")]
    caller.ctx.prepare(items)
    reply = [reasoning(1), said("Let me look.", "assistant"), called("c1"), called("c2")]
    usage = {"input_tokens": 900, "input_tokens_details": {"cached_tokens": 512}, "output_tokens": 9}
    caller.ctx.record({"id": "resp_1", "status": "completed", "output": reply, "usage": usage})
    items += [*reply, output("c1"), output("c2")]
    assert caller.send(items) == items
    roles = [placed.message.role for placed in caller.ctx.view]
    assert roles == ["user", "assistant", "user"]
    assert caller.ctx.ledger.total.usage.cache_read == 512


def test_only_outputs_are_cleared_and_reasoning_stays_with_its_item(tmp_path: Path) -> None:
    caller = Caller(tmp_path, "responses", settings=CLEARS)
    strange = {"type": "hologram", "beam": "x" * 4_000}
    shell = [
        {"type": "local_shell_call", "call_id": "s1", "action": {"command": ["ls"]}},
        {"type": "local_shell_call_output", "id": "s1", "output": "y" * 4_000},
    ]
    items = [said("go"), *work(1, "long " * 3_000), strange, *shell, *work(2, "long " * 3_000), said("on")]
    caller.send(items, tools=[READ])
    caller.ctx.record({"output": [said("ok", "assistant")], "usage": {"input_tokens": 9}})
    caller.clock.time += 7_200
    items += [said("ok", "assistant"), said("more")]
    out = caller.send(items, tools=[READ])
    changed = [n for n, (new, old) in enumerate(zip(out, items, strict=True)) if new != old]
    assert changed == [3]
    assert out[3]["output"].startswith("(cleared: ")
    assert out[3]["call_id"] == "c1"


def test_a_compaction_does_not_tear_a_reply_apart(tmp_path: Path) -> None:
    caller = Caller(tmp_path, "responses", able=Capabilities(window=6_000, max_output=300))
    items: list[Any] = [said("go")]
    for n in range(40):
        items += work(n, "some words " * 40)
        out = caller.send(items, tools=[READ])
        for at, item in enumerate(out):
            if item.get("type") == "reasoning":
                assert out[at + 1]["type"] == "function_call"
        calls = [i["call_id"] for i in out if i.get("type") == "function_call"]
        assert calls == [i["call_id"] for i in out if i.get("type") == "function_call_output"]
    assert len(out) < len(items)


def test_custom_tools_and_namespaces(caller: Caller) -> None:
    tools = [
        {"type": "custom", "name": "apply_patch"},
        {"type": "namespace", "name": "mcp__files", "tools": [READ]},
        {"type": "web_search"},
    ]
    custom = {"type": "custom_tool_call", "call_id": "p1", "name": "apply_patch", "input": "*** Begin"}
    done = {
        "type": "custom_tool_call_output",
        "call_id": "p1",
        "output": [{"type": "input_text", "text": "ok"}],
    }
    items = [said("go"), called("c1", namespace="mcp__files"), custom, output("c1"), done]
    assert caller.send(items, tools=tools) == items
    frame = ResponsesFormat().make_frame(CallerRequest("gpt-5.5", (), None, tools, {}), "5m")
    names = [tool["name"] for tool in frame.tools]
    assert names == ["apply_patch", "mcp__files__Read", "web_search"]
    uses = caller.ctx.view[1].message.tool_uses
    assert [use.name for use in uses] == ["mcp__files__Read", "apply_patch"]


def test_where_the_server_holds_the_history_the_request_goes_out_as_it_is(caller: Caller) -> None:
    for _ in range(2):
        request = caller.ctx.prepare([said("on")], system="S", previous_response_id="resp_9", store=True)
        assert request == {
            "model": "claude-sonnet-5",
            "instructions": "S",
            "input": [said("on")],
            "previous_response_id": "resp_9",
            "store": True,
        }
        caller.ctx.record({"output": [said("ok", "assistant")]})
        assert caller.ctx.refused(ValueError("no")) is False
    told = [event for event in caller.told(Notice) if "previous_response_id" in event.text]
    assert len(told) == 1
    assert len(caller.ctx.view) == 0
    assert caller.send([said("a whole history")]) == [said("a whole history")]


@pytest.mark.parametrize(
    ("item", "said_of_it"),
    [
        ({"content": "x"}, "messages[1] has no type"),
        ({"type": "message", "role": "robot", "content": "x"}, "messages[1] has the role 'robot'"),
        ({"type": "function_call", "call_id": "c", "arguments": "{}"}, "without the name of a tool"),
        ({"type": "function_call_output", "output": "x"}, "messages[1] has no call_id"),
        (output("c9"), "messages[1] answers the tool call 'c9'"),
        (called("c9"), "no message after it answers"),
        ("text", "messages[1] is a str"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(caller: Caller, item: Any, said_of_it: str) -> None:
    with pytest.raises(Mistake) as wrong:
        caller.send([said("go"), item])
    assert said_of_it in str(wrong.value)


def test_no_reply_in_this_format(caller: Caller) -> None:
    caller.send([said("go")])
    with pytest.raises(Mistake, match="no reply in this format"):
        caller.ctx.record({"choices": []})


# --- any history, and any edit of it ---------------------------------------------------------------------

WORDS = st.text(max_size=12)
ROUNDS = st.one_of(
    WORDS.map(lambda text: [said(text)]),
    WORDS.map(lambda text: [{"role": "user", "content": text}]),
    WORDS.map(lambda text: [said(text, "assistant")]),
    WORDS.map(lambda text: [said(text, "developer")]),
    WORDS.map(lambda text: [{"type": "hologram", "beam": {"text": text}}]),
    st.integers(0, 9).map(lambda n: [{"type": "web_search_call", "id": f"w{n}", "status": "completed"}]),
    st.tuples(st.lists(WORDS, min_size=1, max_size=3), st.booleans()).map(lambda made: calls_of(*made)),
)
EDITS = st.tuples(st.sampled_from(["add", "remove", "replace", "swap", "cut"]), st.integers(0, 20), ROUNDS)


def calls_of(texts: list[str], has_thought: bool) -> list[Json]:
    ids = [f"c{n}" for n in range(len(texts))]
    parts = [{"type": "input_text", "text": texts[0]}]
    outputs = [output(ids[0], parts), *(output(id, t) for id, t in zip(ids[1:], texts[1:], strict=True))]
    return [*([reasoning(1)] if has_thought else []), *map(called, ids), *outputs]


def edit(rounds: list[list[Json]], kind: str, at: int, new: list[Json]) -> None:
    place = at % len(rounds)
    match kind:
        case "add":
            rounds.append(new)
        case "remove":
            del rounds[place]
        case "replace":
            rounds[place] = new
        case "swap":
            rounds[place], rounds[0] = rounds[0], rounds[place]
        case "cut":
            del rounds[place + 1 :]
    if not rounds:
        rounds.append([said("afresh")])


@given(st.lists(ROUNDS, min_size=1, max_size=8), st.lists(EDITS, max_size=8))
@settings(max_examples=60, deadline=None)
def test_without_a_layer_that_acts_what_goes_out_is_what_came_in(
    tmp_path_factory: pytest.TempPathFactory,
    rounds: list[list[Json]],
    edits: list[tuple[str, int, list[Json]]],
) -> None:
    caller = Caller(tmp_path_factory.mktemp("home"), "responses", settings=IDLE)
    for change in [None, *edits]:
        if change is not None:
            edit(rounds, *change)
        items = copy.deepcopy([item for one in rounds for item in one])
        out = caller.ctx.prepare(items)["input"]
        assert json.dumps(out) == json.dumps([item for one in rounds for item in one])
    caller.ctx.close()


# --- the official SDK ------------------------------------------------------------------------------------


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with run_in_thread(clock=ManualClock()) as simulator:
        yield simulator


@pytest.mark.parametrize("streams", [False, True])
def test_a_loop_with_the_official_sdk(tmp_path: Path, sim: Simulator, streams: bool) -> None:
    call = '{"type": "tool_use", "name": "Read", "input": {"file_path": "a.txt"}}'
    step = f'{{"reply": {{"thinking": "hm", "content": [{call}]}}, "times": 12}}'
    sim.api.script.extend(parse_steps(step))
    caller = Caller(tmp_path, "responses")
    items: list[Any] = [{"role": "user", "content": "Read it."}]
    with openai.OpenAI(base_url=sim.url + "/v1", api_key="any", max_retries=0) as client:
        for _ in range(13):
            request = caller.ctx.prepare(items, system="Read files.", tools=[READ], model="gpt-5.5")
            if streams:
                with client.responses.stream(**request) as stream:
                    response = stream.get_final_response()
            else:
                response = client.responses.create(**request)
            caller.ctx.record(response)
            calls = [item for item in response.output if item.type == "function_call"]
            items += [*response.output, *(output(made.call_id, "x" * 900) for made in calls)]
    assert response.output_text == "You said: Read it."
    assert all(row.status == 200 for row in sim.ledger.rows)
    rows = list(sim.ledger.rows)[1:]
    assert all(row.shared is not None and row.shared.diverged is None for row in rows)
