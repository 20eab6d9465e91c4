"""deepagents' SummarizationMiddleware, as its own factory sets it up for a model with a known window.

The factory fires at 85 % of the window and keeps 10 %, so the window is chosen to put the 85 % at the
trigger. What leaves the conversation is written to a folder first, as it does by default.
"""

from __future__ import annotations

import tempfile
from typing import Any

from deepagents.backends import FilesystemBackend  # type: ignore[import-not-found]
from deepagents.middleware.summarization import create_summarization_middleware  # type: ignore[import-not-found]
from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse  # type: ignore[import-not-found]
from langchain_core.messages import AIMessage  # type: ignore[import-not-found]

from benchmarks.fit.peers.driving import main
from benchmarks.fit.peers.langchain_messages import FakeChat, ours, theirs
from benchmarks.fit.workload import Json

FIRES_AT = 0.85


class Conversation:
    def __init__(self, trigger: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        backend = FilesystemBackend(root_dir=self.folder.name, virtual_mode=True)
        self.model = FakeChat(profile={"max_input_tokens": round(trigger / FIRES_AT)})
        self.middleware = create_summarization_middleware(self.model, backend)
        self.messages: list[Any] = []
        self.state: Json = {}
        self.answer = ModelResponse(result=[AIMessage(content="")])

    def hear(self, message: Json, usage: tuple[int, int]) -> None:
        self.messages.append(theirs(message, usage))

    async def step(self) -> Any:
        arrived: list[Any] = []

        def answer(request: Any) -> Any:
            arrived.append(request)
            return self.answer

        state = {"messages": self.messages, **self.state}
        request = ModelRequest(model=self.model, messages=self.messages, state=state)
        said = self.middleware.wrap_model_call(request, answer)
        return arrived[-1].messages, said

    def sent(self, outcome: Any) -> list[Json]:
        messages, said = outcome
        if isinstance(said, ExtendedModelResponse):
            self.state |= said.command.update
        return [ours(message) for message in messages]

    def calls(self) -> list[tuple[float, float]]:
        return self.model.asked


if __name__ == "__main__":
    main(Conversation, "deepagents", "langchain", "langchain-core")
