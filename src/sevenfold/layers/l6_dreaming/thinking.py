"""The work of a dream: a fork of the conversation does it, or rules do where there is no model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio.to_thread
import msgspec
from msgspec.structs import replace

from sevenfold.cache.breakpoints import as_cached
from sevenfold.clock import date_of
from sevenfold.errors import Failure
from sevenfold.layers.l6_dreaming.progress import Watch
from sevenfold.layers.l6_dreaming.tools import DreamTools, StagedKeeper
from sevenfold.layers.l6_dreaming.wording import Known, accounted, asking
from sevenfold.memory.dreams.staging import Staged
from sevenfold.memory.logs import day_of
from sevenfold.messages import user
from sevenfold.models.directives import write_directive
from sevenfold.protocols import Clock, Forker
from sevenfold.request import Request
from sevenfold.tokens import Usage
from sevenfold.tools.confined import Confined
from sevenfold.tools.workspace import Keeper

if TYPE_CHECKING:
    from sevenfold.memory.consolidating import Learn, Report
    from sevenfold.memory.dreams.losses import Explained

KIND: Final = "dream"
ANSWER: Final = 4_000
"""Tokens of a reply: enough for several memories, and what the day's money has to have room for."""
MakeTools: TypeAlias = Callable[[Path, Keeper], Confined]
"""The tools of the session, confined to a folder."""


class Thought(msgspec.Struct, frozen=True):
    """What a dream hands in beside the files it changed."""

    explained: Mapping[str, Explained] = {}
    usage: Usage = Usage()
    notes: tuple[str, ...] = ()
    """What it left alone, and why, a sentence each."""


Think: TypeAlias = Callable[[Staged, Watch], Awaitable[Thought]]


class NeverStopped(Failure):
    """The model was still calling tools after the last step it was given."""

    def __init__(self, steps: int) -> None:
        super().__init__(f"the model was still at work after {steps} replies and was stopped")


class ByModel:
    """Asks the model of a conversation, on the prefix that the provider has in its cache."""

    def __init__(
        self,
        fork: Forker,
        request: Request,
        tools: MakeTools,
        clock: Clock,
        known: Callable[[], Known],
        longest: int = ANSWER,
    ) -> None:
        """`longest`: the tokens that one reply may hold."""
        self._fork, self._request, self._tools = fork, request, tools
        self._clock, self._known, self._longest = clock, known, min(ANSWER, longest)

    async def __call__(self, staged: Staged, watch: Watch) -> Thought:
        known = await anyio.to_thread.run_sync(self._known)
        body = await anyio.to_thread.run_sync(asking, staged, known)
        keeper = StagedKeeper(staged.folder, self._clock)
        tools = DreamTools(self._tools(staged.folder, keeper), watch)
        said = await self._fork(
            replace(self._request, view=as_cached(self._request.view)),
            user(write_directive(KIND, f"d-{staged.id}", body)),
            kind=KIND,
            steps=known.steps,
            tools=tools,
            max_tokens=self._longest,
        )
        if said.reply.message.tool_uses:
            raise NeverStopped(said.steps)
        if said.reply.cut_short:
            raise Failure(f"a reply was longer than {self._longest:,} tokens and was cut off")
        return Thought(accounted(said.reply.message.text), said.usage)


class ByRule:
    """Asks nobody: what can be told by rule is done by rule."""

    def __init__(
        self, clock: Clock, last: Callable[[], float | None], learn: Learn | None = None
    ) -> None:
        """`last`: when the dream before this one was; logs from that day on are distilled by `learn`,
        which says what of a note is to be remembered: all of it, when nobody says otherwise."""
        self._clock, self._last, self._learn = clock, last, learn

    async def __call__(self, staged: Staged, watch: Watch) -> Thought:
        report = await anyio.to_thread.run_sync(self._consolidated, staged)
        for file in report.changed:
            watch.wrote(file)
        unclear = tuple(f"{one.file} and {one.other_file}: {one.why}" for one in report.unclear)
        return Thought(report.explained, notes=unclear)

    def _consolidated(self, staged: Staged) -> Report:
        from sevenfold.layers.l6_dreaming.lessons import from_note
        from sevenfold.memory.consolidating import consolidate

        modified = {file: (staged.folder / file).stat().st_mtime for file in staged.files}
        last = self._last()
        since = date_of(last) if last is not None else ""
        logs = [file for file in staged.files if (day := day_of(file)) and day >= since]
        learn = self._learn or from_note
        return consolidate(staged.folder, self._clock.now(), modified, logs=logs, learn=learn)
