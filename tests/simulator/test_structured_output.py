"""Structured output on all three wires, by the offline engine and by the echo; and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from simulator.wire import MODEL, Json, api, body, refusal, user

from sevenfold.offline import encode_reply
from sevenfold.simulator import ManualClock, Simulator, parse_steps, run_in_thread

anthropic = pytest.importorskip("anthropic")
openai = pytest.importorskip("openai")
pydantic = pytest.importorskip("pydantic")

SCHEMA: Json = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 6},
        "kind": {"enum": ["bug", "wish"]},
        "parts": {"type": "array", "items": {"$ref": "#/$defs/part"}, "minItems": 1},
        "note": {"type": "string"},
    },
    "required": ["title", "kind", "parts"],
    "additionalProperties": False,
    "$defs": {
        "part": {
            "type": "object",
            "properties": {"n": {"type": "integer", "minimum": 3}},
            "required": ["n"],
        }
    },
}
VALID = {"title": "textxx", "kind": "bug", "parts": [{"n": 3}]}


@pytest.fixture(params=["offline", "echo"])
def sim(request: pytest.FixtureRequest) -> Iterator[Simulator]:
    more: Json = {"replies": encode_reply} if request.param == "offline" else {}
    with run_in_thread(clock=ManualClock(), **more) as simulator:
        yield simulator


@pytest.fixture
def claude(sim: Simulator) -> Iterator[Any]:
    with anthropic.Anthropic(base_url=sim.url, api_key="any", max_retries=0) as made:
        yield made


@pytest.fixture
def gpt(sim: Simulator) -> Iterator[Any]:
    with openai.OpenAI(base_url=sim.url + "/v1", api_key="any", max_retries=0) as made:
        yield made


def test_messages(claude: Any) -> None:
    reply = claude.messages.create(
        model=MODEL,
        max_tokens=500,
        messages=[{"role": "user", "content": "Describe it."}],
        output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
    )
    assert json.loads(reply.content[0].text) == VALID


def test_messages_parse_a_model_of_the_sdk(claude: Any) -> None:
    class Weight(pydantic.BaseModel):  # type: ignore[misc,name-defined]
        grams: int
        of: str | None = None

    reply = claude.messages.parse(
        model=MODEL, max_tokens=500, messages=[user("Weigh it.")], output_format=Weight
    )
    assert reply.parsed_output == Weight(grams=0, of=None)


def test_chat_completions(gpt: Any) -> None:
    def ask(wanted: Json) -> Any:
        said: Any = [{"role": "user", "content": "Describe it."}]
        done = gpt.chat.completions.create(model="gpt-5.5", messages=said, response_format=wanted)
        return json.loads(done.choices[0].message.content)

    named = {"name": "thing", "schema": SCHEMA, "strict": True}
    assert ask({"type": "json_schema", "json_schema": named}) == VALID
    assert isinstance(ask({"type": "json_object"})["answer"], str)


def test_responses(gpt: Any) -> None:
    wanted = {"format": {"type": "json_schema", "name": "thing", "schema": SCHEMA, "strict": True}}
    made = gpt.responses.create(model="gpt-5.5", input="Describe it.", text=wanted)
    assert json.loads(made.output_text) == VALID
    with gpt.responses.stream(model="gpt-5.5", input="Describe it.", text=wanted) as stream:
        assert json.loads(stream.get_final_response().output_text) == VALID
    plain = gpt.responses.create(model="gpt-5.5", input="Hi.", text={"format": {"type": "text"}})
    assert not plain.output_text.startswith("{")


@pytest.mark.parametrize("word", ["pattern", "not", "minProperties"])
def test_a_schema_that_the_engine_cannot_answer_by_is_refused(claude: Any, gpt: Any, word: str) -> None:
    schema = {
        "type": "object",
        "properties": {"pattern": {"type": "string", word: 1}},
        "required": ["pattern"],
    }
    with pytest.raises(anthropic.BadRequestError, match=f"schema with {word}:"):
        claude.messages.create(
            model=MODEL,
            max_tokens=500,
            messages=[user("hi")],
            output_config={"format": {"type": "json_schema", "schema": schema}},
        )
    wanted = {"format": {"type": "json_schema", "name": "x", "schema": schema}}
    with pytest.raises(openai.BadRequestError, match=f"schema with {word}:"):
        gpt.responses.create(model="gpt-5.5", input="hi", text=wanted)


def test_a_schema_that_refers_to_itself_comes_to_an_end(claude: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["next"],
    }
    reply = claude.messages.create(
        model=MODEL,
        max_tokens=500,
        messages=[user("hi")],
        output_config={"format": {"type": "json_schema", "schema": schema}},
    )
    value = json.loads(reply.content[0].text)
    while value["next"] is not None:
        value = value["next"]
    assert value == {"next": None}


def test_a_script_answers_as_it_likes_and_tools_are_called_first(claude: Any, sim: Simulator) -> None:
    sim.api.script.extend(parse_steps('{"reply": {"text": "no JSON"}}'))
    wanted: Json = {"format": {"type": "json_schema", "schema": {"type": "object", "not": {}}}}
    more: Json = {"model": MODEL, "max_tokens": 500, "messages": [user("hi")], "output_config": wanted}
    assert claude.messages.create(**more).content[0].text == "no JSON"
    tools = [{"name": "act", "input_schema": {"type": "object"}}]
    reply = claude.messages.create(**more, tools=tools, tool_choice={"type": "tool", "name": "act"})
    assert [block.type for block in reply.content] == ["tool_use"]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("json", "output_config.format: Input should be a valid dictionary"),
        ({"type": "xml"}, "output_config.format.type: Input should be 'json_schema'"),
        ({"type": "json_schema"}, "output_config.format.schema: Input should be a valid dictionary"),
    ],
)
def test_broken_formats_of_messages(wanted: Any, said: str) -> None:
    sim, _ = api()
    assert refusal(sim.answer(body(user("hi"), output_config={"format": wanted}))) == said


def test_broken_formats_of_the_others(gpt: Any) -> None:
    said: Any = [{"role": "user", "content": "hi"}]
    for wanted in ({"type": "xml"}, {"type": "json_schema", "json_schema": {"name": "x"}}, "json"):
        with pytest.raises(openai.BadRequestError, match="response_format"):
            gpt.chat.completions.create(model="gpt-5.5", messages=said, response_format=wanted)
        with pytest.raises(openai.BadRequestError, match=r"text\.format"):
            gpt.responses.create(model="gpt-5.5", input="hi", text={"format": wanted})


def test_more_than_one_choice_is_refused(gpt: Any) -> None:
    said: Any = [{"role": "user", "content": "hi"}]
    assert gpt.chat.completions.create(model="gpt-5.5", messages=said, n=1).choices
    with pytest.raises(openai.BadRequestError) as refused:
        gpt.chat.completions.create(model="gpt-5.5", messages=said, n=2)
    assert (refused.value.param, refused.value.code) == ("n", "unsupported_value")


def test_embeddings_and_batches_are_refused_in_the_form_of_their_api(claude: Any, gpt: Any) -> None:
    with pytest.raises(openai.NotFoundError, match="/v1/embeddings is not simulated") as refused:
        gpt.embeddings.create(model="text-embedding-3-small", input="hi")
    assert (refused.value.type, refused.value.code) == ("invalid_request_error", "unknown_url")
    with pytest.raises(openai.NotFoundError, match="/v1/batches is not simulated"):
        gpt.batches.list()
    params = {"model": MODEL, "max_tokens": 9, "messages": [user("hi")]}
    with pytest.raises(anthropic.NotFoundError, match="batches is not simulated") as unknown:
        claude.messages.batches.create(requests=[{"custom_id": "a", "params": params}])
    assert unknown.value.body["error"]["type"] == "not_found_error"
