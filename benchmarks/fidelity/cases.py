"""The real compactions of recorded sessions: what was taken away, the real summary, what came after."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.core.messages import Message
from sevenfold.core.transcript import Entry, PlacedMessage, Replace, Transcript
from sevenfold.recordings.claude_code import read_session
from sevenfold.recordings.recorded_session import RecordedSession, convert_recording

SESSIONS: Final = Path(__file__).parents[2] / "../shared/data/sessions"
BY_THE_PROGRAM: Final = (
    "<local-command",
    "<command-",
    "<bash-",
    "<task-notification",
    "[Request interrupted",
)
"""How messages begin that stand in the role of the user and that nobody typed."""


class Case(msgspec.Struct, frozen=True):
    """One compaction."""

    name: str
    removed: tuple[PlacedMessage, ...]
    """What the model saw before and no longer after; typed messages are by "user"."""
    summary: str
    after: tuple[Entry, ...]
    """Up to the next compaction, or the end of the recording."""


def cases(path: Path) -> Iterator[Case]:
    recorded = read_session(path)
    entries = _by_whom(convert_recording(recorded).entries, recorded)
    log = Transcript(lambda: 0.0)
    for at, entry in enumerate(entries):
        if isinstance(entry.what, Replace) and (end := log.view.where(entry.what.last)) is not None:
            later = entries[at + 1 :]
            until = next((i for i, e in enumerate(later) if isinstance(e.what, Replace)), None)
            summary = "\n".join(message.text for message in entry.what.by)
            removed = tuple(log.view)[: end + 1]
            name = f"{path.name[:8]} {sum(isinstance(e.what, Replace) for e in entries[: at + 1])}"
            yield Case(name, removed, summary, tuple(later[:until]))
        log.add(entry.what, by=entry.by)


def _by_whom(entries: list[Entry], recorded: RecordedSession) -> list[Entry]:
    """What the recording program said in the user's name is told apart from what was typed."""
    put_in = {s.message.text for s in recorded.entries if s.meta and s.message is not None}

    def typed(entry: Entry) -> bool:
        text = entry.what.text if isinstance(entry.what, Message) else ""
        return not (text in put_in or text.startswith(BY_THE_PROGRAM))

    return [e if e.by != "user" or typed(e) else replace(e, by="program") for e in entries]
