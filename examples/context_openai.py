"""The layers in a loop of your own, with the openai SDK. Here the simulator answers: no key is needed.

pip install sevenfold[openai]
python examples/context_openai.py
"""

from typing import Any

from openai import OpenAI

from sevenfold import Context
from sevenfold.core.events import Event, Stored
from sevenfold.simulator import run_in_thread

FETCH: Any = {
    "type": "function",
    "function": {
        "name": "fetch",
        "description": "Fetches a page.",
        "parameters": {"type": "object", "properties": {"url": {"type": "string"}}},
    },
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
    with run_in_thread(replies=answer) as simulator, Context("gpt-5.4", format="openai") as ctx:
        ctx.subscribe(show)
        client = OpenAI(base_url=f"{simulator.url}/v1", api_key="any")
        messages: list[Any] = [
            {"role": "system", "content": "You read and tell."},
            {"role": "user", "content": "Tell me about lighthouses."},
        ]
        while True:
            response = client.chat.completions.create(**ctx.prepare(messages, tools=[FETCH]))
            ctx.record(response)
            message = response.choices[0].message
            messages.append(message)
            if not message.tool_calls:
                break
            messages += [
                {"role": "tool", "tool_call_id": call.id, "content": PAGE} for call in message.tool_calls
            ]
        used = ctx.ledger.total
        print(f"{used.requests} requests, {used.usage.prompt:,} tokens sent, ${used.cost:.4f}")


if __name__ == "__main__":
    main()
