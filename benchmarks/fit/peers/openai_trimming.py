"""openai-agents' ToolOutputTrimmer with its defaults: results over 500 characters, older than two turns.

It has no trigger in tokens: it trims from the third time the user speaks, whatever the size. Where
nothing is to fire, more turns count as recent than there are.
"""

from __future__ import annotations

import json
from typing import Any

from agents import Agent  # type: ignore[import-not-found]
from agents.extensions import ToolOutputTrimmer  # type: ignore[import-not-found]
from agents.run_config import CallModelData, ModelInputData  # type: ignore[import-not-found]

from benchmarks.fit.peers.driving import NEVER, main
from benchmarks.fit.workload import Json


class Conversation:
    def __init__(self, trigger: int) -> None:
        never = {"recent_turns": NEVER} if trigger == NEVER else {}
        self.trimmer = ToolOutputTrimmer(**never)
        self.agent = Agent(name="fake")
        self.items: list[Json] = []

    def hear(self, message: Json, usage: tuple[int, int]) -> None:
        for block in message["content"]:
            if block["type"] == "text":
                self.items.append({"role": message["role"], "content": block["text"]})
            elif block["type"] == "tool_use":
                self.items.append(
                    {
                        "type": "function_call",
                        "call_id": block["id"],
                        "name": block["name"],
                        "arguments": json.dumps(block["input"]),
                    }
                )
            else:
                self.items.append(
                    {
                        "type": "function_call_output",
                        "call_id": block["tool_use_id"],
                        "output": block["content"],
                    }
                )

    async def step(self) -> Any:
        data = ModelInputData(input=list(self.items), instructions=None)
        return self.trimmer(CallModelData(model_data=data, agent=self.agent, context=None))

    def sent(self, outcome: Any) -> list[Json]:
        messages: list[Json] = []
        for item in outcome.input:
            role, block = _block(item)
            if role == "assistant" and messages and messages[-1]["role"] == role:
                messages[-1]["content"].append(block)
            else:
                messages.append({"role": role, "content": [block]})
        return messages

    def calls(self) -> list[tuple[float, float]]:
        return []


def _block(item: Json) -> tuple[str, Json]:
    match item.get("type"):
        case "function_call":
            use = {"id": item["call_id"], "name": item["name"]}
            return "assistant", {"type": "tool_use", **use, "input": json.loads(item["arguments"])}
        case "function_call_output":
            result = {"tool_use_id": item["call_id"], "content": item["output"]}
            return "user", {"type": "tool_result", **result}
        case _:
            return item["role"], {"type": "text", "text": item["content"]}


if __name__ == "__main__":
    main(Conversation, "openai-agents", "openai")
