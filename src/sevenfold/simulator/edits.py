"""The provider's context editing: old tool results and thinking leave before tokens are counted.

`clear_tool_uses_20250919` and `clear_thinking_20251015` are applied as documented, and compaction at a
threshold puts a summary block into the reply; edits of other kinds do nothing. Only a copy is edited.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from sevenfold.core.tokens import Usage
from sevenfold.models.capabilities import BINDING_BETA
from sevenfold.simulator.cache import count_block_tokens, read_prompt, to_blocks
from sevenfold.simulator.errors import Json, make_invalid_request
from sevenfold.simulator.script import find_last_user_text

CLEARED: Final = "(this tool result was cleared to save context)"
TOOL_USES: Final = "clear_tool_uses_20250919"
THINKING: Final = "clear_thinking_20251015"
DEFAULT_TRIGGER: Final = {"type": "input_tokens", "value": 100_000}
DEFAULT_KEEP: Final = 3

BlockPosition = tuple[int, int]  # A block: index of its message, index inside it


def apply_edits(
    body: Json, count: Callable[[Json], int], *, keeps_thinking: bool
) -> tuple[Json, list[Json]]:
    """The request as the model would see it, and what was done to it."""
    edits = _edits(body)
    applied: list[Json] = []
    if not any(e.get("type") == THINKING for e in edits) and not keeps_thinking:
        # What such a model does by itself is not reported as an edit.
        last = max((i for i, message in enumerate(body["messages"]) if _speaks(message)), default=0)
        earlier = enumerate(body["messages"][:last])
        body = _without(body, {at for i, message in earlier for at in _thoughts(i, message)})
    for edit in edits:
        done: Json | None = None
        if edit.get("type") == THINKING:
            body, done = _clear_thinking(body, edit, keeps_thinking)
        elif edit.get("type") == TOOL_USES:
            body, done = _clear_tool_uses(body, edit, count)
        if done is not None:
            applied.append(done)
    return body, applied


def _edits(body: Json) -> list[Json]:
    edits = (body.get("context_management") or {}).get("edits") or []
    if not isinstance(edits, list) or not all(isinstance(edit, dict) for edit in edits):
        raise make_invalid_request("context_management.edits: Input should be a valid list")
    for edit in edits:
        for key in ("trigger", "clear_at_least"):
            if not isinstance(edit.get(key) or {}, dict):
                raise make_invalid_request(
                    f"context_management.edits.{key}: Input should be a valid dictionary"
                )
        spared = edit.get("exclude_tools") or []
        if not isinstance(spared, list) or not all(isinstance(name, str) for name in spared):
            raise make_invalid_request(
                "context_management.edits.exclude_tools: Input should be a valid list"
            )
    if THINKING in [edit.get("type") for edit in edits[1:]]:
        raise make_invalid_request(
            f"context_management.edits: `{THINKING}` must be the first edit when several are given"
        )
    return edits


# --- tool results ----------------------------------------------------------------------------------------


def _clear_tool_uses(body: Json, edit: Json, count: Callable[[Json], int]) -> tuple[Json, Json | None]:
    uses = _uses(body["messages"])
    trigger = edit.get("trigger") or DEFAULT_TRIGGER
    size = len(uses) if trigger.get("type") == "tool_uses" else count(body)
    if size <= _number(trigger, DEFAULT_TRIGGER["value"]):
        return body, None
    keep = _number(edit.get("keep"), DEFAULT_KEEP)
    spared = {*(edit.get("exclude_tools") or ())}
    old = list(uses.items())[: len(uses) - keep] if keep else list(uses.items())
    ids = {id for id, name in old if name not in spared}
    inputs = edit.get("clear_tool_inputs")
    emptied = {id for id in ids if inputs is True or (isinstance(inputs, list) and uses[id] in inputs)}
    cleared, freed, n = _cleared(body, ids, emptied)
    if not n or freed < _number(edit.get("clear_at_least"), 0):
        return body, None
    return cleared, {"type": TOOL_USES, "cleared_tool_uses": n, "cleared_input_tokens": freed}


def _cleared(body: Json, ids: set[str], emptied: set[str]) -> tuple[Json, int, int]:
    """The request with these results replaced and these inputs emptied, tokens freed, results cleared."""
    freed = n = 0
    messages = []
    for message in body["messages"]:
        blocks = []
        for block in to_blocks(message.get("content")):
            new = block
            if block.get("type") == "tool_result" and block.get("tool_use_id") in ids:
                new = {**block, "content": CLEARED}
                n += 1
            elif block.get("type") == "tool_use" and block.get("id") in emptied:
                new = {**block, "input": {}}
            if new is not block:
                freed += count_block_tokens(block) - count_block_tokens(new)
            blocks.append(new)
        messages.append({**message, "content": blocks})
    return {**body, "messages": messages}, freed, n


def _uses(messages: list[Json]) -> dict[str, str]:
    """Name of the tool for each use that has a result, oldest first."""
    names: dict[str, str] = {}
    answered: set[str] = set()
    for message in messages:
        for block in to_blocks(message.get("content")):
            if block.get("type") == "tool_use":
                names[str(block.get("id"))] = str(block.get("name"))
            elif block.get("type") == "tool_result":
                answered.add(str(block.get("tool_use_id")))
    return {id: name for id, name in names.items() if id in answered}


def _number(setting: Any, default: Any) -> int:
    value = setting.get("value", default) if isinstance(setting, dict) else default
    if not isinstance(value, int) or value < 0:
        raise make_invalid_request(
            "context_management.edits: `value` must be a whole number that is not negative"
        )
    return value


# --- thinking --------------------------------------------------------------------------------------------


def _clear_thinking(body: Json, edit: Json, keeps_thinking: bool) -> tuple[Json, Json | None]:
    keep = edit.get("keep") or ("all" if keeps_thinking else {"value": 1})
    if keep == "all" or (isinstance(keep, dict) and keep.get("type") == "all"):
        return body, None
    turns = _thinking_turns(body["messages"])
    gone = turns[: max(0, len(turns) - _number(keep, 1))]
    if not gone:
        return body, None
    where = {at for turn in gone for at in turn}
    freed = sum(count_block_tokens(to_blocks(body["messages"][i]["content"])[j]) for i, j in sorted(where))
    done = {"type": THINKING, "cleared_thinking_turns": len(gone), "cleared_input_tokens": freed}
    return _without(body, where), done


def _thinking_turns(messages: list[Json]) -> list[list[BlockPosition]]:
    """Thinking blocks of each turn that has any. A turn lasts until the user says something new."""
    turns: list[list[BlockPosition]] = [[]]
    for i, message in enumerate(messages):
        if _speaks(message):
            turns.append([])
        turns[-1].extend(_thoughts(i, message))
    return [turn for turn in turns if turn]


def _thoughts(i: int, message: Json) -> list[BlockPosition]:
    if message["role"] != "assistant":
        return []
    kinds = (b.get("type") for b in to_blocks(message.get("content")))
    return [(i, j) for j, kind in enumerate(kinds) if kind in ("thinking", "redacted_thinking")]


def _speaks(message: Json) -> bool:
    """True for a user message that holds anything but tool results."""
    kinds = [block.get("type") for block in to_blocks(message.get("content"))]
    return message["role"] == "user" and any(kind not in ("tool_result", "cache_edits") for kind in kinds)


def _without(body: Json, where: set[BlockPosition]) -> Json:
    messages = []
    for i, message in enumerate(body["messages"]):
        blocks = enumerate(to_blocks(message.get("content")))
        messages.append({**message, "content": [block for j, block in blocks if (i, j) not in where]})
    return {**body, "messages": messages} if where else body


# --- thinking that is bound to its prefix ---------------------------------------------------------------


class BoundThinking:
    """The prefixes that signed thinking was made on. On another prefix it is refused, or dropped."""

    def __init__(self) -> None:
        self._prefixes: defaultdict[str, set[bytes]] = defaultdict(set)

    def remember(self, body: Json, content: Sequence[Json]) -> None:
        """Take down the thinking of a reply to this request."""
        signed = [str(block.get("signature")) for block in content if block["type"] == "thinking"]
        for signature in signed:
            self._prefixes[signature].add(read_prompt(body, bare=True).digests[-1])

    def check(self, body: Json, betas: str) -> Json:
        """The request without the thinking that is to be dropped; raises if it is to be refused."""
        binding = (body.get("thinking") or {}).get("block_binding")
        if binding is not None and BINDING_BETA not in betas:
            raise make_invalid_request("thinking.block_binding: Extra inputs are not permitted")
        if not (wrong := self._unreadable(body)):
            return body
        if (binding or {}).get("prefix_mismatch_behavior") == "drop_block":
            return _without(body, wrong)
        i, j = min(wrong)
        raise make_invalid_request(
            f"messages.{i}.content.{j}: `thinking` block does not match the conversation before it"
        )

    def _unreadable(self, body: Json) -> set[BlockPosition]:
        if not any(_thoughts(i, message) for i, message in enumerate(body["messages"])):
            return set()
        prompt, wrong, before = read_prompt(body, bare=True), set[BlockPosition](), b""
        for position, (section, i, j, kind) in enumerate(prompt.places):
            if section == "messages" and j == 0:
                before = prompt.digests[position - 1] if position else b""
            if kind == "thinking" and section == "messages":
                block = to_blocks(body["messages"][i]["content"])[j]
                known = self._prefixes.get(str(block.get("signature")))
                if known is not None and before not in known:  # what another server signed is not judged
                    wrong.add((i, j))
        return wrong


EDIT: Final = "compact_20260112"
BLOCK: Final = "compaction"
DEFAULT_TRIGGER_COMPACTION: Final = 150_000
LEAST_TRIGGER: Final = 50_000


class ServerSummary(msgspec.Struct, frozen=True):
    """The block that goes with the reply, and the usage of writing it."""

    block: Json
    usage: Usage


def make_iteration(kind: str, usage: Usage) -> Json:
    """One entry of `usage.iterations`."""
    return {
        "type": kind,
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
    }


def find_compact_edit(body: Json) -> Json | None:
    """The edit that asks for it, if the request has one."""
    edits = (body.get("context_management") or {}).get("edits")
    known = [e for e in edits if isinstance(e, dict)] if isinstance(edits, list) else []
    return next((edit for edit in known if edit.get("type") == EDIT), None)


def cut_before_summary(body: Json) -> Json:
    """The request without what stands before its newest summary."""
    messages = body["messages"] if find_compact_edit(body) is not None else []
    for i in range(len(messages) - 1, -1, -1):
        blocks = to_blocks(messages[i]["content"])
        for j in range(len(blocks) - 1, -1, -1):
            if blocks[j].get("type") == BLOCK and blocks[j].get("content"):
                first = {**messages[i], "content": blocks[j:]}
                return {**body, "messages": [first, *messages[i + 1 :]]}
    return body


def is_threshold_reached(body: Json, count: Callable[[Json], int]) -> bool:
    """True if this request must be summarised before it is answered."""
    edit = find_compact_edit(body)
    if edit is None:
        return False
    value: Any = (edit.get("trigger") or {}).get("value", DEFAULT_TRIGGER_COMPACTION)
    if not isinstance(value, int) or value < LEAST_TRIGGER:
        raise make_invalid_request(
            f"context_management.edits.trigger.value: Input should be greater than or equal to "
            f"{LEAST_TRIGGER}"
        )
    return count(body) >= value


def summarise_request(body: Json, usage: Usage) -> tuple[Json, ServerSummary]:
    """The request as the model answers it then, and the summary; `usage` is what reading it took."""
    earlier = next((b for b in to_blocks(body["messages"][0]["content"]) if b.get("type") == BLOCK), {})
    last = find_last_user_text(body)[:400]
    said = f"{len(body['messages'])} messages were summed up. The user said: {last}"
    block: Json = {"type": BLOCK, "content": f"{said}\n{earlier.get('content') or ''}".strip()}
    messages = [{"role": "assistant", "content": [block]}]
    wrote = usage + Usage(output=count_block_tokens(block))
    return {**body, "messages": messages}, ServerSummary(block, wrote)
