"""A session that another agent recorded: its words go the way of our own sessions' words.

A copy of the transcript waits until a session of ours has looked through it; `storage/waiting_notes.py`
says how words wait. What was looked at once is not looked at again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sevenfold.clients.notes import find_notes_file, load_notes
from sevenfold.core.errors import Mistake, SevenfoldError
from sevenfold.core.events import Emit, Event, Remembered
from sevenfold.memory.guard.gate import Hear
from sevenfold.memory.store import Memory
from sevenfold.recordings.finder import ReplayFile, read_recording
from sevenfold.recordings.recorded_session import convert_recording, retell_recording
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
    return None if recorded is None else lambda: collect_write_sources(retell_recording(recorded).entries)


async def learn_from_recording(path: Path, at: Project, model: str | None, emit: Emit) -> list[Remembered]:
    """Save what is worth remembering of a recorded session into the memory of this project.

    What could not be looked at waits for the next call, or the next session of the project.
    """
    recorded = read_recording(ReplayFile(str(path)))
    if recorded is None:
        raise Mistake(f"{path} is no recorded session")
    name, transcript = check_session_id(path.stem), convert_recording(recorded)
    with Memory.at(at.memory) as memory:
        notes = load_notes(find_notes_file(memory.local, f"learned-{name}"), name)  # no hook writes these
    places = claim_places(at.places)
    waiting = WaitingFolder(places.project)
    last = transcript.entries[-1].id if transcript.entries else -1
    if last <= notes.last_entry and waiting.read(name) is None:
        return []
    if places.session_file(name).exists():
        raise Mistake(f"{places.session_file(name)} is a session of ours: it is looked through by itself")
    if not waiting.lay_copy(name, transcript, notes.last_entry):
        raise Mistake("another session is looking through what waits: try again when it is done")
    found = await _take_up(at, model, emit)
    if found is None:
        waiting.remove(name)
        raise Mistake("extraction is switched off: set the flag 'extraction' in the settings")
    notes.note_last_entry(last)
    return found


async def _take_up(at: Project, model: str | None, emit: Emit) -> list[Remembered] | None:
    """Open a session, which takes up the words that wait; its end waits for that. None: it may not."""
    from sevenfold.session.session import Session

    found: list[Remembered] = []

    def hear(event: Event) -> None:
        emit(event)
        if isinstance(event, Remembered):
            found.append(event)

    around = at.environment
    home, variables = around.shared or around.home, around.variables
    ours = Session(model, at.cwd, home=home, environ=variables, started_by="learn", interactive=True)
    ours.subscribe(hear)
    async with ours:
        return found if ours.extraction is not None else None
