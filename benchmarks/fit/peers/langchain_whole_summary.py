"""LangChain's SummarizationMiddleware again, told to show its summariser everything that leaves.

With its default of the last 4,000 tokens it may find nothing to summarise in a conversation like this
one, and what leaves is then replaced by a sentence that says so.
"""

from __future__ import annotations

from langchain.agents.middleware import SummarizationMiddleware  # type: ignore[import-not-found]

from benchmarks.fit.peers.driving import main
from benchmarks.fit.peers.langchain_summarization import Conversation


class Whole(Conversation):
    def __init__(self, trigger: int) -> None:
        super().__init__(trigger)
        self.middleware = SummarizationMiddleware(
            self.model, trigger=("tokens", trigger), trim_tokens_to_summarize=None
        )


if __name__ == "__main__":
    main(Whole, "langchain", "langchain-core", "langgraph")
