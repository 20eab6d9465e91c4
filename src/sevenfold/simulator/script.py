"""A script tells the simulator what to answer, and what to get wrong, request by request.

One JSON object a line (or one JSON list of them). Each request takes the first step that fits it:

    {"reply": {"text": "Hello."}}
    {"reply": {"content": [{"type": "tool_use", "name": "Bash", "input": {"command": "ls"}}]}}
    {"error": {"status": 429, "retry_after": 2}}        or just {"error": 529}
    {"slow": {"first_byte_ms": 500, "chunk_delay_ms": 50}}
    {"cut": {"after_events": 3}}                        the connection dies there
    {"malformed": true}                                 a body that is not JSON
    {"hang": true}                                      no answer until the client goes away
    {"match": {"text": "weather"}, "reply": {"text": "Rain."}, "times": 2}

`slow`, `cut`, `malformed` and `hang` without a `reply` bend the reply that would have been given anyway.
A step with `match` waits until a request fits it. When no step fits, the simulator answers by itself.

A reply of a function or a script is then made fit for the wire: ids, signatures, limits.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from sevenfold.core.errors import ScriptError
from sevenfold.offline.forced_output import apply_output_format, find_forced_tools, make_smallest_call
from sevenfold.simulator.cache import TEXT_BYTES, count_block_tokens, to_blocks
from sevenfold.simulator.errors import ApiError, Json

MOST_TIMES = 1_000_000_000


class ReplyStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str | None = None
    thinking: str | None = None
    content: list[Json] | None = None
    stop_reason: str | None = None
    usage: dict[str, int] = {}
    """Numbers to report instead of the ones that were counted, by their names on the wire."""


class ErrorStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    status: int = 500
    type: str | None = None
    message: str | None = None
    retry_after: float | None = None
    after_events: int | None = None
    """Not as the answer, but as an `error` event in the stream, after this many events."""

    def problem(self) -> ApiError:
        return ApiError(self.status, self.message, kind=self.type, retry_after=self.retry_after)


class SlowReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    first_byte_ms: float = 0
    chunk_delay_ms: float = 0


class StreamPoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A point in a stream, counted in events; 0 is before the first byte of the answer."""

    after_events: int = 0


class StepMatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The conditions for a step to fit a request. A condition that is not given always holds."""

    text: str | None = None  # Part of what the user said last, case ignored
    regex: str | None = None
    model: str | None = None  # The beginning of the model's name
    source: str | None = None  # The whole `x-sevenfold-source` header

    def fits(self, body: Json, source: str) -> bool:
        said = find_last_user_text(body)
        if self.text is not None and self.text.casefold() not in said.casefold():
            return False
        if self.regex is not None and not re.search(self.regex, said):
            return False
        if self.model is not None and not str(body.get("model", "")).startswith(self.model):
            return False
        return self.source is None or self.source == source


class ScriptStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reply: ReplyStep | None = None
    error: ErrorStep | None = None
    slow: SlowReply | None = None
    cut: StreamPoint | None = None
    malformed: bool | StreamPoint | None = None
    hang: bool | StreamPoint | None = None
    match: StepMatch | None = None
    times: int = 1

    @property
    def hangs_at(self) -> int | None:
        return _point(self.hang)

    @property
    def fault(self) -> str | None:
        """The name of the fault in the answer."""
        faults = ("hang", "cut", "malformed", "slow", "error")
        return next((name for name in faults if getattr(self, name)), None)

    @property
    def malformed_at(self) -> int | None:
        return _point(self.malformed)


def _point(value: bool | StreamPoint | None) -> int | None:
    if isinstance(value, StreamPoint):
        return value.after_events
    return 0 if value else None


class Script:
    """Steps waiting for the requests they fit."""

    def __init__(self, steps: Iterable[ScriptStep] = ()) -> None:
        self._waiting: list[tuple[ScriptStep, int]] = [(step, step.times) for step in steps]

    def __len__(self) -> int:
        return sum(times for _, times in self._waiting)

    def extend(self, steps: Iterable[ScriptStep]) -> None:
        self._waiting.extend((step, step.times) for step in steps)

    def clear(self) -> None:
        self._waiting.clear()

    def take(self, body: Json, source: str = "") -> ScriptStep | None:
        """The first step that fits, which is then used up by one."""
        for i, (step, times) in enumerate(self._waiting):
            if step.match is None or step.match.fits(body, source):
                if times > 1:
                    self._waiting[i] = step, times - 1
                else:
                    del self._waiting[i]
                return step
        return None


def find_last_user_text(body: Json) -> str:
    """The text of the last user message that has any."""
    for message in reversed(body.get("messages") or ()):
        if message.get("role") == "user":
            blocks = [b for b in to_blocks(message.get("content")) if b.get("type") == "text"]
            texts = [b["text"] for b in blocks if isinstance(b.get("text"), str)]
            if texts:
                return "\n".join(texts)
    return ""


# --- reading ---------------------------------------------------------------------------------------------


def read_script(path: Path) -> Script:
    """A script from a file. What is wrong is said with its line."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ScriptError(f"{path}: the script cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ScriptError(f"{path}: the script is not UTF-8 text.") from error
    return Script(parse_steps(text, str(path)))


def parse_steps(text: str, name: str = "script") -> list[ScriptStep]:
    """Steps from JSON lines, or from one JSON list."""
    if text.lstrip().startswith("["):
        items = _decode(text, name, list)
        return [parse_step(item, f"{name}, step {n}") for n, item in enumerate(items, 1)]
    steps = []
    for n, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("//"):
            where = f"{name}, line {n}"
            steps.append(parse_step(_decode(line, where, dict), where))
    return steps


def _decode(text: str, where: str, kind: type) -> Any:
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ScriptError(f"{where}: not JSON: {error}.") from error
    if not isinstance(value, kind):
        raise ScriptError(f"{where}: a JSON {'list' if kind is list else 'object'} was expected.")
    return value


def parse_step(item: Any, where: str) -> ScriptStep:
    """One step from its JSON. `error` may be just a status."""
    if isinstance(item, dict) and isinstance(item.get("error"), int):
        item = {**item, "error": {"status": item["error"]}}
    try:
        step = msgspec.convert(item, ScriptStep)
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at `$")
        inside = f" in `{at.rstrip('`').lstrip('.')}`" if at.strip("`.") else ""
        raise ScriptError(f"{where}: {what}{inside}.") from error
    _check(step, where)
    return step


def _check(step: ScriptStep, where: str) -> None:
    if step.reply is not None and step.error is not None and step.error.after_events is None:
        raise ScriptError(f"{where}: a step has either a `reply` or an `error`, not both.")
    if not 1 <= step.times <= MOST_TIMES:
        raise ScriptError(f"{where}: `times` must be 1 or more, and at most {MOST_TIMES:,}.")
    if step.error is not None and not 400 <= step.error.status <= 599:
        raise ScriptError(f"{where}: the `status` of an error is 400 to 599, not {step.error.status}.")
    if step == ScriptStep(match=step.match, times=step.times):
        raise ScriptError(f"{where}: a step needs one of reply, error, slow, cut, malformed or hang.")
    for n, block in enumerate((step.reply.content or []) if step.reply else ()):
        if not isinstance(block.get("type"), str):
            raise ScriptError(f"{where}: reply.content[{n}] has no `type`.")
    if step.match is not None and step.match.regex is not None:
        try:
            re.compile(step.match.regex)
        except re.error as error:
            raise ScriptError(f"{where}: match.regex is not a regular expression: {error}.") from error


class ScriptReply(msgspec.Struct, frozen=True):
    """The model's reply to one request."""

    content: Sequence[Json]
    stop_reason: str | None = None  # Worked out from the content where it is not given
    stop_sequence: str | None = None
    usage: dict[str, int] = {}  # Numbers to report instead of the ones that were counted


ScriptAnswer: TypeAlias = ScriptReply | str | Sequence[Json]
Replies: TypeAlias = Callable[[Json], ScriptAnswer | Awaitable[ScriptAnswer]]
"""From the body of a request to an answer: text, blocks, or a `ScriptReply`."""


def make_echo(body: Json) -> str | list[Json]:
    """The reply of a simulator that was given nothing better: it repeats what the user said.

    Where the request insists on a tool, it is called with as little as its schema takes; where it insists
    on a format, the answer is JSON.
    """
    if tools := find_forced_tools(body):
        return [make_smallest_call(tools[0])]
    said = find_last_user_text(body)
    text = f"You said: {said}" if said else "You said nothing in words."
    return apply_output_format(body, [{"type": "text", "text": text}])


def to_reply(answer: ScriptAnswer) -> ScriptReply:
    if isinstance(answer, ScriptReply):
        return answer
    if isinstance(answer, str):
        return ScriptReply([{"type": "text", "text": answer}] if answer else [])
    return ScriptReply(list(answer))


def make_scripted_reply(step: ReplyStep) -> ScriptReply:
    blocks = list(step.content or [])
    if step.text is not None:
        blocks.insert(0, {"type": "text", "text": step.text})
    if step.thinking is not None:
        blocks.insert(0, {"type": "thinking", "thinking": step.thinking})
    return ScriptReply(blocks, step.stop_reason, usage=step.usage)


def finish_reply(reply: ScriptReply, body: Json, room: int | None, ids: Callable[[], str]) -> ScriptReply:
    """The reply with ids, signatures and a stop reason, cut where the output or the window ends."""
    if body.get("max_tokens") == 0:
        return ScriptReply([], "max_tokens", usage=reply.usage)
    blocks = [_whole(block, ids) for block in reply.content]
    if reply.stop_reason is not None:
        return ScriptReply(blocks, reply.stop_reason, reply.stop_sequence, reply.usage)
    blocks, sequence = _until(blocks, body.get("stop_sequences") or ())
    bounds = [(body.get("max_tokens"), "max_tokens"), (room, "model_context_window_exceeded")]
    for limit, reason in sorted((n, why) for n, why in bounds if n is not None):
        kept = _cut(blocks, limit)
        if kept is not None:
            return ScriptReply(kept, reason, usage=reply.usage)
    if sequence is not None:
        return ScriptReply(blocks, "stop_sequence", sequence, reply.usage)
    used = any(block["type"] == "tool_use" for block in blocks)
    return ScriptReply(blocks, "tool_use" if used else "end_turn", usage=reply.usage)


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
    """The part of the reply before the limit, or None if all of it is.

    Text and thinking are cut; a tool call that does not fit is left out, since half of one is no call.
    """
    if sum(count_block_tokens(block) for block in blocks) <= limit:
        return None
    kept: list[Json] = []
    for block in blocks:
        size = count_block_tokens(block)
        if size <= limit:
            kept.append(block)
            limit -= size
            continue
        key = {"text": "text", "thinking": "thinking"}.get(block["type"])
        if key is not None and limit:
            kept.append({**block, key: block[key].encode()[: limit * TEXT_BYTES].decode("utf-8", "ignore")})
        break
    return kept
