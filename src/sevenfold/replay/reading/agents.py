"""Sub-agents whose words stand in the file of the session that called them: each is a session of its own.

They were asked with a prompt of their own, by a cache of their own, and paid for apart. One that no model
answered was never a conversation, and is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from sevenfold.replay.reading.mending import bounded
from sevenfold.replay.reading.steadying import steadied
from sevenfold.storage.recorded import Recorded, Said
from sevenfold.transcript import Reply


def has_agents(recorded: Recorded) -> bool:
    return any(_answered(said) for said in recorded.sidechains.values())


def sessions_in(recorded: Recorded) -> Iterator[Recorded]:
    """The session itself, where the file has it, and the conversations of its sub-agents.

    What is wrong with the file is told with the first.
    """
    told = recorded.problems
    if recorded.entries:
        yield recorded
        told = ()
    for agent, said in recorded.sidechains.items():
        if not _answered(said):
            continue
        alone = replace(
            recorded,
            agent=agent,
            entries=said,
            tip=said[-1].uuid,
            title="",
            continues="",
            sidechains={},
            undone=(),
            problems=told,
        )
        yield steadied(bounded(alone))
        told = ()


def _answered(said: tuple[Said, ...]) -> bool:
    return any(isinstance(one.what, Reply) for one in said)
