"""Models of your own under a prefix of your own: `shout:NAME`, wherever a model is named.

python examples/own_provider.py

In a package, name `connect_shout` as an entry point instead of calling `register`:

    [project.entry-points."sevenfold.models"]
    shout = "my_package:connect_shout"
"""

import tempfile
from collections.abc import AsyncGenerator

from sevenfold import Message, Model, Session, Text, run_sync
from sevenfold.core.messages import Block
from sevenfold.core.protocols import Capabilities, Clock
from sevenfold.core.request import Request
from sevenfold.core.transcript import Reply
from sevenfold.models import ModelAccess, register


class ShoutingModel:
    """A model is anything with a name, capabilities and `stream`. This one repeats the question, louder."""

    capabilities = Capabilities(window=100_000)

    def __init__(self, name: str, signs: str) -> None:
        self.name, self._signs = name, signs

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        block = Text(request.view[-1].message.text.upper() + self._signs)
        yield block.text  # the text as it comes, in one piece or many
        yield block  # each block when it is complete
        yield Reply(Message("assistant", (block,)))


def connect_shout(name: str, access: ModelAccess, clock: Clock | None) -> Model:
    """Called with the whole name. A real provider reads its key here: it is in `access.variables`."""
    return ShoutingModel(name, "!" * int(access.variables.get("SHOUT_SIGNS") or 3))


register("shout", connect_shout, usage="'shout:NAME'", keys=("SHOUT_API_KEY",))


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Session("shout:anything", folder, home=folder) as session:
            reply = await session.ask("does anybody listen")
            print(f"{session.model.name}: {reply.message.text}")


if __name__ == "__main__":
    run_sync(main)
