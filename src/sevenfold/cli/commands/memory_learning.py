"""`sevenfold memory learn`: memories from a session that another agent recorded."""

from __future__ import annotations

from pathlib import Path

import anyio
import msgspec

from sevenfold.cli.commands.memory_display import open_memory
from sevenfold.cli.options import ChatOptions, SharedOptions
from sevenfold.cli.output import EventPrinter, SideOutput, print_result
from sevenfold.cli.startup import open_session, read_command_context
from sevenfold.clients.notes import find_notes_file, load_notes
from sevenfold.core.errors import Mistake
from sevenfold.core.events import Event, Remembered
from sevenfold.core.transcript import Transcript, encode_entry
from sevenfold.recordings.finder import ReplayFile, read_recording
from sevenfold.recordings.recorded_session import convert_recording
from sevenfold.storage.jsonl import JsonlLog
from sevenfold.storage.places import ProjectPaths, check_session_id, claim_places
from sevenfold.storage.waiting_notes import WaitingFolder


def run_learn(shared: SharedOptions, path: Path, model: str | None) -> int:
    """The words go the way of those that a session of ours left behind: `waiting_notes.py` says how."""
    recorded = read_recording(ReplayFile(str(path)))
    if recorded is None:
        raise Mistake(f"{path} is no recorded session")
    session, transcript = check_session_id(path.stem), convert_recording(recorded)
    with open_memory(shared) as memory:
        notes = load_notes(
            find_notes_file(memory.local, f"learned-{session}"), session
        )  # no other program's
    found: list[Remembered] = []
    last = transcript.entries[-1].id if transcript.entries else -1
    if last > notes.last_entry:
        found = anyio.run(_look_through, shared, session, transcript, notes.last_entry, model)
        notes.note_last_entry(last)
    text = "\n".join(f"{one.action} {one.name}: {one.path}" for one in found)
    said = text or "nothing in it is worth remembering, or all of it was looked at before"
    print_result(
        shared, said, {"session": session, "memories": [msgspec.structs.asdict(one) for one in found]}
    )
    return 0


async def _look_through(
    shared: SharedOptions, session: str, transcript: Transcript, last: int, model: str | None
) -> list[Remembered]:
    """Lay the transcript beside our own for the time that a session of ours needs to look through it."""
    places = claim_places(read_command_context(shared).find_session_places())
    waiting = WaitingFolder(places.project)
    path = places.session_file(session)
    if path.exists():
        raise Mistake(f"{path} is looked through already, or is a session of ours")
    found: list[Remembered] = []
    printer = EventPrinter(SideOutput(quiet=shared.quiet, color=not shared.no_color))

    def hear(event: Event) -> None:
        printer(event)
        if isinstance(event, Remembered):
            found.append(event)

    try:
        with JsonlLog(path) as log:
            log.append(b"".join(encode_entry(entry) + b"\n" for entry in transcript.entries))
        waiting.write(session, last)
        options = ChatOptions(shared=shared, model=model)
        async with open_session(options, started_by="learn", interactive=True) as ours:
            ours.subscribe(hear)
            if ours.extraction is None:
                raise Mistake("extraction is switched off: set the flag 'extraction' in the settings")
    finally:
        _clean_up(places, waiting, session)
    return found


def _clean_up(places: ProjectPaths, waiting: WaitingFolder, session: str) -> None:
    waiting.remove(session)
    places.session_file(session).unlink(missing_ok=True)
