"""The face of a session: what can be seen of it, and done to it, besides talking."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

import anyio.lowlevel

from sevenfold.cache.ledger import Ledger
from sevenfold.core.errors import Mistake
from sevenfold.core.events import EventSource, Notice
from sevenfold.core.messages import Json, Message
from sevenfold.core.protocols import Clock, Model
from sevenfold.core.request import Request
from sevenfold.core.transcript import Reply, View
from sevenfold.hooks.hooks import Hooks
from sevenfold.layers.ladder import LayerParts
from sevenfold.layers.shared.background import BackgroundTasks
from sevenfold.session import frame as opening
from sevenfold.session.commands import CompactionReport, ConversationEditor, PastTurn, TurnLock
from sevenfold.session.idle_timer import ask_idle_layers
from sevenfold.session.log import TranscriptFile
from sevenfold.session.memory import SessionMemory
from sevenfold.session.project import Project, Toolset
from sevenfold.settings.flags import Flags
from sevenfold.settings.schema import Settings
from sevenfold.storage.places import ProjectPaths
from sevenfold.turn import Turn

STOP_BLOCKS: Final = 8
"""How often in a row hooks may send the model back to work."""
_GAVE_UP: Final = (
    "{moment} hooks sent the model back to work {times} times in a row, which is as often as they may: the "
    "turn ends although they may still disagree"
)


class SessionState(EventSource):
    """What a session is made of, once it is open."""

    id: str
    at: Project
    flags: Flags
    knowledge: SessionMemory
    tools: Toolset
    model: Model
    ledger: Ledger
    lent: LayerParts
    turn: Turn
    steering: ConversationEditor
    clock: Clock
    tray: BackgroundTasks
    _alone: TurnLock
    _ended_because: str = ""
    """Why a hook has ended the turn, if one has."""
    _recording: TranscriptFile

    def connect(self, name: str) -> Model:
        """A model of this name, which is closed with the session."""
        raise Mistake(f"no session is open that could connect to {name}")

    @property
    def view(self) -> View:
        return self._recording.transcript.view

    @property
    def settings(self) -> Settings:
        return self.at.settings

    @property
    def places(self) -> ProjectPaths:
        return self.at.places

    @property
    def request(self) -> Request:
        return self.turn.request

    @property
    def path(self) -> Path:
        return self._recording.path

    @property
    def folder(self) -> Path:
        """Where this session keeps what is too big for its transcript."""
        return self._recording.path.with_suffix("")

    async def compact(
        self, instructions: str = "", *, since: int | None = None, up_to: int | None = None
    ) -> CompactionReport:
        """Summarise now: all but the newest round, or from a turn on, or up to a turn."""
        return await self.steering.compact(instructions, since=since, up_to=up_to)

    async def catch_up(self) -> None:
        """What waits for a silence is begun now: the session is about to end, which does this by itself."""
        await anyio.lowlevel.checkpoint()  # what was started with the last turn decides first what waits
        if len(self.view) and self.settings.extraction.drain_seconds:
            ask_idle_layers(self.turn, self.tray, math.inf)

    def rewind(self, number: int) -> PastTurn:
        """Go back to before this turn; the transcript keeps everything."""
        return self.steering.rewind(number)

    def stop(self) -> bool:
        """Stop the turn or the compaction that is running, if one is."""
        return self._alone.stop()

    def stop_because(self, why: str) -> None:
        """A hook wants everything to end: what is running says so when it has."""
        self._ended_because = why
        if not self.stop():
            self.emit(Notice(f"a hook wanted everything to end: {why}", "warning"))


async def run_until_hooks_agree(
    turn: Turn, said: Message | None, hooks: Hooks, moment: str, about: Json
) -> Reply:
    """A turn, and another as long as hooks send the model back to work: of a session, or of an agent."""
    reply = await turn.run(said)
    for blocked in range(STOP_BLOCKS):
        outcome = await hooks.run(moment, {"stop_hook_active": blocked > 0, **about})
        if not outcome.block or outcome.stop:
            break
        turn.transcript.add(opening.make_context_message(outcome.reason), by="hooks")
        reply = await turn.run()
    else:
        turn.emit(Notice(_GAVE_UP.format(moment=moment, times=STOP_BLOCKS), "warning"))
    return reply
