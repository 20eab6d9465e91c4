"""The team's memory during a session: pulled before the first word, pushed after what is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from anyio.abc import TaskGroup

from sevenfold.core.clock import format_date
from sevenfold.core.errors import SevenfoldError
from sevenfold.core.events import Ended, Event, Notice, Remembered
from sevenfold.memory.team import STATE

if TYPE_CHECKING:
    from sevenfold.memory.store import MemoryStore
    from sevenfold.memory.team.sync import SyncScheduler
    from sevenfold.memory.team.team import Team
    from sevenfold.session.session import Session

BEFORE: Final = 3.0
"""Seconds that the first turn waits for what the team has written; then it goes on without."""
DOUBTFUL: Final = 0.5  # The same, when the last sync did not reach the team's repository
AFTER: Final = 10.0  # Seconds at the end for what is not sent yet; the next sync carries the rest
UNANSWERED: Final = 3.0  # The same, when the repository has not answered in the whole session


class SessionTeamSync:
    """Of one session. Without a team, or with the flag off, it does nothing."""

    def __init__(self, session: Session) -> None:
        store = session.knowledge.store
        self._emit = session.emit
        self._team = _team(session, store) if store is not None and session.flags.team else None
        self._pushing = _pushing(session, self._team) if self._team is not None else None
        if self._pushing is not None:
            session.events.overhear(self._heard)

    def start(self, tasks: TaskGroup) -> None:
        if self._pushing is not None:
            tasks.start_soon(self._pushing.run)

    async def ready(self) -> None:
        """Before the index is read for the first time."""
        if self._pushing is None or self._team is None:
            return
        try:
            last = self._team.last
        except SevenfoldError:  # the sync says what is wrong
            return
        if not await self._pushing.wait_for_first(BEFORE if last.offline is None else DOUBTFUL):
            when = f"of {format_date(last.synced)}" if last.synced is not None else "it was here"
            self._emit(
                Notice(f"The team's repository has not answered yet: its memory is as {when}.", "warning")
            )

    async def close(self) -> None:
        if self._pushing is not None:
            await self._pushing.close(AFTER if self._pushing.answered else UNANSWERED)

    def _heard(self, event: Event) -> None:
        if self._pushing is None:
            return
        if isinstance(event, Remembered):
            self._pushing.note_write(Path(event.path))
        elif isinstance(event, Ended):
            self._pushing.look_for_changes()


def _team(session: Session, store: MemoryStore) -> Team | None:
    if not (store.local / STATE).is_dir():
        return None
    from sevenfold.memory.team.team import Team

    at = session.at
    team = Team(store, session.clock, at.environment.tool_environment(at.settings.env))
    return team if team.joined else None


def _pushing(session: Session, team: Team) -> SyncScheduler:
    from sevenfold.memory.team.sync import SyncScheduler

    return SyncScheduler(team, team.store.path_of(), session.clock, session.emit)
