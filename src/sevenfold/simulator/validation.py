"""Requests the Messages API refuses, in its own words. Unknown fields and blocks are let through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sevenfold.simulator.cache import MAX_BREAKPOINTS, TTL, find_mark_ttl, parse_ttl, to_blocks
from sevenfold.simulator.errors import ApiError, Json, make_invalid_request

Spot = tuple[int, int, Json]  # Index of the message, index of the block inside it, and the block


def check_pairs(messages: list[Json]) -> None:
    """Raise what the API would say of the first broken pair."""
    seen: set[str] = set()
    results: set[str] = set()
    open_uses: dict[str, int] = {}
    for role, spots in _turns(messages):
        if role == "assistant":
            if open_uses:
                raise _unanswered(open_uses)
            open_uses = _uses(spots, seen)
            continue
        answered = _results(spots, open_uses)
        missing = {use: i for use, i in open_uses.items() if use not in answered}
        if missing:
            raise _unanswered(missing)
        results.update(answered)
        _check_edits(spots, results)
        open_uses = {}
    if open_uses:
        raise _unanswered(open_uses)


def _turns(messages: list[Json]) -> list[tuple[str, list[Spot]]]:
    """Blocks of messages of the same role in a row are one turn; `system` messages stand outside."""
    turns: list[tuple[str, list[Spot]]] = []
    for i, message in enumerate(messages):
        if message["role"] == "system":
            continue
        if not turns or turns[-1][0] != message["role"]:
            turns.append((message["role"], []))
        turns[-1][1].extend((i, j, b) for j, b in enumerate(to_blocks(message["content"])))
    return turns


def _uses(spots: list[Spot], seen: set[str]) -> dict[str, int]:
    uses: dict[str, int] = {}
    for i, j, block in spots:
        where = f"messages.{i}.content.{j}"
        if block["type"] == "tool_result":
            raise make_invalid_request(f"{where}: `tool_result` blocks can only be in `user` messages")
        if block["type"] != "tool_use":
            continue
        use = block.get("id")
        if not isinstance(use, str) or not isinstance(block.get("name"), str):
            missing = "name" if isinstance(use, str) else "id"
            raise make_invalid_request(f"{where}.tool_use.{missing}: Field required")
        if use in seen:
            raise make_invalid_request(f"{where}: `tool_use` ids must be unique")
        seen.add(use)
        uses[use] = i
    return uses


def _results(spots: list[Spot], open_uses: dict[str, int]) -> set[str]:
    """Uses answered at the beginning of this turn. Results after other content answer nothing."""
    answered: set[str] = set()
    first = True
    for i, j, block in spots:
        where = f"messages.{i}.content.{j}"
        if block["type"] == "tool_use":
            raise make_invalid_request(f"{where}: `tool_use` blocks can only be in `assistant` messages")
        if block["type"] != "tool_result":
            first = first and block["type"] == "cache_edits"
            continue
        use = block.get("tool_use_id")
        if not isinstance(use, str):
            raise make_invalid_request(f"{where}.tool_result.tool_use_id: Field required")
        if not isinstance(block.get("content") or "", str | list):
            raise make_invalid_request(f"{where}.tool_result.content: Input should be a valid list")
        if use not in open_uses:
            raise make_invalid_request(
                f"{where}: unexpected `tool_use_id` found in `tool_result` blocks:"
                f" {use}. Each `tool_result` block must have a corresponding `tool_use` block in "
                "the previous message."
            )
        if use in answered:
            raise make_invalid_request(
                f"{where}: each tool_use must have a single result. Found multiple "
                f"`tool_result` blocks with id: {use}"
            )
        if first:
            answered.add(use)
    return answered


def _unanswered(uses: dict[str, int]) -> ApiError:
    index = max(uses.values())
    return make_invalid_request(
        f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately "
        f"after: {', '.join(uses)}. Each `tool_use` block must have a corresponding `tool_result` "
        "block in the next message."
    )


def _check_edits(spots: list[Spot], results: set[str]) -> None:
    for i, j, block in spots:
        if block["type"] != "cache_edits":
            continue
        where, gone = f"messages.{i}.content.{j}.cache_edits.delete", block.get("delete")
        if not isinstance(gone, list) or not all(isinstance(id, str) for id in gone):
            raise make_invalid_request(f"{where}: Input should be a list of tool use ids")
        for id in gone:
            if id not in results:
                raise make_invalid_request(
                    f"{where}: no `tool_result` with `tool_use_id` {id} at or before this block"
                )


ROLES: Final = ("user", "assistant", "system")
UNMARKABLE: Final = ("thinking", "redacted_thinking", "cache_edits")
LEAST_BUDGET: Final = 1_024


def check_body(body: Any, *, counting: bool = False) -> Json:
    """Check the shape of a request, which is the same for every model."""
    if not isinstance(body, dict):
        raise make_invalid_request("The request body must be a JSON object")
    for key in ("model", "messages") if counting else ("model", "messages", "max_tokens"):
        if body.get(key) is None:
            raise make_invalid_request(f"{key}: Field required")
    if not isinstance(body["model"], str) or not body["model"]:
        raise make_invalid_request("model: Input should be a valid string")
    _check_types(body)
    _check_messages(body["messages"])
    _check_tools(body.get("tools") or [])
    return body


def check_request(body: Json, max_output: int | None, betas: str = "") -> None:
    """Check values: limits, pairs of tool use and result, thinking, cache marks."""
    if "max_tokens" in body:
        _check_max_tokens(body, max_output)
        _check_thinking(body, betas)
    _check_content(body["messages"])
    check_pairs(body["messages"])
    check_marks(body)


# --- shape -----------------------------------------------------------------------------------------------

_LISTS: Final = ("tools", "stop_sequences")
_OBJECTS: Final = (
    "thinking", "tool_choice", "context_management", "output_config", "cache_control", "diagnostics",
)  # fmt: skip


def _check_types(body: Json) -> None:
    for keys, kind, said in ((_LISTS, list, "list"), (_OBJECTS, dict, "dictionary")):
        for key in keys:
            if not isinstance(body.get(key), kind | None):
                raise make_invalid_request(f"{key}: Input should be a valid {said}")
    for i, stop in enumerate(body.get("stop_sequences") or ()):
        if not isinstance(stop, str):
            raise make_invalid_request(f"stop_sequences.{i}: Input should be a valid string")
    if not isinstance((body.get("diagnostics") or {}).get("previous_message_id"), str | None):
        raise make_invalid_request("diagnostics.previous_message_id: Input should be a valid string")
    _check_format((body.get("output_config") or {}).get("format"))
    _check_system(body.get("system"))


def _check_format(wanted: Any) -> None:
    where = "output_config.format"
    if wanted is None:
        return
    if not isinstance(wanted, dict):
        raise make_invalid_request(f"{where}: Input should be a valid dictionary")
    if wanted.get("type") != "json_schema":
        raise make_invalid_request(f"{where}.type: Input should be 'json_schema'")
    if not isinstance(wanted.get("schema"), dict):
        raise make_invalid_request(f"{where}.schema: Input should be a valid dictionary")


def _check_system(system: Any) -> None:
    if not isinstance(system, str | list | None):
        raise make_invalid_request("system: Input should be a valid list")
    for i, block in enumerate(system if isinstance(system, list) else ()):
        if not isinstance(block, dict):
            raise make_invalid_request(f"system.{i}: Input should be a valid dictionary")


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, list):
        raise make_invalid_request("messages: Input should be a valid list")
    if not messages:
        raise make_invalid_request("messages: at least one message is required")
    for i, message in enumerate(messages):
        if not isinstance(message, dict):
            raise make_invalid_request(f"messages.{i}: Input should be a valid dictionary")
        if message.get("role") not in ROLES:
            raise make_invalid_request(
                f"messages.{i}.role: Input should be 'user', 'assistant' or 'system'"
            )
        _check_content_type(i, message)
    spoken = [m["role"] for m in messages if m["role"] != "system"]
    if not spoken or spoken[0] != "user":
        raise make_invalid_request('messages: first message must use the "user" role')


def _check_content_type(i: int, message: Json) -> None:
    if "content" not in message:
        raise make_invalid_request(f"messages.{i}.content: Field required")
    content = message["content"]
    if not isinstance(content, str | list):
        raise make_invalid_request(f"messages.{i}.content: Input should be a valid list")
    for j, block in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise make_invalid_request(f"messages.{i}.content.{j}.type: Field required")


def _check_tools(tools: list[Any]) -> None:
    names: set[str] = set()
    for i, tool in enumerate(tools):
        if not isinstance(tool, dict):
            raise make_invalid_request(f"tools.{i}: Input should be a valid dictionary")
        name = tool.get("name")
        if name is None:
            if tool.get("type") in (None, "custom"):
                raise make_invalid_request(f"tools.{i}.custom.name: Field required")
            continue
        if not isinstance(name, str):
            raise make_invalid_request(f"tools.{i}.custom.name: Input should be a valid string")
        if name in names:
            raise make_invalid_request("tools: Tool names must be unique.")
        names.add(name)
        if tool.get("defer_loading") and tool.get("cache_control") is not None:
            raise make_invalid_request(
                f"tools.{i}: Tool '{name}' cannot have both defer_loading=true and cache_control "
                "set. Tools with defer_loading cannot use prompt caching."
            )


# --- values ----------------------------------------------------------------------------------------------


def _check_max_tokens(body: Json, max_output: int | None) -> None:
    asked = body["max_tokens"]
    if not isinstance(asked, int) or isinstance(asked, bool):
        raise make_invalid_request("max_tokens: Input should be a valid integer")
    if asked < 0:
        raise make_invalid_request("max_tokens: Input should be greater than or equal to 0")
    if max_output is not None and asked > max_output:
        raise make_invalid_request(
            f"max_tokens: {asked} > {max_output}, which is the maximum allowed number of output "
            f"tokens for {body['model']}"
        )
    if asked == 0 and body.get("stream"):
        raise make_invalid_request("max_tokens: 0 warms the cache and cannot be used with `stream`")


def _check_thinking(body: Json, betas: str) -> None:
    thinking = body.get("thinking") or {}
    if thinking.get("type") != "enabled":
        return
    budget = thinking.get("budget_tokens")
    if budget is None:
        raise make_invalid_request("thinking.enabled.budget_tokens: Field required")
    if not isinstance(budget, int) or budget < LEAST_BUDGET:
        raise make_invalid_request(
            f"thinking.enabled.budget_tokens: Input should be greater than or equal to {LEAST_BUDGET}"
        )
    if budget >= body["max_tokens"] and "interleaved-thinking" not in betas:
        raise make_invalid_request("`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_content(messages: list[Json]) -> None:
    last = len(messages) - 1
    for i, message in enumerate(messages):
        content = message["content"]
        optional = (i == last and message["role"] == "assistant") or message["role"] == "system"
        if not content and not optional:
            raise make_invalid_request(
                f"messages.{i}: all messages must have non-empty content except for the optional "
                "final assistant message"
            )
        for j, block in enumerate(to_blocks(content)):
            _check_block(i, j, block)
    final = messages[last]
    if final["role"] == "assistant" and (blocks := to_blocks(final["content"])):
        text = blocks[-1].get("text") if blocks[-1].get("type") == "text" else None
        if isinstance(text, str) and text != text.rstrip():
            raise make_invalid_request(
                "messages: final assistant content cannot end with trailing whitespace"
            )


def _check_block(i: int, j: int, block: Json) -> None:
    kind, where = block["type"], f"messages.{i}.content.{j}"
    if kind == "text":
        text = block.get("text")
        if not isinstance(text, str):
            raise make_invalid_request(f"{where}.text.text: Field required")
        if not text and block.get("cache_control"):
            raise make_invalid_request(f"{where}.text: cache_control cannot be set for empty text blocks")
        if not text:
            raise make_invalid_request("messages: text content blocks must be non-empty")
        if text.isspace():
            raise make_invalid_request("messages: text content blocks must contain non-whitespace text")
    if kind in UNMARKABLE and block.get("cache_control") is not None:
        raise make_invalid_request(f"{where}.{kind}.cache_control: Extra inputs are not permitted")
    if kind == "thinking":
        if "signature" not in block:
            raise make_invalid_request(f"{where}.thinking.signature: Field required")
        if not block["signature"]:
            raise make_invalid_request(f"{where}: Invalid `signature` in `thinking` block")


# --- cache marks -----------------------------------------------------------------------------------------


def check_marks(body: Json) -> None:
    """At most four, of a kind that exists, one-hour marks before five-minute marks."""
    marks = list(_marks(body))
    for where, control in marks:
        _check_control(where, control)
    automatic = _automatic_slots(body)
    found = len(marks) + automatic
    if found > MAX_BREAKPOINTS:
        raise make_invalid_request(
            f"A maximum of {MAX_BREAKPOINTS} blocks with cache_control may be provided. Found {found}."
        )
    if automatic:
        marks.append(("request", body["cache_control"]))
    short = False
    for where, control in marks:
        if parse_ttl(control) == TTL["1h"] and short:
            raise make_invalid_request(
                f"{where}.cache_control.ttl: a ttl='1h' cache_control block must not come after a "
                "ttl='5m' cache_control block. Note that blocks are processed in the following "
                "order: `tools`, `system`, `messages`."
            )
        short = short or parse_ttl(control) == TTL["5m"]


def _check_control(where: str, control: Any) -> None:
    if not isinstance(control, dict) or control.get("type") != "ephemeral":
        raise make_invalid_request(f"{where}.cache_control.type: Input should be 'ephemeral'")
    if control.get("ttl") not in (None, *TTL):
        raise make_invalid_request(f"{where}.cache_control.ttl: Input should be '5m' or '1h'")


def _marks(body: Json) -> Iterator[tuple[str, Any]]:
    for i, tool in enumerate(body.get("tools") or ()):
        if tool.get("cache_control") is not None:
            yield f"tools.{i}", tool["cache_control"]
    for i, block in enumerate(to_blocks(body.get("system"))):
        if block.get("cache_control") is not None:
            if block.get("type") == "text" and not block.get("text"):
                raise make_invalid_request(
                    f"system.{i}.text: cache_control cannot be set for empty text blocks"
                )
            yield f"system.{i}", block["cache_control"]
    for i, message in enumerate(body["messages"]):
        for j, block in enumerate(to_blocks(message["content"])):
            yield from _marks_in(f"messages.{i}.content.{j}", block)


def _marks_in(where: str, block: Json) -> Iterator[tuple[str, Any]]:
    """The block's own mark, and those inside a tool result."""
    if block.get("cache_control") is not None:
        yield where, block["cache_control"]
    inner = block.get("content") if block["type"] == "tool_result" else None
    for k, part in enumerate(inner if isinstance(inner, list) else ()):
        if isinstance(part, dict) and part.get("cache_control") is not None:
            yield f"{where}.content.{k}", part["cache_control"]


def _automatic_slots(body: Json) -> int:
    """1 if the request's own `cache_control` needs a breakpoint of its own."""
    control = body.get("cache_control")
    if control is None:
        return 0
    _check_control("request", control)
    target = find_automatic_target(body)
    there = find_mark_ttl(target[2]) if target else None
    if there is None:
        return 1 if target else 0
    if there != parse_ttl(control):
        names = {seconds: name for name, seconds in TTL.items()}
        raise make_invalid_request(
            f"Top-level cache_control has ttl='{names[parse_ttl(control)]}' but the target block "
            f"already has cache_control with ttl='{names[there]}'"
        )
    return 0


def find_automatic_target(body: Json) -> tuple[int, int, Json] | None:
    """The last block that can hold a breakpoint: message, index inside it, and the block."""
    for i in range(len(body["messages"]) - 1, -1, -1):
        message = body["messages"][i]
        blocks = [] if message.get("clear_at") else to_blocks(message["content"])
        for j in range(len(blocks) - 1, -1, -1):
            empty = blocks[j].get("type") == "text" and not blocks[j].get("text")
            if blocks[j].get("type") not in UNMARKABLE and not empty:
                return i, j, blocks[j]
    return None
