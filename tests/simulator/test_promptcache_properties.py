"""What holds for every request, however it is made up."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from simulator.wire import MODEL, api, split

from sevenfold.simulator.api import read_marked_prompt
from sevenfold.simulator.cache import count_block_tokens, count_tool_tokens, to_blocks

MINIMUM = 1_024
MARKS = st.sampled_from([None, None, None, {"type": "ephemeral"}])
SIZES = st.sampled_from([1, 7, 300, 1_100])
LETTERS = st.sampled_from("abc")


@st.composite
def texts(draw: st.DrawFn) -> dict[str, Any]:
    return {"type": "text", "text": draw(LETTERS) * 4 * draw(SIZES)}


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """Tools, system and a conversation with tool rounds, with up to four marks anywhere."""
    tools = [
        {"name": f"tool{n}", "description": draw(LETTERS) * draw(SIZES), "input_schema": {}}
        for n in range(draw(st.integers(0, 3)))
    ]
    system = draw(st.lists(texts(), max_size=2))
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": draw(st.lists(texts(), min_size=1, max_size=4))}
    ]
    for n in range(draw(st.integers(0, 6))):
        ids = [f"t{n}_{i}" for i in range(draw(st.integers(0, 3)))]
        uses = [
            {"type": "tool_use", "id": id, "name": "tool0", "input": {"q": draw(LETTERS)}} for id in ids
        ]
        results = [
            {"type": "tool_result", "tool_use_id": id, "content": draw(LETTERS) * draw(SIZES)} for id in ids
        ]
        messages.append(
            {"role": "assistant", "content": [*draw(st.lists(texts(), min_size=1, max_size=2)), *uses]}
        )
        messages.append(
            {"role": "user", "content": [*results, *draw(st.lists(texts(), min_size=1, max_size=2))]}
        )
    body = {"model": MODEL, "max_tokens": 50, "tools": tools, "system": system, "messages": messages}
    blocks = all_blocks(body)
    for at in draw(st.lists(st.integers(0, len(blocks) - 1), max_size=4, unique=True)):
        blocks[at]["cache_control"] = {"type": "ephemeral"}
    return body


def all_blocks(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        *body["tools"],
        *body["system"],
        *(block for message in body["messages"] for block in message["content"]),
    ]


@given(st.lists(bodies(), min_size=1, max_size=4))
def test_the_parts_of_the_usage_always_add_up_to_the_tokens_of_the_blocks(
    requests: list[dict[str, Any]],
) -> None:
    sim, _ = api()
    for request in requests:
        total = sum(count_tool_tokens(t) for t in request["tools"])
        total += sum(count_block_tokens(b) for b in all_blocks(request)[len(request["tools"]) :])
        assert sum(split(sim.answer(request))) == total
        assert sim.count_tokens(request) == {"input_tokens": total}


@given(st.lists(bodies(), min_size=1, max_size=5), st.integers(0, 400))
def test_nothing_is_read_that_was_not_written(requests: list[dict[str, Any]], pause: int) -> None:
    sim, clock = api()
    written: dict[bytes, int] = {}
    for request in requests:
        _, _, read = split(sim.answer(request))
        prompt = read_marked_prompt(request)
        if read:
            assert read in {tokens for digest, tokens in written.items() if digest in set(prompt.digests)}
        for at, _ in prompt.marks:
            written[prompt.digests[at]] = prompt.upto[at]
        clock.advance(pause)


@given(bodies())
def test_the_same_request_again_reads_all_that_its_marks_could_keep(request: dict[str, Any]) -> None:
    sim, clock = api()
    sim.answer(request)
    clock.advance(300)
    prompt = read_marked_prompt(request)
    kept = [prompt.upto[at] for at, _ in prompt.marks if prompt.upto[at] >= MINIMUM]
    plain, wrote, read = split(sim.answer(request))
    assert (wrote, read) == (0, max(kept, default=0))
    assert plain == prompt.tokens - read


@given(bodies(), st.data())
def test_a_changed_byte_in_a_block_is_never_read_past(request: dict[str, Any], data: st.DataObject) -> None:
    sim, _ = api()
    sim.answer(request)
    prompt = read_marked_prompt(request)
    texts_at = [
        (m, b)
        for m, message in enumerate(request["messages"])
        for b, block in enumerate(to_blocks(message["content"]))
        if block["type"] == "text"
    ]
    m, b = data.draw(st.sampled_from(texts_at))
    block = request["messages"][m]["content"][b]
    block["text"] = "!" + block["text"][1:]
    position = prompt.places.index(("messages", m, b, "text"))
    assert split(sim.answer(request))[2] <= prompt.before(position)


@given(bodies(), st.integers(301, 10_000))
def test_after_the_time_to_live_nothing_is_read(request: dict[str, Any], pause: int) -> None:
    sim, clock = api()
    sim.answer(request)
    clock.advance(pause)
    assert split(sim.answer(request))[2] == 0


# --- nothing that is JSON breaks the server --------------------------------------------------------------

VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 2.5, "", "x", [], {}, [[]], [None], {"type": 1}, {"type": "text"}, ["x"]]
)
WHOLE: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 2_000,
    "stream": False,
    "speed": "fast",
    "stop_sequences": ["stop"],
    "cache_control": {"type": "ephemeral", "ttl": "5m"},
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "enabled", "budget_tokens": 1_024},
    "output_config": {"effort": "low"},
    "diagnostics": {"previous_message_id": "msg_1"},
    "context_management": {
        "edits": [
            {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}},
            {
                "type": "clear_tool_uses_20250919",
                "trigger": {"type": "tool_uses", "value": 0},
                "keep": {"type": "tool_uses", "value": 0},
                "clear_at_least": {"type": "input_tokens", "value": 0},
                "exclude_tools": ["Write"],
                "clear_tool_inputs": ["Read"],
            },
        ]
    },
    "tools": [{"name": "Read", "input_schema": {}, "cache_control": {"type": "ephemeral"}}],
    "system": [{"type": "text", "text": "be brief"}],
    "messages": [
        {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "u"}}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "a"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "text", "text": "body " * 40}],
                    "is_error": False,
                },
                {"type": "cache_edits", "delete": ["t1"]},
                {"type": "text", "text": "go on", "cache_control": {"type": "ephemeral"}},
            ],
        },
        {"role": "system", "content": "a reminder"},
    ],
}


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [at, *(path for key, item in inner for path in paths(item, (*at, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


@given(st.lists(st.tuples(st.sampled_from(paths(WHOLE)), VALUES), min_size=1, max_size=2))
@settings(max_examples=400)
def test_whatever_json_comes_it_is_answered_and_never_breaks_the_server(
    changes: list[tuple[tuple[Any, ...], Any]],
) -> None:
    sim, _ = api()
    request = WHOLE
    for path, new in changes:
        with suppress(KeyError, IndexError, TypeError, AttributeError):  # the first change took it away
            request = replaced(request, path, new)
    assert sim.answer(request).status in (200, 400)


def test_the_request_all_those_are_made_from_is_a_good_one() -> None:
    sim, _ = api()
    outcome = sim.answer(WHOLE)
    assert outcome.status == 200, outcome.body
    assert [e["type"] for e in outcome.row.applied_edits] == ["clear_tool_uses_20250919"]
