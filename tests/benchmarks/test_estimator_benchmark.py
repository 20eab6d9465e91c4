"""The estimator benchmark on a session written for it, whose counts are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.estimator.pairs import kind_of, pairs_of
from benchmarks.estimator.run import figures, run
from sevenfold.core.messages import Message, ToolResult, ToolUse, user
from sevenfold.core.tokens import MessageSize


def write_session(folder: Path, name: str, per_token: float, turns: int = 30) -> Path:
    """A model that charges one token for every `per_token` bytes of text."""
    lines: list[dict[str, Any]] = []
    total = 1_000
    parent = None
    for i in range(turns):
        prompt, answer = f"{'please do it ' * (30 + i)}", f"{'done and dusted ' * 20}"
        total += round(len(prompt) / per_token)
        ask = {"type": "user", "uuid": f"u{i}", "parentUuid": parent, "sessionId": name}
        lines.append({**ask, "message": {"role": "user", "content": prompt}})
        output = round(len(answer) / per_token)
        message = {
            "id": f"m{i}",
            "model": "m",
            "content": [{"type": "text", "text": answer}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": total, "output_tokens": output},
        }
        reply = {"type": "assistant", "uuid": f"a{i}", "parentUuid": f"u{i}", "requestId": f"r{i}"}
        lines.append({**reply, "sessionId": name, "message": message})
        total += output
        parent = f"a{i}"
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_the_pairs_hold_what_was_added_and_what_was_counted(tmp_path: Path) -> None:
    pairs = list(pairs_of(write_session(tmp_path, "s", per_token=4.0, turns=3)))
    between = [p for p in pairs if p.measure == "between requests"]
    since = [p for p in pairs if p.measure == "since the reply"]
    prompts = [len("please do it ") * (30 + i) for i in (1, 2)]
    assert [p.size for p in since] == [MessageSize(text=n) for n in prompts]
    assert [p.size for p in between] == [MessageSize(text=n + 16 * 20) for n in prompts]
    assert [p.reported for p in since] == [round(n / 4) for n in prompts]
    assert {p.kind for p in pairs} == {"text"}


def test_an_exact_rule_has_no_error_and_calibration_learns_another(tmp_path: Path) -> None:
    write_session(tmp_path, "a", per_token=4.0)
    exact = figures(quick=False, data=tmp_path)["measures"]["between requests"]
    assert exact["all"]["raw"]["new_p90"] < 1
    (tmp_path / "a.jsonl").unlink()
    for name in ("b", "c"):
        write_session(tmp_path, name, per_token=2.5)
    found = figures(quick=False, data=tmp_path)["measures"]["between requests"]
    assert 37 < found["all"]["raw"]["new_median"] < 38
    half = found["all"]["raw"]["new_median"] / 2
    assert found["all"]["calibrated"]["new_median"] < half
    assert found["all"]["calibrated_held_out"]["new_median"] < half
    assert found["kinds"]["text"]["requests"] == found["requests"] == 58
    assert found["kinds"]["cjk"]["raw"] is None


def test_kinds_are_told_apart_by_what_most_bytes_are() -> None:
    code = "     1→def f(x):\n     2→    return x\n     3→\n     4→print(f(1))\n"
    assert kind_of([user("a few plain words about what is to be done")]) == "text"
    assert kind_of([Message("user", (ToolResult("t", code * 5),))]) == "code"
    assert kind_of([Message("user", (ToolResult("t", '{"a": [1, 2]}'),))]) == "json"
    assert kind_of([Message("assistant", (ToolUse("t", "Bash", {"command": "ls"}),))]) == "json"
    assert kind_of([user("这个文件需要修改，请检查所有的测试。")]) == "cjk"
    assert kind_of([user("short"), Message("user", (ToolResult("t", code * 5),))]) == "code"


def test_without_sessions_it_says_that_it_was_skipped(tmp_path: Path) -> None:
    (table,) = run(quick=True, data=tmp_path)
    assert "skipped: no recorded sessions" in table.text()


def test_the_tables_name_every_kind_and_say_what_is_missing(tmp_path: Path) -> None:
    write_session(tmp_path, "a", per_token=3.0)
    write_session(tmp_path, "b", per_token=3.0)
    between, since = run(quick=False, data=tmp_path)
    for table in (between, since):
        text = table.text()
        assert all(f"{kind}: " in text for kind in ("text", "code", "json", "cjk"))
        assert "no request that is mostly CJK" in text
