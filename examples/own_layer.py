"""Add a layer of your own to a session.

python examples/own_layer.py
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace

from sevenfold import Message, Session, Text, run_sync
from sevenfold.core.protocols import Layers
from sevenfold.core.transcript import Mark, View
from sevenfold.testing import ScriptedModel

RULE = Message("user", (Text("<context>\nAnswer in one sentence.\n</context>"),))


class OneSentence:
    """An `attach` layer: it is shown the view before every request, and hands back what to add."""

    def attach(self, view: View) -> Sequence[Message | Mark]:
        return () if "one-sentence" in view.marks else (RULE, Mark("one-sentence", True))


def with_mine(standard: Layers) -> Layers:
    """The standard layers, and one more before a request."""
    return replace(standard, attach=(*standard.attach, OneSentence()))


async def main() -> None:
    # A scripted model stands in for a real one, so that this example needs no key.
    model = ScriptedModel(["It rains.", "It still rains."])
    with tempfile.TemporaryDirectory() as folder:
        async with Session(model, folder, home=folder, layers=with_mine) as session:
            for question in ("How is the weather?", "And now?"):
                reply = await session.ask(question)
                print(reply.message.text)
            texts = [message.text for message in session.view.messages]
            print("the rule was added", texts.count(RULE.text), "time")


if __name__ == "__main__":
    run_sync(main)
