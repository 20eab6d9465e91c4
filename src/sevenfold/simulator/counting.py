"""How many tokens the simulator counts: whole numbers for each block, so that prefixes add up.

The rule is the raw one of `sevenfold.tokens`: four bytes a token for text, two for JSON, a flat number
for an image or a document, rounded up for each block. A request is worth the sum of its blocks, and the
two ends of any split always add up to the whole. Real tokenizers differ; proportions hold.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sevenfold.simulator.problems import Json
from sevenfold.tokens import FLAT, JSON_RATE, TEXT_RATE, byte_length

encode = msgspec.json.Encoder().encode

TEXT_BYTES: Final = round(1 / TEXT_RATE)
JSON_BYTES: Final = round(1 / JSON_RATE)


def text_tokens(text: str) -> int:
    return -(-byte_length(text) // TEXT_BYTES)


def json_tokens(value: Any) -> int:
    return -(-len(encode(value)) // JSON_BYTES)


def tool_tokens(tool: Json) -> int:
    """A tool definition, as JSON. A deferred one is not in the prompt."""
    if tool.get("defer_loading"):
        return 0
    return json_tokens({k: v for k, v in tool.items() if k != "cache_control"})


def block_tokens(block: Json) -> int:
    match block.get("type"):
        case "text":
            return text_tokens(str(block.get("text", "")))
        case "thinking":
            return text_tokens(str(block.get("thinking", "")))
        case "redacted_thinking":
            return text_tokens(str(block.get("data", "")))
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            size = byte_length(str(block.get("name", ""))) + len(encode(block.get("input", {})))
            return -(-size // JSON_BYTES)
        case "tool_result":
            return _result_tokens(block.get("content"))
        case "image" | "document":
            return FLAT
        case "cache_edits":
            return 0
    return json_tokens({k: v for k, v in block.items() if k != "cache_control"})


def _result_tokens(content: Any) -> int:
    if isinstance(content, list):
        return sum(block_tokens(b) for b in content if isinstance(b, dict))
    text = content if isinstance(content, str) else ""
    if text[:1] in ("{", "[") and text.rstrip()[-1:] in ("}", "]"):
        return -(-byte_length(text) // JSON_BYTES)
    return text_tokens(text)


def content_tokens(content: Any) -> int:
    """All blocks of a reply, or the text it is."""
    if isinstance(content, str):
        return text_tokens(content)
    return sum(block_tokens(b) for b in content)
