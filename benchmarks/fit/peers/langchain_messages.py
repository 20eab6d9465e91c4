"""LangChain's messages from ours and back, and a chat model that answers without a network."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from langchain_core.language_models.chat_models import BaseChatModel  # type: ignore[import-not-found]
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage  # type: ignore[import-not-found]
from langchain_core.outputs import ChatGeneration, ChatResult  # type: ignore[import-not-found]

from benchmarks.fit.peers.driving import SUMMARY
from benchmarks.fit.workload import Json, tokens_in

PROVIDER = "fake"


class FakeChat(BaseChatModel):  # type: ignore[misc]
    """Writes every summary in no time, and keeps count of what it was asked and what it said."""

    asked: list[tuple[float, float]] = []  # noqa: RUF012 - pydantic copies it for each model

    @property
    def _llm_type(self) -> str:
        return PROVIDER

    def _generate(self, messages: list[Any], *args: Any, **kwargs: Any) -> Any:
        prompt = sum(tokens_in(str(message.content)) for message in messages)
        self.asked.append((prompt, tokens_in(SUMMARY)))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content=SUMMARY))])


def theirs(message: Json, usage: tuple[int, int]) -> Any:
    """A message of the workload as LangChain has it."""
    blocks, own = message["content"], str(uuid4())  # its graph gives every message an id
    if message["role"] == "assistant":
        return _reply(blocks, own, usage)
    if blocks[0]["type"] == "tool_result":
        use = blocks[0]["tool_use_id"]
        return ToolMessage(content=blocks[0]["content"], tool_call_id=use, id=own)
    return HumanMessage(content=blocks[0]["text"], id=own)


def _reply(blocks: list[Json], own: str, usage: tuple[int, int]) -> Any:
    prompt, output = usage
    return AIMessage(
        id=own,
        content="".join(b["text"] for b in blocks if b["type"] == "text"),
        tool_calls=[
            {"id": b["id"], "name": b["name"], "args": b["input"]}
            for b in blocks
            if b["type"] == "tool_use"
        ],
        usage_metadata={"input_tokens": prompt, "output_tokens": output, "total_tokens": prompt + output},
        response_metadata={"model_provider": PROVIDER},
    )


def ours(message: Any) -> Json:
    """The same in the Messages format: what would go over the wire, without ids and metadata."""
    if isinstance(message, ToolMessage):
        result = {"tool_use_id": message.tool_call_id, "content": message.content}
        return {"role": "user", "content": [{"type": "tool_result", **result}]}
    blocks: list[Json] = []
    if message.content:
        blocks.append({"type": "text", "text": message.content})
    if not isinstance(message, AIMessage):
        return {"role": "user", "content": blocks}
    blocks += (
        {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["args"]}
        for call in message.tool_calls
    )
    return {"role": "assistant", "content": blocks}
