"""Small recorded sessions in each format, written by ourselves."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from sevenfold.core.messages import Message, Text, ToolResult, ToolUse, assistant, user
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Mark, Reply, Transcript
from sevenfold.replay.outcome import ReplayOutcome

Json = dict[str, Any]
BEGAN = 1_780_000_000.0


def count_charged(outcome: ReplayOutcome) -> Usage:
    """The usage that a policy can change: all input, and the output of requests that it added."""
    own = sum(row.usage.output for row in outcome.rows if row.kind == "turn")
    return replace(outcome.usage, output=outcome.usage.output - own)


def count_paid(outcome: ReplayOutcome) -> Usage:
    """The input that was really counted, where the recording says so."""
    return replace(sum((row.recorded for row in outcome.rows), Usage()), output=0)


def stamp(seconds: float) -> str:
    """A time so many seconds after the beginning, as files write it."""
    return datetime.datetime.fromtimestamp(BEGAN + seconds, datetime.UTC).isoformat()


def jsonl(records: Sequence[Any]) -> bytes:
    return b"".join(json.dumps(record).encode("utf-8") + b"\n" for record in records)


# --- Claude Code ------------------------------------------------------------------------------------------


def claude_code(rounds: int = 3, *, model: str = "claude-opus-4-5", usage: bool = True) -> bytes:
    """A question, some files that are read, and an answer; every reply is two records."""
    records: list[Json] = [_claude("user", "u", None, 0, content="read the files")]
    parent, prompt = "u", 20_000
    for n in range(rounds):
        use = {"type": "tool_use", "id": f"t{n}", "name": "Read", "input": {"file_path": f"/w/{n}.py"}}
        for part, block in enumerate(({"type": "text", "text": f"file {n}"}, use)):
            uuid = f"a{n}.{part}"
            used = _claude_usage(prompt, n) if usage else None
            record = _claude("assistant", uuid, parent, 10 * n + part, content=[block])
            record["message"] |= {"id": f"m{n}", "model": model, "usage": used}
            records.append(record)
            parent = uuid
        body = "\n".join(f"def function_{n}_{line}(): pass" for line in range(60))
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": body}
        records.append(_claude("user", f"r{n}", parent, 10 * n + 5, content=[result]))
        parent, prompt = f"r{n}", prompt + 900
    end = _claude("assistant", "end", parent, 10 * rounds, content=[{"type": "text", "text": "done"}])
    end["message"] |= {"id": "m-end", "model": model, "stop_reason": "end_turn"}
    end["message"]["usage"] = _claude_usage(prompt, rounds) if usage else None
    return jsonl([*records, end])


def _claude(kind: str, uuid: str, parent: str | None, at: float, *, content: Any) -> Json:
    return {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": "a-claude-session",
        "version": "2.1.40",
        "cwd": "/w",
        "timestamp": stamp(at),
        "message": {"role": kind, "content": content},
    }


def _claude_usage(prompt: int, n: int) -> Json:
    return {
        "input_tokens": 3,
        "cache_creation_input_tokens": 900 if n else prompt - 3,
        "cache_read_input_tokens": prompt - 903 if n else 0,
        "output_tokens": 40,
    }


# --- Codex ------------------------------------------------------------------------------------------------


def codex(rounds: int = 2) -> bytes:
    """A rollout with an envelope around each record, and everything said twice, as Codex does."""
    records = [
        _codex(0, "session_meta", id="a-codex-session", cwd="/w", cli_version="0.150.0"),
        _codex(0, "turn_context", model="gpt-5.1-codex"),
        _codex(1, "response_item", type="message", role="developer", content=_input("be brief")),
        _codex(1, "response_item", type="message", role="user", content=_input("list the files")),
        _codex(1, "event_msg", type="user_message", message="list the files"),
    ]
    for n in range(rounds):
        at, call = 10 * n + 2, f"call_{n}"
        given = json.dumps({"cmd": f"ls {n}"})
        seal = {"type": "reasoning", "summary": [], "encrypted_content": "c2VhbGVk"}
        records += [
            {"timestamp": stamp(at), "type": "response_item", "payload": seal},
            _codex(at, "response_item", type="function_call", name="shell", arguments=given, call_id=call),
            _codex(at, "event_msg", type="token_count", info=_codex_info(n)),
            _codex(at, "event_msg", type="token_count", info=_codex_info(n)),
            _codex(at, "event_msg", type="exec_command_end", call_id=call, aggregated_output="x"),
            _codex(at + 1, "response_item", type="function_call_output", call_id=call, output=f"{n}.py"),
        ]
    said = [{"type": "output_text", "text": "two files"}]
    records += [
        _codex(50, "response_item", type="message", role="assistant", content=said),
        _codex(50, "event_msg", type="agent_message", message="two files"),
        _codex(50, "event_msg", type="token_count", info=_codex_info(rounds)),
        _codex(50, "event_msg", type="token_count", info=None),
    ]
    return jsonl(records)


def _codex(at: float, kind: str, **payload: Any) -> Json:
    return {"timestamp": stamp(at), "type": kind, "payload": payload}


def _input(words: str) -> list[Json]:
    return [{"type": "input_text", "text": words}]


def _codex_info(n: int) -> Json:
    last = {"input_tokens": 8_000 + 100 * n, "cached_input_tokens": 7_000 * (n > 0)}
    last |= {"output_tokens": 30, "total_tokens": 8_030 + 100 * n}
    return {"last_token_usage": last, "total_token_usage": {"total_tokens": 8_000 * (n + 1)}}


# --- lists of messages ------------------------------------------------------------------------------------


def messages() -> list[Json]:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
    return [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "read a"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "what a says"},
        {"role": "assistant", "content": "it says: what a says"},
    ]


# --- our own ----------------------------------------------------------------------------------------------


def sevenfold(rounds: int = 2) -> bytes:
    at = [BEGAN]
    log: list[bytes] = []
    transcript = Transcript(lambda: at[0], log.append)
    about = {"format": 1, "id": "one-of-ours", "root": "/w", "model": "claude-sonnet-4-5"}
    transcript.add(Mark("session", about), by="session")
    transcript.add(user("read the files"), by="user")
    for n in range(rounds):
        at[0] += 5
        use = ToolUse(f"u{n}", "Read", {"file_path": f"/w/{n}.py"})
        usage = Usage(10, 900, 5_000 + 900 * n, 20)
        transcript.add(Reply(assistant(Text("reading"), use), usage, "tool_use"), by="model")
        result = ToolResult(f"u{n}", f"content of file number {n}\n" * 40)
        transcript.add(Message("user", (result,)), by="tools")
    at[0] += 5
    last = Reply(assistant(Text("both are read")), Usage(10, 900, 7_000, 20))
    transcript.add(last, by="model")
    return b"".join(log)
