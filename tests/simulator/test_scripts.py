"""Scripts: what they say, whom they fit, and how they name what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulator.wire import api, body, user

from sevenfold.core.errors import ScriptError
from sevenfold.simulator import Script, parse_steps, read_script


def script(*lines: str) -> Script:
    return Script(parse_steps("\n".join(lines)))


def said(sim_script: Script, *texts: str) -> list[str]:
    sim, _ = api(script=sim_script)
    return [sim.answer(body(user(t))).body["content"][0]["text"] for t in texts]


def test_each_request_takes_the_next_step_and_then_the_model_answers_by_itself() -> None:
    steps = script('{"reply": {"text": "one"}}', "", '{"reply": {"text": "two"}}')
    assert said(steps, "a", "b", "c") == ["one", "two", "You said: c"]


def test_a_list_is_read_as_well_as_lines(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text('[\n {"reply": {"text": "one"}},\n {"error": 429}\n]', encoding="utf-8")
    assert len(read_script(path)) == 2


def test_a_step_may_be_used_several_times() -> None:
    steps = script('{"reply": {"text": "again"}, "times": 2}')
    assert said(steps, "a", "b", "c") == ["again", "again", "You said: c"]


def test_a_step_with_a_match_waits_for_the_request_it_fits() -> None:
    steps = script(
        '{"match": {"text": "WEATHER"}, "reply": {"text": "rain"}}', '{"reply": {"text": "first"}}'
    )
    assert said(steps, "hello", "the weather?", "x") == ["first", "rain", "You said: x"]


def test_a_match_can_ask_for_the_model_the_source_and_a_pattern() -> None:
    sim, _ = api(
        script=script(
            '{"match": {"model": "claude-haiku", "source": "dream", "regex": "^go"},'
            ' "reply": {"text": "yes"}}'
        )
    )
    headers = {"x-api-key": "k", "x-sevenfold-source": "dream"}
    fits = body(user("go on"), model="claude-haiku-4-5")
    assert len(sim.script) == 1
    sim.answer(fits, {"x-api-key": "k"})
    sim.answer(body(user("go on")), headers)
    sim.answer(body(user("no go"), model="claude-haiku-4-5"), headers)
    assert len(sim.script) == 1
    assert sim.answer(fits, headers).body["content"][0]["text"] == "yes"


def test_a_reply_may_hold_any_blocks_and_a_stop_reason_and_its_own_usage() -> None:
    sim, _ = api(
        script=script(
            '{"reply": {"thinking": "hm", "text": "so", "content":'
            ' [{"type": "tool_use", "name": "Bash", "input": {"command": "ls"}}],'
            ' "usage": {"output_tokens": 77}}}',
            '{"reply": {"text": "no", "stop_reason": "refusal"}}',
        )
    )
    first = sim.answer(body(user("a"))).body
    assert [b["type"] for b in first["content"]] == ["thinking", "text", "tool_use"]
    assert first["content"][0]["signature"].startswith("sim-")
    assert first["content"][2]["id"] == "toolu_sim_000001"
    assert (first["stop_reason"], first["usage"]["output_tokens"]) == ("tool_use", 77)
    assert sim.answer(body(user("a"))).body["stop_reason"] == "refusal"


@pytest.mark.parametrize(
    ("line", "status", "kind"),
    [
        ('{"error": 429}', 429, "rate_limit_error"),
        ('{"error": 529}', 529, "overloaded_error"),
        ('{"error": 500}', 500, "api_error"),
        ('{"error": {"status": 403}}', 403, "permission_error"),
        ('{"error": {"status": 400, "type": "odd_error", "message": "no"}}', 400, "odd_error"),
    ],
)
def test_an_error_has_the_shape_of_the_api(line: str, status: int, kind: str) -> None:
    sim, _ = api(script=script(line))
    outcome = sim.answer(body(user("a")))
    assert outcome.status == status
    assert outcome.body["error"]["type"] == kind


def test_an_error_says_when_to_come_back() -> None:
    sim, _ = api(script=script('{"error": {"status": 429, "retry_after": 2}}'))
    assert sim.answer(body(user("a"))).headers["retry-after"] == "2"


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("{", "line 2: not JSON"),
        ('"text"', "line 2: a JSON object was expected"),
        ('{"replay": {}}', "line 2: Object contains unknown field `replay`"),
        ('{"reply": {"txt": "a"}}', "unknown field `txt` in `reply`"),
        ('{"reply": {"text": 5}}', "Expected `str | null`, got `int` in `reply.text`"),
        ('{"error": 200}', "the `status` of an error is 400 to 599, not 200"),
        ('{"reply": {"text": "a"}, "error": 500}', "either a `reply` or an `error`"),
        ('{"times": 0, "error": 500}', "`times` must be 1 or more"),
        ('{"match": {"text": "a"}}', "a step needs one of"),
        ('{"match": {"regex": "("}, "error": 500}', "match.regex is not a regular expression"),
        ('{"reply": {"content": [{"text": "a"}]}}', "reply.content[0] has no `type`"),
    ],
)
def test_what_is_wrong_with_a_script_is_said_with_the_file_and_the_line(
    line: str, wrong: str, tmp_path: Path
) -> None:
    path = tmp_path / "faults.jsonl"
    path.write_text('{"error": 529}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(ScriptError) as caught:
        read_script(path)
    assert wrong in str(caught.value)
    assert f"{path}, line 2" in str(caught.value)


def test_a_script_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"nothing\.jsonl: the script cannot be read"):
        read_script(tmp_path / "nothing.jsonl")
