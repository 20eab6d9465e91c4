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
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sevenfold.simulator.prefix import TTL, Prompt
from sevenfold.tokens import Usage

LOOKBACK: Final = 20
MAX_BREAKPOINTS: Final = 4
SWEEP_EVERY: Final = 2_000
"""Expired entries are thrown out once in this many writes."""

Scope = tuple[str, str]
"""Whose cache it is: the key and the model."""


@dataclass(slots=True)
class Entry:
    ttl: int
    expires: float
    end: int
    """The position of its last block."""


@dataclass(slots=True, frozen=True)
class Verdict:
    """What the cache did for one request, in tokens."""

    input: int
    write_5m: int
    write_1h: int
    read: int
    hit: int
    """How many blocks were read from the cache."""

    def usage(self, output: int = 0) -> Usage:
        write = self.write_5m + self.write_1h
        return Usage(self.input, write, self.read, output, self.write_1h)


class PromptCache:
    """Prefixes that were written, and for how long they stay."""

    def __init__(self) -> None:
        self._entries: dict[tuple[Scope, bytes], Entry] = {}
        self._ends: dict[Scope, set[int]] = {}
        """At which positions entries end: a hash is of one number of blocks, and found nowhere else."""
        self._writes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def look(self, scope: Scope, prompt: Prompt, minimum: int, now: float) -> Verdict:
        """What this request would read and write. Reading keeps what was read alive."""
        hit = self._longest(scope, prompt, now)
        if hit:
            self._refresh(scope, prompt, hit, now)
        return _verdict(prompt, hit, minimum)

    def write(self, scope: Scope, prompt: Prompt, minimum: int, started: float) -> None:
        """Keep the prefix of each breakpoint. Called when the response begins, not before."""
        for position, ttl in prompt.marks:
            key = scope, prompt.digests[position]
            known = self._entries.get(key)
            if known is not None and known.expires >= started:
                continue
            if prompt.upto[position] >= minimum:
                self._entries[key] = Entry(ttl, started + ttl, position)
                self._ends.setdefault(scope, set()).add(position)
                self._writes += 1
        if self._writes >= SWEEP_EVERY:
            self._writes = 0
            self._sweep(started)

    def _sweep(self, now: float) -> None:
        self._entries = {k: e for k, e in self._entries.items() if e.expires >= now}
        self._ends = {}
        for (scope, _), entry in self._entries.items():
            self._ends.setdefault(scope, set()).add(entry.end)

    def _longest(self, scope: Scope, prompt: Prompt, now: float) -> int:
        """Blocks of the longest prefix that is kept and can be seen from a breakpoint; 0 for none."""
        seen_down_to = len(prompt)
        for mark, _ in reversed(prompt.marks):
            position, steps, run = mark, 0, ""
            while position >= 0:
                kind = run_kind(prompt, position)
                if not (kind and kind == run):
                    steps += 1
                    if steps > LOOKBACK:
                        break
                run = kind
                if position < seen_down_to and self._alive(scope, prompt, position, now):
                    return position + 1
                position -= 1
            seen_down_to = min(seen_down_to, position + 1)
        return 0

    def _alive(self, scope: Scope, prompt: Prompt, position: int, now: float) -> bool:
        entry = self._entries.get((scope, prompt.digests[position]))
        return entry is not None and entry.expires >= now

    def _refresh(self, scope: Scope, prompt: Prompt, hit: int, now: float) -> None:
        """Whoever reads a prefix uses all of it: shorter prefixes inside it stay alive as well."""
        ends = self._ends.get(scope, ())
        for position in ends if len(ends) < hit else range(hit):
            if position >= hit:
                continue
            entry = self._entries.get((scope, prompt.digests[position]))
            if entry is not None and entry.expires >= now:
                entry.expires = now + entry.ttl


def run_kind(prompt: Prompt, position: int) -> str:
    """The kind of block that counts as one position with its neighbours of the same kind, or nothing."""
    section, _, _, kind = prompt.places[position]
    return kind if section == "messages" and kind in ("tool_use", "tool_result") else ""


def _verdict(prompt: Prompt, hit: int, minimum: int) -> Verdict:
    read = prompt.upto[hit - 1] if hit else 0
    kept = [(prompt.upto[at], ttl) for at, ttl in prompt.marks if prompt.upto[at] >= minimum]
    end = max([read, *(tokens for tokens, _ in kept)])
    hour_end = max([read, *(tokens for tokens, ttl in kept if ttl == TTL["1h"])])
    return Verdict(
        input=prompt.tokens - end,
        write_5m=end - hour_end,
        write_1h=hour_end - read,
        read=read,
        hit=hit,
    )
