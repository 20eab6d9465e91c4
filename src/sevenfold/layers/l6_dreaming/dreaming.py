"""Layer 6: once in a while, when the agent is at rest, the memories are put in order.

A closed gate costs one look at the disk. An open one costs a fork of many steps on the prefix that the
provider has in its cache, or a second of rules where there is no model. It runs in the background, and
one that failed or was stopped is not begun again in the same session.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from sevenfold.core.clock import format_date
from sevenfold.core.errors import Mistake, SevenfoldError
from sevenfold.core.protocols import BackgroundStep, Change
from sevenfold.core.request import Frame, Request
from sevenfold.layers.l6_dreaming.dream_run import DreamMode, DreamResult
from sevenfold.layers.l6_dreaming.gates import TRANSCRIPT
from sevenfold.layers.parts import LayerParts
from sevenfold.models.capabilities import OFFLINE
from sevenfold.tools.permissions import EDITORS

if TYPE_CHECKING:  # workers are slow to import, and most sessions do not dream
    from sevenfold.layers.l6_dreaming.workers import DreamContext, Think
    from sevenfold.memory.consolidation.housekeeping import Learn

ROOM: Final = 0.4
"""Of the window, so much has to be free: a dream reads a lot, and nothing clears up behind it."""


class Dreaming:
    """The `rest` moment of the main conversation."""

    label: ClassVar[str] = "Dreaming"

    def __init__(self, parts: LayerParts, *, learn: Learn | None = None) -> None:
        """`learn` says what of a note in a log is worth remembering, where no model is asked.

        In assistant mode the first rest of a day distils the logs before it, and there are no other gates.
        """
        if parts.dreams is None:
            raise Mistake("dreaming needs a memory to put in order: give LayerParts `dreams`")
        self.dreams, self._tools, self._learn = parts.dreams.runner, parts.dreams.tools, learn
        self._parts, self._fork, self._clock = parts, parts.get_background_fork(), parts.clock
        self._nightly = parts.settings.assistant_mode
        self._looked_on = ""
        self._tried = False

    async def __call__(self, request: Request) -> Sequence[Change]:
        if self._tried or not self.dreams.enabled() or request.source != "main" or not len(request.view):
            return ()
        if self._nightly and not self._night_is_over():
            return ()
        from sevenfold.layers.l6_dreaming.workers import ModelDreamer

        think = self._think(request)
        if isinstance(think, ModelDreamer) and not self._room(request):
            return ()
        ended = await self.dreams.dream(think, by_hand=self._nightly)
        self._tried = ended.status in ("failed", "killed")
        return ()

    async def asked(
        self, request: Request, *, by_hand: bool = True, how: DreamMode | None = None
    ) -> DreamResult:
        """A dream on demand. `by_hand`: whatever the gates say, but never beside another."""
        by_hand = by_hand or self._nightly
        return await self.dreams.dream(self._think(request), by_hand=by_hand, how=how)

    def _think(self, request: Request) -> Think:
        from sevenfold.layers.l6_dreaming.workers import ModelDreamer, RuleDreamer

        if request.frame.model == OFFLINE or not _can_write(request.frame):
            return RuleDreamer(self._clock, lambda: self.dreams.previous, self._learn)
        longest = self._parts.conversation.capabilities.max_output
        return ModelDreamer(self._fork, request, self._tools, self._clock, self._known, longest)

    def _known(self) -> DreamContext:
        """Reads the folder and looks at the transcripts: too slow for the event loop."""
        from sevenfold.layers.l6_dreaming.workers import DreamContext

        dreams, last = self.dreams, self.dreams.previous
        try:
            findings = tuple(f"{one.file}: {one.text}" for one in dreams.store.check())
        except SevenfoldError:
            findings = ()
        return DreamContext(
            transcripts=dreams.transcripts,
            now=self._clock.now(),
            last=last,
            steps=dreams.settings.steps,
            sessions=tuple(find_sessions_since(dreams.transcripts, last or 0.0, dreams.session)),
            findings=findings,
        )

    def _room(self, request: Request) -> bool:
        window = self._parts.window
        return window - request.tokens >= ROOM * window

    def _night_is_over(self) -> bool:
        """True if a day has begun since the last dream, and something was noted before it."""
        today, last = format_date(self._clock.now()), self.dreams.lock.last()
        since = format_date(last) if last is not None else ""
        if since >= today or self._looked_on == today or not self.dreams.enabled():
            return False
        from sevenfold.memory.daily_logs import parse_log_day

        self._looked_on = today
        days = map(parse_log_day, self.dreams.store.listing().files)
        return any(day and since <= day < today for day in days)


def find_sessions_since(transcripts: Path, since: float, current: str) -> list[str]:
    """The sessions that were written to after a moment, the newest first, without the current one."""
    found: list[tuple[float, str]] = []
    try:
        with os.scandir(transcripts) as entries:
            for entry in entries:
                id, dot, _ = entry.name.rpartition(TRANSCRIPT)
                if dot and id != current and entry.is_file(follow_symlinks=False):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, id))
    except OSError:
        return []
    return [id for at, id in sorted(found, reverse=True) if at > since]


def _can_write(frame: Frame) -> bool:
    """True if the conversation offers tools to write with; its list of tools cannot be changed."""
    return {tool.get("name") for tool in frame.tools} >= EDITORS


_check: type[BackgroundStep] = Dreaming
