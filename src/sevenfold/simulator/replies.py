"""What the simulated model says: a reply from a function or a script, made fit for the wire."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import TypeAlias

import msgspec

from sevenfold.models.offline.forced import insisted, smallest_call
from sevenfold.simulator.counting import TEXT_BYTES, block_tokens
from sevenfold.simulator.problems import Json
from sevenfold.simulator.script import ReplyStep, last_said


class Reply(msgspec.Struct, frozen=True):
    """What the model says to one request."""

    content: Sequence[Json]
    stop_reason: str | None = None
    """Worked out from the content where it is not given."""
    stop_sequence: str | None = None
    usage: dict[str, int] = {}
    """Numbers to report instead of the ones that were counted."""


Answer: TypeAlias = Reply | str | Sequence[Json]
Replies: TypeAlias = Callable[[Json], Answer | Awaitable[Answer]]
"""From the body of a request to an answer: text, blocks, or a `Reply`."""


def echo(body: Json) -> str | list[Json]:
    """The reply of a simulator that was given nothing better: it repeats what the user said.

    Where the request insists on a tool, it is called with as little as its schema takes.
    """
    if tools := insisted(body):
        return [smallest_call(tools[0])]
    said = last_said(body)
    return f"You said: {said}" if said else "You said nothing in words."


def as_reply(answer: Answer) -> Reply:
    if isinstance(answer, Reply):
        return answer
    if isinstance(answer, str):
        return Reply([{"type": "text", "text": answer}] if answer else [])
    return Reply(list(answer))


def scripted(step: ReplyStep) -> Reply:
    blocks = list(step.content or [])
    if step.text is not None:
        blocks.insert(0, {"type": "text", "text": step.text})
    if step.thinking is not None:
        blocks.insert(0, {"type": "thinking", "thinking": step.thinking})
    return Reply(blocks, step.stop_reason, usage=step.usage)


def finished(reply: Reply, body: Json, room: int | None, ids: Callable[[], str]) -> Reply:
    """The reply with ids, signatures and a stop reason, cut where the output or the window ends."""
    if body.get("max_tokens") == 0:
        return Reply([], "max_tokens", usage=reply.usage)
    blocks = [_whole(block, ids) for block in reply.content]
    if reply.stop_reason is not None:
        return Reply(blocks, reply.stop_reason, reply.stop_sequence, reply.usage)
    blocks, sequence = _until(blocks, body.get("stop_sequences") or ())
    bounds = [(body.get("max_tokens"), "max_tokens"), (room, "model_context_window_exceeded")]
    for limit, reason in sorted((n, why) for n, why in bounds if n is not None):
        kept = _cut(blocks, limit)
        if kept is not None:
            return Reply(kept, reason, usage=reply.usage)
    if sequence is not None:
        return Reply(blocks, "stop_sequence", sequence, reply.usage)
    used = any(block["type"] == "tool_use" for block in blocks)
    return Reply(blocks, "tool_use" if used else "end_turn", usage=reply.usage)


def _until(blocks: list[Json], sequences: Sequence[str]) -> tuple[list[Json], str | None]:
    """Everything before the first stop sequence in the text, and that sequence."""
    for n, block in enumerate(blocks):
        text = block.get("text", "") if block["type"] == "text" else ""
        found = [(text.find(s), s) for s in sequences if s and s in text]
        if found:
            at, sequence = min(found)
            return [*blocks[:n], {**block, "text": text[:at]}], sequence
    return blocks, None


def _whole(block: Json, ids: Callable[[], str]) -> Json:
    if block["type"] == "tool_use":
        return {
            "type": "tool_use",
            "id": block.get("id") or ids(),
            "name": block.get("name", ""),
            "input": block.get("input") or {},
            **{k: v for k, v in block.items() if k not in ("type", "id", "name", "input")},
        }
    if block["type"] == "thinking" and not block.get("signature"):
        digest = blake2b(str(block.get("thinking", "")).encode(), digest_size=12).hexdigest()
        return {**block, "signature": f"sim-{digest}"}
    return block


def _cut(blocks: Sequence[Json], limit: int) -> list[Json] | None:
    """What of the reply comes before the limit, or None if all of it does.

    Text and thinking are cut; a tool call that does not fit is left out, since half of one is no call.
    """
    if sum(block_tokens(block) for block in blocks) <= limit:
        return None
    kept: list[Json] = []
    for block in blocks:
        size = block_tokens(block)
        if size <= limit:
            kept.append(block)
            limit -= size
            continue
        key = {"text": "text", "thinking": "thinking"}.get(block["type"])
        if key is not None and limit:
            kept.append({**block, key: _first_bytes(block[key], limit * TEXT_BYTES)})
        break
    return kept


def _first_bytes(text: str, n: int) -> str:
    return text.encode()[:n].decode("utf-8", "ignore")
