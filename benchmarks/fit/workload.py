"""The conversation everyone works on: a coding agent's session, drawn from a seed.

A turn is 50 messages and 25 requests: the user speaks, 24 tool calls follow, each with its result, then
an answer. Twenty turns are 1,000 messages, 500 requests and about 204,000 tokens, counted as a quarter
of the bytes of each message's canonical JSON.
"""

from __future__ import annotations

import json
import random
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]

TURNS: Final = 20
CALLS: Final = 24
"""Tool calls of a turn."""
MESSAGES: Final = 2 * CALLS + 2
"""Messages of a turn."""
TOKENS: Final = 204_000 // TURNS
"""What a turn comes to on average."""
LONGEST: Final = 30_000
"""No result is longer, in characters."""
BYTES_PER_TOKEN: Final = 4

SHARES: Final = {"Read": 0.38, "Bash": 0.30, "Grep": 0.14, "Edit": 0.15, "Glob": 0.03}
"""How often each tool is called."""
SIZES: Final = {
    "Read": (2_400, 0.9),
    "Bash": (700, 1.2),
    "Grep": (600, 1.0),
    "Edit": (180, 0.3),
    "Glob": (400, 0.6),
}
"""Results are log-normal: the median in characters, then scaled down to the total, and the spread."""

_NAMES = [
    "order",
    "user",
    "cache",
    "token",
    "index",
    "shard",
    "queue",
    "batch",
    "route",
    "parser",
    "ledger",
    "invoice",
    "report",
]
_VERBS = [
    "load",
    "store",
    "merge",
    "check",
    "build",
    "split",
    "apply",
    "find",
    "count",
    "render",
    "commit",
    "flush",
]
_LINES = (
    "def {verb}_{name}(self, {other}: str) -> {Name}:",
    "    {name} = self.{verb}_{other}({number})",
    "    if {name} is None or {name}.{other} > {number}:",
    '        raise {Name}Error(f"{{{name}}}: no {other} at {number}")',
    "    for {other} in {name}.{other}s[:{number}]:",
    '    log.debug("{verb} {name}", extra={{"{other}": {number}}})',
    "    return {Name}({other}={name}.{other}, {verb}ed=True)",
    "class {Name}{Other}(Protocol):",
    "",
)


def canonical(message: Json) -> str:
    """The same text for the same message, whoever built it."""
    return json.dumps(message, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def tokens_in(text: str) -> float:
    return len(text.encode()) / BYTES_PER_TOKEN


def conversation(turns: int = TURNS, seed: int = 7) -> list[Json]:
    """The messages in the Messages format; those of the assistant are what the fake model will say."""
    return _Session(random.Random(seed), turns).messages


class _Session:
    """Draws the plan first, so that results can be scaled to the total, then the words."""

    def __init__(self, rng: random.Random, turns: int) -> None:
        self.rng = rng
        self.files = [self._path(i) for i in range(8 + 2 * turns)]
        self.lines = {path: [self._line() for _ in range(400)] for path in self.files}
        self.messages: list[Json] = []
        results: list[tuple[Json, float]] = []
        for turn in range(turns):
            results += self._turn(turn)
        self._fill(results, turns * TOKENS)

    def _turn(self, turn: int) -> list[tuple[Json, float]]:
        """Append the messages of a turn; returns its results with the sizes drawn for them."""
        asked = f"Turn {turn}: {self._prose(self.rng.randint(100, 600))}"
        self.messages.append({"role": "user", "content": [{"type": "text", "text": asked}]})
        focus = self.rng.sample(self.files, 4)
        results = []
        for call in range(CALLS):
            tool = self.rng.choices(list(SHARES), list(SHARES.values()))[0]
            path = self.rng.choice(focus)
            use = f"toolu_{turn:04d}_{call:02d}"
            blocks: list[Json] = []
            if self.rng.random() < 0.4:
                blocks.append({"type": "text", "text": self._prose(self.rng.randint(40, 160))})
            args = self._input(tool, path)
            blocks.append({"type": "tool_use", "id": use, "name": tool, "input": args})
            self.messages.append({"role": "assistant", "content": blocks})
            result: Json = {"type": "tool_result", "tool_use_id": use, "content": ""}
            self.messages.append({"role": "user", "content": [result]})
            median, spread = SIZES[tool]
            drawn = min(LONGEST, median * self.rng.lognormvariate(0, spread))
            result["content"] = self._result(tool, path, round(drawn))
            results.append((result, drawn))
        answer = self._prose(self.rng.randint(300, 900))
        self.messages.append({"role": "assistant", "content": [{"type": "text", "text": answer}]})
        return results

    def _fill(self, results: list[tuple[Json, float]], tokens: int) -> None:
        """Cut every result to its size, scaled so that the whole comes to this many tokens."""
        whole = [result["content"] for result, _ in results]
        for result, _ in results:
            result["content"] = ""
        bare = sum(tokens_in(canonical(message)) for message in self.messages)
        low, high = 0.0, 1.0
        for _ in range(24):  # escapes in JSON make this other than a division
            scale = (low + high) / 2
            size = 0.0
            for text, (_, drawn) in zip(whole, results, strict=True):
                kept = text[: _length(drawn, scale)]
                size += tokens_in(json.dumps(kept, ensure_ascii=False)[1:-1])
            low, high = (scale, high) if bare + size < tokens else (low, scale)
        for text, (result, drawn) in zip(whole, results, strict=True):
            result["content"] = text[: _length(drawn, low)]

    def _input(self, tool: str, path: str) -> Json:
        name, verb = self.rng.choice(_NAMES), self.rng.choice(_VERBS)
        match tool:
            case "Read":
                return {"file_path": path, "offset": self.rng.randrange(400), "limit": 200}
            case "Edit":
                old = "\n".join(self.rng.sample(self.lines[path], self.rng.randint(1, 4)))
                return {"file_path": path, "old_string": old, "new_string": self._line()}
            case "Grep":
                return {"pattern": f"{verb}_{name}", "path": path.rsplit("/", 1)[0]}
            case "Glob":
                return {"pattern": f"**/{name}*.py"}
            case _:
                return {"command": f"pytest -q tests/test_{name}.py -k {verb}", "timeout": 60}

    def _result(self, tool: str, path: str, size: int) -> str:
        lines = self.lines[path]
        at = self.rng.randrange(len(lines))
        around = [*lines[at:], *lines] * (1 + size // 8_000)
        return self._shown(tool, path, at, around[: 8 + size // 8])[:size]

    def _shown(self, tool: str, path: str, at: int, around: list[str]) -> str:
        match tool:
            case "Read":
                return "\n".join(f"{at + i:6d}\t{line}" for i, line in enumerate(around))
            case "Grep":
                return "\n".join(f"{path}:{at + i}:{line}" for i, line in enumerate(around))
            case "Glob":
                return "\n".join(self._path(i) for i in range(at, at + len(around)))
            case "Edit":
                return f"The file {path} has been updated. Lines around:\n" + "\n".join(around)
            case _:
                return "\n".join(f"{path}::test_{i} {line.strip()}" for i, line in enumerate(around))

    def _path(self, i: int) -> str:
        return f"/work/shop/src/{_NAMES[i % len(_NAMES)]}/{_VERBS[i % len(_VERBS)]}_{i}.py"

    def _line(self) -> str:
        name, other = self.rng.sample(_NAMES, 2)
        return self.rng.choice(_LINES).format(
            name=name,
            other=other,
            Name=name.title(),
            Other=other.title(),
            verb=self.rng.choice(_VERBS),
            number=self.rng.randrange(1_000),
        )

    def _prose(self, characters: int) -> str:
        words = [self.rng.choice(_NAMES + _VERBS) for _ in range(characters // 5)]
        return " ".join(words)[:characters]


def _length(drawn: float, scale: float) -> int:
    return max(1, round(drawn * scale))
