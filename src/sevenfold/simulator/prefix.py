"""A request as the prompt cache sees it: a row of blocks, each with the hash of everything up to it.

Order is tools, system, messages. A block's hash covers its role and its content in the form it came,
cache marks left out, text content always as a list. What the provider says changes the messages' part
only (`tool_choice`, thinking, effort, whether there are images) is mixed in where the messages begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from sevenfold.simulator.counting import block_tokens, encode, tool_tokens
from sevenfold.simulator.problems import Json

TTL: Final = {"5m": 300, "1h": 3_600}
DIGEST: Final = 16


@dataclass(slots=True)
class Prompt:
    """The blocks of one request; position k is the k-th block, and every list has one item a block."""

    digests: list[bytes] = field(default_factory=list)
    """Of everything up to and including the block."""
    upto: list[int] = field(default_factory=list)
    """Tokens up to and including the block."""
    places: list[tuple[str, int, int, str]] = field(default_factory=list)
    """Section, index, index inside it, and the kind of block."""
    marks: list[tuple[int, int]] = field(default_factory=list)
    """Cache breakpoints: position and seconds to live."""
    settings: Json = field(default_factory=dict)
    model: str = ""
    tools_end: int = 0
    system_end: int = 0

    def __len__(self) -> int:
        return len(self.digests)

    @property
    def tokens(self) -> int:
        return self.upto[-1] if self.upto else 0

    def before(self, position: int) -> int:
        """Tokens of everything before the block at this position."""
        return self.upto[position - 1] if position else 0

    def shared(self, other: Prompt) -> int:
        """How many blocks at the beginning are the same. Hashes are cumulative, so halving finds it."""
        low, high = 0, min(len(self), len(other))
        while low < high:
            middle = (low + high + 1) // 2
            if self.digests[middle - 1] == other.digests[middle - 1]:
                low = middle
            else:
                high = middle - 1
        return low

    def describe(self, position: int) -> str:
        section, i, j, kind = self.places[position]
        if section == "messages":
            return f"messages[{i}].content[{j}] {kind}"
        return f"{section}[{i}] {kind}"


def read_prompt(body: Json) -> Prompt:
    """The blocks of a request. It must have passed validation."""
    prompt = Prompt(settings=_settings(body), model=str(body.get("model") or ""))
    chain = blake2b(digest_size=DIGEST)
    gone = deleted_results(body)
    tokens, current = 0, "tools"
    for place, role, block, count in _blocks(body):
        section, _, _, kind = place
        if section != current:
            if current == "tools":
                prompt.tools_end = len(prompt)
                chain.update(b"\0speed:" + encode(body.get("speed") or "standard"))
            if section == "messages":
                prompt.system_end = len(prompt)
                chain.update(b"\0settings:" + encode(prompt.settings))
            current = section
        data = encode(essence(block))
        chain.update(b"%c%d:" % (role, len(data)))
        chain.update(data)
        if not (gone and kind == "tool_result" and block.get("tool_use_id") in gone):
            tokens += count
        ttl = mark_of(block)
        if ttl is not None:
            prompt.marks.append((len(prompt), ttl))
        prompt.digests.append(chain.digest())
        prompt.upto.append(tokens)
        prompt.places.append(place)
    return prompt


def mark_automatically(prompt: Prompt, message: int, block: int, ttl: int) -> None:
    """Put the request's own breakpoint on a block, unless one is there."""
    for position in range(len(prompt) - 1, prompt.system_end - 1, -1):
        if prompt.places[position][1:3] == (message, block):
            if all(at != position for at, _ in prompt.marks):
                prompt.marks.append((position, ttl))
                prompt.marks.sort()
            return


def _blocks(body: Json) -> Iterator[tuple[tuple[str, int, int, str], int, Json, int]]:
    for i, tool in enumerate(body.get("tools") or ()):
        if not tool.get("defer_loading"):
            name = str(tool.get("name") or tool.get("type") or "tool")
            yield ("tools", i, 0, name), 0x74, tool, tool_tokens(tool)
    for i, block in enumerate(as_blocks(body.get("system"))):
        yield ("system", i, 0, str(block.get("type"))), 0x73, block, block_tokens(block)
    for i, message in enumerate(body.get("messages") or ()):
        role = ord(message["role"][0])
        for j, block in enumerate(as_blocks(message.get("content"))):
            yield ("messages", i, j, str(block.get("type"))), role, block, block_tokens(block)


def as_blocks(content: Any) -> list[Json]:
    """Content as a list of blocks, however it was written."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [b for b in content or () if isinstance(b, dict)]


def essence(block: Json) -> Json:
    """The block without its marks and with one spelling for what can be written in two ways."""
    out = {k: block[k] for k in sorted(block) if k != "cache_control"}
    if out.get("type") == "tool_result":
        if not out.get("is_error"):
            out.pop("is_error", None)
        out["content"] = [essence(b) for b in as_blocks(out.get("content"))]
    return out


def mark_of(block: Json) -> int | None:
    """Seconds this block asks the prefix to be kept. A mark inside a tool result counts for the result."""
    control = block.get("cache_control")
    if control is None and block.get("type") == "tool_result":
        inner = block.get("content")
        for part in inner if isinstance(inner, list) else ():
            if control is None and isinstance(part, dict):
                control = part.get("cache_control")
    return None if control is None else ttl_of(control)


def ttl_of(control: Json) -> int:
    return TTL[control.get("ttl") or "5m"]


def deleted_results(body: Json) -> set[str]:
    """Tool uses whose results a `cache_edits` block has deleted from the cached prefix."""
    return {
        str(gone)
        for message in body.get("messages") or ()
        for block in as_blocks(message.get("content"))
        if block.get("type") == "cache_edits"
        for gone in block.get("delete") or ()
    }


def _settings(body: Json) -> Json:
    thinking = body.get("thinking") or {}
    return {
        "tool_choice": body.get("tool_choice") or {"type": "auto"},
        "thinking": [thinking.get("type") or "disabled", thinking.get("budget_tokens")],
        "effort": (body.get("output_config") or {}).get("effort"),
        "images": any(
            has_image(block)
            for message in body.get("messages") or ()
            for block in as_blocks(message.get("content"))
        ),
    }


def has_image(block: Json) -> bool:
    if block.get("type") == "image":
        return True
    inner = block.get("content") if block.get("type") == "tool_result" else None
    return isinstance(inner, list) and any(
        isinstance(b, dict) and b.get("type") == "image" for b in inner
    )
