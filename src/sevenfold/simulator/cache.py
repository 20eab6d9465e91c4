"""The prompt cache of the Messages API, rule by rule as the provider documents it.

- A breakpoint writes one entry: the prefix that ends at that block. Nothing is written elsewhere.
- A read walks back from each breakpoint, at most 20 positions with the breakpoint as the first, and
  takes the longest prefix that an earlier request wrote. A run of `tool_use` blocks, or of
  `tool_result` blocks, is one position.
- A prefix shorter than the model's minimum is not kept, and no error says so.
- An entry lives for five minutes or an hour from the start of the request that wrote or last read it.
- Entries are kept for each key and each model apart.
- What is read is billed as read, what lies between there and the last breakpoint as written (an hour's
  part up to the last one-hour breakpoint), and the rest as plain input.

`CachedPrompt` is a request as blocks, each with the hash of everything up to it. Tokens are whole numbers
for each block, so that prefixes add up. `PromptDiagnostics` explains a miss, as the provider does for
requests with `diagnostics.previous_message_id`. `ImplicitCache` is that of chat completions: automatic,
from 1,024 tokens on, in steps of 128.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import dropwhile
from typing import Any, Final

import msgspec

from sevenfold.core.tokens import FLAT, JSON_RATE, TEXT_RATE, Usage, count_bytes
from sevenfold.simulator.errors import Json

encode = msgspec.json.Encoder().encode

TEXT_BYTES: Final = round(1 / TEXT_RATE)
JSON_BYTES: Final = round(1 / JSON_RATE)


def count_text_tokens(text: str) -> int:
    return -(-count_bytes(text) // TEXT_BYTES)


def count_json_tokens(value: Any) -> int:
    return -(-len(encode(value)) // JSON_BYTES)


def count_tool_tokens(tool: Json) -> int:
    """A tool definition, as JSON. A deferred one is not in the prompt."""
    if tool.get("defer_loading"):
        return 0
    return count_json_tokens({k: v for k, v in tool.items() if k != "cache_control"})


def count_block_tokens(block: Json) -> int:
    match block.get("type"):
        case "text":
            return count_text_tokens(str(block.get("text", "")))
        case "thinking":
            return count_text_tokens(str(block.get("thinking", "")))
        case "redacted_thinking":
            return count_text_tokens(str(block.get("data", "")))
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            size = count_bytes(str(block.get("name", ""))) + len(encode(block.get("input", {})))
            return -(-size // JSON_BYTES)
        case "tool_result":
            return _result_tokens(block.get("content"))
        case "image" | "document":
            return FLAT
        case "cache_edits":
            return 0
    return count_json_tokens({k: v for k, v in block.items() if k != "cache_control"})


def _result_tokens(content: Any) -> int:
    if isinstance(content, list):
        return sum(count_block_tokens(b) for b in content if isinstance(b, dict))
    text = content if isinstance(content, str) else ""
    if text[:1] in ("{", "[") and text.rstrip()[-1:] in ("}", "]"):
        return -(-count_bytes(text) // JSON_BYTES)
    return count_text_tokens(text)


def count_content_tokens(content: Sequence[Json]) -> int:
    """All blocks of a reply."""
    return sum(count_block_tokens(block) for block in content)


CLIENT_HEADER: Final = re.compile(r"x-[a-z0-9-]+: ?[^\n]*\s*")
"""A line such as `x-anthropic-billing-header: cc_version=2.1; cch=1a2b3`; it is not the same twice."""
TTL: Final = {"5m": 300, "1h": 3_600}
DIGEST: Final = 16


@dataclass(slots=True)
class CachedPrompt:
    """The blocks of one request; position k is the k-th block, and every list has one item a block."""

    digests: list[bytes] = field(default_factory=list)  # Of everything up to and including the block
    upto: list[int] = field(default_factory=list)  # Tokens up to and including the block
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

    def shared(self, other: CachedPrompt) -> int:
        """The number of equal blocks at the beginning. Hashes are cumulative, so bisection finds it."""
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


def read_prompt(body: Json, *, bare: bool = False) -> CachedPrompt:
    """The blocks of a request. It must have passed validation. `bare`: hashed without the settings."""
    thinking = body.get("thinking") or {}
    contents = (to_blocks(message.get("content")) for message in body.get("messages") or ())
    settings = {
        "tool_choice": body.get("tool_choice") or {"type": "auto"},
        "thinking": [thinking.get("type") or "disabled", thinking.get("budget_tokens")],
        "effort": (body.get("output_config") or {}).get("effort"),
        "images": any(has_image(block) for blocks in contents for block in blocks),
    }
    prompt = CachedPrompt(settings=settings, model=str(body.get("model") or ""))
    chain = blake2b(digest_size=DIGEST)
    gone = find_deleted_results(body)
    tokens, current = 0, "tools"
    for place, role, block, count in _blocks(body):
        section, _, _, kind = place
        if section != current:
            if current == "tools":
                prompt.tools_end = len(prompt)
                chain.update(b"\0speed:" + encode(body.get("speed") or "standard"))
            if section == "messages":
                prompt.system_end = len(prompt)
                chain.update(b"" if bare else b"\0settings:" + encode(prompt.settings))
            current = section
        data = encode(encode_canonical_block(block))
        chain.update(b"%c%d:" % (role, len(data)))
        chain.update(data)
        if not (gone and kind == "tool_result" and block.get("tool_use_id") in gone):
            tokens += count
        ttl = find_mark_ttl(block)
        if ttl is not None:
            prompt.marks.append((len(prompt), ttl))
        prompt.digests.append(chain.digest())
        prompt.upto.append(tokens)
        prompt.places.append(place)
    return prompt


def mark_automatically(prompt: CachedPrompt, message: int, block: int, ttl: int) -> None:
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
            yield ("tools", i, 0, name), 0x74, tool, count_tool_tokens(tool)
    for i, block in enumerate(to_blocks(body.get("system"))):
        yield ("system", i, 0, str(block.get("type"))), 0x73, block, count_block_tokens(block)
    for i, message in enumerate(body.get("messages") or ()):
        role = ord(message["role"][0])
        for j, block in enumerate(to_blocks(message.get("content"))):
            yield ("messages", i, j, str(block.get("type"))), role, block, count_block_tokens(block)


def strip_client_header(body: Json) -> Json:
    """The request without the blocks before its system prompt that only name the client and its version."""
    system = body.get("system")
    if not isinstance(system, list):
        return body
    kept = list(dropwhile(_is_client_header, system))
    return {**body, "system": kept} if len(kept) < len(system) else body


def _is_client_header(block: Any) -> bool:
    text = block.get("text") if isinstance(block, dict) else None
    return isinstance(text, str) and CLIENT_HEADER.fullmatch(text) is not None


def to_blocks(content: Any) -> list[Json]:
    """Content as a list of blocks, however it was written."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [b for b in content or () if isinstance(b, dict)]


def encode_canonical_block(block: Json) -> Json:
    """The block without its marks and with one spelling for what can be written in two ways."""
    out = {k: block[k] for k in sorted(block) if k != "cache_control"}
    if out.get("type") == "tool_result":
        if not out.get("is_error"):
            out.pop("is_error", None)
        out["content"] = [encode_canonical_block(b) for b in to_blocks(out.get("content"))]
    return out


def find_mark_ttl(block: Json) -> int | None:
    """Seconds this block asks the prefix to be kept. A mark inside a tool result counts for the result."""
    control = block.get("cache_control")
    if control is None and block.get("type") == "tool_result":
        inner = block.get("content")
        for part in inner if isinstance(inner, list) else ():
            if control is None and isinstance(part, dict):
                control = part.get("cache_control")
    return None if control is None else parse_ttl(control)


def parse_ttl(control: Json) -> int:
    return TTL[control.get("ttl") or "5m"]


def find_deleted_results(body: Json) -> set[str]:
    """Tool uses whose results a `cache_edits` block has deleted from the cached prefix."""
    return {
        str(gone)
        for message in body.get("messages") or ()
        for block in to_blocks(message.get("content"))
        if block.get("type") == "cache_edits"
        for gone in block.get("delete") or ()
    }


def has_image(block: Json) -> bool:
    if block.get("type") == "image":
        return True
    inner = block.get("content") if block.get("type") == "tool_result" else None
    return isinstance(inner, list) and any(isinstance(b, dict) and b.get("type") == "image" for b in inner)


LOOKBACK: Final = 20
MAX_BREAKPOINTS: Final = 4
SWEEP_EVERY: Final = 2_000  # Expired entries are thrown out once in this many writes

CacheScope = tuple[str, str]  # The key and the model that the cache belongs to


@dataclass(slots=True)
class CacheEntry:
    ttl: int
    expires: float
    end: int  # The position of its last block


@dataclass(slots=True, frozen=True)
class CacheVerdict:
    """The tokens of one request that were read, written, or neither."""

    input: int
    write_5m: int
    write_1h: int
    read: int
    hit: int  # The number of blocks read from the cache

    def usage(self, output: int = 0) -> Usage:
        write = self.write_5m + self.write_1h
        return Usage(self.input, write, self.read, output, self.write_1h)


class PromptCache:
    """Prefixes that were written, and for how long they stay."""

    def __init__(self) -> None:
        self._entries: dict[CacheScope, dict[bytes, CacheEntry]] = {}
        self._writes = 0

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def look(self, scope: CacheScope, prompt: CachedPrompt, minimum: int, now: float) -> CacheVerdict:
        """The tokens that this request would read and write. Entries that are read live longer."""
        hit = self.read(scope, prompt, now)
        read = prompt.upto[hit - 1] if hit else 0
        end = hour_end = read
        for at, ttl in prompt.marks:
            if (tokens := prompt.upto[at]) >= minimum:
                end = max(end, tokens)
                hour_end = max(hour_end, tokens) if ttl == TTL["1h"] else hour_end
        return CacheVerdict(prompt.tokens - end, end - hour_end, hour_end - read, read, hit)

    def read(self, scope: CacheScope, prompt: CachedPrompt, now: float) -> int:
        """Read the longest prefix that is kept, which lives longer for it: its blocks, 0 for none."""
        hit = self._longest(scope, prompt, now)
        if hit:
            self._refresh(scope, prompt, hit, now)
        return hit

    def write(self, scope: CacheScope, prompt: CachedPrompt, minimum: int, started: float) -> None:
        """Keep the prefix of each breakpoint. Called when the response begins, not before."""
        entries = self._entries.setdefault(scope, {})
        for position, ttl in prompt.marks:
            digest = prompt.digests[position]
            known = entries.get(digest)
            if known is not None and known.expires >= started:
                continue
            if prompt.upto[position] >= minimum:
                entries[digest] = CacheEntry(ttl, started + ttl, position)
                self._writes += 1
        if self._writes >= SWEEP_EVERY:
            self._writes = 0
            for owner, kept in self._entries.items():
                alive = {digest: entry for digest, entry in kept.items() if entry.expires >= started}
                self._entries[owner] = alive

    def forget(self, scope: CacheScope, prompt: CachedPrompt, tokens: int) -> None:
        """Forget the prefixes of this prompt that are longer than so many tokens."""
        entries = self._entries.get(scope, {})
        for position in range(bisect_right(prompt.upto, tokens), len(prompt)):
            entries.pop(prompt.digests[position], None)

    def _longest(self, scope: CacheScope, prompt: CachedPrompt, now: float) -> int:
        """Blocks of the longest prefix that is kept and can be seen from a breakpoint; 0 for none."""
        seen_down_to, entries = len(prompt), self._entries.get(scope, {})
        for mark, _ in reversed(prompt.marks):
            position, steps, run = mark, 0, ""
            while position >= 0:
                kind = name_run_kind(prompt, position)
                if not (kind and kind == run):
                    steps += 1
                    if steps > LOOKBACK:
                        break
                run = kind
                entry = entries.get(prompt.digests[position]) if position < seen_down_to else None
                if entry is not None and entry.expires >= now:
                    return position + 1
                position -= 1
            seen_down_to = min(seen_down_to, position + 1)
        return 0

    def _refresh(self, scope: CacheScope, prompt: CachedPrompt, hit: int, now: float) -> None:
        """Reading a prefix uses all of it: shorter prefixes inside it stay alive, too."""
        entries, digests = self._entries.get(scope, {}), prompt.digests
        if len(entries) < hit:  # a hash is of one number of blocks, and found nowhere else
            for digest, entry in entries.items():
                if entry.expires >= now and entry.end < hit and digests[entry.end] == digest:
                    entry.expires = now + entry.ttl
            return
        for entry in filter(None, map(entries.get, digests[:hit])):
            if entry.expires >= now:
                entry.expires = now + entry.ttl


def name_run_kind(prompt: CachedPrompt, position: int) -> str:
    """The kind of block that counts as one position with its neighbours of the same kind, or nothing."""
    section, _, _, kind = prompt.places[position]
    return kind if section == "messages" and kind in ("tool_use", "tool_result") else ""


KEPT: Final = 64  # The number of requests that the simulator remembers


class PromptDiagnostics:
    """Prompts of the last requests, by the id of the message that answered them."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[str, CachedPrompt]] = OrderedDict()

    def remember(self, message_id: str, model: str, prompt: CachedPrompt) -> None:
        self._known[message_id] = model, prompt
        if len(self._known) > KEPT:
            self._known.popitem(last=False)

    def explain(self, asked: Json | None, model: str, prompt: CachedPrompt) -> Json | None:
        """None when there is nothing to say: not asked, a first turn, or only something appended."""
        previous = (asked or {}).get("previous_message_id")
        if previous is None:
            return None
        if previous not in self._known:
            return {"cache_miss_reason": {"type": "previous_message_not_found"}}
        old_model, before = self._known[previous]
        shared = 0 if old_model != model else prompt.shared(before)
        if shared == len(before):
            return None
        reason = _reason(old_model != model, prompt, before, shared)
        if reason == "unavailable":
            return {"cache_miss_reason": {"type": reason}}
        missed = before.tokens - before.before(shared)
        return {"cache_miss_reason": {"type": reason, "cache_missed_input_tokens": missed}}


def _reason(model_changed: bool, prompt: CachedPrompt, before: CachedPrompt, shared: int) -> str:
    if model_changed:
        return "model_changed"
    if shared < before.tools_end or prompt.tools_end != before.tools_end:
        return "tools_changed"
    if shared < before.system_end or prompt.system_end != before.system_end:
        return "system_changed"
    if prompt.settings != before.settings:
        return "unavailable"
    return "messages_changed"


STEP: Final = 128
LEAST: Final = 1_024
IDLE: Final = 600.0
DAY: Final = 86_400.0
SWEEP_OVER: Final = 200_000  # Entries; past this, dead ones are thrown out


class ImplicitCache:
    """Beginnings of prompts that were seen, with the moment until which each is kept."""

    def __init__(self) -> None:
        self._until: dict[tuple[CacheScope, bytes], float] = {}

    def look(self, scope: CacheScope, steps: list[bytes], now: float) -> int:
        """The number of cached tokens at the beginning."""
        known = 0
        for n, digest in enumerate(steps, 1):
            if self._until.get((scope, digest), -1.0) < now:
                break
            known = n * STEP
        return known if known >= LEAST else 0

    def write(self, scope: CacheScope, steps: list[bytes], started: float, keep: float = IDLE) -> None:
        if len(steps) * STEP < LEAST:
            return
        for digest in steps:
            key = scope, digest
            self._until[key] = max(self._until.get(key, 0.0), started + keep)
        if len(self._until) > SWEEP_OVER:
            self._until = {k: until for k, until in self._until.items() if until >= started}


def parse_retention(body: Json) -> float:
    return DAY if body.get("prompt_cache_retention") == "24h" else IDLE


def hash_steps(body: Json) -> tuple[list[bytes], int]:
    """One hash for each whole step of the prompt, cumulative, and the tokens of all of it."""
    chain = blake2b(digest_size=16)
    steps: list[bytes] = []
    total = 0
    for data, tokens, rate in _pieces(body):
        end = total + tokens
        done = 0
        while (len(steps) + 1) * STEP <= end:
            cut = ((len(steps) + 1) * STEP - total) * rate
            chain.update(data[done:cut])
            done = cut
            steps.append(chain.digest())
        chain.update(data[done:])
        total = end
    return steps, total


def _pieces(body: Json) -> list[tuple[bytes, int, int]]:
    """Bytes, tokens and bytes a token of each block, in the Messages form the request was turned into."""
    tools = body.get("tools") or ()
    out = [(encode(encode_canonical_block(tool)), count_tool_tokens(tool), JSON_BYTES) for tool in tools]
    out.extend(_piece("system", block) for block in to_blocks(body.get("system")))
    for message in body.get("messages") or ():
        out.extend(_piece(message["role"], block) for block in to_blocks(message["content"]))
    return out


def _piece(role: str, block: dict[str, Any]) -> tuple[bytes, int, int]:
    data = role.encode() + b":" + encode(encode_canonical_block(block))
    rate = TEXT_BYTES if block.get("type") in ("text", "tool_result") else JSON_BYTES
    return data, count_block_tokens(block), rate
