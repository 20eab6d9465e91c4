"""A caller's loop in a process of its own: it keeps its history in a file and can be killed at any time.

It says on stdout, a line for each request, what it is about to send.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from sevenfold.context.context import Context
from sevenfold.context.formats import strip_cache_marks

LONG = "a line of output that is long enough to be stored\n" * 40
SETTINGS = {"toolResults": {"mostCharacters": 500}, "flags": {"micro_api": False}}


def digests(messages: list[Any]) -> list[str]:
    """One for each message, cache marks left out, content always as a list."""
    out = []
    for message in (dict(strip_cache_marks(given)) for given in messages):
        if isinstance(message["content"], str):
            message["content"] = [{"type": "text", "text": message["content"]}]
        out.append(hashlib.sha256(json.dumps(message).encode()).hexdigest()[:12])
    return out


def reply_to(number: int) -> dict[str, Any]:
    use = {"type": "tool_use", "id": f"u{number}", "name": "Bash", "input": {"n": number}}
    usage = {"input_tokens": 10, "cache_read_input_tokens": 100 * number, "output_tokens": 5}
    return {"role": "assistant", "content": [{"type": "text", "text": "so"}, use], "usage": usage}


def talk(folder: Path, steps: int) -> None:
    file = folder / "history.json"
    history = json.loads(file.read_text("utf-8")) if file.exists() else [{"role": "user", "content": "go"}]
    environ = {"HOME": str(folder)}
    with Context(
        "claude-sonnet-5", state=folder / "state", id="one", settings=SETTINGS, environ=environ
    ) as ctx:
        for _ in range(steps):
            request = ctx.prepare(history, system="always the same", tools=[{"name": "Bash"}])
            print(json.dumps(digests(request["messages"])), flush=True)
            number = len(history)
            reply = reply_to(number)
            ctx.record(reply)
            history.append({"role": "assistant", "content": reply["content"]})
            text = f"{number} {LONG}" if number % 3 else f"short {number}"
            history.append(
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": f"u{number}", "content": text}],
                }
            )
            new = file.with_suffix(".new")
            new.write_text(json.dumps(history), encoding="utf-8")
            new.replace(file)


if __name__ == "__main__":
    talk(Path(sys.argv[1]), int(sys.argv[2]))
