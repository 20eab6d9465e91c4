"""LangChain's SummarizationMiddleware: its hook before every model call, on a fake model.

Its default trigger is none at all; everything else is left at its default (keep 20 messages, show the
summariser the last 4,000 tokens).
"""

from __future__ import annotations

from typing import Any

from langchain.agents.middleware import SummarizationMiddleware  # type: ignore[import-not-found]
from langgraph.graph.message import add_messages  # type: ignore[import-not-found]

from benchmarks.fit.peers.driving import main
from benchmarks.fit.peers.langchain_messages import FakeChat, ours, theirs
from benchmarks.fit.workload import Json


class Conversation:
    def __init__(self, trigger: int) -> None:
        self.model = FakeChat()
        self.middleware = SummarizationMiddleware(self.model, trigger=("tokens", trigger))
        self.messages: list[Any] = []

    def hear(self, message: Json, usage: tuple[int, int]) -> None:
        self.messages.append(theirs(message, usage))

    async def step(self) -> Any:
        return self.middleware.before_model({"messages": self.messages}, None)

    def sent(self, outcome: Any) -> list[Json]:
        if outcome:
            self.messages = add_messages(self.messages, outcome["messages"])
        return [ours(message) for message in self.messages]

    def calls(self) -> list[tuple[float, float]]:
        return self.model.asked


if __name__ == "__main__":
    main(Conversation, "langchain", "langchain-core", "langgraph")
