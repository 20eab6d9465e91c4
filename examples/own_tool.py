"""Give the agent a tool of your own, and watch what happens.

python examples/own_tool.py
"""

import tempfile
from typing import Any

from sevenfold import Event, Message, Session, ToolUse, run_sync
from sevenfold.testing import ScriptedModel


class Weather:
    """A tool is anything with a name, a schema, `safe` and `run`."""

    name = "Weather"
    schema: dict[str, Any] = {  # noqa: RUF012
        "name": "Weather",
        "description": "The weather in a city, now.",
        "input_schema": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    }

    def safe(self, args: dict[str, Any]) -> bool:
        return True  # it changes nothing, so it may run beside other tools

    async def run(self, args: dict[str, Any], use_id: str) -> str:
        return f"It rains in {args['city']}."


def show(event: Event) -> None:
    print(f"  {type(event).__name__}")


async def main() -> None:
    # A scripted model stands in for a real one, so that this example needs no key.
    call = Message("assistant", (ToolUse("call_1", "Weather", {"city": "Bergen"}),))
    model = ScriptedModel([call, "Take an umbrella: it rains in Bergen."])
    settings = {"permissions": {"allow": ["Weather"]}}
    with tempfile.TemporaryDirectory() as folder:
        session = Session(model, folder, home=folder, tools=[Weather()], settings=settings)
        async with session:
            session.subscribe(show)
            reply = await session.ask("Do I need an umbrella in Bergen?")
            print(reply.message.text)


if __name__ == "__main__":
    run_sync(main)
