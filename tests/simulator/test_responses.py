"""The Responses API of the simulator: items, tools, storage, events, and the official openai SDK."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from simulator.wire import PRICES

from sevenfold.simulator import Api, ApiOutcome, ManualClock, Simulator, parse_steps, run_in_thread
from sevenfold.simulator.responses import Responses

Json = dict[str, Any]
MODEL = "gpt-5.5"
LONG = "word " * 2_000
LOOK: Json = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {"where": {"type": "string"}}, "required": ["where"]},
}
PATCH: Json = {"type": "custom", "name": "apply_patch", "description": "Free text."}
RECALL: Json = {"type": "namespace", "name": "mcp__sevenfold", "tools": [{**LOOK, "name": "recall"}]}
CALL: Json = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"where": "here"}'}
OUTPUT: Json = {"type": "function_call_output", "call_id": "c1", "output": "nothing"}


def said(text: str, role: str = "user") -> Json:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


class Asked:
    """The endpoint, and the requests its reply function was given."""

    def __init__(self, *script: str) -> None:
        self.seen: list[Json] = []
        self.api = Api(ManualClock(), prices=PRICES, replies=self._reply)
        self.api.script.extend(parse_steps("\n".join(script)))
        self.responses = Responses(self.api)

    def _reply(self, body: Json) -> str:
        self.seen.append(body)
        return "fine"

    def ask(self, *items: Json, **more: Any) -> ApiOutcome:
        pending = self.responses.prepare({"model": MODEL, "input": list(items), **more})
        if isinstance(pending, ApiOutcome):
            return pending
        return self.responses.finish(pending, self.responses.reply_to(pending))

    def error(self, *items: Json, **more: Any) -> Json:
        outcome = self.ask(*items, **more)
        assert outcome.status >= 400
        found: Json = outcome.body["error"]
        return found


def test_a_text_is_answered_with_a_message() -> None:
    asked = Asked()
    body = asked.ask(input="hello", instructions="Be brief.").body
    assert body["object"] == "response"
    assert (body["status"], body["store"]) == ("completed", True)
    assert body["output"][0]["content"] == [
        {"type": "output_text", "text": "fine", "annotations": [], "logprobs": []}
    ]
    assert asked.seen[0]["system"] == [{"type": "text", "text": "Be brief."}]
    assert asked.seen[0]["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    assert asked.api.ledger[0].endpoint == "/v1/responses"


def test_items_are_read_as_messages() -> None:
    asked = Asked()
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"}
    custom = {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** patch"}
    done = {
        "type": "custom_tool_call_output",
        "call_id": "c2",
        "output": [{"type": "input_text", "text": "ok"}],
    }
    asked.ask(
        said("Rules.", "developer"),
        {"role": "system", "content": "More rules."},
        said("go"),
        reasoning,
        CALL,
        custom,
        OUTPUT,
        done,
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        said("done", "assistant"),
        {"role": "user", "content": [{"type": "input_image", "image_url": "https://example.com/a.png"}]},
        tools=[LOOK, PATCH],
    )
    form = asked.seen[0]
    assert [block["text"] for block in form["system"]] == ["Rules.", "More rules."]
    kinds = [(m["role"], [block["type"] for block in m["content"]]) for m in form["messages"]]
    assert kinds == [
        ("user", ["text"]),
        ("assistant", ["reasoning", "tool_use", "tool_use"]),
        ("user", ["tool_result", "tool_result"]),
        ("assistant", ["web_search_call", "text"]),
        ("user", ["image"]),
    ]
    calls = form["messages"][1]["content"]
    assert calls[0] == reasoning
    assert (calls[1]["input"], calls[2]["input"]) == ({"where": "here"}, {"input": "*** patch"})
    assert form["messages"][2]["content"][1]["content"] == [{"type": "text", "text": "ok"}]


def test_calls_come_back_as_items_of_their_kind() -> None:
    names = ("look", "apply_patch", "mcp__sevenfold__recall", "unknown")
    calls = ",".join(f'{{"type": "tool_use", "name": "{n}", "input": {{"input": "x"}}}}' for n in names)
    asked = Asked(f'{{"reply": {{"thinking": "hm", "content": [{calls}]}}}}')
    include = ["reasoning.encrypted_content"]
    output = asked.ask(input="go", tools=[LOOK, PATCH, RECALL], include=include).body["output"]
    kinds = [item["type"] for item in output]
    assert kinds == ["reasoning", "function_call", "custom_tool_call", "function_call", "function_call"]
    assert output[0]["summary"] == [{"type": "summary_text", "text": "hm"}]
    assert output[0]["encrypted_content"]
    assert (output[1]["name"], output[1]["arguments"]) == ("look", '{"input":"x"}')
    assert (output[2]["name"], output[2]["input"]) == ("apply_patch", "x")
    assert (output[3]["name"], output[3]["namespace"]) == ("recall", "mcp__sevenfold")
    assert "namespace" not in output[4]
    assert len({item["id"] for item in output}) == 5


def test_the_cache_is_automatic() -> None:
    asked = Asked()
    first = asked.ask(said(LONG)).body["usage"]
    second = asked.ask(said(LONG), said("fine", "assistant"), said("on")).body["usage"]
    assert first["input_tokens_details"]["cached_tokens"] == 0
    assert second["input_tokens_details"]["cached_tokens"] == 2_432
    assert second["total_tokens"] == second["input_tokens"] + second["output_tokens"]


def test_a_stored_response_is_gone_on_from() -> None:
    asked = Asked()
    first = asked.ask(input="one").body["id"]
    second = asked.ask(input="two", previous_response_id=first, instructions="New.").body["id"]
    asked.ask(input="three", previous_response_id=second)
    texts = [m["content"][0]["text"] for m in asked.seen[-1]["messages"]]
    assert texts == ["one", "fine", "two", "fine", "three"]
    assert asked.seen[-1]["system"] == []  # instructions are those of a request


def test_what_was_not_stored_is_not_found() -> None:
    asked = Asked()
    first = asked.ask(input="one", store=False).body["id"]
    error = asked.error(input="two", previous_response_id=first)
    assert error["code"] == "previous_response_not_found"
    assert error["param"] == "previous_response_id"
    assert asked.error({"type": "item_reference", "id": "rs_none"})["code"] == "item_not_found"


def test_a_reference_stands_for_an_item() -> None:
    asked = Asked()
    item = asked.ask(input="one").body["output"][0]
    asked.ask(said("one"), {"type": "item_reference", "id": item["id"]}, said("two"))
    assert [m["content"][0]["text"] for m in asked.seen[-1]["messages"]] == ["one", "fine", "two"]


@pytest.mark.parametrize(
    ("items", "more", "words"),
    [
        ([CALL], {}, "No tool output found for function call c1."),
        ([OUTPUT], {}, "No tool call found for function call output with call_id c1."),
        ([{"type": "message", "role": "robot", "content": "x"}], {}, "input[0] has the role 'robot'"),
        ([{"type": "function_call", "name": "look"}, OUTPUT], {}, "has no call_id"),
        ([{"content": "x"}], {}, "input[0] has no type"),
        ([{"role": "user", "content": 7}], {}, "neither a text nor a list"),
        ([], {"input": 7}, "Invalid value for 'input'"),
        ([], {"input": ["x"]}, "Invalid value for 'input[0]'"),
        ([], {"model": None}, "Invalid value for 'model'"),
        ([], {"input": "x", "background": True}, "Unsupported parameter: 'background'"),
        ([], {"input": "x", "conversation": "conv_1"}, "Unsupported parameter: 'conversation'"),
        ([], {"input": "x", "tools": [7]}, "Invalid value for 'tools[0]'"),
    ],
)
def test_bad_input_is_refused_in_the_words_of_the_api(items: list[Json], more: Json, words: str) -> None:
    error = Asked().error(*items, **more)
    assert error["type"] == "invalid_request_error"
    assert words in error["message"]


def test_unknown_items_fields_and_tools_pass() -> None:
    asked = Asked()
    strange = {"type": "hologram", "id": "h1", "beam": [1, 2]}
    outcome = asked.ask(
        said("x"), strange, tools=[{"type": "web_search"}, {"type": "novel", "x": 1}], frobnicate={"y": 2}
    )
    assert outcome.status == 200
    assert asked.seen[0]["messages"][1]["content"] == [strange]


def test_a_reply_that_is_cut_is_incomplete() -> None:
    body = Asked('{"reply": {"text": "far too long for this"}}').ask(input="x", max_output_tokens=2).body
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


# --- the official SDK ------------------------------------------------------------------------------------

openai = pytest.importorskip("openai")


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with run_in_thread(clock=ManualClock()) as simulator:
        yield simulator


@pytest.fixture
def client(sim: Simulator) -> Iterator[Any]:
    with openai.OpenAI(base_url=sim.url + "/v1", api_key="any", max_retries=0) as made:
        yield made


def test_create(client: Any, sim: Simulator) -> None:
    response = client.responses.create(model=MODEL, input="hello", instructions="Be brief.")
    assert response.output_text == "You said: hello"
    assert response.usage.total_tokens > 0
    assert sim.ledger[0].received_bytes > 0


def test_the_address_without_a_version(sim: Simulator) -> None:
    with openai.OpenAI(base_url=sim.url, api_key="any", max_retries=0) as client:
        assert client.responses.create(model=MODEL, input="hello").output_text == "You said: hello"
        with pytest.raises(openai.BadRequestError):
            client.responses.create(model=MODEL, input=[CALL])
    assert [row.endpoint for row in sim.ledger.rows] == ["/v1/responses"] * 2


def test_a_tool_round(client: Any, sim: Simulator) -> None:
    call = '{"type": "tool_use", "name": "look", "input": {"where": "under the bed"}}'
    sim.api.script.extend(parse_steps(f'{{"reply": {{"thinking": "hm", "content": [{call}]}}}}'))
    items: list[Any] = [{"role": "user", "content": "Look."}]
    first = client.responses.create(model=MODEL, input=items, tools=[LOOK], store=False)
    call_made = first.output[1]
    assert (call_made.name, call_made.arguments) == ("look", '{"where":"under the bed"}')
    items += [*first.output, {**OUTPUT, "call_id": call_made.call_id}]
    second = client.responses.create(model=MODEL, input=items, tools=[LOOK], store=False)
    assert second.output_text == "You said: Look."


def test_a_stream(client: Any, sim: Simulator) -> None:
    call = '{"type": "tool_use", "name": "look", "input": {"where": "under the bed, and behind it"}}'
    patch = '{"type": "tool_use", "name": "apply_patch", "input": {"input": "a patch of some length"}}'
    text = "A reply of more than one delta, to be put together."
    reply = f'"thinking": "let me think a while", "text": "{text}", "content": [{call}, {patch}]'
    sim.api.script.extend(parse_steps(f'{{"reply": {{{reply}}}}}'))
    kinds: list[str] = []
    with client.responses.stream(model=MODEL, input="Look.", tools=[LOOK, PATCH]) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.output_item.done") == 4
    assert "response.function_call_arguments.delta" in kinds
    assert final.output_text == text
    assert [item.type for item in final.output] == [
        "reasoning", "message", "function_call", "custom_tool_call",
    ]  # fmt: skip


def test_raw_events_are_numbered_and_add_up(client: Any) -> None:
    events = list(client.responses.create(model=MODEL, input="hello there, you", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == "You said: hello there, you"


def test_previous_response_id(client: Any) -> None:
    first = client.responses.create(model=MODEL, input="one")
    second = client.responses.create(model=MODEL, input="two", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    with pytest.raises(openai.BadRequestError, match="not found"):
        client.responses.create(model=MODEL, input="two", previous_response_id="resp_none")


def test_errors_of_the_sdk(client: Any, sim: Simulator) -> None:
    with pytest.raises(openai.NotFoundError, match="unknown-model"):
        client.responses.create(model="unknown-model", input="x")
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="sk-wrong").responses.create(model=MODEL, input="x")
    sim.api.script.extend(parse_steps('{"error": {"status": 429, "retry_after": 1}}'))
    with pytest.raises(openai.RateLimitError):
        client.responses.create(model=MODEL, input="x")
    sim.api.window = 10
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=MODEL, input=LONG)
    assert refused.value.code == "context_length_exceeded"
