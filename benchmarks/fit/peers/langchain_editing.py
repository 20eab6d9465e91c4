"""LangChain's ContextEditingMiddleware with its default edit: clear all tool results but three."""

from __future__ import annotations

from typing import Any

from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware  # type: ignore[import-not-found]
from langchain.agents.middleware.types import ModelRequest, ModelResponse  # type: ignore[import-not-found]
from langchain_core.messages import AIMessage  # type: ignore[import-not-found]

from benchmarks.fit.peers.driving import main
from benchmarks.fit.peers.langchain_messages import FakeChat, ours, theirs
from benchmarks.fit.workload import Json


class Conversation:
    def __init__(self, trigger: int) -> None:
        self.middleware = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=trigger)])
        self.model = FakeChat()
        self.messages: list[Any] = []
        self.answer = ModelResponse(result=[AIMessage(content="")])

    def hear(self, message: Json, usage: tuple[int, int]) -> None:
        self.messages.append(theirs(message, usage))

    async def step(self) -> Any:
        arrived: list[Any] = []

        def answer(request: Any) -> Any:
            arrived.append(request)
            return self.answer

        request = ModelRequest(model=self.model, messages=self.messages)
        self.middleware.wrap_model_call(request, answer)
        return arrived[0].messages

    def sent(self, outcome: Any) -> list[Json]:
        return [ours(message) for message in outcome]

    def calls(self) -> list[tuple[float, float]]:
        return []


if __name__ == "__main__":
    main(Conversation, "langchain", "langchain-core", "langgraph")
