"""What the user's hooks say to a compaction, whoever makes it: asked before, told afterwards.

Several layers may try, one after the other, to make room for the same request. The hooks are asked once
for all of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from sevenfold.boundary import Boundary
from sevenfold.events import Emit, Notice
from sevenfold.hook_contract import NOTHING, Outcome
from sevenfold.messages import Message
from sevenfold.transcript import Id, View

AUTO: Final = "auto"
"""What hooks are told of a compaction that nobody asked for; else it is `manual`."""

REFUSED: Final = "a hook refused the compaction: "

Before: TypeAlias = Callable[[str, str], Awaitable[Outcome]]
"""The user's hooks, with `auto` or `manual` and the instructions so far: they add to them, or refuse."""
Afterwards: TypeAlias = Callable[[Boundary, str], Awaitable[Sequence[Message]]]
"""The user's hooks, with the record and the text that takes the place of the older part. What they have
to say to the model is written with the compaction."""


async def agree(trigger: str, instructions: str) -> Outcome:
    return NOTHING


async def ignore(boundary: Boundary, text: str) -> Sequence[Message]:
    return ()


class NotAgreed(Exception):
    """A hook of the user refused; the message is its reason."""


class Agreement:
    """Shared by all layers of a conversation that put something else in place of its older part."""

    def __init__(self, emit: Emit, before: Before = agree, after: Afterwards = ignore) -> None:
        self._emit, self._before, self.told = emit, before, after
        self._asked: tuple[Id, str] | None = None
        self._answer = NOTHING
        self._refused = ""

    async def ask(self, view: View, trigger: str = AUTO, instructions: str = "") -> str:
        """The instructions, with what hooks add to them; `NotAgreed` when one of them refuses."""
        outcome = await self._outcome(view, trigger, instructions)
        if outcome.block or outcome.stop:
            raise NotAgreed(outcome.reason)
        self._refused = ""
        return "\n\n".join(text for text in (instructions, *outcome.contexts) if text.strip())

    async def _outcome(self, view: View, trigger: str, instructions: str) -> Outcome:
        now = (view[-1].id if len(view) else -1, instructions)
        if trigger == AUTO and now == self._asked:
            return self._answer
        outcome = await self._before(trigger, instructions)
        if trigger == AUTO:
            self._asked, self._answer = now, outcome
        return outcome

    def declined(self, reason: str) -> None:
        """Say that a hook refused, if it was not the last thing that was said here."""
        said = f"{REFUSED}{reason}"
        if said != self._refused:
            self._emit(Notice(said, "warning"))
        self._refused = said
