"""pydantic-ai-harness' ClearToolResults: all tool results but three pairs, when a size is exceeded."""

from __future__ import annotations

from typing import Any

from pydantic_ai.messages import (  # type: ignore[import-not-found]
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext, ModelRequestParameters  # type: ignore[import-not-found]
from pydantic_ai.models.test import TestModel  # type: ignore[import-not-found]
from pydantic_ai.tools import RunContext  # type: ignore[import-not-found]
from pydantic_ai.usage import RequestUsage, RunUsage  # type: ignore[import-not-found]
from pydantic_ai_harness.compaction import ClearToolResults  # type: ignore[import-not-found]

from benchmarks.fit.peers.driving import main
from benchmarks.fit.workload import Json


class Conversation:
    def __init__(self, trigger: int) -> None:
        self.capability = ClearToolResults(max_tokens=trigger)
        self.names: dict[str, str] = {}
        model = TestModel()
        self.context = RunContext(deps=None, model=model, usage=RunUsage())
        self.model, self.parameters = model, ModelRequestParameters()

    def hear(self, message: Json, usage: tuple[int, int]) -> None:
        blocks = message["content"]
        if message["role"] == "assistant":
            self.context.messages.append(self._reply(blocks, usage))
        elif blocks[0]["type"] == "tool_result":
            use = blocks[0]["tool_use_id"]
            part = ToolReturnPart(self.names[use], blocks[0]["content"], use)
            self.context.messages.append(ModelRequest(parts=[part]))
        else:
            self.context.messages.append(ModelRequest(parts=[UserPromptPart(blocks[0]["text"])]))

    def _reply(self, blocks: list[Json], usage: tuple[int, int]) -> Any:
        parts: list[Any] = []
        for block in blocks:
            if block["type"] == "text":
                parts.append(TextPart(block["text"]))
            else:
                self.names[block["id"]] = block["name"]
                parts.append(ToolCallPart(block["name"], block["input"], block["id"]))
        prompt, output = usage
        return ModelResponse(parts=parts, usage=RequestUsage(input_tokens=prompt, output_tokens=output))

    async def step(self) -> Any:
        request = ModelRequestContext(
            model=self.model,
            messages=list(self.context.messages),
            model_settings=None,
            model_request_parameters=self.parameters,
        )
        return await self.capability.before_model_request(self.context, request)

    def sent(self, outcome: Any) -> list[Json]:
        return [_ours(message) for message in outcome.messages]

    def calls(self) -> list[tuple[float, float]]:
        return []


def _ours(message: Any) -> Json:
    blocks: list[Json] = []
    for part in message.parts:
        if isinstance(part, ToolReturnPart):
            result = {"tool_use_id": part.tool_call_id, "content": part.content}
            blocks.append({"type": "tool_result", **result})
        elif isinstance(part, ToolCallPart):
            use = {"id": part.tool_call_id, "name": part.tool_name, "input": part.args}
            blocks.append({"type": "tool_use", **use})
        else:
            blocks.append({"type": "text", "text": part.content})
    return {"role": "assistant" if isinstance(message, ModelResponse) else "user", "content": blocks}


if __name__ == "__main__":
    main(Conversation, "pydantic-ai-harness", "pydantic-ai-slim")
