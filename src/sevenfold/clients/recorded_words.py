"""A session that another agent recorded: its words go the way of our own sessions' words.

The transcript is laid beside ours for the time that a session of ours needs to look through it;
`storage/waiting_notes.py` says how words wait. What was looked at once is not looked at again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sevenfold.clients.notes import find_notes_file, load_notes
from sevenfold.core.errors import Mistake, SevenfoldError
from sevenfold.core.events import Emit, Event, Remembered
from sevenfold.core.transcript import Transcript, encode_entry
from sevenfold.memory.guard.gate import Hear
from sevenfold.memory.store import Memory
from sevenfold.recordings.finder import ReplayFile, read_recording
from sevenfold.recordings.recorded_session import convert_recording
from sevenfold.storage.jsonl import JsonlLog
from sevenfold.storage.places import check_session_id, claim_places
from sevenfold.storage.waiting_notes import WaitingFolder

if TYPE_CHECKING:
    from sevenfold.session.project import Project


def read_grounds(path: Path) -> Hear | None:
    """What a write of the agent may rest on by its client's transcript; None if that cannot be read."""
    from sevenfold.layers.l5_durable_memory.provenance import collect_write_sources

    try:
        recorded = read_recording(ReplayFile(str(path)))
    except (OSError, SevenfoldError):
        return None
    return None if recorded is None else lambda: collect_write_sources(convert_recording(recorded).entries)


async def learn_from_recording(path: Path, at: Project, model: str | None, emit: Emit) -> list[Remembered]:
    """Save what is worth remembering of a recorded session into the memory of this project."""
    recorded = read_recording(ReplayFile(str(path)))
    if recorded is None:
        raise Mistake(f"{path} is no recorded session")
    name, transcript = check_session_id(path.stem), convert_recording(recorded)
    with Memory.at(at.memory) as memory:
        notes = load_notes(find_notes_file(memory.local, f"learned-{name}"), name)  # no hook writes these
    last = transcript.entries[-1].id if transcript.entries else -1
    if last <= notes.last_entry:
        return []
    found = await _look_through(at, name, transcript, notes.last_entry, model, emit)
    notes.note_last_entry(last)
    return found


async def _look_through(
    at: Project, name: str, transcript: Transcript, last: int, model: str | None, emit: Emit
) -> list[Remembered]:
    from sevenfold.session.session import Session

    places = claim_places(at.places)
    waiting, path = WaitingFolder(places.project), places.session_file(name)
    if path.exists():
        raise Mistake(f"{path} is looked through already, or is a session of ours")
    found: list[Remembered] = []

    def hear(event: Event) -> None:
        emit(event)
        if isinstance(event, Remembered):
            found.append(event)

    around = at.environment
    try:
        with JsonlLog(path) as log:
            log.append(b"".join(encode_entry(entry) + b"\n" for entry in transcript.entries))
        waiting.write(name, last)
        home, variables = around.shared or around.home, around.variables
        ours = Session(model, at.cwd, home=home, environ=variables, started_by="learn", interactive=True)
        ours.subscribe(hear)
        async with ours:  # it takes up the words that wait, and its end waits for that
            if ours.extraction is None:
                raise Mistake("extraction is switched off: set the flag 'extraction' in the settings")
    finally:
        waiting.remove(name)
        path.unlink(missing_ok=True)
    return found
