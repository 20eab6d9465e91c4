"""The layers in a loop of your own, with the anthropic SDK. Here the simulator answers: no key is needed.

pip install sevenfold[anthropic]
python examples/context_anthropic.py
"""

from typing import Any

from anthropic import Anthropic

from sevenfold import Context
from sevenfold.core.events import Event, Stored
from sevenfold.simulator import run_in_thread

FETCH: Any = {
    "name": "fetch",
    "description": "Fetches a page.",
    "input_schema": {"type": "object", "properties": {"url": {"type": "string"}}},
}
PAGE = "The lamp turns once in ten seconds.\n" * 5_000


def answer(body: dict[str, Any]) -> Any:
    """What the simulator says in place of a model: three pages are fetched, then it is done."""
    if len(body["messages"]) > 6:
        return "I have read enough about lighthouses."
    return [{"type": "tool_use", "name": "fetch", "input": {"url": "https://example.org"}}]


def show(event: Event) -> None:
    if isinstance(event, Stored):
        print(f"stored {event.characters:,} characters, {event.tokens:,} tokens less in each request")


def main() -> None:
    with run_in_thread(replies=answer) as simulator, Context("claude-sonnet-5") as ctx:
        ctx.subscribe(show)
        client = Anthropic(base_url=simulator.url, api_key="any")
        messages: list[Any] = [{"role": "user", "content": "Tell me about lighthouses."}]
        while messages[-1]["role"] == "user":
            request = ctx.prepare(messages, system="You read and tell.", tools=[FETCH])
            response = client.messages.create(**request)
            ctx.record(response)
            messages.append({"role": "assistant", "content": response.content})
            if uses := [block for block in response.content if block.type == "tool_use"]:
                found = [{"type": "tool_result", "tool_use_id": use.id, "content": PAGE} for use in uses]
                messages.append({"role": "user", "content": found})
        used = ctx.ledger.total
        print(f"{used.requests} requests, {used.usage.prompt:,} tokens sent, ${used.cost:.4f}")


if __name__ == "__main__":
    main()
